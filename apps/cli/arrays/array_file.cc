#include "cli/arrays/array_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <ostream>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include "cli/arrays/archive.h"

namespace deltawire::cli {
namespace {

constexpr std::string_view kNpyEnd = ".npy";
constexpr std::string_view kDwEnd = ".dw";
constexpr std::string_view kEmptyZipMagic =
    "PK\x05\x06";  // the end of a zip's directory, and nothing before it
constexpr const char* kNoArray = ": is a zip archive without an array; save some in it";

bool begins_with(Bytes bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

std::optional<ArrayFile::Member> member_named(const std::string& name, const std::string& file) {
  for (const auto& [end, kind] : {std::pair(kNpyEnd, FileKind::kNpy), std::pair(kDwEnd, FileKind::kDw)}) {
    if (name.ends_with(end) && name.size() > end.size()) {
      return ArrayFile::Member{name.substr(0, name.size() - end.size()), kind, (file + ": ").append(name)};
    }
  }
  return std::nullopt;
}

std::string full_name(const ArrayFile::Member& member) {
  return member.name + std::string(member.kind == FileKind::kNpy ? kNpyEnd : kDwEnd);
}

}  // namespace

Outcome<ArrayFile> ArrayFile::open(const std::string& path) {
  auto input = InputFile::open(path);
  if (!input) return tl::unexpected<Failure>(input.error());
  ArrayFile file(*std::move(input));
  const auto start = file.input_.peek(kDwMagic.size());
  if (!start) return tl::unexpected<Failure>(start.error());
  if (begins_with(*start, kEmptyZipMagic)) return failed(file.name() + kNoArray);
  if (begins_with(*start, kZipMagic)) {
    if (auto listed = file.list_members(); !listed) return tl::unexpected<Failure>(listed.error());
    return file;
  }
  const FileKind kind = begins_with(*start, kDwMagic) ? FileKind::kDw : FileKind::kNpy;
  file.members_.push_back(Member{{}, kind, file.name()});
  return file;
}

Outcome<void> ArrayFile::list_members() {
  archive_ = true;
  if (auto settled = input_.settle(); !settled) return settled;
  auto reader = ArchiveReader::open(input_);
  if (!reader) return tl::unexpected<Failure>(reader.error());
  std::set<std::string> names;
  while (true) {
    auto next = (*reader)->next();
    if (!next) return tl::unexpected<Failure>(next.error());
    if (!*next) break;
    const auto member = member_named(**next, name());
    if (!member && (**next).ends_with("data.pkl")) {
      return failed(name() + ": is a PyTorch checkpoint; load it and save its tensors with numpy.savez");
    }
    if (!member) {
      return failed(name() + ": holds \"" + **next +
                    "\", which is neither a .npy nor a .dw file; leave it out");
    }
    if (!names.insert(member->name).second) {
      return failed(name() + ": holds two arrays \"" + member->name + "\"; name each another way");
    }
    members_.push_back(*member);
  }
  if (members_.empty()) return failed(name() + kNoArray);
  return {};
}

Outcome<std::unique_ptr<ByteSource>> ArrayFile::bytes_of(const Member& member) {
  if (!archive_) return input_.read();
  auto reader = ArchiveReader::open(input_);
  if (!reader) return tl::unexpected<Failure>(reader.error());
  const std::string wanted = full_name(member);
  while (true) {
    auto next = (*reader)->next();
    if (!next) return tl::unexpected<Failure>(next.error());
    if (!*next) return failed(member.shown + ": was there and is gone; is the file being written?");
    if (**next == wanted) return *std::move(reader);
  }
}

Outcome<std::unique_ptr<ArrayReader>> ArrayFile::array(const Member& member) {
  auto bytes = bytes_of(member);
  if (!bytes) return tl::unexpected<Failure>(bytes.error());
  return member.kind == FileKind::kDw ? open_dw(*std::move(bytes), member.shown)
                                      : open_npy(*std::move(bytes), member.shown);
}

Outcome<void> require_kind(const ArrayFile& file, FileKind kind) {
  for (const ArrayFile::Member& member : file.members()) {
    if (member.kind == kind) continue;
    return failed(member.shown + (kind == FileKind::kDw ? ": is not a .dw file; 'deltawire encode' makes one"
                                                        : ": is encoded already and not a .npy file; "
                                                          "'deltawire decode' gives the array back"));
  }
  return {};
}

Outcome<ArrayOutput> ArrayOutput::begin(OutputFile& file, bool archive) {
  ArrayOutput output(file);
  if (!archive) return output;
  auto writer = ArchiveWriter::begin([&file](Bytes bytes) { return file.write(bytes); });
  if (!writer) return tl::unexpected<Failure>(writer.error());
  output.archive_.emplace(*std::move(writer));
  return output;
}

Outcome<void> ArrayOutput::open(const std::string& name, std::optional<std::uint64_t> bytes) {
  if (!archive_) return {};
  if (bytes) return archive_->add(name, *bytes);
  name_ = name;
  Result<Descriptor> file = make_unnamed_file();
  if (!file) return failed(file.error().message);
  waiting_ = *std::move(file);
  return {};
}

Outcome<void> ArrayOutput::write(Bytes bytes) {
  bytes_ += bytes.size();
  if (!archive_) return file_->write(bytes);
  if (waiting_.get() >= 0) return outcome_of(write_all(waiting_.get(), bytes));
  return archive_->write(bytes);
}

Outcome<void> ArrayOutput::close() {
  if (waiting_.get() < 0) return {};
  const Descriptor member = std::exchange(waiting_, Descriptor());
  const off_t size = lseek(member.get(), 0, SEEK_CUR);
  if (auto added = archive_->add(name_, static_cast<std::uint64_t>(size)); !added) return added;
  std::vector<std::byte> block(kCopyBlockBytes);
  for (off_t at = 0; at < size;) {
    const auto got = read_at(member.get(), block, static_cast<std::uint64_t>(at));
    if (!got || *got == 0) return failed("a temporary file cannot be read; check the disk of TMPDIR");
    if (auto written = archive_->write(Bytes(block).first(*got)); !written) return written;
    at += static_cast<off_t>(*got);
  }
  return {};
}

Outcome<void> ArrayOutput::finish() {
  return archive_ ? archive_->finish() : Outcome<void>();
}

void report_coded(const ArrayFile& input, FileKind kind, const std::string& output_path,
                  const FileSize& size) {
  std::uint64_t from = size.tensor_bytes;
  std::uint64_t to = size.file_bytes;
  if (kind == FileKind::kDw) std::swap(from, to);
  std::ostream& report = report_stream(output_path);
  report << output_name(output_path) << ": ";
  if (input.is_archive()) report << grouped(input.members().size()) << " arrays, ";
  report << grouped(size.count) << " values, " << grouped(from) << " -> " << grouped(to) << " bytes, "
         << ratio_text(size) << "\n";
}

}  // namespace deltawire::cli
