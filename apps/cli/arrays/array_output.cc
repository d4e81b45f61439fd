#include "cli/arrays/array_output.h"

#include <cerrno>
#include <ostream>
#include <utility>
#include <vector>

#include <unistd.h>

namespace deltawire::cli {
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
