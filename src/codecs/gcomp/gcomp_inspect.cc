// What the bytes of a chunk are for.
#include "codecs/gcomp/gcomp_chunk_layout.h"
#include "codecs/part_checks.h"

namespace deltawire::gcomp {

namespace {

// Codes and mantissas share a block's stream, and what is what can't be told without decoding it.
void describe_block(const ChunkBytes& block, std::uint32_t count, bool whole,
                    std::vector<Section>& sections) {
  add_section(sections, "heads", 8);
  BlockMode mode = BlockMode::kStored;
  BlockBytes coded;
  if (read_block_mode(block.at[0], mode) != Fault::kNone) return;
  if (mode != BlockMode::kCoded) {
    add_section(sections, "stored values", (std::uint64_t{block.bytes} - 1) * 8);
    return;
  }
  if (open_coded(block, count, whole, coded) != Fault::kNone) return;
  add_section(sections, "heads", (kCodedHeadBytes - 1) * 8);
  add_section(sections, "lanes", std::uint64_t{states_bytes(count, whole)} * 8);
  add_section(sections, "codes and mantissas", std::uint64_t{coded.stream_bytes} * 8);
}

}  // namespace

void describe_chunk(const ChunkBytes& chunk, std::uint32_t count, std::vector<Section>& sections) {
  add_section(sections, "heads", 8);
  ChunkHead head;
  if (read_head(chunk.at[0], head) != Fault::kNone) return;
  if (head.mode == ChunkMode::kStored || head.mode == ChunkMode::kZeros) {
    add_section(sections, "stored values", (std::uint64_t{chunk.bytes} - 1) * 8);
    return;
  }
  const TableBytes in = table_bytes(head, chunk);
  DecodeTable table;
  std::uint32_t used = 0;
  BlockArea area;
  if (read_table(in, table, used) != Fault::kNone) return;
  if (open_blocks(in.at + used, in.bytes - used, block_count(count), area) != Fault::kNone) return;
  add_section(sections, "tables", std::uint64_t{used} * 8);
  add_section(sections, "block index", (std::uint64_t{area.count} - 1) * kIndexEntryBytes * 8);
  for (std::uint32_t i = 0; i < area.count; ++i) {
    ChunkBytes block;
    if (block_bytes(area, i, block) != Fault::kNone) return;
    describe_block(block, block_elements(count, i), in.whole, sections);
  }
}

}  // namespace deltawire::gcomp
