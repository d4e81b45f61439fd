#include "model/model_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <span>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

#include "base/little_endian.h"
#include "base/os_error.h"

namespace deltawire::model {

namespace {

class FileTensor final : public TensorReader {
 public:
  FileTensor(const ModelFile& file, const TensorEntry& tensor) : file_(file), tensor_(tensor) {}

  Status next(MutBytes out) override {
    const std::uint64_t begin = std::exchange(read_, read_ + out.size());
    return file_.read(tensor_, begin, out);
  }
  Status finish() override { return {}; }

 private:
  const ModelFile& file_;
  const TensorEntry& tensor_;
  std::uint64_t read_ = 0;
};

Result<Descriptor> open_to_read(const std::string& path) {
  // Without O_NONBLOCK a pipe would keep us until somebody opens its other end.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    if (errno == ENOENT) return fail(ErrorCode::kIo, "no such file; check the name");
    if (errno == EMFILE) {
      return fail(ErrorCode::kIo,
                  "cannot be opened: this process has as many files open as it may; merge fewer patches at "
                  "once and then the results, or raise the limit ('ulimit -n')");
    }
    return io_error("cannot be opened");
  }
  return file;
}

// Only a regular file can be read in any order.
Result<std::uint64_t> bytes_of(const Descriptor& file) {
  struct stat info{};
  if (fstat(file.get(), &info) != 0) return io_error("cannot be read");
  if (S_ISDIR(info.st_mode)) return fail(ErrorCode::kIo, "is a folder; name a safetensors file");
  if (!S_ISREG(info.st_mode)) return fail(ErrorCode::kIo, "is not a regular file; save it to one first");
  return static_cast<std::uint64_t>(info.st_size);
}

tl::unexpected<Error> incomplete(std::uint64_t bytes, std::uint64_t wanted) {
  return fail(ErrorCode::kTruncated, "the file has " + std::to_string(bytes) + " of " +
                                         std::to_string(wanted) + " bytes: get it again");
}

// What a file is that has these bytes where safetensors has the length of a header, which is beyond all
// limits.
std::string no_safetensors(std::span<const std::byte, kLengthBytes> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("PK\x03\x04")) {
    return "is no safetensors file, but a zip archive, as torch.save writes: load it and save its tensors "
           "with "
           "safetensors.torch.save_file";
  }
  if (std::ranges::all_of(text,
                          [](unsigned char c) { return std::isprint(c) != 0 || std::isspace(c) != 0; })) {
    return std::string("is no safetensors file, but ") +
           (text.starts_with('{')
                ? "JSON: if it is a model's index, give the files that it names, one at a time"
                : "text");
  }
  return "is no safetensors file, or has a header of " +
         std::to_string(load_le<std::uint64_t>(bytes.data())) + " bytes; at most " +
         std::to_string(kMostHeaderBytes) + " are possible";
}

}  // namespace

tl::unexpected<Error> error_in(const std::string& path, Error error) {
  error.message = printable_line(path) + ": " + error.message;
  return tl::unexpected<Error>(std::move(error));
}

tl::unexpected<Error> error_in(const std::string& path, const TensorEntry& tensor, Error error) {
  error.message = shown(tensor.name) + ": " + error.message;
  return error_in(path, std::move(error));
}

Result<std::unique_ptr<ModelFile>> ModelFile::open(const std::string& path) {
  auto file = open_to_read(path);
  if (!file) return error_in(path, file.error());
  const auto bytes = bytes_of(*file);
  if (!bytes) return error_in(path, bytes.error());
  std::unique_ptr<ModelFile> model(new ModelFile(path, *std::move(file)));
  if (const Status read = model->read_front(*bytes); !read) return error_in(path, read.error());
  return model;
}

Status ModelFile::read_front(std::uint64_t file_bytes) {
  std::array<std::byte, kLengthBytes> length{};
  const auto got = read_at(file_.get(), length, 0);
  if (!got) return forward_error(got);
  if (*got < length.size()) {
    return fail(ErrorCode::kTruncated, "is no safetensors file: it has " + std::to_string(*got) + " of " +
                                           std::to_string(kLengthBytes) + " bytes before the header");
  }
  const auto json_bytes = load_le<std::uint64_t>(length.data());
  if (json_bytes > kMostHeaderBytes) return fail(ErrorCode::kLimit, no_safetensors(length));
  if (json_bytes > file_bytes - kLengthBytes) return incomplete(file_bytes, kLengthBytes + json_bytes);
  json_.resize(json_bytes);
  const auto read = read_at(file_.get(), std::as_writable_bytes(std::span(json_)), kLengthBytes);
  if (!read) return forward_error(read);
  if (*read < json_.size()) return incomplete(kLengthBytes + *read, kLengthBytes + json_bytes);
  auto header = read_header(json_);
  if (!header) return forward_error(header);
  header_ = *std::move(header);
  const std::uint64_t data_bytes = file_bytes - kLengthBytes - json_bytes;
  if (data_bytes < header_.data_bytes)
    return incomplete(file_bytes, file_bytes - data_bytes + header_.data_bytes);
  if (data_bytes == header_.data_bytes) return {};
  return fail(ErrorCode::kCorrupt, std::to_string(data_bytes - header_.data_bytes) +
                                       " bytes follow the last tensor: get the file again");
}

Status ModelFile::read(const TensorEntry& tensor, std::uint64_t offset, MutBytes out) const {
  const auto got = read_at(file_.get(), out, place_of(tensor) + offset);
  if (!got) return error_in(path_, tensor, got.error());
  if (*got == out.size()) return {};
  return error_in(path_, tensor, {ErrorCode::kTruncated, "the file has become shorter while it was read"});
}

Result<std::unique_ptr<TensorReader>> ModelFile::open(const TensorEntry& tensor) {
  return std::make_unique<FileTensor>(*this, tensor);
}

}  // namespace deltawire::model
