// Arbitrary bytes at both ends of TLS, before, in and after its handshake, in any pieces. It is next to the
// code whose internals it needs; tests/fuzz builds it.
#include "transport/mesh/fuzz_program_testing.h"
#include "transport/tls/memory_wire_testing.h"
#include "transport/tls/tls_link.h"

namespace deltawire {
namespace {

using Progress = TlsLink::Progress;

struct End {
  std::shared_ptr<test::Lane> in;
  std::unique_ptr<TlsLink> link;
  Progress progress = Progress::kMore;
};

void receive(Bytes data) {
  static const auto context = *TlsContext::make(Token{});
  if (data.empty()) return;
  const auto plan = std::to_integer<unsigned>(data[0]);
  const auto up = std::make_shared<test::Lane>();
  const auto down = std::make_shared<test::Lane>();
  End client{down, std::make_unique<TlsLink>(context, TlsLink::Role::kClient,
                                             std::make_unique<test::WireEnd>(up, down))};
  End server{up, std::make_unique<TlsLink>(context, TlsLink::Role::kServer,
                                           std::make_unique<test::WireEnd>(down, up))};
  up->at_once = down->at_once = 1 + plan / 8;
  // How far the two ends come before the bytes do.
  for (unsigned turn = 0; turn < (plan / 2) % 4 * 200; ++turn) {
    for (End* end : {&client, &server}) {
      if (end->progress == Progress::kMore) end->progress = end->link->shake_hands();
    }
  }
  End& tested = plan % 2 == 0 ? client : server;
  const bool was_open = tested.progress == Progress::kDone;
  // What the other end said, and was not read, is replaced.
  tested.in->carried.resize(tested.in->read);
  tested.in->put(data.subspan(1));
  for (std::size_t turn = 0; turn < data.size() && tested.progress == Progress::kMore; ++turn) {
    tested.progress = tested.link->shake_hands();
  }
  expect(was_open || tested.progress != Progress::kDone);
  if (!was_open) return;
  std::array<std::byte, 100> got;
  for (std::size_t turn = 0; turn < data.size(); ++turn) {
    const IoResult result = tested.link->recv(got);
    expect(result.kind != IoResult::Kind::kOk);
    if (result.kind != IoResult::Kind::kWouldBlock) break;
  }
  const iovec piece{got.data(), got.size()};
  (void)tested.link->send({&piece, 1});
}

}  // namespace
}  // namespace deltawire

// Each input makes two ends, and most of them a handshake.
extern "C" {
extern const int fuzz_rounds;
const int fuzz_rounds = 1000;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  deltawire::receive(std::as_bytes(std::span(data, size)));
  return 0;
}
