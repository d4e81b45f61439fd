// The bytes of saved servers and workers: a head, numbers and values, a checksum (docs/reference/format.md,
// "Parameter server").
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_writer.h"
#include "base/crc32c.h"
#include "base/errors.h"
#include "base/format_version.h"
#include "base/little_endian.h"
#include "deltawire/channel.h"
#include "deltawire/codec.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "wire/hashes.h"

namespace deltawire {

enum class StateOf : std::uint8_t { kServer, kWorker };

struct StateHead {
  StateOf whose = StateOf::kServer;
  std::size_t parts = 0;
  std::uint64_t hash = 0;  // of what the state belongs to
  std::uint64_t step = 0;

  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::uint64_t kBytes = 32;  // magic, u32 version, u32 parts, u64 step, u64 hash

  std::string_view magic() const noexcept { return whose == StateOf::kServer ? "DWSERVER" : "DWWORKER"; }
};

// A hash of the codecs of both directions and of the parts that a rank has.
inline std::uint64_t state_hash(const Channel& push, const Channel& pull, std::span<const Named> parts) {
  const std::string text = "push=" + push.spec() + ";pull=" + pull.spec() +
                           ";parts=" + std::to_string(MessageLayout::hash_of(parts));
  return digest64(std::as_bytes(std::span(text)), 0);
}

class StateWriter {
 public:
  explicit StateWriter(const StateHead& head) {
    ByteWriter writer(grow(StateHead::kBytes));
    writer.text(head.magic());
    writer.number<std::uint32_t>(StateHead::kVersion);
    writer.number<std::uint32_t>(static_cast<std::uint32_t>(head.parts));
    writer.number<std::uint64_t>(head.step);
    writer.number<std::uint64_t>(head.hash);
  }

  void number(std::uint64_t value) { store_le(grow(sizeof value).data(), value); }

  void floats(std::span<const float> values) {
    ByteWriter(grow(sizeof(float) * values.size())).floats(values);
  }

  void bytes(Bytes bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }

  // The whole state. No more calls after it.
  std::vector<std::byte> finish() {
    const std::uint32_t crc = crc32c(out_);
    store_le(grow(kCrcBytes).data(), crc);
    return std::move(out_);
  }

 private:
  static constexpr std::uint64_t kCrcBytes = 4;

  MutBytes grow(std::size_t bytes) {
    out_.resize(out_.size() + bytes);
    return MutBytes(out_).last(bytes);
  }

  std::vector<std::byte> out_;
};

class StateReader {
 public:
  // A state that must have this head; its step may be any. `state` must outlive the reader. Errors:
  // kTruncated, kCorrupt, kUnsupportedVersion, kMismatch.
  static Result<StateReader> open(Bytes state, const StateHead& expected) {
    const std::string what = expected.whose == StateOf::kServer ? "a server's state" : "a worker's state";
    ASSIGN_OR_RETURN(const Bytes rest,
                     body_of_state(what, state, expected.magic(), StateHead::kVersion, StateHead::kBytes));
    if (load_le<std::uint64_t>(state.data() + 24) != expected.hash ||
        load_le<std::uint32_t>(state.data() + 12) != expected.parts) {
      return mismatch(what +
                      ": of another rank, model, number of servers, or other codecs; load it where it was "
                      "saved");
    }
    return StateReader(load_le<std::uint64_t>(state.data() + 16), rest);
  }

  std::uint64_t step() const noexcept { return step_; }

  // What comes next; kTruncated where the state ends before.
  Result<std::uint64_t> number() {
    return bytes(sizeof(std::uint64_t)).map([](Bytes bytes) { return load_le<std::uint64_t>(bytes.data()); });
  }

  Result<std::vector<float>> floats(std::uint64_t count) {
    if (count > rest_.size() / sizeof(float)) return forward_error(ends_early());
    return take_floats(rest_, count);
  }

  Result<Bytes> bytes(std::uint64_t count) {
    if (count > rest_.size()) return forward_error(ends_early());
    const Bytes taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }

  // kCorrupt unless everything was read.
  Status end() const {
    if (rest_.empty()) return {};
    return corrupt("a saved state: bytes beyond the last part");
  }

 private:
  static Status ends_early() { return truncated("a saved state: ends within a part"); }

  StateReader(std::uint64_t step, Bytes rest) : step_(step), rest_(rest) {}

  std::uint64_t step_;
  Bytes rest_;
};

}  // namespace deltawire
