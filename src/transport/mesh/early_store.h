// Messages that arrived before anybody posted a receive for them: bounded, so that a fast peer fills its
// own pipe and not this rank's memory.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "deltawire/transport.h"

namespace deltawire {

class EarlyStore {
 public:
  static constexpr std::size_t kMessagesMax = 64;
  static constexpr std::uint64_t kBytesMax = std::uint64_t{64} << 20;

  struct Message {
    std::uint64_t length = 0;      // as its header says
    std::vector<std::byte> bytes;  // what has arrived of it
  };
  using Place = std::multimap<Tag, Message>::iterator;

  bool has_room(std::uint64_t length) const noexcept {
    return messages_.size() < kMessagesMax && length <= kBytesMax - reserved_;
  }

  // Opens a message of which nothing has arrived. REQUIRES: has_room(length).
  Place add(Tag tag, std::uint64_t length) {
    const Place place = messages_.emplace(tag, Message{length, {}});
    reserved_ += length;
    return place;
  }

  // The oldest message with `tag`, or none().
  Place find(Tag tag) noexcept {
    const Place place = messages_.lower_bound(tag);
    return place != messages_.end() && place->first == tag ? place : none();
  }
  Place none() noexcept { return messages_.end(); }

  void remove(Place place) noexcept {
    reserved_ -= place->second.length;
    messages_.erase(place);
  }

 private:
  // Equal tags keep their order of arrival: an emplaced element goes after its equals.
  std::multimap<Tag, Message> messages_;
  std::uint64_t reserved_ = 0;
};

}  // namespace deltawire
