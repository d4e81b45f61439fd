#include "server/served_rules.h"

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "deltawire/frame.h"

namespace deltawire {
namespace {

Result<Spec> spec_of(std::string_view codecs) {
  return Spec::parse(codecs, {.pattern = "direct"});
}

Named named_lines(std::span<float> numbers) noexcept {
  return {"lines", {.values = numbers.data(), .count = numbers.size()}};
}

}  // namespace

Result<ServerOptions> fitted_to(ServerOptions options, int world_size) {
  RETURN_IF_ERROR(check_options(options, world_size));
  if (options.rules_of.empty()) return options;
  ASSIGN_OR_RETURN(const OptimizerSettings settings, parse_optimizer(options.rules_of));
  for (std::string* const codecs : {&options.push, &options.pull}) {
    ASSIGN_OR_RETURN(const Spec spec, spec_of(*codecs));
    ASSIGN_OR_RETURN(Spec fits, fitted_to(spec, OptimizerTraits::of(settings), world_size));
    *codecs = std::move(fits.codecs);
  }
  return options;
}

Result<std::vector<std::string>> server_warnings(std::string_view optimizer, const ServerOptions& options) {
  ASSIGN_OR_RETURN(const auto settings, parse_optimizer(optimizer));
  ASSIGN_OR_RETURN(const auto push, spec_of(options.push));
  const auto traits = OptimizerTraits::of(settings);
  const bool rules_apply = !options.rules_of.empty();
  std::vector<std::string> texts = optimizer_warnings(push, traits, OptimizerPlace::kServer, rules_apply);
  for (const SpecRule& rule : push.rules) {
    const OptimizerRule found = optimizer_rule(rule, traits, OptimizerPlace::kServer);
    if (rules_apply && !found.remark.empty()) texts.push_back(found.remark);
  }
  return texts;
}

Result<ServedRules> ServedRules::make(const ServerOptions& options) {
  ServedRules rules;
  ASSIGN_OR_RETURN(rules.lines_,
                   make_channel("bf16", {.policy = {.min_elements = 0, .nonfinite = NonFinite::kPass},
                                         .error_feedback = false}));
  if (options.rules_of.empty()) return rules;
  ASSIGN_OR_RETURN(const OptimizerSettings settings, parse_optimizer(options.rules_of));
  ASSIGN_OR_RETURN(const Spec push, spec_of(options.push));
  for (const SpecRule& rule : push.rules) {
    OptimizerRule found = optimizer_rule(rule, OptimizerTraits::of(settings), OptimizerPlace::kServer);
    if (found.rule != StepRule::kAsItIs) rules.by_codec_.emplace(rule.codec, std::move(found));
  }
  return rules;
}

const OptimizerRule& ServedRules::of_codec(const std::string& codec) const noexcept {
  static const OptimizerRule none;
  const auto found = by_codec_.find(codec);
  return found == by_codec_.end() ? none : found->second;
}

std::uint64_t ServedRules::bound(const Lines& lines) const {
  if (by_codec_.empty()) return 0;
  Named most;
  most.name = "lines";
  most.tensor.count = lines.count();
  return lines_->message_bound(std::span(&most, 1), 0);
}

Result<std::vector<std::byte>> ServedRules::encode(std::span<float> numbers, const MessageId& id) {
  const Named lines = named_lines(numbers);
  ASSIGN_OR_RETURN(const auto pieces, lines_->encode(std::span(&lines, 1), id));
  std::vector<std::byte> message = joined(pieces);
  lines_->commit();
  return message;
}

Result<Bytes> ServedRules::decode(Bytes message, std::span<float> numbers, const MessageId& id, Into into,
                                  float scale) {
  ASSIGN_OR_RETURN(const FrameReader frame, FrameReader::open(message));
  const auto bytes = static_cast<std::size_t>(frame.frame_bytes());
  const Named lines = named_lines(numbers);
  RETURN_IF_ERROR(lines_->decode(message.first(bytes), std::span(&lines, 1), id, into, scale));
  return message.subspan(bytes);
}

PartLines::PartLines(const ServedModel& model, std::size_t number, ServedRules& rules, bool may_scale)
    : model_(model),
      number_(number),
      rules_(rules),
      lines_(model.lines(model.parts()[number])),
      may_scale_(may_scale && lines_.rows() > 1) {}

const OptimizerRule& PartLines::rule(std::uint64_t step, const Channel& push) {
  if (rule_ == nullptr || step < from_ || step >= until_) {
    const PartPlan plan = push.plan(model_.part_of(model_.parts()[number_], nullptr), step);
    rule_ = &rules_.of_codec(plan.codec);
    from_ = step;
    until_ = plan.changes_at;
  }
  return *rule_;
}

Result<std::vector<std::byte>> PartLines::encode_squares(std::span<const float> gradient, std::uint64_t step,
                                                         int rank) {
  squares_.resize(lines_.count());
  lines_.means(gradient, [](float value) { return value * value; }, squares_);
  return rules_.encode(squares_, message(step, rank));
}

Result<std::vector<std::byte>> PartLines::encode_scales(std::span<const float> moment, std::uint64_t step,
                                                        int rank, double least) {
  std::vector<float> means(lines_.count(), 1.0F);
  if (!moment.empty()) lines_.means(moment, [](float value) { return value; }, means);
  scales_.assign(means.begin(), means.begin() + static_cast<std::ptrdiff_t>(lines_.rows()));
  const float largest = *std::ranges::max_element(scales_);
  for (float& scale : scales_) {
    scale = largest > 0 ? std::max(static_cast<float>(least), std::sqrt(scale / largest)) : 1.0F;
  }
  ASSIGN_OR_RETURN(std::vector<std::byte> coded, rules_.encode(scales_, message(step, rank)));
  RETURN_IF_ERROR(rules_.decode(coded, scales_, message(step, rank), Into::kOverwrite, 1.0F));
  return coded;
}

Result<Bytes> PartLines::take_scales(Bytes body, std::uint64_t step, int rank, const Channel& push) {
  next_scales_.clear();
  if (!has_scales(step, push)) return body;
  next_scales_.resize(lines_.rows());
  return rules_.decode(body, next_scales_, message(step, rank), Into::kOverwrite, 1.0F);
}

void PartLines::change_scales(std::span<const float> residual, std::vector<float>& held) {
  scales_.swap(next_scales_);
  if (residual.empty() || scales_ == next_scales_) return;
  held.resize(residual.size());
  const auto of_row = [](std::span<const float> scales, std::size_t row) {
    return scales.empty() ? 1.0F : scales[row];
  };
  lines_.for_each_row([&](std::size_t row, std::size_t at, std::size_t elements, std::size_t) {
    const float lost = of_row(next_scales_, row) - of_row(scales_, row);
    for (std::size_t i = at; i < at + elements; ++i) held[i] += lost * residual[i];
  });
}

void PartLines::scale_rows(std::span<float> values, bool divides) const {
  if (scales_.empty()) return;
  lines_.for_each_row([&](std::size_t row, std::size_t at, std::size_t elements, std::size_t) {
    for (float& value : values.subspan(at, elements)) {
      value = divides ? value / scales_[row] : value * scales_[row];
    }
  });
}

}  // namespace deltawire
