// What servers and workers know alike: the model's tensors by name, its parts, and how messages are named.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/server.h"
#include "deltawire/transport.h"

namespace deltawire {

// Messages of one part have one tag a direction and keep their order; their frames name the step.
enum class Way : std::uint16_t {
  kPush = 0,   // frames of gradients; an empty message: the worker closes
  kPull = 1,   // a PullHead's bytes, then frames of changes; an empty message: the server closes
  kModel = 2,  // in a frame's stage alone, with a pull's tag: the parameters as they are, fp32
};

// What became of a worker's push of a step.
enum class Verdict : std::uint8_t { kLate = 0, kCounted = 1 };

// A pull begins with a head. Of a change: its Verdict's byte. Of the part as it is after some changes, in
// their place: 2, how many changes (u16, little-endian), and the verdicts of their steps, a byte each.
inline constexpr std::size_t kWholeHeadBytes = 3;
inline constexpr std::size_t kVerdictsMax = 0xFFFF;

struct PullHead {
  bool is_whole = false;
  Bytes verdicts;  // one, but for a whole part; a view of the message
  Bytes body;      // likewise

  std::uint64_t steps() const noexcept { return verdicts.size(); }
  Verdict verdict(std::uint64_t at) const noexcept {
    return verdicts[at] == std::byte{0} ? Verdict::kLate : Verdict::kCounted;
  }
};

// Errors: kTruncated, kCorrupt for bytes that are neither.
Result<PullHead> read_pull(Bytes pull);
std::vector<std::byte> pull_head(Verdict verdict);
// REQUIRES: 1 ... kVerdictsMax of them.
std::vector<std::byte> pull_head(const std::deque<Verdict>& verdicts);

// From here on a worker may be lost, where the options say so.
void set_optional_workers(const ServerOptions& options, Transport& transport);

class ServedModel {
 public:
  // Errors: those that make_server and make_worker share.
  static Result<ServedModel> make(std::span<const Named> model, const ServerOptions& options,
                                  const Transport& transport);

  std::span<const ServedPart> parts() const noexcept { return parts_; }
  std::size_t tensor_count() const noexcept { return tensors_.size(); }
  std::uint64_t elements(std::size_t tensor) const noexcept { return tensors_[tensor].elements; }
  const std::string& name(const ServedPart& part) const noexcept { return tensors_[part.tensor].name; }
  int workers() const noexcept { return world_ - servers_; }
  int servers() const noexcept { return servers_; }

  // The part with these values as its own, as channels know it. The name and dims are this object's.
  Named part_of(const ServedPart& part, float* values) const noexcept;

  Tag tag(std::size_t part, Way way) const noexcept {
    return (Tag{part} << 16) | static_cast<std::uint16_t>(way == Way::kPush ? Way::kPush : Way::kPull);
  }
  MessageId message(std::size_t part, Way way, std::uint64_t step, int sender) const noexcept;

 private:
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> dims;
    std::uint64_t elements = 0;
  };

  ServedModel() = default;

  std::vector<Tensor> tensors_;
  std::vector<ServedPart> parts_;
  int world_ = 0;
  int servers_ = 0;
};

// The channel that the model travels in before the first step: float32, nothing kept.
Result<std::unique_ptr<Channel>> make_model_channel();

std::vector<std::byte> joined(std::span<const Bytes> pieces);

}  // namespace deltawire
