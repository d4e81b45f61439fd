// TCP meshes keep out strangers, impostors, and relayed proofs.
#include "transport/tcp/strangers.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/refusal_testing.h"
#include "transport/mesh_testing.h"
#include "transport/tcp/relay_testing.h"

namespace deltawire::test::strangers_test {
namespace {

// The first message of a peer that knows the protocol; it doesn't depend on the token.
std::vector<std::byte> first_message(const Claims& claims) {
  const Handshake handshake(token_of(8), claims, *random_nonce());
  return {handshake.unsent().begin(), handshake.unsent().end()};
}

TEST(Strangers, DoNotDisturb) {
  Listeners all = listen_all(3);
  std::vector<Stranger> strangers;
  const std::vector<std::byte> claims = first_message(claims_of(1, 0, 3));
  const std::vector<std::byte> garbage = pattern(1000000, 4);
  for (int i = 0; i < 100; ++i) {
    for (const Endpoint& endpoint : all.endpoints) strangers.emplace_back(endpoint);  // silent
    // Half of its claims.
    strangers.back().say(Bytes(claims).first(static_cast<std::size_t>(i) % claims.size()));
  }
  for (const Endpoint& endpoint : all.endpoints) {
    strangers.emplace_back(endpoint).say(garbage);
    strangers.emplace_back(endpoint).say(claims);  // then silent
    strangers.emplace_back(endpoint).say(claims);
    strangers.back().say(garbage);  // instead of a proof
  }
  Ranks ranks(3);
  run_ranks(3, [&](int rank) {
    if (rank == 2) std::this_thread::sleep_for(300ms);
    const auto at = static_cast<std::size_t>(rank);
    auto transport = connect_tcp(std::move(all.listeners[at]), mesh_options(rank, all.endpoints));
    ASSERT_TRUE(transport.has_value()) << transport.error().message;
    exchange_once(**transport);
    ranks[at] = std::move(*transport);
  });
  for (const Stranger& stranger : strangers) EXPECT_LE(stranger.hear(1000).size(), sizeof(Nonce));
}

TEST(Strangers, GiveWayToRanksWhenThereAreMany) {
  // More strangers than are accepted at once, and they stay. The ranks must connect before the first of them
  // is disconnected for its silence, after 5 s.
  for (const bool say_claims : {false, true}) {
    Listeners all = listen_all(2);
    std::vector<Stranger> strangers;
    for (int i = 0; i < 100; ++i) {
      strangers.emplace_back(all.endpoints[0]);
      if (say_claims) strangers.back().say(first_message(claims_of(1, 0, 2)));
    }
    run_ranks(2, [&](int rank) {
      const auto at = static_cast<std::size_t>(rank);
      MeshOptions options = mesh_options(rank, all.endpoints);
      options.connect_timeout = 4s;
      const auto result = connect_tcp(std::move(all.listeners[at]), options);
      EXPECT_TRUE(result.has_value()) << result.error().message;
    });
  }
}

// Connects to where `strangers` listen, from that address.
Stranger stranger_from(const char* host, const Endpoint& to) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in own{};
  own.sin_family = AF_INET;
  ::inet_pton(AF_INET, host, &own.sin_addr);
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
  return Stranger(fd, to);
}

// However many come from elsewhere, who is alone at its address keeps its place. Who must give way is told.
TEST(Strangers, TheAddressWithTheMostGivesWay) {
  auto listener = listen_tcp("127.0.0.1");
  ASSERT_TRUE(listener.has_value());
  const EncryptionPolicy policy;
  std::unique_ptr<TcpListener> tcp(static_cast<TcpListener*>(listener->release()));
  Strangers strangers(std::move(tcp), 8, policy);
  const Claims own = [] {
    Claims claims;
    claims.role = Claims::Role::kListener;
    return claims;
  }();
  const auto go_on = [&] {
    EXPECT_EQ(strangers.accept_all(Clock::now(), token_of(7), own), 0);
    return strangers.hear(Clock::now());
  };
  const Claims claims = claims_of(1, 0, 2);
  Handshake handshake(token_of(7), claims, *random_nonce());
  const Stranger alone = stranger_from("127.0.0.2", strangers.endpoint());
  alone.say(handshake.unsent());
  handshake.sent(handshake.unsent().size());
  std::vector<Stranger> many;
  for (int i = 0; i < 40; ++i) {
    many.push_back(stranger_from("127.0.0.1", strangers.endpoint()));
    many.back().say(first_message(claims));
    EXPECT_TRUE(go_on().empty());
    EXPECT_LE(strangers.size(), 8u);
  }
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(go_on().empty());
  give(handshake, alone.hear(sizeof(Nonce)));
  alone.say(handshake.unsent());
  std::vector<Greeting> trusted;
  for (const Deadline end = soon(); trusted.empty() && Clock::now() < end;) trusted = go_on();
  ASSERT_EQ(trusted.size(), 1u);
  int told = 0;
  for (const Stranger& each : many) {
    std::array<std::byte, 200> heard;
    const ssize_t got = ::recv(each.fd(), heard.data(), heard.size(), MSG_DONTWAIT);
    told += got == static_cast<ssize_t>(sizeof(Nonce) + kClaimsBytes + kProofBytes) ? 1 : 0;
  }
  EXPECT_EQ(told, 40 - 7);
}

// A rank that is slow to answer loses its place to no crowd, from its own address either.
TEST(Strangers, HundredsThatSendClaimsPushOutNobody) {
  Listeners all = listen_all(2);
  const Endpoint at = all.endpoints[0];
  std::atomic<bool> is_over = false;
  std::thread rank0([&] {
    MeshOptions options = mesh_options(0, all.endpoints);
    options.interrupted = [&] { return is_over.load(); };
    EXPECT_FALSE(connect_tcp(std::move(all.listeners[0]), options).has_value()) << "rank 1 says no more";
  });
  const Claims claims = claims_of(1, 0, 2);
  Handshake handshake(token_of(7), claims, *random_nonce());
  const Stranger rank1(at);
  rank1.say(handshake.unsent());
  handshake.sent(handshake.unsent().size());
  give(handshake, rank1.hear(handshake.room().size()));
  std::vector<Stranger> strangers;
  for (int i = 0; i < 250; ++i) {
    strangers.emplace_back(at).say(first_message(claims));
    EXPECT_EQ(strangers.back().hear(sizeof(Nonce)).size(), sizeof(Nonce));
  }
  rank1.say(handshake.unsent());
  handshake.sent(handshake.unsent().size());
  complete(handshake, rank1.fd());
  is_over = true;
  rank0.join();
}

TEST(Strangers, WhoSayNothingAreTurnedAwayButNotARankThatIsSlow) {
  Listeners all = listen_all(2);
  const Stranger silent(all.endpoints[0]);
  const Stranger slow(all.endpoints[0]);
  slow.say(first_message(claims_of(1, 0, 2)));
  std::thread rank0([&] {
    MeshOptions options = mesh_options(0, all.endpoints);
    options.settings = "codec=3lc";
    const auto result = connect_tcp(std::move(all.listeners[0]), options);
    EXPECT_TRUE(result.has_value()) << result.error().message;
  });
  // Rank 1 has proved that it knows the token; its settings take a long time to arrive.
  Claims claims = claims_of(1, 0, 2);
  claims.text = "codec=3lc";
  Handshake handshake(token_of(7), claims, *random_nonce());
  const Stranger rank1(all.endpoints[0]);
  while (!handshake.is_trusted()) {
    rank1.say(handshake.unsent());
    handshake.sent(handshake.unsent().size());
    const auto heard = rank1.hear(handshake.room().size());
    if (heard.empty()) break;
    give(handshake, heard);
  }
  EXPECT_TRUE(silent.was_hung_up_on());
  EXPECT_EQ(slow.hear(1000).size(), sizeof(Nonce));
  // Rank 0 still waits: it was not its end that ended them.
  complete(handshake, rank1.fd());
  claims.stream = Claims::Stream::kControl;
  const Stranger control(all.endpoints[0]);
  Handshake second(token_of(7), claims, *random_nonce());
  complete(second, control.fd());
  rank1.say(std::array{std::byte{'H'}});  // it is connected to all: RollCall
  rank0.join();
}

TEST(Strangers, FindNobodyOnceTheRanksHaveMet) {
  Listeners all = listen_all(2);
  const std::vector<Endpoint> endpoints = all.endpoints;
  Ranks ranks(2);
  run_ranks(2, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    auto transport = connect_tcp(std::move(all.listeners[at]), mesh_options(rank, endpoints));
    ASSERT_TRUE(transport.has_value()) << transport.error().message;
    ranks[at] = std::move(*transport);
  });
  for (const Endpoint& endpoint : endpoints) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(endpoint.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_NE(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ::close(fd);
  }
}

TEST(Strangers, TenThousandDoNotDisturb) {
  Listeners all = listen_all(2);
  const std::vector<std::byte> claims = first_message(claims_of(1, 0, 2));
  std::thread rank0([&] {
    const auto result = connect_tcp(std::move(all.listeners[0]), mesh_options(0, all.endpoints));
    EXPECT_TRUE(result.has_value()) << result.error().message;
  });
  std::deque<Stranger> open;
  for (int i = 0; i < 10000; ++i) {
    const Stranger& stranger = open.emplace_back(all.endpoints[0]);
    if (i % 4 == 1) stranger.say(claims);
    if (i % 4 == 2) stranger.say(Bytes(claims).first(91));
    if (i % 4 == 3) stranger.say(pattern(200, static_cast<std::uint64_t>(i)));
    if (open.size() > 200) open.pop_front();
  }
  const auto result = connect_tcp(std::move(all.listeners[1]), mesh_options(1, all.endpoints));
  EXPECT_TRUE(result.has_value()) << result.error().message;
  rank0.join();
}

TEST(Strangers, LearnNothing) {
  Listeners all = listen_all(2);
  const Stranger garbler(all.endpoints[0]);
  garbler.say(pattern(1000, 1));
  const Stranger knower(all.endpoints[0]);
  knower.say(first_message(claims_of(1, 0, 2)));
  std::thread rank0([&] {
    MeshOptions options = mesh_options(0, all.endpoints);
    options.connect_timeout = 6s;
    testing::expect_refused(connect_tcp(std::move(all.listeners[0]), options), ErrorCode::kTimeout, 1,
                            {"rank 1", "2 connections came with another token"});
  });
  EXPECT_TRUE(garbler.was_hung_up_on()) << "without a byte of answer";
  EXPECT_EQ(knower.hear(sizeof(Nonce)).size(), sizeof(Nonce));
  knower.say(pattern(sizeof(Proof), 2));
  EXPECT_TRUE(knower.was_hung_up_on()) << "without another byte";
  rank0.join();
}

TEST(Strangers, AnImpostorLearnsNothingAndIsNotBelieved) {
  const Impostor impostor;
  Listeners all = listen_all(2);
  MeshOptions options = mesh_options(1, {impostor.endpoint, all.endpoints[1]});
  options.connect_timeout = 6s;
  options.settings = "settings are nobody else's business";
  for (std::size_t i = 0; i < options.token.size(); ++i)
    options.token[i] = static_cast<std::byte>(i * 37 + 11);
  std::thread rank1([&] {
    testing::expect_refused(connect_tcp(std::move(all.listeners[1]), options), ErrorCode::kUnauthorized, 0);
  });
  std::vector<std::byte> heard;
  for (int i = 0; i < 2; ++i) {
    const Stranger victim(impostor.fd);
    heard = victim.hear(kClaimsBytes + sizeof(Nonce));
    EXPECT_EQ(heard.size(), kClaimsBytes + sizeof(Nonce));
    victim.say(pattern(sizeof(Nonce), 1));
    const std::vector<std::byte> proof = victim.hear(sizeof(Proof));
    EXPECT_EQ(proof.size(), sizeof(Proof));
    heard.insert(heard.end(), proof.begin(), proof.end());
    // Its own words back, as if they were an answer.
    victim.say(Bytes(heard).first(kClaimsBytes));
    victim.say(proof);
    EXPECT_TRUE(victim.was_hung_up_on()) << "settings are for those who know the token";
    for (std::size_t at = 0; at + 4 <= options.token.size(); ++at) {
      EXPECT_EQ(std::ranges::search(heard, Bytes(options.token).subspan(at, 4)).size(), 0u);
    }
  }
  rank1.join();
}

// Like a peer with another token, it hangs up after this rank's proof.
TEST(Strangers, ARankThatDiesInTheHandshakeIsLostAndNoStranger) {
  for (const bool has_read : {false, true}) {
    Listeners all = listen_all(2);
    std::optional<Impostor> dying(std::in_place);
    std::thread rank1([&, endpoints = std::vector{dying->endpoint, all.endpoints[1]}] {
      MeshOptions options = mesh_options(1, endpoints);
      options.connect_timeout = 3s;
      testing::expect_refused(connect_tcp(std::move(all.listeners[1]), options), ErrorCode::kPeerLost, 0);
    });
    {
      std::optional<Stranger> connection(std::in_place, dying->fd);
      EXPECT_EQ(connection->hear(kClaimsBytes + sizeof(Nonce)).size(), kClaimsBytes + sizeof(Nonce));
      connection->say(pattern(sizeof(Nonce), 1));
      std::vector<char> proof(sizeof(Proof));
      const int flags = MSG_WAITALL | (has_read ? 0 : MSG_PEEK);
      EXPECT_EQ(::recv(connection->fd(), proof.data(), proof.size(), flags),
                static_cast<ssize_t>(proof.size()));
      dying.reset();
    }
    rank1.join();
  }
}

TEST(Strangers, AnImpostorOnlyDelaysUntilTheRankIsThere) {
  Listeners all = listen_all(2);
  const Endpoint endpoint = all.endpoints[0];
  std::optional<Impostor> impostor(std::in_place);
  // Rank 1 dials the impostor; then rank 0 comes, at the same address.
  all.listeners[0].reset();
  std::thread rank1([&] {
    MeshOptions options = mesh_options(1, {impostor->endpoint, all.endpoints[1]});
    const auto result = connect_tcp(std::move(all.listeners[1]), options);
    EXPECT_TRUE(result.has_value()) << result.error().message;
  });
  Stranger(impostor->fd).say(pattern(200, 1));
  const Endpoint taken = impostor->endpoint;
  impostor.reset();
  auto listener = listen_tcp("127.0.0.1", taken.port);
  ASSERT_TRUE(listener.has_value()) << listener.error().message;
  const auto result = connect_tcp(std::move(*listener), mesh_options(0, {taken, all.endpoints[1]}));
  EXPECT_TRUE(result.has_value()) << result.error().message;
  rank1.join();
}

TEST(Strangers, AProofPassedOnToAnotherRankIsRefused) {
  // A process at rank 0's address relays every byte between rank 2 and rank 1.
  const Impostor relay;
  Listeners all = listen_all(3);
  std::vector<Result<std::unique_ptr<Transport>>> outcomes;
  for (int i = 0; i < 3; ++i) outcomes.emplace_back(fail(ErrorCode::kState, ""));
  std::thread between([&] {
    const Stranger victim(relay.fd);
    const Stranger other(all.endpoints[1]);
    other.say(victim.hear(kClaimsBytes + sizeof(Nonce)));
    victim.say(other.hear(sizeof(Nonce)));
    other.say(victim.hear(sizeof(Proof)));
    victim.say(other.hear(kClaimsBytes + sizeof(Proof)));
    EXPECT_TRUE(victim.was_hung_up_on());
  });
  run_ranks(3, [&](int rank) {
    if (rank == 0) return;
    const auto at = static_cast<std::size_t>(rank);
    MeshOptions options = mesh_options(rank, all.endpoints);
    if (rank == 2) options.endpoints[0] = relay.endpoint;
    options.connect_timeout = 8s;
    outcomes[at] = connect_tcp(std::move(all.listeners[at]), options);
  });
  between.join();
  for (const int rank : {1, 2}) {
    testing::expect_refused(outcomes[static_cast<std::size_t>(rank)], ErrorCode::kMismatch);
  }
}

TEST(Strangers, ARankThatVanishesAfterItsHandshakeIsNamed) {
  // Rank 1 connects to rank 0 on both streams and leaves without a message; rank 2 never comes.
  Listeners all = listen_all(3);
  const Deadline start = Clock::now();
  std::thread rank0([&] {
    MeshOptions options = mesh_options(0, all.endpoints);
    options.connect_timeout = 60s;
    testing::expect_refused(connect_tcp(std::move(all.listeners[0]), options), ErrorCode::kPeerLost, 1,
                            {"rank 2 ("});
    EXPECT_LT(Clock::now() - start, 30s) << "half of the time to connect: it did not wait for it";
  });
  std::vector<Stranger> streams;
  for (const auto stream : {Claims::Stream::kData, Claims::Stream::kControl}) {
    Claims claims = claims_of(1, 0, 3);
    claims.stream = stream;
    Handshake handshake(token_of(7), claims, *random_nonce());
    complete(handshake, streams.emplace_back(all.endpoints[0]).fd());
  }
  streams.clear();
  rank0.join();
}

}  // namespace
}  // namespace deltawire::test::strangers_test
