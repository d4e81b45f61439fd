// .dw files: a file header in words, then a channel message for each part of the tensor.
#include "deltawire/file.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/little_endian.h"
#include "channel/file_header.h"
#include "deltawire/channel.h"
#include "deltawire/frame.h"
#include "wire/frame_layout.h"

namespace deltawire {
namespace {

constexpr std::string_view kTensorName = "tensor";  // a file's one tensor has a name, for its layout_hash

// A file holds one tensor, so it has one codec, and no rules.
Result<std::string> canonical_codec(std::string_view spec) {
  ASSIGN_OR_RETURN(const std::unique_ptr<const Codec> codec, make_codec(spec));
  return codec->spec();
}

// Of a file that is read: a spec has one form.
Status check_canonical(const std::string& spec) {
  ASSIGN_OR_RETURN(const std::string canonical, canonical_codec(spec));
  if (canonical == spec) return {};
  return corrupt("the file names its codec as '" + spec + "', which is not the canonical form '" + canonical +
                 "'; encode it again");
}

}  // namespace

// Where coding stands in a file, whichever way it goes.
struct FilePlace {
  FileHeader header;
  std::uint64_t count = 0;  // elements of the tensor
  std::uint64_t first = 0;  // elements before the part that is due
  bool failed = false;

  std::uint64_t due() const noexcept {
    assert(first <= count);
    const std::uint64_t left = count - first;
    return header.part_elements == 0 ? left : std::min(left, header.part_elements);
  }

  // The part that is due, in this memory.
  Named part(TensorSlot tensor) const noexcept {
    if (header.part_elements == 0) {
      tensor.dims = header.shape;
      return Named{kTensorName, tensor};
    }
    const auto dims = static_cast<std::uint32_t>(std::max<std::size_t>(1, header.shape.size()));
    return Named{kTensorName, tensor, first, count, dims};
  }

  Status check(const TensorView& part) const {
    if (failed) return wrong_state("an earlier part of this file failed; begin it again");
    if (part.has_keys()) {
      return invalid("files hold dense tensors, and this one has keys; expand it");
    }
    if (part.count == due() && part.dtype == header.dtype && part.count > 0) return {};
    return invalid("a part of " + std::to_string(due()) + " elements of " +
                   std::string(dtype_name(header.dtype)) + " is due here");
  }

  // An error of a part of several says which.
  tl::unexpected<Error> error_in_part(const Error& error) {
    failed = true;
    if (header.part_elements == 0) return tl::unexpected<Error>(error);
    return fail(error.code,
                "the part that begins at element " + std::to_string(first) + ": " + error.message);
  }
};

namespace {

Result<std::unique_ptr<Channel>> file_channel(const FileHeader& header) {
  return make_channel(header.codec_spec,
                      {.policy = header.policy, .error_feedback = false, .bare_parts = false});
}

constexpr std::uint64_t kReadBytes = std::uint64_t{1} << 20;

// Reads on until `bytes` has so many, or no more come.
Status read_up_to(const ReadBytes& read, std::vector<std::byte>& bytes, std::uint64_t wanted) {
  while (bytes.size() < wanted) {
    const std::uint64_t before = bytes.size();
    const std::uint64_t asked = std::min(wanted - before, std::max(kReadBytes, before));
    bytes.resize(before + asked);
    const Result<std::size_t> got = read(MutBytes(bytes).subspan(before));
    bytes.resize(before + got.value_or(0));
    if (!got) return forward_error(got);
    if (*got < asked) return {};
  }
  return {};
}

}  // namespace

struct FileEncoder::State {
  FilePlace place;
  std::vector<std::byte> header;
  std::unique_ptr<Channel> channel;
  std::unique_ptr<std::byte[]> message;  // of a part, and its bound
  std::uint64_t room = 0;
  Bytes piece;

  // encode only reads the values; Named serves both directions.
  Named named(const TensorView& part) const noexcept {
    return place.part(
        TensorSlot{const_cast<void*>(part.values), part.count, part.dtype, nullptr, 0, part.significance});
  }

  std::uint64_t bound_of(const Named& part) const { return channel->message_bound(std::span(&part, 1), 0); }

  // The message of the part that is due.
  Result<std::uint64_t> encode(const TensorView& part, MutBytes out) {
    RETURN_IF_ERROR(place.check(part));
    const Named each = named(part);
    const auto written = channel->encode_to(std::span(&each, 1), MessageId{}, out);
    if (!written) return place.error_in_part(written.error());
    channel->commit();  // the next part's is in the same memory
    place.first += part.count;
    return written;
  }
};

FileEncoder::FileEncoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
FileEncoder::FileEncoder(FileEncoder&&) noexcept = default;
FileEncoder& FileEncoder::operator=(FileEncoder&&) noexcept = default;
FileEncoder::~FileEncoder() = default;

Result<FileEncoder> FileEncoder::make(FileHeader header) {
  ASSIGN_OR_RETURN(const std::uint64_t count, file_elements(header.shape));
  if (header.shape.size() > kMaxFileDimensions) {
    return invalid("the shape must have at most 8 dimensions");
  }
  ASSIGN_OR_RETURN(header.codec_spec, canonical_codec(header.codec_spec));
  if (header.part_elements == 0) header.part_elements = kFilePartElements;
  if (header.part_elements >= count) header.part_elements = 0;
  ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel, file_channel(header));
  auto state = std::make_unique<State>();
  state->header = file_header_bytes(header);
  header.header_bytes = state->header.size();
  state->place = FilePlace{std::move(header), count};
  state->channel = std::move(channel);
  return FileEncoder(std::move(state));
}

Bytes FileEncoder::header() const noexcept {
  return state_->header;
}

std::uint64_t FileEncoder::due() const noexcept {
  return state_->place.due();
}

std::uint64_t FileEncoder::bound() const {
  const FilePlace& place = state_->place;
  const auto bound_of = [&](std::uint64_t count) {
    return state_->bound_of(state_->named({nullptr, count, place.header.dtype}));
  };
  const std::uint64_t each = place.header.part_elements == 0 ? place.count : place.header.part_elements;
  const std::uint64_t parts = each == 0 ? 0 : place.count / each;
  const std::uint64_t rest = place.count - parts * each;
  return state_->header.size() + parts * bound_of(each) + (rest == 0 ? 0 : bound_of(rest));
}

Result<std::span<const Bytes>> FileEncoder::encode(const TensorView& part) {
  State& state = *state_;
  return or_no_memory("encoding a file", [&]() -> Result<std::span<const Bytes>> {
    const std::uint64_t bound = state.bound_of(state.named({nullptr, due(), state.place.header.dtype}));
    if (state.room < bound) {
      state.message = std::make_unique_for_overwrite<std::byte[]>(bound);
      state.room = bound;
    }
    ASSIGN_OR_RETURN(const auto written, state.encode(part, {state.message.get(), state.room}));
    state.piece = Bytes(state.message.get(), written);
    return std::span<const Bytes>(&state.piece, 1);
  });
}

Result<std::uint64_t> FileEncoder::encode_all(const TensorView& tensor, MutBytes out) {
  State& state = *state_;
  assert(state.place.first == 0);
  if (tensor.has_keys()) return forward_error(state.place.check(tensor));
  if (tensor.count != state.place.count) {
    return invalid("the shape must have " + std::to_string(tensor.count) + " elements");
  }
  if (const std::uint64_t most = bound(); out.size() < most) {
    return fail(ErrorCode::kOutputTooSmall, "the file may need " + std::to_string(most) +
                                                " bytes, but there is room for " +
                                                std::to_string(out.size()));
  }
  std::uint64_t written = state.header.size();
  std::memcpy(out.data(), state.header.data(), written);
  TensorView part = tensor;
  const auto* values = static_cast<const std::byte*>(tensor.values);
  for (std::uint64_t first = 0; due() > 0; first += part.count) {
    part.count = due();
    part.values = values + first * dtype_bytes(tensor.dtype);
    if (tensor.significance != nullptr) part.significance = tensor.significance + first;
    ASSIGN_OR_RETURN(const auto bytes, state.encode(part, out.subspan(written)));
    written += bytes;
  }
  return written;
}

namespace {

// Bytes of the frame that begins here, by its own words; 0 if there is no whole beginning of one. The longer
// of its two lengths: a head that goes beyond its frame is for FrameReader to refuse.
std::uint64_t stated_bytes(Bytes start) noexcept {
  using namespace frame_layout;
  if (start.size() < kFixedBytes || load_le<std::uint32_t>(start.data() + kMagicAt) != kFrameMagic) return 0;
  const std::uint64_t stated = std::max(load_le<std::uint32_t>(start.data() + kHeadBytesAt),
                                        load_le<std::uint32_t>(start.data() + kFrameBytesAt));
  return std::min(stated, kMaxFrameBytes);
}

// As read_frame, behind what `bytes` has.
Status add_frame(const ReadBytes& read, std::vector<std::byte>& bytes) {
  const std::uint64_t before = bytes.size();
  RETURN_IF_ERROR(read_up_to(read, bytes, before + frame_layout::kFixedBytes));
  return read_up_to(read, bytes, before + stated_bytes(Bytes(bytes).subspan(before)));
}

}  // namespace

Status read_frame(const ReadBytes& read, std::vector<std::byte>& frame) {
  frame.clear();
  return add_frame(read, frame);
}

struct FileReader::State {
  ReadBytes read;  // null: the file is in memory
  Bytes rest;      // of it
  FilePlace place;
  std::unique_ptr<Channel> channel;
  std::vector<std::byte> copied;  // frames of the part that is due, from `read`
  std::vector<std::uint32_t> ends;
  std::vector<std::uint32_t> sums;  // which decoding checks

  // The next frame, or those bytes of it that there are.
  Result<Bytes> next_frame() {
    if (read) {
      const std::uint64_t before = copied.size();
      RETURN_IF_ERROR(add_frame(read, copied));
      return Bytes(copied).subspan(before);
    }
    const std::uint64_t stated = std::max<std::uint64_t>(frame_layout::kFixedBytes, stated_bytes(rest));
    const Bytes frame = rest.first(std::min<std::uint64_t>(rest.size(), stated));
    rest = rest.subspan(frame.size());
    return frame;
  }

  // The frames of the part that is due: as many as cover it, or as there are.
  Result<Bytes> gather() {
    copied.clear();
    // What a header claims is asked for, not touched, and no more of it than a part of default length takes.
    constexpr std::uint64_t kMost = std::uint64_t{64} << 20;
    if (read) copied.reserve(std::min(kMost, 4 * place.due() + kReadBytes));
    const std::byte* const begin = rest.data();
    std::uint64_t bytes = 0;
    for (std::uint64_t covered = 0; covered < place.due();) {
      ASSIGN_OR_RETURN(const Bytes frame, next_frame());
      if (frame.empty()) break;
      bytes += frame.size();
      ASSIGN_OR_RETURN(FrameReader reader, FrameReader::open(frame));
      ends.clear();
      sums.clear();
      while (reader.segments_left() > 0) covered += reader.next_unchecked(ends, sums).segment.count;
    }
    return read ? Bytes(copied) : Bytes(begin, bytes);
  }

  Status check_end() const {
    std::byte next{};
    ASSIGN_OR_RETURN(const std::size_t got, read ? read(MutBytes(&next, 1)) : rest.size());
    if (got == 0) return {};
    return corrupt("bytes follow the last part of the message");
  }
};

FileReader::FileReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
FileReader::FileReader(FileReader&&) noexcept = default;
FileReader& FileReader::operator=(FileReader&&) noexcept = default;
FileReader::~FileReader() = default;

Result<FileReader> FileReader::open(ReadBytes read) {
  auto state = std::make_unique<State>();
  state->read = std::move(read);
  Result<FileHeader> header = read_file_header(state->read);
  return open(std::move(header), std::move(state));
}

Result<FileReader> FileReader::open(Bytes file) {
  auto state = std::make_unique<State>();
  Result<FileHeader> header = read_file_header(file);
  if (header) state->rest = file.subspan(header->header_bytes);
  return open(std::move(header), std::move(state));
}

Result<FileReader> FileReader::open(Result<FileHeader> header, std::unique_ptr<State> state) {
  if (!header) return forward_error(header);
  RETURN_IF_ERROR(check_canonical(header->codec_spec));
  ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel, file_channel(*header));
  const std::uint64_t count = header->count();
  state->place = FilePlace{*std::move(header), count};
  state->channel = std::move(channel);
  if (count == 0) {
    RETURN_IF_ERROR(state->check_end());
  }
  return FileReader(std::move(state));
}

const FileHeader& FileReader::header() const noexcept {
  return state_->place.header;
}

std::uint64_t FileReader::due() const noexcept {
  return state_->place.due();
}

// `frames` gives those of the part that is due.
Status FileReader::decode(const auto& frames, const TensorSlot& out) {
  FilePlace& place = state_->place;
  RETURN_IF_ERROR(place.check(as_view(out)));
  const auto decoded = or_no_memory("reading a file", [&]() -> Status {
    ASSIGN_OR_RETURN(const auto message, frames());
    const Named part = place.part(out);
    return state_->channel->decode(message, std::span(&part, 1), MessageId{}, Into::kOverwrite, 1.0F);
  });
  if (!decoded) return place.error_in_part(decoded.error());
  place.first += out.count;
  if (due() > 0) return {};
  const Status end = state_->check_end();
  place.failed = !end;
  return end;
}

Status FileReader::read(const TensorSlot& out) {
  return decode([&] { return state_->gather(); }, out);
}

Status FileReader::read(std::span<const Bytes> frames, const TensorSlot& out) {
  return decode([&] { return Result<std::span<const Bytes>>(frames); }, out);
}

Result<std::vector<std::byte>> encode_file(const TensorView& tensor, std::span<const std::uint64_t> shape,
                                           std::string_view codec_spec, const Policy& policy) {
  if (tensor.has_keys()) {
    return invalid("files hold dense tensors, and this one has keys; expand it");
  }
  FileHeader header{std::string(codec_spec), policy, tensor.dtype, {shape.begin(), shape.end()}};
  ASSIGN_OR_RETURN(FileEncoder encoder, FileEncoder::make(std::move(header)));
  return or_no_memory("encoding a file", [&]() -> Result<std::vector<std::byte>> {
    const std::uint64_t bound = encoder.bound();
    const auto room = std::make_unique_for_overwrite<std::byte[]>(bound);
    ASSIGN_OR_RETURN(const auto written, encoder.encode_all(tensor, {room.get(), bound}));
    return std::vector<std::byte>(room.get(), room.get() + written);
  });
}

Status decode_file(Bytes file, const TensorSlot& out) {
  ASSIGN_OR_RETURN(const FileHeader header, read_file_header(file));
  if (out.count != header.count() || out.dtype != header.dtype) {
    return mismatch("the output must have " + std::to_string(header.count()) + " elements of " +
                    std::string(dtype_name(header.dtype)));
  }
  ASSIGN_OR_RETURN(FileReader reader, FileReader::open(file));
  TensorSlot part = out;
  for (auto* at = static_cast<std::byte*>(out.values); reader.due() > 0;
       at += part.count * dtype_bytes(part.dtype)) {
    part.values = at;
    part.count = reader.due();
    RETURN_IF_ERROR(reader.read(part));
  }
  return {};
}

}  // namespace deltawire
