// The logarithm to base 2 of a mantissa, as a polynomial: for guesses alone, as its last bits are nobody's.
#pragma once

#include <cstdint>

namespace deltawire {

// log2(kLogarithmMiddle + t) for |t| <= 1/2, from the highest power of t on; off by less than 2.5e-6 and the
// roundings. Interpolated at Chebyshev's nodes.
inline constexpr float kLogarithmMiddle = 1.5F;
inline constexpr unsigned kLogarithmTerms = 7;
inline constexpr float kLogarithm[kLogarithmTerms] = {-0.024568535F, 0.043907478F, -0.070796862F, 0.14172474F,
                                                      -0.32061303F,  0.96182084F,  0.58496249F};

// The same, to less accuracy in fewer steps where a vector looks up 16 numbers: log2(m) for 1 <= m < 2 is
// (a m + b) m + c with the numbers of the 16th in which m lies; off by less than 7e-6. Interpolated as above.
inline constexpr std::uint32_t kLogarithmPieces = 16;
inline constexpr float kLogarithmSquare[kLogarithmPieces] = {
    -0.67852557F, -0.6031723F,  -0.53970945F, -0.48576072F, -0.43951499F, -0.39957258F,
    -0.36483786F, -0.3344433F,  -0.30769482F, -0.28403166F, -0.26299697F, -0.24421535F,
    -0.22737616F, -0.21222046F, -0.19853112F, -0.18612488F};
inline constexpr float kLogarithmSlope[kLogarithmPieces] = {
    2.7987573F, 2.6387441F, 2.4960423F, 2.3679862F, 2.2524304F, 2.14763F,   2.0521498F, 1.9647989F,
    1.8845817F, 1.8106583F, 1.7423161F, 1.6789459F, 1.620024F,  1.5650978F, 1.5137744F, 1.4657104F};
inline constexpr float kLogarithmStart[kLogarithmPieces] = {
    -2.1202283F, -2.035275F,  -1.9550503F, -1.8790555F, -1.8068662F, -1.7381192F, -1.6725012F, -1.6097395F,
    -1.5495956F, -1.4918599F, -1.4363469F, -1.3828915F, -1.3313469F, -1.2815808F, -1.2334749F, -1.1869217F};

// The same for a vector that looks up 8 numbers: of the 8th in which m lies; off by less than 2.6e-5.
inline constexpr std::uint32_t kLogarithmEighths = 8;
inline constexpr float kEighthSquare[kLogarithmEighths] = {-0.63980967F, -0.5120694F,  -0.4190979F,
                                                           -0.34933081F, -0.29564136F, -0.25344309F,
                                                           -0.21967581F, -0.1922342F};
inline constexpr float kEighthSlope[kLogarithmEighths] = {2.7186027F, 2.4319084F, 2.1999519F, 2.0084147F,
                                                          1.8475736F, 1.7105943F, 1.5925312F, 1.4897181F};
inline constexpr float kEighthStart[kLogarithmEighths] = {-2.0787673F, -1.9178658F, -1.773158F,  -1.6416749F,
                                                          -1.521197F,  -1.4100214F, -1.3068125F, -1.2105033F};

}  // namespace deltawire
