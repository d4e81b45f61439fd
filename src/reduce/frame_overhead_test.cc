// What frames cost on top of the payload: docs/reference/format.md, "What a frame costs", has these figures.
#include <array>
#include <atomic>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "deltawire/frame.h"
#include "reduce/forwarding_transport_testing.h"
#include "reduce/rank_threads_testing.h"

namespace deltawire::frame_overhead_test {
namespace {

constexpr int kWorld = 4;
// lab/models/lenet.py: 431,080 parameters in 8 tensors.
constexpr std::array<std::pair<std::string_view, std::size_t>, 8> kLeNet5{{{"conv1.weight", 500},
                                                                           {"conv1.bias", 20},
                                                                           {"conv2.weight", 25000},
                                                                           {"conv2.bias", 50},
                                                                           {"fc1.weight", 400000},
                                                                           {"fc1.bias", 500},
                                                                           {"fc2.weight", 5000},
                                                                           {"fc2.bias", 10}}};

// Takes apart the frames of every message that leaves.
class FrameMeter final : public ForwardingTransport {
 public:
  FrameMeter(Transport& inner, std::atomic<std::uint64_t>& overhead)
      : ForwardingTransport(inner), overhead_(overhead) {}

  Handle post_send(int peer, Tag tag, std::span<const Bytes> pieces) override {
    std::vector<std::byte> message;
    for (const Bytes piece : pieces) message.insert(message.end(), piece.begin(), piece.end());
    for (Bytes rest(message); !rest.empty();) {
      Result<FrameReader> frame = FrameReader::open(rest);
      if (!frame) {
        ADD_FAILURE() << frame.error().message;
        break;
      }
      overhead_ += frame->frame_bytes();
      while (frame->segments_left() > 0) {
        const auto segment = frame->next();
        if (!segment) return Handle::kNone;
        overhead_ -= segment->part.payload.size();
      }
      rest = rest.subspan(frame->frame_bytes());
    }
    return ForwardingTransport::post_send(peer, tag, pieces);
  }

 private:
  std::atomic<std::uint64_t>& overhead_;
};

// Bytes of all ranks in step 0, in one bucket.
std::uint64_t overhead_of(const std::string& spec) {
  std::atomic<std::uint64_t> overhead = 0;
  run_ranks(kWorld, {}, [&](int rank, Transport& inner) {
    FrameMeter transport(inner, overhead);
    std::vector<std::vector<float>> values;
    std::vector<Named> tensors;
    for (const auto& [name, count] : kLeNet5) {
      const CounterRng random(count, static_cast<std::uint64_t>(rank));
      values.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i) {
        values.back()[i] = static_cast<float>(random.uniform_at(i) - 0.5);
      }
      tensors.push_back({name, {values.back().data(), count, DType::kF32}, 0});
    }
    const auto reducer = reducer_of(spec);
    const auto report = reducer->all_reduce(tensors, {}, transport, in_seconds(20));
    EXPECT_TRUE(report) << report.error().message;
  });
  return overhead;
}

TEST(FrameOverhead, OfLeNet5) {
  const std::vector<std::pair<std::string, std::uint64_t>> wanted{
      {"direct(fp32)", 4008}, {"direct(3lc)", 4254}, {"ring(fp32)", 2040},      {"ring(gcomp)", 1872},
      {"gather(fp32)", 2592}, {"gather(sbc)", 1728}, {"gather(fastsgd)", 2256},
  };
  for (const auto& [spec, bytes] : wanted) EXPECT_EQ(overhead_of(spec), bytes) << spec;
}

}  // namespace
}  // namespace deltawire::frame_overhead_test
