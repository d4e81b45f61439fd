#include "deltawire/huge_pages.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <sys/mman.h>

namespace deltawire {
namespace {

bool are_wanted() noexcept {
  const char* const setting = std::getenv("DELTAWIRE_HUGE_PAGES");
  return setting == nullptr || std::string_view(setting) != "off";
}

}  // namespace

void ask_for_huge_pages(MutBytes memory) noexcept {
#ifdef MADV_HUGEPAGE
  static const bool wanted = are_wanted();
  constexpr std::uintptr_t kHuge = std::uintptr_t{1} << 21;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t first = (begin + kHuge - 1) / kHuge * kHuge;
  const std::uintptr_t last = (begin + memory.size()) / kHuge * kHuge;
  if (wanted && first < last) (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

}  // namespace deltawire
