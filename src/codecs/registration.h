// What a codec's folder gives the registry: src/codecs/<name>/<name>.cc defines, in namespace
// deltawire::<name>,
//
//   extern constinit const Registration kRegistration = {&kInfo, make};
//
// and registry.cc has a row for it.
#pragma once

#include <memory>

#include "codecs/kernel_table.h"
#include "codecs/spec_string.h"
#include "codecs/target_id.h"
#include "deltawire/codec.h"

namespace deltawire {

struct Registration {
  const CodecInfo* info = nullptr;  // lives as long as the program
  // `spec` names the codec, and no parameter that `info` doesn't list. Errors: kInvalidArgument for a value
  // out of range. REQUIRES: a target that runs here.
  Result<std::unique_ptr<const Codec>> (*make)(const ParsedSpec& spec, TargetId target) = nullptr;
  // Whether it has kernels for a target, its own or those that it shares with others; null: none at all.
  bool (*has_kernels)(TargetId target) noexcept = nullptr;
};

}  // namespace deltawire
