/* A striped table of runs, the ladder, and what the ledger knows of a run. */
#include "ledger/guard/runs.h"

#include <stdlib.h>

#include "base/clock.h"
#include "ledger/guard/board.h"
#include "ledger/guard/shared.h"

#define BUCKETS  512u  /* in a stripe; a power of two */
#define RUNS_MAX 1024u /* in a stripe: about a megabyte */

/* A run that repeats itself asks the ledger at each step of the ladder, and otherwise as often as
 * this: many callers of one call must not wait for each other. One that is only ever warned asks
 * less often. */
#define SHARE_NS        100000000
#define SHARE_WARNED_NS 1000000000

/* Of runs that were not warned yet, a process that closes tells of so many in a stripe, so that it
 * does not take long. */
#define TELL_MAX 16u

#define IDLE_MS ((int64_t)3600 * 1000) /* then it begins anew: who loops is quicker */
#define FORM    2u                     /* of what is shared */

struct sm_run_seen {
    sm_run_seen *next;          /* in its bucket */
    sm_run_seen *newer, *older; /* in its stripe */
    uint64_t hash;
    sm_loop loop;
    uint64_t told;     /* how many calls of `loop` the ledger knows */
    int64_t shared_ns; /* when the ledger was last asked, or somebody set out to; 0: never */
    uint8_t shared_at; /* the highest sm_loop_level that the ledger was asked at */
    bool sharing;      /* somebody is asking the ledger: two would tell it the same calls twice */
    int64_t called_at; /* the newest entry, by the store's clock */
    uint64_t epoch;    /* of the board when `tripped` was looked up; 0: never */
    bool tripped;
    bool repeats; /* a call that may have been made before was added since it was told */
    uint32_t scope_bytes;
    char scope[];
};

/* ---- the table -------------------------------------------------------------------------------*/

void sm_runs_init(sm_runs *r)
{
    *r = (sm_runs){0};
    for (size_t i = 0; i < SM_RUNS_STRIPES; i++)
        pthread_mutex_init(&r->stripes[i].lock, NULL);
}

void sm_runs_fini(sm_runs *r)
{
    for (size_t i = 0; i < SM_RUNS_STRIPES; i++) {
        struct sm_runs_stripe *t = &r->stripes[i];
        for (sm_run_seen *run = t->newest, *next; run != NULL; run = next) {
            next = run->older;
            free(run);
        }
        free(t->buckets);
        pthread_mutex_destroy(&t->lock);
    }
}

static uint64_t mix(uint64_t v)
{
    v *= 0x9E3779B97F4A7C15u;
    return v ^ v >> 32;
}

static uint64_t hash_of(sm_str scope)
{
    uint64_t h = scope.n, word;
    for (; scope.n >= 8; scope.p += 8, scope.n -= 8) {
        memcpy(&word, scope.p, 8);
        h = mix(h ^ word);
    }
    word = 0;
    memcpy(&word, scope.p, scope.n);
    return mix(mix(h ^ word));
}

static void unlink_run(struct sm_runs_stripe *t, sm_run_seen *run)
{
    *(run->newer != NULL ? &run->newer->older : &t->newest) = run->older;
    *(run->older != NULL ? &run->older->newer : &t->oldest) = run->newer;
}

static void put_first(struct sm_runs_stripe *t, sm_run_seen *run)
{
    run->newer = NULL;
    run->older = t->newest;
    *(t->newest != NULL ? &t->newest->newer : &t->oldest) = run;
    t->newest = run;
}

static sm_run_seen **place_of(struct sm_runs_stripe *t, uint64_t hash, sm_str scope)
{
    sm_run_seen **at = &t->buckets[hash / SM_RUNS_STRIPES % BUCKETS];
    while (*at != NULL &&
           ((*at)->hash != hash || !sm_str_eq((sm_str){(*at)->scope, (*at)->scope_bytes}, scope)))
        at = &(*at)->next;
    return at;
}

/* The run that was not heard of for longest. */
static void forget_oldest(struct sm_runs_stripe *t)
{
    sm_run_seen *run = t->oldest;
    sm_run_seen **at = place_of(t, run->hash, (sm_str){run->scope, run->scope_bytes});
    *at = run->next;
    unlink_run(t, run);
    t->n--;
    free(run);
}

/* The run, which is made if it is not there. NULL without memory: nothing is detected then. */
static sm_run_seen *find(struct sm_runs_stripe *t, uint64_t hash, sm_str scope)
{
    if (t->buckets == NULL)
        t->buckets = calloc(BUCKETS, sizeof(sm_run_seen *));
    if (t->buckets == NULL)
        return NULL;
    sm_run_seen *run = *place_of(t, hash, scope);
    if (run != NULL) {
        if (run != t->newest) {
            unlink_run(t, run);
            put_first(t, run);
        }
        return run;
    }
    if (t->n >= RUNS_MAX)
        forget_oldest(t);
    run = calloc(1, sizeof *run + scope.n);
    if (run == NULL)
        return NULL;
    run->hash = hash;
    run->scope_bytes = (uint32_t)scope.n;
    memcpy(run->scope, scope.p, scope.n);
    sm_run_seen **at = &t->buckets[hash / SM_RUNS_STRIPES % BUCKETS];
    run->next = *at;
    *at = run;
    put_first(t, run);
    t->n++;
    return run;
}

static void begin_anew(sm_run_seen *run)
{
    run->loop = (sm_loop){0};
    run->told = 0;
    run->shared_at = SM_LOOP_FINE;
    run->repeats = false;
}

/* The run, with its stripe locked. */
static sm_run_seen *enter(semel *s, sm_str scope, int64_t now, struct sm_runs_stripe **stripe)
{
    uint64_t hash = hash_of(scope);
    *stripe = &s->runs.stripes[hash % SM_RUNS_STRIPES];
    pthread_mutex_lock(&(*stripe)->lock);
    sm_run_seen *run = find(*stripe, hash, scope);
    if (run != NULL && now - run->called_at > IDLE_MS)
        begin_anew(run);
    if (run != NULL)
        run->called_at = now;
    return run;
}

/* ---- the ladder ------------------------------------------------------------------------------*/

static bool reaches(int64_t step, uint32_t count)
{
    return step > 0 && count >= step;
}

sm_loop_level sm_loop_level_of(const sm_loop_rule *rule, uint32_t count)
{
    return reaches(rule->trip, count)    ? SM_LOOP_TRIP
           : reaches(rule->block, count) ? SM_LOOP_BLOCK
           : reaches(rule->warn, count)  ? SM_LOOP_WARN
                                         : SM_LOOP_FINE;
}

/* A run that was stopped and is not any more was reopened: it begins anew. */
static bool is_tripped(semel *s, sm_run_seen *run)
{
    uint64_t epoch = atomic_load_explicit(&s->board.epoch, memory_order_acquire) + 1;
    if (run->epoch != epoch) {
        bool tripped = sm_board_loop(s, (sm_str){run->scope, run->scope_bytes}, NULL);
        if (run->tripped && !tripped)
            begin_anew(run);
        run->tripped = tripped;
        run->epoch = epoch;
    }
    return run->tripped;
}

void sm_runs_tripped(semel *s, sm_str scope)
{
    struct sm_runs_stripe *t;
    sm_run_seen *run = enter(s, scope, sm_now(s), &t);
    if (run != NULL) {
        run->tripped = true;
        run->epoch = 0; /* the board may say otherwise by now */
    }
    pthread_mutex_unlock(&t->lock);
}

/* A run that is to be warned tells the others, who may know more. */
static bool must_share(const sm_run_seen *run, const sm_loop_rule *rule, uint32_t count)
{
    if (run->sharing || !reaches(rule->warn, count) || run->told == run->loop.calls)
        return false;
    int64_t pause_ns = rule->block > 0 ? SHARE_NS : SHARE_WARNED_NS;
    bool higher = rule->block > 0 && sm_loop_level_of(rule, count) > run->shared_at;
    return higher || sm_clock_mono_ns() - run->shared_ns >= pause_ns;
}

/* Somebody is about to ask the ledger: others who come meanwhile go on with what is known. */
static void set_out(sm_run_seen *run, const sm_loop_call *c, const sm_loop_finding *f)
{
    if (f->level != SM_LOOP_SHARE)
        return;
    run->sharing = true;
    run->shared_ns = sm_clock_mono_ns();
    run->shared_at = (uint8_t)sm_loop_level_of(c->rule, f->match.count);
}

static void widen(sm_run_seen *run, const sm_loop_rule *rule)
{
    if (run->loop.periods < rule->max_cycle)
        run->loop.periods = (uint32_t)rule->max_cycle;
}

/* A process that has just started, or knows the run for the first time, does not know by itself how
 * often a call was repeated before. */
static bool must_load(const semel *s, const sm_run_seen *run, const sm_loop_rule *rule)
{
    return run->shared_ns == 0 && (s->o.one_shot || rule->block > 0);
}

/* Whether a tool that is asked until something is ready is asked once more. */
static bool polls(const sm_run_seen *run, const sm_loop_call *c)
{
    const sm_loop_entry *last = sm_loop_last(&run->loop);
    return c->rule->poll && last != NULL && last->call == c->call;
}

/* A read is not written, so a run that is stopped may go on reading. */
static sm_loop_finding look(semel *s, sm_run_seen *run, const sm_loop_call *c)
{
    sm_loop_finding f = {.match = {.count = 1, .period = 1}};
    widen(run, c->rule);
    if (is_tripped(s, run) && !c->passes) {
        f.level = SM_LOOP_TRIPPED;
        return f;
    }
    if (!polls(run, c))
        f.match = sm_loop_foresee(&run->loop, c->call, (uint32_t)c->rule->max_cycle);
    f.level = c->passes                                 ? sm_loop_level_of(c->rule, f.match.count)
              : must_load(s, run, c->rule)              ? SM_LOOP_LOAD
              : must_share(run, c->rule, f.match.count) ? SM_LOOP_SHARE
                                                        : sm_loop_level_of(c->rule, f.match.count);
    return f;
}

/* What is asked again and again until something is ready counts once, until the answer differs. */
static void add(sm_run_seen *run, const sm_loop_call *c, uint64_t result, bool progress,
                sm_loop_finding *f)
{
    if (polls(run, c) && sm_loop_last(&run->loop)->result == result) {
        f->match = (sm_loop_match){.count = 1, .period = 1};
        return;
    }
    f->match = sm_loop_add(&run->loop, (sm_loop_entry){c->call, result}, progress,
                           (uint32_t)c->rule->max_cycle);
}

sm_loop_finding sm_runs_before(semel *s, const sm_loop_call *c, uint64_t unused)
{
    (void)unused;
    struct sm_runs_stripe *t;
    sm_loop_finding f = {0};
    sm_run_seen *run = enter(s, c->scope, c->now, &t);
    if (run != NULL) {
        f = look(s, run, c);
        set_out(run, c, &f);
        bool blocks = f.level == SM_LOOP_BLOCK || f.level == SM_LOOP_TRIP;
        if (blocks && !c->observes && !c->looks) {
            add(run, c, f.match.result, false, &f);
            run->repeats |= !c->passes;
        } else if (f.level == SM_LOOP_WARN)
            f.level = SM_LOOP_FINE; /* its result may differ */
    }
    pthread_mutex_unlock(&t->lock);
    return f;
}

sm_loop_finding sm_runs_replay(semel *s, const sm_loop_call *c, uint64_t result)
{
    struct sm_runs_stripe *t;
    sm_loop_finding f = {0};
    sm_run_seen *run = enter(s, c->scope, c->now, &t);
    if (run != NULL) {
        f = look(s, run, c);
        if (c->memory && f.level > SM_LOOP_WARN)
            f.level = SM_LOOP_LOAD;
        else
            set_out(run, c, &f);
        if (f.level <= SM_LOOP_TRIP) {
            add(run, c, result, false, &f);
            f.level = sm_loop_level_of(c->rule, f.match.count);
            run->repeats |= !c->passes;
        }
    }
    pthread_mutex_unlock(&t->lock);
    return f;
}

void sm_runs_load(semel *s, const sm_loop_call *c)
{
    struct sm_runs_stripe *t;
    sm_run_seen *run = enter(s, c->scope, c->now, &t);
    bool load = run != NULL && must_load(s, run, c->rule);
    pthread_mutex_unlock(&t->lock);
    if (load)
        sm_runs_share(s, c->scope, false);
}

sm_loop_finding sm_runs_after(semel *s, const sm_loop_call *c, uint64_t result, bool progress)
{
    struct sm_runs_stripe *t;
    sm_loop_finding f = {0};
    sm_run_seen *run = enter(s, c->scope, c->now, &t);
    if (run != NULL) {
        widen(run, c->rule);
        add(run, c, result, progress, &f);
        run->repeats |= c->repeats;
        if (reaches(c->rule->warn, f.match.count))
            f.level = SM_LOOP_WARN; /* it has run */
    }
    pthread_mutex_unlock(&t->lock);
    return f;
}

/* ---- sharing ---------------------------------------------------------------------------------*/

/* How a loop's state is shared: hexadecimal numbers in a list, as JSON. */
static void put_loop(sm_buf *out, const sm_loop *l)
{
    sm_buf_printf(out, "[%u,%u,\"%llx\",\"%x\",[", FORM, l->periods, (unsigned long long)l->calls,
                  l->progressed);
    for (uint32_t p = 0; p < l->periods; p++)
        sm_buf_printf(out, "%s%u", p == 0 ? "" : ",", l->same[p]);
    sm_buf_text(out, "],[");
    uint64_t n = l->calls < SM_LOOP_CYCLE_MAX ? l->calls : SM_LOOP_CYCLE_MAX;
    for (uint64_t i = l->calls - n; i < l->calls; i++) {
        const sm_loop_entry *e = &l->tail[i % SM_LOOP_CYCLE_MAX];
        sm_buf_printf(out, "%s\"%llx\",\"%llx\"", i == l->calls - n ? "" : ",",
                      (unsigned long long)e->call, (unsigned long long)e->result);
    }
    sm_buf_text(out, "],[");
    for (uint32_t i = 0; i < l->seen_count; i++)
        sm_buf_printf(out, "%s\"%llx\",\"%llx\",%u", i == 0 ? "" : ",",
                      (unsigned long long)l->seen[i].entry.call,
                      (unsigned long long)l->seen[i].entry.result, l->seen[i].count);
    sm_buf_text(out, "]]");
}

static uint64_t number(const sm_json *v, sm_json_type type, int base)
{
    return v->type == type ? strtoull(v->text, NULL, base) : 0;
}

bool sm_runs_read(sm_arena *a, sm_str text, sm_loop *l)
{
    const sm_json *root, *v;
    *l = (sm_loop){0};
    if (text.p == NULL || sm_json_read(a, text, &sm_json_default_limits, &root, NULL) != SM_OK ||
        root->type != SM_JSON_ARRAY || root->len != 7)
        return false;
    v = root + 1;
    if (number(v++, SM_JSON_NUMBER, 10) != FORM)
        return false;
    l->periods = (uint32_t)number(v++, SM_JSON_NUMBER, 10);
    l->calls = number(v++, SM_JSON_STRING, 16);
    l->progressed = (uint32_t)number(v++, SM_JSON_STRING, 16);
    const sm_json *same = v, *tail = sm_json_next(same), *seen = sm_json_next(tail);
    uint64_t n = l->calls < SM_LOOP_CYCLE_MAX ? l->calls : SM_LOOP_CYCLE_MAX;
    if (l->periods > SM_LOOP_CYCLE_MAX || same->type != SM_JSON_ARRAY || same->len != l->periods ||
        tail->type != SM_JSON_ARRAY || tail->len != 2 * n || seen->type != SM_JSON_ARRAY ||
        seen->len % 3 != 0 || seen->len / 3 > SM_LOOP_SEEN_MAX)
        return false;
    for (uint32_t p = 0; p < l->periods; p++)
        l->same[p] = (uint32_t)number(&same[1 + p], SM_JSON_NUMBER, 10);
    for (uint64_t i = 0; i < n; i++)
        l->tail[(l->calls - n + i) % SM_LOOP_CYCLE_MAX] =
            (sm_loop_entry){number(&tail[1 + 2 * i], SM_JSON_STRING, 16),
                            number(&tail[2 + 2 * i], SM_JSON_STRING, 16)};
    l->seen_count = seen->len / 3;
    for (uint32_t i = 0; i < l->seen_count; i++)
        l->seen[i] = (sm_loop_seen){{number(&seen[1 + 3 * i], SM_JSON_STRING, 16),
                                     number(&seen[2 + 3 * i], SM_JSON_STRING, 16)},
                                    (uint32_t)number(&seen[3 + 3 * i], SM_JSON_NUMBER, 10)};
    return true;
}

/* What this process knows of the run, and how much of it is news to the ledger. */
static bool snapshot(semel *s, sm_str scope, sm_loop *out, uint64_t *news)
{
    struct sm_runs_stripe *t;
    sm_run_seen *run = enter(s, scope, sm_now(s), &t);
    if (run != NULL) {
        *out = run->loop;
        *news = run->loop.calls - run->told;
    }
    pthread_mutex_unlock(&t->lock);
    return run != NULL;
}

/* Takes over what the ledger knows now. `known` is how many calls of this process are in it. */
static void adopt(semel *s, sm_str scope, const sm_loop *merged, uint64_t known)
{
    struct sm_runs_stripe *t;
    sm_run_seen *run = enter(s, scope, sm_now(s), &t);
    if (run != NULL) {
        run->sharing = false;
        run->shared_ns = sm_clock_mono_ns();
        if (merged != NULL && run->loop.calls >= known) {
            sm_loop both = *merged;
            sm_loop_append(&both, &run->loop, run->loop.calls - known); /* what came meanwhile */
            run->loop = both;
            run->told = merged->calls;
            run->repeats = false;
        }
    }
    pthread_mutex_unlock(&t->lock);
}

/* One try. */
static sm_err share(semel *s, sm_work *w, sm_str scope, bool tell)
{
    const sm_shared doc = {.kind = SM_LOOP_DOCUMENT, .of = scope, .keep_ms = IDLE_MS};
    sm_loop own, all;
    uint64_t news;
    sm_str text;
    if (!snapshot(s, scope, &own, &news))
        return SEMEL_E_NOMEM;
    sm_err e = sm_shared_read(s, w, &doc, &text);
    if (e != SM_OK)
        return e;
    bool there = sm_runs_read(&w->call, text, &all);
    if (!tell) {
        adopt(s, scope, there ? &all : NULL, own.calls - news);
        return SM_OK;
    }
    sm_loop_append(&all, &own, news);
    sm_buf_clear(&w->json);
    put_loop(&w->json, &all);
    if (w->json.err != SM_OK)
        return w->json.err;
    sm_body_start(w);
    sm_body_text(w, "scope", scope);
    sm_body_number(w, "calls", all.calls);
    e = sm_shared_write(s, w, &doc, sm_buf_view(&w->json), SM_N_LOOPED, (sm_str){0});
    if (e == SM_OK)
        adopt(s, scope, &all, own.calls);
    return e;
}

void sm_runs_share(semel *s, sm_str scope, bool tell)
{
    semel_answer *a = semel_answer_new();
    sm_err e = a == NULL ? SEMEL_E_NOMEM : SEMEL_E_STALE;
    for (int races = 0; e == SEMEL_E_STALE && races < SM_RACES_MAX; races++)
        e = share(s, sm_work_start(a), scope, tell);
    if (e != SM_OK)
        adopt(s, scope, NULL, 0); /* it goes on with what it knows */
    semel_answer_free(a);
}

sm_err sm_runs_known(semel *s, sm_str scope, sm_loop *out, semel_fault *fault)
{
    const sm_shared doc = {.kind = SM_LOOP_DOCUMENT, .of = scope, .keep_ms = IDLE_MS};
    *out = (sm_loop){0};
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    sm_work *w = sm_work_start(a);
    sm_str text;
    sm_err e = sm_shared_read(s, w, &doc, &text);
    if (e == SM_OK && !sm_runs_read(&w->call, text, out))
        *out = (sm_loop){0};
    if (e != SM_OK)
        sm_fault_set(fault, e, "%s", w->fault.text);
    semel_answer_free(a);
    return e;
}

sm_err sm_runs_look(semel *s, sm_str scope, sm_loop *out, semel_fault *fault)
{
    uint64_t hash = hash_of(scope);
    struct sm_runs_stripe *t = &s->runs.stripes[hash % SM_RUNS_STRIPES];
    sm_loop here = {0};
    pthread_mutex_lock(&t->lock);
    const sm_run_seen *run = t->buckets == NULL ? NULL : *place_of(t, hash, scope);
    if (run != NULL && sm_now(s) - run->called_at <= IDLE_MS)
        here = run->loop;
    pthread_mutex_unlock(&t->lock);
    sm_err e = sm_runs_known(s, scope, out, fault);
    if (out->calls < here.calls)
        *out = here;
    return e;
}

void sm_runs_tell_all(semel *s)
{
    for (size_t i = 0; i < SM_RUNS_STRIPES; i++) {
        uint32_t told = 0;
        /* Nobody else uses the handle any more. A run that is told of moves to the front. */
        for (sm_run_seen *run = s->runs.stripes[i].newest, *older; run != NULL; run = older) {
            older = run->older;
            bool worth = run->shared_at >= SM_LOOP_WARN || told < TELL_MAX;
            if (worth && run->repeats && run->told != run->loop.calls) {
                sm_runs_share(s, (sm_str){run->scope, run->scope_bytes}, true);
                told++;
            }
        }
    }
}

/* ---- people ----------------------------------------------------------------------------------*/

/* `here`: it repeats itself as far as this process knows, whether or not the ledger was told. */
static sm_err write_empty(semel *s, sm_work *w, sm_str scope, sm_str actor, sm_str reason,
                          bool here, bool *changed)
{
    const sm_shared doc = {.kind = SM_LOOP_DOCUMENT, .of = scope, .keep_ms = IDLE_MS};
    static const sm_loop nothing;
    sm_str text;
    sm_loop known;
    sm_err e = sm_shared_read(s, w, &doc, &text);
    if (e != SM_OK || (!here && (!sm_runs_read(&w->call, text, &known) || known.calls == 0)))
        return e;
    sm_buf_clear(&w->json);
    put_loop(&w->json, &nothing);
    sm_body_start(w);
    sm_body_text(w, "scope", scope);
    sm_body_text(w, "reason", reason);
    e = w->json.err != SM_OK
            ? w->json.err
            : sm_shared_write(s, w, &doc, sm_buf_view(&w->json), SM_N_REOPENED, actor);
    *changed = e == SM_OK;
    return e;
}

sm_err sm_runs_reset(semel *s, sm_str scope, sm_str actor, sm_str reason, bool *changed,
                     semel_fault *fault)
{
    *changed = false;
    bool here = false;
    struct sm_runs_stripe *t;
    sm_run_seen *run = enter(s, scope, sm_now(s), &t);
    if (run != NULL) {
        here = sm_loop_now(&run->loop, run->loop.periods).count > 1;
        begin_anew(run);
    }
    pthread_mutex_unlock(&t->lock);
    semel_answer *a = semel_answer_new();
    sm_err e = a == NULL ? SEMEL_E_NOMEM : SEMEL_E_STALE;
    for (int races = 0; e == SEMEL_E_STALE && races < SM_RACES_MAX; races++)
        e = write_empty(s, sm_work_start(a), scope, actor, reason, here, changed);
    if (e != SM_OK)
        sm_fault_set(fault, e, "%s", a == NULL ? "out of memory" : sm_work_of(a)->fault.text);
    semel_answer_free(a);
    return e;
}
