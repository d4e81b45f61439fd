#include "channel/feedback_flow.h"

#include <cstddef>
#include <memory>
#include <new>

#include "base/float16.h"

namespace deltawire {

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
  for (std::size_t i = 0; i < count; ++i) flow.given += double{input[i]} * input[i];
  const TensorSlot slot{values.get(), count, DType::kF32};
  if (!codec.decode(encoded, slot, Into::kOverwrite, 1.0F, exec)) return {};
  for (std::size_t i = 0; i < count; ++i) {
    const double sent = values[i];
    const double due = sent + left[i];
    flow.sent += sent * sent;
    flow.left += double{left[i]} * left[i];
    flow.due += due * due;
    flow.sent_of_due += sent * due;
  }
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
