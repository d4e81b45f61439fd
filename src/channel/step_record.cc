#include "channel/step_record.h"

#include <algorithm>
#include <cassert>
#include <string>

#include "channel/part_encoder.h"

namespace deltawire {

Status StepRecord::check_closed(const char* before) const {
  if (!is_open_) return {};
  return fail(ErrorCode::kState, std::string("a step is open; commit or revert it before ") + before);
}

Status StepRecord::check_may_open(std::uint64_t step) const {
  if (!is_open_ || step_ == step) return {};
  return fail(ErrorCode::kState, "step " + std::to_string(step_) +
                                     " is open; commit or revert it before step " + std::to_string(step));
}

void StepRecord::open(std::uint64_t step) noexcept {
  assert(!is_open_ || step_ == step);
  is_open_ = true;
  step_ = step;
}

void StepRecord::reserve(std::size_t count) {
  parts_.reserve(parts_.size() + count);
  uses_.reserve(parts_.size() + count);
}

void StepRecord::commit(bool keeps, MutBytes scratch) noexcept {
  uses_.clear();
  for (const SentPart& part : parts_) {
    PartEncoder::mask(part, scratch);
    assert(uses_.size() < uses_.capacity());
    uses_.push_back(PartEncoder::use_of(part));
    PartEncoder::discharge(part);
  }
  if (open_flow_.parts > 0) {
    flow_ = open_flow_;
    flow_.step = step_;
  }
  if (keeps) {
    committed_messages_.swap(messages_);
    committed_parts_.swap(parts_);
  }
  end();
}

void StepRecord::fold(MutBytes scratch) noexcept {
  assert(is_open_ || parts_.empty());
  for (const SentPart& part : parts_) PartEncoder::fold(part, scratch);
}

void StepRecord::end() noexcept {
  is_open_ = false;
  messages_.end_step();
  parts_.clear();
  open_flow_ = {};
}

const SentPart* StepRecord::find(std::uint64_t name_hash, std::uint64_t first) const noexcept {
  const auto part = std::ranges::find_if(committed_parts_, [&](const SentPart& candidate) {
    return candidate.name_hash == name_hash && candidate.first == first;
  });
  return part == committed_parts_.end() ? nullptr : &*part;
}

}  // namespace deltawire
