#include "codecs/zstd/zstd_ops.h"

namespace deltawire::zstd::DELTAWIRE_TARGET {

namespace {

void split(const Addends& x, bool planes, std::byte* bytes) {
  split_planes(x, planes, bytes);
}

void join_overwrite(const std::byte* bytes, std::uint64_t count, bool planes, float scale, float* slot) {
  join_planes(bytes, count, planes, scale, slot);
}

void join_accumulate(const std::byte* bytes, std::uint64_t count, bool planes, float scale, float* slot) {
  add_planes(bytes, count, planes, scale, slot);
}

}  // namespace

extern constexpr Kernels kKernels = {split, join_overwrite, join_accumulate};

}  // namespace deltawire::zstd::DELTAWIRE_TARGET
