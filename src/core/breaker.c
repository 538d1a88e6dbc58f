/* The steps of a circuit breaker: breaker.h draws them. */
#include "core/breaker.h"

#include <stdlib.h>

#include "json/json.h"
#include "json/write.h"

sm_health sm_health_of(const semel_outcome *o)
{
    if (o->kind != SEMEL_FAILURE)
        return SM_HEALTH_WELL;
    int s = o->status;
    bool cannot = s == 408 || s == 425 || s == 429 || (s >= 500 && s <= 599);
    return cannot || o->applied == SEMEL_APPLIED_UNKNOWN ? SM_HEALTH_FAILED : SM_HEALTH_ANSWERED;
}

/* ---- the machine -----------------------------------------------------------------------------*/

static void enter(sm_breaker *b, sm_circuit_state state, int64_t now)
{
    b->state = state;
    b->since = state == SM_CIRCUIT_CLOSED ? 0 : now;
    b->probing = 0;
    if (state == SM_CIRCUIT_CLOSED)
        b->failures = 0;
}

/* Failures that are no longer within the window do not count. Nor do those of later than now: the
 * clock was set back. */
static void forget_old(sm_breaker *b, int64_t window_ms, int64_t now)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < b->failures; i++) {
        if (b->at[i] <= now && now - b->at[i] < window_ms)
            b->at[kept++] = b->at[i];
    }
    b->failures = kept;
}

static sm_circuit_change count(sm_breaker *b, const sm_breaker_rule *r, int64_t now)
{
    if (r->window_ms > 0)
        forget_old(b, r->window_ms, now);
    else if (b->failures > 0 && now - b->at[b->failures - 1] >= SM_BREAKER_ROW_MS)
        b->failures = 0;
    if (b->failures < SM_BREAKER_FAILURES_MAX)
        b->at[b->failures++] = now;
    if (b->failures < r->failures)
        return SM_CIRCUIT_FAILING;
    enter(b, SM_CIRCUIT_OPEN, now);
    return SM_CIRCUIT_OPENED;
}

int64_t sm_breaker_until(const sm_breaker *b, const sm_breaker_rule *r, int64_t now)
{
    bool ahead = b->since > now; /* the clock was set back */
    return b->state != SM_CIRCUIT_OPEN || ahead || now - b->since >= r->cooldown_ms
               ? now
               : b->since + r->cooldown_ms;
}

static sm_circuit_probe *find_turn(sm_breaker *b, uint64_t turn)
{
    for (uint32_t i = 0; i < b->probing; i++) {
        if (b->probes[i].turn == turn)
            return &b->probes[i];
    }
    return NULL;
}

static sm_circuit_probe *find_attempt(sm_breaker *b, const sm_handle *attempt)
{
    for (uint32_t i = 0; i < b->probing; i++) {
        const sm_handle *h = &b->probes[i].attempt;
        if (h->id == attempt->id && h->generation == attempt->generation &&
            h->fence == attempt->fence)
            return &b->probes[i];
    }
    return NULL;
}

bool sm_breaker_begin(sm_breaker *b, const sm_breaker_rule *r, const sm_circuit_probe *call,
                      int64_t now, sm_circuit_change *change)
{
    *change = SM_CIRCUIT_SAME;
    if (b->state == SM_CIRCUIT_CLOSED)
        return true;
    bool opens = b->state == SM_CIRCUIT_OPEN;
    if (opens && sm_breaker_until(b, r, now) > now)
        return false;
    if (opens)
        enter(b, SM_CIRCUIT_HALF_OPEN, now);
    sm_circuit_probe *place = find_turn(b, call->turn); /* it tries once more */
    if (place == NULL && b->probing < r->probes && b->probing < SM_BREAKER_PROBES_MAX)
        place = &b->probes[b->probing++];
    if (place == NULL)
        return false;
    *place = *call;
    *change = opens ? SM_CIRCUIT_HALVED : SM_CIRCUIT_PROBING;
    return true;
}

void sm_breaker_give_up(sm_breaker *b, uint32_t probe)
{
    b->probes[probe] = b->probes[--b->probing];
}

sm_circuit_change sm_breaker_leave(sm_breaker *b, uint64_t turn)
{
    sm_circuit_probe *place = find_turn(b, turn);
    if (place == NULL)
        return SM_CIRCUIT_SAME;
    sm_breaker_give_up(b, (uint32_t)(place - b->probes));
    return SM_CIRCUIT_PROBING;
}

static sm_circuit_change end_probe(sm_breaker *b, const sm_handle *attempt, sm_health health,
                                   int64_t now)
{
    sm_circuit_probe *place = find_attempt(b, attempt);
    if (place == NULL)
        return SM_CIRCUIT_SAME;
    switch (health) {
    case SM_HEALTH_FAILED: enter(b, SM_CIRCUIT_OPEN, now); return SM_CIRCUIT_OPENED;
    case SM_HEALTH_WELL:
    case SM_HEALTH_ANSWERED: enter(b, SM_CIRCUIT_CLOSED, now); return SM_CIRCUIT_SHUT;
    default: sm_breaker_give_up(b, (uint32_t)(place - b->probes)); return SM_CIRCUIT_PROBING;
    }
}

sm_circuit_change sm_breaker_end(sm_breaker *b, const sm_breaker_rule *r, const sm_handle *attempt,
                                 sm_health health, int64_t now)
{
    switch (b->state) {
    case SM_CIRCUIT_OPEN: return SM_CIRCUIT_SAME; /* it began before */
    case SM_CIRCUIT_HALF_OPEN: return end_probe(b, attempt, health, now);
    case SM_CIRCUIT_CLOSED: break;
    }
    if (health == SM_HEALTH_FAILED)
        return count(b, r, now);
    if (health != SM_HEALTH_WELL || r->window_ms > 0 || b->failures == 0)
        return SM_CIRCUIT_SAME;
    b->failures = 0;
    return SM_CIRCUIT_RECOVERED;
}

sm_circuit_change sm_breaker_close(sm_breaker *b)
{
    if (b->state == SM_CIRCUIT_CLOSED)
        return SM_CIRCUIT_SAME;
    enter(b, SM_CIRCUIT_CLOSED, 0);
    return SM_CIRCUIT_SHUT;
}

/* ---- as JSON ---------------------------------------------------------------------------------*/

const char *sm_circuit_state_name(sm_circuit_state state)
{
    static const char *const names[] = {"closed", "open", "half_open"};
    return names[state];
}

bool sm_circuit_state_read(sm_str name, sm_circuit_state *out)
{
    for (int s = SM_CIRCUIT_CLOSED; s <= SM_CIRCUIT_HALF_OPEN; s++) {
        if (sm_str_is(name, sm_circuit_state_name((sm_circuit_state)s))) {
            *out = (sm_circuit_state)s;
            return true;
        }
    }
    return false;
}

void sm_breaker_put(const sm_breaker *b, sm_buf *out)
{
    char handle[SM_HANDLE_TEXT];
    sm_buf_byte(out, '{');
    sm_put_text(out, "state", sm_str_from(sm_circuit_state_name(b->state)));
    sm_put_signed(out, "since", b->since);
    sm_put_open(out, "failures", '[');
    for (uint32_t i = 0; i < b->failures; i++)
        sm_buf_printf(out, "%s%lld", i == 0 ? "" : ",", (long long)b->at[i]);
    sm_buf_byte(out, ']');
    sm_put_open(out, "probes", '[');
    for (uint32_t i = 0; i < b->probing; i++) {
        const sm_circuit_probe *p = &b->probes[i];
        sm_put_item(out);
        sm_buf_byte(out, '{');
        sm_put_text(out, "effect", (sm_str){handle, sm_handle_effect(&p->attempt, handle)});
        sm_put_number(out, "fence", p->attempt.fence);
        sm_put_number(out, "turn", p->turn);
        sm_put_signed(out, "until", p->until);
        sm_put_signed(out, "last", p->last);
        sm_buf_byte(out, '}');
    }
    sm_buf_text(out, "]}");
}

static bool number_of(const sm_json *object, const char *name, int64_t *out)
{
    const sm_json *v = sm_json_find(object, sm_str_from(name));
    if (v == NULL || v->type != SM_JSON_NUMBER)
        return false;
    *out = strtoll(v->text, NULL, 10);
    return true;
}

static const sm_json *list_of(const sm_json *object, const char *name, uint32_t most)
{
    const sm_json *v = sm_json_find(object, sm_str_from(name));
    return v != NULL && v->type == SM_JSON_ARRAY && v->len <= most ? v : NULL;
}

static bool read_probe(const sm_json *v, sm_circuit_probe *out)
{
    const sm_json *effect = sm_json_find(v, SM_STR("effect"));
    int64_t fence, turn;
    if (effect == NULL || effect->type != SM_JSON_STRING ||
        !sm_handle_parse("ef_", sm_json_text(effect), &out->attempt) ||
        !number_of(v, "fence", &fence) || !number_of(v, "turn", &turn) ||
        !number_of(v, "until", &out->until) || !number_of(v, "last", &out->last))
        return false;
    out->attempt.fence = (uint64_t)fence;
    out->turn = (uint64_t)turn;
    return true;
}

bool sm_breaker_read(sm_arena *a, sm_str text, sm_breaker *out)
{
    const sm_json *root, *state, *failures, *probes;
    out->state = SM_CIRCUIT_CLOSED;
    out->since = 0;
    out->failures = out->probing = 0;
    if (text.p == NULL)
        return true;
    if (sm_json_read(a, text, &sm_json_args_limits, &root, NULL) != SM_OK ||
        (state = sm_json_find(root, SM_STR("state"))) == NULL || state->type != SM_JSON_STRING ||
        !sm_circuit_state_read(sm_json_text(state), &out->state) ||
        !number_of(root, "since", &out->since) ||
        (failures = list_of(root, "failures", SM_BREAKER_FAILURES_MAX)) == NULL ||
        (probes = list_of(root, "probes", SM_BREAKER_PROBES_MAX)) == NULL)
        return false;
    for (uint32_t i = 0; i < failures->len; i++) {
        const sm_json *v = failures + 1 + i; /* a number is one node */
        if (v->type != SM_JSON_NUMBER)
            return false;
        out->at[out->failures++] = strtoll(v->text, NULL, 10);
    }
    const sm_json *v = probes + 1;
    for (uint32_t i = 0; i < probes->len; i++, v = sm_json_next(v)) {
        if (v->type != SM_JSON_OBJECT || !read_probe(v, &out->probes[out->probing++]))
            return false;
    }
    return true;
}

/* ---- the circuit's name ----------------------------------------------------------------------*/

/* Placeholders are in path and query only, and there is no name in front of the host (base/url.h):
 * so a contract has one origin. */
sm_str sm_contract_origin(const sm_contract *c)
{
    sm_str url = c->upstream.url;
    const char *host = url.n == 0 ? NULL : memmem(url.p, url.n, "://", 3);
    if (host == NULL)
        return (sm_str){0};
    size_t n = (size_t)(host + 3 - url.p);
    while (n < url.n && url.p[n] != '/' && url.p[n] != '?')
        n++;
    return (sm_str){url.p, n};
}
