// What is saved goes on as if nothing had been: every bit, in both directions.
#include <barrier>

#include <gtest/gtest.h>

#include "base/brief_testing.h"
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "server/server_testing.h"

namespace deltawire::server_test {
namespace {

using State = std::vector<std::byte>;

// All ranks of a job, before or after some steps; nothing where they begin.
struct Saved {
  std::vector<State> ranks = {};
  std::vector<Values> worker = {};  // the parameters of the first
  std::vector<Values> waits = {};   // and what waits for its next pushes
  std::uint64_t step = 0;
};

ServerOptions options_of(const std::string& push, const std::string& pull) {
  return {.servers = 2, .push = push, .pull = pull};
}

void go_on_serving(Transport& transport, const ServerOptions& options, const Saved& from, std::uint64_t steps,
                   std::barrier<>& all, Saved& to) {
  Model model(7, !options.rules_of.empty());
  const std::string optimizer = options.rules_of.empty() ? "momentum:lr=0.5" : options.rules_of;
  auto server = make_server(model.tensors, optimizer, options, transport);
  ASSERT_TRUE(server) << server.error().message;
  const auto rank = static_cast<std::size_t>(transport.rank());
  if (!from.ranks.empty()) {
    const Status loaded = (*server)->load(from.ranks[rank]);
    ASSERT_TRUE(loaded) << loaded.error().message;
  } else {
    ASSERT_TRUE((*server)->set_learning_rate(0.25));  // part of the state
  }
  for (std::uint64_t step = 0; step < steps; ++step) {
    const Result<bool> made = (*server)->step(soon());
    ASSERT_TRUE(made) << made.error().message;
  }
  EXPECT_EQ((*server)->steps(), from.step + steps);
  Result<State> state = (*server)->save();
  ASSERT_TRUE(state) << state.error().message;
  to.ranks[rank] = std::move(*state);
  all.arrive_and_wait();  // nobody leaves before all have what they wait for
}

void go_on_working(Transport& transport, const ServerOptions& options, const Saved& from, std::uint64_t steps,
                   std::barrier<>& all, Saved& to) {
  Model model(99, !options.rules_of.empty());
  auto made = make_worker(model.tensors, options, transport);
  ASSERT_TRUE(made) << made.error().message;
  ParameterWorker& worker = **made;
  const auto rank = static_cast<std::size_t>(transport.rank());
  if (!from.ranks.empty()) {
    const Status loaded = worker.load(from.ranks[rank]);
    ASSERT_TRUE(loaded) << loaded.error().message;
  }
  ASSERT_TRUE(worker.open(soon()));
  EXPECT_EQ(worker.step(), from.step);
  for (std::uint64_t step = 0; step < steps; ++step) {
    ASSERT_TRUE(push_all(worker, rank));
    if (step == 0) {
      EXPECT_EQ(worker.save().error().code, ErrorCode::kState) << "pushes are under way";
    }
    const Status pulled = worker.pull(soon());
    ASSERT_TRUE(pulled) << pulled.error().message;
  }
  const Status level = worker.catch_up(soon());
  ASSERT_TRUE(level) << level.error().message;
  EXPECT_EQ(worker.version(), worker.step());
  Result<State> state = worker.save();
  ASSERT_TRUE(state) << state.error().message;
  to.ranks[rank] = std::move(*state);
  if (transport.rank() == options.servers) {
    to.worker = model.values;
    to.waits = residual_of(worker);
  }
  all.arrive_and_wait();
}

// So many steps more, with two workers.
Saved go_on(const Saved& from, std::uint64_t steps, const ServerOptions& options) {
  auto mesh = connect_inproc(4);
  EXPECT_TRUE(mesh);
  Saved to{.ranks = std::vector<State>(4), .step = from.step + steps};
  std::barrier<> all(4);
  std::vector<std::thread> threads;
  for (auto& transport : *mesh) {
    threads.emplace_back([&] {
      const bool serves = transport->rank() < options.servers;
      (serves ? go_on_serving : go_on_working)(*transport, options, from, steps, all, to);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return to;
}

TEST(ServerState, GoesOnAsIfNothingHadBeen) {
  for (const std::string push : {"3lc", "sbc:p=1%", "fp32"}) {
    for (const std::string pull : {"3lc:s=1.75", "fp32"}) {
      const ServerOptions options = options_of(push, pull);
      const Saved through = go_on({}, 6, options);
      const Saved half = go_on({}, 3, options);
      const Saved again = go_on(half, 3, options);
      EXPECT_EQ(again.ranks, through.ranks) << push << " " << pull;
      EXPECT_EQ(again.worker, through.worker) << push << " " << pull;
      EXPECT_EQ(again.waits, through.waits) << push << " " << pull;
      EXPECT_NE(half.worker, through.worker);
    }
  }
}

// What a gradient is computed on is chance, but these don't depend on it: what servers make of them follows.
TEST(ServerState, GoesOnSoWithStalenessToo) {
  for (const std::uint64_t staleness : {1U, 3U}) {
    ServerOptions options = options_of("3lc", "3lc:s=1.75");
    options.staleness = staleness;
    const Saved through = go_on({}, 9, options);
    const Saved again = go_on(go_on({}, 5, options), 4, options);
    EXPECT_EQ(again.ranks, through.ranks) << staleness;
    EXPECT_EQ(again.worker, through.worker) << staleness;
    EXPECT_EQ(again.waits, through.waits) << staleness;
  }
}

// The scales of rows follow from the optimizer's state.
TEST(ServerState, GoesOnSoByRulesToo) {
  ServerOptions options = options_of("step<2: fp32, rest 3lc", "3lc");
  options.rules_of = "adamw:lr=0.01";
  const Saved through = go_on({}, 7, options);
  const Saved again = go_on(go_on({}, 4, options), 3, options);
  EXPECT_EQ(again.ranks, through.ranks);
  EXPECT_EQ(again.worker, through.worker);
  EXPECT_EQ(again.waits, through.waits);
}

// Puts a checksum that fits under changed bytes.
State repaired(State state) {
  store_le<std::uint32_t>(state.data() + state.size() - 4, crc32c(Bytes(state).first(state.size() - 4)));
  return state;
}

// What a worker has kept of a late push is in its state, also where its codec keeps no residual.
TEST(ServerState, HasWhatCameTooLate) {
  const ServerOptions options{.backup = 1, .push = "fp32", .pull = "3lc"};
  auto mesh = connect_inproc(3);
  ASSERT_TRUE(mesh);
  std::thread server([&] {
    Model model(7);
    auto made = make_server(model.tensors, "sgd", options, *(*mesh)[0]);
    while ((*made)->step(soon()).value_or(false)) {
    }
  });
  Model first(1);
  Model second(2);
  auto early = make_worker(first.tensors, options, *(*mesh)[1]);
  auto late = make_worker(second.tensors, options, *(*mesh)[2]);
  for (auto* worker : {early->get(), late->get()}) {
    ASSERT_TRUE(worker->open(soon()));
  }
  for (auto* worker : {early->get(), late->get()}) {
    ASSERT_TRUE(push_all(*worker, 0));
    ASSERT_TRUE(worker->pull(soon()));
  }
  const Result<State> state = (*late)->save();
  ASSERT_TRUE(state) << state.error().message;
  auto other = connect_inproc(3);
  auto again = make_worker(second.tensors, options, *(*other)[2]);
  ASSERT_TRUE((*again)->load(*state));
  for (std::size_t tensor = 0; tensor < shapes().size(); ++tensor) {
    EXPECT_EQ(residual_of(**again)[tensor], gradient(0, 0, tensor)) << "all of it came too late";
  }
  State wrong = *state;  // a count of late values that is not the part's
  wrong[40] = static_cast<std::byte>(std::to_integer<int>(wrong[40]) - 1);
  EXPECT_EQ((*again)->load(repaired(wrong)).error().code, ErrorCode::kCorrupt);
  std::thread closing([&] { (void)(*early)->close(soon()); });
  ASSERT_TRUE((*late)->close(soon()));
  closing.join();
  server.join();
}

// Whatever is read back is what was saved, or an error, and then nothing has changed.
template <class Make>
void expect_only_itself(const State& state, const Make& make) {
  const auto role = make();
  const State before = *role->save();
  const std::size_t stride = std::max<std::size_t>(1, state.size() / testing::whole_or_brief(400U, 100U));
  for (std::size_t bytes = 0; bytes < state.size(); bytes += bytes < 200 ? 1 : stride) {
    const State cut(state.begin(), state.begin() + static_cast<std::ptrdiff_t>(bytes));
    EXPECT_FALSE(role->load(cut)) << bytes;
    if (bytes >= 4) {
      EXPECT_FALSE(role->load(repaired(cut))) << bytes << ", with a checksum";
    }
    State flipped = state;
    flipped[bytes] ^= std::byte{1};
    EXPECT_FALSE(role->load(flipped)) << bytes;
    EXPECT_EQ(*role->save(), before) << bytes;
    // Where the checksum hides it, it is another state or none.
    const auto other = make();
    flipped = repaired(flipped);
    const bool is_state = other->load(flipped).has_value();
    EXPECT_EQ(*other->save(), is_state ? flipped : before) << bytes;
  }
  State longer = state;
  longer.insert(longer.end() - 4, 1, std::byte{0});
  EXPECT_EQ(role->load(repaired(longer)).error().code, ErrorCode::kCorrupt);
  for (const int version : {0, 2}) {
    State other = state;
    other[8] = static_cast<std::byte>(version);
    EXPECT_EQ(role->load(repaired(other)).error().code, ErrorCode::kUnsupportedVersion) << version;
  }
  ASSERT_TRUE(role->load(state));
  EXPECT_EQ(*role->save(), state);
}

TEST(ServerState, CutOrChangedIsRefusedAndChangesNothing) {
  const ServerOptions options = options_of("3lc", "3lc");
  const Saved saved = go_on({}, 2, options);
  auto mesh = connect_inproc(4);
  ASSERT_TRUE(mesh);
  Model model(7);
  expect_only_itself(saved.ranks[1],
                     [&] { return *make_server(model.tensors, "momentum:lr=0.5", options, *(*mesh)[1]); });
  Model parameters(99);
  expect_only_itself(saved.ranks[2], [&] { return *make_worker(parameters.tensors, options, *(*mesh)[2]); });
}

TEST(ServerState, BelongsToItsPlace) {
  const Saved saved = go_on({}, 1, options_of("3lc", "3lc"));
  auto mesh = connect_inproc(4);
  ASSERT_TRUE(mesh);
  Model model(7);
  const auto error_of = [&](const ServerOptions& options, const std::string& optimizer, std::size_t state) {
    return (*make_server(model.tensors, optimizer, options, *(*mesh)[0]))->load(saved.ranks[state]).error();
  };
  const std::string momentum = "momentum:lr=0.5";
  EXPECT_EQ(error_of(options_of("3lc", "3lc"), momentum, 1).code, ErrorCode::kMismatch) << "another rank";
  EXPECT_EQ(error_of(options_of("3lc", "fp32"), momentum, 0).code, ErrorCode::kMismatch);
  EXPECT_EQ(error_of(options_of("fp32", "3lc"), momentum, 0).code, ErrorCode::kMismatch);
  EXPECT_EQ(error_of(options_of("3lc", "3lc"), "adam", 0).code, ErrorCode::kMismatch);
  EXPECT_EQ(error_of({.servers = 1, .push = "3lc", .pull = "3lc"}, momentum, 0).code, ErrorCode::kMismatch);
  EXPECT_EQ(error_of(options_of("3lc", "3lc"), momentum, 2).code, ErrorCode::kCorrupt) << "a worker's";
}

TEST(ServerState, OfOtherStepsOnTheServersIsNamed) {
  const ServerOptions options = options_of("3lc", "3lc");
  const Saved first = go_on({}, 1, options);
  const Saved second = go_on(first, 1, options);
  auto mesh = connect_inproc(3);
  ASSERT_TRUE(mesh);
  std::vector<std::thread> servers;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    servers.emplace_back([&, rank] {
      Model model(7);
      auto server = make_server(model.tensors, "momentum:lr=0.5", options, *(*mesh)[rank]);
      ASSERT_TRUE((*server)->load((rank == 0 ? first : second).ranks[rank]));
      EXPECT_EQ((*server)->step(soon()).error().suspect, 1);
    });
  }
  Model model(99);
  auto worker = make_worker(model.tensors, options, *(*mesh)[2]);
  const Status opened = (*worker)->open(soon());
  EXPECT_EQ(opened.error().code, ErrorCode::kMismatch) << opened.error().message;
  EXPECT_EQ(opened.error().suspect, 1);
  for (std::thread& server : servers) server.join();
}

}  // namespace
}  // namespace deltawire::server_test
