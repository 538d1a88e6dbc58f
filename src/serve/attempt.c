/* The way of an attempt: attempt.h draws it. */
#include "serve/attempt.h"

#include <assert.h>

#include "base/utf8.h"

/* ---- its state -------------------------------------------------------------------------------*/

const char *sm_attempt_flaw(const sm_attempt *at)
{
    bool held = at->hold == SM_HOLDS_CLAIM || at->hold == SM_HOLDS_NO_CLAIM;
    bool recorded = at->ended != SM_NOT_ENDED;
    if ((at->hold == SM_HAS_RUN) != recorded)
        return "what has run has an end, and nothing else does";
    if (at->hold != SM_HOLDS_NOTHING && !at->ask.ran)
        return "the ledger would begin it again";
    switch (sm_attempt_stage(at)) {
    case SM_AT_REST: return at->hold != SM_HOLDS_NOTHING ? "it holds something at rest" : NULL;
    case SM_AT_EXECUTING: return !held ? "it executes without a permission" : NULL;
    case SM_AT_RECORDING: return at->hold == SM_HOLDS_NOTHING ? "there is nothing to record" : NULL;
    case SM_AT_PARKED:
    case SM_AT_DOOR:
    case SM_AT_PROBING: return held ? "it holds a permission and does not execute" : NULL;
    case SM_AT_ASKING: /* a turn may end with a claim */
    case SM_AT_LOOKING:
    case SM_AT_FINDING:
    case SM_AT_END: return NULL;
    }
    return "its stage is not a stage";
}

static void enter(sm_attempt *at, sm_stage stage)
{
    at->stage = stage;
    assert(sm_attempt_flaw(at) == NULL);
}

static void take_turn(sm_attempt *at, sm_stage stage)
{
    if (at->stage != SM_AT_PARKED)
        atomic_fetch_add(&at->serve->away, 1);
    enter(at, stage);
    at->serve->deps->add(at->serve, &at->job);
}

/* ---- who looks after an effect ---------------------------------------------------------------*/

/* Whether no other attempt looks after the effect; from now on this one does. */
static bool lead(sm_attempt *at, const sm_handle *effect)
{
    sm_serve *s = at->serve;
    bool taken = false;
    pthread_mutex_lock(&s->lock);
    for (const sm_attempt *o = s->leading; o != NULL && !taken; o = o->next_leading)
        taken = o != at && o->effect.id == effect->id;
    if (!taken)
        at->effect = *effect;
    if (!taken && !at->leads) {
        at->leads = true;
        at->next_leading = s->leading;
        s->leading = at;
    }
    pthread_mutex_unlock(&s->lock);
    return !taken;
}

/* Others may look after it now. */
static void follow(sm_attempt *at)
{
    sm_serve *s = at->serve;
    pthread_mutex_lock(&s->lock);
    bool led = at->leads;
    for (sm_attempt **o = &s->leading; led && *o != NULL;)
        if (*o == at)
            *o = at->next_leading;
        else
            o = &(*o)->next_leading;
    at->leads = false;
    pthread_mutex_unlock(&s->lock);
    if (led)
        s->deps->ring(s, at->effect.id);
}

/* ---- the worker's turns ----------------------------------------------------------------------*/

static void copy_text(char *out, size_t room, sm_str text)
{
    size_t n = sm_utf8_cut(text, room - 1).n;
    if (n > 0)
        memcpy(out, text.p, n);
    out[n] = '\0';
}

/* The ledger said "execute", and whoever asked does not execute it. This is the only way to the
 * executor, and an attempt passes it once: from here on the ledger begins nothing for it. */
static void claim(sm_attempt *at, const semel_answer *a)
{
    assert(at->hold == SM_HOLDS_NOTHING);
    copy_text(at->handle, sizeof at->handle, a->effect);
    copy_text(at->warning, sizeof at->warning, sm_answer_budget_warning(a));
    at->number = a->attempt;
    at->ask.ran = true;
    at->ask.joined_generation = a->generation;
    at->ask.joined_fence = a->fence;
    at->ask.joined_request = 0;
    at->hold = a->claim.p != NULL ? SM_HOLDS_CLAIM : SM_HOLDS_NO_CLAIM;
    if (at->hold == SM_HOLDS_CLAIM)
        at->serve->deps->claim(at->serve, &at->lease, a, at->outcome_max);
}

static void ask(sm_attempt *at, semel_answer *a)
{
    if (at->ops->make != NULL && !at->ops->make(at, a)) {
        at->ask.waits = false;
        return;
    }
    if (at->ops->full != NULL)
        at->ask.full = at->ops->full(at);
    at->ask.tells = at->ops->execute != NULL;
    at->serve->deps->ask(at->serve, &at->ask, a);
    if (a->verdict != SEMEL_EXECUTE || at->ops->execute == NULL)
        return;
    assert(at->hold == SM_HOLDS_NOTHING || a->claim.p == NULL);
    if (at->hold == SM_HOLDS_NOTHING)
        claim(at, a);
}

static sm_ended ended_as(const sm_attempt *at, sm_err e, const semel_answer *a)
{
    if (at->nothing_done)
        return SM_ENDED_BACK;
    if (e != SM_OK || a->verdict != SEMEL_DONE)
        return SM_ENDED_OWED;
    if (sm_str_is(a->result, SM_PUT_BACK))
        return SM_ENDED_PUT_BACK;
    return sm_str_is(a->result, "committed") && semel_state_settled(a->state) ? SM_ENDED_SETTLED
                                                                              : SM_ENDED_OPEN;
}

static void record(sm_attempt *at, semel_answer *a)
{
    sm_serve *s = at->serve;
    if (at->hold == SM_HOLDS_CLAIM) {
        sm_recording what = {.outcome = at->nothing_done ? NULL : &at->outcome,
                             .health = at->health,
                             .actor = at->ask.actor,
                             .patience_ms = s->record_ms,
                             .stop = s->ending,
                             .on_failure = s->on_failure,
                             .context = s->context};
        sm_err e = s->deps->record(s, &at->lease, &what, a);
        at->ended = ended_as(at, e, a);
        s->deps->ring(s, at->resends ? at->effect.id : at->ask.id);
    } else {
        const sm_passed passed = {at->ask.passed, at->ask.call.scope, at->ask.call.tool};
        *a = (semel_answer){.work = a->work};
        if (passed.call != 0)
            s->deps->passed(s, &passed, &at->outcome, a);
        at->ended = SM_ENDED_UNRECORDED;
    }
    at->hold = SM_HAS_RUN;
    bool tells = at->ops->recorded != NULL ? at->ops->recorded(at, a) : at->ended == SM_ENDED_OPEN;
    at->told_by_ledger = tells && !at->tends; /* which has nothing to ask with */
    if (at->told_by_ledger)
        ask(at, a);
    sm_str warning = sm_str_from(at->warning);
    if (warning.n > 0)
        a->warning = sm_arena_join(sm_answer_arena(a), a->warning, warning);
}

static void look(sm_attempt *at, semel_answer *a)
{
    sm_serve *s = at->serve;
    sm_remedy what;
    sm_next otherwise = at->tends ? SM_NEXT_STOP : SM_NEXT_ASK;
    at->next = otherwise;
    if (s->deps->look(s, &at->effect, a, &what) != SM_OK)
        return;
    at->effect.fence = what.fence;
    at->next = at->ops->step(at, &what, a);
    at->tends = at->tends && at->next != SM_NEXT_ASK;
    if (at->next != SM_NEXT_SEND)
        return;
    if (s->deps->resend(s, &at->effect, SM_RUN_LEASE_MS, a) == SM_OK &&
        a->verdict == SEMEL_EXECUTE) {
        at->resends = true;
        claim(at, a);
    } else {
        at->next = otherwise; /* somebody else was faster */
    }
}

static void find(sm_attempt *at, semel_answer *a)
{
    sm_serve *s = at->serve;
    sm_found_kind kind = SM_FOUND_UNKNOWN;
    semel_outcome outcome = {.size = sizeof outcome};
    bool write = false;
    at->next = at->ops->found(at, &kind, &outcome, &write, a);
    /* If it cannot be written, or there is nothing to write any more, asking tells. */
    if (write) {
        s->deps->probed(s, &at->effect, kind, &outcome, a);
        s->deps->ring(s, at->effect.id);
    }
    if (at->next == SM_NEXT_ASK)
        ask(at, a);
}

static void turn(sm_job *job, semel_answer *a)
{
    sm_attempt *at = SM_CONTAINER(job, sm_attempt, job);
    void (*before)(sm_attempt *, semel_answer *) = at->before;
    switch (sm_attempt_stage(at)) {
    case SM_AT_ASKING:
        at->before = NULL;
        if (before != NULL)
            before(at, a);
        ask(at, a);
        break;
    case SM_AT_RECORDING: record(at, a); break;
    case SM_AT_LOOKING: look(at, a); break;
    case SM_AT_FINDING: find(at, a); break;
    default: assert(!"not a turn"); break;
    }
    at->ops->turned(at, a);
}

/* ---- what follows ----------------------------------------------------------------------------*/

static void execute(sm_attempt *at, semel_answer *a)
{
    follow(at);
    enter(at, SM_AT_EXECUTING);
    at->ops->execute(at, a);
}

static void decide(sm_attempt *at, semel_answer *a)
{
    const sm_attempt_ops *ops = at->ops;
    sm_serve *s = at->serve;
    if (at->hold == SM_HOLDS_CLAIM || at->hold == SM_HOLDS_NO_CLAIM) {
        execute(at, a);
        return;
    }
    if (a->verdict == SEMEL_REFUSED) {
        if (ops->detour != NULL && ops->detour(at, a))
            return;
        sm_handle effect;
        bool looks =
            ops->looks != NULL && sm_handle_parse("ef_", a->effect, &effect) && ops->looks(at, a);
        if (looks && lead(at, &effect)) {
            take_turn(at, SM_AT_LOOKING);
            return;
        }
        int64_t until = at->ask.waits ? ops->until(at, a) : 0;
        if (until != 0 && until > s->deps->now_ns(s) && sm_attempt_park(at, until))
            return;
    }
    at->ops->answer(at, a);
}

static void on_looked(sm_attempt *at, semel_answer *a)
{
    switch (at->next) {
    case SM_NEXT_SEND: execute(at, a); break;
    case SM_NEXT_PROBE:
        enter(at, SM_AT_PROBING);
        at->ops->probe(at);
        break;
    case SM_NEXT_ASK: take_turn(at, SM_AT_ASKING); break;
    case SM_NEXT_STOP: at->ops->stays(at, a); break;
    }
}

void sm_attempt_go_on(sm_attempt *at, semel_answer *a)
{
    assert(sm_attempt_flaw(at) == NULL);
    atomic_fetch_sub(&at->serve->away, 1);
    switch (sm_attempt_stage(at)) {
    case SM_AT_ASKING: decide(at, a); break;
    case SM_AT_RECORDING:
        if (at->told_by_ledger)
            decide(at, a);
        else
            at->ops->answer(at, a);
        break;
    case SM_AT_LOOKING: on_looked(at, a); break;
    case SM_AT_FINDING:
        if (at->next == SM_NEXT_ASK)
            decide(at, a);
        else
            at->ops->stays(at, a);
        break;
    default: assert(!"not after a turn"); break;
    }
}

/* ---- from the front end ----------------------------------------------------------------------*/

static sm_err prepare(sm_asking *q, const sm_contract *c, const sm_json *args, sm_fault *fault)
{
    sm_attempt *at = SM_CONTAINER(q, sm_attempt, ask);
    at->waiter.heard = at->serve->deps->heard(at->serve, q->id);
    return at->ops->prepare == NULL ? SM_OK : at->ops->prepare(at, c, args, fault);
}

static void wake(sm_waiter *waiter)
{
    sm_attempt *at = SM_CONTAINER(waiter, sm_attempt, waiter);
    if (at->ops->woken != NULL)
        at->ops->woken(at);
    else
        take_turn(at, SM_AT_ASKING);
}

static void start(sm_attempt *at, sm_stage stage)
{
    sm_serve *s = at->serve;
    at->job.run = turn;
    at->waiter.wake = wake;
    at->waiter.ask = &at->ask;
    at->ask.prepare = prepare;
    pthread_mutex_lock(&s->lock);
    s->alive++;
    pthread_mutex_unlock(&s->lock);
    take_turn(at, stage);
}

void sm_attempt_start(sm_attempt *at)
{
    start(at, SM_AT_ASKING);
}

void sm_attempt_start_looking(sm_attempt *at)
{
    at->tends = true;
    if (lead(at, &at->effect))
        start(at, SM_AT_LOOKING);
    else
        at->ops->end(at);
}

void sm_attempt_take(sm_attempt *at)
{
    enter(at, SM_AT_DOOR);
}

void sm_attempt_ask(sm_attempt *at, void (*before)(sm_attempt *at, semel_answer *a))
{
    at->before = before;
    take_turn(at, SM_AT_ASKING);
}

void sm_attempt_done(sm_attempt *at)
{
    assert(at->stage == SM_AT_EXECUTING);
    take_turn(at, SM_AT_RECORDING);
}

void sm_attempt_probed(sm_attempt *at)
{
    assert(at->stage == SM_AT_PROBING);
    take_turn(at, SM_AT_FINDING);
}

void sm_attempt_give_back(sm_attempt *at, semel_answer *a)
{
    char text[SM_HANDLE_TEXT];
    copy_text(text, sizeof text, a->claim);
    at->serve->deps->give_back(at->serve, sm_str_from(text), a);
    at->serve->deps->ring(at->serve, at->ask.id);
}

/* ---- waiting ---------------------------------------------------------------------------------*/

bool sm_attempt_park(sm_attempt *at, int64_t until_ns)
{
    sm_serve *s = at->serve;
    sm_parked parked = SM_NO_ROOM;
    pthread_mutex_lock(&s->lock);
    bool here = at->client != NULL && (at->ops->here == NULL || at->ops->here(at->client));
    if (here && !s->draining && sm_serve_time(s, &at->timer, until_ns)) {
        sm_stage before = at->stage;
        atomic_fetch_add(&s->away, 1);
        enter(at, SM_AT_PARKED); /* before it can be woken */
        parked = s->deps->park(s, &at->waiter);
        if (parked == SM_NO_ROOM) {
            enter(at, before);
            atomic_fetch_sub(&s->away, 1);
        }
    }
    pthread_mutex_unlock(&s->lock);
    if (parked == SM_RUNG)
        take_turn(at, SM_AT_ASKING);
    return parked != SM_NO_ROOM;
}

void sm_attempt_time(sm_attempt *at, int64_t until_ns)
{
    sm_serve *s = at->serve;
    pthread_mutex_lock(&s->lock);
    if (at->client != NULL)
        sm_serve_time(s, &at->timer, until_ns);
    pthread_mutex_unlock(&s->lock);
}

bool sm_attempt_hurry(sm_attempt *at)
{
    bool left = at->serve->deps->leave(at->serve, &at->waiter);
    if (left)
        take_turn(at, SM_AT_ASKING);
    return left;
}

/* The client goes, with its deadline. Under the lock. */
static void *part(sm_attempt *at)
{
    void *client = at->client;
    at->client = NULL;
    sm_timer_clear(&at->serve->timers, &at->timer);
    if (client != NULL && at->ops->parted != NULL)
        at->ops->parted(client);
    return client;
}

void *sm_attempt_take_client(sm_attempt *at)
{
    pthread_mutex_lock(&at->serve->lock);
    void *client = part(at);
    pthread_mutex_unlock(&at->serve->lock);
    return client;
}

bool sm_attempt_lose_client(sm_attempt *at)
{
    part(at);
    return at->serve->deps->leave(at->serve, &at->waiter);
}

/* Called with the lock, and returns with it. */
void sm_attempt_expire(sm_attempt *at)
{
    sm_serve *s = at->serve;
    sm_timer_clear(&s->timers, &at->timer);
    if (s->deps->leave(s, &at->waiter)) {
        pthread_mutex_unlock(&s->lock);
        take_turn(at, SM_AT_ASKING); /* asks once more, and waits no longer */
    } else if ((at->stage == SM_AT_EXECUTING || at->stage == SM_AT_RECORDING) &&
               at->client != NULL && at->ops->late != NULL) {
        char handle[SM_HANDLE_TEXT];
        void (*late)(void *, const char *) = at->ops->late;
        memcpy(handle, at->handle, sizeof handle);
        void *client = part(at);
        pthread_mutex_unlock(&s->lock);
        late(client, handle);
    } else {
        return; /* a worker has it, and looks at the clock itself */
    }
    pthread_mutex_lock(&s->lock);
}

void sm_attempt_end(sm_attempt *at)
{
    sm_serve *s = at->serve;
    follow(at);
    sm_attempt_take_client(at);
    if (at->stage == SM_AT_PARKED)
        atomic_fetch_sub(&s->away, 1);
    if (at->hold == SM_HOLDS_CLAIM)
        s->deps->let_go(s, &at->lease);
    enter(at, SM_AT_END);
    at->ops->end(at);
    sm_serve_exit(s);
}
