// zstd and zlib: the values' bytes, compressed by these libraries. spec.md in the codecs' folders define the
// bytes.
#define ZSTD_STATIC_LINKING_ONLY  // compressing in memory of the caller's, and how much that takes
#define ZLIB_CONST                // z_stream::next_in points to const
#include <algorithm>

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/checked.h"
#include "codecs/planes/plane_codec.h"
#include "codecs/registration.h"

namespace deltawire::planes {

namespace {

constexpr CodecInfo info_of(const CodecInfo& own) noexcept {
  CodecInfo info = own;
  info.lossless = true;
  info.bytes_follow_library = true;
  info.chunk_elements = kChunkElements;
  info.separate_chunks = true;
  return info;
}

template <const Compressor& kCompressor>
Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId) {
  return make_plane_codec(kCompressor, spec);
}

}  // namespace
}  // namespace deltawire::planes

namespace deltawire::zstd {

namespace {

namespace faults = planes::faults;

// What compressing a chunk of any size takes: the library has other settings for small ones.
std::uint64_t compress_scratch(int level) noexcept {
  std::size_t most = 0;
  for (const std::uint64_t bytes :
       {std::uint64_t{1} << 14, std::uint64_t{1} << 17, planes::kChunkValueBytes}) {
    most = std::max(most, ZSTD_estimateCCtxSize_usingCParams(ZSTD_getCParams(level, bytes, 0)));
  }
  return most;
}

std::uint64_t decompress_scratch() noexcept {
  return ZSTD_estimateDCtxSize();
}

// A context in static memory begins with zeros, not with the defaults: its frames wouldn't say their size.
bool set_up(ZSTD_CCtx* context, int level) noexcept {
  return ZSTD_isError(ZSTD_CCtx_reset(context, ZSTD_reset_session_and_parameters)) == 0 &&
         ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, level)) == 0;
}

std::uint64_t compress(int level, Bytes in, MutBytes out, MutBytes scratch) noexcept {
  ZSTD_CCtx* const context = ZSTD_initStaticCCtx(scratch.data(), scratch.size());
  if (context == nullptr || !set_up(context, level)) return 0;
  const std::size_t bytes = ZSTD_compress2(context, out.data(), out.size(), in.data(), in.size());
  return ZSTD_isError(bytes) != 0 ? 0 : bytes;
}

// One frame, all of `in`, which says that it holds `bytes`.
Fault check_frame(Bytes in, std::uint64_t bytes) noexcept {
  ZSTD_frameHeader header{};
  const std::size_t missing = ZSTD_getFrameHeader(&header, in.data(), in.size());
  if (ZSTD_isError(missing) != 0) return &faults::kHeader;
  if (missing > 0) return &faults::kTruncated;
  if (header.frameType != ZSTD_frame || header.dictID != 0 || header.checksumFlag != 0 ||
      header.windowSize > planes::kChunkValueBytes) {
    return &faults::kHeader;
  }
  if (header.frameContentSize != bytes) return &faults::kSize;
  const std::size_t length = ZSTD_findFrameCompressedSize(in.data(), in.size());
  if (ZSTD_isError(length) != 0) {
    return ZSTD_getErrorCode(length) == ZSTD_error_srcSize_wrong ? &faults::kTruncated : &faults::kStream;
  }
  return length < in.size() ? &faults::kTrailing : nullptr;
}

Fault decompress(Bytes in, MutBytes out, MutBytes scratch) noexcept {
  if (const Fault fault = check_frame(in, out.size()); fault != nullptr) return fault;
  ZSTD_DCtx* const context = ZSTD_initStaticDCtx(scratch.data(), scratch.size());
  if (context == nullptr) return &faults::kStream;
  const std::size_t bytes = ZSTD_decompressDCtx(context, out.data(), out.size(), in.data(), in.size());
  return bytes == out.size() ? nullptr : &faults::kStream;
}

constexpr ParameterInfo kParameters[] = {{"level", "1 to 19", "3", "zstd's compression level"},
                                         planes::kPlanesParameter};
constexpr std::string_view kExamples[] = {"zstd:planes=off"};
constexpr std::string_view kLevels[] = {"1",  "2",  "3",  "4",  "5",  "6",  "7",  "8",  "9", "10",
                                        "11", "12", "13", "14", "15", "16", "17", "18", "19"};
constexpr planes::Compressor kCompressor = {
    .info = planes::info_of({.id = 21,
                             .name = "zstd",
                             .summary = "bytes in planes, compressed by zstd: lossless",
                             .source = "RFC 8878 (Zstandard)",
                             .parameters = kParameters,
                             .examples = kExamples,
                             .default_pattern = "direct"}),
    .levels = kLevels,
    .default_level = 3,
    .compress_scratch = compress_scratch,
    .decompress_scratch = decompress_scratch,
    .compress = compress,
    .decompress = decompress};

}  // namespace

extern constinit const Registration kRegistration = {&kCompressor.info, planes::make<kCompressor>};

}  // namespace deltawire::zstd

namespace deltawire::zlib {

namespace {

namespace faults = planes::faults;

// What zlib 1.2 allocates is some 270 and 40 KB; other implementations of it take more. Where this doesn't
// suffice to compress, a chunk is stored.
std::uint64_t compress_scratch(int) noexcept {
  return std::uint64_t{512} << 10;
}

std::uint64_t decompress_scratch() noexcept {
  return std::uint64_t{128} << 10;
}

// Scratch from which zlib allocates; what it frees comes back with all of it.
struct Arena {
  MutBytes rest;

  static voidpf allocate(voidpf opaque, uInt items, uInt size) noexcept {
    auto& rest = static_cast<Arena*>(opaque)->rest;
    const std::uint64_t bytes = ceil_div(std::uint64_t{items} * size, kScratchAlignment) * kScratchAlignment;
    if (bytes > rest.size()) return Z_NULL;
    void* const found = rest.data();
    rest = rest.subspan(bytes);
    return found;
  }
  static void free(voidpf, voidpf) noexcept {}
};

z_stream stream_between(Bytes in, MutBytes out, Arena& arena) noexcept {
  z_stream stream{};
  stream.zalloc = Arena::allocate;
  stream.zfree = Arena::free;
  stream.opaque = &arena;
  stream.next_in = reinterpret_cast<const Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  return stream;
}

std::uint64_t compress(int level, Bytes in, MutBytes out, MutBytes scratch) noexcept {
  Arena arena{scratch};
  z_stream stream = stream_between(in, out, arena);
  if (deflateInit(&stream, level) != Z_OK) return 0;
  const int ended = deflate(&stream, Z_FINISH);
  deflateEnd(&stream);
  return ended == Z_STREAM_END ? out.size() - stream.avail_out : 0;
}

Fault decompress(Bytes in, MutBytes out, MutBytes scratch) noexcept {
  Arena arena{scratch};
  z_stream stream = stream_between(in, out, arena);
  if (inflateInit(&stream) != Z_OK) return &faults::kStream;
  const int ended = inflate(&stream, Z_FINISH);
  inflateEnd(&stream);
  if (ended == Z_STREAM_END) {
    if (stream.avail_out > 0) return &faults::kSize;
    return stream.avail_in > 0 ? &faults::kTrailing : nullptr;
  }
  if (ended != Z_BUF_ERROR) return &faults::kStream;
  return stream.avail_in == 0 ? &faults::kTruncated : &faults::kSize;
}

constexpr ParameterInfo kParameters[] = {{"level", "1 to 9", "6", "zlib's compression level"},
                                         planes::kPlanesParameter};
constexpr std::string_view kExamples[] = {"zlib:planes=off"};
constexpr std::string_view kLevels[] = {"1", "2", "3", "4", "5", "6", "7", "8", "9"};
constexpr planes::Compressor kCompressor = {
    .info = planes::info_of({.id = 22,
                             .name = "zlib",
                             .summary = "bytes in planes, compressed by zlib: lossless",
                             .source = "RFC 1950 (zlib), RFC 1951 (DEFLATE)",
                             .parameters = kParameters,
                             .examples = kExamples,
                             .default_pattern = "direct"}),
    .levels = kLevels,
    .default_level = 6,
    .compress_scratch = compress_scratch,
    .decompress_scratch = decompress_scratch,
    .compress = compress,
    .decompress = decompress};

}  // namespace

extern constinit const Registration kRegistration = {&kCompressor.info, planes::make<kCompressor>};

}  // namespace deltawire::zlib
