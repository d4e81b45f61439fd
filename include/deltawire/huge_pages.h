// Asking the system for huge pages.
#pragma once

#include "deltawire/export.h"
#include "deltawire/tensor.h"

namespace deltawire {

// Fresh memory is made page by page as it is first written, and long memory is read past what the CPU's table
// of pages holds; of huge pages there are 512 times fewer. Those at the ends, which aren't whole, stay as
// they are, so that no more memory is held than without. An advice: it may fail, and
// `DELTAWIRE_HUGE_PAGES=off` in the environment, as read at the first call, keeps it back. Any thread.
DELTAWIRE_API void ask_for_huge_pages(MutBytes memory) noexcept;

}  // namespace deltawire
