#include "linear/block_store.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/crc32c.h"
#include "base/os_error.h"

namespace deltawire::linear {
namespace {

constexpr std::uint64_t kMagic = 0x0A3153574F525744;  // "DWROWS1\n" in little-endian order
constexpr std::uint32_t kVersion = 1;

struct Head {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t labels = 0;
  std::uint64_t key = 0;
  std::uint64_t rows[2] = {0, 0};
  std::uint64_t features = 0;
  std::uint64_t keys_end = 0;
  std::uint64_t index_offset = 0;
  std::uint64_t index_count = 0;
  std::uint32_t index_checksum = 0;
  std::uint32_t checksum = 0;  // of all before
};
static_assert(sizeof(Head) == 80 && sizeof(BlockStore::Entry) == 24);

template <class T>
std::uint32_t checksum_of(std::span<const T> values, std::uint32_t seed = 0) {
  return crc32c(std::as_bytes(values), seed);
}

std::uint32_t checksum_of(const RowBlock& block) {
  std::uint32_t sum = checksum_of(std::span(block.labels));
  sum = checksum_of(std::span(block.ends), sum);
  sum = checksum_of(std::span(block.keys), sum);
  return checksum_of(std::span(block.values), sum);
}

std::uint32_t checksum_of(const Head& head) {
  return crc32c(std::as_bytes(std::span(&head, 1)).first(sizeof(Head) - 4));
}

std::uint32_t kind_of(float label) {
  if (label == 1) return kPlusOne;
  if (label == 0) return kZero;
  return label == -1 ? kMinusOne : kOtherLabel;
}

// Reads or writes the four arrays, one after another.
template <class File, class Block, class Move>
Status move_arrays(File& file, Block& block, std::uint64_t offset, const Move& move) {
  const auto one = [&](auto& values) {
    const std::size_t bytes = 4 * values.size();
    Status moved = move(file, values.data(), bytes, offset);
    offset += bytes;
    return moved;
  };
  Status moved = one(block.labels);
  if (moved) moved = one(block.ends);
  if (moved) moved = one(block.keys);
  if (moved) moved = one(block.values);
  return moved;
}

}  // namespace

std::string BlockStore::name() const {
  return path_.empty() ? "the temporary file of rows (TMPDIR says where)" : path_;
}

tl::unexpected<Error> BlockStore::damaged(const std::string& what) const {
  return fail(ErrorCode::kCorrupt, name() + ": " + what + "; remove the file, it will be made again");
}

tl::unexpected<Error> BlockStore::named(const Status& failure) const {
  return fail(failure.error().code, name() + ": " + failure.error().message + "; make room there");
}

Status BlockStore::add(RowBlock& block, bool held_out) {
  if (block.rows() == 0) return {};
  Entry entry{0, static_cast<std::uint32_t>(block.rows()), static_cast<std::uint32_t>(block.keys.size()),
              held_out ? 1U : 0U, 0};
  for (const float label : block.labels) totals_.labels |= kind_of(label);
  for (const std::uint32_t key : block.keys) {
    totals_.keys_end = std::max<std::uint64_t>(totals_.keys_end, std::uint64_t{key} + 1);
  }
  totals_.rows[entry.held_out] += entry.rows;
  totals_.features += entry.features;
  entry.checksum = checksum_of(block);
  const bool fits = entry.bytes() <= memory_bytes_ - std::min(memory_bytes_, kept_bytes_);
  if (!fits || !path_.empty()) {
    if (!file_) {
      Result<StoreFile> file = StoreFile::create(path_);
      if (!file) return forward_error(file);
      file_.emplace(*std::move(file));
      file_end_ = sizeof(Head);
    }
    entry.offset = file_end_;
    const auto write = [](const StoreFile& file, const void* bytes, std::size_t count, std::uint64_t at) {
      return file.write(bytes, count, at);
    };
    if (Status written = move_arrays(*file_, block, file_end_, write); !written) return named(written);
    file_end_ += entry.bytes();
  }
  entries_.push_back(entry);
  kept_.push_back(fits ? std::make_shared<const RowBlock>(block) : nullptr);
  if (fits) kept_bytes_ += entry.bytes();
  block.clear();
  return {};
}

std::uint32_t BlockStore::checksum() const {
  std::uint32_t sum = 0;
  for (Entry entry : entries_) {
    entry.offset = 0;
    sum = checksum_of(std::span<const Entry>(&entry, 1), sum);
  }
  return sum;
}

Status BlockStore::finish(std::uint64_t key) {
  if (path_.empty() || !file_) return {};
  Head head{.labels = totals_.labels,
            .key = key,
            .rows = {totals_.rows[0], totals_.rows[1]},
            .features = totals_.features,
            .keys_end = totals_.keys_end,
            .index_offset = file_end_,
            .index_count = entries_.size(),
            .index_checksum = checksum_of(std::span<const Entry>(entries_))};
  head.checksum = checksum_of(head);
  Status done = file_->write(entries_.data(), entries_.size() * sizeof(Entry), file_end_);
  if (done) done = file_->write(&head, sizeof head, 0);
  return done ? file_->keep() : named(done);
}

Result<std::optional<BlockStore>> BlockStore::open(std::uint64_t memory_bytes, const std::string& path,
                                                   std::uint64_t key) {
  if (access(path.c_str(), F_OK) != 0) return std::nullopt;
  Result<StoreFile> file = StoreFile::open(path);
  if (!file) return forward_error(file);
  BlockStore store(memory_bytes, path);
  store.file_.emplace(*std::move(file));
  bool matches = false;
  if (Status read = store.read_index(key, matches); !read) return forward_error(read);
  if (!matches) return std::nullopt;
  return store;
}

Status BlockStore::read_index(std::uint64_t key, bool& matches) {
  Head head;
  const Result<std::uint64_t> bytes = file_->bytes();
  if (!bytes) return forward_error(bytes);
  if (*bytes < sizeof head) return damaged("is not a cache of rows");
  if (Status read = file_->read(&head, sizeof head, 0); !read) return read;
  if (head.magic != kMagic) return damaged("is not a cache of rows");
  if (head.version != kVersion) return {};
  if (head.checksum != checksum_of(head)) return damaged("its head is damaged");
  if (head.key != key) return {};
  const std::uint64_t index_bytes = product_or_max(head.index_count, sizeof(Entry));
  if (!range_fits(head.index_offset, index_bytes, *bytes)) return damaged("it ends early");
  entries_.resize(head.index_count);
  if (Status read = file_->read(entries_.data(), index_bytes, head.index_offset); !read) return read;
  if (head.index_checksum != checksum_of(std::span<const Entry>(entries_)))
    return damaged("its index is damaged");
  StoreTotals found{.features = 0, .keys_end = head.keys_end, .labels = head.labels};
  for (const Entry& entry : entries_) {
    if (entry.held_out > 1 || entry.rows == 0 ||
        !range_fits(entry.offset, entry.bytes(), head.index_offset)) {
      return damaged("its index makes no sense");
    }
    found.rows[entry.held_out] += entry.rows;
    found.features += entry.features;
  }
  if (found.rows[0] != head.rows[0] || found.rows[1] != head.rows[1] || found.features != head.features) {
    return damaged("its index makes no sense");
  }
  totals_ = found;
  kept_.resize(entries_.size());
  matches = true;
  return {};
}

Status BlockStore::check_block(const Entry& entry, const RowBlock& block) const {
  if (checksum_of(block) != entry.checksum) return damaged("rows are damaged");
  std::uint32_t before = 0;
  for (const std::uint32_t end : block.ends) {
    if (end < before) return damaged("rows make no sense");
    before = end;
  }
  if (before != entry.features) return damaged("rows make no sense");
  const auto largest = std::ranges::max_element(block.keys);
  if (largest != block.keys.end() && *largest >= totals_.keys_end) return damaged("rows make no sense");
  return {};
}

Result<std::shared_ptr<const RowBlock>> BlockStore::load(std::size_t i) {
  if (kept_[i]) return kept_[i];
  const Entry& entry = entries_[i];
  auto block = std::make_shared<RowBlock>();
  block->labels.resize(entry.rows);
  block->ends.resize(entry.rows);
  block->keys.resize(entry.features);
  block->values.resize(entry.features);
  const auto read = [](const StoreFile& file, void* bytes, std::size_t count, std::uint64_t at) {
    return file.read(bytes, count, at);
  };
  if (Status done = move_arrays(*file_, *block, entry.offset, read); !done)
    return damaged(done.error().message);
  if (Status checked = check_block(entry, *block); !checked) return forward_error(checked);
  if (entry.bytes() <= memory_bytes_ - std::min(memory_bytes_, kept_bytes_)) {
    kept_[i] = block;
    kept_bytes_ += entry.bytes();
  }
  return std::shared_ptr<const RowBlock>(block);
}

Result<StoreFile> StoreFile::create(const std::string& path) {
  StoreFile file;
  if (path.empty()) {
    Result<Descriptor> unnamed = make_unnamed_file();
    if (!unnamed) return fail(ErrorCode::kIo, "rows beyond --memory: " + unnamed.error().message);
    file.descriptor_ = *std::move(unnamed);
  } else {
    Result<NewFile> beside = NewFile::create(path);
    if (!beside) return forward_error(beside);
    file.new_.emplace(*std::move(beside));
  }
  return file;
}

Result<StoreFile> StoreFile::open(const std::string& path) {
  StoreFile file;
  file.descriptor_ = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) return io_error(path + ": cannot be opened");
  return file;
}

Status StoreFile::write(const void* bytes, std::size_t count, std::uint64_t offset) const {
  return write_at(number(), Bytes(static_cast<const std::byte*>(bytes), count), offset);
}

Status StoreFile::read(void* bytes, std::size_t count, std::uint64_t offset) const {
  const auto got = read_at(number(), MutBytes(static_cast<std::byte*>(bytes), count), offset);
  if (!got) return forward_error(got);
  if (*got < count) return fail(ErrorCode::kTruncated, "it ends early");
  return {};
}

Result<std::uint64_t> StoreFile::bytes() const {
  struct stat info{};
  if (fstat(number(), &info) != 0) return io_error("the file of rows cannot be read");
  return static_cast<std::uint64_t>(info.st_size);
}

Status StoreFile::keep() {
  if (Status flushed = new_->flush(); !flushed) return flushed;
  return new_->put_in_place();
}

}  // namespace deltawire::linear
