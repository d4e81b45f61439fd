// From a message to its parts: every field of every frame must be what the receiver expects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer_pool.h"
#include "channel/codec_rules.h"
#include "channel/decode_runs.h"
#include "channel/half_codecs.h"
#include "deltawire/channel.h"
#include "deltawire/frame.h"
#include "deltawire/part_backend.h"

namespace deltawire {

// What the receiver knows before the message comes.
struct ExpectedMessage {
  MessageId id;
  std::uint32_t params_hash = 0;
  MessageLayout layout;
};

// The codecs that a channel decodes with.
struct PartCodecs {
  const CodecRules& rules;
  const Codec& raw;
  const HalfCodecs& halves;
  Policy policy;
  bool error_feedback = true;  // as ChannelOptions
  bool bare_parts = true;      // as ChannelOptions
  bool folds = false;          // Revert::kFold
  Workers* workers = nullptr;
  PartBackend* backend = nullptr;  // null: the CPU codes

  bool is_raw(const Named& part) const noexcept { return part.tensor.elements() < policy.min_elements; }
  const Codec& of(const Named& part, std::uint64_t step) const noexcept {
    return is_raw(part) ? raw : rules.of(part, step);
  }

  // As Channel::takes_pairs: the form has no residual.
  bool take_pairs(const Named& part, std::uint64_t step) const noexcept {
    if (folds || backend != nullptr) return false;
    if (is_raw(part)) return true;
    const CodecInfo& codec = rules.of(part, step).info();
    const bool keeps_residual = codec.error_feedback || rules.feedback_of(part, step).changes_input();
    return codec.key_value && !(error_feedback && keeps_residual);
  }

  // Only what can have a residual can be kept for later, and only what refuses NaN needs a word for it.
  // Whether there are residuals is the sender's choice: its receivers need none.
  bool may_be(SegmentState state, const Codec& part_codec) const noexcept {
    if (state == SegmentState::kNotFinite) {
      return policy.nonfinite == NonFinite::kPass && part_codec.info().finite_only;
    }
    return state == SegmentState::kNothing && bare_parts && part_codec.info().error_feedback;
  }
};

// What coding takes, kept from message to message.
struct CodingMemory {
  std::vector<std::byte> scratch;
  DecodeRuns runs;
  std::vector<float> dense;
  MeteredBytes scratch_held = {};
};

// Of a message in pieces: a piece holds whole frames, or the head of one whose payload is the next piece.
Status decode_message(std::span<const Bytes> pieces, const ExpectedMessage& expected,
                      const PartCodecs& codecs, const Target& target, CodingMemory& memory);

// Several messages of one sender into a device's memory, all together. `each` says what they have in common.
Status decode_messages_on_device(std::span<const ReceivedMessage> messages, const ExpectedMessage& each,
                                 const PartCodecs& codecs, const Target& target, CodingMemory& memory);

// The same into key-value form: means[i] gets part i's non-zero elements times `scale`.
Status decode_message_to_pairs(std::span<const Bytes> pieces, const ExpectedMessage& expected,
                               const PartCodecs& codecs, float scale, std::span<Pairs> means,
                               CodingMemory& memory);

}  // namespace deltawire
