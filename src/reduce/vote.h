// The vote that ends a step: every rank tells every other that it has all of the step's means, and their
// digest. Only when all have said so, with one digest, does the step count (docs/design/commit.md).
#pragma once

#include <cstdint>

#include "deltawire/reducer.h"
#include "deltawire/result.h"
#include "deltawire/transport.h"

namespace deltawire {

// The tag of a bucket's messages of one stage. The steps that are under way differ in their lowest 32 bits.
inline constexpr Tag tag_of(const Step& step, std::uint16_t stage) noexcept {
  return (step.number << 32) | (Tag{step.bucket} << 16) | stage;
}

// Errors: those of Transport::vote; kMismatch when digests differ: the suspect is a rank in the minority, and
// the message lists all of them.
Status vote(const Step& step, std::uint64_t digest, Transport& transport, Deadline deadline);

// Completes the error of a failed step: its last_committed_step, and the same in words.
void say_which_step_stands(Error& error, const Transport& transport);

}  // namespace deltawire
