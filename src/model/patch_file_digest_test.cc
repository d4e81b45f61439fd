// No byte reaches a new file without a digest over it.
#include <array>
#include <fstream>

#include <gtest/gtest.h>

#include "deltawire/patch_file.h"
#include "model/model_testing.h"
#include "model/patch_file_testing.h"

namespace deltawire::patch_file_digest_test {
namespace {

using namespace testing;

std::vector<TestTensor> with_other_weights(std::vector<TestTensor> tensors) {
  tensors[0].bytes = changed_bytes(tensors[0].bytes, 10);
  return tensors;
}

// Headers that differ, so that one is in the patch, and then one that is the old file's.
class EveryFlippedBit : public testing::PatchFilesTest {
 protected:
  EveryFlippedBit() {
    const std::vector<TestTensor> before = {{"w", "BF16", "30", random_bytes(60, 1)},
                                            {"n", "F32", "2", random_bytes(8, 2)}};
    write_file(old_, model_bytes(before, R"(,"__metadata__":{"step":"100","scale":"0.125"})"));
    write_file(new_,
               model_bytes(with_other_weights(before), R"(,"__metadata__":{"step":"200","scale":"0.125"} )"));
    write_file(same_header_,
               model_bytes(with_other_weights(before), R"(,"__metadata__":{"step":"100","scale":"0.125"})"));
  }

  // Each bit of the patch: it is refused, or the new file is right.
  void expect_seen_or_harmless(const std::string& wanted) const {
    const std::string sound = read_file(patch_);
    std::fstream file(patch_, std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&](std::size_t at, int byte) {
      file.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(byte)).flush();
    };
    for (std::size_t bit = 0; bit < 8 * sound.size(); ++bit) {
      put(bit / 8, sound[bit / 8] ^ 1 << bit % 8);
      if (verify_patch_file(old_, patch_)) {
        ASSERT_TRUE(apply_patch_file(old_, patch_, out_, replacing())) << bit;
        ASSERT_TRUE(read_file(out_) == wanted) << "bit " << bit;
      }
      put(bit / 8, sound[bit / 8]);
    }
  }

  static PatchFileOptions replacing() {
    PatchFileOptions options;
    options.replace = true;
    return options;
  }

  const std::string same_header_ = folder_.path("same_header.safetensors");
};

TEST_F(EveryFlippedBit, IsSeenOrChangesNothingOfTheNewFile) {
  ASSERT_TRUE(make_patch_file(old_, new_, patch_));
  ASSERT_TRUE(inspect_patch_file(patch_)->has_header);
  expect_seen_or_harmless(read_file(new_));
}

TEST_F(EveryFlippedBit, IsSeenWithoutAHeaderToo) {
  ASSERT_TRUE(make_patch_file(old_, same_header_, patch_));
  ASSERT_FALSE(inspect_patch_file(patch_)->has_header);
  expect_seen_or_harmless(read_file(same_header_));
}

// In the header that the patch carries; what stays JSON is no excuse.
TEST_F(EveryFlippedBit, OfTheNewHeaderIsRefusedByAllCalls) {
  ASSERT_TRUE(make_patch_file(old_, new_, patch_));
  std::string broken = read_file(patch_);
  broken[broken.rfind("0.125") + 2] ^= 4;
  write_file(patch_, broken);
  expect_refused(ErrorCode::kCorrupt, {"patch.safetensors: the new file's header"},
                 [&] { return apply_patch_file(old_, patch_, out_); });
  expect_refused(ErrorCode::kCorrupt, {"header"}, [&] { return verify_patch_file(old_, patch_); });
  expect_refused(ErrorCode::kCorrupt, {"header"},
                 [&] { return merge_patch_files(old_, std::array{patch_}, out_); });
  EXPECT_EQ(inspect_patch_file(patch_).error().code, ErrorCode::kCorrupt);
}

TEST_F(EveryFlippedBit, OfAnOldHeaderIsAsAFileThatWasSavedAgain) {
  ASSERT_TRUE(make_patch_file(old_, same_header_, patch_));
  std::string resaved = read_file(old_);
  resaved[resaved.find("0.125") + 2] ^= 4;
  write_file(old_, resaved);
  for (const bool merges : {false, true}) {
    expect_refused(ErrorCode::kMismatch, {"old.safetensors: has another header", "saved it again"}, [&] {
      return merges ? merge_patch_files(old_, std::array{patch_}, out_)
                    : apply_patch_file(old_, patch_, out_);
    });
  }
  // With a header of its own the patch makes the right file of this one, too.
  ASSERT_TRUE(make_patch_file(old_, new_, patch_, replacing()));
  write_file(old_, resaved.replace(resaved.find("step"), 4, "pets"));
  ASSERT_TRUE(apply_patch_file(old_, patch_, out_));
  EXPECT_TRUE(read_file(out_) == read_file(new_));
}

// A patch file as deltawire 0.1 wrote it.
std::string without_digest(std::string patch) {
  const std::size_t at = patch.find("\"file\":");
  patch.replace(at, 7, "\"filf\":");
  return patch;
}

TEST_F(EveryFlippedBit, WithoutADigestOfTheFileOnlyTheTensorsAreVouchedFor) {
  bool whole = false;
  PatchFileOptions options;
  options.has_file_digest = &whole;
  ASSERT_TRUE(make_patch_file(old_, new_, patch_));
  ASSERT_TRUE(verify_patch_file(old_, patch_, options));
  EXPECT_TRUE(whole);
  write_file(patch_, without_digest(read_file(patch_)));
  ASSERT_TRUE(verify_patch_file(old_, patch_, options));
  EXPECT_FALSE(whole);
  EXPECT_FALSE(inspect_patch_file(patch_)->file_digest);
  ASSERT_TRUE(apply_patch_file(old_, patch_, out_));
  EXPECT_TRUE(read_file(out_) == read_file(new_));
  // A merged one doesn't claim more.
  const std::string merged = folder_.path("merged");
  ASSERT_TRUE(merge_patch_files(old_, std::array{patch_}, merged));
  EXPECT_FALSE(inspect_patch_file(merged)->file_digest);
}

}  // namespace
}  // namespace deltawire::patch_file_digest_test
