// GoogleTest's TEST, quicker to compile: the preset `release` precompiles this (cmake/short_build.cmake), and
// no file includes it. A class, a factory and a registration for each of 1,700 tests would take g++ 10 ms, a
// function takes half of one. Other presets have GoogleTest's own.
#pragma once

#include <gtest/gtest.h>

namespace deltawire::testing {

class FunctionTest : public ::testing::Test {
 public:
  explicit FunctionTest(void (*body)()) : body_(body) {}

 private:
  void TestBody() override { body_(); }

  void (*body_)();
};

[[gnu::noinline]] inline bool add_test(const char* suite, const char* name, const char* file, int line,
                                       void (*body)()) {
  const auto make = [body]() -> ::testing::Test* { return new FunctionTest(body); };
  return ::testing::RegisterTest(suite, name, nullptr, nullptr, file, line, make) != nullptr;
}

}  // namespace deltawire::testing

// The class gives the body the names of ::testing::Test; there is no object of it.
#undef TEST
#define TEST(suite, name)                                                                              \
  struct suite##_##name##_Test : ::testing::Test {                                                     \
    static void body();                                                                                \
  };                                                                                                   \
  [[maybe_unused]] const bool suite##_##name##_added =                                                 \
      ::deltawire::testing::add_test(#suite, #name, __FILE__, __LINE__, &suite##_##name##_Test::body); \
  void suite##_##name##_Test::body()
