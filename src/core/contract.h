/*
 * Contracts: what is declared about tools, read from YAML or JSON.
 *
 * A file lists tools by name or pattern. What applies to a call, its effective contract, is put
 * together from layers, the later winning field by field:
 *
 *     built in  <  by class  <  the file's `defaults`  <  the tool  <  the tool's first matching
 *                                                                     variant
 *
 * A field that is itself a mapping is replaced whole. All effective contracts are made when the
 * file is read; a set of contracts is immutable afterwards and may be shared between threads.
 */
#ifndef SM_CORE_CONTRACT_H
#define SM_CORE_CONTRACT_H

#include <stdatomic.h>
#include <string.h>

#include "base/method.h"
#include "core/condition.h"
#include "core/field.h"
#include "core/key.h"
#include "core/schema.h"

typedef enum sm_class {
    SM_CLASS_READ,
    SM_CLASS_WRITE_IDEMPOTENT,
    SM_CLASS_WRITE,
    SM_CLASS_IRREVERSIBLE,
} sm_class;

typedef enum sm_on_drift { SM_DRIFT_REPLAY, SM_DRIFT_CONFLICT } sm_on_drift;
typedef enum sm_on_hit { SM_HIT_REPLAY, SM_HIT_REPLAY_SUCCESS, SM_HIT_FAIL } sm_on_hit;
typedef enum sm_failures { SM_FAILURES_RETRY, SM_FAILURES_REPLAY } sm_failures;
typedef enum sm_on_repeat { SM_REPEAT_REPLAY, SM_REPEAT_RUN } sm_on_repeat;
typedef enum sm_mode { SM_MODE_ENFORCE, SM_MODE_OBSERVE } sm_mode;
typedef enum sm_need { SM_NEED_OPTIONAL, SM_NEED_REQUIRED } sm_need;
typedef enum sm_doubt { SM_DOUBT_RESEND, SM_DOUBT_PROBE, SM_DOUBT_RERUN, SM_DOUBT_HOLD } sm_doubt;
typedef enum sm_unlisted { SM_UNLISTED_WRITE, SM_UNLISTED_HOLD, SM_UNLISTED_HIDE } sm_unlisted;

/* What an exception of the tool's own code means; it follows from the class. */
typedef enum sm_exception {
    SM_EXCEPTION_PASSES,         /* nothing was recorded */
    SM_EXCEPTION_FAILED,         /* the attempt failed */
    SM_EXCEPTION_DOUBT_IF_VAGUE, /* timeouts, resets and cancellations are in doubt, others failed
                                  */
    SM_EXCEPTION_DOUBT,          /* in doubt, unless declared not applied */
} sm_exception;

/* How a call gets its identity. `places` is the compiled form of `fields` or `ignore`. */
typedef struct sm_key_rule {
    int strategy; /* sm_strategy */
    sm_pointers fields;
    sm_pointers ignore;
    sm_pointers match;
    const sm_places *places;
} sm_key_rule;

/* What a call acts on. Calls of all tools with one kind and equal values act on one resource. */
typedef struct sm_resource_rule {
    sm_str kind; /* absent: the tool's name */
    sm_pointers fields;
} sm_resource_rule;

/* Values for arguments that a call leaves out. */
typedef struct sm_fill {
    const sm_places *places;
    const sm_pointer *pointers;
    uint32_t count;
} sm_fill;

/* The steps tried, in order, when an attempt may or may not have been applied; ends in hold. */
typedef struct sm_doubt_chain {
    uint8_t steps[4];
    uint8_t count;
} sm_doubt_chain;

typedef struct sm_approval {
    bool on;
    sm_conditions when; /* none: always */
    int64_t quorum;
    int64_t expires_ms;
    int via; /* 0 anywhere, 1 gateway only */
    bool self_approval;
} sm_approval;

/* Arguments of another tool taken from this call's: pairs of pointers. */
typedef struct sm_argument_map {
    const sm_pointer *to;
    const sm_pointer *from;
    const bool *of_outcome; /* which are taken from its outcome instead; NULL: none */
    uint32_t count;
} sm_argument_map;

typedef struct sm_probe_case {
    sm_conditions when;
    sm_pointer outcome;
} sm_probe_case;

typedef struct sm_probe {
    sm_str tool;
    sm_argument_map args;
    sm_probe_case applied;
    sm_probe_case absent;
    int64_t settle_ms;
    bool authoritative;
} sm_probe;

typedef struct sm_compensate {
    sm_str tool;
    sm_argument_map args;
} sm_compensate;

/* How the downstream is given a key of its own. At most one of the names is set. */
typedef struct sm_idempotency {
    sm_str header;
    sm_str meta;
    sm_str argument; /* a name, or a pointer */
    int style;       /* 0 bare, 1 quoted */
    int64_t window_ms;
} sm_idempotency;

typedef struct sm_header {
    sm_str name;
    sm_str value; /* ${NAME} stands for an environment variable */
} sm_header;

typedef struct sm_headers {
    const sm_header *v;
    uint32_t n;
} sm_headers;

typedef struct sm_retry {
    int64_t attempts;
    int64_t backoff_ms;
    int64_t max_backoff_ms;
} sm_retry;

/* Of base/method.h those that a contract may name. */
#define X(name, does)
#define CALL(name, does) SM_METHOD_##name,
typedef enum sm_upstream_method { SM_METHODS(CALL, X) } sm_upstream_method;
#undef CALL
#undef X
typedef enum sm_body_form { SM_BODY_JSON, SM_BODY_FORM, SM_BODY_NONE } sm_body_form;

typedef struct sm_upstream {
    sm_str url; /* a template: see base/url.h */
    int method; /* sm_upstream_method */
    sm_headers headers;
    int body; /* sm_body_form */
    int64_t timeout_ms;
    sm_idempotency idempotency;
    sm_retry retry;
    bool rejects_before_work;
    sm_pointer cost, tokens; /* where its answer says what the call cost; absent: nowhere */
} sm_upstream;

typedef struct sm_loop_rule {
    bool on;
    bool poll;           /* asks again and again until something is ready */
    int64_t warn;        /* at this many copies */
    int64_t block, trip; /* likewise; 0: never; -1 while a contract is read: not given */
    int64_t max_cycle;
    sm_pointers volatile_results; /* parts of results that differ each time */
    const sm_places *places;      /* the same, compiled */
    int mode;                     /* sm_mode */
} sm_loop_rule;

/* What a budget is for. Of an hour and a day each tenant has its own. */
typedef enum sm_per { SM_PER_RUN, SM_PER_AGENT, SM_PER_TENANT, SM_PER_HOUR, SM_PER_DAY } sm_per;

typedef struct sm_budget_rule {
    int per;        /* sm_per */
    int64_t calls;  /* -1: no cap */
    int64_t tokens; /* -1: no cap */
    sm_money cost;  /* absent: no cap */
    int soft;       /* percent of each cap from which on a call is warned, once; 0: never */
    sm_str of;      /* the tool or pattern that it was written for; empty: all calls */
} sm_budget_rule;

/* Those of the tool, then those of the file's `defaults`. */
typedef struct sm_budgets {
    const sm_budget_rule *v;
    uint32_t n;
} sm_budgets;

/* How often one destination may be acted on. */
typedef struct sm_limit_rule {
    sm_pointer per; /* the argument that names the destination, or a list of them */
    int64_t calls;
    int64_t window_ms;
} sm_limit_rule;

typedef struct sm_limits {
    const sm_limit_rule *v;
    uint32_t n;
    sm_str of; /* the tool or pattern that they were written for */
} sm_limits;

typedef struct sm_breaker_rule {
    bool on;
    int64_t failures;
    int64_t window_ms; /* 0: they count in a row */
    int64_t cooldown_ms;
    int64_t probes;
} sm_breaker_rule;

/* The fields of a tool, in the order in which they are listed. One list names them everywhere. */
#define SM_CONTRACT_FIELDS(X)                                                                      \
    X(CLASS, class)                                                                                \
    X(DESCRIPTION, description)                                                                    \
    X(VERSION, version)                                                                            \
    X(MODE, mode)                                                                                  \
    X(INPUT, input)                                                                                \
    X(FILL, fill)                                                                                  \
    X(KEY, key)                                                                                    \
    X(RESOURCE, resource)                                                                          \
    X(ON_DRIFT, on_drift)                                                                          \
    X(STEP, step)                                                                                  \
    X(WINDOW, window_ms)                                                                           \
    X(RESULT_WINDOW, result_window_ms)                                                             \
    X(LEASE, lease_ms)                                                                             \
    X(ON_HIT, on_hit)                                                                              \
    X(FAILURES, failures)                                                                          \
    X(ON_REPEAT, on_repeat)                                                                        \
    X(REPEAT_AFTER, repeat_after_ms)                                                               \
    X(DELIVERED_WITHIN, delivered_within_ms)                                                       \
    X(APPROVAL, approval)                                                                          \
    X(ON_IN_DOUBT, on_in_doubt)                                                                    \
    X(PROBE, probe)                                                                                \
    X(COMPENSATE, compensate)                                                                      \
    X(BARRIER, barrier)                                                                            \
    X(UPSTREAM, upstream)                                                                          \
    X(IDEMPOTENCY, idempotency)                                                                    \
    X(REDACT, redact)                                                                              \
    X(COST, cost)                                                                                  \
    X(TOKENS, tokens)                                                                              \
    X(BUDGET, budget)                                                                              \
    X(LIMIT, limit)                                                                                \
    X(LOOP, loop)                                                                                  \
    X(BREAKER, breaker)

typedef enum sm_contract_field {
#define X(id, member) SM_F_##id,
    SM_CONTRACT_FIELDS(X)
#undef X
        SM_F_COUNT
} sm_contract_field;

/* Where a field's value came from. */
typedef enum sm_layer {
    SM_FROM_BUILT_IN,
    SM_FROM_CLASS,
    SM_FROM_UNLISTED,
    SM_FROM_DERIVED, /* from another field of the same contract */
    SM_FROM_DEFAULTS,
    SM_FROM_TOOL,
    SM_FROM_VARIANT,
} sm_layer;

typedef struct sm_origin {
    sm_layer layer;
    const sm_json *given; /* the value in the file, or NULL */
} sm_origin;

typedef struct sm_variant sm_variant;

typedef struct sm_contract {
    int class; /* sm_class */
    sm_str description;
    sm_str version;
    int mode; /* sm_mode */
    const sm_schema *input;
    sm_fill fill;
    sm_key_rule key;
    sm_resource_rule resource;
    int on_drift; /* sm_on_drift */
    int step;     /* sm_need */
    int64_t window_ms;
    int64_t result_window_ms;
    int64_t lease_ms;
    int on_hit;    /* sm_on_hit */
    int failures;  /* sm_failures */
    int on_repeat; /* sm_on_repeat */
    int64_t repeat_after_ms;
    int64_t delivered_within_ms;
    sm_approval approval;
    sm_doubt_chain on_in_doubt;
    sm_probe probe;
    sm_compensate compensate;
    bool barrier;
    sm_upstream upstream;
    sm_idempotency idempotency;
    sm_pointers redact;
    sm_money cost;  /* of a call: the most that it may cost */
    int64_t tokens; /* likewise */
    sm_budgets budget;
    sm_limits limit;
    sm_loop_rule loop;
    sm_breaker_rule breaker;

    sm_origin origin[SM_F_COUNT];
    uint32_t variant; /* 0 for the tool itself, else the variant's number from 1 */
    const sm_variant *variants;
    uint32_t variant_count;
} sm_contract;

struct sm_variant {
    sm_conditions when;
    const sm_json *given; /* the `when` in the file */
    sm_contract contract;
};

/* How a key travels downstream: as the tool says, or its upstream. */
static inline const sm_idempotency *sm_contract_key_rule(const sm_contract *c)
{
    return c->origin[SM_F_IDEMPOTENCY].given != NULL ? &c->idempotency : &c->upstream.idempotency;
}

/* One entry under `tools`. */
typedef struct sm_declared_tool {
    sm_str name; /* a name, or a pattern with * and ? */
    bool glob;
    uint32_t literals;    /* characters of a pattern that stand for themselves */
    const sm_json *given; /* the name in the file */
    sm_contract contract;
} sm_declared_tool;

/* An API behind the reverse proxy: the gateway's configuration says how it is given a key, and
 * secrets of its requests are not stored. */
static inline bool sm_tool_proxy(const sm_declared_tool *t)
{
    return t->name.n > 6 && memcmp(t->name.p, "proxy.", 6) == 0;
}

/* A file of contracts. */
typedef struct sm_contracts {
    atomic_uint holders;
    sm_arena arena;
    sm_str name; /* the file's */
    sm_str text;
    sm_declared_tool *tools; /* in the file's order */
    uint32_t tool_count;
    const sm_declared_tool *
        *index; /* exact names in order, then patterns, the most specific first */
    uint32_t exact_count;
    int unlisted; /* sm_unlisted */
    bool trust_annotations;
    sm_contract unlisted_contract;
    sm_pattern *patterns;
} sm_contracts;

/* Reads a file's text, finds every mistake, and makes the effective contracts. Warnings alone do
 * not fail. On failure *out is NULL; `report` must have been made with the same text. */
sm_err sm_contracts_read(sm_str name, sm_str text, sm_contracts **out, sm_report *report);

/* What applies where there is no file: nothing is listed, everything is a `write`. */
sm_err sm_contracts_none(sm_contracts **out);

/* One more who holds the set, and one less: it goes with the last. */
sm_contracts *sm_contracts_hold(sm_contracts *set);
void sm_contracts_free(sm_contracts *set); /* accepts NULL */

/* The entry that a tool's name comes under (an exact name before any pattern, then the pattern
 * with most literal characters), or NULL. */
const sm_declared_tool *sm_contracts_tool(const sm_contracts *set, sm_str name);

/* The rival of a tool's name: an entry, by name or by a more specific pattern, that some servers
 * take the name for (base/fold.h), although another entry or none applies to it. NULL if it has
 * none. A listed name never has one. */
const sm_declared_tool *sm_contracts_rival(const sm_contracts *set, sm_str name);

/* The contract of a tool before variants: its entry's, or that of unlisted tools. NULL if the tool
 * is unlisted and those are hidden. */
const sm_contract *sm_contracts_find(const sm_contracts *set, sm_str name);

/* The contract that applies to these arguments: the first variant that matches, or `c` itself. */
const sm_contract *sm_contract_variant(const sm_contract *c, const sm_json *args);

/* What an exception of the tool's code means. */
sm_exception sm_contract_exception(const sm_contract *c);

/* Whether a tool only reads, whatever its arguments. */
bool sm_contract_only_reads(const sm_contract *c);

/* The strategy that a call of this tool is keyed by; reads have none. */
sm_strategy sm_contract_strategy(const sm_contract *c);

/* Lists the leaves of an effective contract. `layer` is where the leaf's field came from. */
typedef void sm_contract_show_fn(void *context, const char *name, sm_str json, sm_layer layer,
                                 const sm_json *given);
void sm_contract_show(const sm_contract *c, sm_contract_show_fn *show, void *context);

/* Appends everything that an effective contract says, one leaf a line. */
void sm_contract_put(const sm_contract *c, sm_buf *out);

/* Appends, as canonical JSON, all that decides which calls share a key. Two contracts with equal
 * text recognise each other's retries. */
void sm_contract_identity(const sm_contract *c, sm_buf *out);

/* Whether a header looks like it carries a secret that is written out in the file. */
bool sm_header_secret(const sm_header *h);

const char *sm_class_name(int class_);
const char *sm_strategy_name(int strategy);
const char *sm_method_name(int method);
const char *sm_per_name(int per); /* "run", "agent" and so on */

/* For other files that say how something is reached over HTTP: the same tables and readers. The
 * last complains unless every "${" of a text is a whole "${NAME}". */
extern const sm_group sm_idempotency_group, sm_retry_group;
void sm_read_http_url(sm_loader *l, const sm_json *value, void *out); /* sm_str */
void sm_read_headers(sm_loader *l, const sm_json *value, void *out);  /* sm_headers */
void sm_check_variables(sm_loader *l, const sm_json *value);

/* A file's text as a tree: JSON if it is JSON, YAML otherwise; one that is called .json has to be
 * JSON. Bounded as contract files are. */
sm_err sm_tree_read(sm_arena *a, sm_str name, sm_str text, const sm_json **root, sm_fault *fault);

/* Internal to the contract files: the tool's table, the guards' tables and readers, the index,
 * checks of what fits together. */
extern const sm_group sm_contract_group, sm_loop_group, sm_breaker_group;
extern const char *const sm_mode_names[];
void sm_budgets_read(sm_loader *l, const sm_json *value, void *out);
void sm_limits_read(sm_loader *l, const sm_json *value, void *out);
bool sm_contracts_index(sm_contracts *set); /* false when out of memory */
void sm_contract_check(sm_loader *l, const sm_contracts *set, const sm_declared_tool *tool,
                       const sm_contract *c);

void sm_contract_lint_secrets(sm_loader *l, const sm_declared_tool *tool, const sm_contract *c);

/* Where to point for a field, or for what is called `inner` in it (may be NULL): at its value, or
 * at the tool's name if nobody wrote it. */
const sm_json *sm_contract_place(const sm_declared_tool *tool, const sm_contract *c,
                                 sm_contract_field id, const char *inner);

/* Said of a `poll` that is wider: it would hide loops of others. */
#define SM_POLL_IS_NARROW                                                                          \
    "loop: poll is for one tool that is listed by its name and has class: read"

/* The fields of `defaults` that also apply to unlisted tools. */
void sm_contract_lint_repeats(sm_loader *l, const sm_contract *c);

#endif
