#include "linear/checkpoints.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include "base/os_error.h"

namespace deltawire::linear {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kStepDigits = 12;        // so that names are in the order of steps
constexpr std::size_t kUnfinishedLetters = 7;  // NewFile's: ".XXXXXX"
constexpr std::size_t kLookedAt = 4;           // the newest of a rank; it keeps two

// Removes `word` and a number from the front.
template <class Number>
bool take_number(std::string_view& text, std::string_view word, Number& number) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return error == std::errc();
}

std::string of_ranks(int world) {
  return world == 1 ? "1 worker" : std::to_string(world) + " workers";
}

}  // namespace

std::string Checkpoints::path_of(std::uint64_t step) const {
  std::string digits = std::to_string(step);
  digits.insert(0, kStepDigits - std::min(kStepDigits, digits.size()), '0');
  return (fs::path(settings_.folder) / ("step-" + digits + ".rank-" + std::to_string(rank_) + "-of-" +
                                        std::to_string(world_) + ".checkpoint"))
      .string();
}

// All checkpoints in the folder, of any rank, the newest first.
Result<std::vector<Checkpoints::Found>> Checkpoints::find() const {
  std::vector<Found> all;
  std::error_code error;
  for (fs::directory_iterator entry(settings_.folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::string_view rest = name;
    Found found{.path = entry->path().string()};
    if (!take_number(rest, "step-", found.step) || !take_number(rest, ".rank-", found.rank) ||
        !take_number(rest, "-of-", found.world) || !rest.starts_with(".checkpoint") || found.rank < 0) {
      continue;
    }
    rest.remove_prefix(std::string_view(".checkpoint").size());
    found.unfinished = rest.size() == kUnfinishedLetters && rest[0] == '.';
    if (rest.empty() || found.unfinished) all.push_back(std::move(found));
  }
  if (error) return fail(ErrorCode::kIo, settings_.folder + ": cannot be listed: " + error.message());
  std::ranges::sort(all, std::greater(), &Found::step);
  return all;
}

Status Checkpoints::prepare() {
  // Ranks on one machine share the folder; the first one creates it.
  if (!settings_.resume && mkdir(settings_.folder.c_str(), 0777) != 0 && errno != EEXIST) {
    return io_error(settings_.folder + ": cannot be made");
  }
  const auto none = [&] {
    return fail(ErrorCode::kState,
                settings_.folder + ": has no checkpoint to resume from; begin without --resume");
  };
  if (settings_.resume && access(settings_.folder.c_str(), F_OK) != 0) return none();
  const auto all = find();
  if (!all) return forward_error(all);
  bool any = false;
  for (const Found& found : *all) {
    any = any || !found.unfinished;
    if (!owns(found)) continue;
    if (found.unfinished || (settings_.force && !settings_.resume)) {
      unlink(found.path.c_str());
    } else if (!settings_.resume) {
      return fail(ErrorCode::kState,
                  settings_.folder +
                      ": has checkpoints of an earlier training; go on with it by --resume, name "
                      "another folder, or remove them with --force");
    }
  }
  if (settings_.resume && !any) return none();
  // Checked before the training instead of after many steps.
  const auto trial = NewFile::create(path_of(0));
  return trial ? Status() : forward_error(trial);
}

Status Checkpoints::check(const CheckpointReader& reader, const Found& found, std::uint32_t data) const {
  const CheckpointHead& head = reader.head();
  if (head.step != found.step || head.rank != static_cast<std::uint32_t>(rank_) ||
      head.world != static_cast<std::uint32_t>(world_)) {
    return fail(ErrorCode::kMismatch, found.path + ": has another's name: it is of step " +
                                          std::to_string(head.step) + ", rank " + std::to_string(head.rank) +
                                          " of " + std::to_string(head.world) + "; rename or remove it");
  }
  if (const std::string other = settings_.difference(head.settings); !other.empty()) {
    return fail(ErrorCode::kMismatch, found.path + ": was made with " + other +
                                          "; resume with the same settings, or begin in another folder");
  }
  if (head.data != data) {
    return fail(ErrorCode::kMismatch,
                found.path +
                    ": was made with other data; resume with the same files in the same "
                    "order, or begin in another folder");
  }
  return {};
}

Result<CheckpointReader> Checkpoints::newest(Exchange& exchange, std::uint32_t data) {
  const auto all = find();
  if (!all) return forward_error(all);
  std::vector<CheckpointReader> readers;
  int other_world = 0;
  std::string left_aside;
  for (const Found& found : *all) {
    if (found.unfinished || found.rank != rank_) continue;
    if (found.world != world_) {
      other_world = found.world;
      continue;
    }
    if (readers.size() == kLookedAt) break;
    auto reader = CheckpointReader::open(found.path);
    if (!reader && reader.error().code == ErrorCode::kCorrupt) {
      left_aside = reader.error().message;
      settings_.tell(left_aside + "; an older checkpoint is taken, if there is one");
      continue;
    }
    if (!reader) return forward_error(reader);
    if (Status fits = check(*reader, found, data); !fits) return forward_error(fits);
    readers.push_back(*std::move(reader));
  }
  if (readers.empty() && other_world > 0) {
    return fail(ErrorCode::kMismatch, settings_.folder + ": has checkpoints of " + of_ranks(other_world) +
                                          ", and this training has " + of_ranks(world_) +
                                          "; resume with as many, or begin in another folder");
  }
  std::array<double, kLookedAt> own{};
  own.fill(-1);
  for (std::size_t i = 0; i < readers.size(); ++i) own[i] = static_cast<double>(readers[i].head().step);
  const auto steps = exchange.gather(own);
  if (!steps) return forward_error(steps);
  for (CheckpointReader& reader : readers) {
    const auto ranks_with =
        std::ranges::count(*steps, static_cast<double>(reader.head().step));  // each rank has one at most
    if (ranks_with != world_) continue;
    previous_ = reader.head().step;
    return std::move(reader);
  }
  return fail(ErrorCode::kCorrupt, settings_.folder +
                                       ": there is no step of which every rank has a whole checkpoint" +
                                       (left_aside.empty() ? "" : " (" + left_aside + ")") +
                                       "; begin anew, without --resume and with --force");
}

Result<CheckpointWriter> Checkpoints::begin(std::uint64_t step, std::uint32_t data) const {
  return CheckpointWriter::create(path_of(step), {.step = step,
                                                  .rank = static_cast<std::uint32_t>(rank_),
                                                  .world = static_cast<std::uint32_t>(world_),
                                                  .data = data,
                                                  .settings = settings_.training});
}

Status Checkpoints::keep(CheckpointWriter& writer, std::uint64_t step) {
  if (Status done = writer.finish(); !done) return done;
  const auto all = find();
  if (!all) return forward_error(all);
  // No rank is more than one checkpoint ahead: the steps of the next one need all ranks, which go on only
  // after saving this one.
  for (const Found& found : *all) {
    if (found.rank != rank_ || found.world != world_ || found.unfinished) continue;
    if (found.step == step || found.step == previous_) continue;
    unlink(found.path.c_str());
  }
  previous_ = step;
  return {};
}

}  // namespace deltawire::linear
