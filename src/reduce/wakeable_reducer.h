// What the communication thread needs of a reducer and nobody else does: to begin one bucket while others are
// waited for.
#pragma once

#include <memory>
#include <string_view>

#include "deltawire/reducer.h"
#include "deltawire/spec.h"

namespace deltawire {

class WakeableReducer : public Reducer {
 public:
  // Works on the buckets in flight, the oldest first and the younger ones while that has to wait, until the
  // oldest is complete up to the vote: true, and finish() waits for nobody but voters. False when something
  // else happened meanwhile: a wait has ended, or somebody called Transport::wake; call it again. finish()
  // does all this by itself. Errors: those of finish.
  virtual Result<bool> advance() = 0;

  // Of a step that has failed, with its transport: a bucket that was not begun before. A folding reducer
  // keeps its input as that of the step's other buckets. REQUIRES: the transport has failed.
  virtual void keep(const Bucket& bucket, const Step& step, Transport& transport) noexcept {
    (void)bucket, (void)step, (void)transport;
  }

  // As Session's.
  virtual Status recode(const Spec& spec) {
    (void)spec;
    return {};
  }
};

// As make_reducer.
Result<std::unique_ptr<WakeableReducer>> make_wakeable_reducer(std::string_view spec,
                                                               const ReducerOptions& options = {});

}  // namespace deltawire
