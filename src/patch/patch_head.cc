#include "patch/patch_head.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "base/byte_writer.h"
#include "base/crc32c.h"
#include "base/format_version.h"
#include "base/little_endian.h"
#include "base/varint.h"

namespace deltawire::patch {

namespace {

constexpr std::string_view kMagic = "DWPATCH\n";
constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kHeadBytes = 56;
constexpr std::size_t kSummedBytes = kHeadBytes - 4;  // by the head's own checksum, which is behind them

// An entry of the table: even, the bytes of a changed chunk; odd, a run of unchanged ones. The shortest of
// each stands for 1.
constexpr std::uint64_t entry_of(std::uint64_t number, bool unchanged) noexcept {
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

// Whether the entries cover all chunks and all bytes of the payload.
Status check_table(const OpenPatch& patch) {
  const auto corrupt = [](std::uint64_t chunk, const char* what) -> Status {
    return fail(ErrorCode::kCorrupt, "the table of the patch, at chunk " + std::to_string(chunk) + ", " +
                                         what + ": get the patch again");
  };
  Bytes table = patch.table;
  std::uint64_t chunks = 0;
  std::uint64_t bytes = 0;
  bool after_run = false;
  while (!table.empty()) {
    const auto entry = take_entry(table);
    if (!entry) return corrupt(chunks, "has a number that is cut off or longer than it needs to be");
    if (entry->unchanged && after_run) return corrupt(chunks, "has two runs of unchanged chunks in a row");
    const std::uint64_t covered = entry->unchanged ? entry->number : 1;
    if (covered > patch.head.chunks() - chunks) return corrupt(chunks, "has more chunks than the tensor");
    if (!entry->unchanged && entry->number > patch.payload.size() - bytes) {
      return corrupt(chunks, "claims more bytes than there are");
    }
    if (!entry->unchanged) bytes += entry->number;
    chunks += covered;
    after_run = entry->unchanged;
  }
  if (chunks != patch.head.chunks()) return corrupt(chunks, "ends before the tensor does");
  if (bytes != patch.payload.size()) return corrupt(chunks, "leaves bytes over");
  return {};
}

tl::unexpected<Error> truncated(std::uint64_t bytes, std::uint64_t wanted) {
  return fail(ErrorCode::kTruncated, "the patch ends after " + std::to_string(bytes) + " of " +
                                         std::to_string(wanted) + " bytes: get the rest");
}

// REQUIRES: kHeadBytes bytes whose checksum is right.
Result<Head> read_fields(Bytes head) {
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
  const std::uint64_t left = elements - (chunk << chunk_bits);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(left, chunk_elements()));
}

Result<OpenPatch> open_patch(Bytes patch) {
  if (patch.size() < kHeadBytes) return truncated(patch.size(), kHeadBytes);
  if (!std::ranges::equal(patch.first(kMagic.size()), std::as_bytes(std::span(kMagic)))) {
    return fail(ErrorCode::kCorrupt, "these bytes are no patch: they don't begin with DWPATCH");
  }
  if (const Status read = check_format_version("a patch", load_le<std::uint16_t>(patch.data() + 8), kVersion);
      !read) {
    return forward_error(read);
  }
  if (crc32c(patch.first(kSummedBytes)) != load_le<std::uint32_t>(patch.data() + kSummedBytes)) {
    return fail(ErrorCode::kCorrupt, "the checksum of the patch's head is wrong: get the patch again");
  }
  const auto fields = read_fields(patch);
  if (!fields) return forward_error(fields);
  const std::uint64_t table_bytes = load_le<std::uint32_t>(patch.data() + 12);
  const auto payload_bytes = load_le<std::uint64_t>(patch.data() + 24);
  const std::uint64_t body_bytes = patch.size() - kHeadBytes;
  if (table_bytes > body_bytes || payload_bytes > body_bytes - table_bytes) {
    return fail(ErrorCode::kTruncated, "the patch ends before its " + std::to_string(table_bytes) + " + " +
                                           std::to_string(payload_bytes) + " bytes of body do: get the rest");
  }
  if (table_bytes + payload_bytes < body_bytes) {
    return fail(ErrorCode::kCorrupt, std::to_string(body_bytes - table_bytes - payload_bytes) +
                                         " bytes follow the end of the patch");
  }
  if (crc32c(patch.subspan(kHeadBytes)) != load_le<std::uint32_t>(patch.data() + 48)) {
    return fail(ErrorCode::kCorrupt, "the checksum of the patch's body is wrong: get the patch again");
  }
  const OpenPatch open{*fields, patch.subspan(kHeadBytes, table_bytes),
                       patch.subspan(kHeadBytes + table_bytes)};
  if (const Status covers = check_table(open); !covers) return forward_error(covers);
  return open;
}

bool TableReader::next(ChangedChunk& changed) noexcept {
  while (!table_.empty()) {
    const auto entry = take_entry(table_);
    if (!entry) return false;
    if (entry->unchanged) {
      chunk_ += entry->number;
      continue;
    }
    changed = {chunk_++, payload_.first(entry->number)};
    payload_ = payload_.subspan(entry->number);
    return true;
  }
  return false;
}

void PatchBuilder::add(Bytes coded) {
  close_run();
  append_varint(table_, entry_of(coded.size(), false));
  payload_.insert(payload_.end(), coded.begin(), coded.end());
}

void PatchBuilder::close_run() {
  if (unchanged_ > 0) append_varint(table_, entry_of(unchanged_, true));
  unchanged_ = 0;
}

std::vector<std::byte> PatchBuilder::finish(const Head& head) {
  close_run();
  std::vector<std::byte> patch(kHeadBytes + table_.size() + payload_.size());
  const std::span body = std::span(patch).subspan(kHeadBytes);
  std::ranges::copy(table_, body.begin());
  std::ranges::copy(payload_, body.subspan(table_.size()).begin());
  ByteWriter out(patch.data());
  out.text(kMagic);
  out.number(kVersion);
  out.number(static_cast<std::uint8_t>(head.type));
  out.number(static_cast<std::uint8_t>(head.chunk_bits));
  out.number(static_cast<std::uint32_t>(table_.size()));
  out.number(head.elements);
  out.number(std::uint64_t{payload_.size()});
  out.number(head.old_root);
  out.number(head.new_root);
  out.number(crc32c(body));
  out.number(crc32c(std::span(patch).first(kSummedBytes)));
  return patch;
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
