#include <utility>

#include "base/errors.h"
#include "deltawire/elastic.h"
#include "elastic/membership.h"
#include "reduce/session_calls.h"
#include "transport/process/fork_guard.h"

namespace deltawire {
namespace {

Status check_options(const ReducerOptions& options, const ElasticOptions& elastic) {
  if (elastic.at_least && *elastic.at_least < 1) return invalid("at_least must be 1 or more");
  if (options.revert != Revert::kExact) {
    return invalid(
        "revert='fold' keeps the input of a failed step, which an elastic session gives again: use "
        "revert=\"exact\"");
  }
  if (!elastic.place) return {};
  const ElasticPlace place = *elastic.place;
  if (place.world_size < 1 || place.rank < 0 || place.rank >= place.world_size) {
    return invalid("rank " + std::to_string(place.rank) + " is not in a world of " +
                   std::to_string(place.world_size));
  }
  if (place.world_size > static_cast<int>(elastic::kMembersMax)) {
    return invalid("an elastic session has at most " + std::to_string(elastic::kMembersMax) + " members");
  }
  return {};
}

}  // namespace

struct ElasticSession::Parts {
  Parts(std::string spec, const ReducerOptions& options, ElasticOptions elastic, std::string settings)
      : membership(std::move(spec), options, std::move(elastic), std::move(settings)) {}

  bool forked() const noexcept { return home != fork_generation(); }

  const std::uint64_t home = fork_generation();
  elastic::Membership membership;
};

ElasticSession::ElasticSession(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

ElasticSession::~ElasticSession() {
  if (parts_->forked()) [[maybe_unused]]
    const Parts* leaked = parts_.release();
}

Result<std::unique_ptr<ElasticSession>> ElasticSession::open(std::string_view spec,
                                                             const ReducerOptions& options,
                                                             ElasticOptions elastic,
                                                             std::unique_ptr<Listener> door) {
  RETURN_IF_ERROR(check_options(options, elastic));
  ASSIGN_OR_RETURN(auto settings, agreed_settings(spec, options));
  if (!elastic.settings.empty()) settings += "; " + elastic.settings;
  auto parts = std::make_unique<Parts>(std::string(spec), options, std::move(elastic), std::move(settings));
  RETURN_IF_ERROR(parts->membership.open(std::move(door)));
  return std::unique_ptr<ElasticSession>(new ElasticSession(std::move(parts)));
}

Result<Report> ElasticSession::all_reduce(std::span<const ElasticBucket> buckets, const ElasticStep& step) {
  if (parts_->forked()) return refused_in_child();
  return or_no_memory("taking a step of an elastic session",
                      [&] { return parts_->membership.all_reduce(buckets, step); });
}

int ElasticSession::rank() const {
  return parts_->membership.rank();
}

int ElasticSession::world_size() const {
  return static_cast<int>(parts_->membership.record().view().members.size());
}

std::uint32_t ElasticSession::epoch() const {
  return parts_->membership.record().view().epoch;
}

std::vector<ElasticMember> ElasticSession::members() const {
  return parts_->membership.record().view().members;
}

std::uint64_t ElasticSession::steps() const {
  return parts_->membership.record().steps();
}

bool ElasticSession::has_joiners() const {
  return parts_->membership.has_joiners();
}

std::vector<ElasticEvent> ElasticSession::events() const {
  return parts_->membership.record().events();
}

std::optional<std::span<const StateArray>> ElasticSession::joined_state() const {
  return parts_->membership.joined_state();
}

std::optional<ElasticSession::End> ElasticSession::end() const {
  return parts_->membership.record().end();
}

void ElasticSession::declare_tensors(std::span<const Named> tensors) {
  parts_->membership.declare(tensors);
}

Status ElasticSession::mask_sent(std::span<const Named> momenta) {
  if (parts_->forked()) return refused_in_child();
  return parts_->membership.between_steps([&](Reducer& reducer) { return mask_all(reducer, momenta); });
}

Result<std::vector<TensorUse>> ElasticSession::explain(std::span<const Named> tensors, std::uint64_t step) {
  if (parts_->forked()) return refused_in_child();
  return parts_->membership.between_steps([&](Reducer& reducer) {
    return or_no_memory("explaining",
                        [&]() -> Result<std::vector<TensorUse>> { return reducer.explain(tensors, step); });
  });
}

Result<std::vector<std::byte>> ElasticSession::save() {
  if (parts_->forked()) return refused_in_child();
  return parts_->membership.between_steps([](Reducer& reducer) { return reducer.save(); });
}

Status ElasticSession::load(Bytes state) {
  if (parts_->forked()) return refused_in_child();
  return parts_->membership.between_steps([&](Reducer& reducer) { return reducer.load(state); });
}

Status ElasticSession::load_resized(const SavedRanks& saved) {
  if (parts_->forked()) return refused_in_child();
  return parts_->membership.between_steps([&](Reducer& reducer) { return reducer.load_resized(saved); });
}

void ElasticSession::begin_at(std::uint64_t steps) {
  parts_->membership.begin_at(steps);
}

void ElasticSession::abort(std::string_view reason) {
  if (!parts_->forked()) parts_->membership.abort(reason);
}

void ElasticSession::close(std::string_view why) {
  if (!parts_->forked()) parts_->membership.close(why);
}

bool ElasticSession::closed() const noexcept {
  return parts_->membership.closed();
}

std::string ElasticSession::spec() const {
  return parts_->membership.spec();
}

Memory ElasticSession::memory() const {
  return parts_->membership.record().exchange()->reducer().memory();
}

Traffic ElasticSession::traffic() const {
  return parts_->membership.record().exchange()->traffic();
}

}  // namespace deltawire
