// Elastic sessions of real processes, which are killed, stopped, leave and join.
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <new>
#include <span>
#include <thread>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/refusal_testing.h"
#include "deltawire/door.h"
#include "deltawire/elastic.h"
#include "elastic/messages.h"
#include "transport/mesh_testing.h"

namespace deltawire::test::elastic_session_test {
namespace {

constexpr int kMost = 6;
constexpr std::size_t kElements = 300;

// What a process reports.
struct Life {
  std::atomic<std::uint64_t> steps;
  std::atomic<bool> is_over;
  ErrorCode code;  // 0: it ended well
  std::uint32_t epoch;
  int world_size;
  int rank;
  float first;  // of what it was given when it joined
  double residual_kept;
  std::array<char, 600> message;
  std::array<char, 200> gone;  // of its last event
};

// Memory that all the processes of a test share.
struct Board {
  std::atomic<int> port;             // of rank 0
  std::atomic<std::uint64_t> until;  // steps
  std::array<Life, kMost> lives;
};

struct Program {
  std::string spec = "fp32";
  std::string settings;
  int world = 0;  // 0: it joins
  std::size_t elements = kElements;
  bool has_state = false;
  std::chrono::milliseconds limit{15000};
  std::chrono::milliseconds timeout{10000};
  // Before each step; may kill the process. False: it leaves.
  std::function<bool(std::uint64_t)> before = [](std::uint64_t) { return true; };
};

class Elastic : public ::testing::Test {
 protected:
  void SetUp() override {
    void* memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    board_ = new (memory) Board{};
    board_->until = 12;
  }
  void TearDown() override {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    ::munmap(board_, sizeof(Board));
  }

  // A process more; its number is its rank, or the id that it gets if it joins.
  void start(const Program& program) {
    const auto number = static_cast<int>(pids_.size());
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      live(number, program);
      ::_exit(0);
    }
    pids_.push_back(pid);
  }
  void start(int world, const Program& program) {
    for (int rank = 0; rank < world; ++rank) {
      Program own = program;
      own.world = world;
      start(own);
    }
  }
  const Life& life(int number) const { return board_->lives[static_cast<std::size_t>(number)]; }
  // When it is over.
  const Life& end_of(int number) {
    const Deadline end = Clock::now() + 60s;
    while (!life(number).is_over && Clock::now() < end) std::this_thread::sleep_for(5ms);
    EXPECT_TRUE(life(number).is_over) << number;
    return life(number);
  }
  void await_steps(int number, std::uint64_t steps) {
    const Deadline end = Clock::now() + 60s;
    while (life(number).steps < steps && !life(number).is_over && Clock::now() < end) {
      std::this_thread::sleep_for(2ms);
    }
    ASSERT_GE(life(number).steps, steps) << life(number).message.data();
  }
  void expect_end(int number, std::uint32_t epoch, int world_size) {
    const Life& end = end_of(number);
    EXPECT_EQ(end.code, ErrorCode{}) << number << ": " << end.message.data();
    EXPECT_EQ(end.steps, board_->until) << number;
    EXPECT_EQ(end.epoch, epoch) << number;
    EXPECT_EQ(end.world_size, world_size) << number;
  }

  Board* board_ = nullptr;
  std::vector<pid_t> pids_;

 private:
  Life& own(int number) { return board_->lives[static_cast<std::size_t>(number)]; }

  void live(int number, const Program& program) {
    Life& life = own(number);
    const auto done = run(number, program, life);
    if (!done) {
      life.code = done.error().code;
      std::snprintf(life.message.data(), life.message.size(), "%s", done.error().text().c_str());
    }
    life.is_over = true;
  }

  Status run(int number, const Program& program, Life& life) {
    std::vector<float> weights(2000, 0);
    ElasticOptions options;
    if (program.world > 0) options.place = {number, program.world};
    std::unique_ptr<Listener> door = *listen_tcp("127.0.0.1");
    if (number == 0) board_->port = door->endpoint().port;
    while (board_->port == 0) std::this_thread::sleep_for(1ms);
    options.doors = {{"127.0.0.1", static_cast<std::uint16_t>(board_->port)}};
    options.token = token_of(7);
    options.connect_timeout = options.arrival_timeout = program.limit;
    options.timeout = program.timeout;
    options.settings = program.settings;
    if (program.has_state) {
      options.state = [&weights]() -> Result<std::vector<StateArray>> {
        return std::vector<StateArray>{{"weights", "<f4", 4, {2000}, std::as_bytes(std::span(weights))}};
      };
    }
    auto opened = ElasticSession::open(program.spec, {}, std::move(options), std::move(door));
    if (!opened) return forward_error(opened);
    ElasticSession& session = **opened;
    if (const auto given = session.joined_state(); given && !given->empty()) {
      std::memcpy(weights.data(), given->front().bytes.data(), given->front().bytes.size());
      life.first = weights[0];
    }
    const Status trained = train(session, program, life, weights);
    life.epoch = session.epoch();
    life.world_size = session.world_size();
    life.rank = session.rank();
    if (const auto events = session.events(); !events.empty()) {
      std::string gone;
      for (const auto& each : events.back().gone) gone += std::to_string(each.id) + ": " + each.why + "; ";
      std::snprintf(life.gone.data(), life.gone.size(), "%s", gone.c_str());
      life.residual_kept = events.back().residual_kept;
    }
    return trained;
  }

  // Each gives its id + 1, so that all know what the mean must be.
  Status train(ElasticSession& session, const Program& program, Life& life, std::vector<float>& weights) {
    while (session.steps() < board_->until) {
      if (!program.before(session.steps())) return {};
      const auto own = session.members()[static_cast<std::size_t>(session.rank())].id;
      std::vector<float> values(program.elements, static_cast<float>(own + 1));
      const std::vector<std::uint64_t> dims{values.size()};
      const std::vector<Named> tensors{
          {.name = "x", .tensor = {.values = values.data(), .count = values.size(), .dims = dims}}};
      auto report = session.all_reduce(tensors);
      if (!report) return forward_error(report);
      float sum = 0;
      for (const ElasticMember& member : session.members()) sum += static_cast<float>(member.id + 1);
      const float mean = sum / static_cast<float>(session.world_size());
      for (const float value : values) {
        if (std::abs(value - mean) > 1e-5F)
          return fail(ErrorCode::kCorrupt, "a mean is " + std::to_string(value));
      }
      weights[0] = static_cast<float>(session.steps());
      life.steps = session.steps();
    }
    return {};
  }
};

// A process that dies before its fifth step, if it is one of these.
Program dying(const std::vector<int>& numbers, const std::vector<pid_t>& pids) {
  Program program;
  program.before = [numbers, &pids](std::uint64_t step) {
    const auto own = static_cast<int>(pids.size());  // those before it were started before
    for (const int number : numbers) {
      if (step == 5 && own == number) ::raise(SIGKILL);
    }
    return true;
  };
  return program;
}

TEST_F(Elastic, TheOthersGoOnWhenAMemberIsKilled) {
  start(4, dying({2}, pids_));
  for (const int number : {0, 1, 3}) expect_end(number, 1, 3);
  EXPECT_STREQ(end_of(0).gone.data(), "2: its process has ended; ");
  EXPECT_EQ(end_of(3).rank, 2);
}

TEST_F(Elastic, TheOthersGoOnWhenTheFirstAndAnotherAreKilled) {
  start(5, dying({0, 3}, pids_));
  for (const int number : {1, 2, 4}) {
    const Life& end = end_of(number);
    EXPECT_EQ(end.code, ErrorCode{}) << end.message.data();
    EXPECT_EQ(end.world_size, 3);
    EXPECT_EQ(end.steps, 12U);
  }
}

// The others are stopped before any is killed: two of four with the first would go on.
TEST_F(Elastic, OneAloneDoesNotGoOn) {
  Program program;
  program.limit = 3s;
  program.before = [this](std::uint64_t step) {
    while (step == 5 && !pids_.empty()) std::this_thread::sleep_for(10s);  // all but rank 0
    return true;
  };
  start(4, program);
  for (int number = 0; number < 4; ++number) await_steps(number, 5);
  for (const int signal : {SIGSTOP, SIGKILL}) {
    for (const pid_t pid : std::span(pids_).subspan(1)) ::kill(pid, signal);
  }
  const Life& end = end_of(0);
  EXPECT_EQ(end.code, ErrorCode::kNoQuorum) << end.message.data();
  EXPECT_EQ(end.steps, 5U);
  EXPECT_NE(std::string_view(end.message.data()).find("half with the lowest id, must be there"),
            std::string_view::npos);
  EXPECT_NE(std::string_view(end.message.data()).find("(epoch 0)"), std::string_view::npos);
}

TEST_F(Elastic, ALeaverIsNamedAndNotWaitedFor) {
  Program program;
  program.before = [this](std::uint64_t step) { return step != 5 || pids_.size() != 1; };
  start(2, program);
  expect_end(0, 1, 1);
  EXPECT_STREQ(end_of(0).gone.data(), "1: it left; ");
  EXPECT_EQ(end_of(1).steps, 5U);
}

TEST_F(Elastic, AProcessJoinsWithTheState) {
  board_->until = UINT64_MAX;
  Program program;
  program.has_state = true;
  start(2, program);
  await_steps(1, 3);
  start(program);
  await_steps(2, 5);
  board_->until = life(2).steps + 200;
  for (const int number : {0, 1, 2}) expect_end(number, 1, 3);
  EXPECT_GE(end_of(2).first, 3) << "it has what the others had after their steps";
}

TEST_F(Elastic, AProcessWithOtherShapesLeavesAndTheOthersGoOn) {
  board_->until = UINT64_MAX;
  start(2, {});
  await_steps(1, 3);
  Program other;
  other.elements = kElements + 1;
  start(other);
  const Life& end = end_of(2);
  EXPECT_EQ(end.code, ErrorCode::kMismatch);
  const std::string_view text(end.message.data());
  EXPECT_NE(text.find("and 'x' 301 in this process; this process has left"), text.npos) << text;
  board_->until = std::max(life(0).steps, life(1).steps) + 200;
  for (const int number : {0, 1}) expect_end(number, 2, 2);
}

// It is away for longer than others wait for an answer.
TEST_F(Elastic, AMemberThatWasFrozenIsToldThatTheOthersWentOn) {
  board_->until = UINT64_MAX;
  Program program;
  program.timeout = 3s;
  start(3, program);
  await_steps(2, 3);
  ::kill(pids_[1], SIGSTOP);
  const std::uint64_t then = life(0).steps;
  await_steps(0, then + 5);
  ::kill(pids_[1], SIGCONT);
  const Life& end = end_of(1);
  EXPECT_EQ(end.code, ErrorCode::kExcluded) << end.message.data();
  EXPECT_NE(std::string_view(end.message.data()).find("in epoch 1"), std::string_view::npos)
      << end.message.data();
  board_->until = std::max(life(0).steps, life(2).steps) + 200;
  for (const int number : {0, 2}) expect_end(number, 1, 2);
}

TEST_F(Elastic, OtherSettingsAreNamed) {
  Program program;
  program.world = 2;
  program.settings = "recipe=a";
  start(program);
  program.settings = "recipe=b";
  start(program);
  for (const int number : {0, 1}) {
    const Life& end = end_of(number);
    EXPECT_EQ(end.code, ErrorCode::kMismatch);
    EXPECT_STREQ(end.message.data(), "rank 0 has recipe=a, and rank 1 recipe=b; give all the same");
  }
}

TEST_F(Elastic, MissingRanksAreNamedAndThoseThatLeft) {
  Program program;
  program.world = 4;
  program.limit = 4s;
  start(program);
  program.limit = 20s;  // or it could leave just before rank 0 gives up, and be missing, too
  start(program);
  program.limit = 1s;
  start(program);
  EXPECT_EQ(end_of(2).code, ErrorCode::kTimeout);
  EXPECT_EQ(end_of(0).code, ErrorCode::kTimeout);
  EXPECT_STREQ(
      end_of(0).message.data(),
      "rank 0 waited 4 s for ranks 2 (which has come and left), 3; were they started, with the same token?");
  EXPECT_EQ(end_of(1).code, ErrorCode::kTimeout);
}

// A session of one process, and its door.
std::unique_ptr<ElasticSession> open_alone(Endpoint& door) {
  auto listener = *listen_tcp("127.0.0.1");
  door = listener->endpoint();
  ElasticOptions options;
  options.place = {0, 1};
  options.token = token_of(7);
  auto session = ElasticSession::open("fp32", {}, options, std::move(listener));
  EXPECT_TRUE(session) << session.error().message;
  return std::move(*session);
}

TEST(ElasticDoor, AnotherVersionIsRefusedByName) {
  Endpoint door;
  const auto session = open_alone(door);
  auto line = call_at_door(door, {.token = token_of(7)}, soon());
  ASSERT_TRUE(line) << line.error().message;
  auto question = elastic::encode(elastic::Message(elastic::Probe{}));
  question[0] = std::byte{9};
  ASSERT_TRUE((*line)->send(question, soon()));
  const auto answer = (*line)->receive(elastic::kMessageMax, soon());
  ASSERT_TRUE(answer) << answer.error().message;
  const auto refused = elastic::decode(*answer);
  ASSERT_TRUE(refused && std::holds_alternative<elastic::Refused>(*refused));
  EXPECT_NE(std::get<elastic::Refused>(*refused).why.find("speaks version 9"), std::string::npos);
}

// All members may call a host at once; beyond 64 they pushed each other out.
TEST(ElasticDoor, ManyThatHaveNotSpokenYetPushOutNobody) {
  Endpoint door;
  const auto session = open_alone(door);
  std::vector<std::unique_ptr<Line>> lines;
  for (int caller = 0; caller < 66; ++caller) {
    auto line = call_at_door(door, {.token = token_of(7)}, soon());
    ASSERT_TRUE(line) << line.error().message;
    lines.push_back(std::move(*line));
  }
  for (const auto& line : lines) {
    ASSERT_TRUE(line->send(elastic::encode(elastic::Message(elastic::Probe{})), soon()));
    EXPECT_TRUE(line->receive(elastic::kMessageMax, soon()));
  }
}

TEST(ElasticStep, BucketsBeforeTheLastArePreparedInEachAttempt) {
  Endpoint door;
  const auto session = open_alone(door);
  std::vector<float> first(kElements, 1);
  std::vector<float> second(kElements, 1);
  const Named one[] = {{.name = "first", .tensor = {.values = first.data(), .count = first.size()}}};
  const Named other[] = {{.name = "second", .tensor = {.values = second.data(), .count = second.size()}}};
  std::vector<ElasticBucket> buckets{{one, {}}, {other, {}}};
  testing::expect_refused(session->all_reduce(buckets), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(session->end()) << "it goes on";
  int prepared = 0;
  buckets[0].prepare = [&] { ++prepared; };
  const auto report = session->all_reduce(buckets);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(prepared, 1);
  EXPECT_EQ(session->steps(), 1U);
}

TEST(ElasticOptions, ThatCannotBeAreRefused) {
  const auto code_of = [](const ReducerOptions& options, const ElasticOptions& elastic) {
    const auto session = ElasticSession::open("fp32", options, elastic);
    return session ? ErrorCode{} : session.error().code;
  };
  ElasticOptions elastic;
  EXPECT_EQ(code_of({}, elastic), ErrorCode::kInvalidArgument) << "no door";
  elastic.place = {2, 2};
  EXPECT_EQ(code_of({}, elastic), ErrorCode::kInvalidArgument);
  elastic.place = {0, 1};
  elastic.at_least = 0;
  EXPECT_EQ(code_of({}, elastic), ErrorCode::kInvalidArgument);
  elastic.at_least.reset();
  ReducerOptions folds;
  folds.revert = Revert::kFold;
  EXPECT_EQ(code_of(folds, elastic), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace deltawire::test::elastic_session_test
