#include "elastic/meeting_context.h"

#include <algorithm>

#include "channel/distinct_tensors.h"

namespace deltawire::elastic {

MeetingContext::MeetingContext(ElasticOptions given, std::string all_settings)
    : options(std::move(given)),
      settings(std::move(all_settings)),
      limit(std::max(options.connect_timeout, options.arrival_timeout)),
      chunk_time(options.timeout),
      caller({options.token, options.encryption}, ending) {}

Status MeetingContext::check_open(const char* meanwhile) const {
  if (ending.is_set()) return fail(ErrorCode::kAborted, std::string("the session was closed ") + meanwhile);
  return {};
}

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

void MeetingContext::log(const std::string& line) const {
  if (options.log) options.log(line);
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
