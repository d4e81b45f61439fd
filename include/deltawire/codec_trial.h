// Measures codecs for the planner, on gradients like those that will be exchanged.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/export.h"
#include "deltawire/planner.h"
#include "deltawire/policy.h"
#include "deltawire/result.h"
#include "deltawire/spec.h"
#include "deltawire/tensor.h"

namespace deltawire {

// Encodes and decodes messages of a codec, round by round, and measures their bytes, their error and the
// processor time of this thread, so that other threads on its core don't count.
class DELTAWIRE_API CodecTrial {
 public:
  // Errors: those of make_channel; kInvalidArgument for a pattern that the planner has no model of.
  static Result<CodecTrial> make(const Spec& spec, const Policy& policy = {});
  CodecTrial(CodecTrial&&) noexcept;
  CodecTrial& operator=(CodecTrial&&) noexcept;
  ~CodecTrial();

  // From how many rounds on there are figures: with error feedback the first messages are smaller than those
  // to come.
  std::size_t least_rounds() const noexcept { return keeps_residual_ ? 8 : 4; }

  // Encodes and decodes these parts, dense, as an exchange cuts them. In a later round they may have other
  // values. Errors: those of Channel::encode and decode: the codec doesn't take the values, and the trial is
  // over.
  Status advance(std::span<const Named> parts);

  // Of all rounds: the mean bits of the second half of the first 20, with `direct` those of the means that
  // owners send counted as well; the shortest times; what one message loses without error feedback. Its spec
  // is the canonical text.
  CodecFigures figures() const;

 private:
  class Coder;
  struct Times {
    double encode, decode;
  };

  CodecTrial();
  Status begin(std::span<const Named> parts);

  CodecFigures figures_;  // but for bits and times
  bool keeps_residual_ = false;
  bool cuts_by_optimizer_ = false;  // what it drops the optimizer can't see, whatever the error of the values
  Policy policy_;
  std::unique_ptr<Coder> gradients_;
  std::unique_ptr<Coder> means_;  // nullptr: they are coded as gradients are, or not sent
  double values_ = 0;             // of a message
  CodingTime::Message small_encode_{}, small_decode_{};
  Times shortest_{};
  std::vector<double> bytes_;  // of the first messages
};

}  // namespace deltawire
