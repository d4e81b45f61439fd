// Codec::decode and describe on hostile payloads: behind the checksums, where only the codec stands.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "deltawire/codec.h"
#include "fuzz_inputs.h"

namespace deltawire {
namespace {

constexpr std::size_t kMaxCount = 1000;

struct Tried {
  std::unique_ptr<const Codec> codec;
  bool has_accepted = false;
};

std::vector<Tried>& codecs() {
  static std::vector<Tried> codecs = [] {
    std::vector<Tried> all;
    for (const std::string& spec : fuzz::codec_specs()) {
      auto made = make_codec(spec);
      if (!made) std::abort();
      all.push_back({std::move(*made)});
    }
    return all;
  }();
  return codecs;
}

// The first bytes choose the count, the scalars, the number of chunks and the bytes of each but the last; the
// rest is the payload.
void decode_all(Bytes data) {
  if (data.size() < 12) return;
  const auto byte_at = [&](std::size_t i) { return std::to_integer<std::uint32_t>(data[i]); };
  const std::uint64_t count = (byte_at(0) | byte_at(1) << 8) % kMaxCount;
  std::uint32_t scalar = 0;
  std::uint32_t scalar2 = 0;
  std::memcpy(&scalar, data.data() + 2, 4);
  std::memcpy(&scalar2, data.data() + 6, 4);
  const std::uint32_t chunks = byte_at(10) % 4;
  const Bytes payload = data.subspan(12);
  std::vector<std::uint32_t> ends;
  for (std::uint32_t i = 0; i < chunks; ++i) {
    ends.push_back(i + 1 == chunks ? static_cast<std::uint32_t>(payload.size()) : byte_at(11) * (i + 1));
  }
  for (auto& [codec, has_accepted] : codecs()) {
    // Of the scalars those that it has: others are refused before it sees a byte.
    const int scalars = codec->info().scalars;
    const PartView part{payload, ends, scalars >= 1 ? scalar : 0, scalars >= 2 ? scalar2 : 0};
    // Exactly as large as promised: the sanitizer sees a write past the end.
    std::vector<float> out(count, 1.0F);
    const TensorSlot slot{out.data(), count, DType::kF32};
    std::vector<std::byte> scratch(codec->decode_scratch(slot));
    const Status plain = codec->decode(part, slot, Into::kOverwrite, 1.0F, {.scratch = scratch});
    const Status added = codec->decode(part, slot, Into::kAccumulate, 0.5F, {.scratch = scratch});
    if (plain.has_value() != added.has_value()) std::abort();
    has_accepted = has_accepted || (plain.has_value() && count > 0);
    if (codec->info().key_value) {
      std::vector<std::uint32_t> keys(count);
      const TensorSlot pairs{out.data(), count, DType::kF32, keys.data(), count};
      if (count > 0 && codec->decode_pairs(part, pairs, 1.0F).has_value() != plain.has_value()) std::abort();
    }
    std::vector<Section> sections;
    const Status described = codec->describe(part, count, sections);
    if (plain.has_value() && !described.has_value()) std::abort();
  }
}

}  // namespace
}  // namespace deltawire

// Each input goes to every codec.
extern const int fuzz_rounds;
const int fuzz_rounds = 8000;

extern "C" void fuzz_after_seeds() {
  for (const auto& tried : deltawire::codecs()) {
    if (tried.has_accepted) continue;
    std::fprintf(stderr, "no seed was accepted by %s\n", tried.codec->spec().c_str());
    std::abort();
  }
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  deltawire::decode_all(std::as_bytes(std::span(data, size)));
  return 0;
}
