// What servers and workers have in common: the model's tensors by name, its parts, and the names of messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/server.h"
#include "deltawire/transport.h"

namespace deltawire {

// The messages of one part have one tag for each direction and keep their order; their frames name the step.
enum class Way : std::uint16_t {
  kPush = 0,   // frames of gradients; an empty message says that the worker closes
  kPull = 1,   // a pull's head, then frames of changes; an empty message says that the server closes
  kModel = 2,  // only as a frame's stage, under a pull's tag: the parameters as they are, in fp32
};

// Lets the transport survive the loss of a worker, if the options say so.
void set_optional_workers(const ServerOptions& options, Transport& transport);

class ServedModel {
 public:
  // Errors: those that make_server and make_worker have in common.
  static Result<ServedModel> make(std::span<const Named> model, const ServerOptions& options,
                                  const Transport& transport);

  std::span<const ServedPart> parts() const noexcept { return parts_; }
  std::size_t tensor_count() const noexcept { return tensors_.size(); }
  std::uint64_t elements(std::size_t tensor) const noexcept { return tensors_[tensor].elements; }
  const std::string& name(const ServedPart& part) const noexcept { return tensors_[part.tensor].name; }

  // The part with these values, as channels take it. This object owns its name and dims.
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
};

// The channel for parts as they are: float32, without residuals.
Result<std::unique_ptr<Channel>> make_model_channel();

// The pieces of a message in one piece of memory.
std::vector<std::byte> joined(std::span<const Bytes> pieces);

}  // namespace deltawire
