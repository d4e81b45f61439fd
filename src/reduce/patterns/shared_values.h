// Values in memory that all ranks of one machine map (links/shared_areas.h), for `direct`: an owner's means
// stand there, as float32, whatever codec they went through, and others read them where they lie. So do
// pushes where all that a bucket sends is values.
//
// In the place of a message travels a note: where the values lie, and the hash of their layout. Memory is no
// line, so nothing has a checksum there. What a vote compares of means is seen once, by their owner, in whose
// memory all ranks read them, and goes with the note. Any bits are values: a rank that changes them meanwhile
// lies about its own values, as it may anyway. What has to be decoded never lies here.
//
// No message says that memory is free again. That of a push is when the mean of its piece is here: its owner
// has read it. That of means is after the step's vote, and is written only when all ranks' pushes of a piece
// are here: who pushes in a step has copied the means of all steps before; who has voted, those of all
// buckets but the last.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"
#include "base/copying.h"
#include "base/errors.h"
#include "base/little_endian.h"
#include "reduce/bucket_run.h"
#include "reduce/patterns/direct.h"
#include "reduce/patterns/message_plan.h"
#include "reduce/patterns/part_means.h"
#include "transport/links/shared_areas.h"

namespace deltawire {

class SharedValues {
 public:
  using Place = MessagePlan::Place;

  // The exchange's own.
  struct Exchange {
    BucketRun& run;
    BucketMessages& messages;
    MessagePlan& plan;
    PartMeans& means;
  };

  SharedValues(const Exchange& exchange, const DirectChannels& channels)
      : run_(exchange.run),
        messages_(exchange.messages),
        plan_(exchange.plan),
        part_means_(exchange.means),
        channels_(channels),
        held_(channels.shared_meter, MemoryMeter::Use::kStaging) {}

  // For a new bucket, whose run is open and whose plan is made. It is on, for means, where the ranks share
  // memory and all tensors are dense; for pushes, where no codec changes any of the bucket's values.
  void open() {
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

  bool is_on() const noexcept { return areas_ != nullptr; }
  bool lends_pushes() const noexcept { return lends_pushes_; }

  // Copies a push of this rank's there and sends its note; false where there is no room for it.
  Result<bool> lend_push(const Place& place) {
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

  // Its owner has read it.
  void free_push(const Place& place) noexcept {
    const MutBytes read = std::exchange(lent(place), {});
    areas_->own().give_back(read);
    lent_bytes_ -= read.size();
    count();
  }

  // Begins the next own piece. Where there is room for means, they are formed aside until all pushes are
  // here: only then may they be written to shared memory.
  void begin_own(const Place& place) {
    if (place.message == 0) {
      means_ = areas_->own().take(sizeof(float) * plan_.dense_elements(self()), OwnArea::Use::kUntilVote);
      own_means_ = reinterpret_cast<float*>(means_.data());
    }
    if (!has_room() || lends_pushes()) return;
    aside_.resize(plan_.message(place).elements);
    part_means_.place_own(aside_.data());
    count();
  }

  bool has_room() const noexcept { return own_means_ != nullptr; }
  // What a rank has pushed of it, which stays where it is until sum() has formed the means.
  // A push without a note had no room in its sender's area.
  Status read_push(int sender, Bytes received, const Place& place) {
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

  Status sum(const Place& place) {
    if (has_room()) part_means_.place_own(own_means_);
    return part_means_.sum(place, pushes_);
  }

  // Sends means that stand in shared memory, after sum(); those of a message that the pull's channel encoded
  // aside go there first.
  Status share_sum(const Place& place) {
    const PartMessage& mean = plan_.message(place);
    ASSIGN_OR_RETURN(const auto message_bytes, run_.lend(channels_.pull, mean.mean_layout(), kSecondStage));
    part_means_.settle(place);
    send_own(place, message_bytes);
    return {};
  }

  Status share_decoded(const Place& place, std::span<const Bytes> message) {
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

  static bool is_note(Bytes received) noexcept {
    return received.size() == kNoteBytes && load_le<std::uint32_t>(received.data()) == kNoteMagic;
  }

  // The means of another's piece, of which a note has come.
  Status read_mean(int sender, Bytes note, const Place& place) {
    ASSIGN_OR_RETURN(const Says says, read(sender, note, place));
    part_means_.stand(place, says.values);
    part_means_.settle_as(place, says.seen);
    return {};
  }

  // The bucket's means are published.
  void give_back() noexcept {
    if (!is_on()) return;
    areas_->own().give_back(std::exchange(means_, {}));
    count();
  }

 private:
  // A note: u32 magic, which no frame begins with, u32 flags, u64 where the values begin in their rank's
  // area, u64 their bytes, u64 digest of means (SeenMeans; of a push 0), u64 bytes of the message in whose
  // place it travels, u32 the hash of its layout, u32 0.
  static constexpr std::uint32_t kNoteMagic = 0x53575744;  // bytes "DWWS"
  static constexpr std::size_t kFlagsAt = 4;
  static constexpr std::size_t kPlaceAt = 8;
  static constexpr std::size_t kBytesAt = 16;
  static constexpr std::size_t kDigestAt = 24;
  static constexpr std::size_t kMessageBytesAt = 32;
  static constexpr std::size_t kLayoutAt = 40;

  // Flags; of means SeenMeans'.
  static constexpr std::uint32_t kFinite = 1;
  static constexpr std::uint32_t kInRange = 2;

  static constexpr std::size_t kNoteBytes = 48;
  struct Note {
    std::array<std::byte, kNoteBytes> bytes = {};
    Bytes piece;
  };
  // What a note says.
  struct Says {
    Bytes values;
    std::uint64_t message_bytes = 0;  // of the message in whose place it travels
    std::uint32_t layout_hash = 0;
    SeenMeans seen = {};  // of means
  };

  bool sends_values_alone() const {
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
  void send(std::size_t peer, std::uint16_t stage, const Says& says) {
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

  // The next of this rank's means, settled.
  void send_own(const Place& place, std::uint64_t message_bytes) {
    const PartMessage& mean = plan_.message(place);
    const float* const begin = std::exchange(own_means_, own_means_ + mean.elements);
    const Says says{std::as_bytes(std::span(begin, mean.elements)), message_bytes, mean.hash,
                    part_means_.last_seen()};
    for (std::size_t i = 1; i < ranks(); ++i) send((self() + i) % ranks(), kSecondStage, says);
  }

  Result<Says> read(int sender, Bytes note, const Place& place) const {
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

  void count() noexcept {
    std::size_t floats = aside_.capacity();
    for (const std::vector<float>& push : decoded_) floats += push.capacity();
    held_.set(means_.size() + lent_bytes_ + sizeof(float) * floats);
  }

  std::size_t self() const noexcept { return static_cast<std::size_t>(run_.rank()); }
  std::size_t ranks() const noexcept { return static_cast<std::size_t>(run_.world()); }
  MutBytes& lent(const Place& place) noexcept { return lent_[place.message * ranks() + place.list]; }

  BucketRun& run_;
  BucketMessages& messages_;
  MessagePlan& plan_;
  PartMeans& part_means_;
  DirectChannels channels_;
  SharedAreas* areas_ = nullptr;
  bool lends_pushes_ = false;
  MutBytes means_;              // of the bucket's own list
  float* own_means_ = nullptr;  // where those of the next own piece are to stand; null: in staging memory
  std::vector<float> aside_;    // where they are formed before
  std::vector<Bytes> pushes_;   // of that piece, by rank
  std::vector<std::vector<float>> decoded_;  // those that had to be
  std::vector<MutBytes> lent_;               // pushes of this rank's
  std::size_t lent_bytes_ = 0;               // of these
  std::deque<Note> notes_;                   // of this bucket, and memory of more
  std::size_t notes_made_ = 0;
  MeteredBytes held_;
};

}  // namespace deltawire
