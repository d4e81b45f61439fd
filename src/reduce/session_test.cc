// The Session: lifetimes, calls between steps and from `done`, closing early and late, errors.
#include "deltawire/session.h"

#include <array>
#include <atomic>
#include <future>
#include <thread>
#include <utility>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/no_threads_testing.h"
#include "base/refusal_testing.h"

// There with the sanitized libraries alone.
extern "C" __attribute__((weak)) void __lsan_disable();
extern "C" __attribute__((weak)) void __lsan_enable();

namespace deltawire::session_test {
namespace {

using std::chrono::seconds;
using Sessions = std::vector<std::unique_ptr<Session>>;

constexpr std::size_t kCount = 20000;

// One for each rank of a new mesh.
Sessions open_sessions(const std::string& spec, int world, const std::vector<LinkOptions>& links = {}) {
  Sessions sessions;
  auto mesh = connect_inproc(world, links);
  EXPECT_TRUE(mesh) << mesh.error().message;
  for (auto& transport : *mesh) {
    auto session = Session::open(spec, {}, std::move(transport));
    EXPECT_TRUE(session) << session.error().message;
    sessions.push_back(std::move(*session));
  }
  return sessions;
}

void on_each(const Sessions& sessions, const std::function<void(int, Session&)>& body) {
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < sessions.size(); ++rank) {
    threads.emplace_back([&, rank] { body(static_cast<int>(rank), *sessions[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
}

// A rank's tensor of one value.
struct Owned {
  explicit Owned(float value, std::string its_name = "w")
      : values(kCount, value), name(std::move(its_name)) {}
  Named named() { return {name, {values.data(), values.size(), DType::kF32}, 0}; }
  std::vector<float> values;
  std::string name;
};

Result<Report> reduce(Session& session, Owned& tensor, std::uint64_t step) {
  const Named named = tensor.named();
  return session.all_reduce(std::span(&named, 1), {step, 0, true}, seconds(20));
}

void submit(Session& session, Owned& tensor, const Step& step, Session::Done done) {
  const Named named = tensor.named();
  session.submit(std::span(&named, 1), step, seconds(20), std::move(done));
}

TEST(Session, SeveralBucketsOfASeriesOfSteps) {
  const Sessions sessions = open_sessions("3lc", 3);
  on_each(sessions, [](int rank, Session& session) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      Owned early(static_cast<float>(rank), "early");
      Owned late(static_cast<float>(rank) + 3, "late");
      std::promise<bool> first;
      submit(session, early, {step, 0, false}, [&](const auto& report) { first.set_value(bool{report}); });
      const Named named = late.named();
      const auto last = session.all_reduce(std::span(&named, 1), {step, 1, true}, seconds(20));
      ASSERT_TRUE(last) << last.error().message;
      EXPECT_TRUE(first.get_future().get());
      EXPECT_EQ(last->last_committed_step, step);
      EXPECT_EQ(early.values, std::vector<float>(kCount, 1.0F));
      EXPECT_EQ(late.values, std::vector<float>(kCount, 4.0F));
    }
    EXPECT_EQ(session.last_commit().step, 2u);
    EXPECT_EQ(session.spec(), "direct(3lc:s=1,mode=auto,runs=on)");
  });
}

// Three buckets in flight: a dense tensor, one in key-value form, and both.
TEST(Session, TakesKeyValueTensorsAmongOthers) {
  const Sessions sessions = open_sessions("direct(fastsgd)", 3);
  on_each(sessions, [](int rank, Session& session) {
    std::vector<Owned> dense;
    std::vector<Pairs> pairs(2, Pairs{{5, 70000, 99999}, {3.0F, 0.0F, 3.0F}, 100000});
    std::vector<Pairs> means(2);
    for (const char* name : {"a", "b"}) dense.emplace_back(static_cast<float>(rank), name);
    std::vector<Named> tensors{dense[0].named(), {"c", {}, 0}, dense[1].named(), {"d", {}, 0}};
    for (std::size_t i = 0; i < 2; ++i) {
      pairs[i].keys[1] += static_cast<std::uint32_t>(rank);
      pairs[i].values[1] = 3.0F;
      tensors[2 * i + 1].tensor = {pairs[i].values.data(), 3, DType::kF32, pairs[i].keys.data(), 100000};
    }
    const std::span<const Named> all(tensors);
    const auto succeeds = [](const Result<Report>& report) { EXPECT_TRUE(report) << report.error().message; };
    session.submit(all.first(1), {0, 0, false}, seconds(20), succeeds);
    session.submit({all.subspan(1, 1), std::span(means).first(1)}, {0, 1, false}, seconds(20), succeeds);
    const auto last = session.all_reduce({all.last(2), std::span(means).last(1)}, {0, 2, true}, seconds(20));
    ASSERT_TRUE(last) << last.error().message;
    for (const Pairs& mean : means) {
      EXPECT_EQ(mean.keys, (std::vector<std::uint32_t>{5, 70000, 70001, 70002, 99999}));
      EXPECT_EQ(mean.dimension, 100000u);
      EXPECT_NEAR(mean.values[0], 3.0F, 0.4F);
      EXPECT_NEAR(mean.values[1], 1.0F, 0.2F);
    }
    EXPECT_EQ(dense[0].values, dense[1].values);
    EXPECT_NEAR(dense[0].values[0], 1.0F, 0.2F);
  });
}

// Nothing has happened then, on any rank: the same step is taken again.
TEST(Session, RefusesTensorsThatCantBeInOneBucketAndGoesOn) {
  const Sessions sessions = open_sessions("3lc", 2);
  on_each(sessions, [](int rank, Session& session) {
    Owned memory(static_cast<float>(2 * rank));
    const auto half = [&](std::string_view name, std::size_t begin) {
      return Named{name, {memory.values.data() + begin, kCount / 2, DType::kF32}, 0};
    };
    const std::vector<Named> good{half("v", 0), half("w", kCount / 2)};
    for (std::uint64_t step = 0; step < 2; ++step) {
      for (const auto& [bad, words] :
           {std::pair{std::vector{half("w", 0), half("w", kCount / 2)}, "called 'w'"},
            {std::vector{half("v", 0), half("w", 1)}, "'v' and 'w' share memory"}}) {
        testing::expect_refused(session.all_reduce(bad, {step, 0, true}, seconds(20)),
                                ErrorCode::kInvalidArgument, words);
      }
      const auto report = session.all_reduce(good, {step, 0, true}, seconds(20));
      ASSERT_TRUE(report) << report.error().message;
      EXPECT_EQ(memory.values, std::vector<float>(kCount, 1.0F));
    }
  });
}

TEST(Session, TheFirstTensorThatDiffersIsNamedOnAllRanks) {
  for (const bool is_longer : {false, true}) {
    const Sessions sessions = open_sessions("fp32", 3);
    on_each(sessions, [&](int rank, Session& session) {
      Owned same(1, "same");
      Owned other(1, rank == 2 ? "odd" : "even");
      const std::array both{same.named(), other.named()};
      const auto tensors = std::span(both).first(is_longer && rank != 2 ? 1 : 2);
      const auto report = session.all_reduce(tensors, {0, 0, true}, seconds(20));
      testing::expect_refused(report, ErrorCode::kMismatch);
      const std::string words = report.error().text();
      EXPECT_NE(words.find("'odd' float32 20000 on rank 2"), std::string::npos) << words;
      const std::string theirs = is_longer ? "none on rank " : "'even' float32 20000 on rank ";
      EXPECT_NE(words.find(theirs), std::string::npos) << words;
      EXPECT_NE(words.find("tensor 1 is"), std::string::npos) << words;
    });
  }
}

TEST(Session, ABadSpecIsAnError) {
  auto mesh = connect_inproc(1);
  testing::expect_refused(Session::open("3lx", {}, std::move((*mesh)[0])), ErrorCode::kUnknownCodec);
  testing::expect_refused(Session::open("fp32", {}, nullptr), ErrorCode::kInvalidArgument);
}

// The thread stays: what is saved is loaded between two steps, and they end as if there had been no pause.
TEST(Session, SavesLoadsAndGoesOn) {
  std::vector<std::vector<float>> results;
  for (const bool pauses : {false, true}) {
    const Sessions sessions = open_sessions("3lc:s=1.9", 2);
    on_each(sessions, [&](int rank, Session& session) {
      Owned first(static_cast<float>(rank));
      for (std::size_t i = 0; i < kCount; ++i) first.values[i] += static_cast<float>(i % 7);
      ASSERT_TRUE(reduce(session, first, 0));
      if (pauses) {
        const auto state = session.save();
        ASSERT_TRUE(state) << state.error().message;
        Owned lost(5.0F);
        ASSERT_TRUE(reduce(session, lost, 1));
        const Status loaded = session.load(*state);
        ASSERT_TRUE(loaded) << loaded.error().message;
      }
      Owned second(0.0F);
      ASSERT_TRUE(reduce(session, second, pauses ? 2 : 1));
      if (rank == 0) results.push_back(second.values);
    });
  }
  EXPECT_TRUE(results.at(0) == results.at(1));
}

// Values that no codec sends at once.
Owned uneven(int rank, std::uint64_t step) {
  Owned made(0.0F);
  for (std::size_t i = 0; i < kCount; ++i) {
    made.values[i] = static_cast<float>((i * 7919 + step * 31 + static_cast<std::size_t>(rank) * 17) % 101);
  }
  return made;
}

// As if their spec had said so, once a step of zeros has left nothing behind; and what is saved fits the
// spec, that of before.
TEST(Session, CodesByAnotherSpecFromAStepOn) {
  const std::string given = "direct(3lc:s=1,mode=auto,runs=on)";
  const std::string other = "direct(step<2: fp4, rest 3lc:pull=0.5)";
  std::vector<std::vector<float>> ends;
  std::vector<std::byte> saved;
  for (const auto& [spec, is_recoded] : {std::pair{other, false}, {given, true}, {given, false}}) {
    const Sessions sessions = open_sessions(spec, 3);
    on_each(sessions, [&](int rank, Session& session) {
      Owned nothing(0.0F);
      ASSERT_TRUE(reduce(session, nothing, 0));
      if (is_recoded) {
        const Status recoded = session.recode(*Spec::parse(other));
        ASSERT_TRUE(recoded) << recoded.error().message;
      }
      Owned last = uneven(rank, 0);
      for (std::uint64_t step = 1; step < 4; ++step) {
        last = uneven(rank, step);
        const auto report = reduce(session, last, step);
        ASSERT_TRUE(report) << report.error().message;
      }
      if (rank > 0) return;
      ends.push_back(last.values);
      if (!is_recoded) return;
      EXPECT_EQ(session.spec(), given);
      EXPECT_EQ(session.recode(*Spec::parse("gather(3lc)")).error().code, ErrorCode::kInvalidArgument);
      const auto state = session.save();
      ASSERT_TRUE(state) << state.error().message;
      saved = *state;
    });
  }
  EXPECT_TRUE(ends.at(0) == ends.at(1));
  EXPECT_FALSE(ends.at(1) == ends.at(2));
  const Sessions sessions = open_sessions(given, 1);
  const Status loaded = sessions[0]->load(saved);
  EXPECT_TRUE(loaded) << loaded.error().message;
}

TEST(Session, WhatOneRankAloneRecodesIsRefused) {
  const Sessions sessions = open_sessions("3lc", 2);
  on_each(sessions, [](int rank, Session& session) {
    Owned first = uneven(rank, 0);
    ASSERT_TRUE(reduce(session, first, 0));
    if (rank == 1) {
      EXPECT_TRUE(session.recode(*Spec::parse("direct(3lc:pull=0.5)")));
    }
    Owned second = uneven(rank, 1);
    testing::expect_refused(reduce(session, second, 1), ErrorCode::kMismatch);
    EXPECT_EQ(second.values, uneven(rank, 1).values);
  });
}

TEST(Session, MasksMomentumBetweenSteps) {
  const Sessions sessions = open_sessions("gather(sbc:p=0.0001)", 2);
  on_each(sessions, [](int, Session& session) {
    Owned tensor(0.0F);
    tensor.values[7] = 5.0F;
    tensor.values[900] = 5.0F;
    ASSERT_TRUE(reduce(session, tensor, 0));
    Owned momentum(1.0F);
    Owned unknown(1.0F, "v");
    const std::vector<Named> both{momentum.named(), unknown.named()};
    EXPECT_EQ(session.mask_sent(both).error().code, ErrorCode::kState) << "the second was not sent";
    EXPECT_EQ(momentum.values[7], 0.0F);
    EXPECT_EQ(momentum.values[8], 1.0F);
    EXPECT_EQ(momentum.values[900], 0.0F);
  });
}

// Rank 1 does not come until rank 0 has asked.
TEST(Session, WhileABucketIsInFlightNothingElseIsDone) {
  const Sessions sessions = open_sessions("3lc", 2);
  std::promise<void> asked;
  on_each(sessions, [&](int rank, Session& session) {
    Owned tensor(1.0F);
    if (rank == 1) {
      asked.get_future().wait();
      EXPECT_TRUE(reduce(session, tensor, 0));
      return;
    }
    std::promise<bool> over;
    submit(session, tensor, {0, 0, true}, [&](const auto& report) { over.set_value(bool{report}); });
    EXPECT_EQ(session.save().error().code, ErrorCode::kState);
    EXPECT_EQ(session.load({}).error().code, ErrorCode::kState);
    EXPECT_EQ(session.recode(*Spec::parse("direct(3lc)")).error().code, ErrorCode::kState);
    const Named momentum = tensor.named();
    EXPECT_EQ(session.mask_sent(std::span(&momentum, 1)).error().code, ErrorCode::kState);
    asked.set_value();
    EXPECT_TRUE(over.get_future().get());
    EXPECT_TRUE(session.save());
  });
}

// What `done` may call: its own bucket is not in flight any more. A close from there waits for nobody: the
// third bucket, which only its thread could end, is aborted.
TEST(Session, DoneMayCallAllButAllReduce) {
  const Sessions sessions = open_sessions("3lc", 1);
  Session& session = *sessions[0];
  Owned tensor(1.0F);
  Owned next(2.0F);
  Owned third(3.0F);
  std::promise<ErrorCode> refused;
  std::promise<ErrorCode> aborted;
  std::promise<bool> over;
  submit(session, tensor, {0, 0, true}, [&](const auto& report) {
    EXPECT_TRUE(report);
    EXPECT_TRUE(session.save());
    EXPECT_GT(session.memory().peak_bytes, 0u);
    refused.set_value(reduce(session, next, 1).error().code);
    submit(session, next, {1, 0, true}, [&](const auto& second) {
      submit(session, third, {2, 0, true},
             [&](const auto& last) { aborted.set_value(last ? ErrorCode{} : last.error().code); });
      session.close(seconds(3600));
      EXPECT_TRUE(session.closed());
      over.set_value(bool{second});
    });
  });
  EXPECT_EQ(refused.get_future().get(), ErrorCode::kState);
  EXPECT_TRUE(over.get_future().get());
  EXPECT_EQ(aborted.get_future().get(), ErrorCode::kAborted);
  EXPECT_EQ(next.values, std::vector<float>(kCount, 2.0F));
  EXPECT_EQ(reduce(session, next, 3).error().code, ErrorCode::kState);
}

TEST(Session, DoneMayDestroyIt) {
  Sessions sessions = open_sessions("fp32", 2);
  std::vector<std::promise<bool>> over(2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    auto tensor = std::make_shared<Owned>(static_cast<float>(rank));
    Session& session = *sessions[rank];
    submit(session, *tensor, {0, 0, true}, [&, rank, tensor](const auto& report) {
      sessions[rank].reset();
      over[rank].set_value(bool{report});
    });
  }
  for (auto& each : over) EXPECT_TRUE(each.get_future().get());
}

// Rank 1 comes late, and rank 0's close waits for it; or rank 1 never comes, and close gives up.
// Neither ends the program where no thread can be started: not for the session, nor to join its own.
TEST(Session, NeedsAThreadToOpenAndNoneToEnd) {
  auto mesh = connect_inproc(1);
  ASSERT_TRUE(mesh) << mesh.error().message;
  {
    const testing::NoThreads limit;
    testing::expect_refused(Session::open("fp32", {}, std::move(mesh->front())), ErrorCode::kSystem,
                            "no thread");
  }
  // What the session leaves to the process is no leak to find.
  if (__lsan_disable != nullptr) __lsan_disable();
  Sessions sessions = open_sessions("fp32", 1);
  if (__lsan_enable != nullptr) __lsan_enable();
  Owned tensor(1.0F);
  std::promise<void> over;
  submit(*sessions[0], tensor, {0, 0, true}, [&](const Result<Report>&) {
    {
      const testing::NoThreads limit;  // of the whole process
      sessions[0].reset();
    }
    over.set_value();
  });
  EXPECT_EQ(over.get_future().wait_for(seconds(20)), std::future_status::ready);
}

TEST(Session, CloseWaitsAsLongAsItIsTold) {
  for (const bool comes : {true, false}) {
    const Sessions sessions = open_sessions("fp32", 2);
    Owned tensor(1.0F);
    Owned other(3.0F);
    std::promise<Result<Report>> over;
    submit(*sessions[0], tensor, {0, 0, true}, [&](const auto& report) { over.set_value(report); });
    std::thread late([&] {
      if (!comes) return;
      while (!sessions[0]->closed()) std::this_thread::yield();
      EXPECT_TRUE(reduce(*sessions[1], other, 0));
    });
    sessions[0]->close(comes ? seconds(3600) : seconds(0));
    late.join();
    const Result<Report> report = over.get_future().get();
    EXPECT_EQ(report.has_value(), comes);
    EXPECT_EQ(tensor.values[0], comes ? 2.0F : 1.0F);
    if (comes) continue;
    testing::expect_refused(report, ErrorCode::kAborted, 0, {"closed its session with 1 buckets in flight"});
    EXPECT_EQ(reduce(*sessions[1], other, 0).error().suspect, 0) << "the other rank is told";
  }
}

TEST(Session, AClosedOneKeepsWhatItHas) {
  Sessions sessions = open_sessions("3lc:s=1.9", 2);
  on_each(sessions, [](int rank, Session& session) {
    Owned tensor(static_cast<float>(rank));
    ASSERT_TRUE(reduce(session, tensor, 0));
    EXPECT_FALSE(session.closed());
    const auto state = session.save();
    session.close();
    session.close();
    EXPECT_TRUE(session.closed());
    EXPECT_GT(session.traffic().bytes_sent, 1000u);
    EXPECT_EQ(session.last_commit().step, 0u);
    session.abort("nobody hears this");
    const auto after = session.save();
    ASSERT_TRUE(after);
    EXPECT_EQ(*after, *state);
    EXPECT_TRUE(session.load(*state));
    testing::expect_refused(reduce(session, tensor, 1), ErrorCode::kState, "closed");
  });
}

// After a failure nothing is in flight: what a checkpoint needs can be had at once.
TEST(Session, AfterAnErrorItSavesAndDoesNoMore) {
  const Sessions sessions = open_sessions("3lc", 2);
  on_each(sessions, [](int rank, Session& session) {
    Owned tensor(4.0F);
    if (rank == 1) {
      session.abort("rank 1 has had enough");
      return;
    }
    const auto failed = reduce(session, tensor, 0);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().suspect, 1);
    EXPECT_NE(failed.error().message.find("had enough"), std::string::npos) << failed.error().message;
    EXPECT_EQ(tensor.values, std::vector<float>(kCount, 4.0F));
    EXPECT_TRUE(session.save());
    std::promise<bool> again;
    submit(session, tensor, {1, 0, true}, [&](const auto& report) { again.set_value(bool{report}); });
    EXPECT_TRUE(session.save()) << "a bucket that fails unasked is not in flight";
    EXPECT_FALSE(again.get_future().get());
  });
}

// Nothing can end it any more, and none of its buckets is in flight, which would fail.
TEST(Session, AStepThatIsLeftOpenIsTakenBack) {
  for (const bool aborts : {true, false}) {
    const Sessions sessions = open_sessions("3lc:s=1.9", 2);
    std::vector<std::vector<std::byte>> before(2);
    on_each(sessions, [&](int rank, Session& session) {
      Owned tensor(static_cast<float>(rank + 1));
      ASSERT_TRUE(reduce(session, tensor, 0));
      before[static_cast<std::size_t>(rank)] = *session.save();
      const Named named = tensor.named();
      ASSERT_TRUE(session.all_reduce(std::span(&named, 1), {1, 0, false}, seconds(20)));
      testing::expect_refused(session.save(), ErrorCode::kState);
    });
    aborts ? sessions[0]->abort("a fault") : sessions[0]->close();
    const std::optional<Error> failure = sessions[1]->failure(seconds(20));
    ASSERT_TRUE(failure);
    const char* why = aborts ? "a fault" : "rank 0 closed its session within a step";
    EXPECT_NE(failure->message.find(why), std::string::npos) << failure->message;
    for (const int rank : {0, 1}) {
      Session& session = *sessions[static_cast<std::size_t>(rank)];
      const auto after = session.save();
      ASSERT_TRUE(after) << after.error().message;
      EXPECT_EQ(*after, before[static_cast<std::size_t>(rank)]);
      EXPECT_TRUE(session.load(*after));
      EXPECT_EQ(session.last_commit().step, 0u);
    }
  }
}

// Names of different buckets are not compared. The second time what the first has left is in it, as in two
// steps.
TEST(Session, ATensorInTwoBucketsIsCodedTwice) {
  const Sessions one_step = open_sessions("3lc:s=1.9", 2);
  const Sessions two_steps = open_sessions("3lc:s=1.9", 2);
  for (const Sessions* sessions : {&one_step, &two_steps}) {
    on_each(*sessions, [&](int rank, Session& session) {
      for (std::uint32_t i = 0; i < 2; ++i) {
        Owned tensor(static_cast<float>(rank + 1));
        const Step step = sessions == &one_step ? Step{0, i, i == 1} : Step{i, 0, true};
        const Named named = tensor.named();
        ASSERT_TRUE(session.all_reduce(std::span(&named, 1), step, seconds(20)));
      }
    });
  }
  for (const std::size_t rank : {0U, 1U}) EXPECT_EQ(*one_step[rank]->save(), *two_steps[rank]->save());
}

// A rank that fails because of another names that one.
TEST(Session, AnAbortBlamesWhomItIsTold) {
  const Sessions sessions = open_sessions("3lc", 3);
  Owned tensor(4.0F);
  sessions[1]->abort("it lost its connection", 2);
  for (const int rank : {0, 1}) {
    const auto failed = reduce(*sessions[static_cast<std::size_t>(rank)], tensor, 0);
    testing::expect_refused(failed, ErrorCode::kAborted);
    EXPECT_EQ(failed.error().suspect, 2);
    EXPECT_EQ(failed.error().reporter, rank == 0 ? 1 : kNoRank);
    const char* told = rank == 0 ? "rank 1 reports: it lost its connection" : "it lost its connection";
    EXPECT_TRUE(failed.error().message.starts_with(told)) << failed.error().message;
  }
}

// Two sessions of a part of a job, whose ranks are 4 and 2 there.
Sessions open_row(const std::string& spec) {
  constexpr int kWorld = 2;
  std::vector<std::unique_ptr<Listener>> listeners;
  MeshOptions mesh;
  mesh.world_size = kWorld;
  mesh.names = {"global rank", {4, 2}};
  for (int rank = 0; rank < kWorld; ++rank) {
    listeners.push_back(*listen_tcp("127.0.0.1"));
    mesh.endpoints.push_back(listeners.back()->endpoint());
  }
  Sessions sessions(kWorld);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorld; ++rank) {
    threads.emplace_back([&, rank, own = mesh]() mutable {
      const auto at = static_cast<std::size_t>(rank);
      own.rank = rank;
      auto session = Session::connect(spec, {}, std::move(listeners[at]), own);
      ASSERT_TRUE(session) << session.error().text();
      sessions[at] = std::move(*session);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return sessions;
}

TEST(Session, OfAPartOfAJobNamesTheJobsRanks) {
  const Sessions sessions = open_row("fp32");
  on_each(sessions, [](int rank, Session& session) {
    Owned tensor(1.0F, "layers.rank 1.w");
    const Named named = tensor.named();
    const Step step{.number = 0, .last = true, .agreed = 7 + static_cast<std::uint64_t>(rank)};
    const auto failed = session.all_reduce(std::span(&named, 1), step, seconds(20));
    ASSERT_FALSE(failed);
    const Error& error = failed.error();
    testing::expect_error(error, ErrorCode::kMismatch, 2);
    EXPECT_EQ(error.ranks, std::vector{2});
    // Whoever is second hears it from the other.
    const char* told =
        "the replicas differ after this step: global rank 2 holds other means, or began the step with other "
        "weights, than the rest; no step of this session counts; were all ranks given the same seed or "
        "checkpoint?";
    EXPECT_TRUE(error.text().ends_with(told)) << error.text();
  });
}

// In its numbers, whichever session the error comes from.
TEST(Session, OfAPartOfAJobPassesOnErrorsOfOthers) {
  const Sessions sessions = open_row("fp32");
  const Error error{.code = ErrorCode::kAborted,
                    .message = "global rank 1 gave up: ValueError: rank 0",
                    .suspect = 1,
                    .reporter = 1,
                    .waits_for = 4,
                    .ranks = {0, 2},
                    .tensor = "layers.rank 1.w",
                    .advice = "mend it"};
  sessions[1]->abort(error);
  for (const auto& session : sessions) {
    const std::optional<Error> failure = session->failure(seconds(20));
    ASSERT_TRUE(failure);
    EXPECT_EQ(*failure, error);
  }
}

TEST(Session, OfAPartOfAJobSaysWhoReports) {
  const Sessions sessions = open_row("fp32");
  sessions[1]->abort("enough");
  const std::optional<Error> failure = sessions[0]->failure(seconds(20));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->message, "global rank 2 reports: enough");
  EXPECT_EQ(failure->suspect, 2);
  EXPECT_EQ(failure->reporter, 2);
}

// Nobody has to be in an exchange to learn why there will be none, or that a rank has gone.
TEST(Session, TellsWhyItHasEndedWithoutABucket) {
  for (const bool aborts : {true, false}) {
    const Sessions sessions = open_sessions("3lc", 3);
    EXPECT_FALSE(sessions[0]->failure());
    std::thread other([&] {
      const char* bug = "rank 1 gave up: ValueError: a bug";
      if (aborts) sessions[1]->abort(Error{.code = ErrorCode::kAborted, .message = bug, .reporter = 1});
      sessions[1]->close();
    });
    const std::optional<Error> failure = sessions[0]->failure(seconds(20));
    other.join();
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->code, aborts ? ErrorCode::kAborted : ErrorCode::kPeerLost);
    EXPECT_EQ(failure->suspect, 1);
    const char* why = aborts ? "rank 1 gave up: ValueError: a bug" : "rank 1 left in good order";
    EXPECT_EQ(failure->message, why);
    sessions[0]->close();
    ASSERT_TRUE(sessions[0]->failure(seconds(20)));
    EXPECT_EQ(sessions[0]->failure()->message, why);
  }
}

TEST(Session, ManyThreadsMayCallIt) {
  const Sessions sessions = open_sessions("fp32", 1);
  Session& session = *sessions[0];
  std::atomic<std::uint64_t> next_step = 0;
  std::atomic<int> refused = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        Owned tensor(1.0F);
        if (!reduce(session, tensor, next_step++)) ++refused;
        (void)session.save();
        (void)session.traffic();
        (void)session.memory();
      }
      session.close(seconds(10));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(session.closed());
  EXPECT_LT(refused, 80);
}

// A child has no communication thread: refused, not waited for, and nothing of the parent's is touched.
TEST(Session, AForkedChildIsRefused) {
  Sessions sessions = open_sessions("3lc", 1);
  Owned tensor(1.0F);
  ASSERT_TRUE(reduce(*sessions[0], tensor, 0));
  const pid_t child = fork();
  if (child == 0) {
    Session& session = *sessions[0];
    const auto refused = reduce(session, tensor, 1);
    const bool right = !refused && refused.error().code == ErrorCode::kState && !session.save() &&
                       !session.load({}) && !session.mask_sent({}) &&
                       session.failure()->code == ErrorCode::kState && session.last_commit().step == kNoStep;
    session.abort("not from here");
    session.close();
    sessions.clear();
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(reduce(*sessions[0], tensor, 1));
}

}  // namespace
}  // namespace deltawire::session_test
