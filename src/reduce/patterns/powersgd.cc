// `powersgd`: a matrix M travels as two factors of a low rank (Vogels, Karimireddy, Jaggi, "PowerSGD:
// Practical Low-Rank Gradient Compression for Distributed Optimization", NeurIPS 2019, algorithms 1 and 2).
// With the residual in M, and Q from the step before: P = M Q, averaged and orthonormalized; Q = M^T P,
// averaged; the mean is P Q^T, and M less P times this rank's own Q stays for the next step. Both averages
// are linear, so they are those of `direct`, one round of it after another. What is no matrix, or would not
// get smaller, travels as it is in the first round.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/spec_text.h"
#include "base/values.h"
#include "channel/codec_rules.h"
#include "reduce/pattern_reducer.h"
#include "reduce/patterns/direct.h"
#include "reduce/patterns/factor_store.h"
#include "reduce/patterns/low_rank.h"
#include "reduce/patterns/patterns.h"
#include "reduce/patterns/powersgd_exchange.h"

namespace deltawire {
namespace {

class PowerSgdReducer final : public PatternReducer {
 public:
  PowerSgdReducer(Channels channels, const ReducerOptions& options, const PowerSgdSettings& settings)
      : PatternReducer({"powersgd", "DWPOWSGD", false}, std::move(channels), options),
        settings_(settings),
        store_(settings.rank, options.revert, meter()) {}

  std::string spec() const override {
    return "powersgd:rank=" + std::to_string(settings_.rank) + "(" + channel(0).spec() + ")";
  }

  Status mask_sent(std::string_view name, std::span<float> momentum) const override {
    (void)momentum;
    return invalid("powersgd sends factors of '" + std::string(name) +
                   "', not some of its elements, so that no momentum can be masked; take gather or direct");
  }

  // A matrix is what its factors are together.
  std::vector<TensorUse> explain(std::span<const Named> tensors, std::uint64_t step) const override {
    std::vector<TensorUse> uses = PatternReducer::explain(tensors, step);
    for (std::size_t i = 0; i < uses.size(); ++i) {
      const low_rank::Shape shape = factors_of(tensors[i], settings_);
      if (shape.elements() == 0) continue;
      TensorUse whole;
      whole.plan.codec = "factors of rank " + std::to_string(settings_.rank) + ", ";
      const std::uint64_t lengths[] = {shape.rows, shape.columns};
      for (std::size_t f = 0; f < std::size(lengths); ++f) {
        const std::string name = std::string(tensors[i].name) + kFactorNames[f];
        const Named factor{name, {nullptr, settings_.rank * lengths[f], DType::kF32}};
        const TensorUse use = std::move(PatternReducer::explain(std::span(&factor, 1), step).front());
        if (f == 0) whole.plan.codec += use.plan.codec;
        whole.plan.payload_bytes += use.plan.payload_bytes;
        whole.bytes_sent += use.bytes_sent;
      }
      whole.residual_bytes = store_.bytes_of(tensors[i]);
      whole.residual_norm = std::sqrt(sum_of_squares(store_.waiting(tensors[i])));
      if (whole.bytes_sent > 0) whole.raw_bytes = 4 * elements_sent_whole(tensors[i], rank(), world());
      uses[i] = std::move(whole);
    }
    return uses;
  }

  Result<std::vector<std::byte>> save() const override {
    ASSIGN_OR_RETURN(auto rest, PatternReducer::save());
    return or_no_memory("saving the matrices", [&]() -> Result<std::vector<std::byte>> {
      std::vector<std::byte> all = store_.save();
      all.insert(all.end(), rest.begin(), rest.end());
      return all;
    });
  }

  Status load(Bytes state) override {
    return or_no_memory("loading the matrices", [&]() -> Status {
      FactorStore loaded(settings_.rank, options().revert, meter());
      ASSIGN_OR_RETURN(const std::uint64_t bytes, loaded.load(state));
      RETURN_IF_ERROR(PatternReducer::load(state.subspan(bytes)));
      store_ = std::move(loaded);
      return {};
    });
  }

  Status load_resized(const SavedRanks& saved) override {
    return or_no_memory("loading the matrices", [&]() -> Status {
      RETURN_IF_ERROR(check_places(saved));
      std::vector<Bytes> matrices;
      std::vector<Bytes> rest;
      for (const Bytes state : saved.states) {
        if (state.empty() && !saved.continued.empty()) {  // of a rank that doesn't go on
          matrices.emplace_back();
          rest.emplace_back();
          continue;
        }
        ASSIGN_OR_RETURN(const std::uint64_t bytes, FactorStore::saved_bytes(state));
        matrices.push_back(state.first(bytes));
        rest.push_back(state.subspan(bytes));
      }
      FactorStore loaded(settings_.rank, options().revert, meter());
      RETURN_IF_ERROR(is_unchanged(saved)
                          ? loaded.load(matrices[static_cast<std::size_t>(saved.rank)]).map([](auto) {})
                          : loaded.load_weighted(weigh_factors(saved, matrices), saved.tensors));
      const SavedRanks channels{rest, saved.tensors, saved.world, saved.rank, saved.continued};
      RETURN_IF_ERROR(PatternReducer::load_resized(channels));
      store_ = std::move(loaded);
      return {};
    });
  }

 private:
  // A new rank owes nothing, but needs the matrices Q, which are the same on all.
  static std::vector<WeightedState> weigh_factors(const SavedRanks& saved,
                                                  const std::vector<Bytes>& matrices) {
    std::vector<WeightedState> weighted = weigh_gradients(saved, matrices);
    const auto given = std::ranges::find_if(matrices, [](Bytes each) { return !each.empty(); });
    if (weighted.empty() && given != matrices.end()) weighted.push_back({*given, 0.0});
    return weighted;
  }
  std::unique_ptr<BucketExchange> make_bucket() override {
    const auto round = [this] {
      return make_direct_exchange(pool(), {channel(0), channel(1)}, kMost, window_);
    };
    return make_powersgd_exchange(pool(), store_, settings_, {round(), round()});
  }
  std::uint64_t copies_sent(std::size_t channel, const Named& tensor, const PartUse& part) const override {
    return channel == 1 ? others() : pushes_of_part(tensor, part.first, kMost, rank(), world());
  }
  // Of its channels, which keep nothing of factors.
  ResizedChannel resized_channel(std::size_t channel, const SavedRanks& saved,
                                 const SavedChannels& channels) const override {
    return resized_direct_channel(channel, saved, channels, kMost);
  }
  void commit_own() noexcept override { store_.commit(); }
  void revert_own() noexcept override { store_.revert(); }

  static constexpr MostElements kMost{kPieceElements, kMostElements};

  PowerSgdSettings settings_;
  FactorStore store_;
  std::shared_ptr<PieceWindow> window_ = std::make_shared<PieceWindow>(kPieceElements);
};

}  // namespace

Result<std::unique_ptr<WakeableReducer>> make_powersgd_reducer(const ParsedSpec& pattern,
                                                               std::string_view codecs,
                                                               const ReducerOptions& options) {
  constexpr int kDefaultRank = 4;
  ASSIGN_OR_RETURN(const auto given, count_parameter(pattern, "rank", low_rank::kMaxRank));
  ASSIGN_OR_RETURN(auto channels, make_channels(codecs, options, {options.revert, Revert::kExact}));
  ASSIGN_OR_RETURN(const auto rules, CodecRules::parse(codecs));
  if (rules.any(&CodecInfo::error_feedback) || rules.have_feedback()) {
    return invalid("powersgd(" + std::string(codecs) +
                   ") would keep residuals of factors, which mean nothing in the next step: they belong to "
                   "another basis then. Take a codec without error feedback: fp32, bf16 or gcomp");
  }
  const PowerSgdSettings settings{static_cast<std::uint32_t>(given.value_or(kDefaultRank)),
                                  options.policy.min_elements, options.policy.nonfinite == NonFinite::kPass};
  return std::make_unique<PowerSgdReducer>(std::move(channels), options, settings);
}

}  // namespace deltawire
