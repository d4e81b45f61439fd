// Connects a mesh: every rank dials all lower ones, once for each stream, and is dialed by all higher ones.
// With a rendezvous it dials rank 0 first, and the others once it knows their addresses. It ends when all
// ranks are connected to all others.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <poll.h>

#include "deltawire/connect.h"
#include "transport/tcp/address_book.h"
#include "transport/tcp/dialer.h"
#include "transport/tcp/long_line.h"
#include "transport/tcp/peer_table.h"
#include "transport/tcp/roll_call.h"
#include "transport/tcp/strangers.h"

namespace deltawire {

class Bootstrap {
 public:
  // `asks_for_bbr`: as of MoreStreams.
  Bootstrap(std::unique_ptr<TcpListener> listener, const MeshOptions& options, EncryptionPolicy policy,
            bool asks_for_bbr);

  struct Met {
    std::vector<PeerSockets> sockets;
    std::unique_ptr<SharedAreas> areas;  // what the ranks share besides
  };

  // Returns the connections to all other ranks. Before it returns an error, it tells the others, as far as
  // they can be reached quickly.
  Result<Met> run();

 private:
  Result<Met> meet();
  Status prepare_endpoints();
  Status prepare_dialers(int first = 0);
  Status advance(Deadline now);
  Status advance_dialers(Deadline now);
  Status advance_book();
  bool has_met_all() const noexcept { return peer_table_.is_complete() && (!book_ || book_->is_complete()); }
  void wait_for_news(Deadline now, Deadline until);
  Status look_for_news(Deadline now);
  void add_met_ranks();
  Status watch_met_ranks(Deadline now);
  void miss(int rank, Claims::Stream stream, Deadline now);
  void tell_others(const Error& error);
  Error found(ErrorCode code, std::string message, int suspect) const;
  Error refused_by(const Dialer& dialer) const;
  Error too_late() const;
  Deadline end_of_patience() const;
  std::string describe_missing() const;
  std::string describe_silence() const;
  // Whether that rank was connected and has hung up.
  bool has_gone(int rank) const {
    return std::ranges::any_of(gone_, [rank](const Gone& gone) { return gone.rank == rank; });
  }
  // Whether the other ranks don't know yet where this rank listens, so that none will dial it.
  bool is_hidden() const { return options_.rendezvous && options_.rank > 0 && !(book_ && book_->is_out()); }
  // Whether this rank only knows rank 0's address, and is not connected to it.
  bool seeks_rank_0() const {
    return options_.rendezvous && options_.rank > 0 && !peer_table_.is_complete() &&
           peer_table_.missing().front() == 0;
  }

  const MeshOptions& options_;
  const EncryptionPolicy policy_;
  Endpoint own_;
  std::vector<Endpoint> endpoints_;  // by rank; port 0: not known yet
  std::optional<AddressBook> book_;  // with a rendezvous
  PeerTable peer_table_;
  MoreStreams more_streams_;
  RollCall roll_call_;
  PendingConnections pending_connections_;
  std::vector<Dialer> dialers_;  // those still dialing
  Deadline end_;
  std::vector<pollfd> polls_;
  std::vector<bool> finished_;  // by rank: was connected and has said goodbye
  struct Gone {
    int rank;
    Deadline until;  // until then it may connect again
  };
  std::vector<Gone> gone_;  // ranks that were connected and hung up, in this order
  Deadline ask_at_{};       // when to call MeshOptions::interrupted again
  DescriptorShortage shortage_;
};

}  // namespace deltawire
