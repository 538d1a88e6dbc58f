/*
 * Semel: tool calls that are safe to retry. The side effect happens once; everyone who asks again
 * gets the recorded answer; what nobody can know is called in doubt and is not tried again.
 *
 * Caveats first
 *
 *   - Exactly once is not possible against a downstream that neither accepts a key nor can be
 *     asked. There you get at most once, and an honest SEMEL_C_IN_DOUBT.
 *   - An answer's texts live in the answer until it is used again or freed.
 *   - A claim (answer.claim) is a secret: whoever has it can commit. The ledger keeps only its
 *     hash.
 *   - Do not fork while a ledger is open and use it on both sides: open it after the fork.
 *
 * Threads
 *
 *   A ledger (semel *) may be used by any number of threads at once. An answer belongs to one
 *   thread at a time; it is also the workspace of the calls that fill it, so a thread that makes
 *   many calls keeps one and uses it again.
 *
 * The short way
 *
 *     semel *s;
 *     semel_fault fault;
 *     semel_options options = {.size = sizeof options};
 *     if (semel_open(&options, &s, &fault) != SEMEL_OK)
 *         die(fault.text);
 *     semel_answer *a = semel_answer_new();
 *     semel_call call = {.size = sizeof call, .scope = semel_text("order-123"),
 *                        .tool = semel_text("charge"), .args = semel_text("{\"amount\": 1000}"),
 *                        .wait_ms = 30000};
 *     semel_run(s, &call, charge_the_card, context, a); // runs it once, whoever asks
 *     if (a->verdict != SEMEL_REFUSED)
 *         use(a->outcome.value);
 *     semel_answer_free(a);
 *     semel_close(s);
 *
 * The long way is semel_begin, the work, semel_commit; see the functions.
 *
 * Structures and their sizes
 *
 *   Structures that you make start with their own size: those that you fill in, and those that you
 *   have filled in. Set `size` to sizeof the structure, and everything else to zero before you fill
 *   it in: zero is the default of every field. The size tells which version of this header your
 *   program was compiled against, so that a structure can grow at its end:
 *     - a structure without its size is refused with SEMEL_E_BAD_ARGUMENTS;
 *     - one of an older version is read as if the rest were zero, and filled in as far as it goes;
 *     - one of a newer version is refused if it says more than this library knows: if anything
 *       beyond is not zero.
 *   Structures that lie within others (semel_outcome, semel_filter, semel_health) keep their sizes,
 *   and have spare words instead. These must be zero too.
 *
 *   No size is needed in what the library makes and you only read (semel_answer, semel_symptom,
 *   what sinks are given), in small values that never grow (semel_str, semel_hash), and in
 *   semel_fault, which never grows either.
 *
 * No pointer may be NULL where it is not said that it may; texts may be absent where it is said.
 */
#ifndef SEMEL_SEMEL_H
#define SEMEL_SEMEL_H

#include "semel/store.h"
#include "semel/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct semel semel;

/* ---- opening ---------------------------------------------------------------------------------*/

/* Tells somebody that an approval waits. `request` is what to approve, `answer_json` the effect in
 * the form of semel_answer_json. Return true once somebody has been told: until then it is called
 * again, with growing pauses, by this process or another one. May be called from a background
 * thread, and more than once for one request. */
typedef bool semel_approval_fn(void *context, semel_str request, semel_str answer_json);

typedef struct semel_options {
    size_t size;

    /* Which ledger: "sqlite:PATH", "postgres://...", "redis://...", or "memory:" (gone when
     * closed). NULL: the environment's SEMEL_LEDGER, else the file semel/ledger.db under
     * $XDG_STATE_HOME or ~/.local/state. */
    const char *url;

    /* A store of your own, used instead of those that the URL's scheme would choose. */
    const semel_store_ops *store;

    /* What is declared about tools: a file, or its text (YAML or JSON). Neither: every tool is a
     * write. */
    const char *contract_path;
    semel_str contract;

    /* Who acts, for the audit trail; absent: the name of the operating system's user. */
    semel_str actor;

    /* A file whose bytes (16 to 4096) key the seals of the audit trail. NULL: seals are not keyed.
     */
    const char *seal_key_path;

    size_t cache_bytes; /* settled effects kept in memory; 0: 64 MiB */
    bool must_exist;    /* do not make a new ledger */

    /* No background thread: leases are not renewed, notices not sent, seals and notes are written
     * at close only. For programs that open, do one thing, and close. */
    bool one_shot;

    semel_approval_fn *on_approval;
    void *on_approval_context;

    /* How long audit events and tombstones are kept; 0: 90 days each. */
    int64_t audit_retention_ms;
    int64_t tombstone_ms;
} semel_options;

/* On failure *out is NULL and `fault` (may be NULL) says what is wrong and what to do. If its code
 * is SEMEL_E_BAD_ARGUMENTS, trying again does not help. */
SEMEL_API semel_err semel_open(const semel_options *options, semel **out, semel_fault *fault);

/* Writes what is still to be written and lets go. No other call may be under way. Accepts NULL. */
SEMEL_API void semel_close(semel *s);

/* Makes the ledger that `url` names (NULL: as for semel_open), or brings it up to this version.
 * `partitions` is for a new one in Postgres: into how many parts its tables are split; 0: not at
 * all. Others may use it meanwhile. */
SEMEL_API semel_err semel_migrate(const char *url, uint32_t partitions, semel_fault *fault);

/* The version of the library, such as "1.2.3". That of this header is SEMEL_VERSION_STRING. */
SEMEL_API const char *semel_version(void);

/* ---- answers ---------------------------------------------------------------------------------*/

typedef enum semel_verdict {
    SEMEL_REFUSED, /* `code` says why; nothing ran and nothing should */
    SEMEL_EXECUTE, /* run it now, then commit with `claim` */
    SEMEL_REPLAY,  /* it is done: `outcome` */
    SEMEL_DONE     /* answers to everything but begin and run: it took effect */
} semel_verdict;

/* For `tokens`: it took none, whatever the contract declares. */
#define SEMEL_TOKENS_NONE UINT64_MAX

/* What a tool returned. The value is kept byte for byte (I4), whatever it is; it counts as JSON if
 * it reads as such. A value over 1 MiB is recorded as done without its bytes. */
typedef struct semel_outcome {
    size_t size;
    semel_kind kind;
    semel_applied applied;       /* failures only */
    semel_str value;             /* may be absent */
    semel_str corrective_action; /* partial outcomes: what is left to do */
    int status;                  /* HTTP or exit status, if there is one */
    semel_str headers;           /* a JSON object, if there are any */
    bool is_json;                /* in answers: the value reads as JSON */
    bool kept;                   /* in answers: the bytes are here */
    uint64_t bytes;              /* in answers: how many the value has; given: more than the value
                                    has means that the rest is lost, and nothing of it is kept */
    semel_str cost;              /* given: what it cost, a decimal such as "0.05", in whatever unit
                                    the budgets have; absent: what the contract declares */
    uint64_t tokens;             /* given: likewise; 0: what the contract declares, none:
                                    SEMEL_TOKENS_NONE */
    uint64_t spare[1];           /* zero */
} semel_outcome;

/* Absent texts have p == NULL; numbers that do not apply are 0. */
typedef struct semel_answer {
    semel_verdict verdict;
    semel_code code;
    semel_str effect;  /* the public handle, ef_... */
    semel_state state; /* NONE if there is no effect */
    uint64_t generation, attempt, fence;
    semel_str claim;           /* cl_..., when the verdict is execute */
    int64_t lease_ms;          /* how long the claim holds without a renewal */
    semel_str idempotency_key; /* to pass downstream; execute only */
    semel_str request;         /* ap_..., the approval request that is open or was decided */
    bool has_outcome;
    semel_outcome outcome;
    semel_str drift;      /* JSON array of pointers where the arguments differ from the record's */
    semel_str repeat_of;  /* execute: an irreversible effect of this key was done, long ago */
    semel_str blocked_by; /* IN_DOUBT: the other effect that is */
    semel_str observed;   /* observe mode: the code that would have been the answer */
    bool retriable;
    int64_t retry_after_ms;      /* 0: no advice */
    semel_str message;           /* for people and models */
    semel_str corrective_action; /* what to do about it */
    semel_str result;            /* commit: "committed", "late_settled", "late_evidence", or
                                    "put_back": the ledger had lost the attempt's record;
                                    replay: "unrecorded" if this handle ran it and the ledger has
                                    yet to record its outcome */
    bool executed;               /* semel_run: this call ran it */
    void *work;                  /* the library's */
    semel_str warning;           /* sentences for the model: the run repeats itself, or a budget is
                                    nearly used up */
    semel_str detector;          /* with that, and with LOOP_DETECTED: "repeat", "cycle" or
                                    "no_progress" */
    uint32_t period, count;      /* likewise: of how many calls, and how often they were made */
    uint64_t version;            /* of the effect: grows with every change; see semel_decision */
    semel_str limit;             /* BUDGET_EXCEEDED by a limit: the pointer of the argument that it
                                    counts calls for */
} semel_answer;

SEMEL_API semel_answer *semel_answer_new(void); /* NULL when out of memory */
SEMEL_API void semel_answer_free(semel_answer *a);

/* The answer as one JSON object, absent fields left out. */
SEMEL_API semel_err semel_answer_json(const semel_answer *a, semel_str *out);

/* ---- doing something once --------------------------------------------------------------------*/

enum {
    /* The claim is not tied to this process: it outlives it, until its lease ends. */
    SEMEL_CALL_DETACHED = 1,
    /* A person undoes the effect that the key names, undo:ef_..., by the very call that its
     * contract describes; any other is refused. Stops of the scope, budgets and limits do not
     * refuse it. Not for agents. */
    SEMEL_CALL_UNDOES = 2,
};

typedef struct semel_call {
    size_t size;
    semel_str scope; /* within which equal calls are the same action; required, at most 512 bytes */
    semel_str step;  /* may be absent */
    semel_str tool;  /* required */
    semel_str args;  /* JSON text; absent: {} */
    semel_str key;   /* the caller's own; may be absent */
    semel_str after; /* the handle that a deliberate repeat comes after; see on_repeat */
    int64_t wait_ms; /* how long to wait for somebody else's attempt, or for an approval */
    uint64_t flags;  /* SEMEL_CALL_...; an unknown one is refused */
} semel_call;

/* Asks whether to run. Never blocks longer than wait_ms, but for the store's own writes.
 *
 * SEMEL_OK with a verdict. Errors give a verdict too (refused, with a code): BAD_ARGUMENTS,
 * UNKNOWN_TOOL, and UNAVAILABLE, on which nothing may run (I8). */
SEMEL_API semel_err semel_begin(semel *s, const semel_call *call, semel_answer *a);

/* Extends the lease of a claim from now on. BAD_CLAIM once somebody else may decide. lease_ms 0:
 * the contract's. */
SEMEL_API semel_err semel_renew(semel *s, semel_str claim, int64_t lease_ms, semel_answer *a);

/* Records how an attempt ended. A late commit changes nothing that was decided, is kept as
 * evidence, and may settle an effect that is in doubt (I5); `result` says which it was. After
 * UNAVAILABLE, try again with the same claim: committing twice is harmless. */
SEMEL_API semel_err semel_commit(semel *s, semel_str claim, const semel_outcome *outcome,
                                 semel_answer *a);

/* Does the work: called at most once for one attempt, outside of all locks. `execute` is the
 * answer with claim and idempotency_key. The outcome is the library's, and has its size. Its texts
 * must stay valid until semel_run returns. */
typedef void semel_work_fn(void *context, const semel_answer *execute, semel_outcome *outcome);

/* begin, the work, commit; everyone else waits for it and gets the same bytes. The lease is renewed
 * in the background while the work runs. If the outcome cannot be recorded for 15 seconds, the
 * effect is left to be in doubt: UNAVAILABLE, with the outcome in the answer. */
SEMEL_API semel_err semel_run(semel *s, const semel_call *call, semel_work_fn *work, void *context,
                              semel_answer *a);

/* ---- people ----------------------------------------------------------------------------------*/

/* These name an effect by its handle ef_..., or a request by ap_.... `actor` may be absent: then it
 * is the one that the ledger was opened with. Who somebody is must come from authentication. */
SEMEL_API semel_err semel_approve(semel *s, semel_str request, semel_str actor, semel_answer *a);
SEMEL_API semel_err semel_deny(semel *s, semel_str request, semel_str actor, semel_str reason,
                               semel_answer *a);
SEMEL_API semel_err semel_cancel(semel *s, semel_str effect, semel_str actor, semel_str reason,
                                 semel_answer *a);

/* Says what became of an effect that is in doubt. `outcome` only with APPLIED, and may be NULL. */
SEMEL_API semel_err semel_resolve(semel *s, semel_str effect, semel_resolution how,
                                  const semel_outcome *outcome, semel_str evidence, semel_str actor,
                                  semel_answer *a);

/* Forgets a settled effect: the next equal call runs. Its history stays. */
SEMEL_API semel_err semel_forget(semel *s, semel_str effect, semel_str actor, semel_str reason,
                                 semel_answer *a);

/* A decision that can name what it was based on. */
typedef enum semel_decides {
    SEMEL_DECIDE_APPROVE,
    SEMEL_DECIDE_DENY,
    SEMEL_DECIDE_CANCEL,
    SEMEL_DECIDE_RESOLVE,
    SEMEL_DECIDE_FORGET
} semel_decides;

typedef struct semel_decision {
    size_t size;
    semel_decides what;
    semel_str name;               /* ap_... to approve or deny, else ef_... */
    semel_str actor;              /* as above */
    semel_str reason;             /* why; resolve: the evidence */
    semel_resolution how;         /* resolve */
    const semel_outcome *outcome; /* resolve, with APPLIED only; may be NULL */
    uint64_t if_version;          /* answer.version when it was looked at; 0: whatever it is now */
} semel_decision;

/* The functions above in one. If the effect is of another version than if_version by now, nothing
 * happens: ILLEGAL_STATE, and the answer says what the effect is now. */
SEMEL_API semel_err semel_decide(semel *s, const semel_decision *decision, semel_answer *a);

/* ---- the stop button -------------------------------------------------------------------------*/

/* What is stopped: everything; a scope and all below it; a tool, or all that match a pattern with *
 * and ?. */
typedef enum semel_stop_kind { SEMEL_STOP_ALL, SEMEL_STOP_SCOPE, SEMEL_STOP_TOOL } semel_stop_kind;

/* Refuses new writes (STOPPED) until they are resumed: within a second in every process that uses
 * the ledger. What is under way ends and is recorded; what is settled goes on answering; reads go
 * on. `name` is absent for SEMEL_STOP_ALL. *changed is false if it was stopped already, or was not
 * stopped. Resuming a tool also closes its circuits, so that it is called at once. */
SEMEL_API semel_err semel_stop(semel *s, semel_stop_kind kind, semel_str name, semel_str actor,
                               semel_str reason, bool *changed, semel_fault *fault);
SEMEL_API semel_err semel_resume(semel *s, semel_stop_kind kind, semel_str name, semel_str actor,
                                 semel_str reason, bool *changed, semel_fault *fault);

/* Reopens a run that was stopped because it repeats itself (LOOP_DETECTED), or is about to be. Its
 * count begins anew. *changed is false if nothing was counted of it. */
SEMEL_API semel_err semel_scope_reset(semel *s, semel_str scope, semel_str actor, semel_str reason,
                                      bool *changed, semel_fault *fault);

/* What is stopped, as JSON: {"items": [{"kind", "name", "reason", "by", "since"}]}. The kind "loop"
 * is a run that was stopped because it repeats itself: it has `detector`, `period` and `count`
 * instead of `reason` and `by`. `scope` (absent: all of them) leaves only those in this scope,
 * those that stop all of it, and tools. Without it, open circuits are listed too: the kind
 * "circuit", with `tool`, `upstream`, `failures`, `half_open`, `since` and `retry_after_ms`. The
 * text lives in the answer. */
SEMEL_API semel_err semel_stops(semel *s, semel_str scope, semel_answer *a, semel_str *json);

/* A tool that is not called for a while, because its calls fail (CIRCUIT_OPEN). */
typedef struct semel_circuit {
    semel_str tool;
    semel_str upstream;     /* "https://api.example"; absent if its contract names none */
    bool half_open;         /* calls find out whether it works again */
    uint32_t failures;      /* that opened it */
    int64_t since;          /* by the store's clock, in milliseconds since 1970 */
    int64_t retry_after_ms; /* 0: it may be called now */
    semel_str tenant;       /* whose calls are refused; absent with an upstream: everybody's */
} semel_circuit;

/* Lists them. `circuit` is borrowed until the sink returns; false stops. */
typedef bool semel_circuit_fn(void *context, const semel_circuit *circuit);
SEMEL_API semel_err semel_circuits(semel *s, semel_circuit_fn *sink, void *context,
                                   semel_fault *fault);

/* ---- loops, without a ledger -----------------------------------------------------------------*/

/* A detector of its own, for programs that keep no ledger: LoopDetector(repeats = 3, max_cycle =
 * 2). One is for one run, and for one thread at a time. It does no input or output and knows no
 * clock, and its memory does not grow with the calls.
 *
 * It finds the same call again and again ("repeat"), and up to max_cycle calls that take turns
 * ("cycle"). Only the end of the sequence counts: whatever breaks a pattern ends it. */
typedef struct semel_loop semel_loop;

typedef struct semel_loop_options {
    size_t size;
    uint32_t repeats;   /* so many copies are a loop, at least 2; 0: 3 */
    uint32_t max_cycle; /* the longest cycle that is looked for, at most 32; 0: 2 */
} semel_loop_options;

typedef struct semel_loop_match {
    semel_str detector; /* "repeat" or "cycle" */
    uint32_t period;    /* of how many calls; 1 for a repeat */
    uint32_t count;     /* how many copies there are now; 1: the call is new */
} semel_loop_match;

/* `options` may be NULL. BAD_ARGUMENTS if they are out of range. */
SEMEL_API semel_err semel_loop_new(const semel_loop_options *options, semel_loop **out,
                                   semel_fault *fault);
SEMEL_API void semel_loop_free(semel_loop *l); /* accepts NULL */

/* Adds a call and what it returned: true if that completes a loop. JSON is compared by value,
 * anything else by its bytes. `args` may be absent: {}. `result` may be absent: then the calls
 * alone are compared, and one with a result is another one. `match` may be NULL. When out of memory
 * the call is left out: false. */
SEMEL_API bool semel_loop_add(semel_loop *l, semel_str tool, semel_str args, semel_str result,
                              semel_loop_match *match);

/* ---- reading ---------------------------------------------------------------------------------*/

/* How an effect is named: by handle ef_..., by request ap_..., by key text (43 characters), or by
 * scope and the caller's key. */
typedef struct semel_name {
    size_t size;
    semel_str text;       /* handle, request or key text; absent: scope and key */
    semel_str scope, key; /* the caller's key */
} semel_name;

/* The current answer about an effect: state, outcome, open request. SEMEL_REPLAY if it has an
 * outcome, else SEMEL_DONE. NOT_FOUND is refused. */
SEMEL_API semel_err semel_get(semel *s, const semel_name *name, semel_answer *a);

/* The whole story as JSON: the answer, and scope, step, tool, args, attempts, requests, events,
 * replays. The text lives in the answer. */
SEMEL_API semel_err semel_show(semel *s, const semel_name *name, semel_answer *a, semel_str *json);

/* Effects, the newest first. Each is given as the answer about it and as its record. */
typedef struct semel_query {
    size_t size;
    semel_filter filter;
    uint64_t cursor; /* 0 to start; afterwards what to continue with, 0 at the end */
    size_t limit;    /* 0: 50; at most 1000 */
} semel_query;

/* `item` and `record` are borrowed until the sink returns; false stops. */
typedef bool semel_item_fn(void *context, const semel_answer *item, const semel_record *record);
SEMEL_API semel_err semel_list(semel *s, semel_query *q, semel_item_fn *sink, void *context,
                               semel_fault *fault);

/* Progress of long work: false stops it. `total` is 0 if unknown. */
typedef bool semel_progress_fn(void *context, uint64_t done, uint64_t total);

/* Runs: what calls of one scope did. They are added up from the newest effects and from the notes
 * of replays and refusals, which are at most a second late.
 *
 * The JSON says what was counted: `since`, how many effects were `looked_at`, and whether that was
 * `complete`. If it was not, `since` is the time from which on all effects were counted. */
typedef struct semel_scope_query {
    size_t size;
    semel_str scope;      /* list: whole leading segments; absent: all. show: the run */
    int64_t since;        /* effects created since; 0: list a day ago, show from the beginning */
    uint64_t effects_max; /* how many are looked at, the newest first; 0: 100,000 */
    semel_str cursor;     /* list: absent to start; then the one of the JSON before */
    size_t limit;         /* list: runs, 0: 50, at most 1000; show: effects, 0: 20, at most 1000 */
    semel_progress_fn *progress; /* may be NULL; stopped, the count is not complete */
    void *context;
    semel_str within; /* show: budgets that are shared beyond this scope are left out */
} semel_scope_query;

/* Runs, the one with the newest call first: {"items": [...], "cursor"}. Each has `scope`,
 * `last_at`, `effects`, `executed` (attempts that began), `replays`, `refusals`, `in_doubt`,
 * `pending` (waiting for approval), `spent` and `reserved` (decimals, as text), and `state`: "ok",
 * "warned" or "looping" (it repeats itself, and is warned or blocked), "stopped". */
SEMEL_API semel_err semel_scope_list(semel *s, const semel_scope_query *q, semel_answer *a,
                                     semel_str *json);

/* One run: the same, and `loop` (detector, period, count, tripped), `budgets` (by the contracts in
 * use: cap, spent, reserved), `stops` that apply to it, and its newest `items`. NOT_FOUND is
 * refused. */
SEMEL_API semel_err semel_scope_show(semel *s, const semel_scope_query *q, semel_answer *a,
                                     semel_str *json);

/* What was spent, and what was not. A scope is read as tenant/agent/run; days are UTC. */
typedef enum semel_spend_by {
    SEMEL_SPEND_TOOL,
    SEMEL_SPEND_SCOPE,
    SEMEL_SPEND_AGENT,
    SEMEL_SPEND_DAY
} semel_spend_by;

typedef struct semel_spend_query {
    size_t size;
    semel_spend_by by;
    semel_str scope; /* the rest as in semel_scope_query */
    int64_t since;
    uint64_t effects_max;
    size_t limit; /* items, 0: 100, at most 1000; those that spent most */
    semel_progress_fn *progress;
    void *context;
} semel_spend_query;

/* {"by", "items": [{"name", ...}], "total": {...}}. Each has `effects`, `executed`, `spent`,
 * `reserved` (running or in doubt), `tokens`, `refusals`, and what was prevented: `duplicates`,
 * equal calls that did not run, and `saved`, what they would have cost. `left_out`: items beyond
 * the limit, which are in the total. */
SEMEL_API semel_err semel_spend(semel *s, const semel_spend_query *q, semel_answer *a,
                                semel_str *json);

/* Events after a position, over all effects or of one (`effect` absent: all). */
SEMEL_API semel_err semel_events(semel *s, semel_str effect, uint64_t *after, size_t limit,
                                 semel_event_sink *sink, void *context, semel_fault *fault);

/* One event as a JSON object. Writes at most `room` bytes, and sets *n to how many it needs. */
SEMEL_API semel_err semel_event_json(const semel_event *e, char *out, size_t room, size_t *n);

/* Calls the sink with every event after `after`, as they come, from a thread of its own, until it
 * returns false or the subscription ends. At least once each if you continue from the last seq. */
typedef struct semel_subscription semel_subscription;
SEMEL_API semel_err semel_subscribe(semel *s, uint64_t after, semel_event_sink *sink, void *context,
                                    semel_subscription **out, semel_fault *fault);
SEMEL_API void semel_unsubscribe(semel_subscription *sub); /* waits for the sink; accepts NULL */

/* ---- keeping ---------------------------------------------------------------------------------*/

/* One line of text at a time, with its line feed. False stops. */
typedef bool semel_line_fn(void *context, semel_str line);

/* Checkpoints: every effect (or those of one scope) as one line of JSON, and back.
 * Import: a settled effect that is here already wins; one that was running comes back in doubt. */
SEMEL_API semel_err semel_export(semel *s, semel_str scope, semel_line_fn *line, void *context,
                                 semel_fault *fault);

/* Each line adds to it. */
typedef struct semel_imported {
    size_t size;
    uint64_t lines, added, kept; /* kept: what was here already won */
} semel_imported;
SEMEL_API semel_err semel_import_line(semel *s, semel_str line, semel_imported *count,
                                      semel_fault *fault);

/* Removes what its windows allow, in short transactions. *done: how much. */
SEMEL_API semel_err semel_purge(semel *s, semel_progress_fn *progress, void *context,
                                uint64_t *done, semel_fault *fault);

/* Seals what is not sealed yet. */
SEMEL_API semel_err semel_seal(semel *s, semel_fault *fault);

typedef struct semel_verified {
    size_t size;
    uint64_t events, effects, seals; /* looked at */
    uint64_t unsealed;               /* events after the last seal */
    uint64_t unkeyed;                /* seals made without a key, or with another one */
    uint64_t flaws;                  /* altered, removed or reordered */
} semel_verified;

/* Told of each flaw, in words. */
typedef bool semel_flaw_fn(void *context, semel_str text);

/* Checks the whole audit trail. SEMEL_OK even if there are flaws: look at `out`. */
SEMEL_API semel_err semel_verify(semel *s, semel_flaw_fn *flaw, semel_progress_fn *progress,
                                 void *context, semel_verified *out, semel_fault *fault);

/* State of the store, and what this handle has done since it was opened. */
typedef struct semel_stats {
    size_t size;
    semel_health store;
    uint32_t caps;    /* SEMEL_STORE_... */
    int64_t ahead_ms; /* the store's clock before this machine's, if it has its own */
    uint64_t begins, executes, replays, refused, waits, commits;
} semel_stats;
SEMEL_API semel_err semel_stats_get(semel *s, bool thorough, semel_stats *out, semel_fault *fault);

/* Signs of wrong use, over the newest effects: the same arguments under
 * different keys within seconds, near-duplicates and the field that differs, effects long in doubt,
 * windows shorter than observed retries, replays of unlisted tools that may have been stale reads,
 * claims that were never committed. */
typedef struct semel_symptom {
    const char *kind;        /* "equal_arguments", "near_duplicate", "long_in_doubt", ... */
    semel_str effect, other; /* handles; other may be absent */
    semel_str tool, text;    /* text says what was seen and what to do */
    semel_str pointer;       /* near-duplicates: the one place that differs */
    semel_str actor;         /* never_committed: who took the claims, */
    uint64_t count;          /* and how many; `effect` is the newest */
} semel_symptom;
typedef bool semel_symptom_fn(void *context, const semel_symptom *symptom);
SEMEL_API semel_err semel_doctor(semel *s, size_t newest, semel_symptom_fn *sink,
                                 semel_progress_fn *progress, void *context, semel_fault *fault);

#ifdef __cplusplus
}
#endif

#endif
