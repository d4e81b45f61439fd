// A message written into memory of the caller's, frame after frame. Parts whose chunks can be coded alone are
// coded here, one chunk after another, so that their bytes go from the cache to their place, and no memory
// for the whole part's is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "channel/framer.h"

namespace deltawire {

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

}  // namespace deltawire
