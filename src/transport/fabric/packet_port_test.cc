// PacketPort with peers that follow the protocol, and with peers that don't.
#include "transport/fabric/packet_port.h"

#include <cstring>
#include <numeric>

#include <poll.h>

#include "transport/fabric/fabric.h"
#include "transport/fabric/memory_fabric_testing.h"
#include "transport/mesh_testing.h"

namespace deltawire::test::packet_port_test {
namespace {

using Kind = PacketHeader::Kind;

// Rank 0 has a real port; rank 1 is played by the test, packet by packet.
class Port : public ::testing::Test {
 protected:
  Port() {
    auto opened = PacketPort::open(0, 2, std::make_unique<MemoryFabric>(switchboard_, 0));
    EXPECT_TRUE(opened.has_value());
    port_ = std::move(*opened);
  }
  ~Port() override {
    // So that the port's end need not wait for answers that never come.
    switchboard_->put(0, {1, {}});
  }

  void send(Kind kind, std::size_t payload_bytes, std::array<std::uint32_t, kLanes> used = {}) {
    std::vector<std::byte> packet(kPacketHeaderBytes + payload_bytes, std::byte{0x5A});
    encode_packet_header({kind, static_cast<std::uint32_t>(payload_bytes), used},
                         std::span(packet).first<kPacketHeaderBytes>());
    switchboard_->put(0, {1, std::move(packet)});
  }

  IoResult send_one(Lane lane, std::size_t bytes) {
    std::vector<std::byte> data(bytes);
    const iovec piece{data.data(), data.size()};
    return port_->send(1, lane, {&piece, 1});
  }

  // Receives until nothing comes for the moment; the result that said so.
  IoResult receive_all(Lane lane, std::size_t& received) {
    std::vector<std::byte> into(1000);
    while (true) {
      pollfd entry{port_->readable_fd(1, lane), POLLIN, 0};
      if (::poll(&entry, 1, 2000) == 0) return IoResult::would_block();
      const IoResult result = port_->recv(1, lane, into);
      if (result.kind != IoResult::Kind::kOk) return result;
      received += result.bytes;
    }
  }

  bool is_writable(Lane lane) {
    pollfd entry{port_->writable_fd(1, lane), POLLOUT, 0};
    return ::poll(&entry, 1, 0) == 1;
  }

  std::shared_ptr<Switchboard> switchboard_ = std::make_shared<Switchboard>(2);
  std::unique_ptr<PacketPort> port_;
};

TEST_F(Port, AWindowClosesAndOpensAgainByGrants) {
  for (const Lane lane : {Lane::kData, Lane::kControl}) {
    for (std::uint32_t i = 0; i < kWindow; ++i) {
      EXPECT_TRUE(is_writable(lane));
      EXPECT_EQ(send_one(lane, 10).bytes, 10u);
    }
    EXPECT_EQ(send_one(lane, 10).kind, IoResult::Kind::kWouldBlock);
    EXPECT_FALSE(is_writable(lane));
  }
  send(Kind::kGrant, 0, {1, 0});
  pollfd entry{port_->writable_fd(1, Lane::kData), POLLOUT, 0};
  ASSERT_EQ(::poll(&entry, 1, 10000), 1);
  EXPECT_EQ(send_one(Lane::kData, 10).bytes, 10u);
  EXPECT_EQ(send_one(Lane::kData, 10).kind, IoResult::Kind::kWouldBlock);
  EXPECT_FALSE(is_writable(Lane::kControl));
}

TEST_F(Port, UsedPacketsAreGrantedAgain) {
  for (std::uint32_t i = 0; i < kWindow; ++i) send(Kind::kData, 100);
  std::size_t received = 0;
  EXPECT_EQ(receive_all(Lane::kData, received).kind, IoResult::Kind::kWouldBlock);
  EXPECT_EQ(received, 100 * kWindow);
  Switchboard::Packet packet;
  std::uint32_t granted = 0;
  while (granted < kWindow) {
    ASSERT_TRUE(switchboard_->take(1, packet));
    const auto header = decode_packet_header(packet.bytes);
    ASSERT_TRUE(header.has_value());
    EXPECT_EQ(header->kind, Kind::kGrant);
    granted = header->used[0];
  }
  EXPECT_EQ(granted, kWindow);
}

TEST_F(Port, APacketIsReadInPiecesAndPacketsInOneGo) {
  send(Kind::kData, 10);
  send(Kind::kData, 20);
  send(Kind::kData, 5);
  pollfd entry{port_->readable_fd(1, Lane::kData), POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, 10000), 1);
  std::vector<std::byte> into(4);
  EXPECT_EQ(port_->recv(1, Lane::kData, into).bytes, 4u);
  std::size_t received = 4;
  into.resize(64);
  while (received < 35) {
    const IoResult result = port_->recv(1, Lane::kData, into);
    ASSERT_NE(result.kind, IoResult::Kind::kClosed);
    received += result.bytes;
  }
  EXPECT_EQ(received, 35u);
  EXPECT_EQ(port_->recv(1, Lane::kData, into).kind, IoResult::Kind::kWouldBlock);
  EXPECT_EQ(::poll(&entry, 1, 0), 0);
}

TEST_F(Port, TheLastPacketEndsBothLanesBehindTheirData) {
  send(Kind::kData, 500);
  send(Kind::kLast, 0);
  std::size_t received = 0;
  EXPECT_EQ(receive_all(Lane::kData, received).kind, IoResult::Kind::kClosed);
  EXPECT_EQ(received, 500u);
  EXPECT_EQ(receive_all(Lane::kControl, received).kind, IoResult::Kind::kClosed);
  EXPECT_EQ(send_one(Lane::kData, 1).kind, IoResult::Kind::kClosed);
}

// Each must cost the peer its connection, and nothing else.
TEST_F(Port, APeerThatBreaksTheRulesIsLost) {
  const std::vector<std::function<void()>> offences{
      [this] { send(Kind::kData, 0); },
      [this] { send(Kind::kGrant, 0, {1, 0}); },  // for what was never sent
      [this] {
        for (std::uint32_t i = 0; i <= kWindow; ++i) send(Kind::kControl, 10);
      },
      [this] {
        send(Kind::kHandshake, 8);
        send(Kind::kHandshake, 8);
      },
      [this] {
        send(Kind::kLast, 0);
        send(Kind::kData, 10);
      },
      [this] { switchboard_->put(0, {1, std::vector<std::byte>(kPacketHeaderBytes - 1)}); },
      [this] { switchboard_->put(0, {1, std::vector<std::byte>(64, std::byte{0xFF})}); },
      [this] { switchboard_->put(0, {1, std::vector<std::byte>(kPacketBytes + 1)}); },
  };
  for (std::size_t i = 0; i < offences.size(); ++i) {
    SCOPED_TRACE(i);
    switchboard_ = std::make_shared<Switchboard>(2);
    port_ = std::move(*PacketPort::open(0, 2, std::make_unique<MemoryFabric>(switchboard_, 0)));
    offences[i]();
    std::size_t received = 0;
    const IoResult end = receive_all(Lane::kData, received);
    EXPECT_TRUE(end.kind == IoResult::Kind::kError || end.kind == IoResult::Kind::kClosed);
    EXPECT_NE(send_one(Lane::kControl, 1).kind, IoResult::Kind::kOk);
  }
}

TEST(ConnectFabric, OtherSettingsAreNamedOnAllRanks) {
  const auto switchboard = std::make_shared<Switchboard>(3);
  run_ranks(3, [&](int rank) {
    auto transport = connect_fabric({rank, 3, rank == 2 ? "3lc" : "fp32", 0},
                                    std::make_unique<MemoryFabric>(switchboard, rank), soon());
    ASSERT_FALSE(transport.has_value());
    EXPECT_EQ(transport.error().code, ErrorCode::kMismatch);
    EXPECT_NE(transport.error().text().find("\"3lc\""), std::string::npos) << transport.error().message;
    EXPECT_EQ(transport.error().suspect == 2, rank != 2) << transport.error().message;
  });
}

TEST(ConnectFabric, AMeshHasTheEpochOfAllItsRanks) {
  for (const std::uint32_t odd : {5U, 6U}) {
    const auto switchboard = std::make_shared<Switchboard>(3);
    run_ranks(3, [&](int rank) {
      auto transport = connect_fabric({rank, 3, "", rank == 2 ? odd : 5U},
                                      std::make_unique<MemoryFabric>(switchboard, rank), soon());
      ASSERT_EQ(transport.has_value(), odd == 5);
      if (odd == 5) {
        EXPECT_EQ((*transport)->epoch(), 5u);
        return;
      }
      EXPECT_EQ(transport.error().code, ErrorCode::kMismatch);
      EXPECT_NE(transport.error().text().find("epoch 6"), std::string::npos) << transport.error().message;
      EXPECT_EQ(transport.error().suspect == 2, rank != 2) << transport.error().message;
    });
  }
}

TEST(ConnectFabric, MissingRanksAreNamed) {
  const auto switchboard = std::make_shared<Switchboard>(4);
  run_ranks(2, [&](int rank) {
    auto transport =
        connect_fabric({rank, 4, "", 0}, std::make_unique<MemoryFabric>(switchboard, rank), in(6s));
    ASSERT_FALSE(transport.has_value());
    EXPECT_EQ(transport.error().code, ErrorCode::kTimeout);
    EXPECT_NE(transport.error().text().find("ranks 2, 3"), std::string::npos) << transport.error().message;
  });
}

}  // namespace
}  // namespace deltawire::test::packet_port_test
