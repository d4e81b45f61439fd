// A control stream from a hostile peer. The first byte of the input says in which pieces it arrives, and
// whether magic numbers and checksums are repaired. The messages must not depend on the pieces.
#include <algorithm>
#include <array>
#include <variant>
#include <vector>

#include "base/little_endian.h"
#include "transport/mesh/control_message.h"
#include "transport/mesh/fuzz_program_testing.h"

namespace deltawire {
namespace {

constexpr int kWorld = 5;

// The kinds that have been understood so far.
std::array<bool, std::variant_size_v<ControlMessage>> seen{};

// Header after header, as far as their lengths say where the next one begins.
void repair(std::vector<std::byte>& stream) {
  std::vector<std::byte> good;
  append_control_message(Goodbye{}, kWorld, good);
  for (std::size_t at = 0; stream.size() - at >= kControlHeaderBytes;) {
    std::byte* message = stream.data() + at;
    std::copy_n(good.begin(), 4, message);
    const std::size_t content = load_le<std::uint16_t>(message + 10) % (kControlContentMax + 1);
    const std::size_t bytes = std::min(kControlHeaderBytes + content, stream.size() - at);
    store_le(message + 10, static_cast<std::uint16_t>(bytes - kControlHeaderBytes));
    seal_control_message(MutBytes(stream).subspan(at, bytes));
    at += bytes;
  }
}

bool feed(Bytes stream, std::size_t piece, std::vector<ControlMessage>& messages) {
  ControlParser parser(kWorld);
  bool sound = true;
  for (std::size_t at = 0; at < stream.size(); at += piece) {
    sound = parser.feed(stream.subspan(at, std::min(piece, stream.size() - at)), messages);
  }
  return sound;
}

const Error* error_in(const ControlMessage& message) {
  if (const auto* abort = std::get_if<Abort>(&message)) return &abort->error;
  const auto* dropped = std::get_if<Dropped>(&message);
  return dropped == nullptr ? nullptr : &dropped->error;
}

void check(std::uint8_t selector, Bytes data) {
  std::vector<std::byte> stream(data.begin(), data.end());
  if (selector % 4 != 0) repair(stream);
  std::vector<ControlMessage> whole;
  std::vector<ControlMessage> pieces;
  const bool sound = feed(stream, std::max<std::size_t>(stream.size(), 1), whole);
  expect(feed(stream, 1 + selector / 4, pieces) == sound);
  expect(whole == pieces);
  for (const ControlMessage& message : whole) {
    seen[message.index()] = true;
    if (const Error* error = error_in(message)) {
      for (const int rank : {error->suspect, error->reporter, error->waits_for}) expect(rank >= -1);
      expect(error->ranks.size() <= 256 && error->tensor.size() <= 256);
      for (const std::string& text : {error->message, error->advice}) {
        expect(text.size() <= kControlTextMax && printable_line(text) == text);
      }
    }
    if (const auto* abort = std::get_if<Abort>(&message)) {
      expect(abort->origin >= -1 && abort->origin < kWorld);
    }
    if (const auto* dropped = std::get_if<Dropped>(&message)) {
      expect(dropped->rank >= 0 && dropped->rank < kWorld);
    }
    if (const auto* waiting = std::get_if<Waiting>(&message)) {
      expect(waiting->rank >= -1 && waiting->rank < kWorld);
    }
    std::vector<std::byte> again;
    append_control_message(message, kWorld, again);
    std::vector<ControlMessage> back;
    expect(feed(again, again.size(), back) && back.size() == 1 && back[0] == message);
  }
}

}  // namespace
}  // namespace deltawire

extern "C" void fuzz_after_seeds() {
  deltawire::expect(std::ranges::count(deltawire::seen, false) == 0);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 0) deltawire::check(data[0], std::as_bytes(std::span(data + 1, size - 1)));
  return 0;
}
