/*
 * What must fit together in an effective contract, and what probably does not do what its author
 * meant. The first are errors, the second warnings; both say what to write instead.
 */
#include <ctype.h>

#include "base/duration.h"
#include "base/header.h"
#include "core/identity.h"

typedef struct check {
    sm_loader *l;
    const sm_contracts *set;
    const sm_declared_tool *tool;
    const sm_contract *c;
} check;

const sm_json *sm_contract_place(const sm_declared_tool *tool, const sm_contract *c,
                                 sm_contract_field id, const char *inner)
{
    const sm_json *given = c->origin[id].given;
    const sm_json *part = inner == NULL ? NULL : sm_json_find(given, sm_str_from(inner));
    return part != NULL ? part : given != NULL ? given : tool->given;
}

static const sm_json *place(const check *k, sm_contract_field id)
{
    return sm_contract_place(k->tool, k->c, id, NULL);
}

static const sm_json *inner_place(const check *k, sm_contract_field id, const char *name)
{
    return sm_contract_place(k->tool, k->c, id, name);
}

/* Whether the tool or its variant gives a field, rather than the file's defaults. */
static bool given_here(const check *k, sm_contract_field id)
{
    return k->c->origin[id].layer >= SM_FROM_TOOL;
}

static bool chain_has(const check *k, sm_doubt step)
{
    for (uint8_t i = 0; i < k->c->on_in_doubt.count; i++) {
        if (k->c->on_in_doubt.steps[i] == step)
            return true;
    }
    return false;
}

/* The downstream's idempotency, wherever it is declared; NULL if it is not. */
static const sm_idempotency *downstream(const check *k)
{
    if (k->c->origin[SM_F_IDEMPOTENCY].given != NULL)
        return &k->c->idempotency;
    return sm_json_find(k->c->origin[SM_F_UPSTREAM].given, SM_STR("idempotency")) != NULL
               ? &k->c->upstream.idempotency
               : NULL;
}

static const sm_json *downstream_place(const check *k)
{
    return k->c->origin[SM_F_IDEMPOTENCY].given != NULL
               ? place(k, SM_F_IDEMPOTENCY)
               : inner_place(k, SM_F_UPSTREAM, "idempotency");
}

static const char *duration(char text[SM_DURATION_TEXT], int64_t ms)
{
    sm_duration_text(ms, text);
    return text;
}

/* ---- errors ----------------------------------------------------------------------------------*/

/* Method, path and headers of a request are part of its identity whatever the contract says. */
static bool always_counts(const check *k, const sm_pointer *p)
{
    return sm_tool_proxy(k->tool) && p->count > 0 &&
           (sm_str_is(p->tokens[0], "method") || sm_str_is(p->tokens[0], "path") ||
            sm_str_is(p->tokens[0], "headers"));
}

static void check_key(const check *k)
{
    const sm_key_rule *key = &k->c->key;
    bool hash = key->strategy == SM_KEY_HASH, fields = key->strategy == SM_KEY_FIELDS;
    if (fields && key->fields.n == 0)
        sm_complain(k->l, place(k, SM_F_KEY),
                    "key: the strategy fields needs the pointers; write key: { fields: "
                    "[/order_id] }");
    if (key->fields.n > 0 && !fields)
        sm_complain(k->l, inner_place(k, SM_F_KEY, "fields"),
                    "key: fields belongs to the strategy fields, not %s; remove one of them",
                    sm_strategy_name(key->strategy));
    if (key->ignore.n > 0 && fields)
        sm_complain(k->l, inner_place(k, SM_F_KEY, "ignore"),
                    "key: fields names all that counts, so there is nothing to ignore; remove one "
                    "of them");
    else if (key->ignore.n > 0 && !hash)
        sm_complain(k->l, inner_place(k, SM_F_KEY, "ignore"),
                    "key: ignore belongs to the strategy hash, not %s; remove it",
                    sm_strategy_name(key->strategy));
    for (uint32_t i = 0; i < key->ignore.n; i++) {
        if (always_counts(k, &key->ignore.v[i]))
            sm_advise(k->l, inner_place(k, SM_F_KEY, "ignore"),
                      "key: %.*s of a request counts whatever the contract says; remove it from "
                      "ignore. To ignore a header, write ignore_headers in the gateway's "
                      "configuration",
                      SM_FMT(key->ignore.v[i].text));
    }
    if (key->match.n > 0 && (key->strategy == SM_KEY_UNIQUE || key->strategy == SM_KEY_NONE))
        sm_complain(k->l, inner_place(k, SM_F_KEY, "match"),
                    "key: with the strategy %s no call meets an earlier one to match; remove match",
                    sm_strategy_name(key->strategy));
    for (uint32_t i = 0; i < key->match.n; i++) {
        for (uint32_t j = 0; fields && j < key->fields.n; j++) {
            if (sm_pointer_overlap(&key->match.v[i], &key->fields.v[j]))
                sm_complain(k->l, inner_place(k, SM_F_KEY, "match"),
                            "key: %.*s is part of the identity already; remove it from match",
                            SM_FMT(key->match.v[i].text));
        }
    }
    if (key->strategy == SM_KEY_STEP && k->c->step == SM_NEED_OPTIONAL)
        sm_complain(k->l, place(k, SM_F_STEP),
                    "the strategy step names an action by its step; write step: required");
}

static const sm_pointer *first_overlap(const sm_pointers *list, const sm_pointer *with, uint32_t n)
{
    for (uint32_t i = 0; i < list->n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            if (sm_pointer_overlap(&list->v[i], &with[j]))
                return &list->v[i];
        }
    }
    return NULL;
}

/* Calls with one key must act on one resource. */
static void check_resource(const check *k)
{
    const sm_contract *c = k->c;
    const sm_pointers *fields = &c->resource.fields;
    const sm_json *at = place(k, SM_F_RESOURCE);
    if (c->origin[SM_F_RESOURCE].given == NULL)
        return;
    if (fields->n == 0)
        sm_complain(k->l, at,
                    "resource: name the arguments that say what a call acts on, as in resource: "
                    "[/path]");
    const sm_pointer *p = first_overlap(fields, c->key.ignore.v, c->key.ignore.n);
    if (p != NULL)
        sm_complain(k->l, at,
                    "resource: %.*s is under key.ignore, so calls that act on different resources "
                    "share one key; remove one of them",
                    SM_FMT(p->text));
    for (uint32_t i = 0; c->key.strategy == SM_KEY_FIELDS && i < fields->n; i++) {
        if (!always_counts(k, &fields->v[i]) &&
            first_overlap(&c->key.fields, &fields->v[i], 1) == NULL &&
            first_overlap(&c->key.match, &fields->v[i], 1) == NULL)
            sm_advise(k->l, at,
                      "resource: %.*s is not part of the identity, so calls that act on different "
                      "resources may share one key; add it to key.fields or key.match",
                      SM_FMT(fields->v[i].text));
    }
    if (c->key.strategy == SM_KEY_NONE)
        sm_advise(k->l, at,
                  "resource has no effect with key: none, because such calls are not recorded; "
                  "remove it, or write key: unique");
}

static void check_windows(const check *k)
{
    const sm_contract *c = k->c;
    char a[SM_DURATION_TEXT], b[SM_DURATION_TEXT];
    if (c->class != SM_CLASS_READ && c->result_window_ms > c->window_ms)
        sm_complain(k->l, place(k, SM_F_RESULT_WINDOW),
                    "result_window (%s) is longer than window (%s): the outcome cannot outlive its "
                    "key; write result_window: %s or a longer window",
                    duration(a, c->result_window_ms), duration(b, c->window_ms), b);
    if (c->upstream.retry.backoff_ms > c->upstream.retry.max_backoff_ms)
        sm_complain(k->l, inner_place(k, SM_F_UPSTREAM, "retry"),
                    "retry: backoff (%s) is longer than max_backoff (%s); swap them",
                    duration(a, c->upstream.retry.backoff_ms),
                    duration(b, c->upstream.retry.max_backoff_ms));
}

static void check_idempotency(const check *k)
{
    const sm_idempotency *d = downstream(k);
    if (d == NULL)
        return;
    const sm_json *at = downstream_place(k);
    bool upstream = k->c->origin[SM_F_UPSTREAM].given != NULL;
    int names = (d->header.p != NULL) + (d->meta.p != NULL) + (d->argument.p != NULL);
    if (names != 1)
        sm_complain(k->l, at,
                    "idempotency: say how the key travels, with one of header, meta or "
                    "argument");
    else if (d->header.p != NULL && !upstream)
        sm_complain(k->l, at,
                    "idempotency: a header needs an upstream; without one, write meta or "
                    "argument");
    else if (d->meta.p != NULL && upstream)
        sm_complain(k->l, at,
                    "idempotency: meta is for MCP tools; for an upstream, write header "
                    "or argument");
    if (k->c->origin[SM_F_IDEMPOTENCY].given != NULL &&
        sm_json_find(k->c->origin[SM_F_UPSTREAM].given, SM_STR("idempotency")) != NULL)
        sm_complain(k->l, at, "idempotency is given both here and under upstream; remove one");
}

/* Whether the body of the upstream's request is made of the arguments. */
static bool sends_arguments(const sm_upstream *u)
{
    return u->method != SM_METHOD_GET && u->body != SM_BODY_NONE;
}

static void check_upstream(const check *k)
{
    const sm_upstream *u = &k->c->upstream;
    const sm_json *given = k->c->origin[SM_F_UPSTREAM].given;
    if (given == NULL)
        return;
    const sm_idempotency *d = downstream(k);
    if (d != NULL && d->argument.p != NULL && !sends_arguments(u))
        sm_complain(k->l, downstream_place(k),
                    "idempotency: the request has no body, so the key cannot be one of its "
                    "arguments; write header, or a method and body that carry arguments");
    for (uint32_t i = 0; d != NULL && d->header.p != NULL && i < u->headers.n; i++) {
        if (sm_header_is(u->headers.v[i].name, d->header))
            sm_complain(k->l, inner_place(k, SM_F_UPSTREAM, "headers"),
                        "%.*s is the header that the key travels in; remove it from headers",
                        SM_FMT(d->header));
    }
    if (u->method == SM_METHOD_GET && sm_json_find(given, SM_STR("body")) != NULL &&
        u->body != SM_BODY_NONE)
        sm_advise(k->l, inner_place(k, SM_F_UPSTREAM, "body"),
                  "a GET has no body: its arguments go into the URL, as in ?id={id}; remove body");
}

static void check_doubt(const check *k)
{
    const sm_contract *c = k->c;
    const sm_json *at = place(k, SM_F_ON_IN_DOUBT);
    const sm_idempotency *d = downstream(k);
    char a[SM_DURATION_TEXT], b[SM_DURATION_TEXT];
    if (chain_has(k, SM_DOUBT_RESEND) && d == NULL && !sm_tool_proxy(k->tool))
        sm_complain(k->l, at,
                    "resend is safe only where the downstream recognises a key; declare it with "
                    "%s, or remove resend",
                    c->origin[SM_F_UPSTREAM].given != NULL
                        ? "upstream: { idempotency: { header: Idempotency-Key, window: 24h } }"
                        : "idempotency: { argument: NAME, window: 24h } (or meta: NAME) for an MCP "
                          "tool, under upstream for any other");
    if (chain_has(k, SM_DOUBT_RESEND) && d == NULL && sm_tool_proxy(k->tool))
        sm_advise(k->l, at,
                  "resend happens only if the proxy declares idempotency in the gateway's "
                  "configuration, and is what happens then by itself; declare it there, and remove "
                  "resend here");
    if (chain_has(k, SM_DOUBT_RESEND) && d != NULL && d->window_ms < c->lease_ms)
        sm_complain(k->l, at,
                    "resend: the downstream forgets a key after %s, before the lease (%s) is over; "
                    "write a lease shorter than that, or remove resend",
                    duration(a, d->window_ms), duration(b, c->lease_ms));
    if (chain_has(k, SM_DOUBT_PROBE) && c->origin[SM_F_PROBE].given == NULL)
        sm_complain(k->l, at,
                    "probe names no tool; add probe: { tool: NAME, applied: { when: [...] } }, or "
                    "remove it from the chain");
    if (given_here(k, SM_F_PROBE) && !chain_has(k, SM_DOUBT_PROBE))
        sm_advise(k->l, place(k, SM_F_PROBE),
                  "probe is declared but never used; write on_in_doubt: [probe, hold]");
    if (chain_has(k, SM_DOUBT_RERUN) &&
        (c->class == SM_CLASS_IRREVERSIBLE || c->class == SM_CLASS_WRITE))
        sm_advise(k->l, at,
                  "rerun repeats the effect after a crash; if that is safe, write class: "
                  "write_idempotent, else remove rerun");
}

static void check_other_tool(const check *k, sm_contract_field id, sm_str name, bool read)
{
    if (name.p == NULL)
        return;
    const sm_json *at = inner_place(k, id, "tool");
    if (!k->tool->glob && sm_str_eq(name, k->tool->name)) {
        sm_complain(k->l, at, "a tool cannot be its own %s; name another tool",
                    read ? "probe" : "compensation");
        return;
    }
    const sm_declared_tool *other = sm_contracts_tool(k->set, name);
    if (other == NULL)
        sm_advise(k->l, at, "\"%.*s\" is not listed in this file; add it with class: %s",
                  SM_FMT(name), read ? "read" : "write");
    else if (read && other->contract.class != SM_CLASS_READ)
        sm_complain(k->l, at, "a probe only looks: \"%.*s\" must have class: read, it has %s",
                    SM_FMT(name), sm_class_name(other->contract.class));
    else if (!read && other->contract.class == SM_CLASS_READ)
        sm_complain(k->l, at,
                    "\"%.*s\" has class: read and so undoes nothing; name a tool that "
                    "writes",
                    SM_FMT(name));
}

/* An undo's arguments are put together from nothing: its places are members of objects, and none
 * is inside another. */
static void check_undo(const check *k)
{
    const sm_argument_map *map = &k->c->compensate.args;
    const sm_json *at = inner_place(k, SM_F_COMPENSATE, "args");
    for (uint32_t i = 0; i < map->count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (sm_pointer_overlap(&map->to[i], &map->to[j]))
                sm_complain(k->l, at,
                            "args: %.*s and %.*s are the same place or one is inside the "
                            "other; remove one of them",
                            SM_FMT(map->to[j].text), SM_FMT(map->to[i].text));
        }
        for (uint32_t j = 0; j < map->to[i].count; j++) {
            if (sm_pointer_index(map->to[i].tokens[j]) == SM_NO_INDEX)
                continue;
            sm_complain(k->l, at,
                        "args: %.*s names an element of an array, which cannot be made; "
                        "name the array, or members of objects",
                        SM_FMT(map->to[i].text));
            break;
        }
    }
}

/* What is never stored cannot be used later from what is stored. */
static void check_redact(const check *k)
{
    const sm_contract *c = k->c;
    const sm_json *at = place(k, SM_F_REDACT);
    if (c->redact.n == 0)
        return;
    if ((chain_has(k, SM_DOUBT_RESEND) && !sm_tool_proxy(k->tool)) ||
        (chain_has(k, SM_DOUBT_RERUN) && c->origin[SM_F_UPSTREAM].given != NULL))
        sm_complain(k->l, at,
                    "redact: resend and rerun send the stored arguments again, and "
                    "redacted ones are not stored; remove one of them");
    const sm_pointer *p = first_overlap(&c->redact, c->probe.args.from, c->probe.args.count);
    const sm_argument_map *undo = &c->compensate.args;
    for (uint32_t i = 0; p == NULL && i < undo->count; i++) {
        if (!undo->of_outcome[i])
            p = first_overlap(&c->redact, &undo->from[i], 1);
    }
    if (p != NULL)
        sm_complain(k->l, at, "redact: %.*s is needed for the arguments of probe or compensate",
                    SM_FMT(p->text));
    p = first_overlap(&c->redact, c->key.match.v, c->key.match.n);
    if (p != NULL)
        sm_complain(k->l, at,
                    "redact: %.*s is under key.match, which compares it with the stored "
                    "value; remove one of them",
                    SM_FMT(p->text));
}

static void check_read(const check *k)
{
    if (k->c->class != SM_CLASS_READ)
        return;
    if (given_here(k, SM_F_APPROVAL) && k->c->approval.on)
        sm_complain(k->l, place(k, SM_F_APPROVAL),
                    k->c != &k->tool->contract
                        ? "a variant reads, and a read passes without a record, so nobody can "
                          "approve it; write approval: off in that variant"
                        : "a read passes through without a record, so nobody can approve it; "
                          "write class: write");
    static const sm_contract_field idle[] = {
        SM_F_KEY,        SM_F_WINDOW,   SM_F_RESULT_WINDOW, SM_F_LEASE,     SM_F_ON_HIT,
        SM_F_FAILURES,   SM_F_ON_DRIFT, SM_F_ON_IN_DOUBT,   SM_F_ON_REPEAT, SM_F_BARRIER,
        SM_F_COMPENSATE, SM_F_RESOURCE, SM_F_LIMIT,         SM_F_BREAKER,   SM_F_BUDGET,
        SM_F_COST,       SM_F_TOKENS};
    /* A variant that reads has its tool's fields for nothing, and they are not for it. */
    sm_layer own = k->c->variant > 0 ? SM_FROM_VARIANT : SM_FROM_TOOL;
    for (size_t i = 0; i < sizeof idle / sizeof idle[0]; i++) {
        if (k->c->origin[idle[i]].layer == own)
            sm_advise(k->l, place(k, idle[i]),
                      "%s has no effect on a read, which is not remembered; remove it",
                      sm_contract_group.fields[idle[i]].name);
    }
}

static void check_guards(const check *k)
{
    const sm_loop_rule *loop = &k->c->loop;
    static const sm_contract_field recorded[] = {SM_F_BREAKER, SM_F_BUDGET, SM_F_COST, SM_F_TOKENS};
    bool unrecorded = k->c->key.strategy == SM_KEY_NONE && k->c->class != SM_CLASS_READ;
    for (size_t i = 0; unrecorded && i < sizeof recorded / sizeof recorded[0]; i++) {
        if (k->c->origin[recorded[i]].layer >= SM_FROM_TOOL)
            sm_advise(k->l, place(k, recorded[i]),
                      "%s has no effect with key: none, because such calls are not recorded; "
                      "remove it, or write key: unique",
                      sm_contract_group.fields[recorded[i]].name);
    }
    if (loop->on && ((loop->block > 0 && loop->warn > loop->block) ||
                     (loop->trip > 0 && (loop->warn > loop->trip || loop->block > loop->trip))))
        sm_complain(k->l, place(k, SM_F_LOOP),
                    "loop: warn, block and trip must not decrease; write for example warn: 3, "
                    "block: 5, trip: 8");
    /* A rule that holds for more than one tool that waits for something hides loops of others. */
    if (loop->on && loop->poll &&
        (k->tool->glob || k->c->class != SM_CLASS_READ ||
         k->c->origin[SM_F_LOOP].layer < SM_FROM_TOOL))
        sm_complain(k->l, sm_contract_place(k->tool, k->c, SM_F_LOOP, "poll"), SM_POLL_IS_NARROW);
}

/* Whether the first of two limits for one argument never matters, because of the second. */
static bool idle_limit(const sm_limit_rule *a, const sm_limit_rule *b)
{
    return b->window_ms > a->window_ms
               ? b->calls <= a->calls
               : b->calls * ((a->window_ms + b->window_ms - 1) / b->window_ms) <= a->calls;
}

/* How often one destination may be acted on. */
static void check_limit(const check *k)
{
    const sm_limits *limits = &k->c->limit;
    const sm_json *at = place(k, SM_F_LIMIT);
    const sm_key_rule *key = &k->c->key;
    for (uint32_t i = 0; i < limits->n; i++) {
        const sm_pointer *per = &limits->v[i].per;
        if (first_overlap(&key->ignore, per, 1) != NULL)
            sm_complain(k->l, at,
                        "limit: %.*s is under key.ignore, so calls for different ones share one "
                        "key, and only the first runs; remove one of them",
                        SM_FMT(per->text));
        if (key->strategy == SM_KEY_FIELDS && !always_counts(k, per) &&
            first_overlap(&key->fields, per, 1) == NULL &&
            first_overlap(&key->match, per, 1) == NULL)
            sm_advise(k->l, at,
                      "limit: %.*s is not part of the identity, so calls for different ones may "
                      "share one key; add it to key.fields or key.match",
                      SM_FMT(per->text));
        for (uint32_t j = 0; j < limits->n; j++) {
            char a[SM_DURATION_TEXT];
            if (j != i && sm_str_eq(per->text, limits->v[j].per.text) &&
                idle_limit(&limits->v[i], &limits->v[j]))
                sm_advise(k->l, at,
                          "limit: of the limits for %.*s the one of %lld calls within %s never "
                          "matters, because another one allows less; remove it",
                          SM_FMT(per->text), (long long)limits->v[i].calls,
                          duration(a, limits->v[i].window_ms));
        }
    }
    if (limits->n > 0 && key->strategy == SM_KEY_NONE)
        sm_complain(k->l, at,
                    "limit has no effect with key: none, because such calls are not recorded; "
                    "write key: unique");
}

/* ---- lints -----------------------------------------------------------------------------------*/

/* Whether a name is one that changes with every try: compared in lower case, letters and digits
 * only, so that requestId and request_id are one. */
static bool changes_each_time(sm_str name)
{
    static const char *const names[] = {
        "timestamp",     "ts",          "time",       "now",        "createdat",      "sentat",
        "requestedat",   "uuid",        "guid",       "nonce",      "random",         "requestid",
        "reqid",         "callid",      "toolcallid", "tooluseid",  "traceid",        "spanid",
        "correlationid", "traceparent", "attempt",    "retrycount", "idempotencykey",
    };
    char flat[32];
    size_t n = 0;
    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];
        if (!isalnum(c))
            continue;
        if (n == sizeof flat - 1)
            return false;
        flat[n++] = (char)tolower(c);
    }
    flat[n] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t length = strlen(names[i]);
        bool whole = strcmp(flat, names[i]) == 0;
        /* event_timestamp and x-request-id too, but not order_uuid: that names an order. */
        bool end = length >= 6 && n > length && strcmp(flat + n - length, names[i]) == 0;
        if (whole || end)
            return true;
    }
    return false;
}

static bool ignored(const sm_key_rule *key, sm_str name)
{
    const sm_pointer one = {.tokens = &name, .count = 1};
    return first_overlap(&key->ignore, &one, 1) != NULL;
}

static void lint_identity(const check *k)
{
    const sm_contract *c = k->c;
    for (uint32_t i = 0; c->key.strategy == SM_KEY_FIELDS && i < c->key.fields.n; i++) {
        const sm_pointer *p = &c->key.fields.v[i];
        if (changes_each_time(p->tokens[p->count - 1]))
            sm_advise(k->l, inner_place(k, SM_F_KEY, "fields"),
                      "%.*s looks like something that changes with every try: retries would not be "
                      "recognised; name what identifies the action instead",
                      SM_FMT(p->text));
    }
    for (uint32_t i = 0; c->key.strategy == SM_KEY_HASH; i++) {
        sm_str name = sm_schema_property(c->input, i);
        if (name.p == NULL)
            break;
        if (changes_each_time(name) && !ignored(&c->key, name))
            sm_advise(k->l, place(k, c->origin[SM_F_KEY].given != NULL ? SM_F_KEY : SM_F_INPUT),
                      "the identity includes /%.*s, which looks like something that changes with "
                      "every try; write key: { ignore: [/%.*s] }",
                      SM_FMT(name), SM_FMT(name));
    }
    if (c->class == SM_CLASS_IRREVERSIBLE && c->key.strategy == SM_KEY_HASH)
        sm_advise(k->l, place(k, SM_F_KEY),
                  "an irreversible tool identified by all its arguments runs again when a model "
                  "rewords one of them; write key: { fields: [...] } with what names the action");
}

static void lint_windows(const check *k)
{
    const sm_contract *c = k->c;
    const sm_idempotency *d = downstream(k);
    char a[SM_DURATION_TEXT], b[SM_DURATION_TEXT];
    if (d != NULL && c->class != SM_CLASS_READ && c->window_ms > d->window_ms)
        sm_advise(k->l, downstream_place(k),
                  "the downstream remembers a key for %s, the contract for %s: after that, only "
                  "the ledger keeps the effect from happening twice",
                  duration(a, d->window_ms), duration(b, c->window_ms));
    if (c->class == SM_CLASS_IRREVERSIBLE && c->origin[SM_F_WINDOW].layer == SM_FROM_DEFAULTS &&
        c->window_ms < (int64_t)7 * 86400000)
        sm_advise(k->l, k->tool->given,
                  "the file's defaults shorten the window of this irreversible tool to %s (its "
                  "class has 7d); give it a window of its own",
                  duration(a, c->window_ms));
}

/* A file's defaults are written with harmless tools in mind. */
static void lint_inherited(const check *k)
{
    if (k->c->class == SM_CLASS_IRREVERSIBLE && k->c->on_repeat == SM_REPEAT_RUN &&
        !given_here(k, SM_F_ON_REPEAT))
        sm_advise(k->l, k->tool->given,
                  "the file's defaults let repeats of this irreversible tool run; give it "
                  "on_repeat: replay, or on_repeat: run if you mean that");
}

static void lint_probe(const check *k)
{
    const sm_contract *c = k->c;
    if (c->class == SM_CLASS_IRREVERSIBLE && chain_has(k, SM_DOUBT_PROBE) &&
        c->probe.absent.when.n > 0 && !c->probe.authoritative)
        sm_advise(k->l, inner_place(k, SM_F_PROBE, "absent"),
                  "an irreversible tool runs again after \"absent\" only if the probe is the last "
                  "word; if it is, write authoritative: true");
}

void sm_contract_lint_repeats(sm_loader *l, const sm_contract *c)
{
    char a[SM_DURATION_TEXT];
    if (c->on_repeat == SM_REPEAT_RUN && c->delivered_within_ms > SM_MCP_WAIT_MS)
        sm_advise(
            l, c->origin[SM_F_DELIVERED_WITHIN].given,
            "some clients give up after 5s, and throw away an answer that comes later; if one "
            "that took %s counts as delivered, their retry runs again",
            duration(a, c->delivered_within_ms));
}

void sm_contract_check(sm_loader *l, const sm_contracts *set, const sm_declared_tool *tool,
                       const sm_contract *c)
{
    check k = {l, set, tool, c};
    check_read(&k);
    check_other_tool(&k, SM_F_PROBE, c->probe.tool, true);
    check_other_tool(&k, SM_F_COMPENSATE, c->compensate.tool, false);
    check_undo(&k);
    check_idempotency(&k);
    check_upstream(&k);
    check_guards(&k);
    sm_contract_lint_secrets(l, tool, c);
    if (c->class == SM_CLASS_READ)
        return;
    check_key(&k);
    check_resource(&k);
    check_limit(&k);
    check_windows(&k);
    check_doubt(&k);
    check_redact(&k);
    lint_identity(&k);
    lint_windows(&k);
    lint_inherited(&k);
    sm_contract_lint_repeats(l, c);
    lint_probe(&k);
}
