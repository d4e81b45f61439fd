#include "linear/checkpoints.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/temporary_folder_testing.h"
#include "deltawire/connect.h"
#include "linear/epoch_rows.h"
#include "linear/trainer.h"

namespace deltawire::linear {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kKeys = 12;
constexpr int kEpochs = 3;
constexpr std::uint64_t kBatches = 4;

BlockStore drawn_rows(std::uint64_t seed) {
  BlockStore store(1 << 20);
  CounterRng random(seed);
  for (int blocks = 0; blocks < 5; ++blocks) {
    RowBlock block;
    for (int row = 0; row < 7 + blocks; ++row) {
      block.labels.push_back(random.next_uniform() < 0.5 ? -1.0F : 1.0F);
      for (std::uint32_t key = 0; key < kKeys; ++key) {
        if (random.next_uniform() > 0.3) continue;
        block.keys.push_back(key);
        block.values.push_back(static_cast<float>(random.next_uniform() - 0.5));
      }
      block.ends.push_back(static_cast<std::uint32_t>(block.keys.size()));
    }
    EXPECT_TRUE(store.add(block, blocks == 2));
  }
  return store;
}

std::unique_ptr<Exchange> exchange_of(std::unique_ptr<Transport> transport) {
  auto exchange = Exchange::open("direct(3lc)", std::move(transport), 1, std::chrono::seconds(30));
  EXPECT_TRUE(exchange);
  return *std::move(exchange);
}

std::unique_ptr<Exchange> lone_exchange() {
  return exchange_of(std::move(connect_inproc(1)->front()));
}

class CheckpointsOf : public ::testing::Test {
 protected:
  void SetUp() override {
    settings_.folder = folder_.path("kept");
    settings_.every = 1;
    settings_.training = "these";
    settings_.difference = [this](const std::string& saved) {
      return saved == settings_.training ? "" : "settings " + saved;
    };
    settings_.tell = [this](const std::string& line) { told_.push_back(line); };
    train_.optimizer = *parse_optimizer("adam");
    train_.optimizer.learning_rate = 0.1;
    train_.optimizer.weight_decay = 0.01;
    train_.batch = 1.0 / kBatches;
    train_.epochs = kEpochs;
    train_.stop = 0;
    train_.bias = true;
  }

  // Trains, up to so many steps; then it is interrupted.
  Result<TrainedModel> run(Checkpoints* checkpoints, std::uint64_t steps = ~std::uint64_t{0}) {
    BlockStore rows = drawn_rows(1);
    const auto exchange = lone_exchange();
    Trainer trainer(train_, rows, *exchange);
    return trainer.run({.epoch = [](const EpochReport&) {},
                        .interrupted = [&] { return exchange->steps() >= steps; },
                        .checkpoints = checkpoints});
  }
  Checkpoints checkpoints(int rank = 0, int world = 1) const { return {settings_, rank, world}; }

  void train_whole() {
    Checkpoints kept = checkpoints();
    ASSERT_TRUE(kept.prepare());
    ASSERT_TRUE(run(&kept));
  }
  Result<CheckpointReader> newest(std::uint64_t data_seed = 1) {
    const auto exchange = lone_exchange();
    return checkpoints().newest(*exchange, drawn_rows(data_seed).checksum());
  }
  std::string path(std::uint64_t step, const std::string& ranks = "0-of-1") const {
    const std::string digits = std::to_string(step);
    return settings_.folder + "/step-" + std::string(12 - digits.size(), '0') + digits + ".rank-" + ranks +
           ".checkpoint";
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(settings_.folder), {}));
  }
  static std::string text_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }

  testing::TemporaryFolder folder_;
  CheckpointSettings settings_;
  TrainSettings train_;
  std::vector<std::string> told_;
};

TEST_F(CheckpointsOf, ATrainingResumesBitForBitFromAnyStep) {
  for (const char* optimizer : {"sgd", "adagrad", "adam", "sgd and averages", "adam and averages"}) {
    const std::string_view name(optimizer);
    train_.optimizer.kind = parse_optimizer(name.substr(0, name.find(' ')))->kind;
    train_.average_power.reset();
    if (name.find(' ') != std::string_view::npos) train_.average_power = 2;
    const auto through = run(nullptr);
    ASSERT_TRUE(through);
    // Each checkpoint waits for the disk: one optimizer is cut everywhere, the others here and there.
    const std::uint64_t stride = name == "adam" ? 1 : 5;
    for (std::uint64_t cut = 2; cut < kEpochs * kBatches; cut += stride) {
      SCOPED_TRACE(std::string(optimizer) + ", cut after step " + std::to_string(cut));
      settings_.resume = false;
      settings_.force = true;
      settings_.every = 1 + cut % 2;
      Checkpoints first = checkpoints();
      ASSERT_TRUE(first.prepare());
      ASSERT_FALSE(run(&first, cut));
      settings_.resume = true;
      Checkpoints second = checkpoints();
      ASSERT_TRUE(second.prepare());
      const auto resumed = run(&second);
      ASSERT_TRUE(resumed) << resumed.error().message;
      EXPECT_EQ(resumed->weights, through->weights);
      ASSERT_EQ(resumed->epochs.size(), through->epochs.size());
      for (std::size_t i = 0; i < resumed->epochs.size(); ++i) {
        EXPECT_EQ(resumed->epochs[i].objective, through->epochs[i].objective);
        EXPECT_EQ(resumed->epochs[i].test_loss, through->epochs[i].test_loss);
        EXPECT_EQ(resumed->epochs[i].epoch, through->epochs[i].epoch);
        EXPECT_GT(resumed->epochs[i].compute_seconds, 0);  // also of one that was done when it was cut
      }
      EXPECT_GT(resumed->epochs.back().seconds, resumed->epochs.front().seconds);
      EXPECT_TRUE(fs::exists(path(kEpochs * kBatches)));
    }
  }
}

TEST_F(CheckpointsOf, TheLastTwoAreKeptAndUnfinishedOnesAreRemoved) {
  train_whole();
  EXPECT_EQ(files(), 2U);
  EXPECT_TRUE(fs::exists(path(kEpochs * kBatches)));
  EXPECT_TRUE(fs::exists(path(kEpochs * kBatches - 1)));
  write(path(5) + ".a1B2c3", "half");
  settings_.resume = true;
  ASSERT_TRUE(checkpoints().prepare());
  EXPECT_EQ(files(), 2U);
}

TEST_F(CheckpointsOf, AFileThatIsCutOrChangedIsPassedOverAloud) {
  train_whole();
  const std::string last = path(kEpochs * kBatches);
  const std::string whole = text_of(last);
  ASSERT_GT(whole.size(), 500U);
  const auto exchange = lone_exchange();
  const std::uint32_t data = drawn_rows(1).checksum();
  const auto check = [&](const std::string& what) {
    SCOPED_TRACE(what);
    told_.clear();
    const auto found = checkpoints().newest(*exchange, data);
    if (!found) {
      EXPECT_EQ(found.error().code, ErrorCode::kUnsupportedVersion) << found.error().message;
      EXPECT_NE(found.error().message.find(last), std::string::npos);
      return;
    }
    EXPECT_EQ(found->head().step, kEpochs * kBatches - 1);
    ASSERT_EQ(told_.size(), 1U);
    EXPECT_TRUE(told_.front().starts_with(last + ": "));
  };
  for (std::size_t bytes = whole.size(); bytes-- > 0;) {
    fs::resize_file(last, bytes);
    check("cut after byte " + std::to_string(bytes));
  }
  write(last, whole);
  std::fstream file(last, std::ios::binary | std::ios::in | std::ios::out);
  const auto put = [&](std::size_t at, char byte) {
    file.seekp(static_cast<std::streamoff>(at)).put(byte).flush();
  };
  for (std::size_t i = 0; i < whole.size(); ++i) {
    put(i, static_cast<char>(whole[i] ^ (1 << i % 8)));
    check("byte " + std::to_string(i) + " changed");
    put(i, whole[i]);
  }
  write(last, whole + "x");
  check("a byte more");
  write(last, whole);
  EXPECT_EQ(newest()->head().step, kEpochs * kBatches);
}

TEST_F(CheckpointsOf, WithNoneThatIsWholeTheWayOnIsNamed) {
  train_whole();
  for (const std::uint64_t step : {kEpochs * kBatches, kEpochs * kBatches - 1}) write(path(step), "torn");
  const auto found = newest();
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(found.error().message.find("begin anew, without --resume"), std::string::npos);
  EXPECT_EQ(told_.size(), 2U);
}

TEST_F(CheckpointsOf, OthersAreRefusedByName) {
  train_whole();
  const std::string last = path(kEpochs * kBatches);
  settings_.training = "others";
  const auto settings = newest();
  ASSERT_FALSE(settings);
  EXPECT_EQ(settings.error().message, last +
                                          ": was made with settings these; resume with the same settings, or "
                                          "begin in another folder");
  settings_.training = "these";
  const auto data = newest(2);
  ASSERT_FALSE(data);
  EXPECT_TRUE(data.error().message.starts_with(last + ": was made with other data"));
  fs::copy(last, path(20));
  const auto name = newest();
  ASSERT_FALSE(name);
  EXPECT_TRUE(name.error().message.starts_with(path(20) + ": has another's name: it is of step 12"));
  for (const std::uint64_t step : {kEpochs * kBatches - 1, kEpochs * kBatches}) {
    fs::rename(path(step), path(step, "0-of-3"));
  }
  fs::remove(path(20));
  const auto world = newest();
  ASSERT_FALSE(world);
  EXPECT_NE(world.error().message.find("checkpoints of 3 workers, and this training has 1 worker"),
            std::string::npos);
}

TEST_F(CheckpointsOf, EarlierTrainingsAreNotOverwrittenUnasked) {
  settings_.resume = true;
  EXPECT_FALSE(checkpoints().prepare());  // there is not a folder
  settings_.resume = false;
  ASSERT_TRUE(checkpoints().prepare());
  EXPECT_EQ(files(), 0U);
  settings_.resume = true;
  const Status none = checkpoints().prepare();
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("no checkpoint to resume from"), std::string::npos);
  settings_.resume = false;
  train_whole();
  const Status there = checkpoints().prepare();
  ASSERT_FALSE(there);
  EXPECT_NE(there.error().message.find("checkpoints of an earlier training"), std::string::npos);
  EXPECT_EQ(files(), 2U);
  settings_.force = true;
  ASSERT_TRUE(checkpoints().prepare());
  EXPECT_EQ(files(), 0U);
}

TEST_F(CheckpointsOf, RanksResumeFromTheNewestStepThatAllHave) {
  ASSERT_TRUE(checkpoints(0, 2).prepare());
  const std::vector<std::vector<std::uint64_t>> steps{{10, 20}, {20, 30}};
  for (int rank = 0; rank < 2; ++rank) {
    Checkpoints own = checkpoints(rank, 2);
    for (const std::uint64_t step : steps[static_cast<std::size_t>(rank)]) {
      auto file = own.begin(step, 7);
      ASSERT_TRUE(file);
      ASSERT_TRUE(own.keep(*file, step));
    }
  }
  auto mesh = connect_inproc(2);
  std::vector<std::uint64_t> found(2);
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        const auto exchange = exchange_of(std::move((*mesh)[static_cast<std::size_t>(rank)]));
        const auto reader = checkpoints(rank, 2).newest(*exchange, 7);
        if (reader) found[static_cast<std::size_t>(rank)] = reader->head().step;
      });
    }
  }
  EXPECT_EQ(found, (std::vector<std::uint64_t>{20, 20}));
}

TEST(EpochRowsThat, AreSkippedComeNoMore) {
  BlockStore store = drawn_rows(3);
  const auto take_from = [&](EpochRows& rows) {
    std::vector<float> values;
    while (true) {
      const auto taken = rows.take(3, [&](const RowBlock& block, std::span<const std::uint32_t> numbers) {
        for (const std::uint32_t row : numbers) values.push_back(block.values[block.first_of(row)]);
      });
      if (!taken || *taken == 0) return values;
    }
  };
  EpochRows all(store, 5, 2);
  const std::vector<float> expected = take_from(all);
  for (std::size_t skipped = 0; skipped <= expected.size(); ++skipped) {
    EpochRows rows(store, 5, 2);
    for (std::uint64_t left = skipped; left > 0;) left -= *rows.take(left, [](const auto&, auto) {});
    EpochRows later(store, 5, 2);
    ASSERT_TRUE(later.skip(skipped));
    const std::vector<float> rest(expected.begin() + static_cast<std::ptrdiff_t>(skipped), expected.end());
    EXPECT_EQ(take_from(rows), rest);
    EXPECT_EQ(take_from(later), rest);
  }
}

}  // namespace
}  // namespace deltawire::linear
