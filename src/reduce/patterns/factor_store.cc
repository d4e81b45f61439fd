#include "reduce/patterns/factor_store.h"

#include <algorithm>
#include <utility>

#include "base/float_environment.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

constexpr std::uint64_t kStartStream = 0x51;  // of the numbers that a tensor's first Q is drawn from

std::string in_words(const low_rank::Shape& shape) {
  return std::to_string(shape.rows) + " x " + std::to_string(shape.columns);
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
    return fail(ErrorCode::kMismatch, "tensor '" + matrix.name + "' is " + in_words(shape) +
                                          ", but its residual is " + in_words(matrix.shape) +
                                          "; names must keep their shapes");
  }
  if (matrix.in_step) {
    return fail(ErrorCode::kInvalidArgument,
                "tensor '" + matrix.name + "' stands in two buckets of the step; once is enough");
  }
  return &matrix;
}

bool FactorStore::take_in(Matrix& matrix, const float* input, float scale) noexcept {
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

}  // namespace deltawire
