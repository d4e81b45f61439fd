// Connecting over Gloo: what is refused, and who is named.
#include "deltawire/connect_gloo.h"

#include "base/temporary_folder_testing.h"
#include "transport/mesh_testing.h"

namespace deltawire::test::connect_gloo_test {
namespace {

class ConnectGloo : public ::testing::Test {
 protected:
  GlooOptions options(int rank, int world_size) const {
    GlooOptions options;
    options.rank = rank;
    options.world_size = world_size;
    options.rendezvous_folder = folder_.path();
    options.job = "a-job";
    options.host = "127.0.0.1";
    options.connect_timeout = 20s;
    return options;
  }

  testing::TemporaryFolder folder_;
};

TEST_F(ConnectGloo, OtherSettingsAreNamedOnBothSides) {
  run_ranks(2, [&](int rank) {
    GlooOptions mine = options(rank, 2);
    mine.settings = rank == 0 ? "codec=3lc" : "codec=sbc";
    const auto transport = connect_gloo(mine);
    ASSERT_FALSE(transport.has_value());
    EXPECT_EQ(transport.error().code, ErrorCode::kMismatch) << transport.error().message;
    EXPECT_EQ(transport.error().suspect, 1 - rank);
    for (const char* part : {"codec=3lc", "codec=sbc"}) {
      EXPECT_NE(transport.error().text().find(part), std::string::npos) << transport.error().message;
    }
  });
}

TEST_F(ConnectGloo, MissingRanksAreNamed) {
  GlooOptions mine = options(1, 3);
  mine.connect_timeout = 2s;
  const auto transport = connect_gloo(mine);
  ASSERT_FALSE(transport.has_value());
  EXPECT_EQ(transport.error().code, ErrorCode::kTimeout);
  EXPECT_NE(transport.error().text().find("rank 0, 2"), std::string::npos) << transport.error().message;
  EXPECT_EQ(transport.error().suspect, 0);
}

TEST_F(ConnectGloo, AJobsNameServesOnce) {
  const auto first = connect_gloo(options(0, 1));
  ASSERT_TRUE(first.has_value()) << first.error().message;
  const auto second = connect_gloo(options(0, 1));
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(second.error().text().find("a-job"), std::string::npos) << second.error().message;
}

TEST_F(ConnectGloo, BadOptionsAreRefusedWithWords) {
  const auto refused = [&](const std::function<void(GlooOptions&)>& spoil) {
    GlooOptions spoilt = options(0, 2);
    spoil(spoilt);
    const auto transport = connect_gloo(spoilt);
    return !transport.has_value() && transport.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](GlooOptions& o) { o.rank = 2; }));
  EXPECT_TRUE(refused([](GlooOptions& o) { o.rank = -1; }));
  EXPECT_TRUE(refused([](GlooOptions& o) { o.world_size = 0; }));
  EXPECT_TRUE(refused([](GlooOptions& o) { o.job = ""; }));
  EXPECT_TRUE(refused([](GlooOptions& o) { o.job = "a/b"; }));
  EXPECT_TRUE(refused([](GlooOptions& o) { o.network_interface = "lo"; }));
  EXPECT_TRUE(refused([](GlooOptions& o) { o.settings.assign(1025, 'x'); }));
  EXPECT_TRUE(refused([](GlooOptions& o) { o.connect_timeout = 0ms; }));
  EXPECT_TRUE(refused([](GlooOptions& o) { o.rendezvous_folder = "/no/such/folder"; }));
}

}  // namespace
}  // namespace deltawire::test::connect_gloo_test
