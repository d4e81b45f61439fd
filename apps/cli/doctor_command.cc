// deltawire doctor: what is wrong on this machine, and on the lines to others, and what to run there.
#include <algorithm>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "cli/arrays/byte_source.h"
#include "cli/commands.h"
#include "cli/job_scripts.h"
#include "cli/number_text.h"
#include "cli/output_file.h"
#include "cli/plan/sites.h"
#include "cli/progress.h"
#include "deltawire/door.h"
#include "doctor/judgement.h"
#include "doctor/note.h"
#include "doctor/this_machine.h"
#include "doctor/visit.h"

namespace deltawire::cli {
namespace {

constexpr std::uint16_t kDoctorPort = 29600;
constexpr std::chrono::milliseconds kLookAtInterruption{200};

struct DoctorOptions {
  std::vector<std::string> hosts;
  bool serve = false;
  std::uint64_t port = 0;
  std::string interface;
  std::string token_file;
  std::string encryption;
  std::uint64_t parameters = 25'000'000;
  std::uint64_t ranks = 0;
  std::string tier{tier_name(PlanOptions{}.tier)};
  std::string format = "torchrun";
  std::string json;
  bool force = false;
};

// The diagnosis, and what follows from it.
struct Diagnosis {
  doctor::MachineFindings here{};
  std::vector<doctor::LineFindings> lines{};
  std::vector<doctor::Advice> advice{};
  std::string codec{};   // the plan's choice; empty: none, or no plan
  std::string reason{};  // why; empty: no plan, as no rate is known
};

struct Secret {
  DoorOptions door;
  bool is_given = false;
};

Secret secret_of(const DoctorOptions& options) {
  Secret secret;
  secret.door.encryption = value_or_misused(
      parse_encryption(options.encryption.empty() ? "auto" : options.encryption), "--encryption: ");
  std::string text(setting_of("DELTAWIRE_TOKEN"));
  if (!options.token_file.empty()) {
    const auto bytes = read_input(options.token_file);
    text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  secret.is_given = !text.empty();
  if (!secret.is_given) return secret;
  secret.door.token = value_or_misused(token_of(std::as_bytes(std::span(text))), "the token: ");
  return secret;
}

PortRange ports_of(const DoctorOptions& options) {
  if (options.port > 0) {
    const auto port = static_cast<std::uint16_t>(options.port);
    return PortRange{port, port};
  }
  if (options.serve) return PortRange{kDoctorPort, kDoctorPort};
  return value_or_misused(parse_ports(setting_of("DELTAWIRE_PORT")), "DELTAWIRE_PORT: ");
}

std::vector<Endpoint> endpoints_of(const std::vector<std::string>& hosts) {
  std::vector<Endpoint> endpoints;
  for (const std::string& host : hosts) {
    auto endpoint = parse_endpoint(host);
    if (!endpoint) endpoint = parse_endpoint(host + ":" + std::to_string(kDoctorPort));
    endpoints.push_back(value_or_misused(std::move(endpoint)));
  }
  return endpoints;
}

void serve(const DoctorOptions& options, const Secret& secret, PortRange ports) {
  auto listener =
      value_or_failed(listen_tcp(options.interface.empty() ? "0.0.0.0" : options.interface, ports));
  const auto door = value_or_failed(open_door(std::move(listener), secret.door));
  const auto self = doctor::this_machine(DELTAWIRE_VERSION);
  const std::string port = std::to_string(door->endpoint().port);
  catch_interrupts();  // before anybody is told that it waits
  std::cout << "waits at " << to_string(door->endpoint()) << (secret.is_given ? "" : ", without a token")
            << "; on another machine: deltawire doctor " << self.name << ":" << port << "; Ctrl-C ends this"
            << std::endl;
  while (!interrupted()) {
    const auto line = door->answer(Clock::now() + kLookAtInterruption);
    if (!line && line.error().code == ErrorCode::kTimeout) continue;
    if (!line) throw failed(line.error().text());
    const auto visitor = doctor::receive_visitor(**line, self, secret.door);
    if (visitor && !*visitor) continue;
    const std::string who = visitor ? (*visitor)->name : visitor.error().text();
    std::cout << "visited by " << (*line)->peer().host << ": " << who << std::endl;
  }
}

std::string machine_text(const doctor::MachineFindings& machine) {
  return "deltawire " + machine.version + ", " + std::to_string(machine.processors) + " of " +
         std::to_string(machine.all_processors) + " processors, " +
         rounded(static_cast<double>(machine.memory_bytes) / 1e9) + " GB, " + machine.congestion_control +
         (machine.bbr_refusal.empty() ? ", BBR granted" : ", BBR refused (" + machine.bbr_refusal + ")");
}

std::string rate_text(const doctor::RateFindings& rate) {
  if (rate.is_stalled) return "stalled";
  std::string text = rate_name(rate.bytes_per_second);
  if (rate.congestion_control.empty()) return text;
  return text + " (" + rate.congestion_control + ", " + rounded(100 * rate.resent) + " % sent again)";
}

std::string line_text(const doctor::LineFindings& line) {
  if (line.no_answer) return to_string(line.at) + ": no answer\n";
  return to_string(line.at) + " (" + line.machine.name + "): " + machine_text(line.machine) +
         "\n  there and back " + rounded(1e3 * line.round_trip) + " ms, there " + rate_text(line.out) +
         ", back " + rate_text(line.back) + ", " + (line.is_encrypted ? "TLS 1.3" : "in the clear") +
         (line.streams > 1 ? "; " + std::to_string(line.streams) + " streams for each pair of ranks\n"
                           : "\n");
}

// The line or file that starts such a job.
std::string run_text(const Diagnosis& diagnosis, const std::string& format, std::uint64_t ranks) {
  const std::string count = std::to_string(ranks);
  if (format != "torchrun") {
    std::string text(format == "sbatch" ? kSlurmScript : kJobSet);
    for (const std::string name : {"--nodes=", "--nnodes=", "parallelism: ", "completions: "}) {
      const std::size_t at = text.find(name + "2");
      if (at != std::string::npos) text.replace(at + name.size(), 1, count);
    }
    return text;
  }
  const bool is_known = !diagnosis.lines.empty() && !diagnosis.lines.front().own_address.empty();
  const std::string master = is_known ? diagnosis.lines.front().own_address : "ADDRESS_OF_RANK_0";
  return "torchrun --nnodes=" + count + " --nproc-per-node=1 --node-rank=$RANK --master-addr=" + master +
         " --master-port=29500 train.py\n";
}

void plan_for(const DoctorOptions& options, std::uint64_t ranks, Diagnosis& diagnosis) {
  LinkRates link{kFastestLink, kFastestLink, 0};
  bool is_known = false;
  for (const auto& line : diagnosis.lines) {
    if (line.no_answer || line.out.bytes_per_second <= 0 || line.back.bytes_per_second <= 0) continue;
    is_known = true;
    link.up_bytes_per_second = std::min(link.up_bytes_per_second, line.out.bytes_per_second);
    link.down_bytes_per_second = std::min(link.down_bytes_per_second, line.back.bytes_per_second);
    link.latency_seconds = std::max(link.latency_seconds, line.round_trip / 2);
  }
  if (!is_known) return;
  for (double* rate : {&link.up_bytes_per_second, &link.down_bytes_per_second}) {
    *rate = std::max(kSlowestLink, *rate);
  }
  try {
    const auto report = quick_plan(options.parameters, static_cast<int>(ranks), link, options.tier);
    const Plan& plan = report.plans.front().plan;
    diagnosis.reason = plan.reason;
    if (plan.chosen) diagnosis.codec = plan.rows[*plan.chosen].figures.spec;
  } catch (const Failure&) {  // it is advised without a plan
  }
}

std::string diagnosis_text(const Diagnosis& diagnosis, const DoctorOptions& options) {
  std::string text = "this machine (" + diagnosis.here.name + "): " + machine_text(diagnosis.here) + "\n";
  for (const auto& line : diagnosis.lines) text += line_text(line);
  text += "\n";
  for (const doctor::Advice& advice : diagnosis.advice) {
    text += (advice.is_wrong ? "wrong: " : "note:  ") + advice.what + "\n  do:  " + advice.remedy + "\n";
  }
  if (diagnosis.advice.empty()) text += "nothing is wrong\n";
  if (!diagnosis.reason.empty()) {
    text += "\na model of " + grouped(options.parameters) + " values, up to " + options.tier + ": " +
            diagnosis.reason + "\n";
  }
  return text;
}

std::string diagnosis_json(const Diagnosis& diagnosis, const std::string& run) {
  using FoundJson = nlohmann::ordered_json;
  FoundJson json{{"here", FoundJson::parse(doctor::json_of(diagnosis.here))},
                 {"lines", FoundJson::array()},
                 {"advice", FoundJson::array()}};
  for (const auto& line : diagnosis.lines) json["lines"].push_back(FoundJson::parse(doctor::json_of(line)));
  for (const auto& advice : diagnosis.advice) {
    json["advice"].push_back(
        {{"is_wrong", advice.is_wrong}, {"what", advice.what}, {"remedy", advice.remedy}});
  }
  json["codec"] = diagnosis.codec.empty() ? FoundJson() : FoundJson(diagnosis.codec);
  json["reason"] = diagnosis.reason;
  json["run"] = run;
  return json.dump(2, ' ', false, FoundJson::error_handler_t::replace) + "\n";
}

void diagnose(const DoctorOptions& options, const Secret& secret, PortRange ports) {
  const auto endpoints = endpoints_of(options.hosts);
  check_outputs({options.json}, options.force, {options.token_file});
  Diagnosis diagnosis{.here = doctor::this_machine(DELTAWIRE_VERSION)};
  Progress progress;
  for (const Endpoint& at : endpoints) {
    doctor::VisitOptions visit{secret.door, ports};
    visit.stage = [&](const char* stage) { progress.show(to_string(at) + ": " + stage); };
    diagnosis.lines.push_back(doctor::visit(at, diagnosis.here, visit));
  }
  diagnosis.advice = doctor::judge(diagnosis.here, diagnosis.lines, secret.is_given);
  const std::uint64_t ranks =
      options.ranks > 0 ? options.ranks : std::max<std::uint64_t>(2, endpoints.size() + 1);
  plan_for(options, ranks, diagnosis);
  progress.show("");
  const std::string run = run_text(diagnosis, options.format, ranks);
  if (options.json != "-") std::cout << diagnosis_text(diagnosis, options) << "\n" << run;
  write_output(options.json, diagnosis_json(diagnosis, run), options.force);
  const auto wrong = std::ranges::count_if(diagnosis.advice, &doctor::Advice::is_wrong);
  if (wrong == 0) return;
  throw failed(std::to_string(wrong) + (wrong == 1 ? " thing is wrong" : " things are wrong") +
               "; the lines that begin with \"wrong:\" say what to do");
}

void examine(const DoctorOptions& options) {
  const auto secret = secret_of(options);
  const auto ports = ports_of(options);
  if (!options.interface.empty()) ::setenv("DELTAWIRE_INTERFACE", options.interface.c_str(), 1);
  if (!options.serve) return diagnose(options, secret, ports);
  if (!options.hosts.empty() || !options.json.empty()) {
    throw misused("doctor: --serve waits for others and finds nothing; leave the hosts and --json out");
  }
  serve(options, secret, ports);
}

}  // namespace

void add_doctor_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("doctor", "Find what is wrong on this machine, and on the lines to others");
  const auto options = std::make_shared<DoctorOptions>();
  add_value(*command, "hosts HOST", options->hosts,
            "Machines where 'deltawire doctor --serve' runs: node2, 10.0.0.2:29600");
  command->add_flag("--serve", options->serve, "Wait for doctors of other machines");
  add_value(*command, "--port P", options->port,
            "Listen here; default: 29600 with --serve, else DELTAWIRE_PORT's")
      ->transform(count_range(1, 65535));
  add_value(*command, "--interface NAME", options->interface,
            "Address or interface of this machine to listen on")
      ->envname("DELTAWIRE_INTERFACE");
  add_value(*command, "--token-file FILE", options->token_file,
            "File of the job's secret; default: DELTAWIRE_TOKEN");
  add_value(*command, "--encryption WHEN", options->encryption, "auto, required or off")
      ->envname("DELTAWIRE_ENCRYPTION");
  add_value(*command, "--parameters N", options->parameters, "Size of the model to plan for")
      ->transform(count_range(1, std::uint64_t{1} << 40));
  add_value(*command, "--ranks N", options->ranks, "Machines of the job; default: these")
      ->transform(count_range(2, 65536));
  add_value(*command, "--tier TIER", options->tier, "How much may be lost")
      ->check(CLI::IsMember({"lossless", "near-lossless", "lossy"}));
  add_value(*command, "--format FORMAT", options->format,
            "How the job is started: torchrun, sbatch or jobset")
      ->check(CLI::IsMember({"torchrun", "sbatch", "jobset"}));
  add_value(*command, "--json FILE", options->json, "Write all findings to FILE; - prints them");
  command->add_flag("--force", options->force, "Replace files that exist");
  command->footer(
      "Looks at names, ports both ways, round trip, rate and loss both ways, large packets, congestion\n"
      "control, clocks, versions, processors and memory; takes some ten seconds for each host, and as\n"
      "many more for each billion of --parameters. Start 'deltawire doctor --serve' on the others first,\n"
      "with the same DELTAWIRE_TOKEN.\n"
      "Exit status: 0 nothing is wrong, 1 something is; notes alone are not wrong.\n"
      "\n"
      "Examples:\n"
      "  deltawire doctor                                 this machine alone\n"
      "  deltawire doctor --serve                         on node2, and then here:\n"
      "  deltawire doctor node2 --parameters 7b --format sbatch\n");
  command->callback([options] { examine(*options); });
}

}  // namespace deltawire::cli
