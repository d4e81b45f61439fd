#include "doctor/this_machine.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <optional>
#include <thread>

#include <sys/socket.h>
#include <unistd.h>

#include "base/control_groups.h"
#include "base/errors.h"
#include "deltawire/workers.h"
#include "transport/links/connection.h"
#include "transport/tcp/address.h"
#include "transport/tcp/long_line.h"

namespace deltawire::doctor {
namespace {

constexpr std::chrono::seconds kNameServerPatience{2};

// The third number, the most: "4096 16384 4194304".
std::uint64_t most_bytes(const char* path) {
  std::ifstream file(path);
  std::uint64_t least = 0;
  std::uint64_t usual = 0;
  std::uint64_t most = 0;
  return file >> least >> usual >> most ? most : 0;
}

std::uint64_t memory_of_machine() {
  const auto pages = ::sysconf(_SC_PHYS_PAGES);
  const auto page_bytes = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0
             ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes)
             : 0;
}

// The address that the host's name means here, unless a name server is silent.
std::optional<SocketAddress> address_of(const std::string& name) {
  const NameLookup lookup({name, 0});
  const Deadline end = Clock::now() + kNameServerPatience;
  auto answer = lookup.answer();
  for (; !answer && Clock::now() < end; answer = lookup.answer())
    std::this_thread::sleep_for(NameLookup::kPause);
  if (!answer || !*answer) return std::nullopt;
  return **answer;
}

void look_at_sockets(MachineFindings& machine) {
  const SocketLink probe(GuardedFd::open([] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }));
  machine.congestion_control = probe.state().congestion_control;
  if (const int refused = ask_for_bbr(probe.fd()); refused != 0) machine.bbr_refusal = os_error_text(refused);
  machine.send_bytes = most_bytes("/proc/sys/net/ipv4/tcp_wmem");
  machine.receive_bytes = most_bytes("/proc/sys/net/ipv4/tcp_rmem");
}

}  // namespace

double wall_clock() noexcept {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

MachineFindings this_machine(const std::string& version) {
  MachineFindings machine;
  machine.version = version;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) machine.name = printable_line(name.data());
  if (const auto address = address_of(machine.name)) {
    machine.address = address->endpoint().host;
    machine.is_loopback = address->is_loopback();
  }
  machine.processors = static_cast<std::uint64_t>(Workers::processors());
  machine.all_processors = static_cast<std::uint64_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  machine.memory_bytes = std::min(memory_limit(), memory_of_machine());
  look_at_sockets(machine);
  machine.clock = wall_clock();
  return machine;
}

}  // namespace deltawire::doctor
