// Doors, and the lines to them.
#include <cstdint>
#include <optional>
#include <utility>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "byte_arrays.h"
#include "deltawire/door.h"
#include "mesh_bindings.h"
#include "python_error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deltawire::python {
namespace {

DoorOptions door_options(const nb::bytes& token, std::string_view encryption) {
  DoorOptions options;
  options.token = token_in(token);
  options.encryption = value_or_raise(parse_encryption(encryption));
  return options;
}

// None where the time is up.
template <class T>
std::optional<T> value_in_time(Result<T>&& result) {
  if (!result && result.error().code == ErrorCode::kTimeout) return std::nullopt;
  return value_or_raise(std::move(result));
}

std::optional<nb::bytes> receive(Line& line, std::size_t bytes_max, std::int64_t ms) {
  auto got = value_in_time(without_gil([&] { return line.receive(bytes_max, in_ms(ms)); }));
  if (!got) return std::nullopt;
  return nb::bytes(got->data(), got->size());
}

}  // namespace

void bind_doors(nb::module_& module) {
  nb::class_<Line>(module, "Line",
                   "A connection to a door: messages both ways. One thread at a time, except hang_up.")
      .def_prop_ro("peer", [](const Line& self) { return address_of(self.peer()); })
      .def_prop_ro("bytes_received", &Line::bytes_received, "Of messages, the one that is arriving included.")
      .def("hang_up", &Line::hang_up, "Ends it at once, in whatever thread it is used.")
      .def(
          "send",
          [](Line& self, const nb::bytes& message, std::int64_t ms) {
            const Bytes bytes = bytes_of(message);
            run_without_gil([&] { return self.send(bytes, in_ms(ms)); });
          },
          "message"_a, "timeout_ms"_a)
      .def("receive", &receive, "bytes_max"_a, "timeout_ms"_a,
           nb::sig("def receive(self, bytes_max: int, timeout_ms: int) -> bytes | None"),
           "The next message; None if it has not arrived in time.");
  nb::class_<Door>(module, "Door", "Where other processes of the job call. One thread at a time.")
      .def_prop_ro("endpoint", [](const Door& self) { return address_of(self.endpoint()); })
      .def(
          "answer",
          [](Door& self, std::int64_t ms) {
            return value_in_time(without_gil([&] { return self.answer(in_ms(ms)); }));
          },
          "timeout_ms"_a, nb::sig("def answer(self, timeout_ms: int) -> Line | None"),
          "The next caller that knows the token; None if nobody has called in time.");
  module.def(
      "open_door",
      [](OpenListener& listener, const nb::bytes& token, std::string_view encryption) {
        raise_if_used(listener);
        return value_or_raise(open_door(std::move(listener.listener), door_options(token, encryption)));
      },
      "listener"_a, "token"_a, "encryption"_a, "Uses the listener up.");
  module.def(
      "call_at_door",
      [](const Address& address, const nb::bytes& token, std::string_view encryption, std::int64_t ms) {
        const DoorOptions options = door_options(token, encryption);
        return run_without_gil([&] { return call_at_door(endpoint_of(address), options, in_ms(ms)); });
      },
      "address"_a, "token"_a, "encryption"_a, "timeout_ms"_a,
      "Raises PeerLost where nobody listens, Unauthorized, Mismatch, Timeout.");
}

}  // namespace deltawire::python
