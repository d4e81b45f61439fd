#include "reduce/patterns/powersgd_testing.h"

#include <algorithm>
#include <bit>

#include <gtest/gtest.h>

#include "base/little_endian.h"
#include "base/random.h"
#include "deltawire/channel.h"
#include "reduce/patterns/low_rank.h"
#include "wire/hashes.h"

namespace deltawire::testing {
namespace {

constexpr std::uint32_t kRank = 4;
using Values = std::vector<float>;

std::uint64_t hash_of(const std::string& name) {
  return digest64(std::as_bytes(std::span(name)), 0);
}

bool is_zero(const Values& values) {
  return std::ranges::all_of(values, [](float value) { return value == 0.0F; });
}

}  // namespace

std::uint64_t ShapedTensor::elements() const {
  std::uint64_t product = 1;
  for (const std::uint64_t dim : dims) product *= dim;
  return product;
}

const std::vector<ShapedTensor>& shaped_tensors() {
  static const std::vector<ShapedTensor> all{
      {"conv.weight", {40, 6, 5, 5}, true},
      {"conv.bias", {40}},
      {"fc.weight", {300, 101}, true},
      {"fc.bias", {300}},
      {"small", {12, 12}},
      {"wide", {5, 90}, true},
      {"thin", {4, 200}},
      {"row", {1, 500}},
      {"scalar", {}},
      {"empty", {0, 7}},
      {"tall", {257, 6}, true},
  };
  return all;
}

std::vector<Named> named_shaped(Tensors& tensors) {
  std::vector<Named> all;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Named named{shaped_tensors()[i].name, {tensors[i].data(), tensors[i].size(), DType::kF32}, 0};
    named.tensor.dims = shaped_tensors()[i].dims;
    all.push_back(named);
  }
  return all;
}

Tensors shaped_gradients(int rank, std::uint64_t step) {
  Tensors all;
  for (std::size_t i = 0; i < shaped_tensors().size(); ++i) {
    CounterRng rng(1000 * step + static_cast<std::uint64_t>(rank), i);
    Values& values = all.emplace_back(shaped_tensors()[i].elements());
    for (float& value : values) {
      const double u = rng.next_uniform() - 0.5;
      value = static_cast<float>(u * u * u);
    }
  }
  return all;
}

// As `direct` forms a mean: shares in rank order, then the mean, each through the codec. No part of these
// tests is cut.
Values PowerSgdModel::exchange(const std::string& name, const std::vector<Values>& shares,
                               std::uint64_t step) const {
  const auto relay = [&](const Values& from, Values& to, Into into, float scale) {
    const auto channel = *make_channel(codec_);
    const Named part{name, {const_cast<float*>(from.data()), from.size(), DType::kF32}, 0};
    const Named slot{name, {to.data(), to.size(), DType::kF32}, 0};
    const MessageId id{.step = step, .world = 1};
    const auto pieces = channel->encode(std::span(&part, 1), id);
    ASSERT_TRUE(pieces) << pieces.error().message;
    const auto decoded = channel->decode(join(*pieces), std::span(&slot, 1), id, into, scale);
    ASSERT_TRUE(decoded) << decoded.error().message;
  };
  Values sum(shares[0].size(), 0.0F);
  for (const Values& share : shares) relay(share, sum, Into::kAccumulate, 1.0F / static_cast<float>(world_));
  Values mean(sum.size());
  relay(sum, mean, Into::kOverwrite, 1.0F);
  return mean;
}

PowerSgdModel::Matrix& PowerSgdModel::matrix_of(std::size_t tensor) {
  const ShapedTensor& shaped = shaped_tensors()[tensor];
  const auto [found, is_new] = matrices_.try_emplace(tensor);
  if (is_new) {
    found->second.residuals.assign(static_cast<std::size_t>(world_), Values(shaped.elements(), 0.0F));
    found->second.start.resize(kRank * shaped.columns());
    low_rank::draw(CounterRng(hash_of(shaped.name), 0x51), found->second.start);
  }
  return found->second;
}

Values PowerSgdModel::mean_of_matrix(const std::vector<Values>& inputs, std::size_t tensor,
                                     std::uint64_t step) {
  const ShapedTensor& shaped = shaped_tensors()[tensor];
  const low_rank::Shape shape{shaped.rows(), shaped.columns(), kRank};
  Matrix& matrix = matrix_of(tensor);
  std::vector<Values> ps;
  std::vector<Values> qs;
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    Values& p = ps.emplace_back(shape.p_elements(), 0.0F);
    if (is_zero(inputs[r])) continue;
    for (std::size_t i = 0; i < inputs[r].size(); ++i) matrix.residuals[r][i] += inputs[r][i];  // M
    low_rank::multiply(shape, matrix.residuals[r].data(), matrix.start.data(), p.data());
  }
  Values p = exchange(shaped.name + "/P", ps, step);
  low_rank::orthonormalize(shape, p.data(), CounterRng(hash_of(shaped.name), step).at(0));
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    Values& q = qs.emplace_back(shape.q_elements(), 0.0F);
    if (is_zero(inputs[r])) continue;
    low_rank::multiply_transposed(shape, matrix.residuals[r].data(), p.data(), q.data());
    Values sent(shape.elements());
    low_rank::multiply_factors(shape, p.data(), q.data(), sent.data());
    for (std::size_t i = 0; i < sent.size(); ++i) matrix.residuals[r][i] -= sent[i];
  }
  const Values q = exchange(shaped.name + "/Q", qs, step);
  Values mean(shape.elements());
  low_rank::multiply_factors(shape, p.data(), q.data(), mean.data());
  if (!is_zero(q)) {
    matrix.start = q;
    low_rank::normalize_exponents(shape, matrix.start.data());
  }
  return mean;
}

void PowerSgdModel::add(const std::vector<Values>& shares, std::vector<Values>& sums) {
  for (std::size_t r = 0; r < shares.size(); ++r) {
    for (std::size_t i = 0; i < shares[r].size(); ++i) sums[r][i] += shares[r][i];
  }
}

Tensors PowerSgdModel::mean(const std::vector<Tensors>& inputs, std::uint64_t step) {
  Tensors means;
  for (std::size_t t = 0; t < shaped_tensors().size(); ++t) {
    std::vector<Values> shares;
    for (const Tensors& input : inputs) shares.push_back(input[t]);
    const ShapedTensor& shaped = shaped_tensors()[t];
    if (const auto waiting = waiting_.extract(t)) add(waiting.mapped(), shares);
    if (shaped.is_compressed) {
      means.push_back(mean_of_matrix(shares, t, step));
    } else {
      means.push_back(shaped.elements() == 0 ? Values{} : exchange(shaped.name, shares, step));
    }
  }
  return means;
}

void PowerSgdModel::fold(const std::vector<Tensors>& inputs) {
  for (std::size_t t = 0; t < shaped_tensors().size(); ++t) {
    std::vector<Values> shares;
    for (const Tensors& input : inputs) shares.push_back(input[t]);
    if (shaped_tensors()[t].is_compressed) {
      add(shares, matrix_of(t).residuals);
    } else if (const auto [waiting, is_new] = waiting_.try_emplace(t, shares); !is_new) {
      add(shares, waiting->second);
    }
  }
}

Values PowerSgdModel::residual(int rank, std::size_t tensor) const {
  const auto found = matrices_.find(tensor);
  return found == matrices_.end() ? Values{} : found->second.residuals[static_cast<std::size_t>(rank)];
}

std::map<std::string, Values> saved_residuals(const std::vector<std::byte>& state) {
  std::map<std::string, Values> all;
  const std::uint32_t rank = load_le<std::uint32_t>(state.data() + 12);
  const std::byte* at = state.data() + 28;
  for (auto left = load_le<std::uint32_t>(state.data() + 24); left > 0; --left) {
    const std::uint64_t name_bytes = load_le<std::uint32_t>(at);
    const auto rows = load_le<std::uint64_t>(at + 4);
    const auto columns = load_le<std::uint64_t>(at + 12);
    const std::string name(reinterpret_cast<const char*>(at + 24), name_bytes);
    at += 24 + name_bytes;
    for (std::uint64_t i = 0; i < rows * columns; ++i) {
      all[name].push_back(std::bit_cast<float>(load_le<std::uint32_t>(at + 4 * i)));
    }
    at += 4 * (rows * columns + rank * columns);
  }
  return all;
}

}  // namespace deltawire::testing
