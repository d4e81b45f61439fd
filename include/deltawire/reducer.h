// Reducers: exchange patterns. They compute the mean of named tensors over all ranks, bit-equal on every
// rank, or return an Error and leave the tensors untouched. Everything that trains is built on them.
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
#include "deltawire/part_backend.h"
#include "deltawire/policy.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "deltawire/transport.h"

namespace deltawire {

// A bucket's place in training. All ranks go through the same steps and buckets in the same order.
struct Step {
  std::uint64_t number = 0;  // grows by one with each step
  std::uint32_t bucket = 0;  // 0 ... 65,535 within the step
  bool last = true;          // in the step: finishing it is the vote that commits the step on every rank

  // The factor by which the tensors are scaled, e.g. GradScaler's loss scale: finite, above 0, equal on all
  // ranks (or kMismatch, which names it). Residuals are rescaled when it changes (MessageId::scale); means
  // have the scale, too.
  float scale = 1.0F;

  // A digest of what must be equal on all ranks besides the means, e.g. of the weights that the means are
  // added to; 0: nothing. The vote compares the last bucket's: if ranks differ, the step is not committed
  // on any rank (kMismatch).
  std::uint64_t agreed = 0;

  bool timed = false;  // fill in Report::spans
};

// A span of time that the communication thread spent on a bucket.
struct PhaseSpan {
  enum class Phase : std::uint8_t { kEncode, kExchange, kDecode };
  Phase phase = Phase::kEncode;
  Clock::time_point begin;
  Clock::time_point end;
};

// What one bucket cost on this rank. Wall-clock seconds.
struct Report {
  // The most spans that a report has; later ones only count in the sums.
  static constexpr std::size_t kSpansMax = 1024;

  double encode_seconds = 0;
  double exchange_seconds = 0;  // waiting for others
  double decode_seconds = 0;
  std::uint64_t bytes_sent = 0;  // messages, every copy counted; without transport headers
  std::uint64_t raw_bytes = 0;   // the same messages uncompressed: the bytes of every element, keys or not
  std::uint64_t element_count = 0;
  std::uint64_t digest = 0;  // of the step's means so far; equal on all ranks after the last bucket
  std::uint64_t last_committed_step = kNoStep;  // the last step that counts on every rank; may be this one

  // Whether the step's means so far are finite; checked with NonFinite::kPass only. Equal on all ranks. If it
  // is false after the last bucket, the means are still returned, with NaN where a rank's values were not
  // finite, so that the caller can drop the step; all residuals are as they were before it, bit for bit.
  bool finite = true;

  // Of this rank's gradients, in the latest measured step (Channel::flow); only with the last bucket of a
  // step.
  FeedbackFlow flow;

  // With Step::timed: the spans that the three sums above consist of, in the order of their ends.
  std::vector<PhaseSpan> spans;
};

// Tensors that are exchanged together; a list of dense tensors converts to it.
struct Bucket {
  Bucket() = default;
  template <std::convertible_to<std::span<const Named>> Tensors>
  Bucket(const Tensors& list, std::span<Pairs> means = {})  // NOLINT(google-explicit-constructor)
      : tensors(list), pair_means(means) {}

  std::span<const Named> tensors;

  // One for each tensor in key-value form, in their order: finish replaces its content by the mean. `gather`
  // gives all keys that any rank sent, `direct` those of them that the codec keeps.
  std::span<Pairs> pair_means;
};

// Bytes that a reducer holds besides the caller's tensors, counted as memory is allocated and freed.
struct Memory {
  std::uint64_t residual_bytes = 0;  // residuals, and the copies that an exact revert needs
  std::uint64_t staging_bytes = 0;   // for means and received messages; in use or kept for reuse
  std::uint64_t message_bytes = 0;   // encoded by this rank; kept until the step ends
  std::uint64_t peak_bytes = 0;      // the largest sum of all three so far
};

// How a reducer sends a tensor, and what that cost on this rank in the last committed step: 0 before the
// first, after load, and if the tensor was not in it. The parts of a cut tensor are added up.
struct TensorUse {
  PartPlan plan;                 // for the whole tensor; parts below Policy::min_elements are still sent raw
  bool takes_pairs = false;      // begin accepts it in key-value form, too
  std::string next_codec;        // from step plan.changes_at on; empty if the codec does not change
  std::uint64_t bytes_sent = 0;  // without headers, every copy counted; means that a ring only forwards are
                                 // not included
  std::uint64_t raw_bytes = 0;   // the same uncompressed: dtype_bytes() per element
  std::uint64_t residual_bytes = 0;
  std::uint64_t momentum_bytes = 0;

  // The L2 norm of its residuals: of this rank's gradients and of the means that it owns, together. NaN if
  // a device did not give them.
  double residual_norm = 0;
};

struct ReducerOptions {
  Policy policy;

  // What happens to a failed step's input, on every surviving rank. By default the step never happened, and
  // the caller gives its tensors again. kFold is refused (kInvalidArgument) where it is impossible: by
  // `ring` and `hierarchical`, whose messages are sums with other ranks' gradients; with NonFinite::kPass,
  // which must be able to revert a step to the last bit; and by begin, for tensors in key-value form. The
  // owner's side of `direct` always reverts exactly: what it sends is no caller's input.
  Revert revert = Revert::kExact;

  // Threads that encode and decode a message, the calling one included: 1 to 64 of this reducer's own, or 0:
  // those of the process (Workers::of_process). The bytes are the same for any number. Parts are encoded in
  // parallel; if one part is larger than a thread's share of the message, `3lc` divides its chunks among the
  // threads. Messages of 131,072 elements and more are decoded in runs of chunks.
  int threads = 0;

  // Seeds the random numbers of codecs, together with step, rank and part; it may differ between ranks.
  std::uint64_t seed = 0;

  // Whether Report::flow is measured, in one step of 64, which allocates and frees memory for it.
  bool measure_flow = false;

  // Codes the tensors, whose values are then in its memory; null: the CPU does. On all ranks or on none.
  // kInvalidArgument with kFold, with patterns other than `direct`, `ring` and `gather`, and with codecs
  // `with` momentum, clip or the like; begin refuses tensors in key-value form.
  std::shared_ptr<PartBackend> backend = nullptr;
};

// The saved states of all ranks of a job, for a rank of the job that continues it with another number of
// ranks.
struct SavedRanks {
  std::span<const Bytes> states;   // Reducer::save() of every rank after the same step, in the order of ranks
  std::span<const Named> tensors;  // all dense tensors that the job exchanges, whole; values are not read
  int world = 1;                   // the new number of ranks
  int rank = 0;

  // For a job that goes on without some of its ranks, and perhaps with new ones: for each new rank its old
  // rank, ascending, or -1 if it is new. Empty: no rank is known to be the same, and all states are given.
  // Otherwise states of ranks that don't go on may be empty, and of ranks other than this one shared_state()
  // is enough.
  std::span<const int> continued = {};
};

// The part of a rank's saved state that the others need, for SavedRanks::continued: the residuals of the
// means that it owns, so an N-th of the tensors in `direct` and `ring`, and nothing in `gather`; the whole
// state in `powersgd` and `hierarchical`. Errors: kTruncated, kCorrupt.
DELTAWIRE_API Result<std::vector<std::byte>> shared_state(Bytes state);

// Thread rule: one thread at a time.
//
// Failure rule: when begin or finish returns an error, the step's residuals have been reverted on this rank
// and on every other surviving rank, the transport aborted (so every rank fails, by the deadline at the
// latest, and names the suspect), and the tensors of buckets not yet finished are untouched.
// Error::last_committed_step is the last step that counts, the same on every surviving rank;
// docs/design/commit.md has the rule and its limits. A step whose finish returned its Report counts; a later
// failure is an error of the next step. The reducer may continue with a new transport. With Revert::kExact
// the residuals then contain no input of the step: give all its buckets again. With kFold they contain the
// input of every bucket that was begun, and of no other: don't give those buckets again.
class DELTAWIRE_API Reducer {
 public:
  virtual ~Reducer() = default;

  // Canonical spec, e.g. "direct(3lc:s=1.75,mode=auto,runs=on)".
  virtual std::string spec() const = 0;

  // Starts one bucket: encodes, posts sends and receives. Names and dims are copied; the parts of a tensor
  // that is cut between owners or messages don't have its dims. The tensors' memory, and pair_means, must
  // stay valid, and nobody may read or write them, until its finish. Several buckets may be in flight.
  //
  // Tensors are float32, bfloat16 or float16; dtypes may differ within a bucket, but not between ranks. Sums,
  // residuals and digests are in float32; only the mean that finish returns is rounded, once, to nearest
  // even. A finite mean beyond the largest value of its dtype is kRange; with NonFinite::kPass the step then
  // counts as not finite.
  //
  // Tensors in key-value form are summed key by key, in rank order, by `direct` and `gather` with codecs that
  // support the form (CodecInfo::key_value); otherwise kInvalidArgument. They have no residual: the caller
  // gives a failed step's update again, and a codec that keeps a residual is kInvalidArgument.
  // NonFinite::kPass does not apply to them: the form can't express that every element is NaN.
  virtual Status begin(const Bucket& bucket, const Step& step, Transport& transport, Deadline deadline) = 0;

  // Completes the oldest bucket in flight: its tensors, or pair_means, then hold the mean. With step.last,
  // the ranks have also compared their digests, and the step is committed. kState if none is in flight;
  // kMismatch if replicas differ (names the ranks).
  virtual Result<Report> finish() = 0;

  // How each of the tensors, given as to begin (values are not read), is sent in `step`. May be called before
  // the first bucket.
  virtual std::vector<TensorUse> explain(std::span<const Named> tensors, std::uint64_t step) const = 0;

  // docs/design/memory.md says how large it gets. Any thread may call it.
  virtual Memory memory() const noexcept = 0;

  // Channel::mask_sent for a whole tensor, after its step has been committed. kInvalidArgument for patterns
  // in which a rank sends sums (`ring`, `hierarchical`) or matrix factors (`powersgd`), not its own elements.
  virtual Status mask_sent(std::string_view name, std::span<float> momentum) const = 0;

  // Saves and loads the residuals of all channels (see Channel::save). kState while a step is open.
  virtual Result<std::vector<std::byte>> save() const = 0;
  virtual Status load(Bytes state) = 0;

  // Replaces load when N ranks have saved and M load. The sum of all residuals, in units of the mean, stays
  // the same, up to one float32 rounding for each residual:
  // - A rank's residual of its own gradients counts 1/N in the mean of N ranks, and 1/M in that of M. Rank j
  //   of M gets the mean of the residuals of the old ranks that cover its interval of all ranks, [j/M,
  //   (j+1)/M): of two ranks if M is N/2, a copy of one if M is 2N. Momentum before the codec likewise.
  // - Owners' residuals of means move, unchanged, with their elements to the new owners.
  // - Residuals of partial sums on a rank of `ring`, which are in units of the mean, are distributed: rank j
  //   gets those that its interval covers; in its own partition they become residuals of the mean.
  // - Residuals of groups' sums in `hierarchical`, in that unit, too, move to the owners of the means.
  // - `powersgd`: residuals as those of a rank's own gradients; the matrices Q for the next step unchanged.
  // With SavedRanks::continued a rank that goes on keeps its own residuals instead (of its gradients times
  // M/N), and a new one begins without. The residuals of ranks that don't go on are lost, including those of
  // the means that they owned. If M is N, the effect is that of load, bit for bit. Errors: those of load;
  // kMismatch if the states aren't those of all ranks in order, or have other tensors; kRange if a sum
  // overflows.
  virtual Status load_resized(const SavedRanks& saved) = 0;

  // begin and finish at once.
  Result<Report> all_reduce(const Bucket& bucket, const Step& step, Transport& transport, Deadline deadline) {
    if (Status begun = begin(bucket, step, transport, deadline); !begun) return forward_error(begun);
    return finish();
  }
};

// Makes a reducer from "pattern(codecs)" or "codecs" alone (their default pattern); codecs as make_channel
// takes them: a codec spec, or rules such as "direct(conv*: 3lc, rest fp32)". The pattern "powersgd:rank=4"
// may be given without a codec, which is then "fp32"; it takes codecs without error feedback.
// "hierarchical:group=8,within=bf16(3lc)": 8 ranks in a row are a group, within which gradients travel as
// bf16 (without `within`: fp32), and sums between groups as 3lc. Errors: those of make_channel;
// kInvalidArgument for an unknown pattern (lists the known ones), rules whose codecs have different default
// patterns, a codec that amplifies its input (Codec::gain) in a ring, or a number of threads out of range.
DELTAWIRE_API Result<std::unique_ptr<Reducer>> make_reducer(std::string_view spec,
                                                            const ReducerOptions& options = {});

// What must be equal on all ranks, as a text for MeshOptions::settings: the canonical spec and the options
// except threads and seed. Errors: those of make_reducer.
DELTAWIRE_API Result<std::string> agreed_settings(std::string_view spec, const ReducerOptions& options = {});

}  // namespace deltawire
