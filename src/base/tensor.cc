#include "deltawire/tensor.h"

namespace deltawire {

std::string_view dtype_name(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF32: return "float32";
    case DType::kBF16: return "bfloat16";
    case DType::kF16: return "float16";
  }
  return "unknown";
}

std::uint64_t dtype_bytes(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF32: return 4;
    case DType::kBF16:
    case DType::kF16: return 2;
  }
  return 0;
}

}  // namespace deltawire
