#include "reduce/patterns/hierarchical_plan.h"

namespace deltawire {

void HierarchicalPlan::cut(std::span<const Named> tensors, const Where& where) {
  assert(where.rank >= 0 && where.rank < where.world);
  groups_ = RankGroups(where.world, where.members);
  rank_ = where.rank;
  messages_.cut(tensors, groups_.lists(), {kPieceElements, kPieceElements}, [&](const Named& tensor) {
    return TensorParts{hierarchical_ranges(tensor.name, tensor.tensor.count, groups_.lists())};
  });
  shares = {{}, static_cast<std::size_t>(groups_.members(group()))};
  sums = {{}, static_cast<std::size_t>(groups_.count())};
  means = {};
  for (std::size_t list = 0; list < messages_.lists(); ++list) {
    const bool owns = groups_.owner(list) == rank_;
    for (std::size_t message = 0; message < messages_.list(list).size(); ++message) {
      if (adds(list)) shares.places.push_back({list, message});
      (owns ? sums : means).places.push_back({list, message});
    }
  }
  sums.from = shares.receive_of(shares.places.size(), 0);
  means.from = sums.receive_of(sums.places.size(), 0);
}

void HierarchicalPlan::place(std::span<const Named> tensors) {
  messages_.place(tensors);
  for (Arrivals* each : {&shares, &sums, &means}) each->next = each->source = 0;
}

int HierarchicalPlan::sender_of_mean(std::size_t list) const noexcept {
  const int owner = groups_.owner(list);
  return groups_.of(owner) == group() || adds(list) ? owner : groups_.adder(group(), list);
}

std::size_t HierarchicalPlan::most_sends() const noexcept {
  const int each = 2 * groups_.members(group()) + groups_.count();
  std::size_t messages = 0;
  for (std::size_t list = 0; list < messages_.lists(); ++list) messages += messages_.list(list).size();
  return static_cast<std::size_t>(each) * messages;
}

std::uint64_t HierarchicalPlan::raw_bytes_sent() const noexcept {
  const auto others = static_cast<std::uint64_t>(groups_.members(group()) - 1);
  const auto groups = static_cast<std::uint64_t>(groups_.count() - 1);
  std::uint64_t bytes = 0;
  for (std::size_t list = 0; list < messages_.lists(); ++list) {
    std::uint64_t copies = 1;  // of gradients, or of the sum
    if (adds(list)) copies = others + (groups_.owner(list) == rank_ ? groups : 1);
    for (const PartMessage& message : messages_.list(list)) bytes += copies * message.raw_bytes();
  }
  return bytes;
}

std::vector<OwnedRange> hierarchical_ranges(std::string_view name, std::uint64_t count, std::size_t lists) {
  return owned_ranges(name, count, static_cast<int>(lists), kPieceElements);
}

}  // namespace deltawire
