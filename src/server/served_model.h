// What servers and workers have in common: the model's tensors by name, its parts, and the names of messages.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/codec.h"
#include "deltawire/result.h"
#include "deltawire/server.h"
#include "deltawire/transport.h"
#include "optim/lines.h"
#include "transport/process/machine.h"

namespace deltawire {

// The messages of one part have one tag for each direction and keep their order; their frames name the step.
enum class Way : std::uint16_t {
  kPush = 0,   // frames of gradients; an empty message says that the worker closes
  kPull = 1,   // a pull's head, then frames of changes; an empty message says that the server closes
  kModel = 2,  // only as a frame's stage, under a pull's tag: the parameters as they are, in fp32
  kLines = 3,  // likewise, before a push or what follows a pull's head: numbers of lines (ServedRules)
};

// kInvalidArgument for what does not fit so many ranks.
Status check_options(const ServerOptions& options, int world);

// Lets the transport survive the loss of a worker, if the options say so.
void set_optional_workers(const ServerOptions& options, Transport& transport);

class ServedModel {
 public:
  // By options that were checked. Errors: those that make_server and make_worker have in common.
  static Result<ServedModel> make(std::span<const Named> model, const ServerOptions& options,
                                  const Transport& transport);

  std::span<const ServedPart> parts() const noexcept { return parts_; }
  std::size_t tensor_count() const noexcept { return tensors_.size(); }
  std::uint64_t elements(std::size_t tensor) const noexcept { return tensors_[tensor].elements; }
  const std::string& name(const ServedPart& part) const noexcept { return tensors_[part.tensor].name; }

  Lines lines(const ServedPart& part) const { return {tensors_[part.tensor].dims, part.first, part.count}; }

  // The part with these values, as channels take it. This object owns its name and dims.
  Named part_of(const ServedPart& part, float* values) const noexcept;

  Tag tag(std::size_t part, Way way) const noexcept {
    return (Tag{part} << 16) | static_cast<std::uint16_t>(way == Way::kPush ? Way::kPush : Way::kPull);
  }
  MessageId message(std::size_t part, Way way, std::uint64_t step, int sender) const noexcept;

 private:
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> dims;
    std::uint64_t elements = 0;
  };

  ServedModel() = default;

  std::vector<Tensor> tensors_;
  std::vector<ServedPart> parts_;
  int world_ = 0;
};

// The channel for parts as they are: float32, without residuals.
Result<std::unique_ptr<Channel>> make_model_channel();

// The pieces of a message in one piece of memory.
std::vector<std::byte> joined(std::span<const Bytes> pieces);

// What workers and servers tell each other besides frames: the first bytes of a pull, and that no push comes.

// What became of a worker's push of a step.
enum class PushVerdict : std::uint8_t { kLate = 0, kCounted = 1 };

// What follows the head.
enum class PullKind : std::uint8_t {
  kChange = 3,  // of one step
  kWhole = 4,   // the part as it is, instead of several changes
};

// The first bytes of a pull say whether the server counted the worker's pushes, and what follows. A head is
// its PullKind (u8), the number of steps (u16, little-endian), a verdict's byte for each of them, and the
// CRC-32C of these bytes (u32), because the frames behind it have checksums of their own alone.
inline constexpr std::size_t kVerdictsMax = 0xFFFF;
constexpr std::size_t pull_head_bytes(std::size_t verdicts) noexcept {
  return 3 + verdicts + 4;
}

// Views of the message.
struct PullHead {
  PullKind kind = PullKind::kChange;
  Bytes verdicts;  // one, or several of a whole part
  Bytes body;

  std::uint64_t steps() const noexcept { return verdicts.size(); }
  PushVerdict verdict(std::uint64_t at) const noexcept {
    assert(at < steps());
    return verdicts[at] == std::byte{0} ? PushVerdict::kLate : PushVerdict::kCounted;
  }
};

// Errors: kTruncated, kCorrupt for bytes that are not a head.
Result<PullHead> read_pull(Bytes pull);
std::vector<std::byte> change_head(PushVerdict verdict);
// Of 1 to kVerdictsMax of them.
std::vector<std::byte> whole_head(const std::deque<PushVerdict>& verdicts);

// A worker's word to a server that no push of it for a step will come, because other parts of its model have
// the step already: the step (u64, little-endian), and the CRC-32C of its bytes (u32). Any push is longer.
using SkipMessage = std::array<std::byte, 12>;

SkipMessage skip_message(std::uint64_t step) noexcept;
constexpr bool is_skip(std::uint64_t bytes) noexcept {
  return bytes == std::tuple_size_v<SkipMessage>;
}
// The step, of a message whose size is_skip. Errors: kCorrupt.
Result<std::uint64_t> read_skip(Bytes message);

// Leaving a transport with operations posted, whose memory is about to go.
//
// Aborts the transport, unless it has failed already. On return it touches none of the operations' memory.
inline void abandon(Transport& transport, std::span<const Handle> posted, const std::string& why) {
  transport.abort({ErrorCode::kAborted, why});
  for (const Handle handle : posted) (void)transport.wait(handle, MachineClock::now());
}

// The workers of a run: which of them were dropped, and how many pushes a step needs.
//
// Workers are numbered from 0; their ranks follow those of the servers.
class WorkerGroup {
 public:
  WorkerGroup(int workers, const ServerOptions& options)
      : is_dropped_(static_cast<std::size_t>(workers)),
        first_rank_(options.servers),
        backup_(static_cast<std::size_t>(options.backup)),
        min_workers_(static_cast<std::size_t>(options.min_workers)) {}

  std::size_t size() const noexcept { return is_dropped_.size(); }
  int rank_of(std::size_t worker) const noexcept { return first_rank_ + static_cast<int>(worker); }

  bool is_dropped(std::size_t worker) const noexcept { return is_dropped_[worker] != 0; }
  std::size_t left() const noexcept { return size() - dropped_.size(); }

  // How many pushes a step waits for: of all workers but the backup ones, or of all that are left.
  std::size_t needed() const noexcept {
    assert(backup_ < size() && dropped_.size() <= size());
    return std::min(size() - backup_, left());
  }

  // For the first time. `step` is the one that continues without it.
  void drop(std::size_t worker, std::uint64_t step, const Error& why);
  std::span<const DroppedWorker> dropped() const noexcept { return dropped_; }

  // Why a step that has begun can't be ended: its last workers were lost, or have closed.
  tl::unexpected<Error> ended_amid_step() const;

  // kPeerLost, blaming the last loss, if fewer workers are left than ServerOptions::min_workers.
  Status check_left() const;

 private:
  std::vector<char> is_dropped_;  // by worker
  std::vector<DroppedWorker> dropped_;
  int first_rank_;
  std::size_t backup_;
  std::size_t min_workers_;
};

}  // namespace deltawire
