// One bucket on its way through a pattern: what all patterns keep of it, and its memory, which a later step
// uses again.
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

// A posted receive of one message.
struct Incoming {
  ReceiveBuffer buffer;
  Handle handle = Handle::kNone;
  std::uint64_t length = 0;  // once it has been waited for

  Bytes bytes() const { return buffer.first(length); }
};

struct Bucket {
  virtual ~Bucket() = default;

  // Copies what begin was given; the rest is as for a new bucket, but keeps its memory.
  void open(std::span<const Named> given, const Step& at, Transport& over, Deadline until);

  // Makes room for all elements in `staged`; staged_of(i) is then where tensor i's means belong.
  void take_staging();
  float* staged_of(std::size_t tensor) { return staged.data() + staged_at[tensor]; }

  // Hands the means to the caller: into the tensors that begin was given. Nothing can fail any more.
  virtual void publish();

  int rank() const { return transport->rank(); }
  int world() const { return transport->world_size(); }

  Step step;
  Transport* transport = nullptr;
  Deadline deadline;
  std::vector<std::string> names;
  std::vector<Named> tensors;            // the caller's memory, own names
  std::vector<float> staged;             // the bucket's means as decoded
  std::vector<std::uint64_t> staged_at;  // where each tensor's means begin in `staged`
  std::vector<Incoming> incoming;        // the pattern says which is whose
  std::vector<Handle> sends;
  std::vector<std::byte> joined;        // an own message as the decoder wants it: in one piece
  std::vector<Pairs>* pairs = nullptr;  // key-value form: where the means go instead
  Report report;
};

}  // namespace deltawire
