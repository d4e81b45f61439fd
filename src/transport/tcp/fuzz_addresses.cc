// Arbitrary bytes instead of addresses from a rank that knows the token, to rank 0 and as rank 0, in any
// pieces. It is next to the code whose internals it needs; tests/fuzz builds it.
#include <algorithm>

#include <sys/socket.h>
#include <unistd.h>

#include "transport/mesh/fuzz_program_testing.h"
#include "transport/tcp/address_book.h"

namespace deltawire {
namespace {

constexpr int kWorld = 3;

// An address from the input, mostly valid: random bytes would hardly ever be one.
AddressSlot slot_from(FuzzProgram& source) {
  AddressSlot slot = *encode_address({"10.0.0.1", 7171});
  for (std::size_t changes = source.take_byte() % 4; changes > 0; --changes) {
    const std::size_t at = source.take_byte() % slot.size();
    slot[at] = static_cast<std::byte>(source.take_byte());
  }
  return slot;
}

void check_slot(const AddressSlot& slot) {
  const auto endpoint = decode_address(slot);
  if (!endpoint) {
    expect(printable_line(endpoint.error().message) == endpoint.error().message);
    return;
  }
  const auto again = encode_address(*endpoint);
  expect(again && std::ranges::equal(*again, slot));
}

struct Line {
  std::array<GuardedFd, 2> ends = GuardedFd::open_socket_pair();
  void say(Bytes bytes) const {
    expect(::send(ends[1].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(bytes.size()));
  }
  bool holds_more() const {
    std::byte next{};
    return ::recv(ends[0].get(), &next, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
  }
};

void talk(Bytes data) {
  FuzzProgram source(data);
  const bool hosts = source.take_byte() % 2 == 0;
  const std::size_t piece = 1 + source.take_byte();
  std::vector<std::byte> said;
  for (int rank = hosts ? 2 : 0; rank < kWorld; ++rank) {
    const AddressSlot slot = slot_from(source);
    check_slot(slot);
    said.insert(said.end(), slot.begin(), slot.end());
  }
  said.push_back(std::byte{1});  // the mesh's first byte, which must not be read here
  const Line lines[2];
  std::vector<PeerSockets> sockets(kWorld);
  sockets[hosts ? 1 : 0].data = GuardedFd::open([&] { return ::dup(lines[0].ends[0].get()); });
  if (hosts) {
    sockets[2].data = GuardedFd::open([&] { return ::dup(lines[1].ends[0].get()); });
    lines[0].say(*encode_address({"fd00::1", 1}));
  }
  const Line& line = lines[hosts ? 1 : 0];
  std::vector<std::uint32_t> streams(kWorld);
  for (std::size_t rank = 0; rank < sockets.size(); ++rank) streams[rank] = sockets[rank].data ? 1 : 0;
  AddressBook book(hosts ? 0 : 1, kWorld, *encode_address({"10.0.0.2", 1}));
  Status status;
  for (Bytes rest(said); !rest.empty() && status; rest = rest.subspan(std::min(piece, rest.size()))) {
    line.say(rest.first(std::min(piece, rest.size())));
    status = book.advance(sockets, streams);
  }
  if (status) {
    expect(book.is_complete() && line.holds_more());
  } else {
    expect(!book.is_complete() && status.error().suspect == (hosts ? 2 : 0));
  }
}

}  // namespace
}  // namespace deltawire

// Each input opens four sockets.
extern "C" {
extern const int fuzz_rounds;
const int fuzz_rounds = 1500;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  deltawire::talk(std::as_bytes(std::span(data, size)));
  return 0;
}
