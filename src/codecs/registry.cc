// The codecs of deltawire: a row for each, and the target whose kernels they run.
#include <algorithm>
#include <array>
#include <cassert>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/errors.h"
#include "codecs/dispatch.h"
#include "codecs/registration.h"
#include "deltawire/codec.h"
#include "deltawire/result.h"

// In the order of the ids; each by the namespace of its folder.
#define DELTAWIRE_CODECS(ROW) \
  ROW(fp32)                   \
  ROW(bf16)                   \
  ROW(threelc)                \
  ROW(sbc)                    \
  ROW(gcomp)                  \
  ROW(fastsgd)                \
  ROW(int8)                   \
  ROW(randomk)                \
  ROW(onebit)                 \
  ROW(terngrad)               \
  ROW(qsgd)                   \
  ROW(natural)                \
  ROW(signsgd)                \
  ROW(topk)                   \
  ROW(threshold)              \
  ROW(dropping)               \
  ROW(fp16)                   \
  ROW(fp8)                    \
  ROW(blockint)               \
  ROW(truncate)               \
  ROW(zstd)                   \
  ROW(zlib)                   \
  ROW(logquant)               \
  ROW(sketchml)               \
  ROW(twobit)                 \
  ROW(fp4)

namespace deltawire {

namespace {

std::string lower(std::string_view text) {
  std::string letters;
  for (const char letter : text) {
    if (letter == ' ') continue;
    letters += letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  }
  return letters;
}

// Letters to insert, remove or replace, and neighbours to swap (Levenshtein's distance, and Damerau's swaps).
std::size_t edits_between(std::string_view from, std::string_view to) {
  std::vector<std::vector<std::size_t>> rows(from.size() + 1, std::vector<std::size_t>(to.size() + 1));
  for (std::size_t j = 0; j <= to.size(); ++j) rows[0][j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    rows[i][0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = rows[i - 1][j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      rows[i][j] = std::min({replaced, rows[i - 1][j] + 1, rows[i][j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
    }
  }
  return rows.back().back();
}

// The codec whose name differs least, or the longest name within the given one; empty where none is near.
std::string_view nearest_to(const std::string& name, std::span<const CodecInfo* const> known) {
  std::string_view nearest;
  std::size_t fewest = name.size() <= 4 ? 2 : 3;
  for (const CodecInfo* info : known) {
    const std::size_t edits = edits_between(name, info->name);
    if (edits >= fewest) continue;
    fewest = edits;
    nearest = info->name;
  }
  if (!nearest.empty()) return nearest;
  for (const CodecInfo* info : known) {
    const bool within = name.find(info->name) != std::string::npos;
    if (within && info->name.size() > nearest.size()) nearest = info->name;
  }
  return nearest;
}

// That the name is an exchange pattern, or which codec it resembles (another case, a typing error, more
// letters around it, as in "fp16_compress"), or else the known ones.
std::string advice_on(std::string_view name, std::span<const CodecInfo* const> known) {
  const std::string_view outer = name.substr(0, name.find('('));
  for (const CodecInfo* info : known) {
    if (info->default_pattern != outer) continue;
    const std::string codec = outer.size() < name.size() && name.ends_with(')')
                                  ? std::string(name.substr(outer.size() + 1, name.size() - outer.size() - 2))
                                  : std::string(info->name);
    return std::string(outer) + " is an exchange pattern, which only ranks use: give the codec alone, e.g. " +
           codec;
  }
  if (const auto nearest = nearest_to(lower(name), known); !nearest.empty()) {
    return "did you mean " + std::string(nearest) + "?";
  }
  return "give one of " + list_of(known, ", ", &CodecInfo::name);
}

}  // namespace

#define DELTAWIRE_DECLARE(folder)          \
  namespace folder {                       \
  extern const Registration kRegistration; \
  }
DELTAWIRE_CODECS(DELTAWIRE_DECLARE)
#undef DELTAWIRE_DECLARE

namespace {

const auto& codecs() noexcept {
#define DELTAWIRE_CALL(folder) folder::kRegistration,
  static const std::array kCodecs = {DELTAWIRE_CODECS(DELTAWIRE_CALL)};
#undef DELTAWIRE_CALL
  return kCodecs;
}

}  // namespace

Result<std::unique_ptr<const Codec>> make_codec(std::string_view spec, TargetId target) {
  ASSIGN_OR_RETURN(const auto parsed, parse_spec(spec));
  for (const Registration& codec : codecs()) {
    if (codec.info->name != parsed.name) continue;
    RETURN_IF_ERROR(check_parameter_names(parsed, codec.info->parameters));
    return codec.make(parsed, target);
  }
  return fail(ErrorCode::kUnknownCodec, "no codec is named \"" + std::string(parsed.name) +
                                            "\": " + advice_on(parsed.name, registered_codecs()));
}

bool has_kernels(const CodecInfo& info, TargetId target) noexcept {
  return std::ranges::any_of(codecs(), [&](const Registration& codec) {
    return codec.info->id == info.id && codec.has_kernels != nullptr && codec.has_kernels(target);
  });
}

std::span<const CodecInfo* const> registered_codecs() noexcept {
  static const auto kInfos = [] {
    std::array<const CodecInfo*, std::tuple_size_v<std::remove_cvref_t<decltype(codecs())>>> infos{};
    std::ranges::transform(codecs(), infos.begin(), &Registration::info);
    return infos;
  }();
  return kInfos;
}

// Which kernels codecs run.
namespace {

// Changing the variables later changes nothing: codecs of one process give their work to each other.
const Result<TargetId>& decided_target() {
  static const Result<TargetId> kDecided = is_switched_on("DELTAWIRE_HUGE_PAGES").and_then([](bool) {
    return choose_target(setting_of("DELTAWIRE_FORCE_TARGET"), kernel_targets());
  });
  return kDecided;
}

// In the order of TargetId. The features are those that cmake/kernel_targets.cmake compiles the kernels for.
auto targets_of_this_cpu() noexcept {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0 &&
                    __builtin_cpu_supports("bmi") != 0 && __builtin_cpu_supports("bmi2") != 0;
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") != 0 &&
                      __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
                      __builtin_cpu_supports("avx512vl") != 0;
  const bool vbmi =
      avx512 && __builtin_cpu_supports("avx512vbmi") != 0 && __builtin_cpu_supports("avx512vbmi2") != 0;
  return std::to_array<KernelTarget>(
      {{"reference", true}, {"avx2", avx2}, {"avx512", avx512}, {"avx512vbmi", vbmi}});
#elif defined(__aarch64__)
  return std::to_array<KernelTarget>({{"reference", true}, {"neon", true}});  // every such CPU has it
#else
  return std::to_array<KernelTarget>({{"reference", true}});
#endif
}

}  // namespace

std::span<const KernelTarget> kernel_targets() noexcept {
  static const std::array kTargets = targets_of_this_cpu();
  return kTargets;
}

Result<TargetId> choose_target(std::string_view forced, std::span<const KernelTarget> targets) {
  assert(!targets.empty() && targets.front().runs_here);
  if (forced.empty()) {
    std::size_t best = targets.size() - 1;
    while (!targets[best].runs_here) --best;
    return static_cast<TargetId>(best);
  }
  std::string_view problem = "which this build doesn't know";
  std::string usable;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const bool meant = targets[i].name == forced;
    if (meant && targets[i].runs_here) return static_cast<TargetId>(i);
    if (meant) problem = "whose instructions this CPU lacks";
    if (targets[i].runs_here) usable += (usable.empty() ? "" : ", ") + std::string(targets[i].name);
  }
  return invalid("DELTAWIRE_FORCE_TARGET is \"" + printable_line(forced) + "\", " + std::string(problem) +
                 ": give one of " + usable + ", or unset it");
}

Result<std::string_view> kernel_target_in_use() {
  const auto& target = decided_target();
  if (!target) return forward_error(target);
  return kernel_targets()[static_cast<std::size_t>(*target)].name;
}

Result<std::unique_ptr<const Codec>> make_codec(std::string_view spec) {
  const auto& target = decided_target();
  if (!target) return forward_error(target);
  return make_codec(spec, *target);
}

}  // namespace deltawire
