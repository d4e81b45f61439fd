#include "reduce/patterns/factor_store.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "base/byte_writer.h"
#include "base/checked.h"
#include "base/crc32c.h"
#include "base/errors.h"
#include "base/float_environment.h"
#include "base/format_version.h"
#include "base/little_endian.h"
#include "base/values.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

constexpr std::uint64_t kStartStream = 0x51;  // of the numbers that a tensor's first Q is drawn from

std::string in_words(const low_rank::Shape& shape) {
  return std::to_string(shape.rows) + " x " + std::to_string(shape.columns);
}

// The bytes of saved matrices (docs/reference/format.md, "Channel state").
constexpr std::string_view kFactorsMagic = "DWPOWER\n";
constexpr std::uint32_t kFactorsVersion = 1;
constexpr std::uint64_t kFactorsHeadBytes =
    28;  // magic, u32 version, u32 rank, u64 bytes of all, u32 matrices
constexpr std::uint64_t kMatrixHeadBytes = 24;  // u32 length of the name, u64 rows, u64 columns, fp32 scale

tl::unexpected<Error> broken(ErrorCode code, const std::string& why) {
  return fail(code, "saved matrices: " + why);
}

// Of both lists of a matrix; nullopt where that passes 64 bits.
std::optional<std::uint64_t> value_bytes(const low_rank::Shape& shape) {
  const auto elements = checked_mul(shape.rows, shape.columns);
  const auto start = checked_mul(shape.columns, shape.rank);
  if (!elements || !start) return std::nullopt;
  const auto values = checked_add(*elements, *start);
  return values ? checked_mul(*values, 4) : std::nullopt;
}

}  // namespace

// All memory at once, so that steps take none.
std::unique_ptr<FactorStore::Matrix> FactorStore::make(std::string_view name,
                                                       const low_rank::Shape& shape) const {
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
  made->held.set(sizeof(float) *
                 (made->kept.size() + made->before.size() + 2 * shape.p_elements() + 4 * shape.q_elements()));
  return made;
}

std::vector<float> FactorStore::waiting(const Named& tensor) const {
  const auto found = matrices_.find(Key{name_hash(tensor), tensor.name});
  if (found == matrices_.end()) return {};
  const Matrix& matrix = *found->second;
  std::vector<float> values(matrix.kept.size());
  low_rank::take(matrix.shape, what_waits(matrix), values.data());
  return values;
}

std::uint64_t FactorStore::bytes_of(const Named& tensor) const {
  const auto found = matrices_.find(Key{name_hash(tensor), tensor.name});
  return found == matrices_.end() ? 0 : found->second->held.bytes();
}

Result<FactorStore::Matrix*> FactorStore::obtain(const Named& tensor, const low_rank::Shape& shape) {
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

bool FactorStore::take_in(Matrix& matrix, const float* input, float scale) noexcept {
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

low_rank::Left FactorStore::what_waits(const Matrix& matrix) noexcept {
  low_rank::Left left;
  left.kept = matrix.kept.data();
  if (matrix.is_sent) {
    left.p = matrix.sent.p.data();
    left.q = matrix.sent.q.data();
  }
  return left;
}

void FactorStore::commit() noexcept {
  for (auto& [key, matrix] : matrices_) {
    if (!std::exchange(matrix->in_step, false)) continue;
    if (std::exchange(matrix->takes_part, false)) {
      std::swap(matrix->sent, matrix->step);
      matrix->is_sent = true;
    }
    if (std::exchange(matrix->has_next_start, false)) matrix->start.swap(matrix->next_start);
  }
}

void FactorStore::revert() noexcept {
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

std::vector<std::byte> FactorStore::save() const {
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

Result<std::uint64_t> FactorStore::saved_bytes(Bytes state) {
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

Result<std::uint64_t> FactorStore::load(Bytes state) {
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

Status FactorStore::load_weighted(std::span<const WeightedState> states, std::span<const Named> tensors) {
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
      return broken(ErrorCode::kMismatch, "'" + matrix->name + "' of " +
                                              std::to_string(matrix->shape.elements()) +
                                              " elements is none that the job exchanges; load them into the "
                                              "model that they were saved with");
    }
    RETURN_IF_ERROR(add_weighted(saved, each.weight, sums));
  }
  for (const auto& [key, matrix] : matrices_) {
    const std::vector<double>& sum = sums[matrix.get()];
    std::ranges::transform(sum, matrix->kept.begin(), [](double value) { return static_cast<float>(value); });
    if (all_finite(matrix->kept)) continue;
    return broken(ErrorCode::kRange, "what waits of '" + matrix->name + "' is too large in sum");
  }
  return {};
}

Status FactorStore::add_weighted(const FactorStore& share, double weight, Sums& sums) {
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

Result<FactorStore::Matrices> FactorStore::read_all(Bytes body) const {
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

Result<std::unique_ptr<FactorStore::Matrix>> FactorStore::read_one(Bytes& rest) const {
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

}  // namespace deltawire
