// Which kernels codecs run: decided once for a process, or by a test that asks for some.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "codecs/target_id.h"
#include "deltawire/codec.h"

namespace deltawire {

// The target of the name `forced`; "": the last of `targets` that runs here. The first one does.
// Errors: kInvalidArgument if no target has the name, or this CPU lacks its instructions.
Result<TargetId> choose_target(std::string_view forced, std::span<const KernelTarget> targets);

// Whether a codec has kernels of its own for `target`; else it runs those of the target before.
bool has_kernels(const CodecInfo& info, TargetId target) noexcept;

// make_codec, with the kernels of `target`. REQUIRES: one of kernel_targets() that runs here.
Result<std::unique_ptr<const Codec>> make_codec(std::string_view spec, TargetId target);

}  // namespace deltawire
