#include "linear/checkpoint_file.h"

#include <algorithm>

#include <fcntl.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/os_error.h"

namespace deltawire::linear {
namespace {

struct CheckpointFront {
  std::uint64_t magic = 0x0A4E494152545744;  // "DWTRAIN\n" in little-endian order
  std::uint32_t version = 4;
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::uint32_t data = 0;
  std::uint64_t step = 0;
  std::uint64_t settings_bytes = 0;
};
static_assert(sizeof(CheckpointFront) == 40);

}  // namespace

Result<CheckpointWriter> CheckpointWriter::create(const std::string& path, const CheckpointHead& head) {
  Result<NewFile> file = NewFile::create(path);
  if (!file) return forward_error(file);
  CheckpointWriter writer(path, *std::move(file));
  const CheckpointFront front{.rank = head.rank,
                              .world = head.world,
                              .data = head.data,
                              .step = head.step,
                              .settings_bytes = head.settings.size()};
  Status done = writer.put(std::as_bytes(std::span(&front, 1)));
  if (done) done = writer.put(std::as_bytes(std::span(head.settings)));
  if (!done) return forward_error(done);
  return writer;
}

Status CheckpointWriter::put(Bytes bytes) {
  checksum_ = crc32c(bytes, checksum_);
  const Status written = write_all(file_.descriptor(), bytes);
  if (written) return {};
  return fail(ErrorCode::kIo, path_ + ": " + written.error().message +
                                  "; free space or mend the disk, then go on with --resume");
}

Status CheckpointWriter::finish() {
  const std::uint32_t checksum = checksum_;
  Status done = put(std::as_bytes(std::span(&checksum, 1)));
  if (done) done = file_.flush();
  return done ? file_.put_in_place() : done;
}

Result<CheckpointReader> CheckpointReader::open(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return io_error(path + ": cannot be opened");
  CheckpointReader reader(path, std::move(file));
  Status read = reader.check_bytes();
  if (read) read = reader.read_head();
  if (!read) return forward_error(read);
  return reader;
}

Status CheckpointReader::check_bytes() {
  struct stat info{};
  if (fstat(file_.get(), &info) != 0) return io_error(path_ + ": cannot be read");
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  std::uint32_t sum = 0;
  if (bytes < sizeof(CheckpointFront) + sizeof sum) return damaged("ends early");
  end_ = bytes - sizeof sum;
  CheckpointFront front;
  if (Status got = take(std::as_writable_bytes(std::span(&front, 1))); !got) return got;
  if (front.magic != CheckpointFront{}.magic) return damaged("is not a checkpoint of a training");
  if (front.version != CheckpointFront{}.version) {
    return fail(ErrorCode::kUnsupportedVersion,
                path_ + ": was written by another version of deltawire; go on with that one");
  }
  std::uint32_t found = crc32c(std::as_bytes(std::span(&front, 1)));
  std::vector<std::byte> block(std::min<std::uint64_t>(std::uint64_t{1} << 20, end_));
  while (at_ < end_) {
    const MutBytes some = std::span(block).first(std::min<std::uint64_t>(block.size(), end_ - at_));
    if (Status got = take(some); !got) return got;
    found = crc32c(some, found);
  }
  end_ = bytes;
  if (Status got = take(std::as_writable_bytes(std::span(&sum, 1))); !got) return got;
  if (found != sum) return damaged("was cut or has changed");
  end_ = bytes - sizeof sum;
  return {};
}

Status CheckpointReader::read_head() {
  at_ = 0;
  CheckpointFront front;
  if (Status got = take(std::as_writable_bytes(std::span(&front, 1))); !got) return got;
  if (front.settings_bytes > end_ - at_) return damaged("ends early");
  head_ = {front.step, front.rank, front.world, front.data, std::string(front.settings_bytes, '\0')};
  return take(std::as_writable_bytes(std::span(head_.settings)));
}

Status CheckpointReader::take(MutBytes out) {
  if (out.size() > end_ - at_) return damaged("ends early");
  const auto got = read_at(file_.get(), out, at_);
  if (!got) return fail(ErrorCode::kIo, path_ + ": " + got.error().message);
  if (*got < out.size()) return damaged("ends early");
  at_ += out.size();
  return {};
}

Status CheckpointReader::end() const {
  return at_ == end_ ? Status() : damaged("has bytes behind its end");
}

tl::unexpected<Error> CheckpointReader::damaged(const std::string& what) const {
  return fail(ErrorCode::kCorrupt, path_ + ": " + what);
}

}  // namespace deltawire::linear
