// Optimizers, significance for any optimizer's state, and the table of codecs and optimizers.
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "bucket_bindings.h"
#include "byte_arrays.h"
#include "deltawire/optimizer.h"
#include "deltawire/optimizer_rules.h"
#include "python_error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deltawire::python {
namespace {

using ArrayIn = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using ArrayInPlace = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
using KeysIn = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::span<const float> span_of(const ArrayIn& array) {
  return {array.data(), array.size()};
}

std::span<const float> span_of(const std::optional<ArrayIn>& array) {
  return array ? span_of(*array) : std::span<const float>{};
}

std::span<float> span_of(const ArrayInPlace& array) {
  return {array.data(), array.size()};
}

void step(Optimizer& self, std::string_view tensor, const ArrayInPlace& parameters, const ArrayIn& gradient) {
  run_without_gil([&] { return self.step(tensor, span_of(parameters), span_of(gradient)); });
}

void step_pairs(Optimizer& self, std::string_view tensor, const ArrayInPlace& parameters, const KeysIn& keys,
                const ArrayIn& values) {
  run_without_gil([&] {
    return self.step(tensor, span_of(parameters), std::span(keys.data(), keys.size()), span_of(values));
  });
}

void significance_of(const Optimizer& self, std::string_view tensor, const ArrayIn& parameters,
                     const ArrayInPlace& out) {
  run_without_gil([&] { return self.significance(tensor, span_of(parameters), span_of(out)); });
}

void write_significance(const OptimizerSettings& settings, const ArrayIn& parameters, std::uint64_t steps,
                        const std::optional<ArrayIn>& first, const std::optional<ArrayIn>& second,
                        const ArrayInPlace& out) {
  run_without_gil([&] {
    return significance(settings, span_of(parameters), {steps, span_of(first), span_of(second)},
                        span_of(out));
  });
}

std::optional<std::tuple<float, float, float>> coefficients(const OptimizerSettings& settings,
                                                            std::uint64_t steps, bool has_first,
                                                            bool has_second) {
  const SignificanceCoefficients c =
      value_or_raise(significance_coefficients(settings, steps, has_first, has_second));
  if (!c.is_defined) return std::nullopt;
  return std::tuple{c.plain, c.root, c.momentum};
}

void count_rounding(std::string_view dtype, const ArrayInPlace& out) {
  const DType parameters = dtype_of(dtype);
  const nb::gil_scoped_release no_gil;
  count_rounding_to(parameters, span_of(out));
}

void bind_optimizer_settings(nb::module_& module) {
  using S = OptimizerSettings;
  nb::class_<S>(module, "OptimizerSettings", "An optimizer's kind and hyper-parameters.")
      .def(
          "__init__",
          [](S* self, std::string_view spec) { new (self) S(value_or_raise(parse_optimizer(spec))); },
          "spec"_a, "From a spec such as 'adam:lr=0.001'.")
      .def_prop_ro("spec", &optimizer_spec, "Canonical.")
      .def_rw("learning_rate", &S::learning_rate)
      .def_rw("weight_decay", &S::weight_decay)
      .def_rw("momentum", &S::momentum)
      .def_rw("dampening", &S::dampening)
      .def_rw("alpha", &S::alpha)
      .def_rw("beta1", &S::beta1)
      .def_rw("beta2", &S::beta2)
      .def_rw("eps", &S::eps)
      .def_rw("lr_decay", &S::lr_decay)
      .def_rw("initial_accumulator", &S::initial_accumulator);
}

void bind_rule_enums(nb::module_& module) {
  nb::enum_<StepRule>(module, "StepRule", "How tensors are stepped that arrive late, or as spikes.")
      .value("AS_IT_IS", StepRule::kAsItIs)
      .value("MOMENTUM_AS_RATE", StepRule::kMomentumAsRate)
      .value("WITHOUT_FIRST_MOMENT", StepRule::kWithoutFirstMoment)
      .value("FACTORED_SECOND_MOMENT", StepRule::kFactoredSecondMoment);
  nb::enum_<OptimizerPlace>(module, "OptimizerPlace",
                            "Where an optimizer steps, for what a warning tells to write.")
      .value("REGISTER", OptimizerPlace::kRegister, "by decoded gradients")
      .value("LOCAL_STEPS", OptimizerPlace::kLocalSteps, "by a rank's own, before each exchange")
      .value("SERVER", OptimizerPlace::kServer, "a parameter server")
      .value("OUTER", OptimizerPlace::kOuter, "the outer optimizer of local steps")
      .value("OWN_PROGRAM", OptimizerPlace::kOwnProgram, "a program that exchanges by a Session");
}

void bind_rule_values(nb::module_& module) {
  nb::class_<OptimizerTraits>(module, "OptimizerTraits", "An optimizer as the table of rules knows it.")
      .def(
          "__init__",
          [](OptimizerTraits* self, std::string_view name, double momentum, double beta1) {
            new (self) OptimizerTraits(OptimizerTraits::named(name, momentum, beta1));
          },
          "name"_a, "momentum"_a = 0.0, "beta1"_a = 0.0,
          "`name`: of its class, \"AdamW\"; of another's of that name, \"apex.AdamW\". `momentum`, `beta1`: "
          "the highest of any tensor's.")
      .def_static("of", &OptimizerTraits::of, "settings"_a)
      .def_ro("name", &OptimizerTraits::name)
      .def_ro("momentum", &OptimizerTraits::momentum)
      .def_ro("beta1", &OptimizerTraits::beta1);
  nb::class_<OptimizerRule>(
      module, "OptimizerRule",
      "What the table says of a spec's rule and an optimizer; sentences are one line or empty.")
      .def_ro("rule", &OptimizerRule::rule)
      .def_ro("beta1", &OptimizerRule::beta1, "The most that the optimizer keeps, with a rule of Adam's.")
      .def_ro("rate_share", &OptimizerRule::rate_share, "Of the learning rate.")
      .def_ro("pull", &OptimizerRule::pull, "How fine means are coded; 0: as the spec says.")
      .def_ro("most_rms", &OptimizerRule::most_rms,
              "Of a row's step, in units of the rate, with a factored second moment; or,")
      .def_ro("most_change", &OptimizerRule::most_change, "if that is more, relative to the tensor's own.")
      .def_ro("longest_step", &OptimizerRule::longest_step, "Of an element's, in units of the two.")
      .def_ro("least_scale", &OptimizerRule::least_scale,
              "Of a row while it is coded, relative to the largest; 0: rows are coded as they are.")
      .def_ro("warning", &OptimizerRule::warning, "Where the rule is not applied, or there is none.")
      .def_ro("remark", &OptimizerRule::remark, "Of what training loses in spite of the rule.")
      .def_ro("refusal", &OptimizerRule::refusal,
              "Of an optimizer that was given to be stepped by a rule, and has none.");
  nb::class_<MomentumRate>(module, "MomentumRate", "The learning rate in place of SGD's momentum.")
      .def(nb::init<double, double>(), "momentum"_a, "dampening"_a = 0.0)
      .def("times", &MomentumRate::times, "step"_a, "The factor in step 0, 1, ...; it rises.")
      .def_prop_ro("rise_steps", &MomentumRate::rise_steps, "Steps until it stays.")
      .def_prop_ro("constant", &MomentumRate::constant, "A factor for all steps.");
}

}  // namespace

void bind_optimizers(nb::module_& module) {
  bind_optimizer_settings(module);
  nb::class_<Optimizer>(module, "Optimizer", "State and steps; one thread at a time.")
      .def(
          "__init__",
          [](Optimizer* self, std::string_view spec) {
            new (self) Optimizer(value_or_raise(make_optimizer(spec)));
          },
          "spec"_a)
      .def_prop_ro("spec", &Optimizer::spec)
      .def_prop_rw(
          "learning_rate", [](const Optimizer& self) { return self.settings().learning_rate; },
          [](Optimizer& self, double rate) { value_or_raise(self.set_learning_rate(rate)); })
      .def("step", &step, "tensor"_a, "parameters"_a.noconvert(), "gradient"_a.noconvert())
      .def("step_pairs", &step_pairs, "tensor"_a, "parameters"_a.noconvert(), "keys"_a.noconvert(),
           "values"_a.noconvert())
      .def("significance", &significance_of, "tensor"_a, "parameters"_a.noconvert(), "out"_a.noconvert())
      .def(
          "steps_of",
          [](const Optimizer& self, std::string_view tensor) { return self.moments(tensor).steps; },
          "tensor"_a)
      .def("save", [](const Optimizer& self) { return given(self.save()); })
      .def(
          "load", [](Optimizer& self, const BytesIn& state) { value_or_raise(self.load(bytes_of(state))); },
          "state"_a);
  module.def("significance", &write_significance, "settings"_a, "parameters"_a.noconvert(), "steps"_a,
             nb::arg("first").noconvert().none(), nb::arg("second").noconvert().none(), "out"_a.noconvert(),
             "Writes the significance of the coming step; moments: those after `steps` steps, None where "
             "there are none. Releases the GIL.");
  module.def("count_rounding_to", &count_rounding, "dtype"_a, "out"_a.noconvert(),
             "Raises significances in place to those of parameters that are kept in this dtype alone: "
             "float32, bfloat16 or float16. Releases the GIL.");
  module.def("significance_coefficients", &coefficients, "settings"_a, "steps"_a, "has_first"_a,
             "has_second"_a,
             "(plain, root, momentum), float32 values of which `significance` is made; None where it is 0.");
}

void bind_optimizer_rules(nb::module_& module) {
  bind_rule_enums(module);
  bind_rule_values(module);
  module.def("optimizer_rule", &optimizer_rule, "rule"_a, "optimizer"_a,
             "place"_a = OptimizerPlace::kRegister, "What the table says of a SpecRule and an optimizer.");
  module.def("optimizer_warnings", &optimizer_warnings, "spec"_a, "optimizer"_a, "place"_a,
             "rules_apply"_a = false,
             "The warnings of a Spec's rules, each once; where the table's rules are applied, of those that "
             "have none.");
  module.def(
      "with_means_for",
      [](const Spec& spec, const OptimizerTraits& optimizer) {
        return value_or_raise(with_means_for(spec, optimizer));
      },
      "spec"_a, "optimizer"_a, "The Spec, with means as fine as the table's rules need them.");
  module.def(
      "fitted_to",
      [](const Spec& spec, const OptimizerTraits& optimizer, int world_size) {
        return value_or_raise(fitted_to(spec, optimizer, world_size));
      },
      "spec"_a, "optimizer"_a, "world_size"_a,
      "The same, with the first steps as the table's rules need them.");
}

}  // namespace deltawire::python
