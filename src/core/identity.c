/* Fill, choose, check, project, hash. */
#include "core/identity.h"

#include "base/limits.h"
#include "core/request.h"
#include "core/secret.h"
#include "json/canon.h"
#include "json/diff.h"

#define SECRETS_MAX 256u /* that are left out one by one */

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

static const sm_json *rival_of(const sm_pointers *list, const sm_json *args)
{
    const sm_json *found = NULL;
    for (uint32_t i = 0; i < list->n && found == NULL; i++)
        found = sm_pointer_rival(&list->v[i], args);
    return found;
}

/* The tool must act on the arguments that we judge. In {"amount": 1, "Amount": 99999} some readers
 * see one name twice and take the second value. */
static sm_err check_rivals(sm_arena *a, const sm_contract *tool, const sm_identity *id,
                           sm_fault *fault)
{
    const sm_contract *c = id->contract;
    sm_str carrier = sm_contract_key_rule(c)->argument; /* where we put the key for the tool */
    sm_pointer place = {0};
    sm_err e = carrier.n == 0 ? SM_OK : sm_pointer_place(a, carrier, &place, fault);
    if (e != SM_OK)
        return e;
    const sm_json *found = sm_conditions_rival(&c->approval.when, id->filled);
    for (uint32_t i = 0; i < tool->variant_count && found == NULL; i++)
        found = sm_conditions_rival(&tool->variants[i].when, id->filled);
    const sm_pointers *const lists[] = {&c->key.fields, &c->key.match, &c->redact,
                                        &c->resource.fields,
                                        &(sm_pointers){.v = &place, .n = carrier.n > 0}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0] && found == NULL; i++)
        found = rival_of(lists[i], id->filled);
    for (uint32_t i = 0; i < c->limit.n && found == NULL; i++)
        found = sm_pointer_rival(&c->limit.v[i].per, id->filled);
    if (found == NULL)
        return SM_OK;
    return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                        "the argument \"%.*s\" is not one that the contract names, but some tools "
                        "take it for one; write it exactly as the contract does",
                        found->len > 100 ? 100 : (int)found->len, found->text);
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
    if (out->contract->input != NULL &&
        (e = sm_schema_check(out->contract->input, out->filled, fault)) != SM_OK)
        return e;
    return check_rivals(a, c, out, fault);
}

/* Parts of an HTTP request: `headers` comes first of those that must match. */
#define HTTP_PART(name)                                                                            \
    {                                                                                              \
        {"/" name, sizeof name}, &(const sm_str){name, sizeof name - 1}, 1                         \
    }
static const sm_pointer http_named[] = {HTTP_PART("method"), HTTP_PART("path"),
                                        HTTP_PART("headers"), HTTP_PART("body_sha256")};
static const sm_pointer http_beside[] = {HTTP_PART("other_headers"), HTTP_PART("loose_headers")};
static const sm_pointer http_part[] = {HTTP_PART("path"), HTTP_PART("query")}; /* of an upload */
static const sm_pointer http_matched[] = {HTTP_PART("headers"), HTTP_PART("other_headers")};

/* Whether it is, or holds, or is in, a part that no contract takes out of a request's key. */
static bool always_counts(const sm_pointer *p)
{
    bool counts = p->count == 0;
    for (size_t i = 0; i < sizeof http_named / sizeof *http_named; i++)
        counts = counts || sm_str_eq(p->tokens[0], http_named[i].tokens[0]);
    return counts;
}

/* The places of a contract's key, with those of an HTTP request. */
static sm_err http_places(sm_arena *a, const sm_pointers *given, bool dropped,
                          const sm_pointer *more, size_t n, const sm_places **out)
{
    sm_places *set = sm_places_new(a);
    sm_err e = set == NULL ? SEMEL_E_NOMEM : SM_OK;
    for (uint32_t i = 0; e == SM_OK && i < given->n; i++)
        e = dropped && always_counts(&given->v[i]) ? SM_OK
                                                   : sm_places_add(set, a, &given->v[i], NULL);
    for (size_t i = 0; e == SM_OK && i < n; i++)
        e = sm_places_add(set, a, &more[i], NULL);
    *out = set;
    return e;
}

/* `hash`: all but what is ignored. */
static sm_err project_rest(sm_arena *a, const sm_contract *c, sm_identity *out)
{
    const sm_places *dropped = c->key.places;
    sm_err e = !out->http ? SM_OK
                          : http_places(a, &c->key.ignore, true, http_beside,
                                        sizeof http_beside / sizeof *http_beside, &dropped);
    out->projected = out->filled;
    return e != SM_OK || (c->key.ignore.n == 0 && !out->http)
               ? e
               : sm_json_drop(a, out->filled, dropped, &out->projected);
}

/* `fields`: only these. */
static sm_err project_fields(sm_arena *a, const sm_contract *c, sm_identity *out, sm_fault *fault)
{
    sm_err e = sm_json_keep(a, out->filled, c->key.places, &out->projected);
    bool bytes = out->http && sm_json_find(out->filled, SM_STR("body_sha256")) != NULL;
    if (e == SM_OK && out->projected == NULL && !bytes)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the arguments have none of the fields that identify the action (%.*s "
                            "and so on), so unrelated calls would share one key",
                            SM_FMT(c->key.fields.v[0].text));
    const sm_places *kept = NULL;
    if (e == SM_OK && out->http)
        e = http_places(a, &c->key.fields, false, http_named,
                        sizeof http_named / sizeof *http_named, &kept);
    return e == SM_OK && kept != NULL ? sm_json_keep(a, out->filled, kept, &out->projected) : e;
}

static sm_err project(sm_arena *a, const sm_contract *c, sm_identity *out, sm_fault *fault)
{
    sm_err e =
        out->strategy == SM_KEY_HASH ? project_rest(a, c, out) : project_fields(a, c, out, fault);
    return e == SM_OK || e == SEMEL_E_BAD_ARGUMENTS ? e : out_of_memory(e, fault);
}

/* The rule by which a call acts on a resource; NULL: it acts on none. */
static const sm_resource_rule *resource_rule(sm_arena *a, const sm_identity *id)
{
    static const sm_resource_rule path = {.fields = {.v = &http_named[1], .n = 1}};
    static const sm_resource_rule part = {.fields = {.v = http_part, .n = 2}};
    if (id->contract->resource.fields.n > 0)
        return &id->contract->resource;
    switch (id->http ? sm_request_acts(a, id->filled) : SM_ACTS_ON_NOTHING) {
    case SM_ACTS_ON_PATH: return &path;
    case SM_ACTS_ON_PART: return &part;
    default: return NULL;
    }
}

/* The value of a resource's field. Two spellings of a request's path name one thing, although they
 * are two requests. */
static sm_err resource_value(sm_arena *a, const sm_identity *id, const sm_pointer *at,
                             const sm_json **out)
{
    const sm_json *value = *out = sm_pointer_get(at, id->filled);
    bool path = id->http && at->count == 1 && sm_str_is(at->tokens[0], "path");
    if (!path || value == NULL || value->type != SM_JSON_STRING)
        return SM_OK;
    sm_json *plain = sm_arena_alloc(a, sizeof *plain);
    sm_str text = sm_path_plain(a, sm_json_text(value));
    if (plain == NULL || text.p == NULL)
        return SEMEL_E_NOMEM;
    *plain = (sm_json){.type = SM_JSON_STRING, .len = (uint32_t)text.n, .span = 1, .text = text.p};
    *out = plain;
    return SM_OK;
}

/* A call that has none of the fields acts on no resource. */
static sm_err find_resource(sm_arena *a, sm_keyer *k, const sm_parsed_call *call, sm_identity *id,
                            sm_fault *fault)
{
    const sm_resource_rule *rule = resource_rule(a, id);
    const sm_json *values[SM_POINTERS_MAX];
    bool any = false;
    for (uint32_t i = 0; rule != NULL && i < rule->fields.n; i++) {
        sm_err e = resource_value(a, id, &rule->fields.v[i], &values[i]);
        if (e != SM_OK)
            return out_of_memory(e, fault);
        any = any || values[i] != NULL;
    }
    if (!any)
        return SM_OK;
    return sm_resource_make(k, call->scope, rule->kind.p != NULL ? rule->kind : call->tool, values,
                            rule->fields.n, &id->resource, fault);
}

/* Steps 1 to 3. */
static sm_err find_contract(sm_arena *a, const sm_contracts *set, const sm_parsed_call *call,
                            sm_identity *out, sm_fault *fault)
{
    const sm_contract *c = sm_contracts_find(set, call->tool);
    if (c == NULL)
        return sm_fault_set(fault, SEMEL_E_UNKNOWN_TOOL,
                            "the tool \"%.*s\" is not listed, and unlisted tools are hidden",
                            SM_FMT(call->tool));
    const sm_declared_tool *meant = sm_contracts_rival(set, call->tool);
    if (meant != NULL)
        return sm_fault_set(
            fault, SEMEL_E_BAD_ARGUMENTS,
            "the tool \"%.*s\" is not listed by its name, but \"%.*s\" is, and some "
            "servers take one for the other; list both if there are two",
            SM_FMT(call->tool), SM_FMT(meant->name));
    return settle_arguments(a, c, call->args, out, fault);
}

static bool reads_or_asks(const sm_contract *c)
{
    return c->class == SM_CLASS_READ || c->approval.on;
}

/* Whether some call of the tool does. */
static bool may_matter(const sm_contract *c)
{
    bool may = reads_or_asks(c);
    for (uint32_t i = 0; i < c->variant_count && !may; i++)
        may = reads_or_asks(&c->variants[i].contract);
    return may;
}

void sm_call_look(sm_arena *a, const sm_contracts *set, sm_str tool, sm_str args, sm_look *out)
{
    const sm_contract *c = sm_contracts_find(set, tool);
    sm_parsed_call call = {.tool = tool, .args_text = args};
    sm_identity found = {.http = true};
    *out = (sm_look){0};
    if (c == NULL || !may_matter(c) ||
        sm_json_read(a, args, &sm_json_default_limits, &call.args, NULL) != SM_OK ||
        find_contract(a, set, &call, &found, NULL) != SM_OK)
        return;
    out->args = call.args;
    out->reads = found.contract->class == SM_CLASS_READ;
    out->asks = !out->reads && sm_identity_asks(a, &found);
}

bool sm_identity_asks(sm_arena *a, const sm_identity *id)
{
    const sm_approval *ap = &id->contract->approval;
    return ap->on && (ap->when.n == 0 || sm_conditions_hold(&ap->when, id->filled, true) ||
                      (id->http && sm_request_odd(a, id->filled)));
}

sm_err sm_identify(sm_arena *a, sm_keyer *k, const sm_contracts *set, const sm_parsed_call *call,
                   const uint8_t *nonce, sm_identity *out, sm_fault *fault)
{
    *out = (sm_identity){.http = call->http};
    sm_err e = sm_call_check(call, fault);
    if (e != SM_OK)
        return e;
    e = find_contract(a, set, call, out, fault);
    if (e != SM_OK)
        return e;
    const sm_contract *c = out->contract;
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
    e = find_resource(a, k, call, out, fault);
    return e != SM_OK
               ? e
               : sm_key_make(k, out->strategy, call, out->projected, nonce, &out->key, fault);
}

/* Where the caller names the action by a key of its own, other arguments are a mistake unless the
 * contract says otherwise, whatever the tool's own strategy is. */
static bool forgives(const sm_identity *id)
{
    bool given = id->contract->origin[SM_F_ON_DRIFT].layer >= SM_FROM_DEFAULTS;
    return id->contract->on_drift == SM_DRIFT_REPLAY &&
           (given || (id->strategy != SM_KEY_EXPLICIT && id->strategy != SM_KEY_STEP));
}

static bool agree(const sm_pointer *at, const sm_identity *earlier, const sm_identity *later)
{
    const sm_json *a = sm_pointer_get(at, earlier->filled);
    const sm_json *b = sm_pointer_get(at, later->filled);
    return (a == NULL) == (b == NULL) && (a == NULL || sm_json_equal(a, b));
}

bool sm_hides_header(const sm_identity *id)
{
    bool in_key = id->strategy == SM_KEY_HASH || id->strategy == SM_KEY_FIELDS; /* `headers` are */
    const sm_pointers *redact = &id->contract->redact;
    for (size_t i = in_key; id->http && i < sizeof http_matched / sizeof *http_matched; i++) {
        for (uint32_t k = 0; k < redact->n; k++)
            if (sm_pointer_overlap(&redact->v[k], &http_matched[i]))
                return true;
    }
    return false;
}

/* Told of a difference: whether it is one that does not matter. */
static bool is_loose(void *context, sm_str pointer, const sm_json *a, const sm_json *b)
{
    static const char loose[] = "/loose_headers";
    bool *all = context;
    (void)a;
    (void)b;
    *all = pointer.n >= sizeof loose - 1 && memcmp(pointer.p, loose, sizeof loose - 1) == 0 &&
           (pointer.n == sizeof loose - 1 || pointer.p[sizeof loose - 1] == '/');
    return *all;
}

sm_drift sm_identity_drift(const sm_identity *earlier, const sm_identity *later)
{
    if (earlier->contract != later->contract)
        return SM_CONFLICTS;
    if (sm_json_equal(earlier->filled, later->filled))
        return SM_SAME;
    const sm_pointers *match = &later->contract->key.match;
    for (uint32_t i = 0; i < match->n; i++)
        if (!agree(&match->v[i], earlier, later))
            return SM_CONFLICTS;
    for (size_t i = 0; later->http && i < sizeof http_matched / sizeof *http_matched; i++)
        if (!agree(&http_matched[i], earlier, later))
            return SM_CONFLICTS;
    bool loose = false;
    if (later->http)
        sm_json_diff(earlier->filled, later->filled, is_loose, &loose);
    return loose || forgives(later) ? SM_DRIFTED : SM_CONFLICTS;
}

/* ---- what is not stored ----------------------------------------------------------------------*/

/* The places where a mark stands. */
typedef struct redaction {
    sm_arena *arena;
    sm_places *gone, *marked;
    const sm_json *mark;
    uint32_t found;
    sm_str way[SM_JSON_DEPTH_MAX]; /* to what is looked at */
} redaction;

static sm_err put_place(redaction *r, const sm_pointer *p, const sm_json *value)
{
    r->found++;
    sm_err e = sm_places_add(r->gone, r->arena, p, NULL);
    return e == SM_OK ? sm_places_add(r->marked, r->arena, p, value) : e;
}

static sm_err mark_place(redaction *r, const sm_pointer *p)
{
    return put_place(r, p, r->mark);
}

/* Whether a member's value is a secret. A flag is none, and says what a person may want to know. */
static bool hides(const redaction *r, const sm_json *value, uint32_t depth)
{
    return value->type != SM_JSON_TRUE && value->type != SM_JSON_FALSE &&
           value->type != SM_JSON_NULL && sm_way_secret(r->way, depth + 1);
}

/* Finds the secrets below `v`: counts them, or marks them. */
static sm_err find_secrets(redaction *r, const sm_json *v, uint32_t depth, uint32_t *count)
{
    sm_err e = SM_OK;
    bool object = v->type == SM_JSON_OBJECT;
    if ((!object && v->type != SM_JSON_ARRAY) || depth == SM_JSON_DEPTH_MAX)
        return SM_OK;
    const sm_json *at = v + 1;
    for (uint32_t i = 0; e == SM_OK && i < v->len; i++) {
        const sm_json *value = object ? at + 1 : at;
        r->way[depth] = object          ? sm_json_text(at)
                        : count == NULL ? sm_arena_printf(r->arena, "%u", i)
                                        : SM_STR("");
        if (!object || !hides(r, value, depth))
            e = find_secrets(r, value, depth + 1, count);
        else if (count != NULL)
            ++*count;
        else
            e = mark_place(r, &(sm_pointer){.tokens = r->way, .count = depth + 1});
        at = sm_json_next(value);
    }
    return e;
}

/* Those of an HTTP request. If there are many, nothing of its body is stored. */
static sm_err mark_body(redaction *r, const sm_json *args)
{
    static const char *const parts[] = {"body", "form"};
    sm_err e = SM_OK;
    for (size_t i = 0; e == SM_OK && i < sizeof parts / sizeof *parts; i++) {
        const sm_json *part = sm_json_find(args, sm_str_from(parts[i]));
        uint32_t n = 0;
        if (part == NULL)
            continue;
        r->way[0] = sm_json_text(part - 1); /* its name: texts of a tree are padded */
        e = find_secrets(r, part, 1, &n);
        if (n > SECRETS_MAX)
            e = mark_place(r, &(sm_pointer){.tokens = r->way, .count = 1});
        else if (n > 0)
            e = find_secrets(r, part, 1, NULL);
    }
    return e;
}

/* Secrets in the query of an HTTP request. */
static sm_err mark_query(redaction *r, const sm_contract *c, const sm_json *args)
{
    const sm_json *query = sm_json_find(args, SM_STR("query")), *text = NULL;
    const sm_pointer place = {.tokens = r->way, .count = 1};
    bool gone = query == NULL || query->type != SM_JSON_STRING;
    if (!gone)
        r->way[0] = sm_json_text(query - 1); /* its name: texts of a tree are padded */
    for (uint32_t i = 0; i < c->redact.n && !gone; i++)
        gone = sm_pointer_overlap(&c->redact.v[i], &place);
    if (gone)
        return SM_OK;
    sm_str safe = sm_query_redact(r->arena, sm_json_text(query));
    if (safe.p == sm_json_text(query).p)
        return SM_OK;
    sm_buf json;
    sm_buf_init(&json, SM_ARENA_MAX);
    sm_json_put_string(&json, safe);
    sm_err e = safe.p == NULL ? SEMEL_E_NOMEM : json.err;
    if (e == SM_OK)
        e = sm_json_read(r->arena, sm_buf_view(&json), &sm_json_args_limits, &text, NULL);
    sm_buf_fini(&json);
    return e == SM_OK ? put_place(r, &place, text) : e;
}

sm_err sm_redact(sm_arena *a, const sm_identity *id, const sm_json **out)
{
    const sm_contract *c = id->contract;
    *out = id->filled;
    if (c->redact.n == 0 && !id->http)
        return SM_OK;
    redaction r = {.arena = a, .gone = sm_places_new(a), .marked = sm_places_new(a)};
    sm_err e =
        sm_json_read(a, SM_STR("\"" SM_REDACTED "\""), &sm_json_default_limits, &r.mark, NULL);
    if (e != SM_OK || r.gone == NULL || r.marked == NULL)
        return SEMEL_E_NOMEM;
    for (uint32_t i = 0; i < c->redact.n && e == SM_OK; i++) {
        const sm_pointer *p = &c->redact.v[i];
        if (sm_pointer_get(p, id->filled) == NULL)
            continue;
        if (p->count == 0) { /* everything */
            *out = r.mark;
            return SM_OK;
        }
        e = mark_place(&r, p);
    }
    if (e == SM_OK && id->http)
        e = mark_body(&r, id->filled);
    if (e == SM_OK && id->http)
        e = mark_query(&r, c, id->filled);
    if (e == SM_OK && r.found > 0)
        e = sm_json_drop(a, id->filled, r.gone, out);
    if (e == SM_OK && r.found > 0)
        e = sm_json_fill(a, *out, r.marked, out);
    return e;
}
