// A parameter server over real TCP processes: what each rank says when one of them fails, and after how long.
// Every test prints it, for docs/guides/parameter-server.md.
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>

#include "deltawire/server.h"
#include "rank_processes.h"
#include "transport/links/faulty_link_testing.h"

namespace deltawire::server_tcp_test {
namespace {

constexpr std::size_t kCount = 70000;
constexpr int kServers = 2;
constexpr int kWorld = 5;                   // ranks 0 and 1 serve, 2 ... 4 work
constexpr std::chrono::seconds kNever{60};  // a deadline that no test waits for
constexpr std::int64_t kAtOnceMs = 25000;   // on a busy machine, and well before kNever

struct Serving {
  ServerOptions options = {.servers = kServers};
  std::uint64_t steps = 1000000;
  LinkOptions link = {};               // of the last rank
  std::chrono::milliseconds pause{0};  // of the last rank, before each step
  std::chrono::seconds deadline{3};
  std::map<int, std::uint64_t> stops = {};  // by rank: the step before which it stops, until a signal

  Deadline until() const { return Clock::now() + deadline; }
};

std::uint64_t digest_of(std::span<const float> values) {
  std::uint64_t digest = 1469598103934665603u;
  for (const Bytes bytes = std::as_bytes(values); const std::byte byte : bytes) {
    digest = (digest ^ std::to_integer<std::uint64_t>(byte)) * 1099511628211u;
  }
  return digest;
}

Status serve(const RankContext& context, const Serving& how, std::span<const Named> model,
             Transport& transport) {
  auto server = make_server(model, "momentum:lr=0.1", how.options, transport);
  if (!server) return forward_error(server);
  for (std::size_t told = 0;;) {
    const Result<bool> made = (*server)->step(how.until());
    for (const std::span all = (*server)->dropped(); told < all.size(); ++told) {
      context.record(all[told].why);
    }
    if (!made) return forward_error(made);
    if (!*made) return {};
    ++context.own().steps_done;
  }
}

Status work(const RankContext& context, const Serving& how, std::vector<float>& values,
            std::span<const Named> model, Transport& transport) {
  auto made = make_worker(model, how.options, transport);
  if (!made) return forward_error(made);
  ParameterWorker& worker = **made;
  Status done = worker.open(how.until());
  std::vector<float> gradient(kCount);
  while (done && worker.step() < how.steps && !worker.has_ended()) {
    if (context.rank == kWorld - 1) std::this_thread::sleep_for(how.pause);
    const auto stop = how.stops.find(context.rank);
    if (stop != how.stops.end() && stop->second == worker.step()) (void)raise(SIGSTOP);
    for (std::size_t i = 0; i < kCount; ++i) {
      const std::uint64_t mixed = i * 31 + worker.step() * 7 + static_cast<std::uint64_t>(context.rank);
      gradient[i] = 0.01F * static_cast<float>(mixed % 17) - 0.08F;
    }
    done = worker.push(0, gradient);
    if (done) done = worker.pull(how.until());
    if (done) ++context.own().steps_done;
  }
  if (done) done = worker.close(how.until());
  context.own().digest = digest_of(values);
  return done;
}

void train(const RankContext& context, const Serving& how) {
  auto transport = meet(context, "server", context.rank == kWorld - 1 ? how.link : LinkOptions{});
  if (!transport) return context.record(transport.error());
  std::vector<float> values(kCount, 0.5F);
  const Named model[] = {{"fc.weight", {values.data(), kCount, DType::kF32}, 0}};
  const Status done = context.rank < kServers ? serve(context, how, model, **transport)
                                              : work(context, how, values, model, **transport);
  if (done) return;
  context.record(done.error());
  // Stay alive for a while: the error, not the death, must be what the others see.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

// All ranks but `culprit` have ended, and name it; the longest that one took, in ms since `began`.
std::int64_t expect_named(RankProcesses& ranks, int culprit, std::int64_t began, const char* what,
                          bool culprit_tells = false) {
  std::int64_t longest = 0;
  for (int rank = 0; rank < kWorld; ++rank) {
    if (rank == culprit && !culprit_tells) continue;
    EXPECT_TRUE(ranks.wait_exit(rank, std::chrono::seconds(40))) << "rank " << rank << " hangs";
    const RankRecord& record = ranks.record(rank);
    EXPECT_EQ(record.failed, 1) << "rank " << rank;
    EXPECT_EQ(record.suspect, culprit) << "rank " << rank << ": " << record.message.data();
    EXPECT_NE(std::string(record.message.data()).find("rank " + std::to_string(culprit)), std::string::npos);
    const std::int64_t took = record.failed_at_ms - began;
    longest = std::max(longest, took);
    std::printf("%s: rank %d after %lld ms: %s\n", what, rank, static_cast<long long>(took),
                record.message.data());
  }
  return longest;
}

TEST(ServerTcp, AKilledWorkerIsNamedAtOnce) {
  RankProcesses ranks(kWorld, [&](const RankContext& context) { train(context, {.deadline = kNever}); });
  ASSERT_TRUE(ranks.wait_steps(4, 5));
  const std::int64_t began = now_ms();
  ranks.send_signal(4, SIGKILL);
  EXPECT_LT(expect_named(ranks, 4, began, "worker killed"), kAtOnceMs) << "noticed by the deadline";
}

TEST(ServerTcp, AKilledServerIsNamedAtOnce) {
  RankProcesses ranks(kWorld, [&](const RankContext& context) { train(context, {.deadline = kNever}); });
  ASSERT_TRUE(ranks.wait_steps(4, 5));
  const std::int64_t began = now_ms();
  ranks.send_signal(1, SIGKILL);
  EXPECT_LT(expect_named(ranks, 1, began, "server killed"), kAtOnceMs) << "noticed by the deadline";
}

TEST(ServerTcp, AFrozenWorkerIsNamedAtTheDeadline) {
  RankProcesses ranks(kWorld, [&](const RankContext& context) { train(context, {}); });
  ASSERT_TRUE(ranks.wait_steps(4, 5));
  const std::int64_t began = now_ms();
  ranks.send_signal(4, SIGSTOP);
  EXPECT_GT(expect_named(ranks, 4, began, "worker frozen"), 2000);
}

TEST(ServerTcp, AFrozenServerIsNamedAtTheDeadline) {
  RankProcesses ranks(kWorld, [&](const RankContext& context) { train(context, {}); });
  ASSERT_TRUE(ranks.wait_steps(4, 5));
  const std::int64_t began = now_ms();
  ranks.send_signal(0, SIGSTOP);
  EXPECT_GT(expect_named(ranks, 0, began, "server frozen"), 2000);
}

TEST(ServerTcp, ACorruptLinkIsNoGradient) {
  Serving how;
  how.link.wrap = test::faulty({.kind = test::LinkFault::Kind::kFlip, .peer = 0, .at_byte = 100000});
  const std::int64_t began = now_ms();
  RankProcesses ranks(kWorld, [&](const RankContext& context) { train(context, how); });
  (void)expect_named(ranks, 4, began, "corrupt link", true);
  EXPECT_EQ(ranks.record(0).code, static_cast<int>(ErrorCode::kCorrupt));
}

// Slow is no failure: it is waited for, or not.
TEST(ServerTcp, ASlowWorkerIsWaitedForUnlessThereIsABackup) {
  for (const int backup : {0, 1}) {
    Serving how{.options = {.servers = kServers, .backup = backup},
                .steps = 12,
                .pause = std::chrono::milliseconds(backup == 0 ? 100 : 1500)};  // the others need less for 12
    const std::int64_t began = now_ms();
    RankProcesses ranks(kWorld, [&](const RankContext& context) { train(context, how); });
    for (int rank = 0; rank < kWorld; ++rank) {
      EXPECT_TRUE(ranks.wait_exit(rank, std::chrono::seconds(30)));
      EXPECT_EQ(ranks.record(rank).failed, 0) << ranks.record(rank).message.data();
      if (rank >= kServers) {
        EXPECT_EQ(ranks.record(rank).digest, ranks.record(2).digest);
      }
    }
    std::printf("worker slow, backup=%d: after %lld ms; it made %u of %u steps\n", backup,
                static_cast<long long>(now_ms() - began), ranks.record(4).steps_done.load(),
                ranks.record(0).steps_done.load());
    EXPECT_EQ(ranks.record(4).steps_done == 12, backup == 0) << "behind, it skips steps";
  }
}

// Thirty steps, from which the run goes on without a worker.
Serving dropping(std::map<int, std::uint64_t> stops, int seconds, int min_workers = 1) {
  Serving how{.options = {.servers = kServers}, .steps = 30, .deadline = std::chrono::seconds(seconds)};
  how.options.on_worker_loss = WorkerLoss::kDrop;
  how.options.min_workers = min_workers;
  how.stops = std::move(stops);
  return how;
}

// Servers say whom they have dropped; the other workers make all steps, and are bit-equal.
void expect_the_others_to_end_well(RankProcesses& ranks, const char* what, const std::string& why,
                                   std::int64_t began, std::int64_t at_most_ms) {
  for (int rank = 0; rank < kWorld - 1; ++rank) {
    EXPECT_TRUE(ranks.wait_exit(rank, std::chrono::seconds(60))) << "rank " << rank << " hangs";
    const RankRecord& record = ranks.record(rank);
    EXPECT_EQ(record.steps_done, 30U) << "rank " << rank << ": " << record.message.data();
    EXPECT_EQ(record.failed, rank < kServers ? 1 : 0) << record.message.data();
    if (rank >= kServers) {
      EXPECT_EQ(record.digest, ranks.record(2).digest);
      continue;
    }
    const std::int64_t took = record.failed_at_ms - began;
    std::printf("%s: rank %d after %lld ms: %s\n", what, rank, static_cast<long long>(took),
                record.message.data());
    EXPECT_NE(std::string(record.message.data()).find(why), std::string::npos) << record.message.data();
    EXPECT_LT(took, at_most_ms);
  }
}

TEST(ServerTcpDrop, AKilledWorkerIsDroppedAtOnce) {
  RankProcesses ranks(kWorld, [&](const RankContext& context) { train(context, dropping({{4, 8}}, 60)); });
  ASSERT_TRUE(ranks.wait_steps(4, 8));
  const std::int64_t began = now_ms();
  ranks.send_signal(4, SIGKILL);
  expect_the_others_to_end_well(ranks, "worker dropped", "rank 4 closed its connection", began, 30000);
}

TEST(ServerTcpDrop, AFrozenWorkerIsDroppedAtTheDeadlineAndFindsOutWhenItThaws) {
  RankProcesses ranks(kWorld, [&](const RankContext& context) { train(context, dropping({{4, 8}}, 4)); });
  ASSERT_TRUE(ranks.wait_steps(4, 8));
  expect_the_others_to_end_well(ranks, "frozen worker dropped", "answers nothing", now_ms(), 60000);
  ranks.send_signal(4, SIGCONT);
  EXPECT_TRUE(ranks.wait_exit(4, std::chrono::seconds(60)));
  const RankRecord& thawed = ranks.record(4);
  std::printf("thawed: rank 4: %s\n", thawed.message.data());
  EXPECT_EQ(thawed.failed, 1);
  EXPECT_EQ(thawed.suspect, 4);
  EXPECT_NE(std::string(thawed.message.data()).find("has dropped rank 4, this one"), std::string::npos);
  EXPECT_EQ(thawed.steps_done, 8U);
}

TEST(ServerTcpDrop, TooFewWorkersEndTheRun) {
  RankProcesses ranks(
      kWorld, [&](const RankContext& context) { train(context, dropping({{4, 8}, {3, 16}}, 60, 2)); });
  ASSERT_TRUE(ranks.wait_steps(4, 8));
  ranks.send_signal(4, SIGKILL);
  ASSERT_TRUE(ranks.wait_steps(3, 16)) << "with two workers the run goes on";
  const std::int64_t began = now_ms();
  ranks.send_signal(3, SIGKILL);
  for (const int rank : {0, 1, 2}) {
    EXPECT_TRUE(ranks.wait_exit(rank, std::chrono::seconds(60))) << "rank " << rank << " hangs";
    const RankRecord& record = ranks.record(rank);
    EXPECT_EQ(record.failed, 1);
    EXPECT_EQ(record.suspect, 3) << record.message.data();
    EXPECT_NE(std::string(record.message.data()).find("1 of 3 workers are left, below min_workers=2"),
              std::string::npos)
        << record.message.data();
    std::printf("too few workers: rank %d after %lld ms: %s\n", rank,
                static_cast<long long>(record.failed_at_ms - began), record.message.data());
  }
}

TEST(ServerTcpDrop, AKilledServerEndsTheRunAllTheSame) {
  Serving how = dropping({}, 60);
  how.steps = 1000000;
  RankProcesses ranks(kWorld, [&](const RankContext& context) { train(context, how); });
  ASSERT_TRUE(ranks.wait_steps(4, 5));
  const std::int64_t began = now_ms();
  ranks.send_signal(1, SIGKILL);
  EXPECT_LT(expect_named(ranks, 1, began, "server killed, dropping"), 30000);
}

TEST(ServerTcpDrop, AFrozenServerEndsTheRunAllTheSame) {
  Serving how = dropping({}, 4);
  how.steps = 1000000;
  RankProcesses ranks(kWorld, [&](const RankContext& context) { train(context, how); });
  ASSERT_TRUE(ranks.wait_steps(4, 5));
  const std::int64_t began = now_ms();
  ranks.send_signal(0, SIGSTOP);
  EXPECT_GT(expect_named(ranks, 0, began, "server frozen, dropping"), 2000);
}

}  // namespace
}  // namespace deltawire::server_tcp_test
