// Adds golden patches that don't exist yet, each with the old and the new weights; none is written again.
//
//   golden_patches tests/golden/patches       then their lines go to format1.sha256 (sha256sum)
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "deltawire/patch.h"
#include "patch/patch_testing.h"

namespace deltawire {
namespace {

using testing::Change;
using testing::OldWeights;
using testing::PairCase;

std::vector<std::pair<std::string, PairCase>> cases() {
  std::vector<std::pair<std::string, PairCase>> all;
  for (const WeightType type : testing::kWeightTypes) {
    const std::string name(weight_type_name(type));
    all.push_back({name + ".few", {type, 1000, 0.02, OldWeights::kBell, Change::kOneUnit, false}});
    all.push_back({name + ".many", {type, 777, 0.8, OldWeights::kRandomBits, Change::kFewUnits, false}});
  }
  all.push_back({"none", {WeightType::kBFloat16, 0, 0.0}});
  all.push_back({"unchanged", {WeightType::kBFloat16, 300, 0.0}});
  all.push_back(
      {"full", {WeightType::kFloat32, 130, 1.0, OldWeights::kRandomBits, Change::kRandomBits, false}});
  all.push_back(
      {"signs", {WeightType::kFloat16, 400, 0.5, OldWeights::kZerosOfBothSigns, Change::kSign, true}});
  all.push_back(
      {"chunks", {WeightType::kFloat8E4M3, 131073, 0.01, OldWeights::kBell, Change::kOneUnit, true}});
  return all;
}

void write(const std::filesystem::path& path, Bytes bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

bool write_case(const std::filesystem::path& folder, const std::string& name, const PairCase& wanted) {
  if (std::filesystem::exists(folder / (name + ".patch"))) return true;
  const testing::WeightPair pair = testing::make_pair(wanted, 1);
  const auto patch = make_patch(pair.from, pair.to, wanted.type);
  if (!patch) return false;
  write(folder / (name + ".old"), pair.from);
  write(folder / (name + ".new"), pair.to);
  write(folder / (name + ".patch"), *patch);
  return true;
}

}  // namespace
}  // namespace deltawire

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", arguments[0]);
    return 2;
  }
  for (const auto& [name, wanted] : deltawire::cases()) {
    if (!deltawire::write_case(arguments[1], name, wanted)) return 1;
  }
  return 0;
}
