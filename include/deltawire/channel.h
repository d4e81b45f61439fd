// Channels: one direction of state changes. A Channel has the codecs, the policy and the only state in the
// system: the residual of every part (3LC's "compression context", section 3; always fp32).
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

// What happens to a step that did not reach every rank. The rule applies to all parts of a channel, whatever
// their codecs, raw parts included.
enum class Revert : std::uint8_t {
  // As if the step had never happened: all residuals are restored bit for bit, and the caller gives the
  // step's input again. Costs a second buffer of the residuals' size; nothing for codecs that keep none.
  kExact,
  // The step's input is kept and sent later: never give it again. A part's residual becomes x = residual +
  // input, for every part that was passed to encode in the step, even if encode failed. What a codec sent is
  // read back from its message, so a codec without error feedback loses only what it always loses, and a raw
  // part loses nothing. Instead of a second buffer, every message is kept until its step ends; a part whose
  // codec keeps no residual gets room for one, which a committed step empties again.
  // x is rounded once, as in encoding. Adding what was sent to what was left is exact if encoding was exact
  // (3lc, int8; |sent - x| <= |sent|); otherwise the error is at most half a unit in the last place of
  // what was left plus half a unit of x (sbc). Elements whose input or sum is not finite are dropped: the
  // residual keeps its value. Tensors in key-value form can't be folded, and are refused.
  kFold,
};

struct ChannelOptions {
  Policy policy;
  Revert revert = Revert::kExact;
  bool error_feedback = true;  // false: no residuals; each message is independent (files), so nothing can be
                               // folded: kInvalidArgument with Revert::kFold
  bool means = false;   // true: the parts are means of gradients to which clip, momentum, masking and decay
                        // were already applied; of the rules' "with" only pull_decay has an effect here.
                        // Each is coded by its codec's mean_spec()
  bool forgets = true;  // false: no pull_decay either, for parts that are changes of a model: all must arrive
  std::uint64_t seed = 0;     // for codecs that draw random numbers; receivers don't need it
  bool measure_flow = false;  // for flow(): a measured step allocates and frees 4 bytes for each element
  bool bare_parts = true;     // false: received messages have values of all parts (files)
};

// The parts of a message, with the hash of what stays the same from step to step: names, ranges, dtypes,
// dims. Callers that send such messages repeatedly keep the hash. Views the caller's list.
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
  std::string codec;                   // canonical, "with" included: "sbc:p=0.01 with momentum=0.9"
  bool is_raw = false;                 // below Policy::min_elements: fp32, whatever the rules say
  bool is_late = false;                // most of a gradient waits in the residual (SpecRule::is_late)
  std::uint64_t payload_bytes = 0;     // upper bound
  std::uint64_t changes_at = kNoStep;  // the first later step that uses another codec; kNoStep: none does
};

// A part in the last committed step, as it was encoded here.
struct PartUse {
  std::uint64_t name_hash = 0;  // XXH64, seed 0, of its tensor's name
  std::uint64_t first = 0;
  std::uint64_t elements = 0;
  std::uint64_t payload_bytes = 0;   // one copy, without frame headers
  std::uint64_t residual_bytes = 0;  // includes the copy that an exact revert needs
  std::uint64_t momentum_bytes = 0;  // for momentum and clipping before the codec
};

// How much of a step's input was sent, over the parts that keep a residual: sums of squares over their
// elements, of this rank's values. Input + residual = due; due = sent + left, and `left` is the new residual.
// So sqrt(left / sent) steps' messages wait, and the share sent_of_due / due was sent.
struct FeedbackFlow {
  std::uint64_t step = kNoStep;  // the step that was measured; kNoStep: none was
  std::uint64_t parts = 0;
  double given = 0;  // the input: gradients, or their momentum
  double sent = 0;
  double left = 0;
  double due = 0;
  double sent_of_due = 0;  // the inner product of the sent and the due values
};

// A message that was received, and the parts that it must hold. `pieces`, in order, are the message.
struct ReceivedMessage {
  std::span<const Bytes> pieces;
  MessageLayout layout;
};

// A channel's saved state and its weight: finite, 0 or more.
struct WeightedState {
  Bytes state;
  double weight = 1;
};

// Whole tensors, and parts of them. Values are not read.
struct CutTensors {
  std::span<const Named> tensors;
  std::span<const Named> parts;  // none overlaps another
};

// Conservation (tested): for every part, the input of encode = the decoders' output + the residual, up to
// rounding, through any series of commits and folding reverts.
// Thread rule: one thread at a time.
class DELTAWIRE_API Channel {
 public:
  virtual ~Channel() = default;

  // Canonical: every codec with all its parameters, e.g. "conv*: sbc:p=0.01,residual=on, rest fp32".
  virtual const std::string& spec() const noexcept = 0;

  // The codec of a part in a step. Values are not read.
  virtual const Codec& codec_of(const Named& part, std::uint64_t step) const noexcept = 0;

  // How a part, raw or not, is coded in a step. Values are not read.
  virtual PartPlan plan(const Named& part, std::uint64_t step) const = 0;

  // All parts of the last committed step, in the order of encoding; empty after load. Valid until
  // the next encode.
  virtual std::span<const PartUse> last_step() const noexcept = 0;

  // That of the latest committed step which was measured: with `measure_flow` steps 15, 79, 143 and so on.
  // Parts of more than 2^22 elements, or on a device, do not count.
  virtual FeedbackFlow flow() const noexcept = 0;

  // Whether any of its codecs has the property, e.g. any(&CodecInfo::significance).
  virtual bool any(bool CodecInfo::* property) const noexcept = 0;

  // Whether encode accepts a part in key-value form: reverts are exact, and either its codec supports the
  // form and keeps no residual, or the part is small enough to be sent raw.
  virtual bool takes_pairs(const Named& part, std::uint64_t step) const noexcept = 0;

  // Upper bound in bytes for the message that encode makes of these parts in this step (values are not read).
  virtual std::uint64_t message_bound(const MessageLayout& message, std::uint64_t step) const = 0;

  // Encodes the parts (values are only read) as one message of id.step's transaction, which the first message
  // opens, and updates their residuals. A part that has a residual and is all zeros is not sent: the receiver
  // gets zeros, and the residual stays as it is, bit for bit. Callers that pass zeros for a parameter that no
  // rank used in the step must discard the result; for a gradient that is really zero, the residual merely
  // waits a step longer. The pieces, in order, are the message; they stay valid until release, commit or
  // revert. `room` is for messages that will be released: the least size in bytes of their memory, so that
  // one message's memory fits another; 0: the message is kept. Parts without elements take no bytes. Errors:
  // those of Codec::encode (the message names the part), kState (another step's transaction is open), kLimit
  // (2^32 elements or more in a tensor), kInvalidArgument (an invalid scale, a part that is listed twice or
  // overlaps another of its tensor), kRange (a residual too large for the scale); after an error the step
  // must be reverted.
  virtual Result<std::span<const Bytes>> encode(const MessageLayout& message, const MessageId& id,
                                                std::uint64_t room) = 0;
  Result<std::span<const Bytes>> encode(const MessageLayout& message, const MessageId& id) {
    return encode(message, id, 0);
  }

  // Whether the message's payload is its parts' values as they lie in memory: float32 that no codec changes,
  // of which nothing waits and nothing is kept. Values are not read.
  virtual bool sends_values(const MessageLayout& message, std::uint64_t step) const noexcept = 0;

  // As encode, without a copy of what need not be one: where the message sends_values, its pieces may be the
  // parts' own memory, which must then stay as it is until they are released. decode() doesn't take such
  // pieces, since a frame's payload may be several of them; joined they are encode's message.
  virtual Result<std::span<const Bytes>> encode_in_place(const MessageLayout& message, const MessageId& id,
                                                         std::uint64_t room) = 0;

  // In place of an encode, where the message sends_values and they get to their readers without one: the step
  // has sent its parts. Returns the bytes that the message would have had. Errors: those of encode.
  virtual Result<std::uint64_t> lend(const MessageLayout& message, const MessageId& id) = 0;

  // Encodes a message into memory of the caller's, message_bound() bytes or more, and returns its length. The
  // same bytes; parts whose codec has separate chunks go there chunk by chunk, and take no other memory,
  // where nothing of them waits and reverts are exact. Errors: as above, after which `out` is unspecified;
  // kOutputTooSmall, and kInvalidArgument for parts in that memory, by which nothing has begun.
  virtual Result<std::uint64_t> encode_to(const MessageLayout& message, const MessageId& id,
                                          MutBytes out) = 0;

  // Encodes several messages, which differ only in their parts, and appends the pieces of each: together if a
  // device codes, which costs it as much as one message; otherwise one after another. Errors as above.
  virtual Status encode_all(std::span<const MessageLayout> messages, const MessageId& id, std::uint64_t room,
                            std::vector<std::span<const Bytes>>& encoded);

  // The caller has finished reading these pieces of an encode with `room`: their memory is reused for the
  // next message, unless the channel itself may need them (to fold, or for mask_sent).
  virtual void release(std::span<const Bytes> pieces) noexcept = 0;

  // For a message of a step that may be reverted before the message is encoded. With Revert::kFold, `prepare`
  // allocates the parts' residuals; `keep`, which allocates nothing, then adds the parts to the open step as
  // if encode had failed for them, so the revert leaves their input in their residuals. With Revert::kExact
  // neither does anything. Errors of prepare: kMismatch for a residual with another count.
  virtual Status prepare(const MessageLayout& message, std::uint64_t step) = 0;
  virtual void keep(const MessageLayout& message, const MessageId& id) noexcept = 0;

  // Decodes a message that must hold exactly these parts and come from `expected`. On error the slots are
  // unspecified. Uses no state but this channel's scratch. Errors: those of the frame, of Codec::decode,
  // kMismatch naming the field that differs, and kInvalidArgument for slots that share memory, with one
  // another or the message. The pieces, in order, are the message: encode's pieces, or one piece.
  virtual Status decode(std::span<const Bytes> pieces, const MessageLayout& parts, const MessageId& expected,
                        Into into, float scale) = 0;
  Status decode(Bytes message, const MessageLayout& parts, const MessageId& expected, Into into,
                float scale) {
    return decode(std::span(&message, 1), parts, expected, into, scale);
  }

  // As decode, of several messages of one sender, which differ only in their parts; together if a device
  // codes. An error that it finds later in a part is that of the bucket's means.
  virtual Status decode_all(std::span<const ReceivedMessage> messages, const MessageId& expected, Into into,
                            float scale);

  // As decode, into key-value form: `parts` gives the expected dimensions (in either form; its memory is not
  // touched), and means[i] gets part i's non-zero elements times `scale`, reusing its vectors' memory.
  virtual Status decode_pairs(std::span<const Bytes> pieces, const MessageLayout& parts,
                              const MessageId& expected, float scale, std::span<Pairs> means) = 0;
  Status decode_pairs(Bytes message, const MessageLayout& parts, const MessageId& expected, float scale,
                      std::span<Pairs> means) {
    return decode_pairs(std::span(&message, 1), parts, expected, scale, means);
  }

  // Momentum masking (Lin et al., "Deep Gradient Compression", section 3; SBC, supplement A): sets
  // momentum[i] to 0 where the part's element i was sent in the last committed step, so that stale momentum
  // does not keep moving a weight whose update was already sent. Does nothing for codecs that are not sparse
  // (info().sparse): they send everything. Errors: kInvalidArgument for a part with another count,
  // kState when the part was not in that step or a step is open.
  virtual Status mask_sent(std::string_view name, std::uint64_t first, std::span<float> momentum) const = 0;

  // Ends the open transaction, if any: keeps the new residuals, or takes them back as Revert says.
  virtual void commit() noexcept = 0;
  virtual void revert() noexcept = 0;

  // The residual of a part; empty where there is none, NaN where a device did not give it. Valid until the
  // next call.
  virtual std::span<const float> residual(std::string_view name, std::uint64_t first) const = 0;

  // Saves all residuals as bytes (docs/reference/format.md, "Channel state"), and loads them. kState while a
  // transaction is open; load replaces everything or, on error (kTruncated, kCorrupt, kUnsupportedVersion,
  // kMismatch for another codec's state), nothing.
  virtual Result<std::vector<std::byte>> save() const = 0;
  virtual Status load(Bytes state) = 0;

  // For a job that continues with another number of ranks: replaces all residuals by those of
  // `wanted.parts`, each the weighted sum of the states' residuals of its elements, and momentum before the
  // codec likewise. Sums are formed in double and rounded once. A part without a residual in any state gets
  // none. Errors, which change nothing: those of load; kMismatch if a state has a tensor that is not in
  // `wanted.tensors`, or elements beyond its end; kRange if a sum is not finite.
  virtual Status load_weighted(std::span<const WeightedState> states, const CutTensors& wanted) = 0;
};

// `codecs` is a codec spec for all parts, or rules, of which the first that matches a part applies:
//
//   conv*: 3lc:s=1.5, fc? elements>=100000 step>=500: sbc:p=1%, rest fp32
//
// A rule has a pattern of the tensor's whole name (* stands for any characters, ? for one), comparisons of
// its elements or dims or of the step with a number (<, <=, =, >=, >), or both, separated by spaces; then
// ": " and a codec spec. The last rule is "rest" and a codec spec. For a tensor that is cut into parts, the
// whole tensor is matched. When a part's codec changes between steps, its residual is kept and added to the
// next input; a codec without error feedback then loses as much of it as of any input. All ranks must have
// the same rules; Policy::min_elements takes precedence over them. Errors: those of make_codec;
// kInvalidArgument for an invalid rule, or options that contradict each other.
DELTAWIRE_API Result<std::unique_ptr<Channel>> make_channel(std::string_view codecs,
                                                            const ChannelOptions& options = {});

}  // namespace deltawire
