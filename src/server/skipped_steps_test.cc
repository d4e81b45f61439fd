// A worker skips steps: some parts get newer parameters than others. The test plays its server.
#include <deque>
#include <thread>

#include <gtest/gtest.h>

#include "server/pull_head.h"
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
  void send_whole(std::size_t number, std::uint64_t steps, std::size_t changes, float value) {
    auto head = changes == 0 ? change_head(Verdict::kCounted)
                             : whole_head(std::deque<Verdict>(changes, Verdict::kCounted));
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

 private:
  Transport& transport_;
  ServedModel model_;
  std::deque<std::vector<std::byte>> sent_;
};

// The second part skips from version 1 to 5 while the first one waits at 2: the first one has to
// follow, or the worker would continue with parts of two versions.
TEST(SkippedSteps, EndWithAllPartsAtOneVersion) {
  ServerOptions options;
  options.backup = 1;
  auto mesh = connect_inproc(3);
  ASSERT_TRUE(mesh);
  Values first(kCount);
  Values second(kCount);
  const Named model[] = {{"first", {.values = first.data(), .count = kCount}},
                         {"second", {.values = second.data(), .count = kCount}}};
  PlayedServer server(model, options, *(*mesh)[0]);
  server.send_whole(0, 0, 0, 0);
  server.send_whole(1, 0, 0, 0);
  auto worker = make_worker(model, options, *(*mesh)[1]);
  ASSERT_TRUE(worker);
  ASSERT_TRUE((*worker)->open(soon()));
  for (const std::size_t tensor : {0U, 1U}) ASSERT_TRUE((*worker)->push(tensor, Values(kCount, 1)));
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
  EXPECT_EQ(first, Values(kCount, 50));
  EXPECT_EQ(second, Values(kCount, 50));
  late.join();
}

}  // namespace
}  // namespace deltawire::server_test
