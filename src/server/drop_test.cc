// Workers that the run goes on without: what the others get, and what is lost.
#include <cmath>
#include <latch>
#include <utility>

#include <gtest/gtest.h>

#include "server/server_testing.h"
#include "transport/links/faulty_link_testing.h"

namespace deltawire::server_test {
namespace {

using Handed = std::vector<Values>;  // by tensor

ServerOptions dropping(int servers = 1) {
  ServerOptions options{.servers = servers};
  options.on_worker_loss = WorkerLoss::kDrop;
  return options;
}

struct Served {
  std::vector<DroppedWorker> dropped;
  Error error;
  std::uint64_t steps = 0;
  Handed master = zeros(), view = zeros();
};

// A server's whole part, as far as it gets.
Served serve_all(Transport& transport, const ServerOptions& options, int seconds = 30) {
  Model model(7);
  Served served;
  auto server = make_server(model.tensors, "sgd:lr=1", options, transport);
  EXPECT_TRUE(server);
  for (;;) {
    const Result<bool> made = (*server)->step(soon(seconds));
    if (!made) served.error = made.error();
    if (!made || !*made) break;
  }
  served.dropped.assign((*server)->dropped().begin(), (*server)->dropped().end());
  served.steps = (*server)->steps();
  copy_model(**server, served.view, &served.master);
  return served;
}

// A mean is over the pushes that count: two until step kLost, one from there on. What the lost worker had not
// sent is missing, and nothing else.
TEST(DroppedWorkers, TakeTheirResidualAlong) {
  constexpr std::uint64_t kLost = 4;
  constexpr std::uint64_t kAll = 9;
  const ServerOptions options = dropping();
  auto mesh = connect_inproc(3);
  ASSERT_TRUE(mesh);
  Served served;
  std::thread server([&] { served = serve_all(*(*mesh)[0], options); });
  Handed lost = zeros();  // what rank 2 has handed in, and what of it waits
  Handed lost_waits;
  std::thread second([&] {
    Model model(99);
    auto worker = make_worker(model.tensors, options, *(*mesh)[2]);
    ASSERT_TRUE((*worker)->open(soon()));
    for (std::uint64_t step = 0; step < kLost; ++step) {
      ASSERT_TRUE(push_all(**worker, 1, &lost));
      ASSERT_TRUE((*worker)->pull(soon()));
    }
    lost_waits = residual_of(**worker);
    (*mesh)[2]->abort({ErrorCode::kAborted, "its machine is gone", kNoSuspect});
  });
  Model model(99);
  auto worker = make_worker(model.tensors, options, *(*mesh)[1]);
  ASSERT_TRUE((*worker)->open(soon()));
  Handed before = zeros();
  Handed before_waits;
  Handed after = zeros();
  for (std::uint64_t step = 0; step < kAll; ++step) {
    if (step == kLost) before_waits = residual_of(**worker);
    ASSERT_TRUE(push_all(**worker, 0, step < kLost ? &before : &after));
    const Status pulled = (*worker)->pull(soon());
    ASSERT_TRUE(pulled) << pulled.error().message;
  }
  ASSERT_TRUE((*worker)->close(soon()));
  second.join();
  server.join();
  const Handed after_waits = residual_of(**worker);
  ASSERT_EQ(served.error.message, "");
  EXPECT_EQ(served.steps, kAll);
  ASSERT_EQ(served.dropped.size(), 1U);
  EXPECT_EQ(served.dropped[0].rank, 2);
  EXPECT_EQ(served.dropped[0].step, kLost);
  EXPECT_NE(served.dropped[0].why.message.find("its machine is gone"), std::string::npos);
  const Model start(7);
  double missing = 0;
  for (std::size_t tensor = 0; tensor < shapes().size(); ++tensor) {
    EXPECT_TRUE(model.values[tensor] == served.view[tensor]) << "bit for bit";
    for (std::size_t i = 0; i < shapes()[tensor].second; ++i) {
      const double moved = static_cast<double>(start.values[tensor][i]) - served.master[tensor][i];
      const double in_two =
          before[tensor][i] - before_waits[tensor][i] + lost[tensor][i] - lost_waits[tensor][i];
      const double in_one = before_waits[tensor][i] + after[tensor][i] - after_waits[tensor][i];
      ASSERT_NEAR(moved, in_two / 2 + in_one, 1e-5) << tensor << " " << i;
      missing += std::abs(lost_waits[tensor][i]);
    }
  }
  EXPECT_GT(missing, 1) << "there was something to lose";
}

constexpr std::uint64_t kSteps = 10;

struct Several {
  std::vector<Served> servers;
  std::vector<Handed> workers;  // parameters of those that ended well
  std::vector<Error> errors;    // of all workers
};

// Two servers and three workers. The last worker does `what` in place of its fourth step.
Several run_with(const ServerOptions& options,
                 const std::function<void(Transport&, std::latch& others)>& what, int seconds = 30,
                 const std::vector<LinkOptions>& links = {}) {
  auto mesh = connect_inproc(5, links);
  EXPECT_TRUE(mesh);
  Several all{std::vector<Served>(2), std::vector<Handed>(3), std::vector<Error>(3)};
  std::latch begun(3);   // a loss ends the transport of a worker that has not named the optional ranks
  std::latch others(2);  // workers that have ended
  std::latch lost(1);    // the last worker did `what`: with a backup the others could end before
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] { all.servers[rank] = serve_all(*(*mesh)[rank], options, seconds); });
  }
  for (std::size_t at = 0; at < 3; ++at) {
    threads.emplace_back([&, at] {
      Model model(99);
      auto made = make_worker(model.tensors, options, *(*mesh)[at + 2]);
      ParameterWorker& worker = **made;
      begun.arrive_and_wait();
      Status done = worker.open(soon(seconds));
      bool said = at < 2;
      while (done && worker.step() < kSteps && !worker.has_ended()) {
        if (at == 2 && worker.step() >= 3) {
          what(*(*mesh)[4], others);
          if (!std::exchange(said, true)) lost.count_down();
        }
        if (at < 2 && worker.step() == 4 && options.backup > 0) lost.wait();
        done = push_all(worker, at);
        if (done) done = worker.pull(soon(seconds));
      }
      if (done) done = worker.close(soon(seconds));
      if (!done) all.errors[at] = done.error();
      all.workers[at] = model.values;
      if (at < 2) others.count_down();
      if (!said) lost.count_down();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

void give_up(Transport& transport, std::latch&) {
  transport.abort({ErrorCode::kAborted, "its machine is gone", kNoSuspect});
}

void expect_the_others_to_end_well(const Several& all) {
  Handed view = zeros();
  for (const Served& served : all.servers) {
    EXPECT_EQ(served.error.message, "");
    ASSERT_EQ(served.dropped.size(), 1U);
    EXPECT_EQ(served.dropped[0].rank, 4);
    EXPECT_EQ(served.steps, kSteps);
    for (std::size_t tensor = 0; tensor < view.size(); ++tensor) {
      for (std::size_t i = 0; i < view[tensor].size(); ++i) view[tensor][i] += served.view[tensor][i];
    }
  }
  EXPECT_EQ(all.errors[0].message, "");
  EXPECT_EQ(all.errors[1].message, "");
  EXPECT_TRUE(all.workers[0] == all.workers[1]) << "bit for bit";
  EXPECT_TRUE(all.workers[0] == view) << "what a server doesn't own is 0 there";
}

TEST(DroppedWorkers, LeaveTheOthersBitEqual) {
  for (const auto& [backup, staleness] : {std::pair{0, 0}, {1, 0}, {0, 2}}) {
    ServerOptions options = dropping(2);
    options.backup = backup;
    options.staleness = static_cast<std::uint64_t>(staleness);
    expect_the_others_to_end_well(run_with(options, give_up));
  }
}

TEST(DroppedWorkers, ThatPushNothingAreDroppedAtTheDeadlineAndTold) {
  const Several all = run_with(
      dropping(2),
      [](Transport&, std::latch& others) {
        others.wait();  // it lives, and waits for nobody
      },
      3);
  expect_the_others_to_end_well(all);
  if (HasFatalFailure()) return;
  EXPECT_EQ(all.servers[0].dropped[0].why.code, ErrorCode::kTimeout);
  EXPECT_NE(all.errors[2].message.find("has dropped rank 4, this one"), std::string::npos)
      << all.errors[2].message;
}

TEST(DroppedWorkers, WhosePushesMakeNoSenseAreDropped) {
  std::vector<LinkOptions> links(5);
  links[4].wrap = test::faulty({.kind = test::LinkFault::Kind::kFlip, .peer = 0, .at_byte = 2000});
  const Several all = run_with(dropping(2), [](Transport&, std::latch&) {}, 30, links);
  expect_the_others_to_end_well(all);
  if (HasFatalFailure()) return;
  EXPECT_EQ(all.servers[0].dropped[0].why.code, ErrorCode::kCorrupt) << all.servers[0].dropped[0].why.message;
  EXPECT_NE(all.errors[2].message.find("a push of rank 4"), std::string::npos) << all.errors[2].message;
}

TEST(DroppedWorkers, EndTheRunWhenTooFewAreLeft) {
  ServerOptions options = dropping(2);
  options.min_workers = 3;
  const Several all = run_with(options, give_up);
  for (const Served& served : all.servers) {
    EXPECT_EQ(served.error.suspect, 4) << served.error.message;
    EXPECT_NE(served.error.message.find("2 of 3 workers are left, below min_workers=3"), std::string::npos)
        << served.error.message;
  }
  EXPECT_NE(all.errors[0].message.find("its machine is gone"), std::string::npos) << all.errors[0].message;
}

TEST(DroppedWorkers, AreNotDroppedUnlessAsked) {
  ServerOptions options;
  options.servers = 2;
  const Several all = run_with(options, give_up);
  for (const Served& served : all.servers) {
    EXPECT_EQ(served.error.suspect, 4) << served.error.message;
    EXPECT_TRUE(served.dropped.empty());
  }
}

TEST(DroppedWorkers, TheMinimumIsChecked) {
  auto mesh = connect_inproc(3);
  Model model(7);
  for (const int minimum : {0, 3}) {
    ServerOptions options;
    options.min_workers = minimum;
    EXPECT_EQ(make_server(model.tensors, "sgd", options, *(*mesh)[0]).error().code,
              ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace deltawire::server_test
