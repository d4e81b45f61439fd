/* Elastic sessions: one member, another that joins and leaves, and arguments that can't be meant. The loss of
 * a rank has the examples. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "c_test.h"

enum { kCount = 300, kSeconds = 60 };

static deltawire_error error;
static const uint8_t token[32] = {1, 2, 3};

static void refuse(const deltawire_session_options* options, const deltawire_elastic_options* elastic,
                   const char* words) {
  deltawire_elastic* session = (deltawire_elastic*)&error;
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, words, error,
               deltawire_elastic_open("fp32", options, elastic, NULL, &session, &error));
  EXPECT(session == NULL);
}

static void test_options(const deltawire_session_options* good, const deltawire_elastic_options* elastic) {
  static const char* const doors[] = {"127.0.0.1:4000", "127.0.0.1"};
  deltawire_session_options bad = *good;
  deltawire_elastic_options wrong = *elastic;
  deltawire_elastic* session = NULL;
  deltawire_tensor nameless = tensor_of(NULL, NULL, 0), two[2];
  float values[kCount];
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "options is NULL", error,
               deltawire_elastic_options_init(NULL, DELTAWIRE_ABI_VERSION, &error));
  EXPECT_ERROR(DELTAWIRE_UNSUPPORTED_VERSION, "newer", error,
               deltawire_elastic_options_init(&wrong, DELTAWIRE_ABI_VERSION + 1, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "session is NULL", error,
               deltawire_elastic_open("fp32", good, elastic, NULL, NULL, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "spec is NULL", error,
               deltawire_elastic_open(NULL, good, elastic, NULL, &session, &error));
  EXPECT_ERROR(DELTAWIRE_UNKNOWN_CODEC, "nonsense", error,
               deltawire_elastic_open("nonsense", good, elastic, NULL, &session, &error));
  refuse(NULL, elastic, "options is NULL");
  refuse(good, NULL, "elastic is NULL");
  bad = *good, bad.abi_version = 0, refuse(&bad, elastic, "deltawire_session_options: abi_version is 0");
  bad = *good, bad.endpoints = doors, refuse(&bad, elastic, "leave endpoints NULL");
  bad = *good, bad.epoch = 1, refuse(&bad, elastic, "epoch 0");
  bad = *good, bad.world_size = 0, bad.rank = 1, refuse(&bad, elastic, "a process that joins");
  bad = *good, bad.rank = 1, refuse(&bad, elastic, "rank 1 is not in a world of 1");
  bad = *good, bad.fold_revert = 1, refuse(&bad, elastic, "fold");
  wrong.abi_version = 0, refuse(good, &wrong, "deltawire_elastic_options: abi_version is 0");
  wrong = *elastic, wrong.reserved[7] = 1, refuse(good, &wrong, "reserved");
  wrong = *elastic, wrong.timeout_ms = 0, refuse(good, &wrong, "timeout_ms is 0");
  wrong = *elastic, wrong.at_least = -1, refuse(good, &wrong, "at_least");
  wrong = *elastic, wrong.door_count = 1, refuse(good, &wrong, "doors is NULL");
  wrong.doors = doors, wrong.door_count = 2, refuse(good, &wrong, "doors[1]: \"127.0.0.1\" is not HOST:PORT");
  wrong = *elastic, wrong.state_count = 1, refuse(good, &wrong, "tensors is NULL");
  wrong.state = &nameless, refuse(good, &wrong, "the state: tensors[0].name is NULL");
  two[0] = tensor_of("v", values, kCount), two[1] = tensor_of("w", values + 1, 1);
  wrong.state = two, wrong.state_count = 2, refuse(good, &wrong, "the state: 'v' and 'w' share memory");
}

static void test_arguments(deltawire_elastic* session) {
  float values[kCount] = {0};
  deltawire_tensor two[2];
  two[0] = tensor_of("v", values, kCount), two[1] = tensor_of("w", values + 1, 1);
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "session is NULL", error,
               deltawire_elastic_all_reduce(NULL, two, 1, 1, NULL, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "tensors is NULL", error,
               deltawire_elastic_all_reduce(session, NULL, 1, 1, NULL, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "scale is 0", error,
               deltawire_elastic_all_reduce(session, two, 1, 0, NULL, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "share memory", error,
               deltawire_elastic_all_reduce(session, two, 2, 1, NULL, &error));
  EXPECT(deltawire_elastic_steps(session) == 0);
  EXPECT(deltawire_elastic_rank(NULL) == -1 && deltawire_elastic_world_size(NULL) == 0);
  EXPECT(deltawire_elastic_epoch(NULL) == 0 && deltawire_elastic_steps(NULL) == 0);
  deltawire_elastic_close(NULL);
}

/* The mean of what all members give. */
static float mean_of(deltawire_elastic* session, float own) {
  float values[kCount];
  deltawire_tensor tensor = tensor_of("x", values, kCount);
  deltawire_report report;
  unsigned i;
  for (i = 0; i < kCount; ++i) values[i] = own;
  EXPECT_OK(error, deltawire_elastic_all_reduce(session, &tensor, 1, 1, &report, &error));
  EXPECT(report.element_count == kCount);
  EXPECT(report.last_committed_step + 1 == deltawire_elastic_steps(session));
  return values[kCount - 1];
}

/* Its state has another name; then it has theirs, and makes one step with them. */
static int join(deltawire_session_options options, int end_of_pipe) {
  char door[64] = {0};
  const char* doors[1];
  float weights[kCount] = {0};
  deltawire_tensor state = tensor_of("weight", weights, kCount);
  deltawire_elastic_options elastic;
  deltawire_elastic* session = NULL;
  doors[0] = door;
  EXPECT(read(end_of_pipe, door, sizeof door - 1) > 0);
  EXPECT_OK(error, deltawire_elastic_options_init(&elastic, DELTAWIRE_ABI_VERSION, &error));
  elastic.doors = doors, elastic.door_count = 1, elastic.state = &state, elastic.state_count = 1;
  options.world_size = 0;
  EXPECT_ERROR(DELTAWIRE_MISMATCH, "state has other tensors", error,
               deltawire_elastic_open("fp32", &options, &elastic, NULL, &session, &error));
  EXPECT(session == NULL && weights[0] == 0);
  state.name = "weights";
  EXPECT_OK(error, deltawire_elastic_open("fp32", &options, &elastic, NULL, &session, &error));
  EXPECT(weights[0] == 5 && weights[kCount - 1] == 5);
  EXPECT(deltawire_elastic_steps(session) > 0);
  EXPECT(mean_of(session, 3) == 2);
  EXPECT(deltawire_elastic_rank(session) == 1 && deltawire_elastic_world_size(session) == 2);
  deltawire_elastic_close(session);
  return failures;
}

static void lead(const deltawire_session_options* options, int end_of_pipe, pid_t other) {
  float weights[kCount];
  deltawire_tensor state = tensor_of("weights", weights, kCount);
  deltawire_elastic_options elastic;
  deltawire_elastic *session = NULL, *second = NULL;
  deltawire_listener* listener = NULL;
  const char* door;
  const time_t begun = time(NULL);
  int status = -1, met = 0;
  unsigned i;
  for (i = 0; i < kCount; ++i) weights[i] = 5;
  EXPECT_OK(error, deltawire_elastic_options_init(&elastic, DELTAWIRE_ABI_VERSION, &error));
  EXPECT(elastic.timeout_ms == 60000 && elastic.at_least == 0);
  test_options(options, &elastic);
  elastic.state = &state, elastic.state_count = 1;
  EXPECT_OK(error, deltawire_listener_open("127.0.0.1", 0, 0, &listener, &error));
  EXPECT_OK(error, deltawire_elastic_open("fp32", options, &elastic, listener, &session, &error));
  EXPECT_ERROR(DELTAWIRE_STATE, "listener", error,
               deltawire_elastic_open("fp32", options, &elastic, listener, &second, &error));
  EXPECT(deltawire_elastic_rank(session) == 0 && deltawire_elastic_world_size(session) == 1);
  test_arguments(session);
  EXPECT(mean_of(session, 1) == 1 && deltawire_elastic_epoch(session) == 0);
  door = deltawire_listener_endpoint(listener);
  EXPECT(write(end_of_pipe, door, strlen(door)) == (ssize_t)strlen(door));
  while (waitpid(other, &status, WNOHANG) == 0 && time(NULL) < begun + kSeconds) {
    const float mean = mean_of(session, 1);
    met += mean == 2 && deltawire_elastic_world_size(session) == 2;
  }
  EXPECT(status == 0);
  EXPECT(met == 1);
  EXPECT(mean_of(session, 1) == 1 && deltawire_elastic_epoch(session) > 1);
  deltawire_elastic_close(session);
  deltawire_listener_close(listener);
}

void test_elastic(void) {
  int ends[2];
  pid_t other;
  deltawire_session_options options;
  EXPECT_OK(error, deltawire_session_options_init(&options, DELTAWIRE_ABI_VERSION, &error));
  options.world_size = 1;
  options.token = token;
  EXPECT(pipe(ends) == 0);
  fflush(stdout);
  other = fork();
  EXPECT(other >= 0);
  if (other == 0) exit(join(options, ends[0]));
  lead(&options, ends[1], other);
  close(ends[0]);
  close(ends[1]);
}
