// Channels through the C interface.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "call.h"
#include "deltawire/channel.h"
#include "deltawire/deltawire.h"

using namespace deltawire;     // NOLINT(google-build-using-namespace)
using namespace deltawire::c;  // NOLINT(google-build-using-namespace)

struct deltawire_channel {
  std::unique_ptr<Channel> channel;
};

namespace {

std::vector<Named> tensors_for(const deltawire_channel* channel, const deltawire_tensor* tensors,
                               std::uint32_t count) {
  require(channel, "the channel");
  return named_tensors(tensors, count);
}

ChannelOptions options_of(const deltawire_channel_options& given) {
  check_abi_version(given.abi_version, "deltawire_channel_options");
  if (std::ranges::any_of(given.reserved, [](std::uint64_t field) { return field != 0; })) {
    refuse("deltawire_channel_options: reserved is not 0");
  }
  ChannelOptions options;
  options.error_feedback = flag(given.error_feedback, "error_feedback");
  options.revert = flag(given.fold_revert, "fold_revert") ? Revert::kFold : Revert::kExact;
  const bool passes = flag(given.pass_not_finite, "pass_not_finite");
  options.policy = {given.min_elements, passes ? NonFinite::kPass : NonFinite::kError};
  options.seed = given.seed;
  return options;
}

MessageId id_of(const deltawire_message* message) {
  require(message, "the message");
  if (message->reserved != 0) {
    refuse("the message's reserved is not 0; set the whole struct to 0 before you fill it");
  }
  return MessageId{.step = message->step,
                   .rank = message->rank,
                   .world = message->world_size,
                   .bucket = message->bucket,
                   .stage = message->stage,
                   .scale = message->scale};
}

}  // namespace

extern "C" {

std::int32_t deltawire_channel_options_init(deltawire_channel_options* options, std::uint32_t abi_version,
                                            deltawire_error* error) {
  return call(error, [&] {
    init(options, abi_version, "deltawire_channel_options_init");
    const ChannelOptions defaults;
    options->error_feedback = 1;
    options->min_elements = defaults.policy.min_elements;
  });
}

std::int32_t deltawire_channel_open(const char* rules, const deltawire_channel_options* options,
                                    deltawire_channel** channel, deltawire_error* error) {
  return call(error, [&] {
    require(channel, "channel");
    *channel = nullptr;
    require(rules, "rules");
    const ChannelOptions chosen = options != nullptr ? options_of(*options) : ChannelOptions{};
    *channel = new deltawire_channel{value_of(make_channel(rules, chosen))};
  });
}

void deltawire_channel_close(deltawire_channel* channel) {
  delete channel;
}

const char* deltawire_channel_spec(const deltawire_channel* channel) {
  return channel == nullptr ? nullptr : channel->channel->spec().c_str();
}

std::int32_t deltawire_channel_bound(const deltawire_channel* channel, const deltawire_tensor* tensors,
                                     std::uint32_t tensor_count, std::uint64_t step,
                                     std::uint64_t* message_bytes, deltawire_error* error) {
  return call(error, [&] {
    require(message_bytes, "message_bytes");
    const std::vector<Named> parts = tensors_for(channel, tensors, tensor_count);
    *message_bytes = channel->channel->message_bound(parts, step);
  });
}

std::int32_t deltawire_channel_encode(deltawire_channel* channel, const deltawire_tensor* tensors,
                                      std::uint32_t tensor_count, const deltawire_message* message, void* out,
                                      std::uint64_t capacity, std::uint64_t* message_bytes,
                                      deltawire_error* error) {
  return call(error, [&] {
    const std::vector<Named> parts = tensors_for(channel, tensors, tensor_count);
    const MessageId id = id_of(message);
    require(message_bytes, "message_bytes");
    require(out, "out");
    const MutBytes room(static_cast<std::byte*>(out), capacity);
    *message_bytes = value_of(channel->channel->encode_to(parts, id, room));
  });
}

std::int32_t deltawire_channel_decode(deltawire_channel* channel, const void* bytes, std::uint64_t byte_count,
                                      const deltawire_tensor* tensors, std::uint32_t tensor_count,
                                      const deltawire_message* expected, std::int32_t into, float scale,
                                      deltawire_error* error) {
  return call(error, [&] {
    const std::vector<Named> parts = tensors_for(channel, tensors, tensor_count);
    const MessageId id = id_of(expected);
    const Bytes message = bytes_at(bytes, byte_count, "bytes");
    value_of(channel->channel->decode(message, parts, id, into_of(into), scale));
  });
}

std::int32_t deltawire_channel_commit(deltawire_channel* channel, deltawire_error* error) {
  return call(error, [&] {
    require(channel, "the channel");
    channel->channel->commit();
  });
}

std::int32_t deltawire_channel_revert(deltawire_channel* channel, deltawire_error* error) {
  return call(error, [&] {
    require(channel, "the channel");
    channel->channel->revert();
  });
}

std::int32_t deltawire_channel_residual(const deltawire_channel* channel, const char* name,
                                        const float** values, std::uint64_t* count, deltawire_error* error) {
  return call(error, [&] {
    require(channel, "the channel");
    require(name, "name");
    require(values, "values");
    require(count, "count");
    const std::span<const float> residual = channel->channel->residual(name, 0);
    *values = residual.data();
    *count = residual.size();
  });
}

std::int32_t deltawire_channel_save(const deltawire_channel* channel, deltawire_bytes** state,
                                    deltawire_error* error) {
  return call(error, [&] {
    require(state, "state");
    *state = nullptr;
    require(channel, "the channel");
    *state = new deltawire_bytes{value_of(channel->channel->save())};
  });
}

std::int32_t deltawire_channel_load(deltawire_channel* channel, const void* state, std::uint64_t state_bytes,
                                    deltawire_error* error) {
  return call(error, [&] {
    require(channel, "the channel");
    value_of(channel->channel->load(bytes_at(state, state_bytes, "state")));
  });
}

}  // extern "C"
