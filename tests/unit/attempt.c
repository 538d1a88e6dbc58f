/*
 * The machine of attempts against a simulated world: a ledger that fails before and after it
 * writes, a clock, clients that hang up and run out of patience, executors that answer, answer late
 * or never, other processes, people who approve. Everything happens in a random order from a seed.
 *
 * After every step: no state has a flaw, nobody is answered twice, an attempt is in one place only,
 * and nothing is sent that may have been applied, unless the executor knows its key. In the end
 * each client was answered or had left, each claim was recorded, given back or is owed, nobody
 * waits for what is over, and nothing is left.
 *
 * Mistakes are planted to show that this would tell: each is a call of the machine that does not
 * happen, or happens wrongly.
 */
#include "unit.h"

#include <sys/wait.h>
#include <unistd.h>

#include "serve/attempt.h"

#define THINGS   6u
#define LIVE_MAX 40u

typedef enum plant {
    NOTHING,
    NO_BELL_AFTER_RECORDING,
    NO_BELL_HEARD_BEFORE_ASKING,
    FORGETS_THAT_IT_RAN,
    RECORDS_A_SUCCESS_AS_NOTHING,
    GIVES_BACK_WHAT_RAN,
    NEVER_GIVES_BACK,
    RESENDS_WITHOUT_SAYING_SO,
    TWO_LOOK_AFTER_ONE_EFFECT,
    NO_DEADLINE,
    WAITS_WHILE_DRAINING,
    ANSWERS_WHO_HAS_LEFT,
    ANSWERS_TWICE,
    PARKS_TWICE,
    IGNORES_WHAT_WAS_FOUND,
    KEEPS_A_LEASE_FOR_NOBODY,
    PLANTS
} plant;

static const char *const plant_names[PLANTS] = {
    "nothing",
    "the bell is not rung after recording",
    "the bell is not heard before asking",
    "it forgets that it ran",
    "a success is recorded as nothing done",
    "what ran is given back",
    "a claim that nobody got is not given back",
    "a resend does not say that it is one",
    "two look after one effect",
    "no deadline is set",
    "somebody waits while all are to end",
    "who has left is answered",
    "a client that was late is answered again",
    "a waiter that was taken out stays",
    "what a probe found is not written",
    "the lease of an attempt that is given up is kept",
};

/* ---- the world -------------------------------------------------------------------------------*/

typedef enum thing_state { FREE, RUNS, IN_DOUBT, DONE, ASKS } thing_state;

typedef struct thing {
    thing_state state;
    bool reads;               /* nothing is recorded of it */
    bool may;                 /* it may have been applied */
    unsigned applied;         /* how often it was */
    const sm_running *holder; /* whose claim it is; NULL: another process' */
    bool owed;                /* its end is known, and will be recorded */
    bool owed_done;
    uint64_t bell;
    unsigned leaders;
    const sm_attempt *handed; /* whose answer is a claim that nobody has yet */
} thing;

typedef struct client {
    unsigned answers;
    bool left;
    int64_t deadline;
    struct trial *of;
} client;

typedef struct trial {
    sm_attempt at; /* first */
    client *who;
    semel_answer kept;
    bool loop;             /* its turns are posted back to a loop */
    bool posted;           /* it is among the posts */
    bool queued;           /* it is among the jobs */
    bool executes, probes; /* it is with the executor */
    bool at_door;
    bool crowded_out; /* there was no room for it to wait */
    struct trial *next;
} trial;

static uint64_t seed;
static plant planted;
static sm_serve serve;
static int64_t now;
static thing things[THINGS];
static trial *trials;
static unsigned live;
static sm_waiter *parked[LIVE_MAX];
static unsigned parked_count;
static client *clients[200000];
static unsigned client_count;
static bool draining;
static uint64_t steps, executions, resends, replays, doubts;

static uint64_t roll(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static bool chance(unsigned percent)
{
    return roll() % 100 < percent;
}

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "attempt.c:%d: not so: %s (step %llu)\n", __LINE__, #condition,        \
                    (unsigned long long)steps);                                                    \
            _exit(3);                                                                              \
        }                                                                                          \
    } while (0)

static trial *trial_of(sm_attempt *at)
{
    return (trial *)at;
}

static thing *thing_of(const sm_attempt *at)
{
    uint64_t id = at->ask.id != 0 ? at->ask.id : at->effect.id;
    CHECK(id >= 1 && id <= THINGS);
    return &things[id - 1];
}

static sm_str handle_of(const thing *t)
{
    static char texts[THINGS][SM_HANDLE_TEXT];
    size_t i = (size_t)(t - things);
    sm_handle h = {.id = i + 1, .generation = 1, .fence = 1};
    return (sm_str){texts[i], sm_handle_effect(&h, texts[i])};
}

/* ---- waiting ---------------------------------------------------------------------------------*/

static bool unpark(sm_waiter *w)
{
    for (unsigned i = 0; i < parked_count; i++)
        if (parked[i] == w) {
            parked[i] = parked[--parked_count];
            return true;
        }
    return false;
}

static sm_attempt *owner_of(const sm_waiter *w)
{
    return SM_CONTAINER(w, sm_attempt, waiter);
}

static void wake_all_of(uint64_t id)
{
    for (unsigned i = 0; i < parked_count;) {
        sm_waiter *w = parked[i];
        if (id != 0 && owner_of(w)->ask.id != id) {
            i++;
            continue;
        }
        parked[i] = parked[--parked_count];
        w->wake(w);
    }
}

/* Something has changed that this process did not do: a watch tells. */
static void change(thing *t, thing_state state)
{
    t->state = state;
    t->bell++; /* who asked before and parks now is told, too: a watch names the version */
    wake_all_of((uint64_t)(t - things) + 1);
}

static uint64_t sim_heard(sm_serve *s, uint64_t id)
{
    (void)s;
    CHECK(id >= 1 && id <= THINGS);
    return planted == NO_BELL_HEARD_BEFORE_ASKING ? UINT64_MAX : things[id - 1].bell;
}

static void sim_ring(sm_serve *s, uint64_t id)
{
    (void)s;
    if (planted == NO_BELL_AFTER_RECORDING)
        return;
    things[id - 1].bell++;
    wake_all_of(id);
}

static sm_parked sim_park(sm_serve *s, sm_waiter *w)
{
    (void)s;
    CHECK(!draining);
    for (unsigned i = 0; i < parked_count; i++)
        CHECK(parked[i] != w);
    if (w->heard != UINT64_MAX && w->heard != things[w->ask->id - 1].bell)
        return SM_RUNG;
    if (chance(3) || parked_count == LIVE_MAX) {
        trial_of(owner_of(w))->crowded_out = true;
        return SM_NO_ROOM;
    }
    parked[parked_count++] = w;
    return SM_PARKED;
}

static bool sim_leave(sm_serve *s, sm_waiter *w)
{
    (void)s;
    bool left = unpark(w);
    if (left && planted == PARKS_TWICE)
        parked[parked_count++] = w;
    return left;
}

static void sim_add(sm_serve *s, sm_job *job)
{
    (void)s;
    trial *t = (trial *)(void *)SM_CONTAINER(job, sm_attempt, job);
    CHECK(!t->queued && !t->posted && !t->executes && !t->probes && !t->at_door);
    t->queued = true;
}

static int64_t sim_now(const sm_serve *s)
{
    (void)s;
    return now;
}

/* ---- the ledger ------------------------------------------------------------------------------*/

static void refuse(semel_answer *a, semel_code code, const thing *t)
{
    static const semel_state states[] = {[FREE] = SEMEL_S_NONE,
                                         [RUNS] = SEMEL_S_RUNNING,
                                         [IN_DOUBT] = SEMEL_S_IN_DOUBT,
                                         [DONE] = SEMEL_S_SUCCEEDED,
                                         [ASKS] = SEMEL_S_PENDING};
    *a = (semel_answer){.verdict = SEMEL_REFUSED, .code = code};
    a->effect = handle_of(t);
    a->state = states[t->state];
}

static sm_err sim_ask(sm_serve *s, sm_asking *q, semel_answer *a)
{
    (void)s;
    sm_attempt *at = SM_CONTAINER(q, sm_attempt, ask);
    thing *t = thing_of(at);
    sm_fault fault;
    q->prepare(q, NULL, NULL, &fault);
    if (planted == FORGETS_THAT_IT_RAN)
        q->ran = false;
    q->waits = q->turned_away = false;
    if (chance(4)) { /* before or after it wrote: then the ledger takes the claim back itself */
        refuse(a, SEMEL_C_LEDGER_UNAVAILABLE, t);
        return SEMEL_E_UNAVAILABLE;
    }
    if (t->state == DONE) {
        refuse(a, SEMEL_C_NONE, t);
        a->verdict = SEMEL_REPLAY;
        replays++;
        return SM_OK;
    }
    if (t->state == FREE && (q->full || q->ran)) {
        refuse(a, q->ran ? SEMEL_C_UPSTREAM_FAILED : SEMEL_C_RETRY_IN_FLIGHT, t);
        q->turned_away = q->full;
        return SM_OK;
    }
    if (t->state != FREE) {
        refuse(a,
               t->state == RUNS   ? SEMEL_C_RETRY_IN_FLIGHT
               : t->state == ASKS ? SEMEL_C_AWAITING_APPROVAL
                                  : SEMEL_C_UPSTREAM_TIMEOUT,
               t);
        q->waits = true;
        return SM_OK;
    }
    refuse(a, SEMEL_C_NONE, t);
    a->verdict = SEMEL_EXECUTE;
    a->attempt = 1;
    if (!t->reads) {
        a->claim = a->effect; /* which thing it is of */
        t->state = RUNS;
        t->holder = NULL;
        t->handed = at->ops->execute == NULL ? at : NULL;
    }
    return SM_OK;
}

static void sim_claim(sm_serve *s, sm_running *r, const semel_answer *execute, size_t most)
{
    (void)s, (void)execute, (void)most;
    sm_attempt *at = SM_CONTAINER(r, sm_attempt, lease);
    thing *t = thing_of(at);
    CHECK(t->state == RUNS && t->holder == NULL);
    t->holder = r;
}

static void settle(thing *t, bool done)
{
    t->holder = NULL;
    t->owed = false;
    t->state = done ? DONE : t->may ? IN_DOUBT : FREE;
}

static sm_err sim_record(sm_serve *s, sm_running *r, const sm_recording *what, semel_answer *a)
{
    sm_attempt *at = SM_CONTAINER(r, sm_attempt, lease);
    thing *t = thing_of(at);
    const semel_outcome *o = what->outcome;
    if (planted == RECORDS_A_SUCCESS_AS_NOTHING && o != NULL && o->kind == SEMEL_SUCCESS)
        o = NULL;
    if (planted == GIVES_BACK_WHAT_RAN && o != NULL && !at->resends)
        o = NULL;
    CHECK(t->state == RUNS && t->holder == r);
    CHECK(what->patience_ms == s->record_ms && what->stop == s->ending &&
          what->on_failure == s->on_failure && what->context == s->context);
    CHECK(o != NULL || t->applied == 0 || at->resends || at->nothing_done);
    if (o == NULL && !at->nothing_done)
        CHECK(t->applied == 0);
    bool done = o != NULL && o->kind == SEMEL_SUCCESS;
    if (o != NULL && o->kind == SEMEL_FAILURE && o->applied == SEMEL_APPLIED_UNKNOWN)
        t->may = true;
    *a = (semel_answer){.verdict = SEMEL_DONE};
    if (chance(5)) { /* it cannot be told now; the background goes on trying */
        t->owed = true;
        t->owed_done = done;
        t->holder = NULL;
        a->verdict = SEMEL_REFUSED;
        return SEMEL_E_UNAVAILABLE;
    }
    settle(t, done);
    a->result = chance(3) ? SM_STR(SM_PUT_BACK) : SM_STR("committed");
    a->state = done ? SEMEL_S_SUCCEEDED : t->state == IN_DOUBT ? SEMEL_S_IN_DOUBT : SEMEL_S_FAILED;
    return SM_OK;
}

static void sim_let_go(sm_serve *s, sm_running *r)
{
    (void)s;
    sm_attempt *at = (sm_attempt *)(void *)((char *)r - offsetof(sm_attempt, lease));
    thing *t = thing_of(at);
    CHECK(t->state == RUNS && t->holder == r);
    if (planted == KEEPS_A_LEASE_FOR_NOBODY)
        return;
    t->holder = NULL;
    t->may = true;
    change(t, IN_DOUBT); /* once its lease has ended */
}

static sm_err sim_give_back(sm_serve *s, sm_str claim, semel_answer *a)
{
    (void)s;
    sm_handle h;
    CHECK(sm_handle_parse("ef_", claim, &h));
    *a = (semel_answer){.verdict = SEMEL_DONE};
    if (planted == NEVER_GIVES_BACK)
        return SM_OK;
    things[h.id - 1].handed = NULL;
    settle(&things[h.id - 1], false);
    return SM_OK;
}

static sm_err sim_look(sm_serve *s, const sm_handle *effect, semel_answer *a, sm_remedy *out)
{
    (void)s;
    const thing *t = &things[effect->id - 1];
    *a = (semel_answer){.verdict = SEMEL_REFUSED};
    *out = (sm_remedy){.state = t->state == IN_DOUBT ? SEMEL_S_IN_DOUBT : SEMEL_S_NONE,
                       .step = chance(50) ? SM_DOUBT_RESEND : SM_DOUBT_PROBE,
                       .upstream = true};
    return chance(3) ? SEMEL_E_UNAVAILABLE : SM_OK;
}

static sm_err sim_resend(sm_serve *s, const sm_handle *effect, int64_t lease_ms, semel_answer *a)
{
    (void)s, (void)lease_ms;
    thing *t = &things[effect->id - 1];
    refuse(a, SEMEL_C_ILLEGAL_STATE, t);
    if (t->state != IN_DOUBT || chance(5))
        return SM_OK;
    t->state = RUNS;
    t->holder = NULL;
    a->verdict = SEMEL_EXECUTE;
    a->claim = a->effect;
    a->attempt = 2;
    resends++;
    return SM_OK;
}

static sm_err sim_probed(sm_serve *s, const sm_handle *effect, sm_found_kind found,
                         const semel_outcome *outcome, semel_answer *a)
{
    (void)s, (void)outcome, (void)a;
    thing *t = &things[effect->id - 1];
    if (planted == IGNORES_WHAT_WAS_FOUND && found == SM_FOUND_APPLIED)
        found = SM_FOUND_ABSENT;
    if (t->state != IN_DOUBT || chance(5))
        return SEMEL_E_UNAVAILABLE;
    if (found == SM_FOUND_APPLIED) {
        t->state = DONE;
    } else if (found == SM_FOUND_ABSENT) {
        t->may = false;
        t->state = FREE;
    }
    return SM_OK;
}

static const sm_serve_deps deps = {.ask = sim_ask,
                                   .claim = sim_claim,
                                   .record = sim_record,
                                   .let_go = sim_let_go,
                                   .give_back = sim_give_back,
                                   .look = sim_look,
                                   .resend = sim_resend,
                                   .probed = sim_probed,
                                   .heard = sim_heard,
                                   .ring = sim_ring,
                                   .park = sim_park,
                                   .leave = sim_leave,
                                   .add = sim_add,
                                   .now_ns = sim_now};

/* ---- a front end -----------------------------------------------------------------------------*/

static void on_turned(sm_attempt *at, semel_answer *a)
{
    trial *t = trial_of(at);
    if (!t->loop) {
        sm_attempt_go_on(at, a);
        return;
    }
    t->kept = *a;
    t->posted = true;
}

static void on_woken(sm_attempt *at)
{
    trial *t = trial_of(at);
    CHECK(!t->posted && !t->queued);
    t->posted = true;
}

static bool is_full(sm_attempt *at)
{
    (void)at;
    return draining || chance(3);
}

static bool detour(sm_attempt *at, semel_answer *a)
{
    trial *t = trial_of(at);
    if (a->code != SEMEL_C_AWAITING_APPROVAL || !t->loop || at->client == NULL || chance(60))
        return false;
    sm_attempt_take(at);
    t->at_door = true;
    return true;
}

static int64_t until(sm_attempt *at, const semel_answer *a)
{
    const trial *t = trial_of(at);
    bool waits = a->code != SEMEL_C_UPSTREAM_TIMEOUT || at->hold == SM_HOLDS_NOTHING;
    return waits && t->who != NULL ? t->who->deadline : 0;
}

static void execute(sm_attempt *at, semel_answer *a)
{
    trial *t = trial_of(at);
    thing *of = thing_of(at);
    (void)a;
    if (planted == RESENDS_WITHOUT_SAYING_SO)
        at->resends = false;
    executions++;
    CHECK(of->reads || at->hold == SM_HOLDS_CLAIM);
    CHECK(of->reads || (!of->may && of->applied == 0) || at->resends);
    t->executes = true;
    if (planted != NO_DEADLINE && t->who != NULL)
        sm_attempt_time(at, t->who->deadline);
}

static void answered(client *c)
{
    CHECK(c != NULL && !c->left);
    CHECK(++c->answers == 1);
}

static void answer(sm_attempt *at, semel_answer *a)
{
    trial *t = trial_of(at);
    client *mine = t->who;
    client *c = sm_attempt_take_client(at);
    /* Whoever can wait is not sent away early. */
    CHECK(c == NULL || a->code == SEMEL_C_NONE || at->hold == SM_HAS_RUN || !at->ask.waits ||
          t->crowded_out || draining || until(at, a) <= now);
    if (planted == ANSWERS_WHO_HAS_LEFT && c == NULL)
        c = mine;
    if (c != NULL) {
        answered(c);
        thing_of(at)->handed = thing_of(at)->handed == at ? NULL : thing_of(at)->handed;
    } else if (at->ops->execute == NULL && a->verdict == SEMEL_EXECUTE && a->claim.p != NULL)
        sm_attempt_give_back(at, a);
    sm_attempt_end(at);
}

static void on_late(void *who, const char *handle)
{
    client *c = who;
    (void)handle;
    answered(c);
    if (planted == ANSWERS_TWICE && c->of != NULL)
        c->of->at.client = c;
}

static void end(sm_attempt *at)
{
    trial *t = trial_of(at);
    CHECK(!t->queued && !t->posted && !t->executes && !t->probes);
    for (unsigned i = 0; i < parked_count; i++)
        CHECK(parked[i] != &at->waiter);
    for (size_t i = 0; i < THINGS; i++)
        CHECK(things[i].handed != at);
    if (t->who != NULL)
        t->who->of = NULL;
    trial **o = &trials;
    while (*o != t)
        o = &(*o)->next;
    *o = t->next;
    live--;
    free(t);
}

static bool looks(sm_attempt *at, const semel_answer *a)
{
    return a->code == SEMEL_C_UPSTREAM_TIMEOUT && at->hold == SM_HOLDS_NOTHING && !draining &&
           chance(70);
}

static sm_next step(sm_attempt *at, const sm_remedy *what, semel_answer *a)
{
    (void)a;
    CHECK(++thing_of(at)->leaders == 1);
    thing_of(at)->leaders--;
    if (what->state != SEMEL_S_IN_DOUBT)
        return at->tends ? SM_NEXT_STOP : SM_NEXT_ASK;
    doubts++;
    return chance(10) ? SM_NEXT_STOP : what->step == SM_DOUBT_RESEND ? SM_NEXT_SEND : SM_NEXT_PROBE;
}

static void probe(sm_attempt *at)
{
    trial_of(at)->probes = true;
    CHECK(++thing_of(at)->leaders == 1);
}

static sm_next found(sm_attempt *at, sm_found_kind *kind, semel_outcome *outcome, bool *write,
                     semel_answer *a)
{
    (void)outcome, (void)a;
    const thing *t = thing_of(at);
    *kind = chance(20) ? SM_FOUND_UNKNOWN : t->applied > 0 ? SM_FOUND_APPLIED : SM_FOUND_ABSENT;
    *write = chance(90);
    return at->tends || chance(20) ? SM_NEXT_STOP : SM_NEXT_ASK;
}

static void stays(sm_attempt *at, semel_answer *a)
{
    const trial *t = trial_of(at);
    if (!at->tends && t->who != NULL && chance(30) && t->who->deadline > now &&
        sm_attempt_park(at, t->who->deadline))
        return;
    answer(at, a);
}

#define COMMON .turned = on_turned, .until = until, .answer = answer, .late = on_late, .end = end
static const sm_attempt_ops serving = {COMMON,         .full = is_full, .execute = execute,
                                       .looks = looks, .step = step,    .probe = probe,
                                       .found = found, .stays = stays,  .detour = detour};
static const sm_attempt_ops looping = {
    COMMON,         .woken = on_woken, .full = is_full, .looks = looks,   .step = step,
    .probe = probe, .found = found,    .stays = stays,  .detour = detour, .execute = execute};
static const sm_attempt_ops handing = {COMMON};

/* ---- what happens ----------------------------------------------------------------------------*/

static trial *some_trial(bool (*fits)(const trial *t))
{
    unsigned n = 0;
    for (const trial *t = trials; t != NULL; t = t->next)
        n += fits(t);
    if (n == 0)
        return NULL;
    n = (unsigned)(roll() % n);
    for (trial *t = trials; t != NULL; t = t->next)
        if (fits(t) && n-- == 0)
            return t;
    return NULL;
}

static bool is_queued(const trial *t)
{
    return t->queued;
}
static bool is_posted(const trial *t)
{
    return t->posted;
}
static bool is_executing(const trial *t)
{
    return t->executes;
}
static bool is_probing(const trial *t)
{
    return t->probes;
}
static bool is_at_door(const trial *t)
{
    return t->at_door;
}
static bool has_client(const trial *t)
{
    return t->at.client != NULL;
}

static void start(void)
{
    trial *t = calloc(1, sizeof *t);
    CHECK(t != NULL);
    thing *of = &things[roll() % THINGS];
    unsigned kind = (unsigned)(roll() % 10);
    t->next = trials;
    trials = t;
    live++;
    t->loop = kind < 4;
    t->at.serve = &serve;
    t->at.ops = kind < 4 ? &looping : kind < 5 ? &handing : &serving;
    if (kind == 9) { /* in the background */
        t->at.effect.id = (uint64_t)(of - things) + 1;
        sm_attempt_start_looking(&t->at);
        return;
    }
    t->at.ask.id = (uint64_t)(of - things) + 1;
    t->who = calloc(1, sizeof *t->who);
    CHECK(t->who != NULL && client_count < COUNT(clients));
    clients[client_count++] = t->who;
    t->who->deadline = now + (int64_t)(roll() % 2000);
    t->who->of = t;
    t->at.client = t->who;
    sm_attempt_start(&t->at);
}

static void work(trial *t)
{
    semel_answer a = {0};
    t->queued = false;
    t->at.job.run(&t->at.job, &a);
}

static void deliver(trial *t)
{
    t->posted = false;
    if (t->at.stage != SM_AT_PARKED)
        sm_attempt_go_on(&t->at, &t->kept);
    else if (t->at.client == NULL && t->who != NULL)
        sm_attempt_end(&t->at); /* woken, and nobody is there any more */
    else
        sm_attempt_ask(&t->at, NULL);
}

static void finish(trial *t)
{
    thing *of = thing_of(&t->at);
    sm_attempt *at = &t->at;
    unsigned kind = (unsigned)(roll() % 10);
    t->executes = false;
    at->outcome = (semel_outcome){.size = sizeof at->outcome, .kind = SEMEL_FAILURE};
    if (kind < 5) {
        at->outcome.kind = SEMEL_SUCCESS;
        of->applied += !of->reads && of->applied == 0; /* a key that is known does nothing twice */
    } else if (kind < 7) {
        at->outcome.applied = SEMEL_APPLIED_UNKNOWN;
        of->applied += !of->reads && of->applied == 0 && chance(50);
    } else if (kind < 8) {
        at->outcome.applied = SEMEL_APPLIED_NO;
    } else {
        at->nothing_done = true;
    }
    sm_attempt_done(at);
}

/* Its session is given up while the executor has it. */
static void abandon(trial *t)
{
    thing *of = thing_of(&t->at);
    t->executes = false;
    of->applied += !of->reads && of->applied == 0 && chance(50);
    if (t->who != NULL)
        t->who->left = true;
    sm_attempt_end(&t->at);
}

static void approve(sm_attempt *at, semel_answer *a)
{
    (void)a;
    thing *t = thing_of(at);
    if (t->state == ASKS) {
        t->state = FREE;
        serve.deps->ring(&serve, at->ask.id);
    }
}

static void leave_door(trial *t)
{
    semel_answer a = {0};
    t->at_door = false;
    if (chance(70))
        sm_attempt_ask(&t->at, approve);
    else
        answer(&t->at, &a);
}

static void hang_up(trial *t)
{
    pthread_mutex_lock(&serve.lock);
    t->who->left = true;
    bool was_parked = sm_attempt_lose_client(&t->at);
    pthread_mutex_unlock(&serve.lock);
    if (was_parked || t->at_door) {
        t->at_door = false;
        sm_attempt_end(&t->at);
    }
}

static void pass_time(void)
{
    now += (int64_t)(roll() % 400);
    pthread_mutex_lock(&serve.lock);
    for (sm_timer *x = sm_timer_first(&serve.timers); x != NULL && x->due_ns <= now;
         x = sm_timer_first(&serve.timers))
        sm_attempt_expire(SM_CONTAINER(x, sm_attempt, timer));
    pthread_mutex_unlock(&serve.lock);
}

/* Other processes, people, and the background. */
static void others(void)
{
    thing *t = &things[roll() % THINGS];
    if (t->reads)
        return;
    if (t->owed) {
        settle(t, t->owed_done);
        change(t, t->state);
    } else if (t->state == RUNS && t->holder == NULL && chance(50)) {
        t->applied += t->applied == 0;
        change(t, DONE);
    } else if (t->state == ASKS && chance(50)) {
        change(t, FREE);
    } else if (t->state == IN_DOUBT && chance(10)) { /* a person resolves it */
        t->may = false;
        change(t, t->applied > 0 ? DONE : FREE);
    } else if (t->state == FREE && t->applied == 0 && !t->may && chance(20)) {
        change(t, chance(50) ? RUNS : ASKS);
        t->holder = NULL;
    } else if (t->state == DONE && chance(80)) { /* its window is over: it is another one */
        *t = (thing){.bell = t->bell, .leaders = t->leaders};
        change(t, FREE);
    }
}

static void check_all(void)
{
    for (trial *t = trials; t != NULL; t = t->next) {
        const char *flaw = sm_attempt_flaw(&t->at);
        CHECK(flaw == NULL);
        CHECK(t->queued + t->posted + t->executes + t->probes + t->at_door <= 1);
    }
    for (size_t i = 0; i < THINGS; i++)
        CHECK(things[i].applied <= 1);
    for (unsigned i = 0; i < parked_count; i++) { /* nobody waits for what is over */
        const thing *t = thing_of(owner_of(parked[i]));
        CHECK(t->state == RUNS || t->state == ASKS || t->state == IN_DOUBT);
    }
}

static void happen(unsigned what)
{
    trial *t = NULL;
    steps++;
    if (planted == TWO_LOOK_AFTER_ONE_EFFECT)
        serve.leading = NULL;
    if (what < 12 && !draining && live < LIVE_MAX)
        start();
    else if (what < 40 && (t = some_trial(is_queued)) != NULL)
        work(t);
    else if (what < 60 && (t = some_trial(is_posted)) != NULL)
        deliver(t);
    else if (what < 75 && (t = some_trial(is_executing)) != NULL && chance(2))
        abandon(t);
    else if (what < 75 && t != NULL)
        finish(t);
    else if (what < 80 && (t = some_trial(is_probing)) != NULL) {
        t->probes = false;
        thing_of(&t->at)->leaders--;
        sm_attempt_probed(&t->at);
    } else if (what < 84 && (t = some_trial(is_at_door)) != NULL)
        leave_door(t);
    else if (what < 87 && (t = some_trial(has_client)) != NULL)
        hang_up(t);
    else if (what < 90)
        pass_time();
    else
        others();
    check_all();
}

/* Nothing new begins, and all that is under way ends. Nobody may wait for what is over. */
static void calm_down(void)
{
    for (unsigned i = 0; i < 20000 && live > parked_count; i++)
        happen(12 + (unsigned)(roll() % 72)); /* no hang-ups and no time: waits stay */
    CHECK(live == parked_count);
    for (unsigned i = 0; i < parked_count; i++)
        CHECK(thing_of(owner_of(parked[i]))->holder == NULL); /* what we ran has ended */
}

static void drain(void)
{
    pthread_mutex_lock(&serve.lock);
    serve.draining = draining = true;
    pthread_mutex_unlock(&serve.lock);
    if (planted == WAITS_WHILE_DRAINING)
        serve.draining = false;
    wake_all_of(0);
    for (unsigned i = 0; i < 20000 && live > 0; i++)
        happen(12 + (unsigned)(roll() % 72));
    CHECK(live == 0 && trials == NULL && serve.alive == 0);
    CHECK(atomic_load(&serve.away) == 0 && serve.leading == NULL && serve.timers.n == 0);
    for (size_t i = 0; i < THINGS; i++)
        CHECK(things[i].holder == NULL && things[i].leaders == 0);
    for (unsigned i = 0; i < client_count; i++) {
        CHECK(clients[i]->answers == 1 || clients[i]->left);
        free(clients[i]);
    }
    client_count = 0;
}

/* How long a client waits beyond its deadline shows in the end only; so here. */
static void check_deadlines(void)
{
    pass_time();
    for (const trial *t = trials; t != NULL; t = t->next)
        if (t->at.client != NULL && t->executes)
            CHECK(t->who->deadline > now - 1 || t->at.ops->late == NULL);
}

static void not_recorded(void *context, sm_str reason)
{
    (void)context, (void)reason; /* is for the ledger to call, which is simulated */
}

static void live_once(uint64_t from, unsigned length)
{
    static const atomic_bool ending;
    seed = from * 0x9E3779B97F4A7C15u + 1;
    serve = (sm_serve){.deps = &deps,
                       .record_ms = 7000,
                       .ending = &ending,
                       .on_failure = not_recorded,
                       .context = &seed};
    sm_serve_init(&serve);
    serve.clocked = true; /* the test is the clock */
    draining = false;
    memset(things, 0, sizeof things);
    things[0].reads = true;
    for (unsigned i = 0; i < length; i++) {
        happen((unsigned)(roll() % 100));
        if (i % 64 == 0)
            check_deadlines();
    }
    for (unsigned i = 0; i < 100; i++)
        happen((unsigned)(roll() % 60)); /* many come, and no time passes: some wait */
    if (from % 2 == 0)
        calm_down();
    drain();
    serve.clocked = false;
    sm_serve_fini(&serve);
}

/* ---- tests -----------------------------------------------------------------------------------*/

/* What a child comes to: nobody knows after which step a planted mistake shows, or how. */
static int live_apart(plant what, uint64_t from, unsigned lives, unsigned length)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (what != NOTHING) {
            freopen("/dev/null", "w", stderr);
            alarm(60);
        }
        planted = what;
        for (unsigned i = 0; i < lives; i++)
            live_once(from + i, length);
        if (what == NOTHING)
            printf(
                "# %llu steps: %llu executions, %llu resends, %llu looks at doubts, %llu replays\n",
                (unsigned long long)steps, (unsigned long long)executions,
                (unsigned long long)resends, (unsigned long long)doubts,
                (unsigned long long)replays);
        fflush(stdout);
        _exit(steps >= (what == NOTHING ? 1000000u : 0) ? 0 : 4);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void a_million_steps_answer_everybody_once_and_send_nothing_twice(void **state)
{
    (void)state;
    const char *given = getenv("SEMEL_SEED");
    uint64_t from = given == NULL ? 1 : strtoull(given, NULL, 10);
    int status = live_apart(NOTHING, from, 400, 2600);
    expect(status == 0, "seed %llu: status %x", (unsigned long long)from, status);
}

static void every_planted_mistake_is_found(void **state)
{
    (void)state;
    for (plant p = NOTHING + 1; p < PLANTS; p++)
        expect(live_apart(p, 1, 60, 2600) != 0, "nobody noticed that %s", plant_names[p]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_million_steps_answer_everybody_once_and_send_nothing_twice),
        cmocka_unit_test(every_planted_mistake_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
