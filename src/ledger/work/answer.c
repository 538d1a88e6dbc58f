/*
 * Answers: what a record says, in the public form; the words for each code; and the JSON.
 *
 * A message is for people and for models: it says what happened and what to do, and never holds a
 * key (I11).
 */
#include <stdio.h>

#include "base/base64.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "json/write.h"
#include "ledger/work/ledger.h"

/* ---- words -----------------------------------------------------------------------------------*/

/* X(code, message, what to do). One place for what everybody gets told. */
#define WORDS(X)                                                                                   \
    X(RETRY_IN_FLIGHT, "The same call is running; its outcome is not known yet.",                  \
      "Ask again later with the same call; it will not run twice.")                                \
    X(AWAITING_APPROVAL, "A person has to approve this call first; nothing has been done.",        \
      "Do not make the same call again before it is approved, and do not try another way. Once "   \
      "it is approved, the same call runs.")                                                       \
    X(UPSTREAM_TIMEOUT,                                                                            \
      "An earlier attempt got no answer. Whoever executes this tool has to find out what became "  \
      "of it.",                                                                                    \
      "Ask again later with the same call; if this lasts, a person has to resolve it.")            \
    X(UPSTREAM_FAILED,                                                                             \
      "The tool could not be reached, or turned the call away; nothing was done.",                 \
      "Ask again later with the same call.")                                                       \
    X(IN_DOUBT, "An earlier attempt may or may not have taken effect; nobody can tell from here.", \
      "Do not make this call again, and do not try another way. A person has to find out and "     \
      "resolve it.")                                                                               \
    X(KEY_CONFLICT, "This key belongs to a call with other arguments.",                            \
      "Use the earlier arguments, or another key if another action is meant.")                     \
    X(BAD_ARGUMENTS, "The call is not well formed.", "Correct the call; nothing has run.")         \
    X(UNKNOWN_TOOL, "The contract does not allow this tool.", "Use a tool that is listed.")        \
    X(ILLEGAL_STATE, "That cannot be done in the state that the effect is in.",                    \
      "Look at the effect's state first.")                                                         \
    X(DENIED, "A person has denied this call.", "Do not ask for it again; do something else.")     \
    X(FORBIDDEN, "You have approved this call, so you cannot ask for it.",                         \
      "Somebody else has to ask for it.")                                                          \
    X(BAD_CLAIM, "This claim is not, or no longer, the one that may do this.",                     \
      "Begin again to see what became of the effect.")                                             \
    X(CANCELED, "The call was canceled while it waited.", "Make the call again if it is wanted.")  \
    X(APPROVAL_EXPIRED, "Nobody approved the call in time.",                                       \
      "Make the same call again to ask for approval again.")                                       \
    X(ALREADY_DONE, "This was done already.", "Go on; it must not be done again.")                 \
    X(RESULT_EXPIRED, "This was done already; its result is no longer kept.",                      \
      "Go on without the result, or read it from where it took effect.")                           \
    X(NOT_FOUND, "There is no such effect.", "Check the handle, the ledger and the scope.")        \
    X(PARTIAL_SUCCESS, "This was done in part.", "See what is left to do in the outcome.")         \
    X(LEDGER_UNAVAILABLE, "The ledger cannot be used now, so nothing may run.",                    \
      "Try again later.")                                                                          \
    X(BUDGET_EXCEEDED, "The budget for this call is used up; nothing has been done.",              \
      "Do not make this call again. Tell the user what is left to do.")                            \
    X(LOOP_DETECTED, "The same call is made again and again.",                                     \
      "Use the result you have, change the arguments, or stop.")                                   \
    X(STOPPED, "Writes were stopped by a person; nothing has been done.",                          \
      "Do not make this call again, and do not try another way. Tell the user what "               \
      "is left to do.")                                                                            \
    X(CIRCUIT_OPEN, "The tool fails, so it is not called for now; nothing has been done.",         \
      "Make the same call again later, and do something else until then.")

static const char *const messages[SEMEL_C_COUNT] = {
#define X(code, message, advice) [SEMEL_C_##code] = message,
    WORDS(X)
#undef X
};
static const char *const advices[SEMEL_C_COUNT] = {
#define X(code, message, advice) [SEMEL_C_##code] = advice,
    WORDS(X)
#undef X
};

/* If a person has to decide, the advice names what about. */
static sm_str advice_about(sm_work *w, const semel_answer *a)
{
    if (a->code == SEMEL_C_AWAITING_APPROVAL && a->request.p != NULL)
        return sm_arena_printf(&w->call,
                               "Do not make the same call again before request %.*s is approved, "
                               "and do not try another way. Once it is approved, the same call "
                               "runs.",
                               SM_FMT(a->request));
    sm_str effect = a->blocked_by.p != NULL ? a->blocked_by : a->effect;
    if (a->code == SEMEL_C_IN_DOUBT && effect.p != NULL)
        return sm_arena_printf(&w->call,
                               "Do not make this call again, and do not try another way. A person "
                               "has to find out whether %.*s happened, and resolve it.",
                               SM_FMT(effect));
    return (sm_str){0};
}

void sm_answer_words(sm_work *w, semel_answer *a)
{
    a->retriable = semel_code_retriable(a->code);
    if (messages[a->code] == NULL)
        return;
    if (a->message.p == NULL)
        a->message = sm_str_from(messages[a->code]);
    if (a->corrective_action.p == NULL)
        a->corrective_action = advice_about(w, a);
    if (a->corrective_action.p == NULL)
        a->corrective_action = sm_str_from(advices[a->code]);
}

sm_err sm_answer_refuse(sm_work *w, semel_answer *a, semel_code code, sm_err e)
{
    a->verdict = SEMEL_REFUSED;
    a->code = code;
    sm_answer_words(w, a);
    return e;
}

sm_err sm_answer_error(sm_work *w, semel_answer *a, sm_err e)
{
    semel_code code = e == SEMEL_E_BAD_ARGUMENTS || e == SEMEL_E_SYNTAX || e == SEMEL_E_DUPLICATE ||
                              e == SEMEL_E_RANGE || e == SEMEL_E_LIMIT
                          ? SEMEL_C_BAD_ARGUMENTS
                      : e == SEMEL_E_UNKNOWN_TOOL ? SEMEL_C_UNKNOWN_TOOL
                      : e == SEMEL_E_NOT_FOUND    ? SEMEL_C_NOT_FOUND
                                                  : SEMEL_C_LEDGER_UNAVAILABLE;
    if (code != SEMEL_C_NOT_FOUND) {
        const char *text = w->fault.text[0] != '\0' ? w->fault.text : semel_err_text(e);
        sm_str place = w->fault.line == 0 ? (sm_str){"", 0}
                                          : sm_arena_printf(&w->call, " (line %u, column %u)",
                                                            w->fault.line, w->fault.column);
        a->message = sm_arena_printf(&w->call, "%s%.*s", text, SM_FMT(place));
    }
    a->retry_after_ms = code == SEMEL_C_LEDGER_UNAVAILABLE ? 1000 : 0;
    return sm_answer_refuse(w, a, code, e);
}

/* ---- from a record ---------------------------------------------------------------------------*/

static sm_str handle_text(sm_work *w, const sm_handle *h,
                          size_t (*put)(const sm_handle *, char[SM_HANDLE_TEXT]))
{
    char *text = sm_arena_alloc(&w->call, SM_HANDLE_TEXT);
    return text == NULL ? (sm_str){0} : (sm_str){text, put(h, text)};
}

sm_str sm_answer_handle(sm_work *w, const semel_record *r)
{
    sm_handle h = {.shard = r->shard, .id = r->id, .generation = r->generation};
    return handle_text(w, &h, sm_handle_effect);
}

static void about_outcome(sm_work *w, semel_answer *a)
{
    const sm_effect *e = &w->memo.effect;
    semel_outcome *o = &a->outcome;
    bool over =
        e->state == SEMEL_S_SUCCEEDED || e->state == SEMEL_S_FAILED || e->state == SEMEL_S_PARTIAL;
    if (!over && e->state != SEMEL_S_DENIED && e->state != SEMEL_S_CANCELED)
        return;
    if (w->cur.outcome.p == NULL || !sm_outcome_unpack(w->cur.outcome, o)) {
        *o = (semel_outcome){0};
        if (over) { /* its bytes have gone */
            a->has_outcome = true;
            o->size = sizeof *o;
            o->kind = e->state == SEMEL_S_SUCCEEDED ? SEMEL_SUCCESS
                      : e->state == SEMEL_S_FAILED  ? SEMEL_FAILURE
                                                    : SEMEL_PARTIAL;
        }
        return;
    }
    if (!over) { /* why it was denied or canceled */
        a->message = sm_arena_printf(
            &w->call, "%s Reason: %.*s",
            messages[e->state == SEMEL_S_DENIED ? SEMEL_C_DENIED : SEMEL_C_CANCELED],
            SM_FMT(o->value));
        *o = (semel_outcome){0};
        return;
    }
    a->has_outcome = true;
    if (w->now >= e->result_end) { /* they are over, whether or not they have been purged */
        o->kept = o->is_json = false;
        o->value = o->headers = (sm_str){0};
    }
    if (e->state == SEMEL_S_PARTIAL)
        a->corrective_action = o->corrective_action;
}

sm_err sm_answer_about(sm_work *w, semel_answer *a)
{
    const sm_effect *e = &w->memo.effect;
    a->effect = sm_answer_handle(w, &w->cur);
    if (a->effect.p == NULL)
        return SEMEL_E_NOMEM;
    a->state = e->state;
    a->generation = e->generation;
    a->attempt = e->attempt;
    a->fence = e->fence;
    a->version = w->cur.version;
    if (e->request > 0 && (e->state == SEMEL_S_PENDING || e->state == SEMEL_S_READY ||
                           e->state == SEMEL_S_DENIED || e->state == SEMEL_S_EXPIRED)) {
        sm_handle h = {.shard = w->cur.shard,
                       .id = w->cur.id,
                       .generation = w->cur.generation,
                       .request = e->request};
        a->request = handle_text(w, &h, sm_handle_request);
    }
    about_outcome(w, a);
    return SM_OK;
}

sm_err sm_answer_after(sm_work *w, semel_answer *a, sm_err e)
{
    if (e == SM_OK)
        e = sm_answer_about(w, a);
    return e == SM_OK ? SM_OK : sm_answer_error(w, a, e);
}

/* ---- JSON ------------------------------------------------------------------------------------*/

static void put_text(sm_buf *out, const char *name, sm_str text)
{
    sm_put_text(out, name, sm_utf8_valid(text) ? text : SM_STR(""));
}

static void put_number(sm_buf *out, const char *name, uint64_t v)
{
    if (v != 0)
        sm_put_number(out, name, v);
}

void sm_outcome_put_json(const semel_outcome *o, sm_buf *out)
{
    static const char *const kinds[] = {"success", "failure", "partial"};
    static const char *const applied[] = {NULL, "no", "yes", "unknown"};
    sm_buf_byte(out, '{');
    put_text(out, "kind", sm_str_from(kinds[o->kind]));
    if (o->kind == SEMEL_FAILURE && applied[o->applied] != NULL)
        put_text(out, "applied", sm_str_from(applied[o->applied]));
    if (o->value.p != NULL) {
        put_text(out, "encoding", o->is_json ? SM_STR("json") : SM_STR("base64"));
        sm_put_name(out, "value");
        if (o->is_json) {
            sm_buf_str(out, o->value);
        } else {
            sm_buf_byte(out, '"');
            sm_base64_put(out, o->value);
            sm_buf_byte(out, '"');
        }
    }
    put_number(out, "status", (uint64_t)o->status);
    sm_put_raw(out, "headers", o->headers);
    put_text(out, "corrective_action", o->corrective_action);
    sm_put_bool(out, "kept", o->kept);
    sm_put_number(out, "bytes", o->bytes);
    sm_buf_byte(out, '}');
}

void sm_answer_put_json(const semel_answer *a, sm_buf *out)
{
    static const char *const verdicts[] = {"refused", "execute", "replay", "done"};
    sm_buf_byte(out, '{');
    put_text(out, "verdict", sm_str_from(verdicts[a->verdict]));
    if (a->code != SEMEL_C_NONE)
        put_text(out, "code", sm_str_from(semel_code_name(a->code)));
    put_text(out, "result", a->result);
    put_text(out, "effect", a->effect);
    if (a->effect.p != NULL)
        put_text(out, "state", sm_str_from(semel_state_name(a->state)));
    put_number(out, "version", a->version);
    put_number(out, "generation", a->generation);
    put_number(out, "attempt", a->attempt);
    put_number(out, "fence", a->fence);
    put_text(out, "claim", a->claim);
    put_number(out, "lease_ms", (uint64_t)a->lease_ms);
    put_text(out, "idempotency_key", a->idempotency_key);
    put_text(out, "request", a->request);
    if (a->has_outcome) {
        sm_put_name(out, "outcome");
        sm_outcome_put_json(&a->outcome, out);
    }
    sm_put_raw(out, "drift", a->drift);
    put_text(out, "repeat_of", a->repeat_of);
    put_text(out, "blocked_by", a->blocked_by);
    put_text(out, "observed", a->observed);
    if (a->code != SEMEL_C_NONE && a->code != SEMEL_C_PARTIAL_SUCCESS)
        sm_put_bool(out, "retriable", a->retriable);
    put_number(out, "retry_after_ms", (uint64_t)a->retry_after_ms);
    put_text(out, "message", a->message);
    put_text(out, "corrective_action", a->corrective_action);
    put_text(out, "warning", a->warning);
    sm_answer_put_guard(a, out);
    sm_buf_byte(out, '}');
}

void sm_answer_put_guard(const semel_answer *a, sm_buf *out)
{
    put_text(out, "limit", a->limit);
    if (a->detector.p == NULL)
        return;
    put_text(out, "detector", a->detector);
    put_number(out, "period", a->period);
    put_number(out, "count", a->count);
}

semel_err semel_answer_json(const semel_answer *a, semel_str *out)
{
    sm_work *w = a->work;
    sm_buf_clear(&w->json);
    sm_answer_put_json(a, &w->json);
    *out = sm_buf_view(&w->json);
    return w->json.err;
}

void sm_event_put_json(const semel_event *e, sm_buf *out)
{
    sm_buf_byte(out, '{');
    put_number(out, "seq", e->seq);
    if (e->id != 0) {
        char handle[SM_HANDLE_TEXT];
        sm_handle h = {.shard = e->shard, .id = e->id, .generation = e->generation};
        sm_handle_effect(&h, handle);
        put_text(out, "effect", sm_str_from(handle));
    }
    put_number(out, "index", e->index);
    sm_put_stamp(out, "at", e->at);
    put_text(out, "what", e->what);
    put_text(out, "actor", e->actor);
    sm_put_raw(out, "body", e->body.n > 0 ? e->body : SM_STR("{}"));
    sm_put_hash(out, "prev", &e->prev);
    sm_put_hash(out, "hash", &e->hash);
    sm_buf_byte(out, '}');
}

semel_err semel_event_json(const semel_event *e, char *out, size_t room, size_t *n)
{
    sm_buf b;
    sm_buf_init(&b, SM_ARENA_MAX);
    sm_event_put_json(e, &b);
    *n = b.len;
    if (b.err == SM_OK && b.len > 0 && b.len <= room)
        memcpy(out, b.p, b.len);
    sm_err err = b.err != SM_OK ? b.err : b.len > room ? SEMEL_E_LIMIT : SM_OK;
    sm_buf_fini(&b);
    return err;
}
