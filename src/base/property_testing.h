// Properties over random inputs, which rapidcheck draws and, if one fails, shrinks. Its templates take
// seconds to compile in each file, so they are compiled once, here. Every run draws the same cases, unless
// the environment sets rapidcheck's RC_PARAMS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace deltawire::testing {

// Draws random inputs for a trial.
std::uint64_t drawn_word();                                    // any 64 bits
std::uint64_t drawn(std::uint64_t from, std::uint64_t below);  // shrinks towards `from`
std::vector<std::uint64_t> drawn_list(std::size_t count, std::uint64_t from, std::uint64_t below);
std::vector<std::int32_t> drawn_numbers();  // of any length; small at first, then larger
template <class Container>
const auto& drawn_of(const Container& choices) {
  return *(std::begin(choices) + static_cast<std::ptrdiff_t>(drawn(0, std::size(choices))));
}

// Used by the macros: runs a hundred trials, or reports a counterexample; and the two ways in which a trial
// ends early.
::testing::AssertionResult holds_always(void (*trial)());
void hold(bool holds, const char* text, const char* file, int line);
void presume(bool holds);

}  // namespace deltawire::testing

// A test of a hundred trials: PROPERTY(Suite, Name) { draws inputs; states by PRESUMES which inputs it is
// about (others are drawn again), and by HOLDS what is true of them. }
#define PROPERTY(suite, name)                                                 \
  void suite##_##name##_trial();                                              \
  TEST(suite, name) {                                                         \
    EXPECT_TRUE(::deltawire::testing::holds_always(&suite##_##name##_trial)); \
  }                                                                           \
  void suite##_##name##_trial()
#define HOLDS(condition) \
  ::deltawire::testing::hold(static_cast<bool>(condition), #condition, __FILE__, __LINE__)
#define PRESUMES(condition) ::deltawire::testing::presume(static_cast<bool>(condition))
