// The codecs of deltawire: one row each. docs/adding-a-codec.md lists what else a new one needs.
#include <algorithm>
#include <array>
#include <string>

#include "codecs/bf16/bf16.h"
#include "codecs/fastsgd/fastsgd.h"
#include "codecs/fp32/fp32.h"
#include "codecs/gcomp/gcomp.h"
#include "codecs/int8/int8.h"
#include "codecs/randomk/randomk.h"
#include "codecs/sbc/sbc.h"
#include "codecs/spec_string.h"
#include "codecs/threelc/threelc.h"
#include "deltawire/codec.h"

namespace deltawire {

namespace {

struct CodecRow {
  const CodecInfo* info;
  Result<std::unique_ptr<const Codec>> (*make)(const ParsedSpec& spec);
};

// In the order of the ids, a row each.
// clang-format off
constexpr std::array kCodecs = {
    CodecRow{&kFp32Info, make_fp32}, CodecRow{&kBf16Info, make_bf16},   CodecRow{&kThreelcInfo, make_threelc},
    CodecRow{&kSbcInfo, make_sbc},   CodecRow{&kGcompInfo, make_gcomp}, CodecRow{&kFastsgdInfo, make_fastsgd},
    CodecRow{&kInt8Info, make_int8}, CodecRow{&kRandomkInfo, make_randomk},
};
// clang-format on

constexpr auto kInfos = [] {
  std::array<const CodecInfo*, kCodecs.size()> infos{};
  for (std::size_t i = 0; i < kCodecs.size(); ++i) infos[i] = kCodecs[i].info;
  return infos;
}();

}  // namespace

Result<std::unique_ptr<const Codec>> make_codec(std::string_view spec) {
  const auto parsed = parse_spec(spec);
  if (!parsed) return forward_error(parsed);
  const auto row = std::find_if(kCodecs.begin(), kCodecs.end(),
                                [&](const CodecRow& codec) { return codec.info->name == parsed->name; });
  if (row == kCodecs.end()) {
    std::string known;
    for (const CodecInfo* info : kInfos) known += (known.empty() ? "" : ", ") + std::string(info->name);
    return fail(ErrorCode::kUnknownCodec,
                "no codec is named \"" + std::string(parsed->name) + "\": give one of " + known);
  }
  if (auto ok = check_parameter_names(*parsed, *row->info); !ok) return forward_error(ok);
  return row->make(*parsed);
}

std::span<const CodecInfo* const> registered_codecs() noexcept {
  return kInfos;
}

}  // namespace deltawire
