/*
 * Effects whose caller may never come back: doubts that the contract says how to settle, and what
 * was approved or found absent and has not run. The ledger tells of them about once a second
 * (gw_on_due); each is taken by a worker.
 *
 *     approved, found absent, rerun    the recorded call is made again, as a run without a client
 *     resend                           the same request again, with the same key
 *     probe                            another tool is asked, and its answer judged
 *
 * What cannot be done now is put off, for longer the more was tried. Two gateways on one ledger
 * may both look at an effect; the ledger lets one of them change it.
 */
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "core/probe.h"
#include "gateway/runs.h"

#define REMEDIES_MAX      256u
#define PAUSE_MIN_MS      ((int64_t)1000)
#define PAUSE_MAX_MS      600000
#define PAUSE_HELPLESS_MS 60000

typedef struct gw_remedy {
    sm_job job;
    struct gw_remedy *next;
    gateway *g;
    sm_handle effect;
    sm_arena arena; /* the probe's request and what came back */
    semel_outcome outcome;
    sm_found_kind found;
    bool probed;  /* there is an answer */
    bool no_idea; /* the probe failed for a reason that passes */
    uint64_t attempt;
    int64_t least_ms; /* until it may be asked again */
} gw_remedy;

static void work(sm_job *job, semel_answer *a);

/* ---- which are under way ---------------------------------------------------------------------*/

void gw_on_due(void *context, const sm_handle *effect)
{
    gateway *g = context;
    gw_runs *s = g->runs;
    gw_remedy *m = calloc(1, sizeof *m);
    if (m == NULL)
        return;
    *m = (gw_remedy){.job = {.run = work}, .g = g, .effect = *effect};
    pthread_mutex_lock(&s->lock);
    bool taken = s->stop || s->draining || s->remedy_count >= REMEDIES_MAX ||
                 s->in_flight.taken >= (size_t)g->config->limits.in_flight;
    for (const gw_remedy *o = s->remedies; o != NULL && !taken; o = o->next)
        taken = o->effect.id == effect->id;
    if (!taken) {
        m->next = s->remedies;
        s->remedies = m;
        s->remedy_count++;
        s->alive++;
    }
    pthread_mutex_unlock(&s->lock);
    if (taken) {
        free(m);
        return;
    }
    sm_arena_init(&m->arena, SM_ARENA_MAX);
    sm_pool_add(g->pool, &m->job);
}

static void end(gw_remedy *m)
{
    gw_runs *s = m->g->runs;
    pthread_mutex_lock(&s->lock);
    gw_remedy **at = &s->remedies;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    s->remedy_count--;
    if (--s->alive == 0)
        pthread_cond_broadcast(&s->quiet);
    pthread_mutex_unlock(&s->lock);
    sm_arena_fini(&m->arena);
    free(m);
}

/* ---- later -----------------------------------------------------------------------------------*/

void gw_remedy_later(gateway *g, const sm_handle *effect, uint64_t attempt, int64_t least_ms,
                     semel_answer *a)
{
    int64_t pause = PAUSE_MIN_MS << (attempt < 11 ? attempt - (attempt > 0) : 10);
    pause = pause > least_ms ? pause : least_ms;
    sm_put_off(g->ledger, effect, pause < PAUSE_MAX_MS ? pause : PAUSE_MAX_MS, a);
}

/* Something that only a person can put right: said, and tried again now and then. */
static void complain(gw_remedy *m, const sm_remedy *what, const char *text, semel_answer *a)
{
    char handle[SM_HANDLE_TEXT];
    sm_handle_effect(&m->effect, handle);
    gw_say(&m->g->log, GW_ERROR, "an effect cannot be looked after", "effect", handle, "why", text,
           NULL);
    gw_remedy_later(m->g, &m->effect, what->attempt, PAUSE_HELPLESS_MS, a);
}

/* ---- the same call or request again ----------------------------------------------------------*/

static sm_err make_request(gw_run *run, const sm_contract *c, const sm_json *args, sm_fault *fault)
{
    if (c->origin[SM_F_UPSTREAM].given == NULL)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "the tool has no upstream any more");
    if (run->ask.shape != sm_upstream_shape(c))
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "the request would be another one now");
    sm_err e = sm_upstream_make(&run->arena, c, args, &run->up, fault);
    run->up.request.body_max = (size_t)run->g->config->limits.result_bytes;
    return e;
}

/* What was not begun after all is told, for nobody waits for an answer. */
static void tell_refusal(gw_run *run, sm_fault *fault)
{
    char handle[SM_HANDLE_TEXT];
    sm_handle_effect(&run->effect, handle);
    gw_say(&run->g->log, GW_ERROR, "an effect cannot be looked after", "effect", handle, "why",
           fault->text, NULL);
}

static sm_err prepare(gw_run *run, const sm_contract *c, const sm_json *args, sm_fault *fault)
{
    sm_err e = make_request(run, c, args, fault);
    if (e != SM_OK)
        tell_refusal(run, fault);
    return e;
}

static void answer_nobody(gw_run *run, gw_request *r, const semel_answer *a)
{
    (void)run;
    (void)r;
    (void)a;
}

static const gw_run_ops ops = {.prepare = prepare, .answer = answer_nobody};

static void call_again(gw_remedy *m, const sm_remedy *what, semel_answer *a)
{
    gw_run *run = gw_run_new(m->g, NULL);
    if (run == NULL || !gw_run_call(run, &what->call)) {
        if (run != NULL)
            gw_run_free(run);
        return;
    }
    run->ops = &ops;
    run->ask.upstream = true;
    run->ask.quiet = true;
    run->ask.shape = what->shape;
    run->effect = m->effect;
    run->ask.known = true; /* this very effect, whatever its contract would call it now */
    run->ask.key = what->key;
    /* Whatever comes of it: not at once again. */
    gw_remedy_later(m->g, &m->effect, what->attempt, 0, a);
    gw_run_start(run);
}

/* The contract of a recorded call, and its arguments. */
static sm_err find_contract(gw_remedy *m, const sm_remedy *what, semel_answer *a,
                            const sm_contract **c, const sm_json **args, sm_fault *fault)
{
    sm_err e = sm_json_read(&m->arena, what->call.args, &sm_json_args_limits, args, fault);
    if (e != SM_OK)
        return e;
    *c = sm_contracts_find(sm_contracts_now(m->g->ledger, a), what->call.tool);
    if (*c != NULL)
        *c = sm_contract_variant(*c, *args);
    if (*c == NULL || (*c)->origin[SM_F_UPSTREAM].given == NULL)
        return sm_fault_set(fault, SEMEL_E_INVALID, "the contract of %.*s has no upstream any more",
                            SM_FMT(what->call.tool));
    return SM_OK;
}

static void send_again(gw_remedy *m, const sm_remedy *what, semel_answer *a)
{
    sm_fault fault = {0};
    const sm_contract *c;
    const sm_json *args;
    gw_run *run = gw_run_new(m->g, NULL);
    if (run == NULL)
        return;
    run->ops = &ops;
    sm_err e = find_contract(m, what, a, &c, &args, &fault);
    if (e == SM_OK && sm_upstream_shape(c) != what->shape)
        e = sm_fault_set(&fault, SEMEL_E_INVALID,
                         "the contract of %.*s describes another request than the one that was "
                         "sent: it is not sent again",
                         SM_FMT(what->call.tool));
    /* The run outlives the remedy, and so must its arguments. */
    if (e == SM_OK)
        e = sm_json_read(&run->arena, what->call.args, &sm_json_args_limits, &args, &fault);
    if (e == SM_OK)
        e = sm_upstream_make(&run->arena, c, args, &run->up, &fault);
    if (e == SM_OK) {
        run->until_ns = sm_clock_deadline_ns(what->window_left_ms);
        gw_run_resend(run, &m->effect);
    } else {
        gw_run_free(run);
        complain(m, what, fault.text, a);
    }
}

/* ---- probing ---------------------------------------------------------------------------------*/

/* What the probe's answer means: judged here, on the client's thread, and written by a worker. */
static void judge_found(gw_remedy *m, const sm_probe *probe, const sm_http_result *res)
{
    bool passing = !res->complete || res->status >= 500 || res->status == 408 ||
                   res->status == 425 || res->status == 429;
    m->probed = true;
    m->no_idea = passing;
    m->found = SM_FOUND_UNKNOWN;
    m->outcome = (semel_outcome){.size = sizeof m->outcome, .kind = SEMEL_SUCCESS};
    bool found = res->status / 100 == 2, gone = res->status == 404 || res->status == 410;
    const sm_json *body = NULL;
    if (passing || res->cut || (!found && !gone) ||
        sm_json_read(&m->arena, res->body, &sm_json_default_limits, &body, NULL) != SM_OK)
        return;
    m->found = sm_probe_judge(&m->arena, probe, body, gone, &m->outcome.value);
    if (m->found == SM_FOUND_APPLIED)
        m->outcome.status = 200;
}

/* An exchange under way: the probe's rules live in a set of contracts, which is held meanwhile. */
typedef struct probing {
    gw_remedy *m;
    sm_contracts *contracts;
    const sm_probe *probe;
    int64_t tries;
    sm_upstream_call up;
} probing;

static void on_probed(void *context, const sm_http_result *res)
{
    probing *p = context;
    gw_remedy *m = p->m;
    judge_found(m, p->probe, res);
    if (m->no_idea && p->tries < p->up.retry.attempts && !atomic_load(&m->g->draining)) {
        int64_t pause =
            sm_upstream_pause(&p->up.retry, p->tries++, 0, (uint64_t)sm_clock_mono_ns());
        sm_http_callbacks again = {.done = on_probed, .context = p};
        if (sm_http_send(m->g->http, &p->up.request, pause, &again, NULL) == SM_OK)
            return;
    }
    sm_contracts_free(p->contracts);
    sm_pool_add(m->g->pool, &m->job);
}

/* Asks. True if somebody will go on with the remedy. */
static bool ask_probe(gw_remedy *m, const sm_remedy *what, semel_answer *a)
{
    sm_fault fault = {0};
    const sm_contract *c, *other = NULL;
    const sm_json *args, *given = NULL;
    probing *p = sm_arena_zalloc(&m->arena, 1, sizeof *p);
    sm_err e = p == NULL ? SEMEL_E_NOMEM : find_contract(m, what, a, &c, &args, &fault);
    if (e == SM_OK) {
        other = sm_contracts_find(sm_contracts_now(m->g->ledger, a), c->probe.tool);
        if (other == NULL || other->class != SM_CLASS_READ ||
            other->origin[SM_F_UPSTREAM].given == NULL)
            e = sm_fault_set(&fault, SEMEL_E_INVALID,
                             "the probe %.*s is no tool of class read with an upstream",
                             SM_FMT(c->probe.tool));
    }
    if (e == SM_OK)
        e = sm_probe_args(&m->arena, &c->probe, args, &given, &fault);
    if (e == SM_OK)
        e = sm_upstream_make(&m->arena, other, given, &p->up, &fault);
    if (e != SM_OK) {
        complain(m, what, fault.text, a);
        return false;
    }
    p->m = m;
    m->effect.fence = what->fence;
    m->attempt = what->attempt;
    m->least_ms = what->doubt_age_ms / 2; /* however many attempts there were */
    p->probe = &c->probe;
    p->tries = 1;
    p->contracts = sm_contracts_keep(m->g->ledger, a);
    sm_http_callbacks callbacks = {.done = on_probed, .context = p};
    if (sm_http_send(m->g->http, &p->up.request, 0, &callbacks, NULL) == SM_OK)
        return true;
    sm_contracts_free(p->contracts);
    return false;
}

static void write_found(gw_remedy *m, semel_answer *a)
{
    if (m->no_idea)
        gw_remedy_later(m->g, &m->effect, m->attempt, m->least_ms, a);
    else
        sm_probed(m->g->ledger, &m->effect, m->found, &m->outcome, a);
    sm_waits_ring(m->g->waits, m->effect.id);
}

/* ---- the worker's turn -----------------------------------------------------------------------*/

static void work(sm_job *job, semel_answer *a)
{
    gw_remedy *m = (gw_remedy *)(void *)((char *)job - offsetof(gw_remedy, job));
    sm_remedy what;
    bool goes_on = false;
    if (m->probed) {
        write_found(m, a);
    } else if (sm_remedy_of(m->g->ledger, &m->effect, a, &what) == SM_OK && what.upstream) {
        /* The texts of `what` are the answer's: copied before the answer is used again. */
        if (what.state == SEMEL_S_READY || what.step == SM_DOUBT_RERUN)
            call_again(m, &what, a);
        else if (what.step == SM_DOUBT_RESEND)
            send_again(m, &what, a);
        else if (what.step == SM_DOUBT_PROBE)
            goes_on = ask_probe(m, &what, a);
    }
    if (!goes_on)
        end(m);
}
