// A rank's rows in blocks: in memory up to a limit, the rest in an unnamed file in $TMPDIR.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/disk_file.h"
#include "deltawire/result.h"
#include "linear/row_block.h"

namespace deltawire::linear {

// The labels that occur, as bits.
enum LabelKinds : std::uint32_t { kMinusOne = 1, kZero = 2, kPlusOne = 4, kOtherLabel = 8 };

struct StoreTotals {
  std::uint64_t rows[2] = {0, 0};  // training rows, held-out rows
  std::uint64_t keys_end = 0;      // above all keys
  std::uint32_t labels = 0;        // LabelKinds
};

class BlockStore {
 public:
  struct Entry {
    std::uint64_t offset = 0;  // in the file, if it is there
    std::uint32_t rows = 0;
    std::uint32_t features = 0;
    std::uint32_t held_out = 0;
    std::uint32_t checksum = 0;
    std::uint64_t bytes() const noexcept { return 8 * (std::uint64_t{rows} + features); }
  };

  explicit BlockStore(std::uint64_t memory_bytes) : memory_bytes_(memory_bytes) {}

  // Adds the block's rows, if any, and clears it. Errors: kIo.
  Status add(RowBlock& block, bool held_out);

  // Block i of entries(). Errors: kIo; kCorrupt if the file has changed.
  Result<std::shared_ptr<const RowBlock>> load(std::size_t i);

  const std::vector<Entry>& entries() const noexcept { return entries_; }
  const StoreTotals& totals() const noexcept { return totals_; }

 private:
  std::uint64_t memory_bytes_;
  std::vector<Entry> entries_;
  std::vector<std::shared_ptr<const RowBlock>> kept_;  // by entry; null: in the file only
  std::uint64_t kept_bytes_ = 0;
  StoreTotals totals_;
  std::optional<Descriptor> file_;
  std::uint64_t file_end_ = 0;
};

}  // namespace deltawire::linear
