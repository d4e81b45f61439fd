#include "linear/owner_spec.h"

#include "deltawire/channel.h"

namespace deltawire::linear {
namespace {

constexpr std::string_view kBegin = "owners(";
constexpr std::string_view kBack = " back ";

Result<std::string> canonical(std::string_view codec, bool CodecInfo::* refused, const char* why) {
  const auto channel = make_channel(codec);
  if (!channel) return forward_error(channel);
  if ((*channel)->any(refused)) {
    return fail(ErrorCode::kInvalidArgument, "codec " + (*channel)->spec() + " " + why);
  }
  return (*channel)->spec();
}

}  // namespace

std::string OwnerSpec::text() const {
  return std::string(kBegin) + gradients + std::string(kBack) + weights + ")";
}

bool names_owners(std::string_view spec) noexcept {
  return spec.starts_with(kBegin) && spec.ends_with(")");
}

Result<OwnerSpec> parse_owner_spec(std::string_view spec) {
  spec.remove_prefix(kBegin.size());
  spec.remove_suffix(1);
  const std::size_t back = spec.find(kBack);
  auto gradients = canonical(
      spec.substr(0, back), &CodecInfo::error_feedback,
      "keeps for later what it leaves out, and an owner is sent other keys in each step; take fastsgd, "
      "logquant, sketchml, bf16 or fp32 with --exchange owners");
  if (!gradients) return forward_error(gradients);
  OwnerSpec parsed{.gradients = *std::move(gradients)};
  if (back == std::string_view::npos) return parsed;
  auto weights = canonical(spec.substr(back + kBack.size()), &CodecInfo::sparse,
                           "leaves weights out; take fp32, zstd, bf16 or fp16 for them");
  if (!weights) return forward_error(weights);
  parsed.weights = *std::move(weights);
  return parsed;
}

}  // namespace deltawire::linear
