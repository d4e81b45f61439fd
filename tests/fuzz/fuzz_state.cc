// Saved states on their way back: of channels, reducers and optimizers. Magic, hash and checksums are
// repaired, so that the fuzzer gets past them. The first byte chooses what is loaded. What was loaded can be
// saved, and that is loaded with the same result; and an encoding or a step on top of it is safe.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "deltawire/channel.h"
#include "deltawire/optimizer.h"
#include "deltawire/reducer.h"
#include "frame_repair.h"
#include "fuzz_inputs.h"

namespace deltawire {
namespace {

using fuzz::repair_checksum;
using State = std::vector<std::byte>;

void expect(bool holds) {
  if (!holds) std::abort();
}

// Magic, version and params_hash as in `wanted`, the count of entries as it is.
void repair_channel(std::span<std::byte> state, const State& wanted) {
  if (state.size() < 24) return;
  std::memcpy(state.data(), wanted.data(), 12);
  std::memcpy(state.data() + 16, wanted.data() + 16, 8);
  repair_checksum(state);
}

// Of at least 32 bytes.
void repair_reducer_head(State& state) {
  store_le<std::uint32_t>(state.data() + 28, crc32c(Bytes(state).first(28)));
}

ChannelOptions options() {
  return ChannelOptions{Policy{fuzz::kMinElements}, Revert::kExact};
}

bool load_channel(std::string_view spec, State state) {
  const auto channel = std::move(*make_channel(spec, options()));
  repair_channel(state, *channel->save());
  if (!channel->load(state)) return false;
  const auto saved = channel->save();
  expect(saved.has_value());
  const auto other = std::move(*make_channel(spec, options()));
  expect(other->load(*saved).has_value());
  expect(*other->save() == *saved);
  // A step that is taken back leaves each residual as it was, bit for bit; one that wasn't there may be
  // zeros.
  const std::span<const float> residual = channel->residual("w", 0);
  const std::vector<float> before(residual.begin(), residual.end());
  fuzz::Tensors tensors;
  (void)channel->encode(tensors.named(), MessageId{});
  channel->revert();
  const std::span<const float> after = channel->residual("w", 0);
  if (before.empty()) return !channel->codec_of(tensors.named().front(), 0).info().error_feedback;
  expect(after.size() == before.size());
  expect(std::memcmp(after.data(), before.data(), 4 * before.size()) == 0);
  return true;
}

// As what one rank alone saved, by the second of two: what comes in can be saved and loaded again.
void load_resized(std::string_view spec, const ReducerOptions& reducer_options, State state,
                  const State& wanted) {
  if (state.size() < 32) return;
  store_le<std::uint32_t>(state.data() + 12, 1);  // world
  store_le<std::uint32_t>(state.data() + 24, 0);  // rank
  repair_reducer_head(state);
  const auto reducer = std::move(*make_reducer(spec, reducer_options));
  fuzz::Tensors tensors;
  const std::vector<Named> named = tensors.named();
  const Bytes saved_alone(state);
  if (!reducer->load_resized({std::span(&saved_alone, 1), named, 2, 1})) {
    expect(*reducer->save() == wanted);
    return;
  }
  const State saved = *reducer->save();
  const auto other = std::move(*make_reducer(spec, reducer_options));
  expect(other->load(saved).has_value());
  expect(*other->save() == saved);
}

bool load_reducer(std::string_view spec, State state) {
  ReducerOptions reducer_options;
  reducer_options.policy = options().policy;
  const auto reducer = std::move(*make_reducer(spec, reducer_options));
  const State wanted = *reducer->save();
  constexpr std::size_t kHead = 32;
  if (state.size() >= kHead) {
    std::memcpy(state.data(), wanted.data(), 12);
    const Bytes channel = Bytes(wanted).subspan(kHead, load_le<std::uint64_t>(wanted.data() + 16));
    const State wanted_channel(channel.begin(), channel.end());
    const std::span<std::byte> rest = std::span(state).subspan(kHead);
    const auto first = std::min<std::uint64_t>(load_le<std::uint64_t>(state.data() + 16), rest.size());
    repair_channel(rest.first(first), wanted_channel);
    repair_channel(rest.subspan(first), wanted_channel);
    repair_reducer_head(state);
  }
  load_resized(spec, reducer_options, state, wanted);
  if (!reducer->load(state)) {
    expect(*reducer->save() == wanted);  // all or nothing
    return false;
  }
  const State saved = *reducer->save();
  const auto other = std::move(*make_reducer(spec, reducer_options));
  expect(other->load(saved).has_value());
  expect(*other->save() == saved);
  return true;
}

bool load_optimizer(std::string_view spec, State state) {
  auto optimizer = std::move(*make_optimizer(spec));
  const State wanted = optimizer.save();
  if (state.size() >= 16) std::memcpy(state.data(), wanted.data(), 16);
  repair_checksum(state);
  if (!optimizer.load(state)) {
    expect(optimizer.save() == wanted);
    return false;
  }
  const State saved = optimizer.save();
  auto other = std::move(*make_optimizer(spec));
  expect(other.load(saved).has_value());
  expect(other.save() == saved);
  fuzz::Tensors tensors;
  std::vector<float> significance(tensors.large.size());
  (void)optimizer.significance("w", tensors.large, significance);
  (void)optimizer.step("w", tensors.large, std::vector<float>(tensors.large.size(), 1.0F));
  return true;
}

const std::vector<std::string> specs = fuzz::channel_specs();
std::set<std::pair<int, std::size_t>> loaded;  // kind and choice

void load(std::uint8_t selector, const State& state) {
  const int kind = selector % 3;
  const std::uint8_t which = selector / 3;
  const std::size_t choice = kind == 0   ? fuzz::choice(which, specs)
                             : kind == 1 ? fuzz::choice(which, fuzz::kReducerSpecs)
                                         : fuzz::choice(which, fuzz::kOptimizerSpecs);
  const bool good = kind == 0   ? load_channel(specs[choice], state)
                    : kind == 1 ? load_reducer(fuzz::kReducerSpecs[choice], state)
                                : load_optimizer(fuzz::kOptimizerSpecs[choice], state);
  if (good) loaded.emplace(kind, choice);
}

}  // namespace
}  // namespace deltawire

extern "C" void fuzz_after_seeds() {
  using namespace deltawire;
  expect(loaded.size() == specs.size() + fuzz::kReducerSpecs.size() + fuzz::kOptimizerSpecs.size());
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  deltawire::load(data[0], {bytes.begin(), bytes.end()});
  return 0;
}
