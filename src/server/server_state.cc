// Saved states of servers and workers (docs/reference/format.md, "Parameter server").
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/byte_writer.h"
#include "base/checked.h"
#include "base/crc32c.h"
#include "base/format_version.h"
#include "base/little_endian.h"
#include "server/server_rank.h"
#include "server/worker_rank.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

constexpr std::string_view kServerMagic = "DWSERVER";
constexpr std::string_view kWorkerMagic = "DWWORKER";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kHeadBytes = 32;  // magic, u32 version, u32 parts, u64 step, u64 hash
constexpr std::uint64_t kCrcBytes = 4;
// f64 learning rate, u64 bytes of the pull channel's state, u64 bytes of the optimizer's
constexpr std::uint64_t kServerHeadBytes = 24;
constexpr std::uint64_t kPartHeadBytes = 16;  // server: u64 number, u64 count; worker: u64 bytes, u64 held

// What a state belongs to: the codecs of both directions and the parts, as this rank has them.
std::uint64_t hash_of(const Channel& push, const Channel& pull, std::span<const Named> parts) {
  const std::string text = "push=" + push.spec() + ";pull=" + pull.spec() +
                           ";parts=" + std::to_string(MessageLayout::hash_of(parts));
  return digest64(std::as_bytes(std::span(text)), 0);
}

void write_head(ByteWriter& writer, std::string_view magic, std::uint64_t parts, std::uint64_t step,
                std::uint64_t hash) {
  writer.text(magic);
  writer.number<std::uint32_t>(kVersion);
  writer.number<std::uint32_t>(static_cast<std::uint32_t>(parts));
  writer.number<std::uint64_t>(step);
  writer.number<std::uint64_t>(hash);
}

void write_bytes(ByteWriter& writer, Bytes bytes) {
  writer.text({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

struct Head {
  std::uint64_t step = 0;
  Bytes rest;  // between the head and the checksum
};

Result<Head> read_head(Bytes state, std::string_view magic, std::uint64_t parts, std::uint64_t hash) {
  const std::string whose = magic == kServerMagic ? "a server's state" : "a worker's state";
  const std::string what = whose + ": ";
  if (state.size() < kHeadBytes + kCrcBytes) {
    return fail(ErrorCode::kTruncated, what + std::to_string(state.size()) + " bytes are too few");
  }
  if (std::memcmp(state.data(), magic.data(), magic.size()) != 0) {
    return fail(ErrorCode::kCorrupt, what + "wrong magic; these bytes are something else");
  }
  const auto version = load_le<std::uint32_t>(state.data() + 8);
  if (Status known = check_format_version(whose, version, kVersion); !known) return forward_error(known);
  const Bytes body = state.first(state.size() - kCrcBytes);
  if (crc32c(body) != load_le<std::uint32_t>(state.data() + body.size())) {
    return fail(ErrorCode::kCorrupt, what + "the checksum is wrong; the bytes changed or were cut");
  }
  if (load_le<std::uint64_t>(state.data() + 24) != hash ||
      load_le<std::uint32_t>(state.data() + 12) != parts) {
    return fail(ErrorCode::kMismatch,
                what +
                    "of another rank, model, number of servers, or other codecs; load it where it was "
                    "saved");
  }
  return Head{load_le<std::uint64_t>(state.data() + 16), body.subspan(kHeadBytes)};
}

Status ends_early() {
  return fail(ErrorCode::kTruncated, "a saved state: ends within a part");
}

// The next `count` bytes of `rest`.
Result<Bytes> next(Bytes& rest, std::uint64_t count) {
  if (count > rest.size()) return forward_error(ends_early());
  const Bytes taken = rest.first(count);
  rest = rest.subspan(count);
  return taken;
}

Result<std::uint64_t> next_number(Bytes& rest) {
  return next(rest, 8).map([](Bytes bytes) { return load_le<std::uint64_t>(bytes.data()); });
}

Status check_end(Bytes rest) {
  if (rest.empty()) return {};
  return fail(ErrorCode::kCorrupt, "a saved state: bytes beyond the last part");
}

void finish(std::vector<std::byte>& out) {
  store_le<std::uint32_t>(out.data() + out.size() - kCrcBytes,
                          crc32c(Bytes(out).first(out.size() - kCrcBytes)));
}

}  // namespace

std::uint64_t Server::state_hash() const {
  std::vector<Named> parts;
  for (const OwnPart& own : own_) parts.push_back(model_.part_of(part(own), nullptr));
  return hash_of(*push_, *pull_, parts);
}

Result<std::vector<std::byte>> Server::save() const {
  if (state_ == State::kFailed) return fail(ErrorCode::kState, "this parameter server has failed");
  const Result<std::vector<std::byte>> pull = pull_->save();
  if (!pull) return forward_error(pull);
  const std::vector<std::byte> optimizer = optimizer_.save();
  std::uint64_t bytes = kHeadBytes + kServerHeadBytes + pull->size() + optimizer.size() + kCrcBytes;
  for (const OwnPart& own : own_) bytes += kPartHeadBytes + 8 * own.view.size();
  std::vector<std::byte> out(bytes);
  ByteWriter writer(out.data());
  write_head(writer, kServerMagic, own_.size(), step_, state_hash());
  writer.number(std::bit_cast<std::uint64_t>(optimizer_.settings().learning_rate));
  writer.number<std::uint64_t>(pull->size());
  writer.number<std::uint64_t>(optimizer.size());
  for (const OwnPart& own : own_) {
    writer.number<std::uint64_t>(own.number);
    writer.number<std::uint64_t>(own.view.size());
    writer.floats(own.view);
    writer.floats(own.master);
  }
  write_bytes(writer, *pull);
  write_bytes(writer, optimizer);
  finish(out);
  return out;
}

Status Server::load(Bytes state) {
  if (state_ != State::kNew) return fail(ErrorCode::kState, "load() comes before the first step()");
  const Result<Head> head = read_head(state, kServerMagic, own_.size(), state_hash());
  if (!head) return forward_error(head);
  Bytes rest = head->rest;
  const Result<Bytes> sizes = next(rest, kServerHeadBytes);
  if (!sizes) return forward_error(sizes);
  std::vector<std::pair<std::vector<float>, std::vector<float>>> loaded;
  for (const OwnPart& own : own_) {
    const Result<Bytes> named = next(rest, kPartHeadBytes);
    if (!named) return forward_error(named);
    if (load_le<std::uint64_t>(named->data()) != own.number ||
        load_le<std::uint64_t>(named->data() + 8) != own.view.size()) {
      return fail(ErrorCode::kCorrupt, "a server's state: a part of another place or count");
    }
    if (8 * own.view.size() > rest.size()) return ends_early();
    std::vector<float> view = take_floats(rest, own.view.size());
    loaded.emplace_back(std::move(view), take_floats(rest, own.view.size()));
  }
  const Result<Bytes> pull = next(rest, load_le<std::uint64_t>(sizes->data() + 8));
  if (!pull) return forward_error(pull);
  const Result<Bytes> moments = next(rest, load_le<std::uint64_t>(sizes->data() + 16));
  if (!moments) return forward_error(moments);
  if (Status whole = check_end(rest); !whole) return whole;
  Optimizer optimizer = optimizer_;
  if (Status had = optimizer.load(*moments); !had) return had;
  const double rate = std::bit_cast<double>(load_le<std::uint64_t>(sizes->data()));
  if (Status set = optimizer.set_learning_rate(rate); !set) return set;
  if (Status had = pull_->load(*pull); !had) return had;
  optimizer_ = std::move(optimizer);
  for (std::size_t i = 0; i < own_.size(); ++i) std::tie(own_[i].view, own_[i].master) = std::move(loaded[i]);
  step_ = head->step;
  return {};
}

std::uint64_t Worker::state_hash() const {
  std::vector<Named> parts;
  for (const WorkerPart& part : parts_) parts.push_back(named(part, nullptr));
  return parts_.empty() ? 0 : hash_of(*parts_.front().channel, *pull_, parts);
}

Result<std::vector<std::byte>> Worker::save() const {
  std::vector<std::vector<std::byte>> channels;
  std::uint64_t bytes = kHeadBytes + kCrcBytes;
  for (const WorkerPart& part : parts_) {
    if (is_under_way(part)) return fail(ErrorCode::kState, "save() comes after pull() or catch_up()");
    Result<std::vector<std::byte>> channel = part.channel->save();
    if (!channel) return forward_error(channel);
    bytes += kPartHeadBytes + channel->size() + 4 * part.held.size();
    channels.push_back(std::move(*channel));
  }
  std::vector<std::byte> out(bytes);
  ByteWriter writer(out.data());
  write_head(writer, kWorkerMagic, parts_.size(), step_, state_hash());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    writer.number<std::uint64_t>(channels[i].size());
    writer.number<std::uint64_t>(parts_[i].held.size());
    writer.floats(parts_[i].held);
    write_bytes(writer, channels[i]);
  }
  finish(out);
  return out;
}

Status Worker::load(Bytes state) {
  if (state_ != State::kNew) return fail(ErrorCode::kState, "load() comes before open()");
  const Result<Head> head = read_head(state, kWorkerMagic, parts_.size(), state_hash());
  if (!head) return forward_error(head);
  Bytes rest = head->rest;
  std::vector<std::pair<std::unique_ptr<Channel>, std::vector<float>>> loaded;
  for (const WorkerPart& part : parts_) {
    const Result<std::uint64_t> bytes = next_number(rest);
    if (!bytes) return forward_error(bytes);
    const Result<std::uint64_t> held = next_number(rest);
    if (!held) return forward_error(held);
    if (*held != 0 && *held != part.part.count) {
      return fail(ErrorCode::kCorrupt, "a worker's state: a late gradient of another count");
    }
    if (4 * *held > rest.size()) return ends_early();
    std::vector<float> late = take_floats(rest, *held);
    const Result<Bytes> residual = next(rest, *bytes);
    if (!residual) return forward_error(residual);
    auto channel = push_channel();
    if (!channel) return forward_error(channel);
    if (Status had = (*channel)->load(*residual); !had) return had;
    loaded.emplace_back(std::move(*channel), std::move(late));
  }
  if (Status whole = check_end(rest); !whole) return whole;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    std::tie(parts_[i].channel, parts_[i].held) = std::move(loaded[i]);
  }
  step_ = head->step;  // open() has the servers'
  return {};
}

}  // namespace deltawire
