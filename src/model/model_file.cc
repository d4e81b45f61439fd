#include "model/model_file.h"

#include <array>
#include <cassert>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

#include "base/errors.h"
#include "base/os_error.h"
#include "model/file_layout.h"

namespace deltawire::model {

namespace {

class FileTensor final : public TensorReader {
 public:
  FileTensor(const ModelFile& file, const ModelTensor& tensor) : file_(file), tensor_(tensor) {}

  Status next(MutBytes out) override {
    assert(out.size() <= tensor_.bytes - read_);
    const std::uint64_t begin = std::exchange(read_, read_ + out.size());
    return file_.read(tensor_, begin, out);
  }
  Status finish() override { return {}; }

 private:
  const ModelFile& file_;
  const ModelTensor& tensor_;
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

}  // namespace

Result<std::unique_ptr<ModelFile>> ModelFile::open(const std::string& path) {
  ASSIGN_OR_RETURN(auto file, in_file(open_to_read(path), path));
  ASSIGN_OR_RETURN(const auto bytes, in_file(bytes_of(file), path));
  std::unique_ptr<ModelFile> model(new ModelFile(path, std::move(file)));
  RETURN_IF_ERROR(in_file(model->read_front(bytes), path));
  return model;
}

Status ModelFile::read_front(std::uint64_t file_bytes) {
  std::array<std::byte, kModelLengthBytes> length{};
  ASSIGN_OR_RETURN(const auto got, read_at(file_.get(), length, 0));
  ASSIGN_OR_RETURN(const auto json_bytes, header_length(std::span(length).first(got), file_bytes));
  json_.resize(json_bytes);
  ASSIGN_OR_RETURN(const auto read,
                   read_at(file_.get(), std::as_writable_bytes(std::span(json_)), kModelLengthBytes));
  if (read < json_.size()) return truncated("the file has become shorter while it was read");
  ASSIGN_OR_RETURN(header_, read_model_header(json_));
  return check_file_bytes(file_bytes, json_bytes, header_);
}

Status ModelFile::read(const ModelTensor& tensor, std::uint64_t offset, MutBytes out) const {
  assert(offset <= tensor.bytes && out.size() <= tensor.bytes - offset);
  ASSIGN_OR_RETURN(const auto got,
                   in_file(read_at(file_.get(), out, place_of(tensor) + offset), path_, tensor));
  if (got == out.size()) return {};
  return error_in(path_, tensor, {ErrorCode::kTruncated, "the file has become shorter while it was read"});
}

Result<std::unique_ptr<TensorReader>> ModelFile::open(const ModelTensor& tensor) {
  return std::make_unique<FileTensor>(*this, tensor);
}

namespace {

tl::unexpected<Error> taken(const std::string& path) {
  return error_in(path, {ErrorCode::kIo, "exists already; give another name, or have it replaced"});
}

}  // namespace

Result<NewFile> begin_file(const std::string& path, bool replace, std::span<const std::string> inputs) {
  struct stat place{};
  if (stat(path.c_str(), &place) != 0) return NewFile::create(path);  // free, or creating it will tell
  if (S_ISDIR(place.st_mode)) return error_in(path, {ErrorCode::kIo, "is a folder; name a file in it"});
  if (!S_ISREG(place.st_mode)) return error_in(path, {ErrorCode::kIo, "is not a regular file; name one"});
  for (const std::string& input : inputs) {
    struct stat read{};
    if (stat(input.c_str(), &read) == 0 && read.st_dev == place.st_dev && read.st_ino == place.st_ino) {
      return error_in(path,
                      {ErrorCode::kInvalidArgument, "is the input itself; give the output another name"});
    }
  }
  if (!replace) return taken(path);
  // Through a symbolic link, what it points to is replaced, not the link.
  std::error_code not_there;
  const std::filesystem::path resolved = std::filesystem::canonical(path, not_there);
  return NewFile::create(not_there ? path : resolved.string());
}

Status end_file(NewFile& file, const std::string& path, bool replace) {
  RETURN_IF_ERROR(file.flush());
  struct stat place{};
  if (!replace && lstat(path.c_str(), &place) == 0) return taken(path);
  return file.put_in_place();
}

}  // namespace deltawire::model
