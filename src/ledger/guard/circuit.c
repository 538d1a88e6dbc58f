/* Circuits: asked before an attempt begins, told how it ended. */
#include "ledger/guard/circuit.h"

#include <sys/random.h>

#include "base/duration.h"
#include "core/call.h"
#include "core/glob.h"
#include "ledger/guard/board.h"
#include "ledger/guard/shared.h"

#define KEPT_MS      ((int64_t)30 * 24 * 3600 * 1000) /* after its last change */
#define PROBE_MIN_MS 5000 /* however short its lease is: it has yet to be written */
#define AGAIN_MS     1000 /* when to come back while a probe runs */

/* One change of a circuit. Its own workspace, because the caller's is about an effect. */
typedef struct change {
    semel *s;
    semel_answer *a, *other; /* the second to look at probes; NULL until then */
    sm_circuit_name of;
    const sm_breaker_rule *rule;
    sm_breaker b;
    int64_t now;
    /* what for */
    sm_circuit_probe call; /* begin */
    bool allowed;          /* begin: after */
    sm_handle attempt;     /* end */
    sm_health health;      /* end */
    sm_str actor, reason;  /* close */
} change;

static sm_circuit_name name_of(sm_str scope, sm_str tool, sm_str origin)
{
    return (sm_circuit_name){.tool = tool,
                             .upstream = origin,
                             .tenant = origin.n > 0 ? (sm_str){0} : sm_scope_leading(scope, 1)};
}

static bool start(change *c, semel *s, const sm_circuit_name *of, const sm_breaker_rule *rule)
{
    c->s = s;
    c->of = *of;
    c->rule = rule;
    c->a = semel_answer_new();
    return c->a != NULL;
}

static void finish(change *c)
{
    semel_answer_free(c->a);
    semel_answer_free(c->other);
}

/* ---- the document ----------------------------------------------------------------------------*/

static sm_err read_circuit(change *c, sm_work *w, sm_shared *doc)
{
    int64_t longest =
        c->rule->window_ms > c->rule->cooldown_ms ? c->rule->window_ms : c->rule->cooldown_ms;
    /* No two circuits have the same: an origin has no space, and a tenant no slash. */
    bool sited = c->of.upstream.n > 0;
    sm_str name =
        sited ? sm_arena_printf(&w->call, "%.*s %.*s", SM_FMT(c->of.tool), SM_FMT(c->of.upstream))
              : sm_arena_printf(&w->call, "%.*s/%.*s", SM_FMT(c->of.tenant), SM_FMT(c->of.tool));
    sm_str text;
    if (name.p == NULL)
        return SEMEL_E_NOMEM;
    *doc = (sm_shared){.kind = sited ? "/breaker" : "/breaker/tenant",
                       .of = name,
                       .keep_ms = sm_time_after(KEPT_MS, longest)};
    sm_err e = sm_shared_read(c->s, w, doc, &text);
    c->now = w->now;
    if (e == SM_OK && !sm_breaker_read(&w->call, text, &c->b))
        e = sm_fault_set(&w->fault, SEMEL_E_CORRUPT,
                         "the ledger is damaged: a circuit cannot be read; run `semel audit "
                         "verify`");
    return e;
}

static void put_body(const change *c, sm_work *w)
{
    sm_body_start(w);
    sm_body_text(w, "tool", c->of.tool);
    sm_body_text(w, "upstream", c->of.upstream);
    sm_body_text(w, "tenant", c->of.tenant);
    sm_body_text(w, "circuit", sm_str_from(sm_circuit_state_name(c->b.state)));
    sm_body_number(w, "failures", c->b.failures);
    if (c->b.state == SM_CIRCUIT_OPEN)
        sm_body_number(w, "cooldown_ms", (uint64_t)c->rule->cooldown_ms);
    sm_body_text(w, "reason", c->reason);
}

typedef sm_circuit_change step_fn(change *c);

/* One try. */
static sm_err change_once(change *c, step_fn *step, sm_circuit_change *what)
{
    static const sm_history notes[] = {
        [SM_CIRCUIT_FAILING] = SM_N_FAILING, [SM_CIRCUIT_RECOVERED] = SM_N_RECOVERED,
        [SM_CIRCUIT_OPENED] = SM_N_OPENED,   [SM_CIRCUIT_HALVED] = SM_N_HALF_OPENED,
        [SM_CIRCUIT_PROBING] = SM_N_PROBING, [SM_CIRCUIT_SHUT] = SM_N_CLOSED,
    };
    sm_work *w = sm_work_start(c->a);
    sm_shared doc;
    sm_err e = read_circuit(c, w, &doc);
    if (e != SM_OK)
        return e;
    *what = step(c);
    if (*what == SM_CIRCUIT_SAME)
        return SM_OK;
    sm_buf_clear(&w->json);
    sm_breaker_put(&c->b, &w->json);
    if (w->json.err != SM_OK)
        return w->json.err;
    put_body(c, w);
    return sm_shared_write(c->s, w, &doc, sm_buf_view(&w->json), notes[*what], c->actor);
}

/* ---- the board -------------------------------------------------------------------------------*/

/* What the board is to say. */
static sm_circuit notice_of(const change *c)
{
    const sm_breaker *b = &c->b;
    sm_circuit n = {.of = c->of, .state = b->state, .since = b->since, .failures = b->failures};
    if (b->state == SM_CIRCUIT_CLOSED && c->rule->window_ms > 0)
        n.failures = 0; /* nobody has to tell of a call that ends well */
    if (b->state == SM_CIRCUIT_CLOSED && b->failures > 0)
        n.since = b->at[b->failures - 1];
    if (b->state == SM_CIRCUIT_OPEN)
        n.until = sm_time_after(b->since, c->rule->cooldown_ms);
    return n;
}

static sm_err truth(void *context, sm_circuit *out)
{
    change *c = context;
    sm_shared doc;
    sm_err e = read_circuit(c, sm_work_start(c->a), &doc);
    *out = notice_of(c);
    return e;
}

/* Changes a circuit, and makes the board say so. */
static sm_err apply(change *c, step_fn *step, sm_circuit_change *what)
{
    sm_err e = SEMEL_E_STALE;
    for (int races = 0; e == SEMEL_E_STALE && races < SM_RACES_MAX; races++)
        e = change_once(c, step, what);
    if (e != SM_OK)
        return e;
    sm_circuit now = notice_of(c);
    if (!sm_board_agrees(c->s, &now))
        sm_board_post(c->s, truth, c, NULL); /* the next one tries again */
    return SM_OK;
}

/* ---- before an attempt -----------------------------------------------------------------------*/

/* Until when the lease of a probe lasts; 0 if it does not run any more. */
static int64_t lease_of(change *c, const sm_handle *attempt)
{
    if (c->other == NULL)
        c->other = semel_answer_new();
    if (c->other == NULL)
        return c->now + AGAIN_MS;
    sm_work *w = sm_work_start(c->other);
    sm_err e = sm_load_handle(c->s, w, attempt, true);
    if (e != SM_OK)
        return e == SEMEL_E_NOT_FOUND ? 0 : c->now + AGAIN_MS;
    const sm_effect *f = &w->memo.effect;
    bool runs = w->cur.generation == attempt->generation && f->fence == attempt->fence &&
                f->state == SEMEL_S_RUNNING && f->lease_end > c->now;
    return runs ? f->lease_end : 0;
}

/* Probes that were not heard of for long: those whose process died are given up, and those that
 * have had their time. */
static bool settle_probes(change *c)
{
    bool changed = false;
    for (uint32_t i = 0; i < c->b.probing;) {
        sm_circuit_probe *p = &c->b.probes[i];
        if (p->until > c->now) {
            i++;
            continue;
        }
        changed = true;
        int64_t lease = p->last > c->now ? lease_of(c, &p->attempt) : 0;
        p->until = lease < p->last ? lease : p->last;
        if (lease == 0)
            sm_breaker_give_up(&c->b, i);
    }
    return changed;
}

static sm_circuit_change begin_step(change *c)
{
    sm_circuit_change what;
    bool settled = settle_probes(c);
    c->allowed = sm_breaker_begin(&c->b, c->rule, &c->call, c->now, &what);
    return what == SM_CIRCUIT_SAME && settled ? SM_CIRCUIT_PROBING : what;
}

static sm_err attempt_of(const sm_begun *b, sm_handle *out)
{
    sm_work *w = b->w;
    *out = (sm_handle){.generation = w->step.next.generation, .fence = w->step.next.fence};
    sm_err e = sm_effect_id(&w->keyer.digest, &b->id.key.hash, &out->id);
    return e == SM_OK ? sm_scope_shard(&w->keyer.digest, b->call.scope, &out->shard) : e;
}

static sm_circuit_name name_for(const sm_begun *b)
{
    return name_of(b->call.scope, b->call.tool, sm_contract_origin(b->id.contract));
}

static bool start_for(change *c, const sm_begun *b)
{
    sm_circuit_name of = name_for(b);
    return start(c, b->s, &of, &b->id.contract->breaker);
}

/* Asks the ledger for a place as a probe. */
static sm_err ask(sm_begun *b, sm_circuit *now, bool *allowed)
{
    change c = {0};
    sm_circuit_change what = SM_CIRCUIT_SAME;
    sm_err e = attempt_of(b, &c.call.attempt);
    while (b->turn == 0 && e == SM_OK) {
        if (getrandom(&b->turn, sizeof b->turn, 0) != sizeof b->turn)
            e = SEMEL_E_CRYPTO;
        b->turn >>= 1; /* a number that JSON keeps */
    }
    c.call.turn = b->turn;
    if (e == SM_OK && !start_for(&c, b))
        e = SEMEL_E_NOMEM;
    if (e != SM_OK)
        return e;
    int64_t lease = b->lease_ms > PROBE_MIN_MS ? b->lease_ms : PROBE_MIN_MS;
    int64_t cooldown = b->id.contract->breaker.cooldown_ms, now_ms = sm_now(b->s);
    c.call.until = sm_time_after(now_ms, lease);
    c.call.last = sm_time_after(now_ms, lease > cooldown ? lease : cooldown);
    e = apply(&c, begin_step, &what);
    if (e != SM_OK)
        b->w->fault = sm_work_of(c.a)->fault;
    *allowed = e == SM_OK && c.allowed;
    *now = notice_of(&c);
    b->probes = b->probes || (*allowed && c.b.state == SM_CIRCUIT_HALF_OPEN);
    finish(&c);
    return e;
}

static void explain(sm_begun *b, const sm_circuit *c, int64_t now)
{
    sm_work *w = b->w;
    semel_answer *a = b->a;
    const sm_breaker_rule *r = &b->id.contract->breaker;
    sm_str upstream = name_for(b).upstream;
    sm_str tool = upstream.n == 0 ? b->call.tool
                                  : sm_arena_printf(&w->call, "%.*s at %.*s", SM_FMT(b->call.tool),
                                                    SM_FMT(upstream));
    char time[SM_DURATION_TEXT];
    if (c->state == SM_CIRCUIT_HALF_OPEN) {
        a->retry_after_ms = AGAIN_MS;
        a->message = sm_arena_printf(&w->call,
                                     "%.*s failed, and another call finds out whether it works "
                                     "again. Nothing has been done.",
                                     SM_FMT(tool));
    } else {
        sm_duration_text(r->window_ms, time);
        a->retry_after_ms = c->until > now ? c->until - now : 1;
        a->message =
            r->window_ms > 0
                ? sm_arena_printf(&w->call,
                                  "%.*s is not called for now: %u calls failed within %s. Nothing "
                                  "has been done.",
                                  SM_FMT(tool), c->failures, time)
                : sm_arena_printf(&w->call,
                                  "%.*s is not called for now: its last %u call%s failed. Nothing "
                                  "has been done.",
                                  SM_FMT(tool), c->failures, c->failures == 1 ? "" : "s");
    }
    sm_duration_text((a->retry_after_ms + 999) / 1000 * 1000, time);
    a->corrective_action =
        sm_arena_printf(&w->call,
                        "Make the same call again in %s, and not before. Do something else until "
                        "then, or tell the user that %.*s is not available.",
                        time, SM_FMT(b->call.tool));
}

sm_err sm_circuit_begin(sm_begun *b, semel_code *code)
{
    const sm_contract *contract = b->id.contract;
    const sm_move *step = &b->w->step;
    sm_circuit_name of = name_for(b);
    sm_circuit c;
    if (!contract->breaker.on || step->answer != SM_EXECUTE || step->unclaimed ||
        !sm_board_find_circuit(b->s, &of, &c) || c.state == SM_CIRCUIT_CLOSED)
        return SM_OK;
    int64_t now = sm_now(b->s), left = c.until - now;
    bool allowed = false;
    /* More than a cooldown: the clock was set back. Whether a probe may run, only the document
     * says: places are taken and given back faster than boards are read. */
    bool known = c.state == SM_CIRCUIT_OPEN && left > 0 && left <= contract->breaker.cooldown_ms;
    bool own = b->asking != NULL && b->asking->upstream;
    if (!known && of.upstream.n > 0 && !own)
        return SM_OK; /* how it ends will say nothing: it is no probe */
    sm_err e = known && !b->probes ? SM_OK : ask(b, &c, &allowed);
    if (e != SM_OK || allowed)
        return e;
    if (contract->mode == SM_MODE_OBSERVE) {
        b->w->step.observed = SEMEL_C_CIRCUIT_OPEN;
        return SM_OK;
    }
    *code = SEMEL_C_CIRCUIT_OPEN;
    explain(b, &c, now);
    return SM_OK;
}

/* ---- after it --------------------------------------------------------------------------------*/

static sm_circuit_change end_step(change *c)
{
    return sm_breaker_end(&c->b, c->rule, &c->attempt, c->health, c->now);
}

static sm_circuit_change leave_step(change *c)
{
    return sm_breaker_leave(&c->b, c->call.turn);
}

void sm_circuit_unbegin(sm_begun *b)
{
    change c = {.call.turn = b->turn};
    sm_circuit_change what;
    b->probes = false;
    if (start_for(&c, b))
        apply(&c, leave_step, &what);
    finish(&c);
}

/* Whether the end of an attempt may change its circuit, by what the board says. */
static bool matters(semel *s, const sm_circuit_name *of, sm_health health)
{
    sm_circuit c;
    if (!sm_board_find_circuit(s, of, &c))
        return health == SM_HEALTH_FAILED;
    if (c.state == SM_CIRCUIT_CLOSED)
        return health == SM_HEALTH_FAILED || health == SM_HEALTH_WELL;
    return c.state == SM_CIRCUIT_HALF_OPEN || c.until <= sm_now(s);
}

/* The origin that the contract of an effect names. */
static sm_str origin_of(semel *s, sm_work *w)
{
    const sm_contract *contract = sm_contracts_find(sm_contracts_of(s, w), w->cur.tool);
    uint32_t variant = w->memo.terms.variant;
    if (contract != NULL && variant > 0 && variant <= contract->variant_count)
        contract = &contract->variants[variant - 1].contract;
    return contract != NULL ? sm_contract_origin(contract) : (sm_str){0};
}

void sm_circuit_ended(semel *s, sm_work *w, const sm_handle *claim, sm_health health)
{
    const sm_terms *terms = &w->memo.terms;
    /* What others say of an upstream does not count: it would for all tenants. */
    if (!terms->breaker.on || (terms->sited && !terms->upstream))
        return;
    sm_str upstream = terms->sited ? origin_of(s, w) : (sm_str){0};
    sm_circuit_name of = name_of(w->cur.scope, w->cur.tool, upstream);
    if ((terms->sited && upstream.n == 0) || !matters(s, &of, health))
        return;
    change c = {.attempt = *claim, .health = health};
    sm_circuit_change what;
    if (start(&c, s, &of, &terms->breaker))
        apply(&c, end_step, &what);
    finish(&c);
}

/* ---- people ----------------------------------------------------------------------------------*/

static sm_circuit_change close_step(change *c)
{
    return sm_breaker_close(&c->b);
}

sm_err sm_circuit_close(semel *s, sm_str pattern, sm_str actor, sm_str reason, bool *changed,
                        semel_fault *fault)
{
    static const sm_breaker_rule any = {.on = true};
    const sm_circuit *list;
    uint32_t n;
    sm_arena arena;
    sm_arena_init(&arena, SM_ARENA_MAX);
    sm_err e = sm_board_circuits(s, &arena, &list, &n, fault);
    for (uint32_t i = 0; i < n && e == SM_OK; i++) {
        if (!sm_glob_matches(pattern, list[i].of.tool))
            continue;
        change c = {.s = s,
                    .a = semel_answer_new(),
                    .of = list[i].of,
                    .rule = &any,
                    .actor = actor,
                    .reason = reason};
        sm_circuit_change what = SM_CIRCUIT_SAME;
        e = c.a == NULL ? SEMEL_E_NOMEM : apply(&c, close_step, &what);
        if (e != SM_OK)
            sm_fault_set(fault, e, "%s",
                         c.a == NULL ? "out of memory" : sm_work_of(c.a)->fault.text);
        *changed = *changed || what == SM_CIRCUIT_SHUT;
        finish(&c);
    }
    sm_arena_fini(&arena);
    return e;
}

semel_err semel_circuits(semel *s, semel_circuit_fn *sink, void *context, semel_fault *fault)
{
    const sm_circuit *list;
    uint32_t n;
    sm_arena arena;
    sm_arena_init(&arena, SM_ARENA_MAX);
    sm_err e = sm_board_circuits(s, &arena, &list, &n, fault);
    int64_t now = sm_now(s);
    for (uint32_t i = 0; i < n && e == SM_OK; i++) {
        const sm_circuit *c = &list[i];
        bool open = c->state == SM_CIRCUIT_OPEN;
        semel_circuit shown = {.tool = c->of.tool,
                               .upstream = c->of.upstream,
                               .tenant = c->of.tenant,
                               .half_open = !open,
                               .failures = c->failures,
                               .since = c->since,
                               .retry_after_ms = open && c->until > now ? c->until - now : 0};
        if (!sink(context, &shown))
            break;
    }
    sm_arena_fini(&arena);
    return e;
}
