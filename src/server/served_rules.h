// How servers step parts whose codec the optimizer does not go with (deltawire/optimizer_rules.h), and what
// travels beside their messages for it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/errors.h"
#include "deltawire/channel.h"
#include "deltawire/frame.h"
#include "deltawire/optimizer_rules.h"
#include "deltawire/server.h"
#include "optim/factored_step.h"
#include "server/served_model.h"

namespace deltawire {

// The table's rules for an optimizer and the codecs of pushes, from options that were fitted to them; and how
// numbers of a part's lines travel: as bfloat16, one frame before a message.
class ServedRules {
 public:
  // Of the options' push or pull.
  static Result<Spec> spec_of(std::string_view codecs) { return Spec::parse(codecs, {.pattern = "direct"}); }

  static Result<ServedRules> make(const ServerOptions& options) {
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

  // as PartPlan names it
  const OptimizerRule& of_codec(const std::string& codec) const noexcept {
    static const OptimizerRule none;
    const auto found = by_codec_.find(codec);
    return found == by_codec_.end() ? none : found->second;
  }

  std::uint64_t bound(const Lines& lines) const {
    if (by_codec_.empty()) return 0;
    Named most;
    most.name = "lines";
    most.tensor.count = lines.count();
    return lines_->message_bound(std::span(&most, 1), 0);
  }

  Result<std::vector<std::byte>> encode(std::span<float> numbers, const MessageId& id) {
    const Named lines = named_lines(numbers);
    ASSIGN_OR_RETURN(const auto pieces, lines_->encode(std::span(&lines, 1), id));
    std::vector<std::byte> message = joined(pieces);
    lines_->commit();
    return message;
  }

  // Returns the message that follows.
  Result<Bytes> decode(Bytes message, std::span<float> numbers, const MessageId& id, Into into, float scale) {
    ASSIGN_OR_RETURN(const FrameReader frame, FrameReader::open(message));
    const auto bytes = static_cast<std::size_t>(frame.frame_bytes());
    const Named lines = named_lines(numbers);
    RETURN_IF_ERROR(lines_->decode(message.first(bytes), std::span(&lines, 1), id, into, scale));
    return message.subspan(bytes);
  }

 private:
  static Named named_lines(std::span<float> numbers) noexcept {
    return {"lines", {.values = numbers.data(), .count = numbers.size()}};
  }

  std::map<std::string, OptimizerRule> by_codec_;  // those that are some
  std::unique_ptr<Channel> lines_;
};

// One part's rule, step by step, and the numbers of its lines: the mean squares of gradients, which workers
// send before a push, and the scales by which they divide the rows of one, which a server sends before the
// model that it will be of. `rank` is the sender's.
class PartLines {
 public:
  // Both must outlive it.
  PartLines(const ServedModel& model, std::size_t number, ServedRules& rules, bool may_scale)
      : model_(model),
        number_(number),
        rules_(rules),
        lines_(model.lines(model.parts()[number])),
        may_scale_(may_scale && lines_.rows() > 1) {}

  // Of what may be before a message, in bytes.
  std::uint64_t bound() const { return rules_.bound(lines_); }

  const OptimizerRule& rule(std::uint64_t step, const Channel& push) {
    if (rule_ == nullptr || step < from_ || step >= until_) {
      const PartPlan plan = push.plan(model_.part_of(model_.parts()[number_], nullptr), step);
      rule_ = &rules_.of_codec(plan.codec);
      from_ = step;
      until_ = plan.changes_at;
    }
    return *rule_;
  }

  bool has_squares(std::uint64_t step, const Channel& push) {
    return rule(step, push).rule == StepRule::kFactoredSecondMoment;
  }
  bool has_scales(std::uint64_t step, const Channel& push) {
    return may_scale_ && has_squares(step, push) && rule(step, push).least_scale > 0;
  }

  // Of the exact gradient; and, added up, of those that a step counts: with `scale` 1 / N of each of N.
  Result<std::vector<std::byte>> encode_squares(std::span<const float> gradient, std::uint64_t step,
                                                int rank) {
    squares_.resize(lines_.count());
    lines_.means(gradient, [](float value) { return value * value; }, squares_);
    return rules_.encode(squares_, message(step, rank));
  }

  Result<Bytes> decode_squares(Bytes push, std::uint64_t step, int rank, Into into, float scale) {
    // A mean of N gradients that differ independently has 1 / N of their mean squares.
    squares_.resize(lines_.count());
    return rules_.decode(push, squares_, message(step, rank), into, scale * scale);
  }
  void clear_squares() { squares_.assign(lines_.count(), 0.0F); }
  FactoredStep factored(const OptimizerRule& rule) const {
    return {lines_, squares_, rule.most_rms, rule.most_change, rule.longest_step};
  }

  // The roots of the rows' second moments, relative to the largest: so pushes send what moves weights most,
  // of whatever row. They are a server's scales from then on, as workers have them.
  Result<std::vector<std::byte>> encode_scales(std::span<const float> moment, std::uint64_t step, int rank,
                                               double least) {
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

  // Those that are before a body, if the step has any; returns the rest. They are a worker's once it has
  // settled what it pushed by others: what waits in its channel counts by the new ones, and what it loses by
  // that is added to `held`.
  Result<Bytes> take_scales(Bytes body, std::uint64_t step, int rank, const Channel& push) {
    next_scales_.clear();
    if (!has_scales(step, push)) return body;
    next_scales_.resize(lines_.rows());
    return rules_.decode(body, next_scales_, message(step, rank), Into::kOverwrite, 1.0F);
  }

  void change_scales(std::span<const float> residual, std::vector<float>& held) {
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

  void clear_scales() { scales_.clear(); }

  void multiply_rows(std::span<float> values) const { scale_rows(values, false); }
  void divide_rows(std::span<float> values) const { scale_rows(values, true); }

 private:
  void scale_rows(std::span<float> values, bool divides) const {
    if (scales_.empty()) return;
    lines_.for_each_row([&](std::size_t row, std::size_t at, std::size_t elements, std::size_t) {
      for (float& value : values.subspan(at, elements)) {
        value = divides ? value / scales_[row] : value * scales_[row];
      }
    });
  }

  MessageId message(std::uint64_t step, int rank) const {
    return model_.message(number_, Way::kLines, step, rank);
  }

  const ServedModel& model_;
  std::size_t number_;
  ServedRules& rules_;
  Lines lines_;
  bool may_scale_;
  const OptimizerRule* rule_ = nullptr;
  std::uint64_t from_ = 0, until_ = 0;  // the steps for which rule_ is right
  std::vector<float> squares_;
  std::vector<float> scales_, next_scales_;  // empty: rows have none
};

}  // namespace deltawire
