#include "base/spec_text.h"

#include <cmath>
#include <utility>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"

namespace deltawire {
namespace {

TEST(SpecText, ANameAlone) {
  const auto spec = parse_spec("fp32", "codec");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->name, "fp32");
  EXPECT_TRUE(spec->parameters.empty());
}

TEST(SpecText, ParametersKeepTheirOrder) {
  const auto spec = parse_spec("3lc:s=1.75,mode=auto,x=y=z", "codec");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->name, "3lc");
  ASSERT_EQ(spec->parameters.size(), 3u);
  EXPECT_EQ(spec->parameters[0].key, "s");
  EXPECT_EQ(spec->parameters[0].value, "1.75");
  EXPECT_EQ(spec->parameters[1].key, "mode");
  EXPECT_EQ(spec->parameters[1].value, "auto");
  EXPECT_EQ(spec->parameters[2].key, "x");
  EXPECT_EQ(spec->parameters[2].value, "y=z");
  EXPECT_EQ(find_parameter(*spec, "mode"), &spec->parameters[1]);
  EXPECT_EQ(find_parameter(*spec, "s"), &spec->parameters[0]);
  EXPECT_EQ(find_parameter(*spec, "none"), nullptr);
}

TEST(SpecText, ValuesMayBeEqualAndMayNameOtherParameters) {
  EXPECT_TRUE(parse_spec("c:a=1,b=1", "codec"));
  EXPECT_TRUE(parse_spec("c:a=b,b=a", "codec"));
  EXPECT_TRUE(parse_spec("c:on=x,off=on", "codec"));
}

TEST(SpecText, InvalidSpecsAreRefused) {
  for (const std::string text : {"", ":", ":a=1", "c:", "c:a", "c:=", "c:=1", "c:a=", "c:a=1,", "c:,a=1",
                                 "c:a=1,,b=2", "c:a=1,a=1", "c:a=1,b=2,a=3"}) {
    testing::expect_refused(parse_spec(text, "codec"), ErrorCode::kInvalidArgument, "\"" + text + "\"");
  }
  EXPECT_NE(parse_spec(":a=1", "optimizer").error().message.find("optimizer"), std::string::npos);
  EXPECT_NE(parse_spec("c:a=1,a=2", "codec").error().message.find("twice"), std::string::npos);
}

TEST(SpecText, TheShortestTextOfANumber) {
  const std::pair<double, const char*> numbers[] = {{2, "2"},
                                                    {0.1, "0.1"},
                                                    {-1e300, "-1e+300"},
                                                    {-2.2250738585072014e-308, "-2.2250738585072014e-308"},
                                                    {-HUGE_VAL, "-inf"},
                                                    {std::nan(""), "nan"}};
  for (const auto& [number, text] : numbers) EXPECT_EQ(shortest_text(number), text);
}

}  // namespace
}  // namespace deltawire
