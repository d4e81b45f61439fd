#include "codecs/streamed_copy.h"

#include <vector>

#include <gtest/gtest.h>

namespace deltawire::streamed_copy_test {
namespace {

TEST(StreamedCopy, CopiesItsBytesAndNoOthers) {
  std::vector<std::byte> from(400);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i % 251 + 1);
  for (std::size_t offset = 0; offset < 66; ++offset) {
    for (const std::size_t bytes : {0U, 1U, 31U, 63U, 64U, 65U, 127U, 128U, 129U, 200U, 300U}) {
      std::vector<std::byte> to(500);
      copy_streamed(to.data() + offset, from.data() + offset, bytes);
      std::vector<std::byte> expected(500);
      for (std::size_t i = offset; i < offset + bytes; ++i) expected[i] = from[i];
      EXPECT_EQ(to, expected) << offset << " " << bytes;
    }
  }
}

}  // namespace
}  // namespace deltawire::streamed_copy_test
