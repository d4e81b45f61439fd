#include "transport/settings.h"

namespace deltawire {
namespace {

// A peer's settings go into logs and exceptions: they stay one printable line.
std::string quoted(const std::string& text) {
  std::string line = "\"";
  for (const char c : text) {
    const auto value = static_cast<unsigned char>(c);
    line.push_back(value < 0x20 || value == 0x7F ? ' ' : c);
  }
  return line + "\"";
}

}  // namespace

Status check_settings(const std::string& caller, const std::string& settings) {
  if (settings.size() <= kSettingsMax) return {};
  return fail(ErrorCode::kInvalidArgument, caller + ": settings of " + std::to_string(settings.size()) +
                                               " bytes; at most " + std::to_string(kSettingsMax) +
                                               " can be compared");
}

Error settings_mismatch(int other, const std::string& others, int self, const std::string& own) {
  return {ErrorCode::kMismatch,
          "rank " + std::to_string(other) + " has the settings " + quoted(others) + ", rank " +
              std::to_string(self) + " has " + quoted(own) + "; start all ranks with the same settings",
          other};
}

}  // namespace deltawire
