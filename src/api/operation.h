/*
 * What operations share, those of a door's own too: refusing in the ledger's words, naming effects
 * without looking across tenants, reading bodies and parameters, outcomes, writing lists.
 *
 * Functions that return a bool have replied if it is false.
 */
#ifndef SM_API_OPERATION_H
#define SM_API_OPERATION_H

#include <stddef.h>

#include "api/api.h"
#include "api/body.h"
#include "core/call.h"

/* ---- refusing --------------------------------------------------------------------------------*/

/* As much of a client's text as is repeated to it. */
sm_str sm_quoted(sm_str text);

/* Replies with a problem. The message is cut off after 1 KB. */
void sm_op_problem(sm_operation *op, int status, const char *code, const char *advice,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Replies that the request is wrong, with the fault's words and place; or that there is no memory.
 */
void sm_op_refuse(sm_operation *op, const sm_fault *fault);

/* Replies with a code and the words that the ledger has for it, or with an error of the ledger. */
void sm_op_code(sm_operation *op, semel_answer *a, semel_code code);
void sm_op_fault(sm_operation *op, semel_answer *a, sm_err e, const sm_fault *fault);

/* ---- naming ----------------------------------------------------------------------------------*/

/* Whether a scope is one of those that who asks is bound to. */
static inline bool sm_op_owns(const sm_operation *op, sm_str scope)
{
    return sm_scope_within(scope, op->bound);
}

/* The same, for acting in it. */
bool sm_op_may_use(sm_operation *op, sm_str scope);

/* The scope to look in: the one that was asked for, or all that who asks is bound to. */
bool sm_op_choose_scope(sm_operation *op, sm_str asked, sm_str *out);

/* Whether an effect is in a scope that who asks may see. An effect outside of them is
 * indistinguishable from a missing one: `missing` is the answer. */
bool sm_op_may_see(sm_operation *op, semel_answer *a, const sm_handle *h, semel_code missing);

/* The effect that op->name names by its handle or by a request's, if who asks may see it. */
bool sm_op_effect(sm_operation *op, semel_answer *a, sm_handle *h);

/* ---- reading ---------------------------------------------------------------------------------*/

/* Reads the body by a table (body.h). */
bool sm_op_body(sm_operation *op, const sm_object_member *members, size_t count, void *out);

/* Reads the parameters by a table of texts, labels and counts. An empty text counts as absent. */
bool sm_op_parameters(sm_operation *op, const sm_object_member *members, size_t count, void *out);

/* Reads the body as a call; its texts are in the arena. Whether who asks may make it: its scope,
 * once it has its key. */
bool sm_op_call(sm_operation *op, sm_call_form form, int64_t wait_max_ms, semel_call *out);
bool sm_op_may_call(sm_operation *op, const semel_call *call);

/* A text that is a time, or how long ago that is. Absent: *out stays. */
sm_err sm_time_parse(const char *name, sm_str text, int64_t *out, sm_fault *fault);

/* A position in a list, as we gave it out. */
bool sm_cursor_parse(sm_str text, uint64_t *out);

/* What is said of one that is none. */
#define SM_BAD_CURSOR "cursor: this is none; take it from the page before"

/* ---- outcomes --------------------------------------------------------------------------------*/

/* What came of a tool, as bodies say it. The members are for tables of structures that begin with
 * a sm_outcome_body. */
typedef struct sm_outcome_body {
    sm_str value;        /* JSON, kept as it was sent */
    sm_str value_base64; /* or any bytes */
    int64_t status;
    sm_object headers;
} sm_outcome_body;

#define SM_STATUS_MAX 999
#define SM_OUTCOME_MEMBERS                                                                         \
    {.name = "value", .kind = SM_M_ANY, .offset = offsetof(sm_outcome_body, value)},               \
        {.name = "value_base64",                                                                   \
         .kind = SM_M_TEXT,                                                                        \
         .offset = offsetof(sm_outcome_body, value_base64)},                                       \
        {.name = "status",                                                                         \
         .kind = SM_M_COUNT,                                                                       \
         .max = SM_STATUS_MAX,                                                                     \
         .offset = offsetof(sm_outcome_body, status)},                                             \
    {                                                                                              \
        .name = "headers", .kind = SM_M_OBJECT, .offset = offsetof(sm_outcome_body, headers)       \
    }

/* Value, status and headers of an outcome; of the headers those that may be replayed. */
sm_err sm_outcome_take(sm_arena *a, const sm_outcome_body *b, semel_outcome *out, sm_fault *fault);

/* ---- writing ---------------------------------------------------------------------------------*/

/* A list on its way out. A page that has grown beyond a bound ends early, and its cursor says where
 * to go on. */
#define SM_PAGE_BYTES ((size_t)4 << 20)
typedef struct sm_page {
    sm_buf out;
    size_t items;
} sm_page;

void sm_page_start(sm_page *p);
void sm_page_item(sm_page *p); /* before each item */
bool sm_page_full(const sm_page *p);

/* Replies with the list, or with why there is none, and lets go of it. `cursor` 0: there is no
 * more. */
void sm_page_reply(sm_operation *op, semel_answer *a, sm_page *p, uint64_t cursor, sm_err e,
                   const sm_fault *fault);

/* Replies with an object that was written, or with why it could not be; with a report of the
 * ledger, or with its refusal. */
void sm_op_json(sm_operation *op, semel_answer *a, const sm_buf *out);
void sm_op_report(sm_operation *op, const semel_answer *a, semel_err e, sm_str json);

/* A member of the object that is being written; a text that is not UTF-8 is left out. */
void sm_put_utf8(sm_buf *out, const char *name, sm_str text);

#endif
