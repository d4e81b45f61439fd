// Reducers: exchange patterns. What every door holds: the mean of named tensors over all ranks, bit-equal
// on every rank, or an Error and the tensors untouched.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/export.h"
#include "deltawire/policy.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "deltawire/transport.h"

namespace deltawire {

// Where in training a bucket stands. All ranks go through the same steps and buckets in the same order.
struct Step {
  std::uint64_t number = 0;  // grows by one a step
  std::uint32_t bucket = 0;  // 0 ... 65,535 within the step
  bool last = true;          // of the step: finishing it is the vote that commits the step on every rank

  // The factor by which the tensors are scaled, e.g. GradScaler's loss scale: finite, above 0, equal on all
  // ranks (kMismatch names it). Residuals follow from step to step (MessageId::scale); means have the scale
  // too.
  float scale = 1.0F;

  // A digest of what must be equal on all ranks besides the means, e.g. of the weights that the means are
  // added to; 0: nothing. The vote compares the last bucket's: where ranks differ, the step counts nowhere
  // (kMismatch).
  std::uint64_t agreed = 0;

  bool timed = false;  // its reports say when what was done, in Report::spans
};

// A stretch of the communication thread's time that went to a bucket.
struct PhaseSpan {
  enum class Phase : std::uint8_t { kEncode, kExchange, kDecode };
  Phase phase = Phase::kEncode;
  Clock::time_point begin;
  Clock::time_point end;
};

// What one bucket cost on this rank. Wall-clock seconds.
struct Report {
  // Spans that one may have; what comes later is in the sums alone.
  static constexpr std::size_t kSpansMax = 1024;

  double encode_seconds = 0;
  double exchange_seconds = 0;  // waiting for others
  double decode_seconds = 0;
  std::uint64_t bytes_sent = 0;  // messages, every copy counted; transport headers not
  std::uint64_t raw_bytes = 0;   // of the same messages bare: an element's bytes each, keys or not
  std::uint64_t element_count = 0;
  std::uint64_t digest = 0;  // of the step's means so far; after the last bucket equal on all ranks
  std::uint64_t last_committed_step = kNoStep;  // the last step that counts on every rank, perhaps this one

  // Whether the step's means so far are; looked for with NonFinite::kPass alone. Equal on all ranks. When it
  // is false after the last bucket, the means are handed over all the same, NaN where a rank's values were
  // not finite, for the caller to drop the step; and all residuals are what they were before it, bit for bit.
  bool finite = true;

  // With Step::timed: what the three sums above are made of, in the order of their ends.
  std::vector<PhaseSpan> spans;
};

// What a step hands over at once; a list of dense tensors will do in its place.
struct Bucket {
  Bucket() = default;
  template <std::convertible_to<std::span<const Named>> Tensors>
  Bucket(const Tensors& list, std::span<Pairs> means = {})  // NOLINT(google-explicit-constructor)
      : tensors(list), pair_means(means) {}

  std::span<const Named> tensors;

  // One for each tensor in key-value form, in their order: where finish puts its mean, replacing
  // the content. `gather`: all keys that any rank sent; `direct`: those that the codec keeps of them.
  std::span<Pairs> pair_means;
};

// Bytes that a reducer holds besides the caller's tensors, counted where memory is allocated and freed.
struct Memory {
  std::uint64_t residual_bytes = 0;  // what waits for later steps, and the copies that an exact revert needs
  std::uint64_t staging_bytes = 0;   // where means are formed and messages come in; in use or kept for reuse
  std::uint64_t message_bytes = 0;   // encoded by this rank: kept until the step ends
  std::uint64_t peak_bytes = 0;      // the most of all three together, ever
};

// What a reducer does with a tensor, and what that took on this rank in the step that was committed last: 0
// before the first, after load, and where the tensor was not in it. A tensor that is cut counts whole.
struct TensorUse {
  PartPlan plan;                 // of the whole. Parts of it below Policy::min_elements travel raw, though
  bool takes_pairs = false;      // begin takes it in key-value form, too
  std::string next_codec;        // from step plan.changes_at on; empty where none follows
  std::uint64_t bytes_sent = 0;  // without heads, every copy counted; a ring's means of others, which it
                                 // passes on as they came, are not in it
  std::uint64_t raw_bytes = 0;   // of the same bare: dtype_bytes() an element
  std::uint64_t residual_bytes = 0;
  std::uint64_t momentum_bytes = 0;

  // The L2 norm of what waits for later steps: of this rank's values and of means that it owns, together.
  double residual_norm = 0;
};

struct ReducerOptions {
  Policy policy;

  // What becomes of a failed step's input, on every rank that lives. By default the step never happened, and
  // its tensors are the caller's to give again. kFold is refused (kInvalidArgument) where it can't be true:
  // by `ring`, whose messages are partial sums with other ranks' gradients; with NonFinite::kPass, which must
  // be able to take a step back to the last bit; and by begin, for tensors in key-value form. The owner's
  // side of `direct` reverts exactly in either: what it sends is nobody's input.
  Revert revert = Revert::kExact;

  // Threads that code a message, the calling one included: 1 to 64 of this reducer's own, or 0: those of the
  // process (Workers::of_process). The bytes are the same for any number. Parts are encoded side by side,
  // where none has more than a thread's share of the message; of a part that has `3lc` shares the chunks out.
  // Messages of 131,072 elements and more are decoded in runs of chunks.
  int threads = 0;

  // Seeds the random numbers of codecs, together with step, rank and part; other ranks don't need it.
  std::uint64_t seed = 0;
};

// What all ranks of a job have saved, for a rank of a job that continues with another number of ranks.
struct SavedRanks {
  std::span<const Bytes> states;   // Reducer::save() of every rank after the same step, in the order of ranks
  std::span<const Named> tensors;  // all dense tensors that the job exchanges, whole; values are not read
  int world = 1;                   // from now on
  int rank = 0;
};

// Thread rule: one thread at a time.
//
// Failure rule: when begin or finish returns an error, the step's residuals have been reverted on this rank
// and on every other that lives, the transport aborted (so every rank fails, by the deadline at the latest,
// and names the suspect), and the tensors of buckets not yet finished are untouched.
// Error::last_committed_step is the last step that counts, the same on every rank that lives;
// docs/design/commit.md has the rule and its limits. A step whose finish returned its Report counts, and a
// failure after that is an error of the next one. The reducer may continue with a new transport. With
// Revert::kExact the residuals then have the input of no bucket of the step: give all of them again. With
// kFold they have that of every bucket that was begun, and of no other: give none of those again.
class DELTAWIRE_API Reducer {
 public:
  virtual ~Reducer() = default;

  // Canonical spec, e.g. "direct(3lc:s=1.75,mode=auto,runs=on)".
  virtual std::string spec() const = 0;

  // Starts one bucket: encodes, posts sends and receives. Names and dims are copied; a tensor that is cut
  // between owners or messages gives parts without its dims. The tensors' memory, and pair_means, must stay,
  // unread and unwritten by others, until its finish. Several buckets may be in flight.
  //
  // Tensors are float32, bfloat16 or float16, which may differ within a bucket, but not between ranks. What
  // is added up, waits or is voted on is float32; only what finish hands over is rounded, once, to nearest
  // even. A finite mean beyond the largest of its dtype is kRange, with NonFinite::kPass a step that is not
  // finite.
  //
  // Tensors in key-value form are summed key by key, in rank order, by `direct` and `gather` with codecs that
  // have the form (CodecInfo::key_value); else kInvalidArgument. They are only read: a failed step's update
  // is the caller's to send again, so there is no residual, and a codec with one is kInvalidArgument.
  // NonFinite::kPass changes nothing for them: keys can't say that all is NaN.
  virtual Status begin(const Bucket& bucket, const Step& step, Transport& transport, Deadline deadline) = 0;

  // Completes the oldest bucket in flight: its tensors, or pair_means, hold the mean. With step.last: every
  // rank has told every other its digest, all are equal, and the step is committed. kState when none is in
  // flight; kMismatch when replicas differ (names the ranks).
  virtual Result<Report> finish() = 0;

  // How each of the tensors, named as for begin (values are not read), is sent with the codec of `step`. Also
  // before the first bucket, when nothing has been sent yet.
  virtual std::vector<TensorUse> explain(std::span<const Named> tensors, std::uint64_t step) const = 0;

  // docs/design/memory.md says what to expect. Any thread may call it.
  virtual Memory memory() const noexcept = 0;

  // Channel::mask_sent for a whole tensor, after its step has been committed. kInvalidArgument for patterns
  // in which what a rank sends is not its own (`ring`), or no elements (`powersgd`).
  virtual Status mask_sent(std::string_view name, std::span<float> momentum) const = 0;

  // Residuals of all channels, and back (see Channel::save). kState while a step is open.
  virtual Result<std::vector<std::byte>> save() const = 0;
  virtual Status load(Bytes state) = 0;

  // In the place of load where N ranks have saved and M load. What the job owes, in the unit of the mean, is
  // the same as before, up to one rounding of float32 for each residual:
  // - What a rank keeps of its own gradients counts 1/N in the mean of N ranks, and 1/M in that of M. Rank j
  //   of M gets the mean of what those have kept who had its share of the ranks, [j/M, (j+1)/M): of two of
  //   them where M is N/2, a copy where M is 2N. So does it with momentum before the codec.
  // - What owners keep of means goes with its elements to their new owners, as it is.
  // - What a rank of `ring` keeps of partial sums, which have the mean's unit, is shared out: rank j gets the
  //   shares that fall on it, what belongs to its own partition as residual of the mean.
  // - `powersgd`: residuals as a rank's own; the matrices Q that the next step begins with, as they are.
  // The states of as many ranks are loaded as by load, bit for bit. Errors: those of load; kMismatch for
  // states that aren't those of all ranks in their order, or of other tensors; kRange where a sum overflows.
  virtual Status load_resized(const SavedRanks& saved) = 0;

  // begin and finish at once.
  Result<Report> all_reduce(const Bucket& bucket, const Step& step, Transport& transport, Deadline deadline) {
    if (Status begun = begin(bucket, step, transport, deadline); !begun) return forward_error(begun);
    return finish();
  }
};

// Makes a reducer from "pattern(codecs)" or "codecs" alone (their default pattern); codecs as make_channel
// takes them: a codec spec, or rules such as "direct(conv*: 3lc, rest fp32)". The pattern "powersgd:rank=4"
// may stand alone, its codec is "fp32" then, and takes codecs without error feedback. Errors: those of
// make_channel; kInvalidArgument for an unknown pattern (lists the known ones), rules whose codecs have
// different default patterns, a codec in a ring that amplifies what it codes (Codec::gain), or a number of
// threads out of range.
DELTAWIRE_API Result<std::unique_ptr<Reducer>> make_reducer(std::string_view spec,
                                                            const ReducerOptions& options = {});

// What all ranks must give alike, as a text for MeshOptions::settings: the canonical spec and the options but
// for threads and seed. Errors: those of make_reducer.
DELTAWIRE_API Result<std::string> agreed_settings(std::string_view spec, const ReducerOptions& options = {});

}  // namespace deltawire
