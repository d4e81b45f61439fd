// Patches: the changes between two versions of a tensor of weights, without loss, in a small fraction of the
// tensor's bytes. A step of fine-tuning leaves most 16-bit weights as they are; the new version follows from
// the old one and a patch. src/patch/spec.md describes the bytes.
//
// Weights are the tensor's bytes, elements in row-major order, little-endian. A patch knows their bits, not
// their values: NaN payloads and the signs of zeros are kept.
//
// Thread rule: any thread may call; no call keeps state. `workers` may be null; no byte depends on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "deltawire/export.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "deltawire/workers.h"

namespace deltawire {

// What the bits of a weight mean; the numbers are in patches and pinned. Integers have either sign. An
// element of 8 bytes is two of kInt32, a boolean is kInt8.
enum class WeightType : std::uint8_t {
  kFloat32 = 1,
  kBFloat16 = 2,
  kFloat16 = 3,
  kFloat8E4M3 = 4,
  kFloat8E5M2 = 5,
  kInt8 = 6,
  kInt16 = 7,
  kInt32 = 8,
};

// "float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2", "int8", "int16", "int32"; "unknown" for a
// number outside the enum.
DELTAWIRE_API std::string_view weight_type_name(WeightType type) noexcept;

// Bytes of one element; 0 for a number outside the enum.
DELTAWIRE_API std::uint64_t weight_bytes(WeightType type) noexcept;

// A longer tensor has to be cut by the caller (kLimit).
inline constexpr std::uint64_t kPatchMaxElements = std::uint64_t{1} << 40;

// What a patch says about itself.
struct PatchInfo {
  WeightType type = WeightType::kFloat32;
  std::uint64_t elements = 0;        // of the tensor
  std::uint64_t chunk_elements = 0;  // in every chunk but the last
  std::uint64_t chunks = 0;
  std::uint64_t changed_chunks = 0;
  std::uint64_t full_chunks = 0;  // changed ones that hold their new weights as they are
  std::uint64_t changes = 0;      // elements that change, full chunks not counted
  std::uint64_t old_digest = 0;   // weights_digest() of the tensor that the patch was made from
  std::uint64_t new_digest = 0;   // and of the one that it makes
};

// The digest by which patches recognize their tensor. Errors: kInvalidArgument for an unknown type or bytes
// that are not whole elements, kNoMemory.
DELTAWIRE_API Result<std::uint64_t> weights_digest(Bytes weights, WeightType type,
                                                   Workers* workers = nullptr);

// The patch that turns old_weights into new_weights. Errors: kInvalidArgument for an unknown type, different
// lengths, or bytes that are not whole elements; kLimit, kNoMemory.
DELTAWIRE_API Result<std::vector<std::byte>> make_patch(Bytes old_weights, Bytes new_weights, WeightType type,
                                                        Workers* workers = nullptr);

// Writes the new weights to `out`, which has old_weights' length and is either the same memory or overlaps
// none of it. In place, the whole patch is checked before the first write, so that on an error the weights
// are as they were; until then up to 32 MB hold the decoded changes. Elsewhere an error leaves the content of
// `out` unspecified.
//
// Errors: kInvalidArgument for an unknown type or an `out` of another length or with partial overlap;
// kTruncated, kCorrupt, kUnsupportedVersion or kLimit for bytes that are no patch; kMismatch if the patch is
// for another type or number of elements, or was not made from these weights; kNoMemory.
DELTAWIRE_API Status apply_patch(Bytes patch, Bytes old_weights, WeightType type, MutBytes out,
                                 Workers* workers = nullptr);

// All checks of apply_patch(), the new weights' digest included; nothing is written.
DELTAWIRE_API Status verify_patch(Bytes patch, Bytes old_weights, WeightType type,
                                  Workers* workers = nullptr);

// Reads a patch without the weights. Errors: kTruncated, kCorrupt, kUnsupportedVersion, kLimit. Allocates
// nothing on success. What only the old weights can tell (whether a chunk's positions exist) is not checked.
DELTAWIRE_API Result<PatchInfo> inspect_patch(Bytes patch);

}  // namespace deltawire
