#include "deltawire/tensor.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace deltawire {
namespace {

TEST(Tensor, NamesAndBytesOfTheDTypes) {
  EXPECT_EQ(dtype_name(DType::kF32), "float32");
  EXPECT_EQ(dtype_name(DType::kBF16), "bfloat16");
  EXPECT_EQ(dtype_name(DType::kF16), "float16");
  EXPECT_EQ(dtype_name(static_cast<DType>(9)), "unknown");
  EXPECT_EQ(dtype_bytes(DType::kF32), 4u);
  EXPECT_EQ(dtype_bytes(DType::kBF16), 2u);
  EXPECT_EQ(dtype_bytes(DType::kF16), 2u);
  EXPECT_EQ(dtype_bytes(static_cast<DType>(0)), 0u);
}

TEST(Tensor, ElementsAreThoseOfTheTensorThatIsMeant) {
  std::uint32_t keys[] = {1, 7};
  float values[] = {1.0F, 2.0F};
  const TensorSlot dense{values, 2, DType::kF32};
  const TensorSlot pairs{values, 2, DType::kF32, keys, 100};
  EXPECT_FALSE(dense.has_keys());
  EXPECT_EQ(dense.elements(), 2u);
  EXPECT_TRUE(pairs.has_keys());
  EXPECT_EQ(pairs.elements(), 100u);
  const TensorView view = as_view(pairs);
  EXPECT_EQ(view.values, values);
  EXPECT_EQ(view.keys, keys);
  EXPECT_EQ(view.elements(), 100u);
}

TEST(Tensor, WhatIsWrittenLiesApart) {
  std::vector<float> memory(10);
  const auto at = [&](std::size_t begin, std::size_t count, std::string_view name,
                      DType dtype = DType::kF32) {
    return Named{name, {memory.data() + begin, count, dtype}, 0};
  };
  const auto refusal = [](const std::vector<Named>& tensors) {
    const Status status = check_apart(tensors);
    return status ? "" : status.error().message.substr(0, status.error().message.find(','));
  };
  EXPECT_EQ(refusal({at(0, 3, "a"), at(3, 2, "b"), at(5, 5, "c")}), "");
  EXPECT_EQ(refusal({at(5, 5, "c"), at(0, 3, "a"), at(1, 0, "0"), at(3, 2, "b")}), "");
  EXPECT_EQ(refusal({at(0, 6, "halves", DType::kBF16), at(3, 2, "b"), at(4, 0, "0")}), "");
  EXPECT_EQ(refusal({at(0, 7, "halves", DType::kBF16), at(3, 2, "b")}), "'halves' and 'b' share memory");
  EXPECT_EQ(refusal({at(5, 2, "c"), at(0, 3, "a"), at(2, 2, "b")}), "'a' and 'b' share memory");
  Named pairs = at(2, 1, "pairs");
  pairs.tensor.dimension = 9;
  EXPECT_EQ(refusal({at(0, 3, "a"), pairs}), "");
}

}  // namespace
}  // namespace deltawire
