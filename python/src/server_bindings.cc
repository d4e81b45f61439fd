// Parameter servers and their workers, over a transport of their own.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "bucket_bindings.h"
#include "byte_arrays.h"
#include "deltawire/server.h"
#include "deltawire/snapshot.h"
#include "mesh_bindings.h"
#include "python_error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deltawire::python {
namespace {

using FloatsIn = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// A connected rank, alone with the other ranks' ends. Any thread may abort; the last user destroys it.
class Connection {
 public:
  explicit Connection(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {}
  ~Connection() { close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  std::shared_ptr<Transport> open() const {
    if (transport_ == nullptr) raise({ErrorCode::kState, "this transport is closed"});
    return transport_;
  }
  void abort(Error error) {
    error.code = ErrorCode::kAborted;
    if (const std::shared_ptr<Transport> transport = transport_) {
      without_gil([&] { transport->abort(error); });
    }
  }
  std::pair<std::uint64_t, std::uint64_t> traffic() const {
    if (transport_ != nullptr) last_ = transport_->traffic();
    return {last_.bytes_sent, last_.bytes_received};
  }
  void close() {
    (void)traffic();
    std::shared_ptr<Transport> going = std::move(transport_);
    without_gil([&] { going.reset(); });
  }
  bool closed() const noexcept { return transport_ == nullptr; }

 private:
  std::shared_ptr<Transport> transport_;  // read and changed under the GIL
  mutable Traffic last_;
};

// A server or a worker and the transport under it; one thread at a time, told and not trusted.
template <class Role>
class Served {
 public:
  Served(std::shared_ptr<Transport> transport, std::unique_ptr<Role> role)
      : transport_(std::move(transport)), role_(std::move(role)) {}
  ~Served() {
    without_gil([&] {
      role_.reset();
      transport_.reset();
    });
  }

  // The value of what `call(role)` returns, or its error raised; other Python threads run meanwhile.
  auto use(auto call) {
    const std::unique_lock alone(busy_, std::try_to_lock);
    if (!alone) raise({ErrorCode::kState, "another thread is in this parameter server"});
    return run_without_gil([&] { return call(*role_); });
  }
  const Role& look() const noexcept { return *role_; }

 private:
  std::mutex busy_;
  std::shared_ptr<Transport> transport_;
  std::unique_ptr<Role> role_;
};

template <class Role>
nb::bytes save(Served<Role>& self) {
  return given(self.use([](Role& role) { return role.save(); }));
}

template <class Role>
void load(Served<Role>& self, const BytesIn& state) {
  self.use([&](Role& role) { return role.load(bytes_of(state)); });
}

using Server = Served<ParameterServer>;
using Worker = Served<ParameterWorker>;

void make_served(Server* self, const Connection& link, const std::vector<TensorAt>& tensors,
                 const std::string& optimizer, const ServerOptions& options) {
  const std::shared_ptr<Transport> transport = link.open();
  const std::vector<Named> model = named_all(tensors);
  new (self)
      Server(transport, run_without_gil([&] { return make_server(model, optimizer, options, *transport); }));
}

void make_serving(Worker* self, const Connection& link, const std::vector<TensorAt>& tensors,
                  const ServerOptions& options) {
  const std::shared_ptr<Transport> transport = link.open();
  const std::vector<Named> model = named_all(tensors);
  new (self) Worker(transport, run_without_gil([&] { return make_worker(model, options, *transport); }));
}

void make_options(ServerOptions* self, std::int64_t servers, std::int64_t backup, std::string push,
                  std::string pull, std::uint64_t min_elements, std::uint64_t seed, std::uint64_t staleness,
                  bool drops_workers, std::int64_t min_workers, std::string rules_of) {
  const auto ranks = [](std::int64_t count) {
    return static_cast<int>(std::min<std::int64_t>(count, 1 << 30));
  };
  new (self) ServerOptions{.servers = ranks(servers),
                           .backup = ranks(backup),
                           .staleness = staleness,
                           .push = std::move(push),
                           .pull = std::move(pull),
                           .policy = {.min_elements = min_elements},
                           .seed = seed,
                           .on_worker_loss = drops_workers ? WorkerLoss::kDrop : WorkerLoss::kEnd,
                           .min_workers = ranks(min_workers),
                           .rules_of = std::move(rules_of)};
}

void bind_options(nb::module_& module) {
  nb::class_<ServerOptions>(module, "ServerOptions", "What is the same on all ranks of a parameter server.")
      .def("__init__", &make_options, "servers"_a, "backup"_a, "push"_a, "pull"_a, "min_elements"_a,
           "seed"_a = 0, "staleness"_a = 0, "drops_workers"_a = false, "min_workers"_a = 1, "rules_of"_a = "")
      .def(
          "fitted_to",
          [](const ServerOptions& self, int world_size) {
            return value_or_raise(fitted_to(self, world_size));
          },
          "world_size"_a, "With the codecs that are sent among so many ranks.")
      .def_ro("push", &ServerOptions::push)
      .def_ro("pull", &ServerOptions::pull);
  module.def(
      "server_warnings",
      [](std::string_view optimizer, const ServerOptions& options) {
        return value_or_raise(server_warnings(optimizer, options));
      },
      "optimizer"_a, "options"_a,
      "Where the optimizer doesn't go with the codecs of pushes and no rule is applied, and what training "
      "loses in spite of one, a sentence each.");
  nb::class_<ServerCounts>(module, "ServerCounts", "What a rank of a parameter server has done.")
      .def_ro("steps", &ServerCounts::steps)
      .def_ro("encodes", &ServerCounts::encodes, "Of parts, by this server.")
      .def_ro("push_bytes", &ServerCounts::push_bytes, "Of messages, sent (worker) or received (server).")
      .def_ro("pull_bytes", &ServerCounts::pull_bytes,
              "Of messages, received (worker) or sent (server), every copy counted.")
      .def_ro("late_pushes", &ServerCounts::late_pushes, "Of parts, that no step counted.")
      .def_ro("skipped_steps", &ServerCounts::skipped_steps, "Worker: that went on without it.");
  nb::class_<DroppedWorker>(module, "DroppedWorker", "A worker that the run goes on without.")
      .def_ro("rank", &DroppedWorker::rank)
      .def_ro("step", &DroppedWorker::step, "Of the server, that went on without it.")
      .def_prop_ro(
          "why", [](const DroppedWorker& self) { return self.why.text(); }, "What its loss was.")
      .def_prop_ro(
          "code", [](const DroppedWorker& self) { return std::string(error_code_name(self.why.code)); },
          "Of that.")
      .def_prop_ro(
          "time",
          [](const DroppedWorker& self) {
            return std::chrono::duration<double>(self.at.time_since_epoch()).count();
          },
          "When the server noticed, as time.time() counts.");
}

void bind_server(nb::module_& module) {
  nb::class_<Server>(module, "ParameterServer", "A server rank; one thread at a time.")
      .def("__init__", &make_served, "link"_a, "tensors"_a, "optimizer"_a, "options"_a,
           "tensors: (name, address, bytes, shape) of each float32 tensor, which is copied.")
      .def(
          "step",
          [](Server& self, std::int64_t timeout_ms) {
            return self.use([&](ParameterServer& server) { return server.step(in_ms(timeout_ms)); });
          },
          "timeout_ms"_a, "One step; False when the workers have closed.")
      .def(
          "set_learning_rate",
          [](Server& self, double rate) {
            self.use([&](ParameterServer& server) { return server.set_learning_rate(rate); });
          },
          "rate"_a)
      .def_prop_ro(
          "parts",
          [](const Server& self) {
            std::vector<std::tuple<std::size_t, std::uint64_t, std::uint64_t>> parts;
            for (const ServedPart& part : self.look().parts()) {
              parts.emplace_back(part.tensor, part.first, part.count);
            }
            return parts;
          },
          "(tensor's index, first element, elements) of each that this server owns.")
      .def(
          "view",
          [](nb::handle self, std::size_t part) {
            const std::span<const float> view = nb::cast<const Server&>(self).look().view(part);
            return nb::ndarray<nb::numpy, const float, nb::ndim<1>>(view.data(), {view.size()}, self);
          },
          "part"_a, "As all workers have it; valid until the next step.")
      .def("save", &save<ParameterServer>, "All that it needs to go on; between steps.")
      .def("load", &load<ParameterServer>, "state"_a, "Before the first step; or raises and changes nothing.")
      .def_prop_ro("steps", [](const Server& self) { return self.look().steps(); })
      .def_prop_ro("dropped",
                   [](const Server& self) {
                     const std::span<const DroppedWorker> all = self.look().dropped();
                     return std::vector<DroppedWorker>(all.begin(), all.end());
                   })
      .def_prop_ro("counts", [](const Server& self) { return self.look().counts(); });
}

// A call of a worker's that waits, with its deadline in ms from now.
auto waiting(Status (ParameterWorker::*call)(Deadline)) {
  return [call](Worker& self, std::int64_t timeout_ms) {
    self.use([&](ParameterWorker& worker) { return (worker.*call)(in_ms(timeout_ms)); });
  };
}

void bind_worker(nb::module_& module) {
  nb::class_<Worker>(module, "ParameterWorker", "A worker rank; one thread at a time.")
      .def("__init__", &make_serving, "link"_a, "tensors"_a, "options"_a,
           "tensors: (name, address, bytes, shape) of each float32 tensor, whose memory is written and must "
           "stay.")
      .def("open", waiting(&ParameterWorker::open), "timeout_ms"_a, "Fetches the model.")
      .def(
          "push",
          [](Worker& self, std::size_t tensor, const FloatsIn& gradient) {
            self.use([&](ParameterWorker& worker) {
              return worker.push(tensor, {gradient.data(), gradient.size()});
            });
          },
          "tensor"_a, "gradient"_a.noconvert(), "Of the tensor with that index, read during the call.")
      .def(
          "pull",
          [](Worker& self, std::size_t tensor, std::int64_t timeout_ms) {
            self.use([&](ParameterWorker& worker) { return worker.pull(tensor, in_ms(timeout_ms)); });
          },
          "tensor"_a, "timeout_ms"_a, "Waits until the tensor's parameters have the step's change.")
      .def(
          "pull_all",
          [](Worker& self, std::int64_t timeout_ms) {
            self.use([&](ParameterWorker& worker) { return worker.pull(in_ms(timeout_ms)); });
          },
          "timeout_ms"_a, "The same for all, which ends the step.")
      .def("catch_up", waiting(&ParameterWorker::catch_up), "timeout_ms"_a,
           "Until the parameters have the changes of all its steps.")
      .def("close", waiting(&ParameterWorker::close), "timeout_ms"_a)
      .def("save", &save<ParameterWorker>, "What waits for the next pushes; between steps.")
      .def("load", &load<ParameterWorker>, "state"_a, "Before open(); or raises and changes nothing.")
      .def_prop_ro("step", [](const Worker& self) { return self.look().step(); })
      .def_prop_ro("has_ended", [](const Worker& self) { return self.look().has_ended(); })
      .def_prop_ro("counts", [](const Worker& self) { return self.look().counts(); });
}

void bind_snapshots(nb::module_& module) {
  nb::class_<SnapshotPlace>(module, "SnapshotPlace", "A rank's files in a folder that ranks may share.")
      .def(
          "__init__",
          [](SnapshotPlace* self, std::string folder, int rank, std::string settings, int kept) {
            new (self) SnapshotPlace{std::move(folder), rank, std::move(settings), kept};
          },
          "folder"_a, "rank"_a, "settings"_a, "kept"_a = SnapshotPlace{}.kept)
      .def_rw("common", &SnapshotPlace::common, "A step that is kept in any case, or None.")
      .def(
          "write",
          [](const SnapshotPlace& self, std::uint64_t step, const nb::bytes& state) {
            const Bytes bytes = bytes_of(state);
            run_without_gil([&] { return write_snapshot(self, step, bytes); });
          },
          "step"_a, "state"_a, "Whole and on the disk when it returns; the oldest go.")
      .def(
          "find",
          [](const SnapshotPlace& self) { return run_without_gil([&] { return find_snapshots(self); }); },
          "The steps of those that are whole, ascending.")
      .def(
          "read",
          [](const SnapshotPlace& self, std::uint64_t step) {
            return given(run_without_gil([&] { return read_snapshot(self, step); }));
          },
          "step"_a)
      .def(
          "drop_after",
          [](const SnapshotPlace& self, std::uint64_t step) {
            run_without_gil([&] { return drop_snapshots_after(self, step); });
          },
          "step"_a);
}

}  // namespace

void bind_servers(nb::module_& module) {
  nb::class_<Connection>(module, "Connection",
                         "A connected rank's transport, for a parameter server or a worker.")
      .def(
          "__init__",
          [](Connection* self, OpenListener& listener, const MeshOptions& mesh) {
            new (self) Connection(connected(listener, mesh, &connect_tcp));
          },
          "listener"_a, "mesh"_a, "Connects; blocks up to mesh.connect_timeout_ms.")
      .def(
          "abort",
          [](Connection& self, const std::string& reason) { self.abort({ErrorCode::kAborted, reason}); },
          "reason"_a, "Fails every wait on every rank, naming this rank. Any thread.")
      .def(
          "abort", [](Connection& self, nb::handle cause) { self.abort(error_of(cause)); }, "error"_a,
          "The same because of a DeltawireError, which every rank gets, its code Aborted.")
      .def("traffic", &Connection::traffic, "Bytes (sent, received), headers and control messages included.")
      .def("close", &Connection::close, "Says goodbye once no server or worker holds it; idempotent.")
      .def_prop_ro("closed", &Connection::closed);
  bind_options(module);
  bind_server(module);
  bind_worker(module);
  bind_snapshots(module);
}

}  // namespace deltawire::python
