/* The answer to the caller that runs the attempt which was just written. */
#include "ledger/guard/guard.h"
#include "ledger/work/ledger.h"

/* What is left of the lease. The answer may have been long under way, and if it took longer than
 * the lease, others have decided already: nobody is told to run it any more. */
static sm_err check_lease(semel *s, sm_work *w, const sm_handle *claim, int64_t lease_ms,
                          int64_t *left_ms)
{
    *left_ms = w->memo.effect.lease_end - sm_now(s);
    if (*left_ms > lease_ms - lease_ms / 10)
        *left_ms = lease_ms; /* as good as whole */
    if (*left_ms > 0 || w->memo.terms.mode == SM_MODE_OBSERVE)
        return SM_OK;
    sm_withdraw(s, claim);
    return sm_fault_set(&w->fault, SEMEL_E_UNAVAILABLE,
                        "the ledger took longer to answer than the lease lasts, so nothing is run");
}

/* Nor if the answer took so long that the stop button was pressed meanwhile. */
static sm_err check_stop(semel *s, sm_work *w, const sm_handle *claim, semel_answer *a,
                         semel_code *code)
{
    if (w->memo.terms.mode == SM_MODE_OBSERVE)
        return SM_OK;
    sm_err e = sm_guard_stopped(s, w, a, code);
    if (e != SM_OK || *code != SEMEL_C_NONE)
        sm_withdraw(s, claim);
    return e;
}

sm_err sm_execute(semel *s, sm_work *w, const uint8_t *secret, int64_t lease_ms, semel_answer *a)
{
    sm_handle h = {.shard = w->cur.shard,
                   .id = w->cur.id,
                   .generation = w->cur.generation,
                   .fence = w->memo.effect.fence};
    memcpy(h.secret, secret, sizeof h.secret);
    int64_t left_ms;
    semel_code stopped = SEMEL_C_NONE;
    sm_err e = check_lease(s, w, &h, lease_ms, &left_ms);
    if (e == SM_OK)
        e = check_stop(s, w, &h, a, &stopped);
    if (stopped != SEMEL_C_NONE)
        return sm_answer_refuse(w, a, stopped, SM_OK);
    if (e == SM_OK)
        e = sm_answer_about(w, a);
    sm_down_key down;
    if (e == SM_OK)
        e = sm_down_key_make(&w->keyer, &(sm_key){w->cur.key}, w->memo.effect.generation,
                             w->memo.effect.run, &down);
    char *claim = sm_arena_alloc(&w->call, SM_HANDLE_TEXT);
    char *key = sm_arena_alloc(&w->call, SM_HASH_TEXT + 1);
    if (e == SM_OK && (claim == NULL || key == NULL))
        e = SEMEL_E_NOMEM;
    if (e != SM_OK)
        return sm_answer_error(w, a, e);
    a->claim = (sm_str){claim, sm_handle_claim(&h, claim)};
    sm_hash_text(&down.hash, key);
    a->idempotency_key = (sm_str){key, SM_HASH_TEXT};
    a->lease_ms = left_ms;
    a->verdict = SEMEL_EXECUTE;
    if (w->step.observed != SEMEL_C_NONE) {
        a->observed = sm_str_from(semel_code_name(w->step.observed));
        sm_journal_add(&s->journal, SM_JOT_OBSERVED, w->step.observed, w->cur.id, w->cur.generation,
                       w->now, (sm_str){0}, (sm_str){0});
    }
    sm_remember(s, w);
    sm_count(&s->executes);
    return SM_OK;
}
