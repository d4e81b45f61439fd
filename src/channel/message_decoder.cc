#include "channel/message_decoder.h"

#include <string>

namespace deltawire {
namespace {

// Walks over the expected parts as segments arrive; they must come in order and without gaps.
class Decoder {
 public:
  Decoder(const ExpectedMessage& expected, const PartCodecs& codecs, const Target& target)
      : expected_(expected), codecs_(codecs), target_(target) {
    skip_empty_parts();
  }

  Status frame(FrameReader& reader) {
    if (Status header = check_header(reader.header()); !header) return header;
    ++frames_;
    while (reader.segments_left() > 0) {
      Result<SegmentView> view = reader.next();
      if (!view) return forward_error(view);
      if (Status done = segment(*view); !done) return done;
    }
    return {};
  }

  Status finish() const {
    if (part_ == expected_.parts.size()) return {};
    return fail(ErrorCode::kTruncated,
                "the message ends before part '" + std::string(current().name) + "' is complete");
  }

 private:
  const Named& current() const { return expected_.parts[part_]; }

  void skip_empty_parts() {
    while (part_ < expected_.parts.size() && current().tensor.count == 0) ++part_;
  }

  template <class Number>
  static Status same(const char* field, Number found, Number wanted, const char* advice) {
    if (found == wanted) return {};
    return fail(ErrorCode::kMismatch, std::string("the frame has ") + field + " " + std::to_string(found) +
                                          ", but " + std::to_string(wanted) + " is due here; " + advice);
  }

  Status check_header(const FrameHeader& header) const {
    const MessageId& id = expected_.id;
    const char* lost_step = "the ranks are not in the same step";
    const char* settings = "start all ranks with the same codec, parameters and policy";
    if (auto s = same("codec", header.codec, codecs_.codec.info().id, settings); !s) return s;
    if (auto s = same("params_hash", header.params_hash, expected_.params_hash, settings); !s) return s;
    if (auto s = same("world size", header.world, id.world, "the ranks belong to different jobs"); !s)
      return s;
    if (auto s = same("rank", header.rank, id.rank, "another rank's message came this way"); !s) return s;
    if (auto s = same("epoch", header.epoch, id.epoch, "it stems from before a restart"); !s) return s;
    if (auto s = same("step", header.step, id.step, lost_step); !s) return s;
    if (auto s = same("slice", header.slice, id.slice, lost_step); !s) return s;
    if (auto s = same("spec_hash", header.spec_hash, expected_.spec_hash,
                      "names, shapes or order of the tensors differ between ranks");
        !s) {
      return s;
    }
    return same("seq", header.seq, frames_, "a frame of the message is missing or repeated");
  }

  Status segment(const SegmentView& view) {
    const Segment& segment = view.segment;
    if (part_ == expected_.parts.size()) {
      return fail(ErrorCode::kCorrupt, "the message has segments beyond the last part");
    }
    const Named& part = current();
    const std::string where = "part '" + std::string(part.name) + "': ";
    const std::uint64_t left = part.tensor.count - covered_;
    const Codec& codec = codecs_.of(part.tensor.count);
    const std::uint64_t step = codec.info().chunk_elements;
    if (segment.tensor != part_ || segment.first != part.first + covered_ || segment.count > left ||
        segment.raw != codecs_.is_raw(part.tensor.count) ||
        (segment.count < left && (step == 0 || segment.count % step != 0))) {
      return fail(ErrorCode::kCorrupt, where + "a segment is not the one that is due here");
    }
    auto* at = static_cast<std::byte*>(part.tensor.values) + covered_ * dtype_bytes(part.tensor.dtype);
    const TensorSlot slot{at, segment.count, part.tensor.dtype};
    if (Status decoded = codec.decode(view.part, slot, target_.into, target_.scale); !decoded) {
      return fail(decoded.error().code, where + decoded.error().message);
    }
    covered_ += segment.count;
    if (covered_ == part.tensor.count) {
      covered_ = 0;
      ++part_;
      skip_empty_parts();
    }
    return {};
  }

  const ExpectedMessage& expected_;
  const PartCodecs& codecs_;
  const Target& target_;
  std::size_t part_ = 0;
  std::uint64_t covered_ = 0;
  std::uint32_t frames_ = 0;
};

}  // namespace

Status decode_message(Bytes message, const ExpectedMessage& expected, const PartCodecs& codecs,
                      const Target& target) {
  Decoder decoder(expected, codecs, target);
  while (!message.empty()) {
    Result<FrameReader> reader = FrameReader::open(message);
    if (!reader) return forward_error(reader);
    if (Status done = decoder.frame(*reader); !done) return done;
    message = message.subspan(reader->frame_bytes());
  }
  return decoder.finish();
}

}  // namespace deltawire
