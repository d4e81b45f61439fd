// Messages between doctors, and bytes that are none.
#include "doctor/note.h"

#include <gtest/gtest.h>

namespace deltawire::doctor {
namespace {

Result<Note> decoded(const std::string& text) {
  return decode_note(std::as_bytes(std::span(text)));
}

TEST(DoctorNote, ComesBackAsItWas) {
  Note note{.wants = "meet", .number = 7, .text = "10.0.0.1"};
  note.machine = {.version = "1.0.0", .name = "node\xff", .is_loopback = true, .processors = 3, .clock = 1.5};
  note.rate = {.bytes_per_second = 2.5, .congestion_control = "bbr", .is_stalled = true};
  const auto back = decode_note(encode(note));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->wants, "meet");
  EXPECT_EQ(back->number, 7u);
  EXPECT_EQ(back->text, "10.0.0.1");
  EXPECT_EQ(back->machine.name, "node\xEF\xBF\xBD");
  EXPECT_TRUE(back->machine.is_loopback && back->rate.is_stalled);
  EXPECT_EQ(back->machine.processors, 3u);
  EXPECT_EQ(back->machine.clock, 1.5);
  EXPECT_EQ(back->rate.bytes_per_second, 2.5);
  EXPECT_EQ(back->rate.congestion_control, "bbr");
}

TEST(DoctorNote, WhatIsNoObjectIsNone) {
  const std::string deep(kNoteBytesMax, '[');
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("7"), deep, std::string(100, '\0'),
        std::string("{}{}"), std::string("{\"a\":\"\xff\"}")}) {
    ASSERT_FALSE(decoded(text)) << text.substr(0, 20);
    EXPECT_EQ(decoded(text).error().code, ErrorCode::kCorrupt);
  }
}

TEST(DoctorNote, OtherFieldsAndOtherTypesAreLeftOut) {
  const auto note = decoded(R"({"wants": 7, "number": -1, "text": "a\u001b[2Jb", "news": {"x": []},
      "machine": {"processors": "many", "version": null, "clock": 3}, "rate": [1]})");
  ASSERT_TRUE(note);
  EXPECT_EQ(note->wants, "");
  EXPECT_EQ(note->number, 0u);
  EXPECT_EQ(note->text, "a [2Jb");
  EXPECT_EQ(note->machine.processors, 0u);
  EXPECT_EQ(note->machine.clock, 3);
  EXPECT_LE(decoded("{\"text\":\"" + std::string(9000, 'x') + "\"}")->text.size(), 400u);
}

TEST(DoctorNote, FindingsAreJson) {
  LineFindings line;
  line.at = {"10.0.0.2", 29600};
  line.no_answer = Error{ErrorCode::kTimeout, "silence"};
  EXPECT_EQ(json_of(line), R"({"at":"10.0.0.2:29600","no_answer":"silence"})");
  line.no_answer.reset();
  EXPECT_NE(json_of(line).find(R"("out":{"bytes_per_second":0.0,)"), std::string::npos) << json_of(line);
  EXPECT_EQ(json_of(MachineFindings{}).find(R"({"version":"")"), 0u);
}

}  // namespace
}  // namespace deltawire::doctor
