// For tests of reducers, on any transport: gradients that every rank can make for every other, and the
// arithmetic of each pattern without transport, threads or buckets, which reducers must equal bit for bit.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/brief_testing.h"
#include "deltawire/reducer.h"
#include "reduce/patterns/owners.h"

namespace deltawire::testing {

using Tensors = std::vector<std::vector<float>>;

// Empty, single, small and large tensors; some are cut among the ranks.
const std::vector<std::uint64_t>& tensor_counts();
std::vector<std::string> tensor_names();

// A rank's gradients in a step. Each has a few values far larger than the rest, and some zeros.
Tensors gradients(int rank, std::uint64_t step);

std::vector<Named> named(Tensors& tensors, const std::vector<std::string>& names);

std::vector<std::byte> join(std::span<const Bytes> pieces);

// What a pattern owes, part after part and rank after rank.
class SequentialPattern {
 public:
  virtual ~SequentialPattern() = default;

  // The means of a step, given every rank's tensors, with the first of the names above.
  virtual Tensors mean(const std::vector<Tensors>& inputs, std::uint64_t step) = 0;
};

// Of a spec with its pattern written out, such as "ring(int8)". Parts of `direct` and `gather` have at most
// `most_elements`.
std::unique_ptr<SequentialPattern> make_sequential(std::string_view spec, int world,
                                                   std::uint64_t most_elements = kMostElements);

// The means of a few steps of a reducer: what `world` ranks must get that hand in gradients(). Formed once
// for all. The second step has residuals; what a third adds is left to the whole.
std::vector<Tensors> reference_means(SequentialPattern& reference, int world,
                                     std::uint64_t steps = whole_or_brief(3U, 2U));

// As many steps of the reducer on this rank, each compared with its mean; every rank calls it.
void expect_means(Reducer& reducer, const std::vector<Tensors>& means, Transport& transport);

// "ring(fp32)" and the like: every pattern with codecs of every kind.
std::vector<std::string> reducer_specs();

}  // namespace deltawire::testing
