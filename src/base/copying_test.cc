#include "base/copying.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace deltawire::copying_test {
namespace {

TEST(CachedCopy, CopiesItsBytesAndNoOthers) {
  std::vector<std::byte> from(5000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i % 251 + 1);
  for (const std::size_t bytes : {0U, 1U, 1535U, 1536U, 1537U, 3072U, 4999U}) {
    std::vector<std::byte> to(5001);
    copy_cached(to.data() + 1, from.data(), bytes);
    std::vector<std::byte> expected(5001);
    std::copy_n(from.begin(), bytes, expected.begin() + 1);
    EXPECT_EQ(to, expected) << bytes;
  }
}

}  // namespace
}  // namespace deltawire::copying_test
