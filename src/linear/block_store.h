// A rank's rows, in blocks: in memory as far as that is allowed, the rest in a file.
//
// The file is also what a cache is: rows as they were parsed, so that the next training need not parse them
// again. It holds numbers as they lie in memory, and is of no use on a machine of another byte order, which
// takes it for another's. docs/guides/sparse-linear.md has its form.
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

// Which labels there are; bits.
enum LabelKinds : std::uint32_t { kMinusOne = 1, kZero = 2, kPlusOne = 4, kOtherLabel = 8 };

struct StoreTotals {
  std::uint64_t rows[2] = {0, 0};  // of training, and held out
  std::uint64_t features = 0;
  std::uint64_t keys_end = 0;  // all keys are below
  std::uint32_t labels = 0;    // LabelKinds
};

// A file of rows: without a name, or the cache that is made or has been opened.
class StoreFile {
 public:
  // Without a path: a file without a name, in TMPDIR. With one: beside it, to be moved there by keep().
  static Result<StoreFile> create(const std::string& path);
  static Result<StoreFile> open(const std::string& path);

  Status write(const void* bytes, std::size_t count, std::uint64_t offset) const;
  Status read(void* bytes, std::size_t count, std::uint64_t offset) const;  // kTruncated where it ends
  Result<std::uint64_t> bytes() const;
  Status keep();  // of one with a path: flushed to the disk, then in its place

 private:
  int number() const noexcept { return new_ ? new_->descriptor() : descriptor_.get(); }
  Descriptor descriptor_;
  std::optional<NewFile> new_;
};

class BlockStore {
 public:
  struct Entry {
    std::uint64_t offset = 0;  // in the file; 0: not in it
    std::uint32_t rows = 0;
    std::uint32_t features = 0;
    std::uint32_t held_out = 0;
    std::uint32_t checksum = 0;
    std::uint64_t bytes() const noexcept { return 8 * (std::uint64_t{rows} + features); }
  };

  // Blocks stay in memory until they take `memory_bytes`. With a path all go into its file, too.
  explicit BlockStore(std::uint64_t memory_bytes, std::string cache_path = {})
      : memory_bytes_(memory_bytes), path_(std::move(cache_path)) {}

  // The cache that `path` holds of the sources and settings whose hash is `key`. None where there is no file,
  // or one of other sources, settings or versions. Errors: kIo; kCorrupt for one that is damaged.
  static Result<std::optional<BlockStore>> open(std::uint64_t memory_bytes, const std::string& path,
                                                std::uint64_t key);

  // Takes the block's rows, if there are any, and leaves it empty. Errors: kIo.
  Status add(RowBlock& block, bool held_out);

  // No more rows come. With a path: the cache stands in its place from now on.
  Status finish(std::uint64_t key);

  // Block i of entries(), valid as long as the pointer. Errors: kIo; kCorrupt where the file has changed.
  Result<std::shared_ptr<const RowBlock>> load(std::size_t i);

  const std::vector<Entry>& entries() const noexcept { return entries_; }
  const StoreTotals& totals() const noexcept { return totals_; }
  std::uint32_t checksum() const;  // of all rows in their order, wherever they lie

 private:
  Status read_index(std::uint64_t key, bool& matches);
  Status check_block(const Entry& entry, const RowBlock& block) const;
  std::string name() const;
  tl::unexpected<Error> damaged(const std::string& what) const;
  tl::unexpected<Error> named(const Status& failure) const;

  std::uint64_t memory_bytes_;
  std::string path_;
  std::vector<Entry> entries_;
  std::vector<std::shared_ptr<const RowBlock>> kept_;  // by entry; null: in the file alone
  std::uint64_t kept_bytes_ = 0;
  StoreTotals totals_;
  std::optional<StoreFile> file_;
  std::uint64_t file_end_ = 0;
};

}  // namespace deltawire::linear
