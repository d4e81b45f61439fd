// How TCP meshes connect, and the errors if they can't.
#include <atomic>

#include "base/refusal_testing.h"
#include "transport/mesh_testing.h"

namespace deltawire::test::connect_tcp_test {
namespace {

TEST(ConnectTcp, ARankWithAnotherTokenGetsAnErrorThatSaysSo) {
  const auto outcomes = connect_all(listen_all(2), [](int rank, MeshOptions& options) {
    options.connect_timeout = 5s;
    if (rank == 1) options.token = token_of(8);
  });
  testing::expect_refused(outcomes[0], ErrorCode::kTimeout, "token");
  testing::expect_refused(outcomes[1], ErrorCode::kUnauthorized, 0);
}

TEST(ConnectTcp, ANameWithoutAnAddressIsTriedUntilTheTimeIsOver) {
  for (const bool has_list : {true, false}) {
    Listeners all = listen_all(2);
    MeshOptions options = mesh_options(1, {{"rank0.invalid", 29600}, all.endpoints[1]});
    options.connect_timeout = 2s;
    if (!has_list) {
      options.rendezvous = options.endpoints[0];
      options.endpoints.clear();
    }
    const Deadline begun = Clock::now();
    const auto outcome = connect_tcp(std::move(all.listeners[1]), options);
    ASSERT_FALSE(outcome.has_value());
    EXPECT_GE(Clock::now() - begun, 2s);
    testing::expect_refused(outcome, ErrorCode::kTimeout, 0, {"rank0.invalid:29600"});
  }
  Listeners all = listen_all(2);
  all.endpoints[0].host = "localhost";
  const auto outcomes = connect_all(std::move(all), [](int, MeshOptions&) {});
  EXPECT_TRUE(outcomes[0] && outcomes[1]) << "a list may have names, too";
}

TEST(ConnectTcp, TheRankWithOtherSettingsThanMostIsNamedByAll) {
  for (const int odd : {0, 2}) {
    const auto outcomes = connect_all(listen_all(4), [odd](int rank, MeshOptions& options) {
      options.settings = rank == odd ? "codec=qsgd" : "codec=3lc";
    });
    for (const auto& outcome : outcomes) {
      testing::expect_refused(outcome, ErrorCode::kMismatch, odd, {" and 2 others have \"codec=3lc\""});
    }
  }
}

TEST(ConnectTcp, OtherSettingsAreNamedWhereARankNeverComes) {
  Listeners all = listen_all(3);
  run_ranks(2, [&](int rank) {
    MeshOptions options = mesh_options(rank, all.endpoints);
    options.connect_timeout = 3s;
    options.settings = rank == 0 ? "codec=qsgd" : "codec=3lc";
    testing::expect_refused(connect_tcp(std::move(all.listeners[static_cast<std::size_t>(rank)]), options),
                            ErrorCode::kMismatch);
  });
}

TEST(ConnectTcp, TheCallerMayInterruptIt) {
  Listeners all = listen_all(2);
  const Deadline start = Clock::now();
  run_ranks(2, [&](int rank) {
    MeshOptions options = mesh_options(rank, all.endpoints);
    options.world_size = 3;
    options.endpoints.push_back({"127.0.0.1", 9});
    int asked = 0;
    if (rank == 1) options.interrupted = [&asked] { return ++asked == 5; };
    testing::expect_refused(connect_tcp(std::move(all.listeners[static_cast<std::size_t>(rank)]), options),
                            ErrorCode::kAborted, 1, {"rank 1 was interrupted"});
  });
  EXPECT_LT(Clock::now() - start, 20s) << "the time to connect was longer";
}

TEST(ConnectTcp, AMeshHasTheEpochOfAllItsRanks) {
  auto outcomes = connect_all(listen_all(2), [](int, MeshOptions& options) { options.epoch = 9; });
  for (const auto& outcome : outcomes) {
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    EXPECT_EQ((*outcome)->epoch(), 9u);
  }
  outcomes =
      connect_all(listen_all(2), [](int rank, MeshOptions& options) { options.epoch = rank == 0 ? 9 : 10; });
  for (const int rank : {0, 1}) {
    testing::expect_refused(outcomes[static_cast<std::size_t>(rank)], ErrorCode::kMismatch, 1 - rank,
                            {"epoch 9", "epoch 10"});
  }
}

TEST(ConnectTcp, ARankThatGivesUpTellsAllOthersWhy) {
  // Ranks 0 and 3 disagree. Rank 1 agrees with rank 0, and rank 2 has not even begun.
  const Deadline start = Clock::now();
  std::atomic<int> failed{0};
  Listeners all = listen_all(4);
  run_ranks(4, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    MeshOptions options = mesh_options(rank, all.endpoints);
    options.connect_timeout = 60s;
    options.settings = rank == 3 ? "codec=qsgd" : "codec=3lc";
    if (rank == 2) {
      while (failed == 0 && Clock::now() - start < 1s) std::this_thread::sleep_for(1ms);
    }
    const auto outcome = connect_tcp(std::move(all.listeners[at]), options);
    ++failed;
    testing::expect_refused(outcome, ErrorCode::kMismatch, 3, {"codec=3lc", "codec=qsgd"});
  });
  EXPECT_LT(Clock::now() - start, 30s) << "half of the time to connect: they did not wait for it";
}

TEST(ConnectTcp, AnExitReasonReachesTheConnectedRanks) {
  // Rank 0 gives up on rank 3 first; the others would wait much longer, but are told why they need not.
  const auto outcomes = [] {
    Listeners all = listen_all(4);
    std::vector<Outcome> found;
    for (int i = 0; i < 4; ++i) found.emplace_back(fail(ErrorCode::kState, ""));
    run_ranks(3, [&](int rank) {
      const auto at = static_cast<std::size_t>(rank);
      MeshOptions options = mesh_options(rank, all.endpoints);
      if (rank == 0) options.connect_timeout = 5s;
      found[at] = connect_tcp(std::move(all.listeners[at]), options);
    });
    return found;
  }();
  for (const int rank : {0, 1, 2}) {
    const Error& error = outcomes[static_cast<std::size_t>(rank)].error();
    testing::expect_error(error, ErrorCode::kTimeout, 3, {"rank 0 found no connection in 5000 ms"});
  }
}

TEST(ConnectTcp, MissingRanksAreListed) {
  Listeners all = listen_all(4);
  MeshOptions options = mesh_options(2, all.endpoints);
  options.connect_timeout = 300ms;
  all.listeners[0].reset();  // refuses; the others listen but never connect
  const auto result = connect_tcp(std::move(all.listeners[2]), options);
  testing::expect_refused(result, ErrorCode::kTimeout);
  for (const char* part : {"rank 0 (127.0.0.1:", "rank 1 (", "rank 3 ("}) {
    EXPECT_TRUE(has(result.error(), part)) << result.error().message;
  }
}

TEST(ConnectTcp, IPv6Loopback) {
  if (!listen_tcp("::1")) GTEST_SKIP() << "SKIPPED: this machine has no IPv6 loopback (::1)";
  const auto outcomes = connect_all(listen_all(3, "::1"), [](int, MeshOptions&) {});
  run_ranks(3, [&](int rank) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    exchange_once(**outcome);
  });
}

TEST(ConnectTcp, ArgumentsAreChecked) {
  const auto refused = [](const std::function<void(MeshOptions&)>& change) {
    Listeners all = listen_all(1);
    MeshOptions options = mesh_options(0, all.endpoints);
    change(options);
    const auto result = connect_tcp(std::move(all.listeners[0]), options);
    return !result && result.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](MeshOptions& o) { o.world_size = 0; }));
  EXPECT_TRUE(refused([](MeshOptions& o) {
    o.world_size = 15001;
    o.endpoints.resize(15001, o.endpoints[0]);
  }));
  EXPECT_TRUE(refused([](MeshOptions& o) { o.rank = 1; }));
  EXPECT_TRUE(refused([](MeshOptions& o) { o.rank = -1; }));
  EXPECT_TRUE(refused([](MeshOptions& o) { o.world_size = 2; }));
  EXPECT_FALSE(refused([](MeshOptions& o) { o.settings.assign(1024, 'x'); }));
  EXPECT_TRUE(refused([](MeshOptions& o) { o.settings.assign(1025, 'x'); }));
  EXPECT_TRUE(refused([](MeshOptions& o) { o.connect_timeout = 0ms; }));
  EXPECT_TRUE(refused([](MeshOptions& o) { o.connect_timeout = -1ms; }));
  EXPECT_TRUE(refused([](MeshOptions& o) { o.connect_timeout = std::chrono::milliseconds::max(); }));
  EXPECT_TRUE(refused([](MeshOptions& o) { o.link.shape = LinkShape{-1, 1}; }));
  EXPECT_TRUE(refused([](MeshOptions& o) {
    o.rank = 1;
    o.world_size = 2;
    o.endpoints = {{"not an address", 1}, {"127.0.0.1", 1}};
  }));
  EXPECT_FALSE(connect_tcp(nullptr, mesh_options(0, {{"127.0.0.1", 1}})).has_value());
}

}  // namespace
}  // namespace deltawire::test::connect_tcp_test
