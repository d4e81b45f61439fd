// A long line between two network namespaces: TUN devices whose packets this process delays, loses, and lets
// through at a rate. The kernel's own TCP runs over it. Needs root and /dev/net/tun.
//
// usage: delay_line NAMESPACE_A NAMESPACE_B DELAY_MS LOSS MBIT     DELAY_MS and LOSS (0 to 1) in each
// direction
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kQueue{0.1};  // how long a packet may wait for the line before it is dropped
constexpr unsigned kSeed = 7;
constexpr int kAtOnce = 64;  // packets that are read before those that are due leave

struct LineShape {
  Seconds delay{};
  double loss = 0;
  double bytes_per_second = 0;
};

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "delay_line: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

// The device "line" of a namespace. This process stays in its own.
int open_device(const char* name) {
  const int home = ::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  const int there = ::open((std::string("/var/run/netns/") + name).c_str(), O_RDONLY | O_CLOEXEC);
  if (home < 0 || there < 0 || ::setns(there, CLONE_NEWNET) != 0) give_up(name);
  const int device = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strncpy(request.ifr_name, "line", IFNAMSIZ - 1);
  if (device < 0 || ::ioctl(device, TUNSETIFF, &request) != 0) give_up("/dev/net/tun");
  if (::setns(home, CLONE_NEWNET) != 0) give_up("setns");
  ::close(home);
  ::close(there);
  return device;
}

// One direction.
class Way {
 public:
  Way(int from, int to, const LineShape& shape, unsigned seed)
      : from_(from), to_(to), shape_(shape), random_(seed) {}

  void take() {
    for (int i = 0; i < kAtOnce; ++i) {
      const ssize_t bytes = ::read(from_, buffer_.data(), buffer_.size());
      if (bytes <= 0) return;
      const auto now = Clock::now();
      free_at_ = std::max(free_at_, now);
      if (loses_() || free_at_ - now > kQueue) continue;
      free_at_ += std::chrono::duration_cast<Clock::duration>(
          Seconds(static_cast<double>(bytes) / shape_.bytes_per_second));
      const auto due = free_at_ + std::chrono::duration_cast<Clock::duration>(shape_.delay);
      packets_.push_back({due, std::vector<char>(buffer_.data(), buffer_.data() + bytes)});
    }
  }

  void give() {
    for (; !packets_.empty() && packets_.front().due <= Clock::now(); packets_.pop_front()) {
      const std::vector<char>& packet = packets_.front().bytes;
      (void)!::write(to_, packet.data(), packet.size());  // a device that is full loses it, as lines do
    }
  }

  std::optional<Clock::time_point> next_due() const {
    if (packets_.empty()) return std::nullopt;
    return packets_.front().due;
  }

 private:
  struct Packet {
    Clock::time_point due;
    std::vector<char> bytes;
  };

  bool loses_() { return std::uniform_real_distribution<>()(random_) < shape_.loss; }

  int from_;
  int to_;
  LineShape shape_;
  std::mt19937 random_;
  Clock::time_point free_at_{};
  std::deque<Packet> packets_;
  std::array<char, 65536> buffer_{};
};

timespec time_until(const std::optional<Clock::time_point>& due) {
  const auto left = due ? std::max(*due - Clock::now(), Clock::duration::zero()) : std::chrono::seconds(1);
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  return {nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
}

}  // namespace

int main(int count, char** given) {
  if (count != 6) {
    std::fprintf(stderr, "usage: delay_line NAMESPACE_A NAMESPACE_B DELAY_MS LOSS MBIT\n");
    return 2;
  }
  const LineShape shape{Seconds(std::atof(given[3]) / 1e3), std::atof(given[4]),
                        std::atof(given[5]) * 1e6 / 8};
  if (!(shape.delay.count() >= 0 && shape.loss >= 0 && shape.loss < 1 && shape.bytes_per_second > 0)) {
    std::fprintf(stderr, "delay_line: the delay is at least 0, the loss 0 to 1, the rate above 0\n");
    return 2;
  }
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::array<int, 2> devices{open_device(given[1]), open_device(given[2])};
  std::array<Way, 2> ways{Way(devices[0], devices[1], shape, kSeed),
                          Way(devices[1], devices[0], shape, kSeed + 1)};
  std::puts("ready");
  std::fflush(stdout);
  while (true) {
    const auto first = ways[0].next_due();
    const auto second = ways[1].next_due();
    const timespec wait = time_until(first && second ? std::min(*first, *second) : first ? first : second);
    std::array<pollfd, 2> polls{pollfd{devices[0], POLLIN, 0}, pollfd{devices[1], POLLIN, 0}};
    (void)::ppoll(polls.data(), polls.size(), &wait, nullptr);
    for (Way& way : ways) {
      way.take();
      way.give();
    }
  }
}
