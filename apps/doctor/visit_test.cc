// Two doctors on one machine, and visitors that do what they should not.
#include "doctor/visit.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"
#include "doctor/note.h"
#include "doctor/rates.h"
#include "doctor/this_machine.h"

namespace deltawire::doctor {
namespace {

using namespace std::chrono_literals;

// A doctor who serves, in a thread.
class Host {
 public:
  explicit Host(const DoorOptions& options) : options_(options) {
    door_ = std::move(*open_door(std::move(*listen_tcp("0.0.0.0")), options));
    at_ = {"127.0.0.1", door_->endpoint().port};
    thread_ = std::thread([this] {
      while (!stops_) {
        const auto line = door_->answer(in(50ms));
        if (line) (void)receive_visitor(**line, this_machine("there"), options_);
      }
    });
  }
  ~Host() {
    stops_ = true;
    thread_.join();
  }
  const Endpoint& at() const { return at_; }

 private:
  DoorOptions options_;
  std::unique_ptr<Door> door_;
  Endpoint at_;
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

DoorOptions options_of(Encryption encryption, unsigned char secret = 7) {
  DoorOptions options{.encryption = encryption};
  options.token.fill(std::byte{secret});
  return options;
}

TEST(DoctorVisit, FindsRatesAndTheWayBack) {
  for (const Encryption encryption : {Encryption::kAuto, Encryption::kRequired}) {
    const DoorOptions door = options_of(encryption);
    const Host host(door);
    std::string stages;
    VisitOptions options{.door = door};
    options.stage = [&](const char* stage) { stages += std::string(stage) + ";"; };
    LineFindings found;
    // A busy machine may hear no rate, or no word of the other end's connection, in time.
    const auto is_whole = [](const RateFindings& rate) {
      return rate.bytes_per_second > 1e5 && !rate.congestion_control.empty();
    };
    for (int visits = 0; visits < 5 && !(is_whole(found.out) && is_whole(found.back)); ++visits) {
      stages.clear();
      found = visit(host.at(), this_machine("here"), options);
    }
    ASSERT_FALSE(found.no_answer) << found.no_answer->text();
    EXPECT_EQ(found.machine.version, "there");
    EXPECT_EQ(found.is_encrypted, encryption == Encryption::kRequired);
    EXPECT_EQ(found.seen_address, "127.0.0.1");
    EXPECT_EQ(found.own_address, "127.0.0.1");
    EXPECT_EQ(found.no_way_back, "");
    EXPECT_LT(std::abs(found.clock_ahead), 2);
    EXPECT_TRUE(found.round_trip > 0 && found.round_trip < 2);
    EXPECT_FALSE(found.out.is_stalled || found.back.is_stalled);
    EXPECT_GT(found.out.bytes_per_second, 1e5);
    EXPECT_GT(found.back.bytes_per_second, 1e5);
    EXPECT_NE(found.out.congestion_control, "");
    EXPECT_NE(found.back.congestion_control, "");
    EXPECT_EQ(stages, "meeting;calling back;sending;receiving;");
  }
}

// As on a busy machine, where whoever gives is faster than whoever takes.
TEST(DoctorVisit, TakesNoLongerWhereThereIsAlwaysMore) {
  const DoorOptions options = options_of(Encryption::kAuto);
  const auto door = std::move(*open_door(std::move(*listen_tcp("127.0.0.1")), options));
  std::unique_ptr<Line> giver;
  std::uint64_t given = 0;
  std::thread giving([&] {
    giver = std::move(*call_at_door(door->endpoint(), options, in(5s)));
    const std::vector<std::byte> piece(kPieceBytes);
    while (giver->send(piece, in(500ms))) given += kPieceBytes;
  });
  const auto taker = std::move(*door->answer(in(5s)));
  giving.join();
  EXPECT_FALSE(take(*taker, 0ms).is_stalled);
  EXPECT_LT(taker->bytes_received(), given / 2);
}

TEST(DoctorVisit, WhoIsNotThereIsSaid) {
  Endpoint at;
  {
    const Host host(options_of(Encryption::kAuto));
    at = host.at();
    const LineFindings found = visit(at, this_machine("here"), {.door = options_of(Encryption::kAuto, 8)});
    ASSERT_TRUE(found.no_answer);
    EXPECT_EQ(found.no_answer->code, ErrorCode::kUnauthorized);
  }
  const LineFindings found = visit(at, this_machine("here"), {.door = options_of(Encryption::kAuto)});
  ASSERT_TRUE(found.no_answer);
  EXPECT_EQ(found.no_answer->code, ErrorCode::kPeerLost);
}

TEST(DoctorVisit, OddVisitorsChangeNothing) {
  const DoorOptions door = options_of(Encryption::kAuto);
  const Host host(door);
  const auto say = [&](const std::string& text) {
    const auto line = call_at_door(host.at(), door, in(5s));
    ASSERT_TRUE(line) << line.error().text();
    ASSERT_TRUE((*line)->send(std::as_bytes(std::span(text)), in(5s)));
    testing::expect_refused((*line)->receive(kNoteBytesMax, in(8s)), ErrorCode::kPeerLost);
  };
  say("what?");
  say(R"({"wants": "tea"})");
  say(std::string(2 * kNoteBytesMax, '{'));
  const auto line = call_at_door(host.at(), door, in(5s));
  ASSERT_TRUE(line) << line.error().text();
  ASSERT_TRUE((*line)->send(encode({.wants = "call", .number = 70'000}), in(5s)));
  EXPECT_EQ(decode_note((*line)->receive(kNoteBytesMax, in(5s)).value())->text, "no such port");
}

TEST(DoctorVisit, ThisMachineIsKnown) {
  const MachineFindings machine = this_machine("1.2.3");
  EXPECT_EQ(machine.version, "1.2.3");
  EXPECT_NE(machine.name, "");
  EXPECT_TRUE(machine.processors >= 1 && machine.all_processors >= 1);
  EXPECT_GT(machine.memory_bytes, 1'000'000u);
  EXPECT_NE(machine.congestion_control, "");
  EXPECT_GT(machine.send_bytes, 0u);
  EXPECT_GT(machine.clock, 1.7e9);
}

}  // namespace
}  // namespace deltawire::doctor
