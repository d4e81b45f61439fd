// Listeners and meshes, for all that connects.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "deltawire/connect.h"
#include "python_error.h"

namespace deltawire::python {

// As Python has an endpoint.
using Address = std::pair<std::string, std::uint16_t>;

inline Address address_of(const Endpoint& at) {
  return {at.host, at.port};
}
inline Endpoint endpoint_of(const Address& address) {
  return {address.first, address.second};
}
std::vector<Endpoint> endpoints_of(const std::vector<Address>& addresses);

inline Deadline in_ms(std::int64_t ms) {
  return Clock::now() + std::chrono::milliseconds(ms);
}

// Lets Ctrl-C end a meeting.
class Interruptions {
 public:
  explicit Interruptions(MeshOptions& mesh);
  // The exception of a signal's handler that has run meanwhile.
  void raise_any();

 private:
  std::shared_ptr<std::optional<nanobind::python_error>> raised_;
};

// Owns a listener until a session or a link takes it.
struct OpenListener {
  std::unique_ptr<Listener> listener;
  Endpoint endpoint;
};
void raise_if_used(const OpenListener& listener);

// The token in 32 bytes. Raises.
Token token_in(const nanobind::bytes& given);

// Writes a warning to the log "deltawire", on any thread.
void warn_in_log(const std::string& text);

// What `connect(listener, mesh)` makes of them; the listener is used up. Raises, on Ctrl-C, too; lets go of
// the GIL meanwhile.
auto connected(OpenListener& listener, MeshOptions mesh, auto connect) {
  raise_if_used(listener);
  Interruptions interruptions(mesh);
  mesh.notice = warn_in_log;
  auto made = without_gil([&] { return connect(std::move(listener.listener), mesh); });
  interruptions.raise_any();
  return value_or_raise(std::move(made));
}

}  // namespace deltawire::python
