/*
 * One walk over the fields serves both directions, so that writing and reading cannot disagree.
 * Numbers are base-128, times too; "never" is written as 1, which is no time that ever was.
 */
#include "core/record.h"

#include <assert.h>

#include "base/duration.h"
#include "base/limits.h"
#include "core/breaker.h"

#define LIFE_VERSION    3u
#define OUTCOME_VERSION 1u

/* Reading is on the path of every replay. The walk is compiled once for each direction, and the
 * codec's address goes nowhere, so that the position in the text stays in a register. */
#define WALK static inline __attribute__((always_inline)) void

typedef struct codec {
    bool reading;
    bool bad;
    const uint8_t *in, *end;
    sm_buf *out;
} codec;

static void put_number(sm_buf *out, uint64_t v)
{
    uint8_t text[10];
    size_t n = 0;
    for (; v >= 128; v >>= 7)
        text[n++] = (uint8_t)(v | 128);
    text[n++] = (uint8_t)v;
    sm_buf_bytes(out, text, n);
}

/* What follows the number, or NULL if there is none. */
static const uint8_t *get_number(const uint8_t *in, const uint8_t *end, uint64_t *v)
{
    *v = 0;
    for (unsigned shift = 0; shift < 64 && in < end; shift += 7) {
        uint8_t byte = *in++;
        *v |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return in;
    }
    return NULL;
}

WALK number(codec *c, uint64_t *v)
{
    if (!c->reading) {
        put_number(c->out, *v);
    } else if (c->in < c->end && *c->in < 128) {
        *v = *c->in++;
    } else {
        uint64_t got;
        const uint8_t *next = get_number(c->in, c->end, &got);
        c->bad |= next == NULL;
        c->in = next == NULL ? c->end : next;
        *v = got;
    }
}

/* A number that lives in a narrower type. */
#define NARROW(c, field)                                                                           \
    do {                                                                                           \
        uint64_t wide_ = (uint64_t)(field);                                                        \
        number(c, &wide_);                                                                         \
        (field) = (__typeof__(field))wide_;                                                        \
        if ((uint64_t)(field) != wide_)                                                            \
            (c)->bad = true;                                                                       \
    } while (0)

WALK span(codec *c, int64_t *t)
{
    uint64_t v = *t == INT64_MAX ? 1 : *t == 1 ? 2 : (uint64_t)*t;
    number(c, &v);
    if (c->reading)
        *t = v == 1 ? INT64_MAX : (int64_t)v;
    if (*t < 0)
        c->bad = true;
}

WALK bytes(codec *c, void *p, size_t n)
{
    if (!c->reading) {
        sm_buf_bytes(c->out, p, n);
    } else if ((size_t)(c->end - c->in) < n) {
        c->bad = true;
    } else {
        memcpy(p, c->in, n);
        c->in += n;
    }
}

/* A hash that is mostly absent. */
WALK rare_hash(codec *c, sm_hash *h)
{
    static const sm_hash none;
    uint8_t present = memcmp(h, &none, sizeof none) != 0;
    NARROW(c, present);
    if (present)
        bytes(c, h->b, sizeof h->b);
}

WALK walk_terms(codec *c, sm_terms *t)
{
    NARROW(c, t->class);
    NARROW(c, t->mode);
    NARROW(c, t->variant);
    span(c, &t->window_ms);
    span(c, &t->result_window_ms);
    span(c, &t->lease_ms);
    NARROW(c, t->on_in_doubt.count);
    if (t->on_in_doubt.count > sizeof t->on_in_doubt.steps)
        c->bad = true;
    else
        bytes(c, t->on_in_doubt.steps, t->on_in_doubt.count);
    span(c, &t->down_window_ms);
    span(c, &t->settle_ms);
    uint16_t bits =
        (uint16_t)(t->authoritative | t->asks << 1 | t->self << 2 | t->barrier << 3 |
                   (t->via & 1) << 4 | t->upstream << 5 | t->redacted << 6 | t->resource << 7 |
                   t->charged << 8 | t->limited << 9 | t->breaker.on << 10 | t->sited << 11);
    NARROW(c, bits);
    t->authoritative = bits & 1;
    t->asks = bits & 2;
    t->self = bits & 4;
    t->barrier = bits & 8;
    t->via = bits >> 4 & 1;
    t->upstream = bits >> 5 & 1;
    t->redacted = bits >> 6 & 1;
    t->resource = bits >> 7 & 1;
    t->charged = bits >> 8 & 1;
    t->limited = bits >> 9 & 1;
    t->breaker.on = bits >> 10 & 1;
    t->sited = bits >> 11 & 1;
    c->bad |= bits >> 12 != 0;
    if (t->asks) {
        number(c, &t->quorum);
        span(c, &t->expires_ms);
    }
    if (t->breaker.on) {
        NARROW(c, t->breaker.failures);
        NARROW(c, t->breaker.probes);
        span(c, &t->breaker.window_ms);
        span(c, &t->breaker.cooldown_ms);
    }
}

WALK walk_doubts(codec *c, sm_effect *e)
{
    NARROW(c, e->doubt_count);
    if (e->doubt_count > SM_DOUBTS_MAX) {
        c->bad = true;
        return;
    }
    for (uint32_t i = 0; i < e->doubt_count; i++)
        number(c, &e->doubts[i]);
    NARROW(c, e->chain_at);
    span(c, &e->doubt_end);
}

WALK walk_askers(codec *c, sm_effect *e)
{
    NARROW(c, e->asked);
    if (e->asked > SM_ASKERS_MAX) {
        c->bad = true;
        return;
    }
    for (uint32_t i = 0; i < e->asked; i++)
        bytes(c, e->askers[i].b, sizeof e->askers[i].b);
    NARROW(c, e->crowded);
}

WALK walk_request(codec *c, sm_memo *m)
{
    sm_effect *e = &m->effect;
    number(c, &e->request);
    if (e->request == 0)
        return;
    rare_hash(c, &e->digest);
    walk_askers(c, e);
    span(c, &e->request_end);
    NARROW(c, e->quorum);
    NARROW(c, e->approvals);
    if (e->approvals > SM_APPROVERS_MAX) {
        c->bad = true;
        return;
    }
    for (uint32_t i = 0; i < e->approvals; i++)
        bytes(c, e->approvers[i].b, sizeof e->approvers[i].b);
    NARROW(c, e->approved);
    number(c, &m->told);
    number(c, &m->notices);
    span(c, &m->notice_at);
}

WALK walk_attempt(codec *c, sm_memo *m)
{
    sm_effect *e = &m->effect;
    number(c, &e->attempt);
    if (e->attempt == 0)
        return;
    number(c, &e->run);
    rare_hash(c, &e->ran);
    span(c, &e->first_sent);
    NARROW(c, e->resending);
    number(c, &e->late);
    NARROW(c, e->late_partial);
    bytes(c, m->claim, sizeof m->claim);
    number(c, &m->holder.pid);
    if (m->holder.pid != 0) {
        number(c, &m->holder.boot);
        number(c, &m->holder.space);
        number(c, &m->holder.start);
    }
}

WALK walk_charge(codec *c, sm_charge *charge)
{
    for (int m = 0; m < SM_MEASURES; m++)
        NARROW(c, charge->of[m]);
}

WALK walk_charged(codec *c, sm_charged *m)
{
    NARROW(c, m->held);
    walk_charge(c, &m->charge);
    walk_charge(c, &m->sunk);
    NARROW(c, m->accounts);
    if (m->accounts > SM_BUDGETS_MAX) {
        c->bad = true;
        return;
    }
    for (uint8_t i = 0; i < m->accounts; i++) {
        bytes(c, m->account[i].id, sizeof m->account[i].id);
        NARROW(c, m->account[i].measures);
    }
}

WALK walk_slots(codec *c, sm_charged *m)
{
    NARROW(c, m->slots);
    if (m->slots > SM_DESTINATIONS_MAX) {
        c->bad = true;
        return;
    }
    for (uint8_t i = 0; i < m->slots; i++) {
        bytes(c, m->slot[i].id, sizeof m->slot[i].id);
        NARROW(c, m->slot[i].number);
        span(c, &m->slot[i].end);
    }
}

WALK walk(codec *c, sm_memo *m)
{
    sm_effect *e = &m->effect;
    number(c, &e->base_fence);
    span(c, &m->keep_until);
    rare_hash(c, &m->args);
    rare_hash(c, &m->outcome);
    walk_attempt(c, m);
    walk_doubts(c, e);
    NARROW(c, e->applied);
    NARROW(c, e->abandoned);
    walk_request(c, m);
    walk_terms(c, &m->terms);
    if (m->terms.resource) {
        bytes(c, m->resource.hash.b, sizeof m->resource.hash.b);
        number(c, &m->written);
    }
    if (m->terms.charged)
        walk_charged(c, &m->charged);
    if (m->terms.limited)
        walk_slots(c, &m->charged);
    if (m->terms.upstream) {
        number(c, &m->shape);
        span(c, &m->next_at);
    } else if (c->reading ? c->in < c->end : m->shape != 0) {
        number(c, &m->shape); /* left out where there is none, as it always was */
        c->bad |= m->shape == 0;
    }
}

sm_err sm_memo_pack(const sm_memo *m, semel_record *r, sm_buf *life)
{
    const sm_effect *e = &m->effect;
    assert(sm_effect_flaw(e) == NULL);
    sm_memo copy = *m;
    codec c = {.out = life};
    sm_buf_clear(life);
    sm_buf_byte(life, LIFE_VERSION);
    walk(&c, &copy);
    r->state = (uint8_t)e->state;
    r->generation = e->generation;
    r->fence = e->fence;
    r->lease_end = e->lease_end;
    r->settled_at = e->settled_at;
    r->window_end = e->window_end;
    r->result_end = e->result_end;
    r->life = sm_buf_view(life);
    return life->err;
}

/* Whether terms are such as a contract can have: what they steer does not check them again. */
static bool sound_terms(const sm_terms *t, const sm_effect *e)
{
    const sm_doubt_chain *chain = &t->on_in_doubt;
    if (t->class > SM_CLASS_IRREVERSIBLE || t->mode > SM_MODE_OBSERVE || chain->count == 0 ||
        chain->steps[chain->count - 1] != SM_DOUBT_HOLD || e->chain_at >= chain->count ||
        t->result_window_ms > t->window_ms)
        return false;
    for (uint8_t i = 0; i < chain->count; i++) {
        if (chain->steps[i] > SM_DOUBT_HOLD)
            return false;
    }
    const sm_breaker_rule *r = &t->breaker;
    if (r->on && (r->failures < 1 || r->failures > SM_BREAKER_FAILURES_MAX || r->probes < 1 ||
                  r->probes > SM_BREAKER_PROBES_MAX))
        return false;
    return !t->asks || (t->quorum > 0 && t->quorum <= SM_APPROVERS_MAX);
}

/* Whether the names are valid for a call, and the version is one that a write can have. */
static bool sound_names(const semel_record *r)
{
    return r->scope.n > 0 && r->scope.n <= SM_SCOPE_MAX && r->tool.n > 0 &&
           r->tool.n <= SM_TOOL_MAX && r->step.n <= SM_STEP_MAX && r->caller.n <= SM_KEY_MAX &&
           r->version > 0;
}

sm_err sm_memo_unpack(const semel_record *r, sm_memo *out)
{
    memset(out, 0, offsetof(sm_memo, effect) + SM_EFFECT_HEAD);
    memset(&out->charged, 0, SM_CHARGED_HEAD);
    codec c = {.reading = true,
               .in = (const uint8_t *)r->life.p,
               .end = (const uint8_t *)r->life.p + r->life.n};
    if (r->life.n == 0 || *c.in++ != LIFE_VERSION)
        return SEMEL_E_CORRUPT;
    walk(&c, out);
    sm_effect *e = &out->effect;
    e->state = (semel_state)r->state;
    e->generation = r->generation;
    e->fence = r->fence;
    e->lease_end = r->lease_end;
    e->settled_at = r->settled_at;
    e->window_end = r->window_end;
    e->result_end = r->result_end;
    bool sound = !c.bad && c.in == c.end && sm_effect_flaw(e) == NULL &&
                 sound_terms(&out->terms, e) && sound_names(r);
    return sound ? SM_OK : SEMEL_E_CORRUPT;
}

bool sm_record_decides(const semel_record *r, int64_t now)
{
    bool settled = semel_state_settled((semel_state)r->state);
    return settled ? r->window_end > now : r->state != SEMEL_S_NONE;
}

void sm_terms_take(const sm_contract *c, sm_terms *out)
{
    const sm_idempotency *down = sm_contract_key_rule(c);
    *out = (sm_terms){
        .class = (uint8_t)c->class,
        .mode = (uint8_t)c->mode,
        .variant = c->variant,
        .window_ms = c->window_ms,
        .result_window_ms = c->result_window_ms,
        .lease_ms = c->lease_ms,
        .on_in_doubt = c->on_in_doubt,
        .down_window_ms = down->window_ms,
        .settle_ms = c->probe.settle_ms,
        .authoritative = c->probe.authoritative,
        .self = c->approval.self_approval,
        .via = (uint8_t)c->approval.via,
        .barrier = c->barrier,
        .quorum = (uint64_t)c->approval.quorum,
        .expires_ms = c->approval.expires_ms,
        .sited = c->breaker.on && sm_contract_origin(c).n > 0,
        .breaker = c->breaker.on ? c->breaker : (sm_breaker_rule){0},
    };
}

void sm_terms_contract(const sm_terms *t, sm_contract *out)
{
    *out = (sm_contract){
        .class = t->class,
        .mode = t->mode,
        .variant = t->variant,
        .window_ms = t->window_ms,
        .result_window_ms = t->result_window_ms,
        .lease_ms = t->lease_ms,
        .on_in_doubt = t->on_in_doubt,
        .upstream.idempotency.window_ms = t->down_window_ms,
        .probe = {.settle_ms = t->settle_ms, .authoritative = t->authoritative},
        .approval = {.on = t->asks,
                     .self_approval = t->self,
                     .via = t->via,
                     .quorum = (int64_t)t->quorum,
                     .expires_ms = t->expires_ms},
        .barrier = t->barrier,
        .breaker = t->breaker,
    };
}

/* ---- outcomes --------------------------------------------------------------------------------*/

WALK text(codec *c, sm_str *s)
{
    uint64_t n = s->p == NULL ? 0 : s->n + 1;
    number(c, &n);
    if (n == 0) {
        *s = (sm_str){0};
    } else if (!c->reading) {
        sm_buf_str(c->out, *s);
    } else if ((uint64_t)(c->end - c->in) < n - 1) {
        c->bad = true;
    } else {
        *s = (sm_str){(const char *)c->in, n - 1};
        c->in += n - 1;
    }
}

WALK walk_outcome(codec *c, semel_outcome *o)
{
    NARROW(c, o->kind);
    NARROW(c, o->applied);
    uint64_t status = (uint64_t)(uint32_t)o->status;
    number(c, &status);
    o->status = (int)(uint32_t)status;
    NARROW(c, o->is_json);
    NARROW(c, o->kept);
    number(c, &o->bytes);
    text(c, &o->corrective_action);
    text(c, &o->headers);
    text(c, &o->value);
}

sm_err sm_outcome_pack(const semel_outcome *o, sm_buf *out)
{
    semel_outcome copy = *o;
    codec c = {.out = out};
    sm_buf_clear(out);
    sm_buf_byte(out, OUTCOME_VERSION);
    walk_outcome(&c, &copy);
    return out->err;
}

bool sm_outcome_unpack(sm_str stored, semel_outcome *out)
{
    *out = (semel_outcome){.size = sizeof *out};
    codec c = {.reading = true,
               .in = (const uint8_t *)stored.p,
               .end = (const uint8_t *)stored.p + stored.n};
    if (stored.n == 0 || *c.in++ != OUTCOME_VERSION)
        return false;
    walk_outcome(&c, out);
    return !c.bad && c.in == c.end;
}
