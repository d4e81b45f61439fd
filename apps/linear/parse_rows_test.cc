#include "linear/parse_rows.h"

#include <cstdio>
#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "base/random.h"

namespace deltawire::linear {
namespace {

struct Parsed {
  Status status;
  RowSink sink;
  Place place;
};

Parsed parse(const std::string& text, const ParseOptions& options = {}) {
  Parsed parsed;
  parsed.status = RowParser(options).parse(text, parsed.place, parsed.sink);
  return parsed;
}

std::string error_of(const std::string& text) {
  const Parsed parsed = parse(text);
  return parsed.status ? "" : parsed.status.error().message;
}

TEST(ParseRows, TakesWhatLibsvmTakes) {
  const Parsed parsed = parse(
      "# a comment\n\n+1 1:0.5 3:-2e-1 7:1.\r\n-1\n  0 qid:7 0:1 4294967294:.5 # the largest index\n3.5 "
      "2:1e3");
  ASSERT_TRUE(parsed.status) << parsed.status.error().message;
  const RowBlock& rows = parsed.sink.training;
  EXPECT_EQ(rows.labels, (std::vector<float>{1, -1, 0, 3.5F}));
  EXPECT_EQ(rows.ends, (std::vector<std::uint32_t>{3, 3, 5, 6}));
  EXPECT_EQ(rows.keys, (std::vector<std::uint32_t>{1, 3, 7, 0, 4294967294, 2}));
  EXPECT_EQ(rows.values, (std::vector<float>{0.5F, -0.2F, 1, 1, 0.5F, 1000}));
  EXPECT_EQ(parsed.place.line, 7U);
}

TEST(ParseRows, NamesTheLineAndColumnOfWhatIsWrong) {
  const std::map<std::string, std::string> wrong = {
      {"1 1:1\nx 1:1\n", "2:1: label \"x\" is not a number"},
      {"1,2 1:1\n", "1:1: label \"1,2\" is not a number"},
      {"nan 1:1\n", "1:1: label \"nan\" is not finite"},
      {"1 1:1 2:inf\n", "1:9: value \"inf\" is not finite"},
      {"1 1:1e39\n", "1:5: value \"1e39\" is not finite"},
      {"1 1:\n", "1:5: value \"\" is not a number"},
      {"1 1:2x\n", "1:5: value \"2x\" is not a number"},
      {"1 1: 2\n", "1:5: value \"\" is not a number"},
      {"1 a:1\n", "1:3: \"a:1\" is not a feature"},
      {"1 -1:1\n", "1:3: \"-1:1\" is not a feature"},
      {"1 1.5:1\n", "1:3: \"1.5:1\" is not a feature"},
      {"1 5\n", "1:3: \"5\" is not a feature"},
      {"1 9223372036854775809:1\n", "1:3: index of \"9223372036854775809:1\" is beyond 2^63"},
      {"1 4294967295:1\n", "1:3: index 4294967295 is beyond 2^32 - 2; hash indices"},
      {"1 3:1 2:1\n", "1:7: index 2 is below the one before"},
      {"1 3:1 3:1\n", "1:7: index 3 stands twice in its row"},
      {"1 qid:x 3:1\n", "1:3: \"qid:x\" is not a query number"},
      {"1 3:1\r 4:1\n", "1:5: value \"1"},
  };
  for (const auto& [text, message] : wrong) {
    EXPECT_EQ(error_of(text).substr(0, message.size()), message) << text;
  }
  EXPECT_EQ(error_of("1 3:1 2:1\n"),
            "1:7: index 2 is below the one before; sort the row's features, or give --merge-duplicates");
}

TEST(ParseRows, CommentsMayFollowAWordWithoutABlank) {
  const Parsed parsed = parse("1#c\n1 qid:2#c\n1 1:2#c 3:4\n1 1:2 3:4.5#\n");
  ASSERT_TRUE(parsed.status) << parsed.status.error().message;
  EXPECT_EQ(parsed.sink.training.ends, (std::vector<std::uint32_t>{0, 0, 1, 3}));
  EXPECT_EQ(parsed.sink.training.values, (std::vector<float>{2, 2, 4.5F}));
}

TEST(ParseRows, AByteOrderMarkInFrontIsSkipped) {
  const Parsed parsed = parse("\xEF\xBB\xBF-1 1:2\n1 x\n");
  ASSERT_FALSE(parsed.status);
  EXPECT_EQ(parsed.status.error().message.substr(0, 4), "2:3:");
  EXPECT_EQ(parsed.sink.training.labels, (std::vector<float>{-1}));
  EXPECT_EQ(error_of("\xEF\xBB\xBFx\n").substr(0, 4), "1:1:");
  EXPECT_FALSE(parse("1 1:2\n\xEF\xBB\xBF-1 1:2\n").status);
  EXPECT_TRUE(parse("\xEF\xBB\xBF").status);
}

TEST(ParseRows, MergesUnsortedAndRepeatedIndicesWhenAsked) {
  ParseOptions options;
  options.merge_duplicates = true;
  const Parsed parsed = parse("1 5:1 2:3 5:0.5\n", options);
  ASSERT_TRUE(parsed.status);
  EXPECT_EQ(parsed.sink.training.keys, (std::vector<std::uint32_t>{2, 5}));
  EXPECT_EQ(parsed.sink.training.values, (std::vector<float>{3, 1.5F}));
  EXPECT_FALSE(parse("1 5:3e38 5:3e38\n", options).status);
}

TEST(ParseRows, AddsUpRepeatedIndicesInTheOrderOfTheText) {
  ParseOptions options;
  options.merge_duplicates = true;
  const Parsed parsed = parse("1 5:1e8 2:3 5:-1e8 5:1\n", options);
  ASSERT_TRUE(parsed.status);
  EXPECT_EQ(parsed.sink.training.values, (std::vector<float>{3, 1}));
}

TEST(ParseRows, HashesIndicesUpTo2To63) {
  ParseOptions options;
  options.hash_bits = 4;
  const Parsed parsed = parse("1 9223372036854775808:1 1:1 2:1 3:1 4:1 5:1 6:1 7:1 8:1\n", options);
  ASSERT_TRUE(parsed.status);
  const RowBlock& rows = parsed.sink.training;
  float sum = 0;
  for (std::size_t i = 0; i < rows.keys.size(); ++i) {
    EXPECT_LT(rows.keys[i], 16U);
    EXPECT_TRUE(i == 0 || rows.keys[i] > rows.keys[i - 1]);
    sum += rows.values[i];
  }
  EXPECT_EQ(sum, 9);
}

TEST(ParseRows, HoldsOutAShareByThePlaceOfRows) {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "1 1:" + std::to_string(i) + "\n";
  ParseOptions options;
  options.held_out = 0.3;
  const Parsed whole = parse(text, options);
  EXPECT_NEAR(static_cast<double>(whole.sink.held_out.rows()) / 4000, 0.3, 0.03);
  // The same rows, whatever pieces the text comes in.
  Parsed pieces;
  RowParser parser(options);
  const std::size_t middle = text.find('\n', text.size() / 2) + 1;
  ASSERT_TRUE(parser.parse(text.substr(0, middle), pieces.place, pieces.sink));
  ASSERT_TRUE(parser.parse(text.substr(middle), pieces.place, pieces.sink));
  EXPECT_EQ(pieces.sink.held_out.values, whole.sink.held_out.values);
  options.seed = 2;
  EXPECT_NE(parse(text, options).sink.held_out.values, whole.sink.held_out.values);
}

TEST(ParseRows, PositiveLabelAgainstTheRest) {
  ParseOptions options;
  options.positive = 3.0F;
  EXPECT_EQ(parse("3 1:1\n4 1:1\n-3 1:1\n", options).sink.training.labels, (std::vector<float>{1, -1, -1}));
}

TEST(ScanFloat, ANumberTooNearToZeroIsZeroAndOneTooLargeIsRefused) {
  const std::string zeros(400, '0');
  const std::vector<std::string> small{"1e-46",
                                       "1e-400",
                                       "-9.9E-1000",
                                       "0." + zeros + "1",
                                       "0." + zeros + "1e20",
                                       "1e-99999999999999999999",
                                       zeros + "12" + zeros + "e-900"};
  for (const std::string& text : small) {
    const char* at = text.data();
    float value = 1;
    EXPECT_EQ(scan_float(at, text.data() + text.size(), value), Scan::kNumber) << text;
    EXPECT_EQ(value, 0) << text;
    EXPECT_EQ(at, text.data() + text.size());
  }
  const std::vector<std::string> large{
      "1e39", "-1e400", "0.001e400", "1" + zeros, "0." + zeros + "1e900", "1e99999999999999999999"};
  for (const std::string& text : large) {
    const char* at = text.data();
    float value = 1;
    EXPECT_EQ(scan_float(at, text.data() + text.size(), value), Scan::kNotFinite) << text;
  }
}

// A slow reader of the same form: streams and strtod.
std::vector<std::pair<float, std::map<std::uint64_t, float>>> read_slowly(const std::string& text) {
  std::vector<std::pair<float, std::map<std::uint64_t, float>>> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word;
    if (!(words >> word)) continue;
    auto& [label, features] = rows.emplace_back();
    label = std::stof(word);
    while (words >> word) {
      if (word.starts_with("qid:")) continue;
      features[std::stoull(word)] = std::strtof(word.c_str() + word.find(':') + 1, nullptr);
    }
  }
  return rows;
}

TEST(ParseRows, ReadsWhatASlowReaderReads) {
  CounterRng random(11);
  for (int trial = 0; trial < 300; ++trial) {
    std::string text;
    for (std::uint64_t row = 0; row < random.next() % 20; ++row) {
      if (random.next() % 8 == 0) text += "# note 1:2\n";
      if (random.next() % 8 == 0) text += " \t\n";
      text += std::to_string(static_cast<int>(random.next() % 5) - 2);
      if (random.next() % 8 == 0) text += " qid:" + std::to_string(random.next() % 100);
      std::uint64_t key = 0;
      for (std::uint64_t i = 0; i < random.next() % 12; ++i) {
        key += 1 + random.next() % 1000;
        char feature[80];
        std::snprintf(feature, sizeof feature, " %llu:%.*g", static_cast<unsigned long long>(key),
                      static_cast<int>(1 + random.next() % 12), random.next_uniform() * 100 - 50);
        text += feature;
      }
      if (random.next() % 8 == 0) text += " # 9:9";
      text += random.next() % 2 == 0 ? "\n" : "\r\n";
    }
    const Parsed parsed = parse(text);
    ASSERT_TRUE(parsed.status) << text << parsed.status.error().message;
    const auto expected = read_slowly(text);
    const RowBlock& rows = parsed.sink.training;
    ASSERT_EQ(rows.rows(), expected.size());
    for (std::size_t row = 0; row < expected.size(); ++row) {
      ASSERT_EQ(rows.labels[row], expected[row].first);
      std::map<std::uint64_t, float> features;
      for (std::size_t i = rows.first_of(row); i < rows.ends[row]; ++i)
        features[rows.keys[i]] = rows.values[i];
      ASSERT_EQ(features, expected[row].second) << text;
    }
  }
}

}  // namespace
}  // namespace deltawire::linear
