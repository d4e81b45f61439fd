// For tests: what is refused, with which error.
#pragma once

#include <initializer_list>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "deltawire/result.h"

namespace deltawire::testing {

using Words = std::initializer_list<std::string_view>;

// That an error has this code, suspects this rank, if one is given, and has all of these words in its text
// or advice.
inline void expect_error(const Error& error, ErrorCode code, std::optional<int> suspect = {},
                         Words words = {}, std::source_location caller = std::source_location::current()) {
  const ::testing::ScopedTrace place(caller.file_name(), static_cast<int>(caller.line()), error.text());
  EXPECT_EQ(error.code, code);
  if (suspect) {
    EXPECT_EQ(error.suspect, *suspect);
  }
  for (const std::string_view each : words) EXPECT_NE(error.text().find(each), std::string::npos) << each;
}

// That a Status or Result is such an error.
template <class Outcome>
void expect_refused(const Outcome& outcome, ErrorCode code, Words words, std::optional<int> suspect = {},
                    std::source_location caller = std::source_location::current()) {
  const ::testing::ScopedTrace place(caller.file_name(), static_cast<int>(caller.line()),
                                     "expected a refusal");
  ASSERT_FALSE(outcome) << "accepted";
  expect_error(outcome.error(), code, suspect, words, caller);
}

template <class Outcome>
void expect_refused(const Outcome& outcome, ErrorCode code, std::string_view words = {},
                    std::source_location caller = std::source_location::current()) {
  expect_refused(outcome, code, {words}, {}, caller);
}

template <class Outcome>
void expect_refused(const Outcome& outcome, ErrorCode code, int suspect, Words words = {},
                    std::source_location caller = std::source_location::current()) {
  expect_refused(outcome, code, words, suspect, caller);
}

}  // namespace deltawire::testing
