// Arbitrary bytes instead of messages between the doors of an elastic session, and instead of a state's
// layout. It is next to the code whose internals it needs; tests/fuzz builds it.
#include <algorithm>
#include <array>
#include <span>

#include "elastic/messages_testing.h"
#include "elastic/state_transfer.h"
#include "transport/mesh/fuzz_program_testing.h"

namespace deltawire::elastic {
namespace {

std::vector<std::byte> layout_bytes() {
  static const std::array<float, 3000> weights{};
  return (*StateSender::make({{"weights", "<f4", 4, {3, 1000}, std::as_bytes(std::span(weights))}}, 4096))
      ->layout();
}

// Bytes of a message or a layout, mostly valid: random ones would hardly ever be any.
std::vector<std::byte> changed_bytes(FuzzProgram& source) {
  static const std::vector<Message> messages = all_messages();
  const std::size_t kind = source.take_byte() % (messages.size() + 1);
  std::vector<std::byte> bytes = kind < messages.size() ? encode(messages[kind]) : layout_bytes();
  for (std::size_t changes = source.take_byte() % 4; changes > 0; --changes) {
    bytes[(source.take_byte() << 8U | source.take_byte()) % bytes.size()] =
        static_cast<std::byte>(source.take_byte());
  }
  if (source.take_byte() % 4 == 0) bytes.resize(source.take_byte() % (bytes.size() + 8));
  return bytes;
}

void check(Bytes bytes) {
  if (const auto message = decode(bytes)) {
    // Unknown error codes are taken for another one.
    if (!std::holds_alternative<Refused>(*message)) expect(std::ranges::equal(encode(*message), bytes));
  } else {
    expect(printable_line(message.error().message) == message.error().message);
  }
  if (const auto layout = state_layout_in(bytes)) expect(std::ranges::equal(encode(*layout), bytes));
}

}  // namespace
}  // namespace deltawire::elastic

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const deltawire::Bytes bytes = std::as_bytes(std::span(data, size));
  deltawire::elastic::check(bytes);
  deltawire::FuzzProgram source(bytes);
  deltawire::elastic::check(deltawire::elastic::changed_bytes(source));
  return 0;
}
