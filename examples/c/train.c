/* Ranks train one linear model over TCP, each on data of its own: y = w x, by gradients that 3LC compresses.
 *
 *   cc -std=c99 train.c $(pkg-config --cflags --libs deltawire) -o train
 *   ./train 0 2 127.0.0.1:4000 &     # of 2 ranks, rank 0 listens at this address, and the others come to it
 *   ./train 1 2 127.0.0.1:4000
 */
#include <deltawire/deltawire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kWeights = 300, kBatch = 16, kSteps = 300 };

static deltawire_error error;

static void must(int32_t status) {
  if (status == DELTAWIRE_OK) return;
  fprintf(stderr, "%s: %s\n", deltawire_error_name(status), error.message);
  exit(1);
}

/* Evenly spread, of mean 0 and variance 1. */
static float draw(uint32_t* state) {
  *state = *state * 1664525U + 1013904223U;
  return ((float)(*state >> 8) / 8388608.0F - 1.0F) * 1.7320508F;
}

/* The gradient of one batch's loss, and that loss. To be learned are the weights 1, -1, 1, -1 ... */
static float differentiate(const float* w, uint32_t* state, float* gradient) {
  float x[kWeights], loss = 0;
  int sample, i;
  memset(gradient, 0, kWeights * sizeof *gradient);
  for (sample = 0; sample < kBatch; ++sample) {
    float miss = 0;
    for (i = 0; i < kWeights; ++i) {
      x[i] = draw(state);
      miss += (w[i] - (i % 2 == 0 ? 1.0F : -1.0F)) * x[i];
    }
    for (i = 0; i < kWeights; ++i) gradient[i] += miss * x[i] / kBatch;
    loss += miss * miss / kBatch;
  }
  return loss;
}

int main(int argc, char** argv) {
  static const uint8_t token[32] = "replace this by 32 secret bytes";
  float w[kWeights] = {0}, gradient[kWeights], loss = 0;
  double sent = 0, raw = 0;
  uint32_t state;
  int i;
  deltawire_session_options options;
  deltawire_session* session;
  deltawire_tensor tensor;
  deltawire_step step;
  deltawire_report report;
  if (argc != 4) return fprintf(stderr, "usage: train RANK WORLD_SIZE HOST:PORT  (of rank 0)\n"), 2;
  must(deltawire_session_options_init(&options, DELTAWIRE_ABI_VERSION, &error));
  options.rank = atoi(argv[1]);
  options.world_size = atoi(argv[2]);
  options.token = token;
  must(deltawire_session_meet("3lc", &options, argv[3], NULL, &session, &error));

  state = 7U + (uint32_t)options.rank;
  memset(&tensor, 0, sizeof tensor);
  tensor.name = "w";
  tensor.values = gradient;
  tensor.count = kWeights;
  tensor.dtype = DELTAWIRE_F32;
  memset(&step, 0, sizeof step);
  step.last = 1;
  step.scale = 1;
  for (; step.number < kSteps; ++step.number) {
    loss = differentiate(w, &state, gradient);
    must(deltawire_session_all_reduce(session, &tensor, 1, &step, 20000, &report, &error));
    for (i = 0; i < kWeights; ++i) w[i] -= 0.05F * gradient[i];
    sent += (double)report.bytes_sent;
    raw += (double)report.raw_bytes;
  }
  deltawire_session_close(session);
  printf("w[0] = %.9g, loss %.3g, %.1f times fewer bytes than float32\n", w[0], loss, raw / sent);
  return 0;
}
