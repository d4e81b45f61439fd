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

}  // namespace deltawire::model
