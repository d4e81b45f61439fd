#include "linear/exchange.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/byte_writer.h"
#include "base/float_environment.h"
#include "deltawire/channel.h"
#include "deltawire/reducer.h"
#include "deltawire/spec.h"
#include "linear/plain_pairs.h"
#include "reduce/pattern_reducer.h"

namespace deltawire::linear {
namespace {

// Apart from the tags of reducers, which count up from the step (docs/reference/format.md).
constexpr Tag kAllToAllTag = Tag{0xDE17A} << 44;
constexpr Tag kPairsTag = Tag{0xDE17B} << 44;

// Plain pairs and owners use the session only to fail and to close together.
std::string session_spec(const std::string& spec) {
  return spec == kPlainPairs || names_owners(spec) ? "gather(fp32)" : spec;
}

// The canonical codec or rules of a `gather`; empty for another pattern.
Result<std::string> gathered_codec(const std::string& spec) {
  auto parsed = Spec::parse(spec);
  if (!parsed) return forward_error(parsed);
  return parsed->pattern == "gather" ? std::move(parsed->codecs) : std::string();
}

ChannelOptions without_residual(std::uint64_t seed) {
  ChannelOptions options;
  options.error_feedback = false;
  options.revert = Revert::kExact;
  options.seed = seed;
  return options;
}

constexpr std::string_view kBegin = "owners(";
constexpr std::string_view kBack = " back ";

Result<std::string> canonical(std::string_view codec, bool CodecInfo::* refused, const char* why) {
  const auto channel = make_channel(codec);
  if (!channel) return forward_error(channel);
  if ((*channel)->any(refused)) {
    return fail(ErrorCode::kInvalidArgument, "codec " + (*channel)->spec() + " " + why);
  }
  return (*channel)->spec();
}

}  // namespace

Status check_feedback(const std::string& spec) {
  if (spec == kPlainPairs) return fail(ErrorCode::kInvalidArgument, "plain pairs leave nothing out");
  if (names_owners(spec)) return check_exchange_spec(spec);
  const auto codec = gathered_codec(spec);
  if (!codec) return forward_error(codec);
  if (codec->empty()) {
    return fail(ErrorCode::kInvalidArgument, "what is left out of pairs is kept with gather and with owners");
  }
  const auto channel = make_channel(*codec, without_residual(0));
  if (!channel) return forward_error(channel);
  if ((*channel)->any(&CodecInfo::error_feedback)) {
    return fail(ErrorCode::kInvalidArgument, "codec " + *codec + " keeps itself what it leaves out");
  }
  if ((*channel)->any(&CodecInfo::key_value)) return {};
  return fail(ErrorCode::kInvalidArgument,
              "codec " + *codec + " takes no pairs; take fastsgd, logquant or sketchml");
}

Status Exchange::keep_losses() {
  if (Status usable = check_feedback(spec()); !usable) return usable;
  feedback_.emplace();
  if (owners_) return {};
  const auto codec = gathered_codec(spec());
  if (!codec) return forward_error(codec);
  auto coder = make_channel(*codec, without_residual(channel_seed(seed_, 0)));
  if (!coder) return forward_error(coder);
  feedback_->coder = *std::move(coder);
  return {};
}

Status check_exchange_spec(const std::string& spec) {
  if (names_owners(spec)) {
    const auto parsed = parse_owner_spec(spec);
    return parsed ? Status() : forward_error(parsed);
  }
  const auto made = make_reducer(session_spec(spec));
  return made ? Status() : forward_error(made);
}

Result<std::unique_ptr<Exchange>> Exchange::open(const std::string& spec,
                                                 std::unique_ptr<Transport> transport, std::uint64_t seed,
                                                 std::chrono::milliseconds timeout) {
  std::unique_ptr<Exchange> exchange(new Exchange());
  exchange->transport_ = transport.get();
  exchange->rank_ = transport->rank();
  exchange->world_ = transport->world_size();
  exchange->timeout_ = timeout;
  exchange->seed_ = seed;
  exchange->unopened_ = std::move(transport);
  if (spec.empty()) return exchange;
  if (Status started = exchange->start(spec); !started) return forward_error(started);
  return exchange;
}

Status Exchange::start(const std::string& spec) {
  ReducerOptions options;
  options.seed = seed_;
  options.threads = 1;
  plain_ = spec == kPlainPairs;
  if (names_owners(spec)) {
    auto owners = parse_owner_spec(spec);
    if (!owners) return forward_error(owners);
    owners_ = *std::move(owners);
  }
  auto session = Session::open(session_spec(spec), options, std::move(unopened_));
  if (!session) return forward_error(session);
  session_ = *std::move(session);
  return {};
}

std::string Exchange::spec() const {
  if (owners_) return owners_->text();
  return plain_ ? std::string(kPlainPairs) : session_->spec();
}

void Exchange::abort(std::string_view reason) {
  if (session_) return session_->abort(reason);
  if (unopened_) unopened_->abort(Error{ErrorCode::kAborted, std::string(reason), rank_});
}

bool Exchange::takes_pairs(std::uint64_t dimension) {
  Named tensor{.name = kGradientName, .tensor = {}};
  tensor.tensor.count = dimension;
  const auto uses = session_->explain(std::span(&tensor, 1), step_);
  return uses && !uses->empty() && uses->front().takes_pairs;
}

Result<Report> Exchange::average(Pairs& gradient) {
  if (feedback_) feedback_->residual.add_at(gradient.keys, gradient.values);
  if (world_ == 1) {
    ++step_;
    return Report();
  }
  if (plain_) {
    const auto counts = gather(std::vector<double>{static_cast<double>(gradient.keys.size())});
    if (!counts) return forward_error(counts);
    return average_plain_pairs(*transport_, *counts, kPairsTag + step_++, Clock::now() + timeout_, gradient);
  }
  const Step step{.number = step_};
  const bool as_pairs = takes_pairs(gradient.dimension);
  ++step_;
  if (as_pairs) return average_pairs(gradient, step);
  if (feedback_) {
    return fail(ErrorCode::kInvalidArgument,
                "the codec takes no pairs of the gradient, so that nothing can wait for it");
  }
  Named tensor{.name = kGradientName, .tensor = {}};
  dense_.assign(gradient.dimension, 0.0F);
  for (std::size_t i = 0; i < gradient.keys.size(); ++i) dense_[gradient.keys[i]] = gradient.values[i];
  tensor.tensor = {.values = dense_.data(), .count = dense_.size()};
  Result<Report> report = session_->all_reduce(Bucket(std::span(&tensor, 1)), step, timeout_);
  gradient.keys.clear();
  gradient.values.clear();
  for (std::size_t key = 0; report && key < dense_.size(); ++key) {
    if (dense_[key] == 0) continue;
    gradient.keys.push_back(static_cast<std::uint32_t>(key));
    gradient.values.push_back(dense_[key]);
  }
  return report;
}

Result<Report> Exchange::average_pairs(Pairs& gradient, const Step& step) {
  const Named tensor{.name = kGradientName,
                     .tensor = {.values = gradient.values.data(),
                                .count = gradient.keys.size(),
                                .keys = gradient.keys.data(),
                                .dimension = gradient.dimension}};
  if (feedback_) {
    if (Status noted = note_losses(tensor, step.number); !noted) return forward_error(noted);
  }
  Pairs mean;
  Result<Report> report =
      session_->all_reduce(Bucket(std::span(&tensor, 1), std::span(&mean, 1)), step, timeout_);
  if (report) gradient = std::move(mean);
  return report;
}

// Keeps what this rank's message leaves out. `gather` sends a list as one part, so that encoding it here
// gives the same bytes as in the session.
Status Exchange::note_losses(const Named& sent, std::uint64_t step) {
  const MessageId id{.step = step,
                     .rank = static_cast<std::uint16_t>(rank_),
                     .world = static_cast<std::uint16_t>(world_),
                     .stage = 0};
  const auto pieces = feedback_->coder->encode(std::span(&sent, 1), id);
  if (!pieces) return forward_error(pieces);
  Status done =
      feedback_->coder->decode_pairs(*pieces, std::span(&sent, 1), id, 1.0F, std::span(&feedback_->sent, 1));
  feedback_->coder->commit();
  if (!done) return done;
  const std::span keys(sent.tensor.keys, sent.tensor.count);
  const auto* values = static_cast<const float*>(sent.tensor.values);
  const FloatEnvironment environment;
  std::vector<float> left(values, values + keys.size());
  const Pairs& decoded = feedback_->sent;
  std::size_t next = 0;
  for (std::size_t i = 0; i < keys.size() && next < decoded.keys.size(); ++i) {
    if (decoded.keys[next] == keys[i]) left[i] -= decoded.values[next++];
  }
  feedback_->residual.put(keys, left);
  return {};
}

Result<std::vector<double>> Exchange::gather(std::span<const double> numbers) {
  const std::size_t bytes = 8 * numbers.size();
  std::vector<std::byte> all(bytes * static_cast<std::size_t>(world_));
  const auto slot = [&](int rank) {
    return std::span(all).subspan(bytes * static_cast<std::size_t>(rank), bytes);
  };
  ByteWriter writer(slot(rank_));
  for (const double number : numbers) writer.number(std::bit_cast<std::uint64_t>(number));
  PeerMessages messages(world_);
  for (int peer = 0; peer < world_; ++peer) {
    if (peer == rank_) continue;
    messages.send[static_cast<std::size_t>(peer)] = {Bytes(slot(rank_))};
    messages.receive[static_cast<std::size_t>(peer)] = slot(peer);
  }
  const auto got = all_to_all(messages);
  if (!got) return forward_error(got);
  for (int peer = 0; peer < world_; ++peer) {
    if (peer != rank_ && (*got)[static_cast<std::size_t>(peer)] != bytes) {
      return fail(ErrorCode::kMismatch, "another rank sent other numbers; start all from one program");
    }
  }
  std::vector<double> values(all.size() / 8);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::bit_cast<double>(load_le<std::uint64_t>(all.data() + 8 * i));
  }
  return values;
}

Result<std::vector<std::uint64_t>> Exchange::all_to_all(const PeerMessages& messages) {
  return linear::all_to_all(*transport_, kAllToAllTag + next_tag_++, Clock::now() + timeout_, messages);
}

Result<std::vector<double>> Exchange::sums(std::span<const double> numbers) {
  const auto all = gather(numbers);
  if (!all) return forward_error(all);
  std::vector<double> sums(numbers.size());
  for (std::size_t i = 0; i < all->size(); ++i) sums[i % sums.size()] += (*all)[i];
  return sums;
}

std::string OwnerSpec::text() const {
  return std::string(kBegin) + gradients + std::string(kBack) + weights + ")";
}

bool names_owners(std::string_view text) noexcept {
  return text.starts_with(kBegin) && text.ends_with(")");
}

Result<OwnerSpec> parse_owner_spec(std::string_view text) {
  text.remove_prefix(kBegin.size());
  text.remove_suffix(1);
  const std::size_t back = text.find(kBack);
  auto gradients = canonical(
      text.substr(0, back), &CodecInfo::error_feedback,
      "keeps for later what it leaves out, and an owner is sent other keys in each step; take fastsgd, "
      "logquant, sketchml, bf16 or fp32 with --exchange owners");
  if (!gradients) return forward_error(gradients);
  OwnerSpec parsed{.gradients = *std::move(gradients)};
  if (back == std::string_view::npos) return parsed;
  auto weights = canonical(text.substr(back + kBack.size()), &CodecInfo::sparse,
                           "leaves weights out; take fp32, zstd, bf16 or fp16 for them");
  if (!weights) return forward_error(weights);
  parsed.weights = *std::move(weights);
  return parsed;
}

}  // namespace deltawire::linear
