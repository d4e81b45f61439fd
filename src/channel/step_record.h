// What a channel's open step has sent, which a revert may fold back, and what its last committed step sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "channel/message_encoder.h"
#include "deltawire/channel.h"
#include "deltawire/codec.h"

namespace deltawire {

// How much of what was due a step has sent: the sums behind the figures that tell trouble early.

// Whether the flow of this step is measured: that of one in 64, because it takes a decoding.
constexpr bool measures_flow(std::uint64_t step) noexcept {
  return step % 64 == 15;
}

inline constexpr std::uint64_t kMostMeasured = std::uint64_t{1} << 22;  // elements; 16 MiB for a while

// The flow of one part that was just encoded: `given` is what came in besides the residual, `left` the
// residual now. No flow where memory is missing, and of more than kMostMeasured elements.
FeedbackFlow measure_flow(const Codec& codec, const TensorView& given, const PartView& encoded,
                          std::span<const float> left, const Exec& exec) noexcept;

// Adds those of another part of the same step.
void add_flow(const FeedbackFlow& part, FeedbackFlow& sum) noexcept;

class StepRecord {
 public:
  explicit StepRecord(const std::shared_ptr<MemoryMeter>& meter)
      : messages_(meter), committed_messages_(meter) {}

  // kState while a step is open; `before` says what needs it closed, e.g. "saving".
  Status check_closed(const char* before) const {
    if (!is_open_) return {};
    return wrong_state(std::string("a step is open; commit or revert it before ") + before);
  }
  // kState while another step is open.
  Status check_may_open(std::uint64_t step) const {
    if (!is_open_ || step_ == step) return {};
    return wrong_state("step " + std::to_string(step_) + " is open; commit or revert it before step " +
                       std::to_string(step));
  }
  void open(std::uint64_t step) noexcept;

  StepMessages& messages() noexcept { return messages_; }

  // Takes the memory for `count` more parts, which add() and commit() then need not.
  void reserve(std::size_t count) {
    parts_.reserve(parts_.size() + count);
    uses_.reserve(parts_.size() + count);
  }
  void add(const SentPart& part, const FeedbackFlow& flow = {}) {
    parts_.push_back(part);
    add_flow(flow, open_flow_);
  }
  // All parts of the open step's messages.
  std::span<SentPart> parts() noexcept { return parts_; }

  // Its parts count, and the step ends. `keeps`: what it sent can be looked up until the next commit.
  // `scratch`, here and below, is what the parts were encoded with.
  void commit(bool keeps, MutBytes scratch) noexcept;
  // Puts what its parts sent back into their residuals. The step stays open.
  void fold(MutBytes scratch) noexcept;
  // Ends the step; its parts neither count nor come back.
  void end() noexcept;

  // What became of the last committed step's parts, in the order of encoding, whatever their codecs.
  std::span<const PartUse> uses() const noexcept { return uses_; }
  void forget_uses() noexcept { uses_.clear(); }

  // Of the latest committed step that was measured.
  const FeedbackFlow& flow() const noexcept { return flow_; }

  // That part of the last committed step; null where it had none, or was not kept.
  const SentPart* find(std::uint64_t name_hash, std::uint64_t first) const noexcept;

 private:
  bool is_open_ = false;
  std::uint64_t step_ = 0;
  StepMessages messages_;
  std::vector<SentPart> parts_;
  StepMessages committed_messages_;
  std::vector<SentPart> committed_parts_;
  std::vector<PartUse> uses_;
  FeedbackFlow open_flow_;  // of the open step
  FeedbackFlow flow_;
};

}  // namespace deltawire
