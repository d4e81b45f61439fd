#include "linear/commands/packed_output.h"

#include <array>
#include <new>
#include <span>
#include <utility>

#include <archive.h>
#include <archive_entry.h>

namespace deltawire::linear {
namespace {

struct Ending {
  std::string_view name;
  int (*add_filter)(archive*);
};

constexpr std::array kEndings{
    Ending{".gz", archive_write_add_filter_gzip}, Ending{".xz", archive_write_add_filter_xz},
    Ending{".bz2", archive_write_add_filter_bzip2}, Ending{".zst", archive_write_add_filter_zstd}};

}  // namespace

struct PackedOutput::Packer {
  struct Free {
    void operator()(archive* writer) const noexcept { archive_write_free(writer); }
  };

  static la_ssize_t take(archive*, void* self, const void* bytes, std::size_t count) {
    auto* packer = static_cast<Packer*>(self);
    packer->written = packer->file.write(Bytes(static_cast<const std::byte*>(bytes), count));
    return packer->written ? static_cast<la_ssize_t>(count) : -1;
  }

  // What the file said, where it was the file.
  cli::Outcome<void> check(bool went_well) const {
    if (went_well) return {};
    if (!written) return written;
    const char* text = archive_error_string(out.get());
    return cli::failed("the text cannot be packed: " + std::string(text != nullptr ? text : "unknown error") +
                       "; give a name with another ending");
  }

  cli::Outcome<void> open(const Ending& ending) {
    archive* const to = out.get();
    if (to == nullptr) throw std::bad_alloc();
    // A warning says that another program would do the work.
    bool opened = ending.add_filter(to) == ARCHIVE_OK && archive_write_set_format_raw(to) == ARCHIVE_OK &&
                  archive_write_set_bytes_in_last_block(to, 1) == ARCHIVE_OK;
    // Else the time of day would stand in the file.
    if (opened && ending.name == ".gz") {
      opened = archive_write_set_filter_option(to, "gzip", "timestamp", nullptr) == ARCHIVE_OK;
    }
    opened = opened && archive_write_open(to, this, nullptr, &take, nullptr) == ARCHIVE_OK;
    if (!opened) return check(false);
    const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(archive_entry_new(),
                                                                         archive_entry_free);
    if (!entry) throw std::bad_alloc();
    archive_entry_set_filetype(entry.get(), AE_IFREG);
    return check(archive_write_header(to, entry.get()) == ARCHIVE_OK);
  }

  cli::OutputFile& file;
  cli::Outcome<void> written;
  std::unique_ptr<archive, Free> out{archive_write_new()};
};

PackedOutput::PackedOutput(cli::OutputFile file) : file_(std::move(file)) {}

// Without commit nothing more is written: the file is to be thrown away.
PackedOutput::~PackedOutput() {
  if (packer_) archive_write_fail(packer_->out.get());
}

cli::Outcome<std::unique_ptr<PackedOutput>> PackedOutput::create(const std::string& path, bool force) {
  auto file = cli::OutputFile::create(path, force);
  if (!file) return tl::unexpected<cli::Failure>(file.error());
  std::unique_ptr<PackedOutput> output(new PackedOutput(*std::move(file)));
  for (const Ending& ending : kEndings) {
    if (!path.ends_with(ending.name)) continue;
    output->packer_.reset(new Packer{.file = output->file_, .written = {}});
    if (auto opened = output->packer_->open(ending); !opened)
      return tl::unexpected<cli::Failure>(opened.error());
  }
  return output;
}

cli::Outcome<void> PackedOutput::write(std::string_view text) {
  if (!packer_) return file_.write(std::as_bytes(std::span(text)));
  while (!text.empty()) {
    const la_ssize_t taken = archive_write_data(packer_->out.get(), text.data(), text.size());
    if (taken <= 0) return packer_->check(false);
    text.remove_prefix(static_cast<std::size_t>(taken));
  }
  return {};
}

cli::Outcome<void> PackedOutput::commit() {
  if (packer_) {
    if (auto closed = packer_->check(archive_write_close(packer_->out.get()) == ARCHIVE_OK); !closed)
      return closed;
  }
  return file_.commit();
}

}  // namespace deltawire::linear
