// A device whose parts Python codes: deltawire.torch's, with codecs' twins.
#pragma once

#include <memory>

#include <nanobind/nanobind.h>

#include "deltawire/part_backend.h"

namespace deltawire::python {

// Calls the object's methods of the same names, which take addresses as numbers (core/device/parts.py). Any
// thread may use it, and takes the GIL for each call.
std::shared_ptr<PartBackend> backend_of(nanobind::object device);

// By what they are for, the members of the rows in which these methods take and give parts.
nanobind::dict part_rows();

}  // namespace deltawire::python
