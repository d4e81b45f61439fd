#include "model/model.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>

#include "base/errors.h"
#include "base/little_endian.h"
#include "patch/patch_stream.h"

namespace deltawire::model {

std::uint64_t piece_bytes(WeightType type) noexcept {
  return patch::kPieceElements * weight_bytes(type);
}

Result<std::uint64_t> read_tensor(Model& model, const ModelTensor& tensor, const Work& work,
                                  const std::function<Status(Bytes)>& take) {
  ASSIGN_OR_RETURN(const auto reader, model.open(tensor));
  std::vector<std::byte> buffer(std::min(tensor.bytes, piece_bytes(tensor.type)));
  std::vector<std::uint64_t> digests;
  for (std::uint64_t done = 0; done < tensor.bytes; done += buffer.size()) {
    buffer.resize(std::min<std::uint64_t>(tensor.bytes - done, buffer.size()));
    RETURN_IF_ERROR(reader->next(buffer));
    patch::add_chunk_digests(buffer, tensor.type, work.means.workers, digests);
    RETURN_IF_ERROR(take(buffer));
    RETURN_IF_ERROR(work.advance(buffer.size()));
  }
  RETURN_IF_ERROR(reader->finish());
  return patch::root_digest(digests);
}

Result<std::uint64_t> digest_of(Model& model, std::span<const std::optional<std::uint64_t>> known,
                                const Work& work) {
  const std::vector<ModelTensor>& tensors = model.header().tensors;
  assert(known.size() == tensors.size());
  std::vector<std::uint64_t> digests;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    ASSIGN_OR_RETURN(
        const auto digest,
        known[i] ? *known[i] : read_tensor(model, tensors[i], work, [](Bytes) { return Status(); }));
    digests.push_back(digest);
  }
  return model_digest(model.header(), digests);
}

std::string shown(std::string_view tensor_name) {
  return "tensor '" + printable_line(tensor_name, kShownBytes) + "'";
}

tl::unexpected<Error> error_in(const std::string& path, Error error) {
  error.message = printable_line(path) + ": " + error.message;
  return tl::unexpected<Error>(std::move(error));
}

tl::unexpected<Error> error_in(const std::string& path, const ModelTensor& tensor, Error error) {
  error.message = shown(tensor.name) + ": " + error.message;
  return error_in(path, std::move(error));
}

namespace {

tl::unexpected<Error> incomplete(std::uint64_t bytes, std::uint64_t wanted) {
  return truncated("the file has " + std::to_string(bytes) + " of " + std::to_string(wanted) +
                   " bytes: get it again");
}

// What a file is that has these bytes where safetensors has the length of a header, which is beyond all
// limits.
std::string no_safetensors(std::span<const std::byte> bytes) {
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
         std::to_string(kMostModelHeaderBytes) + " are possible";
}

}  // namespace

Result<std::uint64_t> header_length(std::span<const std::byte> first, std::uint64_t file_bytes) {
  if (first.size() < kModelLengthBytes) {
    return truncated("is no safetensors file: it has " + std::to_string(first.size()) + " of " +
                     std::to_string(kModelLengthBytes) + " bytes before the header");
  }
  const auto length = load_le<std::uint64_t>(first.data());
  if (length > kMostModelHeaderBytes)
    return fail(ErrorCode::kLimit, no_safetensors(first.first(kModelLengthBytes)));
  if (length > file_bytes - kModelLengthBytes) return incomplete(file_bytes, kModelLengthBytes + length);
  return length;
}

Status check_file_bytes(std::uint64_t file_bytes, std::uint64_t header_bytes, const ModelHeader& header) {
  const std::uint64_t front = kModelLengthBytes + header_bytes;
  const std::uint64_t data_bytes = file_bytes - front;
  if (data_bytes < header.data_bytes) return incomplete(file_bytes, front + header.data_bytes);
  if (data_bytes == header.data_bytes) return {};
  return corrupt(std::to_string(data_bytes - header.data_bytes) +
                 " bytes follow the last tensor: get the file again");
}

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

namespace deltawire {

Result<ModelView> read_model(Bytes file) {
  ASSIGN_OR_RETURN(
      const auto length,
      model::header_length(file.first(std::min<std::size_t>(file.size(), kModelLengthBytes)), file.size()));
  const Bytes json = file.subspan(kModelLengthBytes, length);
  ASSIGN_OR_RETURN(auto header, read_model_header({reinterpret_cast<const char*>(json.data()), json.size()}));
  RETURN_IF_ERROR(model::check_file_bytes(file.size(), length, header));
  return ModelView{std::move(header), file.subspan(kModelLengthBytes + length)};
}

std::string model_front(std::vector<ModelTensor> tensors, const ModelMetadata& metadata) {
  std::uint64_t end = 0;
  for (ModelTensor& tensor : tensors) {
    tensor.begin = end;
    end += tensor.bytes;
  }
  const std::string json = write_model_header(tensors, metadata);
  const std::uint64_t room = model::aligned(json.size());
  std::string front(kModelLengthBytes, '\0');
  store_le(std::as_writable_bytes(std::span(front)).data(), room);
  front += json;
  front.resize(kModelLengthBytes + room, ' ');
  return front;
}

}  // namespace deltawire
