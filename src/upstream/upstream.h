/*
 * From a tool's contract and a call's arguments to an HTTP request, and from what came back to what
 * is known about the effect. Pure: nothing here sends anything.
 *
 * URL templates: {name} or {/pointer} stands for an argument: a text, a number or a boolean. It is
 * percent-encoded but for unreserved characters, so it can change neither the host nor the number
 * of path segments nor the names of query parameters. In the path it must not be empty, "." or
 * "..". Placeholders are allowed in path and query only.
 */
#ifndef SM_UPSTREAM_UPSTREAM_H
#define SM_UPSTREAM_UPSTREAM_H

#include "base/buf.h"
#include "core/breaker.h"
#include "core/contract.h"
#include "semel/semel.h"
#include "upstream/http.h"

/* A request in the making: everything but the key, which is known only once the call may run. */
typedef struct sm_upstream_call {
    sm_http_request request;
    sm_http_field *headers; /* request.headers, with room for a few more */
    size_t header_room;
    sm_idempotency key; /* how the upstream is given a key */
    sm_retry retry;
    bool rejects_before_work;
    const sm_json *args;     /* full arguments, if the key goes among them */
    int body;                /* sm_body_form; none for a GET */
    sm_pointer cost, tokens; /* where its answer says what it cost; absent: nowhere */
} sm_upstream_call;

/* Makes the request of a contract that has an upstream. Values of ${NAME} come from the
 * environment. SEMEL_E_BAD_ARGUMENTS if the arguments do not fill the URL, SEMEL_E_INVALID if a
 * variable is not set or cannot be sent, each with a sentence that names it (never its value).
 * Everything is in the arena: the contract and `args` need not outlive the call. Of an answer as
 * much is kept as the ledger takes; whoever passes more on raises request.body_max. */
sm_err sm_upstream_make(sm_arena *a, const sm_contract *c, const sm_json *args,
                        sm_upstream_call *out, sm_fault *fault);

/* A number for how requests are made: with equal numbers, equal arguments make equal requests.
 * Values of variables do not count: a secret may be changed. */
uint64_t sm_upstream_shape(const sm_contract *c);
uint64_t sm_upstream_shape_of(const sm_upstream *u, const sm_idempotency *key);

/* Adds the key that the upstream is given, as the contract says (I15), if it says anything. Doing
 * so again replaces it. */
sm_err sm_upstream_key(sm_arena *a, sm_upstream_call *call, sm_str key, sm_fault *fault);

/* Adds a header; the texts must live as long as the arena. */
sm_err sm_upstream_header(sm_arena *a, sm_upstream_call *call, sm_str name, sm_str value);

/* Where an answer says what the call cost; the pointers, of which each may be absent, are copied.
 */
sm_err sm_upstream_priced(sm_arena *a, sm_upstream_call *call, const sm_pointer *cost,
                          const sm_pointer *tokens);

/* What an answer says that the call cost. An answer that is not JSON, or is very long, says
 * nothing. The outcome needs the arena and the body. */
void sm_upstream_spent(sm_arena *a, const sm_upstream_call *call, sm_str body, semel_outcome *out);

/* Whether an answer with this status says that nothing was done, and that the same request is to be
 * sent to another place. */
bool sm_http_sends_on(int status);

/* What an exchange proves about a write. */
typedef struct sm_upstream_ruling {
    semel_kind kind;
    semel_applied applied;  /* failures: NO or UNKNOWN; YES never */
    bool passing;           /* not applied for a reason that passes: worth repeating (408, 425, 429,
                               503 where declared, and nothing sent) */
    bool elsewhere;         /* not applied: the upstream sends the request to another place */
    int64_t retry_after_ms; /* what the upstream asked for; 0: nothing */
    sm_health health;       /* what it says of the upstream */
} sm_upstream_ruling;

/* Whether the claim is given back then: the tool has not answered, and the key stays free. So it is
 * if the contract replays failures, and if the attempt was a resend, which is tried again later. */
bool sm_upstream_gives_back(const sm_upstream_ruling *ruling, bool replays_failures, bool resends);

void sm_upstream_judge(const sm_upstream_call *up, const sm_http_result *r, int64_t now_ms,
                       sm_upstream_ruling *out);

/* The pause before another try (from 1), with jitter from `random`: grows from backoff to
 * max_backoff, and is at least what the upstream asked for (which is bounded by a minute). */
int64_t sm_upstream_pause(const sm_retry *retry, int64_t attempt, int64_t retry_after_ms,
                          uint64_t random);

#endif
