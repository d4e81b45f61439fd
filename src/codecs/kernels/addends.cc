#include "codecs/kernels/addends.h"

#include "codecs/kernel_table.h"

namespace deltawire::addends {

DELTAWIRE_KERNELS(reference, avx2, neon)

}  // namespace deltawire::addends
