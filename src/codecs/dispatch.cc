#include "codecs/dispatch.h"

#include <array>
#include <cassert>
#include <cstdlib>
#include <string>

namespace deltawire {

namespace {

// Changing the variable later changes nothing: codecs of one process give their work to each other.
const Result<TargetId>& decided_target() {
  static const Result<TargetId> kDecided =
      choose_target(std::getenv("DELTAWIRE_FORCE_TARGET"), kernel_targets());
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

Result<TargetId> choose_target(const char* forced, std::span<const KernelTarget> targets) {
  assert(!targets.empty() && targets.front().runs_here);
  if (forced == nullptr) {
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
  return fail(ErrorCode::kInvalidArgument, "DELTAWIRE_FORCE_TARGET is \"" + std::string(forced) + "\", " +
                                               std::string(problem) + ": give one of " + usable +
                                               ", or unset it");
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
