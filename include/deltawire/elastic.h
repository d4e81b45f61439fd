// Elastic sessions: a rank's place in a job that goes on when ranks die, leave and join. After a failure
// those that remain agree on who goes on, connect again in the same processes, and repeat the open step
// (docs/guides/elastic.md, docs/design/elastic.md):
//
//   auto session = ElasticSession::open("3lc", {}, {.place = {{rank, world_size}}, .doors = {*rank_0}, .token
//   = token}); while (session && (*session)->steps() < 1000) {
//     ...
//     if (auto report = (*session)->all_reduce(gradients); !report) break;
//   }
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/connect.h"
#include "deltawire/export.h"
#include "deltawire/reducer.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "deltawire/transport.h"

namespace deltawire {

// An array of a state, by name. `kind` says how the elements are read ("<f4" of NumPy, for instance); nothing
// here reads it. The bytes, row-major, are the product of element_bytes and dims.
struct StateArray {
  std::string name;
  std::string kind = "<f4";
  std::uint32_t element_bytes = 4;
  std::vector<std::uint64_t> dims;
  Bytes bytes;  // in the memory of whoever gives it
};

// A rank of those that the session begins with.
struct ElasticPlace {
  int rank = 0;
  int world_size = 1;
};

struct ElasticOptions {
  // Nothing: this process joins a session that runs.
  std::optional<ElasticPlace> place;

  // Where rank 0 listens or, to join, where members do. Rank 0 of a job listens on the first; port 0 takes a
  // free one.
  std::vector<Endpoint> doors;
  // Called before each turn of attempts to come in, on the calling thread, for doors that have come to be
  // known.
  std::function<std::vector<Endpoint>()> more_doors;

  Token token{};  // equal on all ranks, as encryption is
  Encryption encryption = Encryption::kAuto;
  std::string interface;  // as of listen_for, as `ports` are
  PortRange ports;
  LinkOptions link;

  std::chrono::milliseconds timeout{60000};  // of a step, once it has begun; and of a chunk of a state
  std::chrono::milliseconds connect_timeout{60000};  // within which it must be connected
  std::chrono::milliseconds arrival_timeout{
      60000};  // MeshOptions::arrival_timeout; meetings may take as long

  // How many members suffice to go on. Nothing: more than half of the previous ones, or half with the lowest
  // id, so that after a network split at most one side goes on. With a number both sides may.
  std::optional<int> at_least;

  // What a process needs to join at this step: all arrays, by name. It is called within all_reduce, on the
  // thread that calls that, on members that can give them. Arrays that are equal on all ranks are fetched
  // from several ranks at once; put them first. They must stay as they are until that all_reduce returns. If
  // it fails, who wants to join is refused with its error.
  std::function<Result<std::vector<StateArray>>()> state;

  // What must be equal on all members besides agreed_settings of the spec and the options.
  std::string settings;

  // Called a few times a second by open, on the calling thread; true ends it with kAborted.
  std::function<bool()> interrupted;

  // Called with a line for a log: a failure, and the view that came of it. On the thread that calls
  // all_reduce.
  std::function<void(std::string_view)> log;
};

struct ElasticMember {
  int id = 0;  // its number for as long as the job lasts; given once. Ranks are in the order of ids
  Endpoint door;

  bool operator==(const ElasticMember&) const = default;
};

// A change of members that this one has seen.
struct ElasticEvent {
  struct Gone {
    int id = 0;
    int rank = 0;  // that it had
    std::string why;
  };

  std::uint32_t epoch = 0;  // that began
  std::uint64_t step = 0;   // that was repeated
  std::vector<Gone> gone;
  std::vector<int> joined;  // ids
  int world_size = 0;
  double seconds = 0;  // that the change took
  // L2 norms: of the residuals of the members that go on, and an estimate of the others': as if each had had
  // the mean square of those that are kept.
  double residual_kept = 0;
  double residual_lost = 0;
  Error error;  // that began it
};

// A bucket of a step.
struct ElasticBucket {
  Bucket bucket;
  // Called before it is begun, in each attempt of the step, once the buckets before it are finished: it
  // writes the tensors, of which an attempt that failed in a later bucket has made means. Only the last
  // bucket may be without.
  std::function<void()> prepare;
};

// As Step's members of these names.
struct ElasticStep {
  float scale = 1.0F;
  std::uint64_t agreed = 0;
  bool timed = false;
};

// Buckets of a step run one after another. The ranks in errors are those of the epoch in which they happened.
//
// Thread rule: one thread calls all_reduce, load and begin_at, any may call the others. In a forked child
// every call is refused (kState) or does nothing, and the destructor leaks.
class DELTAWIRE_API ElasticSession {
 public:
  // Meets the ranks that the session begins with at rank 0's door, or joins a session that runs. `door`, if
  // given, is where this process listens, instead of what `interface` and `ports` say. Errors: kTimeout
  // (names the missing ranks), kUnauthorized, kMismatch (a rank with other settings, or a duplicate one),
  // kAborted (interrupted, or the state that a process needs to join could not be given), those of
  // make_reducer, listen_for and connect_tcp, kInvalidArgument.
  static Result<std::unique_ptr<ElasticSession>> open(std::string_view spec, const ReducerOptions& options,
                                                      ElasticOptions elastic,
                                                      std::unique_ptr<Listener> door = nullptr);
  ~ElasticSession();  // close()
  ElasticSession(const ElasticSession&) = delete;
  ElasticSession& operator=(const ElasticSession&) = delete;

  // One step: each tensor becomes its mean over the members. A step that fails because members are lost, or
  // others want to join, is repeated in the next view until it is committed. Returns the last bucket's
  // report. Errors that end the session, each with the epoch in its message: kExcluded (the others went on
  // without this process, which may join again), kNoQuorum (too few are left or can be reached), kAborted (by
  // abort or close), kMismatch (this process joined with other names or shapes, and has left, or ranks give
  // different ones), kNotFinite and others of Reducer::begin and finish. After an error the last
  // bucket's tensors are untouched, and the others' are what is left of an attempt. kInvalidArgument without
  // an epoch, which ends nothing: two tensors share memory or a name, or a `prepare` is missing.
  Result<Report> all_reduce(std::span<const ElasticBucket> buckets, const ElasticStep& step = {});
  Result<Report> all_reduce(std::span<const Named> tensors, const ElasticStep& step = {}) {
    const ElasticBucket bucket{tensors, {}};
    return all_reduce(std::span(&bucket, 1), step);
  }

  // Of the present epoch.
  int rank() const;
  int world_size() const;
  std::uint32_t epoch() const;
  std::vector<ElasticMember> members() const;  // by rank
  // How many steps are committed, which is the number of the next one.
  std::uint64_t steps() const;

  // Whether processes wait to join, which the next all_reduce lets in.
  bool has_joiners() const;

  std::vector<ElasticEvent> events() const;
  // Of a process that has joined: the arrays that another member gave, in memory that lives as long as the
  // session. Nothing for others, and empty where members have no `state`.
  std::optional<std::span<const StateArray>> joined_state() const;

  // The error that ended the session, and the epoch that it is about: of kExcluded that in which the others
  // went on.
  struct End {
    Error error;
    std::optional<std::uint32_t> epoch;
  };
  std::optional<End> end() const;

  // Tensors that will be exchanged, before the steps do so: a loaded state may have residuals of all. Names
  // and dims are copied.
  void declare_tensors(std::span<const Named> tensors);
  // Between steps, as Session's members of these names; begin_at: the next step's number, after load.
  Status mask_sent(std::span<const Named> momenta);
  Result<std::vector<TensorUse>> explain(std::span<const Named> tensors, std::uint64_t step);
  Result<std::vector<std::byte>> save();
  Status load(Bytes state);
  Status load_resized(const SavedRanks& saved);
  void begin_at(std::uint64_t steps);

  // This member gives up at once; the others go on without it. A step or meeting under way ends with
  // kAborted.
  void abort(std::string_view reason);
  // Tells the other members that this one leaves, and why, and hangs up. Idempotent.
  void close(std::string_view why = "it left");
  bool closed() const noexcept;

  std::string spec() const;  // canonical
  Memory memory() const;     // of the present epoch, as is
  Traffic traffic() const;

 private:
  struct DELTAWIRE_HIDDEN Parts;
  explicit ElasticSession(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace deltawire
