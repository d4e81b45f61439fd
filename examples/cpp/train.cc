// Ranks train one linear model over TCP, each on data of its own: y = w x, by gradients that 3LC compresses.
//
//   cmake -B build && cmake --build build
//   build/train 0 127.0.0.1:4000 127.0.0.1:4001 &
//   build/train 1 127.0.0.1:4000 127.0.0.1:4001
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <deltawire/deltawire.hpp>

namespace dw = deltawire;

template <class T>
T must(dw::Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.error().text().c_str());
  std::exit(1);
}

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: train RANK HOST:PORT...  (of every rank, in order)\n"), 2;
  dw::MeshOptions mesh;
  mesh.rank = std::atoi(argv[1]);
  mesh.world_size = argc - 2;
  for (int i = 2; i < argc; ++i) mesh.endpoints.push_back(must(dw::parse_endpoint(argv[i])));
  if (mesh.rank < 0 || mesh.rank >= mesh.world_size) return std::fprintf(stderr, "no such rank\n"), 2;
  mesh.settings = "examples/cpp";  // whatever must be the same everywhere; mesh.token: a secret of your own
  const dw::Endpoint& own = mesh.endpoints[static_cast<std::size_t>(mesh.rank)];
  auto session = must(dw::Session::connect("3lc", {}, must(dw::listen_tcp(own.host, own.port)), mesh));

  std::mt19937 draw(static_cast<unsigned>(mesh.rank));
  std::normal_distribution<float> normal;
  constexpr std::size_t kWeights = 300, kBatch = 16;
  std::vector<float> w(kWeights), x(kWeights), gradient(kWeights);
  std::uint64_t sent = 0, raw = 0;
  float loss = 0;
  for (std::uint64_t step = 0; step < 300; ++step) {
    gradient.assign(kWeights, 0.0F);
    loss = 0;
    for (std::size_t sample = 0; sample < kBatch; ++sample) {
      float error = 0;  // of w x against what is to be learned: the weights 1, -1, 1, -1 ...
      for (std::size_t i = 0; i < kWeights; ++i) {
        x[i] = normal(draw);
        error += (w[i] - (i % 2 == 0 ? 1.0F : -1.0F)) * x[i];
      }
      for (std::size_t i = 0; i < kWeights; ++i) gradient[i] += error * x[i] / kBatch;
      loss += error * error / kBatch;
    }
    const dw::Named tensors[] = {{"w", {gradient.data(), kWeights}}};
    const dw::Report report = must(session->all_reduce(tensors, {.number = step}, std::chrono::seconds(20)));
    for (std::size_t i = 0; i < kWeights; ++i) w[i] -= 0.05F * gradient[i];
    sent += report.bytes_sent;
    raw += report.raw_bytes;
  }
  session->close();
  std::printf("w[0] = %.9g, loss %.3g, %.1f times fewer bytes than float32\n", static_cast<double>(w[0]),
              static_cast<double>(loss), static_cast<double>(raw) / static_cast<double>(sent));
}
