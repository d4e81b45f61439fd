// What a rank keeps of each matrix that it sends as two factors, from step to step: what has not been sent
// yet, and the Q that the next step begins with. All of a step is taken back, or stands.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"
#include "base/byte_writer.h"
#include "base/checked.h"
#include "base/crc32c.h"
#include "base/errors.h"
#include "base/float_environment.h"
#include "base/format_version.h"
#include "base/little_endian.h"
#include "base/values.h"
#include "deltawire/channel.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "reduce/patterns/low_rank.h"
#include "wire/hashes.h"

namespace deltawire {

class FactorStore {
 public:
  struct Factors {
    std::vector<float> p;  // both as in low_rank.h; P's columns are orthonormal, Q is this rank's own
    std::vector<float> q;
  };

  // The residual, less P Q^T, is what waits: the product is taken off where the next step reads the matrix
  // anyway, so that a commit changes nothing large, and a folding revert keeps all of M.
  struct Matrix {
    std::string name;
    low_rank::Shape shape;
    std::vector<float> kept;
    Factors sent;
    bool is_sent = false;      // whether `sent` is to be taken off `kept`
    std::vector<float> start;  // Q of the next step, the same on all ranks
    float scale = 1.0F;        // `kept` is so many times what it means (Step::scale)

    // Of the open step. Where it has a part in it, `kept` is M already.
    bool in_step = false;
    bool takes_part = false;  // false: its input is all zeros, what waits goes on waiting
    Factors step;             // what is sent; before that the sums, as they come
    std::vector<float> next_start;
    bool has_next_start = false;
    std::vector<float> before;  // `kept` before the step, for exact reverts only
    float scale_before = 1.0F;
    MeteredBytes held;
  };

  FactorStore(std::uint32_t rank, Revert revert, std::shared_ptr<MemoryMeter> meter)
      : rank_(rank), revert_(revert), meter_(std::move(meter)) {}

  // The tensor's, new with zeros if there is none. kMismatch if it has another shape; kInvalidArgument if
  // another bucket of the open step has it.
  Result<Matrix*> obtain(const Named& tensor, const low_rank::Shape& shape) {
    const Key key{name_hash(tensor), tensor.name};
    auto found = matrices_.find(key);
    if (found == matrices_.end()) {
      auto made = make(tensor.name, shape);
      low_rank::draw(CounterRng(key.name_hash, kStartStream), made->start);
      const Key own{key.name_hash, made->name};
      found = matrices_.emplace(own, std::move(made)).first;
    }
    Matrix& matrix = *found->second;
    if (matrix.shape != shape) {
      return mismatch("tensor '" + matrix.name + "' is " + in_words(shape) + ", but its residual is " +
                      in_words(matrix.shape) + "; names must keep their shapes");
    }
    if (matrix.in_step) {
      return invalid("tensor '" + matrix.name + "' stands in two buckets of the step; once is enough");
    }
    return &matrix;
  }

  // Of a tensor, what waits for later steps; empty where there is nothing.
  std::vector<float> waiting(const Named& tensor) const {
    const auto found = matrices_.find(Key{name_hash(tensor), tensor.name});
    if (found == matrices_.end()) return {};
    const Matrix& matrix = *found->second;
    std::vector<float> values(matrix.kept.size());
    low_rank::take(matrix.shape, what_waits(matrix), values.data());
    return values;
  }

  // What it holds of a tensor.
  std::uint64_t bytes_of(const Named& tensor) const {
    const auto found = matrices_.find(Key{name_hash(tensor), tensor.name});
    return found == matrices_.end() ? 0 : found->second->held.bytes();
  }

  // The tensor takes part in the open step: kept = input + what waits, in this scale. False if an element is
  // not finite, or too large; then that element is what waited. Takes no memory.
  bool take_in(Matrix& matrix, const float* input, float scale) noexcept {
    assert(matrix.in_step && !matrix.takes_part);
    assert(std::isfinite(scale) && scale > 0.0F);
    const FloatEnvironment environment;
    low_rank::Left left = what_waits(matrix);
    left.factor = static_cast<double>(FloatEnvironment::pinned(scale)) / static_cast<double>(matrix.scale);
    if (revert_ == Revert::kExact) matrix.kept.swap(matrix.before);
    matrix.scale_before = matrix.scale;
    matrix.scale = scale;
    matrix.takes_part = true;
    return low_rank::add(matrix.shape, input, left, matrix.kept.data());
  }

  void commit() noexcept {
    for (auto& [key, matrix] : matrices_) {
      if (!std::exchange(matrix->in_step, false)) continue;
      if (std::exchange(matrix->takes_part, false)) {
        std::swap(matrix->sent, matrix->step);
        matrix->is_sent = true;
      }
      if (std::exchange(matrix->has_next_start, false)) matrix->start.swap(matrix->next_start);
    }
  }

  void revert() noexcept {
    for (auto& [key, matrix] : matrices_) {
      matrix->in_step = false;
      if (!std::exchange(matrix->takes_part, false)) continue;
      if (revert_ == Revert::kFold) {
        matrix->is_sent = false;
      } else {
        matrix->kept.swap(matrix->before);
        matrix->scale = matrix->scale_before;
      }
    }
  }

  // All matrices as bytes (docs/reference/format.md, "Channel state"), which end with their checksum;
  // between steps.
  std::vector<std::byte> save() const {
    const FloatEnvironment environment;
    std::vector<const Matrix*> sorted;
    for (const auto& [key, matrix] : matrices_) sorted.push_back(matrix.get());
    std::ranges::sort(sorted, {}, [](const Matrix* matrix) -> std::string_view { return matrix->name; });
    std::uint64_t bytes = kFactorsHeadBytes + 4;
    for (const Matrix* matrix : sorted) {
      bytes += kMatrixHeadBytes + matrix->name.size() + 4 * (matrix->kept.size() + matrix->start.size());
    }
    std::vector<std::byte> out(bytes);
    ByteWriter writer(out);
    writer.text(kFactorsMagic);
    writer.number<std::uint32_t>(kFactorsVersion);
    writer.number<std::uint32_t>(rank_);
    writer.number<std::uint64_t>(bytes);
    writer.number<std::uint32_t>(static_cast<std::uint32_t>(sorted.size()));
    std::vector<float> waiting;
    for (const Matrix* matrix : sorted) {
      assert(!matrix->in_step);
      writer.number<std::uint32_t>(static_cast<std::uint32_t>(matrix->name.size()));
      writer.number<std::uint64_t>(matrix->shape.rows);
      writer.number<std::uint64_t>(matrix->shape.columns);
      writer.number<std::uint32_t>(std::bit_cast<std::uint32_t>(matrix->scale));
      writer.text(matrix->name);
      waiting.resize(matrix->shape.elements());
      low_rank::take(matrix->shape, what_waits(*matrix), waiting.data());
      writer.floats(waiting);
      writer.floats(matrix->start);
    }
    writer.number<std::uint32_t>(crc32c(Bytes(out).first(bytes - 4)));
    return out;
  }

  // Replaces everything by what `state` begins with, and returns how long that was; on error (kTruncated,
  // kCorrupt, kUnsupportedVersion, kMismatch for another rank) nothing.
  Result<std::uint64_t> load(Bytes state) {
    ASSIGN_OR_RETURN(const std::uint64_t bytes, saved_bytes(state));
    const Bytes body = state.first(bytes - 4);
    if (crc32c(body) != load_le<std::uint32_t>(state.data() + body.size())) {
      return broken(ErrorCode::kCorrupt, "the checksum is wrong; the bytes changed or were cut");
    }
    if (const auto rank = load_le<std::uint32_t>(state.data() + 12); rank != rank_) {
      return broken(ErrorCode::kMismatch,
                    "saved with rank=" + std::to_string(rank) + "; load them with the same");
    }
    ASSIGN_OR_RETURN(matrices_, read_all(body));
    return bytes;
  }

  // How long the matrices are that `state` begins with, as its head says. kTruncated, kCorrupt,
  // kUnsupportedVersion.
  static Result<std::uint64_t> saved_bytes(Bytes state) {
    if (state.size() < kFactorsHeadBytes + 4) return broken(ErrorCode::kTruncated, "too few bytes");
    if (std::memcmp(state.data(), kFactorsMagic.data(), kFactorsMagic.size()) != 0) {
      return broken(ErrorCode::kCorrupt, "wrong magic; these bytes are no saved reducer of this pattern");
    }
    const auto version = load_le<std::uint32_t>(state.data() + 8);
    RETURN_IF_ERROR(check_format_version("powersgd's state", version, kFactorsVersion));
    const auto bytes = load_le<std::uint64_t>(state.data() + 16);
    if (bytes < kFactorsHeadBytes + 4) return broken(ErrorCode::kCorrupt, "the head contradicts itself");
    if (bytes > state.size()) return broken(ErrorCode::kTruncated, "the bytes end within a matrix");
    return bytes;
  }

  // As Channel::load_weighted, of matrices as save() made them, each of which a state's bytes end with; the Q
  // that the next step begins with is that of the first state. The store is empty before; on error its
  // content is unspecified.
  Status load_weighted(std::span<const WeightedState> states, std::span<const Named> tensors) {
    assert(matrices_.empty());
    const FloatEnvironment environment;
    std::unordered_map<std::string_view, std::uint64_t> elements;
    for (const Named& tensor : tensors) elements[tensor.name] = tensor.tensor.elements();
    Sums sums;
    for (const WeightedState& each : states) {
      FactorStore saved(rank_, revert_, nullptr);
      RETURN_IF_ERROR(saved.load(each.state));
      for (const auto& [key, matrix] : saved.matrices_) {
        const auto tensor = elements.find(matrix->name);
        if (tensor != elements.end() && tensor->second == matrix->shape.elements()) continue;
        return broken(ErrorCode::kMismatch,
                      "'" + matrix->name + "' of " + std::to_string(matrix->shape.elements()) +
                          " elements is none that the job exchanges; load them into the "
                          "model that they were saved with");
      }
      RETURN_IF_ERROR(add_weighted(saved, each.weight, sums));
    }
    for (const auto& [key, matrix] : matrices_) {
      const std::vector<double>& sum = sums[matrix.get()];
      std::ranges::transform(sum, matrix->kept.begin(),
                             [](double value) { return static_cast<float>(value); });
      if (all_finite(matrix->kept)) continue;
      return broken(ErrorCode::kRange, "what waits of '" + matrix->name + "' is too large in sum");
    }
    return {};
  }

 private:
  static constexpr std::uint64_t kStartStream = 0x51;  // of the numbers that a tensor's first Q is drawn from

  static std::string in_words(const low_rank::Shape& shape) {
    return std::to_string(shape.rows) + " x " + std::to_string(shape.columns);
  }

  // The bytes of saved matrices (docs/reference/format.md, "Channel state").
  static constexpr std::string_view kFactorsMagic = "DWPOWER\n";
  static constexpr std::uint32_t kFactorsVersion = 1;
  static constexpr std::uint64_t kFactorsHeadBytes =
      28;  // magic, u32 version, u32 rank, u64 bytes of all, u32 matrices
  static constexpr std::uint64_t kMatrixHeadBytes =
      24;  // u32 length of the name, u64 rows, u64 columns, fp32 scale

  static tl::unexpected<Error> broken(ErrorCode code, const std::string& why) {
    return fail(code, "saved matrices: " + why);
  }

  // Of both lists of a matrix; nullopt where that passes 64 bits.
  static std::optional<std::uint64_t> value_bytes(const low_rank::Shape& shape) {
    const auto elements = checked_mul(shape.rows, shape.columns);
    const auto start = checked_mul(shape.columns, shape.rank);
    if (!elements || !start) return std::nullopt;
    const auto values = checked_add(*elements, *start);
    return values ? checked_mul(*values, 4) : std::nullopt;
  }

  struct Key {
    std::uint64_t name_hash = 0;
    std::string_view name;  // the matrix's own, or the caller's while it looks for one

    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept { return key.name_hash; }
  };
  using Matrices = std::unordered_map<Key, std::unique_ptr<Matrix>, Hash>;
  using Sums = std::unordered_map<const Matrix*, std::vector<double>>;  // of what waits

  static low_rank::Left what_waits(const Matrix& matrix) noexcept {
    low_rank::Left left;
    left.kept = matrix.kept.data();
    if (matrix.is_sent) {
      left.p = matrix.sent.p.data();
      left.q = matrix.sent.q.data();
    }
    return left;
  }

  // All memory at once, so that steps take none.
  std::unique_ptr<Matrix> make(std::string_view name, const low_rank::Shape& shape) const {
    auto made = std::make_unique<Matrix>();
    made->name = name;
    made->shape = shape;
    made->kept.assign(shape.elements(), 0.0F);
    if (revert_ == Revert::kExact) made->before.resize(shape.elements());
    for (Factors* factors : {&made->sent, &made->step}) {
      factors->p.resize(shape.p_elements());
      factors->q.resize(shape.q_elements());
    }
    made->start.resize(shape.q_elements());
    made->next_start.resize(shape.q_elements());
    made->held = MeteredBytes(meter_, MemoryMeter::Use::kResiduals);
    made->held.set(sizeof(float) * (made->kept.size() + made->before.size() + 2 * shape.p_elements() +
                                    4 * shape.q_elements()));
    return made;
  }

  Status add_weighted(const FactorStore& share, double weight, Sums& sums) {
    for (const auto& [share_key, saved] : share.matrices_) {
      auto found = matrices_.find(share_key);
      if (found == matrices_.end()) {
        auto made = make(saved->name, saved->shape);
        made->start = saved->start;
        made->scale = saved->scale;
        const Key own{share_key.name_hash, made->name};
        found = matrices_.emplace(own, std::move(made)).first;
      }
      const Matrix& matrix = *found->second;
      if (matrix.shape != saved->shape) {
        return mismatch("saved matrices: '" + matrix.name + "' has another shape on each rank");
      }
      std::vector<double>& sum = sums[&matrix];
      assert(sum.empty() || sum.size() == matrix.kept.size());
      sum.resize(matrix.kept.size());
      const double factor = weight * static_cast<double>(matrix.scale) / static_cast<double>(saved->scale);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor * static_cast<double>(saved->kept[i]);
    }
    return {};
  }

  Result<Matrices> read_all(Bytes body) const {
    Matrices matrices;
    Bytes rest = body.subspan(kFactorsHeadBytes);
    for (auto left = load_le<std::uint32_t>(body.data() + 24); left > 0; --left) {
      ASSIGN_OR_RETURN(auto matrix, read_one(rest));
      const Key key{digest64(std::as_bytes(std::span(matrix->name)), 0), matrix->name};
      if (!matrices.try_emplace(key, std::move(matrix)).second) {
        return fail(ErrorCode::kCorrupt, "saved matrices: '" + std::string(key.name) + "' occurs twice");
      }
    }
    if (!rest.empty()) return fail(ErrorCode::kCorrupt, "saved matrices: bytes after the last one");
    return matrices;
  }

  Result<std::unique_ptr<Matrix>> read_one(Bytes& rest) const {
    const auto ends = [] { return truncated("saved matrices: the bytes end within a matrix"); };
    if (rest.size() < kMatrixHeadBytes) return ends();
    const std::uint64_t name_bytes = load_le<std::uint32_t>(rest.data());
    const low_rank::Shape shape{load_le<std::uint64_t>(rest.data() + 4),
                                load_le<std::uint64_t>(rest.data() + 12), rank_};
    const float scale = std::bit_cast<float>(load_le<std::uint32_t>(rest.data() + 20));
    rest = rest.subspan(kMatrixHeadBytes);
    if (name_bytes > rest.size()) return ends();
    const std::string_view name(reinterpret_cast<const char*>(rest.data()), name_bytes);
    rest = rest.subspan(name_bytes);
    const auto bytes = value_bytes(shape);
    if (!bytes || *bytes > rest.size()) return ends();
    const auto corrupt = [name](const std::string& why) {
      return fail(ErrorCode::kCorrupt, "saved matrices: '" + std::string(name) + "' " + why);
    };
    if (!std::isfinite(scale) || scale <= 0.0F) return corrupt("has no legal scale");
    if (!low_rank::is_smaller(shape)) return corrupt("is no matrix that is sent as factors");
    auto matrix = make(name, shape);
    matrix->scale = scale;
    take_floats(rest, matrix->kept);
    take_floats(rest, matrix->start);
    if (!all_finite(matrix->kept) || !low_rank::all_within(matrix->start)) {
      return corrupt("has values that are not finite, or too large");
    }
    return matrix;
  }

  std::uint32_t rank_;
  Revert revert_;
  std::shared_ptr<MemoryMeter> meter_;
  Matrices matrices_;
};

}  // namespace deltawire
