// Builds the head of a frame (header, segments with their chunks' lengths and checksums). The payload stays
// where the codecs wrote it: frames are sent as scattered pieces and never copied together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "deltawire/frame.h"

namespace deltawire {

class FrameBuilder {
 public:
  // The head is appended to `out`, which must outlive the builder.
  FrameBuilder(const FrameHeader& header, std::vector<std::byte>& out);

  // Appends a segment: chunk i is payload[ends[i-1] - start, ends[i] - start), the first from 0 on. The
  // payloads of a frame's segments follow each other. `sums` are the chunks' checksums, if already known:
  // then the payload is not read, and may be empty.
  void add_segment(const Segment& segment, Bytes payload, std::span<const std::uint32_t> ends,
                   std::uint32_t start = 0, std::span<const std::uint32_t> sums = {});

  // Appends a segment without chunks: no coded one, and from element 0 on.
  void add_bare(const Segment& segment);

  // The frame's content needs this version.
  void need_version(std::uint8_t version) noexcept { version_ = std::max(version_, version); }

  std::uint32_t segment_count() const noexcept { return segment_count_; }
  std::uint64_t payload_bytes() const noexcept { return payload_bytes_; }

  // Completes the head, which the payload must follow; returns its length in bytes.
  std::uint64_t finish() noexcept;

 private:
  std::vector<std::byte>* out_;
  std::size_t begin_;  // of the head
  std::uint32_t segment_count_ = 0;
  std::uint32_t chunk_count_ = 0;
  std::uint64_t payload_bytes_ = 0;
  std::uint8_t version_ = kFrameVersion;
};

}  // namespace deltawire
