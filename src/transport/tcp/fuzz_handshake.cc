// Arbitrary bytes from a stranger, in any pieces, at both ends of the handshake; and arbitrary claims of a
// rank that knows the token. It is next to the code whose internals it needs; tests/fuzz builds it.
#include <algorithm>
#include <array>

#include "base/little_endian.h"
#include "transport/mesh/fuzz_program_testing.h"
#include "transport/tcp/handshake_testing.h"
#include "transport/tcp/peer_table.h"

namespace deltawire {
namespace {

// What has become of handshakes so far: the rank is refused, its settings differ, or it is welcome.
enum Outcome : std::size_t { kRefused, kDiffers, kWelcome, kOutcomes };
std::array<bool, kOutcomes> seen{};

// The first byte of an input.
struct Plan {
  bool of_listener;   // which end is tested
  bool knows_token;   // the proof is corrected: otherwise nothing gets past it
  bool repairs_text;  // length and digest of the text are those of what follows
  std::size_t piece;  // bytes at a time

  explicit Plan(std::byte first)
      : of_listener((first & std::byte{1}) != std::byte{0}),
        knows_token((first & std::byte{2}) != std::byte{0}),
        repairs_text((first & std::byte{4}) != std::byte{0}),
        piece(1 + std::to_integer<std::size_t>(first >> 3)) {}
};

MeshOptions options() {
  MeshOptions options;
  options.rank = 1;
  options.world_size = 3;
  options.settings = "codec=3lc";
  options.token.fill(std::byte{7});
  return options;
}

Nonce nonce_in(Bytes bytes) {
  Nonce nonce;
  expect(bytes.size() >= nonce.size());
  std::copy_n(bytes.end() - static_cast<std::ptrdiff_t>(nonce.size()), nonce.size(), nonce.begin());
  return nonce;
}

void repair(ClaimsBytes& bytes, Bytes text) {
  const std::string_view view(reinterpret_cast<const char*>(text.data()), text.size());
  store_le(bytes.data() + 20, static_cast<std::uint16_t>(text.size()));
  std::ranges::copy(Bytes(digest_of(view)).first(24), bytes.begin() + 36);
}

// Both roles send claims, nonce and proof, but in different orders.
Exchange converse(Handshake& end, const Plan& plan, FuzzProgram& source, const ClaimsBytes& own_bytes) {
  ClaimsBytes bytes = source.take_block<ClaimsBytes>();
  const Nonce nonce = source.take_block<Nonce>();
  Proof proof = source.take_block<Proof>();
  if (plan.repairs_text) repair(bytes, source.rest());
  std::size_t held = end.room().size();
  Exchange state = Exchange::kMore;
  if (plan.of_listener) {
    state = give(end, bytes, plan.piece);
    if (state == Exchange::kMore) state = give(end, nonce, plan.piece);
  } else {
    state = give(end, nonce, plan.piece);
  }
  if (state != Exchange::kMore) return state;
  held += end.room().size();
  expect(held <= 128);
  if (plan.knows_token) {
    const std::string_view label = plan.of_listener ? "deltawire dialer" : "deltawire listen";
    const Nonce own = plan.of_listener ? nonce_in(end.unsent()) : Nonce{};
    const Bytes name(reinterpret_cast<const std::byte*>(label.data()), label.size());
    const std::array<Bytes, 5> pieces{name, plan.of_listener ? nonce : own, plan.of_listener ? own : nonce,
                                      plan.of_listener ? bytes : own_bytes,
                                      plan.of_listener ? Bytes() : Bytes(bytes)};
    proof = *prove(options().token, pieces);
  }
  if (!plan.of_listener) state = give(end, bytes, plan.piece);
  if (state == Exchange::kMore) state = give(end, proof, plan.piece);
  if (!plan.knows_token) expect(state == Exchange::kStranger);
  return state == Exchange::kMore ? give(end, source.rest(), plan.piece) : state;
}

void shake_hands(Bytes data) {
  if (data.empty()) return;
  const Plan plan(data[0]);
  FuzzProgram source(data.subspan(1, std::min<std::size_t>(data.size() - 1, 2000)));
  PeerTable peer_table(options());
  Claims own = peer_table.own_claims(plan.of_listener ? Claims::Role::kListener : Claims::Role::kDialer);
  own.peer = 0;
  Handshake end(options().token, own, Nonce{});
  Exchange state = converse(end, plan, source, encode_claims(own));
  if (state == Exchange::kMore) state = end.sent(end.unsent().size());
  if (state != Exchange::kDone) return;
  expect(plan.knows_token && end.room().empty());
  const Claims& peer = end.peer();
  expect(peer.text.size() <= kSettingsMax);
  if (const Status judged = peer_table.check(peer); !judged) {
    expect(printable_line(judged.error().message) == judged.error().message);
    expect(judged.error().suspect < 3);
    seen[kRefused] = true;
    return;
  }
  const Status compared = peer_table.compare_settings();
  seen[compared ? kWelcome : kDiffers] = true;
  if (!compared) {
    expect(compared.error().code == ErrorCode::kMismatch && compared.error().suspect >= 0);
    expect(printable_line(compared.error().message) == compared.error().message);
  }
}

}  // namespace
}  // namespace deltawire

extern "C" void fuzz_after_seeds() {
  deltawire::expect(std::ranges::count(deltawire::seen, false) == 0);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  deltawire::shake_hands(std::as_bytes(std::span(data, size)));
  return 0;
}
