#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "bindings.h"
#include "python_error.h"

namespace nb = nanobind;

namespace deltawire::python {
namespace {

template <class Number>
using Numbers = nb::ndarray<const Number, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::uintptr_t number_of(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address);
}

float* floats_at(std::uintptr_t address) {
  return reinterpret_cast<float*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// A view of the host's memory, valid within the call that it is an argument of.
template <class Number>
nb::object lent(Number* values, std::size_t count) {
  return nb::cast(nb::ndarray<nb::numpy, Number, nb::ndim<1>>(values, {count}, nb::handle()),
                  nb::rv_policy::reference);
}

// What a device is told of parts, and tells of them: structs of int64 alone, which Python sees as rows of
// numbers and, by these names, as records (torch/gpu/parts.py).
struct PartToEncode {
  std::int64_t codec, values, count, dtype, before, after, carrier, significance;
};
constexpr auto kToEncode = std::to_array<const char*>(
    {"codec", "values", "count", "dtype", "before", "after", "carrier", "significance"});

struct PartEncoded {
  std::int64_t part, is_encoded, is_zeros, carries, first_chunk, chunks, scalar, scalar2;
};
constexpr auto kEncoded = std::to_array<const char*>(
    {"part", "is_encoded", "is_zeros", "carries", "first_chunk", "chunks", "scalar", "scalar2"});

struct PartToDecode {
  std::int64_t codec, slot, count, scalar, scalar2, begin, chunks;
};
constexpr auto kToDecode =
    std::to_array<const char*>({"codec", "slot", "count", "scalar", "scalar2", "begin", "chunks"});

template <class Row>
constexpr std::size_t kMembers = sizeof(Row) / sizeof(std::int64_t);
static_assert(kMembers<PartToEncode> == kToEncode.size());
static_assert(kMembers<PartEncoded> == kEncoded.size());
static_assert(kMembers<PartToDecode> == kToDecode.size());

template <class Row>
nb::object lent(std::vector<Row>& rows) {
  return nb::cast(nb::ndarray<nb::numpy, std::int64_t, nb::ndim<2>>(rows.data(), {rows.size(), kMembers<Row>},
                                                                    nb::handle()),
                  nb::rv_policy::reference);
}

nb::tuple names_of(std::span<const char* const> members) {
  nb::list names;
  for (const char* const each : members) names.append(each);
  return nb::tuple(names);
}

template <class Number>
std::span<const Number> numbers_of(nb::handle array) {
  const auto numbers = nb::cast<Numbers<Number>>(array);
  return {numbers.data(), numbers.size()};
}

std::int64_t signed_address(const void* address) noexcept {
  return static_cast<std::int64_t>(number_of(address));
}

// The codecs of some jobs, each once.
class Specs {
 public:
  std::int64_t number(const Codec& codec) {
    const auto found = std::ranges::find(codecs_, &codec);
    if (found == codecs_.end()) {
      codecs_.push_back(&codec);
      specs_.append(codec.spec());
      return static_cast<std::int64_t>(codecs_.size()) - 1;
    }
    return found - codecs_.begin();
  }
  const nb::list& list() const noexcept { return specs_; }

 private:
  std::vector<const Codec*> codecs_;
  nb::list specs_;
};

// Some parts of a call of `encode`, as core/device/encoding.py says.
class EncodedParts {
 public:
  explicit EncodedParts(nb::handle given)
      : rows_(nb::cast<Table>(given[0])),
        payload_(numbers_of<std::uint8_t>(given[1])),
        begins_(numbers_of<std::int64_t>(given[2])),
        sizes_(numbers_of<std::uint32_t>(given[3])),
        sums_(numbers_of<std::uint32_t>(given[4])) {}

  void give_to(std::span<EncodeJob> jobs) const {
    for (std::size_t i = 0; i < rows_.shape(0); ++i) {
      PartEncoded row;
      std::memcpy(&row, rows_.data() + i * kMembers<PartEncoded>, sizeof row);
      EncodeJob& job = jobs[static_cast<std::size_t>(row.part)];
      job.is_zeros = row.is_zeros != 0;
      job.carries = row.carries != 0;
      if (row.is_encoded != 0) job.encoded = part(row, job.out);
    }
  }

 private:
  using Table =
      nb::ndarray<const std::int64_t, nb::shape<-1, kMembers<PartEncoded>>, nb::c_contig, nb::device::cpu>;

  Result<EncodedPart> part(const PartEncoded& row, const PartBuffer& out) const {
    const auto first = static_cast<std::size_t>(row.first_chunk);
    EncodedPart encoded;
    encoded.chunks = static_cast<std::uint32_t>(row.chunks);
    encoded.scalar = static_cast<std::uint32_t>(row.scalar);
    encoded.scalar2 = static_cast<std::uint32_t>(row.scalar2);
    encoded.has_sums = out.chunk_sums.size() >= encoded.chunks;
    bool fits = encoded.chunks <= out.chunk_ends.size();
    for (std::size_t i = 0; fits && i < encoded.chunks; ++i) {
      const std::size_t bytes = sizes_[first + i];
      fits = bytes <= out.payload.size() - encoded.payload_bytes;
      if (!fits) break;
      if (bytes > 0) {
        std::memcpy(out.payload.data() + encoded.payload_bytes, payload_.data() + begins_[first + i], bytes);
      }
      encoded.payload_bytes += bytes;
      out.chunk_ends[i] = static_cast<std::uint32_t>(encoded.payload_bytes);
      if (encoded.has_sums) out.chunk_sums[i] = sums_[first + i];
    }
    if (fits) return encoded;
    return fail(ErrorCode::kOutputTooSmall, "a device has encoded a part to more than its codec's bounds");
  }

  Table rows_;
  std::span<const std::uint8_t> payload_;  // of arrays that the caller holds, as below
  std::span<const std::int64_t> begins_;
  std::span<const std::uint32_t> sizes_;
  std::span<const std::uint32_t> sums_;
};

// Gives errors, (job's number, error), to jobs.
template <class Job, class Member>
void give_errors(nb::handle errors, std::span<Job> jobs, Member member) {
  for (const nb::handle each : errors) {
    jobs[nb::cast<std::size_t>(each[0])].*member = tl::unexpected<Error>(error_of(each[1]));
  }
}

// Payloads in the memory for them begin at multiples of this: codes of several bytes are read as numbers.
constexpr std::size_t kPayloadAlignment = 16;

nb::list listed(std::span<const DeviceMean> means) {
  nb::list list;
  for (const DeviceMean& each : means) {
    list.append(nb::make_tuple(number_of(each.mean), number_of(each.tensor.values), each.tensor.count,
                               dtype_name(each.tensor.dtype)));
  }
  return list;
}

class PythonBackend final : public PartBackend {
 public:
  explicit PythonBackend(nb::object device) : device_(std::make_shared<nb::object>(std::move(device))) {}
  ~PythonBackend() override { drop(std::move(device_)); }
  PythonBackend(const PythonBackend&) = delete;
  PythonBackend& operator=(const PythonBackend&) = delete;

  Result<DeviceFloats> allocate(std::uint64_t count) override {
    return call<DeviceFloats>([&]() -> Result<DeviceFloats> {
      const auto address = nb::cast<std::uintptr_t>(device_->attr("allocate")(count));
      return DeviceFloats(floats_at(address), [device = device_](float* values) mutable {
        give_back(std::move(device), values);
      });
    });
  }
  Status fill(float* at, std::uint64_t count, float value) override {
    return call<void>([&] { return done(device_->attr("fill")(number_of(at), count, value)); });
  }
  Status upload(std::span<const float> values, float* to) override {
    return call<void>([&] {
      auto* const host = const_cast<float*>(values.data());
      return done(device_->attr("upload")(lent(host, values.size()), number_of(to)));
    });
  }
  Status download(const float* from, std::span<float> values) override {
    return call<void>(
        [&] { return done(device_->attr("download")(number_of(from), lent(values.data(), values.size()))); });
  }
  Status load(std::span<const DeviceMean> means, float factor) override {
    return call<void>([&] { return done(device_->attr("load")(listed(means), factor)); });
  }
  Status encode(std::span<EncodeJob> jobs) override;
  Status decode(std::span<DecodeJob> jobs, Into into, float scale) override;
  Result<MeanFacts> examine(std::span<const DeviceMean> means) override;
  void publish(std::span<const DeviceMean> means) noexcept override {
    (void)call<void>([&] { return done(device_->attr("publish")(listed(means))); });
  }
  void forget_decoded() noexcept override;

 private:
  // A part whose errors the device may still find.
  struct Decoded {
    std::string name;
    int sender;
  };

  static Status done(const nb::object&) { return {}; }

  // With the GIL; what Python raises is an error.
  template <class Value, class Call>
  static Result<Value> call(Call call) noexcept {
    if (!interpreter_is_up()) return fail(ErrorCode::kState, "the interpreter has ended");
    const nb::gil_scoped_acquire gil;
    try {
      return call();
    } catch (const nb::python_error& error) {
      return tl::unexpected<Error>(error_of(error));
    } catch (const std::exception& error) {
      return fail(ErrorCode::kSystem, std::string("on the device: ") + error.what());
    }
  }

  // The last reference goes with the GIL; past the interpreter's end it stays.
  static void drop(std::shared_ptr<nb::object> device) noexcept {
    if (!interpreter_is_up()) {
      [[maybe_unused]] const auto* leaked = new (std::nothrow) std::shared_ptr<nb::object>(std::move(device));
      return;
    }
    const nb::gil_scoped_acquire gil;
    device.reset();
  }

  static void give_back(std::shared_ptr<nb::object> device, const float* values) noexcept {
    (void)call<void>([&] { return done(device->attr("release")(number_of(values))); });
    drop(std::move(device));
  }

  std::shared_ptr<nb::object> device_;
  std::vector<Decoded> decoded_;  // since the last examine
};

Status PythonBackend::encode(std::span<EncodeJob> jobs) {
  return call<void>([&]() -> Status {
    Specs specs;
    std::vector<PartToEncode> rows;
    std::vector<double> factors;
    for (const EncodeJob& job : jobs) {
      const auto carrier = job.carrier == DType::kF32 ? 0 : static_cast<std::int64_t>(job.carrier);
      rows.push_back({.codec = specs.number(*job.codec),
                      .values = signed_address(job.in.values),
                      .count = static_cast<std::int64_t>(job.in.count),
                      .dtype = static_cast<std::int64_t>(job.in.dtype),
                      .before = signed_address(job.before),
                      .after = signed_address(job.after),
                      .carrier = carrier,
                      .significance = signed_address(job.in.significance)});
      factors.push_back(job.factor);
    }
    const nb::object results =
        device_->attr("encode")(specs.list(), lent(rows), lent(factors.data(), factors.size()));
    for (const nb::handle each : results) {
      EncodedParts(each).give_to(jobs);
      give_errors(each[5], jobs, &EncodeJob::encoded);
    }
    return {};
  });
}

Status PythonBackend::decode(std::span<DecodeJob> jobs, Into into, float scale) {
  return call<void>([&]() -> Status {
    Specs specs;
    std::vector<PartToDecode> rows;
    std::vector<std::int64_t> ends;
    std::size_t behind = 0;
    for (const DecodeJob& job : jobs) {
      rows.push_back({.codec = specs.number(*job.codec),
                      .slot = signed_address(job.slot.values),
                      .count = static_cast<std::int64_t>(job.slot.count),
                      .scalar = job.in.scalar,
                      .scalar2 = job.in.scalar2,
                      .begin = static_cast<std::int64_t>(behind),
                      .chunks = static_cast<std::int64_t>(job.in.chunk_ends.size())});
      ends.insert(ends.end(), job.in.chunk_ends.begin(), job.in.chunk_ends.end());
      behind += (job.in.payload.size() + kPayloadAlignment - 1) / kPayloadAlignment * kPayloadAlignment;
    }
    const nb::object room = device_->attr("room")(specs.list(), lent(rows), lent(ends.data(), ends.size()));
    const auto memory = nb::cast<nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(room);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const Bytes payload = jobs[i].in.payload;
      const auto begin = static_cast<std::size_t>(rows[i].begin);
      if (payload.size() > memory.size() - begin)
        return fail(ErrorCode::kSystem, "a device's room is too small");
      if (!payload.empty()) std::memcpy(memory.data() + begin, payload.data(), payload.size());
    }
    give_errors(device_->attr("decode")(into == Into::kAccumulate, scale), jobs, &DecodeJob::decoded);
    for (const DecodeJob& job : jobs) decoded_.push_back({std::string(job.part), job.sender});
    return {};
  });
}

Result<MeanFacts> PythonBackend::examine(std::span<const DeviceMean> means) {
  return call<MeanFacts>([&]() -> Result<MeanFacts> {
    const nb::object found = device_->attr("examine")(listed(means));
    const std::vector<Decoded> decoded = std::exchange(decoded_, {});
    if (!found[5].is_none()) {
      const Decoded& part = decoded.at(nb::cast<std::size_t>(found[5][0]));
      Error error = error_of(found[5][1]);
      error.suspect = part.sender;
      error.tensor = part.name;
      return fail_in("part '" + part.name + "': ", std::move(error));
    }
    MeanFacts facts;
    facts.sums = {nb::cast<std::uint64_t>(found[0]), nb::cast<std::uint64_t>(found[1])};
    facts.finite = nb::cast<bool>(found[2]);
    if (!found[3].is_none()) {
      facts.beyond = nb::cast<std::size_t>(found[3]);
      facts.beyond_value = nb::cast<float>(found[4]);
    }
    return facts;
  });
}

void PythonBackend::forget_decoded() noexcept {
  decoded_.clear();
  (void)call<void>([&] { return done(device_->attr("forget_decoded")()); });
}

}  // namespace

std::shared_ptr<PartBackend> backend_of(nb::object device) {
  return std::make_shared<PythonBackend>(std::move(device));
}

nb::dict part_rows() {
  nb::dict members;
  members["to_encode"] = names_of(kToEncode);
  members["encoded"] = names_of(kEncoded);
  members["to_decode"] = names_of(kToDecode);
  return members;
}

}  // namespace deltawire::python
