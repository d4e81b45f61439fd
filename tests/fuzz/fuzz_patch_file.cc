// A patch file from anywhere, for models that the seeds were made from; and the same bytes as a model.
#include <cstdlib>
#include <filesystem>
#include <set>
#include <span>
#include <string>

#include "deltawire/patch_file.h"
#include "patch_file_inputs.h"

namespace deltawire {
namespace {

struct Folder {
  testing::TemporaryFolder folder;
  std::string input = folder.path("input");
  std::string out = folder.path("out");
  std::string old_models[2] = {folder.path("old0"), folder.path("old1")};
  std::string new_models[2];

  Folder() {
    for (const bool reshaped : {false, true}) {
      testing::write_file(old_models[reshaped], fuzz::patch_file_model(false, reshaped));
      new_models[reshaped] = fuzz::patch_file_model(true, reshaped);
    }
  }
};

std::set<std::string> applied;  // the old models that a patch could be applied to

// What is applied makes a model that the patch's digest vouches for; what isn't leaves no file.
void apply(const Folder& files, bool reshaped) {
  const std::string& old_model = files.old_models[reshaped];
  const Status verified = verify_patch_file(old_model, files.input);
  const Status done = apply_patch_file(old_model, files.input, files.out);
  if (done.has_value() != verified.has_value()) std::abort();
  if (done.has_value() != std::filesystem::exists(files.out)) std::abort();
  if (!done) return;
  if (!inspect_patch_file(files.input)) std::abort();
  if (testing::read_file(files.out) == files.new_models[reshaped]) applied.insert(old_model);
  std::filesystem::remove(files.out);
}

void take(const std::string& input) {
  static const Folder files;
  testing::write_file(files.input, input);
  // In memory it is what it is on disk.
  const auto view = read_patch_file(std::as_bytes(std::span(input)));
  if (const auto info = inspect_patch_file(files.input);
      info && (!view || view->new_digest != info->new_digest)) {
    std::abort();
  }
  for (const bool reshaped : {false, true}) apply(files, reshaped);
  // As a model it may be anything.
  if (make_patch_file(files.input, files.old_models[0], files.out)) {
    if (!verify_patch_file(files.input, files.out)) std::abort();
    std::filesystem::remove(files.out);
  }
}

}  // namespace
}  // namespace deltawire

// Each of them takes several files.
extern "C" {
extern const int fuzz_rounds;
const int fuzz_rounds = 400;
}

extern "C" void fuzz_after_seeds() {
  if (deltawire::applied.size() != 2) std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  deltawire::take(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
