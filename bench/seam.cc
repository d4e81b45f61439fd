// What the CPU's path pays for the seam of devices (docs/design/device.md): a message is encoded, decoded and
// committed with as many places more that ask for a backend as it has by itself, and without them, by turns.
// Processor time of the thread; medians.
//
// usage: seam
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <span>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/part_backend.h"

namespace deltawire {
namespace {

constexpr int kPlaces = 4;  // three times: those of a message of one part
constexpr int kTurns = 201;
constexpr std::size_t kElements = 300'000;  // a turn's, at least

double seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kTurns / 2, values.end());
  return values[kTurns / 2];
}

template <class Value>
Value must(Result<Value> made) {
  if (made) return *std::move(made);
  std::fprintf(stderr, "%s\n", made.error().message.c_str());
  std::exit(1);
}

struct Resources {
  std::shared_ptr<PartBackend> backend;  // none
};

// Loads the pointer and compares it with null, as a place of the seam does on the CPU.
void ask(Resources* resources, int places) {
  for (int i = 0; i < places; ++i) {
    asm volatile("" : "+r"(resources) : : "memory");
    if (resources->backend) std::abort();
  }
}

class Messages {
 public:
  Messages(const char* spec, std::size_t count)
      : sender_(must(make_channel(spec))), receiver_(must(make_channel(spec))), values_(count), slot_(count) {
    for (std::size_t i = 0; i < count; ++i) values_[i] = static_cast<float>(i * 2654435761U % 1000) - 500.0F;
  }

  // Seconds a message.
  double turn(int places) {
    const std::size_t rounds = kElements / values_.size() + 1;
    const std::vector<Named> sent{{"t", {values_.data(), values_.size()}}};
    const std::vector<Named> received{{"t", {slot_.data(), slot_.size()}}};
    const MessageLayout from(sent);
    const MessageLayout to(received);
    const double began = seconds();
    for (std::size_t i = 0; i < rounds; ++i) {
      const MessageId id{.step = step_++};
      ask(&resources_, places);
      const std::span<const Bytes> message = must(sender_->encode(from, id));
      ask(&resources_, places);
      if (!receiver_->decode(message, to, id, Into::kAccumulate, 0.5F)) std::abort();
      ask(&resources_, places);
      sender_->commit();
    }
    return (seconds() - began) / static_cast<double>(rounds);
  }

 private:
  std::unique_ptr<Channel> sender_;
  std::unique_ptr<Channel> receiver_;
  std::vector<float> values_;
  std::vector<float> slot_;
  Resources resources_;
  std::uint64_t step_ = 0;
};

void print_row(const char* spec, std::size_t count) {
  Messages messages(spec, count);
  std::vector<double> without;
  std::vector<double> ratios;
  for (int i = 0; i < kTurns; ++i) {
    const double first = messages.turn(i % 2 * kPlaces);
    const double second = messages.turn((i + 1) % 2 * kPlaces);
    without.push_back(i % 2 == 0 ? first : second);
    ratios.push_back(i % 2 == 0 ? second / first : first / second);
  }
  std::printf("| `%s` | %zu | %.0f | %.4f |\n", spec, count, 1e9 * median(without), median(ratios));
}

}  // namespace
}  // namespace deltawire

int main() {
  std::puts("| codec | elements | ns a message | with twelve places more |\n|---|---:|---:|---:|");
  for (const char* spec : {"fp32", "int8", "3lc"}) {
    for (const std::size_t count : {256U, 4096U, 65536U}) deltawire::print_row(spec, count);
  }
}
