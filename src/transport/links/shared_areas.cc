#include "transport/links/shared_areas.h"

#include <algorithm>
#include <cassert>

#include "base/checked.h"

namespace deltawire {
namespace {

// Lots begin with a page.
constexpr std::size_t kPage = 4096;

}  // namespace

OwnArea OwnArea::make() noexcept {
  return OwnArea(SharedFile::make(kBytes, SharedFile::Writers::kMaker));
}

// The smallest free lot that is large enough, without what is left of it.
MutBytes OwnArea::take(std::size_t bytes, Use use) {
  if (!file_ || bytes == 0 || bytes > kBytes) return {};
  const std::size_t size = (bytes + kPage - 1) / kPage * kPage;
  lots_.reserve(lots_.size() + 2);
  join_free(use);
  auto best = lots_.end();
  for (auto lot = lots_.begin(); lot != lots_.end(); ++lot) {
    if (!is_free(*lot, use) || lot->bytes < size) continue;
    if (best == lots_.end() || lot->bytes < best->bytes) best = lot;
  }
  if (best == lots_.end()) {
    if (size > kBytes - end_ || !file_.allocate(end_, size)) return {};
    lots_.push_back({end_, size, use});
    best = lots_.end() - 1;
    end_ += size;
  } else if (best->bytes > size) {
    Lot rest = *best;
    rest.begin += size;
    rest.bytes -= size;
    best->bytes = size;
    best = lots_.insert(best + 1, rest) - 1;
  }
  best->is_taken = true;
  best->votes = votes_;
  return file_.bytes().subspan(best->begin, bytes);
}

void OwnArea::join_free(Use use) {
  auto kept = lots_.begin();
  for (auto lot = lots_.begin(); lot != lots_.end(); ++lot) {
    if (kept != lots_.begin() && is_free(*lot, use) && is_free(*(kept - 1), use)) {
      (kept - 1)->bytes += lot->bytes;
    } else {
      *kept++ = *lot;
    }
  }
  lots_.erase(kept, lots_.end());
}

void OwnArea::give_back(MutBytes memory) noexcept {
  if (memory.empty()) return;
  const std::size_t begin = place_of(memory);
  const auto lot = std::ranges::lower_bound(lots_, begin, {}, &Lot::begin);
  assert(lot != lots_.end() && lot->begin == begin && lot->is_taken);
  lot->is_taken = false;
}

PeerArea PeerArea::take(GuardedFd file) noexcept {
  PeerArea taken(SharedFile::take(std::move(file), SharedFile::Writers::kMaker));
  if (taken.file_.bytes().size() != OwnArea::kBytes) return {};
  return taken;
}

Bytes PeerArea::at(std::uint64_t place, std::uint64_t bytes) const noexcept {
  const std::size_t all = file_.bytes().size();
  if (!range_fits(place, bytes, all)) return {};
  return Bytes(file_.bytes()).subspan(static_cast<std::size_t>(place), static_cast<std::size_t>(bytes));
}

}  // namespace deltawire
