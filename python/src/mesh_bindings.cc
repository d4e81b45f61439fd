// Listeners, and who is in the job.
#include "mesh_bindings.h"

#include <algorithm>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "python_error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deltawire::python {
namespace {

using Address = std::pair<std::string, std::uint16_t>;

void make_listener(OpenListener* self, const std::string& host, std::uint16_t port,
                   std::optional<std::uint16_t> last_port) {
  // A host name may take a while to resolve.
  const PortRange ports{port, last_port.value_or(port)};
  std::unique_ptr<Listener> listener = value_or_raise(without_gil([&] { return listen_tcp(host, ports); }));
  Endpoint endpoint = listener->endpoint();
  new (self) OpenListener{std::move(listener), std::move(endpoint)};
}

void make_shape(LinkShape* self, double bytes_per_second, std::uint64_t burst_bytes) {
  if (!(bytes_per_second > 0)) {
    raise({ErrorCode::kInvalidArgument, "bytes_per_second must be above 0; 12.5e6 is 100 Mbit/s"});
  }
  if (burst_bytes < 1 || burst_bytes > 16384) {
    raise({ErrorCode::kInvalidArgument, "burst_bytes must be 1 ... 16384"});
  }
  new (self) LinkShape{bytes_per_second, burst_bytes};
}

void make_mesh(MeshOptions* self, int rank, const std::vector<Address>& endpoints, const nb::bytes& token,
               std::string settings) {
  MeshOptions mesh;
  if (token.size() != mesh.token.size()) {
    raise(
        {ErrorCode::kInvalidArgument, "the token must have " + std::to_string(mesh.token.size()) + " bytes"});
  }
  const auto* bytes = static_cast<const std::byte*>(token.data());
  std::copy(bytes, bytes + token.size(), mesh.token.begin());
  mesh.rank = rank;
  mesh.world_size = static_cast<int>(endpoints.size());
  for (const auto& [host, port] : endpoints) mesh.endpoints.push_back(Endpoint{host, port});
  mesh.settings = std::move(settings);
  new (self) MeshOptions(std::move(mesh));
}

}  // namespace

std::unique_ptr<Transport> connected(OpenListener& listener, const MeshOptions& mesh) {
  if (!listener.listener) {
    raise({ErrorCode::kState, "this listener was used by another session; listen again"});
  }
  return value_or_raise(without_gil([&] { return connect_tcp(std::move(listener.listener), mesh); }));
}

void bind_meshes(nb::module_& module) {
  nb::class_<OpenListener>(module, "Listener", "A listening socket, until a Session takes it.")
      .def("__init__", &make_listener, "host"_a, "port"_a = 0, "last_port"_a = nb::none(),
           "Listens on an address, name or interface of this machine, at the first free port from port to "
           "last_port; port 0 takes any free one.")
      .def_prop_ro("endpoint",
                   [](const OpenListener& self) { return Address{self.endpoint.host, self.endpoint.port}; });
  module.def(
      "local_address_towards",
      [](const std::string& host) {
        return value_or_raise(without_gil([&] { return local_address_towards(host); }));
      },
      "host"_a, "The local address that packets to `host` leave from.");
  module.def(
      "check_descriptors",
      [](int rank, int world_size) { raise_if_failed(check_descriptors(rank, world_size)); }, "rank"_a,
      "world_size"_a, "Raises where the limit of open files is too low for a mesh of so many ranks.");
  module.def(
      "printable_line",
      [](const nb::bytes& text, std::size_t max_bytes) {
        return printable_line({text.c_str(), text.size()}, max_bytes);
      },
      "text"_a, "max_bytes"_a,
      "Text from outside as it may stand in a message: one line of printable UTF-8.");
  nb::class_<LinkShape>(module, "LinkShape",
                        "A token bucket on everything that this rank sends, and one on what it receives, "
                        "shared by its peers like a network card.")
      .def("__init__", &make_shape, "bytes_per_second"_a = 12.5e6, "burst_bytes"_a = 16384,
           "bytes_per_second > 0; burst_bytes 1 ... 16384.")
      .def_ro("bytes_per_second", &LinkShape::bytes_per_second)
      .def_ro("burst_bytes", &LinkShape::burst_bytes);
  nb::class_<MeshOptions>(module, "Mesh", "Who is in the job, and how to reach them.")
      .def("__init__", &make_mesh, "rank"_a, "endpoints"_a, "token"_a, "settings"_a,
           "endpoints: (host, port) of every rank, own included; token: 32 bytes, equal on all ranks.")
      .def_prop_rw(
          "arrival_timeout_ms", [](const MeshOptions& self) { return self.arrival_timeout.count(); },
          [](MeshOptions& self, std::int64_t ms) { self.arrival_timeout = std::chrono::milliseconds(ms); },
          "Beyond a bucket's time, for a rank that answers and has not arrived.")
      .def_prop_rw(
          "connect_timeout_ms", [](const MeshOptions& self) { return self.connect_timeout.count(); },
          [](MeshOptions& self, std::int64_t ms) { self.connect_timeout = std::chrono::milliseconds(ms); })
      .def_prop_rw(
          "shape", [](const MeshOptions& self) { return self.link.shape; },
          [](MeshOptions& self, std::optional<LinkShape> shape) { self.link.shape = shape; },
          nb::arg("shape").none());
}

}  // namespace deltawire::python
