#include "codecs/spec_string.h"

#include <gtest/gtest.h>

#include "codecs/codec_testing.h"

namespace deltawire {
namespace {

ErrorCode code_of(std::string_view spec) {
  const auto codec = make_codec(spec);
  return codec ? ErrorCode{} : codec.error().code;
}

std::string message_of(std::string_view spec) {
  const auto codec = make_codec(spec);
  return codec ? "" : codec.error().message;
}

std::string canonical(std::string_view spec) {
  return testing::codec_of(spec)->spec();
}

TEST(SpecString, SplitsNameKeysAndValues) {
  const auto spec = parse_spec("a:b=c,d=e=f");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->name, "a");
  ASSERT_EQ(spec->parameters.size(), 2U);
  EXPECT_EQ(spec->parameters[0].key, "b");
  EXPECT_EQ(spec->parameters[0].value, "c");
  EXPECT_EQ(spec->parameters[1].value, "e=f");
}

TEST(SpecString, RefusesWhatIsNotASpec) {
  for (const char* text : {"", ":", ":s=1", "3lc:", "3lc:s", "3lc:=1", "3lc:s=", "3lc:s=1,", "3lc:,s=1",
                           "3lc:s=1,s=1", "3lc: s=1", "fp32:s=1", "3lc:S=1"}) {
    EXPECT_EQ(code_of(text), ErrorCode::kInvalidArgument) << text;
  }
}

TEST(SpecString, UnknownCodecListsTheKnownOnes) {
  EXPECT_EQ(code_of("3LC"), ErrorCode::kUnknownCodec);
  EXPECT_EQ(message_of("nope:s=1"), "no codec is named \"nope\": give one of fp32, bf16, 3lc, gcomp");
}

TEST(SpecString, UnknownParameterListsTheKnownOnes) {
  EXPECT_EQ(message_of("3lc:t=1"),
            "3lc has no parameter \"t\": it has s (1 <= s < 2), mode (auto or paper), runs (on or off)");
  EXPECT_EQ(message_of("bf16:t=1"), "bf16 has no parameter \"t\": it has none");
}

TEST(SpecString, NumbersOutOfRangeAreRefusedWithTheRange) {
  for (const char* s :
       {"2", "0.99", "-1", "nan", "NaN", "inf", "1e99", "1x", "x", "+1", " 1", "1.99999999999"}) {
    EXPECT_EQ(code_of("3lc:s=" + std::string(s)), ErrorCode::kInvalidArgument) << s;
  }
  EXPECT_EQ(message_of("3lc:s=2"), "3lc: s=2 is out of range: give a number 1 <= s < 2");
}

TEST(SpecString, ChoicesAreListed) {
  EXPECT_EQ(message_of("3lc:mode=fast"), "3lc: mode=fast is not a choice: give auto or paper");
}

TEST(SpecString, CanonicalFormSpellsEverythingOut) {
  EXPECT_EQ(canonical("fp32"), "fp32");
  EXPECT_EQ(canonical("bf16"), "bf16");
  EXPECT_EQ(canonical("3lc"), "3lc:s=1,mode=auto,runs=on");
  EXPECT_EQ(canonical("3lc:runs=off,s=1.7500,mode=paper"), "3lc:s=1.75,mode=paper,runs=off");
  EXPECT_EQ(canonical("3lc:s=1e0"), "3lc:s=1,mode=auto,runs=on");
  EXPECT_EQ(canonical("3lc:s=1.10000000001"), "3lc:s=1.1,mode=auto,runs=on");
}

TEST(SpecString, CanonicalFormIsAFixedPoint) {
  for (const std::string& spec : testing::conformance_specs()) {
    EXPECT_EQ(canonical(canonical(spec)), canonical(spec));
  }
}

}  // namespace
}  // namespace deltawire
