#include "reduce/patterns/powersgd_exchange.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "base/checked.h"
#include "base/errors.h"
#include "base/float16.h"
#include "base/float_environment.h"
#include "base/values.h"
#include "codecs/spec_string.h"
#include "reduce/bucket_run.h"
#include "reduce/patterns/owners.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

constexpr std::uint16_t kFirstRound = 0;
constexpr std::uint16_t kSecondRound = 1;

// Of a tensor that is a matrix as a whole, its first dim by the product of the others; no elements for
// others.
low_rank::Shape shape_of(const Named& tensor, std::uint32_t rank) noexcept {
  const auto dims = tensor.tensor.dims;
  if (dims.size() < 2 || tensor.first != 0 || tensor.elements_of_whole != 0) return {};
  std::uint64_t columns = 1;
  for (const std::uint64_t dim : dims.subspan(1)) columns = product_or_max(columns, dim);
  // Dims that contradict the count are the codec's to refuse.
  if (product_or_max(dims[0], columns) != tensor.tensor.count) return {};
  return {dims[0], columns, rank};
}

class PowerSgdExchange final : public BucketExchange {
 public:
  PowerSgdExchange(BufferPool& pool, FactorStore& store, const PowerSgdSettings& settings, Rounds rounds)
      : BucketExchange(pool),
        pool_(pool),
        store_(store),
        settings_(settings),
        first_(std::move(rounds.first)),
        second_(std::move(rounds.second)) {}

  Status start(bool is_oldest) override {
    if (!std::isfinite(run_.step().scale) || run_.step().scale <= 0.0F) {
      return invalid("the scale " + std::to_string(run_.step().scale) + " must be finite and above 0");
    }
    for (Compressed& compressed : compressed_) {
      ASSIGN_OR_RETURN(compressed.matrix, store_.obtain(tensor_of(compressed), compressed.shape));
    }
    for (std::size_t i = 0; i < compressed_.size(); ++i) {
      first_tensors_[i].tensor.values = compressed_[i].matrix->step.p.data();
      second_tensors_[i].tensor.values = compressed_[i].matrix->step.q.data();
    }
    first_->open(first_tensors_, run_.step(), run_.transport(), run_.deadline(), kFirstRound);
    RETURN_IF_ERROR(first_->prepare());
    is_prepared_ = true;
    Status taken;
    {
      const Stopwatch timer(run_.report(), Stopwatch::Phase::kEncode);
      for (Compressed& compressed : compressed_) {
        // After an error the others are taken in all the same: a folding revert keeps a bucket whole.
        Status own = take_in(compressed);
        if (!own && taken) taken = std::move(own);
      }
    }
    return taken ? first_->start(is_oldest) : taken;
  }

  Result<Progress> move(bool is_oldest) override {
    switch (phase_) {
      case Phase::kFirst: return move_round(*first_, is_oldest, Phase::kFactors);
      case Phase::kFactors:
        if (next_ < compressed_.size()) {
          RETURN_IF_ERROR(form_second(compressed_[next_++]));
          return Progress::moved();
        }
        phase_ = Phase::kSecond;
        second_->open(second_tensors_, run_.step(), run_.transport(), run_.deadline(), kSecondRound);
        RETURN_IF_ERROR(second_->start(is_oldest));
        return Progress::moved();
      case Phase::kSecond: return move_round(*second_, is_oldest, Phase::kMeans);
      case Phase::kMeans: break;
    }
    if (next_ == 0) tensors_.stage();
    if (next_ < compressed_.size()) {
      RETURN_IF_ERROR(form_mean(compressed_[next_++]));
      return Progress::moved();
    }
    copy_uncompressed();
    collect_reports();
    return Progress::done();
  }

  void more_awaited(std::vector<Handle>& handles) const override {
    (phase_ == Phase::kFirst ? first_ : second_)->more_awaited(handles);
  }

  void keep_unsent() noexcept override {
    if (is_prepared_) first_->keep_unsent();
  }

  void give_back() noexcept override {
    tensors_.give_back();
    first_->give_back();
    second_->give_back();
  }

  void drain() noexcept override {
    first_->drain();
    second_->drain();
  }

  void restart_clock() noexcept override {
    run_.restart_clock();
    first_->restart_clock();
    second_->restart_clock();
  }

 private:
  void plan(bool is_known) override {
    phase_ = Phase::kFirst;
    next_ = 0;
    is_prepared_ = false;
    if (!is_known) cut();
    for (std::size_t i = 0; i < uncompressed_.size(); ++i) {
      first_tensors_[compressed_.size() + i] = tensors_.all()[uncompressed_[i]];
    }
    run_.report().raw_bytes = raw_bytes_sent_;
  }

  enum class Phase : std::uint8_t { kFirst, kFactors, kSecond, kMeans };

  // A tensor of the bucket that travels as two factors.
  struct Compressed {
    std::size_t tensor = 0;
    low_rank::Shape shape;
    std::uint64_t first_at = 0;   // where the mean of P begins in the first round's,
    std::uint64_t second_at = 0;  // and that of Q in the second's
    FactorStore::Matrix* matrix = nullptr;
  };

  void cut() {
    compressed_.clear();
    uncompressed_.clear();
    raw_bytes_sent_ = 0;
    std::uint64_t first_at = 0;
    std::uint64_t second_at = 0;
    for (const Named& tensor : tensors_.all()) {
      const auto index = static_cast<std::size_t>(&tensor - tensors_.all().data());
      raw_bytes_sent_ +=
          elements_sent_whole(tensor, run_.rank(), run_.world()) * dtype_bytes(tensor.tensor.dtype);
      const low_rank::Shape shape = factors_of(tensor, settings_);
      if (shape.elements() == 0) {
        uncompressed_.push_back(index);
        continue;
      }
      compressed_.push_back({index, shape, first_at, second_at});
      first_at += shape.p_elements();
      second_at += shape.q_elements();
    }
    names_.assign(2 * compressed_.size(), {});
    dims_.assign(2 * compressed_.size(), {});
    first_tensors_.clear();
    second_tensors_.clear();
    for (std::size_t i = 0; i < compressed_.size(); ++i) {
      const auto add = [&](std::vector<Named>& to, std::size_t at, const char* factor, std::uint64_t length) {
        names_[at] = std::string(tensor_of(compressed_[i]).name) + factor;
        dims_[at] = {settings_.rank, length};
        Named& named = to.emplace_back();
        named.name = names_[at];
        named.tensor.count = settings_.rank * length;
        named.tensor.dims = dims_[at];
        named.is_transient = true;
      };
      add(first_tensors_, 2 * i, kFactorNames[0], compressed_[i].shape.rows);
      add(second_tensors_, 2 * i + 1, kFactorNames[1], compressed_[i].shape.columns);
    }
    first_tensors_.resize(first_tensors_.size() + uncompressed_.size());
  }

  const Named& tensor_of(const Compressed& compressed) const noexcept {
    return tensors_.all()[compressed.tensor];
  }

  // Input that is all zeros is no part of the step, as with a residual's channel: a framework drops the mean
  // of a tensor that no rank has used.
  Status take_in(Compressed& compressed) {
    assert(compressed.matrix != nullptr && !compressed.matrix->in_step);
    FactorStore::Matrix& matrix = *compressed.matrix;
    const TensorSlot& tensor = tensor_of(compressed).tensor;
    const auto* values = static_cast<const float*>(tensor.values);
    BufferPool::Buffer widened;
    if (tensor.dtype != DType::kF32) {
      widened = pool_.take(sizeof(float) * tensor.count);
      const FloatEnvironment environment;
      widen(tensor.values, tensor.dtype, tensor.count, widened.floats().data());
      values = widened.floats().data();
    }
    matrix.in_step = true;
    if (all_zeros(std::span(values, tensor.count))) {
      std::ranges::fill(matrix.step.p, 0.0F);
      return {};
    }
    const FloatEnvironment environment;
    if (!store_.take_in(matrix, values, run_.step().scale)) {
      if (!settings_.passes_nonfinite) return not_finite(compressed, {values, tensor.count});
      std::ranges::fill(matrix.step.p, std::numeric_limits<float>::quiet_NaN());
      return {};
    }
    low_rank::multiply(compressed.shape, matrix.kept.data(), matrix.start.data(), matrix.step.p.data());
    return {};
  }

  tl::unexpected<Error> not_finite(const Compressed& compressed, std::span<const float> values) const {
    const Named& tensor = tensor_of(compressed);
    const auto outside =
        std::ranges::find_if_not(values, [](float value) { return low_rank::all_within({&value, 1}); });
    const auto named = "tensor '" + std::string(tensor.name) + "': ";
    if (outside == values.end()) {
      return fail(ErrorCode::kRange, named +
                                         "the input and what waits of it are too large together, beyond " +
                                         number_text(low_rank::kMost));
    }
    return tl::unexpected<Error>(
        {.code = ErrorCode::kNotFinite,
         .message = printable_line(named + "element " + std::to_string(outside - values.begin()) +
                                   " of the input is " + number_text(*outside) +
                                   ": powersgd carries finite values up to " + number_text(low_rank::kMost)),
         .tensor = std::string(tensor.name),
         .advice = kNotFiniteAdvice});
  }

  // No error where non-finite steps pass: NaN goes through what follows then, to the mean.
  Status too_large(const Compressed& compressed, std::string_view what) const {
    if (settings_.passes_nonfinite) return {};
    return fail(ErrorCode::kRange, "tensor '" + std::string(tensor_of(compressed).name) +
                                       "': " + std::string(what) + " is too large, beyond " +
                                       number_text(low_rank::kMost) + "; scale the input down");
  }

  Result<Progress> move_round(BucketExchange& round, bool is_oldest, Phase next) {
    Result<Progress> progress = round.move(is_oldest);
    if (!progress || progress->kind != Progress::Kind::kDone) return progress;
    round.await_reads();  // what follows replaces its factors
    phase_ = next;
    next_ = 0;
    return Progress::moved();
  }

  // From the mean of P, the same on all ranks: its orthonormal columns, and this rank's Q.
  Status form_second(Compressed& compressed) {
    assert(compressed.matrix != nullptr && compressed.matrix->in_step);
    const Stopwatch timer(run_.report(), Stopwatch::Phase::kEncode);
    const FloatEnvironment environment;
    FactorStore::Matrix& matrix = *compressed.matrix;
    const std::span<const float> mean =
        first_->tensors().means().subspan(compressed.first_at, compressed.shape.p_elements());
    if (!all_finite(mean)) {
      if (Status passes = too_large(compressed, "the matrix times Q"); !passes) return passes;
    } else {
      std::ranges::copy(mean, matrix.step.p.begin());
      const std::uint64_t name = name_hash(tensor_of(compressed));
      low_rank::orthonormalize(compressed.shape, matrix.step.p.data(),
                               CounterRng(name, run_.step().number).at(0));
      if (matrix.takes_part) {
        low_rank::multiply_transposed(compressed.shape, matrix.kept.data(), matrix.step.p.data(),
                                      matrix.step.q.data());
      } else {
        std::ranges::fill(matrix.step.q, 0.0F);
      }
      if (low_rank::all_within(matrix.step.q)) return {};
      RETURN_IF_ERROR(too_large(compressed, "the transposed matrix times P"));
    }
    std::ranges::fill(matrix.step.q, std::numeric_limits<float>::quiet_NaN());
    return {};
  }

  Status form_mean(Compressed& compressed) {
    assert(compressed.matrix != nullptr && compressed.matrix->in_step);
    const Stopwatch timer(run_.report(), Stopwatch::Phase::kDecode);
    const FloatEnvironment environment;
    FactorStore::Matrix& matrix = *compressed.matrix;
    const std::span<const float> q =
        second_->tensors().means().subspan(compressed.second_at, compressed.shape.q_elements());
    const auto out = tensors_.mean_of(compressed.tensor);
    if (!low_rank::all_within(q)) {
      RETURN_IF_ERROR(too_large(compressed, "the mean of Q"));
      std::ranges::fill(out, std::numeric_limits<float>::quiet_NaN());
      return {};
    }
    low_rank::multiply_factors(compressed.shape, matrix.step.p.data(), q.data(), out.data());
    // After a mean of nothing but zeros the next step begins where this one did.
    matrix.has_next_start = !all_zeros(q);
    std::ranges::copy(q, matrix.next_start.begin());
    low_rank::normalize_exponents(compressed.shape, matrix.next_start.data());
    return {};
  }

  void copy_uncompressed() {
    std::uint64_t from = 0;
    for (const Compressed& compressed : compressed_) from += compressed.shape.p_elements();
    for (const std::size_t index : uncompressed_) {
      const std::uint64_t count = tensors_.all()[index].tensor.count;
      std::ranges::copy(first_->tensors().means().subspan(from, count), tensors_.mean_of(index).begin());
      from += count;
    }
  }

  void collect_reports() {
    for (BucketExchange* round : {first_.get(), second_.get()}) {
      const Report& part = round->run().report();
      run_.report().encode_seconds += part.encode_seconds;
      run_.report().exchange_seconds += part.exchange_seconds;
      run_.report().decode_seconds += part.decode_seconds;
      run_.report().bytes_sent += part.bytes_sent;
      const std::size_t room = run_.report().spans.capacity() - run_.report().spans.size();
      const auto spans = std::span(part.spans).first(std::min(room, part.spans.size()));
      run_.report().spans.insert(run_.report().spans.end(), spans.begin(), spans.end());
      round->give_back();
    }
  }

  BufferPool& pool_;
  FactorStore& store_;
  PowerSgdSettings settings_;
  std::unique_ptr<BucketExchange> first_;
  std::unique_ptr<BucketExchange> second_;
  std::vector<Compressed> compressed_;
  std::vector<std::string> names_;                // of P and Q of each
  std::vector<std::vector<std::uint64_t>> dims_;  // as names_
  std::vector<Named> first_tensors_;              // P's, then the uncompressed
  std::vector<Named> second_tensors_;
  std::vector<std::size_t> uncompressed_;  // tensors of the bucket
  std::uint64_t raw_bytes_sent_ = 0;       // by `direct`, uncompressed
  Phase phase_ = Phase::kFirst;
  std::size_t next_ = 0;      // of compressed_, in a phase that goes through them
  bool is_prepared_ = false;  // the first round, which has what travels as it is
};

}  // namespace

low_rank::Shape factors_of(const Named& tensor, const PowerSgdSettings& settings) noexcept {
  const low_rank::Shape shape = shape_of(tensor, settings.rank);
  const bool travels_whole = tensor.tensor.count < settings.min_elements || !low_rank::is_smaller(shape);
  return travels_whole ? low_rank::Shape{} : shape;
}

std::uint64_t elements_sent_whole(const Named& tensor, int rank, int world) {
  std::uint64_t elements = 0;
  for (const OwnedRange& range : owned_ranges(tensor.name, tensor.tensor.count, world)) {
    elements += range.count * static_cast<std::uint64_t>(range.owner == rank ? world - 1 : 1);
  }
  return elements;
}

std::unique_ptr<BucketExchange> make_powersgd_exchange(BufferPool& pool, FactorStore& store,
                                                       const PowerSgdSettings& settings, Rounds rounds) {
  return std::make_unique<PowerSgdExchange>(pool, store, settings, std::move(rounds));
}

}  // namespace deltawire
