#include "cli/plan/figures.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "cli/measure/method.h"
#include "cli/progress.h"
#include "deltawire/codec_trial.h"
#include "deltawire/optimizer_rules.h"
#include "deltawire/spec.h"

namespace deltawire::cli {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostPart = 81920;  // of `direct`: docs/reference/format.md, "Parts"
constexpr double kMomentum = 0.9;         // of an optimizer of which only the name is known

Candidate candidate_of(const std::string& text, const std::string& optimizer) {
  auto spec = Spec::parse(text);
  if (!spec) throw misused("--codecs \"" + text + "\": " + spec.error().message);
  if (const auto trial = CodecTrial::make(*spec); !trial) {
    throw misused("--codecs \"" + text + "\": " + trial.error().message);
  }
  std::string unfit;
  if (!optimizer.empty()) {
    const auto traits = OptimizerTraits::named(optimizer, kMomentum, kMomentum);
    if (traits.family == OptimizerFamily::kOther) {
      throw misused(
          "--optimizer \"" + optimizer +
          "\": is none that codecs were measured with; write it as its class is written (SGD, AdamW, "
          "RMSprop), or leave it out");
    }
    const auto warnings = optimizer_warnings(*spec, traits, OptimizerPlace::kRegister, true);
    if (!warnings.empty()) unfit = warnings.front();
    spec = value_or_failed(with_means_for(*spec, traits));
  }
  return Candidate{text, *std::move(spec), std::move(unfit)};
}

std::vector<Named> parts_of(const InputStep& step) {
  std::vector<Named> parts;
  std::ranges::transform(step.tensors, std::back_inserter(parts), dense_part);
  return parts;
}

// How many times longer tensors are in a model of so many parameters, the longest one at most as a part.
std::uint64_t times_larger(const InputStep& step, std::uint64_t parameters) {
  std::uint64_t longest = 1;
  for (const InputTensor& tensor : step.tensors)
    longest = std::max<std::uint64_t>(longest, tensor.values.size());
  return std::min(parameters / std::max<std::uint64_t>(1, step.values()), kMostPart / longest);
}

InputTensor repeated(const InputTensor& tensor, std::uint64_t times) {
  InputTensor made;
  made.name = tensor.name;
  made.shape = {times * tensor.values.size()};
  for (std::uint64_t i = 0; i < times; ++i) {
    made.values.insert(made.values.end(), tensor.values.begin(), tensor.values.end());
    made.significance.insert(made.significance.end(), tensor.significance.begin(), tensor.significance.end());
  }
  return made;
}

// A field of a figures file, found or refused by name.
class Fields {
 public:
  Fields(const Json& object, std::string place) : object_(object), place_(std::move(place)) {}

  double number(const char* key, double least) const {
    const auto found = object_.find(key);
    if (found == object_.end()) throw failed(place_ + "." + key + " is missing; it is a number");
    if (!found->is_number()) throw failed(place_ + "." + key + " is not a number");
    const auto value = found->get<double>();
    if (!std::isfinite(value) || value < least) {
      throw failed(place_ + "." + key + " is " + found->dump() + "; it must be " +
                   (least > 0 ? "above 0" : "0 or more"));
    }
    return value;
  }
  std::string word(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end() || !found->is_string()) {
      throw failed(place_ + "." + key + " is missing; it is a text");
    }
    return found->get<std::string>();
  }

 private:
  const Json& object_;
  std::string place_;
};

// Specs that the library knows and refuses are errors; unknown names may belong to other codecs.
void check_pair(const CodecFigures& figures, const std::string& place) {
  const auto spec = Spec::parse(figures.spec, {.pattern = pattern_name(figures.pattern)});
  if (spec || spec.error().code == ErrorCode::kUnknownCodec) return;
  throw failed(place + ".codec: " + spec.error().message);
}

CodecFigures parse_codec(const Json& json, const std::string& place) {
  if (!json.is_object()) throw failed(place + " is not an object");
  const Fields fields(json, place);
  CodecFigures figures;
  figures.spec = fields.word("codec");
  const std::string pattern = fields.word("pattern");
  const std::string tier = fields.word("tier");
  const auto known_pattern = find_pattern(pattern);
  if (!known_pattern) throw failed(place + ".pattern is \"" + pattern + "\"; it is direct, ring or gather");
  figures.pattern = *known_pattern;
  const auto known_tier = find_tier(tier);
  if (!known_tier) throw failed(place + ".tier is \"" + tier + "\"; it is lossless, near-lossless or lossy");
  figures.tier = *known_tier;
  const struct {
    const char* key;
    double least;
    double unit;
    double* to;
  } numbers[] = {{"bits_per_value", 1e-9, 1, &figures.bits_per_value},
                 {"encode_us_per_message", 0, 1e-6, &figures.encode.message_seconds},
                 {"encode_ns_per_value", 0, 1e-9, &figures.encode.value_seconds},
                 {"decode_us_per_message", 0, 1e-6, &figures.decode.message_seconds},
                 {"decode_ns_per_value", 0, 1e-9, &figures.decode.value_seconds}};
  for (const auto& [key, least, unit, to] : numbers) *to = fields.number(key, least) * unit;
  figures.shares_parts = json.value("shares_parts", Json(false)) == Json(true);
  check_pair(figures, place);
  return figures;
}

PlanTensor parse_plan_tensor(const Json& json, const std::string& place) {
  if (!json.is_object()) throw failed(place + " is not an object");
  const auto name = Fields(json, place).word("name");
  const auto elements = json.find("elements");
  if (elements == json.end() || !elements->is_number_unsigned() ||
      elements->get<std::uint64_t>() > (std::uint64_t{1} << 40)) {
    throw failed(place + ".elements is missing; it is a whole number, up to 2^40");
  }
  return PlanTensor{name, elements->get<std::uint64_t>()};
}

template <class Item, class Parse>
std::vector<Item> parse_list(const Json& json, const std::string& place, const Parse& parse) {
  if (!json.is_array()) throw failed(place + " is not a list");
  std::vector<Item> items;
  for (std::size_t i = 0; i < json.size(); ++i) {
    items.push_back(parse(json[i], place + "[" + std::to_string(i) + "]"));
  }
  return items;
}

}  // namespace

std::vector<Candidate> candidates_of(const std::vector<std::string>& texts, const std::string& optimizer) {
  std::vector<std::string> specs;
  for (const std::string& text : texts) {
    if (text != "all") {
      specs.push_back(text);
      continue;
    }
    for (const Method& method : methods_of({text})) specs.push_back(method.spec);
  }
  std::vector<Candidate> candidates;
  std::set<std::string> seen;
  for (const std::string& spec : specs) {
    auto candidate = candidate_of(spec, optimizer);
    if (!seen.insert(candidate.spec.text).second) continue;
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

std::vector<PlanTensor> tensors_of(const Input& input) {
  const InputStep& widest = *std::ranges::max_element(input.steps, {}, &InputStep::values);
  std::vector<PlanTensor> tensors;
  for (const InputTensor& tensor : widest.tensors) {
    if (!tensor.values.empty()) tensors.push_back({tensor.name, tensor.values.size()});
  }
  return tensors;
}

Input cut_for_exchange(const Input& input, std::uint64_t parameters) {
  Input cut{input.name, input.about, {}};
  for (const InputStep& step : input.steps) {
    InputStep& made = cut.steps.emplace_back();
    made.step = step.step;
    const std::uint64_t times = times_larger(step, parameters);
    for (const InputTensor& tensor : step.tensors) {
      if (times > 1 && !tensor.pairs) {
        made.tensors.push_back(repeated(tensor, times));
        continue;
      }
      if (tensor.values.size() <= kMostPart && !tensor.pairs) {
        made.tensors.push_back(tensor);
        continue;
      }
      // Pairs travel in dense form in DDP's buckets, which is what is planned.
      for (std::size_t at = 0; at < tensor.values.size(); at += kMostPart) {
        const std::size_t count = std::min(kMostPart, tensor.values.size() - at);
        const auto part = [&](const std::vector<float>& all) {
          if (all.empty()) return std::vector<float>();
          const auto begin = all.begin() + static_cast<std::ptrdiff_t>(at);
          return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(count));
        };
        InputTensor& piece = made.tensors.emplace_back();
        piece.name = tensor.name + "@" + std::to_string(at);
        piece.shape = {count};
        piece.values = part(tensor.values);
        piece.significance = part(tensor.significance);
      }
    }
  }
  return cut;
}

std::optional<CodecFigures> measure_figures(const Candidate& candidate, const Input& input,
                                            const Policy& policy, double seconds) {
  if (!candidate.unfit.empty()) throw failed(candidate.unfit);
  auto trial = value_or_failed(CodecTrial::make(candidate.spec, policy));
  const std::size_t least = candidate.spec.keeps_residual ? kFeedbackSteps : trial.least_rounds();
  const auto begin = std::chrono::steady_clock::now();
  const std::chrono::duration<double> limit(seconds);
  for (std::size_t i = 0; i < least || std::chrono::steady_clock::now() - begin < limit; ++i) {
    const Status done = trial.advance(parts_of(input.steps[i % input.steps.size()]));
    if (!done) throw failed(candidate.text + ": " + done.error().message);
    if (interrupted()) return std::nullopt;
  }
  CodecFigures figures = trial.figures();
  figures.spec = candidate.text;
  return figures;
}

FiguresFile parse_figures(const std::string& text, const std::string& name) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw failed(name + ": is not JSON; 'deltawire plan --json' writes such files");
  const auto codecs = json.is_object() ? json.find("figures") : json.end();
  if (!json.is_object() || codecs == json.end()) {
    throw failed(name + ": has no \"figures\"; 'deltawire plan --json' writes such files");
  }
  FiguresFile file;
  file.codecs = parse_list<CodecFigures>(*codecs, name + ": figures", parse_codec);
  if (const auto tensors = json.find("tensors"); tensors != json.end()) {
    file.tensors = parse_list<PlanTensor>(*tensors, name + ": tensors", parse_plan_tensor);
  }
  return file;
}

}  // namespace deltawire::cli
