// Listeners and meshes, for all that connects.
#pragma once

#include <memory>

#include <nanobind/nanobind.h>

#include "deltawire/connect.h"

namespace deltawire::python {

// What `call` returns; other Python threads run meanwhile.
template <class Call>
auto without_gil(Call call) {
  const nanobind::gil_scoped_release no_gil;
  return call();
}

// Owns a listener until a session or a link takes it.
struct OpenListener {
  std::unique_ptr<Listener> listener;
  Endpoint endpoint;
};

// The mesh's transport; the listener is used up. Raises; lets go of the GIL meanwhile.
std::unique_ptr<Transport> connected(OpenListener& listener, const MeshOptions& mesh);

}  // namespace deltawire::python
