#include "linear/block_store.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "base/crc32c.h"
#include "base/errors.h"

namespace deltawire::linear {
namespace {

constexpr const char* kFile = "the temporary file of rows (TMPDIR says where): ";

std::uint32_t checksum_of(const RowBlock& block) {
  std::uint32_t sum = crc32c(std::as_bytes(std::span(block.labels)));
  sum = crc32c(std::as_bytes(std::span(block.ends)), sum);
  sum = crc32c(std::as_bytes(std::span(block.keys)), sum);
  return crc32c(std::as_bytes(std::span(block.values)), sum);
}

std::uint32_t kind_of(float label) {
  if (label == 1) return kPlusOne;
  if (label == 0) return kZero;
  return label == -1 ? kMinusOne : kOtherLabel;
}

// Reads or writes the four arrays, one after another.
Status move_arrays(auto& block, std::uint64_t offset, const auto& move) {
  const auto one = [&](auto& values) {
    Status moved = move(std::span(values), offset);
    offset += 4 * values.size();
    return moved;
  };
  Status moved = one(block.labels);
  if (moved) moved = one(block.ends);
  if (moved) moved = one(block.keys);
  if (moved) moved = one(block.values);
  return moved;
}

}  // namespace

Status BlockStore::add(RowBlock& block, bool held_out) {
  if (block.rows() == 0) return {};
  Entry entry{0, static_cast<std::uint32_t>(block.rows()), static_cast<std::uint32_t>(block.keys.size()),
              held_out ? 1U : 0U, 0};
  for (const float label : block.labels) totals_.labels |= kind_of(label);
  for (const std::uint32_t key : block.keys) {
    totals_.keys_end = std::max<std::uint64_t>(totals_.keys_end, std::uint64_t{key} + 1);
  }
  totals_.rows[entry.held_out] += entry.rows;
  entry.checksum = checksum_of(block);
  const bool fits = entry.bytes() <= memory_bytes_ - std::min(memory_bytes_, kept_bytes_);
  if (!fits) {
    if (!file_) {
      Result<Descriptor> file = make_unnamed_file();
      if (!file) return fail(ErrorCode::kIo, "rows beyond --memory: " + file.error().message);
      file_.emplace(*std::move(file));
    }
    entry.offset = file_end_;
    const auto write = [&](auto values, std::uint64_t at) {
      return write_at(file_->get(), std::as_bytes(values), at);
    };
    if (Status written = move_arrays(block, file_end_, write); !written) {
      return fail(ErrorCode::kIo, kFile + written.error().message + "; make room there");
    }
    file_end_ += entry.bytes();
  }
  entries_.push_back(entry);
  kept_.push_back(fits ? std::make_shared<const RowBlock>(block) : nullptr);
  if (fits) kept_bytes_ += entry.bytes();
  block.clear();
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
  const auto read = [&](auto values, std::uint64_t at) -> Status {
    const auto got = read_at(file_->get(), std::as_writable_bytes(values), at);
    if (!got) return forward_error(got);
    return *got == values.size_bytes() ? Status() : truncated("it ends early");
  };
  if (Status done = move_arrays(*block, entry.offset, read); !done) {
    return corrupt(kFile + done.error().message);
  }
  if (checksum_of(*block) != entry.checksum) return corrupt(std::string(kFile) + "rows are damaged");
  if (entry.bytes() <= memory_bytes_ - std::min(memory_bytes_, kept_bytes_)) {
    kept_[i] = block;
    kept_bytes_ += entry.bytes();
  }
  return std::shared_ptr<const RowBlock>(block);
}

}  // namespace deltawire::linear
