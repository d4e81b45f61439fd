// deltawire inspect FILE: the contents of a .dw file and the use of its bits.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <numeric>
#include <string>

#include <nlohmann/json.hpp>

#include "cli/arrays/array_file.h"
#include "cli/commands.h"
#include "cli/inspection.h"

namespace deltawire::cli {
namespace {

using Json = nlohmann::ordered_json;

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
    std::snprintf(row, sizeof row, "   %.5f", each);
    std::cout << row;
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

Outcome<void> inspect(const std::string& path, bool json) {
  auto input = ArrayFile::open(path);
  if (!input) return tl::unexpected<Failure>(input.error());
  if (auto right = require_kind(*input, FileKind::kDw); !right) return right;
  Json arrays = Json::array();
  for (const ArrayFile::Member& member : input->members()) {
    auto bytes = input->bytes_of(member);
    if (!bytes) return tl::unexpected<Failure>(bytes.error());
    const auto facts = inspect_file([&](MutBytes out) { return (*bytes)->read(out); }, member.shown);
    if (!facts) return tl::unexpected<Failure>(facts.error());
    if (json) {
      arrays.push_back(to_json(*facts, input->is_archive() ? member.name : input->name()));
    } else {
      if (member.name != input->members().front().name) std::cout << "\n";
      print_text(*facts, member.shown);
    }
  }
  if (json) {
    const Json all = input->is_archive() ? Json{{"file", input->name()}, {"arrays", arrays}} : arrays.front();
    // A path may be no UTF-8; JSON must be.
    std::cout << all.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  }
  return {};
}

}  // namespace

void add_inspect_command(CLI::App& app, Command& chosen) {
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
  command->callback([&chosen, path, json] { chosen = [path, json] { return inspect(*path, *json); }; });
}

}  // namespace deltawire::cli
