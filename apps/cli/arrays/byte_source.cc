#include "cli/arrays/byte_source.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/errors.h"

namespace deltawire::cli {
namespace {

constexpr std::size_t kFirstRead = std::size_t{1} << 16;  // of a pipe

// A regular file from an offset on.
class FileSource final : public ByteSource {
 public:
  FileSource(int descriptor, std::uint64_t at, std::uint64_t end)
      : descriptor_(descriptor), at_(at), end_(std::max(at, end)) {}

  Result<std::size_t> read(MutBytes out) override {
    Result<std::size_t> got = read_at(descriptor_, out, at_);
    if (got) at_ += *got;
    return got;
  }

  std::optional<std::uint64_t> bytes_left() const override { return end_ - std::min(at_, end_); }
  Result<Place> settle() override { return Place{descriptor_, at_}; }

 private:
  int descriptor_;
  std::uint64_t at_;
  std::uint64_t end_;
};

// A pipe, after the bytes that were taken off its front.
class PipeSource final : public ByteSource {
 public:
  PipeSource(int descriptor, std::vector<std::byte> front)
      : descriptor_(descriptor), front_(std::move(front)) {}

  Result<std::size_t> read(MutBytes out) override {
    const std::size_t used = std::min(out.size(), front_.size() - taken_);
    if (used > 0) std::memcpy(out.data(), front_.data() + taken_, used);
    taken_ += used;
    ASSIGN_OR_RETURN(const auto got, read_next(descriptor_, out.subspan(used)));
    return used + got;
  }

 private:
  int descriptor_;
  std::vector<std::byte> front_;
  std::size_t taken_ = 0;
};

// The most that is taken of a source, in memory or on a disk.
std::uint64_t most_of(const ByteSource& source) {
  return std::max(source.bytes_left().value_or(0), kPipedBytesMost);
}

tl::unexpected<Error> no_end(std::uint64_t most) {
  return fail(ErrorCode::kLimit, "does not end within " + std::to_string(most) +
                                     " bytes, the most that is read of a pipe or device; give a file");
}

Result<Descriptor> copy_to_unnamed_file(ByteSource& source) {
  ASSIGN_OR_RETURN(Descriptor file, make_unnamed_file());
  const std::uint64_t most = most_of(source);
  std::uint64_t copied = 0;
  std::vector<std::byte> block(kCopyBlockBytes);
  while (true) {
    ASSIGN_OR_RETURN(const std::size_t got, source.read(block));
    copied += got;
    if (copied > most) return no_end(most);
    RETURN_IF_ERROR(write_all(file.get(), Bytes(block).first(got)));
    if (got < block.size()) return file;
  }
}

}  // namespace

Result<ByteSource::Place> ByteSource::settle() {
  ASSIGN_OR_RETURN(settled_, copy_to_unnamed_file(*this));
  return Place{settled_.get(), 0};
}

InputFile InputFile::open(const std::string& path) {
  InputFile input(input_name(path));
  if (path == "-") {
    input.descriptor_ = STDIN_FILENO;
  } else {
    input.owned_ = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    input.descriptor_ = input.owned_.get();
  }
  if (input.descriptor_ < 0) {
    if (errno == ENOENT) throw failed(input.name_ + ": no such file; check the path");
    throw failed_system_call(input.name_, "cannot be opened", errno);
  }
  struct stat info{};
  if (fstat(input.descriptor_, &info) != 0) throw failed_system_call(input.name_, "cannot be read", errno);
  input.regular_ = S_ISREG(info.st_mode);
  if (input.regular_) {
    input.begin_ = static_cast<std::uint64_t>(std::max<off_t>(0, lseek(input.descriptor_, 0, SEEK_CUR)));
    input.end_ = static_cast<std::uint64_t>(info.st_size);
  }
  return input;
}

Bytes InputFile::peek(std::size_t bytes) {
  if (peeked_.size() >= bytes) return Bytes(peeked_);
  const std::unique_ptr<ByteSource> source = read();
  peeked_.resize(bytes);
  peeked_.resize(value_or_failed(source->read(peeked_), name_ + ": "));
  return Bytes(peeked_);
}

void InputFile::settle() {
  if (regular_) return;
  owned_ = value_or_failed(copy_to_unnamed_file(*read()), name_ + ": ");
  descriptor_ = owned_.get();
  begin_ = 0;
  end_ = static_cast<std::uint64_t>(std::max<off_t>(0, lseek(descriptor_, 0, SEEK_END)));
  regular_ = true;
}

std::unique_ptr<ByteSource> InputFile::read() {
  if (regular_) return std::make_unique<FileSource>(descriptor_, begin_, end_);
  return std::make_unique<PipeSource>(descriptor_, std::exchange(peeked_, {}));
}

std::vector<std::byte> read_input(const std::string& path) {
  auto input = InputFile::open(path);
  const std::unique_ptr<ByteSource> source = input.read();
  const std::uint64_t most = most_of(*source);
  // One more than a regular file has, so that its end is seen without another read.
  std::vector<std::byte> bytes(source->bytes_left().value_or(kFirstRead) + 1);
  std::size_t used = 0;
  while (true) {
    used += value_or_failed(source->read(MutBytes(bytes).subspan(used)), input.name() + ": ");
    if (used < bytes.size()) break;
    if (used > most) throw failed(input.name() + ": " + no_end(most).value().message);
    bytes.resize(std::min(2 * bytes.size(), static_cast<std::size_t>(most) + 1));
  }
  bytes.resize(used);
  return bytes;
}

}  // namespace deltawire::cli
