// A bucket of `powersgd` on its way: two rounds of another exchange, one after another.
//
//   start: take the input in, form P, begin the first round: P's, and what travels as it is
//   move:  the first round's moves; one tensor's Q; the second round's moves; one tensor's mean
#pragma once

#include <cstdint>
#include <memory>

#include "base/buffer_pool.h"
#include "reduce/buckets_in_flight.h"
#include "reduce/patterns/factor_store.h"
#include "reduce/patterns/low_rank.h"

namespace deltawire {

struct PowerSgdSettings {
  std::uint32_t rank = 0;
  std::uint64_t min_elements = 0;  // fewer travel as they are
  bool passes_nonfinite = false;
};

// The shape of a tensor that travels as two factors, by these names; no elements for one that travels as it
// is.
low_rank::Shape factors_of(const Named& tensor, const PowerSgdSettings& settings) noexcept;
inline constexpr const char* kFactorNames[] = {"/P", "/Q"};  // behind the tensor's

// What `direct` would send of the tensor, every copy counted.
std::uint64_t elements_sent_whole(const Named& tensor, int rank, int world);

// Each forms the plain mean of the tensors with which it is opened.
struct Rounds {
  std::unique_ptr<BucketExchange> first;
  std::unique_ptr<BucketExchange> second;
};

// Pool and store outlive the exchange.
std::unique_ptr<BucketExchange> make_powersgd_exchange(BufferPool& pool, FactorStore& store,
                                                       const PowerSgdSettings& settings, Rounds rounds);

}  // namespace deltawire
