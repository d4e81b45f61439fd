// Models as sources of tensors: a safetensors file, or one to which a patch is applied as it is read.
//
// Tensors are read from beginning to end in pieces of patch::kPieceElements, so that the memory does not grow
// with a model.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/disk_file.h"
#include "deltawire/result.h"
#include "deltawire/safetensors.h"
#include "deltawire/tensor.h"
#include "patch/patch_coding.h"

namespace deltawire::model {

// A tensor that is being read. Errors name file and tensor.
class TensorReader {
 public:
  virtual ~TensorReader() = default;

  // Fills `out` with the next piece, which has as many bytes.
  virtual Status next(MutBytes out) = 0;

  // After the last piece: what can be checked only then.
  virtual Status finish() = 0;
};

class Model {
 public:
  virtual ~Model() = default;

  // For messages: the file's path.
  virtual const std::string& name() const noexcept = 0;

  virtual const ModelHeader& header() const noexcept = 0;
  virtual const std::string& header_json() const noexcept = 0;

  // `tensor` is an element of header().tensors. The model outlives the reader.
  virtual Result<std::unique_ptr<TensorReader>> open(const ModelTensor& tensor) = 0;
};

// What a long call carries along. `advance` gets the bytes of each piece that is done.
struct Work {
  patch::Means means;
  std::function<Status(std::uint64_t bytes)> advance;
};

// Bytes of every piece but a tensor's last.
std::uint64_t piece_bytes(WeightType type) noexcept;

// Reads a tensor and hands each piece to `take`; returns the tensor's digest. Throws std::bad_alloc.
Result<std::uint64_t> read_tensor(Model& model, const ModelTensor& tensor, const Work& work,
                                  const std::function<Status(Bytes)>& take);

// The model's digest, for which tensors without a known one are read.
Result<std::uint64_t> digest_of(Model& model, std::span<const std::optional<std::uint64_t>> known,
                                const Work& work);

// How errors name files and tensors.
inline constexpr std::size_t kShownBytes = 200;  // of a name

// The tensor's name, short enough and safe for a message: "tensor 'layers.0.weight'".
std::string shown(std::string_view tensor_name);

// "<path>: <message>", "<path>: tensor '<name>': <message>"; the code stays.
tl::unexpected<Error> error_in(const std::string& path, Error error);
tl::unexpected<Error> error_in(const std::string& path, const ModelTensor& tensor, Error error);

// `result`, with its error in that file, or tensor of it.
template <class T, class... Tensor>
Result<T> in_file(Result<T> result, const std::string& path, const Tensor&... tensor) {
  if (!result) return error_in(path, tensor..., std::move(result.error()));
  return result;
}

// Where the parts of a safetensors file are, for readers of files and of memory.

inline constexpr std::uint64_t kDataAlignment = 8;  // as the safetensors library writes it

// `bytes`, and as many more as the header is filled up with.
constexpr std::uint64_t aligned(std::uint64_t bytes) noexcept {
  return (bytes + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
}

// Bytes of the header, by a file's first bytes, of which there are as many as it has, up to 8. Errors,
// without the file's name: kTruncated, kLimit.
Result<std::uint64_t> header_length(std::span<const std::byte> first, std::uint64_t file_bytes);

// Whether the data that `header` describes end where the file does. Errors: kTruncated, kCorrupt.
Status check_file_bytes(std::uint64_t file_bytes, std::uint64_t header_bytes, const ModelHeader& header);

// A safetensors file that is open for reading.
class ModelFile final : public Model {
 public:
  // Reads the header; the file must have exactly the bytes that it claims. Throws std::bad_alloc. Errors,
  // with the path: kIo, kTruncated, and those of read_model_header().
  static Result<std::unique_ptr<ModelFile>> open(const std::string& path);

  const std::string& name() const noexcept override { return path_; }
  const ModelHeader& header() const noexcept override { return header_; }
  const std::string& header_json() const noexcept override { return json_; }
  Result<std::unique_ptr<TensorReader>> open(const ModelTensor& tensor) override;

  int descriptor() const noexcept { return file_.get(); }
  std::uint64_t place_of(const ModelTensor& tensor) const noexcept {
    return kModelLengthBytes + json_.size() + tensor.begin;
  }
  std::uint64_t file_bytes() const noexcept { return kModelLengthBytes + json_.size() + header_.data_bytes; }

  // The first bytes of the tensor, or all of it. Errors: kIo, kTruncated.
  Status read(const ModelTensor& tensor, std::uint64_t offset, MutBytes out) const;

 private:
  ModelFile(std::string path, Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}
  Status read_front(std::uint64_t file_bytes);

  std::string path_;
  Descriptor file_;
  std::string json_;
  ModelHeader header_;
};

// Begins a file that is to replace `path`. Errors: kIo if its place is taken (unless `replace`) or can't be
// had; kInvalidArgument if it is one of the `inputs`, under whatever name or link.
Result<NewFile> begin_file(const std::string& path, bool replace, std::span<const std::string> inputs);

// Flushes the file to the disk and puts it in its place, unless that has been taken meanwhile. Errors: kIo.
Status end_file(NewFile& file, const std::string& path, bool replace);

}  // namespace deltawire::model
