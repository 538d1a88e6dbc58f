/* Fill, choose, check, project, hash. */
#include "core/identity.h"

#include "json/diff.h"

static sm_err out_of_memory(sm_err e, sm_fault *fault)
{
    return sm_fault_set(fault, e, "%s", semel_err_text(e));
}

static sm_err apply_fill(sm_arena *a, const sm_contract *c, const sm_json *args,
                         const sm_json **out, sm_fault *fault)
{
    *out = args;
    sm_err e = c->fill.count == 0 ? SM_OK : sm_json_fill(a, args, c->fill.places, out);
    return e == SM_OK ? e : out_of_memory(e, fault);
}

/* Steps 2 and 3. */
static sm_err settle_arguments(sm_arena *a, const sm_contract *c, const sm_json *args,
                               sm_identity *out, sm_fault *fault)
{
    sm_err e = apply_fill(a, c, args, &out->filled, fault);
    if (e != SM_OK)
        return e;
    out->contract = sm_contract_variant(c, out->filled);
    if (out->contract->fill.places != c->fill.places &&
        (e = apply_fill(a, out->contract, out->filled, &out->filled, fault)) != SM_OK)
        return e;
    return out->contract->input == NULL ? SM_OK
                                        : sm_schema_check(out->contract->input, out->filled, fault);
}

static sm_err project(sm_arena *a, const sm_contract *c, sm_identity *out, sm_fault *fault)
{
    out->projected = out->filled;
    if (out->strategy == SM_KEY_HASH) {
        sm_err e = c->key.ignore.n == 0
                       ? SM_OK
                       : sm_json_drop(a, out->filled, c->key.places, &out->projected);
        return e == SM_OK ? e : out_of_memory(e, fault);
    }
    sm_err e = sm_json_keep(a, out->filled, c->key.places, &out->projected);
    if (e != SM_OK)
        return out_of_memory(e, fault);
    if (out->projected == NULL)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the arguments have none of the fields that identify the action (%.*s "
                            "and so on), so unrelated calls would share one key",
                            SM_FMT(c->key.fields.v[0].text));
    return SM_OK;
}

sm_err sm_identify(sm_arena *a, sm_keyer *k, const sm_contracts *set, const sm_call *call,
                   const uint8_t *nonce, sm_identity *out, sm_fault *fault)
{
    *out = (sm_identity){0};
    sm_err e = sm_call_check(call, fault);
    if (e != SM_OK)
        return e;
    const sm_contract *c = sm_contracts_find(set, call->tool);
    if (c == NULL)
        return sm_fault_set(fault, SEMEL_E_UNKNOWN_TOOL,
                            "the tool \"%.*s\" is not listed, and unlisted tools are hidden",
                            SM_FMT(call->tool));
    e = settle_arguments(a, c, call->args, out, fault);
    if (e != SM_OK)
        return e;
    c = out->contract;
    out->strategy = sm_contract_strategy(c);
    if (out->strategy == SM_KEY_NONE && (call->key.p == NULL || c->class == SM_CLASS_READ))
        return SM_OK;
    if (call->key.p != NULL)
        out->strategy = SM_KEY_EXPLICIT;
    if (out->strategy == SM_KEY_EXPLICIT && call->key.p == NULL)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "\"%.*s\" is identified by the caller's key, and the call has none",
                            SM_FMT(call->tool));
    /* The strategy `step` asks for one by itself; the caller's key takes its place. */
    bool asked = call->key.p == NULL || c->origin[SM_F_STEP].layer != SM_FROM_DERIVED;
    if (c->step == SM_NEED_REQUIRED && asked && call->step.p == NULL)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "\"%.*s\" needs a step, and the call has none", SM_FMT(call->tool));
    if (out->strategy == SM_KEY_HASH || out->strategy == SM_KEY_FIELDS) {
        e = project(a, c, out, fault);
        if (e != SM_OK)
            return e;
    }
    return sm_key_make(k, out->strategy, call, out->projected, nonce, &out->key, fault);
}

/* Where the caller names the action by a key of its own, other arguments are a mistake unless the
 * contract says otherwise, whatever the tool's own strategy is. */
static bool forgives(const sm_identity *id)
{
    bool given = id->contract->origin[SM_F_ON_DRIFT].layer >= SM_FROM_DEFAULTS;
    return id->contract->on_drift == SM_DRIFT_REPLAY &&
           (given || (id->strategy != SM_KEY_EXPLICIT && id->strategy != SM_KEY_STEP));
}

sm_drift sm_identity_drift(const sm_identity *earlier, const sm_identity *later)
{
    if (earlier->contract != later->contract)
        return SM_CONFLICTS;
    if (sm_json_equal(earlier->filled, later->filled))
        return SM_SAME;
    const sm_pointers *match = &later->contract->key.match;
    for (uint32_t i = 0; i < match->n; i++) {
        const sm_json *a = sm_pointer_get(&match->v[i], earlier->filled);
        const sm_json *b = sm_pointer_get(&match->v[i], later->filled);
        if ((a == NULL) != (b == NULL) || (a != NULL && !sm_json_equal(a, b)))
            return SM_CONFLICTS;
    }
    return forgives(later) ? SM_DRIFTED : SM_CONFLICTS;
}

sm_err sm_redact(sm_arena *a, const sm_contract *c, const sm_json *args, const sm_json **out)
{
    *out = args;
    if (c->redact.n == 0)
        return SM_OK;
    sm_places *gone = sm_places_new(a), *marked = sm_places_new(a);
    const sm_json *mark = NULL;
    sm_err e = sm_json_read(a, SM_STR("\"[redacted]\""), &sm_json_default_limits, &mark, NULL);
    if (e != SM_OK || gone == NULL || marked == NULL)
        return SEMEL_E_NOMEM;
    uint32_t found = 0;
    for (uint32_t i = 0; i < c->redact.n && e == SM_OK; i++) {
        const sm_pointer *p = &c->redact.v[i];
        if (sm_pointer_get(p, args) == NULL)
            continue;
        found++;
        if (p->count == 0) { /* everything */
            *out = mark;
            return SM_OK;
        }
        e = sm_places_add(gone, a, p, NULL);
        if (e == SM_OK)
            e = sm_places_add(marked, a, p, mark);
    }
    if (e == SM_OK && found > 0)
        e = sm_json_drop(a, args, gone, out);
    if (e == SM_OK && found > 0)
        e = sm_json_fill(a, *out, marked, out);
    return e;
}
