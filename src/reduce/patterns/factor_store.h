// What a rank keeps of each matrix that it sends as two factors, from step to step: what has not been sent
// yet, and the Q that the next step begins with. All of a step is taken back, or stands.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/buffer_pool.h"
#include "deltawire/channel.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "reduce/patterns/low_rank.h"

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
  Result<Matrix*> obtain(const Named& tensor, const low_rank::Shape& shape);

  // Of a tensor, what waits for later steps; empty where there is nothing.
  std::vector<float> waiting(const Named& tensor) const;

  // What it holds of a tensor.
  std::uint64_t bytes_of(const Named& tensor) const;

  // The tensor takes part in the open step: kept = input + what waits, in this scale. False if an element is
  // not finite, or too large; then that element is what waited. Takes no memory.
  bool take_in(Matrix& matrix, const float* input, float scale) noexcept;

  void commit() noexcept;
  void revert() noexcept;

  // All matrices as bytes (docs/reference/format.md, "Channel state"), which end with their checksum;
  // between steps.
  std::vector<std::byte> save() const;
  // Replaces everything by what `state` begins with, and returns how long that was; on error (kTruncated,
  // kCorrupt, kUnsupportedVersion, kMismatch for another rank) nothing.
  Result<std::uint64_t> load(Bytes state);
  // How long the matrices are that `state` begins with, as its head says. kTruncated, kCorrupt,
  // kUnsupportedVersion.
  static Result<std::uint64_t> saved_bytes(Bytes state);

  // As Channel::load_weighted, of matrices as save() made them, each of which a state's bytes end with; the Q
  // that the next step begins with is that of the first state. The store is empty before; on error its
  // content is unspecified.
  Status load_weighted(std::span<const WeightedState> states, std::span<const Named> tensors);

 private:
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

  static low_rank::Left what_waits(const Matrix& matrix) noexcept;
  std::unique_ptr<Matrix> make(std::string_view name, const low_rank::Shape& shape) const;
  Status add_weighted(const FactorStore& share, double weight, Sums& sums);
  Result<Matrices> read_all(Bytes body) const;
  Result<std::unique_ptr<Matrix>> read_one(Bytes& rest) const;

  std::uint32_t rank_;
  Revert revert_;
  std::shared_ptr<MemoryMeter> meter_;
  Matrices matrices_;
};

}  // namespace deltawire
