// The golden patch files, whose bytes may never come to mean something else.
#include <gtest/gtest.h>

#include "base/little_endian.h"
#include "deltawire/patch_file.h"
#include "model/model_testing.h"

namespace deltawire::patch_file_golden_test {
namespace {

// A patch file without the new file's digest, and without the spaces behind the header, as deltawire 0.1
// would have written it but for their number.
std::string without_file_digest(const std::string& patch) {
  const std::size_t end = 8 + load_le<std::uint64_t>(std::as_bytes(std::span(patch)).data());
  std::string json = patch.substr(8, end - 8);
  json.erase(json.find_last_not_of(' ') + 1);
  if (const std::size_t at = json.find("\"file\":"); at != std::string::npos) {
    json.erase(at, std::string_view("\"file\":\"0123456789abcdef\",").size());
  }
  return json + patch.substr(end);
}

TEST(PatchFileGolden, MakeTheNewModelsAndAreMadeAgain) {
  const testing::TemporaryFolder folder;
  PatchFileOptions options;
  options.replace = true;
  options.from = "step 1";
  options.to = "step 2";
  int found = 0;
  int found_with_digest = 0;
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
    const std::string golden = testing::read_file(entry.path());
    const std::string made = testing::read_file(folder.path("patch"));
    const auto info = inspect_patch_file(entry.path());
    ASSERT_TRUE(info) << info.error().message;
    found_with_digest += info->file_digest ? 1 : 0;
    EXPECT_TRUE(info->file_digest ? made == golden : without_file_digest(made) == without_file_digest(golden))
        << entry.path();
  }
  EXPECT_EQ(found, 5);
  EXPECT_EQ(found_with_digest, 3);
}

}  // namespace
}  // namespace deltawire::patch_file_golden_test
