// zstd: the values' bytes, compressed by libzstd. spec.md in this folder defines the bytes.
#define ZSTD_STATIC_LINKING_ONLY  // compressing in memory of the caller's, and how much that takes
#include <algorithm>

#include <zstd.h>
#include <zstd_errors.h>

#include "codecs/planes/plane_codec.h"
#include "codecs/registration.h"

namespace deltawire::zstd {

namespace {

using planes::PlaneCodec;
using planes::PlaneParameters;

constexpr std::string_view kLevels[] = {"1",  "2",  "3",  "4",  "5",  "6",  "7",  "8",  "9", "10",
                                        "11", "12", "13", "14", "15", "16", "17", "18", "19"};
constexpr int kDefaultLevel = 3;

constexpr ParameterInfo kParameters[] = {
    {"level", "1 to 19", "3", "zstd's compression level"},
    planes::kPlanesParameter,
};

constexpr std::string_view kExamples[] = {"zstd:planes=off"};

constexpr CodecInfo kInfo = {
    .id = 21,
    .name = "zstd",
    .summary = "bytes in planes, compressed by zstd: lossless",
    .source = "RFC 8878 (Zstandard)",
    .parameters = kParameters,
    .examples = kExamples,
    .default_pattern = "direct",
    .lossless = true,
    .bytes_follow_library = true,
    .chunk_elements = PlaneCodec::kChunkElements,
};

// What compressing a chunk of any size takes: the library has other settings for small ones.
std::uint64_t workspace_of(int level) noexcept {
  std::size_t most = 0;
  for (const std::uint64_t bytes :
       {std::uint64_t{1} << 14, std::uint64_t{1} << 17, PlaneCodec::kChunkValueBytes}) {
    most = std::max(most, ZSTD_estimateCCtxSize_usingCParams(ZSTD_getCParams(level, bytes, 0)));
  }
  return most;
}

class Zstd final : public PlaneCodec {
 public:
  Zstd(const PlaneParameters& parameters, const planes::Kernels& kernels) noexcept
      : PlaneCodec(kInfo, parameters, kernels), workspace_(workspace_of(parameters.level)) {}

 private:
  std::uint64_t compress_scratch() const noexcept override { return workspace_; }
  std::uint64_t decompress_scratch() const noexcept override { return ZSTD_estimateDCtxSize(); }

  std::uint64_t compress(Bytes in, MutBytes out, MutBytes scratch) const noexcept override {
    ZSTD_CCtx* const context = ZSTD_initStaticCCtx(scratch.data(), scratch.size());
    if (context == nullptr || !set_up(context)) return 0;
    const std::size_t bytes = ZSTD_compress2(context, out.data(), out.size(), in.data(), in.size());
    return ZSTD_isError(bytes) != 0 ? 0 : bytes;
  }

  // A context in static memory begins with zeros, not with the defaults: its frames wouldn't say their size.
  bool set_up(ZSTD_CCtx* context) const noexcept {
    return ZSTD_isError(ZSTD_CCtx_reset(context, ZSTD_reset_session_and_parameters)) == 0 &&
           ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, level())) == 0;
  }

  Fault decompress(Bytes in, MutBytes out, MutBytes scratch) const noexcept override {
    if (const Fault fault = check_frame(in, out.size()); fault != Fault::kNone) return fault;
    ZSTD_DCtx* const context = ZSTD_initStaticDCtx(scratch.data(), scratch.size());
    if (context == nullptr) return Fault::kStream;
    const std::size_t bytes = ZSTD_decompressDCtx(context, out.data(), out.size(), in.data(), in.size());
    return bytes == out.size() ? Fault::kNone : Fault::kStream;
  }

  // One frame, all of `in`, which says that it holds `bytes`.
  static Fault check_frame(Bytes in, std::uint64_t bytes) noexcept {
    ZSTD_frameHeader header{};
    const std::size_t missing = ZSTD_getFrameHeader(&header, in.data(), in.size());
    if (ZSTD_isError(missing) != 0) return Fault::kHeader;
    if (missing > 0) return Fault::kTruncated;
    if (header.frameType != ZSTD_frame || header.dictID != 0 || header.checksumFlag != 0 ||
        header.windowSize > kChunkValueBytes) {
      return Fault::kHeader;
    }
    if (header.frameContentSize != bytes) return Fault::kSize;
    const std::size_t length = ZSTD_findFrameCompressedSize(in.data(), in.size());
    if (ZSTD_isError(length) != 0) {
      return ZSTD_getErrorCode(length) == ZSTD_error_srcSize_wrong ? Fault::kTruncated : Fault::kStream;
    }
    return length < in.size() ? Fault::kTrailing : Fault::kNone;
  }

  std::uint64_t workspace_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  const auto parameters = planes::plane_parameters(spec, kLevels, kDefaultLevel);
  if (!parameters) return forward_error(parameters);
  return std::make_unique<const Zstd>(*parameters, planes::kernels_for(target));
}

}  // namespace

Registration registration() noexcept {
  return {&kInfo, make, own_kernels<planes::kernels_for>};
}

}  // namespace deltawire::zstd
