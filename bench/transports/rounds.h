// What the benchmark compares: ways to play a round, in which every rank sends a message to every other and
// receives one from each.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace deltawire::bench {

// How the ranks of a run meet: in files of a folder that all of them see.
struct Meeting {
  int rank = 0;
  int world_size = 1;
  std::filesystem::path folder;
  std::string host;  // this rank's address
};

[[noreturn]] void give_up(const std::string& message);

// The messages of one rank, by peer; empty for the rank itself.
class Messages {
 public:
  Messages(int rank, int world_size, std::size_t bytes);
  // Whether what the others sent is there, and nothing else.
  bool arrived() const;
  void forget_arrived();

  int rank() const noexcept { return rank_; }
  int world_size() const noexcept { return static_cast<int>(sent.size()); }

  std::vector<std::vector<std::byte>> sent;
  std::vector<std::vector<std::byte>> got;

 private:
  static std::byte fill_of(std::size_t from, std::size_t to, std::size_t i);

  int rank_;
};

class Rounds {
 public:
  virtual ~Rounds() = default;
  // Before the first round with these messages, which stay where they are until the next call.
  virtual void prepare(Messages& messages) = 0;
  virtual void play() = 0;
};

std::unique_ptr<Rounds> make_tcp_rounds(const Meeting& meeting, bool shared_memory);
// The engine over Gloo's packets.
std::unique_ptr<Rounds> make_gloo_mesh_rounds(const Meeting& meeting);
std::unique_ptr<Rounds> make_mpi_rounds();
// Gloo's own sends and receives, between buffers that it is given before; nullptr: built without it.
std::unique_ptr<Rounds> make_gloo_rounds(const Meeting& meeting);

}  // namespace deltawire::bench
