#include "deltawire/result.h"

#include <array>
#include <set>

#include <gtest/gtest.h>

#include "base/errors.h"
#include "base/random.h"

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

constexpr Result<int> (*kWaysToPassOn[])(const Result<int>&) = {
    [](const Result<int>& given) -> Result<int> {
      if (!given) return forward_error(given);
      return *given;
    },
    [](const Result<int>& given) -> Result<int> {
      ASSIGN_OR_RETURN(const int value, given);
      return value;
    },
    [](const Result<int>& given) -> Result<int> {
      int calls = 0;
      RETURN_IF_ERROR((++calls, given));
      return 6 + calls;
    },
};

TEST(Result, AnErrorIsPassedOnWithAllItsFields) {
  const Error error{.code = ErrorCode::kPeerLost, .message = "rank 3 has gone", .suspect = 3, .tensor = "w"};
  for (const auto& pass_on : kWaysToPassOn) {
    EXPECT_EQ(pass_on(7), 7);
    EXPECT_EQ(pass_on(tl::unexpected<Error>(error)).error(), error);
  }
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

// printable_line: whatever comes in, one line of valid UTF-8 comes out.

constexpr const char* kReplaced = "\xEF\xBF\xBD";

// Written apart from the code under test: a character's value by arithmetic, then the rules for values.
bool is_valid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const unsigned lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xC0 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (length == 0 || lead > 0xF7 || text.size() - i < length) return false;
    unsigned value = length == 1 ? lead : lead & (0xFFu >> (length + 1));
    for (std::size_t k = 1; k < length; ++k) {
      const unsigned next = static_cast<unsigned char>(text[i + k]);
      if (next >> 6 != 2) return false;
      value = value * 64 + next % 64;
    }
    constexpr unsigned kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (value < kSmallest[length] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return false;
    i += length;
  }
  return true;
}

TEST(PrintableLine, LeavesTextAlone) {
  for (const std::string_view text :
       {"", "plain text: 1 ~ 2", "h\xC3\xA9l\xC3\xA8ne", "\xE2\x82\xAC \xE6\xBC\xA2\xE5\xAD\x97",
        "\xF0\x9F\x98\x80",
        "\xC2\xA0\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xF0\x90\x80\x80\xF4\x8F\xBF\xBF",
        "\xE2\x80\xA7\xE2\x80\xAF\xE2\x81\xA5\xE2\x81\xAA"}) {
    EXPECT_EQ(printable_line(text), text);
  }
}

TEST(PrintableLine, ControlsBecomeSpaces) {
  EXPECT_EQ(printable_line(std::string_view("a\0b\nc\rd\te\x1B[2Jf\x1F|\x7Fh", 18)), "a b c d e [2Jf | h");
  EXPECT_EQ(printable_line("\xC2\x80|\xC2\x9B|\xC2\x9F"), " | | ");                             // C1
  EXPECT_EQ(printable_line("\xE2\x80\xA8|\xE2\x80\xA9"), " | ");                                // separators
  EXPECT_EQ(printable_line("\xE2\x80\xAA|\xE2\x80\xAE|\xE2\x81\xA6|\xE2\x81\xA9"), " | | | ");  // direction
  EXPECT_EQ(printable_line("\xE2\x80\x8E|\xE2\x80\x8F|\xD8\x9C|\xEF\xBB\xBF"), " | | | ");
}

TEST(PrintableLine, BytesThatAreNoUtf8AreReplaced) {
  for (const std::string_view bad : {
           "\x80", "\xBF", "\xC0", "\xC1", "\xF5", "\xFF",      // never a first byte
           "\xC3", "\xE2\x82", "\xE2", "\xF0\x9F\x98", "\xF4",  // cut
       }) {
    EXPECT_EQ(printable_line("<" + std::string(bad) + ">"), std::string("<") + kReplaced + ">");
    EXPECT_EQ(printable_line(bad), kReplaced);
  }
  for (const std::string_view bad : {"\xC0\xAF", "\xE0\x9F", "\xED\xA0", "\xF0\x8F", "\xF4\x90"}) {
    // Overlong, a surrogate, beyond the last character: no byte of them belongs together.
    EXPECT_EQ(printable_line(bad), std::string(kReplaced) + kReplaced);
  }
  EXPECT_EQ(printable_line(std::string_view("\xC3\xA9", 1)), kReplaced) << "what lies behind is not read";
  EXPECT_EQ(printable_line("\xC3\xC3\xA9"), std::string(kReplaced) + "\xC3\xA9") << "a whole one behind";
}

TEST(PrintableLine, IsCutBetweenCharacters) {
  EXPECT_EQ(printable_line("abc", 2), "ab");
  EXPECT_EQ(printable_line("abc", 3), "abc");
  EXPECT_EQ(printable_line("abc", 0), "");
  EXPECT_EQ(printable_line("a\xC3\xA9", 2), "a");
  EXPECT_EQ(printable_line("a\xC3\xA9", 3), "a\xC3\xA9");
  EXPECT_EQ(printable_line("\xFF\xFF", 5), kReplaced);
  EXPECT_EQ(printable_line("\xF0\x9F\x98\x80z", 3), "") << "nothing that comes later is drawn forward";
}

TEST(PrintableLine, AnyBytesGiveValidUtf8WithinTheLimit) {
  CounterRng rng(11);
  for (int round = 0; round < 20000; ++round) {
    std::string text(rng.next() % 24, '\0');
    for (char& c : text) {
      // Mostly bytes that begin or go on: runs of random ones are rarely almost right.
      constexpr std::string_view kLikely = "\xC3\xE0\xE2\xED\xEF\xF0\xF4\x80\x90\xA0\x9F\xBF\x8F ";
      const std::uint64_t r = rng.next();
      c = r % 3 == 0 ? static_cast<char>(r >> 8) : kLikely[(r >> 8) % kLikely.size()];
    }
    const std::size_t limit = rng.next() % 32;
    const std::string line = printable_line(text, limit);
    ASSERT_LE(line.size(), limit);
    ASSERT_TRUE(is_valid_utf8(line)) << ::testing::PrintToString(text);
    const std::string whole = printable_line(text);
    ASSERT_TRUE(whole.starts_with(line));
    ASSERT_EQ(printable_line(whole), whole);
    for (const char c : whole) ASSERT_FALSE(static_cast<unsigned char>(c) < 0x20 || c == 0x7F);
    if (is_valid_utf8(text)) {
      ASSERT_EQ(whole.find(kReplaced) == whole.npos, text.find(kReplaced) == text.npos);
    }
  }
}

}  // namespace
}  // namespace deltawire
