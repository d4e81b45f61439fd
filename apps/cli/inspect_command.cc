// deltawire inspect FILE: the contents of a .dw file and the use of its bits.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "cli/arrays/array_file.h"
#include "cli/commands.h"
#include "cli/number_text.h"
#include "deltawire/codec.h"
#include "deltawire/file.h"
#include "deltawire/frame.h"

namespace deltawire::cli {
namespace {

using Json = nlohmann::ordered_json;

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

// The name of a codec, or "codec <id>".
std::string codec_name(std::uint16_t id) {
  for (const CodecInfo* info : registered_codecs()) {
    if (info->id == id) return std::string(info->name);
  }
  return "codec " + std::to_string(id);
}

// Codecs that the file header doesn't name: of raw segments, and, in frames of version 2, of those that hold
// the values of a 16-bit tensor in its own dtype.
struct OtherCodecs {
  std::unique_ptr<const Codec> raw;
  std::unique_ptr<const Codec> half;  // null in files of float32
  std::unique_ptr<const Codec> form;  // in frames that may have it: the file's codec for 16-bit tensors
};

Result<OtherCodecs> other_codecs(const Codec& codec, DType dtype) {
  OtherCodecs others;
  ASSIGN_OR_RETURN(others.raw, make_codec("fp32"));
  if (dtype_bytes(dtype) != 2) return others;
  ASSIGN_OR_RETURN(others.half, make_codec(dtype == DType::kBF16 ? "bf16" : "fp16"));
  if (!codec.info().half_form) return others;
  ASSIGN_OR_RETURN(others.form, make_half_form(codec, dtype));
  return others;
}

void add_bits(std::vector<Section>& sections, std::string_view name, std::uint64_t bits) {
  const auto found = std::ranges::find(sections, name, &Section::name);
  if (found != sections.end()) {
    found->bits += bits;
  } else {
    sections.push_back(Section{name, bits});
  }
}

class Inspector {
 public:
  Inspector(Inspection& result, const Codec& codec, const OtherCodecs& others)
      : result_(result), codec_(codec), others_(others) {}

  Status read_frames(const ReadBytes& read) {
    std::uint64_t at = result_.file_header.header_bytes;
    add_bits(result_.sections, "file header", at * 8);
    while (true) {
      RETURN_IF_ERROR(read_frame(read, bytes_));
      if (bytes_.empty()) break;
      if (Status done = add_frame(at); !done) {
        return fail(done.error().code, "the frame at byte " + grouped(at) + ": " + done.error().message);
      }
      at += result_.frames.back().bytes;
    }
    result_.size.file_bytes = at;
    if (first_ == result_.size.count) return {};
    return truncated("the frames hold " + grouped(first_ + covered_) + " of " + grouped(result_.size.count) +
                     " values");
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
      return corrupt("bytes follow after the last value");
    }
    ASSIGN_OR_RETURN(auto reader, FrameReader::open(bytes_));
    FrameFacts frame;
    frame.at = at;
    frame.bytes = reader.frame_bytes();
    frame.header = reader.header();
    add_bits(result_.sections, "frame headers", reader.header_bytes() * 8);
    add_bits(result_.sections, "segment table", (reader.head_bytes() - reader.header_bytes()) * 8);
    while (reader.segments_left() > 0) {
      ASSIGN_OR_RETURN(const auto segment, reader.next());
      RETURN_IF_ERROR(add_segment(segment, frame, reader.version()));
    }
    result_.frames.push_back(std::move(frame));
    return {};
  }

  Status add_segment(const SegmentView& view, FrameFacts& frame, std::uint8_t version) {
    const Segment& segment = view.segment;
    const std::uint64_t due = part_count();
    if (segment.part != 0 || segment.parts != 1 || segment.begin != covered_ ||
        segment.count > due - covered_) {
      return corrupt("its segments do not continue the tensor at value " + grouped(first_ + covered_));
    }
    if (segment.state != SegmentState::kCoded) {
      return corrupt("it has a segment without values, which no file may have");
    }
    const bool raw = due < result_.file_header.policy.min_elements;
    const Codec& codec = codec_due(raw, segment.codec, version);
    if (segment.codec != codec.info().id) {
      return corrupt("a segment's codec is " + codec_name(segment.codec) + ", but " +
                     codec_name(codec.info().id) + " is due by the file header");
    }
    RETURN_IF_ERROR(codec.describe(view.part, segment.count, result_.sections));
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

// Parses the file frame by frame, and verifies all checksums and that the segments cover the tensor. `path`
// is for messages.
Inspection inspect_file(const ReadBytes& read, std::string_view path) {
  auto header = read_file_header(read);
  if (!header) throw failed_reading(path, header.error());
  const auto codec = make_codec(header->codec_spec);
  if (!codec) throw failed_reading(path, codec.error());
  const OtherCodecs others = value_or_failed(other_codecs(**codec, header->dtype));
  Inspection result;
  result.canonical_spec = (*codec)->spec();
  const std::uint64_t count = header->count();
  result.size = FileSize{count, count * dtype_bytes(header->dtype), 0};
  result.file_header = std::move(*header);
  Inspector inspector(result, **codec, others);
  if (const Status done = inspector.read_frames(read); !done) throw failed_reading(path, done.error());
  return result;
}

std::string hex(std::uint32_t number) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", static_cast<unsigned>(number));
  return text;
}

// The scalars that were written: trailing ones that are 0 are left out.
std::string scalars_text(const Segment& segment) {
  if (segment.scalar2 != 0) return "scalar bits " + hex(segment.scalar) + " " + hex(segment.scalar2);
  return segment.scalar != 0 ? "scalar bits " + hex(segment.scalar) : "no scalar";
}

Json to_json(const SegmentFacts& facts) {
  const Segment& segment = facts.segment;
  return {{"part", segment.part},
          {"begin", segment.begin},
          {"first", facts.first},
          {"count", segment.count},
          {"codec", codec_name(segment.codec)},
          {"codec_id", segment.codec},
          {"scalars", {segment.scalar, segment.scalar2}},
          {"chunk_bytes", facts.chunk_bytes}};
}

Json to_json(const FrameFacts& frame) {
  Json segments = Json::array();
  for (const SegmentFacts& segment : frame.segments) segments.push_back(to_json(segment));
  const FrameHeader& header = frame.header;
  return {{"at", frame.at},
          {"bytes", frame.bytes},
          {"payload_bytes", frame.payload_bytes},
          {"params_hash", hex(header.params_hash)},
          {"layout_hash", hex(header.layout_hash)},
          {"step", header.message.step},
          {"bucket", header.message.bucket},
          {"stage", header.message.stage},
          {"scale", header.message.scale},
          {"seq", header.seq},
          {"rank", header.message.rank},
          {"world", header.message.world},
          {"chunks", frame.chunks},
          {"segments", std::move(segments)}};
}

Json to_json(const Inspection& facts, const std::string& path) {
  Json sections = Json::array();
  for (const Section& section : facts.sections) {
    sections.push_back({{"name", section.name}, {"bits", section.bits}});
  }
  Json frames = Json::array();
  for (const FrameFacts& frame : facts.frames) frames.push_back(to_json(frame));
  const bool empty = facts.size.count == 0;
  return {{"file", path},
          {"bytes", facts.size.file_bytes},
          {"bits", facts.size.file_bytes * 8},
          {"header_bytes", facts.file_header.header_bytes},
          {"spec", facts.canonical_spec},
          {"min_elements", facts.file_header.policy.min_elements},
          {"part_elements", facts.file_header.part_elements},
          {"dtype", dtype_name(facts.file_header.dtype)},
          {"shape", facts.file_header.shape},
          {"count", facts.size.count},
          {"tensor_bytes", facts.size.tensor_bytes},
          {"times_smaller", empty ? Json() : Json(facts.size.times_smaller())},
          {"bits_per_value", empty ? Json() : Json(facts.size.bits_per_value())},
          {"sections", std::move(sections)},
          {"frames", std::move(frames)}};
}

void print_row(const std::string& name, std::uint64_t bits, const Inspection& facts) {
  const auto share = static_cast<double>(bits) / (static_cast<double>(facts.size.file_bytes) * 8);
  char row[160];
  std::snprintf(row, sizeof row, "  %-16s %18s %8.2f %%", name.c_str(), grouped(bits).c_str(), share * 100);
  std::cout << row;
  if (facts.size.count > 0) {
    const auto each = static_cast<double>(bits) / static_cast<double>(facts.size.count);
    std::cout << "   " << with_decimals(each, 5);
  }
  std::cout << "\n";
}

void print_sections(const Inspection& facts) {
  std::cout << "\nWhere the bits go               bits      share   bits per value\n";
  std::uint64_t total = 0;
  for (const Section& section : facts.sections) {
    print_row(std::string(section.name), section.bits, facts);
    total += section.bits;
  }
  print_row("all", total, facts);
}

void print_segment(const SegmentFacts& facts) {
  const auto [least, most] = std::minmax_element(facts.chunk_bytes.begin(), facts.chunk_bytes.end());
  const auto sum = std::accumulate(facts.chunk_bytes.begin(), facts.chunk_bytes.end(), std::uint64_t{0});
  const std::uint64_t first = facts.first;
  std::cout << "  segment: values " << grouped(first) << " to " << grouped(first + facts.segment.count - 1)
            << " by " << codec_name(facts.segment.codec) << ", " << scalars_text(facts.segment) << ", ";
  if (facts.chunk_bytes.size() == 1) {
    std::cout << "1 chunk of " << grouped(sum) << " bytes\n";
  } else {
    std::cout << facts.chunk_bytes.size() << " chunks of " << grouped(*least) << " to " << grouped(*most)
              << " bytes, " << grouped(sum) << " in all\n";
  }
}

void print_frame(const FrameFacts& frame, std::size_t number) {
  const FrameHeader& header = frame.header;
  std::cout << "\nFrame " << number << " at byte " << grouped(frame.at) << ": " << grouped(frame.bytes)
            << " bytes, " << grouped(frame.payload_bytes) << " of them payload\n"
            << "  header: step " << header.message.step << ", bucket " << header.message.bucket << ", stage "
            << header.message.stage << ", seq " << header.seq << ", rank " << header.message.rank << " of "
            << header.message.world << ", params_hash " << hex(header.params_hash) << ", layout_hash "
            << hex(header.layout_hash) << "\n";
  for (const SegmentFacts& segment : frame.segments) print_segment(segment);
}

std::string parts_text(const FileHeader& header) {
  const std::uint64_t count = header.count();
  if (header.part_elements == 0) return count == 0 ? "none" : "1";
  const std::uint64_t parts = (count + header.part_elements - 1) / header.part_elements;
  return grouped(parts) + ", each but the last of " + grouped(header.part_elements) + " values";
}

void print_text(const Inspection& facts, const std::string& path) {
  const FileHeader& header = facts.file_header;
  std::cout << path << ": " << grouped(facts.size.file_bytes) << " bytes, " << ratio_text(facts.size) << "\n"
            << "  spec          " << facts.canonical_spec << "\n"
            << "  policy        arrays below " << grouped(header.policy.min_elements)
            << " values stay float32\n"
            << "  dtype         " << dtype_name(header.dtype) << "\n"
            << "  shape         " << shape_text(header.shape) << ", " << grouped(facts.size.count)
            << " values, " << grouped(facts.size.tensor_bytes) << " bytes\n"
            << "  parts         " << parts_text(header) << "\n"
            << "  frames        " << facts.frames.size() << "\n"
            << "  checksums     all right\n";
  print_sections(facts);
  for (std::size_t i = 0; i < facts.frames.size(); ++i) print_frame(facts.frames[i], i);
}

void inspect(const std::string& path, bool json) {
  auto input = ArrayFile::open(path);
  require_kind(input, FileKind::kDw);
  Json arrays = Json::array();
  for (const ArrayFile::Member& member : input.members()) {
    auto bytes = input.bytes_of(member);
    const Inspection facts = inspect_file([&](MutBytes out) { return bytes->read(out); }, member.shown);
    if (json) {
      arrays.push_back(to_json(facts, input.is_archive() ? member.name : input.name()));
    } else {
      if (member.name != input.members().front().name) std::cout << "\n";
      print_text(facts, member.shown);
    }
  }
  if (json) {
    const Json all = input.is_archive() ? Json{{"file", input.name()}, {"arrays", arrays}} : arrays.front();
    // A path may be no UTF-8; JSON must be.
    std::cout << all.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  }
}

}  // namespace

void add_inspect_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("inspect", "Show the contents of a .dw or .dwz file and how its bits are used");
  const auto path = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false);
  command->add_option("FILE", *path, "A .dw or .dwz file; - for standard input")->required();
  command->add_flag("--json", *json, "Print JSON for programs");
  command->footer(
      "Verifies every checksum. The bits of all sections add up to the file's size.\n\n"
      "Examples:\n"
      "  deltawire inspect gradient.dw\n"
      "  deltawire inspect gradient.dw --json | jq .times_smaller\n"
      "  deltawire inspect gradient.dw --json | jq '.sections[] | select(.name == \"segment "
      "table\").bits'\n");
  command->callback([path, json] { inspect(*path, *json); });
}

}  // namespace deltawire::cli
