// Whatever dies, hangs or lies is named, on every rank that lives.
#include <latch>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"
#include "server/served_model.h"
#include "server/server_testing.h"
#include "transport/links/faulty_link_testing.h"

namespace deltawire::server_test {
namespace {

// Rank 0 serves; ranks 1 and 2 work until something fails.
Error serve_until_error(Transport& transport, int seconds, const ServerOptions& options = {}) {
  Model model(7);
  auto server = make_server(model.tensors, "sgd", options, transport);
  EXPECT_TRUE(server);
  for (;;) {
    const Result<bool> made = (*server)->step(soon(seconds));
    if (!made) return made.error();
    if (!*made) return {};
  }
}

Error work_until_error(Transport& transport, int seconds, const ServerOptions& options = {}) {
  Model model(99);
  auto worker = make_worker(model.tensors, options, transport);
  EXPECT_TRUE(worker);
  if (Status opened = (*worker)->open(soon(seconds)); !opened) return opened.error();
  for (;;) {
    if (Status pushed = push_all(**worker, 0); !pushed) return pushed.error();
    if (Status pulled = (*worker)->pull(soon(seconds)); !pulled) return pulled.error();
  }
}

struct Errors {
  Error server, worker;
};

// What rank 0 and rank 1 say of rank 2, which does `what` after its first step.
Errors errors_when(const std::function<void(std::unique_ptr<Transport>&)>& what, int seconds,
                   const std::vector<LinkOptions>& links = {}, std::latch* done = nullptr) {
  auto mesh = connect_inproc(3, links);
  EXPECT_TRUE(mesh);
  Errors errors;
  std::thread server([&] {
    errors.server = serve_until_error(*(*mesh)[0], seconds);
    if (done != nullptr) done->count_down();
  });
  std::thread worker([&] {
    errors.worker = work_until_error(*(*mesh)[1], seconds);
    if (done != nullptr) done->count_down();
  });
  std::thread third([&] { what((*mesh)[2]); });
  server.join();
  worker.join();
  third.join();
  return errors;
}

TEST(ServerFaults, ADeadWorkerIsNamed) {
  const Errors errors = errors_when([](std::unique_ptr<Transport>& self) { self.reset(); }, 20);
  EXPECT_EQ(errors.server.suspect, 2) << errors.server.message;
  EXPECT_EQ(errors.worker.suspect, 2) << errors.worker.message;
}

TEST(ServerFaults, AFrozenWorkerIsNamedAtTheDeadline) {
  std::latch done(2);
  const Errors errors = errors_when(
      [&](std::unique_ptr<Transport>& self) {
        Model model(99);
        auto worker = make_worker(model.tensors, {}, *self);
        ASSERT_TRUE((*worker)->open(soon()));
        done.wait();  // it lives and answers, and pushes nothing
      },
      3, {}, &done);
  EXPECT_EQ(errors.server.code, ErrorCode::kTimeout) << errors.server.message;
  EXPECT_EQ(errors.server.suspect, 2) << errors.server.message;
  EXPECT_EQ(errors.worker.suspect, 2) << errors.worker.message;
}

TEST(ServerFaults, ADeadServerIsNamed) {
  auto mesh = connect_inproc(2);
  ASSERT_TRUE(mesh);
  std::thread server([&] {
    Model model(7);
    auto made = make_server(model.tensors, "sgd", {}, *(*mesh)[0]);
    ASSERT_TRUE((*made)->step(soon()));
    made->reset();
    (*mesh)[0].reset();
  });
  const Error error = work_until_error(*(*mesh)[1], 20);
  EXPECT_EQ(error.suspect, 0) << error.message;
  server.join();
}

TEST(ServerFaults, AFlippedBitIsNoGradient) {
  std::vector<LinkOptions> links(3);
  links[2].wrap = test::faulty({.kind = test::LinkFault::Kind::kFlip, .peer = 0, .at_byte = 2000});
  const Errors errors =
      errors_when([](std::unique_ptr<Transport>& self) { (void)work_until_error(*self, 20); }, 20, links);
  testing::expect_error(errors.server, ErrorCode::kCorrupt, 2);
}

// Worker 1 closes before the first step, so that none will be made; then worker 2 sends what is no push.
TEST(ServerFaults, BytesThatAreNoPushEndAClosingServerToo) {
  auto mesh = connect_inproc(3);
  ASSERT_TRUE(mesh);
  Error error;
  std::thread server([&] { error = serve_until_error(*(*mesh)[0], 20); });
  Model model(99);
  std::thread closing([&] {
    auto worker = make_worker(model.tensors, {}, *(*mesh)[1]);
    EXPECT_TRUE((*worker)->open(soon()));
    (void)(*worker)->close(soon());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until it closes
  const auto served = ServedModel::make(model.tensors, {}, *(*mesh)[2]);
  ASSERT_TRUE(served);
  const std::vector<std::byte> junk(100, std::byte{0x5a});
  const Bytes pieces[] = {Bytes(junk)};
  (void)(*mesh)[2]->post_send(0, served->tag(0, Way::kPush), pieces);
  server.join();
  (*mesh)[0].reset();
  closing.join();
  testing::expect_error(error, ErrorCode::kCorrupt, 2);
}

TEST(ServerFaults, OtherCodecsAreAMismatch) {
  const Errors errors = errors_when(
      [](std::unique_ptr<Transport>& self) { (void)work_until_error(*self, 20, {.push = "3lc:s=1.9"}); }, 20);
  testing::expect_error(errors.server, ErrorCode::kMismatch, 2);
}

}  // namespace
}  // namespace deltawire::server_test
