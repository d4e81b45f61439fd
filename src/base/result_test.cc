#include "deltawire/result.h"

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace deltawire {
namespace {

struct Pinned {
  ErrorCode code;
  int number;
  std::string_view name;
};

// Logs, Python and other languages know these numbers: an entry here may be added, never changed.
constexpr std::array kPinned = {
    Pinned{ErrorCode::kInvalidArgument, 1, "InvalidArgument"},
    Pinned{ErrorCode::kUnknownCodec, 2, "UnknownCodec"},
    Pinned{ErrorCode::kUnsupportedDType, 3, "UnsupportedDType"},
    Pinned{ErrorCode::kNotFinite, 4, "NotFinite"},
    Pinned{ErrorCode::kRange, 5, "Range"},
    Pinned{ErrorCode::kOutputTooSmall, 6, "OutputTooSmall"},
    Pinned{ErrorCode::kTruncated, 7, "Truncated"},
    Pinned{ErrorCode::kCorrupt, 8, "Corrupt"},
    Pinned{ErrorCode::kUnsupportedVersion, 9, "UnsupportedVersion"},
    Pinned{ErrorCode::kMismatch, 10, "Mismatch"},
    Pinned{ErrorCode::kLimit, 11, "Limit"},
    Pinned{ErrorCode::kTimeout, 12, "Timeout"},
    Pinned{ErrorCode::kPeerLost, 13, "PeerLost"},
    Pinned{ErrorCode::kAborted, 14, "Aborted"},
    Pinned{ErrorCode::kUnauthorized, 15, "Unauthorized"},
    Pinned{ErrorCode::kAddressInUse, 16, "AddressInUse"},
    Pinned{ErrorCode::kSystem, 17, "System"},
    Pinned{ErrorCode::kState, 18, "State"},
    Pinned{ErrorCode::kIo, 19, "Io"},
    Pinned{ErrorCode::kNoMemory, 20, "NoMemory"},
    Pinned{ErrorCode::kExcluded, 21, "Excluded"},
    Pinned{ErrorCode::kNoQuorum, 22, "NoQuorum"},
};

TEST(ErrorCodes, NumbersAndNamesArePinned) {
  for (const Pinned& pinned : kPinned) {
    EXPECT_EQ(static_cast<int>(pinned.code), pinned.number) << pinned.name;
    EXPECT_EQ(error_code_name(pinned.code), pinned.name);
  }
}

TEST(ErrorCodes, NoNameIsMissingFromThePinnedList) {
  std::set<int> named;
  for (int number = 0; number <= 0xFFFF; ++number) {
    if (error_code_name(static_cast<ErrorCode>(number)) != "Unknown") named.insert(number);
  }
  std::set<int> pinned;
  for (const Pinned& entry : kPinned) pinned.insert(entry.number);
  EXPECT_EQ(named, pinned);
}

Status fails() {
  return fail(ErrorCode::kPeerLost, "rank 3 closed its connection", 3);
}

Result<int> passes_on() {
  if (Status status = fails(); !status) return forward_error(status);
  return 1;
}

TEST(Result, ForwardErrorKeepsCodeMessageAndSuspect) {
  const Result<int> result = passes_on();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kPeerLost);
  EXPECT_EQ(result.error().message, "rank 3 closed its connection");
  EXPECT_EQ(result.error().suspect, 3);
}

TEST(Result, WithoutASuspectNobodyIsNamed) {
  const Status status = fail(ErrorCode::kCorrupt, "bad");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().suspect, kNoSuspect);
}

TEST(Result, AnErrorIsOneLineWhateverItNames) {
  const Status status = fail(ErrorCode::kCorrupt, "tensor 'a\nb\x1B[2J' is bad");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "tensor 'a b [2J' is bad");
}

TEST(Result, HoldsAValue) {
  const Result<std::string> result = std::string("value");
  ASSERT_TRUE(result);
  EXPECT_EQ(*result, "value");
}

TEST(Error, NamesNoRankAndNoStepUnlessItIsGivenOne) {
  const Error error;
  EXPECT_EQ(error.suspect, -1) << "0 is a rank";
  EXPECT_EQ(error.last_committed_step, UINT64_MAX) << "0 is a step";
}

TEST(Error, TheAdviceIsTheEndOfItsText) {
  Error error{ErrorCode::kLimit, "too much"};
  EXPECT_EQ(error.text(), "too much");
  error.advice = "take less";
  EXPECT_EQ(error.text(), "too much; take less");
}

TEST(Error, WordsThatSayWhereKeepTheFields) {
  const Error error{.code = ErrorCode::kNotFinite, .message = "NaN", .tensor = "w", .advice = "mend it"};
  Error told = fail_in("part\n'w': ", error).value();
  EXPECT_EQ(told.message, "part 'w': NaN");
  told.message = error.message;
  EXPECT_EQ(told, error);
}

}  // namespace
}  // namespace deltawire
