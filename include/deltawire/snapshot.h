// Snapshots: states of a rank in files of a folder, each complete or absent, whenever the machine stops. So a
// parameter server that was killed can resume from the last one:
//
//   SnapshotPlace place{.folder = "snapshots", .rank = transport.rank(), .settings = "..."};
//   Result<std::vector<std::uint64_t>> steps = find_snapshots(place);
//   // ... the ranks agree on the newest step that all servers have ...
//   Result<std::vector<std::byte>> state = read_snapshot(place, step);
//   Status loaded = server->load(*state);
//   Status dropped = drop_snapshots_after(place, step);
//   place.common = step;
//   // ... and every few steps:
//   Status written = write_snapshot(place, server->steps(), *server->save());
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/export.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

// Thread rule: any thread, but one at a time for a rank's files.
struct SnapshotPlace {
  std::string folder;    // exists; ranks may share it
  int rank = 0;          // 0 or more; each rank has its own files
  std::string settings;  // at most 65,536 bytes: what must be the same when training resumes
  // How many of the newest are kept, 1 or more. When a server dies while it writes one, another server may
  // have written the next: so the newest that all have may be the third.
  int kept = 3;
  // Kept besides these: the newest step of which all servers are known to have a snapshot, i.e. the one from
  // which this run began. A rank can't know whose disk was full at a later step.
  std::optional<std::uint64_t> common = std::nullopt;
};

// Writes a state to a temporary file, flushes it to the disk, moves it into place and flushes the folder:
// after a crash at any moment the folder has this snapshot complete, or only the earlier ones. Then removes
// the oldest beyond `kept`, but for `common`, and the remains of an unfinished one. Errors: kIo, with the
// file and the cause (if the disk is full, nothing of the snapshot is left, the earlier ones remain, and the
// caller may try again later), kLimit (settings), kInvalidArgument.
DELTAWIRE_API Status write_snapshot(const SnapshotPlace& place, std::uint64_t step, Bytes state);

// The steps of this rank's intact snapshots, ascending. It reads all files to verify their checksums, and
// ignores those that were cut or changed. Errors: kIo (no such folder), kMismatch (an intact one was saved
// with other settings), kUnsupportedVersion.
DELTAWIRE_API Result<std::vector<std::uint64_t>> find_snapshots(const SnapshotPlace& place);

// The state in a snapshot. Errors: as find_snapshots; kTruncated and kCorrupt if it was cut or changed.
DELTAWIRE_API Result<std::vector<std::byte>> read_snapshot(const SnapshotPlace& place, std::uint64_t step);

// Removes the snapshots after `step`, before training resumes from it. Errors: kIo.
DELTAWIRE_API Status drop_snapshots_after(const SnapshotPlace& place, std::uint64_t step);

}  // namespace deltawire
