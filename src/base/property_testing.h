// Properties over random inputs, which rapidcheck draws and, where one fails, shrinks. Its templates cost a
// compiler seconds in each file that has them, so they are compiled once, here. Every run draws the same
// cases; rapidcheck's RC_PARAMS from outside wins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace deltawire::testing {

// What a trial draws.
std::uint64_t drawn_word();                                    // any 64 bits
std::uint64_t drawn(std::uint64_t from, std::uint64_t below);  // shrinks towards `from`
std::vector<std::uint64_t> drawn_list(std::size_t count, std::uint64_t from, std::uint64_t below);
std::vector<std::int32_t> drawn_numbers();           // of any length; small at first, then larger
std::vector<std::vector<std::int8_t>> drawn_rows();  // of any lengths
template <class Container>
const auto& drawn_of(const Container& choices) {
  return *(std::begin(choices) + static_cast<std::ptrdiff_t>(drawn(0, std::size(choices))));
}

// Behind the macros: a hundred trials, or what refutes the property; and the two ways in which a trial ends
// early.
::testing::AssertionResult holds_always(void (*trial)());
void hold(bool holds, const char* text, const char* file, int line);
void presume(bool holds);

}  // namespace deltawire::testing

// A test of a hundred trials: PROPERTY(Suite, Name) { draws, and says what HOLDS; a trial without what it
// PRESUMES is drawn anew. }
#define PROPERTY(suite, name)                                                 \
  void suite##_##name##_trial();                                              \
  TEST(suite, name) {                                                         \
    EXPECT_TRUE(::deltawire::testing::holds_always(&suite##_##name##_trial)); \
  }                                                                           \
  void suite##_##name##_trial()
#define HOLDS(condition) \
  ::deltawire::testing::hold(static_cast<bool>(condition), #condition, __FILE__, __LINE__)
#define PRESUMES(condition) ::deltawire::testing::presume(static_cast<bool>(condition))
