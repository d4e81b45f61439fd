#include <algorithm>

#include <gtest/gtest.h>

#include "planner/exchange_models.h"

namespace deltawire::planner {
namespace {

TEST(CodingTime, IsTheLineThroughTwoMessages) {
  const CodingTime time = CodingTime::through({1000, 3e-6}, {5000, 7e-6});
  EXPECT_DOUBLE_EQ(time.of(3000), 5e-6);
  for (const double small : {-2e-6, -1e-6, 0.0, 1e-6, 2e-6}) {  // as a clock may say
    for (const double large : {-2e-6, -1e-6, 0.0, 1e-6, 2e-6}) {
      const CodingTime noisy = CodingTime::through({1024, small}, {5000, large});
      EXPECT_TRUE(noisy.message_seconds >= 0 && noisy.value_seconds >= 0) << small << " " << large;
      EXPECT_NEAR(noisy.of(5000), std::max(0.0, large), 1e-18);
    }
  }
}

TEST(Processor, WorksInTurn) {
  Processor processor(1);
  const Train done = processor.work(Train::at(2), 3, 0.5);
  EXPECT_DOUBLE_EQ(done.first, 2.5);
  EXPECT_DOUBLE_EQ(done.last, 3.5);
  // Free since 2.5 in truth, but in turn: after what was given to it before.
  EXPECT_DOUBLE_EQ(processor.work(Train::at(0), 1, 1).last, 4.5);
}

TEST(Processor, WaitsForTheLastInput) {
  Processor processor(1);
  const Train done = processor.work({1, 9}, 3, 0.5);
  EXPECT_DOUBLE_EQ(done.first, 1.5);
  EXPECT_DOUBLE_EQ(done.last, 9.5);
}

TEST(Processor, AShareOfACoreTakesLonger) {
  Processor processor(0.25);
  EXPECT_DOUBLE_EQ(processor.work(Train::at(0), 2, 1).last, 8);
}

TEST(Line, BothDirectionsAtOnce) {
  Line line({100, 100, 0});
  const Train here = line.carry(Train::at(1), 3, {50, 50});
  EXPECT_DOUBLE_EQ(here.first, 1.5);
  EXPECT_DOUBLE_EQ(here.last, 2.5);
  EXPECT_DOUBLE_EQ(line.bytes_sent(), 150);
  EXPECT_DOUBLE_EQ(line.bytes_received(), 150);
  EXPECT_DOUBLE_EQ(line.carry(Train::at(0), 1, {100, 100}).last, 3.5);  // after what was sent before
}

TEST(Line, LatencyDelaysAndDoesNotOccupy) {
  Line line({100, 100, 10});
  EXPECT_DOUBLE_EQ(line.carry(Train::at(0), 1, {100, 100}).last, 11);
  EXPECT_DOUBLE_EQ(line.carry(Train::at(0), 1, {100, 100}).last, 12);
}

TEST(Line, TheSlowerDirectionCounts) {
  Line down({100, 50, 0});
  EXPECT_DOUBLE_EQ(down.carry(Train::at(0), 2, {100, 100}).last, 4);
  Line up({50, 100, 0});
  EXPECT_DOUBLE_EQ(up.carry(Train::at(0), 2, {100, 100}).last, 4);
}

TEST(Line, WhatComesInMayBeLonger) {
  Line line({100, 100, 0});
  EXPECT_DOUBLE_EQ(line.carry(Train::at(0), 2, {10, 100}).last, 2);
  EXPECT_DOUBLE_EQ(line.bytes_sent(), 20);
  EXPECT_DOUBLE_EQ(line.bytes_received(), 200);
}

TEST(Line, OthersMayWaitLonger) {
  Line line({100, 50, 3});
  EXPECT_DOUBLE_EQ(line.carry(Train::at(0), 2, {100, 10}).last, 4.2);
  EXPECT_DOUBLE_EQ(line.delivered_at(), 2 + 3 + 1);  // the last leaves in a second, and comes in in two
}

TEST(Line, SendsAsMessagesAreMade) {
  Line line({100, 100, 0});
  EXPECT_DOUBLE_EQ(line.carry({1, 9}, 3, {50, 50}).last, 9.5);
}

}  // namespace
}  // namespace deltawire::planner
