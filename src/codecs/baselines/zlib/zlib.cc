// zlib: the values' bytes, compressed by zlib. spec.md in this folder defines the bytes.
#define ZLIB_CONST  // z_stream::next_in points to const
#include <zlib.h>

#include "base/checked.h"
#include "codecs/planes/plane_codec.h"
#include "codecs/registration.h"

namespace deltawire::zlib {

namespace {

using planes::PlaneCodec;
using planes::PlaneParameters;

constexpr std::string_view kLevels[] = {"1", "2", "3", "4", "5", "6", "7", "8", "9"};
constexpr int kDefaultLevel = 6;

constexpr ParameterInfo kParameters[] = {
    {"level", "1 to 9", "6", "zlib's compression level"},
    planes::kPlanesParameter,
};

constexpr std::string_view kExamples[] = {"zlib:planes=off"};

constexpr CodecInfo kInfo = {
    .id = 22,
    .name = "zlib",
    .summary = "bytes in planes, compressed by zlib: lossless",
    .source = "RFC 1950 (zlib), RFC 1951 (DEFLATE)",
    .parameters = kParameters,
    .examples = kExamples,
    .default_pattern = "direct",
    .lossless = true,
    .bytes_follow_library = true,
    .chunk_elements = PlaneCodec::kChunkElements,
};

// What zlib 1.2 allocates is some 270 and 40 KB; other implementations of it take more. Where this doesn't
// suffice to compress, a chunk is stored.
constexpr std::uint64_t kCompressRoom = std::uint64_t{512} << 10;
constexpr std::uint64_t kDecompressRoom = std::uint64_t{128} << 10;

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

class Zlib final : public PlaneCodec {
 public:
  Zlib(const PlaneParameters& parameters, const planes::Kernels& kernels) noexcept
      : PlaneCodec(kInfo, parameters, kernels) {}

 private:
  std::uint64_t compress_scratch() const noexcept override { return kCompressRoom; }
  std::uint64_t decompress_scratch() const noexcept override { return kDecompressRoom; }

  std::uint64_t compress(Bytes in, MutBytes out, MutBytes scratch) const noexcept override {
    Arena arena{scratch};
    z_stream stream = stream_between(in, out, arena);
    if (deflateInit(&stream, level()) != Z_OK) return 0;
    const int ended = deflate(&stream, Z_FINISH);
    deflateEnd(&stream);
    return ended == Z_STREAM_END ? out.size() - stream.avail_out : 0;
  }

  Fault decompress(Bytes in, MutBytes out, MutBytes scratch) const noexcept override {
    Arena arena{scratch};
    z_stream stream = stream_between(in, out, arena);
    if (inflateInit(&stream) != Z_OK) return Fault::kStream;
    const int ended = inflate(&stream, Z_FINISH);
    inflateEnd(&stream);
    if (ended == Z_STREAM_END) {
      if (stream.avail_out > 0) return Fault::kSize;
      return stream.avail_in > 0 ? Fault::kTrailing : Fault::kNone;
    }
    if (ended != Z_BUF_ERROR) return Fault::kStream;
    return stream.avail_in == 0 ? Fault::kTruncated : Fault::kSize;
  }
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  const auto parameters = planes::plane_parameters(spec, kLevels, kDefaultLevel);
  if (!parameters) return forward_error(parameters);
  return std::make_unique<const Zlib>(*parameters, planes::kernels_for(target));
}

}  // namespace

Registration registration() noexcept {
  return {&kInfo, make, own_kernels<planes::kernels_for>};
}

}  // namespace deltawire::zlib
