// A data stream from a hostile peer, through a DataReceiver. The input is a program: bytes arrive, well
// formed or not, receives are posted, and the receiver steps. What is received must be what was sent, no
// memory outside the receives is written, and no more is kept than the bounds of unexpected messages allow.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>

#include "transport/links/playback_link_testing.h"
#include "transport/mesh/data_stream.h"
#include "transport/mesh/fuzz_program_testing.h"

namespace deltawire {
namespace {

constexpr std::size_t kMostPosted = 40;
constexpr std::size_t kMostBytes = 1 << 16;

// Uses no loop in this file, because the fuzzer would instrument each iteration.
bool are_all(Bytes bytes, std::byte value) {
  return bytes.empty() ||
         (bytes[0] == value && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

struct Receive {
  bool checked = false;
  Operation operation;
  std::unique_ptr<std::byte[]> memory;  // exactly the capacity: the sanitizer sees a write past its end
};

class Session {
 public:
  explicit Session(Bytes program) : program_(program) {}

  void run() {
    while (!program_.empty() && !over_) command();
    receiver_.clear();
    for (const Receive& receive : receives_) check(receive);
  }

 private:
  void command() {
    const std::size_t code = program_.take_byte();
    const std::size_t tag = code / 8 % 8;
    const std::size_t small = program_.take_byte();
    switch (code % 8) {
      case 0: add_message(tag, small); return;  // a good one, whose bytes say its tag
      case 1: add_message(tag, small * program_.take_byte() % 6000); return;
      case 2: add_header(tag, small); return;  // one whose bytes may never come
      case 3: add_raw(small); return;
      case 4: post(tag, small * program_.take_byte() % 7000); return;
      case 5: link_.at_once = 1 + small * program_.take_byte(); return;
      case 6: link_.ended = small % 8 == 0; return;
      default: step(1 + small % 16); return;
    }
  }

  void add_header(std::size_t tag, std::uint64_t length) {
    const MessageHeaderBytes header = encode_message_header({tag, length << (length % 40)});
    if (link_.left() < kMostBytes) link_.add(header);
    regular_ = false;
  }

  void add_message(std::size_t tag, std::size_t length) {
    if (link_.left() + length >= kMostBytes) return;
    link_.add(encode_message_header({tag, length}));
    link_.add(length, static_cast<std::byte>(tag));
  }

  void add_raw(std::size_t wanted) {
    const Bytes raw = program_.take(wanted);
    if (link_.left() < kMostBytes) link_.add(raw);
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

  // What has just been received; all of it is looked at once more at the end.
  void check_received() {
    for (Receive& receive : receives_) {
      if (!receive.checked) check(receive);
      receive.checked = receive.operation.done;
    }
  }

  // As long as all messages were good ones, a receive holds its tag's bytes and nothing behind them.
  void check(const Receive& receive) const {
    const Operation& operation = receive.operation;
    if (!operation.done) return;
    expect(operation.length <= operation.capacity.size());
    if (!regular_) return;
    const MutBytes written = operation.capacity.first(operation.length);
    const MutBytes rest = operation.capacity.subspan(operation.length);
    expect(are_all(written, static_cast<std::byte>(operation.tag)) && are_all(rest, std::byte{0xEE}));
  }

  static constexpr int kPeer = 3;

  FuzzProgram program_;
  PlaybackLink link_;
  UnexpectedBlocks blocks_;
  DataReceiver receiver_{kPeer, link_, blocks_, std::chrono::milliseconds{0}};
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
