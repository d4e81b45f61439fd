#include "doctor/visit.h"

#include <algorithm>
#include <limits>

#include "base/errors.h"
#include "base/little_endian.h"
#include "doctor/note.h"
#include "doctor/rates.h"
#include "doctor/this_machine.h"
#include "transport/tcp/long_line.h"

namespace deltawire::doctor {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kCall{4000};
constexpr milliseconds kGlance{50};  // how long one of two is looked at
constexpr milliseconds kShortestRate{1000};
constexpr milliseconds kLongestRate{3000};
constexpr int kRoundTripsOfRate = 15;  // a connection has found its rate by then
constexpr int kEchoes = 5;
constexpr std::size_t kEchoHead = 4;
constexpr std::size_t kEchoBytesMax = 65536;
constexpr std::uint32_t kLongEchoLeast = 3000;  // more than a packet
constexpr std::uint32_t kLongEchoMost = 20'000;
constexpr milliseconds kVisitMost{15'000};

milliseconds ms_of(double seconds) {
  return milliseconds(static_cast<std::int64_t>(1e3 * seconds));
}

Status tell(Line& line, const Note& note) {
  return line.send(encode(note), in(kPatience));
}

Result<Note> hear(Line& line, milliseconds patience = kPatience) {
  ASSIGN_OR_RETURN(const auto bytes, line.receive(kNoteBytesMax, in(patience)));
  return decode_note(bytes);
}

// Sends one message, which asks for another. Returns the seconds that both took; nothing where one of them is
// lost.
std::optional<double> echo(Line& line, std::size_t bytes, std::uint32_t wanted, milliseconds patience) {
  std::vector<std::byte> message(std::max(bytes, kEchoHead));
  store_le<std::uint32_t>(message.data(), wanted);
  const Deadline began = Clock::now();
  if (!line.send(message, began + patience)) return std::nullopt;
  if (!line.receive(kEchoBytesMax, began + patience)) return std::nullopt;
  return std::chrono::duration<double>(Clock::now() - began).count();
}

// Until the visitor hangs up, or has waited in vain for what is too large for the way, and then can't.
void answer_echoes(Line& line) {
  const Deadline end = in(kVisitMost);
  while (Clock::now() < end) {
    const auto message = line.receive(kEchoBytesMax, std::min(end, in(kPatience)));
    if (!message || message->size() < kEchoHead) return;
    const std::size_t wanted = std::min<std::size_t>(load_le<std::uint32_t>(message->data()), kEchoBytesMax);
    if (!line.send(std::vector<std::byte>(wanted), end)) return;
  }
}

// What is on its way may not be cut off, so the visitor hangs up first.
void await_end(Line& line) {
  const Deadline end = in(2 * kPatience);
  while (Clock::now() < end && line.receive(kPieceBytes, end)) {
  }
}

class Visit {
 public:
  Visit(const MachineFindings& self, const VisitOptions& options, LineFindings& found)
      : self_(self), options_(options), found_(found) {}

  Status run() {
    stage("meeting");
    RETURN_IF_ERROR(meet());
    stage("calling back");
    be_called();
    stage("sending");
    measure_out();
    stage("receiving");
    measure_back();
    return {};
  }

 private:
  void stage(const char* name) const {
    if (options_.stage) options_.stage(name);
  }
  Result<std::unique_ptr<Line>> call() const { return call_at_door(found_.at, options_.door, in(kCall)); }

  Status meet() {
    ASSIGN_OR_RETURN(auto line, call());
    const double asked = wall_clock();
    Note note{.wants = "meet"};
    note.machine = self_;
    RETURN_IF_ERROR(tell(*line, note));
    ASSIGN_OR_RETURN(const auto heard, hear(*line));
    found_.machine = heard.machine;
    found_.seen_address = heard.text;
    found_.clock_ahead = heard.machine.clock - (asked + wall_clock()) / 2;
    found_.there = line->peer().host;
    found_.is_encrypted = line->is_encrypted();
    found_.segment_bytes = line->state().segment_bytes;
    return listen_to_echoes(std::move(line));
  }

  Status listen_to_echoes(std::unique_ptr<Line> line) {
    found_.round_trip = std::numeric_limits<double>::max();
    for (int i = 0; i < kEchoes; ++i) {
      const auto took = echo(*line, kEchoHead, kEchoHead, kPatience);
      if (!took)
        return fail(ErrorCode::kPeerLost, "the connection to " + to_string(found_.at) + " went silent");
      found_.round_trip = std::min(found_.round_trip, *took);
    }
    const std::uint32_t longer = std::clamp(2 * found_.segment_bytes, kLongEchoLeast, kLongEchoMost);
    const milliseconds patience = kPatience + ms_of(10 * found_.round_trip);
    found_.out.is_stalled = !echo(*line, longer, kEchoHead, patience);
    if (found_.out.is_stalled) return {};  // nothing passes behind it
    found_.back.is_stalled = !echo(*line, kEchoHead, longer, patience);
    return {};
  }

  void be_called() {
    const auto own = local_address_towards(found_.at.host);
    if (own) found_.own_address = *own;
    auto listener =
        own ? listen_tcp(*own, options_.ports) : Result<std::unique_ptr<Listener>>(forward_error(own));
    auto door = listener ? open_door(*std::move(listener), options_.door)
                         : Result<std::unique_ptr<Door>>(forward_error(listener));
    auto line = door ? call() : Result<std::unique_ptr<Line>>(forward_error(door));
    Status told = line ? tell(**line, {.wants = "call", .number = (*door)->endpoint().port})
                       : Status(forward_error(line));
    if (!told) {
      found_.no_way_back = told.error().text();
      return;
    }
    const Deadline end = in(kCall + kPatience);
    while (Clock::now() < end) {
      (void)(*door)->answer(in(kGlance));
      const auto heard = hear(**line, kGlance);
      if (!heard && heard.error().code == ErrorCode::kTimeout) continue;
      found_.no_way_back = heard ? heard->text : heard.error().text();
      return;
    }
    found_.no_way_back = "the other doctor does not say whether it could call";
  }

  milliseconds rate_time() const {
    return std::clamp(ms_of(kRoundTripsOfRate * found_.round_trip), kShortestRate, kLongestRate);
  }

  void measure_out() {
    auto line = found_.out.is_stalled ? wrong_state("") : call();
    const auto time = static_cast<std::uint64_t>(rate_time().count());
    if (!line || !tell(**line, {.wants = "take", .number = time})) return;
    if (const auto said = give(**line, rate_time())) {
      if (const auto note = decode_note(*said)) found_.out = note->rate;
    }
    const LineState state = (*line)->state();
    note_state(state, found_.out);
    found_.streams = static_cast<std::uint32_t>(streams_for(state, 0));
  }

  void measure_back() {
    auto line = found_.back.is_stalled ? wrong_state("") : call();
    const auto time = static_cast<std::uint64_t>(rate_time().count());
    if (!line || !tell(**line, {.wants = "give", .number = time})) return;
    RateFindings rate = take(**line, rate_time());
    (void)tell(**line, {.wants = "enough"});
    const Deadline end = in(kPatience);
    while (Clock::now() < end) {
      const auto bytes = (*line)->receive(kNoteBytesMax, end);
      if (!bytes) break;
      const auto note = decode_note(*bytes);
      if (!note) continue;  // a piece that was on its way
      rate.resent = note->rate.resent;
      rate.congestion_control = note->rate.congestion_control;
      break;
    }
    found_.back = rate;
  }

  const MachineFindings& self_;
  const VisitOptions& options_;
  LineFindings& found_;
};

milliseconds time_of(const Note& note) {
  return std::min(milliseconds(static_cast<std::int64_t>(std::min<std::uint64_t>(note.number, 60'000))),
                  kLongestRate);
}

std::string why_not_called(const Line& line, std::uint64_t port, const DoorOptions& options) {
  if (port < 1 || port > std::numeric_limits<std::uint16_t>::max()) return "no such port";
  const Endpoint back{line.peer().host, static_cast<std::uint16_t>(port)};
  const auto called = call_at_door(back, options, in(kPatience));
  return called ? std::string() : called.error().text();
}

}  // namespace

LineFindings visit(const Endpoint& at, const MachineFindings& self, const VisitOptions& options) {
  LineFindings found;
  found.at = at;
  if (const Status done = Visit(self, options, found).run(); !done) found.no_answer = done.error();
  return found;
}

Result<std::optional<MachineFindings>> receive_visitor(Line& line, const MachineFindings& self,
                                                       const DoorOptions& options) {
  ASSIGN_OR_RETURN(const auto asked, hear(line));
  Note answer;
  if (asked.wants == "meet") {
    answer.machine = self;
    answer.machine.clock = wall_clock();
    answer.text = line.peer().host;
    RETURN_IF_ERROR(tell(line, answer));
    answer_echoes(line);
    return asked.machine;
  }
  if (asked.wants == "call") {
    answer.text = why_not_called(line, asked.number, options);
  } else if (asked.wants == "take") {
    answer.rate = take(line, time_of(asked));
  } else if (asked.wants == "give") {
    (void)give(line, time_of(asked));
    note_state(line.state(), answer.rate);
  } else {
    return corrupt("a visitor wants \"" + asked.wants + "\", which this doctor does not know");
  }
  RETURN_IF_ERROR(tell(line, answer));
  await_end(line);
  return std::nullopt;
}

}  // namespace deltawire::doctor
