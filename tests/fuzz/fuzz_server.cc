// What a parameter server and its workers read: saved states, snapshots, pushes and pulls. Magic numbers,
// hashes and checksums are repaired, so that the fuzzer gets past them. A state that was loaded is saved as
// it was, or it was refused and nothing changed; a message counts, or is an error.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <utility>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/temporary_folder_testing.h"
#include "deltawire/snapshot.h"
#include "frame_repair.h"
#include "server_inputs.h"

namespace deltawire {
namespace {

using fuzz::repair_checksum;
using fuzz::ServerInput;
using State = std::vector<std::byte>;

const std::vector<ServerOptions> kOptions = fuzz::server_options();
std::set<std::pair<ServerInput, std::size_t>> reached;  // kind and options, where all went well

void expect(bool holds) {
  if (!holds) std::abort();
}

template <class Role, class Make>
bool load(State state, const Make& make) {
  const auto role = make();
  const State before = *role()->save();
  if (state.size() >= 32) {
    std::memcpy(state.data(), before.data(), 16);
    std::memcpy(state.data() + 24, before.data() + 24, 8);
  }
  repair_checksum(state);
  const bool is_loaded = role()->load(state).has_value();
  const State after = *role()->save();
  if (!is_loaded) expect(after == before);
  const auto again = make();
  expect(again()->load(after).has_value() && *again()->save() == after);
  return is_loaded;
}

bool load_server(const ServerOptions& options, const State& state) {
  return load<ParameterServer>(state, [&] {
    return [serving = std::make_shared<fuzz::Serving>(options, fuzz::Script{})] {
      return serving->server.get();
    };
  });
}

bool load_worker(const ServerOptions& options, const State& state) {
  return load<ParameterWorker>(state, [&] {
    return [working = std::make_shared<fuzz::Working>(options, fuzz::Script{})] {
      return working->worker.get();
    };
  });
}

// Of a pull (docs/reference/format.md, section 4): u8, u16 steps, a byte for each, u32 checksum. Returns its
// bytes.
std::size_t repair_head(fuzz::Message& pull) {
  constexpr std::size_t kBefore = 3;
  constexpr std::size_t kLeast = kBefore + sizeof(std::uint32_t);
  if (pull.size() < kLeast) return pull.size();
  const std::size_t steps = load_le<std::uint16_t>(pull.data() + 1) % (pull.size() - kLeast + 1);
  store_le<std::uint16_t>(pull.data() + 1, static_cast<std::uint16_t>(steps));
  store_le(pull.data() + kBefore + steps, crc32c(Bytes(pull).first(kBefore + steps)));
  return kLeast + steps;
}

void repair(fuzz::Script& script, fuzz::Way way) {
  for (auto& [tag, messages] : script) {
    for (fuzz::Message& message : messages) {
      const std::size_t head = way == fuzz::Way::kPull ? repair_head(message) : 0;
      fuzz::repair_frames(std::span(message).subspan(head), [](std::byte*) {});
    }
  }
}

bool serve(const ServerOptions& options, Bytes input) {
  fuzz::Script pushes = fuzz::read_script(input, fuzz::Way::kPush);
  repair(pushes, fuzz::Way::kPush);
  fuzz::Serving serving(options, std::move(pushes));
  for (std::uint64_t step = 0;; ++step) {
    const Result<bool> made = serving.server->step(Clock::now());
    if (!made) return false;
    if (!*made) return step == fuzz::kServedSteps;
    expect(serving.server->counts().steps == step + 1);
  }
}

bool work(const ServerOptions& options, Bytes input) {
  fuzz::Script pulls = fuzz::read_script(input, fuzz::Way::kPull);
  repair(pulls, fuzz::Way::kPull);
  return fuzz::Working(options, std::move(pulls)).run();
}

bool read_one(State file) {
  static const testing::TemporaryFolder folder;
  const SnapshotPlace place{.folder = folder.path(), .settings = "lr=1"};
  repair_checksum(file);
  const std::string name = folder.path("rank-0.step-7.snapshot");
  std::ofstream(name, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  const auto state = read_snapshot(place, fuzz::kSnapshotStep);
  const auto steps = find_snapshots(place);
  expect(state.has_value() == (steps.has_value() && steps->size() == 1));
  if (state) expect(state->size() < file.size());
  return state.has_value();
}

bool read_input(ServerInput kind, const ServerOptions& options, Bytes input) {
  switch (kind) {
    case ServerInput::kServerState: return load_server(options, {input.begin(), input.end()});
    case ServerInput::kWorkerState: return load_worker(options, {input.begin(), input.end()});
    case ServerInput::kPushes: return serve(options, input);
    case ServerInput::kPulls: return work(options, input);
    case ServerInput::kSnapshot: return read_one({input.begin(), input.end()});
  }
  return false;
}

}  // namespace
}  // namespace deltawire

// Each input makes servers and workers, and some a file.
extern const int fuzz_rounds;
const int fuzz_rounds = 1000;

extern "C" void fuzz_after_seeds() {
  using namespace deltawire;
  expect(reached.size() == fuzz::kServerInputs * kOptions.size());
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace deltawire;
  if (size == 0) return 0;
  const auto kind = static_cast<ServerInput>(data[0] % fuzz::kServerInputs);
  const std::size_t choice = data[0] / fuzz::kServerInputs % kOptions.size();
  if (read_input(kind, kOptions[choice], std::as_bytes(std::span(data + 1, size - 1)))) {
    reached.emplace(kind, choice);
  }
  return 0;
}
