// .dw files: one tensor, encoded, with its spec, dtype and shape in words (docs/format.md, "Files").
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/export.h"
#include "deltawire/policy.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

struct DELTAWIRE_API FileHeader {
  std::string codec_spec;  // canonical
  Policy policy;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;  // row-major; the product is the element count; at most 8 dimensions
  std::uint64_t header_bytes = 0;    // where the frames begin
  std::uint64_t count() const noexcept;
};

// The whole file for `tensor`. Errors: those of make_codec and Codec::encode; kInvalidArgument when the
// shape does not match the count, or the tensor has keys: a file holds dense tensors.
DELTAWIRE_API Result<std::vector<std::byte>> encode_file(const TensorView& tensor,
                                                         std::span<const std::uint64_t> shape,
                                                         std::string_view codec_spec,
                                                         const Policy& policy = {});

// Reads the header alone; never trusts a byte. Errors: kTruncated, kCorrupt, kUnsupportedVersion, kLimit.
DELTAWIRE_API Result<FileHeader> read_file_header(Bytes file);

// Decodes the file into `out`, whose count and dtype must be the header's. Same errors, and those of
// Channel::decode.
DELTAWIRE_API Status decode_file(Bytes file, const TensorSlot& out);

}  // namespace deltawire
