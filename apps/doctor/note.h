// Messages between two doctors, JSON objects, so that versions that know other fields understand each other.
// A line to the other doctor's door carries one request:
//
//   "meet"   with the caller's machine; the answer has the other machine, and the caller's address as `text`.
//            Then each message is answered by one as long as its first four bytes say, little-endian.
//   "call"   a caller's port; the other doctor calls there, and `text` says why it couldn't
//   "take"   milliseconds; the caller sends pieces until the answer, which says how fast they came
//   "give"   milliseconds; the other doctor sends pieces until a message of the caller, then what it knows
//            of its connection. Pieces are zeros; an object begins with '{'.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "doctor/findings.h"

namespace deltawire::doctor {

inline constexpr std::size_t kNoteBytesMax = 16384;

struct Note {
  std::string wants{};
  std::uint64_t number = 0;
  std::string text{};
  MachineFindings machine{};
  RateFindings rate{};
};

std::vector<std::byte> encode(const Note& note);
// Total: kCorrupt unless the bytes are an object. Fields of another type than they should have are left as
// they are by default, and texts are printable and short.
Result<Note> decode_note(Bytes bytes);

// The fields as a JSON object, for users' programs.
std::string json_of(const MachineFindings& machine);
std::string json_of(const LineFindings& line);

}  // namespace deltawire::doctor
