// One bucket on its way through the `direct` pattern: what is sent to and expected from whom, and the memory
// for it. The steps themselves are direct.cc's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/reducer.h"
#include "deltawire/transport.h"

namespace deltawire {

// Bytes that only grow: a bucket's receive buffers are the same size every step.
class ReceiveBuffer {
 public:
  MutBytes take(std::uint64_t bytes) {
    if (bytes > capacity_) {
      memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      capacity_ = bytes;
    }
    return MutBytes(memory_.get(), bytes);
  }
  Bytes first(std::uint64_t bytes) const { return Bytes(memory_.get(), bytes); }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::uint64_t capacity_ = 0;
};

// A posted receive of one peer's message.
struct Incoming {
  ReceiveBuffer buffer;
  Handle handle = Handle::kNone;
};

struct DirectBucket {
  // Copies what begin was given and cuts it into parts; reuses this object's memory.
  void plan(std::span<const Named> tensors, const Step& step, Transport& transport, Deadline deadline);

  // Copies the staged means to the caller's tensors.
  void publish() const;

  Step step;
  Transport* transport = nullptr;
  Deadline deadline;
  std::vector<std::string> names;
  std::vector<Named> tensors;              // the caller's memory, own names
  std::vector<std::vector<Named>> input;   // by owner: parts in the caller's memory
  std::vector<std::vector<Named>> output;  // by owner: the same parts in `staged`
  std::vector<Named> mean;                 // the parts this rank owns, in `own_mean`
  std::vector<float> staged;               // the bucket's means as decoded
  std::vector<float> own_mean;             // the mean of the pushes, before it is compressed
  std::vector<Bytes> own_push;             // this rank's own push message to itself, in pieces
  std::vector<std::byte> joined;           // an own message as the decoder wants it: in one piece
  std::vector<Incoming> pushes;            // by rank
  std::vector<Incoming> pulls;             // by owner
  std::vector<Handle> sends;
  Report report;
};

}  // namespace deltawire
