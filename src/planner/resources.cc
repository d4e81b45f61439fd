#include "planner/resources.h"

#include <algorithm>
#include <cassert>

namespace deltawire::planner {

// Evenly spaced jobs on one server: the last ends at the latest of three times (the server was busy, the
// first job was late, the last job was late), because the jobs in between depend linearly on their number.
Train Processor::work(const Train& inputs, double count, double seconds) noexcept {
  assert(inputs.first <= inputs.last && seconds >= 0 && share_ > 0);
  if (count <= 0) return {std::max(free_at_, inputs.first), std::max(free_at_, inputs.last)};
  const double each = seconds / share_;
  const double first = std::max(free_at_, inputs.first) + each;
  const double last = std::max(first + (count - 1) * each, inputs.last + each);
  assert(first <= last && last >= free_at_);
  free_at_ = last;
  return {first, last};
}

Train Line::carry(const Train& made, double count, const Lengths& bytes) noexcept {
  assert(made.first <= made.last && bytes.out >= 0 && bytes.in >= 0);
  if (count <= 0) return made;
  const double out = bytes.out / link_.up_bytes_per_second;
  const double in = bytes.in / link_.down_bytes_per_second;
  // The other ranks' messages to this one are sent at the same times as its own, but have another length.
  const double peer_out = bytes.in / link_.up_bytes_per_second;
  const double first_start = std::max(up_free_at_, made.first);
  const double last_start = std::max(first_start + (count - 1) * out, made.last);
  up_free_at_ = last_start + out;
  delivered_at_ =
      up_free_at_ + link_.latency_seconds + std::max(0.0, bytes.out / link_.down_bytes_per_second - out);
  const double slower = std::max(in, peer_out);
  const double first = std::max(down_free_at_ + in, first_start + link_.latency_seconds + slower);
  const double last = std::max(first + (count - 1) * in, last_start + link_.latency_seconds + slower);
  assert(first <= last && last >= down_free_at_);
  down_free_at_ = last;
  sent_ += count * bytes.out;
  received_ += count * bytes.in;
  return {first, last};
}

}  // namespace deltawire::planner
