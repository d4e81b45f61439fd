// What sessions and elastic sessions share in the C interface.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "deltawire/connect.h"
#include "deltawire/deltawire.h"
#include "deltawire/reducer.h"
#include "deltawire/result.h"

struct deltawire_listener {
  std::unique_ptr<deltawire::Listener> listener;  // null once a session has it
  std::string endpoint;
};

namespace deltawire::c {

// kState where another session has it.
Result<std::unique_ptr<Listener>> consume(deltawire_listener& given);

// kInvalidArgument for what is no loss scale.
Status check_scale(float scale, std::string_view whose);

deltawire_report report_of(const Report& report);

}  // namespace deltawire::c
