// File descriptors running out. check_descriptors, in connect.h, checks that beforehand.
#pragma once

#include <cstddef>

#include "deltawire/connect.h"

namespace deltawire {

// Whether the errno of a call that opens a descriptor means that this process or this machine has none left.
bool is_descriptor_shortage(int error_number) noexcept;

// How many connections of strangers may be open at once without using up the descriptors of the mesh's ranks:
// a thousand and all of these ranks, or half of what is left. Must be called before any connection is open.
std::size_t places_for_strangers(int world_size) noexcept;

// How many data streams each pair of ranks may have without using up more than half of the descriptors that
// are left. Must be called when all ranks are connected, by one each.
int streams_that_fit(int world_size) noexcept;

// A brief shortage may end by itself, e.g. when strangers' connections are closed; a long one is an error.
class DescriptorShortage {
 public:
  // A call has failed because there is no descriptor. If that goes on for 2 s: kSystem, with the numbers and
  // what to do.
  Status note(Deadline now, int self, int world_size, int error_number);

 private:
  Deadline first_{};
  Deadline last_{};
};

}  // namespace deltawire
