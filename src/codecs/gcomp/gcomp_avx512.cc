#include "codecs/gcomp/gcomp_words_avx512.h"
// The words above are what it is made of.
#include "codecs/gcomp/gcomp_encode_avx512.h"
