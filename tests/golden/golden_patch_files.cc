// Adds golden patch files that don't exist yet, each with the old and the new model; none is written again.
//
//   golden_patch_files tests/golden/patch_files      then their lines go to format1.sha256 (sha256sum)
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "deltawire/patch_file.h"
#include "model/model_testing.h"

namespace deltawire {
namespace {

using testing::changed_bytes;
using testing::model_bytes;
using testing::random_bytes;
using testing::TestTensor;

using Models = std::pair<std::string, std::string>;

std::vector<TestTensor> every_dtype() {
  std::vector<TestTensor> tensors;
  const std::vector<std::pair<std::string, std::uint64_t>> dtypes = {
      {"F32", 4}, {"BF16", 2}, {"F16", 2},     {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I8", 1},
      {"U8", 1},  {"BOOL", 1}, {"F8_E8M0", 1}, {"I16", 2},     {"U16", 2},     {"I32", 4},
      {"U32", 4}, {"I64", 8},  {"U64", 8},     {"F64", 8},     {"C64", 8}};
  for (const auto& [dtype, bytes] : dtypes)
    tensors.push_back({"a." + dtype, dtype, "5,7", random_bytes(35 * bytes, bytes)});
  return tensors;
}

// Every tensor changes, none of another kind: no header.
Models same_header() {
  std::vector<TestTensor> tensors = every_dtype();
  const std::string before = model_bytes(tensors, ",\"__metadata__\":{\"format\":\"pt\"}  ");
  for (TestTensor& tensor : tensors) tensor.bytes = changed_bytes(tensor.bytes, 11);
  return {before, model_bytes(tensors, ",\"__metadata__\":{\"format\":\"pt\"}  ")};
}

// Tensors come, go, and take another dtype, shape or place; some are empty or scalars, and names are not
// ASCII.
Models other_header() {
  const std::vector<TestTensor> before = {
      {"w", "BF16", "300", random_bytes(600, 1)}, {"gone", "F32", "2", random_bytes(8, 2)},
      {"shape", "F32", "4", random_bytes(16, 3)}, {"dtype", "I16", "4", random_bytes(8, 4)},
      {"scalar", "I64", "", random_bytes(8, 5)},  {"none", "F16", "0,3", ""}};
  const std::vector<TestTensor> after = {{"none", "F16", "0,3", ""},
                                         {"\u00fcber\\u0000\\\"", "F32", "3", random_bytes(12, 6)},
                                         {"scalar", "I64", "", random_bytes(8, 7)},
                                         {"w", "BF16", "300", changed_bytes(before[0].bytes, 30)},
                                         {"shape", "F32", "2,2", before[2].bytes},
                                         {"dtype", "U16", "4", before[3].bytes}};
  return {model_bytes(before), model_bytes(after)};
}

// A new header, and a digest of the new file.
Models with_file_digest() {
  const std::vector<TestTensor> before = {{"w", "BF16", "300", random_bytes(600, 1)},
                                          {"n", "F32", "2", random_bytes(8, 2)}};
  const std::vector<TestTensor> after = {before[1], {"w", "BF16", "300", changed_bytes(before[0].bytes, 30)}};
  return {model_bytes(before, R"(,"__metadata__":{"step":"100"})"),
          model_bytes(after, R"(,"__metadata__":{"step":"200","scale":"0.125"}  )")};
}

// Dtypes whose elements are no whole bytes, or that no version knows; and no metadata, as some files say it.
Models other_dtypes() {
  std::vector<TestTensor> tensors = {{"e4m3", "F8_E4M3FNUZ", "70", random_bytes(70, 1)},
                                     {"e5m2", "F8_E5M2FNUZ", "70", random_bytes(70, 2)},
                                     {"f4", "F4", "5,16", random_bytes(40, 3)},
                                     {"f6", "F6_E2M3", "8", random_bytes(6, 4)},
                                     {"later", "F1_E0M0", "80", random_bytes(10, 5)}};
  const std::string before = model_bytes(tensors, R"(,"__metadata__":null)");
  for (TestTensor& tensor : tensors) tensor.bytes = changed_bytes(tensor.bytes, 9);
  return {before, model_bytes(tensors, R"(,"__metadata__":null)")};
}

// So many tensors that those that don't change have no entry: format 2.
Models left_out() {
  std::vector<TestTensor> tensors;
  for (int i = 0; i < 1002; ++i) tensors.push_back({"t" + std::to_string(i), "U8", "1", std::string(1, 'a')});
  const std::string before = model_bytes(tensors);
  for (const std::size_t changed : {3, 700}) tensors[changed].bytes = "b";
  return {before, model_bytes(tensors)};
}

bool write_case(const std::string& stem, const Models& models) {
  if (std::filesystem::exists(stem + ".patch")) return true;
  testing::write_file(stem + ".old", models.first);
  testing::write_file(stem + ".new", models.second);
  PatchFileOptions options;
  options.from = "step 1";
  options.to = "step 2";
  const Status made = make_patch_file(stem + ".old", stem + ".new", stem + ".patch", options);
  if (!made) std::fprintf(stderr, "%s\n", made.error().message.c_str());
  return made.has_value();
}

}  // namespace
}  // namespace deltawire

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", arguments[0]);
    return 2;
  }
  const std::string folder = std::string(arguments[1]) + "/";
  const bool done = deltawire::write_case(folder + "same_header", deltawire::same_header()) &&
                    deltawire::write_case(folder + "other_header", deltawire::other_header()) &&
                    deltawire::write_case(folder + "file_digest", deltawire::with_file_digest()) &&
                    deltawire::write_case(folder + "other_dtypes", deltawire::other_dtypes()) &&
                    deltawire::write_case(folder + "left_out", deltawire::left_out());
  return done ? 0 : 1;
}
