#include "cli/arrays/array_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "deltawire/file.h"

namespace deltawire::cli {
namespace {

class DwReader final : public ArrayReader {
 public:
  DwReader(FileReader reader, std::string name) : reader_(std::move(reader)), name_(std::move(name)) {
    const FileHeader& header = reader_.header();
    info_ = ArrayInfo{header.shape, value_type(header.dtype), header.count()};
  }

  Outcome<void> read(void* values, std::uint64_t count) override {
    auto* out = static_cast<std::byte*>(values);
    const std::uint64_t each = value_bytes(info_.type);
    while (count > 0) {
      if (taken_ == held_) {
        if (count >= reader_.due()) {  // into its place at once
          const std::uint64_t due = reader_.due();
          if (auto decoded = decode(out, due); !decoded) return decoded;
          out += due * each;
          count -= due;
          continue;
        }
        if (auto filled = fill(); !filled) return filled;
      }
      const std::uint64_t now = std::min(count, held_ - taken_);
      std::memcpy(out, part_.get() + taken_ * each, now * each);
      taken_ += now;
      out += now * each;
      count -= now;
    }
    return {};
  }

 private:
  // A header's counts are only claims: memory that nothing is written to takes no room.
  Outcome<void> fill() {
    const std::uint64_t due = reader_.due();
    if (due > room_) {
      part_ = std::make_unique_for_overwrite<std::byte[]>(due * value_bytes(info_.type));
      room_ = due;
    }
    taken_ = 0;
    held_ = due;
    return decode(part_.get(), due);
  }

  Outcome<void> decode(void* out, std::uint64_t count) {
    if (Status read = reader_.read(TensorSlot{out, count, reader_.header().dtype}); !read) {
      return failed_reading(name_, read.error());
    }
    return {};
  }

  FileReader reader_;
  std::string name_;
  std::unique_ptr<std::byte[]> part_;
  std::uint64_t room_ = 0;   // values
  std::uint64_t held_ = 0;   // decoded, in part_
  std::uint64_t taken_ = 0;  // of these
};

}  // namespace

std::uint64_t value_bytes(ValueType type) noexcept {
  switch (type) {
    case ValueType::kF32: return 4;
    case ValueType::kF64: return 8;
    default: return 2;
  }
}

ValueType value_type(DType dtype) noexcept {
  if (dtype == DType::kF16) return ValueType::kF16;
  return dtype == DType::kBF16 ? ValueType::kBF16 : ValueType::kF32;
}

std::uint64_t narrow_values(const double* values, std::uint64_t count, float* out) {
  constexpr double kLargest = 3.4028234663852886e38;  // beyond it a conversion is undefined
  for (std::uint64_t i = 0; i < count; ++i) {
    const double value = values[i];
    if (std::isfinite(value) && std::abs(value) > kLargest) return i;
    out[i] = static_cast<float>(value);
    if (double{out[i]} != value && !std::isnan(value)) return i;
  }
  return count;
}

Outcome<std::unique_ptr<ArrayReader>> open_dw(std::unique_ptr<ByteSource> bytes, const std::string& name) {
  const std::shared_ptr<ByteSource> source = std::move(bytes);
  auto reader = FileReader::open([source](MutBytes out) { return source->read(out); });
  if (!reader) return failed_reading(name, reader.error());
  return std::make_unique<DwReader>(*std::move(reader), name);
}

}  // namespace deltawire::cli
