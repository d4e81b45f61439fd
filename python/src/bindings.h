// The parts of deltawire._core, a function each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <nanobind/nanobind.h>

#include "deltawire/part_backend.h"
#include "deltawire/tensor.h"

namespace deltawire::python {

void bind_codecs(nanobind::module_& module);  // registry, .dw files
void bind_specs(nanobind::module_& module);
void bind_channels(nanobind::module_& module);
void bind_optimizers(nanobind::module_& module);  // optimizers, significance
void bind_optimizer_rules(nanobind::module_& module);
void bind_explain(nanobind::module_& module);
void bind_buckets(nanobind::module_& module);  // the tensors of a bucket
void bind_patches(nanobind::module_& module);
void bind_patch_files(nanobind::module_& module);
void bind_models(nanobind::module_& module);  // safetensors and patch files in memory
void bind_planner(nanobind::module_& module);
void bind_meshes(nanobind::module_& module);  // listener, mesh
void bind_sessions(nanobind::module_& module);
void bind_elastic(nanobind::module_& module);
void bind_doors(nanobind::module_& module);    // messages outside any mesh
void bind_servers(nanobind::module_& module);  // parameter servers and their workers

// Nothing of Python can be had once it is gone, and no other thread may ask for the GIL.
inline bool interpreter_is_up() noexcept {
  return Py_IsInitialized() != 0 && nanobind::is_alive();
}

// Name and shape of a float32 tensor; with the name of its dtype.
using TensorNamed = std::variant<std::pair<std::string, std::vector<std::uint64_t>>,
                                 std::tuple<std::string, std::vector<std::uint64_t>, std::string>>;

// Without values. `tensors` must outlive them.
std::vector<Named> as_named(const std::vector<TensorNamed>& tensors);

// Calls the object's methods of the same names, which take addresses as numbers (core/device/parts.py). Any
// thread may use it, and takes the GIL for each call.
std::shared_ptr<PartBackend> backend_of(nanobind::object device);

// By what they are for, the members of the rows in which these methods take and give parts.
nanobind::dict part_rows();

}  // namespace deltawire::python
