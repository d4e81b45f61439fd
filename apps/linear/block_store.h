// A rank's rows in blocks: in memory up to a limit, the rest in a file.
//
// The file can also serve as a cache, so that the next training need not parse the rows again. It stores
// numbers in the machine's byte order, and a machine with the other one does not recognize it.
// apps/linear/README.md describes the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/disk_file.h"
#include "deltawire/result.h"
#include "linear/row_block.h"

namespace deltawire::linear {

// The labels that occur, as bits.
enum LabelKinds : std::uint32_t { kMinusOne = 1, kZero = 2, kPlusOne = 4, kOtherLabel = 8 };

struct StoreTotals {
  std::uint64_t rows[2] = {0, 0};  // training rows, held-out rows
  std::uint64_t features = 0;
  std::uint64_t keys_end = 0;  // above all keys
  std::uint32_t labels = 0;    // LabelKinds
};

// The file of rows: unnamed, or a cache.
class StoreFile {
 public:
  // Without a path: an unnamed file in TMPDIR. With one: a file next to it, which keep() moves there.
  static Result<StoreFile> create(const std::string& path);
  static Result<StoreFile> open(const std::string& path);

  Status write(const void* bytes, std::size_t count, std::uint64_t offset) const;
  Status read(void* bytes, std::size_t count, std::uint64_t offset) const;  // kTruncated beyond its end
  Result<std::uint64_t> bytes() const;
  Status keep();  // flushes the file to disk and moves it to its path

 private:
  int number() const noexcept { return new_ ? new_->descriptor() : descriptor_.get(); }
  Descriptor descriptor_;
  std::optional<NewFile> new_;
};

class BlockStore {
 public:
  struct Entry {
    std::uint64_t offset = 0;  // in the file; 0: in memory only
    std::uint32_t rows = 0;
    std::uint32_t features = 0;
    std::uint32_t held_out = 0;
    std::uint32_t checksum = 0;
    std::uint64_t bytes() const noexcept { return 8 * (std::uint64_t{rows} + features); }
  };

  // Keeps blocks in memory up to `memory_bytes`. With a path, writes all of them to its file as well.
  explicit BlockStore(std::uint64_t memory_bytes, std::string cache_path = {})
      : memory_bytes_(memory_bytes), path_(std::move(cache_path)) {}

  // Opens the cache at `path` of the data and settings whose hash is `key`. None if there is no file, or one
  // of other data, settings or versions. Errors: kIo; kCorrupt if it is damaged.
  static Result<std::optional<BlockStore>> open(std::uint64_t memory_bytes, const std::string& path,
                                                std::uint64_t key);

  // Adds the block's rows, if any, and clears it. Errors: kIo.
  Status add(RowBlock& block, bool held_out);

  // After the last add(). With a path, completes the cache.
  Status finish(std::uint64_t key);

  // Block i of entries(). Errors: kIo; kCorrupt if the file has changed.
  Result<std::shared_ptr<const RowBlock>> load(std::size_t i);

  const std::vector<Entry>& entries() const noexcept { return entries_; }
  const StoreTotals& totals() const noexcept { return totals_; }
  std::uint32_t checksum() const;  // of all rows in their order

 private:
  Status read_index(std::uint64_t key, bool& matches);
  Status check_block(const Entry& entry, const RowBlock& block) const;
  std::string name() const;
  tl::unexpected<Error> damaged(const std::string& what) const;
  tl::unexpected<Error> named(const Status& failure) const;

  std::uint64_t memory_bytes_;
  std::string path_;
  std::vector<Entry> entries_;
  std::vector<std::shared_ptr<const RowBlock>> kept_;  // by entry; null: in the file only
  std::uint64_t kept_bytes_ = 0;
  StoreTotals totals_;
  std::optional<StoreFile> file_;
  std::uint64_t file_end_ = 0;
};

}  // namespace deltawire::linear
