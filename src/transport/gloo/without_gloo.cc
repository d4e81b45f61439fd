// Replaces connect_gloo.cc in a build without Gloo.
#include "deltawire/connect_gloo.h"

namespace deltawire {

bool has_gloo() noexcept {
  return false;
}

Result<std::unique_ptr<Transport>> connect_gloo(const GlooOptions&) {
  return fail(ErrorCode::kInvalidArgument,
              "connect_gloo: this deltawire was built without Gloo; install it (Debian: libgloo-dev) and "
              "configure with -DDELTAWIRE_GLOO=ON, or use connect_tcp");
}

}  // namespace deltawire
