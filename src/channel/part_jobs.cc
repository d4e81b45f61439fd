#include "channel/part_jobs.h"

#include <atomic>

#include "base/checked.h"
#include "base/no_memory.h"

namespace deltawire {

// Several threads take a part each, unless one part is more than a thread's share of the work: then its codec
// may share that out.
void code_parts(std::span<PartJob> jobs, const PartEncoder& encoder, const MessageId& id,
                const MessageBounds& bounds, const CodingRoom& room) {
  const auto threads = static_cast<std::uint64_t>(Workers::threads(room.workers));
  const bool part_by_part = threads == 1 || bounds.longest > bounds.elements / threads;
  const std::uint64_t lanes = part_by_part ? 1 : threads;
  const std::uint64_t lane_bytes = ceil_div(bounds.scratch_bytes, kScratchAlignment) * kScratchAlignment;
  if (room.scratch.size() < lanes * lane_bytes) room.scratch.resize(lanes * lane_bytes);
  // Part by part the sizes are known, and a part is coded where it will stay.
  std::byte* behind = jobs.empty() ? nullptr : jobs.front().slot.payload.data();
  std::atomic<std::size_t> next = 0;
  Workers::share(part_by_part ? nullptr : room.workers, lanes, [&](std::size_t lane) {
    const Exec exec{.scratch = MutBytes(room.scratch).subspan(lane * lane_bytes, lane_bytes),
                    .workers = part_by_part ? room.workers : nullptr};
    for (std::size_t i = next++; i < jobs.size(); i = next++) {
      PartJob& job = jobs[i];
      if (!job.coded) continue;
      if (part_by_part) job.slot.payload = MutBytes(behind, job.slot.payload.size());
      job.coded = or_no_memory("encoding a part",
                               [&] { return encoder.code(*job.part, id, job.slot, exec, job.sent); });
      if (part_by_part) behind += job.sent.encoded.payload.size();
    }
  });
}

}  // namespace deltawire
