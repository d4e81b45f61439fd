// A device played on the host: its addresses are none that the host can read, and its codecs are the
// library's. Whatever a reducer does with it is what it does on the CPU.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/float16.h"
#include "base/values.h"
#include "reduce/rank_threads_testing.h"

namespace deltawire::device_test {
namespace {

constexpr std::uintptr_t kFar = std::uintptr_t{1} << 62;  // where no memory is

template <class Value>
Value* far(Value* host) {
  return std::bit_cast<Value*>(std::bit_cast<std::uintptr_t>(host) | kFar);
}
template <class Value>
Value* near(Value* device) {
  EXPECT_NE(std::bit_cast<std::uintptr_t>(device) & kFar, 0U) << "the host's memory";
  return std::bit_cast<Value*>(std::bit_cast<std::uintptr_t>(device) & ~kFar);
}

class HostDevice final : public PartBackend {
 public:
  Result<DeviceFloats> allocate(std::uint64_t count) override {
    ++blocks_;
    return DeviceFloats(far(new float[count]()), [this](float* values) {
      --blocks_;
      delete[] near(values);
    });
  }
  Status fill(float* at, std::uint64_t count, float value) override {
    std::fill_n(near(at), count, value);
    return {};
  }
  Status upload(std::span<const float> values, float* to) override {
    std::ranges::copy(values, near(to));
    return {};
  }
  Status download(const float* from, std::span<float> values) override {
    if (gives_nothing_) return fail(ErrorCode::kSystem, "the device is gone");
    std::copy_n(near(from), values.size(), values.begin());
    return {};
  }
  Status load(std::span<const DeviceMean> means, float factor) override {
    for (const DeviceMean& each : means) {
      if (each.tensor.count == 0) continue;
      const std::span<float> values(near(each.mean), each.tensor.count);
      widen(near(each.tensor.values), each.tensor.dtype, values.size(), values.data());
      for (float& value : values) value *= factor;
    }
    return next_fails();
  }
  Status encode(std::span<EncodeJob> jobs) override {
    ++encodes_;
    for (EncodeJob& job : jobs) encode_one(job);
    return next_fails();
  }
  Status decode(std::span<DecodeJob> jobs, Into into, float scale) override {
    ++decodes_;
    if (finds_later_ && found_.empty() && jobs.size() > 1) {
      found_ = std::to_string(jobs[1].sender) + " " + std::string(jobs[1].part);
    }
    for (DecodeJob& job : jobs) {
      TensorSlot slot = job.slot;
      slot.values = near(slot.values);
      std::vector<std::byte> scratch(job.codec->decode_scratch(slot));
      job.decoded = job.codec->decode(job.in, slot, into, scale, {.scratch = scratch});
    }
    return next_fails();
  }
  Result<MeanFacts> examine(std::span<const DeviceMean> means) override {
    EXPECT_FALSE(means.empty());
    if (!found_.empty()) return fail(ErrorCode::kCorrupt, found_);
    MeanFacts facts;
    for (std::size_t i = 0; i < means.size(); ++i) {
      const std::span<const float> values(near(means[i].mean), means[i].tensor.count);
      for (std::size_t k = 0; k < values.size(); ++k) {
        facts.sums[0] += std::bit_cast<std::uint32_t>(values[k]) * (2 * k + 1);
      }
      facts.finite = facts.finite && all_finite(values);
      const std::uint64_t beyond = first_beyond(values, means[i].tensor.dtype);
      if (beyond < values.size() && facts.beyond == MeanFacts::kNone) {
        facts.beyond = i;
        facts.beyond_value = values[beyond];
      }
    }
    return facts;
  }
  void publish(std::span<const DeviceMean> means) noexcept override {
    for (const DeviceMean& each : means) {
      if (each.tensor.count == 0) continue;
      narrow(near(each.mean), each.tensor.count, each.tensor.dtype, near(each.tensor.values));
    }
  }

  void forget_decoded() noexcept override { found_.clear(); }

  void fail_in(int calls) { calls_left_ = calls; }
  void give_nothing() { gives_nothing_ = true; }
  // Finds something wrong with the second part that it decodes, and says so when means are examined.
  void find_later(bool finds) { finds_later_ = finds; }
  int encodes() const { return encodes_; }
  int decodes() const { return decodes_; }
  int blocks() const { return blocks_; }
  int jobs() const { return jobs_; }

 private:
  Status next_fails() {
    if (calls_left_ < 0 || calls_left_-- > 0) return {};
    return fail(ErrorCode::kSystem, "the device is gone");
  }

  void encode_one(EncodeJob& job) {
    ++jobs_;
    TensorView in = job.in;
    in.values = near(in.values);
    if (in.significance != nullptr) in.significance = near(in.significance);
    std::vector<float> wide(in.count);
    widen(in.values, in.dtype, in.count, wide.data());
    job.is_zeros = std::ranges::all_of(wide, [](float value) { return value == 0.0F; });
    job.carries = true;  // which nobody may look at who has not asked
    if (job.carrier != DType::kF32) {
      job.carries =
          first_beyond(wide, job.carrier) == wide.size() && (job.carrier == DType::kBF16 || all_finite(wide));
    }
    Residual residual;
    std::vector<float> before;
    if (job.before != nullptr) {
      before.assign(near(job.before), near(job.before) + in.count);
      for (float& value : before) value = static_cast<float>(static_cast<double>(value) * job.factor);
      residual = Residual(before, std::span(near(job.after), in.count));
    }
    std::vector<std::byte> scratch(job.codec->sizes(in).scratch_bytes);
    job.encoded = job.codec->encode(in, residual, job.out, {.stream = job.stream, .scratch = scratch});
  }

  int blocks_ = 0;
  int jobs_ = 0;
  int encodes_ = 0;  // calls
  int decodes_ = 0;
  bool finds_later_ = false;
  std::string found_;
  int calls_left_ = -1;
  bool gives_nothing_ = false;
};

ReducerOptions coded_by(std::shared_ptr<PartBackend> device, NonFinite nonfinite = NonFinite::kError) {
  ReducerOptions options;
  options.policy.nonfinite = nonfinite;
  options.backend = std::move(device);
  return options;
}

constexpr int kWorld = 3;
constexpr std::uint64_t kSteps = 6;

struct Kind {
  std::string name;
  std::size_t count;
  DType dtype;
};
const std::vector<Kind> kKinds{{"bias", 40, DType::kF32},        {"weight", 90'000, DType::kF32},
                               {"half", 3'000, DType::kBF16},    {"small half", 30, DType::kF16},
                               {"other half", 700, DType::kF16}, {"none", 0, DType::kF32}};

using Tensors = std::vector<std::vector<std::byte>>;

// Zeros of the last tensor but one in every other step.
Tensors make_gradient(int rank, std::uint64_t step) {
  Tensors tensors;
  for (std::size_t k = 0; k < kKinds.size(); ++k) {
    std::vector<float> wide(kKinds[k].count);
    for (std::size_t i = 0; i < wide.size(); ++i) {
      const std::size_t mixed = i * 7919 + static_cast<std::size_t>(rank) * 31 + step * 101 + k * 13;
      wide[i] = k == 4 && step % 2 == 1 ? 0.0F : static_cast<float>(mixed % 41) / 16 - 1;
    }
    std::vector<std::byte>& bytes = tensors.emplace_back(wide.size() * dtype_bytes(kKinds[k].dtype));
    narrow(wide.data(), wide.size(), kKinds[k].dtype, bytes.data());
  }
  return tensors;
}

// Made once for all specs.
Tensors gradient(int rank, std::uint64_t step) {
  static std::mutex mutex;
  static std::map<std::pair<int, std::uint64_t>, Tensors> made;
  const std::scoped_lock lock(mutex);
  const auto [found, is_new] = made.try_emplace({rank, step});
  if (is_new) found->second = make_gradient(rank, step);
  return found->second;
}

// How much of a gradient an optimizer sees: of the second tensor and the third.
const std::vector<std::vector<float>>& significances() {
  static const std::vector<std::vector<float>> kSeen = [] {
    std::vector<std::vector<float>> seen(kKinds.size());
    for (std::size_t k = 1; k < 3; ++k) {
      for (std::size_t i = 0; i < kKinds[k].count; ++i)
        seen[k].push_back(std::ldexp(1.0F, static_cast<int>(i % 24)));
    }
    return seen;
  }();
  return kSeen;
}

// What a rank has in the end.
struct Outcome {
  std::vector<Tensors> means;        // of the steps that count
  std::vector<std::uint64_t> bytes;  // that they sent
  std::vector<ErrorCode> failures;   // of those that don't
  std::vector<std::byte> state;
  double residual_norm = 0;

  bool operator==(const Outcome&) const = default;
};

Outcome& operator+=(Outcome& outcome, const WakeableReducer& reducer) {
  outcome.state = reducer.save().value();
  std::vector<Named> tensors;
  for (const Kind& kind : kKinds) tensors.push_back({kind.name, {nullptr, kind.count, kind.dtype}});
  for (const TensorUse& use : reducer.explain(tensors, kSteps)) outcome.residual_norm += use.residual_norm;
  return outcome;
}

// Step 2 fails on rank 1, before its tensors are handed in, and is made again; step 4 has two NaNs there.
void take_steps(int rank, bool on_device, WakeableReducer& reducer, Transport& transport, std::uint64_t first,
                std::uint64_t end, Outcome& outcome) {
  for (std::uint64_t step = first; step < end; ++step) {
    Tensors tensors = gradient(rank, step);
    if (step == 4 && rank == 1) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      std::memcpy(tensors[1].data() + 400, &nan, sizeof nan);
      const std::uint16_t half_nan = 0x7E00;
      std::memcpy(tensors[4].data() + 20, &half_nan, sizeof half_nan);
    }
    const float scale = step < 3 ? 1.0F : 8.0F;
    const std::vector<std::vector<float>>& seen = significances();
    Status failed;
    std::uint64_t bytes = 0;
    for (std::uint32_t bucket = 0; bucket < 3 && failed; ++bucket) {  // the last is empty
      std::vector<Named> named;
      for (std::size_t k = bucket; k < kKinds.size() && bucket < 2; k += 2) {
        void* const at = tensors[k].data();
        named.push_back({kKinds[k].name, {on_device ? far(at) : at, kKinds[k].count, kKinds[k].dtype}});
        if (seen[k].empty()) continue;
        named.back().tensor.significance = on_device ? far(seen[k].data()) : seen[k].data();
      }
      const auto report =
          reducer.all_reduce(named, {step, bucket, bucket == 2, scale}, transport, in_seconds(20));
      if (!report) {
        failed = forward_error(report);
      } else {
        bytes += report->bytes_sent;
      }
    }
    if (!failed) {
      outcome.failures.push_back(failed.error().code);
      return;
    }
    outcome.means.push_back(tensors);
    outcome.bytes.push_back(bytes);
  }
}

std::vector<Outcome> trained(const std::string& spec, NonFinite nonfinite, bool on_device) {
  std::vector<Outcome> outcomes(kWorld);
  std::vector<std::unique_ptr<WakeableReducer>> reducers;
  std::vector<std::shared_ptr<HostDevice>> devices;
  for (int rank = 0; rank < kWorld; ++rank) {
    devices.push_back(on_device ? std::make_shared<HostDevice>() : nullptr);
    reducers.push_back(reducer_of(spec, coded_by(devices.back(), nonfinite)));
  }
  const auto steps = [&](std::uint64_t first, std::uint64_t end, bool is_cut_short) {
    run_ranks(kWorld, {}, [&](int rank, Transport& transport) {
      const auto at = static_cast<std::size_t>(rank);
      if (is_cut_short && rank == 1) transport.abort({ErrorCode::kAborted, "a fault", 1});
      take_steps(rank, on_device, *reducers[at], transport, first, end, outcomes[at]);
    });
  };
  steps(0, 2, false);
  steps(2, 3, true);
  steps(2, 4, false);
  steps(4, 5, false);
  steps(5, kSteps, false);
  for (std::size_t rank = 0; rank < kWorld; ++rank) {
    outcomes[rank] += *reducers[rank];
    // The state is loaded by a reducer of the other kind.
    const auto other = std::make_shared<HostDevice>();
    const auto loaded = reducer_of(spec, coded_by(on_device ? nullptr : other, nonfinite));
    EXPECT_TRUE(loaded->load(outcomes[rank].state));
    EXPECT_EQ(loaded->save().value(), outcomes[rank].state);
    reducers[rank].reset();
    if (on_device) {
      EXPECT_GT(devices[rank]->jobs(), 30);
      EXPECT_EQ(devices[rank]->blocks(), 0) << "memory of the device was not given back";
    }
  }
  return outcomes;
}

class OnADevice : public ::testing::TestWithParam<std::string> {};

TEST_P(OnADevice, EverythingIsAsOnTheCpu) {
  for (const NonFinite nonfinite : {NonFinite::kError, NonFinite::kPass}) {
    const auto by_cpu = trained(GetParam(), nonfinite, false);
    const auto on_device = trained(GetParam(), nonfinite, true);
    for (std::size_t rank = 0; rank < kWorld; ++rank) {
      EXPECT_EQ(on_device[rank].means, by_cpu[rank].means);
      EXPECT_EQ(on_device[rank].bytes, by_cpu[rank].bytes);
      EXPECT_EQ(on_device[rank].failures, by_cpu[rank].failures);
      EXPECT_FALSE(by_cpu[rank].failures.empty());
      EXPECT_EQ(on_device[rank].state, by_cpu[rank].state);
      EXPECT_EQ(on_device[rank].residual_norm, by_cpu[rank].residual_norm);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, OnADevice,
                         ::testing::Values("direct(3lc)", "gather(sbc:p=1% with decay=0.75)", "direct(fp32)",
                                           "direct(sbc:p=1% with decay=0.75,pull_decay=0.5)", "gather(int8)",
                                           "gather(randomk:k=10%)", "direct(gcomp)",
                                           "ring(gcomp:lossless=on)",
                                           "ring(step>=3: fp32, weight: onebit, rest int8)",
                                           "direct(step>=3: fp32, weight: 3lc, rest int8)"));

TEST(ADevice, IsRefusedWhereTheCpuAloneCodes) {
  const auto refused = [](const std::string& spec, Revert revert) {
    ReducerOptions options = coded_by(std::make_shared<HostDevice>());
    options.revert = revert;
    const auto made = make_reducer(spec, options);
    return !made && made.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused("hierarchical:group=2(int8)", Revert::kExact));
  EXPECT_TRUE(refused("powersgd", Revert::kExact));
  EXPECT_TRUE(refused("direct(3lc with momentum=0.9)", Revert::kExact));
  EXPECT_TRUE(refused("direct(3lc)", Revert::kFold));
  EXPECT_FALSE(refused("direct(3lc)", Revert::kExact));
  EXPECT_NE(agreed_settings("direct(3lc)", coded_by(std::make_shared<HostDevice>())).value(),
            agreed_settings("direct(3lc)").value());
}

// Ranks on devices of their own, which take a step after the other.
struct DeviceRanks {
  explicit DeviceRanks(const std::string& spec) {
    for (int rank = 0; rank < kWorld; ++rank) {
      devices.push_back(std::make_shared<HostDevice>());
      reducers.push_back(reducer_of(spec, coded_by(devices.back())));
    }
  }
  void take_step(std::uint64_t number) {
    run_ranks(kWorld, {}, [&](int rank, Transport& transport) {
      const auto at = static_cast<std::size_t>(rank);
      take_steps(rank, true, *reducers[at], transport, number, number + 1, outcomes[at]);
    });
  }
  // Step 1 fails on all ranks, and leaves no trace.
  void expect_lost_step(ErrorCode code) {
    std::vector<std::vector<std::byte>> before;
    for (const auto& each : reducers) before.push_back(each->save().value());
    take_step(1);
    for (std::size_t rank = 0; rank < kWorld; ++rank) {
      EXPECT_EQ(outcomes[rank].failures, std::vector{code});
      EXPECT_EQ(reducers[rank]->save().value(), before[rank]);
    }
  }

  std::vector<std::shared_ptr<HostDevice>> devices;
  std::vector<std::unique_ptr<WakeableReducer>> reducers;
  std::vector<Outcome> outcomes = std::vector<Outcome>(kWorld);
};

// Whichever call of the device fails, the step fails on all ranks and has left no trace.
TEST(ADevice, ThatIsGoneFailsTheStep) {
  for (const char* spec : {"direct(3lc)", "ring(int8)"}) {
    for (const int calls : {0, 1, 2, 3, 5}) {
      SCOPED_TRACE(std::string(spec) + " " + std::to_string(calls));
      DeviceRanks ranks(spec);
      ranks.take_step(0);
      ranks.devices[1]->fail_in(calls);
      ranks.expect_lost_step(ErrorCode::kSystem);
    }
  }
}

// What the device does not give is neither saved nor taken for zeros.
TEST(ADevice, ThatIsGoneHidesItsResiduals) {
  DeviceRanks ranks("direct(3lc)");
  ranks.take_step(0);
  const std::vector<Named> weight{{kKinds[1].name, {nullptr, kKinds[1].count, kKinds[1].dtype}}};
  EXPECT_GT(ranks.reducers[1]->explain(weight, 1)[0].residual_norm, 0);
  ranks.devices[1]->give_nothing();
  EXPECT_TRUE(std::isnan(ranks.reducers[1]->explain(weight, 1)[0].residual_norm));
  EXPECT_EQ(ranks.reducers[1]->save().error().code, ErrorCode::kSystem);
}

// Of two steps on each rank.
std::vector<std::vector<float>> means_of_long_tensors(
    const std::string& spec, const std::vector<std::shared_ptr<HostDevice>>& devices) {
  std::vector<std::vector<float>> means(kWorld);
  run_ranks(kWorld, {}, [&](int rank, Transport& transport) {
    const std::shared_ptr<HostDevice>& device = devices[static_cast<std::size_t>(rank)];
    const auto reducer = reducer_of(spec, coded_by(device));
    for (std::uint64_t step = 0; step < 2; ++step) {
      std::vector<float> values(800'000);  // each rank owns two messages
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>((i * 7919 + step + 31 * static_cast<std::size_t>(rank)) % 4099);
      }
      float* const at = device ? far(values.data()) : values.data();
      const std::vector<Named> named{{"weight", {at, values.size(), DType::kF32}}};
      ASSERT_TRUE(reducer->all_reduce(named, {step, 0, true, 1.0F}, transport, in_seconds(20)));
      means[static_cast<std::size_t>(rank)] = std::move(values);
    }
  });
  return means;
}

// Calls of a device for a bucket, of however many messages.
struct Calls {
  std::string spec;
  int encodes = 0;
  int decodes = 0;
};

// `direct` encodes pushes and means, and decodes those of each rank. `ring` encodes at each hop the sums that
// it sends on, and means; it adds to all of them but the first, and decodes the means of each rank.
TEST(ADevice, CodesABucketAtATime) {
  for (const Calls& each :
       {Calls{"direct(int8)", 2, 2 * kWorld}, Calls{"ring(int8)", kWorld, 2 * kWorld - 1}}) {
    SCOPED_TRACE(each.spec);
    std::vector<std::shared_ptr<HostDevice>> devices;
    for (int rank = 0; rank < kWorld; ++rank) devices.push_back(std::make_shared<HostDevice>());
    const auto on_device = means_of_long_tensors(each.spec, devices);
    EXPECT_EQ(on_device, means_of_long_tensors(each.spec, {kWorld, nullptr}));
    for (const auto& device : devices) {
      EXPECT_EQ(device->encodes(), 2 * each.encodes);
      EXPECT_EQ(device->decodes(), 2 * each.decodes);
    }
  }
}

// What is found after a part was decoded fails its step for all ranks, and only that.
TEST(ADevice, MayFindLaterWhatIsWrong) {
  for (const char* spec : {"gather(int8)", "ring(int8)"}) {
    SCOPED_TRACE(spec);
    DeviceRanks ranks(spec);
    ranks.take_step(0);
    ranks.devices[1]->find_later(true);
    ranks.expect_lost_step(ErrorCode::kCorrupt);
    ranks.devices[1]->find_later(false);
    ranks.take_step(1);
    for (const Outcome& outcome : ranks.outcomes) EXPECT_EQ(outcome.failures.size(), 1U);
  }
}

}  // namespace
}  // namespace deltawire::device_test
