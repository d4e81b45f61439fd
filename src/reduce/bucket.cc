#include "reduce/bucket.h"

#include <cstring>

namespace deltawire {

void Bucket::open(std::span<const Named> given, const Step& at, Transport& over, Deadline until) {
  step = at;
  transport = &over;
  deadline = until;
  report = Report{};
  pairs = nullptr;
  sends.clear();
  for (Incoming& message : incoming) message.handle = Handle::kNone;
  names.assign(given.size(), {});
  tensors.assign(given.begin(), given.end());
  for (std::size_t i = 0; i < given.size(); ++i) {
    names[i] = given[i].name;
    tensors[i].name = names[i];
    report.element_count += given[i].tensor.elements();
  }
}

void Bucket::take_staging() {
  staged.resize(report.element_count);
  staged_at.resize(tensors.size());
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    staged_at[i] = at;
    at += tensors[i].tensor.count;
  }
}

void Bucket::publish() {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].tensor.count == 0) continue;
    std::memcpy(tensors[i].tensor.values, staged.data() + staged_at[i], 4 * tensors[i].tensor.count);
  }
}

}  // namespace deltawire
