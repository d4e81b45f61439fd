// Which codec a part gets: one for all, or rules by the tensor's name, size and dims, and by the step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "channel/feedback.h"
#include "channel/recipes.h"
#include "deltawire/codec.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

// Whether a rule's name pattern matches a tensor's name: `*` stands for any characters, `?` for one.
bool name_matches(std::string_view pattern, std::string_view name) noexcept;

struct RulesUse {
  bool shows_weights = false;  // recipes may hold back what the weights don't show
  bool of_means = false;       // means are coded, each by the mean_spec() of its rule's codec
};

class CodecRules {
 public:
  enum class Property : std::uint8_t { kElements, kDims, kStep };
  struct Condition {
    Property property = Property::kElements;
    std::uint64_t least = 0;  // of the property, and
    std::uint64_t most = 0;
  };
  struct Rule {
    std::string conditions_text;  // "conv* elements>=4096"; empty: it fits all
    std::string name_pattern;     // empty: every name
    std::vector<Condition> conditions;
    RecipeNeeds recipe;  // that it was written as
    std::unique_ptr<const Codec> codec;
    std::unique_ptr<const Codec> half_forms[2];  // of codec, for bfloat16 and float16
    Feedback feedback;

    std::string text() const { return codec->spec() + feedback.text(); }
    bool fits(const Named& part, std::uint64_t step) const noexcept;
    bool fits_all() const noexcept { return conditions_text.empty(); }
    // Whether most of a gradient waits in the residual, and no momentum before the codec takes the place of
    // the optimizer's, which multiplies what arrives later.
    bool is_late() const noexcept {
      return codec->info().late && codec->info().error_feedback && feedback.momentum == 0;
    }
  };

  // `text` as make_channel takes it. Errors: those of make_codec; kInvalidArgument for a rule that is none.
  static Result<CodecRules> parse(std::string_view text, const RulesUse& use = {});

  const std::vector<Rule>& rules() const noexcept { return rules_; }

  // The codec of the first rule that fits. Ranks that call a part by the same name, dims and step get the
  // same.
  const Codec& of(const Named& part, std::uint64_t step) const noexcept { return *rule_of(part, step).codec; }

  // The same rule's codec for tensors of this 16-bit dtype; null if it has none.
  const Codec* half_form(const Named& part, std::uint64_t step) const noexcept;

  // What stands behind that rule's codec.
  const Feedback& feedback_of(const Named& part, std::uint64_t step) const noexcept {
    return (has_feedback_ ? rule_of(part, step) : rules_.front()).feedback;
  }
  bool have_feedback() const noexcept { return has_feedback_; }
  // Whether any of it codes something else than the values.
  bool change_inputs() const noexcept {
    return std::ranges::any_of(rules_, [](const Rule& rule) { return rule.feedback.changes_input(); });
  }

  // The codec's spec with its feedback's text; and the first step after `step` in which that is another,
  // kNoStep where none is.
  std::string text_of(const Named& part, std::uint64_t step) const { return rule_of(part, step).text(); }
  bool is_late(const Named& part, std::uint64_t step) const noexcept { return rule_of(part, step).is_late(); }
  std::uint64_t next_change(const Named& part, std::uint64_t step) const;

  // Canonical: every codec with all its parameters, feedback with what isn't the default. One codec for all
  // is that codec's spec.
  const std::string& spec() const noexcept { return spec_; }

  // Whether any of the codecs is said to be so, e.g. &CodecInfo::sparse.
  bool any(bool CodecInfo::* property) const noexcept {
    return std::ranges::any_of(rules_, [&](const Rule& rule) { return rule.codec->info().*property; });
  }

  // Of all the codecs the one with the most Codec::gain().
  const Codec& most_gaining() const noexcept {
    return *std::ranges::max_element(rules_, {}, [](const Rule& rule) { return rule.codec->gain(); })->codec;
  }

  // The exchange pattern that all the codecs name as theirs; empty where they differ.
  std::string_view default_pattern() const noexcept;

 private:
  static Result<Condition> parse_condition(std::string_view text);
  // Of a codec or a recipe; and of a codec alone.
  Status add(std::string_view conditions, std::string_view codec_spec);
  Status add_rule(std::string_view conditions, std::string_view codec_spec, const RecipeNeeds& recipe);
  const Rule& rule_of(const Named& part, std::uint64_t step) const noexcept;

  RulesUse use_;
  std::vector<Rule> rules_;  // the last one fits all
  std::string spec_;
  bool has_feedback_ = false;  // of any rule: without, none need be matched for its feedback
};

}  // namespace deltawire
