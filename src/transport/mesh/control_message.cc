#include "transport/mesh/control_message.h"

#include <algorithm>
#include <cassert>

#include "base/crc32c.h"
#include "base/little_endian.h"

namespace deltawire {
namespace {

constexpr std::uint32_t kControlMagic = 0x43445744;  // "DWDC" on the wire
constexpr std::size_t kCrcAt = 4;
constexpr std::size_t kKindAt = 8;
constexpr std::size_t kHeaderCheckAt = 9;
constexpr std::size_t kContentBytesAt = 10;
constexpr std::uint32_t kNobody = 0xFFFFFFFF;
constexpr std::uint32_t kNumberMax = (std::uint32_t{1} << 31) - 1;
constexpr std::size_t kErrorRanksMax = 256;
constexpr std::size_t kTensorNameMax = 256;

std::byte header_check(const std::byte* header) noexcept {
  const std::array covered{header[kKindAt], header[kContentBytesAt], header[kContentBytesAt + 1]};
  return static_cast<std::byte>(crc32c(covered) & 0xFF);
}

class ContentWriter {
 public:
  ContentWriter(int world_size, std::vector<std::byte>& out) : world_size_(world_size), out_(out) {}

  void number(auto value) {
    const std::size_t at = out_.size();
    out_.resize(at + sizeof value);
    store_le(out_.data() + at, value);
  }
  void rank(int rank) { number(rank < 0 ? kNobody : static_cast<std::uint32_t>(rank)); }
  void bytes(Bytes bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  void ballot(const Ballot& ballot) {
    number(ballot.step);
    number(ballot.digest);
  }

  void text(const std::string& text) {
    const std::string line = printable_line(text, kControlTextMax);
    bytes(std::as_bytes(std::span(line)));
  }
  bool is_outside(int suspect) const noexcept { return suspect >= world_size_; }
  int suspect_inside(const Error& error) const noexcept {
    return is_outside(error.suspect) ? kNoSuspect : error.suspect;
  }
  void fields(const Error& error) {
    const bool has_any = is_outside(error.suspect) || error.reporter != kNoRank ||
                         error.waits_for != kNoRank || !error.ranks.empty() || !error.tensor.empty() ||
                         !error.advice.empty();
    if (!has_any) return;
    const std::string tensor = printable_line(error.tensor, kTensorNameMax);
    const std::size_t count = std::min(error.ranks.size(), kErrorRanksMax);
    rank(is_outside(error.suspect) ? error.suspect : kNoSuspect);
    rank(error.reporter);
    rank(error.waits_for);
    number(static_cast<std::uint16_t>(count));
    number(static_cast<std::uint16_t>(tensor.size()));
    for (std::size_t i = 0; i < count; ++i) rank(error.ranks[i]);
    bytes(std::as_bytes(std::span(tensor)));
    text(error.advice);
  }
  void error(const Error& error, int first, int second) {
    number(static_cast<std::uint16_t>(error.code));
    const std::size_t length_at = out_.size();
    number(std::uint16_t{0});
    rank(first);
    rank(second);
    text(error.message);
    const std::size_t fields_at = out_.size();
    fields(error);
    store_le(out_.data() + length_at, static_cast<std::uint16_t>(out_.size() - fields_at));
  }

  void operator()(const Abort& abort) { error(abort.error, suspect_inside(abort.error), abort.origin); }
  void operator()(const Waiting& waiting) {
    rank(waiting.rank);
    number(waiting.place);
  }
  void operator()(const Goodbye& goodbye) { number(goodbye.decided); }
  void operator()(const Here& here) {
    number(here.place);
    rank(here.deaf);
  }
  void operator()(const Start& start) { number(start.step); }
  void operator()(const Vote& vote) {
    number(vote.number);
    ballot(vote.ballot);
  }
  void operator()(const SettleRound& round) {
    number(round.number);
    number(round.known.decided);
    ballot(round.known.ballot);
    bytes(round.known.voters.bytes());
    bytes(round.absent.bytes());
  }
  void operator()(const Verdict& verdict) {
    number(verdict.decided);
    bytes(verdict.absent.bytes());
  }
  void operator()(const Dropped& dropped) {
    error(dropped.error, dropped.rank, suspect_inside(dropped.error));
  }

 private:
  int world_size_;
  std::vector<std::byte>& out_;
};

// Reads a content; whole() tells whether it had exactly the fields that were read.
class ContentReader {
 public:
  ContentReader(Bytes content, int world_size) : rest_(content), world_size_(world_size) {}

  template <class T>
  T number() {
    if (rest_.size() < sizeof(T)) return broken<T>();
    const T value = load_le<T>(rest_.data());
    rest_ = rest_.subspan(sizeof(T));
    return value;
  }
  int rank() {
    const auto value = number<std::uint32_t>();
    if (value == kNobody) return -1;
    if (value >= static_cast<std::uint32_t>(world_size_)) return broken<int>();
    return static_cast<int>(value);
  }
  RankSet ranks() {
    RankSet set(world_size_);
    if (rest_.size() < set.bytes().size()) return broken<RankSet>();
    std::copy_n(rest_.begin(), set.bytes().size(), set.bytes().begin());
    rest_ = rest_.subspan(set.bytes().size());
    for (int rank = world_size_; rank < static_cast<int>(8 * set.bytes().size()); ++rank) {
      if (set.has(rank)) broken_ = true;
    }
    return set;
  }
  Ballot ballot() { return {number<std::uint64_t>(), number<std::uint64_t>()}; }
  void refuse_if(bool wrong) noexcept { broken_ = broken_ || wrong; }
  ErrorCode code() {
    const auto code = number<std::uint16_t>();
    const bool known = code >= static_cast<std::uint16_t>(ErrorCode::kInvalidArgument) &&
                       code <= static_cast<std::uint16_t>(kLastErrorCode);
    return known ? static_cast<ErrorCode>(code) : ErrorCode::kAborted;
  }
  // All but the last `behind` bytes. Replacing invalid UTF-8 makes a text longer: it is cut again, so that it
  // can be passed on unchanged.
  std::string text(std::size_t behind = 0) {
    if (rest_.size() < behind) return broken<std::string>();
    return text(rest_.size() - behind, kControlTextMax);
  }
  void fields(Error& error) {
    const int suspect_outside = number_outside();
    if (suspect_outside != kNoSuspect) error.suspect = suspect_outside;
    error.reporter = number_outside();
    error.waits_for = number_outside();
    const auto count = number<std::uint16_t>();
    const auto name_bytes = number<std::uint16_t>();
    refuse_if(count > kErrorRanksMax);
    for (std::size_t i = 0; i < count && !broken_; ++i) error.ranks.push_back(number_outside());
    error.tensor = text(name_bytes, kTensorNameMax);
    error.advice = text();
  }
  void error(Error& error, int& first, int& second) {
    error.code = code();
    const std::size_t bytes = number<std::uint16_t>();
    first = rank();
    second = rank();
    error.message = text(bytes);
    if (bytes > 0) fields(error);
  }
  bool whole() const noexcept { return !broken_ && rest_.empty(); }

 private:
  // Of a rank that may be outside of the mesh.
  int number_outside() {
    const auto value = number<std::uint32_t>();
    if (value == kNobody) return -1;
    return value > kNumberMax ? broken<int>() : static_cast<int>(value);
  }
  std::string text(std::size_t bytes, std::size_t at_most) {
    if (bytes > at_most || bytes > rest_.size()) return broken<std::string>();
    const Bytes text = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return printable_line({reinterpret_cast<const char*>(text.data()), text.size()}, at_most);
  }
  template <class T>
  T broken() {
    broken_ = true;
    rest_ = {};
    return T{};
  }

  Bytes rest_;
  int world_size_;
  bool broken_ = false;
};

Abort read_abort(ContentReader& reader) {
  Abort abort;
  reader.error(abort.error, abort.error.suspect, abort.origin);
  return abort;
}

Dropped read_dropped(ContentReader& reader) {
  Dropped dropped;
  reader.error(dropped.error, dropped.rank, dropped.error.suspect);
  reader.refuse_if(dropped.rank < 0);
  return dropped;
}

SettleRound read_round(ContentReader& reader) {
  SettleRound round;
  round.number = reader.number<std::uint32_t>();
  round.known.decided = reader.number<std::uint64_t>();
  round.known.ballot = reader.ballot();
  round.known.voters = reader.ranks();
  round.absent = reader.ranks();
  return round;
}

// The number of a kind on the wire is its index in the variant, counted from 1. Braces are read in order.
std::optional<ControlMessage> read_content(std::uint8_t kind, ContentReader& reader) {
  switch (kind) {
    case 1: return read_abort(reader);
    case 2: return Waiting{reader.rank(), reader.number<std::uint64_t>()};
    case 3: return Goodbye{reader.number<std::uint64_t>()};
    case 4: return Here{reader.number<std::uint64_t>(), reader.rank()};
    case 5: return Start{reader.number<std::uint64_t>()};
    case 6: return Vote{reader.number<std::uint64_t>(), reader.ballot()};
    case 7: return read_round(reader);
    case 8: return Verdict{reader.number<std::uint64_t>(), reader.ranks()};
    case 9: return read_dropped(reader);
    default: return std::nullopt;
  }
}

}  // namespace

void append_control_message(const ControlMessage& message, int world_size, std::vector<std::byte>& out) {
  const std::size_t start = out.size();
  try {
    out.resize(start + kControlHeaderBytes);
    std::visit(ContentWriter(world_size, out), message);
  } catch (...) {
    out.resize(start);
    throw;
  }
  std::byte* at = out.data() + start;
  const std::size_t content = out.size() - start - kControlHeaderBytes;
  assert(content <= kControlContentMax);
  store_le(at, kControlMagic);
  at[kKindAt] = static_cast<std::byte>(message.index() + 1);
  store_le(at + kContentBytesAt, static_cast<std::uint16_t>(content));
  seal_control_message(MutBytes(out).subspan(start));
}

void seal_control_message(MutBytes message) noexcept {
  assert(message.size() >= kControlHeaderBytes);
  message[kHeaderCheckAt] = header_check(message.data());
  store_le(message.data() + kCrcAt, crc32c(message.subspan(kKindAt)));
}

bool ControlParser::feed(Bytes bytes, std::vector<ControlMessage>& messages) {
  while (std::optional<ControlMessage> message = next(bytes)) messages.push_back(std::move(*message));
  return !damaged_;
}

std::optional<ControlMessage> ControlParser::next(Bytes& bytes) {
  while (!damaged_) {
    assert(held_bytes_ < needed());
    const std::size_t take = std::min(bytes.size(), needed() - held_bytes_);
    std::ranges::copy(bytes.first(take), held_.begin() + static_cast<std::ptrdiff_t>(held_bytes_));
    held_bytes_ += take;
    bytes = bytes.subspan(take);
    if (held_bytes_ < kControlHeaderBytes) return std::nullopt;
    // Checked before the length is used, so that a foreign stream is refused at its first header.
    if (load_le<std::uint32_t>(held_.data()) != kControlMagic ||
        held_[kHeaderCheckAt] != header_check(held_.data()) ||
        load_le<std::uint16_t>(held_.data() + kContentBytesAt) > kControlContentMax) {
      damaged_ = true;
    } else if (held_bytes_ == needed()) {
      std::optional<ControlMessage> message = parse(Bytes(held_).first(held_bytes_));
      held_bytes_ = 0;
      damaged_ = !message;
      return message;
    } else if (bytes.empty()) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

std::size_t ControlParser::needed() const noexcept {
  if (held_bytes_ < kControlHeaderBytes) return kControlHeaderBytes;
  return kControlHeaderBytes + load_le<std::uint16_t>(held_.data() + kContentBytesAt);
}

std::optional<ControlMessage> ControlParser::parse(Bytes whole) const {
  assert(whole.size() >= kControlHeaderBytes);
  if (load_le<std::uint32_t>(whole.data() + kCrcAt) != crc32c(whole.subspan(kKindAt))) return std::nullopt;
  ContentReader reader(whole.subspan(kControlHeaderBytes), world_size_);
  std::optional<ControlMessage> message = read_content(static_cast<std::uint8_t>(whole[kKindAt]), reader);
  if (!reader.whole()) return std::nullopt;
  return message;
}

}  // namespace deltawire
