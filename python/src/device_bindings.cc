#include "device_bindings.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

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
nb::object lent(Bytes bytes) {
  auto* values = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(bytes.data()));
  return lent(values, bytes.size());
}

template <class Number>
bool copied(nb::handle from, Number* to, std::size_t room) {
  const auto numbers = nb::cast<Numbers<Number>>(from);
  if (numbers.size() > room) return false;
  if (numbers.size() > 0) std::memcpy(to, numbers.data(), sizeof(Number) * numbers.size());
  return true;
}

// What a job's part gave: (payload, ends, sums, scalars).
Result<EncodedPart> part_from(nb::handle part, const PartBuffer& out) {
  const nb::object payload = part[0];
  const nb::object ends = part[1];
  const nb::object sums = part[2];
  EncodedPart encoded;
  encoded.payload_bytes = nb::len(payload);
  encoded.chunks = static_cast<std::uint32_t>(nb::len(ends));
  encoded.has_sums = nb::len(sums) == encoded.chunks && out.chunk_sums.size() >= encoded.chunks;
  auto* const bytes = reinterpret_cast<std::uint8_t*>(out.payload.data());
  if (!copied(payload, bytes, out.payload.size()) ||
      !copied(ends, out.chunk_ends.data(), out.chunk_ends.size()) ||
      (encoded.has_sums && !copied(sums, out.chunk_sums.data(), out.chunk_sums.size()))) {
    return fail(ErrorCode::kOutputTooSmall, "a device has encoded a part to more than its codec's bounds");
  }
  encoded.scalar = nb::cast<std::uint32_t>(part[3][0]);
  encoded.scalar2 = nb::cast<std::uint32_t>(part[3][1]);
  return encoded;
}

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
  Status encode(std::span<EncodeJob> jobs) override;
  Status decode(std::span<DecodeJob> jobs, Into into, float scale) override;
  Result<MeanFacts> examine(std::span<const DeviceMean> means) override;
  void publish(std::span<const DeviceMean> means) noexcept override {
    (void)call<void>([&] { return done(device_->attr("publish")(listed(means))); });
  }

 private:
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
};

Status PythonBackend::encode(std::span<EncodeJob> jobs) {
  return call<void>([&]() -> Status {
    nb::list given;
    for (const EncodeJob& job : jobs) {
      given.append(nb::make_tuple(job.codec->spec(), number_of(job.in.values), job.in.count,
                                  dtype_name(job.in.dtype), number_of(job.before), number_of(job.after),
                                  job.factor, job.carrier == DType::kF32 ? "" : dtype_name(job.carrier)));
    }
    const nb::object results = device_->attr("encode")(given);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const nb::object result = results[i];  // (part or None, error or None, is_zeros, carries)
      jobs[i].is_zeros = nb::cast<bool>(result[2]);
      jobs[i].carries = nb::cast<bool>(result[3]);
      if (!result[1].is_none()) {
        jobs[i].encoded = tl::unexpected<Error>(error_of(result[1]));
      } else if (!result[0].is_none()) {
        jobs[i].encoded = part_from(result[0], jobs[i].out);
      }
    }
    return {};
  });
}

Status PythonBackend::decode(std::span<DecodeJob> jobs, Into into, float scale) {
  return call<void>([&]() -> Status {
    nb::list given;
    for (const DecodeJob& job : jobs) {
      auto* const ends = const_cast<std::uint32_t*>(job.in.chunk_ends.data());
      given.append(nb::make_tuple(job.codec->spec(), lent(job.in.payload),
                                  lent(ends, job.in.chunk_ends.size()), job.in.scalar, job.in.scalar2,
                                  number_of(job.slot.values), job.slot.count));
    }
    const nb::object errors = device_->attr("decode")(given, into == Into::kAccumulate, scale);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const nb::object error = errors[i];
      if (!error.is_none()) jobs[i].decoded = tl::unexpected<Error>(error_of(error));
    }
    return {};
  });
}

Result<MeanFacts> PythonBackend::examine(std::span<const DeviceMean> means) {
  return call<MeanFacts>([&]() -> Result<MeanFacts> {
    const nb::object found = device_->attr("examine")(listed(means));
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

}  // namespace

std::shared_ptr<PartBackend> backend_of(nb::object device) {
  return std::make_shared<PythonBackend>(std::move(device));
}

}  // namespace deltawire::python
