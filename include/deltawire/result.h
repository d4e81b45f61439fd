// Results and errors: every fallible call of deltawire returns a Result or a Status.
//
// Thread rule: values; copy and move them freely between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tl/expected.hpp>

#include "deltawire/export.h"

namespace deltawire {

// Why a call failed. The numbers are pinned: they appear in logs, in Python and in the C ABI, and are
// never reused. docs/reference/format.md says which of them a decoder must give for which defect.
enum class ErrorCode : std::uint16_t {
  kInvalidArgument = 1,     // an invalid spec string, parameter, shape or call
  kUnknownCodec = 2,        // a codec or pattern name that is not registered
  kUnsupportedDType = 3,    // a dtype that this codec can't carry
  kNotFinite = 4,           // NaN or Inf where the codec forbids it; the message names the element
  kRange = 5,               // a value outside what the encoding can carry (3LC: m overflows)
  kOutputTooSmall = 6,      // the caller's buffer is below what sizes() asked for
  kTruncated = 7,           // the bytes end before the encoding does
  kCorrupt = 8,             // a checksum or a syntax rule is broken
  kUnsupportedVersion = 9,  // a format version that this build does not read
  kMismatch = 10,           // valid bytes, but for other settings, shapes, step, epoch or rank
  kLimit = 11,              // beyond a stated limit (frame bytes, segments, elements)
  kTimeout = 12,            // the deadline passed; `suspect` is the rank that all the others wait for
  kPeerLost = 13,           // a connection closed or broke without a goodbye
  kAborted = 14,            // a rank gave up and said why
  kUnauthorized = 15,       // a wrong token
  kAddressInUse = 16,       // the port is taken
  kSystem = 17,             // an operating-system call failed
  kState = 18,              // calls in an order that the contract forbids
  kIo = 19,                 // a file can't be read or written
  kNoMemory = 20,           // memory for a step, a residual or a message could not be had
  kExcluded = 21,           // the other members of an elastic session went on without this process
  kNoQuorum = 22,           // too few members of an elastic session are left, or can be reached, to go on
};

inline constexpr ErrorCode kLastErrorCode = ErrorCode::kNoQuorum;

// The enumerator's name without its k, e.g. "PeerLost"; "Unknown" for a number outside the enum.
DELTAWIRE_API std::string_view error_code_name(ErrorCode code) noexcept;

inline constexpr int kNoSuspect = -1;
inline constexpr int kNoRank = -1;
inline constexpr std::uint64_t kNoStep = ~std::uint64_t{0};

// What failed: in words for a user, who is shown text(), and in fields for a program. Fields that are not
// known are empty.
struct DELTAWIRE_API Error {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message{};     // one printable line: what was wrong, and where
  int suspect = kNoSuspect;  // the rank that caused it, where one is known
  // If an exchange failed: the last step that counts, on every surviving rank (docs/design/commit.md);
  // kNoStep if none does yet, and for errors of other calls.
  std::uint64_t last_committed_step = kNoStep;
  int reporter = kNoRank;    // the rank that found it, or passed it on; the message names it
  int waits_for = kNoRank;   // the rank whose message or vote the reporter waited for in vain
  std::vector<int> ranks{};  // those that it is about: whose means differ, who are not connected, who wait
  std::string tensor{};      // its name
  std::string advice{};      // what to do

  // One printable line: the message and the advice.
  std::string text() const;

  bool operator==(const Error&) const = default;
};

// Makes text from outside (another rank, the operating system, a file name) safe for a message: one line of
// valid UTF-8 without terminal escapes or changes of the reading direction. A control character becomes a
// space, an invalid byte becomes U+FFFD, and the text is cut after at most `max_bytes`, at the boundary of a
// character.
DELTAWIRE_API std::string printable_line(std::string_view text,
                                         std::size_t max_bytes = std::numeric_limits<std::size_t>::max());

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// Shorthand for `return fail(code, "...")` in a function that returns any Result. The message may have names
// from outside in it; the error has its printable_line.
inline tl::unexpected<Error> fail(ErrorCode code, std::string_view message, int suspect = kNoSuspect) {
  return tl::unexpected<Error>(Error{code, printable_line(message), suspect});
}

// Passes on the error of a part, with words before its message that say which: `return fail_in(path + ": ",
// e)`.
inline tl::unexpected<Error> fail_in(std::string_view where, Error error) {
  error.message = printable_line(std::string(where) + error.message);
  return tl::unexpected<Error>(std::move(error));
}

// Passes an error on: `if (!r) return forward_error(r);`
template <class T>
tl::unexpected<Error> forward_error(const Result<T>& result) {
  return tl::unexpected<Error>(result.error());
}

}  // namespace deltawire
