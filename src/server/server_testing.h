// For tests: servers and workers as threads, with gradients that follow from worker, step and tensor.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "deltawire/connect.h"
#include "deltawire/server.h"

namespace deltawire::server_test {

using Values = std::vector<float>;

inline Deadline soon(int seconds = 30) {
  return Clock::now() + std::chrono::seconds(seconds);
}

// Three tensors: one that two servers cut, one that travels raw, one between.
inline const std::vector<std::pair<std::string, std::size_t>>& shapes() {
  static const std::vector<std::pair<std::string, std::size_t>> all = {
      {"conv", 40000}, {"bias", 10}, {"fc", 1000}};
  return all;
}

// Of matrices, where a job has them.
inline std::span<const std::uint64_t> dims_of(std::size_t tensor) {
  static const std::vector<std::uint64_t> all[] = {{200, 20, 10}, {10}, {25, 40}};
  return all[tensor];
}

inline float drawn(std::uint64_t seed, std::uint64_t at) {
  std::uint64_t bits = (seed + 1) * 0x9E3779B97F4A7C15u + (at + 1) * 0xBF58476D1CE4E5B9u;
  bits = (bits ^ (bits >> 31)) * 0x94D049BB133111EBu;
  return static_cast<float>(static_cast<double>(bits >> 40) / 16777216.0 - 0.5);
}

inline Values gradient(std::size_t worker, std::uint64_t step, std::size_t tensor) {
  Values values(shapes()[tensor].second);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 0.1F * drawn(1000 * step + 10 * worker + tensor, i);
  }
  return values;
}

struct Model {
  std::vector<Values> values;
  std::vector<Named> tensors;

  explicit Model(std::uint64_t seed, bool has_dims = false) {
    for (std::size_t tensor = 0; tensor < shapes().size(); ++tensor) {
      Values made(shapes()[tensor].second);
      for (std::size_t i = 0; i < made.size(); ++i) made[i] = drawn(seed + tensor, i);
      values.push_back(std::move(made));
    }
    for (std::size_t tensor = 0; tensor < shapes().size(); ++tensor) {
      tensors.push_back(
          {shapes()[tensor].first, {.values = values[tensor].data(), .count = values[tensor].size()}});
      if (has_dims) tensors.back().tensor.dims = dims_of(tensor);
    }
  }
};

// A worker's parameters after a pull, with the version that it said they were.
struct Seen {
  std::uint64_t version = 0;
  std::vector<Values> values;
};

// What the optimizer and the workers had at the end, by tensor.
struct Outcome {
  std::vector<Values> view, master;
  std::vector<std::vector<Values>> workers;    // by worker
  std::vector<std::vector<Values>> residuals;  // by worker
  std::vector<ServerCounts> server_counts, worker_counts;
  std::vector<std::vector<std::byte>> server_states;
  std::vector<std::uint64_t> versions;      // by worker, after close()
  std::vector<std::vector<Values>> pushed;  // by worker: the sum of what it handed in
  std::vector<std::vector<Values>> views;   // by version, from 1
  std::vector<std::vector<Seen>> seen;      // by worker
};

struct Job {
  ServerOptions options = {};
  int workers = 2;
  std::string optimizer = "sgd:lr=1";
  std::uint64_t steps = 5;
  std::vector<LinkOptions> links = {};
  bool has_dims = false;
  // Of worker 0, where it makes fewer than the others.
  std::uint64_t first_stops_at = ~std::uint64_t{0};
  // Called by a worker before each of its steps, when it has pushed all of one, and when it has pulled.
  std::function<void(std::size_t worker, std::uint64_t step)> before = [](std::size_t, std::uint64_t) {};
  std::function<void(std::size_t worker, std::uint64_t step)> pushed = [](std::size_t, std::uint64_t) {};
  std::function<void(std::size_t worker, std::uint64_t step)> pulled = [](std::size_t, std::uint64_t) {};
};

inline std::vector<Values> zeros() {
  std::vector<Values> all;
  for (const auto& shape : shapes()) all.emplace_back(shape.second, 0.0F);
  return all;
}

// Each server writes to its own elements.
inline void copy_model(const ParameterServer& server, std::vector<Values>& view,
                       std::vector<Values>* master) {
  for (std::size_t i = 0; i < server.parts().size(); ++i) {
    const ServedPart& part = server.parts()[i];
    const auto first = static_cast<std::ptrdiff_t>(part.first);
    std::ranges::copy(server.view(i), view[part.tensor].begin() + first);
    if (master != nullptr) std::ranges::copy(server.master(i), (*master)[part.tensor].begin() + first);
  }
}

// A step's gradients, which are added to `handed`.
inline Status push_all(ParameterWorker& worker, std::size_t at, std::vector<Values>* handed = nullptr) {
  for (std::size_t tensor = shapes().size(); tensor-- > 0;) {
    const Values values = gradient(at, worker.step(), tensor);
    if (Status pushed = worker.push(tensor, values); !pushed) return pushed;
    for (std::size_t i = 0; handed != nullptr && i < values.size(); ++i) (*handed)[tensor][i] += values[i];
  }
  return {};
}

inline std::vector<Values> residual_of(const ParameterWorker& worker) {
  std::vector<Values> waits = zeros();
  for (std::size_t tensor = 0; tensor < shapes().size(); ++tensor) {
    EXPECT_TRUE(worker.add_residual(tensor, waits[tensor]));
  }
  return waits;
}

inline void serve(const Job& job, Transport& transport, Outcome& outcome) {
  Model model(7, job.has_dims);
  auto server = make_server(model.tensors, job.optimizer, job.options, transport);
  ASSERT_TRUE(server) << server.error().message;
  for (;;) {
    const Result<bool> made = (*server)->step(soon());
    ASSERT_TRUE(made) << made.error().message;
    if (!*made) break;
    const std::uint64_t version = (*server)->counts().steps;
    if (version < outcome.views.size()) copy_model(**server, outcome.views[version], nullptr);
  }
  copy_model(**server, outcome.view, &outcome.master);
  Result<std::vector<std::byte>> state = (*server)->save();
  ASSERT_TRUE(state) << state.error().message;
  outcome.server_states[static_cast<std::size_t>(transport.rank())] = std::move(*state);
  outcome.server_counts[static_cast<std::size_t>(transport.rank())] = (*server)->counts();
}

inline void work(const Job& job, std::size_t at, Transport& transport, Outcome& outcome) {
  Model model(99, job.has_dims);  // other values: the servers' replace them
  auto made = make_worker(model.tensors, job.options, transport);
  ASSERT_TRUE(made) << made.error().message;
  ParameterWorker& worker = **made;
  Status opened = worker.open(soon());
  ASSERT_TRUE(opened) << opened.error().message;
  const std::uint64_t steps = at == 0 ? std::min(job.steps, job.first_stops_at) : job.steps;
  while (worker.step() < steps && !worker.has_ended()) {
    job.before(at, worker.step());
    const Status pushed = push_all(worker, at, &outcome.pushed[at]);
    ASSERT_TRUE(pushed) << pushed.error().message;
    const std::uint64_t step = worker.step();
    job.pushed(at, step);
    const Status pulled = worker.pull(soon());
    ASSERT_TRUE(pulled) << pulled.error().message;
    job.pulled(at, step);
    if (!outcome.views.empty()) outcome.seen[at].push_back({worker.version(), model.values});
  }
  const Status closed = worker.close(soon());
  ASSERT_TRUE(closed) << closed.error().message;
  outcome.residuals[at] = residual_of(worker);
  outcome.workers[at] = model.values;
  outcome.versions[at] = worker.version();
  outcome.worker_counts[at] = worker.counts();
}

// Sizes what serve() and work() fill in.
inline void make_room(const Job& job, Outcome& outcome) {
  outcome.view = outcome.master = zeros();
  const auto workers = static_cast<std::size_t>(job.workers);
  outcome.workers.resize(workers);
  outcome.residuals.resize(workers);
  outcome.pushed.assign(workers, zeros());
  outcome.worker_counts.resize(workers);
  outcome.versions.resize(workers);
  outcome.seen.resize(workers);
  outcome.server_counts.resize(static_cast<std::size_t>(job.options.servers));
  outcome.server_states.resize(static_cast<std::size_t>(job.options.servers));
}

inline Outcome run(const Job& job, std::vector<std::unique_ptr<Transport>> mesh, Outcome outcome = {}) {
  make_room(job, outcome);
  std::vector<std::thread> threads;
  for (auto& transport : mesh) {
    threads.emplace_back([&] {
      const int worker = transport->rank() - job.options.servers;
      if (worker < 0) {
        serve(job, *transport, outcome);
      } else {
        work(job, static_cast<std::size_t>(worker), *transport, outcome);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcome;
}

inline Outcome run(const Job& job) {
  auto mesh = connect_inproc(job.options.servers + job.workers, job.links);
  EXPECT_TRUE(mesh) << mesh.error().message;
  return run(job, std::move(*mesh));
}

// The same, and compares what workers had after each pull with the view of that version.
inline Outcome run_and_compare_versions(const Job& job) {
  auto mesh = connect_inproc(job.options.servers + job.workers, job.links);
  EXPECT_TRUE(mesh) << mesh.error().message;
  Outcome outcome;
  outcome.views.assign(job.steps + 1, zeros());
  outcome = run(job, std::move(*mesh), std::move(outcome));
  outcome.views[0] = Model(7).values;
  for (const auto& worker : outcome.seen) {
    for (const Seen& seen : worker) {
      EXPECT_EQ(seen.values, outcome.views.at(seen.version)) << "version " << seen.version;
    }
  }
  return outcome;
}

inline void expect_equal_bits(const Outcome& outcome) {
  for (const auto& worker : outcome.workers) {
    ASSERT_EQ(worker.size(), outcome.view.size());
    for (std::size_t tensor = 0; tensor < worker.size(); ++tensor) {
      EXPECT_EQ(std::memcmp(worker[tensor].data(), outcome.view[tensor].data(), 4 * worker[tensor].size()), 0)
          << "tensor " << tensor;
    }
  }
}

// At a learning rate of 1: what the optimizer got is what the master has lost, in means of so many pushes.
inline void expect_nothing_lost(const Outcome& outcome, double pushes = 3) {
  const Model start(7);
  for (std::size_t tensor = 0; tensor < shapes().size(); ++tensor) {
    for (std::size_t i = 0; i < shapes()[tensor].second; ++i) {
      double due = pushes * (start.values[tensor][i] - outcome.master[tensor][i]);
      for (std::size_t worker = 0; worker < outcome.pushed.size(); ++worker) {
        due += outcome.residuals[worker][tensor][i];
        due -= outcome.pushed[worker][tensor][i];
      }
      ASSERT_NEAR(due, 0, 1e-5) << tensor << " " << i;
    }
  }
}

}  // namespace deltawire::server_test
