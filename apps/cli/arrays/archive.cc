#include "cli/arrays/archive.h"

#include <algorithm>
#include <clocale>
#include <exception>
#include <new>
#include <utility>

#include <archive.h>
#include <archive_entry.h>
#include <unistd.h>

namespace deltawire::cli {
namespace {

constexpr std::size_t kArchiveBlockBytes = std::size_t{1} << 16;

std::string reason(archive* of) {
  const char* text = archive_error_string(of);
  return text != nullptr ? text : "unknown zip error";
}

// libarchive goes by the locale, and a zip's names are UTF-8 whatever it is.
void use_utf8_names() {
  std::setlocale(LC_CTYPE, "C.UTF-8");
}

Failure broken(const std::string& name, archive* of) {
  return failed(name + ": the zip archive cannot be read: " + reason(of) + "; copy the file again");
}

}  // namespace

void ArchiveReader::Free::operator()(archive* reader) const noexcept {
  archive_read_free(reader);
}

ArchiveReader::ArchiveReader(std::string name) : name_(std::move(name)), archive_(archive_read_new()) {}

std::unique_ptr<ArchiveReader> ArchiveReader::open(InputFile& input) {
  use_utf8_names();
  std::unique_ptr<ArchiveReader> reader(new ArchiveReader(input.name()));
  archive* const zip = reader->archive_.get();
  if (zip == nullptr) throw std::bad_alloc();
  const Place place = value_or_failed(input.read()->settle(), input.name() + ": ");
  // The directory at the end of a zip lists its members; libarchive reads it only from a seekable input.
  if (lseek(place.descriptor, static_cast<off_t>(place.offset), SEEK_SET) < 0 ||
      archive_read_support_format_zip_seekable(zip) != ARCHIVE_OK ||
      archive_read_open_fd(zip, place.descriptor, kArchiveBlockBytes) != ARCHIVE_OK) {
    throw broken(input.name(), zip);
  }
  return reader;
}

std::optional<std::string> ArchiveReader::next() {
  archive_entry* entry = nullptr;
  const int status = archive_read_next_header(archive_.get(), &entry);
  if (status == ARCHIVE_EOF) return std::nullopt;
  if (status != ARCHIVE_OK) throw broken(name_, archive_.get());
  const char* member = archive_entry_pathname_utf8(entry);
  if (member == nullptr) member = archive_entry_pathname(entry);
  if (member == nullptr) throw failed(name_ + ": a member has no readable name; save the arrays again");
  left_.reset();
  if (archive_entry_size_is_set(entry) != 0) {
    left_ = static_cast<std::uint64_t>(std::max<la_int64_t>(0, archive_entry_size(entry)));
  }
  return std::string(member);
}

Result<std::size_t> ArchiveReader::read(MutBytes out) {
  std::size_t used = 0;
  while (used < out.size()) {
    const la_ssize_t got = archive_read_data(archive_.get(), out.data() + used, out.size() - used);
    if (got < 0) {
      return fail(ErrorCode::kIo,
                  "the zip archive cannot be read: " + reason(archive_.get()) + "; copy the file again");
    }
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
  }
  if (left_) *left_ -= std::min<std::uint64_t>(*left_, used);
  return used;
}

struct ArchiveWriter::State {
  struct Free {
    void operator()(archive* writer) const noexcept { archive_write_free(writer); }
  };

  static la_ssize_t take(archive*, void* self, const void* bytes, std::size_t count) {
    auto* state = static_cast<State*>(self);
    try {
      state->write(Bytes(static_cast<const std::byte*>(bytes), count));
      return static_cast<la_ssize_t>(count);
    } catch (...) {  // nothing is thrown through libarchive
      state->thrown = std::current_exception();
      return -1;
    }
  }

  // Throws the failure of the output, if it had one.
  void check(bool went_well) const {
    if (went_well) return;
    if (thrown) std::rethrow_exception(thrown);
    throw failed("the zip archive cannot be written: " + reason(zip.get()));
  }

  Write write;
  std::exception_ptr thrown;
  std::unique_ptr<archive, Free> zip{archive_write_new()};
};

ArchiveWriter::ArchiveWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
ArchiveWriter::ArchiveWriter(ArchiveWriter&&) noexcept = default;

// Without finish() nothing more is written, since the output is discarded.
ArchiveWriter::~ArchiveWriter() {
  if (state_) archive_write_fail(state_->zip.get());
}

ArchiveWriter ArchiveWriter::begin(Write write) {
  use_utf8_names();
  auto state = std::make_unique<State>();
  state->write = std::move(write);
  archive* const zip = state->zip.get();
  if (zip == nullptr) throw std::bad_alloc();
  const bool opened = archive_write_set_format_zip(zip) == ARCHIVE_OK &&
                      archive_write_zip_set_compression_store(zip) == ARCHIVE_OK &&
                      archive_write_set_bytes_in_last_block(zip, 1) == ARCHIVE_OK &&
                      archive_write_open(zip, state.get(), nullptr, &State::take, nullptr) == ARCHIVE_OK;
  state->check(opened);
  return ArchiveWriter(std::move(state));
}

void ArchiveWriter::add(const std::string& name, std::uint64_t bytes) {
  const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(archive_entry_new(),
                                                                       archive_entry_free);
  if (!entry) throw std::bad_alloc();
  archive_entry_set_pathname_utf8(entry.get(), name.c_str());
  archive_entry_set_filetype(entry.get(), AE_IFREG);
  archive_entry_set_perm(entry.get(), 0644);
  // The first day that a zip can say: the same arrays give the same bytes wherever the time zone is the same.
  archive_entry_set_mtime(entry.get(), 315532800, 0);
  archive_entry_set_size(entry.get(), static_cast<la_int64_t>(bytes));
  state_->check(archive_write_header(state_->zip.get(), entry.get()) == ARCHIVE_OK);
}

void ArchiveWriter::write(Bytes bytes) {
  while (!bytes.empty()) {
    const la_ssize_t taken = archive_write_data(state_->zip.get(), bytes.data(), bytes.size());
    state_->check(taken > 0);
    bytes = bytes.subspan(static_cast<std::size_t>(taken));
  }
}

void ArchiveWriter::finish() {
  state_->check(archive_write_close(state_->zip.get()) == ARCHIVE_OK);
}

}  // namespace deltawire::cli
