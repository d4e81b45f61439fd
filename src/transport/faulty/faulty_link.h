// A link with one deliberate defect in what it sends; several defects are several links around each other.
#pragma once

#include <cstdint>
#include <memory>

#include "deltawire/connect.h"
#include "transport/link.h"

namespace deltawire {

// `inner` with the defect that `fault` describes.
std::unique_ptr<Link> make_faulty_link(std::unique_ptr<Link> inner, const LinkFault& fault);

// Every kind but kDelay.
class FaultyLink final : public LinkDecorator {
 public:
  FaultyLink(std::unique_ptr<Link> inner, const LinkFault& fault) noexcept
      : LinkDecorator(std::move(inner)), fault_(fault) {}

  IoResult send(std::span<const iovec> pieces) noexcept override;

 private:
  IoResult send_from_fault_on(std::span<const iovec> pieces) noexcept;
  IoResult send_flipped(std::span<const iovec> pieces) noexcept;
  IoResult dribble(std::span<const iovec> pieces) noexcept;
  IoResult count(IoResult result) noexcept {
    position_ += result.bytes;
    return result;
  }

  LinkFault fault_;
  std::uint64_t position_ = 0;  // bytes that went through
  Deadline next_byte_at_{};
};

}  // namespace deltawire
