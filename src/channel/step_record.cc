#include "channel/step_record.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <new>
#include <numeric>

#include "base/errors.h"
#include "base/float16.h"
#include "channel/part_encoder.h"

namespace deltawire {

void StepRecord::open(std::uint64_t step) noexcept {
  assert(!is_open_ || step_ == step);
  is_open_ = true;
  step_ = step;
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

namespace {

// A sum in lanes that compilers put in registers; in whatever order, since these are figures for people.
class Sum {
 public:
  static constexpr std::size_t kLanes = 8;

  void add(std::size_t lane, double value) noexcept { lanes_[lane] += value; }
  double total() const noexcept { return std::accumulate(lanes_.begin(), lanes_.end(), 0.0); }

 private:
  std::array<double, kLanes> lanes_{};
};

// Calls visit(i, lane) for every i below count.
void in_lanes(std::size_t count, const auto& visit) {
  std::size_t i = 0;
  for (; i + Sum::kLanes <= count; i += Sum::kLanes) {
    for (std::size_t lane = 0; lane < Sum::kLanes; ++lane) visit(i + lane, lane);
  }
  for (; i < count; ++i) visit(i, 0);
}

}  // namespace

FeedbackFlow measure_flow(const Codec& codec, const TensorView& given, const PartView& encoded,
                          std::span<const float> left, const Exec& exec) noexcept {
  const std::uint64_t count = left.size();
  if (count == 0 || count > kMostMeasured || given.has_keys() || given.count != count) return {};
  const std::unique_ptr<float[]> values(new (std::nothrow) float[count]);
  if (values == nullptr) return {};
  FeedbackFlow flow{.parts = 1};
  const auto* input = static_cast<const float*>(given.values);
  if (given.dtype != DType::kF32) {
    widen(given.values, given.dtype, count, values.get());
    input = values.get();
  }
  assert(encoded.chunk_ends.empty() || encoded.chunk_ends.back() == encoded.payload.size());
  Sum given_squares;
  in_lanes(count, [&](std::size_t i, std::size_t lane) {
    given_squares.add(lane, double{input[i]} * double{input[i]});
  });
  const TensorSlot slot{values.get(), count, DType::kF32};
  if (!codec.decode(encoded, slot, Into::kOverwrite, 1.0F, exec)) return {};
  Sum sent_squares;
  Sum left_squares;
  Sum products;
  in_lanes(count, [&](std::size_t i, std::size_t lane) {
    const double sent = values[i];
    const double waits = left[i];
    sent_squares.add(lane, sent * sent);
    left_squares.add(lane, waits * waits);
    products.add(lane, sent * waits);
  });
  flow.given = given_squares.total();
  flow.sent = sent_squares.total();
  flow.left = left_squares.total();
  flow.sent_of_due = flow.sent + products.total();
  flow.due = flow.sent_of_due + products.total() + flow.left;
  return flow;
}

void add_flow(const FeedbackFlow& part, FeedbackFlow& sum) noexcept {
  sum.parts += part.parts;
  sum.given += part.given;
  sum.sent += part.sent;
  sum.left += part.left;
  sum.due += part.due;
  sum.sent_of_due += part.sent_of_due;
}

}  // namespace deltawire
