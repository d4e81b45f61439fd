// The threads that code a message's parts or runs, each in scratch of its own.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/checked.h"
#include "deltawire/codec.h"
#include "deltawire/workers.h"

namespace deltawire {

// What is coded: pieces, which threads take one after the other.
struct CodingWork {
  std::uint64_t elements = 0;
  std::uint64_t longest = 0;        // elements of the longest piece
  std::uint64_t scratch_bytes = 0;  // of the piece that needs most
};

// A lane for each thread, unless one piece is more than a thread's share of the elements, which would leave
// some without work: then there is one lane alone, and a piece's codec may share it out.
class CodingLanes {
 public:
  // `workers` may be null; `scratch` grows as it must.
  CodingLanes(Workers* workers, const CodingWork& work, std::vector<std::byte>& scratch)
      : workers_(workers),
        count_(static_cast<std::uint64_t>(Workers::threads(workers))),
        bytes_(ceil_div(work.scratch_bytes, kScratchAlignment) * kScratchAlignment) {
    if (work.longest > work.elements / count_) count_ = 1;
    if (scratch.size() < count_ * bytes_) scratch.resize(count_ * bytes_);
    scratch_ = scratch;
  }

  std::uint64_t count() const noexcept { return count_; }
  Exec exec(std::size_t lane) const noexcept {
    assert(lane < count_ && count_ * bytes_ <= scratch_.size());
    return {.scratch = scratch_.subspan(lane * bytes_, bytes_), .workers = count_ == 1 ? workers_ : nullptr};
  }

 private:
  Workers* workers_;
  std::uint64_t count_;
  std::uint64_t bytes_;  // of scratch, a lane's
  MutBytes scratch_;
};

}  // namespace deltawire
