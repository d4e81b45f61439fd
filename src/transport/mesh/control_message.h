// Control messages: small messages between ranks, on separate streams so that they never queue behind data.
// A header of 12 bytes, little-endian, then the content:
//
//   0  u32  magic
//   4  u32  CRC-32C of bytes 8 to the end of the content
//   8  u8   kind
//   9  u8   low byte of the CRC-32C of bytes 8, 10 and 11: a wrong length is found before it is waited for
//  10  u16  bytes of the content, <= 4096
//
// Contents; a rank is u32, 0xFFFFFFFF for none, a set of ranks has one bit for each rank, lowest first,
// padded with 0 to whole bytes, a text of an error at most 512 bytes:
//
//   1 abort    u16 error code, u16 bytes of fields, rank suspect, rank origin, text, fields
//   2 waiting  rank, u64 place
//   3 goodbye  u64 ballots that count
//   4 here     u64 place, rank deaf
//   5 start    u64 step
//   6 vote     u64 number, ballot: u64 step, u64 digest
//   7 round    u32 number, u64 decided, ballot, set of voters, set of the absent
//   8 verdict  u64 ballots that count, set of the absent
//   9 dropped  u16 error code, u16 bytes of fields, rank, rank suspect, text, fields
//
// Fields of an error that has any: rank suspect, if it is outside of the mesh, rank reporter, rank it waits
// for, u16 n <= 256, u16 bytes of the tensor's name <= 256, n ranks, the name, and the advice, <= 512 bytes.
// These ranks may be beyond the world (RankNames::rank_of).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "transport/mesh/vote/agreement.h"

namespace deltawire {

// The mesh has failed. The error's last committed step doesn't travel: each rank knows it.
struct Abort {
  Error error;
  int origin = -1;  // the rank that failed first

  bool operator==(const Abort&) const = default;
};

// The sender has been waiting for `rank` for a while (-1: no longer), at its `place` (see Here), and asks all
// ranks to answer with Here.
struct Waiting {
  int rank = -1;
  std::uint64_t place = 0;

  bool operator==(const Waiting&) const = default;
};

// The sender leaves normally.
struct Goodbye {
  std::uint64_t decided = 0;

  bool operator==(const Goodbye&) const = default;
};

// The sender is alive, and has begun `place` buckets. Nothing that it sends to `deaf` is acknowledged.
struct Here {
  std::uint64_t place = 0;
  int deaf = -1;

  bool operator==(const Here&) const = default;
};

// The sender continues at this step, which is not the one after its last.
struct Start {
  std::uint64_t step = 0;

  bool operator==(const Start&) const = default;
};

// The sender has dropped an optional rank, and all others must, too.
struct Dropped {
  int rank = 0;
  Error error;  // of that rank, which it blames itself if it has no suspect

  bool operator==(const Dropped&) const = default;
};

using ControlMessage =
    std::variant<Abort, Waiting, Goodbye, Here, Start, Vote, SettleRound, Verdict, Dropped>;

inline constexpr std::size_t kControlHeaderBytes = 12;
inline constexpr std::size_t kControlContentMax = 4096;
inline constexpr std::size_t kControlTextMax = 512;
// So that two sets of ranks fit in a message.
inline constexpr int kWorldMax = 15000;

// Appends the encoding for a mesh of `world_size` to `out`; a too long text is cut. If an allocation fails,
// `out` is unchanged.
void append_control_message(const ControlMessage& message, int world_size, std::vector<std::byte>& out);

// Sets the checks in the header of one whole message to what its kind, length and content ask for.
void seal_control_message(MutBytes message) noexcept;

// Parses a control stream that arrives in pieces of any size. Never holds more than one message.
class ControlParser {
 public:
  // `world_size` bounds the ranks that messages may name.
  explicit ControlParser(int world_size) noexcept : world_size_(world_size) {}

  // Feeds bytes and appends the messages that they complete. False: the stream is damaged, for good.
  bool feed(Bytes bytes, std::vector<ControlMessage>& messages);
  // The next message, removed from `bytes`; none: they are consumed, or the stream is damaged. If an
  // allocation fails, the next call returns the message.
  std::optional<ControlMessage> next(Bytes& bytes);
  bool damaged() const noexcept { return damaged_; }
  int world_size() const noexcept { return world_size_; }

 private:
  std::optional<ControlMessage> parse(Bytes whole) const;
  std::size_t needed() const noexcept;

  int world_size_;
  std::array<std::byte, kControlHeaderBytes + kControlContentMax> held_;
  std::size_t held_bytes_ = 0;
  bool damaged_ = false;
};

}  // namespace deltawire
