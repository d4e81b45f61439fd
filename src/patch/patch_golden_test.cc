// The golden patches, whose bytes may never come to mean something else.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include <gtest/gtest.h>

#include "codecs/target_testing.h"
#include "patch/patch_coding.h"

namespace deltawire::patch_golden_test {
namespace {

using ByteVector = std::vector<std::byte>;

ByteVector read(std::filesystem::path path, const char* end) {
  std::ifstream file(path.replace_extension(end), std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  ByteVector read(bytes.size());
  std::ranges::copy(std::as_bytes(std::span(bytes)), read.begin());
  return read;
}

TEST(PatchTargetGolden, EveryTargetMakesTheNewWeightsAndTheSameBytes) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(DELTAWIRE_GOLDEN_PATCHES)) {
    if (entry.path().extension() != ".patch") continue;
    ++found;
    const ByteVector patch = read(entry.path(), ".patch");
    const ByteVector from = read(entry.path(), ".old");
    const ByteVector to = read(entry.path(), ".new");
    const auto info = inspect_patch(patch);
    ASSERT_TRUE(info) << entry.path();
    for (const TargetId target : testing::runnable_targets()) {
      ByteVector weights = from;
      const Status applied = patch::apply(patch, {weights, info->type}, weights, {target});
      EXPECT_TRUE(applied && weights == to) << entry.path();
      const auto again = patch::make({from, info->type}, to, patch::kMaxChunkBits, {target});
      EXPECT_TRUE(again && *again == patch) << entry.path();
    }
  }
  EXPECT_EQ(found, 21);
}

}  // namespace
}  // namespace deltawire::patch_golden_test
