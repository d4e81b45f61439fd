#include "deltawire/huge_pages.h"

#include <cstdint>

#include <sys/mman.h>

#include "base/environment.h"

namespace deltawire {
void ask_for_huge_pages(MutBytes memory) noexcept {
#ifdef MADV_HUGEPAGE
  static const bool wanted = is_switched_on("DELTAWIRE_HUGE_PAGES").value_or(false);
  constexpr std::uintptr_t kHuge = std::uintptr_t{1} << 21;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t first = (begin + kHuge - 1) / kHuge * kHuge;
  const std::uintptr_t last = (begin + memory.size()) / kHuge * kHuge;
  if (wanted && first < last) (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

}  // namespace deltawire
