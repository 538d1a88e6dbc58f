/*
 * The ways in which something can fail.
 *
 * There are three kinds of outcome and three types for them. A programmer's mistake is an assert.
 * The world failing (memory, a limit, bad input) is an sm_err. An ordinary answer of the ledger is
 * a verdict and not an error at all. The list of errors is public: include/semel/types.h.
 */
#ifndef SM_BASE_ERROR_H
#define SM_BASE_ERROR_H

#include "semel/types.h"

typedef semel_err sm_err;
typedef semel_fault sm_fault;

#define SM_OK SEMEL_OK

/* Fills in a fault and returns its code, so that `return sm_fault_set(...)` reads well. `f` may be
 * NULL. A text that does not fit is cut at a character boundary. */
sm_err sm_fault_set(sm_fault *f, sm_err code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
