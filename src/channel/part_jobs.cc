#include "channel/part_jobs.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/errors.h"
#include "base/lanes.h"
#include "base/mutex.h"
#include "channel/coding_lanes.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

// The parts that no thread has taken yet.
class JobsLeft {
 public:
  explicit JobsLeft(std::span<PartJob> jobs) : jobs_(jobs) {}

  // Null where none is left.
  PartJob* take(bool from_front) {
    const MutexLock lock(mutex_);
    if (jobs_.empty()) return nullptr;
    PartJob* const job = from_front ? &jobs_.front() : &jobs_.back();
    jobs_ = jobs_.subspan(from_front ? 1 : 0, jobs_.size() - 1);
    return job;
  }

 private:
  Mutex mutex_;
  std::span<PartJob> jobs_ DELTAWIRE_GUARDED_BY(mutex_);
};

// Calls visit(part, i) for the copied parts of a job.
void for_each_copied(const PartJob& job, const auto& visit) {
  const Named* part = job.part;
  for (std::uint32_t i = 0; i < job.copied_parts; ++part) {
    if (part->tensor.elements() > 0) visit(*part, i++);
  }
}

Status copy_parts(PartJob& job) {
  assert(job.copied_parts > 0 && job.buffer.chunk_ends.size() == job.copied_parts);
  std::byte* at = job.buffer.payload.data();
  for_each_copied(job, [&](const Named& part, std::uint32_t i) {
    const std::uint64_t bytes = sizeof(float) * part.tensor.count;
    std::memcpy(at, part.tensor.values, bytes);
    job.buffer.chunk_ends[i] = static_cast<std::uint32_t>(bytes);
    at += bytes;
  });
  assert(at == job.buffer.payload.data() + job.buffer.payload.size());
  job.sent.encoded = {job.buffer.payload, job.buffer.chunk_ends};
  job.sent.state = SegmentState::kCoded;
  return {};
}

}  // namespace

bool PartJob::take_copied(const Sizes& sizes) noexcept {
  constexpr std::uint64_t kMost = sizeof(float) * kPackElements;  // bytes; several threads may share the jobs
  const std::uint64_t bytes = buffer.payload.size() + sizes.payload_bytes;
  if (copied_parts == 0 || bytes > kMost) return false;
  ++copied_parts;
  buffer.payload = {buffer.payload.data(), bytes};
  buffer.chunk_ends = {buffer.chunk_ends.data(), copied_parts};
  return true;
}

MessageBounds bounds_of(std::span<const Named> parts, std::uint64_t step, const PartEncoder& encoder,
                        bool leaves_alone) {
  MessageBounds bounds;
  for (const Named& part : parts) {
    if (part.tensor.elements() == 0) continue;
    ++bounds.parts;
    if (leaves_alone && encoder.codes_alone(part, step)) {
      const Sizes chunk = encoder.chunk_sizes(part, step);
      bounds.chunk = {.payload_bytes = std::max(bounds.chunk.payload_bytes, chunk.payload_bytes),
                      .chunks = 1,
                      .scratch_bytes = std::max(bounds.chunk.scratch_bytes, chunk.scratch_bytes)};
      continue;
    }
    const Sizes sizes = encoder.sizes(part, step);
    bounds.payload_bytes += sizes.payload_bytes;
    bounds.chunks += sizes.chunks;
    bounds.scratch_bytes = std::max(bounds.scratch_bytes, sizes.scratch_bytes);
    bounds.elements += part.tensor.elements();
    bounds.longest = std::max(bounds.longest, part.tensor.elements());
    if (encoder.is_worth_sharing(part, step)) bounds.worth_sharing += part.tensor.elements();
  }
  return bounds;
}

// Whether there is a gap between the buffers of two jobs.
[[maybe_unused]] bool do_not_follow(const PartJob& job, const PartJob& next) noexcept {
  return job.buffer.payload.data() + job.buffer.payload.size() != next.buffer.payload.data();
}

// One thread goes from front to back, knows the sizes of all parts before its own, and codes each where it
// will stay. The others come to meet it from the back; what they code is moved afterwards.
void code_parts(std::span<PartJob> jobs, const PartEncoder& encoder, const MessageId& id,
                const MessageBounds& bounds, const CodingRoom& room) {
  assert(std::ranges::adjacent_find(jobs, do_not_follow) == jobs.end());
  Workers* const workers = worth_waking(room.workers, bounds.worth_sharing);
  const CodingLanes lanes(workers, {bounds.elements, bounds.longest, bounds.scratch_bytes}, room.scratch);
  std::byte* behind = jobs.empty() ? nullptr : jobs.front().buffer.payload.data();
  JobsLeft left(jobs);
  Workers::share(workers, lanes.count(), [&](std::size_t lane) {
    const Exec exec = lanes.exec(lane);
    const bool in_place = lane == 0;
    while (PartJob* const job = left.take(in_place)) {
      if (!job->coded || job->is_left) continue;
      assert(!in_place || behind <= job->buffer.payload.data());
      if (in_place) job->buffer.payload = MutBytes(behind, job->buffer.payload.size());
      job->coded = or_no_memory("encoding a part", [&] {
        return job->copied_parts > 0 ? copy_parts(*job)
                                     : encoder.code(*job->part, id, job->buffer, exec, job->sent, job->flow);
      });
      if (in_place) behind += job->sent.encoded.payload.size();
    }
  });
}

void record_job(const PartJob& job, StepRecord& record) {
  if (job.copied_parts == 0) {
    record.add(job.sent, job.flow);
    return;
  }
  SentPart sent = job.sent;
  const std::byte* at = job.sent.encoded.payload.data();
  for_each_copied(job, [&](const Named& part, std::uint32_t i) {
    sent.name_hash = name_hash(part);
    sent.first = part.first;
    sent.count = part.tensor.count;
    sent.index = job.sent.index + static_cast<std::uint32_t>(&part - job.part);
    sent.encoded = {Bytes(at, sizeof(float) * sent.count), job.buffer.chunk_ends.subspan(i, 1)};
    at += sizeof(float) * sent.count;
    record.add(sent);
  });
}

void code_parts_on(PartBackend& backend, std::span<PartJob> jobs, const PartEncoder& encoder,
                   const MessageId& id) {
  std::vector<PartJob*> coded;
  std::vector<EncodeJob> given;
  for (PartJob& job : jobs) {
    if (!job.coded) continue;
    Result<EncodeJob> made = encoder.device_job(*job.part, id, job.buffer, job.sent);
    if (!made) {
      job.coded = forward_error(made);
      continue;
    }
    coded.push_back(&job);
    given.push_back(*std::move(made));
  }
  assert(given.size() == coded.size());
  while (!given.empty()) {
    const Status done = backend.encode(given);
    std::size_t left = 0;  // those that are encoded again
    for (std::size_t i = 0; i < given.size(); ++i) {
      PartJob& job = *coded[i];
      if (done && encoder.goes_alone(given[i], job.sent)) {
        given[left] = *encoder.device_job(*job.part, id, job.buffer, job.sent);  // without residual, no error
        coded[left++] = &job;
        continue;
      }
      const Codec* better = done ? encoder.better_codec(*job.part, given[i], job.sent) : nullptr;
      if (better != nullptr) {
        given[left] = {.codec = better, .in = given[i].in, .stream = given[i].stream, .out = given[i].out};
        coded[left++] = &job;
        continue;
      }
      job.coded = done ? encoder.take(*job.part, id, given[i], job.sent) : done;
    }
    given.resize(left);
  }
}

}  // namespace deltawire
