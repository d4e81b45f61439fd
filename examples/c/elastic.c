/* Ranks train one linear model; the last one is killed in step 20, and the others go on without it.
 *
 *   cc -std=c99 elastic.c $(pkg-config --cflags --libs deltawire) -o elastic
 *   for rank in 0 1 2; do ./elastic 127.0.0.1:4000 $rank 3 & done     # rank 0 listens there
 *   ./elastic 127.0.0.1:4000     # one more, which joins if they still train
 */
#include <deltawire/deltawire.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { kWeights = 300, kSteps = 100 };

static deltawire_error error;

static void must(int32_t status) {
  if (status == DELTAWIRE_OK) return;
  fprintf(stderr, "%s: %s\n", deltawire_error_name(status), error.message);
  exit(1);
}

int main(int argc, char** argv) {
  static const uint8_t token[32] = "replace this by 32 secret bytes";
  static float w[kWeights], gradient[kWeights];
  const deltawire_tensor weights = {.name = "w", .values = w, .count = kWeights, .dtype = DELTAWIRE_F32};
  const deltawire_tensor mean = {.name = "w", .values = gradient, .count = kWeights, .dtype = DELTAWIRE_F32};
  const char* doors[1];
  deltawire_session_options options;
  deltawire_elastic_options elastic;
  deltawire_elastic* session;
  int i;
  if (argc != 2 && argc != 4) return fprintf(stderr, "usage: elastic HOST:PORT [RANK WORLD_SIZE]\n"), 2;
  must(deltawire_session_options_init(&options, DELTAWIRE_ABI_VERSION, &error));
  must(deltawire_elastic_options_init(&elastic, DELTAWIRE_ABI_VERSION, &error));
  options.token = token;
  if (argc == 4) options.rank = atoi(argv[2]), options.world_size = atoi(argv[3]);
  doors[0] = argv[1];
  elastic.doors = doors, elastic.door_count = 1;
  elastic.state = &weights, elastic.state_count = 1; /* a process that joins finds them in w */
  must(deltawire_elastic_open("3lc", &options, &elastic, NULL, &session, &error));

  while (deltawire_elastic_steps(session) < kSteps) {
    const int is_last = deltawire_elastic_rank(session) == deltawire_elastic_world_size(session) - 1;
    if (is_last && deltawire_elastic_epoch(session) == 0 && deltawire_elastic_steps(session) == 20)
      raise(SIGKILL);
    /* The loss is half the square of w's distance from the weights 1, -1, 1, -1 ... */
    for (i = 0; i < kWeights; ++i) gradient[i] = w[i] - (i % 2 == 0 ? 1.0F : -1.0F);
    must(deltawire_elastic_all_reduce(session, &mean, 1, 1, NULL, &error)); /* of those who remain */
    for (i = 0; i < kWeights; ++i) w[i] -= 0.1F * gradient[i];
  }
  printf("w[0] = %.9g, rank %d of %d, epoch %u\n", w[0], (int)deltawire_elastic_rank(session),
         (int)deltawire_elastic_world_size(session), (unsigned)deltawire_elastic_epoch(session));
  deltawire_elastic_close(session);
  return 0;
}
