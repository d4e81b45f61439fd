#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/crc32c.h"
#include "base/float16.h"
#include "base/float_environment.h"
#include "base/random.h"
#include "channel/metered_channel.h"
#include "codecs/dispatch.h"
#include "coding/measure.h"
#include "coding/rows.h"
#include "deltawire/codec.h"

namespace deltawire::bench {

namespace {

// What the library's calls give; an error is thrown, and ends a row or the program.
template <class T>
T taken(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

void check(const Status& status) {
  if (!status) throw std::runtime_error(status.error().message);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct CaseId {
  std::string spec;
  std::string input;
  std::size_t count = 0;
  TargetId target{};
  bool pairs = false;

  bool operator==(const CaseId&) const = default;
};

// An input may name a tensor of 16 bits: "normal.bf16", "normal.fp16".
DType dtype_of(const std::string& input) {
  if (input.ends_with(".bf16")) return DType::kBF16;
  return input.ends_with(".fp16") ? DType::kF16 : DType::kF32;
}

std::string values_of(const std::string& input) {
  return dtype_of(input) == DType::kF32 ? input : input.substr(0, input.size() - 5);
}

// A part, its codec and all the memory that coding it takes.
class Coded {
 public:
  explicit Coded(const CaseId& id)
      : input_(input_of(values_of(id.input), id.count)),
        codec_(taken(make_codec(id.spec, id.target))),
        keys_(id.pairs ? keys_for(id.count) : std::vector<std::uint32_t>{}),
        part_{input_.values.data(), id.count, dtype_of(id.input)} {
    if (part_.dtype != DType::kF32) {
      const FloatEnvironment environment;
      halves_.resize(id.count);
      slot_halves_.resize(id.count);
      (void)narrow(input_.values.data(), id.count, part_.dtype, halves_.data());
      part_.values = halves_.data();
    }
    if (id.pairs) {
      part_.keys = keys_.data();
      part_.dimension = std::uint64_t{keys_.back()} + 1;
    } else {
      // Half a step's values wait already, the same before every run.
      before_.resize(id.count);
      for (std::size_t i = 0; i < id.count; ++i) before_[i] = 0.5F * input_.values[id.count - 1 - i];
      after_.resize(id.count);
    }
    part_.significance = input_.significance.empty() ? nullptr : input_.significance.data();
    const Sizes sizes = codec_->sizes(part_);
    payload_.resize(sizes.payload_bytes);
    ends_.resize(sizes.chunks);
    sums_.resize(sizes.chunks);
    scratch_.resize(sizes.scratch_bytes);
    slot_.assign(id.count, 0.25F);
    slot_keys_.resize(keys_.size());
  }

  bool has_residual() const { return codec_->info().error_feedback && keys_.empty(); }

  void encode() { code(has_residual() ? Residual(before_, after_) : Residual()); }
  void encode_in_place() { code(after_); }
  void restore() { after_ = before_; }

  void decode(Into into) {
    check_sums();
    const TensorSlot slot{halves_.empty() ? static_cast<void*>(slot_.data()) : slot_halves_.data(),
                          slot_.size(), part_.dtype};
    check(codec_->decode(view(), slot, into, 1.0F, {.scratch = scratch_}));
  }

  void decode_pairs() {
    check_sums();
    (void)taken(codec_->decode_pairs(
        view(), {slot_.data(), slot_.size(), DType::kF32, slot_keys_.data(), part_.dimension}, 1.0F));
  }

  std::uint64_t payload_bytes() const { return encoded_.payload_bytes; }

  // Throws where bytes or values are not those of the reference.
  void compare_with(Coded& reference) {
    for (Coded* each : {this, &reference}) {
      each->encode();
      each->keys_.empty() ? each->decode(Into::kOverwrite) : each->decode_pairs();
    }
    if (view().payload.size() != reference.view().payload.size() ||
        !std::ranges::equal(view().payload, reference.view().payload)) {
      throw std::runtime_error("other bytes than the reference's");
    }
    if (!same_bits(after_, reference.after_)) throw std::runtime_error("another residual");
    if (!same_bits(slot_, reference.slot_) || slot_halves_ != reference.slot_halves_) {
      throw std::runtime_error("other decoded values");
    }
  }

 private:
  PartView view() const {
    return {{payload_.data(), encoded_.payload_bytes},
            {ends_.data(), encoded_.chunks},
            encoded_.scalar,
            encoded_.scalar2};
  }

  void code(Residual residual) {
    encoded_ = taken(codec_->encode(part_, residual, {payload_, ends_, sums_}, {.scratch = scratch_}));
    if (!encoded_.has_sums) check_sums();
  }

  // As a frame has them: one for each chunk.
  void check_sums() {
    std::uint32_t begin = 0;
    for (std::uint32_t i = 0; i < encoded_.chunks; ++i) {
      benchmark::DoNotOptimize(crc32c(view().payload.subspan(begin, ends_[i] - begin), i));
      begin = ends_[i];
    }
  }

  const Input& input_;
  std::unique_ptr<const Codec> codec_;
  std::vector<std::uint32_t> keys_;
  TensorView part_;
  std::vector<float> before_;
  std::vector<float> after_;
  std::vector<std::byte> payload_;
  std::vector<std::uint32_t> ends_;
  std::vector<std::uint32_t> sums_;
  std::vector<std::byte> scratch_;
  std::vector<float> slot_;
  std::vector<std::uint16_t> halves_;  // of a tensor of 16 bits, and its slot
  std::vector<std::uint16_t> slot_halves_;
  std::vector<std::uint32_t> slot_keys_;
  EncodedPart encoded_;
};

// Rows of one case stand behind each other: it is made, and compared with the reference, once.
Coded& coded_of(const CaseId& id) {
  static std::optional<CaseId> kept_id;
  static std::unique_ptr<Coded> kept;
  if (kept_id == id) return *kept;
  kept_id.reset();
  kept.reset();
  auto made = std::make_unique<Coded>(id);
  {
    CaseId of_reference = id;
    of_reference.target = TargetId::kReference;
    Coded reference(of_reference);
    made->compare_with(reference);
  }
  kept = std::move(made);
  kept_id = id;
  return *kept;
}

enum class Way : std::uint8_t { kEncode, kInPlace, kDecode, kAccumulate, kEncodePairs, kDecodePairs };
constexpr const char* kWayNames[] = {"encode",     "inplace",      "decode",
                                     "accumulate", "encode_pairs", "decode_pairs"};

void run_way(benchmark::State& state, const CaseId& id, Way way) {
  try {
    Coded& coded = coded_of(id);
    Work work{.count = id.count, .payload_bytes = coded.payload_bytes(), .clock = Clock::kThread};
    switch (way) {
      case Way::kEncode:
      case Way::kEncodePairs: work.run = [&] { coded.encode(); }; break;
      case Way::kInPlace:
        work.run = [&] { coded.encode_in_place(); };
        work.restore = [&] { coded.restore(); };
        break;
      case Way::kDecode: work.run = [&] { coded.decode(Into::kOverwrite); }; break;
      case Way::kAccumulate: work.run = [&] { coded.decode(Into::kAccumulate); }; break;
      case Way::kDecodePairs: work.run = [&] { coded.decode_pairs(); }; break;
    }
    measure(state, work);
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

void add_ways(const CaseId& id, const std::string& size) {
  const auto codec = taken(make_codec(id.spec));
  std::vector<Way> ways{Way::kEncode};
  if (id.pairs) {
    ways = {Way::kEncodePairs, Way::kDecodePairs};
  } else {
    if (codec->info().error_feedback) ways.push_back(Way::kInPlace);
    ways.push_back(Way::kDecode);
    if (dtype_of(id.input) == DType::kF32) ways.push_back(Way::kAccumulate);
  }
  const std::string target(kernel_targets()[static_cast<std::size_t>(id.target)].name);
  for (const Way way : ways) {
    add_row(std::string(kWayNames[static_cast<std::size_t>(way)]) + "/" + id.spec + "/" + id.input + "/" +
                size + "/" + target,
            id.count, [id, way](benchmark::State& state) { run_way(state, id, way); });
  }
}

struct ChannelCase {
  std::string spec;
  std::string name;                 // of the parts
  std::vector<std::size_t> counts;  // of each part's values
  int threads = 1;
  bool decodes = false;
};

std::vector<Named> parts_of(const std::vector<std::string>& names, const std::vector<std::size_t>& counts,
                            std::vector<float>& values) {
  std::vector<Named> parts;
  float* at = values.data();
  for (std::size_t i = 0; i < names.size(); ++i) {
    Named part{names[i], {at, counts[i], DType::kF32}, 0};
    part.name_hash = CounterRng(1).at(i);  // as reducers keep it
    parts.push_back(part);
    at += counts[i];
  }
  return parts;
}

// 3,000 tensors of 3 to 300 values, as of a network's biases and scales; and one of their sum.
std::vector<std::size_t> small_counts() {
  std::vector<std::size_t> counts(3000);
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = 3 + CounterRng(2).at(i) % 298;
  return counts;
}

std::vector<ChannelCase> channel_cases(const std::string& spec) {
  constexpr std::size_t kElements = std::size_t{1} << 20;
  std::vector<ChannelCase> cases;
  for (const Size& size : kSizes) {
    if (size.count <= kElements) {
      cases.push_back({spec, size.name, std::vector<std::size_t>(kElements / size.count, size.count)});
    }
  }
  const std::vector<std::size_t> small = small_counts();
  cases.push_back({spec, "small", small});
  cases.push_back({spec, "of_small", {std::accumulate(small.begin(), small.end(), std::size_t{0})}});
  return cases;
}

void run_channel(benchmark::State& state, const ChannelCase& id) {
  const std::size_t elements = std::accumulate(id.counts.begin(), id.counts.end(), std::size_t{0});
  try {
    std::vector<float> values = input_of("normal", elements).values;
    std::vector<float> decoded(elements);
    std::vector<std::string> names;
    for (std::size_t i = 0; i < id.counts.size(); ++i) {
      names.push_back("layer" + std::to_string(i) + ".weight");
    }
    const std::vector<Named> parts = parts_of(names, id.counts, values);
    const std::vector<Named> places = parts_of(names, id.counts, decoded);
    const MessageLayout layout(parts);
    const MessageLayout slots(places);
    ChannelOptions options;
    options.revert = Revert::kExact;
    const auto workers = id.threads > 1 ? std::make_shared<Workers>(id.threads) : nullptr;
    const auto channel = taken(make_metered_channel(id.spec, options, {nullptr, workers}));
    MessageId message;
    std::uint64_t bytes = 0;
    std::span<const Bytes> pieces;
    const auto encode = [&] {
      pieces = taken(channel->encode(layout, message));
      bytes = 0;
      for (const Bytes piece : pieces) bytes += piece.size();
    };
    const auto encode_a_step = [&] {
      encode();
      channel->commit();
      ++message.step;
    };
    const auto decode = [&] {
      if (!channel->decode(pieces, slots, message, Into::kOverwrite, 1)) throw std::logic_error("refused");
    };
    id.decodes ? encode() : encode_a_step();
    measure(state, {.count = elements,
                    .payload_bytes = bytes,
                    .clock = id.threads > 1 ? Clock::kWall : Clock::kThread,
                    .run = id.decodes ? std::function<void()>(decode) : encode_a_step,
                    .restore = {}});
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

// What selecting the largest of each sign costs with the standard library alone; it moves what it gets.
void run_selection(benchmark::State& state, std::size_t count) {
  const std::vector<float>& values = input_of("laplace", count).values;
  const auto keep = static_cast<std::ptrdiff_t>(count / 100);
  std::vector<float> positive(count);
  std::vector<float> negative(count);
  measure(state, {.count = count,
                  .payload_bytes = 0,
                  .clock = Clock::kThread,
                  .run =
                      [&] {
                        std::nth_element(positive.begin(), positive.begin() + keep, positive.end(),
                                         std::greater<>());
                        std::nth_element(negative.begin(), negative.begin() + keep, negative.end());
                      },
                  .restore =
                      [&] {
                        positive = values;
                        negative = values;
                      }});
}

}  // namespace

const Input& input_of(const std::string& name, std::size_t count) {
  static Input kept;
  if (kept.name != name || kept.values.size() != count) kept = make_input(name, count);
  return kept;
}

void register_codecs(const std::vector<CodecCase>& cases) {
  for (const Size& size : kSizes) {
    for (const CodecCase& each : cases) {
      const auto codec = taken(make_codec(each.spec));
      const bool key_value = codec->info().key_value;
      for (const std::string& input : each.inputs) {
        for (std::size_t target = 0; target < kernel_targets().size(); ++target) {
          CaseId id{each.spec, input, size.count, static_cast<TargetId>(target)};
          if (!kernel_targets()[target].runs_here) continue;
          if (target > 0 && !has_kernels(codec->info(), id.target)) continue;
          add_ways(id, size.name);
          if (!key_value || dtype_of(input) != DType::kF32) continue;
          id.pairs = true;
          id.count = std::min<std::size_t>(size.count, 2500000);
          add_ways(id, id.count == size.count ? size.name : "2.5M");
        }
      }
    }
  }
}

void register_channels(const std::vector<CodecCase>& cases) {
  for (const CodecCase& each : cases) {
    for (ChannelCase& id : channel_cases(each.spec)) {
      for (const bool decodes : {false, true}) {
        for (const int threads : {1, 2}) {
          id.decodes = decodes;
          id.threads = threads;
          add_row((decodes ? "channel_decode/" : "channel/") + each.spec + "/normal/" + id.name +
                      "/threads:" + std::to_string(threads),
                  id.counts.front(), [id](benchmark::State& state) { run_channel(state, id); });
        }
      }
    }
  }
}

void register_selection() {
  for (const Size& size : kSizes) {
    add_row(std::string("select/nth_element-twice/laplace/") + size.name, size.count,
            [size](benchmark::State& state) { run_selection(state, size.count); });
  }
}

}  // namespace deltawire::bench
