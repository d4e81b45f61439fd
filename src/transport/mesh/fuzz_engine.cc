// Two hostile peers of a whole transport: its threads, its links, its waits. Each peer writes what the input
// says on its two streams, with checksums as they should be where the input asks for it, and hangs up. The
// rank under test posts sends and receives and waits for them: every wait ends, and no error is without
// words.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include <sys/socket.h>

#include "base/little_endian.h"
#include "transport/mesh/control_message.h"
#include "transport/mesh/data_stream.h"
#include "transport/mesh/fuzz_program_testing.h"
#include "transport/mesh/make_mesh.h"

// Each input starts a thread and opens eight sockets.
extern "C" {
extern const int fuzz_rounds;
const int fuzz_rounds = 500;
}

namespace deltawire {
namespace {

constexpr int kWorld = 3;
constexpr int kPeers = 2;
constexpr std::chrono::milliseconds kDeadline{50};

// The far end of both streams to a peer.
struct FarEnd {
  GuardedFd data;
  GuardedFd control;

  static void write(const GuardedFd& to, Bytes bytes) {
    // What doesn't fit is lost: the streams of a hostile peer may end anywhere.
    if (!bytes.empty()) (void)!::send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
};

class Session {
 public:
  explicit Session(Bytes program) : program_(program) {}

  void run() {
    connect();
    while (!program_.empty()) command();
    for (FarEnd& far : far_) far = {};
    wait_for_all();
  }

 private:
  void connect() {
    std::vector<PeerSockets> sockets(kWorld);
    for (std::size_t peer = 0; peer < kPeers; ++peer) {
      auto data = GuardedFd::open_socket_pair();
      auto control = GuardedFd::open_socket_pair();
      expect(data[0] && control[0]);
      sockets[peer + 1] = {std::move(data[0]), std::move(control[0])};
      far_[peer] = {std::move(data[1]), std::move(control[1])};
    }
    auto made = make_mesh({}, std::move(sockets), LinkOptions{});
    expect(made.has_value());
    rank_ = std::move(*made);
  }

  void command() {
    const std::size_t code = program_.take_byte();
    FarEnd& far = far_[code / 8 % kPeers];
    switch (code % 8) {
      case 0: FarEnd::write(far.data, program_.take_counted()); return;
      case 1: FarEnd::write(far.control, program_.take_counted()); return;
      case 2: send_message(far); return;
      case 3:
      case 4: send_news(far); return;
      case 5: post_receive(static_cast<int>(1 + code / 8 % kPeers)); return;
      case 6: post_send(static_cast<int>(1 + code / 8 % kPeers)); return;
      default: hang_up(far); return;
    }
  }

  void send_message(const FarEnd& far) {
    const std::size_t tag = program_.take_byte() % 4;
    const std::size_t claimed = program_.take_byte();
    const Bytes bytes = program_.take_counted();
    const std::uint64_t length = claimed < 128 ? bytes.size() : std::uint64_t{claimed} << (claimed % 32);
    FarEnd::write(far.data, encode_message_header({tag, length}));
    FarEnd::write(far.data, bytes);
  }

  // Of any kind, with any content behind a good checksum.
  void send_news(const FarEnd& far) {
    std::vector<std::byte> out;
    append_control_message(Goodbye{}, 1, out);
    out.resize(kControlHeaderBytes);
    const std::size_t kind = program_.take_byte() % 10;
    const Bytes content = program_.take_counted();
    out[8] = static_cast<std::byte>(kind);
    store_le(out.data() + 10, static_cast<std::uint16_t>(content.size()));
    out.insert(out.end(), content.begin(), content.end());
    seal_control_message(out);
    FarEnd::write(far.control, out);
  }

  void post_receive(int peer) {
    const std::size_t tag = program_.take_byte() % 4;
    const std::size_t capacity = program_.take_byte();
    memory_.push_back(std::make_unique<std::byte[]>(capacity));
    handles_.push_back(rank_->post_recv(peer, tag, MutBytes(memory_.back().get(), capacity)));
  }

  void post_send(int peer) {
    const std::size_t tag = program_.take_byte() % 4;
    const std::size_t small = program_.take_byte();
    const std::size_t bytes = small << (program_.take_byte() % 12);
    memory_.push_back(std::make_unique<std::byte[]>(bytes));
    const Bytes piece(memory_.back().get(), bytes);
    handles_.push_back(rank_->post_send(peer, tag, std::span(&piece, 1)));
  }

  void hang_up(FarEnd& far) {
    switch (program_.take_byte() % 3) {
      case 0: far.data = {}; return;
      case 1: far.control = {}; return;
      default: far = {};
    }
  }

  void wait_for_all() {
    const Deadline deadline = Clock::now() + kDeadline;
    if (!handles_.empty()) (void)rank_->wait_any(handles_, deadline);
    for (const Handle handle : handles_) {
      const auto done = rank_->wait(handle, deadline);
      if (done) continue;
      expect(done.error().suspect >= 0 && done.error().suspect < kWorld && !done.error().message.empty());
    }
    rank_.reset();  // joins its thread while the memory still stands
  }

  FuzzProgram program_;
  std::array<FarEnd, kPeers> far_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::vector<Handle> handles_;
  std::unique_ptr<Transport> rank_;
};

}  // namespace
}  // namespace deltawire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMostCommands = 400;
  deltawire::Session(std::as_bytes(std::span(data, std::min(size, kMostCommands)))).run();
  return 0;
}
