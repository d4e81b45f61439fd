// Memory is taken by the first steps; the later ones take none, whatever the codec and the pattern.
#include <barrier>
#include <deque>
#include <memory>
#include <semaphore>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/brief_testing.h"
#include "base/counted_new_testing.h"
#include "base/random.h"
#include "deltawire/session.h"
#include "reduce/forwarding_transport_testing.h"
#include "reduce/rank_threads_testing.h"

namespace deltawire::steady_step_test {
namespace {

constexpr int kWorld = 3;
constexpr std::uint64_t kFirstCounted = 12;  // the other ranks are at most one step behind
const std::uint64_t kLastCounted = testing::whole_or_brief(20U, 15U);

// A message that comes before its receive is posted is kept in memory of its own. Here none does: a rank
// sends nothing of a bucket, or of a round of `powersgd`, before all have posted its receives, the first
// thing that it does.
class Together final : public ForwardingTransport {
 public:
  Together(std::unique_ptr<Transport> inner, std::barrier<>& all, bool by_rounds)
      : ForwardingTransport(*inner), owned_(std::move(inner)), all_(all), shift_(by_rounds ? 1 : 16) {}

  Handle post_recv(int peer, Tag tag, MutBytes capacity) override {
    posted_ = std::max(posted_, (tag >> shift_) + 1);  // tag_of: they grow
    return ForwardingTransport::post_recv(peer, tag, capacity);
  }
  Handle post_send(int peer, Tag tag, std::span<const Bytes> pieces) override {
    meet();
    return ForwardingTransport::post_send(peer, tag, pieces);
  }
  Result<std::uint64_t> wait(Handle handle, Deadline deadline) override {
    meet();
    return ForwardingTransport::wait(handle, deadline);
  }
  Status wait_any(std::span<const Handle> handles, Deadline deadline) override {
    meet();
    return ForwardingTransport::wait_any(handles, deadline);
  }

 private:
  void meet() {
    if (posted_ > met_) all_.arrive_and_wait();
    met_ = posted_;
  }

  std::unique_ptr<Transport> owned_;
  std::barrier<>& all_;
  int shift_;
  std::uint64_t posted_ = 0;
  std::uint64_t met_ = 0;
};

// A model whose buckets come again in each step, with other values.
class Model {
 public:
  explicit Model(int rank) : rank_(rank), values_(70000) {
    add("conv.weight", {50, 16, 5, 5});
    add("conv.bias", {50});
    add("fc.weight", {450, 110});
    add("fc.bias", {450});
  }

  // So many buckets through the session, 1 or 2, and waits for them. In two buckets at once rounds have no
  // order.
  void step(Session& session, std::uint64_t number, std::uint32_t buckets) {
    const CounterRng random(number, static_cast<std::uint64_t>(rank_));
    for (std::size_t i = 0; i < values_.size(); ++i) {
      values_[i] = static_cast<float>(random.uniform_at(i) - 0.5);
    }
    const std::span<const Named> all(tensors_);
    const std::size_t first = buckets == 2 ? 2 : 0;
    if (buckets == 2) {
      session.submit(all.first(first), {number, 0, false}, kTimeout, [this](const auto& done) { end(done); });
    }
    session.submit(all.subspan(first), {number, buckets - 1, true}, kTimeout,
                   [this](const auto& done) { end(done); });
    for (std::uint32_t b = 0; b < buckets; ++b) ended_.acquire();
  }

 private:
  static constexpr std::chrono::milliseconds kTimeout{60000};

  void add(const char* name, std::vector<std::uint64_t> dims) {
    std::uint64_t count = 1;
    for (const std::uint64_t dim : dims) count *= dim;
    tensors_.push_back({name, {values_.data() + added_, count, DType::kF32}});
    tensors_.back().tensor.dims = dims_.emplace_back(std::move(dims));
    added_ += count;
  }
  void end(const Result<Report>& done) {
    EXPECT_TRUE(done) << done.error().message;
    ended_.release();
  }

  int rank_;
  std::vector<float> values_;
  std::uint64_t added_ = 0;
  std::deque<std::vector<std::uint64_t>> dims_;
  std::vector<Named> tensors_;
  std::counting_semaphore<2> ended_{0};
};

class SteadyPatterns : public ::testing::TestWithParam<std::string> {};

TEST_P(SteadyPatterns, TakeNoMemory) {
  const bool in_rounds = GetParam() == "powersgd";
  const bool has_groups = GetParam() == "hierarchical:group=2";
  // A rank that is alone in its group sends nothing as a bucket begins, and so would miss the others there.
  const std::uint32_t buckets = in_rounds || has_groups ? 1 : 2;
  std::vector<std::pair<std::string, ReducerOptions>> codecs;
  const bool has_kinds = has_groups || (GetParam() != "direct" && testing::whole_or_brief(false, true));
  for (const CodecInfo* codec : registered_codecs()) {
    // Codecs do what they do in `direct`: between groups, and in brief, one of each kind.
    if (has_kinds && codec->name != "fp32" && codec->name != "3lc" && codec->name != "sbc") continue;
    if (make_reducer(GetParam() + "(" + std::string(codec->name) + ")")) {
      codecs.emplace_back(codec->name, ReducerOptions{});
    }
  }
  if (GetParam() == "direct" || GetParam() == "gather") {
    codecs.emplace_back("sbc with clip=1,momentum=0.9,masking=on,decay=0.9", ReducerOptions{});
    codecs.emplace_back("conv*: 3lc, fc.weight: bf16, rest fp32", folding());
  }
  for (const auto& [codec, options] : codecs) {
    const std::string spec = GetParam() + "(" + codec + ")";
    auto mesh = connect_inproc(kWorld, {});
    ASSERT_TRUE(mesh) << mesh.error().message;
    std::barrier all(kWorld);
    std::int64_t allocations = 0;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kWorld; ++rank) {
      threads.emplace_back([&, rank, given = options] {
        auto transport =
            std::make_unique<Together>(std::move((*mesh)[static_cast<std::size_t>(rank)]), all, in_rounds);
        auto session = Session::open(spec, given, std::move(transport));
        ASSERT_TRUE(session) << session.error().message;
        Model model(rank);
        for (std::uint64_t step = 0; step < kLastCounted + 2; ++step) {
          model.step(**session, step, buckets);
          if (rank == 0 && step == kFirstCounted) testing::arm_failure(INT64_MAX);
          if (rank == 0 && step == kLastCounted) allocations = testing::disarm_failure();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(allocations, 0) << spec;
  }
}

// It can't fail, and so takes none even where the lists that it fills are new.
TEST(SteadySteps, TheFirstCommitTakesNoMemory) {
  for (const std::string spec : {"fp32", "3lc", "sbc", "3lc with momentum=0.9"}) {
    auto channel = make_channel(spec);
    ASSERT_TRUE(channel) << channel.error().message;
    std::vector<float> values(1000, 1.0F);
    for (const char* name : {"a", "b"}) {
      const Named part{name, {values.data(), values.size(), DType::kF32}};
      ASSERT_TRUE((*channel)->encode(MessageLayout(std::span(&part, 1)), {.bucket = 1}));
    }
    testing::arm_failure(INT64_MAX);
    (*channel)->commit();
    EXPECT_EQ(testing::disarm_failure(), 0) << spec;
    EXPECT_EQ((*channel)->last_step().size(), 2u) << spec;
  }
}

// Submits a bucket when one has ended, two ahead: while one is reduced the next one waits.
struct Endless {
  static constexpr std::uint64_t kSteps = 400;

  void submit(std::uint64_t step) {
    session->submit(std::span(&tensor, 1), {step, 0, true}, std::chrono::seconds(60),
                    [this](const auto& done) { end(done); });
  }
  void end(const Result<Report>& done) {
    EXPECT_TRUE(done) << done.error().message;
    if (ended == 0) two_wait.acquire();
    if (ended == kFirstCounted) testing::arm_failure(INT64_MAX);
    if (ended == kSteps - 2) allocations = testing::disarm_failure();
    if (++ended < kSteps) submit(ended + 1);
    if (ended == kSteps) over.release();
  }

  std::unique_ptr<Session> session;
  std::vector<float> values = std::vector<float>(1000, 1.0F);
  Named tensor{"w", {values.data(), values.size(), DType::kF32}};
  std::uint64_t ended = 0;
  std::int64_t allocations = -1;
  std::binary_semaphore two_wait{0};
  std::binary_semaphore over{0};
};

TEST(SteadySteps, AQueueThatIsNeverEmptyTakesNoMemory) {
  auto mesh = connect_inproc(1, {});
  ASSERT_TRUE(mesh) << mesh.error().message;
  auto session = Session::open("direct(fp32)", {}, std::move(mesh->front()));
  ASSERT_TRUE(session) << session.error().message;
  Endless endless;
  endless.session = std::move(*session);
  endless.submit(0);
  endless.submit(1);
  endless.two_wait.release();
  endless.over.acquire();
  endless.session->close(std::chrono::seconds(10));
  EXPECT_EQ(endless.allocations, 0);
}

INSTANTIATE_TEST_SUITE_P(SteadySteps, SteadyPatterns,
                         ::testing::Values("direct", "ring", "gather", "powersgd", "hierarchical:group=2"),
                         pattern_name);

}  // namespace
}  // namespace deltawire::steady_step_test
