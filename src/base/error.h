/*
 * The ways in which something can fail.
 *
 * There are three kinds of outcome and three types for them. A programmer's mistake is an assert.
 * The world failing (memory, a limit, bad input) is an sm_err. An ordinary answer of the ledger is
 * a verdict and not an error at all.
 *
 * One list generates the codes, their names and their sentences.
 */
#ifndef SM_BASE_ERROR_H
#define SM_BASE_ERROR_H

#include <stddef.h>
#include <stdint.h>

/*  X(code, sentence) */
#define SM_ERRORS(X)                                                                               \
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
    X(IO, "input or output failed")

typedef enum sm_err {
#define X(code, sentence) SM_E_##code,
    SM_ERRORS(X)
#undef X
        SM_E_COUNT
} sm_err;

#define SM_OK SM_E_OK

/* The code's name, such as "BAD_ARGUMENTS", and its sentence. Both are static strings. */
const char *sm_err_name(sm_err e);
const char *sm_err_text(sm_err e);

/* What went wrong, where in the text it did, and in words. `line` and `column` count from 1,
 * columns in characters; both are 0 where there is no text to point into. */
#define SM_FAULT_TEXT_MAX 512
typedef struct sm_fault {
    sm_err code;
    size_t at; /* byte offset */
    uint32_t line;
    uint32_t column;
    char text[SM_FAULT_TEXT_MAX];
} sm_fault;

/* Fills in a fault and returns its code, so that `return sm_fault_set(...)` reads well. `f` may be
 * NULL. A text that does not fit is cut at a character boundary. */
sm_err sm_fault_set(sm_fault *f, sm_err code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
