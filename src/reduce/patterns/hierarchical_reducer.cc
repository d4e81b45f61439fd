// The reducer of `hierarchical`: its groups, saved states, and what explain() counts.
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/spec_text.h"
#include "channel/codec_rules.h"
#include "reduce/pattern_reducer.h"
#include "reduce/patterns/hierarchical.h"
#include "reduce/patterns/hierarchical_plan.h"
#include "reduce/patterns/patterns.h"

namespace deltawire {
namespace {

constexpr std::size_t kSumChannel = 0;
constexpr std::size_t kMeanChannel = 1;
constexpr std::size_t kShareChannel = 2;

struct HierarchicalSettings {
  int members = 1;     // of a group
  std::string within;  // codec
  std::string magic;   // of states: residuals of other groups' sums would never be sent
};

class HierarchicalReducer final : public PatternReducer {
 public:
  HierarchicalReducer(Channels channels, const ReducerOptions& options, HierarchicalSettings settings)
      : PatternReducer({"hierarchical", settings.magic, false, kShareChannel}, std::move(channels), options),
        settings_(std::move(settings)) {}

  std::string spec() const override {
    return "hierarchical:group=" + std::to_string(settings_.members) + ",within=" + settings_.within + "(" +
           channel(kSumChannel).spec() + ")";
  }

  Status mask_sent(std::string_view, std::span<float>) const override {
    return invalid(
        "what hierarchical sends between groups is not a rank's own, so its momentum can't be masked "
        "by it; take the pattern gather or direct");
  }

 private:
  std::unique_ptr<BucketExchange> make_bucket() override {
    const bool passes_nonfinite = options().policy.nonfinite == NonFinite::kPass;
    return make_hierarchical_exchange(
        pool(), {channel(kSumChannel), channel(kMeanChannel), channel(kShareChannel), passes_nonfinite},
        settings_.members);
  }

  std::uint64_t copies_sent(std::size_t channel, const Named& tensor, const PartUse& part) const override {
    const RankGroups groups(world(), settings_.members);
    const int group = groups.of(rank());
    for (const OwnedRange& range :
         hierarchical_ranges(tensor.name, tensor.tensor.elements(), groups.lists())) {
      if (range.first != part.first) continue;
      const auto list = static_cast<std::size_t>(range.owner);
      if (channel == kShareChannel) return groups.adder(group, list) == rank() ? 0 : 1;
      if (channel == kSumChannel) return groups.owner(list) == rank() ? 0 : 1;
      return static_cast<std::uint64_t>(groups.members(group) + groups.count() - 2);
    }
    return 0;
  }

  // What waits of groups' sums has the mean's unit. Other ranks may add up a part now, so it goes to the
  // part's owner, and waits there with what its mean lacks.
  ResizedChannel resized_channel(std::size_t channel, const SavedRanks& saved,
                                 const SavedChannels& channels) const override {
    ResizedChannel kept;
    if (channel == kSumChannel) return kept;
    for (const auto& states : channels) {
      const std::vector<WeightedState> whole = weigh_equally(states);
      kept.states.insert(kept.states.end(), whole.begin(), whole.end());
    }
    const RankGroups groups(saved.world, settings_.members);
    for (const Named& tensor : saved.tensors) {
      for (const OwnedRange& range :
           hierarchical_ranges(tensor.name, tensor.tensor.elements(), groups.lists())) {
        if (groups.owner(static_cast<std::size_t>(range.owner)) == saved.rank) {
          kept.parts.push_back(cut_part(tensor, range));
        }
      }
    }
    return kept;
  }

  const HierarchicalSettings settings_;
};

Result<int> members_of(const ParsedSpec& pattern) {
  constexpr int kMost = 65535;  // ranks: a frame's header says their number in 16 bits
  ASSIGN_OR_RETURN(const auto members, count_parameter(pattern, "group", kMost));
  if (members) return *members;
  return invalid(
      "hierarchical needs the number of ranks in a group, which follow each other: write "
      "hierarchical:group=8(3lc) for 8 on each site");
}

// Gradients within a group leave nothing behind.
Result<std::string> codec_within(const ParsedSpec& pattern) {
  const SpecParameter* given = find_parameter(pattern, "within");
  std::string codec(given == nullptr ? "fp32" : given->value);
  ASSIGN_OR_RETURN(const auto rules, CodecRules::parse(codec));
  if (rules.any(&CodecInfo::error_feedback) || codec.find(':') != std::string::npos) {
    return invalid("hierarchical: within=" + codec +
                   " must be the name of a codec without error feedback, for "
                   "instance fp32, bf16 or gcomp");
  }
  return codec;
}

}  // namespace

Result<std::unique_ptr<WakeableReducer>> make_hierarchical_reducer(const ParsedSpec& pattern,
                                                                   std::string_view codecs,
                                                                   const ReducerOptions& options) {
  ASSIGN_OR_RETURN(const int members, members_of(pattern));
  ASSIGN_OR_RETURN(const std::string within, codec_within(pattern));
  ASSIGN_OR_RETURN(const auto rules, CodecRules::parse(codecs));
  RETURN_IF_ERROR(
      check_for_sums("hierarchical(" + std::string(codecs) + ")", "sums of groups", rules, options));
  ASSIGN_OR_RETURN(auto channels, make_channels(codecs, options, {Revert::kExact, Revert::kExact}));
  RETURN_IF_ERROR(add_channel(channels, within, options, Revert::kExact, false));
  std::string magic(kMagicOfGroups);
  magic += static_cast<char>(members & 0xFF);
  magic += static_cast<char>(members >> 8);
  return std::make_unique<HierarchicalReducer>(std::move(channels), options,
                                               HierarchicalSettings{members, within, std::move(magic)});
}

}  // namespace deltawire
