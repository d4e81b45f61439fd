// The steps that patterns are made of: receive, wait, encode, send, decode.
#include <utility>

#include "reduce/pattern_reducer.h"
#include "reduce/vote.h"

namespace deltawire {

void PatternReducer::receive(Bucket& bucket, Incoming& message, int peer, std::uint16_t slice,
                             std::uint64_t capacity) {
  message.length = 0;
  message.handle =
      bucket.transport->post_recv(peer, tag_of(bucket.step, slice), message.buffer.take(capacity));
}

Result<std::uint64_t> PatternReducer::wait(Bucket& bucket, Handle& handle) {
  const Stopwatch timer(bucket.report.exchange_seconds);
  return bucket.transport->wait(std::exchange(handle, Handle::kNone), bucket.deadline);
}

Result<Bytes> PatternReducer::wait(Bucket& bucket, Incoming& message) {
  if (message.handle != Handle::kNone) {
    const Result<std::uint64_t> received = wait(bucket, message.handle);
    if (!received) return forward_error(received);
    message.length = *received;
  }
  return message.bytes();
}

void PatternReducer::send(Bucket& bucket, int peer, std::uint16_t slice, std::span<const Bytes> pieces) {
  for (const Bytes piece : pieces) bucket.report.bytes_sent += piece.size();
  bucket.sends.push_back(bucket.transport->post_send(peer, tag_of(bucket.step, slice), pieces));
}

MessageId PatternReducer::message_id(const Bucket& bucket, int sender, std::uint16_t slice) {
  return MessageId{bucket.step.number, bucket.step.epoch, static_cast<std::uint16_t>(sender),
                   static_cast<std::uint16_t>(bucket.world()), slice};
}

Result<std::span<const Bytes>> PatternReducer::encode(Bucket& bucket, Channel& channel,
                                                      std::span<const Named> parts, std::uint16_t slice) {
  const Stopwatch timer(bucket.report.encode_seconds);
  return channel.encode(parts, message_id(bucket, bucket.rank(), slice));
}

Error PatternReducer::blame(const Error& error, int rank) {
  return {error.code, "from rank " + std::to_string(rank) + ": " + error.message, rank};
}

Status PatternReducer::decode(Bucket& bucket, Channel& channel, Bytes message, const Origin& origin,
                              const Destination& destination) {
  const Stopwatch timer(bucket.report.decode_seconds);
  const Status decoded =
      channel.decode(message, destination.parts, message_id(bucket, origin.sender, origin.slice),
                     destination.into, destination.scale);
  if (decoded) return {};
  return tl::unexpected<Error>(blame(decoded.error(), origin.blamed));
}

Bytes PatternReducer::join(Bucket& bucket, std::span<const Bytes> pieces) {
  bucket.joined.clear();
  for (const Bytes piece : pieces) {
    bucket.joined.insert(bucket.joined.end(), piece.begin(), piece.end());
  }
  return bucket.joined;
}

}  // namespace deltawire
