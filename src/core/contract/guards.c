/* The tables behind the guards of a contract: loop, budget, limit, breaker. */
#include "base/limits.h"
#include "core/contract.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SECONDS(n)   ((int64_t)(n)*1000)
#define ANY          ((int64_t)1000000000)

const char *const sm_mode_names[] = {"enforce", "observe", NULL};
static const char *const per_names[] = {"run", "agent", "tenant", "hour", "day", NULL};

const char *sm_per_name(int per)
{
    return per_names[per];
}

/* ---- loops -----------------------------------------------------------------------------------*/

static const sm_field loop_fields[] = {
    {"warn", SM_KIND_COUNT, SM_FIELD(sm_loop_rule, warn), .min = 2, .max = ANY},
    {"block", SM_KIND_COUNT, SM_FIELD(sm_loop_rule, block), SM_FIELD_OFF, .min = 2, .max = ANY},
    {"trip", SM_KIND_COUNT, SM_FIELD(sm_loop_rule, trip), SM_FIELD_OFF, .min = 2, .max = ANY},
    {"max_cycle", SM_KIND_COUNT, SM_FIELD(sm_loop_rule, max_cycle), .min = 1, .max = 32},
    {"volatile", SM_KIND_POINTERS, SM_FIELD(sm_loop_rule, volatile_results)},
    {"poll", SM_KIND_SWITCH, SM_FIELD(sm_loop_rule, poll)},
    {"mode", SM_KIND_ENUM, SM_FIELD(sm_loop_rule, mode), .names = sm_mode_names},
};
static const sm_loop_rule loop_defaults = {
    .on = true, .warn = 3, .block = -1, .trip = -1, .max_cycle = 4};
const sm_group sm_loop_group = {loop_fields, COUNT(loop_fields), &loop_defaults,
                                .size = sizeof(sm_loop_rule)};

/* ---- one rule, or a list of them -------------------------------------------------------------*/

typedef struct rules {
    const char *field;   /* its name in the file */
    const char *one;     /* what to call one of them */
    const char *example; /* of one */
    uint32_t most;
    const sm_group *group;
    /* What is wrong with rule n, given those before it. */
    void (*check)(sm_loader *l, const sm_json *item, const void *all, uint32_t n);
} rules;

/* NULL if it cannot be read: that was told. */
static void *read_rules(sm_loader *l, const rules *r, const sm_json *value, uint32_t *count)
{
    bool list = value->type == SM_JSON_ARRAY;
    uint32_t n = list ? value->len : 1;
    *count = 0;
    if (n > r->most) {
        sm_complain(l, value, "%s: a tool has at most %u, found %u", r->field, r->most, n);
        return NULL;
    }
    char *all = sm_loader_alloc(l, n, r->group->size);
    if (all == NULL)
        return NULL;
    const sm_json *item = list ? value + 1 : value;
    for (uint32_t i = 0; i < n; i++, item = sm_json_next(item)) {
        char *rule = all + i * r->group->size;
        if (r->group->defaults != NULL)
            memcpy(rule, r->group->defaults, r->group->size);
        if (item->type != SM_JSON_OBJECT) {
            sm_complain(l, item, "%s: expected %s or a list of such, found %s", r->field,
                        r->example, sm_found(l, item));
            continue;
        }
        sm_group_read(l, r->group, r->one, item, rule, NULL);
        r->check(l, item, all, i);
    }
    *count = n;
    return all;
}

/* ---- budgets ---------------------------------------------------------------------------------*/

/* A share of a cap, such as 80%. */
static void read_soft(sm_loader *l, const sm_json *value, void *out)
{
    sm_str s = value->type == SM_JSON_STRING ? sm_json_text(value) : (sm_str){0};
    int percent = 0;
    size_t n = 0;
    for (; n < s.n && n < 2 && s.p[n] >= '0' && s.p[n] <= '9'; n++)
        percent = percent * 10 + (s.p[n] - '0');
    if (value->type == SM_JSON_FALSE || sm_str_is(s, "off"))
        *(int *)out = 0;
    else if (percent > 0 && n + 1 == s.n && s.p[n] == '%')
        *(int *)out = percent;
    else
        sm_complain(l, value,
                    "soft: expected a share from 1%% to 99%%, such as 80%%, or off; found %s",
                    sm_found(l, value));
}

static const sm_field budget_fields[] = {
    {"per", SM_KIND_ENUM, SM_FIELD(sm_budget_rule, per), SM_FIELD_REQUIRED, .names = per_names},
    {"calls", SM_KIND_COUNT, SM_FIELD(sm_budget_rule, calls), .min = 0, .max = ANY},
    {"tokens", SM_KIND_COUNT, SM_FIELD(sm_budget_rule, tokens), .min = 0, .max = ANY * ANY},
    {"cost", SM_KIND_MONEY, SM_FIELD(sm_budget_rule, cost)},
    {"soft", SM_KIND_CUSTOM, SM_FIELD(sm_budget_rule, soft), .read = read_soft},
};
static const sm_budget_rule budget_defaults = {.calls = -1, .tokens = -1, .soft = 80};
static const sm_group budget_group = {budget_fields, COUNT(budget_fields), &budget_defaults,
                                      .size = sizeof(sm_budget_rule)};

static void check_budget(sm_loader *l, const sm_json *item, const void *all, uint32_t n)
{
    const sm_budget_rule *v = all;
    if (v[n].calls < 0 && v[n].tokens < 0 && v[n].cost.text.p == NULL)
        sm_complain(l, item, "a budget needs a cap: calls, tokens or cost");
    for (uint32_t i = 0; i < n; i++) {
        if (v[i].per == v[n].per)
            sm_complain(l, item, "budget: there is one per %s already; put its caps together",
                        per_names[v[n].per]);
    }
}

void sm_budgets_read(sm_loader *l, const sm_json *value, void *out)
{
    static const rules budgets = {"budget",       "a budget",    "{ per: run, calls: 100 }",
                                  SM_BUDGETS_MAX, &budget_group, check_budget};
    sm_budgets read = {0};
    read.v = read_rules(l, &budgets, value, &read.n);
    if (read.v != NULL)
        *(sm_budgets *)out = read;
}

/* ---- limits ----------------------------------------------------------------------------------*/

static const sm_field limit_fields[] = {
    {"per", SM_KIND_POINTER, SM_FIELD(sm_limit_rule, per), SM_FIELD_REQUIRED},
    {"calls", SM_KIND_COUNT, SM_FIELD(sm_limit_rule, calls), SM_FIELD_REQUIRED, .min = 1,
     .max = SM_LIMIT_CALLS_MAX},
    {"window", SM_KIND_DURATION, SM_FIELD(sm_limit_rule, window_ms), SM_FIELD_REQUIRED},
};
static const sm_group limit_group = {limit_fields, COUNT(limit_fields), NULL,
                                     .size = sizeof(sm_limit_rule)};

static void check_limit(sm_loader *l, const sm_json *item, const void *all, uint32_t n)
{
    const sm_limit_rule *v = all;
    if (v[n].window_ms > SM_LIMIT_WINDOW_MAX_MS)
        sm_complain(l, item, "limit: a window is at most 366d long");
    for (uint32_t i = 0; i < n; i++) {
        if (sm_str_eq(v[i].per.text, v[n].per.text) && v[i].window_ms == v[n].window_ms)
            sm_complain(l, item, "limit: there is one for %.*s with this window already",
                        SM_FMT(v[n].per.text));
    }
}

void sm_limits_read(sm_loader *l, const sm_json *value, void *out)
{
    static const rules limits = {"limit",       "a limit",    "{ per: /to, calls: 3, window: 1h }",
                                 SM_LIMITS_MAX, &limit_group, check_limit};
    sm_limits read = {0};
    read.v = read_rules(l, &limits, value, &read.n);
    if (read.v != NULL)
        *(sm_limits *)out = read;
}

/* ---- the breaker -----------------------------------------------------------------------------*/

static const sm_field breaker_fields[] = {
    {"failures", SM_KIND_COUNT, SM_FIELD(sm_breaker_rule, failures), .min = 1,
     .max = SM_BREAKER_FAILURES_MAX},
    {"window", SM_KIND_DURATION, SM_FIELD(sm_breaker_rule, window_ms)},
    {"cooldown", SM_KIND_DURATION, SM_FIELD(sm_breaker_rule, cooldown_ms)},
    {"probes", SM_KIND_COUNT, SM_FIELD(sm_breaker_rule, probes), .min = 1,
     .max = SM_BREAKER_PROBES_MAX},
};
static const sm_breaker_rule breaker_defaults = {
    .on = true, .failures = 5, .cooldown_ms = SECONDS(30), .probes = 1};
const sm_group sm_breaker_group = {breaker_fields, COUNT(breaker_fields), &breaker_defaults,
                                   .size = sizeof(sm_breaker_rule)};
