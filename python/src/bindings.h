// The parts of deltawire._core, one function per file.
#pragma once

#include <nanobind/nanobind.h>

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

}  // namespace deltawire::python
