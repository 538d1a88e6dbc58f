/*
 * Undoing what a run did: which effects there are, what undoes each of them, and what has become of
 * that.
 *
 * The call that undoes an effect is an effect of its own, in the same scope, under a key that names
 * the effect (core/undo.h). Whoever executes it begins it like any other call (sm_asking.undoes).
 * So there is nothing to remember about a plan: it is read from the ledger each time, and whoever
 * was interrupted goes on by starting over.
 */
#include "core/undo.h"

#include <stdio.h>

#include "base/limits.h"
#include "json/canon.h"
#include "json/write.h"
#include "ledger/call/begin.h"

#define EVENTS_MAX 1000u

/* An effect as it was recorded, copied: its record is dropped when others are read. */
typedef struct subject {
    const sm_contracts *contracts; /* held by whoever asks */
    sm_handle handle;
    sm_effect effect;
    sm_str scope, caller, args, outcome;
    const sm_json *args_json, *outcome_json; /* NULL: not there, or not JSON */
    const sm_contract *contract;
    const char *unclear; /* why nobody knows what its contract was; NULL: it is known */
} subject;

static const char *const names[] = {
    [SM_UNDO_TODO] = "todo",     [SM_UNDO_DONE] = "done",    [SM_UNDO_NOTHING] = "nothing",
    [SM_UNDO_CANNOT] = "cannot", [SM_UNDO_OPEN] = "running", [SM_UNDO_DOUBT] = "in_doubt",
};

const char *sm_undo_status_name(sm_undo_status status)
{
    return names[status];
}

/* ---- the effects of a scope ------------------------------------------------------------------*/

typedef struct collecting {
    sm_str scope;
    sm_handle *out;
    size_t room, n;
} collecting;

static bool collect(void *context, const semel_answer *item, const semel_record *r)
{
    collecting *c = context;
    (void)item;
    if (sm_str_eq(r->scope, c->scope))
        c->out[c->n++] = (sm_handle){.shard = r->shard, .id = r->id, .generation = r->generation};
    return true;
}

sm_err sm_scope_effects(semel *s, sm_str scope, uint64_t *cursor, sm_handle *out, size_t room,
                        size_t *n, sm_fault *fault)
{
    collecting c = {scope, out, room, 0};
    semel_query q = {.size = sizeof q, .filter.scope = scope, .cursor = *cursor, .limit = room};
    sm_err e = semel_list(s, &q, collect, &c, fault);
    *cursor = q.cursor;
    *n = c.n;
    return e;
}

/* ---- the effect and its contract -------------------------------------------------------------*/

/* The outcome, if its bytes are kept and are JSON. */
static void read_outcome(sm_work *w, subject *of)
{
    semel_outcome o;
    if (w->cur.outcome.p == NULL || !sm_outcome_unpack(w->cur.outcome, &o) || !o.kept ||
        !o.is_json || w->now >= w->memo.effect.result_end)
        return;
    of->outcome = sm_work_copy(w, o.value);
    if (of->outcome.p != NULL)
        sm_json_read(&w->call, of->outcome, &sm_json_args_limits, &of->outcome_json, NULL);
}

/* The contract that it was made under: the variant of the recorded number. What is stored of the
 * arguments may not tell, because of redaction; if it does and says otherwise, the numbers have
 * changed. */
static void find_contract(const sm_terms *terms, sm_str tool, subject *of)
{
    const sm_contract *c = sm_contracts_find(of->contracts, tool);
    uint32_t number = terms->variant;
    if (c != NULL && number > c->variant_count)
        of->unclear = "the variant of its contract does not exist any more";
    else if (c != NULL && !terms->redacted && of->args_json != NULL &&
             sm_contract_variant(c, of->args_json)->variant != number)
        of->unclear = "its contract has changed since: another variant applies to it now";
    else
        of->contract = c != NULL && number > 0 ? &c->variants[number - 1].contract : c;
}

static sm_err read_subject(semel *s, sm_work *w, const sm_contracts *set, const sm_handle *h,
                           subject *of, sm_undo *out)
{
    *of = (subject){.contracts = set, .handle = *h};
    sm_err e = sm_load_handle(s, w, h, false);
    if (e != SM_OK)
        return e;
    sm_look_now(s, w);
    sm_effect_copy(&of->effect, &w->memo.effect);
    of->scope = sm_work_copy(w, w->cur.scope);
    of->caller = sm_work_copy(w, w->cur.caller);
    of->args = sm_work_copy(w, w->cur.args);
    out->state = of->effect.state;
    out->effect = sm_answer_handle(w, &w->cur);
    out->scope = of->scope;
    out->tool = sm_work_copy(w, w->cur.tool);
    if (of->scope.p == NULL || out->tool.p == NULL || out->effect.p == NULL)
        return SEMEL_E_NOMEM;
    if (of->args.p != NULL)
        sm_json_read(&w->call, of->args, &sm_json_args_limits, &of->args_json, NULL);
    read_outcome(w, of);
    find_contract(&w->memo.terms, out->tool, of);
    return SM_OK;
}

/* Whether the effect is itself the undo of another one, which the contract says. A key alone does
 * not make a call an undo: everybody can make one up. */
static sm_err is_undo(semel *s, sm_work *w, const subject *of, sm_undo *out, bool *is)
{
    sm_handle undone;
    *is = false;
    if (!sm_undo_key_parse(of->caller, &undone))
        return SM_OK;
    subject first;
    sm_undo about = {0};
    sm_err e = read_subject(s, w, of->contracts, &undone, &first, &about);
    if (e == SEMEL_E_NOT_FOUND)
        return SM_OK;
    if (e != SM_OK)
        return e;
    *is = sm_str_eq(first.scope, of->scope) && first.contract != NULL &&
          sm_str_eq(first.contract->compensate.tool, out->tool);
    if (*is)
        out->why = sm_arena_printf(&w->call, "it undoes %.*s", SM_FMT(about.effect));
    return SM_OK;
}

/* ---- the call --------------------------------------------------------------------------------*/

/* Makes the call, and the fingerprint that its record would have. SEMEL_E_BAD_ARGUMENTS, with a
 * sentence, if it cannot be made. */
static sm_err make_call(semel *s, sm_work *w, const subject *of, sm_fingerprint *print,
                        sm_undo *out)
{
    const sm_json *made = NULL;
    const sm_compensate *rule = of->contract == NULL ? NULL : &of->contract->compensate;
    if (of->unclear != NULL)
        return sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS, "%s", of->unclear);
    if (rule == NULL || rule->tool.p == NULL)
        return sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS,
                            "its contract does not say what undoes it (compensate)");
    sm_err e = sm_undo_args(&w->call, rule, of->args_json, of->outcome_json, &made, &w->fault);
    sm_buf text;
    sm_buf_init(&text, SM_ARGS_MAX);
    if (e == SM_OK)
        e = sm_json_canon(made, &text, (sm_str){0}, &w->fault);
    char key[SM_UNDO_KEY_TEXT];
    out->call = (semel_call){
        .size = sizeof out->call,
        .scope = of->scope,
        .tool = sm_work_copy(w, rule->tool),
        .args = sm_work_copy(w, sm_buf_view(&text)),
        .key = sm_work_copy(w, (sm_str){key, sm_undo_key(&of->handle, key)}),
    };
    sm_buf_fini(&text);
    if (e == SM_OK && (out->call.tool.p == NULL || out->call.args.p == NULL))
        e = SEMEL_E_NOMEM;
    if (e != SM_OK)
        return e;
    semel_answer unused = {.work = w};
    sm_asking as = {.large = true};
    sm_begun b = {.s = s,
                  .a = &unused,
                  .w = w,
                  .given = &out->call,
                  .asking = &as,
                  .undoes = true,
                  .contracts = of->contracts};
    e = sm_begun_read(&b); /* does it fit its own contract? */
    if (e == SM_OK && b.id.strategy == SM_KEY_NONE)
        e = sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS, "%.*s only reads, so it undoes nothing",
                         SM_FMT(out->call.tool));
    if (e == SM_OK)
        e = sm_fingerprint_make(&w->keyer, b.call.tool, b.id.filled, b.call.args_text, print,
                                &w->fault);
    out->stays = e == SM_OK && b.id.contract->failures == SM_FAILURES_REPLAY;
    out->upstream = e == SM_OK && b.id.contract->origin[SM_F_UPSTREAM].given != NULL;
    return e;
}

/* What has become of the call: its effect, if there is one. `print` is NULL if the call cannot be
 * made any more; then its key and its tool tell, because only undos have such keys.
 * SEMEL_E_BAD_ARGUMENTS if another call was made instead. */
static sm_err find_undo(semel *s, sm_work *w, const subject *of, const sm_fingerprint *print,
                        sm_undo *out)
{
    char text[SM_UNDO_KEY_TEXT];
    sm_parsed_call call = {
        .scope = of->scope, .tool = out->tool, .key = {text, sm_undo_key(&of->handle, text)}};
    sm_key key;
    sm_err e = sm_key_make(&w->keyer, SM_KEY_EXPLICIT, &call, NULL, NULL, &key, &w->fault);
    if (e == SM_OK)
        e = sm_load_key(s, w, &key.hash, &of->handle.shard);
    if (e == SEMEL_E_NOT_FOUND)
        return SM_OK;
    if (e != SM_OK)
        return e;
    sm_look_now(s, w);
    if (w->memo.effect.state == SEMEL_S_NONE)
        return SM_OK; /* its claim was given back: nothing was done */
    sm_str handle = sm_answer_handle(w, &w->cur);
    if (handle.p == NULL)
        return SEMEL_E_NOMEM;
    if (of->contract == NULL || !sm_str_eq(w->cur.tool, of->contract->compensate.tool))
        return sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS,
                            "%.*s, which has the key of its undo, is another call", SM_FMT(handle));
    if (print != NULL && memcmp(&print->hash, &w->cur.fingerprint, sizeof print->hash) != 0)
        return sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS,
                            w->memo.effect.state == SEMEL_S_SUCCEEDED
                                ? "it was undone with other arguments, by %.*s"
                                : "its undo %.*s was begun with other arguments",
                            SM_FMT(handle));
    out->undo = handle;
    out->undo_state = w->memo.effect.state;
    return SM_OK;
}

/* ---- forgotten -------------------------------------------------------------------------------*/

/* Whether an event has this note: they are separated by commas. */
static bool is_noted(sm_str what, const char *note)
{
    for (size_t at = 0; at < what.n;) {
        const char *comma = memchr(what.p + at, ',', what.n - at);
        size_t n = comma == NULL ? what.n - at : (size_t)(comma - what.p) - at;
        if (sm_str_is((sm_str){what.p + at, n}, note))
            return true;
        at += n + 1;
    }
    return false;
}

static bool find_forgotten(void *context, const semel_event *e)
{
    bool *found = context;
    *found |= is_noted(e->what, "forgotten");
    return !*found;
}

/* An effect without a state was forgotten, or its claim was given back; its history tells. */
static sm_err judge_forgotten(semel *s, sm_work *w, const subject *of, sm_undo *out)
{
    bool forgotten = false;
    uint64_t after = 0;
    semel_ref ref = {.id = of->handle.id,
                     .generation = of->handle.generation,
                     .sharded = true,
                     .shard = of->handle.shard};
    uint64_t before;
    sm_err e;
    do {
        before = after;
        e = s->ops->events(s->store, &ref, &after, EVENTS_MAX, find_forgotten, &forgotten,
                           &w->fault);
    } while (e == SM_OK && !forgotten && after != before);
    if (!forgotten)
        return e;
    out->status = SM_UNDO_CANNOT;
    out->why = SM_STR("it was forgotten: its arguments and its outcome are gone");
    return e;
}

/* ---- the rule --------------------------------------------------------------------------------*/

/* What the effect's own state says, before its contract is looked at. TODO: its contract counts. */
static sm_undo_status by_state(const sm_effect *e, const char **why)
{
    *why = NULL;
    switch (e->state) {
    case SEMEL_S_SUCCEEDED: return SM_UNDO_TODO;
    case SEMEL_S_IN_DOUBT: *why = "nobody knows whether it took effect"; return SM_UNDO_DOUBT;
    case SEMEL_S_RUNNING: *why = "it is running"; return SM_UNDO_OPEN;
    case SEMEL_S_READY: *why = "it is approved and may run at any moment"; return SM_UNDO_OPEN;
    case SEMEL_S_PENDING: *why = "it waits for approval and has not run"; return SM_UNDO_NOTHING;
    case SEMEL_S_PARTIAL: *why = "it was done in part"; return SM_UNDO_CANNOT;
    case SEMEL_S_FAILED:
        *why = e->applied     ? "it failed, and took effect all the same"
               : e->abandoned ? "it was abandoned: nobody knows whether it took effect"
                              : "it failed: nothing was done";
        return sm_effect_done(e) ? SM_UNDO_CANNOT : SM_UNDO_NOTHING;
    default: *why = "it did not run"; return SM_UNDO_NOTHING;
    }
}

static sm_err judge(semel *s, sm_work *w, const subject *of, sm_undo *out)
{
    const char *why;
    bool undoes;
    out->status = by_state(&of->effect, &why);
    out->why = why == NULL ? (sm_str){0} : sm_str_from(why);
    sm_err e = is_undo(s, w, of, out, &undoes);
    if (e == SM_OK && undoes)
        out->status = SM_UNDO_NOTHING;
    else if (e == SM_OK && out->state == SEMEL_S_NONE)
        return judge_forgotten(s, w, of, out);
    if (e != SM_OK || out->status == SM_UNDO_NOTHING || out->status == SM_UNDO_OPEN)
        return e;
    sm_fingerprint print;
    e = make_call(s, w, of, &print, out);
    bool makes = e == SM_OK;
    if (e == SM_OK || e == SEMEL_E_BAD_ARGUMENTS) {
        sm_fault unmade = w->fault;
        e = find_undo(s, w, of, makes ? &print : NULL, out);
        if (e == SM_OK && !makes) {
            w->fault = unmade;
            e = SEMEL_E_BAD_ARGUMENTS;
        }
    }
    if (out->undo_state == SEMEL_S_SUCCEEDED && out->status != SM_UNDO_DOUBT) {
        out->status = SM_UNDO_DONE;
        out->why = (sm_str){0};
        return SM_OK;
    }
    if (e != SEMEL_E_BAD_ARGUMENTS)
        return e;
    out->call.tool = (sm_str){0};
    if (out->status != SM_UNDO_CANNOT)
        out->why = sm_work_copy(w, sm_str_from(w->fault.text));
    if (out->status == SM_UNDO_TODO)
        out->status = SM_UNDO_CANNOT;
    return SM_OK;
}

sm_err sm_undo_of(semel *s, const sm_handle *effect, semel_answer *a, sm_undo *out)
{
    sm_work *w = sm_work_start(a);
    subject of;
    *out = (sm_undo){0};
    sm_contracts *set = sm_contracts_keep(s, a);
    sm_err e = read_subject(s, w, set, effect, &of, out);
    if (e == SM_OK)
        e = judge(s, w, &of, out);
    sm_contracts_free(set);
    return e == SM_OK ? SM_OK : sm_answer_error(w, a, e);
}

semel_code sm_undo_code(const semel_answer *answer, const sm_undo *after)
{
    if (answer->verdict == SEMEL_REFUSED && answer->code != SEMEL_C_NONE)
        return answer->code;
    switch (after->undo_state) {
    case SEMEL_S_IN_DOUBT: return SEMEL_C_IN_DOUBT;
    case SEMEL_S_PENDING: return SEMEL_C_AWAITING_APPROVAL;
    case SEMEL_S_RUNNING:
    case SEMEL_S_READY: return SEMEL_C_RETRY_IN_FLIGHT;
    case SEMEL_S_DENIED: return SEMEL_C_DENIED;
    case SEMEL_S_FAILED:
    case SEMEL_S_PARTIAL: return SEMEL_C_NONE;
    default: return SEMEL_C_UPSTREAM_FAILED; /* it was not begun, or it was given back */
    }
}

/* ---- by hand ---------------------------------------------------------------------------------*/

/* Compares by value. */
static bool same_args(sm_arena *a, sm_str given, sm_str made)
{
    const sm_json *args;
    sm_buf text;
    sm_buf_init(&text, SM_ARGS_MAX);
    bool same = sm_json_read(a, given.p == NULL ? SM_STR("{}") : given, &sm_json_args_limits, &args,
                             NULL) == SM_OK &&
                sm_json_canon(args, &text, (sm_str){0}, NULL) == SM_OK &&
                sm_str_eq(sm_buf_view(&text), made);
    sm_buf_fini(&text);
    return same;
}

sm_err sm_undo_check(semel *s, const semel_call *call, sm_fault *fault)
{
    sm_handle effect;
    sm_undo u;
    if (!sm_undo_key_parse(call->key, &effect))
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the key of an undo names the effect, such as undo:ef_...");
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        return SEMEL_E_NOMEM;
    sm_err e = sm_undo_of(s, &effect, a, &u);
    if (e == SEMEL_E_NOT_FOUND)
        e = sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "there is no effect that the key names");
    else if (e != SM_OK)
        sm_fault_set(fault, e, "%.*s", SM_FMT(a->message));
    else if (u.call.tool.p == NULL ||
             (u.status != SM_UNDO_TODO && u.status != SM_UNDO_DONE && u.status != SM_UNDO_DOUBT))
        e = sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "%.*s cannot be undone: %.*s",
                         SM_FMT(u.effect), SM_FMT(u.why));
    else if (call->after.p != NULL || !sm_str_eq(call->scope, u.call.scope) ||
             !sm_str_eq(call->tool, u.call.tool) ||
             !same_args(sm_answer_arena(a), call->args, u.call.args))
        e = sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                         "that is not the call which undoes %.*s; semel scope undo %.*s shows it",
                         SM_FMT(u.effect), SM_FMT(u.scope));
    semel_answer_free(a);
    return e;
}

void sm_undo_put_json(const sm_undo *u, sm_buf *out)
{
    sm_buf_byte(out, '{');
    sm_put_text(out, "effect", u->effect);
    sm_put_text(out, "tool", u->tool);
    sm_put_text(out, "state", sm_str_from(semel_state_name(u->state)));
    sm_put_text(out, "status", sm_str_from(sm_undo_status_name(u->status)));
    sm_put_text(out, "why", u->why);
    if (u->call.tool.p != NULL) {
        sm_put_open(out, "call", '{');
        sm_put_text(out, "scope", u->call.scope);
        sm_put_text(out, "tool", u->call.tool);
        sm_put_raw(out, "args", u->call.args);
        sm_put_text(out, "key", u->call.key);
        sm_buf_byte(out, '}');
    }
    sm_put_text(out, "undo", u->undo);
    if (u->undo.p != NULL)
        sm_put_text(out, "undo_state", sm_str_from(semel_state_name(u->undo_state)));
    sm_buf_byte(out, '}');
}

sm_err sm_undo_resolve(semel *s, const sm_handle *effect, sm_str undo, sm_str evidence,
                       sm_str actor, uint64_t if_version, semel_answer *a)
{
    char name[SM_HANDLE_TEXT], text[SM_REASON_MAX + 1];
    snprintf(text, sizeof text, "undone by %.*s%s%.*s", SM_FMT(undo), evidence.n > 0 ? ": " : "",
             SM_FMT(evidence));
    semel_decision d = {
        .size = sizeof d,
        .what = SEMEL_DECIDE_RESOLVE,
        .name = {name, sm_handle_effect(effect, name)},
        .actor = actor,
        .reason = sm_str_from(text),
        .how = SEMEL_RESOLVE_ABANDON,
        .if_version = if_version,
    };
    return semel_decide(s, &d, a);
}
