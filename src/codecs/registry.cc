// The codecs of deltawire, as found in their folders.
#include <algorithm>
#include <array>
#include <string>

#include "codecs/dispatch.h"
#include "codecs/found_codecs.h"
#include "codecs/unknown_codec.h"

namespace deltawire {

namespace {

const auto& codecs() noexcept {
  static const auto kCodecs = [] {
    auto found = found_codecs();
    std::ranges::sort(found, {}, [](const FoundCodec& codec) { return codec.registration.info->id; });
    return found;
  }();
  return kCodecs;
}

}  // namespace

Result<std::unique_ptr<const Codec>> make_codec(std::string_view spec, TargetId target) {
  const auto parsed = parse_spec(spec);
  if (!parsed) return forward_error(parsed);
  for (const auto& [codec, has_kernels] : codecs()) {
    if (codec.info->name != parsed->name) continue;
    if (auto ok = check_parameter_names(*parsed, codec.info->parameters); !ok) return forward_error(ok);
    return codec.make(*parsed, target);
  }
  return unknown_codec(parsed->name, registered_codecs());
}

bool has_kernels(const CodecInfo& info, TargetId target) noexcept {
  return std::ranges::any_of(codecs(), [&](const FoundCodec& codec) {
    return codec.registration.info->id == info.id && codec.has_kernels[static_cast<std::size_t>(target)];
  });
}

std::span<const CodecInfo* const> registered_codecs() noexcept {
  static const auto kInfos = [] {
    std::array<const CodecInfo*, std::tuple_size_v<decltype(found_codecs())>> infos{};
    std::ranges::transform(codecs(), infos.begin(),
                           [](const FoundCodec& codec) { return codec.registration.info; });
    return infos;
  }();
  return kInfos;
}

}  // namespace deltawire
