// The checkpoints of a training: a folder in which each rank keeps its last two, on a disk that all ranks
// share or on each rank's own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "linear/checkpoint_file.h"
#include "linear/exchange.h"

namespace deltawire::linear {

struct CheckpointSettings {
  std::string folder;       // created if missing; its parent must exist
  std::uint64_t every = 0;  // steps between checkpoints; 0: one per data epoch
  bool resume = false;
  bool force = false;    // removes checkpoints of an earlier training
  std::string training;  // the settings that must not change when it is resumed

  // Describes how `saved`, the `training` of a checkpoint, differs; empty if it does not matter.
  std::function<std::string(const std::string& saved)> difference;
  std::function<void(const std::string&)> tell;  // prints a line
};

// Thread rule: one thread at a time.
class Checkpoints {
 public:
  Checkpoints(CheckpointSettings settings, int rank, int world)
      : settings_(std::move(settings)), rank_(rank), world_(world) {}

  // Checks before the training that the folder is writable, has no checkpoints if the training is new, and
  // has some if it resumes. Removes unfinished files of a killed process, and with `force` old checkpoints.
  // Errors: kIo; kState for checkpoints of an earlier training, or none to resume from.
  Status prepare();

  bool resumes() const noexcept { return settings_.resume; }
  std::uint64_t every() const noexcept { return settings_.every; }

  // Collective: the newest checkpoint that every rank has undamaged. `data` is BlockStore::checksum. Reports
  // damaged ones and skips them. Errors: kMismatch for other settings, data or ranks; kUnsupportedVersion;
  // kCorrupt if none is left; kIo; those of Exchange::gather.
  Result<CheckpointReader> newest(Exchange& exchange, std::uint32_t data);

  Result<CheckpointWriter> begin(std::uint64_t step, std::uint32_t data) const;
  Status keep(CheckpointWriter& writer, std::uint64_t step);  // finishes it, and removes all but the last two

 private:
  struct Found {
    std::string path;
    std::uint64_t step = 0;
    int rank = 0;
    int world = 0;
    bool unfinished = false;
  };

  std::string path_of(std::uint64_t step) const;
  Result<std::vector<Found>> find() const;
  bool owns(const Found& found) const noexcept { return found.rank % world_ == rank_; }
  Status check(const CheckpointReader& reader, const Found& found, std::uint32_t data) const;

  CheckpointSettings settings_;
  int rank_;
  int world_;
  std::uint64_t previous_ = ~std::uint64_t{0};  // the step last saved or resumed
};

}  // namespace deltawire::linear
