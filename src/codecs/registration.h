// How a codec's folder is found: src/codecs/<name>/<name>.cc defines, in namespace deltawire::<name>,
//
//   Registration registration() noexcept;
//
// and src/codecs/CMakeLists.txt makes the list of them all from the folders that are there.
#pragma once

#include <memory>

#include "codecs/spec_string.h"
#include "codecs/target_id.h"
#include "deltawire/codec.h"

namespace deltawire {

struct Registration {
  const CodecInfo* info = nullptr;  // lives as long as the program
  // `spec` names the codec, and no parameter that `info` doesn't list. Errors: kInvalidArgument for a value
  // out of range. REQUIRES: a target that runs here.
  Result<std::unique_ptr<const Codec>> (*make)(const ParsedSpec& spec, TargetId target) = nullptr;
};

}  // namespace deltawire
