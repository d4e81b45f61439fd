// Specs as values; what a spec means for a model's tensors, and what each of them took.
#include <optional>
#include <type_traits>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "bucket_bindings.h"
#include "deltawire/reducer.h"
#include "deltawire/spec.h"
#include "python_error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deltawire::python {
namespace {

void bind_named_parameters(nb::module_& module) {
  nb::class_<NamedParameters>(module, "NamedParameters", "\"name:key=value,key=value\" in pieces.")
      .def(
          "__init__",
          [](NamedParameters* self, std::string_view text, std::string_view kind) {
            new (self) NamedParameters(value_or_raise(parse_named_parameters(text, kind)));
          },
          "text"_a, "kind"_a = "codec", "`kind`: what the name stands for, in errors.")
      .def_ro("name", &NamedParameters::name)
      .def_prop_ro(
          "parameters",
          [](const NamedParameters& self) {
            nb::dict values;
            for (const auto& [key, value] : self.parameters) values[key.c_str()] = value;
            return values;
          },
          nb::sig("def parameters(self) -> dict[str, str]"), "As texts, in the order of the text.");
}

void bind_rule(nb::module_& module) {
  nb::class_<SpecRule>(module, "SpecRule", "One rule of a spec; all texts are canonical.")
      .def_ro("text", &SpecRule::text, "\"conv* elements>=4096: topk:k=0.01 with momentum=0.9\".")
      .def_ro("codec", &SpecRule::codec, "With what stands before it: \"topk:k=0.01 with momentum=0.9\".")
      .def_ro("codec_alone", &SpecRule::codec_alone, "\"topk:k=0.01\".")
      .def_prop_ro(
          "info", [](const SpecRule& self) { return self.info; }, nb::rv_policy::reference,
          "Of the codec with these parameters.")
      .def_ro("momentum", &SpecRule::momentum, "Before the codec; 0: none.")
      .def_ro("changes_input", &SpecRule::changes_input, "Clip or momentum stands before the codec.")
      .def_ro("is_late", &SpecRule::is_late, "Most of a gradient is sent in later steps.")
      .def("matches", &SpecRule::matches, "tensor"_a, "Whether its name pattern matches.");
}

}  // namespace

void bind_specs(nb::module_& module) {
  bind_named_parameters(module);
  bind_rule(module);
  nb::class_<Spec>(module, "Spec", "A reducer's spec, \"pattern(codecs)\", as a value; str() is canonical.")
      .def(
          "__init__",
          [](Spec* self, std::string_view text, std::uint64_t ranks_of_host) {
            new (self) Spec(value_or_raise(Spec::parse(text, {.ranks_of_host = ranks_of_host})));
          },
          "text"_a, "ranks_of_host"_a = 0,
          "Raises on a bad spec. `ranks_of_host`: in place of \"host\" in \"hierarchical:group=host\"; 0: "
          "unknown.")
      .def_ro("text", &Spec::text, "Canonical.")
      .def_ro("given", &Spec::given, "As it was written.")
      .def_ro("pattern", &Spec::pattern, "With its parameters: \"hierarchical:group=8,within=fp32\".")
      .def_ro("codecs", &Spec::codecs, "What stands between the brackets.")
      .def_ro("rules", &Spec::rules, "In order; the last fits all.")
      .def_ro("keeps_residual", &Spec::keeps_residual)
      .def_ro("sends_sums", &Spec::sends_sums, "A rank sends partial sums, not its own elements.")
      .def_ro("takes_backend", &Spec::takes_backend, "A device may code for its pattern.")
      .def_ro("keeps_inner_momentum", &Spec::keeps_inner_momentum,
              "By a recipe the optimizer of local steps keeps the momentum of what was sent.")
      .def_ro("holds_back", &Spec::holds_back,
              "By a recipe local steps hold back what the weights don't show.")
      .def_prop_ro(
          "uses_significance", [](const Spec& self) { return self.any(&CodecInfo::significance); },
          "Whether any codec, with its parameters, reads it.")
      .def("__str__", [](const Spec& self) { return self.text; })
      .def("__repr__", [](const Spec& self) { return "<spec " + self.text + ">"; })
      .def("__eq__", [](const Spec& self, const Spec& other) { return self.text == other.text; })
      .def("__hash__", [](const Spec& self) { return std::hash<std::string>()(self.text); });
}

std::vector<Named> as_named(const std::vector<TensorNamed>& tensors) {
  std::vector<Named> all;
  all.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    all.push_back(std::visit(
        [](const auto& named) {
          const Shape& shape = std::get<1>(named);
          TensorSlot slot{nullptr, elements_of(shape), DType::kF32};
          if constexpr (std::tuple_size_v<std::decay_t<decltype(named)>> == 3) {
            slot.dtype = dtype_of(std::get<2>(named));
          }
          slot.dims = shape;
          return Named{std::get<0>(named), slot, 0};
        },
        tensor));
  }
  return all;
}

void bind_explain(nb::module_& module) {
  nb::class_<TensorUse>(module, "TensorUse", "What a reducer does with a tensor, and what that took here.")
      .def_prop_ro(
          "codec", [](const TensorUse& self) { return self.plan.codec; },
          "Canonical, with what stands before it; fp32 for a tensor that travels raw.")
      .def_prop_ro(
          "raw", [](const TensorUse& self) { return self.plan.is_raw; }, "Below min_elements.")
      .def_prop_ro(
          "late", [](const TensorUse& self) { return self.plan.is_late; },
          "Most of a gradient is sent in later steps.")
      .def_prop_ro(
          "most_bytes", [](const TensorUse& self) { return self.plan.payload_bytes; },
          "What one encoding of it takes at most, without heads.")
      .def_prop_ro(
          "changes_at",
          [](const TensorUse& self) -> std::optional<std::uint64_t> {
            if (self.plan.changes_at == kNoStep) return std::nullopt;
            return self.plan.changes_at;
          },
          "The first later step with another codec; None: there is none.")
      .def_ro("takes_pairs", &TensorUse::takes_pairs, "It may come in key-value form.")
      .def_ro("next_codec", &TensorUse::next_codec, "From then on; empty where none follows.")
      .def_ro("bytes_sent", &TensorUse::bytes_sent,
              "In the step committed last, without heads, every copy counted; a ring's means of others not.")
      .def_ro("raw_bytes", &TensorUse::raw_bytes, "Of the same bare: its dtype's bytes an element.")
      .def_ro("residual_bytes", &TensorUse::residual_bytes)
      .def_ro("momentum_bytes", &TensorUse::momentum_bytes)
      .def_ro("residual_norm", &TensorUse::residual_norm, "L2, of what waits for later steps here.");
  module.def(
      "explain",
      [](const std::string& spec, const ReducerOptions& options, const std::vector<TensorNamed>& tensors,
         std::uint64_t step) {
        return value_or_raise(make_reducer(spec, options))->explain(as_named(tensors), step);
      },
      "spec"_a, "options"_a, "tensors"_a, "step"_a,
      "A TensorUse for each (name, shape), perhaps with the dtype's name, with the codec of that step, of a "
      "reducer that has sent nothing.");
}

}  // namespace deltawire::python
