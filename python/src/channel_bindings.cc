// One direction of updates with its residuals, for programs that carry the bytes themselves.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "bucket_bindings.h"
#include "byte_arrays.h"
#include "deltawire/channel.h"
#include "deltawire/frame.h"
#include "python_error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deltawire::python {
namespace {

MessageId message_id(std::uint64_t step, std::uint16_t rank, std::uint16_t world, float scale) {
  return MessageId{.step = step, .rank = rank, .world = world, .scale = scale};
}

struct ChannelHandle {
  std::unique_ptr<Channel> channel;
};

void make(ChannelHandle* self, const std::string& codecs, std::uint64_t min_elements, std::string_view revert,
          bool error_feedback, std::uint64_t seed, bool means) {
  const ChannelOptions options{.policy = {min_elements},
                               .revert = revert_called(revert),
                               .error_feedback = error_feedback,
                               .means = means,
                               .seed = seed};
  new (self) ChannelHandle{value_or_raise(make_channel(codecs, options))};
}

std::uint64_t message_bound(const ChannelHandle& self, const std::vector<TypedTensorAt>& arrays,
                            std::uint64_t step) {
  return self.channel->message_bound(named_all(arrays), step);
}

std::uint64_t encode_to(ChannelHandle& self, const std::vector<TypedTensorAt>& arrays, const MessageId& id,
                        MutBytes out) {
  const std::vector<Named> parts = named_all(arrays);
  return run_without_gil([&] { return self.channel->encode_to(parts, id, out); });
}

nb::bytes encode(ChannelHandle& self, const std::vector<TypedTensorAt>& arrays, std::uint64_t step,
                 std::uint16_t rank, std::uint16_t world, float scale) {
  NewBytes message(message_bound(self, arrays, step));
  const std::uint64_t written = encode_to(self, arrays, message_id(step, rank, world, scale), message.room());
  return std::move(message).cut(written);
}

void decode(ChannelHandle& self, const BytesIn& message, const std::vector<TypedTensorAt>& arrays,
            const std::tuple<std::uint64_t, std::uint16_t, std::uint16_t>& from, bool accumulate, float scale,
            float message_scale) {
  const std::vector<Named> parts = named_all(arrays);
  const auto [step, rank, world] = from;
  const MessageId id = message_id(step, rank, world, message_scale);
  const Into into = accumulate ? Into::kAccumulate : Into::kOverwrite;
  run_without_gil(
      [&] { return self.channel->decode(bytes_of(message), MessageLayout(parts), id, into, scale); });
}

// Of the first frame, whose checksum is verified.
std::tuple<std::uint64_t, std::uint16_t, std::uint16_t, float> sender(const BytesIn& message) {
  const MessageId id = value_or_raise(FrameReader::open(bytes_of(message))).header().message;
  return {id.step, id.rank, id.world, id.scale};
}

nb::bytes residual(const ChannelHandle& self, std::string_view name) {
  const std::span<const float> values = self.channel->residual(name, 0);
  return nb::bytes(values.data(), values.size_bytes());
}

}  // namespace

void bind_channels(nb::module_& module) {
  nb::class_<ChannelHandle>(module, "Channel", "Codecs, policy and residuals. One thread at a time.")
      .def("__init__", &make, "codecs"_a, "min_elements"_a, "revert"_a, "error_feedback"_a, "seed"_a,
           "means"_a = false,
           "codecs: a codec spec or rules; revert: 'exact' or 'fold'; means: it codes means, by `pull`.")
      .def_prop_ro("spec", [](const ChannelHandle& self) { return self.channel->spec(); })
      .def("encode", &encode, "arrays"_a, "step"_a, "rank"_a, "world"_a, "scale"_a,
           "One message of the step that is open then: (name, address, bytes, shape, dtype's name) of each "
           "array. Releases the GIL.")
      .def(
          "encode_to",
          [](ChannelHandle& self, const std::vector<TypedTensorAt>& arrays, std::uint64_t step,
             std::uint16_t rank, std::uint16_t world, float scale, const BytesInPlace& out) {
            return encode_to(self, arrays, message_id(step, rank, world, scale), bytes_of(out));
          },
          "arrays"_a, "step"_a, "rank"_a, "world"_a, "scale"_a, "out"_a,
          "The same into memory of the caller's; returns the message's length. Releases the GIL.")
      .def("message_bound", &message_bound, "arrays"_a, "step"_a, "The most bytes that a message takes.")
      .def("decode", &decode, "message"_a, "arrays"_a, "sender"_a, "accumulate"_a, "scale"_a,
           "message_scale"_a,
           "Into the arrays: values times scale; sender: (step, rank, world) that is due. Releases the GIL.")
      .def(
          "commit", [](ChannelHandle& self) { self.channel->commit(); }, "What was encoded has arrived.")
      .def(
          "revert", [](ChannelHandle& self) { self.channel->revert(); }, "It has not.")
      .def("residual", &residual, "name"_a, "float32 as bytes; empty where there is none.")
      .def(
          "save", [](const ChannelHandle& self) { return given(value_or_raise(self.channel->save())); },
          "The residuals, between steps.")
      .def(
          "load",
          [](ChannelHandle& self, const BytesIn& state) {
            value_or_raise(self.channel->load(bytes_of(state)));
          },
          "state"_a, "Replaces the residuals by saved ones, or raises and changes nothing.");
  module.def("message_sender", &sender, "message"_a,
             "(step, rank, world, scale) that a message says of itself.");
}

}  // namespace deltawire::python
