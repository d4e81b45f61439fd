// Which connections of a rank must be encrypted.
#pragma once

#include <memory>
#include <string>

#include "deltawire/connect.h"
#include "transport/tls/tls_context.h"

namespace deltawire {

struct EncryptionPolicy {
  Encryption setting = Encryption::kAuto;
  std::shared_ptr<const TlsContext> tls;

  // Whether the connection of that socket must be encrypted. With kAuto the addresses of its two ends decide,
  // which both ends see: a connection within a machine, by loopback or from an address to itself, needs no
  // encryption. Nobody outside the machine can forge that: its kernel drops such packets from a network.
  bool demands_tls(int fd) const noexcept;
};

// `encryption="required"`, for messages.
std::string encryption_text(Encryption setting);

// What `self` tells another process that came in the clear although it must not.
std::string refusal_of_clear_text(const std::string& self, Encryption setting, int fd);

}  // namespace deltawire
