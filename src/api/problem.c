/*
 * Problem details, and the status of each code.
 *
 * A problem has the members that RFC 9457 names and, beside them, the same fields that every other
 * front end tells a refusal with, so that a model that knows one knows all. It never holds a key
 * (I11).
 */
#include "api/problem.h"

#include <ctype.h>

#include "base/utf8.h"
#include "json/write.h"
#include "ledger/service.h"

int sm_problem_status(semel_code code)
{
    switch (code) {
    case SEMEL_C_NONE:
    case SEMEL_C_PARTIAL_SUCCESS: return 200;
    case SEMEL_C_AWAITING_APPROVAL: return 202;
    case SEMEL_C_BAD_ARGUMENTS: return 400;
    case SEMEL_C_DENIED:
    case SEMEL_C_FORBIDDEN:
    case SEMEL_C_BAD_CLAIM:
    case SEMEL_C_STOPPED:
    case SEMEL_C_APPROVAL_EXPIRED: return 403;
    case SEMEL_C_UNKNOWN_TOOL:
    case SEMEL_C_NOT_FOUND: return 404;
    case SEMEL_C_RETRY_IN_FLIGHT:
    case SEMEL_C_IN_DOUBT:
    case SEMEL_C_ILLEGAL_STATE:
    case SEMEL_C_CANCELED:
    case SEMEL_C_ALREADY_DONE: return 409;
    case SEMEL_C_RESULT_EXPIRED: return 410;
    case SEMEL_C_KEY_CONFLICT: return 422;
    case SEMEL_C_BUDGET_EXCEEDED:
    case SEMEL_C_LOOP_DETECTED: return 429;
    case SEMEL_C_UPSTREAM_FAILED: return 502;
    case SEMEL_C_LEDGER_UNAVAILABLE:
    case SEMEL_C_CIRCUIT_OPEN: return 503;
    case SEMEL_C_UPSTREAM_TIMEOUT: return 504;
    case SEMEL_C_COUNT: break;
    }
    return 500;
}

bool sm_problem_retriable(const char *code)
{
    if (strcmp(code, "OVERLOADED") == 0 || strcmp(code, "DRAINING") == 0)
        return true;
    for (int c = 0; c < SEMEL_C_COUNT; c++)
        if (strcmp(code, semel_code_name((semel_code)c)) == 0)
            return semel_code_retriable((semel_code)c);
    return false;
}

void sm_problem_text(sm_buf *out, const char *name, sm_str text)
{
    sm_put_text(out, name, sm_utf8_valid(text) ? text : SM_STR("(not valid UTF-8)"));
}

/* "KEY_CONFLICT" becomes "Key conflict". */
static void put_title(sm_buf *out, const char *code)
{
    sm_put_open(out, "title", '"');
    for (const char *c = code; *c != '\0'; c++)
        sm_buf_byte(out, *c == '_' ? ' ' : c == code ? *c : (char)tolower((unsigned char)*c));
    sm_buf_byte(out, '"');
}

void sm_problem_put(sm_buf *out, int status, const char *code, bool retriable,
                    int64_t retry_after_ms, sm_str message, sm_str advice)
{
    sm_buf_byte(out, '{');
    sm_put_open(out, "type", '"');
    sm_buf_text(out, "urn:semel:problem:");
    sm_buf_text(out, code);
    sm_buf_byte(out, '"');
    put_title(out, code);
    sm_put_number(out, "status", (uint64_t)status);
    sm_problem_text(out, "detail", message);
    sm_problem_text(out, "code", sm_str_from(code));
    sm_put_bool(out, "retriable", retriable);
    if (retry_after_ms > 0)
        sm_put_number(out, "retry_after_ms", (uint64_t)retry_after_ms);
    sm_problem_text(out, "message", message);
    sm_problem_text(out, "corrective_action", advice);
    sm_buf_byte(out, '}');
}

int64_t sm_problem_own(sm_buf *out, int status, const char *code, sm_str message, sm_str advice)
{
    bool retriable = sm_problem_retriable(code);
    int64_t retry_after_ms = retriable && status != 202 ? 1000 : 0;
    sm_problem_put(out, status, code, retriable, retry_after_ms, message, advice);
    return retry_after_ms;
}

static bool has_outcome(const semel_answer *a)
{
    return a->code == SEMEL_C_LOOP_DETECTED && a->has_outcome;
}

size_t sm_problem_bytes(const semel_answer *a)
{
    return SM_PROBLEM_BYTES + (has_outcome(a) ? 2 * a->outcome.value.n + a->outcome.headers.n +
                                                    2 * a->outcome.corrective_action.n
                                              : 0);
}

void sm_problem_of_answer(sm_buf *out, int status, const semel_answer *a)
{
    sm_problem_put(out, status, semel_code_name(a->code), a->retriable, a->retry_after_ms,
                   a->message, a->corrective_action);
    if (out->err != SM_OK)
        return;
    out->len--; /* the brace: there is more */
    sm_problem_text(out, "effect", a->effect);
    if (a->state != SEMEL_S_NONE)
        sm_problem_text(out, "state", sm_str_from(semel_state_name(a->state)));
    if (a->version != 0)
        sm_put_number(out, "version", a->version);
    sm_problem_text(out, "request", a->request);
    sm_put_raw(out, "drift", a->drift);
    sm_problem_text(out, "blocked_by", a->blocked_by);
    sm_answer_put_guard(a, out);
    if (has_outcome(a)) {
        sm_put_name(out, "outcome");
        sm_outcome_put_json(&a->outcome, out);
    }
    sm_buf_byte(out, '}');
}
