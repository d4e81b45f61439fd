#include "transport/mesh/vote/agreement_protocol.h"

#include <cassert>
#include <type_traits>
#include <utility>
#include <variant>

#include "transport/process/machine.h"

namespace deltawire {

void AgreementProtocol::begin_to_settle() noexcept {
  settle_by_ = MachineClock::now() + kSettleTime;
}

void AgreementProtocol::give_up_waiting() {
  settle_by_ = MachineClock::now() + kMemoryPause;
  change([](Agreement& next) { (void)next.give_up_waiting(); });
  begin_to_settle();
}

void AgreementProtocol::adopt_next(const ControlMessage* first) {
  said_.clear();
  if (first != nullptr) append_control_message(*first, said_);
  for (const AgreementMessage& message : next_.outbox()) {
    append_control_message(std::visit([](const auto& each) { return ControlMessage(each); }, message), said_);
  }
  // If there is something new to send, the others get time to answer.
  if (!next_.outbox().empty()) begin_to_settle();
  next_.outbox().clear();
  peers_.each([this](Peer& peer) { peer.control.reserve(said_.size()); });
  // From here on nothing allocates.
  static_assert(std::is_nothrow_swappable_v<Agreement>);
  assert(next_.outbox().empty());
  peers_.each([this](Peer& peer) { peer.control.send_encoded(said_); });
  std::swap(state_, next_);
}

}  // namespace deltawire
