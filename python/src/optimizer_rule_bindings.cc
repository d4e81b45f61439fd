// The table of codecs and optimizers.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "deltawire/optimizer_rules.h"
#include "python_error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deltawire::python {
namespace {

void bind_enums(nb::module_& module) {
  nb::enum_<StepRule>(module, "StepRule", "How tensors are stepped that arrive late, or as spikes.")
      .value("AS_IT_IS", StepRule::kAsItIs)
      .value("MOMENTUM_AS_RATE", StepRule::kMomentumAsRate)
      .value("WITHOUT_FIRST_MOMENT", StepRule::kWithoutFirstMoment)
      .value("SECOND_MOMENT_BY_ROWS", StepRule::kSecondMomentByRows);
  nb::enum_<OptimizerPlace>(module, "OptimizerPlace",
                            "Where an optimizer steps, for what a warning tells to write.")
      .value("REGISTER", OptimizerPlace::kRegister, "by decoded gradients")
      .value("LOCAL_STEPS", OptimizerPlace::kLocalSteps, "by a rank's own, before each exchange")
      .value("SERVER", OptimizerPlace::kServer, "a parameter server")
      .value("OUTER", OptimizerPlace::kOuter, "the outer optimizer of local steps")
      .value("OWN_PROGRAM", OptimizerPlace::kOwnProgram, "a program that exchanges by a Session");
}

void bind_values(nb::module_& module) {
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
      .def_ro("pull", &OptimizerRule::pull, "For Session.refine_means; 0: as the spec says.")
      .def_ro("most_rms", &OptimizerRule::most_rms,
              "Of a row's step, in units of the rate, with a second moment by rows.")
      .def_ro("longest_step", &OptimizerRule::longest_step, "Likewise, of an element's.")
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

void bind_optimizer_rules(nb::module_& module) {
  bind_enums(module);
  bind_values(module);
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
}

}  // namespace deltawire::python
