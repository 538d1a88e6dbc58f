/*
 * Verifying the counters of resources: each write to one is an event that names the count that it
 * made. The counts follow each other, and the counter has the newest one.
 *
 * If such events are purged, the event "kept" of a record that depends on the counter names the
 * count.
 *
 * A counter may be removed when its end is over, and then begins anew at 1. Others may use the
 * ledger meanwhile: a counter that is ahead of the pass over the events is looked up in the events
 * that came since.
 */
#include <stdlib.h>

#include "ledger/call/resource.h"
#include "ledger/trail/verify.h"

#define PAGE 1000u

/* ---- the table -------------------------------------------------------------------------------*/

static sm_written *find(const sm_check *c, const sm_resource *r)
{
    uint64_t at;
    memcpy(&at, r->hash.b, sizeof at);
    for (;; at++) {
        sm_written *w = &c->written[at & (c->written_slots - 1)];
        if (w->count == 0 || memcmp(&w->resource, r, sizeof *r) == 0)
            return w;
    }
}

static bool make_room(sm_check *c)
{
    if (c->written_used * 3 < c->written_slots * 2)
        return true;
    sm_check bigger = *c;
    bigger.written_slots = c->written_slots == 0 ? 256 : c->written_slots * 2;
    bigger.written = calloc(bigger.written_slots, sizeof *bigger.written);
    if (bigger.written == NULL)
        return false;
    for (size_t i = 0; i < c->written_slots; i++) {
        if (c->written[i].count != 0)
            *find(&bigger, &c->written[i].resource) = c->written[i];
    }
    free(c->written);
    c->written = bigger.written;
    c->written_slots = bigger.written_slots;
    return true;
}

/* ---- events ----------------------------------------------------------------------------------*/

/* What an event says of a resource; false if it is not about one. */
static bool read_written(sm_check *c, const semel_event *e, sm_written *out, bool *kept)
{
    const sm_json *body;
    if (memmem(e->body.p, e->body.n, "\"resource\":", 11) == NULL)
        return false;
    sm_arena_reset(&c->w->call);
    if (sm_json_read(&c->w->call, e->body, &sm_json_default_limits, &body, NULL) != SM_OK)
        return false;
    const sm_json *resource = sm_json_find(body, SM_STR("resource"));
    const sm_json *count = sm_json_find(body, SM_STR("written"));
    *kept = count == NULL;
    if (*kept)
        count = sm_json_find(body, SM_STR("count"));
    const sm_json *until = sm_json_find(body, SM_STR("until"));
    *out = (sm_written){.shard = e->shard, .until = INT64_MAX};
    if (resource == NULL || resource->type != SM_JSON_STRING ||
        !sm_hash_parse(sm_json_text(resource), &out->resource.hash) || count == NULL ||
        count->type != SM_JSON_NUMBER)
        return false;
    out->count = strtoull(count->text, NULL, 10); /* what follows a text is not a digit */
    if (until != NULL && until->type == SM_JSON_NUMBER)
        out->until = strtoll(until->text, NULL, 10);
    return out->count != 0;
}

void sm_check_written(sm_check *c, const semel_event *e)
{
    sm_written now;
    char text[SM_HASH_TEXT + 1];
    bool kept;
    if (!read_written(c, e, &now, &kept))
        return;
    if (!make_room(c)) {
        c->err = SEMEL_E_NOMEM;
        return;
    }
    sm_written *w = find(c, &now.resource);
    if (kept && w->count != 0)
        return; /* it says nothing new */
    bool anew = now.count == 1 && w->until <= e->at;
    if (w->count != 0 && now.count != w->count + 1 && !anew) {
        sm_hash_text(&now.resource.hash, text);
        sm_check_tell(c, "the counter of resource %s was altered before event %llu", text,
                      (unsigned long long)e->seq);
    }
    c->written_used += w->count == 0;
    if (!anew && w->until > now.until)
        now.until = w->until;
    *w = now;
}

/* ---- counters --------------------------------------------------------------------------------*/

typedef struct newer {
    sm_check *c;
    const sm_resource *resource;
    uint64_t count;
    bool found;
} newer;

static bool look_for(void *context, const semel_event *e)
{
    newer *n = context;
    sm_written w;
    bool kept;
    n->found = read_written(n->c, e, &w, &kept) && !kept && w.count == n->count &&
               memcmp(&w.resource, n->resource, sizeof w.resource) == 0;
    return !n->found;
}

/* Whether an event since the pass over all events has made this count. */
static sm_err came_since(sm_check *c, const sm_resource *r, uint64_t count, bool *is,
                         semel_fault *fault)
{
    newer n = {.c = c, .resource = r, .count = count};
    sm_err e = SM_OK;
    for (uint64_t after = c->last_seq, before = UINT64_MAX;
         after != before && e == SM_OK && !n.found;) {
        before = after;
        e = c->s->ops->events(c->s->store, NULL, &after, PAGE, look_for, &n, fault);
    }
    *is = n.found;
    return e;
}

sm_err sm_check_counters(sm_check *c, semel_fault *fault)
{
    char text[SM_HASH_TEXT + 1];
    sm_err e = SM_OK;
    for (size_t i = 0; i < c->written_slots && e == SM_OK && !c->stopped; i++) {
        const sm_written *w = &c->written[i];
        uint64_t count;
        bool right = w->count == 0;
        if (right)
            continue;
        e = sm_resource_count(c->s, &w->resource, w->shard, &count, fault);
        right = count == w->count || (count == 0 && w->until <= sm_now(c->s));
        if (e == SM_OK && !right && count != 0)
            e = came_since(c, &w->resource, count, &right, fault);
        sm_hash_text(&w->resource.hash, text);
        if (e == SM_OK && !right)
            sm_check_tell(c, "the counter of resource %s was %s", text,
                          count == 0 ? "removed before its time" : "altered");
    }
    return e;
}
