// `direct` against a sequential reference, on threads.
#include <cmath>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "reduce/owners.h"
#include "reduce/rank_threads.h"

namespace deltawire {
namespace {

using Tensors = std::vector<std::vector<float>>;
const std::vector<std::uint64_t> kCounts{500, 20, 70001, 0, 1, 65536};

Tensors gradients(int rank, std::uint64_t step) {
  Tensors all;
  for (std::size_t i = 0; i < kCounts.size(); ++i) {
    CounterRng rng(1000 * step + static_cast<std::uint64_t>(rank), i);
    auto& values = all.emplace_back(kCounts[i]);
    for (float& value : values) {
      const double u = rng.next_uniform() - 0.5;
      value = static_cast<float>(u * u * u);
    }
  }
  return all;
}

std::string name_of(std::size_t i) {
  return "layer" + std::to_string(i) + ".weight";
}

std::vector<Named> named(Tensors& tensors, const std::vector<std::string>& names) {
  std::vector<Named> all;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    all.push_back({names[i], {tensors[i].data(), tensors[i].size(), DType::kF32}, 0});
  }
  return all;
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kCounts.size(); ++i) names.push_back(name_of(i));
  return names;
}

std::vector<std::byte> join(std::span<const Bytes> pieces) {
  std::vector<std::byte> all;
  for (const Bytes piece : pieces) all.insert(all.end(), piece.begin(), piece.end());
  return all;
}

// The same arithmetic without transport, threads or buckets: part by part, rank by rank.
class SequentialDirect {
 public:
  SequentialDirect(std::string_view spec, int world) : world_(world) {
    for (int rank = 0; rank <= world; ++rank) channels_.push_back(std::move(*make_channel(spec)));
  }

  Tensors mean(const std::vector<Tensors>& inputs, std::uint64_t step) {
    Tensors result;
    for (std::size_t i = 0; i < kCounts.size(); ++i) {
      auto& out = result.emplace_back(kCounts[i], 0.0F);
      for (const OwnedRange& range : owned_ranges(name_of(i), kCounts[i], world_)) {
        std::vector<float> mean(range.count, 0.0F);
        const std::string name = name_of(i);
        const Named slot{name, {mean.data(), range.count, DType::kF32}, range.first};
        for (int rank = 0; rank < world_; ++rank) {
          const auto at = static_cast<std::size_t>(rank);
          auto* values = const_cast<float*>(inputs[at][i].data()) + range.first;
          const Named part{name, {values, range.count, DType::kF32}, range.first};
          relay(*channels_[at], part, slot, step, {Into::kAccumulate, 1.0F / static_cast<float>(world_)});
        }
        const Named pulled{name, {out.data() + range.first, range.count, DType::kF32}, range.first};
        relay(*channels_.back(), slot, pulled, step, {Into::kOverwrite, 1.0F});
      }
    }
    for (auto& channel : channels_) channel->commit();
    return result;
  }

  std::span<const float> pull_residual(const std::string& name, std::uint64_t first) const {
    return channels_.back()->residual(name, first);
  }

 private:
  struct How {
    Into into;
    float scale;
  };
  static void relay(Channel& channel, const Named& from, const Named& to, std::uint64_t step, How how) {
    const MessageId id{step, 0, 0, 1, 0};
    const auto pieces = channel.encode(std::span(&from, 1), id);
    ASSERT_TRUE(pieces) << pieces.error().message;
    const auto status = channel.decode(join(*pieces), std::span(&to, 1), id, how.into, how.scale);
    ASSERT_TRUE(status) << status.error().message;
  }

  int world_;
  std::vector<std::unique_ptr<Channel>> channels_;  // one push a rank, then the pulls
};

struct Case {
  std::string spec;
  int world;
};

class Direct : public testing::TestWithParam<Case> {};

TEST_P(Direct, EqualsTheSequentialReferenceBitForBit) {
  const auto [spec, world] = GetParam();
  constexpr std::uint64_t kSteps = 3;
  std::vector<std::vector<Tensors>> results(static_cast<std::size_t>(world));
  run_ranks(world, {}, [&](int rank, Transport& transport) {
    const auto reducer = reducer_of(spec);
    const auto names = all_names();
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      Tensors tensors = gradients(rank, step);
      const auto report =
          reducer->all_reduce(named(tensors, names), {step, 0, 0, true}, transport, in_seconds(20));
      ASSERT_TRUE(report) << report.error().message;
      results[static_cast<std::size_t>(rank)].push_back(std::move(tensors));
    }
  });
  SequentialDirect reference(spec, world);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    std::vector<Tensors> inputs;
    for (int rank = 0; rank < world; ++rank) inputs.push_back(gradients(rank, step));
    const Tensors expected = reference.mean(inputs, step);
    for (int rank = 0; rank < world; ++rank) {
      EXPECT_EQ(expected, results[static_cast<std::size_t>(rank)][step])
          << "rank " << rank << " step " << step;
    }
  }
}

// The bucket layout must not change a byte: one bucket, or one for each tensor with all in flight.
TEST_P(Direct, BucketsChangeNothing) {
  const auto [spec, world] = GetParam();
  std::vector<Tensors> whole(static_cast<std::size_t>(world));
  std::vector<Tensors> split(static_cast<std::size_t>(world));
  const auto train = [&](std::vector<Tensors>& results, bool buckets) {
    run_ranks(world, {}, [&](int rank, Transport& transport) {
      const auto reducer = reducer_of(spec);
      const auto names = all_names();
      for (std::uint64_t step = 0; step < 3; ++step) {
        Tensors tensors = gradients(rank, step);
        const auto all = named(tensors, names);
        const std::uint32_t count = buckets ? static_cast<std::uint32_t>(all.size()) : 1;
        for (std::uint32_t b = 0; b < count; ++b) {
          const auto part = buckets ? std::span(all).subspan(b, 1) : std::span(all);
          const auto begun = reducer->begin(part, {step, 0, b, b + 1 == count}, transport, in_seconds(20));
          ASSERT_TRUE(begun) << begun.error().message;
        }
        EXPECT_EQ(reducer->in_flight(), count);
        for (std::uint32_t b = 0; b < count; ++b) {
          const auto report = reducer->finish();
          ASSERT_TRUE(report) << report.error().message;
        }
        results[static_cast<std::size_t>(rank)] = tensors;
      }
    });
  };
  train(whole, false);
  train(split, true);
  for (std::size_t rank = 0; rank < whole.size(); ++rank) EXPECT_EQ(whole[rank], split[rank]);
}

// A restored reducer sends the bytes that the original would have sent.
TEST_P(Direct, SavedStateGoesOnAsIfNothingHadHappened) {
  const auto [spec, world] = GetParam();
  std::vector<Tensors> straight(static_cast<std::size_t>(world));
  std::vector<Tensors> restored(static_cast<std::size_t>(world));
  run_ranks(world, {}, [&](int rank, Transport& transport) {
    const auto names = all_names();
    const auto first = reducer_of(spec);
    const auto second = reducer_of(spec);
    const auto run = [&](Reducer& reducer, std::uint64_t number, std::uint64_t data) {
      Tensors tensors = gradients(rank, data);
      const auto report =
          reducer.all_reduce(named(tensors, names), {number, 0, 0, true}, transport, in_seconds(20));
      EXPECT_TRUE(report) << report.error().message;
      return tensors;
    };
    run(*first, 0, 0);
    const auto state = first->save();
    ASSERT_TRUE(state);
    ASSERT_TRUE(second->load(*state));
    straight[static_cast<std::size_t>(rank)] = run(*first, 1, 9);
    restored[static_cast<std::size_t>(rank)] = run(*second, 2, 9);
  });
  EXPECT_EQ(straight, restored);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* spec : {"fp32", "bf16", "3lc", "3lc:s=1.75"}) {
    for (const int world : {1, 2, 3, 4}) all.push_back({spec, world});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Codecs, Direct, testing::ValuesIn(cases()), [](const auto& chosen) {
  std::string name = chosen.param.spec + "_" + std::to_string(chosen.param.world);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
});

TEST(DirectFp32, IsTheMeanToOneRoundingARank) {
  run_ranks(4, {}, [&](int rank, Transport& transport) {
    const auto reducer = reducer_of("fp32");
    const auto names = all_names();
    Tensors tensors = gradients(rank, 0);
    ASSERT_TRUE(reducer->all_reduce(named(tensors, names), {0, 0, 0, true}, transport, in_seconds(20)));
    std::vector<Tensors> inputs;
    for (int other = 0; other < 4; ++other) inputs.push_back(gradients(other, 0));
    for (std::size_t i = 0; i < kCounts.size(); ++i) {
      for (std::size_t j = 0; j < kCounts[i]; ++j) {
        double sum = 0;
        double magnitude = 0;
        for (const Tensors& input : inputs) {
          sum += static_cast<double>(input[i][j]);
          magnitude += std::abs(static_cast<double>(input[i][j]));
        }
        ASSERT_LE(std::abs(sum / 4 - static_cast<double>(tensors[i][j])), 4 * 0x1p-24 * magnitude);
      }
    }
  });
}

}  // namespace
}  // namespace deltawire
