// Channels through the C interface.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "call.h"
#include "deltawire/channel.h"
#include "deltawire/deltawire.h"

using deltawire::Channel;
using deltawire::ErrorCode;
using deltawire::forward_error;
using deltawire::Result;
using deltawire::Status;
using namespace deltawire::c;  // NOLINT(google-build-using-namespace)

struct deltawire_channel {
  std::unique_ptr<Channel> channel;
};

namespace {

Status check_channel(const deltawire_channel* channel) {
  return channel == nullptr ? null_argument("the channel") : Status{};
}

Result<std::vector<deltawire::Named>> tensors_for(const deltawire_channel* channel,
                                                  const deltawire_tensor* tensors, std::uint32_t count) {
  if (Status status = check_channel(channel); !status) return forward_error(status);
  return named_tensors(tensors, count);
}

Result<deltawire::ChannelOptions> options_of(const deltawire_channel_options& given) {
  if (Status version = check_abi_version(given.abi_version, "deltawire_channel_options"); !version) {
    return forward_error(version);
  }
  if (std::ranges::any_of(given.reserved, [](std::uint64_t field) { return field != 0; })) {
    return deltawire::fail(ErrorCode::kInvalidArgument, "deltawire_channel_options: reserved is not 0");
  }
  const auto feedback = flag(given.error_feedback, "error_feedback");
  if (!feedback) return forward_error(feedback);
  const auto fold = flag(given.fold_revert, "fold_revert");
  if (!fold) return forward_error(fold);
  const auto pass = flag(given.pass_not_finite, "pass_not_finite");
  if (!pass) return forward_error(pass);
  deltawire::ChannelOptions options;
  options.policy = {given.min_elements, *pass ? deltawire::NonFinite::kPass : deltawire::NonFinite::kError};
  options.revert = *fold ? deltawire::Revert::kFold : deltawire::Revert::kExact;
  options.error_feedback = *feedback;
  options.seed = given.seed;
  return options;
}

Result<deltawire::MessageId> id_of(const deltawire_message* message) {
  if (message == nullptr) return forward_error(null_argument("the message"));
  if (message->reserved != 0) {
    return deltawire::fail(ErrorCode::kInvalidArgument,
                           "the message's reserved is not 0; set the whole struct to 0 before you fill it");
  }
  return deltawire::MessageId{.step = message->step,
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
  return call(error, [&]() -> Status {
    if (options == nullptr) return null_argument("options");
    if (Status version = check_abi_version(abi_version, "deltawire_channel_options_init"); !version) {
      return version;
    }
    const deltawire::ChannelOptions defaults;
    *options = {};
    options->abi_version = abi_version;
    options->error_feedback = 1;
    options->min_elements = defaults.policy.min_elements;
    return {};
  });
}

std::int32_t deltawire_channel_open(const char* rules, const deltawire_channel_options* options,
                                    deltawire_channel** channel, deltawire_error* error) {
  return call(error, [&]() -> Status {
    if (channel == nullptr) return null_argument("channel");
    *channel = nullptr;
    if (rules == nullptr) return null_argument("rules");
    Result<deltawire::ChannelOptions> chosen;
    if (options != nullptr) chosen = options_of(*options);
    if (!chosen) return forward_error(chosen);
    auto made = deltawire::make_channel(rules, *chosen);
    if (!made) return forward_error(made);
    *channel = new deltawire_channel{std::move(*made)};
    return {};
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
  return call(error, [&]() -> Status {
    if (message_bytes == nullptr) return null_argument("message_bytes");
    const auto parts = tensors_for(channel, tensors, tensor_count);
    if (!parts) return forward_error(parts);
    *message_bytes = channel->channel->message_bound(*parts, step);
    return {};
  });
}

std::int32_t deltawire_channel_encode(deltawire_channel* channel, const deltawire_tensor* tensors,
                                      std::uint32_t tensor_count, const deltawire_message* message, void* out,
                                      std::uint64_t capacity, std::uint64_t* message_bytes,
                                      deltawire_error* error) {
  return call(error, [&]() -> Status {
    const auto parts = tensors_for(channel, tensors, tensor_count);
    if (!parts) return forward_error(parts);
    const auto id = id_of(message);
    if (!id) return forward_error(id);
    if (message_bytes == nullptr) return null_argument("message_bytes");
    if (out == nullptr) return null_argument("out");
    const auto written = channel->channel->encode_to(*parts, *id, {static_cast<std::byte*>(out), capacity});
    if (!written) return forward_error(written);
    *message_bytes = *written;
    return {};
  });
}

std::int32_t deltawire_channel_decode(deltawire_channel* channel, const void* bytes, std::uint64_t byte_count,
                                      const deltawire_tensor* tensors, std::uint32_t tensor_count,
                                      const deltawire_message* expected, std::int32_t into, float scale,
                                      deltawire_error* error) {
  return call(error, [&]() -> Status {
    const auto parts = tensors_for(channel, tensors, tensor_count);
    if (!parts) return forward_error(parts);
    const auto id = id_of(expected);
    if (!id) return forward_error(id);
    const auto message = bytes_at(bytes, byte_count, "bytes");
    if (!message) return forward_error(message);
    const auto adds = accumulates(into);
    if (!adds) return forward_error(adds);
    return channel->channel->decode(
        *message, *parts, *id, *adds ? deltawire::Into::kAccumulate : deltawire::Into::kOverwrite, scale);
  });
}

std::int32_t deltawire_channel_commit(deltawire_channel* channel, deltawire_error* error) {
  return call(error, [&]() -> Status {
    if (Status status = check_channel(channel); !status) return status;
    channel->channel->commit();
    return {};
  });
}

std::int32_t deltawire_channel_revert(deltawire_channel* channel, deltawire_error* error) {
  return call(error, [&]() -> Status {
    if (Status status = check_channel(channel); !status) return status;
    channel->channel->revert();
    return {};
  });
}

std::int32_t deltawire_channel_residual(const deltawire_channel* channel, const char* name,
                                        const float** values, std::uint64_t* count, deltawire_error* error) {
  return call(error, [&]() -> Status {
    if (Status status = check_channel(channel); !status) return status;
    if (name == nullptr) return null_argument("name");
    if (values == nullptr) return null_argument("values");
    if (count == nullptr) return null_argument("count");
    const std::span<const float> residual = channel->channel->residual(name, 0);
    *values = residual.data();
    *count = residual.size();
    return {};
  });
}

std::int32_t deltawire_channel_save(const deltawire_channel* channel, deltawire_bytes** state,
                                    deltawire_error* error) {
  return call(error, [&]() -> Status {
    if (state == nullptr) return null_argument("state");
    *state = nullptr;
    if (Status status = check_channel(channel); !status) return status;
    auto saved = channel->channel->save();
    if (!saved) return forward_error(saved);
    *state = new deltawire_bytes{std::move(*saved)};
    return {};
  });
}

std::int32_t deltawire_channel_load(deltawire_channel* channel, const void* state, std::uint64_t state_bytes,
                                    deltawire_error* error) {
  return call(error, [&]() -> Status {
    if (Status status = check_channel(channel); !status) return status;
    const auto bytes = bytes_at(state, state_bytes, "state");
    if (!bytes) return forward_error(bytes);
    return channel->channel->load(*bytes);
  });
}

}  // extern "C"
