/* Sessions: a world of one, and arguments that can't be meant. Two ranks have the examples. */
#include <math.h>

#include "c_test.h"

enum { kCount = 300 };

static deltawire_error error;
static const deltawire_step kStep = {0, 0, 1, 1.0F, 0};

static void test_listeners(void) {
  deltawire_listener *listener = NULL, *second = (deltawire_listener*)&error;
  unsigned port = 0;
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "host is NULL", error,
               deltawire_listener_open(NULL, 0, 0, &listener, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "listener is NULL", error,
               deltawire_listener_open("127.0.0.1", 0, 0, NULL, &error));
  EXPECT_OK(error, deltawire_listener_open("127.0.0.1", 0, 0, &listener, &error));
  EXPECT(sscanf(deltawire_listener_endpoint(listener), "127.0.0.1:%u", &port) == 1 && port > 0);
  EXPECT_ERROR(DELTAWIRE_ADDRESS_IN_USE, "", error,
               deltawire_listener_open("127.0.0.1", (uint16_t)port, (uint16_t)port, &second, &error));
  EXPECT(second == NULL);
  deltawire_listener_close(listener);
  deltawire_listener_close(NULL);
  EXPECT(deltawire_listener_endpoint(NULL) == NULL);
}

static void refuse(const deltawire_session_options* options, const char* words) {
  deltawire_session* session = (deltawire_session*)&error;
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, words, error,
               deltawire_session_open("3lc", options, NULL, &session, &error));
  EXPECT(session == NULL);
}

static void test_tokens(void) {
  uint8_t token[32], again[32];
  const char* secret = "a secret of the tests, long enough to be one";
  memset(again, 7, sizeof again);
  EXPECT_OK(error, deltawire_token_of(again, sizeof again, token, &error));
  EXPECT(memcmp(token, again, sizeof token) == 0);
  EXPECT_OK(error, deltawire_token_of(secret, strlen(secret), token, &error));
  EXPECT_OK(error, deltawire_token_of(secret, strlen(secret) - 1, again, &error));
  EXPECT(memcmp(token, again, sizeof token) != 0);
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "16 or more", error,
               deltawire_token_of(secret, 15, token, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "secret is NULL", error,
               deltawire_token_of(NULL, 16, token, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "token is NULL", error,
               deltawire_token_of(secret, 16, NULL, &error));
}

static void test_options(const deltawire_session_options* good) {
  static const char* const wrong[] = {
      "", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", ":4000", "127.0.0.1:4000x", NULL};
  deltawire_session* session = NULL;
  deltawire_session_options bad = *good;
  const char* endpoints[1];
  unsigned i;
  bad.abi_version = 0;
  refuse(&bad, "_init");
  bad.abi_version = DELTAWIRE_ABI_VERSION + 7;
  EXPECT_ERROR(DELTAWIRE_UNSUPPORTED_VERSION, "version 8", error,
               deltawire_session_open("3lc", &bad, NULL, &session, &error));
  EXPECT_ERROR(DELTAWIRE_UNSUPPORTED_VERSION, "newer", error,
               deltawire_session_options_init(&bad, DELTAWIRE_ABI_VERSION + 1, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "options", error,
               deltawire_session_options_init(NULL, DELTAWIRE_ABI_VERSION, &error));
  bad = *good, bad.world_size = 0, refuse(&bad, "world_size is 0");
  bad = *good, bad.world_size = 65536, refuse(&bad, "it can be 1 to 65535");
  bad = *good, bad.world_size = INT32_MAX, refuse(&bad, "world_size");
  bad = *good, bad.rank = 1, refuse(&bad, "rank 1 is not in a world of 1");
  bad = *good, bad.rank = -1, refuse(&bad, "rank -1");
  bad = *good, bad.token = NULL, refuse(&bad, "token is NULL");
  bad = *good, bad.endpoints = NULL, refuse(&bad, "endpoints is NULL");
  bad = *good, bad.connect_timeout_ms = 0, refuse(&bad, "connect_timeout_ms is 0");
  bad = *good, bad.arrival_timeout_ms = -1, refuse(&bad, "arrival_timeout_ms");
  bad = *good, bad.pass_not_finite = 9, refuse(&bad, "pass_not_finite is 9");
  bad = *good, bad.fold_revert = -1, refuse(&bad, "fold_revert is -1");
  bad = *good, bad.reserved[7] = 1, refuse(&bad, "reserved");
  bad = *good, bad.reserved[0] = 3, refuse(&bad, "reserved");
  bad = *good, bad.threads = -1, refuse(&bad, "threads");
  bad = *good;
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "\"auto\", \"required\" or \"off\"", error,
               deltawire_session_options_set_encryption(&bad, "on", &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "encryption is NULL", error,
               deltawire_session_options_set_encryption(&bad, NULL, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "options is NULL", error,
               deltawire_session_options_set_encryption(NULL, "off", &error));
  EXPECT_OK(error, deltawire_session_options_set_encryption(&bad, "required", &error));
  EXPECT(bad.reserved[0] == 1);
  for (i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    bad = *good;
    endpoints[0] = wrong[i];
    bad.endpoints = endpoints;
    refuse(&bad, wrong[i] ? "endpoints[0]: \"" : "endpoints[0] is NULL");
  }
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "spec is NULL", error,
               deltawire_session_open(NULL, good, NULL, &session, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "options is NULL", error,
               deltawire_session_open("3lc", NULL, NULL, &session, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "session is NULL", error,
               deltawire_session_open("3lc", good, NULL, NULL, &error));
}

static void refuse_meeting(const deltawire_session_options* options, const char* rendezvous,
                           const char* words) {
  deltawire_session* session = (deltawire_session*)&error;
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, words, error,
               deltawire_session_meet("3lc", options, rendezvous, NULL, &session, &error));
  EXPECT(session == NULL);
}

static void test_rendezvous(const deltawire_session_options* with_endpoints) {
  deltawire_session_options options = *with_endpoints;
  deltawire_session* session = NULL;
  deltawire_listener* listener = NULL;
  refuse_meeting(&options, "127.0.0.1:4000", "endpoints and a rendezvous");
  options.endpoints = NULL;
  refuse_meeting(&options, NULL, "rendezvous");
  refuse_meeting(&options, "127.0.0.1", "rendezvous: \"127.0.0.1\" is not HOST:PORT");
  refuse_meeting(NULL, "127.0.0.1:4000", "options is NULL");
  EXPECT_OK(error, deltawire_listener_open("127.0.0.1", 0, 0, &listener, &error));
  EXPECT_OK(error, deltawire_session_meet("bf16", &options, deltawire_listener_endpoint(listener), listener,
                                          &session, &error));
  EXPECT(strcmp(deltawire_session_spec(session), "direct(bf16)") == 0);
  deltawire_session_close(session);
  deltawire_listener_close(listener);
}

static void refuse_step(deltawire_session* session, const deltawire_step* step, int64_t timeout_ms,
                        const char* words) {
  float values[kCount];
  deltawire_tensor tensor = tensor_of("w", values, kCount);
  fill(values, kCount);
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, words, error,
               deltawire_session_all_reduce(session, &tensor, 1, step, timeout_ms, NULL, &error));
}

static void test_arguments(deltawire_session* session) {
  float values[kCount] = {0};
  deltawire_tensor two[2];
  deltawire_step bad = kStep;
  deltawire_usage usage;
  deltawire_bytes* state = NULL;
  refuse_step(NULL, &kStep, 1000, "session is NULL");
  refuse_step(session, NULL, 1000, "step is NULL");
  refuse_step(session, &kStep, 0, "timeout_ms is 0");
  refuse_step(session, &kStep, INT64_MAX, "timeout_ms");
  bad.last = 5, refuse_step(session, &bad, 1000, "last is 5");
  bad = kStep, bad.reserved = 5, refuse_step(session, &bad, 1000, "reserved");
  bad = kStep, bad.scale = 0, refuse_step(session, &bad, 1000, "scale is 0");
  bad = kStep, bad.scale = NAN, refuse_step(session, &bad, 1000, "scale is nan");
  two[0] = tensor_of("v", values, kCount), two[1] = tensor_of("w", values + 1, 1);
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "'v' and 'w' share memory", error,
               deltawire_session_all_reduce(session, two, 2, &kStep, 1000, NULL, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "tensors is NULL", error,
               deltawire_session_all_reduce(session, NULL, 1, &kStep, 1000, NULL, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "usage", error, deltawire_session_usage(session, NULL, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "session", error, deltawire_session_usage(NULL, &usage, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "state", error, deltawire_session_save(session, NULL, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "session", error, deltawire_session_save(NULL, &state, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "state is NULL", error,
               deltawire_session_load(session, NULL, 3, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "reason", error, deltawire_session_abort(session, NULL, &error));
  EXPECT(deltawire_session_abort(NULL, "why", NULL) == DELTAWIRE_INVALID_ARGUMENT);
  EXPECT(deltawire_session_spec(NULL) == NULL);
  deltawire_session_close(NULL);
}

/* Refused calls have done no harm: the mean of one rank is what it sent, and then the session ends. */
static void test_steps(deltawire_session* session) {
  float values[kCount];
  deltawire_tensor tensor = tensor_of("w", values, kCount);
  deltawire_report report;
  deltawire_usage usage;
  deltawire_bytes* state = NULL;
  deltawire_step next = kStep;
  fill(values, kCount);
  EXPECT_OK(error, deltawire_session_all_reduce(session, &tensor, 1, &kStep, 20000, &report, &error));
  EXPECT(report.element_count == kCount && report.last_committed_step == 0 && report.finite == 1);
  EXPECT(values[0] == 0.01F && values[1] == -0.02F);
  EXPECT_OK(error, deltawire_session_save(session, &state, &error));
  EXPECT(deltawire_bytes_count(state) > 0);
  EXPECT_OK(error, deltawire_session_load(session, deltawire_bytes_data(state), deltawire_bytes_count(state),
                                          &error));
  deltawire_bytes_free(state);
  EXPECT(deltawire_session_load(session, "garbage", 7, &error) != DELTAWIRE_OK);
  EXPECT_OK(error, deltawire_session_usage(session, &usage, &error));
  EXPECT(usage.peak_bytes > 0);
  next.number = 1;
  EXPECT_OK(error, deltawire_session_all_reduce(session, &tensor, 1, &next, 20000, &report, &error));
  EXPECT(report.last_committed_step == 1);
  EXPECT_OK(error, deltawire_session_abort(session, "enough", &error));
  next.number = 2;
  EXPECT_ERROR(DELTAWIRE_ABORTED, "enough", error,
               deltawire_session_all_reduce(session, &tensor, 1, &next, 20000, NULL, &error));
  EXPECT(error.last_committed_step == 1);
}

/* What a program can react to: rank 1 finds nobody where rank 0 should be. */
static void test_fields(deltawire_session_options options) {
  deltawire_session* session = NULL;
  deltawire_listener* listener = NULL;
  const char* endpoints[2] = {"127.0.0.1:1", NULL};
  int32_t ranks[3] = {7, 7, 7};
  deltawire_codec* codec = NULL;
  EXPECT_OK(error, deltawire_listener_open("127.0.0.1", 0, 0, &listener, &error));
  endpoints[1] = deltawire_listener_endpoint(listener);
  options.world_size = 2, options.rank = 1, options.endpoints = endpoints, options.connect_timeout_ms = 100;
  EXPECT_ERROR(DELTAWIRE_TIMEOUT, "rank 1 found no connection", error,
               deltawire_session_open("fp32", &options, listener, &session, &error));
  EXPECT(error.suspect == 0 && deltawire_last_error_reporter() == 1 &&
         deltawire_last_error_waits_for() == -1);
  EXPECT(deltawire_last_error_ranks(NULL, 0) == 1);
  EXPECT(deltawire_last_error_ranks(ranks, 3) == 1 && ranks[0] == 0 && ranks[1] == 7);
  EXPECT(deltawire_last_error_tensor()[0] == '\0' && deltawire_last_error_advice()[0] == '\0');
  deltawire_listener_close(listener);
  EXPECT(deltawire_codec_open("nonsense", &codec, NULL) == DELTAWIRE_UNKNOWN_CODEC);
  EXPECT(deltawire_last_error_reporter() == -1 && deltawire_last_error_ranks(ranks, 3) == 0);
}

void test_sessions(void) {
  static const uint8_t token[32] = {1, 2, 3};
  const char* endpoints[1];
  deltawire_listener* listener = NULL;
  deltawire_session *session = NULL, *second = NULL;
  deltawire_session_options options;
  test_listeners();
  test_tokens();
  EXPECT_OK(error, deltawire_listener_open("127.0.0.1", 0, 0, &listener, &error));
  EXPECT_OK(error, deltawire_session_options_init(&options, DELTAWIRE_ABI_VERSION, &error));
  EXPECT(options.min_elements == 256 && options.connect_timeout_ms == 60000);
  endpoints[0] = deltawire_listener_endpoint(listener);
  options.world_size = 1;
  options.endpoints = endpoints;
  options.token = token;
  test_options(&options);
  test_rendezvous(&options);
  test_fields(options);
  EXPECT_OK(error, deltawire_session_open("fp32", &options, listener, &session, &error));
  EXPECT_ERROR(DELTAWIRE_STATE, "listener", error,
               deltawire_session_open("fp32", &options, listener, &second, &error));
  EXPECT(strcmp(deltawire_session_spec(session), "direct(fp32)") == 0);
  test_arguments(session);
  test_steps(session);
  deltawire_session_close(session);
  deltawire_listener_close(listener);
}
