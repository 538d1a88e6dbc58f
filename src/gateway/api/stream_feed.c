/*
 * What streams get.
 *
 * A token that is bound to a scope gets the events of effects in it. An event tells its effect's
 * shard, which rules most others out, and its id; the scope is read from the effect's record and
 * remembered for a while. Events of effects that have been purged are nobody's.
 */
#include "gateway/api/stream.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "gateway/api/api.h"
#include "ledger/service.h"

#define ALIVE_NS ((int64_t)15 * 1000000000)
#define CHECK_NS ((int64_t)900 * 1000000)   /* between looks at tokens: at every resting look */
#define CUT_NS   ((int64_t)30 * 1000000000) /* without room for so long: cut */

/* ---- whose an event is -----------------------------------------------------------------------*/

/* The scope of an effect, from memory or from its record; NULL if there is none. */
static sm_err scope_of(gw_stream *s, const sm_handle *h, const char **out)
{
    gw_stream_scope *known = &s->scopes[h->id % GW_STREAM_SCOPES];
    *out = known->text;
    if (known->id == h->id)
        return SM_OK;
    sm_fault fault;
    sm_str text;
    *out = NULL;
    sm_err e = sm_scope_of(s->g->ledger, h, s->answer, &text, &fault);
    if (e != SM_OK)
        return e == SEMEL_E_NOT_FOUND ? SM_OK : e;
    char *copy = strndup(text.p, text.n);
    if (copy == NULL)
        return SEMEL_E_NOMEM;
    free(known->text);
    *known = (gw_stream_scope){.id = h->id, .text = copy};
    *out = copy;
    return SM_OK;
}

static sm_err is_for(gw_stream *s, const gw_stream_one *t, const gw_stream_item *i, bool *yes)
{
    const char *text = NULL;
    *yes = t->whole;
    if (t->whole || i->of.id == 0 || i->of.shard != t->shard)
        return SM_OK;
    sm_err e = scope_of(s, &i->of, &text);
    *yes = e == SM_OK && text != NULL && gw_who_owns(&t->request->who, sm_str_from(text));
    return e;
}

/* ---- feeding ---------------------------------------------------------------------------------*/

/* An event is copied before it is given to anybody: the ledger must not wait for readers. */
static bool collect(void *context, const semel_event *e)
{
    gw_stream *s = context;
    gw_stream_item *i = &s->items[s->count];
    *i = (gw_stream_item){.of = {.shard = e->shard, .id = e->id, .generation = e->generation},
                          .seq = e->seq,
                          .at = s->texts.len};
    sm_buf_printf(&s->texts, "id: %llu\nevent: %.*s\ndata: ", (unsigned long long)e->seq,
                  SM_FMT(e->what));
    sm_event_put_json(e, &s->texts);
    sm_buf_text(&s->texts, "\n\n");
    if (s->texts.err != SM_OK) {
        s->texts.len = i->at;
        return false;
    }
    i->n = s->texts.len - i->at;
    return ++s->count < GW_STREAM_PAGE && s->texts.len < SM_PAGE_BYTES;
}

static void push(gw_stream_one *t, sm_str text, uint64_t id, int64_t now_ns)
{
    if (gw_flow_push(t->request, text)) {
        t->told = id;
        t->pushed_ns = now_ns;
        t->full_ns = 0;
    } else {
        t->full_ns = t->full_ns == 0 ? now_ns : t->full_ns;
        t->stuck = true;
    }
}

/* An event for one stream, unless it has it, or cannot take it now. */
static sm_err give(gw_stream *s, gw_stream_one *t, const gw_stream_item *i, int64_t now_ns)
{
    bool yes;
    if (t->stuck || t->after >= i->seq)
        return SM_OK;
    sm_err e = is_for(s, t, i, &yes);
    if (e == SM_OK && yes)
        push(t, (sm_str){s->texts.p + i->at, i->n}, i->seq, now_ns);
    t->stuck = t->stuck || e != SM_OK;
    if (!t->stuck)
        t->after = i->seq;
    return e;
}

/* Reads one page from a place and gives it to all who are there or further on. */
static sm_err feed_from(gw_stream *s, uint64_t start, int64_t now_ns)
{
    uint64_t end = start;
    sm_fault fault;
    s->count = 0;
    sm_buf_clear(&s->texts);
    sm_err e = semel_events(s->g->ledger, (sm_str){0}, &end, GW_STREAM_PAGE, collect, s, &fault);
    if (e == SM_OK)
        e = s->texts.err;
    for (size_t i = 0; i < s->count; i++) {
        for (gw_stream_one *t = s->streams; t != NULL; t = t->next) {
            sm_err trouble = give(s, t, &s->items[i], now_ns);
            e = e == SM_OK ? trouble : e;
        }
    }
    end = s->count > 0 ? s->items[s->count - 1].seq : start;
    for (gw_stream_one *t = s->streams; t != NULL; t = t->next)
        t->served = t->served || t->stuck || t->after <= end;
    return e;
}

/* The stream that is furthest behind among those that have had nothing yet. */
static const gw_stream_one *next_to_serve(const gw_stream *s)
{
    const gw_stream_one *last = NULL;
    for (const gw_stream_one *t = s->streams; t != NULL; t = t->next) {
        if (!t->served && (last == NULL || t->after < last->after))
            last = t;
    }
    return last;
}

static uint64_t total(const gw_stream *s)
{
    uint64_t sum = 0;
    for (const gw_stream_one *t = s->streams; t != NULL; t = t->next)
        sum += t->after;
    return sum;
}

sm_err gw_stream_feed(gw_stream *s, bool room, bool *more)
{
    int64_t now_ns = sm_clock_mono_ns();
    uint64_t before = total(s);
    const gw_stream_one *t;
    sm_err e = SM_OK;
    for (gw_stream_one *one = s->streams; one != NULL; one = one->next) {
        one->stuck = one->full_ns != 0 && !room;
        if (one->full_ns != 0 && room) /* whether it is this one that has room */
            push(one, SM_STR(":\n\n"), one->told, now_ns);
        one->served = one->stuck;
    }
    while (e == SM_OK && (t = next_to_serve(s)) != NULL)
        e = feed_from(s, t->after, now_ns);
    *more = total(s) != before;
    return e;
}

/* ---- the end of streams, and their silence ---------------------------------------------------*/

/* Whether it is time to look whether tokens are still in force. */
static bool checks(gw_stream *s, int64_t now_ns)
{
    if (now_ns - s->checked_ns < CHECK_NS)
        return false;
    s->checked_ns = now_ns;
    return true;
}

static bool is_over(const gw_stream *s, const gw_stream_one *t, bool check)
{
    return gw_is_gone(t->request) ||
           (check && !gw_tokens_hold(s->g->tokens, &t->request->who, sm_clock_ms()));
}

void gw_stream_tend(gw_stream *s, bool all)
{
    int64_t now_ns = sm_clock_mono_ns();
    bool check = checks(s, now_ns);
    for (gw_stream_one **at = &s->streams; *at != NULL;) {
        gw_stream_one *t = *at;
        bool slow = t->full_ns != 0 && now_ns - t->full_ns > CUT_NS;
        if (all || slow || is_over(s, t, check)) {
            *at = t->next;
            gw_flow_end(t->request, !slow);
            gw_stream_leave(s, t->token);
            free(t);
            continue;
        }
        if (t->full_ns == 0 && now_ns - t->pushed_ns > ALIVE_NS) {
            /* A reader is told how far we are even if nothing was for it. */
            char text[48] = ":\n\n";
            if (t->told != t->after)
                snprintf(text, sizeof text, ":\nid: %llu\n\n", (unsigned long long)t->after);
            push(t, sm_str_from(text), t->after, now_ns);
        }
        at = &t->next;
    }
}
