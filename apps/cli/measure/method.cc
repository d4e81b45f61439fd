#include "cli/measure/method.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "base/errors.h"
#include "cli/measure/errors.h"
#include "cli/measure/replay.h"
#include "cli/progress.h"
#include "deltawire/codec.h"

namespace deltawire::cli {
namespace {

constexpr double kMostLost = 1e-3;  // rounding of twenty steps is far below

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

// Messages without error feedback.
class Alone {
 public:
  static Result<Alone> make(const Method& method, const MeasureOptions& options) {
    ASSIGN_OR_RETURN(auto channel, make_channel(method.canonical, ChannelOptions{.policy = options.policy,
                                                                                 .error_feedback = false}));
    return Alone(std::move(channel), options.streams);
  }

  // Encodes a step with every stream and adds the errors.
  Status add(const InputStep& step) {
    Parts parts(step, *channel_, step.step);
    RETURN_IF_ERROR(code(parts, step, 0));
    const std::vector<std::vector<float>> first = parts.decoded();
    RETURN_IF_ERROR(check_lossless(parts, step));
    int streams = 1;
    if (streams_wanted_ > 1) {
      RETURN_IF_ERROR(code(parts, step, 1));
      if (!std::ranges::equal(first, parts.decoded(), same_bits)) streams = streams_wanted_;
    }
    // A method without random numbers gives the same message with every stream, and counts once.
    ErrorSums sums;
    double bytes = 0;
    for (int stream = 0; stream < streams; ++stream) {
      RETURN_IF_ERROR(code(parts, step, stream));
      if (stream == 0 && !std::ranges::equal(first, parts.decoded(), same_bits)) {
        return mismatch("the same input gave other values when it was encoded again");
      }
      for (std::size_t i = 0; i < step.tensors.size(); ++i) {
        sums.add(parts.decoded()[i], step.tensors[i].values);
      }
      bytes += static_cast<double>(last_bytes_);
    }
    errors_.add(sums, 1.0 / streams);
    bytes_ += bytes / streams;
    values_ += static_cast<double>(step.values());
    streams_ = std::max(streams_, streams);
    return {};
  }

  void fill(Row& row) const {
    row.streams = streams_;
    row.bits_per_value = 8 * bytes_ / values_;
    row.times_smaller = 4 * values_ / bytes_;
    row.relative_l2 = errors_.relative_l2();
    row.cosine = errors_.cosine();
    row.max_error = errors_.max_error();
    row.bias = errors_.bias();
    row.gain = errors_.gain();
  }

 private:
  Alone(std::unique_ptr<Channel> channel, int streams)
      : channel_(std::move(channel)), streams_wanted_(streams) {}

  // Each rank has its own stream of random numbers.
  Status code(Parts& parts, const InputStep& step, int rank) {
    const MessageId id{.step = step.step,
                       .rank = static_cast<std::uint16_t>(rank),
                       .world = static_cast<std::uint16_t>(streams_wanted_)};
    const auto pieces = channel_->encode(parts.sent(), id);
    if (!pieces) {
      channel_->revert();
      return forward_error(pieces);
    }
    last_bytes_ = bytes_of(*pieces);
    Status decoded = channel_->decode(*pieces, parts.slots(), id, Into::kOverwrite, 1.0F);
    channel_->commit();
    return decoded;
  }

  Status check_lossless(const Parts& parts, const InputStep& step) const {
    for (std::size_t i = 0; i < step.tensors.size(); ++i) {
      const Named& sent = parts.sent().parts[i];
      if (sent.tensor.has_keys() || !channel_->codec_of(sent, step.step).info().lossless) continue;
      if (!same_bits(parts.decoded()[i], step.tensors[i].values)) {
        return mismatch("is lossless, but \"" + step.tensors[i].name + "\" came back changed");
      }
    }
    return {};
  }

  std::unique_ptr<Channel> channel_;
  int streams_wanted_;
  std::uint64_t last_bytes_ = 0;
  ErrorSums errors_;
  double bytes_ = 0;
  double values_ = 0;
  int streams_ = 1;
};

Status measure_alone(const Method& method, const Input& input, const MeasureOptions& options, Row& row) {
  ASSIGN_OR_RETURN(auto alone, Alone::make(method, options));
  for (const InputStep& step : input.steps) {
    if (interrupted()) return {};
    RETURN_IF_ERROR(alone.add(step));
  }
  alone.fill(row);
  return {};
}

// Sends twenty steps: the input's steps, repeated.
Status measure_feedback(const Method& method, const Input& input, const MeasureOptions& options, Row& row) {
  ASSIGN_OR_RETURN(auto replay, Replay::make(method.canonical, options.policy));
  double bytes = 0;
  double values = 0;
  for (int i = 0; i < kFeedbackSteps; ++i) {
    if (interrupted()) return {};
    const std::size_t turn = static_cast<std::size_t>(i) / input.steps.size();
    const InputStep& step = input.steps[static_cast<std::size_t>(i) % input.steps.size()];
    // Step numbers, and so random numbers, never repeat.
    const auto taken = replay.take(step, step.step + turn * input.steps.back().step);
    if (!taken) {
      return fail(taken.error().code, "in step " + std::to_string(i + 1) + " of " +
                                          std::to_string(kFeedbackSteps) + ": " + taken.error().message);
    }
    bytes += static_cast<double>(taken->bytes);
    values += static_cast<double>(taken->values);
    row.feedback_relative_l2 = taken->so_far;
  }
  row.feedback_bits_per_value = 8 * bytes / values;
  row.error_feedback = replay.channel().any(&CodecInfo::error_feedback);
  if (replay.lost_share() > kMostLost) {
    return mismatch("what was received and what waits in the residual are not the input");
  }
  return {};
}

Status measure_timed(const Method& method, const Input& input, const MeasureOptions& options, Row& row) {
  ASSIGN_OR_RETURN(static_cast<Speed&>(row),
                   measure_speed(method.canonical, options.policy, input.steps.front(), options.seconds));
  return {};
}

}  // namespace

std::vector<Method> methods_of(const std::vector<std::string>& texts) {
  std::vector<std::string> specs;
  for (const std::string& text : texts) {
    if (text != "all") {
      specs.push_back(text);
      continue;
    }
    for (const CodecInfo* info : registered_codecs()) {
      specs.emplace_back(info->name);
      specs.insert(specs.end(), info->examples.begin(), info->examples.end());
    }
  }
  std::vector<Method> methods;
  std::set<std::string> seen;
  for (std::string& spec : specs) {
    const auto channel = make_channel(spec);
    if (!channel) {
      throw misused("--codecs \"" + spec + "\": " + channel.error().message +
                    "; 'deltawire codecs' lists them all");
    }
    if (!seen.insert((*channel)->spec()).second) continue;
    methods.push_back(Method{std::move(spec), (*channel)->spec()});
  }
  return methods;
}

std::optional<Row> measure_method(const Method& method, const Input& input, const MeasureOptions& options,
                                  const std::function<void(const char* stage)>& stage) {
  using Measure = Status (*)(const Method&, const Input&, const MeasureOptions&, Row&);
  constexpr std::pair<const char*, Measure> kStages[] = {
      {"alone", measure_alone}, {"with error feedback", measure_feedback}, {"timing", measure_timed}};
  Row row;
  row.input = input.name;
  row.method = method;
  for (const auto& [name, measure] : kStages) {
    stage(name);
    const Status done = measure(method, input, options, row);
    if (interrupted()) return std::nullopt;
    if (!done) {
      row.failed = done.error().message;
      break;
    }
  }
  return row;
}

}  // namespace deltawire::cli
