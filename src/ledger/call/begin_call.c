/*
 * A call: its parts, its contract, its identity; how it differs from the recorded call of the same
 * key; and whether the ledger has lost that record.
 */
#include <sys/random.h>

#include "core/undo.h"
#include "json/canon.h"
#include "json/diff.h"
#include "ledger/call/begin.h"
#include "ledger/call/resource.h"
#include "ledger/work/holder.h"
#include "ledger/work/ledger.h"

/* ---- the call --------------------------------------------------------------------------------*/

/* The caller's upstream takes a key, and the contract says nothing about that: an attempt in doubt
 * can be sent again, unless the contract has another way. */
static sm_err adopt_key_rule(sm_begun *b)
{
    static const sm_doubt_chain again = {{SM_DOUBT_RESEND, SM_DOUBT_HOLD}, 2};
    const sm_contract *c = b->id.contract;
    if (b->asking == NULL || b->asking->down == NULL || c->origin[SM_F_UPSTREAM].given != NULL ||
        c->origin[SM_F_IDEMPOTENCY].given != NULL)
        return SM_OK;
    sm_contract *own = sm_arena_alloc(&b->w->call, sizeof *own);
    if (own == NULL)
        return SEMEL_E_NOMEM;
    *own = *c;
    own->upstream.idempotency = *b->asking->down;
    if (c->origin[SM_F_ON_IN_DOUBT].given == NULL && c->class != SM_CLASS_WRITE_IDEMPOTENT)
        own->on_in_doubt = again;
    b->id.contract = own;
    return SM_OK;
}

sm_err sm_begun_read(sm_begun *b)
{
    sm_work *w = b->w;
    const semel_call *c = b->given;
    sm_handle after;
    if (c->after.p != NULL && !sm_handle_parse("ef_", c->after, &after))
        return sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS,
                            "what the call comes after is not an effect's handle (ef_...)");
    if (c->scope.p == NULL)
        return sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS, "the call has no scope");
    b->call = (sm_parsed_call){.scope = c->scope, .step = c->step, .tool = c->tool, .key = c->key};
    sm_handle undone;
    if (sm_begun_undoes(b) && !sm_undo_key_parse(c->key, &undone))
        return sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS,
                            "the key of an undo names the effect, such as undo:ef_...");
    if (!sm_begun_undoes(b) && sm_undo_key_reserved(c->key))
        return sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS,
                            "keys that start with \"undo:\" are only for undoing (semel scope "
                            "undo); use another key");
    b->call.args_text = c->args.p == NULL ? SM_STR("{}") : c->args;
    b->call.http = b->asking != NULL && b->asking->http;
    const sm_json_limits *limits =
        b->asking != NULL && b->asking->large ? &sm_json_args_limits : &sm_json_default_limits;
    sm_err e = sm_json_read(&w->call, b->call.args_text, limits, &b->call.args, &w->fault);
    if (e != SM_OK)
        return e;
    uint8_t nonce[SM_NONCE_BYTES] = {0};
    const sm_contracts *contracts = b->contracts != NULL ? b->contracts : sm_contracts_of(b->s, w);
    const sm_contract *contract = sm_contracts_find(contracts, c->tool);
    if (contract != NULL && contract->key.strategy == SM_KEY_UNIQUE &&
        getrandom(nonce, sizeof nonce, 0) != sizeof nonce)
        return sm_fault_set(&w->fault, SEMEL_E_CRYPTO, "the system gives no random bytes");
    e = sm_identify(&w->call, &w->keyer, contracts, &b->call, nonce, &b->id, &w->fault);
    if (e == SM_OK)
        e = adopt_key_rule(b);
    b->lease_ms = b->lease_ms > 0          ? b->lease_ms
                  : b->id.contract == NULL ? 0
                                           : b->id.contract->lease_ms;
    return e;
}

bool sm_begun_asks(const sm_begun *b)
{
    return sm_identity_asks(&b->w->call, &b->id);
}

/* ---- drift -----------------------------------------------------------------------------------*/

typedef struct drift_list {
    sm_buf *out;
    unsigned count;
} drift_list;

static bool put_pointer(void *context, sm_str pointer, const sm_json *a, const sm_json *b)
{
    (void)a;
    (void)b;
    drift_list *l = context;
    if (l->count++ >= 20)
        return false;
    sm_buf_byte(l->out, l->count == 1 ? '[' : ',');
    sm_json_put_string(l->out, pointer);
    return true;
}

typedef struct header_search {
    sm_arena *arena;
    sm_str found; /* its name */
} header_search;

/* Told of differences between two requests: looks for a header that must not differ. */
static bool find_header(void *context, sm_str pointer, const sm_json *a, const sm_json *b)
{
    static const char *const parts[] = {"/headers", "/other_headers"};
    header_search *search = context;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && search->found.p == NULL; i++) {
        sm_str part = sm_str_from(parts[i]);
        const sm_json *all = a != NULL ? a : b;
        if (pointer.n < part.n || memcmp(pointer.p, part.p, part.n) != 0)
            continue;
        if (pointer.n == part.n && all->type == SM_JSON_OBJECT && all->len > 0)
            search->found = sm_json_text(all + 1); /* one of the two has none of them */
        else if (pointer.n > part.n && pointer.p[part.n] == '/') {
            sm_str name = {pointer.p + part.n + 1, pointer.n - part.n - 1};
            const char *item = memchr(name.p, '/', name.n); /* one of several values */
            name.n = item == NULL ? name.n : (size_t)(item - name.p);
            search->found = sm_arena_text(search->arena, name);
        }
    }
    return search->found.p == NULL;
}

/* An HTTP request differs from the recorded one of the same key. */
static void explain_conflict(sm_begun *b, const sm_json *earlier, const sm_json *later)
{
    sm_work *w = b->w;
    header_search search = {&w->call, {0}};
    sm_json_diff(earlier, later, find_header, &search);
    if (search.found.p == NULL)
        return;
    b->a->message =
        sm_arena_printf(&w->call,
                        "The same request was sent before with another value of the header %.*s, "
                        "or without it.",
                        SM_FMT(search.found));
    b->a->corrective_action =
        SM_STR("Send the same value again. Whoever runs the gateway can list the header under "
               "identity_headers, if another value means another action, or under ignore_headers, "
               "if it means nothing.");
}

/* Compares this call with the recorded one of the same key, w->cur, and notes in the answer what
 * differs. What is equal as a whole needs no look
 * at its parts: under the strategy `hash` without anything left out, equal keys are equal calls. */
static sm_err compare(sm_begun *b, sm_drift *out)
{
    sm_work *w = b->w;
    const sm_contract *c = b->id.contract;
    bool same_variant = w->memo.terms.variant == c->variant;
    bool derived = b->asking == NULL || !b->asking->known; /* the key, from these arguments */
    if (derived && b->id.strategy == SM_KEY_HASH && b->id.projected == b->id.filled &&
        same_variant) {
        *out = SM_SAME;
        return SM_OK;
    }
    sm_fingerprint print;
    sm_err e = sm_fingerprint_make(&w->keyer, b->call.tool, b->id.filled, b->call.args_text, &print,
                                   &w->fault);
    if (e != SM_OK)
        return e;
    if (same_variant && memcmp(&print.hash, &w->cur.fingerprint, sizeof print.hash) == 0) {
        *out = SM_SAME;
        return SM_OK;
    }
    *out = SM_CONFLICTS;
    if (!sm_str_eq(w->cur.tool, b->call.tool)) {
        b->a->message = sm_arena_printf(
            &w->call, "This key belongs to a call of another tool, %.*s.", SM_FMT(w->cur.tool));
        return SM_OK;
    }
    if (!same_variant && memcmp(&print.hash, &w->cur.fingerprint, sizeof print.hash) == 0) {
        b->a->message = SM_STR("The contract has changed since this call was made: another variant "
                               "applies to it now.");
        b->a->corrective_action =
            SM_STR("An operator can cancel or forget the effect; then the call may be made again.");
    }
    if (w->cur.args.p == NULL)
        return SM_OK; /* nothing is left to compare with */
    sm_identity earlier = b->id;
    /* Among the records, which are dropped at the next look: a waiter looks often. */
    e = sm_json_read(&w->held, w->cur.args, &sm_json_args_limits, &earlier.filled, &w->fault);
    if (e != SM_OK)
        return e;
    sm_identity later = b->id;
    e = sm_redact(&w->held, &b->id, &later.filled);
    if (e != SM_OK)
        return e;
    *out = same_variant && !sm_hides_header(&b->id) ? sm_identity_drift(&earlier, &later)
                                                    : SM_CONFLICTS;
    if (*out == SM_SAME) /* only what is redacted differs: under `hash`, in what is ignored */
        *out = b->id.strategy == SM_KEY_HASH && c->on_drift == SM_DRIFT_REPLAY ? SM_DRIFTED
                                                                               : SM_CONFLICTS;
    if (*out == SM_CONFLICTS && b->call.http)
        explain_conflict(b, earlier.filled, later.filled);
    sm_buf_clear(&w->scratch);
    drift_list list = {&w->scratch, 0};
    sm_json_diff(earlier.filled, later.filled, put_pointer, &list);
    if (list.count > 0) {
        sm_buf_byte(&w->scratch, ']');
        b->a->drift = sm_work_copy(w, sm_buf_view(&w->scratch));
    }
    return w->scratch.err;
}

/* ---- what it acts on -------------------------------------------------------------------------*/

/* Whether the recorded effect answers this call no more, because others have written the resource
 * since, or may have. */
static sm_err compare_resource(sm_begun *b, sm_drift drift, bool *overwritten)
{
    sm_work *w = b->w;
    const sm_memo *m = &w->memo;
    *overwritten = false;
    bool applied = semel_state_settled((semel_state)w->cur.state) && sm_effect_applied(&m->effect);
    bool ran = b->asking != NULL && b->asking->ran; /* and asks how it ended */
    if (ran || sm_always_retry(b->call.key, b->call.step) || !applied ||
        w->now >= m->effect.window_end || sm_resource_none(&b->id.resource))
        return SM_OK;
    if (b->memory)
        return SEMEL_E_UNAVAILABLE;
    /* Arguments that do not matter have drifted: it is still about what the effect acted on. */
    const sm_resource *of =
        drift == SM_DRIFTED && m->terms.resource ? &m->resource : &b->id.resource;
    return sm_resource_overwritten(b->s, w, of, overwritten);
}

/* ---- judging ---------------------------------------------------------------------------------*/

sm_err sm_begun_judge(sm_begun *b)
{
    sm_work *w = b->w;
    sm_life_event ev = {.kind = SM_EV_BEGIN, .lease_ms = b->lease_ms};
    b->a->drift = (sm_str){0};
    if (w->cur.version == 0) {
        w->memo = (sm_memo){0};
        w->now = sm_now(b->s);
    } else {
        sm_err e = compare(b, &ev.drift);
        if (e == SM_OK)
            e = compare_resource(b, ev.drift, &ev.overwritten);
        if (e != SM_OK)
            return e;
        ev.gone =
            w->memo.effect.state == SEMEL_S_RUNNING && sm_holder_gone(&w->memo.holder, &b->s->self);
        if (b->given->after.p != NULL) {
            sm_handle h;
            ev.deliberate = sm_handle_parse("ef_", b->given->after, &h) && h.id == w->cur.id &&
                            h.generation == w->cur.generation;
        }
    }
    ev.needs_approval = sm_begun_asks(b);
    ev.proven = b->actor.p != NULL;
    if (b->id.contract->approval.on) {
        sm_str actor = sm_ledger_actor(b->s, b->actor);
        sm_err e = sm_approval_digest(w, &b->id, &b->call, &ev.digest);
        if (e == SM_OK)
            e = sm_digest_bytes(&w->keyer.digest, actor.p, actor.n, &ev.actor);
        if (e != SM_OK)
            return e;
    }
    sm_transition(&w->memo.effect, &ev, b->id.contract, w->now, &w->step);
    return SM_OK;
}

/* ---- what the ledger has lost ----------------------------------------------------------------*/

/* Whether the ledger knows less than when the caller joined an attempt. */
static bool has_lost_joined(const sm_begun *b)
{
    const semel_record *r = &b->w->cur;
    if (b->joined_generation == 0 || b->joined_request != 0)
        return false;
    return r->version == 0 || r->generation < b->joined_generation ||
           (r->generation == b->joined_generation && r->fence < b->joined_fence);
}

sm_err sm_begun_lost(sm_begun *b, bool *again, semel_code *code)
{
    sm_work *w = b->w;
    uint64_t id = w->cur.id;
    sm_missed missed = SM_MISSED_NONE;
    *again = false;
    *code = SEMEL_C_NONE;
    if (sm_running_ended(b->s, &w->cur)) {
        *code = SEMEL_C_RETRY_IN_FLIGHT;
        return SM_OK;
    }
    sm_err e = w->cur.version != 0 ? SM_OK : sm_effect_id(&w->keyer.digest, &b->id.key.hash, &id);
    if (e == SM_OK)
        e = sm_running_return(b->s, w, id, &missed);
    *again = missed == SM_MISSED_BACK;
    if (e != SM_OK || *again)
        return e;
    if (missed == SM_MISSED_RUNS) {
        *code = SEMEL_C_RETRY_IN_FLIGHT;
    } else if (missed == SM_MISSED_LOST || has_lost_joined(b)) {
        *code = SEMEL_C_IN_DOUBT;
        b->a->message = SM_STR("The ledger has lost its record of this call, which ran or was "
                               "running. It may or may not have taken effect.");
    } else if (b->asking != NULL && b->asking->ran) {
        bool looked_after = b->asking->upstream && w->memo.effect.state == SEMEL_S_READY;
        *code = looked_after ? SEMEL_C_UPSTREAM_TIMEOUT : SEMEL_C_UPSTREAM_FAILED;
    }
    return SM_OK;
}

bool sm_begun_hold(sm_begun *b, semel_code code, bool *done)
{
    b->waits = code == SEMEL_C_UPSTREAM_TIMEOUT;
    *done = !b->waits;
    b->w->step = (sm_move){.answer = SM_WAIT, .code = code, .next = b->w->memo.effect};
    return *done;
}
