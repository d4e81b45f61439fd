// Listeners, and who is in the job.
#include "mesh_bindings.h"

#include <algorithm>
#include <iterator>
#include <new>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "byte_arrays.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deltawire::python {
namespace {

OpenListener opened(Result<std::unique_ptr<Listener>> made) {
  std::unique_ptr<Listener> listener = value_or_raise(std::move(made));
  Endpoint endpoint = listener->endpoint();
  return {std::move(listener), std::move(endpoint)};
}

void make_listener(OpenListener* self, const std::string& host, std::uint16_t port,
                   std::optional<std::uint16_t> last_port) {
  // A host name may take a while to resolve.
  const PortRange ports{port, last_port.value_or(port)};
  new (self) OpenListener(opened(without_gil([&] { return listen_tcp(host, ports); })));
}

// Takes any objects, so that another type is an error of ours.
void make_shape(LinkShape* self, const nb::object& bytes_per_second, const nb::object& burst_bytes) {
  double rate = 0;
  if (!nb::try_cast(bytes_per_second, rate) || !(rate > 0)) {
    raise({ErrorCode::kInvalidArgument, std::string("bytes_per_second=") +
                                            nb::repr(bytes_per_second).c_str() +
                                            " must be a number above 0; 12.5e6 is 100 Mbit/s"});
  }
  std::uint64_t burst = 0;
  if (!nb::try_cast(burst_bytes, burst) || burst < 1 || burst > 16384) {
    raise({ErrorCode::kInvalidArgument, std::string("burst_bytes=") + nb::repr(burst_bytes).c_str() +
                                            " must be a whole number, 1 ... 16384"});
  }
  new (self) LinkShape{rate, burst};
}

void make_mesh(MeshOptions* self, int rank, const std::vector<Address>& endpoints, const nb::bytes& token,
               std::string settings) {
  MeshOptions mesh;
  mesh.token = token_in(token);
  mesh.rank = rank;
  mesh.world_size = static_cast<int>(endpoints.size());
  mesh.endpoints = endpoints_of(endpoints);
  mesh.settings = std::move(settings);
  new (self) MeshOptions(std::move(mesh));
}

}  // namespace

std::vector<Endpoint> endpoints_of(const std::vector<Address>& addresses) {
  std::vector<Endpoint> endpoints;
  std::ranges::transform(addresses, std::back_inserter(endpoints), endpoint_of);
  return endpoints;
}

void raise_if_used(const OpenListener& listener) {
  if (listener.listener) return;
  raise({ErrorCode::kState, "this listener was used by another session; listen again"});
}

Token token_in(const nb::bytes& given) {
  Token token;
  if (given.size() != token.size()) {
    raise({ErrorCode::kInvalidArgument, "the token must have " + std::to_string(token.size()) + " bytes"});
  }
  std::ranges::copy(bytes_of(given), token.begin());
  return token;
}

void warn_in_log(const std::string& text) {
  const nb::gil_scoped_acquire gil;
  try {
    nb::module_::import_("logging").attr("getLogger")("deltawire").attr("warning")("%s", text);
  } catch (nb::python_error& error) {  // of the user's handler
    error.discard_as_unraisable("deltawire's log");
  }
}

Interruptions::Interruptions(MeshOptions& mesh)
    : raised_(std::make_shared<std::optional<nb::python_error>>()) {
  mesh.interrupted = [raised = raised_, asked = std::move(mesh.interrupted)] {
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) {
      raised->emplace();
      return true;
    }
    try {
      return asked && asked();
    } catch (nb::python_error& error) {  // a signal's handler may run there, too
      raised->emplace(std::move(error));
      return true;
    }
  };
}

void Interruptions::raise_any() {
  if (*raised_) throw nb::python_error(std::move(**raised_));
}

namespace {

// The function may be copied and destroyed without the GIL.
void set_interrupted(MeshOptions& mesh, nb::callable asked) {
  const std::shared_ptr<nb::callable> shared(new nb::callable(std::move(asked)), [](nb::callable* held) {
    const nb::gil_scoped_acquire gil;
    delete held;
  });
  mesh.interrupted = [shared] {
    const nb::gil_scoped_acquire gil;
    return nb::cast<bool>((*shared)());
  };
}

// A Python object's send(peer, memory) and receive(peer, memory), which return whether they could.
class PythonCarrier final : public Carrier {
 public:
  explicit PythonCarrier(nb::object carrier) : carrier_(std::move(carrier)) {}
  // The last one who has it may be a thread that a call has held up.
  ~PythonCarrier() override {
    if (!interpreter_is_up()) {
      (void)carrier_.release();
      return;
    }
    const nb::gil_scoped_acquire gil;
    try {
      carrier_.attr("close")();
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("the end of a carrier");
    }
    carrier_.reset();
  }
  PythonCarrier(const PythonCarrier&) = delete;
  PythonCarrier& operator=(const PythonCarrier&) = delete;

  bool send(int peer, Bytes bytes) noexcept override {
    // torch makes no tensor of memory that it may not write, without a warning.
    return call("send", peer, {const_cast<std::byte*>(bytes.data()), bytes.size()});
  }
  bool receive(int peer, MutBytes into) noexcept override { return call("receive", peer, into); }

 private:
  bool call(const char* name, int peer, MutBytes bytes) noexcept {
    if (!interpreter_is_up()) return false;
    const nb::gil_scoped_acquire gil;
    try {
      const nb::object memory = nb::steal(PyMemoryView_FromMemory(
          reinterpret_cast<char*>(bytes.data()), static_cast<Py_ssize_t>(bytes.size()), PyBUF_WRITE));
      if (!memory) nb::raise_python_error();
      return nb::cast<bool>(carrier_.attr(name)(peer, memory));
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("a carrier");
    } catch (const std::exception&) {  // no bool
    }
    return false;
  }

  nb::object carrier_;
};

void bind_listeners(nb::module_& module) {
  nb::class_<OpenListener>(module, "Listener", "A listening socket, until a Session takes it.")
      .def("__init__", &make_listener, "host"_a, "port"_a = 0, "last_port"_a = nb::none(),
           "Listens on an address, name or interface of this machine, at the first free port from port to "
           "last_port; port 0 takes any free one.")
      .def_prop_ro("endpoint", [](const OpenListener& self) { return address_of(self.endpoint); });
  module.def(
      "listen_for",
      [](const Address& rendezvous, int rank, const std::string& interface, std::uint16_t port,
         std::uint16_t last_port, std::int64_t timeout_ms) {
        const Endpoint at = endpoint_of(rendezvous);
        MeshOptions mesh;
        Interruptions interruptions(mesh);
        auto listener = without_gil([&] {
          return listen_for(at, rank, PortRange{port, last_port}, interface,
                            std::chrono::milliseconds(timeout_ms), mesh.interrupted);
        });
        interruptions.raise_any();
        return opened(std::move(listener));
      },
      "rendezvous"_a, "rank"_a, "interface"_a = "", "port"_a = 0, "last_port"_a = 0, "timeout_ms"_a = 60000,
      "The listener of a rank of a mesh that meets at a rendezvous. Rank 0's is there, on `interface` where "
      "one is given, at the rendezvous' port; another's as Listener's, without interface on the address "
      "towards the rendezvous, whose name is looked up until the time is over.");
  module.def(
      "local_address_towards",
      [](const std::string& host) { return run_without_gil([&] { return local_address_towards(host); }); },
      "host"_a, "The local address that packets to `host` leave from.");
  module.def(
      "check_descriptors",
      [](int rank, int world_size) { value_or_raise(check_descriptors(rank, world_size)); }, "rank"_a,
      "world_size"_a, "Raises where the limit of open files is too low for a mesh of so many ranks.");
  module.def(
      "printable_line",
      [](const nb::bytes& text, std::size_t max_bytes) {
        return printable_line({text.c_str(), text.size()}, max_bytes);
      },
      "text"_a, "max_bytes"_a,
      "Text from outside as it may stand in a message: one line of printable UTF-8.");
}

void bind_texts(nb::module_& module) {
  module.def(
      "parse_endpoint",
      [](std::string_view text, const std::string& name) {
        const auto endpoint = parse_endpoint(text);
        if (!endpoint) raise({endpoint.error().code, name + ": " + endpoint.error().message});
        return address_of(*endpoint);
      },
      "text"_a, "name"_a,
      "(host, port) of the argument `name`, \"10.0.0.1:29600\", \"node1:29600\" or \"[fd00::1]:29600\".");
  module.def(
      "trim_secret", [](const nb::bytes& secret) { return given(trim_secret(bytes_of(secret))); }, "secret"_a,
      "A secret without the line break behind it; one of 32 bytes as it is.");
  module.def(
      "token_of",
      [](const nb::bytes& secret) {
        const Token token = value_or_raise(token_of(bytes_of(secret)));
        return nb::bytes(token.data(), token.size());
      },
      "secret"_a, "The token, 32 bytes, of a secret of 16 bytes or more; one of 32 bytes is the token.");
  module.def(
      "check_encryption", [](std::string_view text) { (void)value_or_raise(parse_encryption(text)); },
      "text"_a, "Raises for anything but \"auto\", \"required\" and \"off\".");
}

void bind_shapes(nb::module_& module) {
  nb::class_<LinkShape>(module, "LinkShape",
                        "A token bucket on everything that this rank sends, and one on what it receives, "
                        "shared by its peers like a network card.")
      .def("__init__", &make_shape, "bytes_per_second"_a.none() = 12.5e6, "burst_bytes"_a.none() = 16384,
           nb::sig("def __init__(self, bytes_per_second: float = 12500000.0, "
                   "burst_bytes: int = 16384) -> None"),
           "bytes_per_second > 0; burst_bytes 1 ... 16384.")
      .def_ro("bytes_per_second", &LinkShape::bytes_per_second)
      .def_ro("burst_bytes", &LinkShape::burst_bytes);
}

}  // namespace

void bind_meshes(nb::module_& module) {
  bind_listeners(module);
  bind_texts(module);
  bind_shapes(module);
  nb::class_<MeshOptions>(module, "Mesh", "Who is in the job, and how to reach them.")
      .def("__init__", &make_mesh, "rank"_a, "endpoints"_a, "token"_a, "settings"_a,
           "endpoints: (host, port) of every rank, own included; token: 32 bytes, equal on all ranks.")
      .def_static(
          "at",
          [](const Address& rendezvous, int rank, int world_size, const nb::bytes& token) {
            MeshOptions mesh;
            mesh.rank = rank;
            mesh.world_size = world_size;
            mesh.rendezvous = endpoint_of(rendezvous);
            mesh.token = token_in(token);
            return mesh;
          },
          "rendezvous"_a, "rank"_a, "world_size"_a, "token"_a,
          "Of ranks that know where rank 0 listens, (host, port), and no more.")
      .def_prop_rw(
          "arrival_timeout_ms", [](const MeshOptions& self) { return self.arrival_timeout.count(); },
          [](MeshOptions& self, std::int64_t ms) { self.arrival_timeout = std::chrono::milliseconds(ms); },
          "Beyond a bucket's time, for a rank that answers and has not arrived.")
      .def(
          "set_encryption",
          [](MeshOptions& self, std::string_view text) {
            self.encryption = value_or_raise(parse_encryption(text));
          },
          "text"_a, "\"auto\", \"required\" or \"off\"; equal on all ranks.")
      .def(
          "set_carrier",
          [](MeshOptions& self, nb::object carrier) {
            self.link.carrier = std::make_shared<PythonCarrier>(std::move(carrier));
          },
          "carrier"_a,
          "Has methods send(peer, memory) and receive(peer, memory), which move a message's bytes in place "
          "of the connection and return whether they could, on threads of their own; and close(). On all "
          "ranks or on none.")
      .def("set_interrupted", &set_interrupted, "asked"_a,
           "A function that is called a few times a second while the ranks connect, on the thread that "
           "connects; True ends it with Aborted, an exception with that.")
      .def(
          "name_ranks",
          [](MeshOptions& self, std::string kind, std::vector<int> numbers) {
            self.names = {std::move(kind), std::move(numbers)};
          },
          "kind"_a, "numbers"_a,
          "How errors name the ranks, \"global rank\" for instance, and the number of each; equal on all.")
      .def_rw("epoch", &MeshOptions::epoch, "Of this set of ranks; equal on all of them.")
      .def_prop_rw(
          "connect_timeout_ms", [](const MeshOptions& self) { return self.connect_timeout.count(); },
          [](MeshOptions& self, std::int64_t ms) { self.connect_timeout = std::chrono::milliseconds(ms); })
      .def_prop_rw(
          "shape", [](const MeshOptions& self) { return self.link.shape; },
          [](MeshOptions& self, std::optional<LinkShape> shape) { self.link.shape = shape; },
          nb::arg("shape").none());
}

}  // namespace deltawire::python
