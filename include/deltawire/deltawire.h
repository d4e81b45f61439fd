/* deltawire for C, and for every language that can call C. C++ programs include deltawire/deltawire.hpp.
 *
 *   codecs     a tensor to bytes and back, stateless
 *   channels   messages of many tensors, with the residuals that stay from step to step
 *   sessions   a rank's place in a job over TCP: the mean of named tensors over all ranks
 *   elastic    sessions that go on when ranks die, leave and join
 *   patches    the changes between two versions of a tensor of weights, without loss
 *
 * Errors: calls that can fail return 0 (DELTAWIRE_OK) or an error's number, and write it with a line of text
 * to the caller's deltawire_error, which may be NULL. No exception leaves a call, nothing is printed.
 *
 * Memory: the caller owns what it passes in. A call returns either a handle, which its _close or _free
 * releases (NULL does nothing), or memory that belongs to a handle. On an error, the handles that a call
 * would return are NULL.
 *
 * Threads: any number of threads may use a codec or a session; one thread at a time a channel, an elastic
 * session or a deltawire_bytes. No other thread may use a handle while or after it is closed.
 *
 * Versions: structs with the field abi_version are filled with defaults by their _init, which is given the
 * DELTAWIRE_ABI_VERSION that the program was compiled with. Later versions only add calls, error numbers, and
 * fields after the last ones. `reserved` fields must be 0.
 */
#ifndef DELTAWIRE_DELTAWIRE_H
#define DELTAWIRE_DELTAWIRE_H

#include <stdint.h>

#include "deltawire/export.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DELTAWIRE_ABI_VERSION 1

/* The version that the library implements: programs compiled for it or for an older one can use it. */
DELTAWIRE_API uint32_t deltawire_abi_version(void);

/* The library's release, e.g. "0.2.0". Static. */
DELTAWIRE_API const char* deltawire_version(void);

/* ---- errors ---- */

/* deltawire/result.h says what each means. */
enum {
  DELTAWIRE_OK = 0,
  DELTAWIRE_INVALID_ARGUMENT = 1,
  DELTAWIRE_UNKNOWN_CODEC = 2,
  DELTAWIRE_UNSUPPORTED_DTYPE = 3,
  DELTAWIRE_NOT_FINITE = 4,
  DELTAWIRE_RANGE = 5,
  DELTAWIRE_OUTPUT_TOO_SMALL = 6,
  DELTAWIRE_TRUNCATED = 7,
  DELTAWIRE_CORRUPT = 8,
  DELTAWIRE_UNSUPPORTED_VERSION = 9,
  DELTAWIRE_MISMATCH = 10,
  DELTAWIRE_LIMIT = 11,
  DELTAWIRE_TIMEOUT = 12,
  DELTAWIRE_PEER_LOST = 13,
  DELTAWIRE_ABORTED = 14,
  DELTAWIRE_UNAUTHORIZED = 15,
  DELTAWIRE_ADDRESS_IN_USE = 16,
  DELTAWIRE_SYSTEM = 17,
  DELTAWIRE_STATE = 18,
  DELTAWIRE_IO = 19,
  DELTAWIRE_NO_MEMORY = 20,
  DELTAWIRE_EXCLUDED = 21,
  DELTAWIRE_NO_QUORUM = 22
};

#define DELTAWIRE_NO_SUSPECT (-1)
#define DELTAWIRE_NO_STEP UINT64_MAX

typedef struct deltawire_error {
  int32_t code;    /* 0 after a successful call */
  int32_t suspect; /* the rank that caused it, or DELTAWIRE_NO_SUSPECT */
  uint64_t
      last_committed_step; /* where an exchange failed: the last step that counts, or DELTAWIRE_NO_STEP */
  char message[1008]; /* one line of UTF-8: what was wrong, where, and what to do. Cut where it is longer */
} deltawire_error;

/* "PeerLost" for 13; "Unknown" for an undefined number. Static. */
DELTAWIRE_API const char* deltawire_error_name(int32_t code);

/* More of the error that a call on this thread gave last; without one, and for what is not known, -1, 0 and
 * "". Texts are valid until this thread's next call that can fail. */
DELTAWIRE_API int32_t deltawire_last_error_reporter(void);  /* the rank that found it, or passed it on */
DELTAWIRE_API int32_t deltawire_last_error_waits_for(void); /* the rank that the reporter waited for */
/* The ranks that it is about, e.g. whose means differ: how many, and the first `room` of them. `ranks` may be
 * NULL where room is 0. */
DELTAWIRE_API uint64_t deltawire_last_error_ranks(int32_t* ranks, uint64_t room);
DELTAWIRE_API const char* deltawire_last_error_tensor(void); /* its name */
DELTAWIRE_API const char* deltawire_last_error_advice(void); /* what to do: the end of `message` */

/* ---- tensors ---- */

enum { DELTAWIRE_F32 = 1, DELTAWIRE_BF16 = 2, DELTAWIRE_F16 = 3 };

/* `count` contiguous elements, row-major, fewer than 2^32, in the machine's byte order. Calls that encode
 * only read the values. Of the tensors of one call no two have the same name, and no two that are written
 * share memory: INVALID_ARGUMENT. */
typedef struct deltawire_tensor {
  const char* name; /* UTF-8; codecs don't look at it */
  void* values;     /* may be NULL where count is 0 */
  uint64_t count;
  int32_t dtype;
  uint32_t dim_count;   /* 0: one dim of `count` */
  const uint64_t* dims; /* their product is `count` */
  const float*
      significance; /* how much of each value the optimizer can still see (deltawire/tensor.h), or NULL */
  uint64_t reserved[3];
} deltawire_tensor;

/* Whether decoding replaces the values or adds to them. */
enum { DELTAWIRE_OVERWRITE = 0, DELTAWIRE_ACCUMULATE = 1 };

/* ---- bytes that a call returned ---- */

typedef struct deltawire_bytes deltawire_bytes;
DELTAWIRE_API const void* deltawire_bytes_data(const deltawire_bytes* bytes);
DELTAWIRE_API uint64_t deltawire_bytes_count(const deltawire_bytes* bytes);
DELTAWIRE_API void deltawire_bytes_free(deltawire_bytes* bytes);

/* ---- codecs: deltawire/codec.h ---- */

typedef struct deltawire_codec deltawire_codec;

/* Makes a codec from a spec such as "3lc:s=1.75"; `deltawire codecs` lists them. */
DELTAWIRE_API int32_t deltawire_codec_open(const char* spec, deltawire_codec** codec, deltawire_error* error);
DELTAWIRE_API void deltawire_codec_close(deltawire_codec* codec);

/* Canonical; valid until the codec is closed. NULL without a codec. */
DELTAWIRE_API const char* deltawire_codec_spec(const deltawire_codec* codec);

/* An encoded tensor, in the caller's memory. Chunk i ends at payload[chunk_ends[i]]. The receiver needs all
 * fields. There is no checksum; messages of channels have one. */
typedef struct deltawire_part {
  void* payload;
  uint64_t payload_bytes;
  uint32_t* chunk_ends;
  uint32_t chunks;
  uint32_t scalar;
  uint32_t scalar2;
  uint32_t reserved;
} deltawire_part;

/* Upper bounds for encoding a tensor of this count, dtype and dims; values are not read. */
DELTAWIRE_API int32_t deltawire_codec_bounds(const deltawire_codec* codec, const deltawire_tensor* tensor,
                                             uint64_t* payload_bytes, uint32_t* chunks,
                                             deltawire_error* error);

/* Encodes tensor + residual, and leaves in the residual what was not sent; it has tensor->count values, or is
 * NULL: no error feedback. part->payload_bytes and part->chunks are the capacity before the call, and the
 * space used after it. Stochastic codecs draw their random numbers from `stream`: use another one for every
 * call. On an error the residual is unchanged. */
DELTAWIRE_API int32_t deltawire_codec_encode(const deltawire_codec* codec, const deltawire_tensor* tensor,
                                             float* residual, uint64_t stream, deltawire_part* part,
                                             deltawire_error* error);

/* values = scale * decoded, or values += scale * decoded (only float32). `part` may hold any bytes. On an
 * error the values are unspecified. */
DELTAWIRE_API int32_t deltawire_codec_decode(const deltawire_codec* codec, const deltawire_part* part,
                                             const deltawire_tensor* tensor, int32_t into, float scale,
                                             deltawire_error* error);

/* ---- channels: deltawire/channel.h ---- */

typedef struct deltawire_channel deltawire_channel;

typedef struct deltawire_channel_options {
  uint32_t abi_version;
  int32_t error_feedback; /* 1: residuals; 0: each message is independent */
  int32_t fold_revert;    /* 0: a reverted step never happened; give its input again. 1: its input is kept and
                             sent later; never give it again (saves the second buffer of the residuals) */
  int32_t pass_not_finite; /* 0: NaN and infinities are an error where the codec can't carry them; 1: they
                              arrive as NaN */
  uint64_t min_elements;   /* smaller tensors are sent as float32: 256 */
  uint64_t seed;           /* for codecs that draw random numbers */
  uint64_t reserved[4];
} deltawire_channel_options;

/* Identifies a message; sender and receiver must give the same. */
typedef struct deltawire_message {
  uint64_t step;
  uint16_t rank; /* the sender */
  uint16_t world_size;
  uint16_t bucket;
  uint16_t stage;
  float scale; /* the factor by which the values are scaled (a loss scale); 1: unscaled */
  uint32_t reserved;
} deltawire_message;

/* UNSUPPORTED_VERSION: this library is older than `abi_version`; `options` is untouched. */
DELTAWIRE_API int32_t deltawire_channel_options_init(deltawire_channel_options* options, uint32_t abi_version,
                                                     deltawire_error* error);

/* Makes a channel from a codec's spec or rules, e.g. "conv*: 3lc, rest fp32". `options` may be NULL: the
   defaults. */
DELTAWIRE_API int32_t deltawire_channel_open(const char* rules, const deltawire_channel_options* options,
                                             deltawire_channel** channel, deltawire_error* error);
DELTAWIRE_API void deltawire_channel_close(deltawire_channel* channel);

/* Canonical; valid until the channel is closed. NULL without a channel. */
DELTAWIRE_API const char* deltawire_channel_spec(const deltawire_channel* channel);

/* Upper bound for the message of these tensors in this step; values are not read. */
DELTAWIRE_API int32_t deltawire_channel_bound(const deltawire_channel* channel,
                                              const deltawire_tensor* tensors, uint32_t tensor_count,
                                              uint64_t step, uint64_t* message_bytes, deltawire_error* error);

/* Writes the message of these tensors, with their residuals, to `out`, which has room for `capacity` bytes:
 * at least what _bound says, or else OUTPUT_TOO_SMALL, which changes nothing. Opens the step's transaction,
 * which _commit or _revert ends; after any other error it must be reverted. */
DELTAWIRE_API int32_t deltawire_channel_encode(deltawire_channel* channel, const deltawire_tensor* tensors,
                                               uint32_t tensor_count, const deltawire_message* message,
                                               void* out, uint64_t capacity, uint64_t* message_bytes,
                                               deltawire_error* error);

/* Decodes a message that must hold exactly these tensors and be `expected`. `bytes` may hold anything. On an
 * error the values are unspecified. */
DELTAWIRE_API int32_t deltawire_channel_decode(deltawire_channel* channel, const void* bytes,
                                               uint64_t byte_count, const deltawire_tensor* tensors,
                                               uint32_t tensor_count, const deltawire_message* expected,
                                               int32_t into, float scale, deltawire_error* error);

DELTAWIRE_API int32_t deltawire_channel_commit(deltawire_channel* channel, deltawire_error* error);
DELTAWIRE_API int32_t deltawire_channel_revert(deltawire_channel* channel, deltawire_error* error);

/* A tensor's residual; *count is 0 if there is none. Valid until the channel's next call. */
DELTAWIRE_API int32_t deltawire_channel_residual(const deltawire_channel* channel, const char* name,
                                                 const float** values, uint64_t* count,
                                                 deltawire_error* error);

/* All residuals. _load replaces them; on an error it changes nothing. STATE while a step is open. */
DELTAWIRE_API int32_t deltawire_channel_save(const deltawire_channel* channel, deltawire_bytes** state,
                                             deltawire_error* error);
DELTAWIRE_API int32_t deltawire_channel_load(deltawire_channel* channel, const void* state,
                                             uint64_t state_bytes, deltawire_error* error);

/* ---- sessions over TCP: deltawire/session.h, deltawire/connect.h ---- */

/* A listening socket: opened first if ports are not known beforehand, so that its endpoint can be told to the
 * other ranks. */
typedef struct deltawire_listener deltawire_listener;

/* Listens on `host`, an address, name or network interface of this machine, and the first free port from
 * first_port to last_port; 0 and 0: any. ADDRESS_IN_USE: none is free. */
DELTAWIRE_API int32_t deltawire_listener_open(const char* host, uint16_t first_port, uint16_t last_port,
                                              deltawire_listener** listener, deltawire_error* error);

/* "127.0.0.1:4000", "[::1]:4000"; valid until the listener is closed. NULL without a listener. */
DELTAWIRE_API const char* deltawire_listener_endpoint(const deltawire_listener* listener);
DELTAWIRE_API void deltawire_listener_close(deltawire_listener* listener);

typedef struct deltawire_session_options {
  uint32_t abi_version;
  int32_t rank;
  int32_t world_size;
  uint32_t epoch;               /* of the job's members, equal on all ranks: 0 */
  const char* const* endpoints; /* of every rank, in order, as _listener_endpoint writes them */
  const uint8_t* token;       /* 32 bytes, equal on all ranks, secret: peers that don't know it are refused */
  const char* settings;       /* what must be equal on all ranks besides spec and options; NULL: nothing */
  int64_t connect_timeout_ms; /* 60,000 */
  int64_t arrival_timeout_ms; /* for a rank that is alive but busy; at least a step's time: 0 */
  uint64_t min_elements;      /* smaller tensors are sent as float32: 256 */
  uint64_t seed;              /* for codecs that draw random numbers */
  int32_t threads;            /* that encode and decode; 0: those of the process */
  int32_t fold_revert;        /* of a failed step, as in deltawire_channel_options; 1 is INVALID_ARGUMENT with
                                 `ring`, `hierarchical` and pass_not_finite */
  int32_t pass_not_finite;    /* 1: a step with NaN or infinities arrives as NaN on all ranks */
  int32_t reserved_flag;
  uint64_t reserved[8];
} deltawire_session_options;

/* As deltawire_channel_options_init. The caller fills in rank, world size, endpoints and token. */
DELTAWIRE_API int32_t deltawire_session_options_init(deltawire_session_options* options, uint32_t abi_version,
                                                     deltawire_error* error);

/* Sets whether the connections between ranks are encrypted, by TLS 1.3 with a key from the token: "auto"
 * (those that leave the machine; what _options_init sets), "required" or "off"; equal on all ranks. It is
 * kept in reserved[0]. INVALID_ARGUMENT for anything else. */
DELTAWIRE_API int32_t deltawire_session_options_set_encryption(deltawire_session_options* options,
                                                               const char* encryption,
                                                               deltawire_error* error);

/* Writes the token (32 bytes) of a secret of 16 bytes or more, as Python's ranks derive it from
 * DELTAWIRE_TOKEN. A secret of 32 bytes is the token itself; a line break behind another is no part of it. */
DELTAWIRE_API int32_t deltawire_token_of(const void* secret, uint64_t secret_bytes, uint8_t* token,
                                         deltawire_error* error);

typedef struct deltawire_session deltawire_session;

/* Connects to all other ranks; every rank calls it once, with the same spec: "3lc", "ring(bf16)",
 * "direct(conv*: 3lc, rest fp32)". If spec, min_elements, fold_revert, pass_not_finite or settings differ
 * between ranks: MISMATCH on all, with the words that differ. `listener` may be NULL: listens on this rank's
 * endpoint. Otherwise it is consumed, even on an error, and only _listener_close may still be called with it.
 * What the options point to is copied. */
DELTAWIRE_API int32_t deltawire_session_open(const char* spec, const deltawire_session_options* options,
                                             deltawire_listener* listener, deltawire_session** session,
                                             deltawire_error* error);

/* The same if only rank 0's address is known beforehand: options->endpoints is NULL, and `rendezvous` is
 * where rank 0 listens, "10.0.0.1:7171" or "host:7171", the same on all ranks. The others tell it where they
 * listen; without a `listener`, on the local address towards it and any free port. Ranks in C++ and Python
 * can take part, too. Until all ranks have connected, a rank that dies may be started again. */
DELTAWIRE_API int32_t deltawire_session_meet(const char* spec, const deltawire_session_options* options,
                                             const char* rendezvous, deltawire_listener* listener,
                                             deltawire_session** session, deltawire_error* error);

/* Does not wait: buckets in flight are aborted, on every rank. */
DELTAWIRE_API void deltawire_session_close(deltawire_session* session);

/* Canonical; valid until the session is closed. NULL without a session. */
DELTAWIRE_API const char* deltawire_session_spec(const deltawire_session* session);

/* The tensors' place in training. All ranks go through the same steps and buckets in the same order. */
typedef struct deltawire_step {
  uint64_t number; /* grows by one with each step */
  uint32_t bucket; /* 0 ... 65,535 within the step */
  int32_t last;    /* 1: the step's last bucket, after which the ranks agree that the step counts */
  float scale;     /* the factor by which the values are scaled (a loss scale), equal on all ranks; 1 */
  uint32_t reserved;
} deltawire_step;

/* What one bucket cost on this rank. */
typedef struct deltawire_report {
  double encode_seconds;
  double exchange_seconds; /* waiting for others */
  double decode_seconds;
  uint64_t bytes_sent; /* messages, every copy counted */
  uint64_t raw_bytes;  /* the same messages as plain float32 */
  uint64_t element_count;
  uint64_t digest;              /* of the step's means so far; equal on all ranks after the last bucket */
  uint64_t last_committed_step; /* the last step that counts, or DELTAWIRE_NO_STEP */
  int32_t finite;               /* 0: with pass_not_finite, a rank's values were not finite; drop the step */
  int32_t reserved_flag;
  uint64_t reserved[4];
} deltawire_report;

/* Replaces the float32 tensors by their means over all ranks, bit-equal everywhere. timeout_ms: 1 to
 * 86,400,000, counted from when the bucket is begun. `report` may be NULL. On an error the values are
 * untouched, every rank fails, and the session can only be saved, loaded and closed;
 * error->last_committed_step is the last step that counts. */
DELTAWIRE_API int32_t deltawire_session_all_reduce(deltawire_session* session,
                                                   const deltawire_tensor* tensors, uint32_t tensor_count,
                                                   const deltawire_step* step, int64_t timeout_ms,
                                                   deltawire_report* report, deltawire_error* error);

/* What a session has cost so far. */
typedef struct deltawire_usage {
  uint64_t bytes_sent;     /* over the connections, headers and control messages included */
  uint64_t bytes_received; /* likewise */
  uint64_t residual_bytes; /* memory, besides the caller's tensors */
  uint64_t staging_bytes;
  uint64_t message_bytes;
  uint64_t peak_bytes; /* the largest sum of the three above so far */
  uint64_t reserved[4];
} deltawire_usage;

DELTAWIRE_API int32_t deltawire_session_usage(const deltawire_session* session, deltawire_usage* usage,
                                              deltawire_error* error);

/* Saves and loads residuals, between steps. STATE while a step is open. */
DELTAWIRE_API int32_t deltawire_session_save(deltawire_session* session, deltawire_bytes** state,
                                             deltawire_error* error);
DELTAWIRE_API int32_t deltawire_session_load(deltawire_session* session, const void* state,
                                             uint64_t state_bytes, deltawire_error* error);

/* Fails every wait of every rank, naming this rank and the reason. */
DELTAWIRE_API int32_t deltawire_session_abort(deltawire_session* session, const char* reason,
                                              deltawire_error* error);

/* ---- elastic sessions: deltawire/elastic.h ---- */

typedef struct deltawire_elastic_options {
  uint32_t abi_version;
  int32_t at_least; /* members that suffice to go on; 0: more than half of the previous ones, or half with
                       the lowest id. With a number both sides of a network split may go on */
  const char* const* doors; /* where rank 0 listens or, to join, where members do: "10.0.0.1:7171" */
  uint32_t door_count;
  uint32_t state_count;
  const deltawire_tensor* state; /* what a process needs to join, e.g. the weights: read within _all_reduce,
                                    and written by the _open of a process that joins. The values stay the
                                    caller's and must outlive the session, the rest is copied. The same
                                    names, counts and dtypes on all members */
  int64_t timeout_ms;            /* of a step, once it has begun: 60,000 */
  uint64_t reserved[8];
} deltawire_elastic_options;

/* As deltawire_channel_options_init. The caller fills in the doors. */
DELTAWIRE_API int32_t deltawire_elastic_options_init(deltawire_elastic_options* options, uint32_t abi_version,
                                                     deltawire_error* error);

typedef struct deltawire_elastic deltawire_elastic;

/* Begins a session with the other ranks of `options`, whose endpoints is NULL and whose epoch is 0; or, where
 * options->world_size is 0, joins one that runs. An arrival_timeout_ms of 0 is connect_timeout_ms. Processes
 * in C++ and Python can take part. `listener` may be NULL: rank 0 listens on the first door, others on the
 * local address towards it. Otherwise it is consumed, as in deltawire_session_open. What the options point to
 * is copied, but for the state's values. MISMATCH if settings differ, or the state is not that of the others.
 */
DELTAWIRE_API int32_t deltawire_elastic_open(const char* spec, const deltawire_session_options* options,
                                             const deltawire_elastic_options* elastic,
                                             deltawire_listener* listener, deltawire_elastic** session,
                                             deltawire_error* error);

/* Leaves: the others go on. */
DELTAWIRE_API void deltawire_elastic_close(deltawire_elastic* session);

/* One step: replaces the float32 tensors by their means over the members, bit-equal everywhere. It is
 * repeated without members that are lost, and with those that join, until it is committed. `scale` is that of
 * deltawire_step; 1. `report` may be NULL. On an error the values are untouched; EXCLUDED (the others went on
 * without this process, which can close the session and join), NO_QUORUM and others but INVALID_ARGUMENT end
 * the session. */
DELTAWIRE_API int32_t deltawire_elastic_all_reduce(deltawire_elastic* session,
                                                   const deltawire_tensor* tensors, uint32_t tensor_count,
                                                   float scale, deltawire_report* report,
                                                   deltawire_error* error);

/* Of the present epoch, which may be another one after every step. Without a session -1 and 0. */
DELTAWIRE_API int32_t deltawire_elastic_rank(const deltawire_elastic* session);
DELTAWIRE_API int32_t deltawire_elastic_world_size(const deltawire_elastic* session);
DELTAWIRE_API uint32_t deltawire_elastic_epoch(const deltawire_elastic* session); /* changes of members */

/* How many steps are committed: a process that joins begins at the others' step, so loops end by this. */
DELTAWIRE_API uint64_t deltawire_elastic_steps(const deltawire_elastic* session);

/* ---- patches: deltawire/patch.h ---- */

/* What the bits of a weight mean: integers of 8 bytes are two of I32, unsigned ones and booleans count as
 * signed. */
enum {
  DELTAWIRE_WEIGHTS_F32 = 1,
  DELTAWIRE_WEIGHTS_BF16 = 2,
  DELTAWIRE_WEIGHTS_F16 = 3,
  DELTAWIRE_WEIGHTS_F8_E4M3 = 4,
  DELTAWIRE_WEIGHTS_F8_E5M2 = 5,
  DELTAWIRE_WEIGHTS_I8 = 6,
  DELTAWIRE_WEIGHTS_I16 = 7,
  DELTAWIRE_WEIGHTS_I32 = 8
};

/* The patch that turns old_weights into new_weights, two tensors of weight_bytes bytes each. */
DELTAWIRE_API int32_t deltawire_patch_make(const void* old_weights, const void* new_weights,
                                           uint64_t weight_bytes, int32_t type, deltawire_bytes** patch,
                                           deltawire_error* error);

/* Writes the new weights to new_weights, which is old_weights itself or overlaps none of it. In place,
 * everything is checked before the first write; elsewhere an error leaves new_weights unspecified. `patch`
 * may hold any bytes. MISMATCH if it was not made from these weights. */
DELTAWIRE_API int32_t deltawire_patch_apply(const void* patch, uint64_t patch_bytes, const void* old_weights,
                                            uint64_t weight_bytes, int32_t type, void* new_weights,
                                            deltawire_error* error);

/* All checks of deltawire_patch_apply; nothing is written. */
DELTAWIRE_API int32_t deltawire_patch_verify(const void* patch, uint64_t patch_bytes, const void* old_weights,
                                             uint64_t weight_bytes, int32_t type, deltawire_error* error);

/* The digest by which patches recognize their weights. */
DELTAWIRE_API int32_t deltawire_weights_digest(const void* weights, uint64_t weight_bytes, int32_t type,
                                               uint64_t* digest, deltawire_error* error);

#ifdef __cplusplus
}
#endif

#endif
