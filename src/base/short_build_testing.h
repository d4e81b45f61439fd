// GoogleTest's TEST as the preset `release` has it (cmake/short_build.cmake): a function, which g++ compiles
// in half a millisecond. A class, a factory and a registration take 10. No file includes this.
#pragma once

#include <gtest/gtest.h>

namespace deltawire::short_build {

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

}  // namespace deltawire::short_build

#undef TEST  // the class gives the body the names of ::testing::Test
#define TEST(suite, name)                                                                                  \
  struct suite##_##name##_Test : ::testing::Test {                                                         \
    static void body();                                                                                    \
  };                                                                                                       \
  [[maybe_unused]] const bool suite##_##name##_added =                                                     \
      ::deltawire::short_build::add_test(#suite, #name, __FILE__, __LINE__, &suite##_##name##_Test::body); \
  void suite##_##name##_Test::body()
