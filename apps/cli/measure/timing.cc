#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "cli/measure/input.h"
#include "cli/measure/method.h"
#include "cli/progress.h"

namespace deltawire::cli {
namespace {

constexpr std::size_t kLeastRounds = 3;
constexpr std::size_t kMostRounds = 100'000;
constexpr std::uint64_t kMostCalls = 1000;
constexpr std::uint64_t kLeastBytes = std::uint64_t{1}
                                      << 20;  // a round's: reading the clock costs nothing then

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double median(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

// A channel that encodes and decodes one step's gradients again and again.
class Course {
 public:
  Course(std::unique_ptr<Channel> channel, const InputStep& step)
      : channel_(std::move(channel)), step_(step), parts_(step, *channel_, step.step) {
    id_.step = step.step;
    for (const InputTensor& tensor : step.tensors) copies_.emplace_back(tensor.values.size(), 1.0F);
  }

  // The message stays until the next one: committing only then leaves it to decode().
  Status encode() {
    channel_->commit();
    ASSIGN_OR_RETURN(pieces_, channel_->encode(parts_.sent(), id_));
    return {};
  }

  Status decode() { return channel_->decode(pieces_, parts_.slots(), id_, Into::kOverwrite, 1.0F); }

  Status copy() {
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      const std::vector<float>& values = step_.tensors[i].values;
      if (values.empty()) continue;
      std::memcpy(copies_[i].data(), values.data(), values.size() * sizeof(float));
      // The compiler may not find out that nobody reads the copy.
      asm volatile("" : : "g"(copies_[i].data()) : "memory");
    }
    return {};
  }

 private:
  std::unique_ptr<Channel> channel_;
  const InputStep& step_;
  Parts parts_;
  MessageId id_;
  std::span<const Bytes> pieces_;
  std::vector<std::vector<float>> copies_;
};

using Action = Status (Course::*)();

// Seconds of one call, the mean of `calls`.
Result<double> time_of(Course& course, Action action, std::uint64_t calls) {
  const double begin = processor_seconds();
  for (std::uint64_t i = 0; i < calls; ++i) {
    RETURN_IF_ERROR((course.*action)());
  }
  // No clock ticks faster; a division by 0 says nothing.
  return std::max(processor_seconds() - begin, 1e-9) / static_cast<double>(calls);
}

struct Rounds {
  std::vector<double> copy;
  std::vector<double> encode;
  std::vector<double> decode;
  std::vector<double> copy_to_encode;
  std::vector<double> copy_to_decode;
};

Status add_round(Course& course, std::uint64_t calls, Rounds& rounds) {
  const auto copy = time_of(course, &Course::copy, calls);
  ASSIGN_OR_RETURN(const auto encode, time_of(course, &Course::encode, calls));
  ASSIGN_OR_RETURN(const auto decode, time_of(course, &Course::decode, calls));
  rounds.copy.push_back(*copy);
  rounds.encode.push_back(encode);
  rounds.decode.push_back(decode);
  rounds.copy_to_encode.push_back(*copy / encode);
  rounds.copy_to_decode.push_back(*copy / decode);
  return {};
}

}  // namespace

Result<Speed> measure_speed(std::string_view codecs, const Policy& policy, const InputStep& step,
                            double seconds) {
  ASSIGN_OR_RETURN(auto channel, make_channel(codecs, ChannelOptions{.policy = policy}));
  Course course(std::move(channel), step);
  const std::uint64_t bytes = 4 * step.values();
  const std::uint64_t calls = std::clamp<std::uint64_t>(kLeastBytes / bytes, 1, kMostCalls);
  Rounds rounds;
  Rounds first;  // memory is taken, caches are filled: not counted
  RETURN_IF_ERROR(add_round(course, 1, first));
  const auto begin = std::chrono::steady_clock::now();
  const std::chrono::duration<double> limit(seconds);
  while (rounds.copy.size() < kLeastRounds ||
         (rounds.copy.size() < kMostRounds && std::chrono::steady_clock::now() - begin < limit)) {
    RETURN_IF_ERROR(add_round(course, calls, rounds));
    if (interrupted()) break;
  }
  const double giga = 1e-9 * static_cast<double>(bytes);
  return Speed{giga / median(rounds.encode), giga / median(rounds.decode), giga / median(rounds.copy),
               median(rounds.copy_to_encode), median(rounds.copy_to_decode)};
}

}  // namespace deltawire::cli
