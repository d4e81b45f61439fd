// What the bytes of a chunk are for.
#include "codecs/gcomp/gcomp_chunk_layout.h"
#include "codecs/part_checks.h"

namespace deltawire::gcomp {

namespace {

void describe_block(const ChunkBytes& block, std::uint32_t count, std::vector<Section>& sections) {
  add_section(sections, "heads", 8);
  const std::uint64_t bits = (std::uint64_t{block.bytes} - 1) * 8;
  if (static_cast<BlockMode>(block.at[0]) != BlockMode::kCoded) {
    add_section(sections, "stored values", bits);
    return;
  }
  const std::uint64_t words = load_le<std::uint16_t>(block.at + 1);
  const std::uint64_t codes = lanes_for(count) * 32 + words * kWordBits;
  add_section(sections, "heads", 16);
  add_section(sections, "exponents and levels", codes);
  add_section(sections, "signs and mantissas", bits - 16 - codes);
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
  const TableBytes in{chunk.at + 1, chunk.bytes - 1, head.mode == ChunkMode::kMixed, head.uniform_level,
                      head.table_id};
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
    describe_block(block, block_elements(count, i), sections);
  }
}

}  // namespace deltawire::gcomp
