// Sessions, and what their buckets cost.
#include <algorithm>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "bucket_bindings.h"
#include "byte_arrays.h"
#include "completions.h"
#include "deltawire/reducer.h"
#include "deltawire/session.h"
#include "mesh_bindings.h"
#include "python_error.h"
#include "state_bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deltawire::python {
namespace {

void make_reducer_options(ReducerOptions* self, std::uint64_t min_elements, std::string_view revert,
                          int threads, std::string_view nonfinite, const nb::object& device) {
  if (nonfinite != "error" && nonfinite != "pass") {
    raise({ErrorCode::kInvalidArgument,
           "nonfinite='" + std::string(nonfinite) + "' is unknown; use 'error' or 'pass'"});
  }
  const NonFinite steps = nonfinite == "pass" ? NonFinite::kPass : NonFinite::kError;
  new (self) ReducerOptions{.policy = {min_elements, steps},
                            .revert = revert_called(revert),
                            .threads = threads,
                            .measure_flow = true,
                            .backend = device.is_none() ? nullptr : backend_of(device)};
}

std::unique_ptr<Session> open_session(OpenListener& listener, const MeshOptions& mesh,
                                      const std::string& spec, const ReducerOptions& options) {
  return connected(listener, mesh, [&](std::unique_ptr<Listener> taken, const MeshOptions& options_of_mesh) {
    return Session::connect(spec, options, std::move(taken), options_of_mesh);
  });
}

nb::object report_repr(const Report& report) {
  return nb::str(
             "<report: {} of {} bytes sent for {} elements; encode {:.3g} s, exchange {:.3g} s, decode "
             "{:.3g} s; digest {:016x}>")
      .format(report.bytes_sent, report.raw_bytes, report.element_count, report.encode_seconds,
              report.exchange_seconds, report.decode_seconds, report.digest);
}

std::vector<std::tuple<std::string, std::int64_t, std::int64_t>> spans_of(const Report& report) {
  const auto nanoseconds = [](Clock::time_point at) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
  };
  static constexpr const char* kNames[] = {"encode", "exchange", "decode"};
  std::vector<std::tuple<std::string, std::int64_t, std::int64_t>> spans;
  spans.reserve(report.spans.size());
  for (const PhaseSpan& span : report.spans) {
    spans.emplace_back(kNames[static_cast<int>(span.phase)], nanoseconds(span.begin), nanoseconds(span.end));
  }
  return spans;
}

// The exception, or None.
nb::object failure(const Session& session, std::int64_t wait_ms) {
  const std::optional<Error> error =
      without_gil([&] { return session.failure(std::chrono::milliseconds(wait_ms)); });
  return error ? make_exception(*error) : nb::object(nb::none());
}

// What Python holds: a session whose destructor lets go of the GIL.
class SessionHandle {
 public:
  SessionHandle(std::unique_ptr<Session> session, bool is_on_device)
      : is_on_device_(is_on_device), session_(std::move(session)) {}
  ~SessionHandle() {
    without_gil([&] {
      session_.reset();
      completions_.stop();
    });
  }
  Session& operator*() const { return *session_; }
  Session* operator->() const { return session_.get(); }

  void submit(const Submitted& tensors, const Step& step, std::int64_t timeout_ms, nb::callable callback);
  // All callables have returned then; on their own thread it waits for none.
  void close() {
    session_->close();
    completions_.stop();
  }

 private:
  bool is_on_device_;        // its reducer calls Python
  Completions completions_;  // first: the session adds to it until it is gone
  std::unique_ptr<Session> session_;
};

// Keeps the GIL where no device codes: nothing here waits for long then, and to get it back may take longer
// than all of it.
void SessionHandle::submit(const Submitted& tensors, const Step& step, std::int64_t timeout_ms,
                           nb::callable callback) {
  auto bucket = std::make_shared<SubmittedBucket>(tensors);
  auto completion = std::make_shared<Completions::One>();
  completion->emplace_back(std::move(callback));
  const auto done = [this, bucket, completion,
                     caller = std::this_thread::get_id()](const Result<Report>& report) noexcept {
    if (report) bucket->hand_over_means();
    Completion& own = completion->front();
    try {
      own.outcome = report;
    } catch (const std::bad_alloc&) {
      own.outcome = fail(ErrorCode::kNoMemory, {});
    }
    if (std::this_thread::get_id() != caller) {
      completions_.add(*completion);
    } else {  // it could not be queued
      const nb::gil_scoped_acquire gil;
      own.call();
      completion->clear();
    }
  };
  std::optional<nb::gil_scoped_release> no_gil;
  if (is_on_device_) no_gil.emplace();  // whoever has the queue may wait for the GIL
  session_->submit(bucket->bucket(), step, std::chrono::milliseconds(timeout_ms), done);
}

void bind_steps(nb::module_& module) {
  nb::class_<Step>(module, "Step", "Where in training a bucket stands.")
      .def(
          "__init__",
          [](Step* self, std::uint64_t number, std::uint32_t bucket, bool last, float scale,
             std::uint64_t agreed,
             bool timed) { new (self) Step{number, bucket, last, scale, agreed, timed}; },
          "number"_a, "bucket"_a, "last"_a, "scale"_a = 1.0F, "agreed"_a = 0, "timed"_a = false,
          "scale: how many times what they mean the tensors are (a loss scale); equal on all ranks. agreed: "
          "a digest of what else must be, 0 for nothing; compared when the step ends. timed: reports have "
          "spans.")
      .def_ro("last", &Step::last)
      .def_ro("agreed", &Step::agreed);
}

void bind_reports(nb::module_& module) {
  nb::class_<ReducerOptions>(module, "ReducerOptions", "How residuals and small tensors are treated.")
      .def("__init__", &make_reducer_options, "min_elements"_a, "revert"_a, "threads"_a = 0,
           "nonfinite"_a = "error", "device"_a = nb::none(),
           "Tensors below min_elements travel uncompressed; revert: 'exact' or 'fold'; threads: that code a "
           "message, 0: the process's; nonfinite: 'error' or 'pass', of steps with NaN or infinities; "
           "device: codes the tensors, whose addresses are its own then; None: the CPU.");
  nb::class_<Report>(module, "Report", "What one bucket cost on this rank; wall-clock seconds.")
      .def("__repr__", &report_repr)
      .def_ro("encode_seconds", &Report::encode_seconds)
      .def_ro("exchange_seconds", &Report::exchange_seconds, "Waiting for others.")
      .def_ro("decode_seconds", &Report::decode_seconds)
      .def_ro("bytes_sent", &Report::bytes_sent, "Messages, every copy counted; transport headers not.")
      .def_ro("raw_bytes", &Report::raw_bytes, "Of the same messages bare: the bytes of their elements.")
      .def_ro("element_count", &Report::element_count)
      .def_ro("digest", &Report::digest, "Of the step's means so far; equal on all ranks.")
      .def_prop_ro(
          "last_committed_step",
          [](const Report& self) -> std::optional<std::uint64_t> {
            if (self.last_committed_step == kNoStep) return std::nullopt;
            return self.last_committed_step;
          },
          "The last step that counts on every rank, perhaps this one; None before the first.")
      .def_ro("finite", &Report::finite,
              "Whether the step's means so far are; looked for with nonfinite='pass' alone.")
      .def_prop_ro(
          "flow",
          [](const Report& self) -> std::optional<std::map<std::string, double>> {
            const FeedbackFlow& flow = self.flow;
            if (flow.step == kNoStep) return std::nullopt;
            return {{{"step", static_cast<double>(flow.step)},
                     {"given", flow.given},
                     {"sent", flow.sent},
                     {"left", flow.left},
                     {"due", flow.due},
                     {"sent_of_due", flow.sent_of_due}}};
          },
          "Sums of squares of the latest step that was measured (FeedbackFlow); None before, or within a "
          "step.")
      .def_prop_ro("spans", &spans_of,
                   "Of a timed step: (phase, begin, end) of each stretch, as time.monotonic_ns() counts.");
  nb::class_<Memory>(module, "Memory", "Bytes that a session holds besides the caller's tensors.")
      .def(nb::init<>(), "None at all.")
      .def_ro("residual_bytes", &Memory::residual_bytes)
      .def_ro("staging_bytes", &Memory::staging_bytes, "Where means are formed and messages come in.")
      .def_ro("message_bytes", &Memory::message_bytes, "Encoded here, kept until the step ends.")
      .def_ro("peak_bytes", &Memory::peak_bytes, "The most of all three together, ever.");
}

// How a session ends, and why it has.
void bind_ends(nb::class_<SessionHandle>& session) {
  session
      .def(
          "abort",
          [](SessionHandle& self, const std::string& reason, std::optional<int> suspect) {
            without_gil([&] { self->abort(reason, suspect.value_or(kNoSuspect)); });
          },
          "reason"_a, "suspect"_a = nb::none(),
          "Fails every wait on every rank, naming this rank, or the suspect because of whom it fails.")
      .def(
          "abort",
          [](SessionHandle& self, nb::handle cause) {
            Error error = error_of(cause);
            error.code = ErrorCode::kAborted;
            without_gil([&] { self->abort(std::move(error)); });
          },
          "error"_a, "The same because of a DeltawireError, which every rank gets, its code Aborted.")
      .def(
          "failure", [](const SessionHandle& self, std::int64_t wait_ms) { return failure(*self, wait_ms); },
          "wait_ms"_a = 0, nb::sig("def failure(self, wait_ms: int = 0) -> Exception | None"),
          "Why no bucket can succeed any more: the error that ended the session, PeerLost where a rank has "
          "left in good order, or None while all ranks are there. Waits up to wait_ms for either.")
      .def(
          "close", [](SessionHandle& self) { without_gil([&] { self.close(); }); },
          "Joins the session's threads and says goodbye; idempotent. Buckets in flight are aborted.");
}

}  // namespace

void bind_sessions(nb::module_& module) {
  bind_steps(module);
  bind_reports(module);
  module.attr("part_rows") = part_rows();
  nb::class_<SessionHandle> session(module, "Session", "A connected rank. Any thread may call any member.");
  bind_ends(session);
  session
      .def(
          "__init__",
          [](SessionHandle* self, OpenListener& listener, const MeshOptions& mesh, const std::string& spec,
             const ReducerOptions& options) {
            new (self) SessionHandle(open_session(listener, mesh, spec, options), options.backend != nullptr);
          },
          "listener"_a, "mesh"_a, "spec"_a, "options"_a, "Connects; blocks up to mesh.connect_timeout_ms.")
      .def(
          "submit",
          [](SessionHandle& self, const Submitted& tensors, const Step& step, std::int64_t timeout_ms,
             nb::callable callback) { self.submit(tensors, step, timeout_ms, std::move(callback)); },
          "tensors"_a, "step"_a, "timeout_ms"_a, "callback"_a,
          "Queues one bucket: (name, address, bytes, shape) of each tensor, row-major, which becomes the "
          "mean over ranks, and optionally its dtype's name (float32 without) and the address of its "
          "significance: as many float32, 0 for none; or a PairsAt, whose `mean` is then there. The memory "
          "must stay until callback(error or None, report or None) has run, in the order of buckets, on a "
          "thread of the session's that does nothing else.");
  session.def(
      "shares_memory", [](const SessionHandle& self) { return self->shares_memory(); },
      "Whether all ranks read each other's values where they lie.");
  session.def(
      "lines",
      [](const SessionHandle& self) {
        std::vector<std::tuple<double, std::string, int>> lines;
        for (const LineState& line : self->lines()) {
          const double round_trip = std::chrono::duration<double>(line.round_trip).count();
          lines.emplace_back(round_trip, line.congestion_control, line.streams);
        }
        return lines;
      },
      "To each rank, as they were when the ranks met: the round trip in seconds, the congestion control, and "
      "how many streams carry the messages; 0, \"\" and 1 where it is no TCP, and to this rank itself.");
  session.def(
      "recode",
      [](SessionHandle& self, const Spec& spec) { run_without_gil([&] { return self->recode(spec); }); },
      "spec"_a,
      "From the next step on tensors are coded as this Spec of the same pattern says; on all ranks "
      "between the same two steps.");
  bind_state(session);
}

}  // namespace deltawire::python
