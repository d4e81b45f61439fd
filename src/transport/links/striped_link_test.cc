// One stream over several that are slow, late, and break: in a model that a seed runs, and over TCP.
#include "transport/links/striped_link.h"

#include <array>
#include <random>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "transport/mesh_testing.h"

namespace deltawire::test::striped_link_test {
namespace {

// A counter of 1 while something is so.
class Flag {
 public:
  int fd() const noexcept { return fd_.get(); }
  void set(bool on) noexcept {
    if (on == std::exchange(on_, on)) return;
    std::uint64_t one = 1;
    if (on) {
      EXPECT_EQ(::write(fd(), &one, sizeof one), 8);
    } else {
      EXPECT_EQ(::read(fd(), &one, sizeof one), 8);
    }
  }

 private:
  GuardedFd fd_ = GuardedFd::open([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  bool on_ = false;
};

class Queue {
 public:
  std::size_t size() const { return bytes_.size() - begin_; }
  bool empty() const { return size() == 0; }
  void add(Bytes bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  Bytes take(std::size_t most) {
    const Bytes front = Bytes(bytes_).subspan(begin_, std::min(most, size()));
    begin_ += front.size();
    return front;
  }
  // What take() returned is gone.
  void forget_taken() {
    if (2 * begin_ < bytes_.size()) return;
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(std::exchange(begin_, 0)));
  }

 private:
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
};

// One direction of a connection as systems make it: bytes are on their way, then acknowledged, then read.
struct Way {
  std::size_t room = 0;
  Queue underway;
  Queue arrived;
  std::size_t lost = 0;
  bool is_cut = false;  // both ends learn it
  Flag has_room;
  Flag has_news;

  void settle() {
    has_room.set(is_cut || underway.size() < room);
    has_news.set(is_cut || !arrived.empty());
  }
  void move(std::size_t bytes) {
    arrived.add(underway.take(bytes));
    underway.forget_taken();
    settle();
  }
  void cut() {
    lost += underway.size();
    underway = {};
    is_cut = true;
    settle();
  }
};

class ModelLink final : public Link {
 public:
  ModelLink(std::shared_ptr<Way> out, std::shared_ptr<Way> in) : out_(std::move(out)), in_(std::move(in)) {}
  ~ModelLink() override {
    out_->cut();
    in_->cut();
  }
  int fd() const noexcept override { return in_->has_news.fd(); }
  int send_fd() const noexcept override { return out_->has_room.fd(); }
  short send_events() const noexcept override { return POLLIN; }
  IoResult send(std::span<const iovec> pieces) noexcept override {
    if (out_->is_cut) return IoResult::closed();
    std::size_t moved = 0;
    for (const iovec& piece : pieces) {
      const std::size_t room = out_->room - std::min(out_->room, out_->underway.size());
      const std::size_t count = std::min(room, piece.iov_len);
      out_->underway.add(Bytes(static_cast<const std::byte*>(piece.iov_base), count));
      moved += count;
    }
    out_->settle();
    return moved > 0 ? IoResult::moved(moved) : IoResult::would_block();
  }
  IoResult recv(MutBytes into) noexcept override {
    const Bytes got = in_->arrived.take(into.size());
    const std::size_t count = got.size();
    std::ranges::copy(got, into.begin());
    in_->arrived.forget_taken();
    in_->settle();
    if (count > 0) return IoResult::moved(count);
    return in_->is_cut ? IoResult::closed() : IoResult::would_block();
  }
  bool delivered() noexcept override { return out_->underway.empty(); }
  // As Linux does, it still counts what was lost.
  std::size_t unacknowledged() noexcept override { return out_->underway.size() + out_->lost; }

 private:
  std::shared_ptr<Way> out_;
  std::shared_ptr<Way> in_;
};

// Two ends over `count` connections.
struct Model {
  std::array<std::vector<std::shared_ptr<Way>>, 2> ways;  // from that end
  std::array<std::unique_ptr<Link>, 2> ends;

  Model(std::size_t count, std::size_t room) {
    std::array<std::vector<std::unique_ptr<Link>>, 2> links;
    for (std::size_t i = 0; i < count; ++i) {
      for (auto& from : ways) {
        from.push_back(std::make_shared<Way>());
        from.back()->room = room;
        from.back()->settle();
      }
      links[0].push_back(std::make_unique<ModelLink>(ways[0][i], ways[1][i]));
      links[1].push_back(std::make_unique<ModelLink>(ways[1][i], ways[0][i]));
    }
    for (const std::size_t end : {0u, 1u}) ends[end] = StripedLink::make(std::move(links[end])).value();
  }
};

// One end's bytes on their way to the other.
struct Flow {
  Link& from;
  Link& to;
  std::vector<std::byte> bytes;
  std::vector<std::byte> got{};
  std::size_t sent = 0;

  bool is_done() const { return got.size() == bytes.size(); }
  IoResult send(std::size_t most, std::size_t piece_bytes) {
    std::vector<iovec> pieces;
    for (std::size_t at = sent; at < std::min(bytes.size(), sent + most); at += piece_bytes) {
      pieces.push_back({&bytes[at], std::min({piece_bytes, bytes.size() - at, sent + most - at})});
    }
    const IoResult result = from.send(pieces);
    sent += result.bytes;
    return result;
  }
  IoResult receive(std::size_t most) {
    std::vector<std::byte> part(std::min(most, bytes.size() + 1 - got.size()));
    const IoResult result = to.recv(part);
    got.insert(got.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(result.bytes));
    return result;
  }
};

// Whether a poll for it returns at once.
bool is_ready(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

class Seeds {
 public:
  explicit Seeds(std::uint64_t seed) : random_(seed) {}
  std::size_t below(std::size_t end) {
    return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_);
  }

 private:
  std::mt19937_64 random_;
};

// Runs both directions to their ends, while connections break but for one; what the ends poll for tells them
// when to go on, as it tells the driver of a mesh.
void run_model(std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Seeds lots(seed);
  const std::size_t count = 1 + lots.below(5);
  Model model(count, 2000 + lots.below(200000));
  std::array flows{Flow{*model.ends[0], *model.ends[1], pattern(1 + lots.below(600000), seed)},
                   Flow{*model.ends[1], *model.ends[0], pattern(1 + lots.below(600000), seed + 1)}};
  std::array<Deadline, 2> pump_at{kNever, kNever};
  std::size_t cuts = lots.below(count);
  for (int turn = 0; !flows[0].is_done() || !flows[1].is_done(); ++turn) {
    ASSERT_LT(turn, 200000);
    const std::size_t end = lots.below(2);
    Flow& flow = flows[end];
    Link& self = *model.ends[end];
    switch (lots.below(5)) {
      case 0:
        if (flow.sent < flow.bytes.size()) {
          (void)flow.send(1 + lots.below(400000), 1 + lots.below(30000) + 25000);
          pump_at[end] = self.pump();
        }
        break;
      case 1:
        if (is_ready(self.fd()) || self.holds_received()) {
          (void)flows[1 - end].receive(1 + lots.below(300000));
          pump_at[end] = self.pump();
        }
        break;
      case 2:
        if (pump_at[end] != kNever) pump_at[end] = self.pump();
        break;
      case 3:
        for (const auto& from : model.ways) from[lots.below(count)]->move(lots.below(100000));
        break;
      default:
        if (cuts > 0 && lots.below(20) == 0) {
          const std::size_t victim = cuts--;  // the first one lives
          for (const auto& from : model.ways) from[victim]->cut();
        }
    }
  }
  for (const Flow& flow : flows) EXPECT_TRUE(same_bytes(flow.got, flow.bytes));
}

TEST(StripedLink, BytesComeInOrderWhateverBreaks) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) run_model(seed);
}

TEST(StripedLink, SpreadsWhatItSends) {
  Model model(4, 200000);
  Flow flow{*model.ends[0], *model.ends[1], pattern(500000, 1)};
  while (flow.sent < flow.bytes.size() && flow.send(flow.bytes.size(), 500000).bytes > 0) {
  }
  EXPECT_EQ(flow.sent, flow.bytes.size());
  for (const auto& way : model.ways[0]) EXPECT_GT(way->underway.size(), 60000u);
}

TEST(StripedLink, WhatMayGoAgainIsNoMoreThanTheWindow) {
  Model model(2, Stripe::kWindow);
  Flow flow{*model.ends[0], *model.ends[1], std::vector<std::byte>(Stripe::kWindow + 1000000)};
  model.ways[0][0]->room = 1000;  // it takes a segment's first bytes, and acknowledges nothing
  model.ways[0][0]->settle();
  IoResult last;
  for (int turn = 0; turn < 5; ++turn) {
    last = flow.send(flow.bytes.size(), flow.bytes.size());
    model.ways[0][1]->move(Stripe::kWindow);
  }
  EXPECT_EQ(last.kind, IoResult::Kind::kWouldBlock);
  EXPECT_NE(last.retry_at, kNever) << "no descriptor tells of acknowledgements";
  EXPECT_LT(flow.sent, 2 * Stripe::kBytesMax) << "the first bytes are not in the system";
  model.ways[0][0]->room = Stripe::kWindow;
  for (int turn = 0; turn < 100 && !flow.is_done(); ++turn) {
    for (const auto& way : model.ways[0]) way->move(Stripe::kWindow);
    if (flow.sent < flow.bytes.size()) (void)flow.send(flow.bytes.size(), flow.bytes.size());
    (void)flow.receive(Stripe::kWindow);
  }
  EXPECT_TRUE(flow.is_done());
}

TEST(StripedLink, ItEndsWithItsLastStream) {
  Model model(2, 1000);
  std::array<std::byte, 10> bytes{};
  const iovec piece{bytes.data(), bytes.size()};
  model.ways[1][0]->cut();
  EXPECT_EQ(model.ends[0]->recv(bytes).kind, IoResult::Kind::kWouldBlock);
  EXPECT_EQ(model.ends[0]->send({&piece, 1}).bytes, bytes.size());
  model.ways[1][1]->cut();
  EXPECT_EQ(model.ends[0]->recv(bytes).kind, IoResult::Kind::kClosed);
  EXPECT_EQ(model.ends[0]->send({&piece, 1}).kind, IoResult::Kind::kClosed);
  EXPECT_TRUE(model.ends[0]->delivered()) << "nobody can wait for the rest";
}

// What one end would read if the other sent these bytes on its first stream.
IoResult read_of(const std::vector<std::byte>& sent) {
  Model model(2, 1000000);
  model.ways[1][0]->underway.add(sent);
  model.ways[1][0]->move(sent.size());
  std::vector<std::byte> into(100);
  return model.ends[0]->recv(into);
}

TEST(StripedLink, WhatIsNoSegmentBreaksIt) {
  const auto segment = [](std::uint64_t at, std::uint32_t length) {
    std::vector<std::byte> bytes(Stripe::kHeaderBytes + 5);
    store_le(bytes.data(), at);
    store_le(bytes.data() + 8, length);
    return bytes;
  };
  EXPECT_EQ(read_of(segment(0, 5)).bytes, 5u);
  EXPECT_EQ(read_of(segment(3, 5)).kind, IoResult::Kind::kWouldBlock) << "it comes before its turn";
  EXPECT_EQ(read_of(segment(0, Stripe::kBytesMax)).bytes, 5u);
  for (const auto& broken : {segment(0, 0), segment(0, Stripe::kBytesMax + 1),
                             segment(SegmentOrder::kAheadMax + 1, 5), segment(~std::uint64_t{0}, 5)}) {
    const IoResult result = read_of(broken);
    EXPECT_EQ(result.kind, IoResult::Kind::kError);
    EXPECT_EQ(result.error, EBADMSG);
  }
}

}  // namespace
}  // namespace deltawire::test::striped_link_test
