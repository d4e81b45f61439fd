// The planner: how long a training step takes with each codec on a given link, which one is worth it, and
// whether any is. It computes from figures that somebody has measured: no clock, no file, no socket, no
// randomness, so the same figures give the same answer everywhere.
//
// The model, its assumptions and how far it is off: docs/guides/planner.md. Units are seconds, bytes, and
// values (elements of a tensor).
//
// Thread rule: all functions are pure; any thread may call any of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/export.h"
#include "deltawire/result.h"

namespace deltawire {

// What a rank's connection to all the others carries, in each direction at once.
struct Link {
  double up_bytes_per_second = 0;    // that a rank sends
  double down_bytes_per_second = 0;  // that it receives
  double latency_seconds = 0;        // one way
};

// What a rank computes with. The defaults of the last two are estimates, a little above what this library's
// transport takes over TCP on an AMD EPYC (docs/design/patterns.md, "How bytes move"); Gloo's, in plain, are
// taken to be the same.
struct Machine {
  double cores = 2;               // that a rank has for itself; 0.5: four ranks on two
  int coding_threads = 1;         // ReducerOptions::threads
  double message_seconds = 2e-5;  // processor time of sending a message and of receiving it, each
  double byte_seconds = 2e-10;    // of moving a byte out, and of moving one in
};

struct PlanTensor {
  std::string name;  // decides who owns the tensor, where it is too small to be cut
  std::uint64_t elements = 0;
};

// What is exchanged at once, as DDP's buckets are.
struct PlanBucket {
  std::vector<PlanTensor> tensors;
  double ready_seconds = 0;  // when backward has made its gradients, from the step's start
  int value_bytes = 4;       // of a gradient's value, as the native all-reduce sends it: 2 of 16 bits
};

// A training step: its buckets in the order in which they are exchanged, which is the order of readiness.
struct DELTAWIRE_API Workload {
  std::vector<PlanBucket> buckets;
  double compute_seconds = 0;  // forward and backward, without any exchange

  std::uint64_t elements() const noexcept;
};

// How much a codec may lose. Ordered: each allows what those before it allow.
enum class Tier : std::uint8_t {
  kLossless,      // every bit comes back
  kNearLossless,  // rounding that training does not notice: see tier_of
  kLossy,         // anything; error feedback sends the rest later
};

// kNearLossless is a relative L2 error of one message, without error feedback, of at most this: what formats
// with eight bits of mantissa can reach (bfloat16: 0.0017).
inline constexpr double kNearLosslessError = 1.0 / 256;

DELTAWIRE_API Tier tier_of(bool lossless, double relative_l2) noexcept;
DELTAWIRE_API std::string_view tier_name(Tier tier) noexcept;                 // "near-lossless"
DELTAWIRE_API std::optional<Tier> find_tier(std::string_view name) noexcept;  // by that name

// Who sends what to whom (docs/design/patterns.md). `powersgd` is not modelled.
enum class Pattern : std::uint8_t { kDirect, kRing, kGather };
DELTAWIRE_API std::string_view pattern_name(Pattern pattern) noexcept;
DELTAWIRE_API std::optional<Pattern> find_pattern(std::string_view name) noexcept;

// Processor time of one thread for one message: a constant, and a time for each value.
struct CodingTime {
  double message_seconds = 0;
  double value_seconds = 0;

  double of(double values) const noexcept { return message_seconds + value_seconds * values; }
};

// A codec as it was measured on gradients like those that will be exchanged.
struct CodecFigures {
  std::string spec;
  Pattern pattern = Pattern::kDirect;
  Tier tier = Tier::kLossy;
  double bits_per_value = 32;  // of whole messages, frames included
  CodingTime encode;           // error feedback and checksums included
  CodingTime decode;           // adding up included
  bool shares_parts = false;   // several threads work on one part (gcomp), not only on several parts
};

// Where the step takes place.
struct Site {
  int ranks = 0;  // 2 and more, alike
  Link link;
  Machine machine;
};

// A step, as seen by the rank that owns most: the others are no later.
struct Prediction {
  double step_seconds = 0;
  double exposed_seconds = 0;  // of it, after the computation: what the exchange costs
  double wire_seconds = 0;     // that the busier direction of the link is busy
  double coding_seconds = 0;   // processor time of encoding and decoding, all threads together
  double bytes_sent = 0;
};

// The step with the codec. Errors: kInvalidArgument, which names what is out of its range.
DELTAWIRE_API Result<Prediction> predict(const Workload& workload, const Site& site,
                                         const CodecFigures& figures);

// The step with a codec of its own for each bucket: `of_bucket` has an index of `codecs` for each. Buckets
// share rounds, so all that are chosen have one pattern. Errors: those of predict, and kInvalidArgument for
// choices that don't fit the buckets.
DELTAWIRE_API Result<Prediction> predict_by_bucket(const Workload& workload, const Site& site,
                                                   const std::vector<CodecFigures>& codecs,
                                                   const std::vector<std::size_t>& of_bucket);

// The step without this library: a native ring all-reduce of gradients as they are, a bucket
// after the other.
DELTAWIRE_API Result<Prediction> predict_plain(const Workload& workload, const Site& site);

// The bandwidth up to which a codec pays, that is, saves `least_gain` of plain's step: the site stays the
// same, the link's two rates are multiplied.
struct BreakEven {
  enum class Kind : std::uint8_t {
    kNever,   // not on the slowest link, where nothing but bytes counts
    kAt,      // below `up_bytes_per_second`, no longer at it
    kAlways,  // on every link
  };
  Kind kind = Kind::kNever;
  double up_bytes_per_second = 0;
};

inline constexpr double kSlowestLink = 1e3;  // bytes a second, up: the range that break-even is looked for in
inline constexpr double kFastestLink = 1e12;

// By bisection over predict and predict_plain: the lowest bandwidth at which it stops paying. (Far above it
// a codec may pay again: `direct` and `gather` have fewer hops than a ring, and so fewer latencies.)
// `least_gain`: 0 to 1, and less than 1; 0: being faster is enough. Errors: those of predict.
DELTAWIRE_API Result<BreakEven> break_even(const Workload& workload, const Site& site,
                                           const CodecFigures& figures, double least_gain = 0);

struct PlanOptions {
  Tier tier = Tier::kNearLossless;  // what may be chosen
  double least_gain = 0.03;         // plain is left alone for less: share of plain's step that must be saved
};

struct PlanRow {
  CodecFigures figures;
  Prediction prediction;
  double times_faster = 0;  // plain's step by this one's
  BreakEven break_even;     // with PlanOptions::least_gain
  bool allowed = false;     // by the tier
};

struct Plan {
  Prediction plain;
  std::vector<PlanRow> rows;          // as they were given
  std::optional<std::size_t> chosen;  // none: do not compress
  std::string reason;                 // in one line: what, why, and what it saves
};

// The codec with the shortest step among those that the tier allows. Among codecs that pay and whose steps
// are within 5 % of it, which predictions can't distinguish, the one that loses least, then the one that
// sends least. None if the fastest saves less than least_gain.
DELTAWIRE_API Result<Plan> make_plan(const Workload& workload, const Site& site,
                                     const std::vector<CodecFigures>& codecs,
                                     const PlanOptions& options = {});

// A codec for each bucket.
struct Mix {
  std::vector<std::size_t> of_bucket;  // indices of the codecs that were given
  Prediction prediction;
};

// Where a codec for each bucket is predicted to be faster than the fastest one for all, by more than the 1 %
// that no prediction tells apart: that choice; else none. It may name codecs that a plan would not choose for
// all, such as fp32 for buckets that backward hides. A local search from the fastest of each pattern, over
// runs of neighbouring buckets, that only takes what is faster; so never slower than one for all. Errors:
// those of predict.
DELTAWIRE_API Result<std::optional<Mix>> make_mix(const Workload& workload, const Site& site,
                                                  const std::vector<CodecFigures>& codecs,
                                                  Tier tier = Tier::kNearLossless);

// What DDP makes of a model's parameters, in the order of the model: buckets in reverse order, the first
// closed at 1 MiB and the others at `bucket_bytes`, as torch's Reducer does. Without anything else known,
// forward takes a third of the computation, and backward the same time for each tensor.
DELTAWIRE_API Workload ddp_workload(const std::vector<PlanTensor>& model, double compute_seconds,
                                    std::uint64_t bucket_bytes = std::uint64_t{25} << 20);

}  // namespace deltawire
