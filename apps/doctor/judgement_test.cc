// What the doctor makes of findings.
#include "doctor/judgement.h"

#include <gtest/gtest.h>

namespace deltawire::doctor {
namespace {

MachineFindings healthy_machine() {
  return {.version = "1.0.0",
          .name = "node1",
          .address = "10.0.0.1",
          .processors = 4,
          .all_processors = 4,
          .memory_bytes = 8'000'000'000,
          .congestion_control = "cubic",
          .send_bytes = 4'000'000,
          .receive_bytes = 6'000'000};
}

LineFindings healthy_line() {
  LineFindings line;
  line.at = {"10.0.0.2", 29600};
  line.own_address = line.seen_address = "10.0.0.1";
  line.there = "10.0.0.2";
  line.machine = healthy_machine();
  line.round_trip = 0.0002;
  line.segment_bytes = 1448;
  line.is_encrypted = true;
  line.out = line.back = {.bytes_per_second = 1e8, .congestion_control = "cubic"};
  return line;
}

struct Case {
  MachineFindings here = healthy_machine();
  LineFindings line = healthy_line();
  bool has_token = true;

  // The only advice there must be.
  Advice advice() const {
    const auto all = judge(here, {line}, has_token);
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? Advice{} : all.front();
  }
  void expect(bool is_wrong, const std::string& what, const std::string& remedy) const {
    const Advice found = advice();
    EXPECT_EQ(found.is_wrong, is_wrong) << found.what;
    EXPECT_NE(found.what.find(what), std::string::npos) << found.what;
    EXPECT_NE(found.remedy.find(remedy), std::string::npos) << found.remedy;
  }
};

TEST(Judgement, NothingIsWrongWhereAllIsWell) {
  EXPECT_TRUE(judge(healthy_machine(), {}, false).empty());
  EXPECT_TRUE(judge(healthy_machine(), {healthy_line(), healthy_line()}, true).empty());
}

TEST(Judgement, WhoDoesNotAnswerIsNamedWithWhatToDo) {
  Case given;
  const auto silent = [&](ErrorCode code, const std::string& text) {
    given.line.no_answer = Error{code, text};
  };
  silent(ErrorCode::kPeerLost, "nobody listens at 10.0.0.2:29600");
  given.expect(true, "nobody listens at 10.0.0.2:29600",
               "check the name or address, and start 'deltawire doctor --serve --port 29600'");
  silent(ErrorCode::kTimeout, "no answer from 10.0.0.2:29600");
  given.expect(true, "no answer from", "open TCP port 29600 of 10.0.0.2");
  silent(ErrorCode::kUnauthorized, "the process at 10.0.0.2:29600 refuses this one");
  given.expect(true, "refuses", "the same DELTAWIRE_TOKEN");
  silent(ErrorCode::kMismatch, "another version");
  given.expect(true, "10.0.0.2:29600: another version", "the same version of deltawire");
}

TEST(Judgement, NamesThatOthersCannotUse) {
  Case given;
  given.here.is_loopback = true;
  given.here.address = "127.0.1.1";
  given.expect(true, "this machine's name \"node1\" means 127.0.1.1", "DELTAWIRE_INTERFACE");
  EXPECT_FALSE(judge(given.here, {}, true).front().is_wrong)
      << "alone, a machine is reached by nobody anyway";
  given.here = healthy_machine();
  given.line.machine.address.clear();
  given.expect(true, "10.0.0.2:29600's name \"node1\" has no address", "/etc/hosts");
}

TEST(Judgement, TheWayBackAndNat) {
  Case given;
  given.line.no_way_back = "no answer from 10.0.0.1:29601";
  given.expect(true, "10.0.0.2:29600 can't call back: no answer from 10.0.0.1:29601", "DELTAWIRE_PORT");
  given.line.seen_address = "192.0.2.7";
  given.expect(true, "192.0.2.7, which is not its own address 10.0.0.1", "WireGuard");
}

TEST(Judgement, VersionsAndClocks) {
  Case given;
  given.line.machine.version = "0.9.0";
  given.expect(true, "deltawire is 1.0.0 here and 0.9.0 at 10.0.0.2:29600", "the same version");
  given = {};
  given.line.clock_ahead = -37;
  given.expect(false, "37 s behind", "NTP");
  given.line.clock_ahead = 1.9;
  EXPECT_TRUE(judge(given.here, {given.line}, true).empty());
}

TEST(Judgement, LargePacketsThatGetLost) {
  Case given;
  given.line.back.is_stalled = true;
  given.expect(true, "from 10.0.0.2:29600: something on the way drops packets of 1448 bytes", "mtu 1400");
}

TEST(Judgement, LongLinesWantBbr) {
  Case given;
  given.line.round_trip = 0.2;
  given.line.out = given.line.back = {.bytes_per_second = 1e6, .resent = 0.01, .congestion_control = "bbr"};
  EXPECT_FALSE(judge(given.here, {given.line}, true).front().is_wrong);
  given.line.back.resent = 0;
  given.expect(false, "1 % of the bytes to 10.0.0.2:29600", "BBR bears it");
  given.line.out = {.bytes_per_second = 1e6, .congestion_control = "cubic"};
  given.here.bbr_refusal = "Operation not permitted";
  given.expect(false, "to 10.0.0.2:29600 is cubic (BBR: Operation not permitted)", "modprobe tcp_bbr");
  given.line.out.resent = 0.01;
  const auto all = judge(given.here, {given.line}, true);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_TRUE(all[1].is_wrong) << "lossy and without BBR";
}

TEST(Judgement, ShortLinesThatLose) {
  Case given;
  given.line.out.resent = 0.02;
  given.expect(false, "2 % of the bytes to", "cable");
  given.line.out.resent = 0.004;
  EXPECT_TRUE(judge(given.here, {given.line}, true).empty());
}

TEST(Judgement, BuffersTooSmallForTheLine) {
  Case given;
  given.line.round_trip = 0.2;
  given.line.out = {.bytes_per_second = 1e7, .congestion_control = "bbr"};
  given.line.back = {.bytes_per_second = 5e6, .congestion_control = "bbr"};
  given.expect(false, "to 10.0.0.2:29600 may hold 4 MB", "tcp_wmem");
  given.line.machine.receive_bytes = 3'000'000;
  given.expect(false, "to 10.0.0.2:29600 may hold 3 MB", "tcp_rmem");
}

TEST(Judgement, UnevenLinesFewProcessorsAndNoToken) {
  Case given;
  given.line.out.bytes_per_second = 1e7;
  given.expect(false, "10 times as fast in one direction", "uplink");
  given = {};
  given.here.processors = 1;
  given.expect(false, "this machine's process may use 1 of 4 processors", "--cpus");
  given = {.has_token = false};
  given.expect(false, "no token", "openssl rand -hex 32");
  given.line.is_encrypted = false;  // it does not leave the machine
  EXPECT_TRUE(judge(given.here, {given.line}, false).empty());
}

}  // namespace
}  // namespace deltawire::doctor
