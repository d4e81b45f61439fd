#include "elastic/meeting_context.h"

#include <algorithm>
#include <functional>

#include "base/errors.h"
#include "channel/distinct_tensors.h"

namespace deltawire::elastic {

namespace {

// Their lines differ, so that one thin line holds up nobody else.
Failures for_each(const PeersByKey& peers, const std::function<Status(int, PeerLine&)>& action) {
  const std::vector<PeersByKey::value_type> all(peers.begin(), peers.end());
  Failures failures;
  Mutex mutex;
  at_once(all.size(), all.size(), [&](std::size_t i) {
    const auto& [key, peer] = all[i];
    const Busy busy(*peer->line);
    const Status done = action(key, *peer->line);
    const MutexLock lock(mutex);
    if (!done) failures.emplace(key, done.error());
  });
  return failures;
}

}  // namespace

std::pair<ResidualShares, Failures> collect_shares(const PeersByKey& peers, const Ending& ending) {
  ResidualShares shares;
  Mutex mutex;
  Failures failures = for_each(peers, [&](int key, PeerLine& line) -> Status {
    RETURN_IF_ERROR(line.say(AskShare{}));
    ASSIGN_OR_RETURN(auto share, line.receive_bytes(kSilence, ending));
    const MutexLock lock(mutex);
    shares[key] = std::move(share);
    return {};
  });
  return {std::move(shares), std::move(failures)};
}

Failures spread_shares(std::uint32_t epoch, const ResidualShares& shares, const PeersByKey& peers,
                       Clock::duration within, const Ending& ending) {
  return for_each(peers, [&](int key, PeerLine& line) -> Status {
    Shares head{epoch, {}};
    for (const auto& [id, share] : shares) {
      if (id != key) head.ids.push_back(id);
    }
    RETURN_IF_ERROR(line.say(head));
    for (const int id : head.ids) {
      RETURN_IF_ERROR(line.send_bytes(shares.at(id), kSilence, ending));
    }
    ASSIGN_OR_RETURN(const auto answer, line.hear_within(within, ending));
    if (std::holds_alternative<HasShares>(answer)) return {};
    return corrupt("a member does not say that it has the residuals");
  });
}

Result<ResidualShares> receive_shares(PeerLine& line, const Shares& first, const Ending& ending) {
  ResidualShares shares;
  for (const int id : first.ids) {
    ASSIGN_OR_RETURN(shares[id], line.receive_bytes(kSilence, ending));
  }
  RETURN_IF_ERROR(line.say(HasShares{}));
  return shares;
}

MeetingContext::MeetingContext(ElasticOptions given, std::string all_settings)
    : options(std::move(given)),
      settings(std::move(all_settings)),
      limit(std::max(options.connect_timeout, options.arrival_timeout)),
      chunk_time(options.timeout),
      caller({options.token, options.encryption}, ending) {}

Result<std::unique_ptr<Listener>> MeetingContext::listen() const {
  auto listener = listen_tcp(reception->address().host, options.ports);
  if (!listener && listener.error().code == ErrorCode::kAddressInUse)
    listener.error().message += "; a member of an elastic session needs two ports, one of them for its door";
  return listener;
}

Result<std::shared_ptr<const StateSender>> MeetingContext::offer_state() {
  if (!options.state) return std::shared_ptr<const StateSender>();
  const auto failed = [&](const Error& error) {
    const std::string text =
        "state= of the member at " + to_string(reception->address()) + " failed: " + error.text();
    log(text + "; a process that joins gets nothing from here");
    return fail(ErrorCode::kAborted, text);
  };
  auto arrays = options.state();
  if (!arrays) return failed(arrays.error());
  auto sender = StateSender::make(*std::move(arrays));
  if (!sender) return failed(sender.error());
  reception->offer(*sender);
  return sender;
}

TensorShape shape_of(const Named& tensor) {
  TensorShape shape{std::string(tensor.name), {tensor.tensor.dims.begin(), tensor.tensor.dims.end()}};
  if (shape.dims.empty()) shape.dims.push_back(tensor.tensor.elements());
  return shape;
}

std::vector<Named> as_named(std::span<const TensorShape> shapes) {
  std::vector<Named> all;
  all.reserve(shapes.size());
  for (const TensorShape& shape : shapes) {
    Named& named = all.emplace_back();
    named.name = shape.name;
    named.tensor.dims = shape.dims;
    named.tensor.count = 1;
    for (const std::uint64_t dim : shape.dims) named.tensor.count *= dim;
  }
  return all;
}

void add_tensor(std::vector<TensorShape>& list, const TensorShape& tensor) {
  if (std::ranges::find(list, tensor.name, &TensorShape::name) == list.end()) list.push_back(tensor);
}

void replace_tensor(std::vector<TensorShape>& list, const TensorShape& tensor) {
  const auto at = std::ranges::find(list, tensor.name, &TensorShape::name);
  if (at == list.end()) {
    list.push_back(tensor);
  } else if (at->dims != tensor.dims) {
    at->dims = tensor.dims;
  }
}

std::string lines_of(std::span<const TensorShape> list) {
  std::string lines;
  for (const TensorShape& tensor : list) lines += in_words(tensor.name, {}, tensor.dims) + "\n";
  return lines;
}

}  // namespace deltawire::elastic
