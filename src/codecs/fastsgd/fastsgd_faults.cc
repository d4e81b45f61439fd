#include "codecs/fastsgd/fastsgd_faults.h"

#include <string>

#include "codecs/part_checks.h"

namespace deltawire::fastsgd {

namespace {

std::string_view fault_text(Fault fault) noexcept {
  switch (fault) {
    case Fault::kNone: return "no fault";
    case Fault::kTruncated: return "the bytes end before the chunk does";
    case Fault::kTrailingBytes: return "bytes follow a chunk without pairs";
    case Fault::kPairCount: return "a number of pairs that this chunk can't have";
    case Fault::kHead: return "more code bits or key bits than there are";
    case Fault::kCode: return "a code beyond the threshold";
    case Fault::kCodeRange: return "the codes don't fill the range that the head states";
    case Fault::kFlag: return "a length flag that isn't the smallest";
    case Fault::kKeyBits: return "no gap is as long as the head states";
    case Fault::kKey: return "a key that is out of order or outside the tensor";
    case Fault::kPadding: return "bits follow the last code or the last key";
    case Fault::kNoRoom: return "more pairs than the slot has room for: give it room for its dimension";
  }
  return "unknown fault";
}

}  // namespace

Status fault_status(Fault fault, std::uint64_t chunk) {
  return deltawire::fault_status("fastsgd", chunk, fault, fault_text(fault));
}

ChunkSections chunk_sections(const ChunkBytes& chunk) noexcept {
  Head head;
  reference::read_head(chunk, true, true, head);
  if (head.pairs == 0) return {.head = kEmptyHeadBytes * 8, .values = 0, .keys = 0};
  const std::uint64_t value_bytes = (head.pairs * (head.code_bits + 1) + 7) / 8;
  return {.head = kHeadBytes * 8,
          .values = value_bytes * 8,
          .keys = (chunk.bytes - kHeadBytes - value_bytes) * 8};
}

}  // namespace deltawire::fastsgd
