/* A call: what somebody wants done, in the words that its key is made of. */
#ifndef SM_CORE_CALL_H
#define SM_CORE_CALL_H

#include "base/error.h"
#include "base/str.h"
#include "json/json.h"

/* `step` and `key` are absent when their `p` is NULL. Everything is borrowed. */
typedef struct sm_parsed_call {
    sm_str scope; /* within which equal calls are the same action; segments separated by '/' */
    sm_str step;
    sm_str tool;
    sm_str key;          /* the caller's own */
    const sm_json *args; /* any JSON value */
    sm_str args_text;    /* what `args` was read from, for positions; may be empty */
    bool http;           /* they are those of an HTTP request: see core/identity.h */
} sm_parsed_call;

/* Checks everything but the arguments: present, bounded, UTF-8, no control characters, and no empty
 * segment in the scope. SEMEL_E_BAD_ARGUMENTS with a sentence. */
sm_err sm_call_check(const sm_parsed_call *call, sm_fault *fault);

/* Whether a scope is `above`, or below it by whole segments. An absent `above` is above all. */
bool sm_scope_within(sm_str scope, sm_str above);

/* The first segments of a scope, at most so many: 1 is the tenant, 2 the agent. */
sm_str sm_scope_leading(sm_str scope, unsigned segments);

#endif
