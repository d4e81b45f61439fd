// Codec::decode and describe on hostile payloads: behind the checksums, where only the codec stands.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/little_endian.h"
#include "deltawire/codec.h"
#include "fuzz_inputs.h"

namespace deltawire {
namespace {

constexpr std::size_t kMaxCount = 1000;

struct Tried {
  std::unique_ptr<const Codec> codec;
  bool has_accepted = false;
  bool has_accepted_long = false;
};

std::vector<Tried>& codecs() {
  static std::vector<Tried> codecs = [] {
    std::vector<Tried> all;
    for (const std::string& spec : fuzz::codec_specs()) {
      auto made = make_codec(spec);
      if (!made) std::abort();
      all.push_back({.codec = std::move(*made)});
    }
    return all;
  }();
  return codecs;
}

// An input's bytes for a codec.
struct Coded {
  Bytes payload = {};
  std::vector<std::uint32_t> ends = {};
  std::uint64_t count = 0;
  std::uint32_t scalar = 0;
  std::uint32_t scalar2 = 0;
};

// Whether it was accepted.
bool decode_by(const Codec& codec, const Coded& coded) {
  // Of the scalars those that it has: others are refused before it sees a byte.
  const int scalars = codec.info().scalars;
  const std::uint64_t count = coded.count;
  const PartView part{coded.payload, coded.ends, scalars >= 1 ? coded.scalar : 0,
                      scalars >= 2 ? coded.scalar2 : 0};
  // Exactly as large as promised: the sanitizer sees a write past the end.
  std::vector<float> out(count, 1.0F);
  const TensorSlot slot{out.data(), count, DType::kF32};
  std::vector<std::byte> scratch(codec.decode_scratch(slot));
  const Status plain = codec.decode(part, slot, Into::kOverwrite, 1.0F, {.scratch = scratch});
  const Status added = codec.decode(part, slot, Into::kAccumulate, 0.5F, {.scratch = scratch});
  if (plain.has_value() != added.has_value()) std::abort();
  if (codec.info().key_value) {
    std::vector<std::uint32_t> keys(count);
    const TensorSlot pairs{out.data(), count, DType::kF32, keys.data(), count};
    if (count > 0 && codec.decode_pairs(part, pairs, 1.0F).has_value() != plain.has_value()) std::abort();
  }
  std::vector<Section> sections;
  const Status described = codec.describe(part, count, sections);
  if (plain.has_value() && !described.has_value()) std::abort();
  return plain.has_value();
}

void decode_long(Bytes data, Coded& coded, std::uint32_t chunks) {
  if (data.size() < fuzz::kLongHead) return;
  coded.count += fuzz::kLongCount;
  coded.payload = data.subspan(fuzz::kLongHead);
  for (std::uint32_t i = 0; i + 1 < chunks && i < 2; ++i) {
    coded.ends.push_back(load_le<std::uint32_t>(data.data() + fuzz::kShortHead + std::size_t{4} * i));
  }
  if (chunks > 0) coded.ends.push_back(static_cast<std::uint32_t>(coded.payload.size()));
  const auto number = std::to_integer<std::size_t>(data[fuzz::kShortHead - 1]);
  Tried& tried = codecs()[number % codecs().size()];
  const bool is_accepted = decode_by(*tried.codec, coded);
  tried.has_accepted_long = tried.has_accepted_long || is_accepted;
}

// The first bytes choose the count, the scalars, the number of chunks and the bytes of each but the last; the
// rest is the payload.
void decode_all(Bytes data) {
  if (data.size() < fuzz::kShortHead) return;
  const auto byte_at = [&](std::size_t i) { return std::to_integer<std::uint32_t>(data[i]); };
  Coded coded{.count = (byte_at(0) | byte_at(1) << 8) % kMaxCount,
              .scalar = load_le<std::uint32_t>(data.data() + 2),
              .scalar2 = load_le<std::uint32_t>(data.data() + 6)};
  const std::uint32_t chunks = byte_at(10) % 4;
  if ((byte_at(10) & fuzz::kLongMark) == fuzz::kLongMark) {
    decode_long(data, coded, chunks);
    return;
  }
  coded.payload = data.subspan(fuzz::kShortHead);
  for (std::uint32_t i = 0; i < chunks; ++i) {
    coded.ends.push_back(i + 1 == chunks ? static_cast<std::uint32_t>(coded.payload.size())
                                         : byte_at(11) * (i + 1));
  }
  for (Tried& tried : codecs()) {
    const bool is_accepted = decode_by(*tried.codec, coded);
    tried.has_accepted = tried.has_accepted || (is_accepted && coded.count > 0);
  }
}

}  // namespace
}  // namespace deltawire

// Each short input goes to every codec.
extern const int fuzz_rounds;
const int fuzz_rounds = 2000;

extern "C" void fuzz_after_seeds() {
  for (const auto& tried : deltawire::codecs()) {
    if (tried.has_accepted && tried.has_accepted_long) continue;
    std::fprintf(stderr, "no %s seed was accepted by %s\n", tried.has_accepted ? "long" : "short",
                 tried.codec->spec().c_str());
    std::abort();
  }
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  deltawire::decode_all(std::as_bytes(std::span(data, size)));
  return 0;
}
