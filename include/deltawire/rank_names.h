// How the ranks of a mesh are called in errors.
//
// Thread rule: a value.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "deltawire/export.h"
#include "deltawire/result.h"

namespace deltawire {

// A mesh may be a part of a job, such as the ranks that have the same rows of a model: its errors then name
// the job's ranks, by their numbers there. Equal on all ranks of the mesh.
struct DELTAWIRE_API RankNames {
  std::string kind = "rank";
  std::vector<int> numbers{};  // of each rank, 0 or more, each once; empty: the ranks themselves

  // Whether they are those of a mesh of that size.
  bool fit(int world_size) const;
  static const RankNames& plain() noexcept;  // "rank 3"

  // "rank 3"; "ranks 1, 3".
  std::string of(int rank) const;
  std::string of(std::span<const int> ranks) const;

  // The number of a rank, and the other way round. A number that is none of this mesh's is kept as the rank
  // world_size + number: an error may come from another part of the job. kNoRank stays.
  int number_of(int rank) const noexcept;
  int rank_of(int number) const noexcept;
  // Whether there can be such a rank in an error of a mesh of that size.
  bool has(int rank, int world_size) const noexcept {
    return rank >= 0 && (rank < world_size || !numbers.empty());
  }

  // The error as that rank tells it: one that names nobody who reports it names that rank.
  Error reported(int by, Error error) const;

  // The fields of an error that are ranks become numbers, and the other way round.
  void to_numbers(Error& error) const noexcept;
  void to_ranks(Error& error) const noexcept;
};

}  // namespace deltawire
