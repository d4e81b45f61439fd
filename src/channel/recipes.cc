#include "channel/recipes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>

#include "base/errors.h"
#include "base/spec_text.h"
#include "channel/feedback.h"
#include "codecs/spec_string.h"

namespace deltawire {
namespace {

// Deep Gradient Compression (Lin et al., ICLR 2018): section 3 and its algorithm 1; warm-up: section 3.3,
// where a fraction of 25 %, 6.25 %, 1.5625 % and 0.4 % is sent in the first four epochs.
constexpr ParameterInfo kDgc[] = {
    {"p", "0.000001 <= p < 1, or in percent", "0.001", "share of the elements that is sent"},
    {kMomentumPiece.name, kMomentumPiece.range, "0.9", "momentum before compression, masked where sent"},
    kClipPiece,
    {"warmup", "0 <= warmup < 16777216", "0", "steps in which the share goes down to p by quarters"},
};
constexpr int kWarmupStages = 4;

// The stages of a warm-up, and what follows it.
//   share   of the elements that is sent after it
//   codec   the codec that sends a share, with its feedback
std::vector<RecipeStage> stages_down_to(float share, std::uint64_t steps,
                                        const std::function<std::string(float)>& codec) {
  std::vector<RecipeStage> stages;
  float sent = 0.25F;
  std::uint64_t begin = 0;
  for (int stage = 1; stage <= kWarmupStages && sent > share; ++stage, sent /= 4) {
    const auto end = steps * static_cast<std::uint64_t>(stage) / kWarmupStages;
    if (end == begin) continue;
    begin = end;
    stages.push_back({"step<" + std::to_string(end), codec(sent)});
  }
  stages.push_back({"", codec(share)});
  return stages;
}

Result<std::uint64_t> warmup_of(const ParsedSpec& spec) {
  ASSIGN_OR_RETURN(const auto steps,
                   float_parameter(spec, "warmup", {.low = 0, .high = 16777216, .default_value = 0}));
  if (std::floor(steps) != steps) {
    return invalid(std::string(spec.name) + ": warmup counts steps; give a whole number");
  }
  return static_cast<std::uint64_t>(steps);
}

Result<std::vector<RecipeStage>> stages_of_dgc(const ParsedSpec& spec) {
  RETURN_IF_ERROR(check_parameter_names(spec, kDgc));
  ASSIGN_OR_RETURN(const auto fraction,
                   fraction_parameter(spec, "p", {.low = 1e-6F, .high = 1, .default_value = 0.001F}));
  ASSIGN_OR_RETURN(auto pieces, read_feedback(spec, {.momentum = 0.9F}));
  pieces.masking = pieces.momentum != 0;
  ASSIGN_OR_RETURN(const auto warmup, warmup_of(spec));
  const std::string feedback = pieces.text();
  return stages_down_to(fraction, warmup,
                        [&feedback](float share) { return "topk:k=" + canonical_number(share) + feedback; });
}

// Codecs that send a share of the elements: `warmup`, which no codec has, makes rules of them. They have one
// default of the share.
struct Sparse {
  std::string_view codec;
  std::string_view share;  // the parameter
};
constexpr Sparse kSparse[] = {{"randomk", "k"}, {"sbc", "p"}, {"topk", "k"}};
constexpr float kUsualShare = 0.01F;

// Of "sbc:p=1%,warmup=400 with decay=0.9"; none without a warm-up.
Result<std::vector<RecipeStage>> stages_of_warmup(const Sparse& sparse, std::string_view text) {
  const std::size_t end = std::min(text.find(kFeedbackFollows), text.size());
  ASSIGN_OR_RETURN(const auto spec, parse_spec(text.substr(0, end)));
  if (find_parameter(spec, "warmup") == nullptr) return std::vector<RecipeStage>{};
  ASSIGN_OR_RETURN(
      const auto share,
      fraction_parameter(spec, sparse.share, {.low = 1e-6F, .high = 1, .default_value = kUsualShare}));
  ASSIGN_OR_RETURN(const auto warmup, warmup_of(spec));
  std::string rest;
  for (const SpecParameter& parameter : spec.parameters) {
    if (parameter.key == sparse.share || parameter.key == "warmup") continue;
    rest.append(",").append(parameter.key).append("=").append(parameter.value);
  }
  rest += text.substr(end);
  const std::string head = std::string(sparse.codec) + ":" + std::string(sparse.share) + "=";
  return stages_down_to(share, warmup, [&](float part) { return head + canonical_number(part) + rest; });
}

// SparseLoCo (Sarfi et al., arXiv 2508.15706), as its authors' code has it: of each 4,096 elements the 64
// largest, in four bins; what is left decays. What owners keep of means, where there are such, is late
// already, and halves.
constexpr ParameterInfo kSparseLoCo[] = {
    {"k", "0.000001 <= k < 1, or in percent", "0.015625", "share of each 4,096 elements that is sent"},
    {"pull", "k, or 0.000001 <= pull < 1, or in percent", "k", "the k of means, which owners send back"},
    {kDecayPiece.name, kDecayPiece.range, "0.95", kDecayPiece.meaning},
    {kPullDecayPiece.name, kPullDecayPiece.range, "0.5", kPullDecayPiece.meaning},
};

Result<std::vector<RecipeStage>> stages_of_sparseloco(const ParsedSpec& spec) {
  RETURN_IF_ERROR(check_parameter_names(spec, kSparseLoCo));
  constexpr FloatRange kRange = {.low = 1e-6F, .high = 1, .default_value = 0.015625F};
  ASSIGN_OR_RETURN(const auto k, fraction_parameter(spec, "k", kRange));
  ASSIGN_OR_RETURN(const auto pull, pull_parameter(spec, "k", kRange));
  ASSIGN_OR_RETURN(const auto pieces, read_feedback(spec, {.decay = 0.95F, .pull_decay = 0.5F}));
  const std::string means = pull ? ",pull=" + canonical_number(*pull) : "";
  const std::string codec =
      "topk:k=" + canonical_number(k) + ",values=2bit,positions=auto,chunk=4096" + means + pieces.text();
  return std::vector<RecipeStage>{{"", codec}};
}

// MuLoCo (Therien et al., arXiv 2505.23725), the 2 bits of its authors' code: all values of a tensor in four
// bins; what is left decays, and of means it is dropped. With this k, below 1 as topk wants it, every element
// of a block is sent.
constexpr ParameterInfo kMuLoCo[] = {
    {kDecayPiece.name, kDecayPiece.range, "0.9", kDecayPiece.meaning},
    {kPullDecayPiece.name, kPullDecayPiece.range, "0", kPullDecayPiece.meaning},
};

Result<std::vector<RecipeStage>> stages_of_muloco(const ParsedSpec& spec) {
  RETURN_IF_ERROR(check_parameter_names(spec, kMuLoCo));
  ASSIGN_OR_RETURN(const auto pieces, read_feedback(spec, {.decay = 0.9F, .pull_decay = 0}));
  const std::string codec = "topk:k=0.999999,values=2bit,positions=auto,chunk=4096" + pieces.text();
  return std::vector<RecipeStage>{{"", codec}};
}

// PULSELoCo (Miahi and Belilovsky, arXiv 2602.03839): every value that isn't 0, as float32, of what the
// weights show. A visible change below 1e-12 waits in the codec's residual.
Result<std::vector<RecipeStage>> stages_of_pulseloco(const ParsedSpec& spec) {
  if (!spec.parameters.empty()) return needs_weights();
  return std::vector<RecipeStage>{{"", "threshold:t=1e-12,positions=auto"}};
}

struct Recipe {
  RecipeNeeds needs;
  Result<std::vector<RecipeStage>> (*stages)(const ParsedSpec&);
};

constexpr Recipe kRecipes[] = {
    {{.name = "dgc"}, stages_of_dgc},
    {{.name = "muloco", .keeps_inner_momentum = true}, stages_of_muloco},
    {{.name = "pulseloco", .keeps_inner_momentum = true, .weights = true}, stages_of_pulseloco},
    {{.name = "sparseloco", .keeps_inner_momentum = true}, stages_of_sparseloco}};

const Recipe* recipe_of(std::string_view spec) {
  const std::string_view name = spec.substr(0, spec.find(':'));
  const auto found =
      std::ranges::find(kRecipes, name, [](const Recipe& recipe) { return recipe.needs.name; });
  return found == std::end(kRecipes) ? nullptr : &*found;
}

}  // namespace

Result<std::vector<RecipeStage>> stages_of_recipe(std::string_view spec) {
  const Recipe* recipe = recipe_of(spec);
  if (recipe == nullptr) {
    const std::string_view name = spec.substr(0, spec.find(':'));
    const auto sparse = std::ranges::find(kSparse, name, &Sparse::codec);
    return sparse == std::end(kSparse) ? std::vector<RecipeStage>{} : stages_of_warmup(*sparse, spec);
  }
  ASSIGN_OR_RETURN(const auto parsed, parse_spec(spec));
  return recipe->stages(parsed);
}

tl::unexpected<Error> needs_weights() {
  return invalid(
      "pulseloco needs the weights, which only deltawire.torch.LocalSteps has; give it to that, "
      "for all tensors and without parameters: \"pulseloco\" or \"direct(pulseloco)\"");
}

RecipeNeeds needs_of_recipe(std::string_view spec) {
  const Recipe* recipe = recipe_of(spec);
  return recipe == nullptr ? RecipeNeeds{} : recipe->needs;
}

}  // namespace deltawire
