// One part of a step: coded together with what waits in its residual, and taken back into it.
#pragma once

#include <cstdint>

#include "channel/message_decoder.h"
#include "channel/message_encoder.h"
#include "channel/residual_store.h"
#include "deltawire/channel.h"
#include "deltawire/part_backend.h"

namespace deltawire {

class PartEncoder {
 public:
  // All must outlive it.
  PartEncoder(const PartCodecs& codecs, const ChannelOptions& options, ResidualStore& residuals)
      : codecs_(codecs), options_(options), residuals_(residuals) {}

  // The part as its codec gets it: raw parts are dense whatever the caller's form, with values still to be
  // filled in.
  TensorView as_encoded(const Named& part) const;

  // Bounds of a part's bytes in this step.
  Sizes sizes(const Named& part, std::uint64_t step) const noexcept;

  // Whether to encode the part is to copy its values: a raw one, for which nothing waits and nothing is kept.
  bool only_copies(const Named& part, std::uint64_t step) const noexcept;

  // Whether threads that share its encoding spare something.
  bool is_worth_sharing(const Named& part, std::uint64_t step) const noexcept {
    return !codecs_.of(part, step).info().at_copy_speed;
  }

  // Whether the part's chunks can be coded one by one, by its codec alone: nothing waits, nothing is kept,
  // and whatever its values are there is no error, and no other codec that takes its place.
  bool codes_alone(const Named& part, std::uint64_t step) const noexcept;
  // Whether these chunks are the bytes of its values.
  bool copies_chunks(const SentPart& sent) const noexcept { return copies_chunks(*sent.codec); }
  // Whether its bytes are those of its values, raw or not.
  bool sends_values(const Named& part, std::uint64_t step) const noexcept {
    return only_copies(part, step) || (codes_alone(part, step) && copies_chunks(codecs_.of(part, step)));
  }
  // Bounds of its longest chunk then.
  Sizes chunk_sizes(const Named& part, std::uint64_t step) const noexcept;

  // What stands behind the part's codec in the rules, where it holds here.
  Feedback feedback_of(const Named& part, std::uint64_t step) const noexcept {
    const Feedback& feedback = codecs_.rules.feedback_of(part, step);
    if (!options_.means) return feedback;
    return options_.forgets ? feedback.of_means() : Feedback{};
  }

  // What Channel::plan says.
  PartPlan plan(const Named& part, std::uint64_t step) const;

  // What code() will fill in: the part's codec in this step, its residual found or made. Errors: kMismatch
  // for a residual of another count.
  Status open(const Named& part, std::uint64_t step, SentPart& sent);

  // Codes an opened part and updates its residual; several threads may, each another part. A part of zeros
  // that has a residual is not sent (kNothing), or goes alone where its codec has no word for nothing; what
  // waits is not looked at, since a framework drops the mean of what no rank has used. One that the codec
  // can't carry is kNotFinite where the policy lets it pass. Errors: those of Codec::encode, naming the part,
  // and the residual is as it was. `id.scale`: the residual is brought to it first. kRange where it can't be.
  // exec.stream is set here. `flow` is filled in where measures_flow(step).
  Status code(const Named& part, const MessageId& id, const PartBuffer& buffer, Exec exec, SentPart& sent,
              FeedbackFlow& flow) const;

  // The same on a device: what is to be encoded there of an opened part, and what came of it, as code() would
  // have left it. kState for a part that is in the step already.
  Result<EncodeJob> device_job(const Named& part, const MessageId& id, const PartBuffer& buffer,
                               const SentPart& sent) const;
  Status take(const Named& part, const MessageId& id, const EncodeJob& job, SentPart& sent) const;
  // Whether its zeros have to be encoded again without what waits, which `sent` has no more then.
  bool goes_alone(const EncodeJob& job, SentPart& sent) const;
  // What a job has to be encoded by again before it is taken; else null: the codec of the tensor's own 16
  // bits, if that is shorter; or the part's codec, if its form for 16 bits does not hold the values.
  const Codec* better_codec(const Named& part, const EncodeJob& job, const SentPart& sent) const;

  // What a folding revert would have left of a part, had it been encoded: residual + its finite elements.
  void keep(const Named& part, const MessageId& id);

  // Puts what was sent back into the residual, with memory for its values where there is some. `scratch` is
  // what the part was encoded with.
  static void fold(const SentPart& sent, MutBytes scratch) noexcept;

  // The part's step counts. A codec that keeps no residual has sent what waited, or discarded it for good as
  // it does with any input.
  static void discharge(const SentPart& sent) noexcept;

  // What became of a part that was coded.
  static PartUse use_of(const SentPart& sent) noexcept;

  // Sets `momentum`, of the whole part, to 0 where an element was sent.
  static Status clear_sent(const SentPart& sent, std::span<float> momentum);

  // Momentum factor masking (Lin et al., section 3.2): momentum of what was sent becomes 0.
  static void mask(const SentPart& sent, MutBytes scratch) noexcept;

 private:
  bool copies_chunks(const Codec& codec) const noexcept { return codec.info().id == codecs_.raw.info().id; }
  bool keeps_nothing(const Named& part, std::uint64_t step) const noexcept;
  bool passes(const Named& part, const SentPart& sent, const Error& error) const {
    return (error.code == ErrorCode::kNotFinite || error.code == ErrorCode::kRange) &&
           !part.tensor.has_keys() && codecs_.may_be(SegmentState::kNotFinite, *sent.codec);
  }
  bool folds(const Named& part) const noexcept;
  // Whether the part's bytes are the values of its tensor.
  bool has_own_values(const Named& part) const noexcept {
    return codecs_.is_raw(part) && has_raw_values(part.tensor) && part.summed_dtype == DType::kF32;
  }
  Result<ResidualStore::Entry*> residual_for(const Named& part, const Codec& codec, const Feedback& feedback);
  const Codec* half_form(const Named& part, std::uint64_t step, const TensorView& view,
                         const SentPart& sent) const;
  const Codec* half_codec(const Named& part, const TensorView& view, const SentPart& sent,
                          const EncodedPart& encoded) const;
  Status advance(const Named& part, const MessageId& id, const SentPart& sent) const;
  Status settle(const Named& part, const Result<EncodedPart>& encoded, const PartBuffer& buffer,
                SentPart& sent) const;
  static void fold_in_place(ResidualStore::Entry& entry, const SentPart& sent, const Exec& exec) noexcept;

  PartCodecs codecs_;
  const ChannelOptions& options_;
  ResidualStore& residuals_;
};

}  // namespace deltawire
