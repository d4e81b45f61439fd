#include "cli/arrays/array_file.h"

#include <algorithm>
#include <cstring>
#include <ostream>
#include <set>
#include <string_view>
#include <utility>

#include <unistd.h>

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

}  // namespace

ArrayFile ArrayFile::open(const std::string& path) {
  ArrayFile file(InputFile::open(path));
  const auto start = file.input_.peek(kDwMagic.size());
  if (begins_with(start, kEmptyZipMagic)) throw failed(file.name() + kNoArray);
  if (begins_with(start, kZipMagic)) {
    file.list_members();
    return file;
  }
  const FileKind kind = begins_with(start, kDwMagic) ? FileKind::kDw : FileKind::kNpy;
  file.members_.push_back(Member{{}, kind, file.name()});
  return file;
}

void ArrayFile::list_members() {
  archive_ = true;
  input_.settle();
  auto reader = ArchiveReader::open(input_);
  std::set<std::string> names;
  while (const auto next = reader->next()) {
    const auto member = member_named(*next, name());
    if (!member && next->ends_with("data.pkl")) {
      throw failed(name() + ": is a PyTorch checkpoint; load it and save its tensors with numpy.savez");
    }
    if (!member) {
      throw failed(name() + ": holds \"" + *next +
                   "\", which is neither a .npy nor a .dw file; leave it out");
    }
    if (!names.insert(member->name).second) {
      throw failed(name() + ": holds two arrays \"" + member->name + "\"; name each another way");
    }
    members_.push_back(*member);
  }
  if (members_.empty()) throw failed(name() + kNoArray);
}

std::unique_ptr<ByteSource> ArrayFile::bytes_of(const Member& member) {
  if (!archive_) return input_.read();
  auto reader = ArchiveReader::open(input_);
  const std::string wanted = member.name + std::string(member.kind == FileKind::kNpy ? kNpyEnd : kDwEnd);
  while (const auto next = reader->next()) {
    if (*next == wanted) return reader;
  }
  throw failed(member.shown + ": was there and is gone; is the file being written?");
}

std::unique_ptr<ArrayReader> ArrayFile::array(const Member& member) {
  auto bytes = bytes_of(member);
  return member.kind == FileKind::kDw ? open_dw(std::move(bytes), member.shown)
                                      : open_npy(std::move(bytes), member.shown);
}

void require_kind(const ArrayFile& file, FileKind kind) {
  for (const ArrayFile::Member& member : file.members()) {
    if (member.kind == kind) continue;
    throw failed(member.shown + (kind == FileKind::kDw ? ": is not a .dw file; 'deltawire encode' makes one"
                                                       : ": is encoded already and not a .npy file; "
                                                         "'deltawire decode' gives the array back"));
  }
}

ArrayOutput ArrayOutput::begin(OutputFile& file, bool archive) {
  ArrayOutput output(file);
  if (!archive) return output;
  output.archive_.emplace(ArchiveWriter::begin([&file](Bytes bytes) { file.write(bytes); }));
  return output;
}

void ArrayOutput::open(const std::string& name, std::optional<std::uint64_t> bytes) {
  if (!archive_) return;
  if (bytes) return archive_->add(name, *bytes);
  name_ = name;
  waiting_ = value_or_failed(make_unnamed_file());
}

void ArrayOutput::write(Bytes bytes) {
  bytes_ += bytes.size();
  if (!archive_) return file_->write(bytes);
  if (waiting_.get() >= 0) return throw_if_failed(write_all(waiting_.get(), bytes));
  return archive_->write(bytes);
}

void ArrayOutput::close() {
  if (waiting_.get() < 0) return;
  const Descriptor member = std::exchange(waiting_, Descriptor());
  const off_t size = lseek(member.get(), 0, SEEK_CUR);
  archive_->add(name_, static_cast<std::uint64_t>(size));
  std::vector<std::byte> block(kCopyBlockBytes);
  for (off_t at = 0; at < size;) {
    const auto got = read_at(member.get(), block, static_cast<std::uint64_t>(at));
    if (!got || *got == 0) throw failed("a temporary file cannot be read; check the disk of TMPDIR");
    archive_->write(Bytes(block).first(*got));
    at += static_cast<off_t>(*got);
  }
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
