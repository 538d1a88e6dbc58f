/* What guards find, in words; and where they come in the order of steps. */
#include "ledger/guard/guard.h"

#include "core/undo.h"
#include "json/canon.h"
#include "json/pointer.h"
#include "ledger/guard/board.h"
#include "ledger/guard/circuit.h"
#include "ledger/guard/runs.h"

/* ---- what a call and its result are, for a loop ----------------------------------------------*/

/* Whether the key is made of the arguments: then it tells what is called. Other keys may differ
 * although the same is called, and the arguments tell. */
static bool key_tells(sm_strategy strategy, sm_str caller, sm_str step)
{
    return (strategy == SM_KEY_HASH || strategy == SM_KEY_FIELDS) && caller.p == NULL &&
           step.p == NULL;
}

static bool observes(const sm_contract *c)
{
    return c->loop.mode == SM_MODE_OBSERVE || c->mode == SM_MODE_OBSERVE;
}

static sm_err call_of(sm_begun *b, sm_loop_call *out)
{
    sm_work *w = b->w;
    *out = (sm_loop_call){.scope = b->call.scope,
                          .now = w->now,
                          .rule = &b->id.contract->loop,
                          .passes = b->id.strategy == SM_KEY_NONE,
                          .observes = observes(b->id.contract),
                          .memory = b->memory};
    if (key_tells(b->id.strategy, b->call.key, b->call.step)) {
        out->call = sm_loop_number(&b->id.key.hash);
        return SM_OK;
    }
    sm_fingerprint print;
    sm_err e = sm_fingerprint_make(&w->keyer, b->call.tool, b->id.filled, b->call.args_text, &print,
                                   &w->fault);
    out->call = sm_loop_number(&print.hash);
    return e;
}

/* What a call returned, without the parts that do not count. 0 if it cannot be told. */
static uint64_t returned(sm_work *w, const semel_outcome *o, const sm_loop_rule *rule)
{
    sm_hash h;
    sm_buf_clear(&w->scratch);
    sm_buf_printf(&w->scratch, "%d %d ", (int)o->kind, o->status);
    const sm_json *value, *stable;
    if (o->is_json && rule->places != NULL &&
        sm_json_read(&w->call, o->value, &sm_json_args_limits, &value, NULL) == SM_OK &&
        sm_json_drop(&w->call, value, rule->places, &stable) == SM_OK)
        sm_json_canon(stable, &w->scratch, (sm_str){0}, NULL);
    else
        sm_buf_str(&w->scratch, o->value);
    return w->scratch.err == SM_OK &&
                   sm_digest_bytes(&w->keyer.digest, w->scratch.p, w->scratch.len, &h) == SM_OK
               ? sm_loop_number(&h)
               : 0;
}

/* The record's digest tells the same, unless it covers parts that do not count. */
static uint64_t result_of(sm_work *w, const semel_outcome *o, const sm_loop_rule *rule)
{
    uint64_t r = o->headers.p == NULL && rule->places == NULL ? 0 : returned(w, o, rule);
    return r == 0 ? sm_loop_number(&w->memo.outcome) : r;
}

/* Whether a call counts. Those do not that have waited for something, look after what is left over,
 * or are a person's. */
static bool counts(const sm_begun *b)
{
    const sm_asking *q = b->asking;
    return b->id.contract->loop.on && b->joined_generation == 0 && !sm_begun_undoes(b) &&
           (q == NULL || (!q->ran && !q->quiet));
}

/* ---- words -----------------------------------------------------------------------------------*/

#define ADVICE      "Use the result you have, change the arguments, or stop."
#define TRIP_ADVICE "Stop. Tell the user what you tried. A person can reopen the run."

/* `times`: how often the calls were made. `more`: what follows, with a space before it. */
static sm_str words_of(sm_work *w, const sm_loop_match *m, uint32_t times, const char *more)
{
    bool known = m->result != 0;
    switch (m->detector) {
    case SM_LOOP_REPEAT:
        return sm_arena_printf(&w->call,
                               known ? "The same call returned the same result %u times.%s"
                                     : "The same call was made %u times in a row.%s",
                               times, more);
    case SM_LOOP_CYCLE:
        return sm_arena_printf(&w->call,
                               known ? "The same %u calls returned the same results %u times.%s"
                                     : "The same %u calls were made in turn %u times.%s",
                               m->period, times, more);
    default:
        return sm_arena_printf(&w->call,
                               known ? "This call returned the same result %u times, and nothing "
                                       "new was done in between.%s"
                                     : "This call was made %u times, and nothing new was done in "
                                       "between.%s",
                               times, more);
    }
}

static void name_match(semel_answer *a, const sm_loop_match *m)
{
    a->detector = sm_str_from(sm_loop_name(m->detector));
    a->period = m->period;
    a->count = m->count;
}

static void warn(sm_work *w, semel_answer *a, const sm_loop_match *m)
{
    a->warning = words_of(w, m, m->count, " " ADVICE);
    name_match(a, m);
}

/* A call that is blocked before it runs has returned one time less than it was made. */
static void explain_block(sm_begun *b, const sm_loop_match *m, bool ran, bool tripped)
{
    name_match(b->a, m);
    b->a->message = words_of(b->w, m, ran ? m->count : m->count - 1,
                             tripped ? " The run is stopped now: it can write nothing more until a "
                                       "person reopens it."
                                     : "");
    b->a->corrective_action = tripped ? SM_STR(TRIP_ADVICE) : SM_STR(ADVICE);
}

static void explain_trip(sm_work *w, semel_answer *a, const sm_loop_match *m)
{
    name_match(a, m);
    a->message = sm_arena_printf(&w->call,
                                 "This run was stopped because it made the same call%s %u "
                                 "times. It can write nothing more until a person reopens it.",
                                 m->detector == SM_LOOP_CYCLE ? "s in turn" : "", m->count);
    a->corrective_action = SM_STR(TRIP_ADVICE);
}

static void explain_stop(sm_work *w, semel_answer *a, const sm_halt *h)
{
    static const char *const what[] = {"All writes were", "Writes of this scope were",
                                       "Writes of this tool were", ""};
    a->message =
        sm_arena_printf(&w->call, "%s stopped by %.*s%s%.*s. Nothing has been done.", what[h->kind],
                        SM_FMT(h->by), h->reason.n > 0 ? ": " : "", SM_FMT(h->reason));
}

static void explain_halt(sm_work *w, semel_answer *a, const sm_halt *h, semel_code *code)
{
    *code = h->kind == SM_HALT_LOOP ? SEMEL_C_LOOP_DETECTED : SEMEL_C_STOPPED;
    if (h->kind == SM_HALT_LOOP)
        explain_trip(w, a, &h->match);
    else
        explain_stop(w, a, h);
}

/* ---- what is stopped -------------------------------------------------------------------------*/

static sm_err ask_board(sm_begun *b, semel_code *code)
{
    sm_halt h;
    bool stopped;
    sm_err e =
        sm_board_ask(b->s, &b->w->call, b->call.scope, b->call.tool, &h, &stopped, &b->w->fault);
    if (e == SM_OK && stopped && sm_begun_undoes(b) && h.kind != SM_HALT_TOOL) {
        /* What was stopped must be undoable. Whoever stops the undo's own tool means that. */
        b->despite = sm_halt_name(h.kind);
        e = sm_board_ask(b->s, &b->w->call, (sm_str){0}, b->call.tool, &h, &stopped, &b->w->fault);
    }
    if (e == SM_OK && stopped)
        explain_halt(b->w, b->a, &h, code);
    if (e == SM_OK && stopped && h.kind == SM_HALT_LOOP)
        sm_runs_tripped(b->s, b->call.scope);
    return e;
}

/* An undo goes on, as above. A circuit need not hold anything back here: it settles what was begun,
 * or was asked before it. */
sm_err sm_guard_stopped(semel *s, sm_work *w, semel_answer *a, semel_code *code)
{
    sm_halt halt;
    sm_handle undone;
    bool stopped, undoes = sm_undo_key_parse(w->cur.caller, &undone);
    *code = SEMEL_C_NONE;
    sm_err e = sm_board_ask(s, &w->call, undoes ? (sm_str){0} : w->cur.scope, w->cur.tool, &halt,
                            &stopped, &w->fault);
    if (e == SM_OK && stopped)
        explain_halt(w, a, &halt, code);
    return e;
}

/* ---- loops -----------------------------------------------------------------------------------*/

/* The run is over, which is written down, so that every process knows. If there is no room for it,
 * the call is blocked and the run goes on. */
static bool trip(sm_begun *b, const sm_loop_match *m)
{
    bool changed;
    semel_fault fault;
    sm_halt h = {.kind = SM_HALT_LOOP, .name = b->call.scope, .match = *m};
    if (sm_board_halt(b->s, &h, (sm_str){0}, &changed, &fault) != SM_OK)
        return false;
    sm_runs_tripped(b->s, b->call.scope);
    return true;
}

/* What to do about a finding. `ran`: the call has its result already. */
static void judge(sm_begun *b, const sm_loop_finding *f, bool ran, semel_code *code)
{
    if (f->level == SM_LOOP_FINE)
        return;
    if (observes(b->id.contract)) {
        bool record = b->w->cur.version != 0;
        if (f->level != SM_LOOP_WARN && !ran)
            b->w->step.observed = SEMEL_C_LOOP_DETECTED;
        sm_journal_add(&b->s->journal, SM_JOT_OBSERVED, SEMEL_C_LOOP_DETECTED,
                       record ? b->w->cur.id : 0, record ? b->w->cur.generation : 0, sm_now(b->s),
                       b->call.scope, b->call.tool);
        return;
    }
    if (f->level == SM_LOOP_WARN) {
        warn(b->w, b->a, &f->match);
        return;
    }
    *code = SEMEL_C_LOOP_DETECTED;
    if (f->level == SM_LOOP_TRIPPED) {
        sm_halt h = {0};
        sm_board_loop(b->s, b->call.scope, &h);
        explain_trip(b->w, b->a, &h.match);
        return;
    }
    explain_block(b, &f->match, ran, f->level == SM_LOOP_TRIP && trip(b, &f->match));
}

/* Asks the ledger what it knows of the run, as often as that is worth it. */
static sm_loop_finding look(sm_begun *b, const sm_loop_call *c,
                            sm_loop_finding (*ask)(semel *, const sm_loop_call *, uint64_t),
                            uint64_t result)
{
    sm_loop_finding f = ask(b->s, c, result);
    for (int tries = 0; f.level >= SM_LOOP_LOAD && !c->memory && tries < 3; tries++) {
        sm_runs_share(b->s, c->scope, f.level == SM_LOOP_SHARE);
        f = ask(b->s, c, result);
    }
    if (f.level >= SM_LOOP_LOAD && !c->memory)
        f.level = SM_LOOP_FINE;
    return f;
}

bool sm_guard_replay(sm_begun *b, semel_code *code)
{
    sm_loop_call c;
    *code = SEMEL_C_NONE;
    if (!counts(b) || call_of(b, &c) != SM_OK)
        return true;
    sm_loop_finding f = look(b, &c, sm_runs_replay, result_of(b->w, &b->a->outcome, c.rule));
    if (f.level >= SM_LOOP_LOAD)
        return false;
    judge(b, &f, true, code);
    return true;
}

static sm_err ask_run(sm_begun *b, semel_code *code)
{
    /* What was never called before repeats nothing. */
    bool new = b->w->cur.version == 0 && key_tells(b->id.strategy, b->call.key, b->call.step);
    sm_loop_call c;
    if (new || !counts(b))
        return SM_OK;
    sm_err e = call_of(b, &c);
    if (e != SM_OK)
        return e;
    c.looks = !c.observes && b->unread;
    sm_loop_finding f = look(b, &c, sm_runs_before, 0);
    if (c.looks && f.level != SM_LOOP_FINE)
        *code = SEMEL_C_LOOP_DETECTED;
    else
        judge(b, &f, false, code);
    return SM_OK;
}

sm_err sm_guard_start(sm_begun *b, semel_code *code)
{
    *code = SEMEL_C_NONE;
    sm_err e = ask_board(b, code);
    if (e == SM_OK && *code == SEMEL_C_NONE)
        e = ask_run(b, code);
    if (e == SM_OK && *code == SEMEL_C_NONE)
        e = sm_circuit_begin(b, code);
    return e;
}

void sm_guard_unstart(sm_begun *b)
{
    if (b->probes)
        sm_circuit_unbegin(b);
}

sm_err sm_guard_pass(sm_begun *b, semel_code *code)
{
    sm_loop_call c;
    *code = SEMEL_C_NONE;
    if (b->id.contract->class != SM_CLASS_READ) {
        sm_err e = ask_board(b, code);
        if (e != SM_OK || *code != SEMEL_C_NONE)
            return e;
    }
    if (!counts(b) || call_of(b, &c) != SM_OK)
        return SM_OK;
    c.now = sm_now(b->s); /* the ledger was not asked */
    bool tells = b->asking != NULL && b->asking->tells;
    sm_loop_finding f = tells ? sm_runs_before(b->s, &c, 0) : sm_runs_replay(b->s, &c, 0);
    judge(b, &f, false, code);
    if (tells && *code == SEMEL_C_NONE)
        b->asking->passed = c.call;
    return SM_OK;
}

uint64_t sm_guard_passing(sm_begun *b)
{
    sm_loop_call c;
    b->id.strategy = SM_KEY_NONE;
    return counts(b) && call_of(b, &c) == SM_OK ? c.call : 0;
}

void sm_pass_ended(semel *s, const sm_passed *p, const semel_outcome *o, semel_answer *a)
{
    sm_work *w = sm_work_start(a);
    const sm_contract *contract = sm_contracts_find(sm_contracts_of(s, w), p->tool);
    if (p->call == 0 || contract == NULL || !contract->loop.on)
        return;
    sm_loop_call c = {
        .scope = p->scope, .call = p->call, .rule = &contract->loop, .now = sm_now(s)};
    sm_loop_finding f = sm_runs_after(s, &c, returned(w, o, c.rule), false);
    if (f.level == SM_LOOP_WARN && !observes(contract))
        warn(w, a, &f.match);
}

static void end_run(semel *s, sm_work *w, semel_answer *a)
{
    const sm_contract *contract = sm_contracts_find(sm_contracts_of(s, w), w->cur.tool);
    if (!a->has_outcome || contract == NULL || !contract->loop.on)
        return;
    bool tells = key_tells(contract->key.strategy, w->cur.caller, w->cur.step);
    sm_loop_call c = {.scope = w->cur.scope,
                      .call = sm_loop_number(tells ? &w->cur.key : &w->cur.fingerprint),
                      .rule = &contract->loop,
                      .now = w->now,
                      .repeats = !tells || w->memo.effect.attempt > 1};
    bool progress = sm_effect_applied(&w->memo.effect);
    if (c.repeats)
        sm_runs_load(s, &c);
    sm_loop_finding f = sm_runs_after(s, &c, result_of(w, &a->outcome, c.rule), progress);
    if (f.level == SM_LOOP_WARN && !observes(contract))
        warn(w, a, &f.match);
}

void sm_guard_ended(semel *s, sm_work *w, const sm_handle *claim, sm_health health, semel_answer *a)
{
    sm_circuit_ended(s, w, claim, health);
    end_run(s, w, a);
}

void sm_guard_given_back(semel *s, sm_work *w, const sm_handle *claim, sm_health health)
{
    sm_circuit_ended(s, w, claim, health);
}
