// The codecs of deltawire: a row for each.
#include <algorithm>
#include <array>
#include <string>

#include "codecs/dispatch.h"
#include "codecs/registration.h"
#include "codecs/unknown_codec.h"

// In the order of the ids; each by the namespace of its folder.
#define DELTAWIRE_CODECS(ROW) \
  ROW(fp32)                   \
  ROW(bf16)                   \
  ROW(threelc)                \
  ROW(sbc)                    \
  ROW(gcomp)                  \
  ROW(fastsgd)                \
  ROW(int8)                   \
  ROW(randomk)                \
  ROW(onebit)                 \
  ROW(terngrad)               \
  ROW(qsgd)                   \
  ROW(natural)                \
  ROW(signsgd)                \
  ROW(topk)                   \
  ROW(threshold)              \
  ROW(dropping)               \
  ROW(fp16)                   \
  ROW(fp8)                    \
  ROW(blockint)               \
  ROW(truncate)               \
  ROW(zstd)                   \
  ROW(zlib)                   \
  ROW(logquant)               \
  ROW(sketchml)               \
  ROW(twobit)                 \
  ROW(fp4)

namespace deltawire {

#define DELTAWIRE_DECLARE(folder)       \
  namespace folder {                    \
  Registration registration() noexcept; \
  }
DELTAWIRE_CODECS(DELTAWIRE_DECLARE)
#undef DELTAWIRE_DECLARE

namespace {

const auto& codecs() noexcept {
#define DELTAWIRE_CALL(folder) folder::registration(),
  static const std::array kCodecs = {DELTAWIRE_CODECS(DELTAWIRE_CALL)};
#undef DELTAWIRE_CALL
  return kCodecs;
}

}  // namespace

Result<std::unique_ptr<const Codec>> make_codec(std::string_view spec, TargetId target) {
  const auto parsed = parse_spec(spec);
  if (!parsed) return forward_error(parsed);
  for (const Registration& codec : codecs()) {
    if (codec.info->name != parsed->name) continue;
    if (auto ok = check_parameter_names(*parsed, codec.info->parameters); !ok) return forward_error(ok);
    return codec.make(*parsed, target);
  }
  return unknown_codec(parsed->name, registered_codecs());
}

bool has_kernels(const CodecInfo& info, TargetId target) noexcept {
  return std::ranges::any_of(codecs(), [&](const Registration& codec) {
    return codec.info->id == info.id && codec.has_kernels != nullptr && codec.has_kernels(target);
  });
}

std::span<const CodecInfo* const> registered_codecs() noexcept {
  static const auto kInfos = [] {
    std::array<const CodecInfo*, std::tuple_size_v<std::remove_cvref_t<decltype(codecs())>>> infos{};
    std::ranges::transform(codecs(), infos.begin(), &Registration::info);
    return infos;
  }();
  return kInfos;
}

}  // namespace deltawire
