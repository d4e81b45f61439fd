#include "model/model.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "base/errors.h"
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

}  // namespace deltawire::model
