// The floating-point mode of codec arithmetic is base's, because the optimizers need it too.
#pragma once

#include "base/float_environment.h"  // IWYU pragma: export
