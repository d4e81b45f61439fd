// The bytes of saved servers and workers: a head, numbers and values, a checksum (docs/reference/format.md,
// "Parameter server").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/codec.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

enum class StateOf : std::uint8_t { kServer, kWorker };

struct StateHead {
  StateOf whose = StateOf::kServer;
  std::size_t parts = 0;
  std::uint64_t hash = 0;  // of what the state belongs to
  std::uint64_t step = 0;
};

// A hash of the codecs of both directions and of the parts that a rank has.
std::uint64_t state_hash(const Channel& push, const Channel& pull, std::span<const Named> parts);

class StateWriter {
 public:
  explicit StateWriter(const StateHead& head);

  void number(std::uint64_t value);
  void floats(std::span<const float> values);
  void bytes(Bytes bytes);

  // The whole state. No more calls after it.
  std::vector<std::byte> finish();

 private:
  MutBytes grow(std::size_t bytes);

  std::vector<std::byte> out_;
};

class StateReader {
 public:
  // A state that must have this head; its step may be any. `state` must outlive the reader. Errors:
  // kTruncated, kCorrupt, kUnsupportedVersion, kMismatch.
  static Result<StateReader> open(Bytes state, const StateHead& expected);

  std::uint64_t step() const noexcept { return step_; }

  // What comes next; kTruncated where the state ends before.
  Result<std::uint64_t> number();
  Result<std::vector<float>> floats(std::uint64_t count);
  Result<Bytes> bytes(std::uint64_t count);

  // kCorrupt unless everything was read.
  Status end() const;

 private:
  StateReader(std::uint64_t step, Bytes rest) : step_(step), rest_(rest) {}

  std::uint64_t step_;
  Bytes rest_;
};

}  // namespace deltawire
