#include "codecs/gcomp/gcomp_lanes_avx512vbmi.h"
// The lanes above are what it is made of.
#include "codecs/gcomp/gcomp_decode_avx512.h"
