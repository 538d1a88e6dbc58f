/*
 * The keeper: background threads of a ledger handle.
 *
 * One renews the leases of the attempts that this handle runs, and nothing else, so that nothing
 * can make it late. The other writes the journal, takes back claims whose answers were lost,
 * records ends that are owed (running.c), looks at what is due (lost leases, expired requests,
 * people who have not been told), seals the audit trail and purges what its windows allow. Another
 * process could do all of it, except for the claims and ends of this one.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "ledger/work/ledger.h"

#define TICK_MS         1000
#define HOUSEKEEPING_MS 60000
#define PURGE_MS        500 /* at one time */
#define DUE_MAX         1000u
#define NOTICE_MS       1000
#define NOTICE_MAX_MS   600000

static void lock(sm_keeper *k)
{
    pthread_mutex_lock(&k->lock);
}

static void unlock(sm_keeper *k)
{
    pthread_mutex_unlock(&k->lock);
}

/* ---- what runs -------------------------------------------------------------------------------*/

static void *renew(void *context);

void sm_keeper_renews(semel *s)
{
    lock(&s->keeper);
    if (!s->keeper.renewing && !s->o.one_shot)
        s->keeper.renewing = sm_thread_start(&s->keeper.renewer, renew, s, "semel-renewer");
    unlock(&s->keeper);
}

/* ---- what is due -----------------------------------------------------------------------------*/

typedef struct due_list {
    sm_handle *found;
    size_t n;
} due_list;

static bool collect(void *context, const semel_record *r, int64_t now)
{
    (void)now;
    due_list *l = context;
    l->found[l->n++] = (sm_handle){.shard = r->shard, .id = r->id};
    return l->n < DUE_MAX;
}

static sm_err write_note(semel *s, sm_work *w, sm_history note)
{
    w->step = (sm_move){.next = w->memo.effect, .changed = true, .notes = {note}, .note_count = 1};
    sm_body_start(w);
    sm_body_number(w, "request", w->memo.effect.request);
    if (note == SM_N_NOTICE)
        sm_body_number(w, "try", w->memo.notices);
    return sm_write(s, w, &(sm_change){.actor = sm_ledger_actor(s, (sm_str){0})});
}

/* Tells somebody of a request: first the next try is put off, so that two processes seldom tell the
 * same, and only when somebody has been told that is written down. A crash in between tells twice;
 * it never tells nobody. */
static void notify(semel *s, sm_work *w, semel_answer *a)
{
    sm_memo *m = &w->memo;
    uint64_t request = m->effect.request;
    int64_t pause = m->notices < 10 ? (int64_t)NOTICE_MS << m->notices : NOTICE_MAX_MS;
    m->notices++;
    m->notice_at = w->now + (pause < NOTICE_MAX_MS ? pause : NOTICE_MAX_MS);
    if (write_note(s, w, SM_N_NOTICE) != SM_OK || sm_answer_about(w, a) != SM_OK)
        return;
    a->verdict = SEMEL_REFUSED;
    a->code = SEMEL_C_AWAITING_APPROVAL;
    sm_answer_words(w, a);
    semel_str json;
    if (semel_answer_json(a, &json) != SM_OK ||
        !s->o.on_approval(s->o.on_approval_context, a->request, json))
        return;
    for (int races = 0; races < SM_RACES_MAX; races++) {
        if (m->effect.state != SEMEL_S_PENDING || m->effect.request != request)
            return;
        m->told = request;
        if (write_note(s, w, SM_N_TOLD) != SEMEL_E_STALE)
            return;
    }
}

static void look_at(semel *s, semel_answer *a, const sm_handle *h)
{
    sm_work *w = sm_work_start(a);
    if (sm_load_handle(s, w, h, true) != SM_OK)
        return;
    sm_judge(s, w, &(sm_life_event){.kind = SM_EV_LOOK});
    if (w->step.changed) {
        sm_body_start(w);
        if (w->step.next.state != SEMEL_S_NONE)
            sm_write(s, w, &(sm_change){.actor = sm_ledger_actor(s, (sm_str){0})});
        return;
    }
    const sm_memo *m = &w->memo;
    semel_state state = m->effect.state;
    if (m->terms.upstream && (state == SEMEL_S_IN_DOUBT || state == SEMEL_S_READY)) {
        sm_due_fn *tell = atomic_load(&s->on_due);
        sm_handle effect = {
            .shard = w->cur.shard, .id = w->cur.id, .generation = w->cur.generation};
        if (tell != NULL && w->cur.due_at != 0 && w->cur.due_at <= w->now)
            tell(s->on_due_context, &effect);
        return;
    }
    if (s->o.on_approval != NULL && m->effect.state == SEMEL_S_PENDING &&
        m->told < m->effect.request && m->notice_at <= w->now)
        notify(s, w, a);
}

/* Looks at what is due: lost leases, expired requests, notices. */
static void sweep(semel *s, semel_answer *a)
{
    due_list l = {.found = malloc(DUE_MAX * sizeof *l.found)};
    if (l.found != NULL && s->ops->due(s->store, DUE_MAX, collect, &l, NULL) == SM_OK) {
        for (size_t i = 0; i < l.n; i++)
            look_at(s, a, &l.found[i]);
    }
    free(l.found);
}

/* ---- the thread ------------------------------------------------------------------------------*/

bool sm_keeper_stopping(semel *s)
{
    lock(&s->keeper);
    bool stop = s->keeper.stop;
    unlock(&s->keeper);
    return stop;
}

/* Purging gives way to what is more urgent: it goes on at the next tick. */
typedef struct purging {
    semel *s;
    int64_t until_ns;
    bool cut;
} purging;

static bool go_on(void *context, uint64_t done, uint64_t total)
{
    (void)done;
    (void)total;
    purging *p = context;
    p->cut = sm_keeper_stopping(p->s) || sm_clock_mono_ns() >= p->until_ns;
    return !p->cut;
}

/* False if there is more to do. */
static bool purge_some(semel *s)
{
    uint64_t done;
    purging p = {.s = s, .until_ns = sm_clock_deadline_ns(PURGE_MS)};
    semel_purge(s, go_on, &p, &done, NULL);
    return !p.cut;
}

/* Sleeps for a tick, or until something is to be done; false when it is time to end. `stir` is NULL
 * for the renewer, which nobody stirs. */
static bool rest(sm_keeper *k, pthread_cond_t *wake, bool *stir)
{
    int64_t until_ns = sm_clock_deadline_ns(TICK_MS);
    struct timespec at = {.tv_sec = (time_t)(until_ns / 1000000000),
                          .tv_nsec = (long)(until_ns % 1000000000)};
    lock(k);
    while (!k->stop && !(stir != NULL && *stir) && sm_clock_mono_ns() < until_ns)
        pthread_cond_timedwait(wake, &k->lock, &at);
    if (stir != NULL)
        *stir = false;
    bool going = !k->stop;
    unlock(k);
    return going;
}

static void *renew(void *context)
{
    semel *s = context;
    semel_answer *a = semel_answer_new();
    while (a != NULL && rest(&s->keeper, &s->keeper.beat, NULL))
        sm_running_renew(s, a);
    semel_answer_free(a);
    return NULL;
}

static void *keep(void *context)
{
    semel *s = context;
    semel_answer *a = semel_answer_new();
    int64_t house_at = sm_clock_deadline_ns(HOUSEKEEPING_MS);
    while (a != NULL && rest(&s->keeper, &s->keeper.wake, &s->keeper.stir)) {
        sm_journal_flush(&s->journal, s->ops, s->store);
        sm_withdraw_all(s, a);
        sm_running_pay(s, a);
        sweep(s, a);
        bool much = atomic_load(&s->written) >= SM_SEAL_EVENTS;
        if (much || sm_clock_mono_ns() >= house_at)
            sm_seal_now(s, false, NULL);
        if (sm_clock_mono_ns() >= house_at) {
            house_at = sm_clock_deadline_ns(purge_some(s) ? HOUSEKEEPING_MS : 0);
        }
    }
    semel_answer_free(a);
    return NULL;
}

void sm_keeper_stir(semel *s)
{
    if (s->o.on_approval == NULL && atomic_load(&s->on_due) == NULL)
        return;
    lock(&s->keeper);
    s->keeper.stir = true;
    pthread_cond_signal(&s->keeper.wake);
    unlock(&s->keeper);
}

sm_err sm_keeper_start(semel *s, semel_fault *fault)
{
    sm_keeper *k = &s->keeper;
    pthread_condattr_t attr;
    pthread_mutex_init(&k->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&k->wake, &attr);
    pthread_cond_init(&k->beat, &attr);
    pthread_condattr_destroy(&attr);
    if (s->o.one_shot)
        return SM_OK;
    if (!sm_thread_start(&k->thread, keep, s, "semel-keeper"))
        return sm_fault_set(fault, SEMEL_E_NOMEM, "no thread can be started");
    k->started = true;
    return SM_OK;
}

void sm_keeper_stop(semel *s)
{
    sm_keeper *k = &s->keeper;
    lock(k);
    k->stop = true;
    pthread_cond_signal(&k->wake);
    pthread_cond_signal(&k->beat);
    unlock(k);
    if (k->started)
        pthread_join(k->thread, NULL);
    if (k->renewing)
        pthread_join(k->renewer, NULL);
    sm_running_fini(s);
    if (k->withdrawn != NULL) {
        semel_answer *a = semel_answer_new();
        if (a != NULL)
            sm_withdraw_all(s, a);
        semel_answer_free(a);
        sm_withdraw_fini(s);
    }
    pthread_cond_destroy(&k->beat);
    pthread_cond_destroy(&k->wake);
    pthread_mutex_destroy(&k->lock);
}
