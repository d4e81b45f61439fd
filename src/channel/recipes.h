// Published methods that are a codec with feedback, and maybe a warm-up: their names stand for rules. So
// does a warm-up of topk, sbc or randomk.
//
//   dgc:p=0.1%,warmup=1000  =  step<250: topk:k=25% with momentum=0.9,masking=on, step<500: ..., rest
//   topk:k=0.1% ...
//   sbc:p=1%,warmup=400  =  step<100: sbc:p=25%, step<200: sbc:p=6.25%, step<300: ..., rest sbc:p=1%
//   sparseloco  =  topk:k=1.5625%,values=2bit,positions=auto,chunk=4096 with decay=0.95,pull_decay=0.5
//   muloco  =  topk:k=0.999999,values=2bit,positions=auto,chunk=4096 with decay=0.9,pull_decay=0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "deltawire/result.h"

namespace deltawire {

// What a recipe stands for, in the order of the rules that it becomes.
struct RecipeStage {
  std::string condition;  // that the rule has besides the recipe's own; empty for the last
  std::string codec;      // with its feedback
};

// What a recipe asks of those who train by it, besides its codec.
struct RecipeNeeds {
  std::string_view name;              // of the recipe; empty: none
  bool keeps_inner_momentum = false;  // of its local steps' optimizer: nothing of it is masked
  bool weights = false;               // it holds back what the weights don't show, which a codec doesn't see
};

// The stages of a recipe's spec; none where it is no recipe, but a codec's. kInvalidArgument for a parameter
// that it doesn't have, or that is out of range.
Result<std::vector<RecipeStage>> stages_of_recipe(std::string_view spec);

// Of the recipe that the spec names.
RecipeNeeds needs_of_recipe(std::string_view spec);

// The error of a recipe that needs the weights where they aren't shown, or that isn't alone.
tl::unexpected<Error> needs_weights();

}  // namespace deltawire
