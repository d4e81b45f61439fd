// Values in memory that all ranks of one machine map (links/shared_areas.h), for `direct`: a rank's push is
// copied there once, an owner forms its means there, and others read both where they lie.
//
// In the place of such a message travels a note, where the payload of its frame lies, and the frame's head.
// So the receiver checks the same as of any message, a push's checksums included; means are compared by the
// vote. A payload is float32 values, and any bits are values: a rank that changes them meanwhile lies about
// its own values, as it may anyway. Messages of codecs never go this way.
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

#include "base/memory_meter.h"
#include "reduce/bucket_messages.h"
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

  // For a new bucket, whose run is open and whose plan is made. It is on where the ranks share memory, and
  // every message of the bucket has its parts' values and nothing else, in one frame.
  void open();
  bool is_on() const noexcept { return areas_ != nullptr; }

  // Sends a push of this rank's, as encode_in_place made it, copied; false where there is no room for it.
  bool lend_push(const Place& place, std::span<const Bytes> message);
  // Its owner has read it.
  void free_push(const Place& place) noexcept;

  // Of the next own piece: what a rank has pushed, which stays where it is until sum() has formed the means.
  Status read_push(int sender, Bytes received, const Place& place);
  // After all pushes: only then may means be written to shared memory.
  Status sum(const Place& place);
  // Whether the means of the piece stand in shared memory; and sends them.
  bool has_sum() const noexcept { return own_means_ != nullptr; }
  Status share_sum(const Place& place);

  static bool is_note(Bytes received) noexcept;
  // The means of another's piece, of which a note has come.
  Status read_mean(int sender, Bytes note, const Place& place);

  // The bucket's means are published.
  void give_back() noexcept;

 private:
  struct Note {
    std::vector<std::byte> bytes;
    Bytes piece;
  };

  bool sends_values_alone() const;
  std::span<const Bytes> note(Bytes head, Bytes payload);
  void send(std::size_t peer, std::uint16_t stage, std::span<const Bytes> note, std::uint64_t payload_bytes);
  Result<Bytes> values_of(Channel& channel, Bytes received, const Place& place, const Source& source);
  void count() noexcept { held_.set(means_.size() + lent_bytes_); }
  std::size_t self() const noexcept { return static_cast<std::size_t>(run_.rank()); }
  std::size_t ranks() const noexcept { return static_cast<std::size_t>(run_.world()); }
  MutBytes& lent(const Place& place) noexcept { return lent_[place.message * ranks() + place.list]; }

  BucketRun& run_;
  BucketMessages& messages_;
  MessagePlan& plan_;
  PartMeans& part_means_;
  DirectChannels channels_;
  SharedAreas* areas_ = nullptr;
  MutBytes means_;              // of the bucket's own list
  float* own_means_ = nullptr;  // where those of the next own piece are to stand; null: in staging memory
  std::vector<Bytes> pushes_;   // of that piece, by rank
  std::vector<MutBytes> lent_;  // pushes of this rank's
  std::size_t lent_bytes_ = 0;  // of these
  std::deque<Note> notes_;      // of this bucket, and memory of more
  std::size_t notes_made_ = 0;
  MeteredBytes held_;
};

}  // namespace deltawire
