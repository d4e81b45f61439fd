#include "linear/all_to_all.h"

namespace deltawire::linear {
namespace {

bool has_bytes(std::span<const Bytes> pieces) {
  std::size_t bytes = 0;
  for (const Bytes piece : pieces) bytes += piece.size();
  return bytes > 0;
}

}  // namespace

Result<std::vector<std::uint64_t>> all_to_all(Transport& transport, Tag tag, Deadline deadline,
                                              const PeerMessages& messages) {
  const auto own = static_cast<std::size_t>(transport.rank());
  std::vector<Handle> received(messages.receive.size(), Handle::kNone);
  std::vector<Handle> sent(messages.send.size(), Handle::kNone);
  for (std::size_t peer = 0; peer < sent.size(); ++peer) {
    if (peer == own) continue;
    const int number = static_cast<int>(peer);
    if (!messages.receive[peer].empty())
      received[peer] = transport.post_recv(number, tag, messages.receive[peer]);
    if (has_bytes(messages.send[peer])) sent[peer] = transport.post_send(number, tag, messages.send[peer]);
  }
  std::vector<std::uint64_t> bytes(sent.size(), 0);
  Status done;
  // Wait for all of them even after an error: their buffers are the caller's.
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
