// Codecs through the C interface.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "call.h"
#include "deltawire/codec.h"
#include "deltawire/deltawire.h"

using deltawire::Codec;
using deltawire::Result;
using deltawire::Status;
using deltawire::TensorSlot;
using namespace deltawire::c;  // NOLINT(google-build-using-namespace)

struct deltawire_codec {
  std::unique_ptr<const Codec> codec;
  std::string spec;
};

namespace {

using deltawire::ErrorCode;

Status check_codec(const deltawire_codec* codec) {
  return codec == nullptr ? null_argument("the codec") : Status{};
}

Result<TensorSlot> tensor_for(const deltawire_codec* codec, const deltawire_tensor* tensor) {
  if (Status status = check_codec(codec); !status) return deltawire::forward_error(status);
  return slot_of(tensor);
}

Status check_part(const deltawire_part* part) {
  if (part == nullptr) return null_argument("the part");
  if (part->reserved != 0) {
    return deltawire::fail(ErrorCode::kInvalidArgument,
                           "the part's reserved is not 0; set the whole struct to 0");
  }
  if (part->payload == nullptr && part->payload_bytes != 0) return null_argument("the part's payload");
  if (part->chunk_ends == nullptr && part->chunks != 0) return null_argument("the part's chunk_ends");
  return {};
}

Status encode(const deltawire_codec& codec, const TensorSlot& tensor, std::span<float> residual,
              std::uint64_t stream, deltawire_part& part) {
  const deltawire::TensorView view = as_view(tensor);
  std::vector<std::byte> scratch(codec.codec->sizes(view).scratch_bytes);
  const deltawire::PartBuffer out{{static_cast<std::byte*>(part.payload), part.payload_bytes},
                                  {part.chunk_ends, part.chunks}};
  const auto done =
      codec.codec->encode(view, residual, out, {.stream = stream, .scratch = scratch, .workers = nullptr});
  if (!done) return deltawire::forward_error(done);
  part.payload_bytes = done->payload_bytes;
  part.chunks = done->chunks;
  part.scalar = done->scalar;
  part.scalar2 = done->scalar2;
  return {};
}

Status decode(const deltawire_codec& codec, const deltawire_part& part, const TensorSlot& tensor, bool adds,
              float scale) {
  std::vector<std::byte> scratch(codec.codec->decode_scratch(tensor));
  const deltawire::PartView view{{static_cast<const std::byte*>(part.payload), part.payload_bytes},
                                 {part.chunk_ends, part.chunks},
                                 part.scalar,
                                 part.scalar2};
  const auto into = adds ? deltawire::Into::kAccumulate : deltawire::Into::kOverwrite;
  return codec.codec->decode(view, tensor, into, scale,
                             {.stream = 0, .scratch = scratch, .workers = nullptr});
}

}  // namespace

extern "C" {

std::int32_t deltawire_codec_open(const char* spec, deltawire_codec** codec, deltawire_error* error) {
  return call(error, [&]() -> Status {
    if (codec == nullptr) return null_argument("codec");
    *codec = nullptr;
    if (spec == nullptr) return null_argument("spec");
    auto made = deltawire::make_codec(spec);
    if (!made) return deltawire::forward_error(made);
    std::string canonical = (*made)->spec();
    *codec = new deltawire_codec{std::move(*made), std::move(canonical)};
    return {};
  });
}

void deltawire_codec_close(deltawire_codec* codec) {
  delete codec;
}

const char* deltawire_codec_spec(const deltawire_codec* codec) {
  return codec == nullptr ? nullptr : codec->spec.c_str();
}

std::int32_t deltawire_codec_bounds(const deltawire_codec* codec, const deltawire_tensor* tensor,
                                    std::uint64_t* payload_bytes, std::uint32_t* chunks,
                                    deltawire_error* error) {
  return call(error, [&]() -> Status {
    if (payload_bytes == nullptr) return null_argument("payload_bytes");
    if (chunks == nullptr) return null_argument("chunks");
    const auto slot = tensor_for(codec, tensor);
    if (!slot) return deltawire::forward_error(slot);
    const deltawire::Sizes sizes = codec->codec->sizes(as_view(*slot));
    *payload_bytes = sizes.payload_bytes;
    *chunks = sizes.chunks;
    return {};
  });
}

std::int32_t deltawire_codec_encode(const deltawire_codec* codec, const deltawire_tensor* tensor,
                                    float* residual, std::uint64_t stream, deltawire_part* part,
                                    deltawire_error* error) {
  return call(error, [&]() -> Status {
    const auto slot = tensor_for(codec, tensor);
    if (!slot) return deltawire::forward_error(slot);
    if (Status status = check_part(part); !status) return status;
    const std::uint64_t kept = residual == nullptr ? 0 : slot->count;
    return encode(*codec, *slot, {residual, kept}, stream, *part);
  });
}

std::int32_t deltawire_codec_decode(const deltawire_codec* codec, const deltawire_part* part,
                                    const deltawire_tensor* tensor, std::int32_t into, float scale,
                                    deltawire_error* error) {
  return call(error, [&]() -> Status {
    const auto slot = tensor_for(codec, tensor);
    if (!slot) return deltawire::forward_error(slot);
    if (Status status = check_part(part); !status) return status;
    const auto adds = accumulates(into);
    if (!adds) return deltawire::forward_error(adds);
    return decode(*codec, *part, *slot, *adds, scale);
  });
}

}  // extern "C"
