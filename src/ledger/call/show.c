/*
 * The whole story of an effect as one JSON object: the answer about it, its call, its attempts and
 * requests as its events tell them, the events themselves, and how often it was replayed or
 * refused.
 */
#include "base/limits.h"
#include "json/write.h"
#include "ledger/call/resource.h"

#define EVENTS_MAX 1000u

typedef struct story {
    sm_work *w;
    sm_buf *events, attempts, requests;
    uint64_t replays, refusals;
    int64_t last_replay;
    bool overwritten;
    sm_err err;
} story;

static bool has_note(sm_str what, const char *note)
{
    size_t n = strlen(note);
    for (size_t i = 0; i + n <= what.n; i++) {
        bool starts = i == 0 || what.p[i - 1] == ',',
             ends = i + n == what.n || what.p[i + n] == ',';
        if (starts && ends && memcmp(what.p + i, note, n) == 0)
            return true;
    }
    return false;
}

/* One entry of a list: when, what, by whom, and the event's own words. */
static void put_entry(sm_buf *list, const semel_event *e)
{
    sm_put_item(list);
    sm_buf_byte(list, '{');
    sm_put_text(list, "what", e->what);
    sm_put_stamp(list, "at", e->at);
    sm_put_text(list, "actor", e->actor);
    if (e->body.n > 2) {
        sm_buf_byte(list, ',');
        sm_buf_bytes(list, e->body.p + 1, e->body.n - 2);
    }
    sm_buf_byte(list, '}');
}

static bool tell_event(void *context, const semel_event *e)
{
    story *t = context;
    sm_put_item(t->events);
    sm_event_put_json(e, t->events);
    static const char *const of_attempts[] = {"started", "settled",  "doubted",      "late",
                                              "cleared", "resolved", "double_effect"};
    static const char *const of_requests[] = {"requested", "approved",   "denied", "expired",
                                              "canceled",  "superseded", "told"};
    for (size_t i = 0; i < sizeof of_attempts / sizeof of_attempts[0]; i++) {
        if (has_note(e->what, of_attempts[i])) {
            put_entry(&t->attempts, e);
            break;
        }
    }
    for (size_t i = 0; i < sizeof of_requests / sizeof of_requests[0]; i++) {
        if (has_note(e->what, of_requests[i])) {
            put_entry(&t->requests, e);
            break;
        }
    }
    return true;
}

static bool tell_note(void *context, const semel_note *n)
{
    story *t = context;
    if (sm_str_is(n->what, "replayed")) {
        t->replays += n->count;
        t->last_replay = n->last_at > t->last_replay ? n->last_at : t->last_replay;
    } else if (n->what.n > 7 && memcmp(n->what.p, "refused", 7) == 0) {
        t->refusals += n->count;
    }
    return true;
}

/* What it acts on, and whether a repeat would run because others wrote that, or may have. */
static void put_resource(const sm_work *w, bool overwritten, sm_buf *out)
{
    if (!w->memo.terms.resource)
        return;
    sm_put_hash(out, "resource", &w->memo.resource.hash);
    if (overwritten)
        sm_put_bool(out, "overwritten", true);
}

static void put_list(sm_buf *out, const char *name, const sm_buf *items)
{
    sm_put_open(out, name, '[');
    sm_buf_str(out, sm_buf_view(items));
    sm_buf_byte(out, ']');
}

static void put_story(sm_work *w, semel_answer *a, story *t, sm_buf *out)
{
    const semel_record *r = &w->cur;
    sm_answer_put_json(a, out);
    out->len--; /* the closing brace: there is more */
    sm_put_text(out, "scope", r->scope);
    sm_put_text(out, "step", r->step);
    sm_put_text(out, "tool", r->tool);
    sm_put_text(out, "caller_key", r->caller);
    sm_put_raw(out, "args", r->args);
    put_resource(w, t->overwritten, out);
    sm_put_stamp(out, "created_at", r->created_at);
    sm_put_stamp(out, "updated_at", r->updated_at);
    sm_put_stamp(out, "lease_end", w->memo.effect.lease_end);
    sm_put_stamp(out, "request_end", w->memo.effect.request_end);
    if (w->memo.effect.quorum > 0) {
        sm_put_number(out, "quorum", w->memo.effect.quorum);
        sm_put_number(out, "approvals", w->memo.effect.approvals);
    }
    sm_put_stamp(out, "settled_at", w->memo.effect.settled_at);
    sm_put_stamp(out, "result_end", w->memo.effect.result_end);
    sm_put_stamp(out, "window_end", w->memo.effect.window_end);
    put_list(out, "attempts", &t->attempts);
    put_list(out, "requests", &t->requests);
    put_list(out, "events", t->events);
    sm_put_number(out, "replays", t->replays);
    sm_put_stamp(out, "replayed_at", t->last_replay);
    sm_put_number(out, "refusals", t->refusals);
    sm_buf_byte(out, '}');
}

semel_err semel_show(semel *s, const semel_name *name, semel_answer *a, semel_str *json)
{
    *json = (sm_str){0};
    sm_err e = semel_get(s, name, a);
    if (e != SM_OK)
        return e;
    sm_work *w = sm_work_of(a);
    sm_journal_flush(&s->journal, s->ops, s->store);
    story t = {.w = w, .events = &w->args};
    sm_buf_clear(t.events);
    sm_buf_init(&t.attempts, SM_ARENA_MAX);
    sm_buf_init(&t.requests, SM_ARENA_MAX);
    uint64_t after = 0;
    semel_ref of = sm_ref_of(&w->cur);
    e = s->ops->events(s->store, &of, &after, EVENTS_MAX, tell_event, &t, &w->fault);
    if (e == SM_OK)
        e = s->ops->notes(s->store, w->cur.id, w->cur.generation, EVENTS_MAX, tell_note, &t,
                          &w->fault);
    if (e == SM_OK && w->memo.terms.resource && sm_effect_applied(&w->memo.effect) &&
        !sm_always_retry(w->cur.caller, w->cur.step))
        e = sm_resource_overwritten(s, w, &w->memo.resource, &t.overwritten);
    sm_buf_clear(&w->json);
    if (e == SM_OK)
        put_story(w, a, &t, &w->json);
    if (e == SM_OK)
        e = w->json.err != SM_OK ? w->json.err : t.events->err;
    *json = sm_buf_view(&w->json);
    sm_buf_fini(&t.attempts);
    sm_buf_fini(&t.requests);
    return e == SM_OK ? e : sm_answer_error(w, a, e);
}
