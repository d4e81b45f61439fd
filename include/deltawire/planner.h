// The planner: how long a training step takes with each codec on a given link, which one is worth it, and
// whether any is. It computes from measured figures and uses no clock, file, socket or random number, so the
// same figures give the same answer everywhere.
//
// docs/guides/planner.md describes the model, its assumptions and its accuracy. Units are seconds, bytes, and
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

// A rank's connection to all the others; both directions work at the same time.
struct LinkRates {
  double up_bytes_per_second = 0;    // sending
  double down_bytes_per_second = 0;  // receiving
  double latency_seconds = 0;        // one way
};

// A rank's processors. The defaults of the last two are estimates, slightly above what this library's
// transport needs over TCP on an AMD EPYC (docs/design/patterns.md, "How bytes move"); Gloo, which the plain
// exchange uses, is assumed to need the same.
struct Machine {
  double cores = 2;               // per rank; 0.5: four ranks share two
  int coding_threads = 1;         // ReducerOptions::threads
  double message_seconds = 2e-5;  // processor time to send a message, and the same to receive it
  double byte_seconds = 2e-10;    // processor time to send a byte, and the same to receive it
  // Of gradients on a device: seconds to copy a byte to the processors' memory before it is coded, and a
  // mean's byte back. 0: they are in that memory. The native all-reduce takes them where they are.
  double load_byte_seconds = 0;
  double store_byte_seconds = 0;
};

struct PlanTensor {
  std::string name;  // decides which rank owns the tensor if it is too small to be cut
  std::uint64_t elements = 0;
};

// Tensors that are exchanged together, as in DDP's buckets.
struct PlanBucket {
  std::vector<PlanTensor> tensors;
  double ready_seconds = 0;  // when backward has computed its gradients, from the step's start
  int value_bytes = 4;       // per value in the native all-reduce; 2 for 16-bit gradients
};

// A training step: its buckets in the order in which they become ready and are exchanged.
struct DELTAWIRE_API Workload {
  std::vector<PlanBucket> buckets;
  double compute_seconds = 0;  // forward and backward, without any exchange

  std::uint64_t elements() const noexcept;
};

// How much a codec may lose. Ordered: each allows what those before it allow.
enum class Tier : std::uint8_t {
  kLossless,      // every bit is restored
  kNearLossless,  // rounding that training does not notice: see tier_of
  kLossy,         // anything; error feedback sends the rest later
};

// kNearLossless allows a relative L2 error of at most this in one message, without error feedback: formats
// with eight bits of mantissa reach it (bfloat16: 0.0017).
inline constexpr double kNearLosslessError = 1.0 / 256;

DELTAWIRE_API Tier tier_of(bool lossless, double relative_l2) noexcept;
DELTAWIRE_API std::string_view tier_name(Tier tier) noexcept;                 // "near-lossless"
DELTAWIRE_API std::optional<Tier> find_tier(std::string_view name) noexcept;  // by that name

// The exchange patterns (docs/design/patterns.md). `powersgd` and `hierarchical` are not modelled.
enum class Pattern : std::uint8_t { kDirect, kRing, kGather };
DELTAWIRE_API std::string_view pattern_name(Pattern pattern) noexcept;
DELTAWIRE_API std::optional<Pattern> find_pattern(std::string_view name) noexcept;

// One thread's processor time for one message: a constant, plus a time for each value.
struct DELTAWIRE_API CodingTime {
  double message_seconds = 0;
  double value_seconds = 0;

  double of(double values) const noexcept { return message_seconds + value_seconds * values; }

  // The line through a small and a large message, of noisy times less an overhead: no part of it is below 0,
  // and it goes through the large one.
  struct Message {
    double values, seconds;
  };
  static CodingTime through(const Message& small, const Message& large) noexcept;
};

// Measurements of a codec on gradients like those that will be exchanged.
struct CodecFigures {
  std::string spec;
  Pattern pattern = Pattern::kDirect;
  Tier tier = Tier::kLossy;
  double bits_per_value = 32;  // of whole messages, frames included
  CodingTime encode;           // error feedback and checksums included
  CodingTime decode;           // adding up included
  bool shares_parts = false;   // several threads decode one part: CodecInfo::shares_parts()
};

// Where the step takes place.
struct Site {
  int ranks = 0;  // 2 and more, alike
  LinkRates link;
  Machine machine;
};

// A step on the rank that owns most: the others finish no later.
struct Prediction {
  double step_seconds = 0;
  double exposed_seconds = 0;  // the part after the computation: what the exchange costs
  double wire_seconds = 0;     // how long the busier direction of the link is busy
  double coding_seconds = 0;   // processor time of encoding and decoding, all threads together
  double bytes_sent = 0;
};

// Predicts the step with the codec. Errors: kInvalidArgument, which names what is out of range.
DELTAWIRE_API Result<Prediction> predict(const Workload& workload, const Site& site,
                                         const CodecFigures& figures);

// Predicts the step with a codec for each bucket: `of_bucket` has an index into `codecs` for each. Buckets
// share rounds, so all these codecs must have the same pattern. Errors: those of predict, and
// kInvalidArgument for choices that don't fit the buckets.
DELTAWIRE_API Result<Prediction> predict_by_bucket(const Workload& workload, const Site& site,
                                                   const std::vector<CodecFigures>& codecs,
                                                   const std::vector<std::size_t>& of_bucket);

// Predicts the step without this library: a native ring all-reduce of uncompressed gradients, bucket by
// bucket.
DELTAWIRE_API Result<Prediction> predict_plain(const Workload& workload, const Site& site);

// The bandwidth up to which a codec pays, that is, saves `least_gain` of the plain step. Both rates of the
// link are scaled by the same factor; the rest of the site stays the same.
struct BreakEven {
  enum class Kind : std::uint8_t {
    kNever,   // it pays neither here nor on the slowest link, where only bytes matter
    kAt,      // it pays below `up_bytes_per_second`
    kAlways,  // it pays on every link
    kAbove,   // it pays here, and above `up_bytes_per_second`: it saves latency, and sends more bytes
  };
  Kind kind = Kind::kNever;
  double up_bytes_per_second = 0;
};

inline constexpr double kSlowestLink = 1e3;  // bytes per second, sending: break-even is sought between these
inline constexpr double kFastestLink = 1e12;

// Finds, by bisection over predict and predict_plain, the lowest bandwidth at which the codec stops paying.
// (Far above it a codec may pay again: `direct` and `gather` have fewer hops than a ring, and so less
// latency.) `least_gain`: 0 <= least_gain < 1; 0: being faster is enough. Errors: those of predict.
DELTAWIRE_API Result<BreakEven> break_even(const Workload& workload, const Site& site,
                                           const CodecFigures& figures, double least_gain = 0);

// When compression pays, in one sentence: what every text says, from the rates below, at which it does for
// common networks, and hardly does for any. make_plan knows it of one.
inline constexpr double kPaysUpTo = 125e6;  // bytes per second of a rank's link
inline constexpr double kRarelyPaysFrom = 1.25e9;
DELTAWIRE_API std::string rule_of_thumb();

struct PlanOptions {
  Tier tier = Tier::kNearLossless;  // which codecs may be chosen
  double least_gain = 0.03;         // the fraction of the plain step that a codec must save to be chosen
};

struct PlanRow {
  CodecFigures figures;
  Prediction prediction;
  double times_faster = 0;  // plain step / this step
  BreakEven break_even;     // with PlanOptions::least_gain
  bool allowed = false;     // by the tier
};

struct Plan {
  Prediction plain;
  std::vector<PlanRow> rows;          // in the order of the codecs
  std::optional<std::size_t> chosen;  // a row; none: do not compress
  std::string reason;                 // one line: what was chosen, why, and what it saves
};

// Chooses the codec with the shortest step among those that the tier allows. Predictions can't distinguish
// steps within 5 % of it: of such codecs, if they pay, it takes the one that loses least, then the one that
// sends least. It chooses none if the fastest saves less than least_gain.
DELTAWIRE_API Result<Plan> make_plan(const Workload& workload, const Site& site,
                                     const std::vector<CodecFigures>& codecs,
                                     const PlanOptions& options = {});

// A codec for each bucket.
struct Mix {
  std::vector<std::size_t> of_bucket;  // indices of the given codecs
  Prediction prediction;
};

// Chooses a codec for each bucket, or none if that is not predicted to be faster than the fastest single
// codec by more than 1 %, which no prediction can distinguish. It may use codecs that a plan would not choose
// for all, such as fp32 for buckets that backward hides. It is a local search over runs of neighbouring
// buckets that starts from the fastest codec of each pattern and only accepts improvements, so it is never
// slower than a single codec. Errors: those of predict.
DELTAWIRE_API Result<std::optional<Mix>> make_mix(const Workload& workload, const Site& site,
                                                  const std::vector<CodecFigures>& codecs,
                                                  Tier tier = Tier::kNearLossless);

// The buckets that DDP makes of a model's parameters, given in the order of the model: in reverse order, the
// first closed at 1 MiB and the others at `bucket_bytes`, as torch's Reducer does. It assumes that forward
// takes a third of the computation, and that backward takes the same time for each tensor.
DELTAWIRE_API Workload ddp_workload(const std::vector<PlanTensor>& model, double compute_seconds,
                                    std::uint64_t bucket_bytes = std::uint64_t{25} << 20);

}  // namespace deltawire
