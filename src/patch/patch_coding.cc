#include "patch/patch_coding.h"

#include <cassert>
#include <optional>
#include <string_view>

#include "base/byte_writer.h"
#include "base/crc32c.h"
#include "base/errors.h"
#include "base/format_version.h"
#include "base/little_endian.h"
#include "base/varint.h"

namespace deltawire::patch {

namespace {

constexpr std::string_view kMagic = "DWPATCH\n";
constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kSummedBytes = kHeadBytes - 4;  // by the head's own checksum, which is behind them

// An entry of the table: even, the bytes of a changed chunk; odd, a run of unchanged ones. The shortest of
// each stands for 1.
constexpr std::uint64_t entry_of(std::uint64_t number, bool unchanged) noexcept {
  assert(number > 0);
  return unchanged ? (number - 1) << 1 | 1 : (number - 1) << 1;
}

struct Entry {
  bool unchanged = false;
  std::uint64_t number = 0;  // chunks, or bytes
};

std::optional<Entry> take_entry(Bytes& table) noexcept {
  const auto entry = take_varint(table, UINT64_MAX);
  if (!entry) return std::nullopt;
  return Entry{(*entry & 1) != 0, (*entry >> 1) + 1};
}

tl::unexpected<Error> too_short(std::uint64_t bytes, std::uint64_t wanted) {
  return truncated("the patch ends after " + std::to_string(bytes) + " of " + std::to_string(wanted) +
                   " bytes: get the rest");
}

// Of a head whose checksum is right.
Result<Head> read_fields(Bytes head) {
  assert(head.size() >= kHeadBytes);
  Head fields;
  fields.type = static_cast<WeightType>(head[10]);
  if (element_of(fields.type).bytes == 0) {
    return fail(ErrorCode::kCorrupt, "the patch is for weights of the unknown type " +
                                         std::to_string(std::to_integer<unsigned>(head[10])));
  }
  fields.chunk_bits = std::to_integer<unsigned>(head[11]);
  if (fields.chunk_bits < kMinChunkBits || fields.chunk_bits > kMaxChunkBits) {
    return fail(ErrorCode::kCorrupt, "the patch has chunks of 2^" + std::to_string(fields.chunk_bits) +
                                         " elements; 2^6 to 2^16 are possible");
  }
  fields.elements = load_le<std::uint64_t>(head.data() + 16);
  if (fields.elements > kPatchMaxElements) {
    return fail(ErrorCode::kLimit, "the patch is for " + std::to_string(fields.elements) +
                                       " elements; at most 2^40 are possible");
  }
  fields.old_root = load_le<std::uint64_t>(head.data() + 32);
  fields.new_root = load_le<std::uint64_t>(head.data() + 40);
  return fields;
}

}  // namespace

Element element_of(WeightType type) noexcept {
  switch (type) {
    case WeightType::kFloat32: return {4, 23, 0xFF};
    case WeightType::kBFloat16: return {2, 7, 0xFF};
    case WeightType::kFloat16: return {2, 10, 0x1F};
    case WeightType::kFloat8E4M3: return {1, 3, 0xF};
    case WeightType::kFloat8E5M2: return {1, 2, 0x1F};
    case WeightType::kInt8: return {1, 0, 0};
    case WeightType::kInt16: return {2, 0, 0};
    case WeightType::kInt32: return {4, 0, 0};
  }
  return {};
}

std::uint32_t Head::count_of(std::uint64_t chunk) const noexcept {
  assert(chunk < chunks());
  const std::uint64_t left = elements - (chunk << chunk_bits);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(left, chunk_elements()));
}

Result<Layout> read_layout(Bytes first, std::uint64_t patch_bytes) {
  if (first.size() < kHeadBytes) return too_short(patch_bytes, kHeadBytes);
  if (!std::ranges::equal(first.first(kMagic.size()), std::as_bytes(std::span(kMagic)))) {
    return fail(ErrorCode::kCorrupt, "these bytes are no patch: they don't begin with DWPATCH");
  }
  RETURN_IF_ERROR(check_format_version("a patch", load_le<std::uint16_t>(first.data() + 8), kVersion));
  if (crc32c(first.first(kSummedBytes)) != load_le<std::uint32_t>(first.data() + kSummedBytes)) {
    return fail(ErrorCode::kCorrupt, "the checksum of the patch's head is wrong: get the patch again");
  }
  ASSIGN_OR_RETURN(const auto fields, read_fields(first));
  const std::uint64_t table_bytes = load_le<std::uint32_t>(first.data() + 12);
  const auto payload_bytes = load_le<std::uint64_t>(first.data() + 24);
  const std::uint64_t body_bytes = patch_bytes - kHeadBytes;
  if (table_bytes > body_bytes || payload_bytes > body_bytes - table_bytes) {
    return truncated("the patch ends before its " + std::to_string(table_bytes) + " + " +
                     std::to_string(payload_bytes) + " bytes of body do: get the rest");
  }
  if (table_bytes + payload_bytes < body_bytes) {
    return fail(ErrorCode::kCorrupt, std::to_string(body_bytes - table_bytes - payload_bytes) +
                                         " bytes follow the end of the patch");
  }
  return Layout{fields, table_bytes, payload_bytes, load_le<std::uint32_t>(first.data() + 48)};
}

Status check_body(const Layout& layout, std::uint32_t checksum) {
  if (checksum == layout.body_checksum) return {};
  return fail(ErrorCode::kCorrupt, "the checksum of the patch's body is wrong: get the patch again");
}

Status check_table(const Layout& layout, Bytes table) {
  const auto corrupt = [](std::uint64_t chunk, const char* what) -> Status {
    return fail(ErrorCode::kCorrupt, "the table of the patch, at chunk " + std::to_string(chunk) + ", " +
                                         what + ": get the patch again");
  };
  std::uint64_t chunks = 0;
  std::uint64_t bytes = 0;
  bool after_run = false;
  while (!table.empty()) {
    const auto entry = take_entry(table);
    if (!entry) return corrupt(chunks, "has a number that is cut off or longer than it needs to be");
    if (entry->unchanged && after_run) return corrupt(chunks, "has two runs of unchanged chunks in a row");
    const std::uint64_t covered = entry->unchanged ? entry->number : 1;
    if (covered > layout.head.chunks() - chunks) return corrupt(chunks, "has more chunks than the tensor");
    if (!entry->unchanged && entry->number > layout.payload_bytes - bytes) {
      return corrupt(chunks, "claims more bytes than there are");
    }
    if (!entry->unchanged) bytes += entry->number;
    chunks += covered;
    after_run = entry->unchanged;
  }
  if (chunks != layout.head.chunks()) return corrupt(chunks, "ends before the tensor does");
  if (bytes != layout.payload_bytes) return corrupt(chunks, "leaves bytes over");
  return {};
}

Result<OpenPatch> open_patch(Bytes patch) {
  ASSIGN_OR_RETURN(const auto layout, read_layout(patch, patch.size()));
  const Bytes body = patch.subspan(kHeadBytes);
  RETURN_IF_ERROR(check_body(layout, crc32c(body)));
  const OpenPatch open{layout.head, body.first(layout.table_bytes), body.subspan(layout.table_bytes)};
  RETURN_IF_ERROR(check_table(layout, open.table));
  return open;
}

bool TableReader::next(CodedPlace& place) noexcept {
  while (!table_.empty()) {
    const auto entry = take_entry(table_);
    assert(entry);
    if (!entry) return false;
    if (entry->unchanged) {
      chunk_ += entry->number;
      continue;
    }
    place = {chunk_++, begin_, entry->number};
    begin_ += entry->number;
    return true;
  }
  return false;
}

void PatchBuilder::add(Bytes coded) {
  assert(!coded.empty());
  close_run();
  append_varint(table_, entry_of(coded.size(), false));
  payload_.insert(payload_.end(), coded.begin(), coded.end());
}

void PatchBuilder::close_run() {
  if (unchanged_ > 0) append_varint(table_, entry_of(unchanged_, true));
  unchanged_ = 0;
}

Bytes PatchBuilder::close_table() {
  close_run();
  return table_;
}

std::vector<std::byte> PatchBuilder::finish(const Head& head) {
  close_run();
  std::vector<std::byte> patch(kHeadBytes + table_.size() + payload_.size());
  const std::span body = std::span(patch).subspan(kHeadBytes);
  std::ranges::copy(table_, body.begin());
  std::ranges::copy(payload_, body.subspan(table_.size()).begin());
  write_head({head, table_.size(), payload_.size(), crc32c(body)}, patch.data());
  return patch;
}

void write_head(const Layout& layout, std::byte* out) noexcept {
  const Head& head = layout.head;
  assert(layout.table_bytes <= UINT32_MAX && head.elements <= kPatchMaxElements);
  ByteWriter writer({out, kHeadBytes});
  writer.text(kMagic);
  writer.number(kVersion);
  writer.number(static_cast<std::uint8_t>(head.type));
  writer.number(static_cast<std::uint8_t>(head.chunk_bits));
  writer.number(static_cast<std::uint32_t>(layout.table_bytes));
  writer.number(head.elements);
  writer.number(layout.payload_bytes);
  writer.number(head.old_root);
  writer.number(head.new_root);
  writer.number(layout.body_checksum);
  writer.number(crc32c(Bytes(out, kSummedBytes)));
}

Error chunk_error(Fault fault, std::uint64_t chunk) {
  const char* what = "";
  switch (fault) {
    case Fault::kNone:
    case Fault::kTruncated: what = "ends before its last change does"; break;
    case Fault::kForm: what = "has a form that doesn't exist for these weights"; break;
    case Fault::kCount: what = "has no changes, or more than there are weights"; break;
    case Fault::kPosition: what = "changes a weight behind its last one"; break;
    case Fault::kStep: what = "has a step that is longer than weights can take"; break;
    case Fault::kCode: what = "has a number in a longer code than it needs"; break;
    case Fault::kParameter: what = "has a number that is out of range"; break;
    case Fault::kTrailing: what = "has bits behind its end"; break;
  }
  Error error;
  error.code = fault == Fault::kTruncated ? ErrorCode::kTruncated : ErrorCode::kCorrupt;
  error.message = "chunk " + std::to_string(chunk) + " of the patch " + what + ": get the patch again";
  return error;
}

}  // namespace deltawire::patch
