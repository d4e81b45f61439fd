#include "channel/message_decoder.h"

#include <algorithm>
#include <cassert>
#include <concepts>
#include <limits>
#include <string>

#include "base/errors.h"
#include "base/float16.h"
#include "base/float_environment.h"
#include "base/little_endian.h"
#include "channel/distinct_tensors.h"
#include "channel/message_encoder.h"
#include "codecs/spec_string.h"
#include "wire/frame_layout.h"

namespace deltawire {
namespace {

// With the scratch that decoding into `slot` takes.
Exec exec_for(const Codec& codec, const TensorSlot& slot, Workers* workers, CodingMemory& memory) {
  std::vector<std::byte>& scratch = memory.scratch;
  scratch.resize(std::max<std::size_t>(scratch.size(), codec.decode_scratch(slot)));
  return {.scratch = scratch, .workers = workers};
}

// Into the parts' own memory.
struct DenseSink {
  // Runs of its chunks are checked where they are decoded.
  Status read(FrameReader& reader, UncheckedSegment& segment) const {
    segment = reader.next_unchecked(memory.runs.ends(), memory.runs.sums());
    return {};
  }

  // A part that came without a payload. Adding nothing leaves the slot's bits as they are.
  Status fill(SegmentState state, std::size_t part) const {
    const TensorSlot& tensor = parts[part].tensor;
    const bool not_finite = state == SegmentState::kNotFinite;
    if (!not_finite && target.into == Into::kAccumulate) return {};
    const float value = not_finite ? std::numeric_limits<float>::quiet_NaN() : 0.0F;
    if (backend != nullptr) return backend->fill(static_cast<float*>(tensor.values), tensor.count, value);
    if (tensor.dtype == DType::kF32) {
      std::fill_n(static_cast<float*>(tensor.values), tensor.count, value);
    } else if (dtype_bytes(tensor.dtype) == sizeof(std::uint16_t)) {
      std::uint16_t half = 0;
      const FloatEnvironment environment;
      narrow(&value, 1, tensor.dtype, &half);
      std::fill_n(static_cast<std::uint16_t*>(tensor.values), tensor.count, half);
    } else {
      return fail(ErrorCode::kUnsupportedDType, "the slot has an unknown dtype");
    }
    return {};
  }

  Status take(const Codec& codec, const UncheckedSegment& segment, const Place& place) {
    memory.runs.add(segment, codec, place);
    return {};
  }

  Status take_checked(const Codec& codec, Bytes chunk, const Place& place) {
    if (backend != nullptr) {
      memory.runs.add_checked(chunk, codec, place);
    } else {
      memory.runs.add_raw(chunk, codec, place);
    }
    return {};
  }

  Status finish() {
    if (backend != nullptr) return memory.runs.decode_on(*backend, parts, target, sender);
    return memory.runs.decode(parts, target, memory.scratch);
  }

  std::span<const Named> parts;
  Target target;
  CodingMemory& memory;
  PartBackend* backend = nullptr;
  int sender = 0;
};

// One message of several, into a device's memory; `all` has the parts of all of them.
struct SharedSink {
  Status read(FrameReader& reader, UncheckedSegment& segment) const { return all.read(reader, segment); }
  Status fill(SegmentState state, std::size_t part) const {
    assert(before + part < all.parts.size());
    return all.fill(state, before + part);
  }
  Status take(const Codec& codec, const UncheckedSegment& segment, const Place& place) {
    return all.take(codec, segment, {before + place.part, place.begin, place.count});
  }
  Status take_checked(const Codec& codec, Bytes chunk, const Place& place) {
    return all.take_checked(codec, chunk, {before + place.part, place.begin, place.count});
  }
  static Status finish() { return {}; }

  DenseSink& all;
  CodingMemory& memory;
  std::size_t before = 0;  // parts of the messages before it
};

// Into lists of keys and values.
struct PairsSink {
  // One segment at a time.
  Status read(FrameReader& reader, UncheckedSegment& segment) const {
    DecodeRuns& lists = memory.runs;
    lists.begin(0, nullptr);
    segment = reader.next_unchecked(lists.ends(), lists.sums());
    return FrameReader::check_chunks(segment.payload, lists.ends(), lists.sums(), segment.first_chunk);
  }

  static Status fill(SegmentState state, std::size_t) {
    if (state == SegmentState::kNothing) return {};
    return fail(ErrorCode::kNotFinite,
                "its values are not finite, which key-value tensors can't say; skip or mend the step");
  }

  Status take(const Codec& codec, const UncheckedSegment& segment, const Place& place) {
    const PartView in{segment.payload, memory.runs.ends(), segment.segment.scalar, segment.segment.scalar2};
    Pairs& mean = means[place.part];
    if (!codec.info().key_value) return take_dense(codec, in, place, mean);
    // A pair has a byte or two; the loop ends at the latest with room for every element.
    std::uint64_t room = std::min<std::uint64_t>(place.count, in.payload.size() + 64);
    while (true) {
      const std::size_t before = mean.keys.size();
      mean.keys.resize(before + room);
      mean.values.resize(before + room);
      const TensorSlot slot{mean.values.data() + before, room, DType::kF32, mean.keys.data() + before,
                            place.count};
      const Result<std::uint64_t> written = codec.decode_pairs(in, slot, scale, {.workers = workers});
      const std::uint64_t kept = written ? *written : 0;
      mean.keys.resize(before + kept);
      mean.values.resize(before + kept);
      if (written) return add_offset(mean, before, place.begin);
      if (written.error().code != ErrorCode::kOutputTooSmall || room == place.count) {
        return forward_error(written);
      }
      room = std::min(place.count, 2 * room);
    }
  }

  Status take_checked(const Codec& codec, Bytes chunk, const Place& place) {
    const auto end = static_cast<std::uint32_t>(chunk.size());
    return take_dense(codec, {chunk, std::span(&end, 1)}, place, means[place.part]);
  }

  static Status finish() { return {}; }

  std::span<Pairs> means;
  float scale = 1.0F;
  Workers* workers = nullptr;
  CodingMemory& memory;

  static Status add_offset(Pairs& mean, std::size_t from, std::uint64_t begin) {
    for (std::size_t i = from; i < mean.keys.size(); ++i) mean.keys[i] += static_cast<std::uint32_t>(begin);
    return {};
  }

  // Of a codec without a key-value form, and raw parts, which have few elements.
  Status take_dense(const Codec& codec, const PartView& in, const Place& place, Pairs& mean) {
    const FloatEnvironment environment;  // in which subnormals are no zeros
    std::vector<float>& dense = memory.dense;
    dense.resize(place.count);
    const TensorSlot slot{dense.data(), place.count, DType::kF32};
    const Exec exec = exec_for(codec, slot, workers, memory);
    RETURN_IF_ERROR(codec.decode(in, slot, Into::kOverwrite, scale, exec));
    for (std::uint64_t i = 0; i < place.count; ++i) {
      if (dense[i] == 0.0F) continue;
      mean.keys.push_back(static_cast<std::uint32_t>(place.begin + i));
      mean.values.push_back(dense[i]);
    }
    return {};
  }
};

// Walks over the expected parts as segments arrive; they must come in order and without gaps.
template <class Sink>
class Decoder {
 public:
  Decoder(const ExpectedMessage& expected, const PartCodecs& codecs, Sink& sink)
      : expected_(expected), codecs_(codecs), sink_(sink) {
    skip_empty_parts();
  }

  Status frame(FrameReader& reader) {
    RETURN_IF_ERROR(check_header(reader.header()));
    ++frames_;
    version_ = reader.version();
    while (reader.segments_left() > 0) {
      UncheckedSegment next;
      RETURN_IF_ERROR(sink_.read(reader, next));
      RETURN_IF_ERROR(segment(next));
    }
    return {};
  }

  bool complete() const noexcept { return part_ == expected_.layout.parts.size(); }

  Status finish() const {
    if (complete()) return {};
    return truncated("the message ends before part '" + std::string(current().name) + "' is complete");
  }

 private:
  const Named& current() const {
    assert(!complete());
    return expected_.layout.parts[part_];
  }

  void skip_empty_parts() {
    while (part_ < expected_.layout.parts.size() && current().tensor.elements() == 0) ++part_;
  }

  template <class Number>
  static Status same(const char* field, Number found, Number wanted, const char* advice) {
    if (found == wanted) return {};
    return mismatch(std::string("the frame has ") + field + " " + text(found) + ", but " + text(wanted) +
                    " is due here; " + advice);
  }
  template <std::integral Number>
  static std::string text(Number number) {
    return std::to_string(number);
  }
  static std::string text(float number) { return number_text(number); }

  Status check_header(const FrameHeader& header) const {
    const MessageId& found = header.message;
    const MessageId& id = expected_.id;
    const char* lost_step = "the ranks are not in the same step";
    const char* settings = "start all ranks with the same codec, parameters and policy";
    RETURN_IF_ERROR(same("params_hash", header.params_hash, expected_.params_hash, settings));
    RETURN_IF_ERROR(same("world size", found.world, id.world, "the ranks belong to different jobs"));
    RETURN_IF_ERROR(same("rank", found.rank, id.rank, "another rank's message came this way"));
    RETURN_IF_ERROR(same("step", found.step, id.step, lost_step));
    RETURN_IF_ERROR(same("bucket", found.bucket, id.bucket, lost_step));
    RETURN_IF_ERROR(same("stage", found.stage, id.stage, lost_step));
    if (header.layout_hash != expected_.layout.hash) {
      return mismatch("the message has other tensors than those due here, " +
                      in_words(expected_.layout.parts) +
                      "; give all ranks the same names, shapes and dtypes in the same order");
    }
    RETURN_IF_ERROR(same("scale", found.scale, id.scale, "the ranks' loss scales differ"));
    return same("seq", header.seq, frames_, "a frame of the message is missing or repeated");
  }

  Status segment(const UncheckedSegment& view) {
    const Segment& segment = view.segment;
    if (part_ == expected_.layout.parts.size()) {
      return corrupt("the message has segments beyond the last part");
    }
    if (segment.parts > 1) return packed(view);
    const Named& part = current();
    const std::uint64_t left = part.tensor.elements() - covered_;
    const Codec& codec = codec_due(part, segment.codec);
    const std::uint64_t step = codec.info().chunk_elements;
    const bool bare = segment.state != SegmentState::kCoded;
    if (segment.part != part_ || segment.begin != covered_ || segment.count > left ||
        (segment.count < left && (bare || step == 0 || segment.count % step != 0)) ||
        (bare ? !codecs_.may_be(segment.state, codec) : segment.codec != codec.info().id)) {
      return name_part(part, {ErrorCode::kCorrupt, "a segment is not the one that is due here"});
    }
    const Status decoded =
        bare ? sink_.fill(segment.state, part_) : sink_.take(codec, view, {part_, covered_, segment.count});
    if (!decoded) return name_part(part, decoded.error());
    covered_ += segment.count;
    assert(covered_ <= part.tensor.elements());
    if (covered_ == part.tensor.elements()) next_part();
    return {};
  }

  void next_part() {
    assert(covered_ == 0 || covered_ == current().tensor.elements());
    covered_ = 0;
    ++part_;
    skip_empty_parts();
  }

  // The part's codec or, in frames that may have it, its form for 16-bit tensors; or, from version 2 on,
  // where the segment names it instead, the codec of its tensor's 16 bits.
  const Codec& codec_due(const Named& part, std::uint16_t id) const noexcept {
    const Codec* half = version_ >= kHalfValuesVersion ? codecs_.halves.of(part) : nullptr;
    if (half != nullptr && half->info().id == id) return *half;
    const Codec& codec = codecs_.of(part, expected_.id.step);
    const bool has_form = version_ >= half_form_version(codec.info()) && !codecs_.is_raw(part);
    const Codec* form = has_form ? codecs_.rules.half_form(part, expected_.id.step) : nullptr;
    return form != nullptr ? *form : codec;
  }

  // Whole raw parts in one chunk, one after another.
  Status packed(const UncheckedSegment& view) {
    const Segment& segment = view.segment;
    const DecodeRuns& runs = sink_.memory.runs;
    RETURN_IF_ERROR(FrameReader::check_chunks(view.payload, runs.last_ends(view.chunks),
                                              runs.last_sums(view.chunks), view.first_chunk));
    const Codec& codec = codec_due(current(), segment.codec);
    const std::uint64_t width = &codec == &codecs_.raw ? sizeof(float) : HalfCodecs::kValueBytes;
    Bytes values = view.payload;
    bool fits = segment.part == part_ && covered_ == 0 && codec.info().id == segment.codec &&
                view.chunks == 1 && segment.count <= kPackElements && values.size() == width * segment.count;
    for (std::uint32_t i = 0; i < segment.parts; ++i) {
      fits =
          fits && !complete() && codecs_.is_raw(current()) && &codec_due(current(), segment.codec) == &codec;
      if (!fits || width * current().tensor.elements() > values.size()) return not_due();
      const std::uint64_t bytes = width * current().tensor.elements();
      const Status taken =
          sink_.take_checked(codec, values.first(bytes), {part_, 0, current().tensor.elements()});
      if (!taken) return name_part(current(), taken.error());
      values = values.subspan(bytes);
      next_part();
    }
    return values.empty() ? Status() : not_due();
  }

  static Status not_due() { return corrupt("a segment of several parts is not the one that is due here"); }

  const ExpectedMessage& expected_;
  const PartCodecs& codecs_;
  Sink& sink_;
  std::size_t part_ = 0;
  std::uint64_t covered_ = 0;
  std::uint32_t frames_ = 0;
  std::uint8_t version_ = kFrameVersion;
};

// What the frame at the beginning of `bytes` says of its length; 0 where there is no whole header.
std::uint64_t stated_frame_bytes(Bytes bytes) noexcept {
  using namespace frame_layout;
  return bytes.size() < kFixedBytes ? 0 : load_le<std::uint32_t>(bytes.data() + kFrameBytesAt);
}

template <class Sink>
Status decode_into(Sink& sink, std::span<const Bytes> pieces, const ExpectedMessage& expected,
                   const PartCodecs& codecs) {
  Decoder<Sink> decoder(expected, codecs, sink);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Bytes rest = pieces[i];
    while (!rest.empty()) {
      if (decoder.complete()) {
        return corrupt(std::to_string(rest.size()) + " bytes follow the last part of the message");
      }
      const bool is_head = stated_frame_bytes(rest) > rest.size() && i + 1 < pieces.size();
      ASSIGN_OR_RETURN(FrameReader reader,
                       is_head ? FrameReader::open(rest, pieces[++i]) : FrameReader::open(rest));
      RETURN_IF_ERROR(decoder.frame(reader));
      rest = is_head ? Bytes() : rest.subspan(reader.frame_bytes());
    }
  }
  RETURN_IF_ERROR(decoder.finish());
  return sink.finish();
}

}  // namespace

Status decode_message(std::span<const Bytes> pieces, const ExpectedMessage& expected,
                      const PartCodecs& codecs, const Target& target, CodingMemory& memory) {
  std::uint64_t elements = 0;
  for (const Named& part : expected.layout.parts) elements += part.tensor.elements();
  memory.runs.begin(elements, codecs.workers);
  DenseSink sink{expected.layout.parts, target, memory, codecs.backend, expected.id.rank};
  return decode_into(sink, pieces, expected, codecs);
}

Status decode_messages_on_device(std::span<const ReceivedMessage> messages, const ExpectedMessage& each,
                                 const PartCodecs& codecs, const Target& target, CodingMemory& memory) {
  std::vector<Named> parts;
  for (const ReceivedMessage& message : messages) {
    parts.insert(parts.end(), message.layout.parts.begin(), message.layout.parts.end());
  }
  memory.runs.begin(0, nullptr);
  DenseSink all{parts, target, memory, codecs.backend, each.id.rank};
  SharedSink sink{all, memory};
  for (const ReceivedMessage& message : messages) {
    const ExpectedMessage due{each.id, each.params_hash, message.layout};
    RETURN_IF_ERROR(decode_into(sink, message.pieces, due, codecs));
    sink.before += message.layout.parts.size();
  }
  return all.finish();
}

Status decode_message_to_pairs(std::span<const Bytes> pieces, const ExpectedMessage& expected,
                               const PartCodecs& codecs, float scale, std::span<Pairs> means,
                               CodingMemory& memory) {
  assert(means.size() == expected.layout.parts.size());
  for (Pairs& mean : means) {
    mean.keys.clear();
    mean.values.clear();
    mean.dimension = 0;
  }
  PairsSink sink{means, scale, codecs.workers, memory};
  return decode_into(sink, pieces, expected, codecs);
}

}  // namespace deltawire
