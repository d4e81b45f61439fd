// Places of digits that aren't 0: with the bit instructions of BMI, that is fast enough word by word.
#include <cstddef>
#include <cstdint>

#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_rice_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

void find_places(const DigitMaps& maps, std::uint32_t begin, std::uint32_t end, Places& places) {
  find_few_places(maps, begin, end, places);
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
