// All other ranks of a mesh, and the memory for their unexpected messages.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/mesh/peer.h"
#include "transport/mesh/unexpected_messages.h"

namespace deltawire {

class Peers {
 public:
  // `links` by rank; the entry of `self` is empty.
  Peers(int self, std::vector<PeerLinks> links, RankNames names = {})
      : names_(std::move(names)), self_(self), peers_(links.size()) {
    for (int rank = 0; rank < world_size(); ++rank) {
      if (rank == self) continue;
      peers_[at(rank)] =
          std::make_unique<Peer>(rank, std::move(links[at(rank)]), world_size(), blocks_, names_);
    }
  }

  // This rank.
  int self() const noexcept { return self_; }
  int world_size() const noexcept { return static_cast<int>(peers_.size()); }
  const RankNames& names() const noexcept { return names_; }
  std::string name(int rank) const { return names_.of(rank); }
  // Whether it is another rank of this mesh.
  bool has(int rank) const noexcept { return rank >= 0 && rank < world_size() && rank != self_; }

  Peer& operator[](int rank) noexcept {
    assert(has(rank));
    return *peers_[at(rank)];
  }
  const Peer& operator[](int rank) const noexcept {
    assert(has(rank));
    return *peers_[at(rank)];
  }

  void each(auto visit) {
    for (const auto& peer : peers_) {
      if (peer) visit(*peer);
    }
  }
  // The first peer for which `holds` is true; nullptr: there is none.
  const Peer* find(auto holds) const {
    for (const auto& peer : peers_) {
      if (peer && holds(std::as_const(*peer))) return peer.get();
    }
    return nullptr;
  }

  void broadcast(const ControlMessage& message) {
    each([&message](Peer& peer) { peer.control.send(message); });
  }
  Traffic traffic() const noexcept {
    Traffic all;
    for (const auto& peer : peers_) {
      const Traffic one = peer ? peer->traffic() : Traffic{};
      all.bytes_sent += one.bytes_sent;
      all.bytes_received += one.bytes_received;
    }
    return all;
  }

  // All messages of a step have arrived. In the next step all of them may be unexpected, however few were in
  // this one, so this notes how much memory they would need.
  void note_step() noexcept {
    std::uint64_t blocks = 0;
    each([&blocks](const Peer& peer) { blocks += peer.receiver.unexpected_blocks(); });
    assert(blocks >= blocks_before_);
    step_blocks_ = blocks - blocks_before_;
    blocks_before_ = blocks;
  }
  // Reserves memory for the next step's messages, should all be unexpected.
  void reserve_unexpected() { blocks_.reserve(step_blocks_); }

 private:
  static std::size_t at(int rank) noexcept { return static_cast<std::size_t>(rank); }

  const RankNames names_;
  const int self_;
  UnexpectedBlocks blocks_;          // before the peers, which use it
  std::uint64_t blocks_before_ = 0;  // DataReceiver::unexpected_blocks of all peers, at the last step's end
  std::uint64_t step_blocks_ = 0;    // how many of them were for the last step
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace deltawire
