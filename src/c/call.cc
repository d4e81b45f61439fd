#include "call.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace deltawire::c {

namespace {

// The header's numbers are those of the rest of the library.
constexpr bool is(int number, ErrorCode code) {
  return number == static_cast<int>(code);
}
static_assert(is(DELTAWIRE_INVALID_ARGUMENT, ErrorCode::kInvalidArgument) &&
              is(DELTAWIRE_UNKNOWN_CODEC, ErrorCode::kUnknownCodec) &&
              is(DELTAWIRE_UNSUPPORTED_DTYPE, ErrorCode::kUnsupportedDType) &&
              is(DELTAWIRE_NOT_FINITE, ErrorCode::kNotFinite) && is(DELTAWIRE_RANGE, ErrorCode::kRange) &&
              is(DELTAWIRE_OUTPUT_TOO_SMALL, ErrorCode::kOutputTooSmall) &&
              is(DELTAWIRE_TRUNCATED, ErrorCode::kTruncated) && is(DELTAWIRE_CORRUPT, ErrorCode::kCorrupt) &&
              is(DELTAWIRE_UNSUPPORTED_VERSION, ErrorCode::kUnsupportedVersion) &&
              is(DELTAWIRE_MISMATCH, ErrorCode::kMismatch) && is(DELTAWIRE_LIMIT, ErrorCode::kLimit) &&
              is(DELTAWIRE_TIMEOUT, ErrorCode::kTimeout) && is(DELTAWIRE_PEER_LOST, ErrorCode::kPeerLost) &&
              is(DELTAWIRE_ABORTED, ErrorCode::kAborted) &&
              is(DELTAWIRE_UNAUTHORIZED, ErrorCode::kUnauthorized) &&
              is(DELTAWIRE_ADDRESS_IN_USE, ErrorCode::kAddressInUse) &&
              is(DELTAWIRE_SYSTEM, ErrorCode::kSystem) && is(DELTAWIRE_STATE, ErrorCode::kState) &&
              is(DELTAWIRE_IO, ErrorCode::kIo) && is(DELTAWIRE_NO_MEMORY, ErrorCode::kNoMemory) &&
              is(DELTAWIRE_EXCLUDED, ErrorCode::kExcluded) && is(DELTAWIRE_NO_QUORUM, ErrorCode::kNoQuorum));
static_assert(is(DELTAWIRE_NO_QUORUM, kLastErrorCode), "the header lacks an error's number");
static_assert(DELTAWIRE_NO_SUSPECT == kNoSuspect && DELTAWIRE_NO_STEP == kNoStep);

// The text, cut after at most `room` bytes, at the end of a character.
std::string_view cut(std::string_view text, std::size_t room) noexcept {
  if (text.size() <= room) return text;
  while (room > 0 && (static_cast<unsigned char>(text[room]) & 0xC0U) == 0x80U) --room;
  return text.substr(0, room);
}

// Appends the text, as far as there is room. Names from the caller may have line breaks. No copy is made, as
// there may be no memory.
void append(deltawire_error& error, std::string_view text) noexcept {
  const std::size_t used = std::strlen(error.message);
  std::ranges::replace_copy_if(
      cut(text, sizeof error.message - 1 - used), error.message + used,
      [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
}

}  // namespace

Error& last_error() noexcept {
  thread_local Error last;
  return last;
}

std::int32_t report(deltawire_error* into, Error&& error) noexcept {
  Error& last = last_error();
  last = std::move(error);
  const auto number = static_cast<std::int32_t>(last.code);
  if (into == nullptr) return number;
  *into = {.code = number,
           .suspect = last.suspect,
           .last_committed_step = last.last_committed_step,
           .message = {}};
  append(*into, last.message);
  if (last.advice.empty()) return number;
  append(*into, "; ");
  append(*into, last.advice);
  return number;
}

std::int32_t report(deltawire_error* into, ErrorCode code, std::string_view message) noexcept {
  const std::int32_t number = report(into, Error{.code = code});
  if (into != nullptr) append(*into, message);
  return number;
}

std::int32_t report_success(deltawire_error* into) noexcept {
  if (into != nullptr) {
    into->code = DELTAWIRE_OK;
    into->suspect = kNoSuspect;
    into->last_committed_step = kNoStep;
    into->message[0] = '\0';
  }
  return DELTAWIRE_OK;
}

void refuse(std::string_view message, ErrorCode code) {
  throw Failure{fail(code, message).value()};
}

void require(const void* argument, std::string_view name) {
  if (argument == nullptr) refuse(std::string(name) + " is NULL");
}

void check_abi_version(std::uint32_t version, std::string_view whose) {
  if (version == DELTAWIRE_ABI_VERSION) return;
  if (version == 0) {
    refuse(std::string(whose) +
           ": abi_version is 0; fill the struct with its _init, which is given DELTAWIRE_ABI_VERSION");
  }
  refuse(std::string(whose) + ": the program was compiled for version " + std::to_string(version) +
             " of deltawire.h, this library has version " + std::to_string(DELTAWIRE_ABI_VERSION) +
             "; install the version of deltawire that the program was compiled with, or a newer one",
         ErrorCode::kUnsupportedVersion);
}

bool flag(std::int32_t value, std::string_view name) {
  if (value == 0 || value == 1) return value == 1;
  refuse(std::string(name) + " is " + std::to_string(value) + "; it can be 0 or 1");
}

namespace {

constexpr std::uint64_t kElementsMax = std::numeric_limits<std::uint32_t>::max();

static_assert(DELTAWIRE_F32 == static_cast<int>(DType::kF32) &&
              DELTAWIRE_BF16 == static_cast<int>(DType::kBF16) &&
              DELTAWIRE_F16 == static_cast<int>(DType::kF16));

void check_dims(const deltawire_tensor& tensor) {
  if (tensor.dim_count == 0) return;
  require(tensor.dims, "dims");
  std::uint64_t product = 1;
  for (const std::uint64_t dim : std::span(tensor.dims, tensor.dim_count)) {
    product = dim == 0 || product <= kElementsMax / dim ? product * dim : kElementsMax + 1;  // a 0 may follow
  }
  if (product == tensor.count) return;
  refuse("the product of dims is not the count, " + std::to_string(tensor.count));
}

}  // namespace

TensorSlot slot_of(const deltawire_tensor* tensor) {
  require(tensor, "the tensor");
  if (std::ranges::any_of(tensor->reserved, [](std::uint64_t field) { return field != 0; })) {
    refuse("reserved is not 0; set the whole struct to 0 before you fill it");
  }
  const auto dtype = static_cast<DType>(tensor->dtype);
  if (tensor->dtype < DELTAWIRE_F32 || tensor->dtype > DELTAWIRE_F16) {
    refuse("dtype is " + std::to_string(tensor->dtype) +
               "; it can be DELTAWIRE_F32, DELTAWIRE_BF16, DELTAWIRE_F16",
           ErrorCode::kUnsupportedDType);
  }
  if (tensor->count > kElementsMax) {
    refuse("a tensor of " + std::to_string(tensor->count) + " elements; it can have at most 2^32 - 1",
           ErrorCode::kLimit);
  }
  if (tensor->count != 0) require(tensor->values, "values");
  check_dims(*tensor);
  TensorSlot slot{tensor->values, tensor->count, dtype};
  slot.significance = tensor->significance;
  slot.dims = std::span(tensor->dims, tensor->dim_count);
  return slot;
}

std::vector<Named> named_tensors(const deltawire_tensor* tensors, std::uint32_t count) {
  if (count != 0) require(tensors, "tensors");
  std::vector<Named> list;
  list.reserve(count);
  for (const deltawire_tensor& tensor : std::span(tensors, count)) {
    const std::string place = "tensors[" + std::to_string(list.size()) + "]";
    require(tensor.name, place + ".name");
    try {
      list.push_back({tensor.name, slot_of(&tensor), 0});
    } catch (const Failure& failure) {
      refuse(place + ", \"" + tensor.name + "\": " + failure.error.message, failure.error.code);
    }
  }
  return list;
}

Into into_of(std::int32_t into) {
  if (into == DELTAWIRE_OVERWRITE) return Into::kOverwrite;
  if (into == DELTAWIRE_ACCUMULATE) return Into::kAccumulate;
  refuse("into is " + std::to_string(into) + "; it can be DELTAWIRE_OVERWRITE or DELTAWIRE_ACCUMULATE");
}

Bytes bytes_at(const void* data, std::uint64_t count, std::string_view argument) {
  if (count != 0) require(data, argument);
  return {static_cast<const std::byte*>(data), count};
}

}  // namespace deltawire::c

using deltawire::c::last_error;

extern "C" {

std::uint32_t deltawire_abi_version(void) {
  return DELTAWIRE_ABI_VERSION;
}

const char* deltawire_version(void) {
  return DELTAWIRE_VERSION;
}

std::int32_t deltawire_last_error_reporter(void) {
  return last_error().reporter;
}

std::int32_t deltawire_last_error_waits_for(void) {
  return last_error().waits_for;
}

std::uint64_t deltawire_last_error_ranks(std::int32_t* ranks, std::uint64_t room) {
  const std::vector<int>& all = last_error().ranks;
  for (std::uint64_t i = 0; i < room && i < all.size(); ++i) ranks[i] = all[i];
  return all.size();
}

const char* deltawire_last_error_tensor(void) {
  return last_error().tensor.c_str();
}

const char* deltawire_last_error_advice(void) {
  return last_error().advice.c_str();
}

const char* deltawire_error_name(std::int32_t code) {
  // Names of enumerators are literals, and so end with a zero.
  if (code < 1 || code > static_cast<std::int32_t>(deltawire::kLastErrorCode)) return "Unknown";
  return deltawire::error_code_name(static_cast<deltawire::ErrorCode>(code)).data();
}

const void* deltawire_bytes_data(const deltawire_bytes* bytes) {
  return bytes == nullptr ? nullptr : bytes->bytes.data();
}

std::uint64_t deltawire_bytes_count(const deltawire_bytes* bytes) {
  return bytes == nullptr ? 0 : bytes->bytes.size();
}

void deltawire_bytes_free(deltawire_bytes* bytes) {
  delete bytes;
}

}  // extern "C"
