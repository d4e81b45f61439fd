#include "deltawire/patch_file.h"

#include <array>
#include <csignal>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/model_testing.h"
#include "model/patch_file_testing.h"

namespace deltawire::patch_file_test {
namespace {

using namespace testing;

std::vector<TestTensor> old_tensors() {
  return {{"layers.0.weight", "BF16", "100,50", random_bytes(10'000, 1)},
          {"norm", "F32", "64", random_bytes(256, 2)},
          {"gone", "F16", "8", random_bytes(16, 3)},
          {"reshaped", "F16", "4,4", random_bytes(32, 4)},
          {"steps", "I64", "", random_bytes(8, 5)},
          {"mask", "BOOL", "0,3", ""},
          {"fp8", "F8_E4M3", "3000", random_bytes(3000, 6)}};
}

// Changed, unchanged, removed, reshaped, added, and in another order.
std::vector<TestTensor> new_tensors() {
  std::vector<TestTensor> tensors = old_tensors();
  tensors[0].bytes = changed_bytes(tensors[0].bytes, 100);
  tensors[2] = {"added", "F64", "1", random_bytes(8, 7)};
  tensors[3].shape = "16";
  tensors[4].bytes = changed_bytes(tensors[4].bytes, 2);
  std::swap(tensors[0], tensors[6]);
  return tensors;
}

class PatchFiles : public testing::PatchFilesTest {
 protected:
  PatchFiles() {
    write_file(old_, model_bytes(old_tensors(), R"(,"__metadata__":{"format":"pt"})"));
    write_file(new_, model_bytes(new_tensors()));
  }
};

TEST_F(PatchFiles, MakeTheNewFileBitForBit) {
  PatchFileOptions options;
  options.from = "step 1";
  options.to = "step \"2\"";
  ASSERT_TRUE(make_patch_file(old_, new_, patch_, options));
  EXPECT_TRUE(verify_patch_file(old_, patch_));
  const Status applied = apply_patch_file(old_, patch_, out_);
  ASSERT_TRUE(applied) << applied.error().message;
  EXPECT_TRUE(read_file(out_) == read_file(new_));
  EXPECT_EQ(files(), 4U);

  const auto info = inspect_patch_file(patch_);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->from, "step 1");
  EXPECT_EQ(info->to, "step \"2\"");
  EXPECT_TRUE(info->has_header);
  EXPECT_EQ(info->file_bytes, read_file(patch_).size());
  ASSERT_EQ(info->tensors.size(), 7U);
  EXPECT_EQ(info->tensors[0].name, "fp8");
  EXPECT_FALSE(info->tensors[0].full);
  EXPECT_EQ(info->tensors[0].patch.changes, 0U);
  EXPECT_EQ(info->tensors[2].name, "added");
  EXPECT_TRUE(info->tensors[2].full);
  EXPECT_TRUE(info->tensors[3].full);
  EXPECT_EQ(info->tensors[6].patch.changes, 100U);
  EXPECT_EQ(info->tensors[6].new_bytes, 10'000U);
}

TEST_F(PatchFiles, WithOneHeaderNoneIsCarried) {
  auto tensors = old_tensors();
  tensors[0].bytes = changed_bytes(tensors[0].bytes, 10);
  tensors[6].bytes = changed_bytes(tensors[6].bytes, 10);  // the last one
  write_file(new_, model_bytes(tensors, R"(,"__metadata__":{"format":"pt"})"));
  ASSERT_TRUE(make_patch_file(old_, new_, patch_));
  EXPECT_FALSE(inspect_patch_file(patch_)->has_header);
  ASSERT_TRUE(apply_patch_file(old_, patch_, out_));
  EXPECT_TRUE(read_file(out_) == read_file(new_));
}

TEST_F(PatchFiles, TensorsLongerThanAPiece) {
  constexpr std::uint64_t kBytes = (std::uint64_t{1} << 22) + 77'777;
  const std::string weights = random_bytes(kBytes, 8);
  write_file(old_, model_bytes({{"w", "U8", std::to_string(kBytes), weights}, {"x", "U8", "1", "x"}}));
  write_file(new_, model_bytes({{"w", "U8", std::to_string(kBytes), changed_bytes(weights, 1000)},
                                {"v", "U8", std::to_string(kBytes), weights},
                                {"x", "U8", "1", "y"}}));
  ASSERT_TRUE(make_patch_file(old_, new_, patch_));
  ASSERT_TRUE(apply_patch_file(old_, patch_, out_));
  EXPECT_TRUE(read_file(out_) == read_file(new_));
}

TEST_F(PatchFiles, AnotherOldModelIsRefused) {
  ASSERT_TRUE(make_patch_file(old_, new_, patch_));
  const auto apply_to = [&](std::vector<TestTensor> tensors) {
    write_file(old_, model_bytes(tensors));
    return [&] { return apply_patch_file(old_, patch_, out_); };
  };
  auto tensors = old_tensors();
  tensors[6].bytes = changed_bytes(tensors[6].bytes, 2999);  // one that is the same in the new model
  expect_refused(ErrorCode::kMismatch, {"old.safetensors: tensor 'fp8'", "from this version"},
                 apply_to(tensors));
  tensors = old_tensors();
  tensors[2].bytes = changed_bytes(tensors[2].bytes, 16);  // one that the new model doesn't have
  expect_refused(ErrorCode::kMismatch, {"patch.safetensors: ", "old.safetensors has"}, apply_to(tensors));
  tensors = old_tensors();
  tensors[5].name = "masked";
  expect_refused(ErrorCode::kMismatch, {"tensor 'mask'", "has none"}, apply_to(tensors));
  tensors = old_tensors();
  tensors[0].shape = "50,100";
  expect_refused(ErrorCode::kMismatch, {"tensor 'layers.0.weight'", "shape"}, apply_to(tensors));
  expect_refused(ErrorCode::kMismatch, {"new.safetensors: tensor 'steps'"},
                 [&] { return verify_patch_file(new_, patch_); });
}

TEST_F(PatchFiles, EveryFlippedByteAndEveryCutIsSeen) {
  ASSERT_TRUE(make_patch_file(old_, new_, patch_));
  const std::string sound = read_file(patch_);
  for (std::size_t at = 0; at < sound.size(); at += at < 1200 ? 7 : 101) {
    std::string broken = sound;
    broken[at] = static_cast<char>(broken[at] ^ 1);
    write_file(patch_, broken);
    const Status applied = apply_patch_file(old_, patch_, out_);
    if (applied) {
      EXPECT_TRUE(read_file(out_) == read_file(new_)) << at;  // a space became another one
      std::filesystem::remove(out_);
    } else {
      EXPECT_TRUE(applied.error().message.starts_with(folder_.path())) << applied.error().message;
    }
    EXPECT_EQ(files(), 3U) << at;
    write_file(patch_, sound.substr(0, at));
    EXPECT_FALSE(verify_patch_file(old_, patch_)) << at;
  }
  write_file(patch_, sound + "?");
  expect_refused(ErrorCode::kCorrupt, {"patch.safetensors: 1 bytes follow"},
                 [&] { return verify_patch_file(old_, patch_); });
}

// A patch file by hand; `digests` as metadata.
std::string forged(const std::vector<TestTensor>& entries, const std::string& format = "deltawire-patch",
                   const std::string& version = "1", const std::string& digest = "0123456789abcdef") {
  return model_bytes(entries, std::string(entries.empty() ? "" : ",") + R"("__metadata__":{"format":")" +
                                  format + R"(","format_version":")" + version + R"(","old":")" + digest +
                                  R"(","new":"0123456789abcdef"})");
}

TEST_F(PatchFiles, WhatIsNoPatchFileIsRefusedWithItsReason) {
  const TestTensor full{"full:norm", "F32", "64", random_bytes(256, 2)};
  const std::vector<std::tuple<std::string, ErrorCode, std::string>> all = {
      {forged({}, "pt"), ErrorCode::kCorrupt, "is no patch file"},
      {forged({}, "deltawire-patch", "3"), ErrorCode::kUnsupportedVersion, "format '3'"},
      {forged({}, "deltawire-patch", "1", "0123456789ABCDEF"), ErrorCode::kCorrupt, "\"old\""},
      {forged({}, "deltawire-patch", "1", "12"), ErrorCode::kCorrupt, "\"old\""},
      {forged({{"norm", "F32", "64", random_bytes(256, 2)}}), ErrorCode::kCorrupt, "neither"},
      {forged({{"patch:norm", "I8", "1", "x"}}), ErrorCode::kCorrupt, "U8"},
      {forged({{"header", "U8", "1,1", "x"}}), ErrorCode::kCorrupt, "U8"},
      {forged({{"header", "U8", "0", ""}}), ErrorCode::kCorrupt, "is empty"},
      {forged({}, R"(deltawire-patch","file":"12)"), ErrorCode::kCorrupt, "\"file\""},
      {forged({{"patch:norm", "U8", "1", "x"}, full}), ErrorCode::kCorrupt, "in full"},
      {forged({{"header", "U8", "1", "x"}}), ErrorCode::kCorrupt, "the new header: the header is no JSON"},
      {forged({{"header", "U8", "2", "{}"}, full}), ErrorCode::kCorrupt, "does not name"},
      {forged({full}), ErrorCode::kMismatch, "has nothing for tensor"},
      {std::string("short"), ErrorCode::kTruncated, "5 of 8"},
      {std::string("short"), ErrorCode::kTruncated, "is no safetensors file"},
      {std::string("a longer text"), ErrorCode::kLimit, "is no safetensors file, but text"},
      {std::string("{\n  \"metadata\": {}}"), ErrorCode::kLimit, "index, give the files that it names"},
      {std::string("PK\x03\x04\0\0\x08\x08", 8), ErrorCode::kLimit, "safetensors.torch.save_file"},
      {std::string(8, '\xff') + "{}", ErrorCode::kLimit, "18446744073709551615"},
      {std::string("\x09\0\0\0\0\0\0\0{}", 10), ErrorCode::kTruncated, "10 of 17"},
  };
  for (const auto& [bytes, code, word] : all) {
    write_file(patch_, bytes);
    expect_refused(code, {"patch.safetensors: ", word}, [&] { return verify_patch_file(old_, patch_); });
  }
}

TEST_F(PatchFiles, PlacesThatAreTakenOrNowhere) {
  write_file(patch_, "precious");
  const auto make_to = [&](const std::string& path, bool replace) {
    return [this, path, replace] {
      PatchFileOptions options;
      options.replace = replace;
      return make_patch_file(old_, new_, path, options);
    };
  };
  expect_refused(ErrorCode::kIo, {"patch.safetensors: exists already"}, make_to(patch_, false));
  EXPECT_EQ(read_file(patch_), "precious");
  std::filesystem::create_hard_link(new_, out_);
  expect_refused(ErrorCode::kInvalidArgument, {"is the input itself"}, make_to(out_, true));
  expect_refused(ErrorCode::kIo, {"is a folder"}, make_to(folder_.path(), true));
  expect_refused(ErrorCode::kIo, {"its folder does not exist"}, make_to(folder_.path("no/p"), true));
  expect_refused(ErrorCode::kIo, {"/dev/null: is not a regular file"}, make_to("/dev/null", true));
  expect_refused(ErrorCode::kIo, {"gone: no such file"},
                 [&] { return make_patch_file(folder_.path("gone"), new_, folder_.path("p")); });
  expect_refused(ErrorCode::kIo, {"is a folder"},
                 [&] { return make_patch_file(folder_.path(), new_, folder_.path("p")); });
  // Through a link, the file is replaced and not the link.
  const std::string link = folder_.path("link");
  std::filesystem::create_symlink(patch_, link);
  ASSERT_TRUE(make_to(link, true)());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(verify_patch_file(old_, patch_));
}

TEST_F(PatchFiles, APlaceThatIsTakenMeanwhileIsNotReplaced) {
  PatchFileOptions options;
  options.progress = [&](std::uint64_t, std::uint64_t) {
    write_file(patch_, "precious");
    write_file(out_, "precious");
    return true;
  };
  const std::string other = folder_.path("other");
  ASSERT_TRUE(make_patch_file(old_, new_, other));
  EXPECT_EQ(make_patch_file(old_, new_, patch_, options).error().code, ErrorCode::kIo);
  EXPECT_EQ(read_file(patch_), "precious");
  std::filesystem::remove(out_);
  EXPECT_EQ(apply_patch_file(old_, other, out_, options).error().code, ErrorCode::kIo);
  EXPECT_EQ(read_file(out_), "precious");
  EXPECT_EQ(files(), 5U);
}

TEST_F(PatchFiles, APipeIsNoModelAndKeepsNobodyWaiting) {
  ASSERT_EQ(mkfifo(out_.c_str(), 0600), 0);
  expect_refused(ErrorCode::kIo, {"out.safetensors: is not a regular file"},
                 [&] { return make_patch_file(out_, new_, patch_); });
}

TEST_F(PatchFiles, AFullDiskNamesFileAndTensor) {
  ASSERT_TRUE(make_patch_file(old_, new_, patch_));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_refused(ErrorCode::kIo, {"out.safetensors: ", "cannot be written"},
                 [&] { return apply_patch_file(old_, patch_, out_); });
  expect_refused(ErrorCode::kIo, {"p: tensor 'patch:layers.0.weight': cannot be written"},
                 [&] { return make_patch_file(old_, new_, folder_.path("p")); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
}

TEST_F(PatchFiles, WhoSaysStopIsObeyed) {
  PatchFileOptions options;
  std::uint64_t last = 0;
  options.progress = [&](std::uint64_t done, std::uint64_t all) {
    EXPECT_GE(done, last);
    EXPECT_LE(done, all);
    last = done;
    return true;
  };
  ASSERT_TRUE(make_patch_file(old_, new_, patch_, options));
  EXPECT_GT(last, 10'000U);
  options.progress = [](std::uint64_t, std::uint64_t) { return false; };
  expect_refused(ErrorCode::kAborted, {"interrupted"},
                 [&] { return apply_patch_file(old_, patch_, out_, options); });
  expect_refused(ErrorCode::kAborted, {"interrupted"},
                 [&] { return make_patch_file(old_, new_, folder_.path("p"), options); });
}

// A limit that readers have is the writer's too. One name of nearly 100 MB, for a header that its patch file
// outgrows.
TEST_F(PatchFiles, NoneIsWrittenWithALongerHeaderThanReadersTake) {
  const std::string name(kMostModelHeaderBytes - 100, 'n');
  write_file(new_, model_bytes({{name, "U8", "1", "a"}}));
  expect_refused(ErrorCode::kLimit, {"patch.safetensors: ", "a header of 100000", "shorter names"},
                 [&] { return make_patch_file(old_, new_, patch_); });
}

// The type of a patch decides what its steps mean: weights alone, which are the same bytes, don't.
TEST_F(PatchFiles, APatchForAnotherTypeOfWeightsIsRefused) {
  const std::string before = random_bytes(300, 1);
  const std::string after = changed_bytes(before, 30);
  write_file(old_, model_bytes({{"w", "F8_E4M3", "300", before}}));
  write_file(new_, model_bytes({{"w", "F8_E4M3", "300", after}}));
  ASSERT_TRUE(make_patch_file(old_, new_, patch_));
  const auto info = inspect_patch_file(patch_);
  ASSERT_TRUE(info);
  const auto bytes = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  const auto with_patch = [&](WeightType type) {
    const auto made = make_patch(bytes(before), bytes(after), type);
    const std::string entry(reinterpret_cast<const char*>(made->data()), made->size());
    write_file(patch_,
               model_bytes({{"patch:w", "U8", std::to_string(entry.size()), entry}},
                           R"(,"__metadata__":{"format":"deltawire-patch","format_version":"1","old":")" +
                               digest_text(info->old_digest) + R"(","new":")" +
                               digest_text(info->new_digest) + R"("})"));
    return verify_patch_file(old_, patch_);
  };
  EXPECT_TRUE(with_patch(WeightType::kFloat8E4M3));
  expect_refused(ErrorCode::kCorrupt, {"tensor 'patch:w'", "another type"},
                 [&] { return with_patch(WeightType::kInt8); });
  // As many bytes, but half as many weights.
  expect_refused(ErrorCode::kCorrupt, {"tensor 'patch:w'", "another type"},
                 [&] { return with_patch(WeightType::kInt16); });
}

class MergedPatchFiles : public PatchFiles {
 protected:
  // Versions 0 to 4; the file of a version, and the patch that leads to it.
  MergedPatchFiles() {
    auto tensors = old_tensors();
    write_file(version(0), model_bytes(tensors));
    for (std::size_t v = 1; v <= 4; ++v) {
      tensors[0].bytes = changed_bytes(tensors[0].bytes, 100 + v);
      if (v == 2) tensors[1].shape = "8,8";
      if (v == 3) tensors[1].bytes = changed_bytes(tensors[1].bytes, 7);
      if (v == 3) std::swap(tensors[2], tensors[6]);
      if (v == 4) tensors[1].shape = "64";  // as it was at first
      write_file(version(v), model_bytes(tensors));
      EXPECT_TRUE(make_patch_file(version(v - 1), version(v), step(v)));
    }
  }
  std::string version(std::size_t v) const { return folder_.path("v" + std::to_string(v)); }
  std::string step(std::size_t v) const { return folder_.path("p" + std::to_string(v)); }
};

TEST_F(MergedPatchFiles, AreThePatchBetweenTheFirstAndTheLast) {
  const std::string direct = folder_.path("direct");
  const std::string merged = folder_.path("merged");
  for (std::size_t v = 1; v <= 4; ++v) {
    std::vector<std::string> steps;
    for (std::size_t i = 1; i <= v; ++i) steps.push_back(step(i));
    PatchFileOptions options;
    options.replace = true;
    ASSERT_TRUE(make_patch_file(version(0), version(v), direct, options));
    const Status done = merge_patch_files(version(0), steps, merged, options);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_TRUE(read_file(merged) == read_file(direct)) << v;
  }
}

TEST_F(MergedPatchFiles, MustFollowOneAnotherAndFitTheModel) {
  const auto merge = [this](std::size_t old_version, std::vector<std::string> steps) {
    return [this, old_version, steps] { return merge_patch_files(version(old_version), steps, out_); };
  };
  expect_refused(ErrorCode::kMismatch, {"p3: ", "p1 makes", "order of versions"},
                 merge(0, {step(1), step(3)}));
  expect_refused(ErrorCode::kMismatch, {"v1: tensor 'layers.0.weight'"}, merge(1, {step(1), step(2)}));
  expect_refused(ErrorCode::kInvalidArgument, {"no patch"}, merge(0, {}));
  std::string broken = read_file(step(2));
  broken.back() = static_cast<char>(broken.back() ^ 1);
  write_file(step(2), broken);
  expect_refused(ErrorCode::kCorrupt, {"p2: "}, merge(0, {step(1), step(2)}));
}

TEST_F(MergedPatchFiles, MoreThanMayBeOpenAreRefusedWithAWayOut) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);
  ASSERT_GE(next, 0);
  close(next);
  const rlimit few{static_cast<rlim_t>(next) + 4, before.rlim_max};  // the new file and three patches
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  expect_refused(ErrorCode::kIo, {"p4: cannot be opened", "merge fewer patches at once", "ulimit -n"}, [&] {
    return merge_patch_files(version(0), std::array{step(1), step(2), step(3), step(4)}, out_);
  });
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(merge_patch_files(version(0), std::array{step(1), step(2), step(3), step(4)}, out_));
}

}  // namespace
}  // namespace deltawire::patch_file_test
