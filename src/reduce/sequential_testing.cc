#include "reduce/sequential_testing.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <utility>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/codec_testing.h"
#include "reduce/pattern_reducer.h"
#include "reduce/patterns/hierarchical_plan.h"
#include "reduce/patterns/ring_plan.h"

namespace deltawire::testing {
namespace {

using ChannelList = std::vector<std::unique_ptr<Channel>>;

// For the reducers' first or second channel.
ChannelList channels_of(std::string_view codec, int count, std::size_t which) {
  ChannelList channels;
  const ChannelOptions options{.policy = {}, .means = which == 1, .seed = channel_seed(0, which)};
  for (int i = 0; i < count; ++i) channels.push_back(std::move(*make_channel(codec, options)));
  return channels;
}

struct How {
  std::uint64_t step = 0;
  std::size_t rank = 0;  // that encodes
  Into into = Into::kOverwrite;
  float scale = 1.0F;
};

// Through the channel's encoder and decoder; one of the two says what tensor the part was cut from.
void relay(Channel& channel, Named from, Named to, const How& how) {
  from.elements_of_whole = to.elements_of_whole = std::max(from.elements_of_whole, to.elements_of_whole);
  const auto rank = static_cast<std::uint16_t>(how.rank);
  const MessageId id{.step = how.step, .rank = rank, .world = static_cast<std::uint16_t>(rank + 1)};
  const auto pieces = channel.encode(std::span(&from, 1), id);
  ASSERT_TRUE(pieces) << pieces.error().message;
  const auto status = channel.decode(join(*pieces), std::span(&to, 1), id, how.into, how.scale);
  ASSERT_TRUE(status) << status.error().message;
}

Named part_of(const std::string& name, const std::vector<float>& values, const OwnedRange& range) {
  auto* memory = const_cast<float*>(values.data());
  return {.name = name,
          .tensor = {memory + range.first, range.count, DType::kF32},
          .first = range.first,
          .elements_of_whole = values.size()};
}

class Sequential : public SequentialPattern {
 public:
  Sequential(int world, std::uint64_t most_elements) : world_(world), most_elements_(most_elements) {}

  Tensors mean(const std::vector<Tensors>& inputs, std::uint64_t step) override {
    Tensors result;
    for (std::size_t i = 0; i < inputs[0].size(); ++i) {
      const std::string name = tensor_names()[i];
      const std::uint64_t count = inputs[0][i].size();
      auto& out = result.emplace_back(count, 0.0F);
      std::vector<const std::vector<float>*> shares;
      for (const Tensors& input : inputs) shares.push_back(&input[i]);
      for (const OwnedRange& part : parts(name, count)) {
        mean_of_part({name, part, step}, shares, out);
      }
    }
    for (const ChannelList& kind : kinds_) {
      for (const auto& each : kind) each->commit();
    }
    return result;
  }

 protected:
  struct Part {
    std::string name;
    OwnedRange range;
    std::uint64_t step = 0;
    std::size_t owner() const { return static_cast<std::size_t>(range.owner); }
  };
  virtual std::vector<OwnedRange> parts(const std::string& name, std::uint64_t count) const {
    return owned_ranges(name, count, world_, most_elements_);
  }
  virtual void mean_of_part(const Part& part, const std::vector<const std::vector<float>*>& shares,
                            std::vector<float>& out) = 0;

  // Channels of a reducer's first or second kind.
  void add_kind(std::string_view codec, int count, std::size_t which) {
    kinds_.push_back(channels_of(codec, count, which));
  }
  Channel& channel(std::size_t kind, std::size_t which = 0) { return *kinds_[kind][which]; }

  float scale() const { return 1.0F / static_cast<float>(world_); }

  int world_;
  std::uint64_t most_elements_;

 private:
  std::vector<ChannelList> kinds_;
};

class SequentialDirect final : public Sequential {
 public:
  SequentialDirect(std::string_view codec, int world, std::uint64_t most_elements)
      : Sequential(world, most_elements) {
    add_kind(codec, world, 0);
    add_kind(codec, 1, 1);
  }

 private:
  void mean_of_part(const Part& part, const std::vector<const std::vector<float>*>& shares,
                    std::vector<float>& out) override {
    std::vector<float> mean(part.range.count, 0.0F);
    const Named slot{part.name, {mean.data(), mean.size(), DType::kF32}, part.range.first};
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
      relay(channel(0, rank), part_of(part.name, *shares[rank], part.range), slot,
            {part.step, rank, Into::kAccumulate, scale()});
    }
    relay(channel(1), slot, part_of(part.name, out, part.range), {part.step, part.owner()});
  }
};

class SequentialGather final : public Sequential {
 public:
  SequentialGather(std::string_view codec, int world, std::uint64_t most_elements)
      : Sequential(world, most_elements) {
    add_kind(codec, world, 0);
  }

 private:
  std::vector<OwnedRange> parts(const std::string&, std::uint64_t count) const override {
    std::vector<OwnedRange> pieces;
    for (std::uint64_t first = 0; first < count; first += most_elements_) {
      pieces.push_back({first, std::min(most_elements_, count - first), 0});
    }
    return pieces;
  }
  void mean_of_part(const Part& part, const std::vector<const std::vector<float>*>& shares,
                    std::vector<float>& out) override {
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
      relay(channel(0, rank), part_of(part.name, *shares[rank], part.range),
            part_of(part.name, out, part.range), {part.step, rank, Into::kAccumulate, scale()});
    }
  }
};

class SequentialRing final : public Sequential {
 public:
  SequentialRing(std::string_view codec, int world) : Sequential(world, kRingMessageElements) {
    add_kind(codec, world, 0);
    add_kind(codec, 1, 1);
  }

 private:
  // From the rank after the owner round to the owner: what arrives is added to the rank's own share and sent
  // on.
  void mean_of_part(const Part& part, const std::vector<const std::vector<float>*>& shares,
                    std::vector<float>& out) override {
    std::vector<float> sum;
    for (int place = 1; place <= world_; ++place) {
      const auto rank = static_cast<std::size_t>((part.range.owner + place) % world_);
      std::vector<float> own;
      for (std::uint64_t i = 0; i < part.range.count; ++i) {
        own.push_back(scale() * (*shares[rank])[part.range.first + i]);
      }
      if (place > 1) {
        const auto before = static_cast<std::size_t>((part.range.owner + place - 1) % world_);
        const Named from{part.name, {sum.data(), sum.size(), DType::kF32}, part.range.first};
        const Named to{part.name, {own.data(), own.size(), DType::kF32}, part.range.first};
        relay(channel(0, before), from, to, {part.step, before, Into::kAccumulate, 1.0F});
      }
      sum = own;
    }
    const Named mean{part.name, {sum.data(), sum.size(), DType::kF32}, part.range.first};
    relay(channel(1), mean, part_of(part.name, out, part.range), {part.step, part.owner()});
  }
};

// Every group adds up its members' gradients, already divided by the number of ranks, in fp32; the owner,
// which is in one of the groups, adds up what the groups sent.
class SequentialHierarchical final : public Sequential {
 public:
  SequentialHierarchical(std::string_view codec, int world, int members)
      : Sequential(world, kPieceElements), groups_(world, members) {
    add_kind(codec, groups_.count(), 0);
    add_kind(codec, 1, 1);
    add_kind("fp32", world, 2);
  }

 private:
  std::vector<OwnedRange> parts(const std::string& name, std::uint64_t count) const override {
    return owned_ranges(name, count, static_cast<int>(groups_.lists()), kPieceElements);
  }
  void mean_of_part(const Part& part, const std::vector<const std::vector<float>*>& shares,
                    std::vector<float>& out) override {
    std::vector<float> mean(part.range.count, 0.0F);
    const Named slot{part.name, {mean.data(), mean.size(), DType::kF32}, part.range.first};
    for (int group = 0; group < groups_.count(); ++group) {
      std::vector<float> sum(part.range.count, 0.0F);
      const Named summed{part.name, {sum.data(), sum.size(), DType::kF32}, part.range.first};
      for (int i = 0; i < groups_.members(group); ++i) {
        const auto rank = static_cast<std::size_t>(groups_.first(group) + i);
        relay(channel(2, rank), part_of(part.name, *shares[rank], part.range), summed,
              {part.step, rank, Into::kAccumulate, scale()});
      }
      const auto adder = static_cast<std::size_t>(groups_.adder(group, part.owner()));
      relay(channel(0, static_cast<std::size_t>(group)), summed, slot,
            {part.step, adder, group == 0 ? Into::kOverwrite : Into::kAccumulate});
    }
    const auto owner = static_cast<std::size_t>(groups_.owner(part.owner()));
    relay(channel(1), slot, part_of(part.name, out, part.range), {part.step, owner});
  }

  RankGroups groups_;
};

std::vector<std::string> with_every_pattern(const std::vector<std::string>& codecs) {
  std::vector<std::string> specs;
  for (const char* pattern : {"direct", "ring", "gather"}) {
    for (const std::string& codec : codecs) {
      std::string spec = std::string(pattern) + "(" + codec + ")";
      if (make_reducer(spec)) specs.push_back(std::move(spec));  // growth_test.cc says which ring refuses
    }
  }
  return specs;
}

}  // namespace

const std::vector<std::uint64_t>& tensor_counts() {
  static const std::vector<std::uint64_t> counts{500, 20, 70001, 0, 1, 16384, 16383, 321};
  return counts;
}

std::vector<std::string> tensor_names() {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < tensor_counts().size(); ++i) {
    names.push_back("layer" + std::to_string(i) + ".weight");
  }
  return names;
}

namespace {

Tensors draw_gradients(int rank, std::uint64_t step) {
  Tensors all;
  for (std::size_t i = 0; i < tensor_counts().size(); ++i) {
    CounterRng rng(1000 * step + static_cast<std::uint64_t>(rank), i);
    auto& values = all.emplace_back(tensor_counts()[i]);
    for (float& value : values) {
      const double u = rng.next_uniform() - 0.5;
      value = u > 0.4 ? 0.0F : static_cast<float>(u * u * u);
    }
  }
  return all;
}

}  // namespace

// Drawn once: all patterns and codecs ask for the same ones.
Tensors gradients(int rank, std::uint64_t step) {
  static std::mutex mutex;
  static std::map<std::pair<int, std::uint64_t>, Tensors> drawn;
  const std::scoped_lock lock(mutex);
  const auto [found, is_new] = drawn.try_emplace({rank, step});
  if (is_new) found->second = draw_gradients(rank, step);
  return found->second;
}

std::vector<Named> named(Tensors& tensors, const std::vector<std::string>& names) {
  std::vector<Named> all;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    all.push_back({names[i], {tensors[i].data(), tensors[i].size(), DType::kF32}, 0});
  }
  return all;
}

std::vector<std::byte> join(std::span<const Bytes> pieces) {
  std::vector<std::byte> all;
  for (const Bytes piece : pieces) all.insert(all.end(), piece.begin(), piece.end());
  return all;
}

std::unique_ptr<SequentialPattern> make_sequential(std::string_view spec, int world,
                                                   std::uint64_t most_elements) {
  const auto open = spec.find('(');
  const std::string_view pattern = spec.substr(0, open);
  const std::string_view codec = spec.substr(open + 1, spec.size() - open - 2);
  if (pattern == "direct") return std::make_unique<SequentialDirect>(codec, world, most_elements);
  if (pattern == "gather") return std::make_unique<SequentialGather>(codec, world, most_elements);
  if (pattern == "ring") return std::make_unique<SequentialRing>(codec, world);
  const int members = std::stoi(std::string(pattern.substr(pattern.find('=') + 1)));
  return std::make_unique<SequentialHierarchical>(codec, world, members);
}

std::vector<Tensors> reference_means(SequentialPattern& reference, int world, std::uint64_t steps) {
  std::vector<Tensors> means;
  for (std::uint64_t step = 0; step < steps; ++step) {
    std::vector<Tensors> inputs;
    for (int rank = 0; rank < world; ++rank) inputs.push_back(gradients(rank, step));
    means.push_back(reference.mean(inputs, step));
  }
  return means;
}

void expect_means(Reducer& reducer, const std::vector<Tensors>& means, Transport& transport) {
  const auto names = tensor_names();
  for (std::uint64_t step = 0; step < means.size(); ++step) {
    Tensors tensors = gradients(transport.rank(), step);
    const auto report = reducer.all_reduce(named(tensors, names), {step, 0, true}, transport,
                                           Clock::now() + std::chrono::seconds(30));
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(means[step] == tensors) << reducer.spec() << ", step " << step;
  }
}

std::vector<std::string> reducer_specs() {
  std::vector<std::string> codecs;
  for (const CodecInfo* info : registered_codecs()) codecs.emplace_back(info->name);
  codecs.emplace_back("layer0*: int8, layer2* step<1: onebit, layer2*: sbc, rest fp32");
  std::vector<std::string> specs = with_every_pattern(codecs);
  const std::string feedback =
      "(layer0*: fp32 with momentum=0.5, rest sbc with clip=1,momentum=0.9,masking=on,decay=0.9)";
  specs.push_back("direct" + feedback);
  specs.push_back("gather" + feedback);
  for (const char* coded :
       {"(fp32)", "(3lc)", "(gcomp)", "(layer2* step<1: onebit, layer2*: sbc, rest fp32)"}) {
    specs.push_back("hierarchical:group=2" + std::string(coded));
  }
  return specs;
}

}  // namespace deltawire::testing
