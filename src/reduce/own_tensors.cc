#include "reduce/own_tensors.h"

#include <string_view>

#include "base/errors.h"
#include "reduce/vote.h"

namespace deltawire {
namespace {

constexpr std::size_t kMostListed = std::size_t{1} << 20;  // bytes
constexpr std::uint16_t kListStage = 65535;                // which no message of a bucket has

// Of another rank's list, of which the first line is empty, as of this one's.
Status compare(std::string_view own, std::string_view theirs, const Transport& transport, int peer) {
  if (own == theirs) return {};
  const std::string here = " on " + transport.names().of(transport.rank());
  const std::string there = " on " + transport.names().of(peer);
  return mismatch(first_difference({own.substr(1), here},
                                   {theirs.substr(std::min<std::size_t>(1, theirs.size())), there}) +
                      "; give all ranks the same names, shapes and dtypes in the same order",
                  peer);
}

}  // namespace

void compare_tensors(std::span<const Named> tensors, const Step& step, Transport& transport,
                     Deadline deadline) {
  std::string own = "\n";  // sent until all are waited for
  std::vector<Handle> sent;
  const Status alike = or_no_memory("comparing tensors", [&]() -> Status {
    for (std::size_t i = 0; i < tensors.size(); ++i) own += in_words(tensors.subspan(i, 1)) + "\n";
    own.resize(std::min(own.size(), kMostListed));
    std::string theirs(kMostListed, '\0');
    sent.reserve(static_cast<std::size_t>(transport.world_size()));
    transport.arrive(step.number);
    const Bytes bytes = std::as_bytes(std::span(own));
    const Tag tag = tag_of(step, kListStage);
    for (int peer = 0; peer < transport.world_size(); ++peer) {
      if (peer != transport.rank()) sent.push_back(transport.post_send(peer, tag, {&bytes, 1}));
    }
    for (int peer = 0; peer < transport.world_size(); ++peer) {
      if (peer == transport.rank()) continue;
      const Handle handle = transport.post_recv(peer, tag, std::as_writable_bytes(std::span(theirs)));
      const auto got = transport.wait(handle, deadline);
      if (!got) return forward_error(got);
      RETURN_IF_ERROR(compare(own, std::string_view(theirs).substr(0, *got), transport, peer));
    }
    return {};
  });
  if (!alike) transport.abort(alike.error());
  for (const Handle handle : sent) (void)transport.wait(handle, deadline);
}

}  // namespace deltawire
