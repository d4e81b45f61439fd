#include "reduce/patterns/shared_values.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/copying.h"
#include "base/errors.h"
#include "base/little_endian.h"

namespace deltawire {
namespace {

// A note: u32 magic, which no frame begins with, u32 flags, u64 where the values begin in their rank's area,
// u64 their bytes, u64 digest of means (SeenMeans; of a push 0), u64 bytes of the message in whose place it
// travels, u32 the hash of its layout, u32 0.
constexpr std::uint32_t kNoteMagic = 0x53575744;  // bytes "DWWS"
constexpr std::size_t kFlagsAt = 4;
constexpr std::size_t kPlaceAt = 8;
constexpr std::size_t kBytesAt = 16;
constexpr std::size_t kDigestAt = 24;
constexpr std::size_t kMessageBytesAt = 32;
constexpr std::size_t kLayoutAt = 40;

// Flags; of means SeenMeans'.
constexpr std::uint32_t kFinite = 1;
constexpr std::uint32_t kInRange = 2;

}  // namespace

void SharedValues::open() {
  areas_ = channels_.shared_meter != nullptr && ranks() > 1 ? run_.transport().shared_areas() : nullptr;
  std::size_t rounds = 0;
  for (std::size_t owner = 0; is_on() && owner < ranks(); ++owner) {
    rounds = std::max(rounds, plan_.list(owner).size());
    if (std::ranges::any_of(plan_.list(owner), &PartMessage::has_keys)) areas_ = nullptr;
  }
  if (channels_.backend != nullptr) areas_ = nullptr;
  lends_pushes_ = is_on() && sends_values_alone();
  means_ = {};
  own_means_ = nullptr;
  pushes_.assign(ranks(), {});
  decoded_.resize(ranks());
  lent_.assign(rounds * ranks(), {});
  lent_bytes_ = 0;
  notes_made_ = 0;
  count();
}

bool SharedValues::sends_values_alone() const {
  if (channels_.push.any(&CodecInfo::sparse)) return false;  // mask_sent() asks for all parts of a step
  const std::uint64_t step = run_.step().number;
  for (std::size_t owner = 0; owner < ranks(); ++owner) {
    for (const PartMessage& message : plan_.list(owner)) {
      if (!channels_.push.sends_values(message.layout(), step)) return false;
      if (!channels_.pull.sends_values(message.mean_layout(), step)) return false;
    }
  }
  return true;
}

// Counts the message as if it had gone. A note's memory stays until the next bucket.
void SharedValues::send(std::size_t peer, std::uint16_t stage, const Says& says) {
  if (notes_made_ == notes_.size()) notes_.emplace_back();
  Note& note = notes_[notes_made_++];
  std::byte* const at = note.bytes.data();
  store_le(at, kNoteMagic);
  store_le(at + kFlagsAt, (says.seen.finite ? kFinite : 0) | (says.seen.in_range ? kInRange : 0));
  store_le(at + kPlaceAt, areas_->own().place_of(says.values));
  store_le(at + kBytesAt, std::uint64_t{says.values.size()});
  store_le(at + kDigestAt, says.seen.digest);
  store_le(at + kMessageBytesAt, says.message_bytes);
  store_le(at + kLayoutAt, says.layout_hash);
  note.piece = note.bytes;
  messages_.send(static_cast<int>(peer), stage, {&note.piece, 1});
  run_.report().bytes_sent += says.message_bytes - kNoteBytes;
  areas_->note_sent(says.message_bytes);
}

Result<bool> SharedValues::lend_push(const Place& place) {
  MutBytes& values = lent(place);
  assert(lends_pushes() && values.empty());
  const PartMessage& push = plan_.message(place);
  values = areas_->own().take(push.raw_bytes(), OwnArea::Use::kNow);
  if (values.empty()) return false;
  lent_bytes_ += values.size();
  count();
  ASSIGN_OR_RETURN(const auto message_bytes, run_.lend(channels_.push, push.layout(), kFirstStage));
  {
    const Stopwatch timer(run_.report(), Stopwatch::Phase::kEncode);
    std::byte* to = values.data();
    for (const Named& part : push.parts) {
      copy_cached(to, static_cast<const std::byte*>(part.tensor.values), sizeof(float) * part.tensor.count);
      to += sizeof(float) * part.tensor.count;
    }
    assert(to == values.data() + values.size());
  }
  send(place.list, kFirstStage, {values, message_bytes, push.hash});
  return true;
}

void SharedValues::free_push(const Place& place) noexcept {
  const MutBytes read = std::exchange(lent(place), {});
  areas_->own().give_back(read);
  lent_bytes_ -= read.size();
  count();
}

bool SharedValues::is_note(Bytes received) noexcept {
  return received.size() == kNoteBytes && load_le<std::uint32_t>(received.data()) == kNoteMagic;
}

Result<SharedValues::Says> SharedValues::read(int sender, Bytes note, const Place& place) const {
  const RankNames& names = run_.transport().names();
  const PeerArea& area = areas_->of(sender);
  if (!area) {
    return fail(ErrorCode::kSystem,
                names.of(run_.rank()) + " can't map memory that " + names.of(sender) +
                    " shares with it; allow the process more address space, or set "
                    "DELTAWIRE_SHARED_MEMORY=off on all ranks",
                run_.rank());
  }
  const std::byte* const from = note.data();
  const auto at = load_le<std::uint64_t>(from + kPlaceAt);
  const Bytes values = area.at(at, load_le<std::uint64_t>(from + kBytesAt));
  if (values.empty() || at % sizeof(float) != 0) {
    return corrupt("from " + names.of(sender) + ": values that are not in the memory it shares", sender);
  }
  const PartMessage& message = plan_.message(place);
  const auto layout_hash = load_le<std::uint32_t>(from + kLayoutAt);
  if (values.size() != sizeof(float) * message.elements || layout_hash != message.hash) {
    return mismatch("from " + names.of(sender) + ": values of other tensors than the ones due", sender);
  }
  const auto flags = load_le<std::uint32_t>(from + kFlagsAt);
  const SeenMeans seen{.elements = message.elements,
                       .digest = load_le<std::uint64_t>(from + kDigestAt),
                       .finite = (flags & kFinite) != 0,
                       .in_range = (flags & kInRange) != 0};
  const auto message_bytes = load_le<std::uint64_t>(from + kMessageBytesAt);
  areas_->note_received(message_bytes);
  return Says{values, message_bytes, layout_hash, seen};
}

// A push without a note had no room in its sender's area.
Status SharedValues::read_push(int sender, Bytes received, const Place& place) {
  const auto at = static_cast<std::size_t>(sender);
  if (is_note(received)) {
    ASSIGN_OR_RETURN(const Says says, read(sender, received, place));
    pushes_[at] = says.values;
    return {};
  }
  std::vector<float>& decoded = decoded_[at];
  decoded.resize(plan_.message(place).elements);
  plan_.place_means(place, decoded.data());
  const ReceivedMessage message{{&received, 1}, plan_.message(place).mean_layout()};
  RETURN_IF_ERROR(
      run_.decode(channels_.push, {&message, 1}, {sender, sender, kFirstStage}, Into::kOverwrite, 1.0F));
  pushes_[at] = std::as_bytes(std::span(decoded));
  count();
  return {};
}

void SharedValues::begin_own(const Place& place) {
  if (place.message == 0) {
    means_ = areas_->own().take(sizeof(float) * plan_.dense_elements(self()), OwnArea::Use::kUntilVote);
    own_means_ = reinterpret_cast<float*>(means_.data());
  }
  if (!has_room() || lends_pushes()) return;
  aside_.resize(plan_.message(place).elements);
  part_means_.place_own(aside_.data());
  count();
}

Status SharedValues::sum(const Place& place) {
  if (has_room()) part_means_.place_own(own_means_);
  return part_means_.sum(place, pushes_);
}

Status SharedValues::share_sum(const Place& place) {
  const PartMessage& mean = plan_.message(place);
  ASSIGN_OR_RETURN(const auto message_bytes, run_.lend(channels_.pull, mean.mean_layout(), kSecondStage));
  part_means_.settle(place);
  send_own(place, message_bytes);
  return {};
}

Status SharedValues::share_decoded(const Place& place, std::span<const Bytes> message) {
  const PartMessage& mean = plan_.message(place);
  if (channels_.pull.sends_values(mean.mean_layout(), run_.step().number)) {
    const Stopwatch timer(run_.report(), Stopwatch::Phase::kDecode);
    copy_cached(reinterpret_cast<std::byte*>(own_means_), reinterpret_cast<const std::byte*>(aside_.data()),
                sizeof(float) * mean.elements);
    plan_.place_means(place, own_means_);
    part_means_.settle(place);
  } else {
    part_means_.place_own(own_means_);
    RETURN_IF_ERROR(part_means_.replace(channels_.pull, std::span(&message, 1), place,
                                        {run_.rank(), run_.rank(), kSecondStage}));
  }
  std::uint64_t message_bytes = 0;
  for (const Bytes piece : message) message_bytes += piece.size();
  send_own(place, message_bytes);
  channels_.pull.release(message);
  return {};
}

// The next of this rank's means, settled.
void SharedValues::send_own(const Place& place, std::uint64_t message_bytes) {
  const PartMessage& mean = plan_.message(place);
  const float* const begin = std::exchange(own_means_, own_means_ + mean.elements);
  const Says says{std::as_bytes(std::span(begin, mean.elements)), message_bytes, mean.hash,
                  part_means_.last_seen()};
  for (std::size_t i = 1; i < ranks(); ++i) send((self() + i) % ranks(), kSecondStage, says);
}

Status SharedValues::read_mean(int sender, Bytes note, const Place& place) {
  ASSIGN_OR_RETURN(const Says says, read(sender, note, place));
  part_means_.stand(place, says.values);
  part_means_.settle_as(place, says.seen);
  return {};
}

void SharedValues::count() noexcept {
  std::size_t floats = aside_.capacity();
  for (const std::vector<float>& push : decoded_) floats += push.capacity();
  held_.set(means_.size() + lent_bytes_ + sizeof(float) * floats);
}

void SharedValues::give_back() noexcept {
  if (!is_on()) return;
  areas_->own().give_back(std::exchange(means_, {}));
  count();
}

}  // namespace deltawire
