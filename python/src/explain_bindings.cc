// What a spec means for a model's tensors, and what each of them took.
#include <optional>
#include <type_traits>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "bucket_bindings.h"
#include "deltawire/reducer.h"
#include "python_error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deltawire::python {

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
