#include "channel/part_jobs.h"

#include <mutex>

#include "base/checked.h"
#include "base/no_memory.h"

namespace deltawire {
namespace {

// The parts that no thread has taken yet.
class JobsLeft {
 public:
  explicit JobsLeft(std::span<PartJob> jobs) : jobs_(jobs) {}

  // Null where none is left.
  PartJob* take(bool from_front) {
    const std::lock_guard lock(mutex_);
    if (jobs_.empty()) return nullptr;
    PartJob* const job = from_front ? &jobs_.front() : &jobs_.back();
    jobs_ = jobs_.subspan(from_front ? 1 : 0, jobs_.size() - 1);
    return job;
  }

 private:
  std::mutex mutex_;
  std::span<PartJob> jobs_;
};

}  // namespace

// Several threads take a part each, unless one part is more than a thread's share of the work: then its codec
// may share that out. One goes from front to back, knows the sizes of all parts before its own, and codes
// each where it will stay. The others come to meet it from the back; what they code is moved afterwards.
void code_parts(std::span<PartJob> jobs, const PartEncoder& encoder, const MessageId& id,
                const MessageBounds& bounds, const CodingRoom& room) {
  const auto threads = static_cast<std::uint64_t>(Workers::threads(room.workers));
  const bool part_by_part = threads == 1 || bounds.longest > bounds.elements / threads;
  const std::uint64_t lanes = part_by_part ? 1 : threads;
  const std::uint64_t lane_bytes = ceil_div(bounds.scratch_bytes, kScratchAlignment) * kScratchAlignment;
  if (room.scratch.size() < lanes * lane_bytes) room.scratch.resize(lanes * lane_bytes);
  std::byte* behind = jobs.empty() ? nullptr : jobs.front().slot.payload.data();
  JobsLeft left(jobs);
  Workers::share(part_by_part ? nullptr : room.workers, lanes, [&](std::size_t lane) {
    const Exec exec{.scratch = MutBytes(room.scratch).subspan(lane * lane_bytes, lane_bytes),
                    .workers = part_by_part ? room.workers : nullptr};
    const bool in_place = lane == 0;
    while (PartJob* const job = left.take(in_place)) {
      if (!job->coded) continue;
      if (in_place) job->slot.payload = MutBytes(behind, job->slot.payload.size());
      job->coded = or_no_memory("encoding a part",
                                [&] { return encoder.code(*job->part, id, job->slot, exec, job->sent); });
      if (in_place) behind += job->sent.encoded.payload.size();
    }
  });
}

}  // namespace deltawire
