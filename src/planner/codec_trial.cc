#include "deltawire/codec_trial.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <numeric>
#include <utility>

#include "base/errors.h"
#include "base/float16.h"
#include "deltawire/codec.h"

namespace deltawire {
namespace {

constexpr std::uint64_t kSmallMessage = 1024;  // values; its time is mostly the overhead of a message
constexpr int kSmallRounds = 8;
constexpr std::size_t kMostMessages = 20;  // of which bits are taken

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::vector<float> as_floats(const TensorSlot& tensor) {
  std::vector<float> values(tensor.count);
  widen(tensor.values, tensor.dtype, tensor.count, values.data());
  return values;
}

double relative_l2(std::span<const Named> inputs, std::span<const Named> outputs) {
  double lost = 0;
  double whole = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<float> in = as_floats(inputs[i].tensor);
    const std::vector<float> out = as_floats(outputs[i].tensor);
    for (std::size_t k = 0; k < in.size(); ++k) {
      const double error = static_cast<double>(out[k]) - in[k];
      lost += error * error;
      whole += static_cast<double>(in[k]) * in[k];
    }
  }
  return whole > 0 ? std::sqrt(lost / whole) : 0;
}

// The beginning of the longest part.
Named small_part(std::span<const Named> parts) {
  Named small = *std::ranges::max_element(parts, {}, [](const Named& part) { return part.tensor.count; });
  small.tensor.count = std::min(small.tensor.count, kSmallMessage);
  small.tensor.dims = {};
  return small;
}

}  // namespace

// A channel with memory for what it decodes.
class CodecTrial::Coder {
 public:
  explicit Coder(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {}

  const Channel& channel() const noexcept { return *channel_; }
  std::span<const Named> decoded() const noexcept { return slots_; }
  std::uint64_t bytes() const noexcept { return bytes_; }  // of the last message

  Result<Times> code(std::span<const Named> parts) {
    clear(parts);
    const MessageId id{.step = step_++};
    const MessageLayout sent(parts);
    const MessageLayout due(slots_);
    const double begin = processor_seconds();
    ASSIGN_OR_RETURN(const auto pieces, channel_->encode(sent, id));
    const double encoded = processor_seconds();
    RETURN_IF_ERROR(channel_->decode(pieces, due, id, into_, 1.0F));
    const double end = processor_seconds();
    bytes_ = 0;
    for (const Bytes piece : pieces) bytes_ += piece.size();
    channel_->commit();
    return Times{encoded - begin, end - encoded};
  }

 private:
  // An exchange adds to zeros; to 16 bits nothing can be added.
  void clear(std::span<const Named> parts) {
    slots_.assign(parts.begin(), parts.end());
    memory_.resize(parts.size());
    into_ = Into::kAccumulate;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      TensorSlot& slot = slots_[i].tensor;
      memory_[i].assign(slot.count, 0.0F);
      slot.values = memory_[i].data();
      slot.significance = nullptr;
      if (slot.dtype != DType::kF32) into_ = Into::kOverwrite;
    }
  }

  std::unique_ptr<Channel> channel_;
  std::vector<std::vector<float>> memory_;
  std::vector<Named> slots_;
  Into into_ = Into::kAccumulate;
  std::uint64_t step_ = 0;
  std::uint64_t bytes_ = 0;
};

CodecTrial::CodecTrial() = default;
CodecTrial::CodecTrial(CodecTrial&&) noexcept = default;
CodecTrial& CodecTrial::operator=(CodecTrial&&) noexcept = default;
CodecTrial::~CodecTrial() = default;

Result<CodecTrial> CodecTrial::make(const Spec& spec, const Policy& policy) {
  const auto pattern = find_pattern(spec.pattern);
  if (!pattern) {
    return invalid("the planner has no model of the pattern \"" + spec.pattern_name +
                   "\"; it knows direct, ring and gather");
  }
  CodecTrial trial;
  trial.figures_.spec = spec.text;
  trial.figures_.pattern = *pattern;
  trial.keeps_residual_ = spec.keeps_residual;
  trial.cuts_by_optimizer_ = std::ranges::all_of(spec.rules, [](const SpecRule& rule) {
    return rule.info->significance && rule.codec_parameters.value("cut") == "auto";
  });
  trial.policy_ = policy;
  ASSIGN_OR_RETURN(auto gradients, make_channel(spec.codecs, {.policy = policy}));
  ASSIGN_OR_RETURN(auto means, make_channel(spec.codecs, {.policy = policy, .means = true}));
  if (*pattern == Pattern::kDirect && means->spec() != gradients->spec()) {
    trial.means_ = std::make_unique<Coder>(std::move(means));
  }
  trial.gradients_ = std::make_unique<Coder>(std::move(gradients));
  return trial;
}

Status CodecTrial::begin(std::span<const Named> parts) {
  for (const Named& part : parts) values_ += static_cast<double>(part.tensor.count);
  if (values_ == 0) return invalid("there are no values to measure with");
  const Named small = small_part(parts);
  ASSIGN_OR_RETURN(auto channel,
                   make_channel(gradients_->channel().spec(),
                                {.policy = {.min_elements = 0, .nonfinite = policy_.nonfinite}}));
  Coder coder(std::move(channel));
  const auto few = static_cast<double>(small.tensor.count);
  for (int round = 0; round < kSmallRounds; ++round) {
    ASSIGN_OR_RETURN(const Times times, coder.code({&small, 1}));
    const auto shorter = [&](const CodingTime::Message& known, double seconds) {
      return CodingTime::Message{few, round == 0 ? seconds : std::min(known.seconds, seconds)};
    };
    small_encode_ = shorter(small_encode_, times.encode);
    small_decode_ = shorter(small_decode_, times.decode);
  }
  bool lossless = true;
  figures_.shares_parts = true;
  for (const Named& part : parts) {
    const CodecInfo& info = gradients_->channel().codec_of(part, 0).info();
    lossless = lossless && info.lossless;
    figures_.shares_parts = figures_.shares_parts && info.shares_parts();
  }
  ASSIGN_OR_RETURN(shortest_, gradients_->code(parts));
  const double error = relative_l2(parts, gradients_->decoded());
  figures_.tier = tier_of(lossless, cuts_by_optimizer_ ? std::min(error, kNearLosslessError) : error);
  return {};
}

Status CodecTrial::advance(std::span<const Named> parts) {
  if (bytes_.empty()) {
    RETURN_IF_ERROR(begin(parts));
  } else {
    ASSIGN_OR_RETURN(const Times times, gradients_->code(parts));
    // In the first round memory was taken, and caches were filled.
    const bool is_second = bytes_.size() == 1;
    shortest_.encode = is_second ? times.encode : std::min(shortest_.encode, times.encode);
    shortest_.decode = is_second ? times.decode : std::min(shortest_.decode, times.decode);
  }
  if (bytes_.size() >= kMostMessages) return {};
  auto bytes = static_cast<double>(gradients_->bytes());
  if (means_) {  // as many values as gradients
    RETURN_IF_ERROR(means_->code(parts));
    bytes = (bytes + static_cast<double>(means_->bytes())) / 2;
  }
  bytes_.push_back(bytes);
  return {};
}

CodecFigures CodecTrial::figures() const {
  CodecFigures found = figures_;
  const std::span<const double> lasting = std::span(bytes_).subspan(bytes_.size() / 2);
  const double sum = std::accumulate(lasting.begin(), lasting.end(), 0.0);
  found.bits_per_value = 8 * sum / static_cast<double>(lasting.size()) / values_;
  found.encode = CodingTime::through(small_encode_, {values_, shortest_.encode});
  found.decode = CodingTime::through(small_decode_, {values_, shortest_.decode});
  return found;
}

}  // namespace deltawire
