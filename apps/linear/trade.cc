#include "linear/trade.h"

namespace deltawire::linear {
namespace {

bool has_bytes(std::span<const Bytes> pieces) {
  std::size_t bytes = 0;
  for (const Bytes piece : pieces) bytes += piece.size();
  return bytes > 0;
}

}  // namespace

Result<std::vector<std::uint64_t>> trade(Transport& transport, Tag tag, Deadline deadline,
                                         const Parcels& parcels) {
  const auto own = static_cast<std::size_t>(transport.rank());
  std::vector<Handle> received(parcels.from.size(), Handle::kNone);
  std::vector<Handle> sent(parcels.to.size(), Handle::kNone);
  for (std::size_t peer = 0; peer < sent.size(); ++peer) {
    if (peer == own) continue;
    const int number = static_cast<int>(peer);
    if (!parcels.from[peer].empty()) received[peer] = transport.post_recv(number, tag, parcels.from[peer]);
    if (has_bytes(parcels.to[peer])) sent[peer] = transport.post_send(number, tag, parcels.to[peer]);
  }
  std::vector<std::uint64_t> bytes(sent.size(), 0);
  Status done;
  // All are waited for, whatever the first says: their memory ends here.
  for (std::size_t peer = 0; peer < sent.size(); ++peer) {
    for (const Handle handle : {received[peer], sent[peer]}) {
      if (handle == Handle::kNone) continue;
      const auto got = transport.wait(handle, deadline);
      if (!got && done) done = forward_error(got);
      if (got && handle == received[peer]) bytes[peer] = *got;
    }
  }
  if (!done) return forward_error(done);
  return bytes;
}

}  // namespace deltawire::linear
