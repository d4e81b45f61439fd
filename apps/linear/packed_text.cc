#include <algorithm>
#include <cerrno>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <archive.h>
#include <archive_entry.h>
#include <unistd.h>
#include <zlib.h>

#include "base/os_error.h"
#include "linear/text_source.h"

namespace deltawire::linear {
namespace {

constexpr std::size_t kPackedBlockBytes = std::size_t{1} << 18;
constexpr int kGzipWrapper = 16 + MAX_WBITS;
constexpr std::string_view kGzipMagic = "\x1F\x8B";

Status broken(const std::string& reason) {
  return fail(ErrorCode::kIo, "cannot be unpacked: " + reason + "; copy the file again");
}

// Reads a descriptor in blocks, without seeking.
class PackedInput {
 public:
  explicit PackedInput(Descriptor file) : file_(std::move(file)), block_(kPackedBlockBytes) {}

  // Returns the first `count` bytes, or fewer at the end of the file. next() returns them again.
  Result<std::string_view> peek(std::size_t count) {
    while (filled_ < count && !ended_) {
      if (Status read = fill(); !read) return forward_error(read);
    }
    return std::string_view(block_.data(), std::min(filled_, count));
  }

  // The next block, valid until the next call; empty at the end.
  Result<std::span<char>> next() {
    if (filled_ == 0 && !ended_) {
      if (Status read = fill(); !read) return forward_error(read);
    }
    const std::size_t count = std::exchange(filled_, 0);
    taken_ += count;
    return std::span(block_).first(count);
  }

  // Bytes returned by next().
  std::uint64_t taken() const noexcept { return taken_; }

 private:
  Status fill() {
    ssize_t got = 0;
    do {
      got = read(file_.get(), block_.data() + filled_, block_.size() - filled_);
    } while (got < 0 && errno == EINTR);
    if (got < 0) return io_error("cannot be read");
    filled_ += static_cast<std::size_t>(got);
    ended_ = got == 0;
    return {};
  }

  Descriptor file_;
  std::vector<char> block_;
  std::size_t filled_ = 0;
  bool ended_ = false;
  std::uint64_t taken_ = 0;
};

class GzipText final : public TextSource {
 public:
  explicit GzipText(PackedInput input) : input_(std::move(input)) {
    if (inflateInit2(&stream_, kGzipWrapper) != Z_OK) throw std::bad_alloc();
  }
  GzipText(const GzipText&) = delete;
  GzipText& operator=(const GzipText&) = delete;
  ~GzipText() override { inflateEnd(&stream_); }

  Result<std::size_t> read(std::span<char> out) override {
    std::size_t used = 0;
    while (used < out.size()) {
      if (stream_.avail_in == 0) {
        const auto block = input_.next();
        if (!block) return forward_error(block);
        stream_.next_in = reinterpret_cast<Bytef*>(block->data());
        stream_.avail_in = static_cast<uInt>(block->size());
      }
      if (stream_.avail_in == 0) {
        if (between_members_) return used;
        return forward_error(broken("the file ends amid a gzip member"));
      }
      const auto got = unpack(out.subspan(used));
      if (!got) return got;
      used += *got;
    }
    return used;
  }

 private:
  // Unpacks as many of the available bytes as fit, up to the end of a member.
  Result<std::size_t> unpack(std::span<char> out) {
    const auto room = static_cast<uInt>(std::min(out.size(), kPackedBlockBytes));
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = room;
    between_members_ = false;
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    if (status != Z_OK && status != Z_STREAM_END) return forward_error(refused());
    if (status == Z_STREAM_END) {
      // zlib has verified the CRC-32 and the length. Only another member may follow.
      inflateReset(&stream_);
      between_members_ = true;
      ++members_;
    }
    return room - stream_.avail_out;
  }

  Status refused() const {
    if (members_ > 0 && stream_.total_out == 0) return broken("what follows its last gzip member is none");
    return broken(stream_.msg != nullptr ? stream_.msg : "the gzip data make no sense");
  }

  PackedInput input_;
  z_stream stream_{};
  bool between_members_ = false;
  std::uint64_t members_ = 0;
};

class ArchiveText final : public TextSource {
 public:
  explicit ArchiveText(PackedInput input) : input_(std::move(input)), archive_(archive_read_new()) {}

  Status open() {
    archive* const packed = archive_.get();
    if (packed == nullptr) throw std::bad_alloc();
    archive_read_support_filter_xz(packed);
    archive_read_support_filter_bzip2(packed);
    archive_read_support_filter_zstd(packed);
    archive_read_support_format_raw(packed);
    archive_read_support_format_empty(packed);
    if (archive_read_open(packed, this, nullptr, &give, nullptr) != ARCHIVE_OK) return stopped();
    archive_entry* entry = nullptr;
    const int status = archive_read_next_header(packed, &entry);
    ended_ = status == ARCHIVE_EOF;
    return ended_ || status == ARCHIVE_OK ? Status() : stopped();
  }

  Result<std::size_t> read(std::span<char> out) override {
    std::size_t used = 0;
    while (!ended_ && used < out.size()) {
      const la_ssize_t got = archive_read_data(archive_.get(), out.data() + used, out.size() - used);
      if (got < 0) return forward_error(stopped());
      used += static_cast<std::size_t>(got);
      if (got > 0) continue;
      ended_ = true;
      if (Status whole = check_end(); !whole) return forward_error(whole);
    }
    return used;
  }

 private:
  struct Free {
    void operator()(archive* reader) const noexcept { archive_read_free(reader); }
  };

  static la_ssize_t give(archive*, void* self, const void** bytes) {
    auto* text = static_cast<ArchiveText*>(self);
    const auto block = text->input_.next();
    if (!block) {
      text->input_failed_ = forward_error(block);
      return -1;
    }
    *bytes = block->data();
    return static_cast<la_ssize_t>(block->size());
  }

  // libarchive ignores other bytes after a bzip2 stream.
  Status check_end() {
    const auto used = static_cast<std::uint64_t>(archive_filter_bytes(archive_.get(), -1));
    const auto rest = input_.next();
    if (!rest) return forward_error(rest);
    if (used == input_.taken()) return {};
    return broken("bytes follow that belong to no packed stream");
  }

  Status stopped() const {
    if (!input_failed_) return input_failed_;
    const char* reason = archive_error_string(archive_.get());
    if (reason != nullptr && std::string_view(reason).find("too much memory") != std::string_view::npos) {
      return fail(ErrorCode::kIo,
                  "cannot be unpacked: zstd packed it with a window of more than 128 MiB; pack it "
                  "again without --long, or unpack it before: zstd -d --long=31");
    }
    return broken(reason != nullptr ? reason : "unknown error");
  }

  PackedInput input_;
  Status input_failed_;
  std::unique_ptr<archive, Free> archive_;
  bool ended_ = false;
};

}  // namespace

bool is_packed(std::string_view front) noexcept {
  using namespace std::string_view_literals;
  for (const std::string_view magic : {kGzipMagic, "\xFD\x37zXZ\0"sv, "BZh"sv, "\x28\xB5\x2F\xFD"sv}) {
    if (front.starts_with(magic)) return true;
  }
  // A frame of zstd that holds no text, which pzstd puts before each that does.
  return front.size() >= 4 && (front[0] & 0xF0) == 0x50 && front.substr(1).starts_with("\x2A\x4D\x18");
}

Result<std::unique_ptr<TextSource>> open_packed(Descriptor file) {
  PackedInput input(std::move(file));
  const auto front = input.peek(kGzipMagic.size());
  if (!front) return forward_error(front);
  if (*front == kGzipMagic) return std::make_unique<GzipText>(std::move(input));
  auto packed = std::make_unique<ArchiveText>(std::move(input));
  if (Status begun = packed->open(); !begun) return forward_error(begun);
  return packed;
}

}  // namespace deltawire::linear
