#include "deltawire/tensor.h"

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

}  // namespace
}  // namespace deltawire
