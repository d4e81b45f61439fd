// How errors name files and tensors.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "deltawire/result.h"
#include "deltawire/safetensors.h"

namespace deltawire::model {

inline constexpr std::size_t kShownBytes = 200;  // of a name

// The tensor's name, short enough and safe for a message: "tensor 'layers.0.weight'".
std::string shown(std::string_view tensor_name);

// "<path>: <message>", "<path>: tensor '<name>': <message>"; the code stays.
tl::unexpected<Error> error_in(const std::string& path, Error error);
tl::unexpected<Error> error_in(const std::string& path, const ModelTensor& tensor, Error error);

}  // namespace deltawire::model
