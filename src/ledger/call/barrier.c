/*
 * The doubt barrier's questions. The barrier itself is the store's: a write of a barred group is
 * refused in the same transaction that would have made it.
 */
#include "ledger/work/holder.h"
#include "ledger/work/ledger.h"

/* What runs in a group although its holder is gone. */
typedef struct gone_list {
    semel *s;
    sm_handle found[16];
    size_t n;
} gone_list;

static bool find_gone(void *context, const semel_record *r, int64_t now)
{
    (void)now;
    gone_list *g = context;
    sm_memo m;
    if (sm_memo_unpack(r, &m) == SM_OK && sm_holder_gone(&m.holder, &g->s->self))
        g->found[g->n++] = (sm_handle){.shard = r->shard, .id = r->id};
    return g->n < sizeof g->found / sizeof g->found[0];
}

sm_err sm_barrier_settle(semel *s, sm_work *w, sm_str scope, sm_str tool)
{
    sm_hash group;
    sm_err e = sm_group_of(w, scope, tool, &group);
    gone_list g = {.s = s};
    /* The scope says no more than the group does, but tells a store in which shard to look. */
    semel_filter filter = {.states = 1u << SEMEL_S_RUNNING, .scope = scope, .group = &group};
    uint64_t cursor = 0;
    while (e == SM_OK) {
        e = s->ops->query(s->store, &filter, &cursor, 1000, find_gone, &g, &w->fault);
        if (cursor == 0 || g.n == sizeof g.found / sizeof g.found[0])
            break;
    }
    semel_answer *a = g.n == 0 || e != SM_OK ? NULL : semel_answer_new();
    for (size_t i = 0; a != NULL && i < g.n; i++) {
        sm_work *other = sm_work_start(a);
        if (sm_load_handle(s, other, &g.found[i], true) != SM_OK)
            continue;
        sm_judge(s, other, &(sm_life_event){.kind = SM_EV_LOOK});
        sm_body_start(other);
        if (other->step.changed && other->step.next.state == SEMEL_S_IN_DOUBT)
            sm_write(s, other, &(sm_change){.actor = sm_ledger_actor(s, (sm_str){0})});
    }
    semel_answer_free(a);
    return e;
}

typedef struct barring {
    sm_work *w;
    const sm_hash *key;
    sm_str handle;
} barring;

static bool find_barring(void *context, const semel_record *r, int64_t now)
{
    (void)now;
    barring *f = context;
    if (memcmp(&r->key, f->key, sizeof r->key) == 0)
        return true;
    f->handle = sm_answer_handle(f->w, r);
    return false;
}

sm_err sm_barrier_find(semel *s, sm_work *w, const sm_parsed_call *call, const sm_hash *key,
                       sm_str *handle)
{
    sm_hash group;
    sm_err e = sm_group_of(w, call->scope, call->tool, &group);
    semel_filter filter = {.states = 1u << SEMEL_S_IN_DOUBT, .scope = call->scope, .group = &group};
    uint64_t cursor = 0;
    barring f = {.w = w, .key = key};
    if (e == SM_OK)
        e = s->ops->query(s->store, &filter, &cursor, 16, find_barring, &f, &w->fault);
    *handle = f.handle;
    return e;
}
