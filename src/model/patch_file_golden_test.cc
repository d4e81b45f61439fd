// The golden patch files, whose bytes may never come to mean something else.
#include <gtest/gtest.h>

#include "deltawire/patch_file.h"
#include "model/model_testing.h"

namespace deltawire::patch_file_golden_test {
namespace {

TEST(PatchFileGolden, MakeTheNewModelsAndAreMadeAgain) {
  const testing::TemporaryFolder folder;
  PatchFileOptions options;
  options.replace = true;
  options.from = "step 1";
  options.to = "step 2";
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(DELTAWIRE_GOLDEN_PATCH_FILES)) {
    std::filesystem::path path = entry.path();
    if (path.extension() != ".patch") continue;
    ++found;
    const std::string before = path.replace_extension(".old");
    const std::string after = path.replace_extension(".new");
    const Status applied = apply_patch_file(before, entry.path(), folder.path("new"), options);
    ASSERT_TRUE(applied) << applied.error().message;
    EXPECT_TRUE(testing::read_file(folder.path("new")) == testing::read_file(after)) << entry.path();
    ASSERT_TRUE(make_patch_file(before, after, folder.path("patch"), options));
    EXPECT_TRUE(testing::read_file(folder.path("patch")) == testing::read_file(entry.path())) << entry.path();
  }
  EXPECT_EQ(found, 2);
}

}  // namespace
}  // namespace deltawire::patch_file_golden_test
