// Snapshots: states of a rank in files of a folder, each there whole or not at all, whenever the machine
// stops. So a parameter server that was killed can resume from the last one:
//
//   SnapshotPlace place{.folder = "snapshots", .rank = transport.rank(), .settings = "..."};
//   Result<std::vector<std::uint64_t>> steps = find_snapshots(place);
//   // ... the ranks agree on the newest step that all servers have ...
//   Result<std::vector<std::byte>> state = read_snapshot(place, step);
//   Status loaded = server->load(*state);
//   Status dropped = drop_snapshots_after(place, step);
//   // ... and every few steps:
//   Status written = write_snapshot(place, server->steps(), *server->save());
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deltawire/export.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

// Thread rule: any thread, but one at a time for a rank's files.
struct SnapshotPlace {
  std::string folder;    // exists; ranks may share it
  int rank = 0;          // 0 or more; its files are its own
  std::string settings;  // at most 65,536 bytes: what must be the same when training resumes
  int kept = 2;          // how many of the newest are kept, 1 or more
};

// Writes a state to a temporary file, flushes it to the disk, moves it into place and flushes the folder:
// after this, and after a crash at any moment of it, the folder has this snapshot whole, or the earlier ones.
// Then removes the oldest beyond `kept`, and the remains of an unfinished one. Errors: kIo, with the file and
// the cause (after a full disk nothing is left of it, the earlier ones remain, and the caller may continue
// and try again later), kLimit (settings), kInvalidArgument.
DELTAWIRE_API Status write_snapshot(const SnapshotPlace& place, std::uint64_t step, Bytes state);

// The steps of this rank's snapshots that are whole, ascending; their checksums are compared, so it reads
// them all. Files that were cut or changed are none. Errors: kIo (no such folder), kMismatch (a whole one was
// saved with other settings), kUnsupportedVersion.
DELTAWIRE_API Result<std::vector<std::uint64_t>> find_snapshots(const SnapshotPlace& place);

// The state of one. Errors: as find_snapshots; kTruncated and kCorrupt for one that was cut or changed.
DELTAWIRE_API Result<std::vector<std::byte>> read_snapshot(const SnapshotPlace& place, std::uint64_t step);

// Removes the snapshots after `step`, before training resumes from it. Errors: kIo.
DELTAWIRE_API Status drop_snapshots_after(const SnapshotPlace& place, std::uint64_t step);

}  // namespace deltawire
