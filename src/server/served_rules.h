// How servers step parts whose codec the optimizer does not go with (deltawire/optimizer_rules.h), and what
// travels beside their messages for it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/optimizer_rules.h"
#include "deltawire/server.h"
#include "optim/factored_step.h"
#include "server/served_model.h"

namespace deltawire {

// The table's rules for an optimizer and the codecs of pushes, from options that were fitted to them; and how
// numbers of a part's lines travel: as bfloat16, one frame before a message.
class ServedRules {
 public:
  static Result<ServedRules> make(const ServerOptions& options);

  const OptimizerRule& of_codec(const std::string& codec) const noexcept;  // as PartPlan names it

  std::uint64_t bound(const Lines& lines) const;
  Result<std::vector<std::byte>> encode(std::span<float> numbers, const MessageId& id);
  // Returns the message that follows.
  Result<Bytes> decode(Bytes message, std::span<float> numbers, const MessageId& id, Into into, float scale);

 private:
  std::map<std::string, OptimizerRule> by_codec_;  // those that are some
  std::unique_ptr<Channel> lines_;
};

// One part's rule, step by step, and the numbers of its lines: the mean squares of gradients, which workers
// send before a push, and the scales by which they divide the rows of one, which a server sends before the
// model that it will be of. `rank` is the sender's.
class PartLines {
 public:
  // Both must outlive it.
  PartLines(const ServedModel& model, std::size_t number, ServedRules& rules, bool may_scale);

  // Of what may be before a message, in bytes.
  std::uint64_t bound() const { return rules_.bound(lines_); }

  const OptimizerRule& rule(std::uint64_t step, const Channel& push);
  bool has_squares(std::uint64_t step, const Channel& push) {
    return rule(step, push).rule == StepRule::kFactoredSecondMoment;
  }
  bool has_scales(std::uint64_t step, const Channel& push) {
    return may_scale_ && has_squares(step, push) && rule(step, push).least_scale > 0;
  }

  // Of the exact gradient; and, added up, of those that a step counts: with `scale` 1 / N of each of N.
  Result<std::vector<std::byte>> encode_squares(std::span<const float> gradient, std::uint64_t step,
                                                int rank);
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
                                               double least);
  // Those that are before a body, if the step has any; returns the rest. They are a worker's once it has
  // settled what it pushed by others: what waits in its channel counts by the new ones, and what it loses by
  // that is added to `held`.
  Result<Bytes> take_scales(Bytes body, std::uint64_t step, int rank, const Channel& push);
  void change_scales(std::span<const float> residual, std::vector<float>& held);
  void clear_scales() { scales_.clear(); }

  void multiply_rows(std::span<float> values) const { scale_rows(values, false); }
  void divide_rows(std::span<float> values) const { scale_rows(values, true); }

 private:
  void scale_rows(std::span<float> values, bool divides) const;
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
