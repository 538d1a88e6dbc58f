/* The tables behind a tool's contract: what each field is called, takes and defaults to. */
#include "core/contract.h"

#include <stdio.h>

#include "base/duration.h"
#include "base/header.h"
#include "base/limits.h"
#include "base/url.h"
#include "core/secret.h"
#include "json/canon.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SECONDS(n)   ((int64_t)(n)*1000)
#define ANY          ((int64_t)1000000000)

static const char *const class_names[] = {"read", "write_idempotent", "write", "irreversible",
                                          NULL};
static const char *const strategy_names[] = {"hash",   "fields", "step", "explicit",
                                             "unique", "none",   NULL};
static const char *const drift_names[] = {"replay", "conflict", NULL};
static const char *const hit_names[] = {"replay", "replay_success", "fail", NULL};
static const char *const failures_names[] = {"retry", "replay", NULL};
static const char *const repeat_names[] = {"replay", "run", NULL};
static const char *const need_names[] = {"optional", "required", NULL};
static const char *const doubt_names[] = {"resend", "probe", "rerun", "hold", NULL};
static const char *const via_names[] = {"any", "gateway", NULL};
static const char *const style_names[] = {"bare", "quoted", NULL};
#define X(name, does)
#define CALL(name, does) #name,
static const char *const method_names[] = {SM_METHODS(CALL, X) NULL};
#undef CALL
#undef X
static const char *const body_names[] = {"json", "form", "none", NULL};

const char *sm_class_name(int class_)
{
    return class_names[class_];
}

const char *sm_strategy_name(int strategy)
{
    return strategy_names[strategy];
}

const char *sm_method_name(int method)
{
    return method_names[method];
}

bool sm_header_secret(const sm_header *h)
{
    return memmem(h->value.p, h->value.n, "${", 2) == NULL && sm_name_secret(h->name, SM_IN_HEADER);
}

/* Text that looks like a variable where none is filled in would be sent as it stands. */
static bool check_no_variable(sm_loader *l, const sm_json *value)
{
    sm_str s = sm_json_text(value);
    if (memmem(s.p, s.n, "${", 2) == NULL)
        return true;
    sm_complain(l, value,
                "environment variables (${...}) are filled in only in the values of headers; write "
                "the text out");
    return false;
}

static void read_literal(sm_loader *l, const sm_json *value, void *out)
{
    static const sm_field text = {.name = "this", .kind = SM_KIND_STRING};
    if (sm_field_read(l, &text, value, out))
        check_no_variable(l, value);
}

void sm_read_http_url(sm_loader *l, const sm_json *value, void *out)
{
    static const sm_field text = {.name = "url", .kind = SM_KIND_STRING};
    sm_fault fault;
    if (!sm_field_read(l, &text, value, out) || !check_no_variable(l, value))
        return;
    sm_str s = sm_json_text(value);
    if (memchr(s.p, ' ', s.n) != NULL || s.n < 8 || memcmp(s.p, "http", 4) != 0)
        sm_complain(l, value, "url: expected http://... or https://... without blanks, found %s",
                    sm_found(l, value));
    else if (sm_url_template_check(s, &fault) != SM_OK)
        sm_complain(l, value, "url: %s", fault.text);
}

/* A mapping of a bounded number of entries; `expected` says what it should look like. */
static bool check_mapping(sm_loader *l, const sm_json *value, const char *expected)
{
    if (value->type != SM_JSON_OBJECT)
        sm_complain(l, value, "%s; found %s", expected, sm_found(l, value));
    else if (value->len > SM_POINTERS_MAX)
        sm_complain(l, value, "at most %u entries are allowed here, found %u", SM_POINTERS_MAX,
                    value->len);
    else
        return true;
    return false;
}

static void read_fill(sm_loader *l, const sm_json *value, void *out)
{
    sm_fill *fill = out;
    if (!check_mapping(l, value, "fill: expected a mapping such as { /currency: usd }"))
        return;
    sm_pointer *pointers = sm_loader_alloc(l, value->len, sizeof *pointers);
    sm_places *places = sm_places_new(l->arena);
    if (pointers == NULL || places == NULL) {
        l->failed = true;
        return;
    }
    uint32_t n = 0;
    const sm_json *name = value + 1;
    for (uint32_t i = 0; i < value->len; i++, name = sm_json_next(name + 1)) {
        if (!sm_read_pointer(l, name, &pointers[n]) || !sm_check_plain(l, name + 1))
            continue;
        bool covered = false;
        for (uint32_t j = 0; j < n && !covered; j++) {
            covered = sm_pointer_overlap(&pointers[j], &pointers[n]);
            if (covered)
                sm_complain(l, name, "fill: %.*s and %.*s are inside one another; give one value",
                            SM_FMT(pointers[n].text), SM_FMT(pointers[j].text));
        }
        if (covered)
            continue;
        for (uint32_t j = 1; j <= name[1].span; j++) {
            sm_str text = name[j].type == SM_JSON_STRING ? sm_json_text(&name[j]) : (sm_str){0};
            if (text.n > 1 && memmem(text.p, text.n, "${", 2) != NULL)
                sm_advise(l, &name[j],
                          "%.*s is filled in as it stands: environment variables are "
                          "for upstream.headers only",
                          SM_FMT(text));
        }
        if (sm_places_add(places, l->arena, &pointers[n], name + 1) != SM_OK)
            l->failed = true;
        n++;
    }
    *fill = (sm_fill){.places = places, .pointers = pointers, .count = n};
}

static void read_chain(sm_loader *l, const sm_json *value, void *out)
{
    static const sm_field one = {.name = "on_in_doubt", .kind = SM_KIND_ENUM, .names = doubt_names};
    sm_doubt_chain chain = {0};
    bool list = value->type == SM_JSON_ARRAY;
    if (list && value->len == 0) {
        sm_complain(l, value,
                    "on_in_doubt: expected resend, probe, rerun or hold, or a list of "
                    "them, found an empty one");
        return;
    }
    const sm_json *item = list ? value + 1 : value;
    for (uint32_t i = 0; i < (list ? value->len : 1); i++, item = sm_json_next(item)) {
        int step;
        if (!sm_field_read(l, &one, item, &step))
            continue;
        if (chain.count > 0 && chain.steps[chain.count - 1] == SM_DOUBT_HOLD) {
            sm_complain(l, item, "on_in_doubt: nothing comes after hold; move it to the end");
            return;
        }
        if (chain.count > 0 && memchr(chain.steps, step, chain.count) != NULL) {
            sm_complain(l, item, "on_in_doubt: %s is there already; remove one of them",
                        doubt_names[step]);
            continue;
        }
        chain.steps[chain.count++] = (uint8_t)step;
    }
    if (chain.count > 0 && chain.steps[chain.count - 1] != SM_DOUBT_HOLD)
        chain.steps[chain.count++] = SM_DOUBT_HOLD; /* every chain ends there */
    *(sm_doubt_chain *)out = chain;
}

static void show_chain(const void *value, sm_buf *out)
{
    const sm_doubt_chain *chain = value;
    for (uint8_t i = 0; i < chain->count; i++)
        sm_buf_printf(out, "%s\"%s\"", i == 0 ? "[" : ",", doubt_names[chain->steps[i]]);
    sm_buf_text(out, chain->count == 0 ? "[]" : "]");
}

/* A header that carries a secret is shown by its variable's name, never by its value. */
static void show_headers(const void *value, sm_buf *out)
{
    const sm_headers *headers = value;
    sm_buf_byte(out, '{');
    for (uint32_t i = 0; i < headers->n; i++) {
        const sm_header *h = &headers->v[i];
        if (i > 0)
            sm_buf_byte(out, ',');
        sm_json_put_string(out, h->name);
        sm_buf_byte(out, ':');
        sm_json_put_string(out, sm_header_secret(h) ? SM_STR("(hidden)") : h->value);
    }
    sm_buf_byte(out, '}');
}

/* Where an argument comes from: a pointer into the call's arguments or, if `outcome` may be meant,
 * { outcome: POINTER }. */
static bool read_source(sm_loader *l, const sm_json *value, sm_pointer *from, bool *outcome)
{
    const sm_json *of = NULL;
    if (outcome != NULL && value->type == SM_JSON_OBJECT) {
        *outcome = true;
        of = sm_json_find(value, SM_STR("outcome"));
        if (of == NULL || value->len != 1) {
            sm_complain(l, value,
                        "args: expected a pointer into the arguments, such as /order_id, "
                        "or into the outcome, such as { outcome: /id }");
            return false;
        }
    }
    return sm_read_pointer(l, of != NULL ? of : value, from);
}

static void read_map(sm_loader *l, const sm_json *value, bool outcomes, sm_argument_map *map)
{
    if (!check_mapping(l, value,
                       "args: expected a mapping of pointers, the other tool's argument to this "
                       "one's, such as { /order_id: /order_id }"))
        return;
    sm_pointer *to = sm_loader_alloc(l, value->len, sizeof *to);
    sm_pointer *from = sm_loader_alloc(l, value->len, sizeof *from);
    bool *of_outcome = outcomes ? sm_loader_alloc(l, value->len, sizeof *of_outcome) : NULL;
    if (to == NULL || from == NULL || (outcomes && of_outcome == NULL))
        return;
    uint32_t n = 0;
    const sm_json *name = value + 1;
    for (uint32_t i = 0; i < value->len; i++, name = sm_json_next(name + 1)) {
        if (outcomes)
            of_outcome[n] = false;
        bool right = sm_read_pointer(l, name, &to[n]);
        n += read_source(l, name + 1, &from[n], outcomes ? &of_outcome[n] : NULL) && right;
    }
    *map = (sm_argument_map){to, from, of_outcome, n};
}

static void read_argument_map(sm_loader *l, const sm_json *value, void *out)
{
    read_map(l, value, false, out);
}

static void read_undo_map(sm_loader *l, const sm_json *value, void *out)
{
    read_map(l, value, true, out);
}

static void check_header_name(sm_loader *l, const sm_json *value)
{
    sm_str name = sm_json_text(value);
    if (!sm_header_name(name))
        sm_complain(l, value, "\"%.*s\" is not a header name", SM_FMT(name));
    else if (sm_header_framing(name))
        sm_complain(l, value,
                    "%.*s says how a message is sent and is not for contracts to set; remove it",
                    SM_FMT(name));
}

static void read_header_name(sm_loader *l, const sm_json *value, void *out)
{
    static const sm_field text = {.name = "header", .kind = SM_KIND_STRING};
    if (sm_field_read(l, &text, value, out) && check_no_variable(l, value))
        check_header_name(l, value);
}

/* An argument of the request: a name, or a pointer. */
static void read_argument(sm_loader *l, const sm_json *value, void *out)
{
    sm_pointer pointer;
    read_literal(l, value, out);
    if (value->type == SM_JSON_STRING && value->len > 0 && value->text[0] == '/')
        sm_read_pointer(l, value, &pointer);
}

void sm_check_variables(sm_loader *l, const sm_json *value)
{
    sm_str s = sm_json_text(value);
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != '$' || i + 1 == s.n || s.p[i + 1] != '{')
            continue;
        size_t n = i + 2;
        while (n < s.n && (s.p[n] == '_' || ((s.p[n] | 0x20) >= 'a' && (s.p[n] | 0x20) <= 'z') ||
                           (n > i + 2 && s.p[n] >= '0' && s.p[n] <= '9')))
            n++;
        if (n == i + 2 || n == s.n || s.p[n] != '}') {
            sm_complain(l, value,
                        "an environment variable is written ${NAME}, with letters, "
                        "digits and _ in its name");
            return;
        }
    }
}

static void check_header_value(sm_loader *l, const sm_json *value)
{
    sm_str s = sm_json_text(value);
    for (size_t i = 0; i < s.n; i++) {
        if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7F) {
            sm_complain(l, value, "a header's value must not contain control characters");
            return;
        }
    }
    sm_check_variables(l, value);
}

void sm_read_headers(sm_loader *l, const sm_json *value, void *out)
{
    if (!check_mapping(l, value, "headers: expected a mapping of names to values"))
        return;
    sm_header *v = sm_loader_alloc(l, value->len, sizeof *v);
    if (v == NULL)
        return;
    const sm_json *name = value + 1;
    for (uint32_t i = 0; i < value->len; i++, name = sm_json_next(name + 1)) {
        v[i] = (sm_header){sm_json_text(name), sm_json_text(name + 1)};
        for (uint32_t j = 0; j < i; j++) {
            if (sm_header_is(v[j].name, v[i].name))
                sm_complain(l, name,
                            "\"%.*s\" is there already: header names are the same in "
                            "uppercase and lowercase letters",
                            SM_FMT(v[i].name));
        }
        check_header_name(l, name);
        if (name[1].type != SM_JSON_STRING)
            sm_complain(l, name + 1, "a header's value must be a text; write it in quotes");
        else
            check_header_value(l, name + 1);
    }
    *(sm_headers *)out = (sm_headers){v, value->len};
}

static const sm_field case_fields[] = {
    {"when", SM_KIND_CUSTOM, SM_FIELD(sm_probe_case, when), SM_FIELD_REQUIRED,
     .read = sm_conditions_read},
    {"outcome", SM_KIND_POINTER, SM_FIELD(sm_probe_case, outcome)},
};
static const sm_group applied_group = {case_fields, 2, .size = sizeof(sm_probe_case)};
static const sm_group absent_group = {case_fields, 1, .size = sizeof(sm_probe_case)};

static const sm_field probe_fields[] = {
    {"tool", SM_KIND_CUSTOM, SM_FIELD(sm_probe, tool), SM_FIELD_REQUIRED, .read = read_literal},
    {"args", SM_KIND_CUSTOM, SM_FIELD(sm_probe, args), .read = read_argument_map},
    {"applied", SM_KIND_GROUP, SM_FIELD(sm_probe, applied), SM_FIELD_REQUIRED,
     .group = &applied_group},
    {"absent", SM_KIND_GROUP, SM_FIELD(sm_probe, absent), .group = &absent_group},
    {"settle", SM_KIND_DURATION, SM_FIELD(sm_probe, settle_ms), SM_FIELD_ZERO},
    {"authoritative", SM_KIND_SWITCH, SM_FIELD(sm_probe, authoritative)},
};
static const sm_probe probe_defaults = {.settle_ms = SECONDS(30)};
static const sm_group probe_group = {probe_fields, COUNT(probe_fields), &probe_defaults,
                                     .size = sizeof(sm_probe)};

static const sm_field compensate_fields[] = {
    {"tool", SM_KIND_CUSTOM, SM_FIELD(sm_compensate, tool), SM_FIELD_REQUIRED,
     .read = read_literal},
    {"args", SM_KIND_CUSTOM, SM_FIELD(sm_compensate, args), .read = read_undo_map},
};
static const sm_group compensate_group = {compensate_fields, COUNT(compensate_fields), NULL,
                                          .size = sizeof(sm_compensate)};

static const sm_field key_fields[] = {
    {"strategy", SM_KIND_ENUM, SM_FIELD(sm_key_rule, strategy), .names = strategy_names},
    {"fields", SM_KIND_POINTERS, SM_FIELD(sm_key_rule, fields)},
    {"ignore", SM_KIND_POINTERS, SM_FIELD(sm_key_rule, ignore)},
    {"match", SM_KIND_POINTERS, SM_FIELD(sm_key_rule, match)},
};
static const sm_group key_group = {key_fields, COUNT(key_fields), NULL, .size = sizeof(sm_key_rule),
                                   .brief = "strategy"};

static const sm_field resource_fields[] = {
    {"kind", SM_KIND_CUSTOM, SM_FIELD(sm_resource_rule, kind), .read = read_literal},
    {"fields", SM_KIND_POINTERS, SM_FIELD(sm_resource_rule, fields), SM_FIELD_REQUIRED},
};
static const sm_group resource_group = {resource_fields, COUNT(resource_fields), NULL,
                                        .size = sizeof(sm_resource_rule), .brief = "fields"};

static const sm_field approval_fields[] = {
    {"when", SM_KIND_CUSTOM, SM_FIELD(sm_approval, when), .read = sm_conditions_read},
    {"quorum", SM_KIND_COUNT, SM_FIELD(sm_approval, quorum), .min = 1, .max = 16},
    {"expires", SM_KIND_DURATION, SM_FIELD(sm_approval, expires_ms)},
    {"via", SM_KIND_ENUM, SM_FIELD(sm_approval, via), .names = via_names},
    {"self_approval", SM_KIND_SWITCH, SM_FIELD(sm_approval, self_approval)},
};
static const sm_approval approval_defaults = {.on = true, .quorum = 1, .expires_ms = SECONDS(3600)};
static const sm_group approval_group = {approval_fields, COUNT(approval_fields), &approval_defaults,
                                        .size = sizeof(sm_approval)};

static const sm_field idempotency_fields[] = {
    {"header", SM_KIND_CUSTOM, SM_FIELD(sm_idempotency, header), .read = read_header_name},
    {"meta", SM_KIND_CUSTOM, SM_FIELD(sm_idempotency, meta), .read = read_literal},
    {"argument", SM_KIND_CUSTOM, SM_FIELD(sm_idempotency, argument), .read = read_argument},
    {"style", SM_KIND_ENUM, SM_FIELD(sm_idempotency, style), .names = style_names},
    {"window", SM_KIND_DURATION, SM_FIELD(sm_idempotency, window_ms), SM_FIELD_FOREVER},
};
static const sm_idempotency idempotency_defaults = {.window_ms = SECONDS(24 * 3600)};
const sm_group sm_idempotency_group = {idempotency_fields, COUNT(idempotency_fields),
                                       &idempotency_defaults, .size = sizeof(sm_idempotency)};

static const sm_field retry_fields[] = {
    {"attempts", SM_KIND_COUNT, SM_FIELD(sm_retry, attempts), .min = 1, .max = 100},
    {"backoff", SM_KIND_DURATION, SM_FIELD(sm_retry, backoff_ms)},
    {"max_backoff", SM_KIND_DURATION, SM_FIELD(sm_retry, max_backoff_ms)},
};
#define RETRY_DEFAULTS                                                                             \
    {                                                                                              \
        .attempts = 3, .backoff_ms = 200, .max_backoff_ms = SECONDS(5)                             \
    }
static const sm_retry retry_defaults = RETRY_DEFAULTS;
const sm_group sm_retry_group = {retry_fields, COUNT(retry_fields), &retry_defaults,
                                 .size = sizeof(sm_retry)};

static const sm_field upstream_fields[] = {
    {"url", SM_KIND_CUSTOM, SM_FIELD(sm_upstream, url), SM_FIELD_REQUIRED,
     .read = sm_read_http_url},
    {"method", SM_KIND_ENUM, SM_FIELD(sm_upstream, method), .names = method_names},
    {"headers", SM_KIND_CUSTOM, SM_FIELD(sm_upstream, headers), .read = sm_read_headers,
     .show = show_headers},
    {"body", SM_KIND_ENUM, SM_FIELD(sm_upstream, body), .names = body_names},
    {"timeout", SM_KIND_DURATION, SM_FIELD(sm_upstream, timeout_ms)},
    {"idempotency", SM_KIND_GROUP, SM_FIELD(sm_upstream, idempotency),
     .group = &sm_idempotency_group},
    {"retry", SM_KIND_GROUP, SM_FIELD(sm_upstream, retry), .group = &sm_retry_group},
    {"rejects_before_work", SM_KIND_SWITCH, SM_FIELD(sm_upstream, rejects_before_work)},
    {"cost", SM_KIND_POINTER, SM_FIELD(sm_upstream, cost)},
    {"tokens", SM_KIND_POINTER, SM_FIELD(sm_upstream, tokens)},
};
static const sm_upstream upstream_defaults = {
    .method = 1, .timeout_ms = SECONDS(30), .retry = RETRY_DEFAULTS};
static const sm_group upstream_group = {upstream_fields, COUNT(upstream_fields), &upstream_defaults,
                                        .size = sizeof(sm_upstream)};

static const sm_field contract_fields[] = {
    [SM_F_CLASS] = {"class", SM_KIND_ENUM, SM_FIELD(sm_contract, class), .names = class_names},
    [SM_F_DESCRIPTION] = {"description", SM_KIND_STRING, SM_FIELD(sm_contract, description)},
    [SM_F_VERSION] = {"version", SM_KIND_LABEL, SM_FIELD(sm_contract, version)},
    [SM_F_MODE] = {"mode", SM_KIND_ENUM, SM_FIELD(sm_contract, mode), .names = sm_mode_names},
    [SM_F_INPUT] = {"input", SM_KIND_CUSTOM, SM_FIELD(sm_contract, input), .read = sm_schema_read},
    [SM_F_FILL] = {"fill", SM_KIND_CUSTOM, SM_FIELD(sm_contract, fill), .read = read_fill},
    [SM_F_KEY] = {"key", SM_KIND_GROUP, SM_FIELD(sm_contract, key), .group = &key_group},
    [SM_F_RESOURCE] = {"resource", SM_KIND_GROUP, SM_FIELD(sm_contract, resource),
                       .group = &resource_group},
    [SM_F_ON_DRIFT] = {"on_drift", SM_KIND_ENUM, SM_FIELD(sm_contract, on_drift),
                       .names = drift_names},
    [SM_F_STEP] = {"step", SM_KIND_ENUM, SM_FIELD(sm_contract, step), .names = need_names},
    [SM_F_WINDOW] = {"window", SM_KIND_DURATION, SM_FIELD(sm_contract, window_ms),
                     SM_FIELD_FOREVER},
    [SM_F_RESULT_WINDOW] = {"result_window", SM_KIND_DURATION,
                            SM_FIELD(sm_contract, result_window_ms), SM_FIELD_FOREVER},
    [SM_F_LEASE] = {"lease", SM_KIND_DURATION, SM_FIELD(sm_contract, lease_ms)},
    [SM_F_ON_HIT] = {"on_hit", SM_KIND_ENUM, SM_FIELD(sm_contract, on_hit), .names = hit_names},
    [SM_F_FAILURES] = {"failures", SM_KIND_ENUM, SM_FIELD(sm_contract, failures),
                       .names = failures_names},
    [SM_F_ON_REPEAT] = {"on_repeat", SM_KIND_ENUM, SM_FIELD(sm_contract, on_repeat),
                        .names = repeat_names},
    [SM_F_REPEAT_AFTER] = {"repeat_after", SM_KIND_DURATION, SM_FIELD(sm_contract, repeat_after_ms),
                           SM_FIELD_ZERO},
    [SM_F_DELIVERED_WITHIN] = {"delivered_within", SM_KIND_DURATION,
                               SM_FIELD(sm_contract, delivered_within_ms), SM_FIELD_ZERO},
    [SM_F_APPROVAL] = {"approval", SM_KIND_GROUP, SM_FIELD(sm_contract, approval), SM_FIELD_OFF,
                       .group = &approval_group},
    [SM_F_ON_IN_DOUBT] = {"on_in_doubt", SM_KIND_CUSTOM, SM_FIELD(sm_contract, on_in_doubt),
                          .read = read_chain, .show = show_chain},
    [SM_F_PROBE] = {"probe", SM_KIND_GROUP, SM_FIELD(sm_contract, probe), .group = &probe_group},
    [SM_F_COMPENSATE] = {"compensate", SM_KIND_GROUP, SM_FIELD(sm_contract, compensate),
                         .group = &compensate_group},
    [SM_F_BARRIER] = {"barrier", SM_KIND_SWITCH, SM_FIELD(sm_contract, barrier)},
    [SM_F_UPSTREAM] = {"upstream", SM_KIND_GROUP, SM_FIELD(sm_contract, upstream),
                       .group = &upstream_group},
    [SM_F_IDEMPOTENCY] = {"idempotency", SM_KIND_GROUP, SM_FIELD(sm_contract, idempotency),
                          .group = &sm_idempotency_group},
    [SM_F_REDACT] = {"redact", SM_KIND_POINTERS, SM_FIELD(sm_contract, redact)},
    [SM_F_COST] = {"cost", SM_KIND_MONEY, SM_FIELD(sm_contract, cost)},
    [SM_F_TOKENS] = {"tokens", SM_KIND_COUNT, SM_FIELD(sm_contract, tokens), .min = 0,
                     .max = ANY * ANY},
    [SM_F_BUDGET] = {"budget", SM_KIND_CUSTOM, SM_FIELD(sm_contract, budget),
                     .read = sm_budgets_read},
    [SM_F_LIMIT] = {"limit", SM_KIND_CUSTOM, SM_FIELD(sm_contract, limit), .read = sm_limits_read},
    [SM_F_LOOP] = {"loop", SM_KIND_GROUP, SM_FIELD(sm_contract, loop), SM_FIELD_OFF,
                   .group = &sm_loop_group},
    [SM_F_BREAKER] = {"breaker", SM_KIND_GROUP, SM_FIELD(sm_contract, breaker), SM_FIELD_OFF,
                      .group = &sm_breaker_group},
};
_Static_assert(COUNT(contract_fields) == SM_F_COUNT, "every field has a row");

/* What a contract holds before any layer is applied. */
static const sm_contract contract_defaults = {
    .class = SM_CLASS_WRITE,
    .key = {.strategy = SM_KEY_HASH},
    .lease_ms = SECONDS(300),
    .repeat_after_ms = SECONDS(2),
    .delivered_within_ms = SECONDS(1),
    .loop = {.on = true, .warn = 3, .block = -1, .trip = -1, .max_cycle = 4},
};

const sm_group sm_contract_group = {contract_fields, SM_F_COUNT, &contract_defaults,
                                    .size = sizeof(sm_contract)};
