#include "cli/trace/trace.h"

#include <gtest/gtest.h>

#include "cli/trace/trace_testing.h"

namespace deltawire::cli {
namespace {

using testing::changed;
using testing::failure_of;
using testing::kTraceJson;

TEST(Trace, IsReadAsTheFormatSays) {
  const auto trace = parse_trace(kTraceJson, "t/trace.json");
  EXPECT_EQ(trace.model, "toy");
  EXPECT_EQ(trace.optimizer, "SGD, lr=1");
  EXPECT_EQ(trace.command, "python toy.py");
  ASSERT_EQ(trace.tensors.size(), 3U);
  EXPECT_EQ(trace.tensors[0].shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(trace.tensors[0].elements, 6U);
  EXPECT_FALSE(trace.tensors[0].pairs);
  EXPECT_EQ(trace.tensors[1].elements, 1U);
  EXPECT_EQ(trace.tensors[2].elements, 10U);
  EXPECT_TRUE(trace.tensors[2].pairs);
  ASSERT_EQ(trace.steps.size(), 2U);
  EXPECT_EQ(trace.steps[1].step, 20U);
  EXPECT_EQ(trace.steps[0].tensors[0]->significance, "10/w.significance.npy");
  EXPECT_EQ(trace.steps[0].tensors[1]->significance, "");
  EXPECT_EQ(trace.steps[0].tensors[2]->keys, "10/e.keys.npy");
  EXPECT_FALSE(trace.steps[1].tensors[0]);
  EXPECT_EQ(trace.steps[1].tensors[2]->values, "20/e.npy");
}

TEST(Trace, WordsMayBeMissing) {
  const auto trace = parse_trace(R"({"format": 1, "model": null, "tensors": [], "steps": []})", "trace.json");
  EXPECT_EQ(trace.model + trace.optimizer + trace.command, "");
}

TEST(Trace, AShapeWithAZeroHasNoElements) {
  const auto trace = parse_trace(changed(kTraceJson, "[2, 3]", "[4294967295, 0]"), "trace.json");
  EXPECT_EQ(trace.tensors[0].elements, 0U);
}

struct Fault {
  const char* old;
  const char* by;
  const char* words;  // what the failure says
};

class TraceFaults : public ::testing::TestWithParam<Fault> {};

TEST_P(TraceFaults, AreRefusedByField) {
  const std::string text = changed(kTraceJson, GetParam().old, GetParam().by);
  const Failure refusal = failure_of([&] { return parse_trace(text, "t/trace.json"); });
  EXPECT_TRUE(refusal.message.starts_with("t/trace.json: ")) << refusal.message;
  EXPECT_NE(refusal.message.find(GetParam().words), std::string::npos) << refusal.message;
  EXPECT_EQ(refusal.exit_status, kExitFailure);
}

INSTANTIATE_TEST_SUITE_P(
    Fields, TraceFaults,
    ::testing::Values(
        Fault{"{\n", "[", "is not JSON"}, Fault{"\"format\": 1", "\"format\": 2", "format is 2"},
        Fault{"\"format\": 1", "\"format\": \"1\"", "format must"},
        Fault{"\"format\": 1,", "", "format must"}, Fault{"\"toy\"", "7", "model must be a text"},
        Fault{"\"SGD, lr=1\"", "[]", "optimizer must be a text"},
        Fault{"\"python toy.py\"", "\"\xff\"", "is not JSON"},
        Fault{"\"tensors\": [\n", "\"tenors\": [\n", "tensors must be a list"},
        Fault{"\"w\"", "\"\"", "tensors[0].name"}, Fault{"\"w\"", "\"s\"", "tensors[1].name \"s\""},
        Fault{"\"name\": \"s\", ", "", "tensors[1].name"},
        Fault{"[2, 3]", "6", "tensors[0].shape must be a list"},
        Fault{"[2, 3]", "[2, -3]", "tensors[0].shape"}, Fault{"[2, 3]", "[2.0]", "tensors[0].shape"},
        Fault{"[2, 3]", "[1,1,1,1,1,1,1,1,1]", "more than 8"}, Fault{"[2, 3]", "[65536, 65536]", "2^32"},
        Fault{"[2, 3]", "[0, 65536, 65536]", "2^32"}, Fault{"[2, 3]", "[2, 9223372036854775809]", "2^32"},
        Fault{"[2, 3]", "[4294967296]", "2^32"}, Fault{"[2, 3]", "[1e99]", "tensors[0].shape"},
        Fault{"[2, 3]", "[18446744073709551616]", "tensors[0].shape"},
        Fault{"false}", "0}", "tensors[1].pairs"},
        Fault{"{\"name\": \"w\", \"shape\": [2, 3]}", "[]", "tensors[0] must"},
        Fault{"\"steps\"", "\"step\"", "steps must be a list"},
        Fault{"\"step\": 10", "\"step\": 0", "steps[0].step must grow"},
        Fault{"\"step\": 20", "\"step\": 10", "steps[1].step must grow"},
        Fault{"\"step\": 20", "\"step\": 20.5", "steps[1].step must"},
        Fault{"\"step\": 20", "\"step\": 9223372036854775807", "steps[1].step must"},
        Fault{"[null, null, ", "[null, ", "steps[1].tensors has 2 entries for the trace's 3"},
        Fault{"[null, null, ", "[null, 1, ", "steps[1].tensors[1] must be an object"},
        Fault{"\"10/s.npy\"", "\"/etc/passwd\"", "steps[0].tensors[1].values must be a path below"},
        Fault{"\"10/s.npy\"", "\"../s.npy\"", "steps[0].tensors[1].values"},
        Fault{"\"10/s.npy\"", "\"10/../../s.npy\"", "values"},
        Fault{"\"10/s.npy\"", "\"10//s.npy\"", "values"}, Fault{"\"10/s.npy\"", "\"10/..\"", "values"},
        Fault{"\"10/s.npy\"", "\"./s.npy\"", "values"}, Fault{"\"10/s.npy\"", "\"..\\\\s.npy\"", "values"},
        Fault{"\"10/s.npy\"", "\"s\\u0000.npy\"", "values"}, Fault{"\"10/s.npy\"", "\"\"", "values"},
        Fault{"\"values\": \"10/s.npy\"", "", "steps[0].tensors[1].values must be there"},
        Fault{"\"10/s.npy\"", "3", "values must be a text"},
        Fault{"\"10/w.significance.npy\"", "\"a/../b\"", "steps[0].tensors[0].significance"},
        Fault{", \"keys\": \"10/e.keys.npy\"", "", "steps[0].tensors[2].keys must be there"},
        Fault{"{\"values\": \"10/s.npy\"", "{\"values\": \"10/s.npy\", \"keys\": \"k.npy\"",
              "steps[0].tensors[1].keys may not"}));

TEST(Trace, DeepNestingIsHandled) {
  EXPECT_THROW(parse_trace(std::string(1'000'000, '['), "trace.json"), Failure);
  const std::string nested = "\"later\": " + std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_NO_THROW(parse_trace(changed(kTraceJson, "\"later\": [1]", nested), "trace.json"));
}

}  // namespace
}  // namespace deltawire::cli
