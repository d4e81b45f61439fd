// A link as slow as a given line. All data links of a rank share two buckets, one for each direction, as
// the connections of a machine share its network card.
#pragma once

#include <memory>

#include "transport/link.h"
#include "transport/shaped/token_bucket.h"

namespace deltawire {

struct LineBuckets {
  TokenBucket egress;
  TokenBucket ingress;
};

class ShapedLink final : public LinkDecorator {
 public:
  ShapedLink(std::unique_ptr<Link> inner, std::shared_ptr<LineBuckets> line) noexcept
      : LinkDecorator(std::move(inner)), line_(std::move(line)) {}

  IoResult send(std::span<const iovec> pieces) noexcept override {
    const Deadline now = Clock::now();
    const std::size_t wanted = total_bytes(pieces);
    const std::size_t granted = line_->egress.grant(wanted, now);
    if (granted == 0) return IoResult::would_block(line_->egress.next_grant(wanted, now));
    const IoResult result = inner().send(ClippedPieces(pieces, granted).span());
    line_->egress.spend(result.bytes);
    return result;
  }

  IoResult recv(MutBytes into) noexcept override {
    const Deadline now = Clock::now();
    const std::size_t granted = line_->ingress.grant(into.size(), now);
    if (granted == 0) return IoResult::would_block(line_->ingress.next_grant(into.size(), now));
    const IoResult result = inner().recv(into.first(granted));
    line_->ingress.spend(result.bytes);
    return result;
  }

 private:
  std::shared_ptr<LineBuckets> line_;
};

}  // namespace deltawire
