// Optimizers, and significance for any optimizer's state.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>

#include "bindings.h"
#include "bucket_bindings.h"
#include "byte_arrays.h"
#include "deltawire/optimizer.h"
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

}  // namespace deltawire::python
