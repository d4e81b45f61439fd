#include "deltawire/connect_gloo.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <numeric>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include "transport/fabric/fabric.h"
#include "transport/gloo/gloo_fabric.h"
#include "transport/mesh/settings.h"
#include "transport/process/signals.h"

namespace deltawire {
namespace {

constexpr std::string_view kJobLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
constexpr std::chrono::milliseconds kLook{10};

Status check_options(const GlooOptions& options) {
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    return fail(ErrorCode::kInvalidArgument, "connect_gloo: rank " + std::to_string(options.rank) +
                                                 " is not in a world of " +
                                                 std::to_string(options.world_size));
  }
  if (options.job.empty() || options.job.find_first_not_of(kJobLetters) != std::string::npos) {
    return fail(ErrorCode::kInvalidArgument,
                "connect_gloo: the job's name must be letters, digits, '-', '_' and '.', and not empty");
  }
  std::error_code unreadable;
  if (!std::filesystem::is_directory(options.rendezvous_folder, unreadable)) {
    return fail(ErrorCode::kInvalidArgument,
                "connect_gloo: rendezvous_folder \"" + options.rendezvous_folder + "\" is not a folder");
  }
  if (!options.host.empty() && !options.network_interface.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "connect_gloo: give host or network_interface, not both of them");
  }
  if (options.connect_timeout.count() <= 0) {
    return fail(ErrorCode::kInvalidArgument, "connect_gloo: connect_timeout must be above 0");
  }
  return check_settings("connect_gloo", options.settings);
}

// Gloo's store in a folder. It can tell at once whether a key exists, instead of waiting whole seconds.
class FolderStore final : public gloo::rendezvous::FileStore {
 public:
  using FileStore::FileStore;
  bool has(const std::string& key) { return check({key}); }
};

// Every rank leaves a mark in the store, so that the missing ones have names.
Status meet(FolderStore& store, const GlooOptions& options, Deadline deadline) {
  const auto mark = [&options](int rank) { return options.job + "/here/" + std::to_string(rank); };
  if (store.has(mark(options.rank))) {
    return fail(ErrorCode::kInvalidArgument,
                "connect_gloo: rank " + std::to_string(options.rank) + " of job \"" + options.job +
                    "\" has connected before through " + options.rendezvous_folder +
                    "; give every job, and every restart of it, its own name");
  }
  store.set(mark(options.rank), {'1'});
  std::vector<int> missing(static_cast<std::size_t>(options.world_size));
  std::iota(missing.begin(), missing.end(), 0);
  while (true) {
    std::erase_if(missing, [&](int rank) { return store.has(mark(rank)); });
    if (missing.empty()) return {};
    if (Clock::now() >= deadline) break;
    std::this_thread::sleep_for(kLook);
  }
  std::string names;
  for (const int rank : missing) names += (names.empty() ? "" : ", ") + std::to_string(rank);
  return fail(ErrorCode::kTimeout,
              "rank " + std::to_string(options.rank) + " waited " +
                  std::to_string(options.connect_timeout.count()) + " ms in " + options.rendezvous_folder +
                  " for rank " + names + " of job \"" + options.job +
                  "\"; did all ranks start, with the same folder and job?",
              missing.front());
}

// Gloo's interface for stores changed from a reference to a shared pointer in 2025.
template <class Context>
void connect_full_mesh(Context& context, gloo::rendezvous::Store& store,
                       std::shared_ptr<gloo::transport::Device>& device) {
  if constexpr (requires { context.connectFullMesh(store, device); }) {
    context.connectFullMesh(store, device);
  } else {
    const std::shared_ptr<gloo::rendezvous::Store> borrowed(&store, [](gloo::rendezvous::Store*) {});
    context.connectFullMesh(borrowed, device);
  }
}

Result<std::shared_ptr<gloo::Context>> connect_context(const GlooOptions& options, Deadline deadline) {
  FolderStore folder(options.rendezvous_folder);
  if (Status met = meet(folder, options, deadline); !met) return forward_error(met);
  gloo::transport::tcp::attr address;
  address.hostname = options.host;
  address.iface = options.network_interface;
  std::shared_ptr<gloo::transport::Device> device;
  {
    const SignalsHeldBack no_signals;  // for Gloo's thread, which starts here
    device = gloo::transport::tcp::CreateDevice(address);
  }
  const BrokenPipesHeldBack no_broken_pipes;
  auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.world_size);
  context->setTimeout(options.connect_timeout);
  gloo::rendezvous::PrefixStore store(options.job, folder);
  connect_full_mesh(*context, store, device);
  return context;
}

}  // namespace

bool has_gloo() noexcept {
  return true;
}

Result<std::unique_ptr<Transport>> connect_gloo(const GlooOptions& options) {
  if (Status status = check_options(options); !status) return forward_error(status);
  const Deadline deadline = Clock::now() + options.connect_timeout;
  try {
    auto context = connect_context(options, deadline);
    if (!context) return forward_error(context);
    return connect_fabric({options.rank, options.world_size, options.settings, options.epoch},
                          std::make_unique<GlooFabric>(std::move(*context)),
                          std::max(deadline, Clock::now() + kLook));
  } catch (const std::exception& error) {
    return fail(ErrorCode::kSystem,
                "connect_gloo: rank " + std::to_string(options.rank) + ": " + std::string(error.what()));
  }
}

}  // namespace deltawire
