// The state of a process that joins: chunks, which it takes from all members that have them. A chunk is named
// by the digest of its bytes. So a process that begins again, because the member died that had told it what
// the state is made of, takes only what it lacks.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "deltawire/elastic.h"
#include "elastic/messages.h"
#include "elastic/peer_line.h"
#include "elastic/tasks.h"

namespace deltawire::elastic {

// The length of the chunks of a state of so many bytes, and the most that others may have.
std::uint64_t chunk_bytes_of(std::uint64_t count) noexcept;

// A state that a member can give, while it waits at a meeting. The arrays' bytes are only read, and must stay
// as they are.
class StateSender {
 public:
  // `chunk_bytes`: for tests; 0: chunk_bytes_of. kInvalidArgument: bytes that aren't those of the dims.
  static Result<std::shared_ptr<const StateSender>> make(std::vector<StateArray> arrays,
                                                         std::uint64_t chunk_bytes = 0);

  std::vector<std::byte> layout() const { return encode(layout_); }
  // The chunk of that digest, compressed; nothing if it is none of this state's.
  Result<std::optional<std::vector<std::byte>>> chunk(const Digest& digest) const;

 private:
  std::vector<std::byte> bytes_at(std::uint64_t start) const;

  std::vector<StateArray> arrays_;
  std::uint64_t count_ = 0;  // bytes
  StateLayout layout_;
  std::map<Digest, std::uint64_t> starts_;
};

// Answers on a line what another process takes, until it hangs up. `offer` gives what can be given now.
// `within`: for each chunk, and until the next is asked for.
void give_chunks(PeerLine& line, Take first, const std::function<std::shared_ptr<const StateSender>()>& offer,
                 Clock::duration within, const Ending& ending);

// The layout of a state that can be: kCorrupt for others.
Result<StateLayout> state_layout_in(Bytes bytes);

// The chunks that a process which joins has, however often it has to begin again.
// Thread rule: one thread.
class StateReceiver {
 public:
  // Both must outlive it.
  StateReceiver(const Caller& caller, Clock::duration within) : caller_(caller), within_(within) {}

  // Takes what is missing from the members at these doors at once. `look` is called some times a second with
  // the number of chunks that it has; an error ends it. kPeerLost: nobody gives any more.
  Status take(StateLayout layout, std::span<const Endpoint> doors,
              const std::function<Status(std::uint64_t)>& look);

  struct Arrays {
    std::vector<std::byte> bytes;
    std::vector<StateArray> list;  // in those bytes
  };
  // The state, when all has been taken; without arrays if no member has one.
  Arrays arrays();

 private:
  // What the threads of one take() share.
  struct Shared;

  void take_from(const Endpoint& door, Shared& shared);

  const Caller& caller_;
  const Clock::duration within_;
  StateLayout layout_;
  std::map<Digest, std::vector<std::byte>> held_;
  std::uint64_t taken_ = 0;
};

}  // namespace deltawire::elastic
