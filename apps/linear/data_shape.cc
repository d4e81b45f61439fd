#include "linear/data_shape.h"

#include <algorithm>
#include <array>

namespace deltawire::linear {
namespace {

constexpr std::array kClickFields{Field{"display URL", 26'273},
                                  Field{"ad", 641'707},
                                  Field{"advertiser", 14'847},
                                  Field{"depth and position", 6},
                                  Field{"query", 24'122'076},
                                  Field{"keyword", 1'188'089},
                                  Field{"title", 3'735'796},
                                  Field{"description", 2'934'101},
                                  Field{"user", 22'023'547},
                                  Field{"gender", 3},
                                  Field{"age", 7}};

constexpr std::array kShapes{
    DataShape{"url", 2'396'130, 3'231'961, 115.63, 0.15, true, false, 0.33, {}},
    DataShape{"kdd10", 19'264'097, 29'890'095, 29.40, 0.3, true, false, 0.86, {}},
    DataShape{"kdd12", 149'639'105, 54'686'452, 11, 0, false, false, 0.045, kClickFields},
    DataShape{"webspam", 350'000, 16'609'143, 3727.7, 0.8, false, true, 0.61, {}},
};

}  // namespace

std::optional<DataShape> find_shape(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(kShapes, name, &DataShape::name);
  if (found == kShapes.end()) return std::nullopt;
  return *found;
}

std::span<const DataShape> all_shapes() noexcept {
  return kShapes;
}

}  // namespace deltawire::linear
