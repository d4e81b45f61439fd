// The messages that a call of Channel::encode makes: memory for their parts, which are coded together, and
// frames around what came of them.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"
#include "channel/message_encoder.h"
#include "channel/part_encoder.h"
#include "channel/part_jobs.h"
#include "channel/step_record.h"

namespace deltawire {

// A message written into memory of the caller's, frame after frame. Parts whose chunks can be coded alone are
// coded here, one chunk after another, so that their bytes go from the cache to their place, and no memory
// for the whole part's is needed.

// What a writer keeps from message to message.
struct WriterMemory {
  std::vector<std::byte> heads;
  std::vector<std::byte> chunks;  // a ring
  std::vector<std::byte> scratch;
  std::vector<Bytes> waiting;
  std::vector<std::uint32_t> ends;
  std::vector<std::uint32_t> sums;
  std::vector<Bytes> places;

  std::uint64_t bytes() const noexcept { return heads.capacity() + chunks.capacity() + scratch.capacity(); }
};

// Frames as Framer gives them, copied behind each other.
class WrittenFrames {
 public:
  WrittenFrames(MutBytes out, WriterMemory& memory)
      : out_(out), heads_(memory.heads), waiting_(memory.waiting) {
    heads_.clear();
    waiting_.clear();
  }

  std::vector<std::byte>& heads() noexcept { return heads_; }
  void add(Bytes payload);
  void close(Bytes head);
  std::uint64_t written() const noexcept { return written_; }

 private:
  void write(Bytes bytes) noexcept;

  MutBytes out_;
  std::uint64_t written_ = 0;
  std::vector<std::byte>& heads_;
  std::vector<Bytes>& waiting_;  // the open frame's payload
};

class MessageWriter {
 public:
  // `out` has room for the whole message. `chunk`: bounds of every chunk that is coded here.
  MessageWriter(const FrameHeader& header, MutBytes out, const Sizes& chunk, WriterMemory& memory);
  MessageWriter(const MessageWriter&) = delete;
  MessageWriter& operator=(const MessageWriter&) = delete;

  // Parts that are coded; their bytes stay until finish().
  void add(std::span<const SentPart> parts) { framer_.add_all(parts); }

  // A part that is not coded yet (codes_alone); returns the bytes that it took. `copies`: its chunks are the
  // bytes of its values, which stay until finish(). Errors: those of Codec::encode.
  Result<std::uint64_t> code(const SentPart& part, const TensorView& values, bool copies);

  // Completes the message; returns its bytes.
  std::uint64_t finish();

 private:
  Status code_chunk(const SentPart& part, const TensorView& values);
  void take_chunk(Bytes chunk, std::uint32_t sum);
  MutBytes room_for(std::uint64_t bytes) noexcept;
  void drop(std::size_t added, std::uint64_t chunk_elements);

  WriterMemory& memory_;
  WrittenFrames frames_;
  Framer<WrittenFrames> framer_;
  std::size_t next_ = 0;     // in the ring of chunks
  std::uint64_t first_ = 0;  // elements of the part before the chunks that the framer keeps back
  std::uint64_t held_ = 0;   // and of these
};

// Memory for messages of true size: bounds are far above it (3LC: 1.6 bits a value, whatever it sends).
class PayloadMaker {
 public:
  explicit PayloadMaker(std::shared_ptr<MemoryMeter> meter)
      : pool_(std::move(meter), MemoryMeter::Use::kMessages) {}

  // Gives the message room for `bound` bytes.
  void open(Message& message, std::uint64_t bound);

  // Moves the parts' bytes together: where they are far below the bound, and the message stays until the step
  // ends, to memory of their own, and the room is kept for the next message. Says in `parts`, which are in
  // the room in this order, where they are now.
  void close(Message& message, std::span<SentPart> parts);

  // Keeps what the next step may need. REQUIRES: the messages gave theirs back, but those that live on.
  void end_step() noexcept;
  // Keeps nothing.
  void clear() noexcept;

 private:
  BufferPool pool_;
  BufferPool::Buffer room_;          // between two messages
  std::uint64_t largest_bound_ = 0;  // of this step
};

class MessageMaker {
 public:
  // `encoder` outlives it. `joins_copies`: a run of parts that are only copied is one job.
  MessageMaker(PartEncoder& encoder, bool joins_copies, const std::shared_ptr<MemoryMeter>& meter)
      : encoder_(encoder), joins_copies_(joins_copies), payloads_(meter), record_(meter) {}

  // Begins a call. The messages of earlier ones stay.
  void begin() noexcept {
    jobs_.clear();
    opened_.clear();
  }

  // kInvalidArgument for parts that can't be in one message: two threads may code them, each its own
  // residual. What was found right is remembered, since the same messages come in every step.
  Status check_distinct(const MessageLayout& layout);

  // Takes all memory that coding and reverting the next message need, and lists its parts. `is_needed`: by
  // the step, until it ends; else its memory has `room` bytes at least. `leaves_alone`: as of `bounds`; then
  // write() has to follow. REQUIRES: the layout's parts stay.
  void open(const MessageLayout& layout, std::uint64_t step, bool is_needed, std::uint64_t room,
            const MessageBounds& bounds, bool leaves_alone = false);

  // The parts of all messages, to be coded.
  std::span<PartJob> jobs() noexcept { return jobs_; }

  // Records the parts; unless one has an error, which it returns, makes their messages.
  Status close(const MessageId& id, std::uint32_t params_hash);

  // In place of open() to close(), for one message that sends_values: only short parts take memory. `sums`:
  // whether it has checksums; else long parts are not read.
  std::span<const Bytes> make_in_place(const MessageLayout& layout, const MessageId& id,
                                       std::uint32_t params_hash, bool sums);

  // In place of close(), for one message: codes what was left and writes the message to `out`, which has room
  // for it. Returns its bytes.
  Result<std::uint64_t> write(const MessageId& id, std::uint32_t params_hash, const Sizes& chunk,
                              MutBytes out);

  // Of the messages in their order, after close().
  std::size_t count() const noexcept { return opened_.size(); }
  std::span<const Bytes> pieces(std::size_t i) const noexcept {
    assert(i < opened_.size());
    return opened_[i].message->pieces;
  }

  std::uint64_t writer_bytes() const noexcept { return writing_.bytes(); }
  PayloadMaker& payloads() noexcept { return payloads_; }
  StepRecord& record() noexcept { return record_; }
  const StepRecord& record() const noexcept { return record_; }

 private:
  struct Opened {
    Message* message;
    std::size_t end;  // of its parts
    std::uint32_t layout_hash;
  };

  // Records the parts of all jobs; the first error of theirs.
  Status record_jobs();

  PartEncoder& encoder_;
  const bool joins_copies_;
  PayloadMaker payloads_;
  StepRecord record_;  // whose messages' memory is that of payloads_
  std::vector<PartJob> jobs_;
  std::vector<Opened> opened_;
  WriterMemory writing_;
  std::unordered_set<std::uint32_t> distinct_;  // layouts, by their hashes
};

}  // namespace deltawire
