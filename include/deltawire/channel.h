// Channels: one direction of state changes. A Channel has the codecs, the policy and, alone in the system,
// the state: the residual of every part (3LC's "compression context", section 3; always fp32).
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/codec.h"
#include "deltawire/export.h"
#include "deltawire/frame.h"
#include "deltawire/policy.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

// What becomes of a step that did not reach every rank. Each is one rule for all parts of a channel, whatever
// their codecs, raw ones included.
enum class Revert : std::uint8_t {
  // The step never happened: all residuals are what they were before it, bit for bit, and the caller gives
  // its
  // input again. Costs a second buffer of the residuals' size; nothing where a codec keeps none.
  kExact,
  // The step's input is kept and sent later: never give it again. A part's residual becomes x = residual +
  // input, for every part that was passed to encode in the step, also where encode failed. What a codec has
  // sent is read from its message, so one without error feedback loses what it always loses, and no more:
  // nothing of a raw part. Instead of the second buffer every message is kept until its step ends, and a part
  // whose codec keeps no residual has room for one, which a committed step empties again.
  // x is rounded once, as when encoding. What was sent of it is added to what was left: exactly where
  // encoding was exact (3lc, int8; |sent - x| <= |sent| / 2), else to within half a unit in the last place of
  // what was left, and half a one of x (sbc). Elements whose input is not finite, or whose sum would not be,
  // are dropped: the residual keeps what it held. Tensors in key-value form can't wait, and are refused.
  kFold,
};

struct ChannelOptions {
  Policy policy;
  Revert revert = Revert::kExact;
  bool error_feedback = true;  // false: no residuals; each message stands for its input alone (files), so
                               // that nothing can be folded: kInvalidArgument with Revert::kFold
  bool means = false;      // true: the parts are means of gradients that have been through clip, momentum,
                           // masking and decay already, so that rules' "with" changes nothing here
  std::uint64_t seed = 0;  // of the random numbers of codecs that draw some; no receiver needs it
};

// The parts of a message, with the hash of what stays the same from step to step: names, ranges, dtypes,
// dims. Whoever sends such a message again keeps the hash. Views the caller's list.
struct DELTAWIRE_API MessageLayout {
  template <std::convertible_to<std::span<const Named>> List>
  MessageLayout(const List& list) : MessageLayout(std::span<const Named>(list), hash_of(list)) {}  // NOLINT
  MessageLayout(std::span<const Named> list, std::uint32_t known_hash) noexcept
      : parts(list), hash(known_hash) {}

  static std::uint32_t hash_of(std::span<const Named> parts);

  std::span<const Named> parts;
  std::uint32_t hash;  // hash_of(parts)
};

// What encode does with a part in a step.
struct PartPlan {
  std::string codec;                // canonical, with what stands behind it: "sbc:p=0.01 with momentum=0.9"
  bool is_raw = false;              // below Policy::min_elements: fp32, whatever the rules say
  std::uint64_t payload_bytes = 0;  // at most
  std::uint64_t changes_at = kNoStep;  // the first later step in which the codec is another; kNoStep: none
};

// A part in the step that was committed last, as it was encoded here.
struct PartUse {
  std::uint64_t name_hash = 0;  // XXH64, seed 0, of its tensor's name
  std::uint64_t first = 0;
  std::uint64_t elements = 0;
  std::uint64_t payload_bytes = 0;   // of one copy; heads are the message's
  std::uint64_t residual_bytes = 0;  // with the copy that an exact revert needs
  std::uint64_t momentum_bytes = 0;  // of momentum and clipping before the codec
};

// A saved state of a channel and the weight with which it counts: finite, 0 or more.
struct Share {
  Bytes state;
  double weight = 1;
};

// Whole tensors, and parts of them. Values are not read.
struct CutTensors {
  std::span<const Named> tensors;
  std::span<const Named> parts;  // none overlaps another
};

// Conservation (tested): for every part, what went into encode = what the decoders got + the residual, up
// to rounding, through any series of commits and folding reverts.
// Thread rule: one thread at a time.
class DELTAWIRE_API Channel {
 public:
  virtual ~Channel() = default;

  // Canonical: every codec with all its parameters, e.g. "conv*: sbc:p=0.01,residual=on, rest fp32".
  virtual const std::string& spec() const noexcept = 0;

  // The codec that a part is coded with in a step. Values are not read.
  virtual const Codec& codec_of(const Named& part, std::uint64_t step) const noexcept = 0;

  // How a part, raw or not, is coded in a step. Values are not read.
  virtual PartPlan plan(const Named& part, std::uint64_t step) const = 0;

  // All parts of the step that was committed last, in the order of encoding; empty after load. Valid until
  // the next encode.
  virtual std::span<const PartUse> last_step() const noexcept = 0;

  // Whether any of its codecs is so, e.g. any(&CodecInfo::significance).
  virtual bool any(bool CodecInfo::* property) const noexcept = 0;

  // Whether encode takes a part in key-value form: its codec has one and keeps no residual, or it is so small
  // that it travels raw; and reverts are exact.
  virtual bool takes_pairs(const Named& part, std::uint64_t step) const noexcept = 0;

  // Upper bound in bytes for the message that encode makes of these parts in this step (values are not read).
  virtual std::uint64_t message_bound(const MessageLayout& message, std::uint64_t step) const = 0;

  // Encodes the parts (values are read only) as one message, in or as the first of id.step's transaction,
  // and updates their residuals. A part that has a residual and is all zeros is not sent: the receiver gets
  // zeros, and its residual stays as it is, bit for bit. Callers that pass all zeros must discard the
  // result (a parameter that no rank has used in a step); a zero gradient that is used only waits a step
  // longer. The pieces, in order, are the message; they stay valid until release, commit or revert. `room` is
  // for messages that will be released: bytes that the memory has at least, so that each fits into that of
  // another; 0: the message stays. Parts without elements take no bytes. Errors: those of Codec::encode (the
  // message names the part), kState (another step's transaction is open), kLimit (2^32 elements or more in a
  // tensor), kInvalidArgument (a scale that is none), kRange (a residual too large for the scale); after an
  // error the step must be reverted.
  virtual Result<std::span<const Bytes>> encode(const MessageLayout& message, const MessageId& id,
                                                std::uint64_t room) = 0;
  Result<std::span<const Bytes>> encode(const MessageLayout& message, const MessageId& id) {
    return encode(message, id, 0);
  }

  // Nobody reads these pieces of an encode with `room` any more: their memory serves the next message, unless
  // the channel itself may need them (to fold, or for mask_sent).
  virtual void release(std::span<const Bytes> pieces) noexcept = 0;

  // For a message of a step that may be reverted before the message is encoded. Folding, `prepare` takes the
  // memory of its parts' residuals, and `keep` then, which needs none, lets the parts join the open step as
  // if encode had failed for them: the revert leaves their input in their residuals. With Revert::kExact
  // neither does anything. Errors of prepare: kMismatch for a residual of another count.
  virtual Status prepare(const MessageLayout& message, std::uint64_t step) = 0;
  virtual void keep(const MessageLayout& message, const MessageId& id) noexcept = 0;

  // Decodes a message that must hold exactly these parts and come from `expected`. On error the slots are
  // unspecified. Uses no state but this channel's scratch. Errors: those of the frame, of Codec::decode,
  // and kMismatch naming the field that differs. The pieces, in order, are the message: those of encode, or a
  // single one.
  virtual Status decode(std::span<const Bytes> pieces, const MessageLayout& parts, const MessageId& expected,
                        Into into, float scale) = 0;
  Status decode(Bytes message, const MessageLayout& parts, const MessageId& expected, Into into,
                float scale) {
    return decode(std::span(&message, 1), parts, expected, into, scale);
  }

  // As decode, into key-value form: parts name the expected dimensions (in either form, of which nothing is
  // touched) and means[i] gets part i's non-zero elements times `scale`, its vectors' memory
  // reused.
  virtual Status decode_pairs(std::span<const Bytes> pieces, const MessageLayout& parts,
                              const MessageId& expected, float scale, std::span<Pairs> means) = 0;
  Status decode_pairs(Bytes message, const MessageLayout& parts, const MessageId& expected, float scale,
                      std::span<Pairs> means) {
    return decode_pairs(std::span(&message, 1), parts, expected, scale, means);
  }

  // Momentum masking (Lin et al., "Deep Gradient Compression", section 3; SBC, supplement A): sets
  // momentum[i] to 0 where the part's element i was sent in the step that was committed last, so that stale
  // momentum does not carry a weight on after its update has left. Does nothing for codecs that are not
  // sparse (info().sparse): they send everything. Errors: kInvalidArgument for a part of another count,
  // kState when the part was not in that step or a step is open.
  virtual Status mask_sent(std::string_view name, std::uint64_t first, std::span<float> momentum) const = 0;

  // Ends the open transaction, if any: the residuals stand / are taken back (Revert).
  virtual void commit() noexcept = 0;
  virtual void revert() noexcept = 0;

  // The residual of a part; empty where there is none. Valid until the next call.
  virtual std::span<const float> residual(std::string_view name, std::uint64_t first) const = 0;

  // All residuals as bytes (docs/reference/format.md, "Channel state"), and back. kState while a transaction
  // is open; load replaces everything or, on error (kTruncated, kCorrupt, kUnsupportedVersion, kMismatch for
  // another codec's state), nothing.
  virtual Result<std::vector<std::byte>> save() const = 0;
  virtual Status load(Bytes state) = 0;

  // For a job that continues with another number of ranks: replaces all residuals by those of
  // `wanted.parts`, each the weighted sum of what the shares keep of its elements; momentum before the codec
  // likewise. Sums are formed in double and rounded once. A part of which no share keeps anything gets
  // none. Errors, which change nothing: those of load; kMismatch for a share's entry of another
  // tensor than `wanted.tensors`, or beyond its end; kRange where a sum is not finite.
  virtual Status load_shares(std::span<const Share> shares, const CutTensors& wanted) = 0;
};

// `codecs` is a codec spec for all parts, or rules, of which the first that fits a part decides:
//
//   conv*: 3lc:s=1.5, fc? elements>=100000 step>=500: sbc:p=1%, rest fp32
//
// A rule has a pattern of the tensor's whole name (* stands for any characters, ? for one), comparisons of
// its elements or dims or of the step with a number (<, <=, =, >=, >), or both, with spaces between; then
// ": " and a codec spec. The last one is "rest" and a codec spec. A tensor that is cut into parts counts
// whole. When a part's codec changes between steps its residual stays, and leaves with what is sent next; a
// codec that keeps none of its own then discards of it what it discards of any input. All ranks must have the
// same rules; Policy::min_elements comes before them. Errors: those of make_codec; kInvalidArgument for a
// rule that is none, or options that contradict each other.
DELTAWIRE_API Result<std::unique_ptr<Channel>> make_channel(std::string_view codecs,
                                                            const ChannelOptions& options = {});

}  // namespace deltawire
