// Input and output files of arrays: .npy or .dw files, or zip archives of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include "cli/arrays/archive.h"
#include "cli/arrays/array_reader.h"
#include "cli/arrays/byte_source.h"
#include "cli/number_text.h"
#include "cli/outcome.h"
#include "cli/output_file.h"

namespace deltawire::cli {

enum class FileKind : std::uint8_t { kNpy, kDw };

class ArrayFile {
 public:
  // An array, not yet opened: it may be invalid.
  struct Member {
    std::string name;  // without .npy or .dw; empty if the file is one array
    FileKind kind = FileKind::kNpy;
    std::string shown;  // for messages: "grads.npz: conv1.npy"
  };

  // Recognizes the file by its first bytes, not by its name, and members of archives by the ends of their
  // names.
  static ArrayFile open(const std::string& path) {
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

  const std::string& name() const noexcept { return input_.name(); }
  bool is_archive() const noexcept { return archive_; }
  const std::vector<Member>& members() const noexcept { return members_; }

  // The bytes of a member. From a pipe only once.
  std::unique_ptr<ByteSource> bytes_of(const Member& member) {
    if (!archive_) return input_.read();
    auto reader = ArchiveReader::open(input_);
    const std::string wanted = member.name + std::string(member.kind == FileKind::kNpy ? kNpyEnd : kDwEnd);
    while (const auto next = reader->next()) {
      if (*next == wanted) return reader;
    }
    throw failed(member.shown + ": was there and is gone; is the file being written?");
  }

  // The array of a member, which this file must outlive.
  std::unique_ptr<ArrayReader> array(const Member& member) {
    auto bytes = bytes_of(member);
    return member.kind == FileKind::kDw ? open_dw(std::move(bytes), member.shown)
                                        : open_npy(std::move(bytes), member.shown);
  }

 private:
  static constexpr std::string_view kNpyEnd = ".npy";
  static constexpr std::string_view kDwEnd = ".dw";

  static constexpr std::string_view kEmptyZipMagic =
      "PK\x05\x06";  // the end of a zip's directory, and nothing before it

  static constexpr const char* kNoArray = ": is a zip archive without an array; save some in it";

  static bool begins_with(Bytes bytes, std::string_view magic) {
    return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
  }

  static std::optional<Member> member_named(const std::string& name, const std::string& file) {
    for (const auto& [end, kind] : {std::pair(kNpyEnd, FileKind::kNpy), std::pair(kDwEnd, FileKind::kDw)}) {
      if (name.ends_with(end) && name.size() > end.size()) {
        return Member{name.substr(0, name.size() - end.size()), kind, (file + ": ").append(name)};
      }
    }
    return std::nullopt;
  }

  explicit ArrayFile(InputFile input) : input_(std::move(input)) {}
  void list_members() {
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

  InputFile input_;
  bool archive_ = false;
  std::vector<Member> members_;
};

// Fails unless all members are of this kind.
inline void require_kind(const ArrayFile& file, FileKind kind) {
  for (const ArrayFile::Member& member : file.members()) {
    if (member.kind == kind) continue;
    throw failed(member.shown + (kind == FileKind::kDw ? ": is not a .dw file; 'deltawire encode' makes one"
                                                       : ": is encoded already and not a .npy file; "
                                                         "'deltawire decode' gives the array back"));
  }
}

// One array, or an archive of several.
class ArrayOutput {
 public:
  // `file` outlives the output, and the caller commits it.
  static ArrayOutput begin(OutputFile& file, bool archive) {
    ArrayOutput output(file);
    if (!archive) return output;
    output.archive_.emplace(ArchiveWriter::begin([&file](Bytes bytes) { file.write(bytes); }));
    return output;
  }

  // Starts the next array, with its size if known. `name` is that of the archive's member.
  void open(const std::string& name, std::optional<std::uint64_t> bytes) {
    if (!archive_) return;
    if (bytes) return archive_->add(name, *bytes);
    name_ = name;
    waiting_ = value_or_failed(make_unnamed_file());
  }

  void write(Bytes bytes) {
    bytes_ += bytes.size();
    if (!archive_) return file_->write(bytes);
    if (waiting_.get() >= 0) return throw_if_failed(write_all(waiting_.get(), bytes));
    return archive_->write(bytes);
  }

  // ends the array
  void close() {
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

  void finish() {
    if (archive_) archive_->finish();
  }

  std::uint64_t bytes() const noexcept { return bytes_; }  // of all arrays, without the archive's overhead

 private:
  explicit ArrayOutput(OutputFile& file) : file_(&file) {}

  OutputFile* file_;
  std::optional<ArchiveWriter> archive_;
  std::string name_;    // of a member
  Descriptor waiting_;  // its bytes if the size is unknown, since a member's size comes first
  std::uint64_t bytes_ = 0;
};

// Prints the summary of encode (`kind` kNpy) and decode (kDw): arrays, values, and bytes before and after.
inline void report_coded(const ArrayFile& input, FileKind kind, const std::string& output_path,
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
