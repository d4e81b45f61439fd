// .npy files as arrays of any byte order and either order of dimensions.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "cli/arrays/array_reader.h"
#include "cli/arrays/npy.h"
#include "cli/number_text.h"

namespace deltawire::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read in place");

void swap_bytes(std::byte* values, std::uint64_t count, std::uint64_t bytes_each) {
  for (std::uint64_t i = 0; i < count; ++i) {
    std::reverse(values + i * bytes_each, values + (i + 1) * bytes_each);
  }
}

// A file's bytes from an offset on, in memory that the kernel fills and takes back as it likes.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_), skipped_(other.skipped_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    std::swap(skipped_, other.skipped_);
    return *this;
  }
  ~Mapping() {
    if (base_ != nullptr) munmap(base_, bytes_);
  }

  bool map(ByteSource::Place place, std::uint64_t bytes) {
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    skipped_ = place.offset % page;
    bytes_ = bytes + skipped_;
    void* base = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, place.descriptor,
                      static_cast<off_t>(place.offset - skipped_));
    if (base == MAP_FAILED) return false;
    base_ = base;
    return true;
  }

  const std::byte* data() const noexcept { return static_cast<const std::byte*>(base_) + skipped_; }
  void let_go() const noexcept { madvise(base_, bytes_, MADV_DONTNEED); }

 private:
  void* base_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t skipped_ = 0;
};

// Where the value of each row-major index lies in Fortran order, from one to the next.
class FortranWalk {
 public:
  explicit FortranWalk(std::vector<std::uint64_t> shape)
      : shape_(std::move(shape)), strides_(shape_.size()), index_(shape_.size()) {
    std::uint64_t stride = 1;
    for (std::size_t i = 0; i < shape_.size(); ++i) {
      strides_[i] = stride;
      stride *= shape_[i];
    }
  }

  std::uint64_t next() {
    const std::uint64_t here = at_;
    for (std::size_t i = shape_.size(); i-- > 0;) {
      at_ += strides_[i];
      if (++index_[i] < shape_[i]) break;
      at_ -= strides_[i] * shape_[i];
      index_[i] = 0;
    }
    return here;
  }

 private:
  std::vector<std::uint64_t> shape_;
  std::vector<std::uint64_t> strides_;
  std::vector<std::uint64_t> index_;
  std::uint64_t at_ = 0;
};

class NpyReader final : public ArrayReader {
 public:
  NpyReader(std::unique_ptr<ByteSource> bytes, std::string name, NpyInfo npy)
      : source_(std::move(bytes)), name_(std::move(name)), big_endian_(npy.big_endian), walk_(npy.shape) {
    info_ = ArrayInfo{std::move(npy.shape), npy.type, npy.count, {}, !npy.big_endian && !npy.fortran_order};
    // With one dimension alone that counts the orders are the same.
    fortran_ = npy.fortran_order && std::ranges::count_if(info_.shape, [](auto n) { return n > 1; }) > 1 &&
               info_.count > 0;
  }

  void open() {
    const auto found = source_->bytes_left();
    if (found && *found != info_.bytes()) throw wrong_length(found);
    if (info_.count == 0) return check_end();
    if (!fortran_) return;
    const ByteSource::Place place = value_or_failed(source_->settle(), name_ + ": ");
    const auto end = static_cast<std::uint64_t>(std::max<off_t>(0, lseek(place.descriptor, 0, SEEK_END)));
    const std::uint64_t there = end - std::min(end, place.offset);
    if (there != info_.bytes()) throw wrong_length(there);
    if (!values_.map(place, info_.bytes())) throw failed_system_call(name_, "cannot be mapped", errno);
  }

  void read(void* values, std::uint64_t count) override {
    auto* out = static_cast<std::byte*>(values);
    const std::uint64_t each = value_bytes(info_.type);
    if (fortran_) {
      each == 2 ? gather<2>(out, count) : each == 4 ? gather<4>(out, count) : gather<8>(out, count);
    } else {
      const std::size_t got = value_or_failed(source_->read(MutBytes(out, count * each)), name_ + ": ");
      if (got < count * each) throw wrong_length(done_ * each + got);
    }
    if (big_endian_) swap_bytes(out, count, each);
    done_ += count;
    if (done_ == info_.count && !fortran_) check_end();
  }

 private:
  template <std::size_t Each>
  void gather(std::byte* out, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      std::memcpy(out + i * Each, values_.data() + walk_.next() * Each, Each);
    }
    values_.let_go();
  }

  void check_end() {
    std::byte next{};
    const std::size_t got = value_or_failed(source_->read(MutBytes(&next, 1)), name_ + ": ");
    if (got != 0) throw wrong_length(std::nullopt);
  }

  Failure wrong_length(std::optional<std::uint64_t> found) const {
    const bool less = found && *found < info_.bytes();
    return failed(
        name_ + ": the shape " + shape_text(info_.shape) + " needs " + grouped(info_.bytes()) +
        " bytes of values, found " + (found ? grouped(*found) : "more") +
        (less ? "; the file is incomplete, copy it again" : "; save one array a file with numpy.save"));
  }

  std::unique_ptr<ByteSource> source_;
  std::string name_;
  bool big_endian_;
  bool fortran_ = false;
  FortranWalk walk_;
  Mapping values_;  // in Fortran order alone
  std::uint64_t done_ = 0;
};

}  // namespace

std::unique_ptr<ArrayReader> open_npy(std::unique_ptr<ByteSource> bytes, const std::string& name,
                                      bool of_keys) {
  auto npy = read_npy_info(*bytes, name, of_keys);
  auto reader = std::make_unique<NpyReader>(std::move(bytes), name, std::move(npy));
  reader->open();
  return reader;
}

}  // namespace deltawire::cli
