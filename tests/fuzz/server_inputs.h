// What fuzz_server and make_corpus must agree on: a parameter server and its one worker, and how an input
// names the messages that one of them gets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/little_endian.h"
#include "deltawire/server.h"
#include "fuzz_inputs.h"
#include "scripted_transport.h"

namespace deltawire::fuzz {

// By the first byte of an input; what is left of it chooses the options.
enum class ServerInput : std::uint8_t { kServerState, kWorkerState, kPushes, kPulls, kSnapshot };
inline constexpr std::size_t kServerInputs = 5;

inline constexpr int kServerRank = 0;
inline constexpr int kWorkerRank = 1;
inline constexpr std::uint64_t kServedSteps = 3;
inline constexpr std::uint64_t kSnapshotStep = 7;

inline std::vector<ServerOptions> server_options() {
  std::vector<ServerOptions> all(3);
  all[1].push = "sbc:p=0.1";
  all[1].pull = "fp32";
  all[2].push = "fp32";
  all[2].pull = "3lc:s=1.75";
  for (ServerOptions& options : all) options.policy = Policy{kMinElements};
  return all;
}

// A server or a worker with its memory.
struct Serving {
  Serving(const ServerOptions& options, Script pushes)
      : transport(kServerRank, 2, std::move(pushes)),
        server(std::move(*make_server(tensors.named(), "adam", options, transport))) {}

  Tensors tensors;
  ScriptedTransport transport;
  std::unique_ptr<ParameterServer> server;
};

struct Working {
  Working(const ServerOptions& options, Script pulls)
      : transport(kWorkerRank, 2, std::move(pulls)),
        worker(std::move(*make_worker(tensors.named(), options, transport))) {}

  // Whether it came through all steps.
  bool run() {
    if (!worker->open(Clock::now())) return false;
    for (std::uint64_t step = 0; step < kServedSteps; ++step) {
      const std::vector<float> large(400, 0.25F + static_cast<float>(step));
      const std::vector<float> small(5, -1.0F);
      if (!worker->push(0, large) || !worker->push(1, small)) return false;
      if (!worker->pull(Clock::now())) return false;
    }
    return worker->close(Clock::now()).has_value();
  }

  Tensors tensors;
  ScriptedTransport transport;
  std::unique_ptr<ParameterWorker> worker;
};

// Which way messages go, as their tags say it.
enum class Way : std::uint16_t { kPush = 0, kPull = 1 };

inline Tag tag_of(std::size_t part, Way way) {
  return (Tag{part} << 16) | static_cast<std::uint16_t>(way);
}

// A message is u8 part, u16 bytes, and these.
inline Script read_script(Bytes input, Way way) {
  Script script;
  while (input.size() >= 3) {
    const std::size_t part = std::to_integer<std::size_t>(input[0]) % 2;
    const std::size_t bytes =
        std::min<std::size_t>(load_le<std::uint16_t>(input.data() + 1), input.size() - 3);
    const Bytes message = input.subspan(3, bytes);
    script[tag_of(part, way)].emplace_back(message.begin(), message.end());
    input = input.subspan(3 + bytes);
  }
  return script;
}

inline void append_script(std::vector<std::byte>& out, const Script& script, Way way) {
  for (std::size_t part = 0; part < 2; ++part) {
    const auto found = script.find(tag_of(part, way));
    if (found == script.end()) continue;
    for (const Message& message : found->second) {
      const std::size_t at = out.size();
      out.resize(at + 3);
      out[at] = static_cast<std::byte>(part);
      store_le<std::uint16_t>(out.data() + at + 1, static_cast<std::uint16_t>(message.size()));
      out.insert(out.end(), message.begin(), message.end());
    }
  }
}

}  // namespace deltawire::fuzz
