/* Claims that nobody committed: who took one, by the history of its effect. */
#include "ledger/trail/unended.h"

#include <stdlib.h>

#include "base/limits.h"

#define EVENTS_MAX 10000u /* of one effect: renewals are events, too */

typedef struct search {
    sm_work *w;
    sm_str actor; /* who began the newest attempt */
    uint64_t fence;
    bool ended;
    sm_err err;
} search;

/* What is noted of an event is a list, such as "doubted,started". */
static bool is_noted(sm_str what, const char *note)
{
    size_t n = strlen(note);
    for (size_t i = 0; i + n <= what.n; i++) {
        bool begins = i == 0 || what.p[i - 1] == ',';
        bool ends = i + n == what.n || what.p[i + n] == ',';
        if (begins && ends && memcmp(what.p + i, note, n) == 0)
            return true;
    }
    return false;
}

static bool look(void *context, const semel_event *ev)
{
    search *f = context;
    sm_arena_reset(&f->w->held);
    const sm_json *body = NULL, *fence, *kind;
    if (sm_json_read(&f->w->held, ev->body, &sm_json_default_limits, &body, NULL) != SM_OK)
        return true; /* verifying reports it */
    fence = sm_json_find(body, SM_STR("fence"));
    kind = sm_json_find(body, SM_STR("kind"));
    uint64_t number =
        fence != NULL && fence->type == SM_JSON_NUMBER ? strtoull(fence->text, NULL, 10) : 0;
    if (is_noted(ev->what, "started")) {
        f->fence = number;
        f->ended = false;
        f->actor = sm_arena_text(&f->w->call, ev->actor);
        f->err = f->actor.p == NULL ? SEMEL_E_NOMEM : SM_OK;
    } else if (kind != NULL && number == f->fence) {
        f->ended = true;
    }
    return f->err == SM_OK;
}

sm_err sm_unended_by(semel *s, sm_work *w, const sm_handle *effect, sm_str *actor,
                     semel_fault *fault)
{
    search f = {.w = w};
    semel_ref of = {.id = effect->id,
                    .generation = effect->generation,
                    .sharded = true,
                    .shard = effect->shard};
    *actor = (sm_str){0};
    sm_err e = SM_OK;
    size_t seen = 0;
    for (uint64_t after = 0, before = 1; e == SM_OK && after != before && seen < EVENTS_MAX;
         seen += 500) {
        before = after;
        e = s->ops->events(s->store, &of, &after, 500, look, &f, fault);
        e = e == SM_OK ? f.err : e;
    }
    if (e == SM_OK && f.fence != 0 && !f.ended)
        *actor = f.actor;
    return e;
}
