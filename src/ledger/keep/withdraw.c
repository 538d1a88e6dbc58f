/*
 * Claims that nobody was told of.
 *
 * A store that does not answer in time may have recorded a claim all the same, or may record it
 * yet. Whoever asked was refused, so nothing runs under it; left alone it would be called in doubt
 * when its lease ends, and a person would have to find out that nothing happened. So such a claim
 * is remembered here and taken back as soon as the store can be asked: as if it had never been.
 * That is one compare-and-swap, so what others have done since is never undone. An approval that
 * the claim used up is gone, and will be asked for again.
 *
 * A store refuses a write that was reckoned with a time long ago, so a claim that is not there will
 * not come any more after a while; it is looked for ever more seldom. What cannot be taken back in
 * this process's life ends in doubt.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "ledger/work/ledger.h"

#define KEPT_MAX 4096u
#define COMES_MS 600000 /* it may still appear */
#define PAUSE_MS 60000  /* between two looks, at most */

struct sm_withdrawal {
    sm_withdrawal *next;
    sm_handle claim;
    int64_t until_ns, next_ns;
    int64_t pause_ms;
};

void sm_withdraw(semel *s, const sm_handle *claim)
{
    sm_keeper *k = &s->keeper;
    sm_withdrawal *w = malloc(sizeof *w);
    if (w == NULL)
        return;
    *w = (sm_withdrawal){
        .claim = *claim, .until_ns = sm_clock_deadline_ns(COMES_MS), .pause_ms = 500};
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
static bool take_back(semel *s, semel_answer *a, sm_withdrawal *w, sm_err *e)
{
    sm_unclaimed what;
    if (sm_clock_mono_ns() < w->next_ns)
        return false;
    *e = sm_unclaim(s, &w->claim, SM_HEALTH_UNTRIED, (sm_str){0}, a, &what);
    if (*e == SEMEL_E_UNAVAILABLE)
        return false;
    w->pause_ms = w->pause_ms * 2 < PAUSE_MS ? w->pause_ms * 2 : PAUSE_MS;
    w->next_ns = sm_clock_deadline_ns(w->pause_ms);
    return what != SM_CLAIM_ABSENT || sm_clock_mono_ns() >= w->until_ns;
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
    sm_err e = SM_OK;
    while (list != NULL) {
        sm_withdrawal *w = list;
        list = w->next;
        if (e != SEMEL_E_UNAVAILABLE && take_back(s, a, w, &e)) {
            explicit_bzero(w, sizeof *w);
            free(w);
            done++;
        } else {
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
