#include "base/format_version.h"

#include <gtest/gtest.h>

namespace deltawire {
namespace {

TEST(FormatVersion, TheOneThatIsReadPasses) {
  EXPECT_TRUE(check_format_version("frame", 1, 1).has_value());
}

TEST(FormatVersion, AnErrorNamesTheVersionFoundAndTheSupportedOne) {
  const Status older = check_format_version("frame", 0, 1);
  ASSERT_FALSE(older.has_value());
  EXPECT_EQ(older.error().code, ErrorCode::kUnsupportedVersion);
  EXPECT_EQ(older.error().message,
            "frame: format 0, but this build reads format 1; use the version of deltawire that wrote it, or "
            "write it "
            "again");
  const Status newer = check_format_version("the file", std::uint64_t{1} << 32, 1);
  ASSERT_FALSE(newer.has_value());
  EXPECT_EQ(newer.error().code, ErrorCode::kUnsupportedVersion);
  EXPECT_EQ(newer.error().message,
            "the file: format 4294967296, but this build reads format 1; use a newer version of deltawire");
}

}  // namespace
}  // namespace deltawire
