// DELTAWIRE_KERNELS(reference, avx2, neon): the targets that a folder has files of kernels for, from the
// plainest on. It stands once in the folder's namespace, and defines kernels_for() there. Targets of another
// machine are left out.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>

#include "codecs/target_id.h"

namespace deltawire {

template <class Kernels>
class KernelTable {
 public:
  struct Own {
    TargetId target;
    const Kernels* kernels;
  };

  // From the reference on, in the order of TargetId: a target that is left out runs the kernels of the one
  // before.
  constexpr KernelTable(std::initializer_list<Own> own) noexcept {
    for (const auto& [target, kernels] : own) {
      for (auto i = static_cast<std::size_t>(target); i < kernels_.size(); ++i) kernels_[i] = kernels;
    }
  }

  constexpr const Kernels& operator[](TargetId target) const noexcept {
    return *kernels_[static_cast<std::size_t>(target)];
  }

 private:
  std::array<const Kernels*, static_cast<std::size_t>(TargetId::kCount)> kernels_{};
};

// Whether one of these kernels_for() has kernels of its own for `target`.
template <auto... kKernelsFor>
bool own_kernels(TargetId target) noexcept {
  if (target == TargetId::kReference) return true;
  const auto before = static_cast<TargetId>(static_cast<std::size_t>(target) - 1);
  return ((&kKernelsFor(target) != &kKernelsFor(before)) || ...);
}

}  // namespace deltawire

// Each target of this machine gives its namespace and its TargetId to a macro; all others, nothing.
#define DELTAWIRE_TARGET_none(use)
#define DELTAWIRE_TARGET_reference(use) use(reference, kReference)
#if defined(__x86_64__)
#define DELTAWIRE_TARGET_avx2(use) use(avx2, kAvx2)
#define DELTAWIRE_TARGET_avx512(use) use(avx512, kAvx512)
#define DELTAWIRE_TARGET_avx512vbmi(use) use(avx512vbmi, kAvx512Vbmi)
#else
#define DELTAWIRE_TARGET_avx2(use)
#define DELTAWIRE_TARGET_avx512(use)
#define DELTAWIRE_TARGET_avx512vbmi(use)
#endif
#if defined(__aarch64__)
#define DELTAWIRE_TARGET_neon(use) use(neon, kNeon)
#else
#define DELTAWIRE_TARGET_neon(use)
#endif

#define DELTAWIRE_DECLARE_KERNELS(name, id) \
  namespace name {                          \
  extern const Kernels kKernels;            \
  }
#define DELTAWIRE_LIST_KERNELS(name, id) {TargetId::id, &name::kKernels},
#define DELTAWIRE_EACH_TARGET(use, a, b, c, d, e, ...)                                                    \
  DELTAWIRE_TARGET_##a(use) DELTAWIRE_TARGET_##b(use) DELTAWIRE_TARGET_##c(use) DELTAWIRE_TARGET_##d(use) \
      DELTAWIRE_TARGET_##e(use)
#define DELTAWIRE_KERNELS(...)                                                                     \
  DELTAWIRE_EACH_TARGET(DELTAWIRE_DECLARE_KERNELS, __VA_ARGS__, none, none, none, none, none)      \
  const Kernels& kernels_for(TargetId target) noexcept {                                           \
    static constexpr KernelTable<Kernels> kTable = {                                               \
        DELTAWIRE_EACH_TARGET(DELTAWIRE_LIST_KERNELS, __VA_ARGS__, none, none, none, none, none)}; \
    return kTable[target];                                                                         \
  }
