// The contents of a .dw file, as `deltawire inspect` shows them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/number_text.h"
#include "cli/outcome.h"
#include "deltawire/codec.h"
#include "deltawire/file.h"
#include "deltawire/frame.h"

namespace deltawire::cli {

struct SegmentFacts {
  Segment segment;
  std::vector<std::uint32_t> chunk_bytes;
  std::uint64_t first = 0;  // the index of its first value in the tensor
};

struct FrameFacts {
  std::uint64_t at = 0;  // where the frame begins in the file
  std::uint64_t bytes = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t chunks = 0;
  FrameHeader header;
  std::vector<SegmentFacts> segments;
};

struct Inspection {
  FileHeader file_header;
  std::string canonical_spec;
  FileSize size;
  std::vector<FrameFacts> frames;
  std::vector<Section> sections;  // they add up to the file's bits; the names are static
};

// Parses the file frame by frame, and verifies all checksums and that the segments cover the tensor. `path`
// is for messages.
Outcome<Inspection> inspect_file(const ReadBytes& read, std::string_view path);

// The name of a codec, or "codec <id>".
std::string codec_name(std::uint16_t id);

}  // namespace deltawire::cli
