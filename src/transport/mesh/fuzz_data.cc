// A data stream from a peer that keeps no rule, on its way through a DataReceiver. The input is a program:
// bytes arrive, well formed or not, receives are posted, and the receiver steps. What is received is what was
// sent, no memory outside the receives is written, and nothing is kept beyond the early store's bounds.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "transport/mesh/data_receiver.h"

namespace deltawire {
namespace {

constexpr std::size_t kMostPosted = 40;
constexpr std::size_t kMostBytes = 1 << 16;

void expect(bool holds) {
  if (!holds) std::abort();
}

// Plays back what was added, some bytes at a time.
class PlaybackLink final : public Link {
 public:
  int fd() const noexcept override { return -1; }
  IoResult send(std::span<const iovec> pieces) noexcept override {
    return IoResult::moved(total_bytes(pieces));
  }
  IoResult recv(MutBytes into) noexcept override {
    const std::size_t count = std::min({into.size(), bytes.size(), at_once});
    if (count == 0) return ended ? IoResult::closed() : IoResult::would_block();
    std::copy_n(bytes.begin(), count, into.begin());
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
    return IoResult::moved(count);
  }
  bool delivered() noexcept override { return true; }

  void add(Bytes more) { bytes.insert(bytes.end(), more.begin(), more.end()); }

  std::deque<std::byte> bytes;
  std::size_t at_once = 1;
  bool ended = false;
};

struct Receive {
  Operation operation;
  std::unique_ptr<std::byte[]> memory;  // exactly the capacity: the sanitizer sees a write past its end
};

class Session {
 public:
  explicit Session(Bytes program) : program_(program) {}

  void run() {
    while (!program_.empty() && !over_) command();
    receiver_.clear();
  }

 private:
  std::size_t take_byte() {
    if (program_.empty()) return 0;
    const auto value = std::to_integer<std::size_t>(program_.front());
    program_ = program_.subspan(1);
    return value;
  }

  void command() {
    const std::size_t code = take_byte();
    const std::size_t tag = code / 8 % 8;
    const std::size_t small = take_byte();
    switch (code % 8) {
      case 0: add_message(tag, small); return;  // a good one, whose bytes say its tag
      case 1: add_message(tag, small * take_byte() % 6000); return;
      case 2: add_header(tag, small); return;  // one whose bytes may never come
      case 3: add_raw(small); return;
      case 4: post(tag, small * take_byte() % 7000); return;
      case 5: link_.at_once = 1 + small * take_byte(); return;
      case 6: link_.ended = small % 8 == 0; return;
      default: step(1 + small % 16); return;
    }
  }

  void add_header(std::size_t tag, std::uint64_t length) {
    const MessageHeaderBytes header = encode_message_header({tag, length << (length % 40)});
    if (link_.bytes.size() < kMostBytes) link_.add(header);
    regular_ = false;
  }

  void add_message(std::size_t tag, std::size_t length) {
    if (link_.bytes.size() + length >= kMostBytes) return;
    link_.add(encode_message_header({tag, length}));
    link_.add(std::vector<std::byte>(length, static_cast<std::byte>(tag)));
  }

  void add_raw(std::size_t wanted) {
    const std::size_t count = std::min(wanted, program_.size());
    if (link_.bytes.size() < kMostBytes) link_.add(program_.first(count));
    program_ = program_.subspan(count);
    regular_ = false;
  }

  void post(std::size_t tag, std::size_t capacity) {
    if (receives_.size() >= kMostPosted) return;
    Receive& receive = receives_.emplace_back();
    receive.memory = std::make_unique<std::byte[]>(capacity);
    std::memset(receive.memory.get(), 0xEE, capacity);
    receive.operation.kind = Operation::Kind::kReceive;
    receive.operation.tag = tag;
    receive.operation.capacity = MutBytes(receive.memory.get(), capacity);
    judge(receiver_.post(receive.operation));
    check_received();
  }

  void step(std::size_t times) {
    for (std::size_t i = 0; i < times && !over_; ++i) judge(receiver_.step());
    check_received();
  }

  void judge(const StreamStep& step) {
    if (step.kind == StreamStep::Kind::kFailed) {
      expect(!step.failure.message.empty() && step.failure.suspect == kPeer);
      over_ = true;
    }
    over_ = over_ || step.kind == StreamStep::Kind::kClosed;
  }

  // As long as all messages were good ones, a receive holds its tag's bytes and nothing behind them.
  void check_received() {
    for (const Receive& receive : receives_) {
      const Operation& operation = receive.operation;
      if (!operation.done) continue;
      expect(operation.length <= operation.capacity.size());
      if (!regular_) continue;
      for (std::size_t i = 0; i < operation.capacity.size(); ++i) {
        const auto wanted = i < operation.length ? static_cast<std::byte>(operation.tag) : std::byte{0xEE};
        expect(operation.capacity[i] == wanted);
      }
    }
  }

  static constexpr int kPeer = 3;

  Bytes program_;
  PlaybackLink link_;
  DataReceiver receiver_{kPeer, link_};
  std::deque<Receive> receives_;
  bool regular_ = true;
  bool over_ = false;
};

}  // namespace
}  // namespace deltawire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMostCommands = 2000;
  deltawire::Session(std::as_bytes(std::span(data, std::min(size, kMostCommands)))).run();
  return 0;
}
