#include "server/saved_state.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/byte_writer.h"
#include "base/crc32c.h"
#include "base/errors.h"
#include "base/format_version.h"
#include "base/little_endian.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kHeadBytes = 32;  // magic, u32 version, u32 parts, u64 step, u64 hash
constexpr std::uint64_t kCrcBytes = 4;

std::string_view magic_of(StateOf whose) {
  return whose == StateOf::kServer ? "DWSERVER" : "DWWORKER";
}

Status ends_early() {
  return truncated("a saved state: ends within a part");
}

}  // namespace

std::uint64_t state_hash(const Channel& push, const Channel& pull, std::span<const Named> parts) {
  const std::string text = "push=" + push.spec() + ";pull=" + pull.spec() +
                           ";parts=" + std::to_string(MessageLayout::hash_of(parts));
  return digest64(std::as_bytes(std::span(text)), 0);
}

StateWriter::StateWriter(const StateHead& head) {
  ByteWriter writer(grow(kHeadBytes));
  writer.text(magic_of(head.whose));
  writer.number<std::uint32_t>(kVersion);
  writer.number<std::uint32_t>(static_cast<std::uint32_t>(head.parts));
  writer.number<std::uint64_t>(head.step);
  writer.number<std::uint64_t>(head.hash);
}

MutBytes StateWriter::grow(std::size_t bytes) {
  out_.resize(out_.size() + bytes);
  return MutBytes(out_).last(bytes);
}

void StateWriter::number(std::uint64_t value) {
  store_le(grow(sizeof value).data(), value);
}

void StateWriter::floats(std::span<const float> values) {
  ByteWriter(grow(sizeof(float) * values.size())).floats(values);
}

void StateWriter::bytes(Bytes bytes) {
  out_.insert(out_.end(), bytes.begin(), bytes.end());
}

std::vector<std::byte> StateWriter::finish() {
  const std::uint32_t crc = crc32c(out_);
  store_le(grow(kCrcBytes).data(), crc);
  return std::move(out_);
}

Result<StateReader> StateReader::open(Bytes state, const StateHead& expected) {
  const std::string what = expected.whose == StateOf::kServer ? "a server's state" : "a worker's state";
  ASSIGN_OR_RETURN(const Bytes rest,
                   body_of_state(what, state, magic_of(expected.whose), kVersion, kHeadBytes));
  if (load_le<std::uint64_t>(state.data() + 24) != expected.hash ||
      load_le<std::uint32_t>(state.data() + 12) != expected.parts) {
    return mismatch(what +
                    ": of another rank, model, number of servers, or other codecs; load it where it was "
                    "saved");
  }
  return StateReader(load_le<std::uint64_t>(state.data() + 16), rest);
}

Result<std::uint64_t> StateReader::number() {
  return bytes(sizeof(std::uint64_t)).map([](Bytes bytes) { return load_le<std::uint64_t>(bytes.data()); });
}

Result<std::vector<float>> StateReader::floats(std::uint64_t count) {
  if (count > rest_.size() / sizeof(float)) return forward_error(ends_early());
  return take_floats(rest_, count);
}

Result<Bytes> StateReader::bytes(std::uint64_t count) {
  if (count > rest_.size()) return forward_error(ends_early());
  const Bytes taken = rest_.first(count);
  rest_ = rest_.subspan(count);
  return taken;
}

Status StateReader::end() const {
  if (rest_.empty()) return {};
  return corrupt("a saved state: bytes beyond the last part");
}

}  // namespace deltawire
