// The coded segments of a message as runs of chunks. Each run is checked and decoded alone, by any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/frame.h"
#include "deltawire/part_backend.h"
#include "deltawire/workers.h"

namespace deltawire {

// Where decoded values go.
struct Target {
  Into into = Into::kOverwrite;
  float scale = 1.0F;
};

// A segment in its part.
struct Place {
  std::size_t part = 0;
  std::uint64_t begin = 0;  // elements of the part before it
  std::uint64_t count = 0;
};

// The error of a part's codec, with the part's name.
tl::unexpected<Error> name_part(const Named& part, const Error& error);

// Keeps its memory from message to message.
class DecodeRuns {
 public:
  // Begins a message of so many elements in all. `workers` may be null.
  void begin(std::uint64_t elements, Workers* workers);

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
  void add(const UncheckedSegment& segment, const Codec& codec, const Place& place);

  // Adds bytes that are a part's only chunk, its checksum verified. REQUIRES: `codec` lives until decode().
  void add_checked(Bytes chunk, const Codec& codec, const Place& place);

  // The same of a whole raw part. Those of a segment are decoded together, and not by decode_on().
  void add_raw(Bytes chunk, const Codec& codec, const Place& place);

  // Decodes all into the parts' own memory. Values, and the error if there is one, are the same for any
  // number of threads. `scratch` grows as it must.
  Status decode(std::span<const Named> parts, const Target& target, std::vector<std::byte>& scratch);

  // The same into a device's memory, of messages of one sender; after begin() without workers.
  Status decode_on(PartBackend& backend, std::span<const Named> parts, const Target& target, int sender);

 private:
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

  static TensorSlot slot_of(const Run& run, const Call& call) noexcept;
  static std::uint64_t scratch_of(const Run& run, const Call& call) noexcept;
  Status check_run(const Run& run, Workers* workers) const;
  PartView view_of(const Run& run) const noexcept;
  Status decode_run(const Run& run, const Call& call, const Exec& exec) const;
  static Status decode_raw(const Run& run, const Call& call, const Exec& exec);
  Status error_of(std::size_t failed, const Call& call);

  std::uint64_t longest_ = 0;  // elements that a run has at most, if it can be cut
  Workers* workers_ = nullptr;
  std::vector<std::uint32_t> ends_;  // of a run's chunks in its payload
  std::vector<std::uint32_t> sums_;
  std::vector<Run> runs_;
};

}  // namespace deltawire
