// The coded segments of a message as runs of chunks. Each run is checked and decoded alone, by any thread.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/errors.h"
#include "base/float_environment.h"
#include "base/lanes.h"
#include "channel/coding_lanes.h"
#include "channel/raw_values.h"
#include "deltawire/channel.h"
#include "deltawire/frame.h"
#include "deltawire/part_backend.h"
#include "deltawire/workers.h"

namespace deltawire {

// A segment in its part.
struct Place {
  std::size_t part = 0;
  std::uint64_t begin = 0;  // elements of the part before it
  std::uint64_t count = 0;
};

// The error of a part's codec, with the part's name.
inline tl::unexpected<Error> name_part(const Named& part, const Error& error) {
  Error told = error;
  told.tensor = part.name;
  return fail_in("part '" + std::string(part.name) + "': ", std::move(told));
}

// Keeps its memory from message to message.
class DecodeRuns {
 public:
  // Begins a message of so many elements in all. `workers` may be null.
  void begin(std::uint64_t elements, Workers* workers) {
    workers_ = worth_waking(workers, elements);
    const auto threads = static_cast<std::uint64_t>(Workers::threads(workers_));
    longest_ = threads == 1 ? elements : std::max(kShortestRun, ceil_div(elements, threads * kRunsPerThread));
    ends_.clear();
    sums_.clear();
    runs_.clear();
  }

  // Where FrameReader::next_unchecked() puts what it says of chunks.
  std::vector<std::uint32_t>& ends() noexcept { return ends_; }
  std::vector<std::uint32_t>& sums() noexcept { return sums_; }

  // Of the chunks that were read last.
  std::span<const std::uint32_t> last_ends(std::size_t chunks) const noexcept {
    return std::span(ends_).last(chunks);
  }
  std::span<const std::uint32_t> last_sums(std::size_t chunks) const noexcept {
    return std::span(sums_).last(chunks);
  }

  // Adds the segment that was read last, a coded one. REQUIRES: `codec` lives until decode().
  void add(const UncheckedSegment& segment, const Codec& codec, const Place& place) {
    assert(segment.segment.state == SegmentState::kCoded && segment.chunks > 0);
    assert(ends_.size() >= segment.chunks && sums_.size() == ends_.size());
    assert(segment.payload.size() == ends_.back());
    const std::uint64_t chunk_elements = codec.info().chunk_elements;
    const std::uint32_t most =
        chunk_elements == 0 || place.count <= longest_
            ? segment.chunks
            : static_cast<std::uint32_t>(std::max<std::uint64_t>(1, longest_ / chunk_elements));
    const std::size_t first_entry = ends_.size() - segment.chunks;
    std::uint32_t begin = 0;
    for (std::uint32_t chunk = 0; chunk < segment.chunks; chunk += most) {
      Run& run = runs_.emplace_back();
      run.codec = &codec;
      run.first_entry = first_entry + chunk;
      run.chunks = std::min(most, segment.chunks - chunk);
      run.first_chunk = segment.first_chunk + chunk;
      run.scalar = segment.segment.scalar;
      run.scalar2 = segment.segment.scalar2;
      run.continues = chunk > 0;
      const std::span<std::uint32_t> ends = std::span(ends_).subspan(run.first_entry, run.chunks);
      const std::uint32_t end = ends.back();
      run.payload = segment.payload.subspan(begin, end - begin);
      for (std::uint32_t& each : ends) each -= begin;
      begin = end;
      assert(run.first_entry + run.chunks <= ends_.size());
      const std::uint64_t skipped = std::min(chunk_elements * chunk, place.count);
      const bool is_last = chunk + run.chunks == segment.chunks;
      run.place = {
          place.part, place.begin + skipped,
          is_last ? place.count - skipped : std::min(chunk_elements * run.chunks, place.count - skipped)};
    }
  }

  // Adds bytes that are a part's only chunk, its checksum verified. REQUIRES: `codec` lives until decode().
  void add_checked(Bytes chunk, const Codec& codec, const Place& place) {
    assert(sums_.size() == ends_.size());
    Run& run = runs_.emplace_back();
    run.codec = &codec;
    run.payload = chunk;
    run.first_entry = ends_.size();
    run.chunks = 1;
    run.is_checked = true;
    run.place = place;
    ends_.push_back(static_cast<std::uint32_t>(chunk.size()));
    sums_.push_back(0);
  }

  // The same of a whole raw part. Those of a segment are decoded together, and not by decode_on().
  void add_raw(Bytes chunk, const Codec& codec, const Place& place) {
    assert(place.begin == 0 && place.count > 0);
    // Where no chunk was read since, the last run is of the same segment.
    if (!runs_.empty() && runs_.back().raw_parts > 0 && runs_.back().first_entry + 1 == ends_.size()) {
      Run& run = runs_.back();
      assert(chunk.data() == run.payload.data() + run.payload.size());
      run.payload = {run.payload.data(), run.payload.size() + chunk.size()};
      run.place.count += place.count;
      ++run.raw_parts;
      return;
    }
    add_checked(chunk, codec, place);
    runs_.back().raw_parts = 1;
  }

  // Decodes all into the parts' own memory. Values, and the error if there is one, are the same for any
  // number of threads. `scratch` grows as it must.
  Status decode(std::span<const Named> parts, const Target& target, std::vector<std::byte>& scratch) {
    const Call call{parts, target};
    CodingWork work;
    for (const Run& run : runs_) {
      work.elements += run.place.count;
      work.longest = std::max(work.longest, run.place.count);
      work.scratch_bytes = std::max(work.scratch_bytes, scratch_of(run, call));
    }
    const CodingLanes lanes(workers_, work, scratch);
    const auto decode_next = [&](std::size_t lane, std::size_t i) {
      Run& run = runs_[i];
      run.decoded = or_no_memory("decoding a part", [&] { return decode_run(run, call, lanes.exec(lane)); });
      return run.decoded.has_value();
    };
    if (share_by_lanes(workers_, lanes.count(), runs_.size(), decode_next)) return {};
    const auto failed = std::ranges::find_if(runs_, [](const Run& run) { return !run.decoded; });
    return error_of(static_cast<std::size_t>(failed - runs_.begin()), call);
  }

  // The same into a device's memory, of messages of one sender; after begin() without workers.
  Status decode_on(PartBackend& backend, std::span<const Named> parts, const Target& target, int sender) {
    assert(workers_ == nullptr);
    std::vector<DecodeJob> jobs;
    jobs.reserve(runs_.size());
    for (const Run& run : runs_) {
      RETURN_IF_ERROR(check_run(run, nullptr));
      jobs.push_back({.codec = run.codec,
                      .in = view_of(run),
                      .slot = slot_of(run, {parts, target}),
                      .part = parts[run.place.part].name,
                      .sender = sender});
    }
    if (jobs.empty()) return {};
    RETURN_IF_ERROR(backend.decode(jobs, target.into, target.scale));
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (!jobs[i].decoded) return name_part(parts[runs_[i].place.part], jobs[i].decoded.error());
    }
    return {};
  }

 private:
  // Runs for each thread, so that none waits long for the last one.
  static constexpr std::uint64_t kRunsPerThread = 4;
  static constexpr std::uint64_t kShortestRun = 32768;  // elements

  // Calls visit(part) for so many parts that have elements, as long as it is true.
  static void visit_parts(const Named* part, std::uint32_t count, const auto& visit) {
    for (; count > 0; ++part) {
      if (part->tensor.elements() == 0) continue;
      if (!visit(*part)) return;
      --count;
    }
  }

  static TensorSlot whole_of(const Named& part) noexcept {
    return {part.tensor.values, part.tensor.elements(), part.tensor.dtype};
  }

  struct Run {
    const Codec* codec = nullptr;
    Bytes payload;
    std::size_t first_entry = 0;  // in ends_ and sums_
    std::uint32_t chunks = 0;
    std::uint32_t first_chunk = 0;  // the first one's number in the frame
    std::uint32_t scalar = 0;
    std::uint32_t scalar2 = 0;
    bool continues = false;  // the segment of the run before it
    bool is_checked = false;
    std::uint32_t raw_parts = 0;  // that have elements, from place.part on, of which this is all; 0: another
    Place place;
    Status decoded;
  };
  // A message as decode() has it.
  struct Call {
    std::span<const Named> parts;
    Target target;
  };

  static TensorSlot slot_of(const Run& run, const Call& call) noexcept {
    assert(run.raw_parts == 0 && run.place.part < call.parts.size());
    const TensorSlot& tensor = call.parts[run.place.part].tensor;
    assert(run.place.begin + run.place.count <= tensor.count);
    auto* const at = static_cast<std::byte*>(tensor.values) + run.place.begin * dtype_bytes(tensor.dtype);
    return {at, run.place.count, tensor.dtype};
  }

  static std::uint64_t scratch_of(const Run& run, const Call& call) noexcept {
    if (run.raw_parts == 0) return run.codec->decode_scratch(slot_of(run, call));
    std::uint64_t most = 0;
    visit_parts(&call.parts[run.place.part], run.raw_parts, [&](const Named& part) {
      if (!has_raw_values(part.tensor)) most = std::max(most, run.codec->decode_scratch(whole_of(part)));
      return true;
    });
    return most;
  }

  Status check_run(const Run& run, Workers* workers) const {
    if (run.is_checked) return {};
    return FrameReader::check_chunks(run.payload, std::span(ends_).subspan(run.first_entry, run.chunks),
                                     std::span(sums_).subspan(run.first_entry, run.chunks), run.first_chunk,
                                     workers);
  }

  PartView view_of(const Run& run) const noexcept {
    return {run.payload, std::span(ends_).subspan(run.first_entry, run.chunks), run.scalar, run.scalar2};
  }

  Status decode_run(const Run& run, const Call& call, const Exec& exec) const {
    if (run.raw_parts > 0) return decode_raw(run, call, exec);
    RETURN_IF_ERROR(check_run(run, exec.workers));
    const Status decoded =
        run.codec->decode(view_of(run), slot_of(run, call), call.target.into, call.target.scale, exec);
    return decoded ? decoded : name_part(call.parts[run.place.part], decoded.error());
  }

  static Status decode_raw(const Run& run, const Call& call, const Exec& exec) {
    assert(run.place.count > 0 && run.payload.size() % run.place.count == 0);
    const FloatEnvironment environment;
    const std::uint64_t width = run.payload.size() / run.place.count;
    Bytes rest = run.payload;
    Status decoded;
    visit_parts(&call.parts[run.place.part], run.raw_parts, [&](const Named& part) {
      const auto bytes = static_cast<std::uint32_t>(width * part.tensor.elements());
      const Bytes values = rest.first(bytes);
      rest = rest.subspan(bytes);
      if (width == sizeof(float) && has_raw_values(part.tensor)) {
        take_raw_values(values, part.tensor, call.target);
        return true;
      }
      decoded = run.codec->decode({values, std::span(&bytes, 1)}, whole_of(part), call.target.into,
                                  call.target.scale, exec);
      if (!decoded) decoded = name_part(part, decoded.error());
      return decoded.has_value();
    });
    assert(rest.empty() || !decoded);
    return decoded;
  }

  // What one thread finds that decodes the whole segment of the run: elements and chunks count from there.
  Status error_of(std::size_t failed, const Call& call) {
    assert(failed < runs_.size() && !runs_[failed].decoded);
    std::size_t first = failed;
    while (runs_[first].continues) --first;
    std::size_t behind = failed + 1;
    while (behind < runs_.size() && runs_[behind].continues) ++behind;
    if (behind - first == 1) return runs_[failed].decoded;
    Run whole = runs_[first];
    whole.chunks = 0;
    whole.place.count = 0;
    std::size_t bytes = 0;
    for (std::size_t i = first; i < behind; ++i) {
      const Run& run = runs_[i];
      for (std::uint32_t& end : std::span(ends_).subspan(run.first_entry, run.chunks)) {
        end += static_cast<std::uint32_t>(bytes);
      }
      bytes += run.payload.size();
      whole.chunks += run.chunks;
      whole.place.count += run.place.count;
    }
    whole.payload = Bytes(whole.payload.data(), bytes);
    std::vector<std::byte> scratch(whole.codec->decode_scratch(slot_of(whole, call)));
    const Status again = decode_run(whole, call, {.scratch = scratch});
    return again ? runs_[failed].decoded : again;
  }

  std::uint64_t longest_ = 0;  // elements that a run has at most, if it can be cut
  Workers* workers_ = nullptr;
  std::vector<std::uint32_t> ends_;  // of a run's chunks in its payload
  std::vector<std::uint32_t> sums_;
  std::vector<Run> runs_;
};

}  // namespace deltawire
