// One rank of a session, by the C++ or the C interface, for tests/numpy_door/test_meeting.py: meets the
// others where rank 0 listens, averages its rank with theirs, and prints the mean, or the error's name and
// text.
//
//   deltawire_session_rank c++|c RANK WORLD ADDRESS SPEC MIN_ELEMENTS
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "deltawire/deltawire.h"
#include "deltawire/deltawire.hpp"

namespace {

constexpr std::size_t kCount = 1000;
constexpr int kMilliseconds = 20000;

struct Place {
  int rank;
  int world_size;
  const char* address;
  const char* spec;
  std::uint64_t min_elements;
  std::string_view secret;
};

deltawire::Result<float> by_cpp(const Place& place, std::vector<float>& values) {
  using namespace deltawire;  // NOLINT(google-build-using-namespace)
  const auto token = token_of(std::as_bytes(std::span(place.secret)));
  if (!token) return forward_error(token);
  auto rendezvous = parse_endpoint(place.address);
  if (!rendezvous) return forward_error(rendezvous);
  MeshOptions mesh;
  mesh.rank = place.rank;
  mesh.world_size = place.world_size;
  mesh.token = *token;
  mesh.rendezvous = *std::move(rendezvous);
  mesh.connect_timeout = std::chrono::milliseconds(kMilliseconds);
  auto listener = listen_for(*mesh.rendezvous, mesh.rank);
  if (!listener) return forward_error(listener);
  const ReducerOptions options{.policy = {.min_elements = place.min_elements}};
  auto session = Session::connect(place.spec, options, *std::move(listener), mesh);
  if (!session) return forward_error(session);
  const Named tensors[] = {{"x", {values.data(), values.size()}}};
  const auto report = (*session)->all_reduce(tensors, {}, std::chrono::milliseconds(kMilliseconds));
  if (!report) return forward_error(report);
  return values.front();
}

int by_c(const Place& place, std::vector<float>& values, deltawire_error* error) {
  std::uint8_t token[32];
  int status = deltawire_token_of(place.secret.data(), place.secret.size(), token, error);
  deltawire_session_options options;
  if (status == DELTAWIRE_OK) status = deltawire_session_options_init(&options, DELTAWIRE_ABI_VERSION, error);
  if (status != DELTAWIRE_OK) return status;
  options.rank = place.rank;
  options.world_size = place.world_size;
  options.token = token;
  options.min_elements = place.min_elements;
  options.connect_timeout_ms = kMilliseconds;
  deltawire_session* session = nullptr;
  status = deltawire_session_meet(place.spec, &options, place.address, nullptr, &session, error);
  if (status != DELTAWIRE_OK) return status;
  deltawire_tensor tensor{};
  tensor.name = "x";
  tensor.values = values.data();
  tensor.count = values.size();
  tensor.dtype = DELTAWIRE_F32;
  const deltawire_step step{0, 0, 1, 1.0F, 0};
  status = deltawire_session_all_reduce(session, &tensor, 1, &step, kMilliseconds, nullptr, error);
  deltawire_session_close(session);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  const char* secret = std::getenv("DELTAWIRE_TOKEN");
  if (argc != 7 || secret == nullptr) return 2;
  const Place place{
      std::atoi(argv[2]), std::atoi(argv[3]), argv[4], argv[5], std::strtoull(argv[6], nullptr, 10), secret};
  std::vector<float> values(kCount, static_cast<float>(place.rank));
  if (std::string_view(argv[1]) == "c") {
    deltawire_error error;
    if (by_c(place, values, &error) == DELTAWIRE_OK) return std::printf("mean %g\n", values.front()), 0;
    return std::printf("%s: %s\n", deltawire_error_name(error.code), error.message), 1;
  }
  const auto mean = by_cpp(place, values);
  if (mean) return std::printf("mean %g\n", *mean), 0;
  return std::printf("%s: %s\n", deltawire::error_code_name(mean.error().code).data(),
                     mean.error().text().c_str()),
         1;
}
