/*
 * What a command said and how it ended: the record of a child process, and its replay.
 *
 * Both output streams are kept in the order in which they were read. Memory is bounded (I12): what
 * lies beyond the bound is counted and hashed, but not kept, and the record says that it was cut.
 *
 * As text it is one JSON object, at most SM_TRANSCRIPT_TEXT_MAX bytes:
 *
 *     {"started":true,"exit":3,"ended_at":"2026-11-15T12:00:03.250Z",
 *      "chunks":[["out","text"],["err","/wA=","base64"]],"truncated":false,
 *      "stdout_bytes":4,"stdout_sha256":"...","stderr_bytes":2,"stderr_sha256":"..."}
 *
 * "exit" is what a shell would say: 128 + n after signal n, which "signal" then names. Neighbouring
 * chunks are of different streams. A chunk that is not UTF-8, or would be shorter that way, is
 * base64. Digests are over everything that the command wrote, in hexadecimal. A command that could
 * not be started has "started":false, and "error" says why in words.
 *
 * Text from a ledger is not trusted: reading it checks all that replaying it relies on.
 */
#ifndef SM_EFFECT_TRANSCRIPT_H
#define SM_EFFECT_TRANSCRIPT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/digest.h"

#define SM_TRANSCRIPT_BYTES_MAX  ((size_t)512 << 10)
#define SM_TRANSCRIPT_CHUNKS_MAX 8192u
#define SM_TRANSCRIPT_TEXT_MAX   ((size_t)1 << 20)

typedef enum sm_child_stream { SM_STREAM_OUT, SM_STREAM_ERR, SM_STREAMS } sm_child_stream;

/* How a command ended. */
typedef struct sm_ending {
    bool started;    /* false: nothing ran */
    int status;      /* as a shell says it */
    int signal;      /* what killed it, or 0 */
    int64_t at_ms;   /* since 1970 */
    char error[160]; /* not started: why */
} sm_ending;

typedef struct sm_transcript {
    sm_buf bytes;  /* of all chunks */
    sm_buf chunks; /* of struct sm_chunk_mark */
    sm_digest digest[SM_STREAMS];
    uint64_t total[SM_STREAMS];
    bool truncated;
} sm_transcript;

sm_err sm_transcript_init(sm_transcript *t);
void sm_transcript_fini(sm_transcript *t); /* accepts a zeroed object */

/* Adds what was read from a stream. Lack of memory cuts the record like its bound does: what a
 * command does must not depend on it. */
void sm_transcript_add(sm_transcript *t, sm_child_stream from, sm_str bytes);

/* Appends the record as JSON. Call it once: it finishes the digests. */
sm_err sm_transcript_write(sm_transcript *t, const sm_ending *end, sm_buf *out);

/* A record that was read back. */
typedef struct sm_replay {
    sm_ending end;
    const struct sm_json *chunks;
    bool truncated;
    uint64_t total[SM_STREAMS];
    sm_str sha256[SM_STREAMS];
    char ended[24]; /* "2026-11-15 12:00:03 UTC", for people; "" if unknown */
} sm_replay;

/* SEMEL_E_NOT_FOUND if the value is no record of a command at all (somebody settled the effect by
 * hand, say); SEMEL_E_CORRUPT if it is one and does not hold together. */
sm_err sm_replay_read(sm_arena *a, sm_str value, sm_replay *out, sm_fault *fault);

/* Writes the recorded bytes to the two descriptors, in order. A stream that cannot be written is
 * given up and the other goes on. SEMEL_E_IO if that was for another reason than a closed pipe. */
sm_err sm_replay_write(const sm_replay *r, const int fds[SM_STREAMS]);

/* Writes all of it to a descriptor that may block; the errno of a failure, or 0. */
int sm_write_all(int fd, sm_str bytes);

#endif
