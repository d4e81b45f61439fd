// What tests of patch files share: a folder with an old model, a new one, the patch and what it makes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/temporary_folder_testing.h"
#include "deltawire/result.h"

namespace deltawire::testing {

class PatchFilesTest : public ::testing::Test {
 protected:
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_.path()), {}));
  }

  // The call fails with this code, its message has all words, and it leaves no file behind.
  template <class Call>
  void expect_refused(ErrorCode code, const std::vector<std::string>& words, const Call& call) const {
    const std::size_t before = files();
    const Status done = call();
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, code) << done.error().message;
    for (const std::string& word : words) {
      EXPECT_NE(done.error().message.find(word), std::string::npos) << word << ": " << done.error().message;
    }
    EXPECT_EQ(files(), before);
  }

  TemporaryFolder folder_;
  const std::string old_ = folder_.path("old.safetensors");
  const std::string new_ = folder_.path("new.safetensors");
  const std::string patch_ = folder_.path("patch.safetensors");
  const std::string out_ = folder_.path("out.safetensors");
};

}  // namespace deltawire::testing
