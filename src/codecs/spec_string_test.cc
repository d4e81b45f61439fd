#include "codecs/spec_string.h"

#include <gtest/gtest.h>

#include "codecs/codec_testing.h"

namespace deltawire::spec_string_test {
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
  EXPECT_EQ(code_of("nope"), ErrorCode::kUnknownCodec);
  std::string known;
  for (const CodecInfo* info : registered_codecs())
    known += (known.empty() ? "" : ", ") + std::string(info->name);
  EXPECT_EQ(message_of("nope:s=1"), "no codec is named \"nope\": give one of " + known);
}

TEST(SpecString, UnknownCodecsAreTakenForWhatTheyResemble) {
  const std::pair<const char*, const char*> advice[] = {
      {"3LC", "did you mean 3lc?"},
      {"3cl", "did you mean 3lc?"},
      {"itn8", "did you mean int8?"},
      {"3lc :s=1", "did you mean 3lc?"},
      {"fp3", "did you mean fp32?"},
      {"fp16_compress", "did you mean fp16?"},
      {"onebitadam", "did you mean onebit?"},
      {"zstandard", "give one of fp32, bf16"},
      {"ring", "ring is an exchange pattern, which only ranks use: give the codec alone, e.g. gcomp"},
      {"ring(3lc)", "ring is an exchange pattern, which only ranks use: give the codec alone, e.g. 3lc"},
      {"gather(", "gather is an exchange pattern, which only ranks use: give the codec alone, e.g. sbc"},
  };
  for (const auto& [spec, words] : advice) {
    EXPECT_EQ(code_of(spec), ErrorCode::kUnknownCodec) << spec;
    EXPECT_NE(message_of(spec).find(words), std::string::npos) << message_of(spec);
  }
}

TEST(SpecString, UnknownParameterListsTheKnownOnes) {
  EXPECT_EQ(
      message_of("3lc:t=1"),
      "3lc has no parameter \"t\": it has s (0.5 <= s < 2), mode (auto or paper), runs (on or off), pull (s, "
      "or 0.5 <= pull < 2)");
  EXPECT_EQ(message_of("bf16:t=1"), "bf16 has no parameter \"t\": it has none");
}

TEST(SpecString, NumbersOutOfRangeAreRefusedWithTheRange) {
  for (const char* s :
       {"2", "0.49", "-1", "nan", "NaN", "inf", "1e99", "1x", "x", "+1", " 1", "1.99999999999"}) {
    EXPECT_EQ(code_of("3lc:s=" + std::string(s)), ErrorCode::kInvalidArgument) << s;
  }
  EXPECT_EQ(message_of("3lc:s=2"), "3lc: s=2 is out of range: give a number 0.5 <= s < 2");
  EXPECT_EQ(message_of("3lc:pull=0.4"), "3lc: pull=0.4 is out of range: give a number 0.5 <= pull < 2");
  EXPECT_TRUE(make_codec("topk:pull=4%"));
  EXPECT_FALSE(make_codec("topk:pull=100%"));
  EXPECT_FALSE(make_codec("sbc:pull=k")) << "its share is p";
}

TEST(SpecString, NumbersAreWrittenWithoutExponent) {
  EXPECT_EQ(canonical_number(0.0001F), "0.0001");
  EXPECT_EQ(canonical_number(1e10F), "10000000000");
  EXPECT_EQ(canonical_number(0x1p-149F), "0.000000000000000000000000000000000000000000001");
  EXPECT_EQ(canonical_number(-3.4028235e38F), "-340282346638528859811704183484516925440");
  EXPECT_EQ(number_text(1e-10F), "1e-10");
}

TEST(SpecString, FractionsMayBeInPercent) {
  const FloatRange range{.low = 0, .high = 1, .default_value = 0.5F};
  const auto p = [&](std::string_view text) {
    return fraction_parameter(*parse_spec(text), "p", range).value_or(-1);
  };
  EXPECT_EQ(p("x"), 0.5F);
  EXPECT_EQ(p("x:p=0.1%"), 0.001F);
  EXPECT_EQ(p("x:p=0.001"), 0.001F);
  // Rounded once: 0.7 / 100 in float32 is another number than the nearest to 0.007.
  EXPECT_EQ(p("x:p=0.7%"), 0.007F);
  EXPECT_EQ(p("x:p=100%"), -1);
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
}  // namespace deltawire::spec_string_test
