// Between models of very many tensors, a patch has entries for those that change alone.
#include <array>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"
#include "deltawire/patch_file.h"
#include "model/model_testing.h"
#include "model/patched_model.h"

namespace deltawire::patch_file_left_out_test {
namespace {

using namespace testing;

std::vector<TestTensor> many(std::size_t count) {
  std::vector<TestTensor> tensors;
  for (std::size_t i = 0; i < count; ++i) {
    tensors.push_back({"expert." + std::to_string(i), "BF16", "4", random_bytes(8, i)});
  }
  return tensors;
}

class LeftOut : public ::testing::Test {
 protected:
  LeftOut() { write_file(old_, model_bytes(tensors_)); }

  // Writes the new model and makes its patch.
  void make(const std::string& more = "") {
    write_file(new_, model_bytes(tensors_, more));
    PatchFileOptions options;
    options.replace = true;
    const Status made = make_patch_file(old_, new_, patch_, options);
    ASSERT_TRUE(made) << made.error().message;
  }
  void change(std::size_t at) { tensors_[at].bytes = changed_bytes(tensors_[at].bytes, 5); }
  void expect_applies() const {
    PatchFileOptions options;
    options.replace = true;
    EXPECT_TRUE(verify_patch_file(old_, patch_));
    const Status applied = apply_patch_file(old_, patch_, out_, options);
    ASSERT_TRUE(applied) << applied.error().message;
    EXPECT_TRUE(read_file(out_) == read_file(new_));
  }
  void expect_refused(ErrorCode code, const std::string& word) const {
    testing::expect_refused(apply_patch_file(old_, patch_, out_), code, word);
  }

  testing::TemporaryFolder folder_;
  std::vector<TestTensor> tensors_ = many(model::kMostUnchangedEntries + 1);
  const std::string old_ = folder_.path("old");
  const std::string new_ = folder_.path("new");
  const std::string patch_ = folder_.path("patch");
  const std::string out_ = folder_.path("out");
};

TEST_F(LeftOut, WhatDoesNotChange) {
  for (const std::size_t at : {0U, 7U, 8U, 1000U}) change(at);
  make();
  const auto info = inspect_patch_file(patch_);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_TRUE(info->leaves_out_unchanged);
  ASSERT_EQ(info->tensors.size(), 4U);
  EXPECT_EQ(info->tensors[2].name, "expert.8");
  EXPECT_LT(info->file_bytes, 1000U);
  expect_applies();
}

TEST_F(LeftOut, ThoughTensorsComeAndGo) {
  change(0);
  tensors_.erase(tensors_.begin() + 5);
  tensors_.push_back({"added", "F32", "2", random_bytes(8, 1)});
  std::swap(tensors_[3], tensors_[900]);
  tensors_.push_back({"more", "F32", "2", random_bytes(8, 2)});
  make(R"(,"__metadata__":{"format":"pt"})");
  EXPECT_TRUE(inspect_patch_file(patch_)->has_header);
  // Of 1,000 in common all have an entry, of one more those that change.
  EXPECT_FALSE(inspect_patch_file(patch_)->leaves_out_unchanged);
  expect_applies();
  tensors_.push_back({"expert.5", "BF16", "4", random_bytes(8, 5)});
  make(R"(,"__metadata__":{"format":"pt"})");
  EXPECT_EQ(inspect_patch_file(patch_)->tensors.size(), 3U);
  expect_applies();
}

TEST_F(LeftOut, NothingOrAllChanges) {
  make();
  EXPECT_TRUE(inspect_patch_file(patch_)->tensors.empty());
  expect_applies();
  for (std::size_t at = 0; at < tensors_.size(); ++at) change(at);
  make();
  EXPECT_FALSE(inspect_patch_file(patch_)->leaves_out_unchanged);
  expect_applies();
}

TEST_F(LeftOut, IsAPatchBetweenTheFirstAndTheLastWhenMerged) {
  const std::array<std::string, 2> steps = {folder_.path("step1"), folder_.path("step2")};
  change(1);
  make();
  std::filesystem::copy_file(patch_, steps[0]);
  const std::string first = read_file(old_);
  write_file(old_, read_file(new_));
  change(2);
  make();
  std::filesystem::copy_file(patch_, steps[1]);
  write_file(old_, first);
  make();
  const Status merged = merge_patch_files(old_, steps, out_);
  ASSERT_TRUE(merged) << merged.error().message;
  EXPECT_TRUE(read_file(out_) == read_file(patch_));
}

TEST_F(LeftOut, OtherTensorsAreSeen) {
  change(0);
  make();
  std::vector<TestTensor> other = many(tensors_.size());
  other[500].bytes = changed_bytes(other[500].bytes, 3);
  write_file(old_, model_bytes(other));
  expect_refused(ErrorCode::kMismatch, "give the model that it was made from");
  // With a header of its own the patch says which tensors there must be.
  write_file(old_, model_bytes(many(tensors_.size())));
  make(R"(,"__metadata__":{"format":"pt"})");
  other = many(tensors_.size());
  other.erase(other.begin() + 500);
  write_file(old_, model_bytes(other));
  expect_refused(ErrorCode::kMismatch, "takes over tensor 'expert.500'");
}

TEST_F(LeftOut, EveryFlippedByteAndEveryCutIsSeen) {
  change(0);
  make();
  const std::string sound = read_file(patch_);
  for (std::size_t at = 0; at < sound.size(); ++at) {
    std::string broken = sound;
    broken[at] = static_cast<char>(broken[at] ^ 1);
    write_file(patch_, broken);
    if (verify_patch_file(old_, patch_)) {  // the name of the file's digest became another one
      EXPECT_EQ(inspect_patch_file(patch_)->file_digest, std::nullopt) << at;
      expect_applies();
    }
    write_file(patch_, sound.substr(0, at));
    EXPECT_FALSE(verify_patch_file(old_, patch_)) << at;
  }
}

}  // namespace
}  // namespace deltawire::patch_file_left_out_test
