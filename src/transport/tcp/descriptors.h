// Descriptors that run out; check_descriptors, in connect.h, looks before they do.
#pragma once

#include <cstddef>

#include "deltawire/connect.h"

namespace deltawire {

// errno of a call that opens one: whether it says that this process or this machine has none left.
bool is_descriptor_shortage(int error_number) noexcept;

// How many connections of strangers may be open at once, so that those of a mesh's ranks are never short of
// descriptors; at most `wanted`. To be asked when no connection is open yet.
std::size_t descriptors_for_strangers(int world_size, std::size_t wanted) noexcept;

// Descriptors that are missing for a moment may come back, those of strangers for example; for long they are
// an error.
class DescriptorShortage {
 public:
  // A call has failed for want of one. kSystem, with the numbers and what to do, where that goes on for 2 s.
  Status note(Deadline now, int self, int world_size, int error_number);

 private:
  Deadline first_{};
  Deadline last_{};
};

}  // namespace deltawire
