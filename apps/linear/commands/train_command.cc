// deltawire train linear: from a file of sparse rows to a model.
#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/errors.h"
#include "cli/number_text.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "deltawire/optimizer_rules.h"
#include "deltawire/reducer.h"
#include "deltawire/spec.h"
#include "linear/commands/commands.h"
#include "linear/commands/model_file.h"
#include "linear/commands/ranks.h"
#include "linear/commands/train_report.h"
#include "linear/lazy_optimizer.h"
#include "linear/read_rows.h"
#include "linear/trainer.h"

namespace deltawire::linear {
namespace {

struct TrainCommandOptions {
  DataSettings data;
  TrainSettings train;
  RankOptions ranks;
  int world = 1;      // once the ranks are connected
  std::string alike;  // must be the same on all ranks; MeshOptions::settings
  std::string loss = "logistic";
  std::string optimizer = "adagrad";
  bool average = true;
  std::optional<double> average_power;
  std::string codec = "fastsgd";
  std::optional<double> learning_rate;  // defaults depend on the optimizer, here and below
  std::optional<double> rate_decay;
  double l2 = 1e-4;
  double held_out = 30;
  double stop = 1;
  double memory_mb = 2048;
  std::string model;
  std::string json;
  bool force = false;

  nlohmann::ordered_json settings() const {
    nlohmann::ordered_json all{{"loss", loss}, {"data", data.data}, {"test", data.tests}, {"workers", world}};
    all["codec"] = codec;
    all["optimizer"] = optimizer_spec(train.optimizer);
    all["rate_decay"] = train.rate_decay;
    if (train.average_power) all["average_power"] = *train.average_power;
    all["l2"] = l2;
    all["batch"] = train.batch;
    all["epochs"] = train.epochs;
    all["stop_percent"] = stop;
    all["held_out_percent"] = data.tests.empty() ? held_out : 0;
    all["bias"] = train.bias;
    all["hash_bits"] = data.parse.hash_bits;
    all["merge_duplicates"] = data.parse.merge_duplicates;
    if (data.parse.positive) all["positive"] = *data.parse.positive;
    all["seed"] = train.seed;
    return all;
  }
};

void complete(TrainCommandOptions& options) {
  options.train.loss = *find_loss(options.loss);
  OptimizerSettings& optimizer = options.train.optimizer;
  optimizer = cli::value_or_misused(parse_optimizer(options.optimizer), "--optimizer: ");
  const Rates rates = default_rates(optimizer.kind);
  optimizer.learning_rate = options.learning_rate.value_or(rates.learning_rate);
  options.train.rate_decay = options.rate_decay.value_or(rates.decay);
  optimizer.weight_decay = options.l2;
  (void)cli::value_or_misused(LazyOptimizer::make(optimizer, 0));
  if (options.average_power && !options.average)
    throw cli::misused("--average-power: --no-average keeps none");
  if (options.average_power) options.train.average_power = options.average_power;
  if (!options.average) options.train.average_power.reset();
  if (const Status usable = check_exchange_spec(options.codec); !usable)
    throw cli::misused("--codec: " + usable.error().text());
  options.train.stop = options.stop / 100;
  options.data.parse.held_out = options.held_out / 100;
  options.data.parse.seed = options.train.seed;
  options.data.memory_bytes = static_cast<std::uint64_t>(options.memory_mb * 1048576);
  // Paths of the data may differ from machine to machine; settings of the training may not.
  nlohmann::ordered_json alike = options.settings();
  alike.erase("data");
  alike.erase("test");
  alike.erase("workers");
  options.alike = alike.dump();
  if (options.model == "-") throw cli::misused("--model: - has the lines for people; name a file");
  std::vector<std::string> inputs{options.ranks.token_file};
  for (const auto& patterns : {options.data.data, options.data.tests}) {
    for (const std::string& pattern : patterns)
      std::ranges::copy(paths_of(pattern), std::back_inserter(inputs));
  }
  cli::check_outputs({options.model, options.json}, options.force, inputs);
}

// Where the optimizer doesn't go with the codec. Pairs without a residual are not concerned.
void warn_of_optimizer(const TrainCommandOptions& options) {
  const auto spec = Spec::parse(options.codec, {.pattern = "direct"});
  if (!spec) return;
  const auto optimizer = OptimizerTraits::of(options.train.optimizer);
  for (const std::string& text : optimizer_warnings(*spec, optimizer, OptimizerPlace::kOwnProgram)) {
    std::cerr << "warning: " << text << "\n";
  }
}

Result<TrainedModel> fit(TrainCommandOptions& options, Exchange& exchange) {
  ASSIGN_OR_RETURN(auto store,
                   load_data(options.data, {exchange.rank(), exchange.world()}, cli::interrupted));
  const bool prints = exchange.rank() == 0 && options.json != "-";
  if (exchange.rank() == 0 && exchange.world() > 1) warn_of_optimizer(options);
  Trainer trainer(options.train, store, exchange);
  auto model = trainer.run(
      {.epoch =
           [&](const EpochReport& report) {
             if (!prints) return;
             std::cout << epoch_line(report, options.train) << "\n" << std::flush;
             if (report.epoch > 1) return;
             std::cout << (exchange.world() == 1 ? "one worker: nothing is sent, and no codec is used"
                                                 : "exchange by " + exchange.spec())
                       << "\n"
                       << std::flush;
             if (!options.model.empty()) return;
             std::cout << "no model will be written; --model FILE keeps it" << "\n" << std::flush;
           },
       .interrupted = cli::interrupted});
  if (model && prints) std::cout << ending_lines(options.train, *model) << std::flush;
  return model;
}

void keep(const TrainCommandOptions& options, const Exchange& exchange, TrainedModel& trained) {
  nlohmann::ordered_json settings = options.settings();
  settings["exchange_used"] = exchange.spec();
  if (!options.model.empty()) {
    LinearModel model{.weights = trained.weights,
                      .loss = options.train.loss,
                      .hash_bits = options.data.parse.hash_bits,
                      .settings = settings.dump()};
    if (options.train.bias) {
      model.bias = model.weights.back();
      model.weights.pop_back();
    }
    write_model(options.model, model, options.force);
  }
  cli::write_output(options.json, train_json(settings, options.train, trained), options.force);
}

void train_as(TrainCommandOptions& options, Ranks& ranks) {
  auto transport = ranks.connect(options.alike);
  options.world = transport->world_size();
  const bool writes = transport->rank() == 0;
  const auto exchange = cli::value_or_failed(
      Exchange::open(options.codec, std::move(transport), options.train.seed, options.ranks.timeout()));
  auto trained = fit(options, *exchange);
  if (!trained) exchange->abort(trained.error().text());
  exchange->close();
  if (cli::interrupted()) throw cli::Failure{cli::kExitInterrupted, "interrupted: no model is written"};
  if (!trained) throw cli::failed(trained.error().text());
  if (!writes) return;
  try {
    keep(options, *exchange, *trained);
  } catch (cli::Failure& failure) {
    failure.message += "; make room, and train again";
    throw;
  }
}

void train(TrainCommandOptions& options) {
  complete(options);
  // Before there are processes, so that a missing file is reported once.
  for (const auto* files : {&options.data.data, &options.data.tests}) {
    if (const auto found = find_data_files(*files); !found) throw cli::failed(found.error().text());
  }
  cli::catch_interrupts();
  auto ranks = Ranks::start(options.ranks);
  try {
    train_as(options, ranks);
  } catch (const cli::Failure& failure) {
    // A forked worker stays silent: rank 0 reports its errors.
    if (ranks.is_silent()) _exit(failure.exit_status);
    throw;
  }
  if (ranks.is_silent()) _exit(0);
}

std::string train_footer() {
  return "Trains on rows of libsvm text, \"LABEL INDEX:VALUE INDEX:VALUE ...\". Minimizes the mean loss\n"
         "per row plus L2 / 2 times the sum of squares of the weights, in minibatches, until the objective\n"
         "is within --stop percent of its minimum. Prints how far it is in any case. Without --test, 30 %\n"
         "of the rows are held out.\n"
         "\n"
         "LOSS is logistic, squared (linear regression), hinge (SVM) or squared-hinge. Labels are 0 and 1,\n"
         "or -1 and 1; any number for squared; with --positive LABEL that label against all others.\n"
         "FILE may be a pattern: 'part-*.libsvm'; - is standard input. With at least as many files as\n"
         "workers, each worker reads its own files. Fewer files are divided by bytes.\n"
         "CODEC is the codec of gradients, any of 'deltawire codecs'. Codecs for pairs of key and value\n"
         "(fastsgd, logquant, sketchml) send what a batch touches, others the whole gradient. direct(fp32)\n"
         "does not compress; plain, which is not a codec, sends uncompressed pairs of 8 bytes to all\n"
         "workers. One worker sends nothing and uses its gradient as it is.\n"
         "Pairs go to all other ranks. With 'direct(fastsgd)' each key goes to its owner, and owners send\n"
         "the mean back, compressed once more: fewer bytes with many ranks that share keys.\n"
         "\n"
         "On a cluster you, srun or mpirun start each rank; srun and mpirun set its number. Ranks connect\n"
         "through rank 0's address, --rendezvous.\n"
         "\n"
         "Examples:\n"
         "  deltawire train linear --data a9a --model a9a.npz\n"
         "  deltawire train linear --data url.libsvm --workers 4 --codec fastsgd --model url.npz --json "
         "url.json\n"
         "  deltawire train linear --data a9a --test a9a.t --loss hinge --optimizer adam --lr 0.02\n"
         "  deltawire train linear --data 'part-*' --rendezvous node1:7171 --rank 1 --world 4 --token-file "
         "job\n"
         "  mpirun -n 8 deltawire train linear --data 'part-*' --rendezvous node1:7171 --token-file job\n"
         "  deltawire predict --model a9a.npz --data a9a.t > probabilities.txt\n";
}

void add_data(CLI::App* command, TrainCommandOptions& options) {
  cli::add_value(*command, "--data FILE", options.data.data, "Rows to train on")->required();
  cli::add_value(*command, "--test FILE", options.data.tests,
                 "Rows to evaluate with, instead of held-out ones");
  cli::add_value(*command, "--held-out P", options.held_out, "Percent of rows to hold out without --test")
      ->check(cli::number_range(0, 99));
  command->add_flag("--merge-duplicates", options.data.parse.merge_duplicates,
                    "Sort a row's features and add those with the same index; else an error");
  cli::add_value(*command, "--positive LABEL", options.data.parse.positive,
                 "Train this label against all others");
  cli::add_value(*command, "--hash-bits B", options.data.parse.hash_bits, "Hash indices to 2^B features")
      ->check(CLI::Range(1, 31).description(""));
  cli::add_value(*command, "--memory MB", options.memory_mb,
                 "MiB of rows in a worker's memory; the rest go to a file")
      ->check(cli::number_range(0, 1e9));
}

void add_training(CLI::App* command, TrainCommandOptions& options) {
  cli::add_value(*command, "--loss LOSS", options.loss, "What to minimize")
      ->check(CLI::IsMember({"logistic", "squared", "hinge", "squared-hinge"}));
  cli::add_value(*command, "--optimizer SPEC", options.optimizer, "sgd, adagrad or adam; adam:beta2=0.99");
  cli::add_value(*command, "--lr X", options.learning_rate,
                 "Learning rate; default: adagrad 0.7, adam 0.05, sgd 0.1")
      ->check(cli::number_range(0, 1e9));
  cli::add_value(*command, "--decay X", options.rate_decay,
                 "Use lr / (1 + e X) in data epoch e, from 0; default: adagrad 0.1, adam 0.2, sgd 0.01")
      ->check(cli::number_from_0());
  cli::add_value(*command, "--l2 X", options.l2, "Factor of L2")->check(cli::number_from_0());
  command->add_flag("--average,!--no-average", options.average,
                    "Evaluate and write averages of weights over all steps, or the last weights");
  cli::add_value(*command, "--average-power P", options.average_power,
                 "Weight of step t in the average is t^P; default: t^3")
      ->check(cli::number_range(0, 16));
  command->add_flag("--bias,!--no-bias", options.train.bias, "Train a bias, or none");
  cli::add_value(*command, "--batch N", options.train.batch,
                 "Rows per step, of all workers; up to 1: a proportion of all rows")
      ->transform(CLI::Validator(cli::digits_of_count, ""))
      ->check(cli::positive_number());
  cli::add_value(*command, "--epochs N", options.train.epochs, "Maximum number of passes over the data")
      ->transform(cli::count_range(1, 1000000));
  cli::add_value(*command, "--stop P", options.stop,
                 "End when the objective is within P percent of its minimum; 0: after --epochs")
      ->check(cli::number_range(0, 100));
  cli::add_value(*command, "--seed N", options.train.seed, "Seed of the split and the shuffle");
}

void add_ranks(CLI::App* command, TrainCommandOptions& options) {
  cli::add_value(*command, "--codec CODEC", options.codec, "Codec of gradients");
  add_rank_options(command, options.ranks);
  cli::add_value(*command, "--model FILE", options.model,
                 "Write the model to FILE (.npz), for NumPy and 'predict'");
  cli::add_value(*command, "--json FILE", options.json, "Write all figures to FILE; - prints them");
  command->add_flag("--force", options.force, "Replace files that exist");
}

}  // namespace

void add_train_command(CLI::App& app) {
  CLI::App* train_app =
      app.add_subcommand("train", "Train a linear model on sparse data with several workers");
  train_app->require_subcommand(1);
  train_app->footer(
      "Example:\n  deltawire train linear --data a9a --model a9a.npz\n\n"
      "Run 'deltawire train linear --help' for more.\n");
  CLI::App* command = train_app->add_subcommand("linear", "Logistic and linear regression, SVM; with L2");
  const auto options = std::make_shared<TrainCommandOptions>();
  add_data(command, *options);
  add_training(command, *options);
  add_ranks(command, *options);
  command->footer(train_footer());
  command->callback([options] { train(*options); });
}

}  // namespace deltawire::linear
