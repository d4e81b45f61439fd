// Arbitrary bytes instead of messages between the doors of an elastic session, and instead of a state's
// layout. It is next to the code whose internals it needs; tests/fuzz builds it.
#include <algorithm>
#include <cstdlib>

#include "elastic/state_transfer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace deltawire;
  using namespace deltawire::elastic;
  const auto expect = [](bool holds) {
    if (!holds) std::abort();
  };
  // Most inputs have the version, or nothing behind it would be read.
  std::vector<std::byte> bytes(size);
  std::ranges::transform(std::span(data, size), bytes.begin(),
                         [](std::uint8_t each) { return std::byte{each}; });
  if (!bytes.empty() && (data[0] & 0x80U) == 0) bytes[0] = std::byte{kMessageVersion};
  if (const auto message = decode(bytes)) {
    if (!std::holds_alternative<Refused>(*message)) expect(std::ranges::equal(encode(*message), bytes));
  } else {
    expect(printable_line(message.error().message) == message.error().message);
  }
  if (const auto layout = state_layout_in(bytes)) expect(std::ranges::equal(encode(*layout), bytes));
  return 0;
}
