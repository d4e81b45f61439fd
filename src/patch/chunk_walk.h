// Runs a task for each chunk of a tensor, on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "deltawire/workers.h"
#include "patch/patch_ops.h"

namespace deltawire::patch {

// The memory of one thread.
struct Workspace {
  Scratch scratch;
  alignas(64) std::byte chunk[kMaxChunkBytes + 64];  // a coded chunk, or one's new weights
};

// Chunks that one thread takes at a time.
inline constexpr std::uint64_t kGroupChunks = 8;

// Calls task(group, workspace) for each group of chunks, with the group's number. Throws std::bad_alloc,
// before any call. REQUIRES: task throws nothing.
template <class Task>
void for_each_group(std::uint64_t chunks, Workers* workers, const Task& task) {
  const std::uint64_t groups = (chunks + kGroupChunks - 1) / kGroupChunks;
  const auto threads = static_cast<std::uint64_t>(Workers::threads(workers));
  std::vector<std::unique_ptr<Workspace>> workspaces(std::min(groups, threads));
  for (auto& workspace : workspaces) workspace = std::make_unique_for_overwrite<Workspace>();
  std::atomic<std::uint64_t> next = 0;
  Workers::share(workers, workspaces.size(), [&](std::size_t thread) {
    for (;;) {
      const std::uint64_t group = next.fetch_add(1, std::memory_order_relaxed);
      if (group >= groups) return;
      task(group, *workspaces[thread]);
    }
  });
}

}  // namespace deltawire::patch
