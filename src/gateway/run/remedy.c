/*
 * Effects whose caller may never come back: doubts that the contract says how to settle, and what
 * was approved or found absent and has not run. The ledger tells of them about once a second
 * (gw_on_due); each is looked after by a run without a client.
 *
 *     approved, found absent, rerun    the recorded call is made again
 *     resend                           the same request again, with the same key
 *     probe                            another tool is asked, and its answer judged
 *
 * What cannot be done now is put off, for longer the more was tried. Two gateways on one ledger
 * may both look at an effect; the ledger lets one of them change it.
 */
#include "base/clock.h"
#include "core/probe.h"
#include "core/undo.h"
#include "gateway/run/runs.h"
#include "gateway/telemetry/trace.h"

#define REMEDIES_MAX      256u
#define PAUSE_MIN_MS      ((int64_t)1000)
#define PAUSE_MAX_MS      600000
#define PAUSE_HELPLESS_MS 60000

/* ---- later -----------------------------------------------------------------------------------*/

void gw_remedy_later(gateway *g, const sm_handle *effect, uint64_t attempt, int64_t least_ms,
                     semel_answer *a)
{
    int64_t pause = PAUSE_MIN_MS << (attempt < 11 ? attempt - (attempt > 0) : 10);
    pause = pause > least_ms ? pause : least_ms;
    sm_put_off(g->ledger, effect, pause < PAUSE_MAX_MS ? pause : PAUSE_MAX_MS, a);
}

static void say_why(gw_run *run, const char *why)
{
    char handle[SM_HANDLE_TEXT];
    sm_handle_effect(&run->at.effect, handle);
    gw_say(&run->g->log, GW_ERROR, "an effect cannot be looked after", "effect", handle, "why", why,
           NULL);
}

/* Something that only a person can put right: said, and tried again now and then. */
static sm_next complain(gw_run *run, uint64_t attempt, const char *why, semel_answer *a)
{
    say_why(run, why);
    gw_remedy_later(run->g, &run->at.effect, attempt, PAUSE_HELPLESS_MS, a);
    return SM_NEXT_STOP;
}

/* ---- the same call or request again ----------------------------------------------------------*/

/* What is made again reaches the upstream as the first time, or not at all. */
static sm_err check_shape(const sm_contract *c, uint64_t shape, sm_fault *fault)
{
    return sm_upstream_shape(c) == shape
               ? SM_OK
               : sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                              "its contract describes another request than when it was called: "
                              "it is not sent");
}

/* What was not begun after all is told, for nobody waits for an answer. */
static sm_err prepare(gw_run *run, const sm_contract *c, const sm_json *args, sm_fault *fault)
{
    sm_err e = check_shape(c, run->at.ask.shape, fault);
    if (e == SM_OK)
        e = sm_upstream_make(&run->arena, c, args, &run->up, fault);
    run->up.request.body_max = (size_t)run->g->config->limits.result_bytes;
    if (e != SM_OK)
        say_why(run, fault->text);
    return e;
}

static void answer_nobody(gw_run *run, gw_request *r, const semel_answer *a)
{
    (void)run;
    (void)r;
    (void)a;
}

static const gw_run_ops ops = {.prepare = prepare, .answer = answer_nobody};

/* The contract of a recorded call, and its arguments, which are the run's. */
static sm_err find_contract(gw_run *run, const sm_remedy *what, const sm_contracts *set,
                            const sm_contract **c, const sm_json **args, sm_fault *fault)
{
    sm_err e = sm_json_read(&run->arena, what->call.args, &sm_json_args_limits, args, fault);
    if (e != SM_OK)
        return e;
    *c = sm_contracts_find(set, what->call.tool);
    if (*c != NULL)
        *c = sm_contract_variant(*c, *args);
    if (*c == NULL || (*c)->origin[SM_F_UPSTREAM].given == NULL)
        return sm_fault_set(fault, SEMEL_E_INVALID, "the contract of %.*s has no upstream any more",
                            SM_FMT(what->call.tool));
    return SM_OK;
}

/* As find_contract, for what is to be made again. */
static sm_err find_same(gw_run *run, const sm_remedy *what, const sm_contracts *set,
                        const sm_contract **c, const sm_json **args, sm_fault *fault)
{
    sm_err e = find_contract(run, what, set, c, args, fault);
    return e == SM_OK ? check_shape(*c, what->shape, fault) : e;
}

/* This very effect, whatever its contract would call it now. */
static sm_next call_again(gw_run *run, const sm_remedy *what, semel_answer *a)
{
    sm_asking *q = &run->at.ask;
    sm_fault fault = {0};
    const sm_contract *c;
    const sm_json *args;
    uint64_t attempt = what->attempt;
    if (q->contracts == NULL) /* it is asked under those that it was looked at with */
        q->contracts = sm_contracts_keep(run->g->ledger, a);
    if (find_same(run, what, q->contracts, &c, &args, &fault) != SM_OK)
        return complain(run, attempt, fault.text, a);
    if (!gw_run_call(run, &what->call))
        return SM_NEXT_STOP;
    q->upstream = q->quiet = q->patient = q->known = true;
    q->undoes = sm_undo_key_reserved(q->call.key); /* nobody but a person has begun it */
    q->lease_ms = SM_RUN_LEASE_MS;
    q->shape = what->shape;
    q->key = what->key;
    /* Whatever comes of it: not at once again. */
    gw_remedy_later(run->g, &run->at.effect, attempt, 0, a);
    return SM_NEXT_ASK;
}

static sm_next send_again(gw_run *run, const sm_remedy *what, semel_answer *a)
{
    sm_fault fault = {0};
    const sm_contract *c;
    const sm_json *args;
    uint64_t attempt = what->attempt;
    const sm_contracts *set = sm_contracts_now(run->g->ledger, a);
    sm_err e = find_same(run, what, set, &c, &args, &fault);
    if (e == SM_OK)
        e = sm_upstream_make(&run->arena, c, args, &run->up, &fault);
    if (e == SM_OK)
        e = gw_trace_send(&run->trace, &run->arena, &run->up);
    run->until_ns = sm_clock_deadline_ns(what->window_left_ms);
    return e == SM_OK ? SM_NEXT_SEND : complain(run, attempt, fault.text, a);
}

/* ---- probing ---------------------------------------------------------------------------------*/

static sm_next make_probe(gw_run *run, const sm_remedy *what, semel_answer *a)
{
    sm_fault fault = {0};
    gw_probing *p = &run->probing;
    const sm_contract *c, *other = NULL;
    const sm_json *args, *given = NULL;
    uint64_t attempt = run->at.number = what->attempt;
    p->contracts = sm_contracts_keep(run->g->ledger, a);
    sm_err e = find_contract(run, what, p->contracts, &c, &args, &fault);
    if (e == SM_OK) {
        other = sm_contracts_find(p->contracts, c->probe.tool);
        if (other == NULL || other->class != SM_CLASS_READ ||
            other->origin[SM_F_UPSTREAM].given == NULL)
            e = sm_fault_set(&fault, SEMEL_E_INVALID,
                             "the probe %.*s is no tool of class read with an upstream",
                             SM_FMT(c->probe.tool));
    }
    if (e == SM_OK)
        e = sm_probe_args(&run->arena, &c->probe, args, &given, &fault);
    if (e == SM_OK)
        e = sm_upstream_make(&run->arena, other, given, &p->up, &fault);
    if (e != SM_OK)
        return complain(run, attempt, fault.text, a);
    p->least_ms = what->doubt_age_ms / 2; /* however many attempts there were */
    p->rules = &c->probe;
    p->tries = 1;
    return SM_NEXT_PROBE;
}

/* What the probe's answer means. */
static void judge_found(gw_run *run, const sm_http_result *res)
{
    gw_probing *p = &run->probing;
    p->no_idea = !res->complete || res->status >= 500 || res->status == 408 || res->status == 425 ||
                 res->status == 429;
    p->found = SM_FOUND_UNKNOWN;
    p->outcome = (semel_outcome){.size = sizeof p->outcome, .kind = SEMEL_SUCCESS};
    bool found = res->status / 100 == 2, gone = res->status == 404 || res->status == 410;
    const sm_json *body = NULL;
    if (p->no_idea || res->cut || (!found && !gone) ||
        sm_json_read(&run->arena, res->body, &sm_json_default_limits, &body, NULL) != SM_OK)
        return;
    p->found = sm_probe_judge(&run->arena, p->rules, body, gone, &p->outcome.value);
    if (p->found == SM_FOUND_APPLIED)
        p->outcome.status = 200;
}

static void on_probed(void *context, const sm_http_result *res);

static bool send_probe(gw_run *run, int64_t pause_ms)
{
    sm_http_callbacks callbacks = {.done = on_probed, .context = run};
    return sm_http_send(run->g->http, &run->probing.up.request, pause_ms, &callbacks, NULL) ==
           SM_OK;
}

static void on_probed(void *context, const sm_http_result *res)
{
    gw_run *run = context;
    gw_probing *p = &run->probing;
    judge_found(run, res);
    if (p->no_idea && p->tries < p->up.retry.attempts && !atomic_load(&run->g->draining)) {
        int64_t pause =
            sm_upstream_pause(&p->up.retry, p->tries++, 0, (uint64_t)sm_clock_mono_ns());
        if (send_probe(run, pause))
            return;
    }
    sm_attempt_probed(&run->at);
}

static void probe(sm_attempt *at)
{
    gw_run *run = gw_run_of(at);
    run->probing.no_idea = true;
    if (!send_probe(run, 0))
        sm_attempt_probed(at);
}

static sm_next found(sm_attempt *at, sm_found_kind *kind, semel_outcome *outcome, bool *write,
                     semel_answer *a)
{
    gw_run *run = gw_run_of(at);
    const gw_probing *p = &run->probing;
    *write = !p->no_idea;
    *kind = p->found;
    *outcome = p->outcome;
    if (p->no_idea)
        gw_remedy_later(run->g, &at->effect, at->number, p->least_ms, a);
    return SM_NEXT_STOP;
}

/* ---- for the machine -------------------------------------------------------------------------*/

static sm_next step(sm_attempt *at, const sm_remedy *what, semel_answer *a)
{
    gw_run *run = gw_run_of(at);
    /* The texts of `what` are the answer's: copied before the answer is used again. */
    if (!what->upstream || atomic_load(&run->g->draining))
        return SM_NEXT_STOP;
    if (what->state == SEMEL_S_READY || what->step == SM_DOUBT_RERUN)
        return call_again(run, what, a);
    if (what->state != SEMEL_S_IN_DOUBT)
        return SM_NEXT_STOP;
    return what->step == SM_DOUBT_RESEND  ? send_again(run, what, a)
           : what->step == SM_DOUBT_PROBE ? make_probe(run, what, a)
                                          : SM_NEXT_STOP;
}

static int64_t until(sm_attempt *at, const semel_answer *a)
{
    (void)at;
    (void)a;
    return 0; /* nobody waits for it */
}

static void stays(sm_attempt *at, semel_answer *a)
{
    (void)a;
    sm_attempt_end(at);
}

static void end(sm_attempt *at)
{
    gw_run *run = gw_run_of(at);
    gw_runs *s = run->g->runs;
    pthread_mutex_lock(&s->serve.lock);
    s->remedies--;
    pthread_mutex_unlock(&s->serve.lock);
    gw_run_free(run);
}

static const sm_attempt_ops tending = {
    GW_RUN_EXECUTES, .until = until, .end = end,     .step = step,
    .probe = probe,  .found = found, .stays = stays,
};

void gw_on_due(void *context, const sm_handle *effect)
{
    gateway *g = context;
    gw_runs *s = g->runs;
    pthread_mutex_lock(&s->serve.lock);
    bool room = !s->serve.stop && !s->serve.draining && s->remedies < REMEDIES_MAX &&
                s->in_flight.taken < (size_t)g->config->limits.in_flight;
    s->remedies += room;
    pthread_mutex_unlock(&s->serve.lock);
    gw_run *run = room ? gw_run_new(g, NULL) : NULL;
    if (run != NULL) {
        run->ops = &ops;
        run->at.ops = &tending;
        run->at.effect = *effect;
        sm_attempt_start_looking(&run->at);
    } else if (room) {
        pthread_mutex_lock(&s->serve.lock);
        s->remedies--;
        pthread_mutex_unlock(&s->serve.lock);
    }
}
