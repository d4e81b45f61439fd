// Reducers over MPI: bit for bit what the same ranks get as threads in one process.
#include "deltawire/reducer.h"

#include <thread>

#include <gtest/gtest.h>

#include "deltawire/connect.h"
#include "mpi_world.h"
#include "transport/message_testing.h"

namespace deltawire::test {
namespace {

constexpr std::uint64_t kSteps = 3;
const std::vector<std::size_t> kCounts{1, 300, 70001};

// The gradients of one rank at one step, tensor after tensor.
using Gradients = std::vector<std::vector<float>>;

Gradients gradients_of(int rank, std::uint64_t step) {
  Gradients tensors;
  for (const std::size_t count : kCounts) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto mixed = (i * 2654435761u + step * 40503u + static_cast<std::uint64_t>(rank) * 97u) % 1999;
      values[i] = (static_cast<float>(mixed) - 999.0F) * 0.001F;
    }
    tensors.push_back(std::move(values));
  }
  return tensors;
}

struct Outcome {
  std::vector<Gradients> means;  // by step
  std::vector<std::uint64_t> digests;
  std::string error;
};

Outcome train(const std::string& spec, Transport& transport) {
  Outcome outcome;
  auto reducer = make_reducer(spec);
  if (!reducer) return {{}, {}, reducer.error().message};
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    Gradients values = gradients_of(transport.rank(), step);
    std::vector<Named> tensors;
    const std::vector<std::string> names{"bias", "conv.weight", "fc.weight"};
    for (std::size_t i = 0; i < values.size(); ++i) {
      tensors.push_back({names[i], {values[i].data(), values[i].size(), DType::kF32}, 0});
    }
    const auto report = (*reducer)->all_reduce(tensors, {step, 0, true}, transport, soon());
    if (!report) return {{}, {}, report.error().message};
    outcome.digests.push_back(report->digest);
    outcome.means.push_back(std::move(values));
  }
  return outcome;
}

// What rank 0 gets where all ranks are threads of this process.
template <class Work>
auto in_process(int world_size, const Work& work) {
  auto ranks = connect_inproc(world_size);
  EXPECT_TRUE(ranks);
  std::vector<decltype(work(*ranks->front()))> outcomes(ranks->size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks->size(); ++rank) {
    threads.emplace_back([&, rank] { outcomes[rank] = work(*(*ranks)[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes[0];
}

class Reducers : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Specs, Reducers,
                         ::testing::Values("direct(fp32)", "direct(bf16)", "direct(3lc:s=1.75)", "ring(fp32)",
                                           "ring(gcomp:cut=6)", "gather(sbc)", "gather(fastsgd)"));

TEST_P(Reducers, GiveTheSameBitsAsInOneProcess) {
  const auto self = connect_world(GetParam());
  const auto work = [](Transport& transport) { return train(GetParam(), transport); };
  const Outcome expected = in_process(self->world_size(), work);
  const Outcome got = work(*self);
  ASSERT_EQ(expected.error, "");
  ASSERT_EQ(got.error, "");
  EXPECT_EQ(got.digests, expected.digests);
  EXPECT_EQ(got.means, expected.means);
}

// Of a tensor whose keys are dealt to all ranks: the means' digest, and how many keys they have.
std::vector<std::uint64_t> merge_keys(const std::string& spec, Transport& transport) {
  auto reducer = make_reducer(spec);
  if (!reducer) return {};
  std::vector<std::uint64_t> facts;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    Pairs own;
    own.dimension = 70001;
    for (std::uint32_t key = static_cast<std::uint32_t>(step); key < own.dimension;
         key += 3 + 4 * static_cast<std::uint32_t>(transport.rank())) {
      own.keys.push_back(key);
      own.values.push_back(static_cast<float>(key % 97) + 1);
    }
    const Named tensor{
        "clicks", {own.values.data(), own.values.size(), DType::kF32, own.keys.data(), own.dimension}, 0};
    Pairs mean;
    const Bucket bucket(std::span(&tensor, 1), std::span(&mean, 1));
    const auto report = (*reducer)->all_reduce(bucket, {step, 0, true}, transport, soon());
    if (!report) return {};
    facts.push_back(report->digest);
    facts.push_back(mean.keys.size());
  }
  return facts;
}

TEST(Reducers, MergeKeysAsInOneProcess) {
  for (const std::string spec : {"direct(fastsgd:tau=2047)", "gather(fastsgd:tau=2047)"}) {
    const auto self = connect_world(spec);
    const auto work = [&](Transport& transport) { return merge_keys(spec, transport); };
    const auto expected = in_process(self->world_size(), work);
    ASSERT_EQ(expected.size(), 2 * kSteps) << spec;
    EXPECT_GT(expected[1], 23000u);
    EXPECT_EQ(work(*self), expected) << spec;
  }
}

}  // namespace
}  // namespace deltawire::test
