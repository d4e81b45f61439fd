// Files of snapshots (docs/reference/format.md, "Snapshots").
#include "deltawire/snapshot.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/byte_writer.h"
#include "base/crc32c.h"
#include "base/disk_file.h"
#include "base/errors.h"
#include "base/format_version.h"
#include "base/little_endian.h"

namespace deltawire {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSnapshotMagic = "DWSNAP\r\n";
constexpr std::uint32_t kSnapshotVersion = 1;
// magic, u32 version, u32 rank, u64 step, u64 bytes of the state, u32 bytes of the settings
constexpr std::uint64_t kSnapshotHeadBytes = 36;
constexpr std::uint64_t kSnapshotCrcBytes = 4;
constexpr std::uint64_t kSettingsMax = 65536;
constexpr std::string_view kEnding = ".snapshot";

std::string beginning_of(const SnapshotPlace& place) {
  return "rank-" + std::to_string(place.rank) + ".step-";
}

std::string path_of(const SnapshotPlace& place, std::uint64_t step) {
  return (fs::path(place.folder) / (beginning_of(place) + std::to_string(step) + std::string(kEnding)))
      .string();
}

// One of this rank's files: a snapshot, or what a crash has left of one.
struct Found {
  std::string path;
  std::uint64_t step = 0;
  bool is_finished = false;
};

std::optional<Found> of_name(const SnapshotPlace& place, const std::string& name) {
  const std::string beginning = beginning_of(place);
  if (!name.starts_with(beginning)) return std::nullopt;
  Found found{.path = (fs::path(place.folder) / name).string()};
  const char* const digits = name.data() + beginning.size();
  const char* const end = name.data() + name.size();
  const auto [after, error] = std::from_chars(digits, end, found.step);
  const std::string_view rest(after, static_cast<std::size_t>(end - after));
  if (error != std::errc{} || !rest.starts_with(kEnding)) return std::nullopt;
  found.is_finished = rest == kEnding;
  return found;
}

// By step; those of the same step in any order.
Result<std::vector<Found>> files_of(const SnapshotPlace& place) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(place.folder.c_str()), &closedir);
  if (folder == nullptr) return io_error(place.folder + ": cannot be read");
  std::vector<Found> all;
  errno = 0;
  while (const dirent* const entry = readdir(folder.get())) {
    if (std::optional<Found> found = of_name(place, entry->d_name)) all.push_back(std::move(*found));
    errno = 0;
  }
  if (errno != 0) return io_error(place.folder + ": cannot be read");
  std::ranges::sort(all, {}, &Found::step);
  return all;
}

Status remove_all(const SnapshotPlace& place, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (unlink(path.c_str()) != 0 && errno != ENOENT) {
      return io_error(path + ": cannot be removed");
    }
  }
  return paths.empty() ? Status{} : flush_folder(place.folder);
}

Result<std::vector<std::byte>> bytes_of(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info{};
  if (file.get() < 0 || fstat(file.get(), &info) != 0) {
    return io_error(path + ": cannot be read");
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(info.st_size));
  const Result<std::size_t> got = read_at(file.get(), bytes, 0);
  if (!got) return fail(got.error().code, path + ": " + got.error().message);
  bytes.resize(*got);
  return bytes;
}

// The state in a file's bytes.
Result<Bytes> read(const SnapshotPlace& place, std::uint64_t step, Bytes file) {
  const std::string path = path_of(place, step);
  if (file.size() < kSnapshotHeadBytes + kSnapshotCrcBytes) return truncated(path + ": was cut");
  if (std::memcmp(file.data(), kSnapshotMagic.data(), kSnapshotMagic.size()) != 0) {
    return corrupt(path + ": wrong magic; this is no snapshot");
  }
  const Bytes body = file.first(file.size() - kSnapshotCrcBytes);
  if (crc32c(body) != load_le<std::uint32_t>(file.data() + body.size())) {
    return corrupt(path + ": the checksum is wrong; the file was changed or cut");
  }
  // Behind the checksum, which has its place in every version: a changed version is damage.
  const auto version = load_le<std::uint32_t>(file.data() + 8);
  RETURN_IF_ERROR(check_format_version(path, version, kSnapshotVersion));
  const std::uint64_t state_bytes = load_le<std::uint64_t>(file.data() + 24);
  const std::uint64_t settings_bytes = load_le<std::uint32_t>(file.data() + 32);
  const std::uint64_t rest = body.size() - kSnapshotHeadBytes;
  if (settings_bytes > rest || state_bytes != rest - settings_bytes) {
    return corrupt(path + ": its lengths don't fit");
  }
  const Bytes settings = body.subspan(kSnapshotHeadBytes, settings_bytes);
  const std::string_view saved(reinterpret_cast<const char*>(settings.data()), settings.size());
  if (load_le<std::uint32_t>(file.data() + 12) != static_cast<std::uint32_t>(place.rank) ||
      load_le<std::uint64_t>(file.data() + 16) != step) {
    return corrupt(path + ": is of another rank or step than its name says");
  }
  if (saved != place.settings) {
    return mismatch(path + ": was saved with '" + std::string(saved) + "', this is '" + place.settings +
                    "'; go on with the same settings, or give another folder");
  }
  return body.subspan(kSnapshotHeadBytes + settings_bytes);
}

Status check(const SnapshotPlace& place) {
  if (place.rank < 0 || place.kept < 1) {
    return invalid("a snapshot's rank is 0 or more, and 1 at least is kept");
  }
  if (place.settings.size() > kSettingsMax) {
    return fail(ErrorCode::kLimit, "settings of " + std::to_string(place.settings.size()) +
                                       " bytes; a snapshot has room for 65,536");
  }
  return {};
}

}  // namespace

Status write_snapshot(const SnapshotPlace& place, std::uint64_t step, Bytes state) {
  RETURN_IF_ERROR(check(place));
  std::vector<std::byte> head(kSnapshotHeadBytes + place.settings.size());
  ByteWriter writer(head);
  writer.text(kSnapshotMagic);
  writer.number<std::uint32_t>(kSnapshotVersion);
  writer.number<std::uint32_t>(static_cast<std::uint32_t>(place.rank));
  writer.number<std::uint64_t>(step);
  writer.number<std::uint64_t>(state.size());
  writer.number<std::uint32_t>(static_cast<std::uint32_t>(place.settings.size()));
  writer.text(place.settings);
  std::vector<std::byte> tail(kSnapshotCrcBytes);
  store_le<std::uint32_t>(tail.data(), crc32c(state, crc32c(head)));

  const std::string path = path_of(place, step);
  ASSIGN_OR_RETURN(NewFile file, NewFile::create(path));
  for (const Bytes piece : {Bytes(head), state, Bytes(tail)}) {
    if (Status written = write_all(file.descriptor(), piece); !written) {
      return fail(written.error().code, path + ": " + written.error().message);
    }
  }
  RETURN_IF_ERROR(file.flush());
  RETURN_IF_ERROR(file.put_in_place());

  ASSIGN_OR_RETURN(const std::vector<Found> all, files_of(place));
  std::vector<std::string> old;
  auto finished = std::ranges::count_if(all, &Found::is_finished);
  for (const Found& found : all) {
    const bool is_old = found.is_finished && finished-- > place.kept && found.step != place.common;
    if (!found.is_finished || is_old) old.push_back(found.path);
  }
  return remove_all(place, old);
}

Result<std::vector<std::uint64_t>> find_snapshots(const SnapshotPlace& place) {
  RETURN_IF_ERROR(check(place));
  ASSIGN_OR_RETURN(const std::vector<Found> all, files_of(place));
  std::vector<std::uint64_t> steps;
  for (const Found& found : all) {
    if (!found.is_finished) continue;
    ASSIGN_OR_RETURN(const auto file, bytes_of(found.path));
    const Result<Bytes> state = read(place, found.step, file);
    if (state) {
      steps.push_back(found.step);
    } else if (const ErrorCode code = state.error().code;
               code != ErrorCode::kTruncated && code != ErrorCode::kCorrupt) {
      return forward_error(state);
    }
  }
  return steps;
}

Result<std::vector<std::byte>> read_snapshot(const SnapshotPlace& place, std::uint64_t step) {
  RETURN_IF_ERROR(check(place));
  ASSIGN_OR_RETURN(auto file, bytes_of(path_of(place, step)));
  ASSIGN_OR_RETURN(const Bytes state, read(place, step, file));
  return std::vector<std::byte>(state.begin(), state.end());
}

Status drop_snapshots_after(const SnapshotPlace& place, std::uint64_t step) {
  ASSIGN_OR_RETURN(const std::vector<Found> all, files_of(place));
  std::vector<std::string> later;
  for (const Found& found : all) {
    if (found.step > step || !found.is_finished) later.push_back(found.path);
  }
  return remove_all(place, later);
}

}  // namespace deltawire
