// Whether this process may open as many descriptors as a mesh needs.
#pragma once

#include "deltawire/connect.h"

namespace deltawire {

// kSystem where the limit of open files leaves too few for `self` of a mesh of `world_size`, beyond those
// that are open now; the listening socket must be one of them.
Status check_descriptors(int self, int world_size);

// errno of a call that opens one: whether it says that this process or this machine has none left.
bool is_descriptor_shortage(int error_number) noexcept;

// The kSystem error for that.
Error descriptor_shortage(int self, int world_size, int error_number);

}  // namespace deltawire
