#include "server/served_model.h"

#include <cassert>
#include <set>
#include <string_view>

namespace deltawire {
namespace {

// A worker keeps the pushes of this many steps until they are answered.
constexpr std::uint64_t kStalenessMax = 1024;

Status check(std::span<const Named> model, const ServerOptions& options, const Transport& transport) {
  const int world = transport.world_size();
  if (options.servers < 1 || options.servers >= world) {
    return fail(ErrorCode::kInvalidArgument, "servers=" + std::to_string(options.servers) + " of " +
                                                 std::to_string(world) +
                                                 " ranks; give 1 or more, and leave a worker");
  }
  if (options.backup < 0 || options.backup >= world - options.servers) {
    return fail(ErrorCode::kInvalidArgument, "backup=" + std::to_string(options.backup) + " of " +
                                                 std::to_string(world - options.servers) +
                                                 " workers; at least one must count");
  }
  if (options.staleness > kStalenessMax) {
    return fail(ErrorCode::kInvalidArgument, "staleness=" + std::to_string(options.staleness) +
                                                 "; give 0 to " + std::to_string(kStalenessMax) + " steps");
  }
  const int workers = world - options.servers;
  if (options.min_workers < 1 || options.min_workers > workers) {
    return fail(ErrorCode::kInvalidArgument, "min_workers=" + std::to_string(options.min_workers) + " of " +
                                                 std::to_string(workers) +
                                                 " workers; give 1 or more of them");
  }
  if (options.max_lag < 1) return fail(ErrorCode::kInvalidArgument, "max_lag=0; give 1 step or more");
  std::set<std::string_view> names;
  for (const Named& tensor : model) {
    const std::string name = "tensor '" + std::string(tensor.name) + "'";
    if (tensor.tensor.dtype != DType::kF32) {
      return fail(ErrorCode::kUnsupportedDType, name + " is " + std::string(dtype_name(tensor.tensor.dtype)) +
                                                    "; parameter servers take float32");
    }
    if (tensor.tensor.has_keys() || tensor.first != 0 || tensor.elements_of_whole != 0) {
      return fail(ErrorCode::kInvalidArgument, name + " is no whole dense tensor");
    }
    if (tensor.tensor.count >= (std::uint64_t{1} << 32)) {
      return fail(ErrorCode::kLimit, name + " has 2^32 elements or more");
    }
    if (!names.insert(tensor.name).second) {
      return fail(ErrorCode::kInvalidArgument, name + " is there twice; names must differ");
    }
  }
  return {};
}

}  // namespace

void set_optional_workers(const ServerOptions& options, Transport& transport) {
  if (options.on_worker_loss != WorkerLoss::kDrop) return;
  std::vector<int> workers;
  for (int rank = options.servers; rank < transport.world_size(); ++rank) workers.push_back(rank);
  transport.set_optional(workers);
}

Result<ServedModel> ServedModel::make(std::span<const Named> model, const ServerOptions& options,
                                      const Transport& transport) {
  if (Status checked = check(model, options, transport); !checked) return forward_error(checked);
  Result<std::vector<ServedPart>> parts = serve_parts(model, options.servers);
  if (!parts) return forward_error(parts);
  ServedModel made;
  for (const Named& tensor : model) {
    made.tensors_.push_back({std::string(tensor.name),
                             {tensor.tensor.dims.begin(), tensor.tensor.dims.end()},
                             tensor.tensor.count});
  }
  made.parts_ = std::move(*parts);
  made.world_ = transport.world_size();
  return made;
}

Named ServedModel::part_of(const ServedPart& part, float* values) const noexcept {
  const Tensor& tensor = tensors_[part.tensor];
  assert(part.first <= tensor.elements && part.count <= tensor.elements - part.first);
  Named named{tensor.name, {.values = values, .count = part.count}, part.first};
  if (part.count == tensor.elements) {
    named.tensor.dims = tensor.dims;
  } else {
    named.elements_of_whole = tensor.elements;
    named.dims_of_whole =
        static_cast<std::uint32_t>(tensor.dims.empty() ? std::size_t{1} : tensor.dims.size());
  }
  return named;
}

MessageId ServedModel::message(std::size_t part, Way way, std::uint64_t step, int sender) const noexcept {
  assert(sender >= 0 && sender < world_ && part < parts_.size());
  return {.step = step,
          .rank = static_cast<std::uint16_t>(sender),
          .world = static_cast<std::uint16_t>(world_),
          .bucket = static_cast<std::uint16_t>(part),
          .stage = static_cast<std::uint16_t>(way)};
}

Result<std::unique_ptr<Channel>> make_model_channel() {
  return make_channel("fp32", {.policy = {.nonfinite = NonFinite::kPass}, .error_feedback = false});
}

std::vector<std::byte> joined(std::span<const Bytes> pieces) {
  std::vector<std::byte> bytes;
  for (const Bytes piece : pieces) bytes.insert(bytes.end(), piece.begin(), piece.end());
  return bytes;
}

}  // namespace deltawire
