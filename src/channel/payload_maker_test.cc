#include <cstddef>
#include <cstdint>
#include <memory>

#include <gtest/gtest.h>

#include "channel/message_maker.h"

namespace deltawire::payload_maker_test {
namespace {

class PayloadMakers : public ::testing::Test {
 protected:
  std::uint64_t held() const { return meter_->held(MemoryMeter::Use::kMessages); }

  // A message of one part with room for `bound` bytes, of which it takes `used`.
  Message& made(std::uint64_t bound, std::uint64_t used) {
    Message& message = messages_.add({});
    maker_.open(message, bound);
    SentPart part;
    part.encoded.payload = Bytes(message.payload.bytes()).first(used);
    for (std::byte& byte : message.payload.bytes().first(used)) byte = std::byte{7};
    maker_.close(message, std::span(&part, 1));
    EXPECT_EQ(part.encoded.payload.data(), message.payload.bytes().data());
    for (const std::byte byte : part.encoded.payload) EXPECT_EQ(byte, std::byte{7});
    return message;
  }
  void end_step() {
    messages_.end_step();
    maker_.end_step();
  }

  std::shared_ptr<MemoryMeter> meter_ = std::make_shared<MemoryMeter>();
  PayloadMaker maker_{meter_};
  StepMessages messages_{meter_};
};

TEST_F(PayloadMakers, OneRoomServesMessagesOfAllBounds) {
  made(1000000, 1000);
  for (int i = 0; i < 5; ++i) made(200000, 1000);
  EXPECT_LE(held(), 1000000u + 6 * 2000);
  EXPECT_LE(meter_->peak(), 1000000u + 6 * 2000);
}

TEST_F(PayloadMakers, WhatIsNearItsBoundStaysWhereItIs) {
  const std::byte* payload = made(100000, 90000).payload.bytes().data();
  EXPECT_EQ(held(), 100000u);
  EXPECT_NE(made(100000, 90000).payload.bytes().data(), payload);
}

TEST_F(PayloadMakers, ARoomThatIsTooLargeIsFreedInTime) {
  made(1000000, 1000);
  end_step();
  for (int step = 0; step < 40; ++step) {
    made(100000, 1000);
    end_step();
  }
  EXPECT_LE(held(), 110000u);
}

TEST_F(PayloadMakers, ClearKeepsNothing) {
  made(100000, 1000);
  messages_.end_step();
  messages_.end_step();  // after a step of no messages nothing is kept
  maker_.clear();
  EXPECT_EQ(held(), 0u);
}

}  // namespace
}  // namespace deltawire::payload_maker_test
