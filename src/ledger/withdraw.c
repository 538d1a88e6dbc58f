/*
 * Claims that nobody was told of.
 *
 * A store that does not answer in time may have recorded a claim all the same, or may record it
 * yet. Whoever asked was refused, so nothing runs under it; left alone it would be called in doubt
 * when its lease ends, and a person would have to find out that nothing happened. So such a claim
 * is remembered here and taken back as soon as the store can be asked: an attempt that did nothing.
 *
 * A store refuses a write that was reckoned with a time long ago, so after a while a claim that is
 * not there will not come any more. What cannot be taken back in this process's life ends in doubt.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "ledger/ledger.h"

#define KEPT_MAX 4096u
#define COMES_MS (2 * SEMEL_CLOCK_SLACK_MS) /* it may still appear */

struct sm_withdrawal {
    sm_withdrawal *next;
    sm_handle claim;
    int64_t until_ns;
};

void sm_withdraw(semel *s, const sm_handle *claim)
{
    sm_keeper *k = &s->keeper;
    sm_withdrawal *w = malloc(sizeof *w);
    if (w == NULL)
        return;
    *w = (sm_withdrawal){.claim = *claim, .until_ns = sm_clock_deadline_ns(COMES_MS)};
    pthread_mutex_lock(&k->lock);
    bool room = k->withdrawals < KEPT_MAX;
    if (room) {
        w->next = k->withdrawn;
        k->withdrawn = w;
        k->withdrawals++;
    }
    pthread_mutex_unlock(&k->lock);
    if (!room)
        free(w);
}

/* Takes one back. False if that is to be tried again. */
static bool take_back(semel *s, semel_answer *a, const sm_withdrawal *w)
{
    char text[SM_HANDLE_TEXT], effect[SM_HANDLE_TEXT];
    sm_str claim = {text, sm_handle_claim(&w->claim, text)};
    semel_outcome o = {
        .size = sizeof o,
        .kind = SEMEL_FAILURE,
        .applied = SEMEL_APPLIED_NO,
        .value = SM_STR("{\"error\":\"the ledger did not answer in time, so this was not run\"}")};
    sm_err e = semel_commit(s, claim, &o, a);
    if (e == SEMEL_E_UNAVAILABLE)
        return false;
    bool absent = e != SM_OK || a->code == SEMEL_C_BAD_CLAIM || a->code == SEMEL_C_NOT_FOUND;
    if (absent)
        return sm_clock_mono_ns() >= w->until_ns;
    /* Nothing ever ran: the key is free again, whatever the contract says about failures. */
    if (a->verdict == SEMEL_DONE && a->state == SEMEL_S_FAILED && a->attempt == 1) {
        sm_str name = {effect, sm_handle_effect(&w->claim, effect)};
        semel_forget(s, name, (sm_str){0}, SM_STR("it was never run"), a);
    }
    return true;
}

void sm_withdraw_all(semel *s, semel_answer *a)
{
    sm_keeper *k = &s->keeper;
    pthread_mutex_lock(&k->lock);
    sm_withdrawal *list = k->withdrawn;
    k->withdrawn = NULL;
    pthread_mutex_unlock(&k->lock);
    sm_withdrawal *left = NULL;
    size_t done = 0;
    bool answers = true;
    while (list != NULL) {
        sm_withdrawal *w = list;
        list = w->next;
        if (answers && take_back(s, a, w)) {
            explicit_bzero(w, sizeof *w);
            free(w);
            done++;
        } else {
            answers = a->code != SEMEL_C_LEDGER_UNAVAILABLE;
            w->next = left;
            left = w;
        }
    }
    pthread_mutex_lock(&k->lock);
    k->withdrawals -= done;
    while (left != NULL) {
        sm_withdrawal *w = left;
        left = w->next;
        w->next = k->withdrawn;
        k->withdrawn = w;
    }
    pthread_mutex_unlock(&k->lock);
}

void sm_withdraw_fini(semel *s)
{
    for (sm_withdrawal *w = s->keeper.withdrawn, *next; w != NULL; w = next) {
        next = w->next;
        explicit_bzero(w, sizeof *w);
        free(w);
    }
}
