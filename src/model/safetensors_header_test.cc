#include <gtest/gtest.h>

#include "base/refusal_testing.h"
#include "deltawire/safetensors.h"

namespace deltawire::safetensors_header_test {
namespace {

struct Bad {
  std::string json;
  ErrorCode code;
  std::string words;
};

std::string tensor(const std::string& fields) {
  return "{\"w\":{" + fields + "}}";
}

constexpr auto kCorrupt = ErrorCode::kCorrupt;

TEST(SafetensorsHeader, WhatIsNoHeaderIsRefusedWithItsReason) {
  std::string dims = "1";
  for (std::size_t i = 0; i < kMostModelDims; ++i) dims += ",1";
  const std::string good = "\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]";
  const std::vector<Bad> all = {
      {"", kCorrupt, "no JSON"},
      {"{", kCorrupt, "no JSON"},
      {"{} {}", kCorrupt, "no JSON"},
      {std::string("{}\0", 3), kCorrupt, "a zero byte"},
      {"{\"w\xff\":1}", kCorrupt, "no JSON"},
      {"[]", kCorrupt, "the header has a list"},
      {"1", kCorrupt, "the header has a number"},
      {"\"w\"", kCorrupt, "the header has a text"},
      {"{\"w\":null}", kCorrupt, "null"},
      {"{\"w\":true}", kCorrupt, "true or false"},
      {"{\"__metadata__\":{\"a\":1}}", kCorrupt, "a number"},
      {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", kCorrupt, "'a' twice"},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", kCorrupt, "__metadata__ twice"},
      {"{\"__metadata__\":null,\"__metadata__\":{}}", kCorrupt, "__metadata__ twice"},
      {"{\"__metadata__\":{\"a\":null}}", kCorrupt, "null"},
      {tensor("\"dtype\":null,\"shape\":[2],\"data_offsets\":[0,8]"), kCorrupt, "null"},
      {"{\"__metadata__\":{\"a\":{}}}", kCorrupt, "an object"},
      {std::string(100'000, '['), kCorrupt, "a list"},
      {"{\"w\":" + std::string(100'000, '['), kCorrupt, "a list"},
      {tensor(good + ",\"more\":1"), kCorrupt, "unknown field 'more'"},
      {tensor(good + ",\"dtype\":\"F32\""), kCorrupt, "'dtype' twice"},
      {tensor("\"dtype\":\"F32\",\"shape\":[2]"), kCorrupt, "lacks"},
      {tensor("\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,8]"), kCorrupt, "a number"},
      {tensor("\"dtype\":\"F32\",\"shape\":\"2\",\"data_offsets\":[0,8]"), kCorrupt, "a text"},
      {tensor("\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]"), kCorrupt, "a number"},
      {tensor("\"dtype\":\"F32\",\"shape\":[[2]],\"data_offsets\":[0,8]"), kCorrupt, "a list"},
      {tensor("\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]"), kCorrupt, "negative"},
      {tensor("\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]"), kCorrupt, "no integer"},
      {tensor("\"dtype\":\"F32\",\"shape\":[18446744073709551616],\"data_offsets\":[0,8]"), kCorrupt,
       "no integer"},
      {tensor("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]"), kCorrupt, "not two"},
      {tensor("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,9]"), kCorrupt, "a number"},
      {tensor("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]"), kCorrupt, "ends before"},
      {tensor("\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]"), kCorrupt, "another number"},
      {tensor("\"dtype\":\"F32\",\"shape\":[4611686018427387904,2],\"data_offsets\":[0,0]"), kCorrupt,
       "another number"},  // 2^65 bytes
      {tensor("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]"), kCorrupt, "begins at byte 8"},
      {"{\"a\":{" + good + "},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", kCorrupt,
       "tensor 'b' begins at byte 4"},
      {"{\"a\":{" + good + "},\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}", kCorrupt,
       "tensor 'a' is in the header twice"},
      {tensor("\"dtype\":\"F32\",\"shape\":[" + dims + "],\"data_offsets\":[0,4]"), ErrorCode::kLimit,
       "dimensions"},
  };
  for (const Bad& bad : all) {
    SCOPED_TRACE(bad.json.substr(0, 200));
    testing::expect_refused(read_model_header(bad.json), bad.code, bad.words);
  }
}

TEST(SafetensorsHeader, ThereIsALimitOfTensors) {
  std::string json = "{";
  for (std::size_t i = 0; i <= kMostModelTensors; ++i) {
    json += (i == 0 ? "\"" : ",\"") + std::to_string(i) +
            "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
  }
  testing::expect_refused(read_model_header(json + "}"), ErrorCode::kLimit);
}

TEST(SafetensorsHeader, TensorsAreInTheOrderOfTheirBytesAndFoundByName) {
  const auto header = read_model_header(
      R"({"b":{"shape":[1,2],"data_offsets":[4,8],"dtype":"BF16"},"__metadata__":{"k":"v"},)"
      R"("a":{"dtype":"I64","shape":[],"data_offsets":[8,16]},)"
      R"("\u00e9\"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("empty":{"dtype":"F32","shape":[0,9],"data_offsets":[8,8]}}   )");
  ASSERT_TRUE(header) << header.error().message;
  ASSERT_EQ(header->tensors.size(), 4U);
  EXPECT_EQ(header->tensors[0].name, "\u00e9\"");
  EXPECT_EQ(header->tensors[1].shape, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(header->tensors[2].name, "empty");
  EXPECT_EQ(header->tensors[3].type, WeightType::kInt32);
  EXPECT_EQ(header->data_bytes, 16U);
  EXPECT_EQ(header->metadata.at("k"), "v");
  EXPECT_EQ(header->find("a"), &header->tensors[3]);
  EXPECT_EQ(header->find("c"), nullptr);
  // What is written is read again.
  const ModelMetadata metadata(header->metadata.begin(), header->metadata.end());
  const auto again = read_model_header(write_model_header(header->tensors, metadata));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->metadata, header->metadata);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(again->tensors[i].name, header->tensors[i].name);
    EXPECT_TRUE(again->tensors[i].same_kind(header->tensors[i]));
    EXPECT_EQ(again->tensors[i].begin, header->tensors[i].begin);
  }
}

TEST(SafetensorsHeader, NullIsNoMetadata) {
  const auto header =
      read_model_header(R"({"__metadata__":null,"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})");
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->tensors.size(), 1U);
  EXPECT_TRUE(header->metadata.empty());
}

// Also of dtypes that don't exist yet, and of elements that are no whole bytes.
TEST(SafetensorsHeader, OtherDtypesAreBytes) {
  for (const char* dtype : {"F4", "F6_E2M3", "F6_E3M2", "F8_E8M0", "F1_E0M0"}) {
    const auto header = read_model_header(
        tensor("\"dtype\":\"" + std::string(dtype) + "\",\"shape\":[4],\"data_offsets\":[0,3]"));
    const bool known = dtype == std::string_view("F8_E8M0");
    ASSERT_EQ(header.has_value(), !known) << dtype;
    if (known) continue;
    EXPECT_EQ(header->tensors[0].type, WeightType::kInt8);
    EXPECT_EQ(header->tensors[0].bytes, 3U);
    EXPECT_EQ(header->tensors[0].dtype, dtype);
  }
}

TEST(SafetensorsHeader, AModelsDigestCoversNamesDtypesShapesAndWeights) {
  const auto digest = [](const std::string& json, std::uint64_t of_tensor) {
    return model_digest(*read_model_header(json), {of_tensor, 7});
  };
  const std::string second = R"("b":{"dtype":"F32","shape":[0],"data_offsets":[8,8]}})";
  const auto with = [&](const std::string& fields) { return "{" + fields + "," + second; };
  const std::uint64_t one = digest(with(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), 1);
  EXPECT_NE(one, digest(with(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), 2));
  EXPECT_NE(one, digest(with(R"("c":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), 1));
  EXPECT_NE(one, digest(with(R"("a":{"dtype":"I32","shape":[2],"data_offsets":[0,8]})"), 1));
  EXPECT_NE(one, digest(with(R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]})"), 1));
  // Not the order of data, nor metadata.
  const std::string turned =
      R"({"__metadata__":{"x":"y"},"b":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
      R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(one, model_digest(*read_model_header(turned), {7, 1}));
}

}  // namespace
}  // namespace deltawire::safetensors_header_test
