#include "cli/arrays/array_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/float16.h"
#include "cli/number_text.h"
#include "deltawire/file.h"

namespace deltawire::cli {
namespace {

class DwReader final : public ArrayReader {
 public:
  DwReader(FileReader reader, std::string name) : reader_(std::move(reader)), name_(std::move(name)) {
    const FileHeader& header = reader_.header();
    info_ = ArrayInfo{header.shape, value_type(header.dtype), header.count(), header.codec_spec};
  }

  void read(void* values, std::uint64_t count) override {
    auto* out = static_cast<std::byte*>(values);
    const std::uint64_t each = value_bytes(info_.type);
    while (count > 0) {
      if (taken_ == held_) {
        if (count >= reader_.due()) {  // into its place at once
          const std::uint64_t due = reader_.due();
          decode(out, due);
          out += due * each;
          count -= due;
          continue;
        }
        fill();
      }
      const std::uint64_t now = std::min(count, held_ - taken_);
      std::memcpy(out, part_.get() + taken_ * each, now * each);
      taken_ += now;
      out += now * each;
      count -= now;
    }
  }

 private:
  // A header's counts are only claims: memory that nothing is written to takes no room.
  void fill() {
    const std::uint64_t due = reader_.due();
    if (due > room_) {
      part_ = std::make_unique_for_overwrite<std::byte[]>(due * value_bytes(info_.type));
      room_ = due;
    }
    taken_ = 0;
    held_ = due;
    decode(part_.get(), due);
  }

  void decode(void* out, std::uint64_t count) {
    if (Status read = reader_.read(TensorSlot{out, count, reader_.header().dtype}); !read) {
      throw failed_reading(name_, read.error());
    }
  }

  FileReader reader_;
  std::string name_;
  std::unique_ptr<std::byte[]> part_;
  std::uint64_t room_ = 0;   // values
  std::uint64_t held_ = 0;   // decoded, in part_
  std::uint64_t taken_ = 0;  // of these
};

// Converts to float32. Returns the index of the first value, other than NaN, that is not exactly a float32;
// `count` if there is none.
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

}  // namespace

std::uint64_t value_bytes(ValueType type) noexcept {
  switch (type) {
    case ValueType::kF32: return 4;
    case ValueType::kF64:
    case ValueType::kI64: return 8;
    default: return 2;
  }
}

ValueType value_type(DType dtype) noexcept {
  if (dtype == DType::kF16) return ValueType::kF16;
  return dtype == DType::kBF16 ? ValueType::kBF16 : ValueType::kF32;
}

DType coded_type(ValueType type) noexcept {
  if (type == ValueType::kF16) return DType::kF16;
  return type == ValueType::kBF16 ? DType::kBF16 : DType::kF32;
}

void read_coded(ArrayReader& array, const std::string& name, std::uint64_t first, std::uint64_t count,
                std::byte* out) {
  if (array.info().type != ValueType::kF64) return array.read(out, count);
  constexpr std::uint64_t kBlock = std::uint64_t{1} << 16;
  const auto block = std::make_unique_for_overwrite<double[]>(std::min(count, kBlock));
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t now = std::min(kBlock, count - done);
    array.read(block.get(), now);
    const std::uint64_t fits = narrow_values(block.get(), now, reinterpret_cast<float*>(out) + done);
    if (fits < now) {
      throw failed(name + ": element " + std::to_string(first + done + fits) + " is " +
                   significant(block[fits], 17) +
                   ", which is not exactly a float32; round them all in Python with array.astype('float32')");
    }
    done += now;
  }
}

std::vector<float> read_floats(ArrayReader& array, const std::string& name) {
  const std::uint64_t count = array.info().count;
  const DType dtype = coded_type(array.info().type);
  // A header's count is only a claim: memory that is left untouched takes no room.
  const auto coded = std::make_unique_for_overwrite<std::byte[]>(count * dtype_bytes(dtype));
  read_coded(array, name, 0, count, coded.get());
  std::vector<float> values(count);
  widen(coded.get(), dtype, count, values.data());
  return values;
}

std::unique_ptr<ArrayReader> open_dw(std::unique_ptr<ByteSource> bytes, const std::string& name) {
  const std::shared_ptr<ByteSource> source = std::move(bytes);
  auto reader = FileReader::open([source](MutBytes out) { return source->read(out); });
  if (!reader) throw failed_reading(name, reader.error());
  return std::make_unique<DwReader>(*std::move(reader), name);
}

}  // namespace deltawire::cli
