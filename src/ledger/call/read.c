/* Reading records: by key, by handle, by name; and what the life cycle makes of them now. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/given.h"
#include "ledger/guard/shared.h"
#include "ledger/work/holder.h"
#include "ledger/work/ledger.h"

sm_err sm_load_cur(sm_work *w)
{
    sm_err e = sm_memo_unpack(&w->cur, &w->memo);
    if (e != SM_OK)
        return sm_fault_set(&w->fault, e,
                            "a record of the ledger does not make sense; run "
                            "`semel doctor`");
    return SM_OK;
}

static sm_err load(semel *s, sm_work *w, const semel_ref *ref)
{
    sm_work_drop(w);
    w->cur.version = 0;
    int64_t asked_ms = sm_clock_boot_ms();
    sm_err e = s->ops->get(s->store, ref, &w->room, &w->cur, &w->now, &w->fault);
    if (e == SM_OK || e == SEMEL_E_NOT_FOUND)
        sm_learn(s, w->now, asked_ms);
    return e == SM_OK ? sm_load_cur(w) : e;
}

sm_err sm_load_key(semel *s, sm_work *w, const sm_hash *key, const uint8_t *shard)
{
    semel_ref ref = {.key = key, .sharded = shard != NULL};
    if (shard != NULL)
        ref.shard = *shard;
    return load(s, w, &ref);
}

/* What guards share is not an effect, and may be a secret. */
static sm_err only_effect(sm_work *w, sm_err e)
{
    if (e != SM_OK || !sm_is_shared(&w->cur))
        return e;
    w->cur.version = 0;
    return SEMEL_E_NOT_FOUND;
}

sm_err sm_load_handle(semel *s, sm_work *w, const sm_handle *h, bool newest)
{
    sm_err e = load(s, w,
                    &(semel_ref){.id = h->id,
                                 .generation = newest ? 0 : h->generation,
                                 .sharded = true,
                                 .shard = h->shard});
    return only_effect(w, e);
}

void sm_remember(semel *s, sm_work *w)
{
    sm_recall_put(&s->recall, &w->cur);
}

bool sm_recollect(semel *s, sm_work *w, const sm_handle *claim)
{
    sm_work_drop(w);
    sm_recalled *e = sm_recall_find_attempt(&s->recall, claim->id, claim->generation, claim->fence);
    if (e == NULL)
        return false;
    free(w->recalled);
    w->recalled = e;
    w->cur = e->record;
    w->now = sm_now(s);
    return sm_load_cur(w) == SM_OK;
}

/* Finds what a name means. SEMEL_E_BAD_ARGUMENTS if it means nothing. */
static sm_err load_name(semel *s, sm_work *w, const semel_name *name)
{
    sm_handle h;
    sm_hash key;
    if (name->text.p == NULL) {
        sm_parsed_call call = {.scope = name->scope, .tool = SM_STR("any"), .key = name->key};
        sm_key made;
        sm_err e = name->key.p == NULL
                       ? sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS,
                                      "an effect is named by its handle, its key, or a scope and "
                                      "the caller's key")
                       : sm_call_check(&call, &w->fault);
        if (e == SM_OK)
            e = sm_key_make(&w->keyer, SM_KEY_EXPLICIT, &call, NULL, NULL, &made, &w->fault);
        uint8_t shard;
        if (e == SM_OK)
            e = sm_scope_shard(&w->keyer.digest, name->scope, &shard);
        return e == SM_OK ? sm_load_key(s, w, &made.hash, &shard) : e;
    }
    if (sm_handle_parse("ef_", name->text, &h) || sm_handle_parse("ap_", name->text, &h))
        return sm_load_handle(s, w, &h, false);
    if (sm_hash_parse(name->text, &key))
        return only_effect(w, sm_load_key(s, w, &key, NULL));
    return sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS,
                        "\"%.*s\" is neither a handle (ef_..., ap_...) nor a key of 43 characters",
                        (int)(name->text.n < 60 ? name->text.n : 60), name->text.p);
}

void sm_judge(semel *s, sm_work *w, sm_life_event *ev)
{
    ev->gone = w->memo.effect.state == SEMEL_S_RUNNING && sm_holder_gone(&w->memo.holder, &s->self);
    sm_contract terms;
    sm_terms_contract(&w->memo.terms, &terms);
    sm_transition(&w->memo.effect, ev, &terms, w->now, &w->step);
}

void sm_look_now(semel *s, sm_work *w)
{
    sm_judge(s, w, &(sm_life_event){.kind = SM_EV_LOOK});
    if (w->step.next.state != SEMEL_S_NONE)
        sm_effect_copy(&w->memo.effect, &w->step.next);
}

semel_err semel_get(semel *s, const semel_name *name, semel_answer *a)
{
    sm_work *w = sm_work_start(a);
    semel_name given;
    sm_err e = sm_given_read(&given, sizeof given, name, SM_FIRST_SIZE(semel_name, key), "the name",
                             &w->fault);
    if (e == SM_OK)
        e = load_name(s, w, &given);
    if (e != SM_OK)
        return sm_answer_error(w, a, e);
    sm_look_now(s, w);
    e = sm_answer_about(w, a);
    if (e != SM_OK)
        return sm_answer_error(w, a, e);
    a->verdict = a->has_outcome ? SEMEL_REPLAY : SEMEL_DONE;
    return SM_OK;
}

/* ---- lists -----------------------------------------------------------------------------------*/

typedef struct listing {
    semel *s;
    semel_answer *a;
    semel_item_fn *sink;
    void *context;
    sm_err err;
    bool stopped;
} listing;

static bool list_one(void *context, const semel_record *r, int64_t now)
{
    listing *l = context;
    if (sm_is_shared(r))
        return true;
    sm_work *w = sm_work_start(l->a);
    w->cur = *r;
    w->now = now;
    if (sm_load_cur(w) != SM_OK) { /* one damaged record does not hide the others */
        l->a->effect = sm_answer_handle(w, r);
        l->a->state = r->state < SEMEL_S_COUNT ? (semel_state)r->state : SEMEL_S_NONE;
        l->a->message = SM_STR("This record does not make sense; run `semel doctor`.");
        sm_answer_refuse(w, l->a, SEMEL_C_LEDGER_UNAVAILABLE, SM_OK);
        l->stopped = !l->sink(l->context, l->a, r);
        return !l->stopped;
    }
    sm_look_now(l->s, w);
    l->err = sm_answer_about(w, l->a);
    if (l->err != SM_OK)
        return false;
    l->a->verdict = l->a->has_outcome ? SEMEL_REPLAY : SEMEL_DONE;
    l->stopped = !l->sink(l->context, l->a, r);
    return !l->stopped;
}

semel_err semel_list(semel *s, semel_query *q, semel_item_fn *sink, void *context,
                     semel_fault *fault)
{
    semel_query given;
    sm_err e = sm_given_read(&given, sizeof given, q, SM_FIRST_SIZE(semel_query, limit),
                             "the query", fault);
    if (e == SM_OK)
        e = sm_given_spare(given.filter.spare, sizeof given.filter.spare, "the filter", fault);
    if (e != SM_OK)
        return e;
    listing l = {.s = s, .a = semel_answer_new(), .sink = sink, .context = context};
    if (l.a == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    size_t limit = given.limit == 0 ? 50 : given.limit > 1000 ? 1000 : given.limit;
    e = s->ops->query(s->store, &given.filter, &given.cursor, limit, list_one, &l, fault);
    sm_given_fill(q, &given, sizeof given);
    if (e == SM_OK && l.err != SM_OK)
        e = sm_fault_set(fault, l.err, "%s", sm_work_of(l.a)->fault.text);
    semel_answer_free(l.a);
    return e;
}

semel_err semel_events(semel *s, semel_str effect, uint64_t *after, size_t limit,
                       semel_event_sink *sink, void *context, semel_fault *fault)
{
    sm_handle h = {0};
    if (effect.p != NULL && !sm_handle_parse("ef_", effect, &h))
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "\"%.*s\" is not an effect's handle",
                            (int)(effect.n < 60 ? effect.n : 60), effect.p);
    semel_ref of = {.id = h.id, .generation = h.generation, .sharded = true, .shard = h.shard};
    return s->ops->events(s->store, effect.p == NULL ? NULL : &of, after, limit, sink, context,
                          fault);
}
