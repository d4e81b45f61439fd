#include "rounds.h"

#if DELTAWIRE_HAS_GLOO
#include <chrono>

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

namespace deltawire::bench {
namespace {

using GlooBuffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

class GlooRounds final : public Rounds {
 public:
  explicit GlooRounds(const Meeting& meeting)
      : context_(std::make_shared<gloo::rendezvous::Context>(meeting.rank, meeting.world_size)) {
    gloo::transport::tcp::attr address;
    address.hostname = meeting.host;
    auto device = gloo::transport::tcp::CreateDevice(address);
    gloo::rendezvous::FileStore files(meeting.folder.string());
    gloo::rendezvous::PrefixStore store("gloo-rounds", files);
    context_->connectFullMesh(store, device);
  }

  void prepare(Messages& messages) override {
    sent_.clear();
    got_.clear();
    for (std::vector<std::byte>& bytes : messages.sent) sent_.push_back(over(bytes));
    for (std::vector<std::byte>& bytes : messages.got) got_.push_back(over(bytes));
  }

  void play() override {
    for (int step = 1; step < context_->size; ++step) {
      const int from = (context_->rank + context_->size - step) % context_->size;
      got_[static_cast<std::size_t>(from)]->recv(from, kSlot);
    }
    for (int step = 1; step < context_->size; ++step) {
      const int to = (context_->rank + step) % context_->size;
      sent_[static_cast<std::size_t>(to)]->send(to, kSlot);
    }
    for (int peer = 0; peer < context_->size; ++peer) {
      if (peer == context_->rank) continue;
      const auto at = static_cast<std::size_t>(peer);
      if (!got_[at]->waitRecv(kPatience) || !sent_[at]->waitSend(kPatience)) give_up("gloo: no message");
    }
  }

 private:
  static constexpr std::uint64_t kSlot = 1;
  static constexpr std::chrono::milliseconds kPatience{60000};

  GlooBuffer over(std::vector<std::byte>& bytes) {
    return context_->createUnboundBuffer(bytes.data(), bytes.size());
  }

  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::vector<GlooBuffer> sent_;
  std::vector<GlooBuffer> got_;
};

}  // namespace

std::unique_ptr<Rounds> make_gloo_rounds(const Meeting& meeting) {
  return std::make_unique<GlooRounds>(meeting);
}

}  // namespace deltawire::bench

#else
namespace deltawire::bench {

std::unique_ptr<Rounds> make_gloo_rounds(const Meeting&) {
  return nullptr;
}

}  // namespace deltawire::bench
#endif
