// What Python's handles of a session and of an elastic one have in common.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "bucket_bindings.h"
#include "byte_arrays.h"
#include "deltawire/reducer.h"
#include "deltawire/transport.h"
#include "python_error.h"

namespace deltawire::python {

// What may be asked at any time, and what works between steps. A Handle points to its session.
template <class Handle>
void bind_state(nanobind::class_<Handle>& session) {
  using namespace nanobind::literals;
  session.def_prop_ro("spec", [](const Handle& self) { return self->spec(); })
      .def_prop_ro("closed", [](const Handle& self) { return self->closed(); })
      .def(
          "memory", [](const Handle& self) { return self->memory(); },
          "What the reducer holds, from any thread.")
      .def(
          "traffic",
          [](const Handle& self) {
            const Traffic traffic = self->traffic();
            return std::pair{traffic.bytes_sent, traffic.bytes_received};
          },
          "Bytes (sent, received) by the links, headers and control messages included.")
      .def(
          "mask_sent",
          [](Handle& self, const std::vector<TensorAt>& momenta) {
            const std::vector<Named> parts = named_all(momenta);
            run_without_gil([&] { return self->mask_sent(parts); });
          },
          "momenta"_a,
          "Sets elements of momenta to 0 where this rank sent the tensor of the same name's element in the "
          "step committed last: (name, address, bytes, shape) of each float32 tensor. Between steps. Does "
          "nothing for codecs that are not sparse.")
      .def(
          "explain",
          [](Handle& self, const std::vector<TensorNamed>& tensors, std::uint64_t step) {
            const std::vector<Named> shaped = as_named(tensors);
            return run_without_gil([&] { return self->explain(shaped, step); });
          },
          "tensors"_a, "step"_a,
          "A TensorUse for each (name, shape), perhaps with the dtype's name, with the codec of that step. "
          "Between steps.")
      .def(
          "save", [](Handle& self) { return given(run_without_gil([&] { return self->save(); })); },
          "The residuals, between steps.")
      .def(
          "load",
          [](Handle& self, const BytesIn& state) {
            run_without_gil([&] { return self->load(bytes_of(state)); });
          },
          "state"_a, "Replaces the residuals by saved ones, or raises and changes nothing.")
      .def(
          "load_resized",
          [](Handle& self, const std::vector<BytesIn>& states, const std::vector<TensorNamed>& tensors,
             std::pair<int, int> place, const std::vector<int>& continued) {
            std::vector<Bytes> all;
            for (const BytesIn& state : states) all.push_back(bytes_of(state));
            const std::vector<Named> shaped = as_named(tensors);
            const SavedRanks saved{all, shaped, place.second, place.first, continued};
            run_without_gil([&] { return self->load_resized(saved); });
          },
          "states"_a, "tensors"_a, "place"_a, "continued"_a = std::vector<int>(),
          "As load, of what all ranks of another world saved, in their order, for a rank of a job that "
          "exchanges `tensors`, as explain takes them; place: (rank, world size); continued: by new rank, "
          "which old one it is, -1 for none.");
}

}  // namespace deltawire::python
