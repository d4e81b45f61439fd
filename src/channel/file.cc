// .dw files: a file header in words, then a channel message for each part of the tensor.
#include "deltawire/file.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>
#include <utility>

#include "base/little_endian.h"
#include "base/no_memory.h"
#include "channel/file_header.h"
#include "deltawire/channel.h"
#include "deltawire/frame.h"
#include "wire/frame_layout.h"

namespace deltawire {
namespace {

constexpr std::string_view kTensorName = "tensor";  // a file's one tensor has a name, for its layout_hash

// A file holds one tensor, so it has one codec, and no rules.
Result<std::string> canonical_codec(std::string_view spec) {
  const Result<std::unique_ptr<const Codec>> codec = make_codec(spec);
  if (!codec) return forward_error(codec);
  return (*codec)->spec();
}

// Of a file that is read: a spec has one form.
Status check_canonical(const std::string& spec) {
  const Result<std::string> canonical = canonical_codec(spec);
  if (!canonical) return forward_error(canonical);
  if (*canonical == spec) return {};
  return fail(ErrorCode::kCorrupt, "the file names its codec as '" + spec +
                                       "', which is not the canonical form '" + *canonical +
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
    if (failed) return fail(ErrorCode::kState, "an earlier part of this file failed; begin it again");
    if (part.has_keys()) {
      return fail(ErrorCode::kInvalidArgument, "files hold dense tensors, and this one has keys; expand it");
    }
    if (part.count == due() && part.dtype == header.dtype && part.count > 0) return {};
    return fail(ErrorCode::kInvalidArgument, "a part of " + std::to_string(due()) + " elements of " +
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
};

FileEncoder::FileEncoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
FileEncoder::FileEncoder(FileEncoder&&) noexcept = default;
FileEncoder& FileEncoder::operator=(FileEncoder&&) noexcept = default;
FileEncoder::~FileEncoder() = default;

Result<FileEncoder> FileEncoder::make(FileHeader header) {
  const Result<std::uint64_t> count = file_elements(header.shape);
  if (!count) return forward_error(count);
  if (header.shape.size() > kMaxFileDimensions) {
    return fail(ErrorCode::kInvalidArgument, "the shape must have at most 8 dimensions");
  }
  Result<std::string> canonical = canonical_codec(header.codec_spec);
  if (!canonical) return forward_error(canonical);
  header.codec_spec = *std::move(canonical);
  if (header.part_elements == 0) header.part_elements = kFilePartElements;
  if (header.part_elements >= *count) header.part_elements = 0;
  Result<std::unique_ptr<Channel>> channel = file_channel(header);
  if (!channel) return forward_error(channel);
  auto state = std::make_unique<State>();
  state->header = file_header_bytes(header);
  header.header_bytes = state->header.size();
  state->place = FilePlace{std::move(header), *count};
  state->channel = *std::move(channel);
  return FileEncoder(std::move(state));
}

Bytes FileEncoder::header() const noexcept {
  return state_->header;
}

std::uint64_t FileEncoder::due() const noexcept {
  return state_->place.due();
}

Result<std::span<const Bytes>> FileEncoder::encode(const TensorView& part) {
  FilePlace& place = state_->place;
  if (Status legal = place.check(part); !legal) return forward_error(legal);
  state_->channel->revert();  // the memory of the part before
  // encode only reads the values; Named serves both directions.
  const Named named = place.part(
      TensorSlot{const_cast<void*>(part.values), part.count, part.dtype, nullptr, 0, part.significance});
  auto pieces = state_->channel->encode(std::span(&named, 1), MessageId{});
  if (!pieces) return place.error_in_part(pieces.error());
  place.first += part.count;
  return pieces;
}

Status read_frame(const ReadBytes& read, std::vector<std::byte>& frame) {
  using namespace frame_layout;
  frame.clear();
  if (Status start = read_up_to(read, frame, kFixedBytes); !start) return start;
  if (frame.size() < kFixedBytes || load_le<std::uint32_t>(frame.data() + kMagicAt) != kFrameMagic) return {};
  // The longer of the two: a head that goes beyond its frame is for FrameReader to refuse.
  const std::uint64_t stated = std::max(load_le<std::uint32_t>(frame.data() + kHeadBytesAt),
                                        load_le<std::uint32_t>(frame.data() + kFrameBytesAt));
  return read_up_to(read, frame, std::min(stated, kMaxFrameBytes));
}

struct FileReader::State {
  ReadBytes read;
  FilePlace place;
  std::unique_ptr<Channel> channel;
  std::vector<std::byte> frame;
  std::vector<std::byte> message;

  // The frames of the part that is due: as many as cover it, or as there are.
  Status gather() {
    message.clear();
    for (std::uint64_t covered = 0; covered < place.due();) {
      if (Status got = read_frame(read, frame); !got) return got;
      if (frame.empty()) return {};
      Result<FrameReader> reader = FrameReader::open(frame);
      if (!reader) return forward_error(reader);
      while (reader->segments_left() > 0) {
        const Result<SegmentView> segment = reader->next();
        if (!segment) return forward_error(segment);
        covered += segment->segment.count;
      }
      message.insert(message.end(), frame.begin(), frame.end());
    }
    return {};
  }

  Status check_end() const {
    std::byte next{};
    const Result<std::size_t> got = read(MutBytes(&next, 1));
    if (!got) return forward_error(got);
    if (*got == 0) return {};
    return fail(ErrorCode::kCorrupt, "bytes follow the last part of the message");
  }
};

FileReader::FileReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
FileReader::FileReader(FileReader&&) noexcept = default;
FileReader& FileReader::operator=(FileReader&&) noexcept = default;
FileReader::~FileReader() = default;

Result<FileReader> FileReader::open(ReadBytes read) {
  Result<FileHeader> header = read_file_header(read);
  if (!header) return forward_error(header);
  if (Status canonical = check_canonical(header->codec_spec); !canonical) return forward_error(canonical);
  Result<std::unique_ptr<Channel>> channel = file_channel(*header);
  if (!channel) return forward_error(channel);
  auto state = std::make_unique<State>();
  state->read = std::move(read);
  const std::uint64_t count = header->count();
  state->place = FilePlace{*std::move(header), count};
  state->channel = *std::move(channel);
  if (count == 0) {
    if (Status end = state->check_end(); !end) return forward_error(end);
  }
  return FileReader(std::move(state));
}

const FileHeader& FileReader::header() const noexcept {
  return state_->place.header;
}

std::uint64_t FileReader::due() const noexcept {
  return state_->place.due();
}

Status FileReader::read(const TensorSlot& out) {
  FilePlace& place = state_->place;
  if (Status legal = place.check(as_view(out)); !legal) return legal;
  const auto decoded = or_no_memory("reading a file", [&]() -> Status {
    if (Status gathered = state_->gather(); !gathered) return gathered;
    const Named part = place.part(out);
    return state_->channel->decode(state_->message, std::span(&part, 1), MessageId{}, Into::kOverwrite, 1.0F);
  });
  if (!decoded) return place.error_in_part(decoded.error());
  place.first += out.count;
  if (due() > 0) return {};
  const Status end = state_->check_end();
  place.failed = !end;
  return end;
}

Result<std::vector<std::byte>> encode_file(const TensorView& tensor, std::span<const std::uint64_t> shape,
                                           std::string_view codec_spec, const Policy& policy) {
  if (tensor.has_keys()) {
    return fail(ErrorCode::kInvalidArgument, "files hold dense tensors, and this one has keys; expand it");
  }
  FileHeader header{std::string(codec_spec), policy, tensor.dtype, {shape.begin(), shape.end()}};
  Result<FileEncoder> encoder = FileEncoder::make(std::move(header));
  if (!encoder) return forward_error(encoder);
  if (const auto count = file_elements(shape); *count != tensor.count) {
    return fail(ErrorCode::kInvalidArgument,
                "the shape must have " + std::to_string(tensor.count) + " elements");
  }
  std::vector<std::byte> out(encoder->header().begin(), encoder->header().end());
  TensorView part = tensor;
  const auto* values = static_cast<const std::byte*>(tensor.values);
  for (std::uint64_t first = 0; encoder->due() > 0; first += part.count) {
    part.count = encoder->due();
    part.values = values + first * dtype_bytes(tensor.dtype);
    if (tensor.significance != nullptr) part.significance = tensor.significance + first;
    const auto pieces = encoder->encode(part);
    if (!pieces) return forward_error(pieces);
    for (const Bytes piece : *pieces) out.insert(out.end(), piece.begin(), piece.end());
  }
  return out;
}

namespace {

// A file of one part needs no copy of its message.
Status decode_one_part(Bytes file, const FileHeader& header, const TensorSlot& out) {
  if (Status canonical = check_canonical(header.codec_spec); !canonical) return canonical;
  Result<std::unique_ptr<Channel>> channel = file_channel(header);
  if (!channel) return forward_error(channel);
  Named part{kTensorName, out};
  part.tensor.dims = header.shape;
  return (*channel)->decode(file.subspan(header.header_bytes), std::span(&part, 1), MessageId{},
                            Into::kOverwrite, 1.0F);
}

}  // namespace

Status decode_file(Bytes file, const TensorSlot& out) {
  const Result<FileHeader> header = read_file_header(file);
  if (!header) return forward_error(header);
  if (out.count != header->count() || out.dtype != header->dtype) {
    return fail(ErrorCode::kMismatch, "the output must have " + std::to_string(header->count()) +
                                          " elements of " + std::string(dtype_name(header->dtype)));
  }
  if (header->part_elements == 0) return decode_one_part(file, *header, out);
  Result<FileReader> reader = FileReader::open([rest = file](MutBytes wanted) mutable -> Result<std::size_t> {
    const std::size_t bytes = std::min(wanted.size(), rest.size());
    std::memcpy(wanted.data(), rest.data(), bytes);
    rest = rest.subspan(bytes);
    return bytes;
  });
  if (!reader) return forward_error(reader);
  TensorSlot part = out;
  for (auto* at = static_cast<std::byte*>(out.values); reader->due() > 0;
       at += part.count * dtype_bytes(part.dtype)) {
    part.values = at;
    part.count = reader->due();
    if (Status done = reader->read(part); !done) return done;
  }
  return {};
}

}  // namespace deltawire
