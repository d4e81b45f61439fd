#include "model/messages.h"

#include <utility>

namespace deltawire::model {

std::string shown(std::string_view tensor_name) {
  return "tensor '" + printable_line(tensor_name, kShownBytes) + "'";
}

tl::unexpected<Error> error_in(const std::string& path, Error error) {
  error.message = printable_line(path) + ": " + error.message;
  return tl::unexpected<Error>(std::move(error));
}

tl::unexpected<Error> error_in(const std::string& path, const ModelTensor& tensor, Error error) {
  error.message = shown(tensor.name) + ": " + error.message;
  return error_in(path, std::move(error));
}

}  // namespace deltawire::model
