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

#include <array>
#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "base/buffer_pool.h"
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
  void open();
  bool is_on() const noexcept { return areas_ != nullptr; }
  bool lends_pushes() const noexcept { return lends_pushes_; }

  // Copies a push of this rank's there and sends its note; false where there is no room for it.
  Result<bool> lend_push(const Place& place);
  // Its owner has read it.
  void free_push(const Place& place) noexcept;

  // Begins the next own piece. Where there is room for means, they are formed aside until all pushes are
  // here: only then may they be written to shared memory.
  void begin_own(const Place& place);
  bool has_room() const noexcept { return own_means_ != nullptr; }
  // What a rank has pushed of it, which stays where it is until sum() has formed the means.
  Status read_push(int sender, Bytes received, const Place& place);
  Status sum(const Place& place);
  // Sends means that stand in shared memory, after sum(); those of a message that the pull's channel encoded
  // aside go there first.
  Status share_sum(const Place& place);
  Status share_decoded(const Place& place, std::span<const Bytes> message);

  static bool is_note(Bytes received) noexcept;
  // The means of another's piece, of which a note has come.
  Status read_mean(int sender, Bytes note, const Place& place);

  // The bucket's means are published.
  void give_back() noexcept;

 private:
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

  bool sends_values_alone() const;
  void send(std::size_t peer, std::uint16_t stage, const Says& says);
  void send_own(const Place& place, std::uint64_t message_bytes);
  Result<Says> read(int sender, Bytes note, const Place& place) const;
  void count() noexcept;
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
