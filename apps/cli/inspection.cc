#include "cli/inspection.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace deltawire::cli {
namespace {

// Codecs that the file header doesn't name: of raw segments, and, in frames of version 2, of those that hold
// the values of a 16-bit tensor in its own dtype.
struct OtherCodecs {
  std::unique_ptr<const Codec> raw;
  std::unique_ptr<const Codec> half;  // null in files of float32
  std::unique_ptr<const Codec> form;  // in frames that may have it: the file's codec for 16-bit tensors
};

Result<OtherCodecs> other_codecs(const Codec& codec, DType dtype) {
  OtherCodecs others;
  auto raw = make_codec("fp32");
  if (!raw) return forward_error(raw);
  others.raw = *std::move(raw);
  if (dtype_bytes(dtype) != 2) return others;
  auto half = make_codec(dtype == DType::kBF16 ? "bf16" : "fp16");
  if (!half) return forward_error(half);
  others.half = *std::move(half);
  if (!codec.info().half_form) return others;
  auto form = make_half_form(codec, dtype);
  if (!form) return forward_error(form);
  others.form = *std::move(form);
  return others;
}

void add_bits(std::vector<Section>& sections, std::string_view name, std::uint64_t bits) {
  const auto same_name = [&](const Section& section) { return section.name == name; };
  const auto found = std::find_if(sections.begin(), sections.end(), same_name);
  if (found != sections.end()) {
    found->bits += bits;
  } else {
    sections.push_back(Section{name, bits});
  }
}

std::string at_byte(std::uint64_t at) {
  return "the frame at byte " + grouped(at) + ": ";
}

class Inspector {
 public:
  Inspector(Inspection& result, const Codec& codec, const OtherCodecs& others)
      : result_(result), codec_(codec), others_(others) {}

  Status read_frames(const ReadBytes& read) {
    std::uint64_t at = result_.file_header.header_bytes;
    add_bits(result_.sections, "file header", at * 8);
    while (true) {
      if (Status got = read_frame(read, bytes_); !got) return got;
      if (bytes_.empty()) break;
      if (Status done = add_frame(at); !done) {
        return fail(done.error().code, at_byte(at) + done.error().message);
      }
      at += result_.frames.back().bytes;
    }
    result_.size.file_bytes = at;
    if (first_ == result_.size.count) return {};
    return fail(ErrorCode::kTruncated, "the frames hold " + grouped(first_ + covered_) + " of " +
                                           grouped(result_.size.count) + " values");
  }

 private:
  // Elements of the part that the next segment is of.
  std::uint64_t part_count() const noexcept {
    const std::uint64_t left = result_.size.count - first_;
    const std::uint64_t part = result_.file_header.part_elements;
    return part == 0 ? left : std::min(left, part);
  }

  // The codec that a segment of a part must have.
  const Codec& codec_due(bool raw, std::uint16_t id, std::uint8_t version) const {
    const Codec* half = version >= kHalfValuesVersion ? others_.half.get() : nullptr;
    if (half != nullptr && half->info().id == id) return *half;
    if (raw) return *others_.raw;
    const bool has_form = others_.form != nullptr && version >= half_form_version(codec_.info());
    return has_form ? *others_.form : codec_;
  }

  Status add_frame(std::uint64_t at) {
    if (first_ == result_.size.count) {
      return fail(ErrorCode::kCorrupt, "bytes follow after the last value");
    }
    auto reader = FrameReader::open(bytes_);
    if (!reader) return forward_error(reader);
    FrameFacts frame;
    frame.at = at;
    frame.bytes = reader->frame_bytes();
    frame.header = reader->header();
    add_bits(result_.sections, "frame headers", reader->header_bytes() * 8);
    add_bits(result_.sections, "segment table", (reader->head_bytes() - reader->header_bytes()) * 8);
    while (reader->segments_left() > 0) {
      const auto segment = reader->next();
      if (!segment) return forward_error(segment);
      if (Status added = add_segment(*segment, frame, reader->version()); !added) return added;
    }
    result_.frames.push_back(std::move(frame));
    return {};
  }

  Status add_segment(const SegmentView& view, FrameFacts& frame, std::uint8_t version) {
    const Segment& segment = view.segment;
    const std::uint64_t due = part_count();
    if (segment.part != 0 || segment.parts != 1 || segment.begin != covered_ ||
        segment.count > due - covered_) {
      return fail(ErrorCode::kCorrupt,
                  "its segments do not continue the tensor at value " + grouped(first_ + covered_));
    }
    if (segment.state != SegmentState::kCoded) {
      return fail(ErrorCode::kCorrupt, "it has a segment without values, which no file may have");
    }
    const bool raw = due < result_.file_header.policy.min_elements;
    const Codec& codec = codec_due(raw, segment.codec, version);
    if (segment.codec != codec.info().id) {
      return fail(ErrorCode::kCorrupt, "a segment's codec is " + codec_name(segment.codec) + ", but " +
                                           codec_name(codec.info().id) + " is due by the file header");
    }
    if (Status described = codec.describe(view.part, segment.count, result_.sections); !described) {
      return described;
    }
    SegmentFacts facts{segment, {}, first_ + covered_};
    covered_ += segment.count;
    if (covered_ == due) {
      first_ += due;
      covered_ = 0;
    }
    std::uint32_t begin = 0;
    for (const std::uint32_t end : view.part.chunk_ends) {
      facts.chunk_bytes.push_back(end - begin);
      begin = end;
    }
    frame.chunks += facts.chunk_bytes.size();
    frame.payload_bytes += view.part.payload.size();
    frame.segments.push_back(std::move(facts));
    return {};
  }

  Inspection& result_;
  const Codec& codec_;
  const OtherCodecs& others_;
  std::vector<std::byte> bytes_;  // of the frame
  std::uint64_t first_ = 0;       // values in the parts that are complete
  std::uint64_t covered_ = 0;     // values of the part that isn't
};

}  // namespace

Outcome<Inspection> inspect_file(const ReadBytes& read, std::string_view path) {
  auto header = read_file_header(read);
  if (!header) return failed_reading(path, header.error());
  const auto codec = make_codec(header->codec_spec);
  if (!codec) return failed_reading(path, codec.error());
  const Result<OtherCodecs> others = other_codecs(**codec, header->dtype);
  if (!others) return failed(others.error().message);
  Inspection result;
  result.canonical_spec = (*codec)->spec();
  const std::uint64_t count = header->count();
  result.size = FileSize{count, count * dtype_bytes(header->dtype), 0};
  result.file_header = std::move(*header);
  Inspector inspector(result, **codec, *others);
  if (const Status done = inspector.read_frames(read); !done) return failed_reading(path, done.error());
  return result;
}

std::string codec_name(std::uint16_t id) {
  for (const CodecInfo* info : registered_codecs()) {
    if (info->id == id) return std::string(info->name);
  }
  return "codec " + std::to_string(id);
}

}  // namespace deltawire::cli
