// Codecs through the C interface.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "call.h"
#include "deltawire/codec.h"
#include "deltawire/deltawire.h"

using namespace deltawire;     // NOLINT(google-build-using-namespace)
using namespace deltawire::c;  // NOLINT(google-build-using-namespace)

struct deltawire_codec {
  std::unique_ptr<const Codec> codec;
  std::string spec;
};

namespace {

TensorSlot tensor_for(const deltawire_codec* codec, const deltawire_tensor* tensor) {
  require(codec, "the codec");
  return slot_of(tensor);
}

void check_part(const deltawire_part* part) {
  require(part, "the part");
  if (part->reserved != 0) refuse("the part's reserved is not 0; set the whole struct to 0");
  if (part->payload_bytes != 0) require(part->payload, "the part's payload");
  if (part->chunks != 0) require(part->chunk_ends, "the part's chunk_ends");
}

void encode(const deltawire_codec& codec, const TensorSlot& tensor, std::span<float> residual,
            std::uint64_t stream, deltawire_part& part) {
  const TensorView view = as_view(tensor);
  std::vector<std::byte> scratch(codec.codec->sizes(view).scratch_bytes);
  const PartBuffer out{{static_cast<std::byte*>(part.payload), part.payload_bytes},
                       {part.chunk_ends, part.chunks}};
  const EncodedPart done = value_of(
      codec.codec->encode(view, residual, out, {.stream = stream, .scratch = scratch, .workers = nullptr}));
  part.payload_bytes = done.payload_bytes;
  part.chunks = done.chunks;
  part.scalar = done.scalar;
  part.scalar2 = done.scalar2;
}

void decode(const deltawire_codec& codec, const deltawire_part& part, const TensorSlot& tensor, Into into,
            float scale) {
  std::vector<std::byte> scratch(codec.codec->decode_scratch(tensor));
  const PartView view{{static_cast<const std::byte*>(part.payload), part.payload_bytes},
                      {part.chunk_ends, part.chunks},
                      part.scalar,
                      part.scalar2};
  value_of(
      codec.codec->decode(view, tensor, into, scale, {.stream = 0, .scratch = scratch, .workers = nullptr}));
}

}  // namespace

extern "C" {

std::int32_t deltawire_codec_open(const char* spec, deltawire_codec** codec, deltawire_error* error) {
  return call(error, [&] {
    require(codec, "codec");
    *codec = nullptr;
    require(spec, "spec");
    auto made = value_of(make_codec(spec));
    std::string canonical = made->spec();
    *codec = new deltawire_codec{std::move(made), std::move(canonical)};
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
  return call(error, [&] {
    require(payload_bytes, "payload_bytes");
    require(chunks, "chunks");
    const TensorSlot slot = tensor_for(codec, tensor);
    const Sizes sizes = codec->codec->sizes(as_view(slot));
    *payload_bytes = sizes.payload_bytes;
    *chunks = sizes.chunks;
  });
}

std::int32_t deltawire_codec_encode(const deltawire_codec* codec, const deltawire_tensor* tensor,
                                    float* residual, std::uint64_t stream, deltawire_part* part,
                                    deltawire_error* error) {
  return call(error, [&] {
    const TensorSlot slot = tensor_for(codec, tensor);
    check_part(part);
    const std::uint64_t kept = residual == nullptr ? 0 : slot.count;
    encode(*codec, slot, {residual, kept}, stream, *part);
  });
}

std::int32_t deltawire_codec_decode(const deltawire_codec* codec, const deltawire_part* part,
                                    const deltawire_tensor* tensor, std::int32_t into, float scale,
                                    deltawire_error* error) {
  return call(error, [&] {
    const TensorSlot slot = tensor_for(codec, tensor);
    check_part(part);
    decode(*codec, *part, slot, into_of(into), scale);
  });
}

}  // extern "C"
