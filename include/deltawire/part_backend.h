// A backend encodes and decodes the parts of a reducer in place of the CPU, on a device whose memory holds
// tensors, means and residuals. Everything else (frames, sends, votes, failures) stays with the reducer,
// which only sees payloads. A reducer without a backend (ReducerOptions::backend) codes on the CPU.
//
// This interface is new and may change. Its only implementation is deltawire.torch's, over codecs' twins.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "deltawire/codec.h"
#include "deltawire/export.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

// float32 values in a device's memory, which the last copy frees. Addresses on a device are numbers to the
// reducer: it adds offsets to them, and reads nothing there.
using DeviceFloats = std::shared_ptr<float>;

// A part to encode, and the result.
struct EncodeJob {
  const Codec* codec = nullptr;
  TensorView in;                  // on the device, as its significance is; dense
  const float* before = nullptr;  // the residual, on the device; null: no error feedback
  float* after = nullptr;         // where the new one goes: disjoint memory on the device
  double factor = 1;              // the residual is multiplied by it first, and rounded once
  std::uint64_t stream = 0;       // of the codec's random numbers (Exec::stream)
  DType carrier = DType::kF32;    // a dtype of 16 bits: check that it carries every value
  PartBuffer out = {};            // in the host's memory

  // As Codec::encode returns it; kRange also for a residual that `factor` takes beyond float32.
  Result<EncodedPart> encoded = {};
  bool is_zeros = false;  // all values of `in` are zeros. `encoded` need not be given then
  bool carries = false;   // with `carrier`: it rounds no value to infinity, and its codec refuses none
};

// A part to decode, and the result.
struct DecodeJob {
  const Codec* codec = nullptr;
  PartView in;            // in the host's memory
  TensorSlot slot;        // on the device, float32
  std::string_view part;  // its name, and the rank whose message it is in: for an error that is found later
  int sender = 0;
  Status decoded = {};  // as Codec::decode returns it, as far as the host can see
};

// The mean of a tensor, and the caller's tensor: both on the device.
struct DeviceMean {
  float* mean = nullptr;
  TensorSlot tensor;
};

// Facts about means that must be known before a step may be committed.
struct MeanFacts {
  static constexpr std::size_t kNone = ~std::size_t{0};

  std::array<std::uint64_t, 2> sums{};  // a digest; any order of summation gives the same
  bool finite = true;
  std::size_t beyond = kNone;  // the first tensor with a mean that its dtype can't hold,
  float beyond_value = 0;      // and that mean
};

// Thread rule: one call at a time, from whichever thread; give-backs of DeviceFloats at any time. Calls run
// in their order on the device. All ranks of a job have a backend, or none has: digests differ.
class DELTAWIRE_API PartBackend {
 public:
  virtual ~PartBackend() = default;

  virtual Result<DeviceFloats> allocate(std::uint64_t count) = 0;  // zeros
  virtual Status fill(float* at, std::uint64_t count, float value) = 0;
  virtual Status upload(std::span<const float> values, float* to) = 0;
  virtual Status download(const float* from, std::span<float> values) = 0;

  // Each mean becomes its tensor's values times `factor`, a product of float32, which is rounded once.
  virtual Status load(std::span<const DeviceMean> means, float factor) = 0;

  // Encodes all jobs and waits for them. The error is the device's; those of jobs are in the jobs.
  virtual Status encode(std::span<EncodeJob> jobs) = 0;
  // Need not wait: an error that the device finds in a part may be that of the next `examine`. The payloads
  // are read before it returns.
  virtual Status decode(std::span<DecodeJob> jobs, Into into, float scale) = 0;

  // The error of a decoded part has its sender as the suspect.
  virtual Result<MeanFacts> examine(std::span<const DeviceMean> means) = 0;
  // A step was reverted: errors in its parts no longer matter.
  virtual void forget_decoded() noexcept {}
  // Each mean is written to its tensor, rounded once. The step counts by then: an error is returned by the
  // next call, and reported to the owner of the tensors.
  virtual void publish(std::span<const DeviceMean> means) noexcept = 0;

 protected:
  PartBackend() = default;
  PartBackend(const PartBackend&) = default;
  PartBackend& operator=(const PartBackend&) = default;
};

}  // namespace deltawire
