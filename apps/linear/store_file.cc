#include <span>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

#include "base/os_error.h"
#include "linear/block_store.h"

namespace deltawire::linear {

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
