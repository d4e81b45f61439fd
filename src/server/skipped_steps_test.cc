// A worker skips steps: some parts get newer parameters than others. The test plays one side.
#include <deque>
#include <thread>

#include <gtest/gtest.h>

#include "server/served_model.h"
#include "server/server_testing.h"

namespace deltawire::server_test {
namespace {

constexpr std::size_t kCount = 4;

// Sends what a server would: a model of two tensors, a part each.
class PlayedServer {
 public:
  PlayedServer(std::span<const Named> model, const ServerOptions& options, Transport& transport)
      : transport_(transport), model_(*ServedModel::make(model, options, transport)) {}

  // A part as it is after `steps` changes, sent instead of the last `changes` of them; 0: the first message.
  void send_whole(std::size_t number, std::uint64_t steps, std::size_t changes, float value,
                  PushVerdict verdict = PushVerdict::kCounted) {
    auto head = changes == 0 ? change_head(verdict) : whole_head(std::deque<PushVerdict>(changes, verdict));
    Values values(kCount, value);
    const Named part = model_.part_of(model_.parts()[number], values.data());
    const auto channel = *make_model_channel();
    const auto frames = channel->encode(std::span(&part, 1), model_.message(number, Way::kModel, steps, 0));
    ASSERT_TRUE(frames);
    auto& bytes = sent_.emplace_back(std::move(head));
    const auto body = joined(*frames);
    bytes.insert(bytes.end(), body.begin(), body.end());
    const Bytes pieces[] = {Bytes(bytes)};
    (void)transport_.post_send(1, model_.tag(number, Way::kPull), pieces);
  }

  // The next message that the worker sends of a part.
  std::vector<std::byte> receive(std::size_t number) {
    std::vector<std::byte> room(1000);
    const auto bytes =
        transport_.wait(transport_.post_recv(1, model_.tag(number, Way::kPush), MutBytes(room)), soon());
    EXPECT_TRUE(bytes) << bytes.error().message;
    room.resize(bytes.value_or(0));
    return room;
  }

 private:
  Transport& transport_;
  ServedModel model_;
  std::deque<std::vector<std::byte>> sent_;
};

// A model of two tensors, a part each. Rank 0 serves, ranks 1 and 2 work; one of them need not push.
class SkippedSteps : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.backup = 1;
    auto mesh = connect_inproc(3);
    ASSERT_TRUE(mesh);
    mesh_ = std::move(*mesh);
  }

  static std::vector<Named> named(Values& first, Values& second) {
    return {{"first", {.values = first.data(), .count = kCount}},
            {"second", {.values = second.data(), .count = kCount}}};
  }
  std::vector<Named> model() { return named(first_, second_); }

  static void push_both(ParameterWorker& worker) {
    for (const std::size_t tensor : {0U, 1U}) ASSERT_TRUE(worker.push(tensor, Values(kCount, 1)));
  }

  ServerOptions options_;
  Values first_ = Values(kCount);
  Values second_ = Values(kCount);
  std::vector<std::unique_ptr<Transport>> mesh_;
};

// The second part skips from version 1 to 5 while the first one waits at 2: the first one has to follow, or
// the worker would continue with parts of two versions.
TEST_F(SkippedSteps, EndWithAllPartsAtOneVersion) {
  PlayedServer server(model(), options_, *mesh_[0]);
  server.send_whole(0, 0, 0, 0);
  server.send_whole(1, 0, 0, 0);
  auto worker = make_worker(model(), options_, *mesh_[1]);
  ASSERT_TRUE(worker);
  ASSERT_TRUE((*worker)->open(soon()));
  push_both(**worker);
  server.send_whole(0, 2, 2, 20);
  server.send_whole(1, 1, 1, 10);
  server.send_whole(1, 5, 4, 50);
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    server.send_whole(0, 5, 3, 50);
  });
  const Status pulled = (*worker)->pull(soon());
  EXPECT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ((*worker)->version(), 5U);
  EXPECT_EQ(first_, Values(kCount, 50));
  EXPECT_EQ(second_, Values(kCount, 50));
  late.join();
}

// With staleness the first part has pushed a step that the second one skips.
TEST_F(SkippedSteps, AreSaidUnlessTheyWerePushed) {
  options_.staleness = 1;
  PlayedServer server(model(), options_, *mesh_[0]);
  for (const std::size_t number : {0U, 1U}) server.send_whole(number, 0, 0, 0);
  auto worker = make_worker(model(), options_, *mesh_[1]);
  ASSERT_TRUE(worker);
  ASSERT_TRUE((*worker)->open(soon()));
  push_both(**worker);
  ASSERT_TRUE((*worker)->pull(soon()));
  push_both(**worker);
  server.send_whole(0, 1, 1, 10);
  server.send_whole(1, 3, 3, 30);
  server.send_whole(0, 2, 1, 20);
  server.send_whole(0, 3, 1, 30, PushVerdict::kLate);
  const Status pulled = (*worker)->pull(soon());
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ((*worker)->version(), 3U);
  for (int push = 0; push < 2; ++push) EXPECT_GT(server.receive(0).size(), sizeof(SkipMessage));
  const std::vector<std::byte> skipped = server.receive(0);
  ASSERT_TRUE(is_skip(skipped.size()));
  EXPECT_EQ(*read_skip(skipped), 2U);
  EXPECT_EQ((*worker)->counts().late_pushes, 0U);
  EXPECT_TRUE((*worker)->save());
}

// Rank 2 pushes one part of step 1, and is lost. Rank 1 skips the step, so nobody will push its other part.
TEST_F(SkippedSteps, AreMadeWithoutAPushIfWhoBeganThemIsLost) {
  options_.on_worker_loss = WorkerLoss::kDrop;
  std::thread serving([&] {
    auto server = make_server(model(), "sgd:lr=1", options_, *mesh_[0]);
    ASSERT_TRUE(server);
    for (int step = 0; step < 3; ++step) {
      const auto made = (*server)->step(soon());
      ASSERT_TRUE(made) << made.error().message;
      EXPECT_TRUE(*made);
    }
    EXPECT_EQ((*server)->master(0)[0], -2.0F);
    EXPECT_EQ((*server)->master(1)[0], -1.0F);
    ASSERT_EQ((*server)->dropped().size(), 1U);
    EXPECT_EQ((*server)->dropped()[0].rank, 2);
  });
  Values first(kCount);
  Values second(kCount);
  auto lost = make_worker(named(first, second), options_, *mesh_[2]);
  ASSERT_TRUE(lost);
  ASSERT_TRUE((*lost)->open(soon()));
  push_both(**lost);
  ASSERT_TRUE((*lost)->pull(soon()));
  ASSERT_TRUE((*lost)->push(0, Values(kCount, 1)));
  ASSERT_TRUE((*lost)->pull(0, soon()));
  set_optional_workers(options_, *mesh_[1]);
  const ServedModel served = *ServedModel::make(model(), options_, *mesh_[1]);
  const auto skip = [&](std::size_t number, const SkipMessage& step) {
    const Bytes pieces[] = {Bytes(step)};
    (void)mesh_[1]->post_send(0, served.tag(number, Way::kPush), pieces);
  };
  const SkipMessage one = skip_message(1);
  const SkipMessage two = skip_message(2);
  skip(1, one);
  for (const std::size_t number : {0U, 1U}) skip(number, two);
  mesh_[2]->abort({ErrorCode::kAborted, "its machine is gone", kNoSuspect});
  serving.join();
}

}  // namespace
}  // namespace deltawire::server_test
