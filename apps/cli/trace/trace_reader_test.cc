
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "cli/trace/trace.h"
#include "cli/trace/trace_testing.h"
#include "deltawire/file.h"

namespace deltawire::cli {
namespace {

using namespace testing;

using Values = std::vector<float>;

std::vector<std::byte> dw_of(const Values& values, std::vector<std::uint64_t> shape, const char* spec) {
  return *encode_file(TensorView{values.data(), values.size()}, shape, spec, Policy{0});
}

// What is wrong with the folder: in trace.json, or in the files of its steps.
std::string fault_of(const TraceFolder& folder) {
  try {
    const auto trace = open_trace(folder.path());
    for (std::size_t i = 0; i < trace.steps.size(); ++i) (void)read_step(trace, i);
  } catch (const Failure& failure) {
    return failure.message;
  }
  return "";
}

void expect_fault(const TraceFolder& folder, const std::vector<std::string>& words) {
  const std::string said = fault_of(folder);
  for (const std::string& word : words) EXPECT_NE(said.find(word), std::string::npos) << word << ": " << said;
}

TEST(TraceReader, ReadsEveryGradient) {
  const TraceFolder folder;
  folder.fill();
  const auto trace = open_trace(folder.path());
  const auto first = read_step(trace, 0);
  EXPECT_EQ(first[0]->values, (Values{1, -2, 0, 4, 0, 6}));
  EXPECT_EQ(first[0]->significance, (Values{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(first[1]->values, (Values{-7}));
  EXPECT_TRUE(first[1]->significance.empty());
  EXPECT_EQ(first[2]->values, (Values{0.5F, 1.5F}));
  EXPECT_EQ(first[2]->keys, (std::vector<std::uint32_t>{0, 9}));
  const auto second = read_step(trace, 1);
  EXPECT_FALSE(second[0]);
  EXPECT_TRUE(second[2]->values.empty());
}

TEST(TraceReader, TakesFilesOfCodecsThatLoseNothing) {
  const TraceFolder folder;
  folder.fill();
  folder.write("trace.json", changed(kTraceJson, "10/w.npy", "10/w.dw"));
  const Values values{1, 2, 3, 4, 5, 6.5F};
  folder.write("10/w.dw", dw_of(values, {2, 3}, "fp32"));
  const auto trace = open_trace(folder.path());
  const auto step = read_step(trace, 0);
  EXPECT_EQ(step[0]->values, values);
  folder.write("10/w.dw", dw_of(values, {2, 3}, "bf16"));
  expect_fault(folder, {"10/w.dw", "bf16", "loses"});
  folder.write("10/w.dw", dw_of(values, {3, 2}, "fp32"));
  expect_fault(folder, {"10/w.dw", "(3, 2)", "(2, 3)"});
  auto cut = dw_of(values, {2, 3}, "fp32");
  cut.pop_back();
  folder.write("10/w.dw", cut);
  expect_fault(folder, {"10/w.dw", "incomplete"});
}

TEST(TraceReader, NamesTheFileThatIsWrong) {
  const TraceFolder folder;
  folder.fill();
  EXPECT_EQ(fault_of(folder), "");
  folder.write("10/w.npy", npy_of({1, 2, 3, 4, 5, 6}, {3, 2}));
  expect_fault(folder, {"10/w.npy", "(3, 2)", "(2, 3)"});
  folder.fill();
  folder.write("10/w.significance.npy", npy_of({1}, {1}));
  expect_fault(folder, {"10/w.significance.npy", "(1,)"});
  folder.fill();
  folder.write("10/e.npy", npy_of({1, 2, 3}, {3}));
  expect_fault(folder, {"10/e.npy", "(3,)", "(2,)"});
  folder.fill();
  folder.write("10/s.npy", npy_of_keys({1}));
  expect_fault(folder, {"10/s.npy", "int64"});
  const std::vector<std::byte> scalar = npy_of({-7}, {});
  const std::string_view text(reinterpret_cast<const char*>(scalar.data()), scalar.size());
  folder.write("10/s.npy", changed(text, "<f4", ">f4"));
  expect_fault(folder, {"10/s.npy", "little-endian float32 in C order"});
  folder.write("10/s.npy", changed(text, "<f4", "<f2"));
  expect_fault(folder, {"10/s.npy", "needs 2 bytes"});
  folder.fill();
  folder.write("trace.json", changed(kTraceJson, "10/s.npy", "10/s.txt"));
  folder.write("10/s.txt", "-7");
  expect_fault(folder, {"10/s.txt", ".npy or .dw"});
}

TEST(TraceReader, RefusesKeysThatDoNotGrowBelowTheElements) {
  const TraceFolder folder;
  folder.fill();
  const std::vector<std::vector<std::int64_t>> bad{
      {3, 3}, {4, 3}, {-1, 3}, {3, 10}, {3, std::int64_t{1} << 32}};
  for (const auto& keys : bad) {
    folder.write("10/e.keys.npy", npy_of_keys(keys));
    expect_fault(folder, {"10/e.keys.npy", "key ", "10 elements"});
  }
  folder.write("10/e.keys.npy", npy_of({1, 2}, {2}));
  expect_fault(folder, {"10/e.keys.npy", "float32", "int64"});
}

TEST(TraceReader, RefusesKeysInTwoDimensions) {
  std::vector<std::byte> file = npy_of_keys({1, 2});
  const std::string two = "(1, 2), }";
  std::string text(reinterpret_cast<const char*>(file.data()), file.size());
  text.replace(text.find("(2,), }  "), two.size(), two);
  std::memcpy(file.data(), text.data(), text.size());
  const std::string said = failure_of([&] { return parse_keys(file, "k.npy", 10); }).message;
  EXPECT_NE(said.find("one dimension"), std::string::npos) << said;
}

TEST(TraceReader, StaysInTheFolder) {
  const TraceFolder elsewhere;
  elsewhere.write("s.npy", npy_of({-7}, {}));
  const TraceFolder folder;
  folder.fill();
  const std::filesystem::path scalar = std::filesystem::path(folder.path()) / "10" / "s.npy";
  std::filesystem::remove(scalar);
  expect_fault(folder, {"10/s.npy", "no such file"});
  std::filesystem::create_symlink(elsewhere.path() + "/s.npy", scalar);
  expect_fault(folder, {"10/s.npy", "leads out"});
  std::filesystem::remove(scalar);
  folder.write("10/real.npy", npy_of({-7}, {}));
  std::filesystem::create_symlink("real.npy", scalar);
  EXPECT_EQ(fault_of(folder), "");
  std::filesystem::remove(scalar);
  ASSERT_EQ(mkfifo(scalar.c_str(), 0600), 0);
  expect_fault(folder, {"10/s.npy", "not a regular file"});
}

TEST(TraceReader, RefusesInvalidTraces) {
  const TraceFolder folder;
  expect_fault(folder, {folder.path(), "no trace.json"});
  const std::string said = failure_of([] { return open_trace("/no/such"); }).message;
  EXPECT_NE(said.find("/no/such: is not a folder"), std::string::npos) << said;
  folder.write("trace.json", "");
  expect_fault(folder, {"trace.json", "is not JSON"});
}

}  // namespace
}  // namespace deltawire::cli
