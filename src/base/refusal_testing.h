// For tests: what is refused, with which error.
#pragma once

#include <source_location>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "deltawire/result.h"

namespace deltawire::testing {

// That a Status or Result is an error of this code, whose text or advice has these words.
template <class Outcome>
void expect_refused(const Outcome& outcome, ErrorCode code, std::string_view words = {},
                    std::source_location caller = std::source_location::current()) {
  const ::testing::ScopedTrace place(caller.file_name(), static_cast<int>(caller.line()),
                                     "expected a refusal");
  ASSERT_FALSE(outcome) << "accepted";
  EXPECT_EQ(outcome.error().code, code) << outcome.error().text();
  EXPECT_NE(outcome.error().text().find(words), std::string::npos) << outcome.error().text();
}

}  // namespace deltawire::testing
