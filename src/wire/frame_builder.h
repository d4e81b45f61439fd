// Builds the head of a frame (header, segments, chunk index with checksums). The payload stays where the
// codecs put it: frames leave as scattered pieces and are never compacted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "deltawire/frame.h"

namespace deltawire {

class FrameBuilder {
 public:
  explicit FrameBuilder(const FrameHeader& header) : header_(header) {}

  // Appends a segment: chunk i is payload[ends[i-1], ends[i]). The payloads of a frame's segments follow
  // each other. REQUIRES: ends not empty, growing, and ending at payload.size(); segment.count >= 1.
  void add_segment(const Segment& segment, Bytes payload, std::span<const std::uint32_t> ends);

  // Appends a segment without chunks. REQUIRES: segment.state is not kCoded, segment.raw is false.
  void add_bare(const Segment& segment) { segments_.push_back(segment); }

  std::uint32_t segment_count() const noexcept { return static_cast<std::uint32_t>(segments_.size()); }
  std::uint64_t payload_bytes() const noexcept { return payload_bytes_; }

  // The head; the payload must follow it.
  std::vector<std::byte> finish() const;

 private:
  struct Chunk {
    std::uint32_t end;
    std::uint32_t crc;
  };

  FrameHeader header_;
  std::vector<Segment> segments_;
  std::vector<Chunk> chunks_;
  std::uint64_t payload_bytes_ = 0;
};

}  // namespace deltawire
