// What the bits of an encoded chunk are spent on, for Codec::describe.
#pragma once

#include <vector>

#include "codecs/threelc/threelc_ops.h"
#include "deltawire/codec.h"

namespace deltawire::threelc {

// Adds the sections of a chunk that a decoder has accepted; they sum to its bits.
void describe_chunk(const ChunkBytes& chunk, std::vector<Section>& sections);

}  // namespace deltawire::threelc
