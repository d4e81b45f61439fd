// Ranks train one linear model; the last one is killed in step 20, and the others go on without it.
//
//   for rank in 0 1 2; do build/elastic 127.0.0.1:4000 $rank 3 & done     # rank 0 listens there
//   build/elastic 127.0.0.1:4000     # one more, which joins if they still train
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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
  if (argc != 2 && argc != 4) return std::fprintf(stderr, "usage: elastic HOST:PORT [RANK WORLD_SIZE]\n"), 2;
  std::vector<float> w(300), gradient(w.size());
  dw::ElasticOptions options;  // options.token: a secret of your own
  options.doors = {must(dw::parse_endpoint(argv[1]))};
  if (argc == 4) options.place = {std::atoi(argv[2]), std::atoi(argv[3])};
  options.state = [&]() -> dw::Result<std::vector<dw::StateArray>> {  // what a process needs to join
    return std::vector<dw::StateArray>{{"w", "<f4", 4, {w.size()}, std::as_bytes(std::span(w))}};
  };
  auto session = must(dw::ElasticSession::open("3lc", {}, options));
  if (const auto joined = session->joined_state())
    std::memcpy(w.data(), joined->front().bytes.data(), 4 * w.size());

  while (session->steps() < 100) {
    const bool is_last = session->rank() == session->world_size() - 1;
    if (is_last && session->epoch() == 0 && session->steps() == 20) std::raise(SIGKILL);
    // The loss is half the square of w's distance from the weights 1, -1, 1, -1 ...
    for (std::size_t i = 0; i < w.size(); ++i) gradient[i] = w[i] - (i % 2 == 0 ? 1.0F : -1.0F);
    const dw::Named tensors[] = {{"w", {gradient.data(), gradient.size()}}};
    must(session->all_reduce(tensors));  // the mean of those who remain
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= 0.1F * gradient[i];
  }
  std::printf("w[0] = %.9g, rank %d of %d, epoch %u\n", static_cast<double>(w[0]), session->rank(),
              session->world_size(), session->epoch());
}
