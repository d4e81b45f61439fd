#include "transport/mesh/settings.h"

namespace deltawire {
namespace {

std::string quoted(const std::string& text) {
  return "\"" + printable_line(text) + "\"";
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

Error epoch_mismatch(int other, std::uint32_t others, int self, std::uint32_t own) {
  return {ErrorCode::kMismatch,
          "rank " + std::to_string(other) + " belongs to membership epoch " + std::to_string(others) +
              ", rank " + std::to_string(self) + " to epoch " + std::to_string(own) +
              "; end what is left of the older one, and start all ranks with the same epoch",
          other};
}

}  // namespace deltawire
