// The parts of a message on their way into it, taken by one thread after another or by several at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "channel/message_encoder.h"
#include "channel/part_encoder.h"
#include "channel/step_record.h"
#include "deltawire/channel.h"
#include "deltawire/workers.h"

namespace deltawire {

// One part, or raw ones that follow each other and are only copied. Its buffer has the size of its bounds, so
// that no job waits for another.
struct PartJob {
  const Named* part = nullptr;     // the first one
  std::uint32_t copied_parts = 0;  // that have elements; 0: the part is coded
  bool is_left = false;            // to be coded while the message is written
  PartBuffer buffer;
  SentPart sent;
  FeedbackFlow flow;  // without parts unless measures_flow(step)
  Status coded;

  // Takes a raw part behind the others, with room of these sizes behind theirs; false if they are enough.
  bool take_copied(const Sizes& sizes) noexcept;
};

// Of a message's parts that have elements.
struct MessageBounds {
  std::uint64_t payload_bytes = 0;
  std::uint64_t chunks = 0;
  std::uint64_t scratch_bytes = 0;  // of the part that needs most
  std::uint64_t elements = 0;
  std::uint64_t longest = 0;        // elements of the longest part
  std::uint64_t worth_sharing = 0;  // elements of parts that several threads encode faster
  std::uint64_t parts = 0;
  Sizes chunk;  // of what is coded while the message is written: its longest chunk

  MessageLists lists() const noexcept { return lists_of(payload_bytes, chunks, parts); }
};

// `leaves_alone`: parts whose chunks can be coded one by one take no room but that of a chunk.
MessageBounds bounds_of(std::span<const Named> parts, std::uint64_t step, const PartEncoder& encoder,
                        bool leaves_alone = false);

// What coding may use.
struct CodingRoom {
  Workers* workers = nullptr;
  std::vector<std::byte>& scratch;  // grows as it must
};

// Codes the jobs without an error, whose buffers follow each other in one piece of memory.
void code_parts(std::span<PartJob> jobs, const PartEncoder& encoder, const MessageId& id,
                const MessageBounds& bounds, const CodingRoom& room);

// Records what was sent of the job's parts.
void record_job(const PartJob& job, StepRecord& record);

// The same as code_parts() on a device, all jobs together.
void code_parts_on(PartBackend& backend, std::span<PartJob> jobs, const PartEncoder& encoder,
                   const MessageId& id);

}  // namespace deltawire
