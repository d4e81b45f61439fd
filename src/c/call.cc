#include "call.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace deltawire::c {
namespace {

// The header's numbers are those of the rest of the library.
constexpr bool is(int number, ErrorCode code) {
  return number == static_cast<int>(code);
}
static_assert(is(DELTAWIRE_INVALID_ARGUMENT, ErrorCode::kInvalidArgument) &&
              is(DELTAWIRE_UNKNOWN_CODEC, ErrorCode::kUnknownCodec) &&
              is(DELTAWIRE_UNSUPPORTED_DTYPE, ErrorCode::kUnsupportedDType) &&
              is(DELTAWIRE_NOT_FINITE, ErrorCode::kNotFinite) && is(DELTAWIRE_RANGE, ErrorCode::kRange) &&
              is(DELTAWIRE_OUTPUT_TOO_SMALL, ErrorCode::kOutputTooSmall) &&
              is(DELTAWIRE_TRUNCATED, ErrorCode::kTruncated) && is(DELTAWIRE_CORRUPT, ErrorCode::kCorrupt) &&
              is(DELTAWIRE_UNSUPPORTED_VERSION, ErrorCode::kUnsupportedVersion) &&
              is(DELTAWIRE_MISMATCH, ErrorCode::kMismatch) && is(DELTAWIRE_LIMIT, ErrorCode::kLimit) &&
              is(DELTAWIRE_TIMEOUT, ErrorCode::kTimeout) && is(DELTAWIRE_PEER_LOST, ErrorCode::kPeerLost) &&
              is(DELTAWIRE_ABORTED, ErrorCode::kAborted) &&
              is(DELTAWIRE_UNAUTHORIZED, ErrorCode::kUnauthorized) &&
              is(DELTAWIRE_ADDRESS_IN_USE, ErrorCode::kAddressInUse) &&
              is(DELTAWIRE_SYSTEM, ErrorCode::kSystem) && is(DELTAWIRE_STATE, ErrorCode::kState) &&
              is(DELTAWIRE_IO, ErrorCode::kIo) && is(DELTAWIRE_NO_MEMORY, ErrorCode::kNoMemory));
static_assert(is(DELTAWIRE_NO_MEMORY, kLastErrorCode), "the header lacks an error's number");
static_assert(DELTAWIRE_NO_SUSPECT == kNoSuspect && DELTAWIRE_NO_STEP == kNoStep);

// The text, cut after at most `room` bytes, at the end of a character.
std::string_view cut(std::string_view text, std::size_t room) noexcept {
  if (text.size() <= room) return text;
  while (room > 0 && (static_cast<unsigned char>(text[room]) & 0xC0U) == 0x80U) --room;
  return text.substr(0, room);
}

}  // namespace

std::int32_t report(deltawire_error* into, ErrorCode code, std::string_view message, int suspect,
                    std::uint64_t last_committed_step) noexcept {
  const auto number = static_cast<std::int32_t>(code);
  if (into == nullptr) return number;
  *into = {.code = number, .suspect = suspect, .last_committed_step = last_committed_step, .message = {}};
  const std::string_view text = cut(message, sizeof into->message - 1);
  // Names from the caller may have line breaks. No copy is made, as there may be no memory.
  std::ranges::replace_copy_if(
      text, into->message, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return number;
}

std::int32_t report_success(deltawire_error* into) noexcept {
  if (into != nullptr) {
    into->code = DELTAWIRE_OK;
    into->suspect = kNoSuspect;
    into->last_committed_step = kNoStep;
    into->message[0] = '\0';
  }
  return DELTAWIRE_OK;
}

Status null_argument(std::string_view argument) {
  return fail(ErrorCode::kInvalidArgument, std::string(argument) + " is NULL");
}

Status check_abi_version(std::uint32_t version, std::string_view whose) {
  if (version == DELTAWIRE_ABI_VERSION) return {};
  if (version == 0) {
    return fail(ErrorCode::kInvalidArgument, std::string(whose) +
                                                 ": abi_version is 0; fill the struct with its _init, "
                                                 "which is given DELTAWIRE_ABI_VERSION");
  }
  return fail(ErrorCode::kUnsupportedVersion,
              std::string(whose) + ": the program was compiled for version " + std::to_string(version) +
                  " of deltawire.h, this library has version " + std::to_string(DELTAWIRE_ABI_VERSION) +
                  "; install the version of deltawire that the program was compiled with, or a newer one");
}

Result<bool> flag(std::int32_t value, std::string_view name) {
  if (value == 0 || value == 1) return value == 1;
  return fail(ErrorCode::kInvalidArgument,
              std::string(name) + " is " + std::to_string(value) + "; it can be 0 or 1");
}

}  // namespace deltawire::c

extern "C" {

std::uint32_t deltawire_abi_version(void) {
  return DELTAWIRE_ABI_VERSION;
}

const char* deltawire_version(void) {
  return DELTAWIRE_VERSION;
}

const char* deltawire_error_name(std::int32_t code) {
  // Names of enumerators are literals, and so end with a zero.
  if (code < 1 || code > static_cast<std::int32_t>(deltawire::kLastErrorCode)) return "Unknown";
  return deltawire::error_code_name(static_cast<deltawire::ErrorCode>(code)).data();
}

}  // extern "C"
