#include <nanobind/nanobind.h>

#include "bindings.h"

NB_MODULE(_core, module) {
  // FSDP keeps a hook, and so its Session, until the interpreter ends; that is no leak to warn of.
  nanobind::set_leak_warnings(false);
  module.doc() = "The C++ core of deltawire. Use the package `deltawire`; this module may change.";
  module.attr("__version__") = DELTAWIRE_VERSION;
  deltawire::python::bind_codecs(module);
  deltawire::python::bind_specs(module);
  deltawire::python::bind_channels(module);
  deltawire::python::bind_optimizers(module);
  deltawire::python::bind_optimizer_rules(module);
  deltawire::python::bind_explain(module);
  deltawire::python::bind_buckets(module);
  deltawire::python::bind_patches(module);
  deltawire::python::bind_patch_files(module);
  deltawire::python::bind_models(module);
  deltawire::python::bind_planner(module);
  deltawire::python::bind_meshes(module);
  deltawire::python::bind_doors(module);
  deltawire::python::bind_sessions(module);
  deltawire::python::bind_elastic(module);
  deltawire::python::bind_servers(module);
}
