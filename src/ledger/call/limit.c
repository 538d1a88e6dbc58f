/*
 * Limits: the slots that a call takes when it begins, and frees if it surely did nothing.
 *
 * A slot is taken and freed by a counter of the write itself. If others were faster, the write is
 * refused for its cap, the slots are read, and it is tried again with what is free now. An effect
 * takes its slots once, however many attempts it needs; what is in doubt keeps them.
 */
#include "ledger/call/limit.h"

#include "base/duration.h"
#include "base/stamp.h"
#include "ledger/guard/secret.h"

sm_err sm_limits_find(semel *s, sm_work *w, const sm_identity *id, sm_str scope,
                      sm_destinations *out)
{
    const sm_hash *secret;
    out->n = 0;
    if (id->contract->limit.n == 0)
        return SM_OK;
    sm_err e = sm_secret_get(s, &secret, &w->fault);
    if (e == SM_OK)
        e = sm_destinations_find(&w->scratch, &id->contract->limit, scope, id->filled, secret, out,
                                 &w->fault);
    if (e != SEMEL_E_BAD_ARGUMENTS || id->contract->mode != SM_MODE_OBSERVE)
        return e;
    out->n = 0;
    w->step.observed = SEMEL_C_BAD_ARGUMENTS;
    return SM_OK;
}

void sm_slots_guess(sm_charging *c, const sm_change *change)
{
    for (uint32_t i = 0; change->to != NULL && i < change->to->n; i++)
        c->slot[i].number =
            (uint8_t)(change->identity->key.hash.b[0] % change->to->v[i].rule->calls);
}

static void put_counter(sm_counters *out, const sm_slot *slot, int64_t from, int64_t to)
{
    sm_str name = sm_slot_name(slot->id, slot->number, out->name[out->n]);
    out->v[out->n++] = (semel_counter){name, to - from, to, sm_slot_until(slot->end)};
}

void sm_slots_take(sm_work *w, const sm_charging *c, const sm_destinations *to, sm_counters *out)
{
    sm_charged *charged = &w->memo.charged;
    charged->slots = to == NULL ? 0 : (uint8_t)to->n;
    for (uint8_t i = 0; i < charged->slots; i++) {
        sm_slot *slot = &charged->slot[i];
        memcpy(slot->id, to->v[i].id, sizeof slot->id);
        slot->number = c->slot[i].number;
        slot->end = sm_slot_take(c->slot[i].value, w->now, to->v[i].rule->window_ms);
        put_counter(out, slot, c->slot[i].value, sm_slot_taken(slot->end));
    }
}

void sm_slots_free(sm_work *w, const sm_charging *c, sm_counters *out)
{
    sm_charged *charged = &w->memo.charged;
    for (uint8_t i = 0; i < charged->slots; i++) {
        const sm_slot *slot = &charged->slot[i];
        if (slot->end > w->now && !c->slot[i].lost)
            put_counter(out, slot, sm_slot_taken(slot->end), sm_slot_freed(slot->end));
    }
    charged->slots = 0;
}

static sm_err read_slot(semel *s, sm_work *w, const sm_slot *slot, uint8_t shard, int64_t *value)
{
    char text[SM_SLOT_NAME];
    return s->ops->counter(s->store, shard, sm_slot_name(slot->id, slot->number, text), value,
                           &w->fault);
}

sm_err sm_slots_return(semel *s, sm_work *w, const sm_change *change, uint8_t shard,
                       sm_counters *out)
{
    const sm_charged *charged = &w->memo.charged;
    for (uint8_t i = 0; i < charged->slots; i++) {
        const sm_slot *slot = &charged->slot[i];
        int64_t value, taken = sm_slot_taken(slot->end);
        sm_err e = read_slot(s, w, slot, shard, &value);
        if (e == SEMEL_E_UNAVAILABLE && change->evidence)
            return SM_OK; /* the store has lost something, and answers nothing */
        if (e != SM_OK)
            return e;
        if (value < taken)
            put_counter(out, slot, value, taken);
    }
    return SM_OK;
}

/* Looks for a free slot from `first` on, all round. */
static sm_err look(semel *s, sm_work *w, const sm_destination *to, uint8_t shard, uint8_t *number,
                   int64_t *value, bool *found, int64_t *free_at)
{
    uint8_t calls = (uint8_t)to->rule->calls;
    sm_slot slot = {0};
    memcpy(slot.id, to->id, sizeof slot.id);
    *found = false;
    *free_at = INT64_MAX;
    for (uint8_t i = 0; i < calls; i++) {
        int64_t at;
        slot.number = (uint8_t)((*number + i) % calls);
        sm_err e = read_slot(s, w, &slot, shard, value);
        if (e != SM_OK)
            return e;
        *found = sm_slot_free(*value, w->now, &at);
        if (*found) {
            *number = slot.number;
            return SM_OK;
        }
        *free_at = at < *free_at ? at : *free_at;
    }
    return SM_OK;
}

sm_err sm_slots_over(semel *s, sm_work *w, sm_charging *c, const sm_change *change, uint8_t shard,
                     bool *found)
{
    const sm_destinations *to = change->to;
    *found = false;
    for (uint32_t i = 0; to != NULL && i < to->n; i++) {
        const sm_limit_rule *rule = to->v[i].rule;
        int64_t free_at;
        bool free;
        sm_err e =
            look(s, w, &to->v[i], shard, &c->slot[i].number, &c->slot[i].value, &free, &free_at);
        if (e != SM_OK)
            return e;
        if (!free) {
            *found = true;
            if (free_at == INT64_MAX) /* a store removed counters meanwhile */
                free_at = sm_time_after(w->now, rule->window_ms);
            *change->over = (sm_over){.limit = rule, .free_at = free_at};
            return SM_OK;
        }
    }
    return SM_OK;
}

sm_err sm_slots_lost(semel *s, sm_work *w, sm_charging *c, uint8_t shard)
{
    for (uint8_t i = 0; i < c->before.slots; i++) {
        const sm_slot *slot = &c->before.slot[i];
        int64_t value;
        sm_err e = read_slot(s, w, slot, shard, &value);
        if (e != SM_OK)
            return e;
        c->slot[i].lost = value != sm_slot_taken(slot->end);
    }
    return SM_OK;
}

/* ---- words -----------------------------------------------------------------------------------*/

/* A time in one unit, rounded up: "42m". */
static void span_text(int64_t ms, char out[SM_DURATION_TEXT])
{
    int64_t unit = ms > 2 * 3600000 ? 3600000 : ms > 2 * 60000 ? 60000 : 1000;
    sm_duration_text((ms + unit - 1) / unit * unit, out);
}

sm_str sm_over_until(sm_work *w, const sm_over *over, semel_answer *a)
{
    char left[SM_DURATION_TEXT], stamp[SM_STAMP_TEXT];
    int64_t ms = over->free_at - w->now;
    span_text(ms, left);
    sm_stamp_text(over->free_at, stamp);
    a->retry_after_ms = ms;
    return sm_arena_printf(&w->call, "%s (in %s)", stamp, left);
}

void sm_limit_words(sm_work *w, const sm_over *over, semel_answer *a)
{
    const sm_limit_rule *rule = over->limit;
    a->limit = rule->per.text;
    char window[SM_DURATION_TEXT];
    sm_duration_text(rule->window_ms, window);
    a->message =
        sm_arena_printf(&w->call,
                        "%lld call%s with the same %.*s %s made within %s, which is the limit. "
                        "Nothing has been done.",
                        (long long)rule->calls, rule->calls == 1 ? "" : "s", SM_FMT(rule->per.text),
                        rule->calls == 1 ? "was" : "were", window);
    sm_str when = sm_over_until(w, over, a);
    a->corrective_action = sm_arena_printf(
        &w->call,
        "Do not make a call with this %.*s again before %.*s, and do not try another way. Tell the user "
        "what is left to do.",
        SM_FMT(rule->per.text), SM_FMT(when));
}
