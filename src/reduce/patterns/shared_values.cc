#include "reduce/patterns/shared_values.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "base/cached_copy.h"
#include "base/errors.h"
#include "base/little_endian.h"

namespace deltawire {
namespace {

// A note: u32 magic, which no frame begins with, u32 0, u64 where the payload begins in its rank's area, u64
// its bytes. The frame's head follows.
constexpr std::uint32_t kNoteMagic = 0x53575744;  // bytes "DWWS"
constexpr std::size_t kPlaceAt = 8;
constexpr std::size_t kBytesAt = 16;
constexpr std::size_t kNoteBytes = 24;

// Parts of a message that is surely one frame.
constexpr std::size_t kPartsMax = 32768;

}  // namespace

void SharedValues::open() {
  areas_ = channels_.shared_meter != nullptr && ranks() > 1 ? run_.transport().shared_areas() : nullptr;
  if (is_on() && !sends_values_alone()) areas_ = nullptr;
  std::size_t rounds = 0;
  for (std::size_t owner = 0; is_on() && owner < ranks(); ++owner) {
    rounds = std::max(rounds, plan_.list(owner).size());
  }
  means_ = {};
  own_means_ = nullptr;
  pushes_.assign(ranks(), {});
  lent_.assign(rounds * ranks(), {});
  lent_bytes_ = 0;
  notes_made_ = 0;
  count();
}

bool SharedValues::sends_values_alone() const {
  if (channels_.backend != nullptr) return false;
  if (channels_.push.any(&CodecInfo::sparse)) return false;  // mask_sent() asks for all parts of a step
  const std::uint64_t step = run_.step().number;
  for (std::size_t owner = 0; owner < ranks(); ++owner) {
    for (const PartMessage& message : plan_.list(owner)) {
      if (message.has_keys() || message.parts.size() > kPartsMax) return false;
      if (!channels_.push.sends_values(message.layout(), step)) return false;
      if (!channels_.pull.sends_values(message.mean_layout(), step)) return false;
    }
  }
  return true;
}

// Its memory stays until the next bucket.
std::span<const Bytes> SharedValues::note(Bytes head, Bytes payload) {
  if (notes_made_ == notes_.size()) notes_.emplace_back();
  Note& made = notes_[notes_made_++];
  made.bytes.resize(kNoteBytes + head.size());
  store_le(made.bytes.data(), std::uint64_t{kNoteMagic});
  store_le(made.bytes.data() + kPlaceAt, areas_->own().place_of(payload));
  store_le(made.bytes.data() + kBytesAt, std::uint64_t{payload.size()});
  std::memcpy(made.bytes.data() + kNoteBytes, head.data(), head.size());
  made.piece = made.bytes;
  return {&made.piece, 1};
}

// Counts the payload, too, as if it went with the head.
void SharedValues::send(std::size_t peer, std::uint16_t stage, std::span<const Bytes> note,
                        std::uint64_t payload_bytes) {
  messages_.send(static_cast<int>(peer), stage, note);
  run_.report().bytes_sent += payload_bytes - kNoteBytes;
  areas_->note_sent(payload_bytes);
}

bool SharedValues::lend_push(const Place& place, std::span<const Bytes> message) {
  MutBytes& payload = lent(place);
  assert(is_on() && payload.empty());
  payload = areas_->own().take(plan_.message(place).raw_bytes(), OwnArea::Use::kNow);
  if (payload.empty()) return false;
  lent_bytes_ += payload.size();
  count();
  {
    const Stopwatch timer(run_.report(), Stopwatch::Phase::kEncode);
    std::byte* to = payload.data();
    for (const Bytes piece : message.subspan(1)) {
      copy_cached(to, piece.data(), piece.size());
      to += piece.size();
    }
    assert(to == payload.data() + payload.size());
  }
  send(place.list, kFirstStage, note(message.front(), payload), payload.size());
  channels_.push.release(message);
  return true;
}

void SharedValues::free_push(const Place& place) noexcept {
  const MutBytes read = std::exchange(lent(place), {});
  areas_->own().give_back(read);
  lent_bytes_ -= read.size();
  count();
}

bool SharedValues::is_note(Bytes received) noexcept {
  return received.size() >= kNoteBytes && load_le<std::uint32_t>(received.data()) == kNoteMagic;
}

// Of a message that a rank has sent, checked, where they lie.
Result<Bytes> SharedValues::values_of(Channel& channel, Bytes received, const Place& place,
                                      const Source& source) {
  std::array<Bytes, 2> pieces{received, Bytes()};
  if (is_note(received)) {
    const RankNames& names = run_.transport().names();
    const PeerArea& area = areas_->of(source.sender);
    if (!area) {
      return fail(ErrorCode::kSystem,
                  names.of(run_.rank()) + " can't map memory that " + names.of(source.sender) +
                      " shares with it; allow the process more address space, or set "
                      "DELTAWIRE_SHARED_MEMORY=off on all ranks",
                  run_.rank());
    }
    const auto at = load_le<std::uint64_t>(received.data() + kPlaceAt);
    const Bytes payload = area.at(at, load_le<std::uint64_t>(received.data() + kBytesAt));
    if (payload.empty() || at % sizeof(float) != 0) {
      return corrupt("from " + names.of(source.sender) + ": values that are not in the memory it shares",
                     source.sender);
    }
    areas_->note_received(payload.size());
    pieces = {received.subspan(kNoteBytes), payload};
  }
  return run_.values_of(channel, std::span(pieces).first(is_note(received) ? 2 : 1),
                        plan_.message(place).mean_layout(), source);
}

Status SharedValues::read_push(int sender, Bytes received, const Place& place) {
  ASSIGN_OR_RETURN(const auto values,
                   values_of(channels_.push, received, place, {sender, sender, kFirstStage}));
  pushes_[static_cast<std::size_t>(sender)] = values;
  return {};
}

Status SharedValues::sum(const Place& place) {
  if (place.message == 0) {
    means_ = areas_->own().take(sizeof(float) * plan_.dense_elements(self()), OwnArea::Use::kUntilVote);
    own_means_ = reinterpret_cast<float*>(means_.data());
    count();
  }
  return part_means_.sum(place, pushes_, own_means_);
}

Status SharedValues::share_sum(const Place& place) {
  const PartMessage& mean = plan_.message(place);
  ASSIGN_OR_RETURN(const auto message,
                   run_.encode_in_place(channels_.pull, mean.mean_layout(), kSecondStage, 0));
  const float* const begin = std::exchange(own_means_, own_means_ + mean.elements);
  const Bytes values = std::as_bytes(std::span(begin, mean.elements));
  const auto announced = note(message.front(), values);
  for (std::size_t i = 1; i < ranks(); ++i) {
    send((self() + i) % ranks(), kSecondStage, announced, values.size());
  }
  channels_.pull.release(message);
  part_means_.settle(place);
  return {};
}

Status SharedValues::read_mean(int sender, Bytes note, const Place& place) {
  ASSIGN_OR_RETURN(const auto values, values_of(channels_.pull, note, place, {sender, sender, kSecondStage}));
  part_means_.stand(place, values);
  part_means_.settle(place);
  return {};
}

void SharedValues::give_back() noexcept {
  if (!is_on()) return;
  areas_->own().give_back(std::exchange(means_, {}));
  count();
}

}  // namespace deltawire
