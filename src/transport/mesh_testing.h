// Meshes for tests: ranks as threads, over every transport that supports that.
#pragma once

#include <cstdint>
#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "deltawire/connect.h"
#include "transport/links/faulty_link_testing.h"
#include "transport/links/memory_carrier_testing.h"
#include "transport/message_testing.h"

namespace deltawire::test {

using Ranks = std::vector<std::unique_ptr<Transport>>;
using namespace std::chrono_literals;

// kCarried: a carrier moves messages, and connections are encrypted.
enum class MeshKind { kInproc, kTcp, kTls, kStriped, kCarried };

inline std::string mesh_kind_name(const ::testing::TestParamInfo<MeshKind>& info) {
  switch (info.param) {
    case MeshKind::kInproc: return "Inproc";
    case MeshKind::kTcp: return "Tcp";
    case MeshKind::kTls: return "Tls";
    case MeshKind::kStriped: return "Striped";
    case MeshKind::kCarried: return "Carried";
  }
  return "";
}

inline std::vector<MeshKind> tested_meshes() {
  return {MeshKind::kInproc, MeshKind::kTcp, MeshKind::kTls, MeshKind::kStriped, MeshKind::kCarried};
}

inline Token token_of(unsigned char fill) {
  Token token;
  token.fill(std::byte{fill});
  return token;
}

// Calls work(rank) for every rank, each on its own thread.
inline void run_ranks(int world_size, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) threads.emplace_back([&work, rank] { work(rank); });
  for (std::thread& thread : threads) thread.join();
}

// Whether the thread or process that `clock` measures becomes idle: in some window of 400 ms it uses less
// than a quarter of a processor. Unfinished work may fill the first windows, on a busy machine more of them.
inline bool comes_to_rest(clockid_t clock) {
  const auto used = [clock] {
    timespec time{};
    ::clock_gettime(clock, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  };
  for (const Deadline end = soon(); Clock::now() < end;) {
    const auto before = used();
    std::this_thread::sleep_for(400ms);
    if (used() - before < 100ms) return true;
  }
  return false;
}

struct Listeners {
  std::vector<std::unique_ptr<Listener>> listeners;
  std::vector<Endpoint> endpoints;
};

inline Listeners listen_all(int world_size, const std::string& host = "127.0.0.1") {
  Listeners all;
  for (int rank = 0; rank < world_size; ++rank) {
    auto listener = listen_tcp(host);
    EXPECT_TRUE(listener.has_value()) << listener.error().message;
    all.endpoints.push_back((*listener)->endpoint());
    all.listeners.push_back(std::move(*listener));
  }
  return all;
}

inline MeshOptions mesh_options(int rank, const std::vector<Endpoint>& endpoints) {
  MeshOptions options;
  options.rank = rank;
  options.world_size = static_cast<int>(endpoints.size());
  options.endpoints = endpoints;
  options.token = token_of(7);
  options.connect_timeout = 30s;
  return options;
}

// For several streams of each pair, which only TCP has: who listens on all addresses has no local name, which
// would be dialed first.
inline Listeners listen_without_names(int world_size) {
  Listeners all = listen_all(world_size, "0.0.0.0");
  for (Endpoint& endpoint : all.endpoints) endpoint.host = "127.0.0.1";
  return all;
}

using Outcome = Result<std::unique_ptr<Transport>>;

// Connects every rank on its own thread, with options that `change` may modify.
inline std::vector<Outcome> connect_all(Listeners all, const std::function<void(int, MeshOptions&)>& change) {
  const auto world = all.listeners.size();
  std::vector<Outcome> outcomes;
  for (std::size_t i = 0; i < world; ++i) outcomes.emplace_back(fail(ErrorCode::kState, ""));
  run_ranks(static_cast<int>(world), [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    MeshOptions options = mesh_options(rank, all.endpoints);
    change(rank, options);
    outcomes[at] = connect_tcp(std::move(all.listeners[at]), options);
  });
  return outcomes;
}

// The same of ranks that must come together.
inline Ranks connect_listeners(Listeners all, const std::function<void(int, MeshOptions&)>& change) {
  Ranks ranks;
  for (Outcome& outcome : connect_all(std::move(all), change)) {
    EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
    ranks.push_back(outcome ? std::move(*outcome) : nullptr);
  }
  return ranks;
}

inline bool has(const Error& error, const std::string& part) {
  return error.text().find(part) != std::string::npos;
}

inline Ranks connect_threads_over_tcp(int world_size, const std::vector<LinkOptions>& links,
                                      Encryption encryption = Encryption::kOff, int streams = 0) {
  Listeners all = streams > 1 ? listen_without_names(world_size) : listen_all(world_size);
  return connect_listeners(std::move(all), [&](int rank, MeshOptions& options) {
    options.encryption = encryption;
    options.streams = streams;
    if (!links.empty()) options.link = links[static_cast<std::size_t>(rank)];
  });
}

// A send without a wait: its bytes must stay valid, so they are leaked.
inline void send_and_forget(Transport& from, int to, Tag tag, const std::vector<std::byte>& bytes) {
  static std::mutex mutex;
  static std::deque<std::vector<std::byte>> kept;
  const std::lock_guard lock(mutex);
  kept.push_back(bytes);
  (void)send_bytes(from, to, tag, kept.back());
}

inline Ranks connect_ranks(MeshKind kind, int world_size, const std::vector<LinkOptions>& links = {}) {
  if (kind == MeshKind::kTcp) return connect_threads_over_tcp(world_size, links);
  if (kind == MeshKind::kTls) return connect_threads_over_tcp(world_size, links, Encryption::kRequired);
  if (kind == MeshKind::kStriped) return connect_threads_over_tcp(world_size, links, Encryption::kOff, 3);
  if (kind == MeshKind::kCarried) {
    return connect_threads_over_tcp(world_size, carried(world_size, links), Encryption::kRequired);
  }
  auto ranks = connect_inproc(world_size, links);
  EXPECT_TRUE(ranks.has_value()) << ranks.error().message;
  return ranks ? std::move(*ranks) : Ranks{};
}

// A message of 5,000 bytes in both directions with every other rank.
inline void exchange_once(Transport& self) {
  const auto bytes = pattern(5000, 1);
  for (int peer = 0; peer < self.world_size(); ++peer) {
    if (peer == self.rank()) continue;
    std::vector<std::byte> got(5000);
    const Handle receive = self.post_recv(peer, 1, got);
    const Handle send = send_bytes(self, peer, 1, bytes);
    EXPECT_TRUE(self.wait(receive, soon()).has_value());
    EXPECT_TRUE(self.wait(send, soon()).has_value());
    EXPECT_TRUE(got == bytes);
  }
}

}  // namespace deltawire::test
