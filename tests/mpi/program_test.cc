// A program that has MPI to itself, and deltawire as its guest; run under mpirun.
//
// usage: deltawire_mpi_program_test multiple|serialized
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <mpi.h>

#include "deltawire/connect_mpi.h"

namespace {

using namespace deltawire;

bool failed = false;

void expect(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  failed = true;
}

// The ranks of every second number, as a world of their own, while the program goes on to use MPI.
void exchange_in_halves() {
  int rank = 0;
  int world_size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MpiOptions options;
  options.fortran_communicator = static_cast<int>(MPI_Comm_c2f(half));
  auto connected = connect_mpi(options);
  if (!connected) return expect(false, connected.error().message);
  Transport& self = **connected;
  expect(self.rank() == rank / 2, "rank within the half");
  expect(self.world_size() == (world_size + 1 - rank % 2) / 2, "size of the half");
  const Deadline deadline = Clock::now() + std::chrono::seconds(30);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<std::byte>> got(static_cast<std::size_t>(self.world_size()));
    const std::vector<std::byte> mine(200000, static_cast<std::byte>(rank + round));
    std::vector<Handle> handles;
    for (int peer = 0; peer < self.world_size(); ++peer) {
      if (peer == self.rank()) continue;
      auto& into = got[static_cast<std::size_t>(peer)];
      into.resize(mine.size());
      const Bytes piece(mine);
      handles.push_back(self.post_recv(peer, 5, into));
      handles.push_back(self.post_send(peer, 5, {&piece, 1}));
    }
    // The program's own message, with the tag and on the communicator that deltawire has duplicated.
    int sum = 0;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    expect(sum == world_size * (world_size - 1) / 2, "the program's own sum");
    for (const Handle handle : handles) {
      const auto moved = self.wait(handle, deadline);
      if (!moved) return expect(false, moved.error().message);
    }
    for (int peer = 0; peer < self.world_size(); ++peer) {
      if (peer == self.rank()) continue;
      const std::vector<std::byte> wanted(mine.size(), static_cast<std::byte>(2 * peer + rank % 2 + round));
      expect(got[static_cast<std::size_t>(peer)] == wanted, "what came from the other ranks");
    }
  }
  connected->reset();
  MPI_Comm_free(&half);
}

// Two threads connect, each over a communicator of its own, and ranks begin with different ones.
void connect_at_once() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<MPI_Comm> communicators(2);
  for (MPI_Comm& each : communicators) MPI_Comm_dup(MPI_COMM_WORLD, &each);
  std::vector<std::thread> threads;
  for (int turn = 0; turn < 2; ++turn) {
    threads.emplace_back([&, turn] {
      std::this_thread::sleep_for(turn * std::chrono::milliseconds(200));
      MpiOptions options;
      options.connect_timeout = std::chrono::seconds(20);
      const MPI_Comm mine = communicators[static_cast<std::size_t>((rank + turn) % 2)];
      options.fortran_communicator = static_cast<int>(MPI_Comm_c2f(mine));
      const auto connected = connect_mpi(options);
      expect(connected.has_value(), connected ? "" : connected.error().message);
    });
  }
  for (std::thread& each : threads) each.join();
  for (MPI_Comm& each : communicators) MPI_Comm_free(&each);
}

}  // namespace

int main(int argc, char** argv) {
  const bool multiple = argc > 1 && std::strcmp(argv[1], "multiple") == 0;
  int level = 0;
  MPI_Init_thread(&argc, &argv, multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED, &level);
  if (multiple) {
    exchange_in_halves();
    connect_at_once();
  } else {
    const auto refused = connect_mpi();
    expect(!refused && refused.error().code == ErrorCode::kState &&
               refused.error().message.find("MPI_THREAD_MULTIPLE") != std::string::npos,
           "a program with fewer threads is told what to ask for");
  }
  MPI_Finalize();
  const auto late = connect_mpi();
  expect(!late && late.error().code == ErrorCode::kState, "after MPI_Finalize nothing connects");
  return failed ? 1 : 0;
}
