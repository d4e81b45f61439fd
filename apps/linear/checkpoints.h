// A training's checkpoints: a folder in which each rank keeps its last two. They may lie on one disk for all
// ranks, or on each rank's own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "linear/checkpoint_file.h"
#include "linear/exchange.h"

namespace deltawire::linear {

struct CheckpointSettings {
  std::string folder;       // made where it is missing; the folder that it lies in is there
  std::uint64_t every = 0;  // steps from one to the next; 0: a data epoch's
  bool resume = false;
  bool force = false;    // those of an earlier training are removed
  std::string training;  // what must stay alike when it is resumed

  // In words what `saved`, the `training` of a checkpoint, has otherwise; empty where nothing matters.
  std::function<std::string(const std::string& saved)> difference;
  std::function<void(const std::string&)> tell;  // a line for whoever looks on
};

// Thread rule: one thread at a time.
class Checkpoints {
 public:
  Checkpoints(CheckpointSettings settings, int rank, int world)
      : settings_(std::move(settings)), rank_(rank), world_(world) {}

  // Before there is anything to lose: the folder takes files, a training that begins has none of its own in
  // it, one that resumes has some. Removes what a killed process left unfinished, and with `force` what was
  // there. Errors: kIo; kState for checkpoints in the way, or none to resume from.
  Status prepare();

  bool resumes() const noexcept { return settings_.resume; }
  std::uint64_t every() const noexcept { return settings_.every; }

  // The newest checkpoint that every rank has whole; all ranks call it. `data` is BlockStore::checksum. A
  // damaged one is told of and passed over. Errors: kMismatch for one of other settings, data or ranks;
  // kUnsupportedVersion; kCorrupt where no step is left; kIo; those of Exchange::gather.
  Result<CheckpointReader> newest(Exchange& exchange, std::uint32_t data);

  Result<CheckpointWriter> begin(std::uint64_t step, std::uint32_t data) const;
  Status keep(CheckpointWriter& writer, std::uint64_t step);  // in its place; all but the last two go

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
  std::uint64_t previous_ = ~std::uint64_t{0};  // the step saved or resumed last
};

}  // namespace deltawire::linear
