// Elastic sessions. A step runs on a thread of its own, while the caller's waits for signals and for what the
// step asks of Python.
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "bucket_bindings.h"
#include "deltawire/elastic.h"
#include "mesh_bindings.h"
#include "python_error.h"
#include "state_bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deltawire::python {
namespace {

using namespace std::chrono_literals;
// Name, kind, bytes of an element, shape, address; and what keeps the memory.
using ArrayAt = std::tuple<std::string, std::string, std::uint32_t, Shape, std::uintptr_t, nb::object>;

constexpr auto kSignals = 50ms;  // between two looks

// Lets a thread without the GIL call functions on the thread that waits for it, which has Python's context.
class CallersThread {
 public:
  // Called on the other thread; returns when `function` has run.
  void call(std::function<void()> function) {
    std::unique_lock lock(mutex_);
    wanted_ = std::move(function);
    changed_.notify_all();
    changed_.wait(lock, [this] { return !wanted_; });
  }
  // Runs `work` on a thread, and until it has ended, what it calls here; and looks for signals, whose
  // exception `interrupt` is called for. Raises the first exception of all these.
  void run(const std::function<void()>& work, const std::function<void()>& interrupt) {
    raised_.reset();
    bool is_over = false;
    std::thread thread([&] {
      work();
      const std::scoped_lock lock(mutex_);
      is_over = true;
      changed_.notify_all();
    });
    while (true) {
      std::function<void()> function;
      {
        const nb::gil_scoped_release no_gil;
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, kSignals, [&] { return is_over || wanted_; });
        if (is_over) break;
        function = wanted_;
      }
      if (function) answer(function);
      if (PyErr_CheckSignals() != 0) {
        note({});
        without_gil(interrupt);
      }
    }
    without_gil([&] { thread.join(); });
    if (raised_) throw nb::python_error(std::move(*std::exchange(raised_, std::nullopt)));
  }
  // Keeps the exception for run().
  void note(nb::python_error&& error) {
    if (!raised_) raised_.emplace(std::move(error));
  }

 private:
  void answer(const std::function<void()>& function) {
    function();
    const std::scoped_lock lock(mutex_);
    wanted_ = nullptr;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> wanted_;
  std::optional<nb::python_error> raised_;
};

struct Functions {
  nb::object doors;  // gives addresses; while the session opens
  nb::object state;  // gives a list of ArrayAt; in a step, or it could keep the session alive
  nb::object log;
};

class ElasticHandle {
 public:
  ElasticHandle(const std::string& spec, const ReducerOptions& options, ElasticOptions elastic,
                bool gives_state, nb::object known_doors, nb::object logger)
      : functions_{std::move(known_doors), {}, std::move(logger)},
        caller_(std::make_unique<CallersThread>()) {
    elastic.more_doors = [this] { return doors(); };
    if (gives_state) elastic.state = [this] { return state(); };
    elastic.log = [this](std::string_view line) { log(std::string(line)); };
    elastic.interrupted = [this] {
      if (raised_) return true;
      const nb::gil_scoped_acquire gil;
      if (PyErr_CheckSignals() == 0) return false;
      raised_.emplace();
      return true;
    };
    auto opened = without_gil([&] { return ElasticSession::open(spec, options, std::move(elastic)); });
    if (raised_) throw nb::python_error(std::move(*raised_));
    session_ = value_or_raise(std::move(opened));
    functions_.doors.reset();
  }
  ~ElasticHandle() {
    without_gil([&] { session_.reset(); });
  }

  ElasticSession& operator*() const { return *session_; }
  ElasticSession* operator->() const { return session_.get(); }

  Report all_reduce(const std::vector<std::pair<Submitted, nb::object>>& given, nb::object state,
                    const ElasticStep& step) {
    std::vector<std::unique_ptr<SubmittedBucket>> held;
    std::vector<ElasticBucket> buckets;
    for (const auto& [tensors, prepare] : given) {
      held.push_back(std::make_unique<SubmittedBucket>(tensors));
      ElasticBucket& bucket = buckets.emplace_back(ElasticBucket{held.back()->bucket(), {}});
      if (!prepare.is_none()) {
        bucket.prepare = [this, function = prepare.ptr()] {
          on_caller([&] { nb::borrow<nb::object>(function)(); });
        };
      }
    }
    Result<Report> report = fail(ErrorCode::kState, "no step was taken");
    steps_ = true;
    functions_.state = std::move(state);
    const auto over = [this] {
      steps_ = false;
      functions_.state.reset();
      offered_.clear();
    };
    try {
      caller_->run([&] { report = session_->all_reduce(buckets, step); },
                   [&] { session_->abort("interrupted"); });
    } catch (...) {
      over();
      throw;
    }
    over();
    return value_or_raise(std::move(report));
  }

 private:
  // On the thread that called all_reduce, or, while the session opens, on this one, which did.
  bool on_caller(auto call) {
    bool is_done = false;
    const auto guarded = [&] {
      try {
        call();
        is_done = true;
      } catch (nb::python_error& error) {
        if (steps_) {
          caller_->note(std::move(error));
        } else if (!raised_) {
          raised_.emplace(std::move(error));
        }
      }
    };
    if (steps_) {
      caller_->call(guarded);
    } else {
      const nb::gil_scoped_acquire gil;
      guarded();
    }
    return is_done;
  }

  std::vector<Endpoint> doors() {
    std::vector<Endpoint> found;
    on_caller([&] { found = endpoints_of(nb::cast<std::vector<Address>>(functions_.doors())); });
    return found;
  }

  // The function returns a text for an error of `state`.
  Result<std::vector<StateArray>> state() {
    std::vector<StateArray> arrays;
    std::optional<std::string> problem;
    const bool is_done = on_caller([&] {
      const nb::object given = functions_.state();
      if (nb::isinstance<nb::str>(given)) {
        problem = nb::cast<std::string>(given);
        return;
      }
      offered_ = nb::cast<std::vector<ArrayAt>>(given);
      for (const auto& [name, kind, element_bytes, dims, address, keeper] : offered_) {
        const std::uint64_t count = elements_of(dims) * element_bytes;
        arrays.push_back(
            {name, kind, element_bytes, dims, {reinterpret_cast<const std::byte*>(address), count}});
      }
    });
    if (problem) return fail(ErrorCode::kAborted, *problem);
    if (!is_done) return fail(ErrorCode::kAborted, "it was interrupted");
    return arrays;
  }

  void log(const std::string& line) {
    on_caller([&] { functions_.log(line); });
  }

  Functions functions_;
  std::unique_ptr<CallersThread> caller_;
  std::vector<ArrayAt> offered_;  // as long as a step needs them
  std::optional<nb::python_error> raised_;
  bool steps_ = false;
  std::unique_ptr<ElasticSession> session_;  // last: it uses all of the above
};

void open_session(ElasticHandle* self, const std::string& spec, const ReducerOptions& options,
                  std::optional<std::pair<int, int>> place, const std::vector<Address>& first,
                  nb::object doors, const nb::bytes& token, std::string_view encryption,
                  std::string interface, std::pair<std::uint16_t, std::uint16_t> ports,
                  std::optional<LinkShape> link,
                  std::tuple<std::int64_t, std::int64_t, std::int64_t> times_ms, std::optional<int> at_least,
                  bool gives_state, std::string settings, nb::object log) {
  ElasticOptions elastic;
  if (place) elastic.place = {place->first, place->second};
  elastic.doors = endpoints_of(first);
  elastic.token = token_in(token);
  elastic.encryption = value_or_raise(parse_encryption(encryption));
  elastic.interface = std::move(interface);
  elastic.ports = {ports.first, ports.second};
  elastic.link.shape = link;
  elastic.timeout = std::chrono::milliseconds(std::get<0>(times_ms));
  elastic.connect_timeout = std::chrono::milliseconds(std::get<1>(times_ms));
  elastic.arrival_timeout = std::chrono::milliseconds(std::get<2>(times_ms));
  elastic.at_least = at_least;
  elastic.settings = std::move(settings);
  new (self) ElasticHandle(spec, options, std::move(elastic), gives_state, std::move(doors), std::move(log));
}

nb::dict dict_of(const ElasticEvent& event) {
  nb::list gone;
  for (const ElasticEvent::Gone& each : event.gone) {
    nb::dict one;
    one["id"] = each.id;
    one["rank"] = each.rank;
    one["why"] = each.why;
    gone.append(one);
  }
  nb::dict all;
  all["epoch"] = event.epoch;
  all["step"] = event.step;
  all["gone"] = gone;
  all["joined"] = nb::cast(event.joined);
  all["world_size"] = event.world_size;
  all["seconds"] = event.seconds;
  all["residual_kept"] = event.residual_kept;
  all["residual_lost"] = event.residual_lost;
  all["error"] = event.error.text();
  return all;
}

std::optional<std::vector<std::tuple<std::string, std::string, Shape, nb::bytes>>> joined_state(
    const ElasticHandle& self) {
  const auto given = self->joined_state();
  if (!given) return std::nullopt;
  std::vector<std::tuple<std::string, std::string, Shape, nb::bytes>> arrays;
  for (const StateArray& array : *given) {
    arrays.emplace_back(array.name, array.kind, array.dims,
                        nb::bytes(array.bytes.data(), array.bytes.size()));
  }
  return arrays;
}

void bind_members(nb::class_<ElasticHandle>& session) {
  session.def_prop_ro("rank", [](const ElasticHandle& self) { return self->rank(); })
      .def_prop_ro("world_size", [](const ElasticHandle& self) { return self->world_size(); })
      .def_prop_ro("epoch", [](const ElasticHandle& self) { return self->epoch(); })
      .def_prop_ro("has_joiners", [](const ElasticHandle& self) { return self->has_joiners(); })
      .def_prop_ro("steps", [](const ElasticHandle& self) { return self->steps(); })
      .def(
          "begin_at", [](ElasticHandle& self, std::uint64_t steps) { self->begin_at(steps); }, "steps"_a)
      .def("declare_tensors",
           [](ElasticHandle& self, const std::vector<TensorNamed>& tensors) {
             self->declare_tensors(as_named(tensors));
           })
      .def(
          "members",
          [](const ElasticHandle& self) {
            std::vector<std::pair<int, std::string>> members;
            for (const ElasticMember& each : self->members())
              members.emplace_back(each.id, to_string(each.door));
            return members;
          },
          "By rank: id, address of the door.")
      .def("events",
           [](const ElasticHandle& self) {
             nb::list events;
             for (const ElasticEvent& event : self->events()) events.append(dict_of(event));
             return events;
           })
      .def("joined_state", &joined_state, "(name, kind, shape, bytes) of each array, or None.")
      .def(
          "end",
          [](const ElasticHandle& self)
              -> std::optional<std::pair<nb::object, std::optional<std::uint32_t>>> {
            const auto end = self->end();
            if (!end) return std::nullopt;
            return std::pair{make_exception(end->error), end->epoch};
          },
          "The error that ended the session and the epoch that it is about, or None.");
}

}  // namespace

void bind_elastic(nb::module_& module) {
  nb::class_<ElasticHandle> session(
      module, "ElasticSession",
      "A rank's place in a job that goes on when ranks die, leave and join (deltawire/elastic.h).");
  session
      .def("__init__", &open_session, "spec"_a, "options"_a, "place"_a.none(), "first"_a, "doors"_a,
           "token"_a, "encryption"_a, "interface"_a, "ports"_a, "link"_a.none(), "times_ms"_a,
           "at_least"_a.none(), "gives_state"_a, "settings"_a, "log"_a,
           "Connects. place: (rank, world size), None to join; first: [(host, port)] of doors; doors: gives "
           "all; times_ms: of a step, to connect, for an arrival; log: takes a line.")
      .def(
          "all_reduce",
          [](ElasticHandle& self, const std::vector<std::pair<Submitted, nb::object>>& buckets,
             nb::object state, float scale, std::uint64_t agreed, bool timed) {
            return self.all_reduce(buckets, std::move(state),
                                   {.scale = scale, .agreed = agreed, .timed = timed});
          },
          "buckets"_a, "state"_a = nb::none(), "scale"_a = 1.0F, "agreed"_a = 0, "timed"_a = false,
          "One step until it is committed: (tensors, prepare or None) of each bucket, tensors as "
          "Session.submit takes them; state: gives [(name, kind, bytes of an element, shape, address, "
          "keeper)], or the text of an error, to a process that joins. Returns the last bucket's report. "
          "Blocks, without the GIL; Ctrl-C aborts the session.")
      .def(
          "abort",
          [](ElasticHandle& self, const std::string& reason) { without_gil([&] { self->abort(reason); }); },
          "reason"_a)
      .def(
          "close",
          [](ElasticHandle& self, const std::string& why) { without_gil([&] { self->close(why); }); },
          "why"_a = "it left");
  bind_members(session);
  bind_state(session);
}

}  // namespace deltawire::python
