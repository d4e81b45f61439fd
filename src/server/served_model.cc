#include "server/served_model.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <set>
#include <string_view>

#include "base/crc32c.h"
#include "base/errors.h"
#include "base/little_endian.h"

namespace deltawire {

namespace {

// A worker keeps the pushes of this many steps until they are answered.
constexpr std::uint64_t kStalenessMax = 1024;

Status check_model(std::span<const Named> model) {
  std::set<std::string_view> names;
  for (const Named& tensor : model) {
    const std::string name = "tensor '" + std::string(tensor.name) + "'";
    if (tensor.tensor.dtype != DType::kF32) {
      return fail(ErrorCode::kUnsupportedDType, name + " is " + std::string(dtype_name(tensor.tensor.dtype)) +
                                                    "; parameter servers take float32");
    }
    if (tensor.tensor.has_keys() || tensor.first != 0 || tensor.elements_of_whole != 0) {
      return invalid(name + " is no whole dense tensor");
    }
    const auto& dims = tensor.tensor.dims;
    if (!dims.empty() && std::accumulate(dims.begin(), dims.end(), std::uint64_t{1}, std::multiplies()) !=
                             tensor.tensor.count) {
      return invalid(name + " has dims of another product than its number of elements");
    }
    if (tensor.tensor.count >= (std::uint64_t{1} << 32)) {
      return fail(ErrorCode::kLimit, name + " has 2^32 elements or more");
    }
    if (!names.insert(tensor.name).second) {
      return invalid(name + " is there twice; names must differ");
    }
  }
  return {};
}

}  // namespace

Status check_options(const ServerOptions& options, int world) {
  if (options.servers < 1 || options.servers >= world) {
    return invalid("servers=" + std::to_string(options.servers) + " of " + std::to_string(world) +
                   " ranks; give 1 or more, and leave a worker");
  }
  if (options.backup < 0 || options.backup >= world - options.servers) {
    return invalid("backup=" + std::to_string(options.backup) + " of " +
                   std::to_string(world - options.servers) + " workers; at least one must count");
  }
  if (options.staleness > kStalenessMax) {
    return invalid("staleness=" + std::to_string(options.staleness) + "; give 0 to " +
                   std::to_string(kStalenessMax) + " steps");
  }
  const int workers = world - options.servers;
  if (options.min_workers < 1 || options.min_workers > workers) {
    return invalid("min_workers=" + std::to_string(options.min_workers) + " of " + std::to_string(workers) +
                   " workers; give 1 or more of them");
  }
  if (options.max_lag < 1) return invalid("max_lag=0; give 1 step or more");
  return {};
}

void set_optional_workers(const ServerOptions& options, Transport& transport) {
  if (options.on_worker_loss != WorkerLoss::kDrop) return;
  std::vector<int> workers;
  for (int rank = options.servers; rank < transport.world_size(); ++rank) workers.push_back(rank);
  transport.set_optional(workers);
}

Result<ServedModel> ServedModel::make(std::span<const Named> model, const ServerOptions& options,
                                      const Transport& transport) {
  RETURN_IF_ERROR(check_model(model));
  ASSIGN_OR_RETURN(std::vector<ServedPart> parts, serve_parts(model, options.servers));
  ServedModel made;
  for (const Named& tensor : model) {
    made.tensors_.push_back({std::string(tensor.name),
                             {tensor.tensor.dims.begin(), tensor.tensor.dims.end()},
                             tensor.tensor.count});
  }
  made.parts_ = std::move(parts);
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

namespace {

constexpr std::size_t kVerdictsAt = 3;
static_assert(kVerdictsAt + sizeof(std::uint32_t) == pull_head_bytes(0));

tl::unexpected<Error> bad_pull(const std::string& what) {
  return corrupt("the head of a pull " + what);
}

std::vector<std::byte> write_head(PullKind kind, const std::deque<PushVerdict>& verdicts) {
  assert(!verdicts.empty() && verdicts.size() <= kVerdictsMax);
  std::vector<std::byte> head(pull_head_bytes(verdicts.size()));
  head[0] = static_cast<std::byte>(kind);
  store_le(head.data() + 1, static_cast<std::uint16_t>(verdicts.size()));
  std::ranges::transform(verdicts, head.begin() + kVerdictsAt,
                         [](PushVerdict verdict) { return static_cast<std::byte>(verdict); });
  const std::size_t checked = kVerdictsAt + verdicts.size();
  store_le(head.data() + checked, crc32c(Bytes(head).first(checked)));
  return head;
}

}  // namespace

Result<PullHead> read_pull(Bytes pull) {
  if (pull.size() < pull_head_bytes(0)) return truncated("a pull ends in its head");
  const std::size_t steps = load_le<std::uint16_t>(pull.data() + 1);
  if (pull.size() < pull_head_bytes(steps)) return truncated("a pull ends in its head");
  const std::size_t checked = kVerdictsAt + steps;
  if (load_le<std::uint32_t>(pull.data() + checked) != crc32c(pull.first(checked))) {
    return bad_pull("has a wrong checksum; the bytes changed on the way");
  }
  const PullHead head{.kind = static_cast<PullKind>(pull.front()),
                      .verdicts = pull.subspan(kVerdictsAt, steps),
                      .body = pull.subspan(pull_head_bytes(steps))};
  if (head.kind != PullKind::kChange && head.kind != PullKind::kWhole) {
    return bad_pull("begins with the byte " + std::to_string(std::to_integer<int>(pull.front())));
  }
  if (steps == 0 || (head.kind == PullKind::kChange && steps != 1)) {
    return bad_pull("says that it is of " + std::to_string(steps) + " steps");
  }
  for (const std::byte byte : head.verdicts) {
    if (byte == std::byte{0} || byte == std::byte{1}) continue;
    return bad_pull("has a byte " + std::to_string(std::to_integer<int>(byte)) + " for a verdict");
  }
  return head;
}

std::vector<std::byte> change_head(PushVerdict verdict) {
  return write_head(PullKind::kChange, {verdict});
}

std::vector<std::byte> whole_head(const std::deque<PushVerdict>& verdicts) {
  return write_head(PullKind::kWhole, verdicts);
}

namespace {

constexpr std::size_t kStepBytes = sizeof(std::uint64_t);
static_assert(is_skip(kStepBytes + sizeof(std::uint32_t)));

}  // namespace

SkipMessage skip_message(std::uint64_t step) noexcept {
  SkipMessage message;
  store_le(message.data(), step);
  store_le(message.data() + kStepBytes, crc32c(Bytes(message).first(kStepBytes)));
  return message;
}

Result<std::uint64_t> read_skip(Bytes message) {
  assert(is_skip(message.size()));
  if (load_le<std::uint32_t>(message.data() + kStepBytes) != crc32c(message.first(kStepBytes))) {
    return corrupt("a step that is skipped has a wrong checksum; the bytes changed on the way");
  }
  return load_le<std::uint64_t>(message.data());
}

void WorkerGroup::drop(std::size_t worker, std::uint64_t step, const Error& why) {
  assert(!is_dropped(worker));
  is_dropped_[worker] = 1;
  dropped_.push_back({rank_of(worker), step, why, std::chrono::system_clock::now()});
}

namespace {

tl::unexpected<Error> blame(const DroppedWorker& last, const std::string& what) {
  const int suspect = last.why.suspect == kNoSuspect ? last.rank : last.why.suspect;
  return tl::unexpected<Error>(Error{.code = ErrorCode::kPeerLost,
                                     .message = what + "; the last that was lost is rank " +
                                                std::to_string(last.rank) + ": " + last.why.message,
                                     .suspect = suspect,
                                     .ranks = {last.rank},
                                     .advice = last.why.advice});
}

}  // namespace

tl::unexpected<Error> WorkerGroup::ended_amid_step() const {
  if (dropped_.empty()) return mismatch("workers have closed in the midst of a step");
  return blame(dropped_.back(),
               "too few workers are left in the midst of a step, because the others have closed");
}

Status WorkerGroup::check_left() const {
  if (dropped_.empty() || left() >= min_workers_) return {};
  return blame(dropped_.back(), std::to_string(left()) + " of " + std::to_string(size()) +
                                    " workers are left, below min_workers=" + std::to_string(min_workers_));
}

}  // namespace deltawire
