// Servers and workers in step: the same bits everywhere, and nothing lost.
#include "deltawire/server.h"

#include <gtest/gtest.h>

#include "deltawire/optimizer.h"
#include "server/served_model.h"
#include "server/server_testing.h"
#include "transport/mesh_testing.h"

namespace deltawire::server_test {
namespace {

struct Codecs {
  std::string push, pull;
};

class EveryCodec : public ::testing::TestWithParam<Codecs> {};

TEST_P(EveryCodec, LeavesWorkersWithTheServersBits) {
  for (const int servers : {1, 2}) {
    Job job{.options = {.servers = servers, .push = GetParam().push, .pull = GetParam().pull},
            .workers = 3,
            .optimizer = "momentum:lr=0.1"};
    const Outcome outcome = run(job);
    expect_equal_bits(outcome);
    for (const ServerCounts& counts : outcome.server_counts) EXPECT_EQ(counts.steps, job.steps);
    for (std::size_t i = 0; i < outcome.view[0].size(); ++i) ASSERT_TRUE(std::isfinite(outcome.view[0][i]));
  }
}

INSTANTIATE_TEST_SUITE_P(Server, EveryCodec,
                         ::testing::Values(Codecs{"3lc", "3lc:s=1.75"}, Codecs{"sbc:p=1%", "3lc"},
                                           Codecs{"fp32", "fp32"}, Codecs{"bf16", "qsgd"},
                                           Codecs{"topk:k=1%", "int8"},
                                           Codecs{"conv*: 3lc, rest fp32", "fc: int8, rest bf16"}));

TEST(Server, StepsTheOptimizerAsOneMachineWould) {
  for (const std::string optimizer : {"sgd:lr=0.5", "momentum:lr=0.1", "adam:lr=0.01"}) {
    const Outcome outcome = run(
        {.options = {.servers = 2, .push = "fp32", .pull = "fp32"}, .workers = 3, .optimizer = optimizer});
    Model model(7);
    auto alone = make_optimizer(optimizer);
    for (std::uint64_t step = 0; step < 5; ++step) {
      for (std::size_t tensor = 0; tensor < shapes().size(); ++tensor) {
        Values mean(shapes()[tensor].second, 0.0F);
        for (std::size_t worker = 0; worker < 3; ++worker) {
          const Values each = gradient(worker, step, tensor);
          for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += each[i] / 3;
        }
        ASSERT_TRUE(alone->step(shapes()[tensor].first, model.values[tensor], mean));
      }
    }
    for (std::size_t tensor = 0; tensor < shapes().size(); ++tensor) {
      for (std::size_t i = 0; i < model.values[tensor].size(); ++i) {
        ASSERT_NEAR(outcome.view[tensor][i], model.values[tensor][i], 2e-4)
            << optimizer << tensor << " " << i;
      }
    }
  }
}

TEST(Server, LosesNothingOfAGradient) {
  const Outcome outcome =
      run({.options = {.servers = 2, .push = "3lc:s=1.75", .pull = "sbc:p=1%"}, .workers = 3, .steps = 9});
  expect_nothing_lost(outcome);
  for (std::size_t tensor = 0; tensor < shapes().size(); ++tensor) {
    for (const auto& residuals : outcome.residuals) {
      const bool waits = std::ranges::any_of(residuals[tensor], [](float value) { return value != 0; });
      EXPECT_EQ(waits, tensor != 1) << "the raw tensor has no residual, the others have";
    }
  }
}

// Of means something may be forgotten; a pull's are changes of the model.
TEST(Server, ForgetsNothingOfItsModel) {
  const auto job = [](std::string pull) {
    return Job{.options = {.push = "fp32", .pull = std::move(pull)}, .workers = 2, .steps = 9};
  };
  const Outcome kept = run(job("topk:k=5%"));
  EXPECT_EQ(run(job("topk:k=5% with pull_decay=0.5")).view, kept.view);
}

// What 3lc leaves behind is at most half of what was to be sent: the last change and what was left before. So
// it stays below the largest change, 0.05 here, unless some of it is sent twice or never.
TEST(Server, ShowsWorkersWhatTheOptimizerHas) {
  const Outcome outcome = run({.options = {.push = "fp32", .pull = "3lc"}, .workers = 2, .steps = 40});
  for (std::size_t tensor = 0; tensor < shapes().size(); ++tensor) {
    for (std::size_t i = 0; i < shapes()[tensor].second; ++i) {
      ASSERT_NEAR(outcome.view[tensor][i], outcome.master[tensor][i], 0.051) << tensor << " " << i;
    }
  }
}

TEST(Server, EncodesAChangeOnceForAllWorkers) {
  const Outcome outcome = run({.options = {.push = "3lc", .pull = "3lc"}, .workers = 4, .steps = 6});
  EXPECT_EQ(outcome.server_counts[0].encodes, 6 * shapes().size());
  std::uint64_t pulled = 0;
  std::uint64_t pushed = 0;
  for (const ServerCounts& counts : outcome.worker_counts) {
    EXPECT_EQ(counts.pull_bytes, outcome.worker_counts[0].pull_bytes);
    pulled += counts.pull_bytes;
    pushed += counts.push_bytes;
  }
  EXPECT_EQ(outcome.server_counts[0].pull_bytes, pulled);
  EXPECT_EQ(outcome.server_counts[0].push_bytes, pushed);
}

TEST(Server, MakesTheSameModelInEveryRun) {
  const Job job{.options = {.servers = 2, .push = "qsgd", .pull = "3lc"}, .workers = 4};
  const Outcome once = run(job);
  const Outcome again = run(job);
  EXPECT_EQ(once.view, again.view);
  EXPECT_EQ(once.master, again.master);
}

TEST(Server, MakesTheSameModelOverTcp) {
  const Job job{.options = {.servers = 2, .push = "3lc", .pull = "3lc"}, .workers = 2};
  const Outcome outcome = run(job, test::connect_threads_over_tcp(4, {}));
  expect_equal_bits(outcome);
  EXPECT_EQ(outcome.view, run(job).view);
}

// A layer's change can be had before another layer's gradient is there.
TEST(Server, AnswersLayerByLayer) {
  auto mesh = connect_inproc(2);
  ASSERT_TRUE(mesh);
  std::thread server([&] {
    Model model(7);
    auto made = make_server(model.tensors, "sgd:lr=1", {}, *(*mesh)[0]);
    ASSERT_TRUE((*made)->step(soon()));
    const auto closed = (*made)->step(soon());
    ASSERT_TRUE(closed);
    EXPECT_FALSE(*closed);
    EXPECT_EQ((*made)->step(soon()).error().code, ErrorCode::kState);
  });
  Model model(99);
  auto worker = make_worker(model.tensors, {}, *(*mesh)[1]);
  ASSERT_TRUE(worker);
  EXPECT_EQ((*worker)->push(0, gradient(0, 0, 0)).error().code, ErrorCode::kState) << "not open";
  ASSERT_TRUE((*worker)->open(soon()));
  EXPECT_EQ((*worker)->pull(2, soon()).error().code, ErrorCode::kState) << "not pushed";
  EXPECT_EQ((*worker)->push(0, Values(3)).error().code, ErrorCode::kInvalidArgument);
  for (const std::size_t tensor : {std::size_t{2}, std::size_t{0}, std::size_t{1}}) {
    const Values before = model.values[tensor];
    ASSERT_TRUE((*worker)->push(tensor, gradient(0, 0, tensor)));
    ASSERT_TRUE((*worker)->pull(tensor, soon()));
    EXPECT_NE(model.values[tensor], before);
    EXPECT_EQ((*worker)->push(tensor, gradient(0, 0, tensor)).error().code, ErrorCode::kState);
  }
  ASSERT_TRUE((*worker)->pull(soon()));
  EXPECT_EQ((*worker)->step(), 1U);
  ASSERT_TRUE((*worker)->close(soon()));
  server.join();
}

TEST(Server, WarnsWhereTheOptimizerDoesNotGoWithThePush) {
  const auto warnings = [](std::string_view optimizer, std::string push, std::string pull) {
    const auto texts = server_warnings(optimizer, {.push = std::move(push), .pull = std::move(pull)});
    EXPECT_TRUE(texts) << texts.error().message;
    return texts.value_or(std::vector<std::string>());
  };
  const auto late = warnings("momentum:lr=0.1", "conv*: sbc:p=1%, rest 3lc", "3lc");
  ASSERT_EQ(late.size(), 1);
  EXPECT_NE(late[0].find("'sbc:p=0.01' sends most of a gradient in later steps"), std::string::npos);
  EXPECT_NE(late[0].find("give SGD momentum=0 and 5 times the learning rate"), std::string::npos) << late[0];
  EXPECT_EQ(warnings("adamw", "3lc", "fp32").size(), 1);
  EXPECT_EQ(warnings("momentum", "3lc", "3lc").size(), 0);
  EXPECT_EQ(warnings("sgd", "sbc", "3lc").size(), 0);
  EXPECT_EQ(warnings("momentum", "int8", "sbc").size(), 0) << "no optimizer steps by what is pulled";
  EXPECT_FALSE(server_warnings("sgd", {.push = "no codec"}));
  EXPECT_FALSE(server_warnings("no optimizer", {}));
}

TEST(Server, SaysWhatAModelMayNotBe) {
  auto mesh = connect_inproc(2);
  ASSERT_TRUE(mesh);
  Transport& rank0 = *(*mesh)[0];
  Model model(7);
  const auto code = [&](const ServerOptions& options) {
    return make_server(model.tensors, "sgd", options, rank0).error().code;
  };
  EXPECT_EQ(code({.servers = 0}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.servers = 2}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.backup = 1}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.max_lag = 0}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.push = "no"}), ErrorCode::kUnknownCodec);
  EXPECT_EQ(make_worker(model.tensors, {}, rank0).error().code, ErrorCode::kInvalidArgument);
  for (const std::uint64_t rows : {24U, 26U}) {  // in place of 25
    const std::uint64_t dims[] = {rows, 40};
    model.tensors[2].tensor.dims = dims;
    EXPECT_FALSE(make_server(model.tensors, "sgd", {}, rank0)) << rows;
    model.tensors[2].tensor.dims = {};
  }
  model.tensors[1].tensor.values = model.tensors[0].tensor.values;  // a worker writes to both
  const auto shared = make_worker(model.tensors, {}, *(*mesh)[1]);
  ASSERT_FALSE(shared);
  EXPECT_NE(shared.error().message.find("share memory"), std::string::npos) << shared.error().message;
  model.tensors[1].tensor.dtype = DType::kF16;
  EXPECT_EQ(code({}), ErrorCode::kUnsupportedDType);
  model.tensors[1] = model.tensors[0];
  EXPECT_EQ(code({}), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace deltawire::server_test
