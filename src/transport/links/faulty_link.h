// A link with one deliberate defect in what it sends; several defects are several links around each other.
#pragma once

#include <memory>

#include "deltawire/connect.h"
#include "transport/links/link.h"

namespace deltawire {

// `inner` with the defect that `fault` describes.
std::unique_ptr<Link> make_faulty_link(std::unique_ptr<Link> inner, const LinkFault& fault);

}  // namespace deltawire
