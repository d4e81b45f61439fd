// deltawire_mpi_test, under mpirun: each rank runs all tests.
#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

#include "deltawire/connect_mpi.h"
#include "mpi_world.h"

namespace deltawire {
namespace {

// Rank 0 prints as usual; of the other ranks only failures are worth a line.
class FailurePrinter final : public ::testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}

 private:
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", rank_, result.file_name(), result.line_number(),
                 result.message());
  }
  int rank_;
};

}  // namespace

Result<std::unique_ptr<Transport>> connect_with(const std::string& settings) {
  MpiOptions options;
  options.settings = settings;
  options.connect_timeout = std::chrono::seconds(30);
  return connect_mpi(options);
}

std::unique_ptr<Transport> connect_world(const std::string& settings) {
  auto transport = connect_with(settings);
  if (transport) return std::move(*transport);
  std::fprintf(stderr, "can't connect: %s\n", transport.error().text().c_str());
  std::_Exit(3);
}

}  // namespace deltawire

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const int rank = deltawire::connect_world()->rank();
  if (rank != 0) {
    ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new deltawire::FailurePrinter(rank));
  }
  return RUN_ALL_TESTS();
}
