// Segments on several streams. The first byte of the input says whether they are an honest peer's, in any
// order, of any length and as often as it likes, of which no byte may come twice, late or wrong; or a
// hostile peer's bytes as they are.
#include <array>
#include <cstdint>
#include <vector>

#include "transport/links/striped_link.h"
#include "transport/mesh/fuzz_program_testing.h"

namespace deltawire {
namespace {

constexpr std::size_t kStreams = 4;

std::byte byte_at(std::uint64_t position) {
  return static_cast<std::byte>(position * 0x9E3779B97F4A7C15u >> 56);
}

class Reader {
 public:
  explicit Reader(bool is_honest) : is_honest_(is_honest) {}

  // False: the whole is broken.
  bool give(std::size_t stream, Bytes bytes, std::size_t room) {
    std::vector<std::byte> into(room);
    while (!bytes.empty()) {
      const MutBytes wanted = order_.room(stream, into);
      expect(!wanted.empty());
      const Bytes part = bytes.first(std::min(wanted.size(), bytes.size()));
      std::ranges::copy(part, wanted.begin());
      if (!order_.received(stream, part.size())) return false;
      check(Bytes(into).first(order_.delivered()));
      bytes = bytes.subspan(part.size());
      while (order_.has_kept()) check(Bytes(into).first(order_.take_kept(into)));
    }
    return true;
  }
  void drop(std::size_t stream) { order_.drop(stream); }
  std::uint64_t position() const noexcept { return position_; }

 private:
  void check(Bytes delivered) {
    for (const std::byte byte : delivered) {
      expect(!is_honest_ || byte == byte_at(position_));
      ++position_;
    }
  }

  bool is_honest_;
  std::uint64_t position_ = 0;
  SegmentOrder order_{kStreams};
};

// A segment that begins near what is delivered next, before it or behind, and ends where the program says.
Stripe draw_segment(FuzzProgram& program, std::uint64_t position) {
  const std::uint64_t first = position - std::min<std::uint64_t>(position, 50);
  const std::uint64_t at = first + program.take_byte() % 100;
  const std::size_t length = 1 + program.take_byte() % 100;
  Stripe segment(at, length);
  for (std::size_t i = 0; i < length; ++i) segment.bytes.push_back(byte_at(at + i));
  return segment;
}

void run_honest(FuzzProgram program) {
  Reader reader(true);
  struct Stream {
    std::vector<std::byte> bytes;
    std::size_t given = 0;
  };
  std::array<Stream, kStreams> streams;
  while (!program.empty()) {
    const std::size_t act = program.take_byte();
    const std::size_t number = act % kStreams;
    Stream& stream = streams[number];
    if (act >= 250) {
      stream = {};
      reader.drop(number);
    } else if (act % 3 == 0) {
      const Stripe segment = draw_segment(program, reader.position());
      stream.bytes.insert(stream.bytes.end(), segment.bytes.begin(), segment.bytes.end());
    } else {
      const std::size_t count = std::min(1 + program.take_byte(), stream.bytes.size() - stream.given);
      expect(reader.give(number, Bytes(stream.bytes).subspan(stream.given, count), 1 + act / 4));
      stream.given += count;
    }
  }
}

void run_hostile(FuzzProgram program) {
  Reader reader(false);
  while (!program.empty()) {
    const std::size_t stream = program.take_byte() % kStreams;
    if (!reader.give(stream, program.take_counted(), 100)) return;
  }
}

}  // namespace
}  // namespace deltawire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const deltawire::Bytes input(reinterpret_cast<const std::byte*>(data), size);
  if (input.empty()) return 0;
  deltawire::FuzzProgram program(input.subspan(1));
  data[0] % 4 != 0 ? deltawire::run_honest(program) : deltawire::run_hostile(program);
  return 0;
}
