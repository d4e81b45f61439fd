// Builds the head of a frame (header, segments with their chunks' lengths and checksums). The payload stays
// where the codecs put it: frames leave as scattered pieces and are never compacted.
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
  // each other. REQUIRES: ends not empty, growing, and ending at payload.size(); segment.count >= 1,
  // segment.codec > 0.
  void add_segment(const Segment& segment, Bytes payload, std::span<const std::uint32_t> ends);

  // Appends a segment without chunks. REQUIRES: segment.state is not kCoded, segment.count >= 1; begin, codec
  // and scalars are 0.
  void add_bare(const Segment& segment);

  std::uint32_t segment_count() const noexcept { return segment_count_; }
  std::uint64_t payload_bytes() const noexcept { return payload_bytes_; }

  // The head; the payload must follow it.
  std::vector<std::byte> finish() const;

 private:
  FrameHeader header_;
  std::vector<std::byte> segments_;  // as they will stand in the head
  std::uint32_t segment_count_ = 0;
  std::uint32_t chunk_count_ = 0;
  std::uint64_t payload_bytes_ = 0;
};

}  // namespace deltawire
