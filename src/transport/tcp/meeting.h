// A mesh comes together: every rank dials all lower ones, once for each stream, and is dialed by all higher
// ones. With a rendezvous it dials rank 0 first, and the others once it knows where they are.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <poll.h>

#include "deltawire/connect.h"
#include "transport/tcp/address_book.h"
#include "transport/tcp/dialer.h"
#include "transport/tcp/guests.h"
#include "transport/tcp/roster.h"

namespace deltawire {

class Meeting {
 public:
  Meeting(std::unique_ptr<TcpListener> listener, const MeshOptions& options);

  // The connections with all other ranks. An error is told to the others, as far as they can be reached in
  // short time, before it is returned.
  Result<std::vector<PeerSockets>> run();

 private:
  Result<std::vector<PeerSockets>> meet();
  Status prepare_endpoints();
  Status prepare_dialers(int first = 0);
  Status advance(Deadline now);
  Status advance_dialers(Deadline now);
  Status advance_book();
  void wait_for_news(Deadline now, Deadline until);
  Status watch_met_ranks(Deadline now);
  void ask_again(int rank);
  void tell_others(const Error& error);
  Error refused_by(const Dialer& dialer) const;
  Error too_late() const;
  std::string describe_missing() const;
  bool is_hidden() const;
  bool seeks_rank_0() const;

  const MeshOptions& options_;
  Endpoint own_;
  std::vector<Endpoint> endpoints_;  // by rank, as far as they are known; else port 0
  std::optional<AddressBook> book_;  // with a rendezvous
  Roster roster_;
  Guests guests_;
  std::vector<Dialer> dialers_;  // those still dialing
  Deadline end_;
  std::vector<pollfd> polls_;
  int gone_rank_ = kNoSuspect;  // a rank that was met and hung up
  Deadline gone_until_ = kNever;
  DescriptorShortage shortage_;
};

}  // namespace deltawire
