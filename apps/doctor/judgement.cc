#include "doctor/judgement.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "transport/tcp/long_line.h"

namespace deltawire::doctor {
namespace {

constexpr double kLongRoundTripSeconds = std::chrono::duration<double>(kLongRoundTrip).count();
constexpr double kMuchLost = 1e-3;   // share of the bytes; cubic's rate on a long line is then a fraction
constexpr double kNoticed = 1e-2;    // queues of short lines overflow now and then
constexpr double kClocksApart = 2;   // seconds, where logs no longer fit together
constexpr double kUneven = 4;        // one direction's rate by the other's
constexpr double kFullWindow = 0.4;  // of a buffer, whose other half the kernel keeps for itself

std::string rounded(double number, int digits = 3) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, number);
  return text;
}

class Judge {
 public:
  Judge(const MachineFindings& here, bool has_peers, bool has_token)
      : here_(here), has_peers_(has_peers), has_token_(has_token) {}

  void look_at_machine(const MachineFindings& machine, const std::string& whose) {
    if (machine.address.empty()) {
      add(has_peers_, whose + " name \"" + machine.name + "\" has no address there",
          "give rank 0's address as a number, or add the name to /etc/hosts");
    } else if (machine.is_loopback) {
      add(has_peers_,
          whose + " name \"" + machine.name + "\" means " + machine.address +
              " there, so that Gloo, and a rank 0 that listens on its name, hear nobody",
          "set GLOO_SOCKET_IFNAME and DELTAWIRE_INTERFACE there, and give rank 0's address as a number; or "
          "change the name's line in /etc/hosts");
    }
    if (machine.processors == 1 && machine.all_processors > 1) {
      add(false,
          whose + " process may use 1 of " + std::to_string(machine.all_processors) +
              " processors (affinity, or a control group's quota), which training, coding and sending share",
          "allow it 2 or more: --cpus, resources.limits.cpu, --cpus-per-task");
    }
  }

  void look_at_line(const LineFindings& line) {
    const std::string at = to_string(line.at);
    if (line.no_answer) return explain_silence(line, at);
    look_at_versions(line, at);
    look_at_addresses(line, at);
    look_at_rate(line, line.out, here_, line.machine, "to " + at);
    look_at_rate(line, line.back, line.machine, here_, "from " + at);
    const double fast = std::max(line.out.bytes_per_second, line.back.bytes_per_second);
    const double slow = std::min(line.out.bytes_per_second, line.back.bytes_per_second);
    if (slow > 0 && fast > kUneven * slow) {
      add(false, "the line to " + at + " is " + rounded(fast / slow, 2) + " times as fast in one direction",
          "exchanges need both alike: look at the slower one's uplink");
    }
    if (!has_token_ && line.is_encrypted) {
      add(false, "no token: whoever reaches a port of this job may take part",
          "set DELTAWIRE_TOKEN to the output of 'openssl rand -hex 32', alike on all machines");
    }
  }

  std::vector<Advice> take() { return std::move(advice_); }

 private:
  void add(bool is_wrong, std::string what, std::string remedy) {
    Advice advice{is_wrong, std::move(what), std::move(remedy)};
    if (std::ranges::find(advice_, advice) == advice_.end()) advice_.push_back(std::move(advice));
  }

  void explain_silence(const LineFindings& line, const std::string& at) {
    const std::string serve = "'deltawire doctor --serve --port " + std::to_string(line.at.port) + "'";
    const char* remedy = "look at the network between the two";
    std::string text = line.no_answer->text();
    switch (line.no_answer->code) {
      case ErrorCode::kPeerLost:
        return add(
            true, text,
            "check the name or address, and start " + serve + " there; if it runs, a firewall refuses");
      case ErrorCode::kTimeout:
        return add(true, text,
                   "open TCP port " + std::to_string(line.at.port) + " of " + line.at.host +
                       " to this machine in the firewall, check the address, and that " + serve +
                       " runs there");
      case ErrorCode::kUnauthorized:
        remedy = "give both the same DELTAWIRE_TOKEN (or --token-file) and the same version of deltawire";
        break;
      case ErrorCode::kMismatch:
      case ErrorCode::kCorrupt:
        remedy = "give both the same version of deltawire, and the same DELTAWIRE_ENCRYPTION";
        break;
      default: break;
    }
    add(true, text.find(at) == std::string::npos ? at + ": " + text : text, remedy);
  }

  void look_at_versions(const LineFindings& line, const std::string& at) {
    if (line.machine.version != here_.version) {
      add(true, "deltawire is " + here_.version + " here and " + line.machine.version + " at " + at,
          "install the same version on all machines");
    }
    if (std::abs(line.clock_ahead) > kClocksApart) {
      add(false,
          "the clock at " + at + " is " + rounded(std::abs(line.clock_ahead)) + " s " +
              (line.clock_ahead > 0 ? "ahead" : "behind"),
          "exchanges don't need it, but logs do: run chrony or another NTP client on both");
    }
  }

  void look_at_addresses(const LineFindings& line, const std::string& at) {
    if (!line.seen_address.empty() && !line.own_address.empty() && line.seen_address != line.own_address) {
      add(true,
          at + " sees this machine at " + line.seen_address + ", which is not its own address " +
              line.own_address + ": there is NAT between them",
          "put both into one network, for example by WireGuard, and set DELTAWIRE_INTERFACE to its "
          "interface");
    } else if (!line.no_way_back.empty()) {
      add(true, at + " can't call back: " + line.no_way_back,
          "open the ports of DELTAWIRE_PORT (29600-29699, say) on both machines, not only there, and set it");
    }
  }

  void look_at_rate(const LineFindings& line, const RateFindings& rate, const MachineFindings& sender,
                    const MachineFindings& receiver, const std::string& way) {
    if (rate.is_stalled) {
      return add(true,
                 "short messages arrive, and long ones don't, " + way +
                     ": something on the way drops packets of " + std::to_string(line.segment_bytes) +
                     " bytes",
                 "lower the interface's MTU (ip link set dev eth0 mtu 1400; VPNs and overlays need 50 to 100 "
                 "bytes), or set sysctl net.ipv4.tcp_mtu_probing=1, on the machine that sends");
    }
    const bool is_long = line.round_trip >= kLongRoundTripSeconds;
    if (rate.resent > (is_long ? kMuchLost : kNoticed)) {
      add(false, rounded(100 * rate.resent, 2) + " % of the bytes " + way + " were sent again",
          is_long
              ? "a line that loses packets, or a full queue: BBR bears it, other congestion controls don't"
              : "a full queue, or a bad cable or port: ip -s link, ethtool -S");
    }
    if (is_long && !rate.congestion_control.empty() && rate.congestion_control != "bbr") {
      const std::string why = sender.bbr_refusal.empty() ? "DELTAWIRE_BBR=off" : sender.bbr_refusal;
      add(rate.resent > kMuchLost,
          "the congestion control " + way + " is " + rate.congestion_control + " (BBR: " + why +
              "), which is slow on long lines that lose packets",
          std::string(kHowToAllowBbr) + ", on the machine that sends");
    }
    const double held = rate.bytes_per_second * line.round_trip;
    const auto window = static_cast<double>(std::min(sender.send_bytes, receiver.receive_bytes));
    if (is_long && window > 0 && held > kFullWindow * window) {
      const bool sends = sender.send_bytes <= receiver.receive_bytes;
      add(false, "a connection " + way + " may hold " + rounded(window / 1e6) + " MB, which limits its rate",
          sends ? "raise the last number of sysctl net.ipv4.tcp_wmem on the machine that sends"
                : "raise the last number of sysctl net.ipv4.tcp_rmem on the machine that receives");
    }
  }

  const MachineFindings& here_;
  const bool has_peers_;
  const bool has_token_;
  std::vector<Advice> advice_;
};

}  // namespace

std::vector<Advice> judge(const MachineFindings& here, const std::vector<LineFindings>& lines,
                          bool has_token) {
  Judge judge(here, !lines.empty(), has_token);
  judge.look_at_machine(here, "this machine's");
  for (const LineFindings& line : lines) {
    if (!line.no_answer) judge.look_at_machine(line.machine, to_string(line.at) + "'s");
  }
  for (const LineFindings& line : lines) judge.look_at_line(line);
  return judge.take();
}

}  // namespace deltawire::doctor
