#include "doctor/note.h"

#include <concepts>

#include <nlohmann/json.hpp>

#include "base/errors.h"

namespace deltawire::doctor {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kTextBytesMax = 400;

// One description of the fields (below) serves both directions.
struct Writer {
  Json& into;

  template <class Value>
  void operator()(const char* name, const Value& value) {
    if constexpr (requires(Writer inner, Value part) { fields(inner, part); }) {
      Writer inner{into[name] = Json::object()};
      fields(inner, const_cast<Value&>(value));  // which a writer only reads
    } else {
      into[name] = value;
    }
  }
};

struct Reader {
  const Json& from;

  template <class Value>
  void operator()(const char* name, Value& value) {
    const auto found = from.find(name);
    if (found == from.end()) return;
    if constexpr (std::same_as<Value, std::string>) {
      if (found->is_string())
        value = printable_line(found->template get_ref<const std::string&>(), kTextBytesMax);
    } else if constexpr (std::same_as<Value, bool>) {
      if (found->is_boolean()) value = *found;
    } else if constexpr (std::same_as<Value, double>) {
      if (found->is_number()) value = *found;
    } else if constexpr (std::unsigned_integral<Value>) {
      if (found->is_number_unsigned()) value = static_cast<Value>(found->template get<std::uint64_t>());
    } else if (found->is_object()) {
      Reader inner{*found};
      fields(inner, value);
    }
  }
};

void fields(auto& at, MachineFindings& machine) {
  at("version", machine.version);
  at("name", machine.name);
  at("address", machine.address);
  at("is_loopback", machine.is_loopback);
  at("processors", machine.processors);
  at("all_processors", machine.all_processors);
  at("memory_bytes", machine.memory_bytes);
  at("congestion_control", machine.congestion_control);
  at("bbr_refusal", machine.bbr_refusal);
  at("send_bytes", machine.send_bytes);
  at("receive_bytes", machine.receive_bytes);
  at("clock", machine.clock);
}

void fields(auto& at, RateFindings& rate) {
  at("bytes_per_second", rate.bytes_per_second);
  at("resent", rate.resent);
  at("congestion_control", rate.congestion_control);
  at("is_stalled", rate.is_stalled);
}

void fields(auto& at, Note& note) {
  at("wants", note.wants);
  at("number", note.number);
  at("text", note.text);
  at("machine", note.machine);
  at("rate", note.rate);
}

void fields(auto& at, LineFindings& line) {
  at("own_address", line.own_address);
  at("seen_address", line.seen_address);
  at("there", line.there);
  at("no_way_back", line.no_way_back);
  at("machine", line.machine);
  at("clock_ahead", line.clock_ahead);
  at("round_trip", line.round_trip);
  at("segment_bytes", line.segment_bytes);
  at("streams", line.streams);
  at("is_encrypted", line.is_encrypted);
  at("out", line.out);
  at("back", line.back);
}

template <class Value>
Json written(const Value& value) {
  Json json = Json::object();
  Writer writer{json};
  fields(writer, const_cast<Value&>(value));
  return json;
}

// Host names need not be UTF-8; JSON must be.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::vector<std::byte> encode(const Note& note) {
  const std::string text = text_of(written(note));
  const auto* const data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

Result<Note> decode_note(Bytes bytes) {
  const auto* const data = reinterpret_cast<const char*>(bytes.data());
  const Json json = Json::parse(data, data + bytes.size(), nullptr, false);
  if (!json.is_object()) return corrupt("what the other end says is no doctor's");
  Note note;
  Reader reader{json};
  fields(reader, note);
  return note;
}

std::string json_of(const MachineFindings& machine) {
  return text_of(written(machine));
}

std::string json_of(const LineFindings& line) {
  Json json{{"at", to_string(line.at)}};
  if (line.no_answer) {
    json["no_answer"] = line.no_answer->text();
  } else {
    json.update(written(line));
  }
  return text_of(json);
}

}  // namespace deltawire::doctor
