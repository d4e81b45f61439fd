#include "transport/tls/encryption_policy.h"

#include <array>
#include <utility>

#include "transport/tcp/address.h"

namespace deltawire {
namespace {

constexpr std::array<std::pair<std::string_view, Encryption>, 3> kNames{
    {{"auto", Encryption::kAuto}, {"required", Encryption::kRequired}, {"off", Encryption::kOff}}};

}  // namespace

Result<Encryption> parse_encryption(std::string_view text) {
  for (const auto& [name, setting] : kNames) {
    if (text == name) return setting;
  }
  return fail(ErrorCode::kInvalidArgument,
              "encryption is \"" + std::string(text) + "\"; it can be \"auto\", \"required\" or \"off\"");
}

std::string encryption_text(Encryption setting) {
  for (const auto& [name, value] : kNames) {
    if (value == setting) return "encryption=\"" + std::string(name) + "\"";
  }
  return "an unknown encryption";
}

bool EncryptionPolicy::demands_tls(int fd) const noexcept {
  return setting == Encryption::kRequired || (setting == Encryption::kAuto && !stays_on_this_machine(fd));
}

std::string refusal_of_clear_text(const std::string& self, Encryption setting, int fd) {
  const Result<SocketAddress> peer = SocketAddress::of_peer(fd);
  const bool is_local = peer && !peer->is_internet();
  const std::string from = is_local ? "this machine" : peer ? peer->endpoint().host : "an unknown address";
  return self + " has " + encryption_text(setting) + " and refuses a connection from " + from +
         " in the clear; if a relay or an address translation is between the ranks, set "
         "encryption=\"required\" on all of them";
}

}  // namespace deltawire
