/*
 * What semel.h and store.h share: the version, texts, errors, states, codes.
 *
 * Every list is an X-macro, so that a name and its meaning are written once. Lists only grow at
 * their end, so a number means the same in every version; what ends in COUNT is this version's.
 */
#ifndef SEMEL_TYPES_H
#define SEMEL_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of these headers; semel_version() tells that of the library. They are written down
 * here and nowhere else: meson.build reads them. */
#define SEMEL_VERSION_MAJOR 0
#define SEMEL_VERSION_MINOR 1
#define SEMEL_VERSION_PATCH 0

#define SEMEL_VERSION_JOIN_(a, b, c)   #a "." #b "." #c
#define SEMEL_VERSION_NUMBER_(a, b, c) SEMEL_VERSION_JOIN_(a, b, c)
#define SEMEL_VERSION_STRING                                                                       \
    SEMEL_VERSION_NUMBER_(SEMEL_VERSION_MAJOR, SEMEL_VERSION_MINOR, SEMEL_VERSION_PATCH)

#if defined(__GNUC__)
#define SEMEL_API __attribute__((visibility("default")))
#else
#define SEMEL_API
#endif

/* A borrowed run of bytes. It owns nothing, is not NUL-terminated, and may hold NUL bytes. Absent
 * is p == NULL, which is not the same as empty. */
typedef struct semel_str {
    const char *p;
    size_t n;
} semel_str;

/* A C string as such a run; NULL is absent. It is borrowed, not copied. */
static inline semel_str semel_text(const char *s)
{
    semel_str text;
    text.p = s;
    text.n = s == NULL ? 0 : strlen(s);
    return text;
}

/* 32 bytes: a key, a fingerprint, a link of the audit chain. */
typedef struct semel_hash {
    uint8_t b[32];
} semel_hash;

/* ---- errors ----------------------------------------------------------------------------------*/

/* The ways in which the world can fail. An ordinary answer (denied, in doubt, in flight) is not
 * among them: it is a verdict with a code.  X(code, sentence) */
#define SEMEL_ERRORS(X)                                                                            \
    X(OK, "ok")                                                                                    \
    X(NOMEM, "out of memory")                                                                      \
    X(LIMIT, "over a limit")                                                                       \
    X(SYNTAX, "not well formed")                                                                   \
    X(DUPLICATE, "a name appears twice in one object")                                             \
    X(RANGE, "a number is too large for a double")                                                 \
    X(INVALID, "not a valid contract")                                                             \
    X(BAD_ARGUMENTS, "the arguments do not fit the call")                                          \
    X(UNKNOWN_TOOL, "the contract does not allow this tool")                                       \
    X(CRYPTO, "the cryptographic library failed")                                                  \
    X(IO, "input or output failed")                                                                \
    X(UNAVAILABLE, "the ledger cannot be used now")                                                \
    X(CORRUPT, "the ledger is damaged")                                                            \
    X(NOT_FOUND, "there is no such effect")                                                        \
    X(STALE, "somebody else was faster")                                                           \
    X(OVER_CAP, "a counter would pass its cap")                                                    \
    X(BARRED, "another effect of this tool and scope is in doubt")                                 \
    X(TIMEOUT, "the time is up")

typedef enum semel_err {
#define X(code, sentence) SEMEL_E_##code,
    SEMEL_ERRORS(X)
#undef X
        SEMEL_E_COUNT
} semel_err;

#define SEMEL_OK SEMEL_E_OK

/* The code's name, such as "BAD_ARGUMENTS", and its sentence. Both are static strings. */
SEMEL_API const char *semel_err_name(semel_err e);
SEMEL_API const char *semel_err_text(semel_err e);

/* What went wrong, where in the text it did, and in words. `line` and `column` count from 1,
 * columns in characters; both are 0 where there is no text to point into.
 *
 * It does not start with its size, and never grows: what explains mistakes must not depend on
 * having been filled in. It need not be set to anything before; it is written to on failure. */
#define SEMEL_FAULT_TEXT_MAX 512
typedef struct semel_fault {
    semel_err code;
    size_t at; /* byte offset */
    uint32_t line;
    uint32_t column;
    char text[SEMEL_FAULT_TEXT_MAX];
} semel_fault;

/* ---- states and codes ------------------------------------------------------------------------*/

/* The states of an effect's life. Their numbers are stored: never renumber.  X(code, text) */
#define SEMEL_STATES(X)                                                                            \
    X(NONE, "none")                                                                                \
    X(PENDING, "pending_approval")                                                                 \
    X(READY, "ready")                                                                              \
    X(RUNNING, "running")                                                                          \
    X(IN_DOUBT, "in_doubt")                                                                        \
    X(SUCCEEDED, "succeeded")                                                                      \
    X(FAILED, "failed")                                                                            \
    X(PARTIAL, "partial")                                                                          \
    X(DENIED, "denied")                                                                            \
    X(EXPIRED, "expired")                                                                          \
    X(CANCELED, "canceled")

typedef enum semel_state {
#define X(code, text) SEMEL_S_##code,
    SEMEL_STATES(X)
#undef X
        SEMEL_S_COUNT
} semel_state;

/* How many states there can ever be. */
#define SEMEL_STATES_MAX 16

SEMEL_API const char *semel_state_name(semel_state s);

/* Whether an effect in this state is over: its record answers, and its windows run. */
static inline bool semel_state_settled(semel_state s)
{
    return s >= SEMEL_S_SUCCEEDED && s < SEMEL_S_COUNT;
}

/* What callers get told when the answer is not simply the result.
 * X(code, exit status of a command, whether the same call may succeed later) */
#define SEMEL_CODES(X)                                                                             \
    X(NONE, 0, false)                                                                              \
    X(RETRY_IN_FLIGHT, 75, true)                                                                   \
    X(AWAITING_APPROVAL, 75, true)                                                                 \
    X(UPSTREAM_TIMEOUT, 75, true)                                                                  \
    X(UPSTREAM_FAILED, 75, true)                                                                   \
    X(IN_DOUBT, 76, false)                                                                         \
    X(KEY_CONFLICT, 65, false)                                                                     \
    X(BAD_ARGUMENTS, 65, false)                                                                    \
    X(UNKNOWN_TOOL, 65, false)                                                                     \
    X(ILLEGAL_STATE, 65, false)                                                                    \
    X(DENIED, 77, false)                                                                           \
    X(FORBIDDEN, 77, false)                                                                        \
    X(BAD_CLAIM, 77, false)                                                                        \
    X(CANCELED, 77, false)                                                                         \
    X(APPROVAL_EXPIRED, 77, true)                                                                  \
    X(ALREADY_DONE, 73, false)                                                                     \
    X(RESULT_EXPIRED, 66, false)                                                                   \
    X(NOT_FOUND, 66, false)                                                                        \
    X(PARTIAL_SUCCESS, 0, false)                                                                   \
    X(LEDGER_UNAVAILABLE, 69, true)                                                                \
    X(BUDGET_EXCEEDED, 77, false)                                                                  \
    X(LOOP_DETECTED, 77, false)                                                                    \
    X(STOPPED, 77, false)                                                                          \
    X(CIRCUIT_OPEN, 75, true)

typedef enum semel_code {
#define X(code, status, retriable) SEMEL_C_##code,
    SEMEL_CODES(X)
#undef X
        SEMEL_C_COUNT
} semel_code;

SEMEL_API const char *semel_code_name(semel_code c); /* "" for NONE */
SEMEL_API int semel_code_exit(semel_code c);
SEMEL_API bool semel_code_retriable(semel_code c);

/* ---- what people and tools say ---------------------------------------------------------------*/

/* How an attempt ended. Partial: something was done and something was not. */
typedef enum semel_kind { SEMEL_SUCCESS, SEMEL_FAILURE, SEMEL_PARTIAL } semel_kind;

/* Whether an attempt that failed changed the world. The default follows from the tool's class: for
 * write and write_idempotent a tool that answered "I failed" did nothing; for irreversible tools
 * nobody knows. */
typedef enum semel_applied {
    SEMEL_APPLIED_DEFAULT,
    SEMEL_APPLIED_NO,
    SEMEL_APPLIED_YES,
    SEMEL_APPLIED_UNKNOWN
} semel_applied;

/* What a person says about an effect that is in doubt. */
typedef enum semel_resolution {
    SEMEL_RESOLVE_APPLIED,
    SEMEL_RESOLVE_NOT_APPLIED,
    SEMEL_RESOLVE_ABANDON
} semel_resolution;

#ifdef __cplusplus
}
#endif

#endif
