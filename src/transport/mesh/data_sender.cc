#include "transport/mesh/data_sender.h"

#include <algorithm>

namespace deltawire {

StreamStep DataSender::step(ScopedUnlock scoped_unlock) noexcept {
  std::size_t budget = kStepBytes;
  while (!queue_.empty()) {
    std::array<iovec, Link::kMaxPieces> pieces;
    const std::size_t count = gather(pieces);
    const ClippedPieces clipped(std::span<const iovec>(pieces).first(count), budget);
    const std::size_t asked = total_bytes(clipped.span());
    assert(asked > 0);
    const std::uint64_t clears = clears_;
    const IoResult result = scoped_unlock.run(asked, [&] { return link_->send(clipped.span()); });
    if (clears != clears_) return {StreamStep::Kind::kIdle, kNever, 0, {}};
    if (result.kind != IoResult::Kind::kOk) return StreamStep::after(result);
    sent_ += result.bytes;
    advance(result.bytes);
    if (front_sent()) {
      Operation& done = queue_.front();
      queue_.pop_front();
      header_sent_ = piece_ = piece_sent_ = 0;
      done.finish(done.length);
    }
    // If only a few bytes of the budget are left, they are not worth another call.
    budget -= std::min(budget, result.bytes);
    if (budget < kStepBytes / 2) return {};
  }
  return {StreamStep::Kind::kIdle, kNever, 0, {}};
}

// The unsent rest of the front message, as many pieces as fit in `into`.
std::size_t DataSender::gather(std::span<iovec> into) noexcept {
  assert(!queue_.empty() && piece_ <= queue_.front().pieces.size());
  const Operation& front = queue_.front();
  if (header_sent_ == 0) header_ = encode_message_header({front.tag, front.length});
  std::size_t count = 0;
  if (header_sent_ < header_.size()) {
    into[count++] = iovec{header_.data() + header_sent_, header_.size() - header_sent_};
  }
  std::size_t skip = piece_sent_;
  for (std::size_t i = piece_; i < front.pieces.size() && count < into.size(); ++i) {
    const Bytes rest = front.pieces[i].subspan(skip);
    skip = 0;
    // iovec requires the cast: sending only reads.
    if (!rest.empty()) into[count++] = iovec{const_cast<std::byte*>(rest.data()), rest.size()};
  }
  return count;
}

void DataSender::advance(std::size_t bytes) noexcept {
  const std::size_t of_header = std::min(bytes, header_.size() - header_sent_);
  header_sent_ += of_header;
  bytes -= of_header;
  const std::vector<Bytes>& pieces = queue_.front().pieces;
  while (piece_ < pieces.size() && header_sent_ == header_.size()) {
    const std::size_t of_piece = std::min(bytes, pieces[piece_].size() - piece_sent_);
    piece_sent_ += of_piece;
    bytes -= of_piece;
    if (piece_sent_ < pieces[piece_].size()) return;
    ++piece_;
    piece_sent_ = 0;
  }
  assert(bytes == 0);
}

bool DataSender::front_sent() const noexcept {
  return header_sent_ == header_.size() && piece_ == queue_.front().pieces.size();
}

}  // namespace deltawire
