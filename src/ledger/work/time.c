/*
 * The store's time, between its answers.
 *
 * Where a store has a clock of its own, every answer says what time it is there. That, and a clock
 * of this machine that nobody sets, is all that is ever reckoned with: what this machine believes
 * the date to be does not matter. The store itself refuses what was reckoned with a time that is
 * far from its own.
 *
 * The store looked at its clock at some moment between question and answer. What is known stays as
 * it is if that agrees with it, so that an answer that was long under way teaches nothing wrong.
 */
#include "base/clock.h"
#include "ledger/work/ledger.h"

int64_t sm_now(semel *s)
{
    if ((s->caps & SEMEL_STORE_CLOCK) == 0)
        return sm_clock_ms();
    return sm_clock_boot_ms() + atomic_load_explicit(&s->ahead_ms, memory_order_relaxed);
}

void sm_learn(semel *s, int64_t now, int64_t asked_ms)
{
    if ((s->caps & SEMEL_STORE_CLOCK) == 0)
        return;
    int64_t least = now - sm_clock_boot_ms(), most = now - asked_ms;
    int64_t known = atomic_load_explicit(&s->ahead_ms, memory_order_relaxed);
    if (known < least || known > most)
        atomic_store_explicit(&s->ahead_ms, known < least ? least : most, memory_order_relaxed);
}

sm_err sm_learn_first(semel *s, semel_fault *fault)
{
    if ((s->caps & SEMEL_STORE_CLOCK) == 0)
        return SM_OK;
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    sm_work *w = sm_work_start(a);
    sm_err e = sm_load_handle(s, w, &(sm_handle){.id = 1}, true); /* most likely nobody's */
    if (e == SEMEL_E_NOT_FOUND || e == SEMEL_E_CORRUPT)
        e = SM_OK;
    else if (e != SM_OK && fault != NULL)
        *fault = w->fault;
    semel_answer_free(a);
    return e;
}
