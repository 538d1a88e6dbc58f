/*
 * Putting back what the ledger has lost.
 *
 * A store may lose the record of a running attempt: a server fails over to a replica that lags
 * behind, is restored, is wiped, or evicts. The handle that runs the attempt knows the record as it
 * was when the attempt began, and how it ended. It writes both again, so that the effect is known
 * and nobody runs it a second time:
 *
 *     no record, an older generation, an older attempt   the record as it was, with its end
 *     somebody else has begun it since                   a stray attempt, see transition.c
 *
 * The history goes on from there. Verifying reports the loss: of the record, and of earlier events
 * if the store lost those too.
 */
#include "ledger/call/commit.h"

#include "ledger/call/charge.h"

/* Whether the record that is there, with time applied, is older than the lost one, which replaces
 * it. */
static bool gives_way(semel *s, sm_work *w, const semel_record *seen)
{
    if (w->cur.version == 0)
        return true;
    sm_judge(s, w, &(sm_life_event){.kind = SM_EV_LOOK});
    const sm_effect *now = &w->step.next;
    if (now->state == SEMEL_S_NONE || w->cur.generation < seen->generation)
        return true;
    return w->cur.generation == seen->generation && w->cur.fence < seen->fence &&
           !sm_effect_done(now) && now->state != SEMEL_S_RUNNING;
}

/* Doubts of the record that is there stay (I16). If they are more than a record holds, the effect
 * is left to a person; gives how many are left out. */
static uint64_t take_doubts(sm_memo *to, const sm_effect *from)
{
    sm_effect *e = &to->effect;
    uint64_t left_out = 0;
    for (uint32_t i = 0; i < from->doubt_count; i++) {
        uint32_t at = e->doubt_count;
        while (at > 0 && e->doubts[at - 1] > from->doubts[i])
            at--;
        if ((at > 0 && e->doubts[at - 1] == from->doubts[i]) || from->doubts[i] >= e->fence)
            continue;
        if (e->doubt_count == SM_DOUBTS_MAX) {
            e->chain_at = (uint8_t)(to->terms.on_in_doubt.count - 1);
            left_out++;
            continue;
        }
        memmove(&e->doubts[at + 1], &e->doubts[at], (e->doubt_count - at) * sizeof e->doubts[0]);
        e->doubts[at] = from->doubts[i];
        e->doubt_count++;
    }
    return left_out;
}

/* What becomes of the record that is there. */
typedef struct replaced {
    bool over;         /* the lost record becomes a generation after it */
    uint64_t left_out; /* doubts of it that are in no list */
} replaced;

/* Makes w->memo that of the lost record. */
static sm_err recall(sm_work *w, const semel_record *seen, replaced *out)
{
    sm_effect there = {0};
    *out = (replaced){0};
    if (w->cur.version != 0)
        sm_effect_copy(&there, &w->step.next);
    out->over = w->cur.version != 0 &&
                (there.state == SEMEL_S_NONE || w->cur.generation != seen->generation);
    sm_err e = sm_memo_unpack(seen, &w->memo);
    if (e == SM_OK && there.state == SEMEL_S_IN_DOUBT && !out->over)
        out->left_out = take_doubts(&w->memo, &there);
    return e;
}

/* Only one attempt may have a fence, across generations. True if it needed another one. */
static bool renumber(const semel_record *there, sm_effect *e)
{
    bool same = e->generation == there->generation + 1 && e->base_fence >= there->fence;
    if (same)
        return false;
    uint64_t up = there->fence > e->base_fence ? there->fence - e->base_fence : 0;
    e->generation = there->generation + 1;
    e->fence += up;
    e->base_fence += up;
    for (uint32_t i = 0; i < e->doubt_count; i++)
        e->doubts[i] += up;
    return true;
}

static void note_first(sm_move *step)
{
    memmove(step->notes + 1, step->notes, step->note_count * sizeof step->notes[0]);
    step->notes[0] = SM_N_PUT_BACK;
    step->note_count++;
    step->changed = true;
}

static void put_left_out(sm_work *w, const replaced *r)
{
    if (r->left_out > 0)
        sm_body_number(w, "doubts_left_out", r->left_out);
}

/* Puts the claim's hash into the event: a late commit is checked against it. */
static void put_claim(sm_work *w, const semel_record *seen)
{
    sm_hash shown = {0};
    memcpy(shown.b, w->memo.claim, sizeof w->memo.claim);
    sm_body_hash(w, "claim", &shown);
    sm_body_hash(w, "fingerprint", &seen->fingerprint);
}

static sm_err put_lost(semel *s, sm_work *w, const sm_recalled *seen, const sm_ending *end)
{
    replaced r;
    sm_err e = recall(w, &seen->record, &r);
    if (e != SM_OK)
        return e;
    semel_outcome o = end->outcome;
    o.applied = sm_applied_by(&w->memo, &o);
    sm_contract terms;
    sm_terms_contract(&w->memo.terms, &terms);
    sm_transition(&w->memo.effect,
                  &(sm_life_event){.kind = SM_EV_COMMIT,
                                   .fence = end->claim->fence,
                                   .outcome = o.kind,
                                   .applied = o.applied},
                  &terms, w->now, &w->step);
    bool keeps = sm_takes_outcome(w, &o);
    note_first(&w->step);
    bool renumbered = r.over && renumber(&w->cur, &w->step.next);
    e = sm_ending_body(w, end, &o, keeps);
    put_left_out(w, &r);
    if (!renumbered)
        put_claim(w, &seen->record);
    sm_charge spent;
    bool told = sm_charge_told(&o, &w->memo.charged, &spent);
    return e != SM_OK ? e
                      : sm_write(s, w,
                                 &(sm_change){.actor = sm_ledger_actor(s, end->actor),
                                              .import = &seen->record,
                                              .returns = true,
                                              .evidence = true,
                                              .outcome = keeps ? &o : NULL,
                                              .spent = told ? &spent : NULL});
}

static sm_err put_stray(semel *s, sm_work *w, const sm_recalled *seen, const sm_ending *end)
{
    sm_memo memo;
    sm_err e = sm_memo_unpack(&seen->record, &memo);
    if (e != SM_OK)
        return e;
    semel_outcome o = end->outcome;
    o.applied = sm_applied_by(&memo, &o);
    sm_judge(s, w, &(sm_life_event){.kind = SM_EV_STRAY, .outcome = o.kind, .applied = o.applied});
    if (w->step.next.state == SEMEL_S_RUNNING && o.applied == SEMEL_APPLIED_UNKNOWN)
        return sm_fault_set(&w->fault, SEMEL_E_UNAVAILABLE,
                            "the ledger has lost the record of this attempt, and another one runs");
    bool keeps = sm_takes_outcome(w, &o);
    e = sm_ending_body(w, end, &o, keeps);
    return e != SM_OK ? e
                      : sm_write(s, w,
                                 &(sm_change){.actor = sm_ledger_actor(s, end->actor),
                                              .evidence = true,
                                              .outcome = keeps ? &o : NULL});
}

sm_err sm_put_back(semel *s, sm_work *w, const sm_recalled *seen, const sm_ending *end)
{
    return gives_way(s, w, &seen->record) ? put_lost(s, w, seen, end) : put_stray(s, w, seen, end);
}

sm_err sm_put_back_running(semel *s, sm_work *w, const sm_recalled *seen, bool ours, bool *back)
{
    replaced r;
    *back = false;
    if (!gives_way(s, w, &seen->record))
        return SM_OK;
    sm_err e = recall(w, &seen->record, &r);
    if (e != SM_OK)
        return e;
    w->step = (sm_move){.answer = SM_DONE};
    sm_effect_copy(&w->step.next, &w->memo.effect);
    if (r.over && renumber(&w->cur, &w->step.next))
        return sm_load_cur(w); /* its claim would be useless; its end puts it back */
    if (ours)
        w->step.next.lease_end = w->now + SM_RUN_LEASE_MS;
    note_first(&w->step);
    sm_body_start(w);
    sm_body_number(w, "fence", w->step.next.fence);
    put_left_out(w, &r);
    put_claim(w, &seen->record);
    e = sm_write(s, w,
                 &(sm_change){.actor = sm_ledger_actor(s, (sm_str){0}),
                              .import = &seen->record,
                              .returns = true,
                              .evidence = true});
    *back = e == SM_OK;
    return e;
}
