// The planner: figures in, a plan out.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "bucket_bindings.h"
#include "deltawire/codec_trial.h"
#include "deltawire/planner.h"
#include "deltawire/spec.h"
#include "deltawire/workers.h"
#include "python_error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deltawire::python {
namespace {

using Tensors = std::vector<std::pair<std::string, std::uint64_t>>;  // names and elements

Tier tier_called(std::string_view name) {
  const auto tier = find_tier(name);
  if (!tier) {
    raise({ErrorCode::kInvalidArgument,
           "tier='" + printable_line(name) + "' is unknown; use 'lossless', 'near-lossless' or 'lossy'"});
  }
  return *tier;
}

Pattern pattern_called(std::string_view name) {
  const auto pattern = find_pattern(name);
  if (!pattern) {
    raise({ErrorCode::kInvalidArgument, "the planner has no model of the pattern '" + printable_line(name) +
                                            "'; it knows direct, ring and gather"});
  }
  return *pattern;
}

std::pair<double, double> seconds_of(const CodingTime& time) {
  return {time.message_seconds, time.value_seconds};
}

std::vector<PlanTensor> plan_tensors(const Tensors& tensors) {
  std::vector<PlanTensor> made;
  made.reserve(tensors.size());
  for (const auto& [name, elements] : tensors) made.push_back({name, elements});
  return made;
}

void make_workload(Workload* self, const std::vector<std::pair<Tensors, double>>& buckets,
                   double compute_seconds, const std::vector<int>& value_bytes) {
  if (!value_bytes.empty() && value_bytes.size() != buckets.size()) {
    raise({ErrorCode::kInvalidArgument, "value_bytes has " + std::to_string(value_bytes.size()) +
                                            " entries for " + std::to_string(buckets.size()) + " buckets"});
  }
  Workload workload;
  workload.compute_seconds = compute_seconds;
  for (const auto& [tensors, ready] : buckets) workload.buckets.push_back({plan_tensors(tensors), ready});
  for (std::size_t i = 0; i < value_bytes.size(); ++i) workload.buckets[i].value_bytes = value_bytes[i];
  new (self) Workload(std::move(workload));
}

void make_figures(CodecFigures* self, std::string spec, std::string_view pattern, std::string_view tier,
                  double bits_per_value, std::pair<double, double> encode, std::pair<double, double> decode,
                  bool shares_parts) {
  new (self) CodecFigures{std::move(spec), pattern_called(pattern),       tier_called(tier),
                          bits_per_value,  {encode.first, encode.second}, {decode.first, decode.second},
                          shares_parts};
}

Plan plan(const Workload& workload, int ranks, const LinkRates& link, const std::vector<CodecFigures>& codecs,
          const Machine& machine, std::string_view tier, double least_gain) {
  const PlanOptions options{tier_called(tier), least_gain};
  return run_without_gil([&] { return make_plan(workload, {ranks, link, machine}, codecs, options); });
}

std::optional<Mix> mix(const Workload& workload, int ranks, const LinkRates& link,
                       const std::vector<CodecFigures>& codecs, const Machine& machine,
                       std::string_view tier) {
  const Tier most = tier_called(tier);
  return run_without_gil([&] { return make_mix(workload, {ranks, link, machine}, codecs, most); });
}

void bind_inputs(nb::module_& module) {
  nb::class_<LinkRates>(module, "Link", "What a rank's connection to all the others carries.")
      .def(
          "__init__",
          [](LinkRates* self, double up, std::optional<double> down, double latency) {
            new (self) LinkRates{up, down.value_or(up), latency};
          },
          "up_bytes_per_second"_a, "down_bytes_per_second"_a = nb::none(), "latency_seconds"_a = 0.0,
          "Each direction at once; down: None for as fast as up; latency: one way.")
      .def_ro("up_bytes_per_second", &LinkRates::up_bytes_per_second)
      .def_ro("down_bytes_per_second", &LinkRates::down_bytes_per_second)
      .def_ro("latency_seconds", &LinkRates::latency_seconds);
  nb::class_<Machine>(module, "Machine", "What a rank computes with.")
      .def(
          "__init__",
          [](Machine* self, double cores, int coding_threads, std::pair<double, double> copies) {
            Machine machine;
            machine.cores = cores;
            machine.coding_threads = coding_threads;
            std::tie(machine.load_byte_seconds, machine.store_byte_seconds) = copies;
            new (self) Machine(machine);
          },
          "cores"_a = Machine{}.cores, "coding_threads"_a = 1, "copies"_a = std::pair<double, double>(),
          "cores: that a rank has for itself, 0.5 for four ranks on two; copies: of gradients on a device, "
          "seconds to copy a byte to the CPU, and a mean's back.")
      .def_ro("cores", &Machine::cores)
      .def_ro("coding_threads", &Machine::coding_threads)
      .def_ro("message_seconds", &Machine::message_seconds,
              "Processor time of sending a message and of receiving it, each.");
  nb::class_<Workload>(module, "Workload", "A training step's buckets, in the order of their exchange.")
      .def("__init__", &make_workload, "buckets"_a, "compute_seconds"_a, "value_bytes"_a = std::vector<int>{},
           "buckets: of each ([(tensor's name, elements)], the moment from the step's start at which its "
           "gradients are made, in seconds); compute_seconds: forward and backward; value_bytes: of each "
           "bucket's values in the native all-reduce, 2 of 16 bits; none: 4 everywhere.")
      .def_ro("compute_seconds", &Workload::compute_seconds)
      .def_prop_ro("elements", &Workload::elements);
  nb::class_<CodecFigures>(module, "CodecFigures", "A codec as it was measured on such gradients.")
      .def("__init__", &make_figures, "spec"_a, "pattern"_a, "tier"_a, "bits_per_value"_a, "encode"_a,
           "decode"_a, "shares_parts"_a = false,
           "encode, decode: processor time of a thread, (seconds a message, seconds a value); shares_parts: "
           "threads decode one part together.")
      .def_ro("spec", &CodecFigures::spec)
      .def_prop_ro("pattern", [](const CodecFigures& self) { return pattern_name(self.pattern); })
      .def_prop_ro("tier", [](const CodecFigures& self) { return tier_name(self.tier); })
      .def_ro("bits_per_value", &CodecFigures::bits_per_value)
      .def_prop_ro("encode", [](const CodecFigures& self) { return seconds_of(self.encode); })
      .def_prop_ro("decode", [](const CodecFigures& self) { return seconds_of(self.decode); })
      .def_ro("shares_parts", &CodecFigures::shares_parts);
}

void bind_trials(nb::module_& module) {
  nb::class_<CodecTrial>(module, "CodecTrial",
                         "Measures a codec on gradients, round by round. One thread at a time.")
      .def(
          "__init__",
          [](CodecTrial* self, const Spec& spec, std::uint64_t min_elements) {
            new (self) CodecTrial(value_or_raise(CodecTrial::make(spec, {.min_elements = min_elements})));
          },
          "spec"_a, "min_elements"_a)
      .def_prop_ro("least_rounds", &CodecTrial::least_rounds, "From how many on there are figures.")
      .def(
          "advance",
          [](CodecTrial& self, const std::vector<TypedTensorAt>& arrays) {
            const std::vector<Named> parts = named_all(arrays);
            run_without_gil([&] { return self.advance(parts); });
          },
          "arrays"_a,
          "A round: (name, address, bytes, shape, dtype's name) of each array, on the CPU. Raises if the "
          "codec doesn't take the values. Releases the GIL.")
      .def("figures", &CodecTrial::figures, "After the least number of rounds.");
}

void bind_outputs(nb::module_& module) {
  nb::class_<Prediction>(module, "Prediction", "A step, as seen by the rank that owns most.")
      .def_ro("step_seconds", &Prediction::step_seconds)
      .def_ro("exposed_seconds", &Prediction::exposed_seconds, "Of it, after the computation.")
      .def_ro("wire_seconds", &Prediction::wire_seconds, "That the busier direction of the link is busy.")
      .def_ro("bytes_sent", &Prediction::bytes_sent);
  nb::class_<PlanRow>(module, "PlanRow", "A codec in a plan.")
      .def_ro("figures", &PlanRow::figures)
      .def_ro("prediction", &PlanRow::prediction)
      .def_ro("times_faster", &PlanRow::times_faster, "Plain's step by this one's.")
      .def_ro("allowed", &PlanRow::allowed, "By the tier.")
      .def_prop_ro(
          "gains_below",
          [](const PlanRow& self) -> std::optional<double> {
            const BreakEven::Kind kind = self.break_even.kind;
            if (kind == BreakEven::Kind::kNever || kind == BreakEven::Kind::kAbove) return std::nullopt;
            return self.break_even.up_bytes_per_second;
          },
          "Bytes a second up to which it saves least_gain of plain's step; the fastest link looked at, 1e12, "
          "where it always does; None: it never does.");
  nb::class_<Mix>(module, "Mix", "A codec for each bucket.")
      .def_ro("of_bucket", &Mix::of_bucket, "Indices of the codecs that were given.")
      .def_ro("prediction", &Mix::prediction);
  nb::class_<Plan>(module, "Plan", "Which codec, and whether any.")
      .def_ro("plain", &Plan::plain)
      .def_ro("rows", &Plan::rows, "As the codecs were given.")
      .def_ro("chosen", &Plan::chosen, "An index of rows; None: do not compress.")
      .def_ro("reason", &Plan::reason, "One line: what, why, and what it saves.");
}

}  // namespace

void bind_planner(nb::module_& module) {
  bind_inputs(module);
  bind_outputs(module);
  bind_trials(module);
  module.def("make_plan", &plan, "workload"_a, "ranks"_a, "link"_a, "codecs"_a, "machine"_a = Machine{},
             "tier"_a = tier_name(PlanOptions{}.tier), "least_gain"_a = PlanOptions{}.least_gain,
             "Raises InvalidArgumentError that names what is out of its range. Releases the GIL.");
  module.def(
      "make_mix", &mix, "workload"_a, "ranks"_a, "link"_a, "codecs"_a, "machine"_a = Machine{},
      "tier"_a = tier_name(PlanOptions{}.tier),
      "A codec for each bucket, all of one pattern, where that is predicted to be faster than the fastest "
      "one for all; else None. Raises as make_plan. Releases the GIL.");
  module.def(
      "ddp_workload",
      [](const Tensors& model, double compute_seconds, std::uint64_t bucket_bytes) {
        return ddp_workload(plan_tensors(model), compute_seconds, bucket_bytes);
      },
      "model"_a, "compute_seconds"_a, "bucket_bytes"_a = std::uint64_t{25} << 20,
      "Buckets as DDP cuts them: (name, elements) of each tensor in the model's order.");
  module.def(
      "tier_of", [](bool lossless, double relative_l2) { return tier_name(tier_of(lossless, relative_l2)); },
      "lossless"_a, "relative_l2"_a,
      "The tier of a codec: of one message without error feedback, the relative L2 error.");
  module.def("processors", &Workers::processors,
             "The processors that this process may use, by its affinity and its control groups' quotas.");
  module.def("check_tier", [](std::string_view name) { tier_called(name); }, "name"_a, "Raises for no tier.");
}

}  // namespace deltawire::python
