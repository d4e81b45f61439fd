#include "elastic/membership.h"

#include <algorithm>
#include <map>

#include "channel/distinct_tensors.h"
#include "transport/mesh/settings.h"

namespace deltawire::elastic {
namespace {

using namespace std::chrono_literals;

// Of one attempt to form a view; and the part of the meeting's time that it may take at most, so that there
// is another one if a member dies in it. A mesh takes some ten round trips.
constexpr Clock::duration kConnect = 10s;
constexpr double kConnectPart = 0.6;
constexpr Clock::duration kLeave = 1s;    // for each member that is told
constexpr std::size_t kToldAtOnce = 32;   // so that silent members hold up few others
constexpr Clock::duration kPause = 50ms;  // before the next attempt to form a view
constexpr int kBlamedTwice = 2;

// What the loss of a member looks like. After other errors all members would do the same again.
bool is_recoverable(ErrorCode code) {
  return code == ErrorCode::kPeerLost || code == ErrorCode::kTimeout || code == ErrorCode::kAborted ||
         code == ErrorCode::kCorrupt || code == ErrorCode::kSystem;
}

// Whether one of the processes has ended that have these lines, or has given up the view.
bool has_hung_up(const std::vector<std::shared_ptr<PeerLine>>& lines) {
  return std::ranges::any_of(lines, [](const auto& line) { return !line->hear(MachineClock::now()); });
}

std::string rank_text(int rank) {
  return "rank " + std::to_string(rank);
}

std::string text_of(const ElasticEvent& event) {
  const std::string gone = list_of(event.gone, ", ", [](const ElasticEvent::Gone& each) {
    return std::to_string(each.rank) + " (" + each.why + ")";
  });
  const std::string joined = list_of(event.joined, ", ", [](int id) { return std::to_string(id); });
  return "epoch " + std::to_string(event.epoch) + " begins at step " + std::to_string(event.step) + " with " +
         std::to_string(event.world_size) + " members, after " +
         seconds_text(std::chrono::duration<double>(event.seconds)) + " s; gone [" + gone + "], joined [" +
         joined + "]";
}

void tell_all(const MeetingContext& context, const View& view, const Leaves& leaves) {
  const Ending never;
  const Caller caller({context.options.token, context.options.encryption}, never);
  const auto own = static_cast<std::size_t>(view.rank_of(leaves.id).value_or(0));
  at_once(view.members.size(), kToldAtOnce, [&](std::size_t i) {
    const Member& member =
        view.members[(own + i) % view.members.size()];  // or many who leave call one together
    if (member.id != leaves.id) (void)caller.ask(member.door, leaves, kLeave);
  });
}

// Counts whom an attempt to form the view failed for; twice, and the member is blamed. A host that gave up
// has found that a process which joins is dead.
void blame(const View& view, const Error& error, std::map<int, int>& counts, MemberState& state) {
  const bool blames = error.suspect != kNoSuspect && error.code != ErrorCode::kAborted &&
                      error.suspect < static_cast<int>(view.members.size());
  if (!blames) return;
  const int id = view.members[static_cast<std::size_t>(error.suspect)].id;
  if (++counts[id] >= kBlamedTwice && id != state.id) state.blamed.insert(id);
}

}  // namespace

Membership::Membership(std::string spec, const ReducerOptions& options, ElasticOptions elastic,
                       std::string settings)
    : given_spec_(std::move(spec)), options_(options), context_(std::move(elastic), std::move(settings)) {}

Status Membership::open(std::unique_ptr<Listener> door) {
  const ElasticOptions& options = context_.options;
  if (!door) {
    auto doors = options.doors;
    if (options.more_doors && (!options.place || doors.empty())) doors = options.more_doors();
    if (doors.empty()) return invalid("an elastic session needs the address of a door");
    ASSIGN_OR_RETURN(door, listen_for(doors.front(), options.place ? options.place->rank : 1, options.ports,
                                      options.interface,
                                      std::chrono::duration_cast<std::chrono::milliseconds>(context_.limit),
                                      options.interrupted));
  }
  ASSIGN_OR_RETURN(auto opened, open_door(std::move(door), {options.token, options.encryption}));
  ASSIGN_OR_RETURN(context_.reception,
                   Reception::open(std::move(opened), context_.settings, context_.chunk_time));
  Status begun = options.place ? begin() : join();
  if (begun) spec_ = record_.exchange()->reducer().spec();
  return begun;
}

Status Membership::begin() {
  const ElasticPlace place = *context_.options.place;
  const Clock::duration within = context_.options.connect_timeout;
  const Found self{place.rank, place.world_size, context_.reception->address(), context_.settings};
  ASSIGN_OR_RETURN(auto agreement, place.rank == 0
                                       ? found_session(context_, place.world_size)
                                       : Arrival(context_, nullptr, MachineClock::now() + within).come(self));
  state_.id = place.rank;
  state_.base = agreement.next.view;
  context_.reception->introduce(agreement.next.job, state_.id, agreement.next.view);
  return start(std::move(agreement), within);
}

Status Membership::join() {
  const Deadline end = MachineClock::now() + context_.options.connect_timeout;
  StateReceiver receiver(context_.caller, context_.chunk_time);
  while (true) {
    ASSIGN_OR_RETURN(
        auto agreement,
        Arrival(context_, &receiver, end).come(Join{context_.reception->address(), context_.settings}));
    if (!agreement.next.new_id) return corrupt("a member gave this process no number");
    state_.id = *agreement.next.new_id;
    state_.tried = {agreement.next.view};
    auto opens = agreement.next.opens;
    context_.reception->introduce(agreement.next.job, state_.id,
                                  agreement.next.base ? *agreement.next.base : agreement.next.view);
    Status started = start(std::move(agreement), kConnect);
    if (started) {
      joined_ = receiver.arrays();
      due_ = std::move(opens);
      return {};
    }
    context_.reception->withdraw();
    // The others may go on without it, and it may ask any of them: the one that it knew may be dead.
    tell_all(context_, state_.tried.front(), {state_.job, state_.id, "it could not connect"});
    for (const Member& member : state_.tried.front().members) {
      if (member.id != state_.id) add_doors(context_.options.doors, {member.door});
    }
    if (!is_recoverable(started.error().code) || MachineClock::now() > end - 1s) return started;
  }
}

Status Membership::start(Agreement agreement, Clock::duration within) {
  state_.job = agreement.next.job;
  state_.steps = agreement.next.steps;
  ASSIGN_OR_RETURN(auto exchange, connect(agreement, within));
  enter(agreement.next, std::move(exchange));
  return {};
}

MeshOptions Membership::mesh_of(const Agreement& agreement, int rank, Clock::duration within) const {
  const ElasticOptions& options = context_.options;
  MeshOptions mesh;
  mesh.rank = rank;
  mesh.world_size = static_cast<int>(agreement.next.view.members.size());
  mesh.rendezvous = agreement.next.meeting_place;
  mesh.token = options.token;
  mesh.encryption = options.encryption;
  mesh.settings = fitted_settings(context_.settings);
  mesh.epoch = agreement.next.view.epoch;
  mesh.connect_timeout = std::chrono::ceil<std::chrono::milliseconds>(within);
  mesh.arrival_timeout = options.arrival_timeout;
  mesh.link = options.link;
  // Everybody would wait for a dead process, and for a member that has lost the host and calls here; but who
  // founds a session has no other view to look for, and no lines.
  mesh.interrupted = [this, &agreement, may_meet_again = agreement.next.view.epoch > 0] {
    const bool is_asked = context_.options.interrupted && record_.view().members.empty();
    return context_.ending.is_set() ||
           (may_meet_again &&
            (has_hung_up(agreement.lines) || context_.reception->is_called_by(agreement.next.view))) ||
           (is_asked && context_.options.interrupted());
  };
  return mesh;
}

Result<std::shared_ptr<EpochExchange>> Membership::connect(Agreement& agreement, Clock::duration within) {
  const auto rank = agreement.next.view.rank_of(state_.id);
  if (!rank) return corrupt("the members agreed on a view without this one");
  if (agreement.next.view.epoch > 0) {
    context_.log("epoch " + std::to_string(agreement.next.view.epoch) + " was agreed on, at step " +
                 std::to_string(agreement.next.steps));
  }
  const MeshOptions mesh = mesh_of(agreement, *rank, within);
  const bool is_host = agreement.listener != nullptr;
  Result<std::unique_ptr<Listener>> listener = std::move(agreement.listener);
  if (!is_host) listener = context_.listen();
  if (!listener) return forward_error(listener);
  auto connected = EpochExchange::connect(given_spec_, options_, *std::move(listener), mesh);
  if (!connected && agreement.next.view.epoch > 0 && has_hung_up(agreement.lines)) {
    return fail(ErrorCode::kAborted, "another process of it has ended, or looks for another view");
  }
  ASSIGN_OR_RETURN(auto exchange, std::move(connected));
  if (Status loaded = load(exchange->reducer(), agreement); !loaded) {
    exchange->abort({.code = ErrorCode::kAborted,
                     .message = rank_text(*rank) + " can't load the residuals: " + loaded.error().message});
    return forward_error(loaded);
  }
  context_.lines = std::move(agreement.lines);
  return exchange;
}

// A step that failed has left no trace, so that the residuals are those of the base's last step until a step
// of a later view is committed.
Status Membership::load(Reducer& reducer, const Agreement& agreement) {
  const NextView& next = agreement.next;
  for (const TensorShape& tensor : next.tensors) add_tensor(context_.tensors, tensor);
  if (!next.base) return {};
  if (!next.shares) return reducer.load(context_.residuals);
  std::vector<Bytes> states;
  for (const Member& member : next.base->members) {
    const auto share = agreement.shares.find(member.id);
    states.push_back(share == agreement.shares.end() ? Bytes{} : Bytes(share->second));
  }
  if (const auto own = next.base->rank_of(state_.id))
    states[static_cast<std::size_t>(*own)] = context_.residuals;
  std::vector<int> continued;
  for (const Member& member : next.view.members) {
    continued.push_back(next.base->rank_of(member.id).value_or(-1));
  }
  return reducer.load_resized({.states = states,
                               .tensors = as_named(context_.tensors),
                               .world = static_cast<int>(next.view.members.size()),
                               .rank = *next.view.rank_of(state_.id),
                               .continued = continued});
}

void Membership::enter(const NextView& next, std::shared_ptr<EpochExchange> exchange) {
  record_.enter(next.view, std::move(exchange), state_.steps);
  context_.reception->enter(state_.job, state_.id, next.view);
}

std::optional<Error> Membership::check_open_step(std::span<const ElasticBucket> buckets) {
  if (const auto end = record_.end()) return end->error;
  if (gave_up_) return record_.end_with({ErrorCode::kAborted, "this session was aborted"});
  if (closed()) return Error{ErrorCode::kState, "the session is closed"};
  std::vector<TensorShape> opens;
  for (const ElasticBucket& each : buckets) {
    for (const Named& tensor : each.bucket.tensors) opens.push_back(shape_of(tensor));
  }
  if (due_ && opens != *due_) {
    const std::string where = " in step " + std::to_string(state_.steps) + " of the session";
    const std::string text =
        first_difference({lines_of(*due_), where}, {lines_of(opens), " in this process"}) +
        "; this process has left, and the others go on: join with the same names and shapes";
    close(text);
    return record_.end_with(mismatch(text).value());
  }
  due_.reset();
  if (opens != context_.opens) {
    for (const TensorShape& tensor : opens) replace_tensor(context_.tensors, tensor);
    context_.opens = std::move(opens);
  }
  return std::nullopt;
}

Result<Report> Membership::all_reduce(std::span<const ElasticBucket> buckets, const ElasticStep& step) {
  const auto bare = std::ranges::find_if(buckets, [](const ElasticBucket& each) { return !each.prepare; });
  if (buckets.end() - bare > 1) {
    return invalid(
        "a bucket but the last has no `prepare`: an attempt that fails after it leaves means in its tensors, "
        "which the next one would take for gradients");
  }
  for (const ElasticBucket& each : buckets) {
    RETURN_IF_ERROR(check_names(each.bucket.tensors));
    RETURN_IF_ERROR(check_apart(each.bucket.tensors));
  }
  const Using use(*this);
  if (!use.is_alone()) return wrong_state("another thread uses the session");
  if (auto error = check_open_step(buckets)) return tl::unexpected<Error>(*std::move(error));
  while (true) {
    Error error;
    const auto exchange = record_.exchange();
    if (has_joiners()) {
      const int own = rank();
      error = {.code = ErrorCode::kAborted, .message = rank_text(own) + " lets others join", .reporter = own};
      exchange->abort(error);
    } else {
      is_stepping_ = true;
      auto report = exchange->run(buckets, state_.steps, step, context_.options.timeout);
      is_stepping_ = false;
      if (report) {
        committed();
        return report;
      }
      error = report.error();
      if (!is_recoverable(error.code) || gave_up_) return tl::unexpected<Error>(record_.end_with(error));
    }
    RETURN_IF_ERROR(recover(error));
    if (gave_up_) {
      return tl::unexpected<Error>(record_.end_with({ErrorCode::kAborted, "this session was aborted"}));
    }
  }
}

void Membership::committed() {
  ++state_.steps;
  const View now = record_.view();
  if (!state_.base || state_.base->epoch != now.epoch) {
    state_.base = now;
    state_.tried.clear();
    context_.reception->forget_left(now);
  }
  has_residuals_ = false;
  context_.residuals.clear();
  context_.lines.clear();
  record_.set_steps(state_.steps);
}

Status Membership::recover(const Error& error) {
  const Deadline begun = MachineClock::now();
  const View before = record_.view();
  context_.log(rank_text(rank()) + ": " + error.text() + "; looking for who goes on");
  // Who waits for this member would wait for ever.
  const auto ends = [&](Error problem, std::optional<std::uint32_t> about) -> Status {
    Error final_error = record_.end_with(std::move(problem), about);
    context_.reception->close();
    return tl::unexpected<Error>(std::move(final_error));
  };
  if (Status saved = save_residuals(); !saved) return ends(saved.error(), {});
  record_.exchange()->close();
  auto next = form_view();
  if (!next) return ends(next.error().error, next.error().epoch);
  if (context_.ending.is_set()) {
    record_.exchange()->close();
    return ends({ErrorCode::kAborted, "the session was closed while its members met"}, {});
  }
  const double seconds = std::chrono::duration<double>(MachineClock::now() - begun).count();
  context_.log(rank_text(rank()) + ": " + text_of(record_.add_event(*next, before, error, seconds)));
  return {};
}

Status Membership::save_residuals() {
  if (has_residuals_) return {};
  Reducer& reducer = record_.exchange()->reducer();
  ASSIGN_OR_RETURN(context_.residuals, reducer.save());
  has_residuals_ = true;
  state_.residual = 0;
  for (const TensorUse& use : reducer.explain(as_named(context_.tensors), state_.steps)) {
    state_.residual += use.residual_norm * use.residual_norm;
  }
  return {};
}

OrEnded<NextView> Membership::form_view() {
  state_.blamed.clear();
  Meeting meeting(state_, context_);
  std::map<int, int> blamed;
  while (true) {
    auto agreement = meeting.agree();
    if (!agreement) return tl::unexpected<Ended>(agreement.error());
    state_.tried.push_back(agreement->next.view);
    const auto part = std::chrono::duration_cast<Clock::duration>(kConnectPart * context_.limit);
    auto exchange = connect(*agreement, std::min(kConnect, part));
    if (exchange) {
      enter(agreement->next, *std::move(exchange));
      return std::move(agreement->next);
    }
    const Error& error = exchange.error();
    context_.log("epoch " + std::to_string(agreement->next.view.epoch) + " did not begin: " + error.text());
    // A member may have called where the next attempt's mesh meets already.
    if (!is_recoverable(error.code) && error.code != ErrorCode::kMismatch) return ended(error);
    if (meeting.is_over()) {
      if (auto included = meeting.check_included(); !included) return tl::unexpected<Ended>(included.error());
      return ended(error);
    }
    blame(agreement->next.view, error, blamed, state_);
    context_.ending.pause(kPause);
  }
}

Error Membership::given_up(const std::string& how) const {
  const int own = rank();
  return {.code = ErrorCode::kAborted,
          .message = printable_line(rank_text(own) + " " + how),
          .suspect = own,
          .reporter = own};
}

void Membership::abort(std::string_view reason) {
  gave_up_ = !record_.end();
  const Error error = given_up("gave up: " + std::string(reason));
  if (const auto exchange = record_.exchange()) exchange->abort(error);
  close(error.message);
}

void Membership::close(std::string_view why) {
  if (!context_.reception || context_.ending.is_set()) return;
  context_.ending.set();
  const auto exchange = record_.exchange();
  if (exchange && (gave_up_ || !record_.end())) {  // an aborted step has ended it meanwhile
    tell_all(context_, record_.view(), {state_.job, state_.id, std::string(why)});
  }
  if (exchange) {
    if (is_stepping_) exchange->abort(given_up("closed its session with a step under way"));
    exchange->close();
  }
  context_.reception->close();
  context_.probing.join();
}

std::optional<std::span<const StateArray>> Membership::joined_state() const {
  if (!joined_) return std::nullopt;
  return joined_->list;
}

void Membership::declare(std::span<const Named> tensors) {
  for (const Named& tensor : tensors) replace_tensor(context_.tensors, shape_of(tensor));
}

void Membership::begin_at(std::uint64_t steps) {
  state_.steps = steps;
  record_.set_steps(steps);
}

}  // namespace deltawire::elastic
