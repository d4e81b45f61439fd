#include "base/property_testing.h"

#include <cstdlib>
#include <sstream>
#include <string>

#include <rapidcheck.h>

namespace deltawire::testing {
namespace {

[[maybe_unused]] const int kFixedSeed = setenv("RC_PARAMS", "seed=1", 0);

}  // namespace

std::uint64_t drawn_word() {
  return *rc::gen::arbitrary<std::uint64_t>();
}

std::uint64_t drawn(std::uint64_t from, std::uint64_t below) {
  return *rc::gen::inRange(from, below);
}

std::vector<std::uint64_t> drawn_list(std::size_t count, std::uint64_t from, std::uint64_t below) {
  return *rc::gen::container<std::vector<std::uint64_t>>(count, rc::gen::inRange(from, below));
}

std::vector<std::int32_t> drawn_numbers() {
  return *rc::gen::arbitrary<std::vector<std::int32_t>>();
}

::testing::AssertionResult holds_always(void (*trial)()) {
  const rc::detail::TestResult result = rc::detail::checkTestable([trial] { trial(); });
  if (result.is<rc::detail::SuccessResult>()) return ::testing::AssertionSuccess();
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  return ::testing::AssertionFailure() << text.str();
}

void hold(bool holds, const char* text, const char* file, int line) {
  if (!holds) RC_FAIL(std::string(file) + ":" + std::to_string(line) + ": " + text);
}

void presume(bool holds) {
  RC_PRE(holds);
}

}  // namespace deltawire::testing
