#include <vector>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "optim/optimizer_testing.h"

namespace deltawire {
namespace {

using namespace testing;

Optimizer after_three_steps(std::string_view spec, std::vector<float>& parameters) {
  Optimizer optimizer = optimizer_of(spec);
  std::vector<float> other(3, 1.0F);
  for (std::uint64_t t = 0; t < 3; ++t) {
    EXPECT_TRUE(optimizer.step("w", parameters, random_values(parameters.size(), t)));
    EXPECT_TRUE(optimizer.step("another tensor", other, random_values(3, t)));
  }
  return optimizer;
}

void repair_checksum(std::vector<std::byte>& state) {
  store_le<std::uint32_t>(state.data() + state.size() - 4, crc32c(Bytes(state).first(state.size() - 4)));
}

TEST(OptimizerState, LoadedStateGoesOnBitForBit) {
  for (const auto spec : kOptimizerSpecs) {
    std::vector<float> parameters = random_values(31, 1);
    Optimizer saved = after_three_steps(spec, parameters);
    std::vector<float> loaded_parameters = parameters;
    Optimizer loaded = optimizer_of(spec);
    ASSERT_TRUE(loaded.load(saved.save()));
    EXPECT_EQ(loaded.save(), saved.save());
    EXPECT_EQ(loaded.moments("w").steps, 3U);
    ASSERT_TRUE(saved.step("w", parameters, random_values(31, 9)));
    ASSERT_TRUE(loaded.step("w", loaded_parameters, random_values(31, 9)));
    EXPECT_EQ(bits_of(parameters), bits_of(loaded_parameters)) << spec;
  }
}

TEST(OptimizerState, AnotherKindsStateIsRefused) {
  std::vector<float> parameters = random_values(5, 1);
  const auto state = after_three_steps("adam", parameters).save();
  EXPECT_EQ(optimizer_of("adamw").load(state).error().code, ErrorCode::kMismatch);
  EXPECT_TRUE(optimizer_of("adam:lr=0.5,beta1=0.1").load(state));
}

TEST(OptimizerState, DamageIsAnErrorAndChangesNothing) {
  std::vector<float> parameters = random_values(5, 1);
  Optimizer optimizer = after_three_steps("adam", parameters);
  const auto good = optimizer.save();
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_FALSE(optimizer.load(Bytes(good).first(bytes))) << bytes;
  }
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    auto damaged = good;
    damaged[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
    EXPECT_FALSE(optimizer.load(damaged)) << bit;
  }
  EXPECT_EQ(optimizer.save(), good);
}

// Even with a correct checksum the numbers inside are not trusted.
TEST(OptimizerState, ClaimsBeyondTheBytesAreErrors) {
  std::vector<float> parameters = random_values(5, 1);
  Optimizer optimizer = after_three_steps("adam", parameters);
  const auto good = optimizer.save();
  const auto code_with = [&](std::size_t offset, std::uint64_t value, bool wide) {
    auto changed = good;
    if (wide) {
      store_le<std::uint64_t>(changed.data() + offset, value);
    } else {
      store_le<std::uint32_t>(changed.data() + offset, static_cast<std::uint32_t>(value));
    }
    repair_checksum(changed);
    const Status loaded = optimizer.load(changed);
    return loaded ? ErrorCode{} : loaded.error().code;
  };
  EXPECT_EQ(code_with(0, 0, false), ErrorCode::kCorrupt);  // another magic
  EXPECT_EQ(code_with(8, 0, false), ErrorCode::kUnsupportedVersion);
  EXPECT_EQ(code_with(8, 2, false), ErrorCode::kUnsupportedVersion);
  EXPECT_EQ(code_with(16, 3, false), ErrorCode::kTruncated);                      // entries
  EXPECT_EQ(code_with(16, 1, false), ErrorCode::kCorrupt);                        // bytes left over
  EXPECT_EQ(code_with(20, 0xFFFFFFFF, false), ErrorCode::kTruncated);             // length of the first name
  EXPECT_EQ(code_with(32, std::uint64_t{1} << 61, true), ErrorCode::kTruncated);  // 8 * count wraps to 0
  EXPECT_EQ(code_with(32, std::uint64_t{1} << 40, true), ErrorCode::kTruncated);
  EXPECT_EQ(code_with(8, 1, false), ErrorCode{});
  EXPECT_EQ(optimizer.save(), good);
}

// Each claim is one too large, so that bytes after the entries would be read as part of them.
TEST(OptimizerState, ClaimsThatAreOneTooMuchAreErrors) {
  Optimizer optimizer = optimizer_of("momentum");
  std::vector<float> one(1);
  ASSERT_TRUE(optimizer.step("a", one, std::vector<float>{1}));
  const auto good = optimizer.save();  // 20 bytes of head, then 20 of the entry's, "a", a value, the checksum
  ASSERT_EQ(good.size(), 20 + 20 + 1 + 4 + 4U);
  const auto code_of = [&](std::vector<std::byte> state) {
    repair_checksum(state);
    const Status loaded = optimizer.load(state);
    return loaded ? ErrorCode{} : loaded.error().code;
  };
  EXPECT_EQ(code_of(good), ErrorCode{});
  auto name = good;
  store_le<std::uint32_t>(name.data() + 20, 6);  // of the 5 bytes left
  EXPECT_EQ(code_of(name), ErrorCode::kTruncated);
  auto count = good;
  store_le<std::uint64_t>(count.data() + 32, 2);
  EXPECT_EQ(code_of(count), ErrorCode::kTruncated);
  for (std::size_t bytes = 24; bytes < good.size(); ++bytes) {
    EXPECT_EQ(code_of({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(bytes)}),
              ErrorCode::kTruncated)
        << bytes;
  }
  // A byte short of an entry's head, and the checksum behind it happens to end the count as it should.
  std::vector<std::byte> head(good.begin(), good.begin() + 20 + 19 + 4);
  std::uint32_t steps = 0;
  do {
    store_le<std::uint32_t>(head.data() + 24, ++steps);
    repair_checksum(head);
  } while (head[20 + 19] != std::byte{0});
  EXPECT_EQ(code_of(head), ErrorCode::kTruncated);
  for (std::size_t more = 1; more < 6; ++more) {
    auto longer = good;
    longer.insert(longer.end(), more, std::byte{0});
    EXPECT_EQ(code_of(longer), ErrorCode::kCorrupt) << more;
  }
  for (std::size_t bytes = 0; bytes < 24; ++bytes) {
    EXPECT_EQ(optimizer.load(Bytes(good).first(bytes)).error().code, ErrorCode::kTruncated) << bytes;
  }
  EXPECT_EQ(optimizer.save(), good);
}

TEST(OptimizerState, TensorsInAnotherOrderOrTwiceAreRefused) {
  Optimizer optimizer = optimizer_of("sgd");
  std::vector<float> one(1);
  ASSERT_TRUE(optimizer.step("a", one, std::vector<float>{1}));
  ASSERT_TRUE(optimizer.step("b", one, std::vector<float>{1}));
  const auto good = optimizer.save();
  const auto loaded_with_names = [&](char first, char second) {
    auto state = good;
    state[20 + 20] = static_cast<std::byte>(first);
    state[20 + 21 + 20] = static_cast<std::byte>(second);
    repair_checksum(state);
    return optimizer.load(state);
  };
  const Status swapped = loaded_with_names('b', 'a');
  ASSERT_FALSE(swapped);
  EXPECT_EQ(swapped.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(swapped.error().message, "optimizer state: tensor 'a' is out of order");
  EXPECT_EQ(loaded_with_names('b', 'b').error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(optimizer.save(), good);
  EXPECT_TRUE(loaded_with_names('a', 'c'));
}

}  // namespace
}  // namespace deltawire
