#include "elastic/messages.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <concepts>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "base/errors.h"
#include "base/little_endian.h"

namespace deltawire::elastic {

Ids View::ids() const {
  Ids all;
  for (const Member& member : members) all.insert(member.id);
  return all;
}

std::optional<int> View::rank_of(int id) const {
  const auto at = std::ranges::find(members, id, &Member::id);
  if (at == members.end()) return std::nullopt;
  return static_cast<int>(at - members.begin());
}

bool View::is_consistent() const {
  if (members.empty() || members.size() > kMembersMax) return false;
  const auto out_of_order =
      std::ranges::adjacent_find(members, [](const Member& a, const Member& b) { return a.id >= b.id; });
  return out_of_order == members.end() && members.front().id >= 0 && members.back().id < next_id;
}

std::vector<const View*> MemberState::views() const {
  std::vector<const View*> all;
  if (base) all.push_back(&*base);
  for (const View& view : tried) all.push_back(&view);
  return all;
}

std::uint32_t MemberState::latest_epoch() const {
  std::uint32_t latest = base ? base->epoch : 0;
  for (const View& view : tried) latest = std::max(latest, view.epoch);
  return latest;
}

std::map<int, Member> MemberState::known() const {
  std::map<int, Member> all;
  for (const View* const view : views()) {
    for (const Member& member : view->members) all[member.id] = member;
  }
  return all;
}

bool may_go_on(const Ids& present, std::span<const View> views, const Ids& left) {
  for (const View& view : views) {
    Ids remaining;
    std::ranges::set_difference(view.ids(), left, std::inserter(remaining, remaining.end()));
    Ids here;
    std::ranges::set_intersection(present, remaining, std::inserter(here, here.end()));
    if (2 * here.size() < remaining.size()) return false;
    const bool is_tie = !remaining.empty() && 2 * here.size() == remaining.size();
    if (is_tie && !here.contains(*remaining.begin())) return false;
  }
  return true;
}

Ids without_quarrels(const Ids& ids, const std::set<std::pair<int, int>>& quarrels) {
  Ids kept = ids;
  for (const auto& [one, other] : quarrels) {
    if (kept.contains(one) && kept.contains(other)) kept.erase(std::max(one, other));
  }
  return kept;
}

namespace {

constexpr std::size_t kDimsMax = 64;

// One description of each message's fields serves both directions: an archive writes them, or reads them.
class Writer {
 public:
  template <class... Fields>
  void operator()(Fields&... fields) {
    (put(fields), ...);
  }

  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  template <std::unsigned_integral T>
  void put(const T& value) {
    bytes_.resize(bytes_.size() + sizeof(T));
    store_le<T>(bytes_.data() + bytes_.size() - sizeof(T), value);
  }
  void put(const bool& value) { put(static_cast<std::uint8_t>(value)); }
  void put(const int& value) { put(static_cast<std::uint32_t>(value)); }
  void put(const double& value) { put(std::bit_cast<std::uint64_t>(value)); }
  void put(const ErrorCode& value) { put(static_cast<std::uint16_t>(value)); }
  void put(const std::string& text) {
    put(static_cast<std::uint32_t>(text.size()));
    const auto* const data = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), data, data + text.size());
  }
  void put(const Digest& digest) { bytes_.insert(bytes_.end(), digest.begin(), digest.end()); }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class A, class B>
  void put(const std::pair<A, B>& pair) {
    put(pair.first);
    put(pair.second);
  }
  template <class List>
    requires requires(const List& list) { typename List::iterator; }
  void put(const List& list) {
    put(static_cast<std::uint32_t>(list.size()));
    for (const auto& each : list) put(each);
  }
  template <class T>
    requires requires(Writer& writer, T& value) { fields(writer, value); }
  void put(const T& value) {
    fields(*this, const_cast<T&>(value));  // which a writer only reads
  }

  std::vector<std::byte> bytes_;
};

// Total: whatever the bytes are, it reads something, and says whether it was what the bytes should have been.
class Reader {
 public:
  explicit Reader(Bytes bytes) : rest_(bytes) {}

  template <class... Fields>
  void operator()(Fields&... fields) {
    (get(fields), ...);
  }

  void refuse_if(bool wrong) { is_broken_ = is_broken_ || wrong; }
  bool is_whole() const { return !is_broken_ && rest_.empty(); }

 private:
  Bytes take(std::size_t count) {
    if (is_broken_ || count > rest_.size()) {
      is_broken_ = true;
      return {};
    }
    const Bytes taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  template <std::unsigned_integral T>
  void get(T& value) {
    const Bytes bytes = take(sizeof(T));
    value = bytes.empty() ? T{} : load_le<T>(bytes.data());
  }
  void get(bool& value) {
    std::uint8_t number = 0;
    get(number);
    refuse_if(number > 1);
    value = number == 1;
  }
  void get(int& value) {
    std::uint32_t number = 0;
    get(number);
    refuse_if(number > INT_MAX);
    value = is_broken_ ? 0 : static_cast<int>(number);
  }
  void get(double& value) {
    std::uint64_t bits = 0;
    get(bits);
    value = std::bit_cast<double>(bits);
  }
  void get(ErrorCode& value) {
    std::uint16_t number = 0;
    get(number);
    const bool is_known = number >= 1 && number <= static_cast<std::uint16_t>(kLastErrorCode);
    value = is_known ? static_cast<ErrorCode>(number) : ErrorCode::kAborted;
  }
  void get(std::string& text) {
    std::uint32_t size = 0;
    get(size);
    const Bytes bytes = take(size);
    text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void get(Digest& digest) {
    const Bytes bytes = take(digest.size());
    if (!bytes.empty()) std::memcpy(digest.data(), bytes.data(), digest.size());
  }
  template <class T>
  void get(std::optional<T>& value) {
    bool is_there = false;
    get(is_there);
    value.reset();
    if (is_there && !is_broken_) get(value.emplace());
  }
  template <class T>
  void get(std::vector<T>& list) {
    list.clear();
    for (std::uint32_t count = length(); count > 0 && !is_broken_; --count) get(list.emplace_back());
  }
  // Keys grow, so that each content has one form.
  void get(Ids& ids) {
    ids.clear();
    for (std::uint32_t count = length(); count > 0 && !is_broken_; --count) {
      int id = 0;
      get(id);
      refuse_if(!ids.empty() && id <= *ids.rbegin());
      ids.insert(id);
    }
  }
  void get(Left& left) {
    left.clear();
    for (std::uint32_t count = length(); count > 0 && !is_broken_; --count) {
      int id = 0;
      std::string why;
      get(id);
      get(why);
      refuse_if(!left.empty() && id <= left.rbegin()->first);
      left[id] = std::move(why);
    }
  }
  template <class T>
    requires requires(Reader& reader, T& value) { fields(reader, value); }
  void get(T& value) {
    fields(*this, value);
  }
  // An element takes a byte at least, so no count makes memory grow beyond a multiple of the message's.
  std::uint32_t length() {
    std::uint32_t count = 0;
    get(count);
    refuse_if(count > rest_.size());
    return is_broken_ ? 0 : count;
  }

  Bytes rest_;
  bool is_broken_ = false;
};

template <class Archive>
void check(Archive& archive, bool holds) {
  if constexpr (std::is_same_v<Archive, Reader>) archive.refuse_if(!holds);
}

void fields(auto& archive, Endpoint& endpoint) {
  archive(endpoint.host, endpoint.port);
  check(archive, !endpoint.host.empty());
}
void fields(auto& archive, Member& member) {
  archive(member.id, member.door);
}
void fields(auto& archive, View& view) {
  archive(view.epoch, view.next_id, view.members);
  check(archive, view.is_consistent());
}
void fields(auto& archive, MemberState& state) {
  archive(state.job, state.id, state.base, state.tried, state.steps, state.promised, state.blamed,
          state.residual);
  check(archive, state.known().contains(state.id));
}
void fields(auto& archive, TensorShape& tensor) {
  archive(tensor.name, tensor.dims);
  check(archive, tensor.dims.size() <= kDimsMax);
}
void fields(auto& archive, Shares& shares) {
  archive(shares.epoch, shares.ids);
  check(archive, shares.ids.size() <= kMembersMax);
}
void fields(auto& archive, NextView& next) {
  archive(next.job, next.view, next.base, next.meeting_place, next.steps, next.gone, next.tensors, next.opens,
          next.shares, next.residual_kept, next.residual_lost, next.new_id);
  check(archive, !next.new_id || next.view.has(*next.new_id));
}
void fields(auto& archive, StateRow& row) {
  archive(row.name, row.kind, row.element_bytes, row.dims);
  check(archive, row.dims.size() <= kDimsMax);
}
template <class Archive, class Each>
  requires requires(Archive& archive, Each& each) { each.fields(archive); }
void fields(Archive& archive, Each& each) {
  each.fields(archive);
}

template <std::size_t kKind = 0>
bool read_kind(std::size_t kind, Reader& reader, Message& message) {
  if constexpr (kKind == std::variant_size_v<Message>) {
    return false;
  } else {
    if (kind != kKind) return read_kind<kKind + 1>(kind, reader, message);
    fields(reader, message.emplace<kKind>());
    return true;
  }
}

tl::unexpected<Error> no_message() {
  return corrupt("another process sent what is no message of an elastic session");
}

// The first byte of all messages, and of a layout.
Result<Bytes> behind_version(Bytes bytes) {
  if (bytes.empty()) return no_message();
  const auto version = static_cast<std::uint8_t>(bytes.front());
  if (version != kMessageVersion) {
    return mismatch("another process speaks version " + std::to_string(version) +
                    " of the messages of elastic sessions, and this one version " +
                    std::to_string(kMessageVersion) + "; install the same deltawire on all");
  }
  return bytes.subspan(1);
}

}  // namespace

std::vector<std::byte> encode(const Message& message) {
  Writer writer;
  std::uint8_t version = kMessageVersion;
  auto kind = static_cast<std::uint8_t>(message.index() + 1);
  writer(version, kind);
  std::visit(
      [&](const auto& each) { fields(writer, const_cast<std::remove_cvref_t<decltype(each)>&>(each)); },
      message);
  return writer.take();
}

Result<Message> decode(Bytes bytes) {
  ASSIGN_OR_RETURN(const auto behind, behind_version(bytes));
  if (behind.empty()) return no_message();
  const auto kind = static_cast<std::size_t>(behind.front());
  Reader reader(behind.subspan(1));
  Message message;
  if (kind == 0 || !read_kind(kind - 1, reader, message) || !reader.is_whole()) return no_message();
  return message;
}

std::vector<std::byte> encode(const StateLayout& layout) {
  Writer writer;
  std::uint8_t version = kMessageVersion;
  writer(version);
  fields(writer, const_cast<StateLayout&>(layout));  // which a writer only reads
  return writer.take();
}

Result<StateLayout> decode_layout(Bytes bytes) {
  ASSIGN_OR_RETURN(const auto behind, behind_version(bytes));
  Reader reader(behind);
  StateLayout layout;
  fields(reader, layout);
  if (!reader.is_whole()) return corrupt("another member told no state");
  return layout;
}

}  // namespace deltawire::elastic
