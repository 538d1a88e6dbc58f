/*
 * What a server needs of a ledger beyond semel.h: asking without waiting, recording how attempts
 * ended, changing contracts, and effects that nobody asks for any more.
 */
#ifndef SM_LEDGER_SERVICE_H
#define SM_LEDGER_SERVICE_H

#include <stdatomic.h>

#include "base/limits.h"
#include "core/breaker.h"
#include "core/contract.h"
#include "core/handle.h"
#include "core/transition.h"
#include "semel/semel.h"

/*
 * A call that is asked for without blocking a thread until it can be answered. Asked for the first
 * time it joins what is under way, if anything is; asked again it gets the end of what it joined,
 * a failure too, and never runs that again.
 */
typedef struct sm_asking {
    semel_call call;  /* wait_ms is not looked at */
    sm_str actor;     /* who asks, authenticated; absent: the ledger's own, not authenticated */
    bool upstream;    /* whoever asks executes it here: what is left over is for sm_on_due */
    int64_t lease_ms; /* 0: the contract's */
    uint64_t shape;   /* a number for how it will be sent, to tell whether a resend would be the
                         same; may be set by `prepare`; 0: none */

    /* What asking must not cause, beyond what it never does. */
    bool patient; /* asked again, it begins nothing out of doubt: that is looked after elsewhere */
    bool quiet;   /* nobody is asked for an approval, and nothing runs unrecorded */
    bool full;    /* nothing is begun: `turned_away` tells that it would have been */
    bool ran;     /* the caller has run it: nothing is ever begun for the caller again */
    bool large;   /* arguments of up to SM_ARGS_MAX bytes, and not only SM_JSON_BYTES_MAX */
    bool http;    /* they are those of an HTTP request: see core/identity.h */
    bool tells;   /* if it runs unrecorded, sm_pass_ended will be told how it ended */
    bool undoes;  /* a person undoes the effect that the key names (core/undo.h): neither a stop of
                     the scope or of everything, nor a run that was stopped for repeating itself,
                     nor a budget, nor a limit of a destination keeps it from running. A stop of its
                     tool does, and so does an open circuit */
    const sm_idempotency *down; /* how the caller's upstream is given a key, if its contract does
                                   not say; NULL: not at all */
    bool turned_away;

    /* Called once the call has its contract and full arguments, before the ledger is asked for
     * anything. A failure refuses the call. May be NULL. */
    sm_err (*prepare)(struct sm_asking *q, const sm_contract *c, const sm_json *args,
                      sm_fault *fault);

    /* Results. `waits`: the answer is a refusal for now, and worth asking again when the record
     * `of` is no longer of this version, or after look_ms at the latest. */
    bool waits;
    bool known;   /* `key` is given, or was found when it was first asked: it stays */
    sm_hash key;  /* this and `id` are known when `prepare` is called */
    uint64_t id;  /* of the key's effects */
    semel_ref of; /* of.key is &key */
    uint64_t version;
    int64_t look_ms;
    uint64_t passed; /* with `tells`: for sm_pass_ended; 0: there is nothing to tell */

    /* Those that were in use when it was first asked: it ends under them. To be freed by whoever
     * made the asking. */
    sm_contracts *contracts;

    /* What was joined; zero before the first time. */
    uint64_t joined_generation, joined_fence, joined_request;
} sm_asking;

/* As semel_begin, for a call that Semel executes: its lease is SM_RUN_LEASE_MS, and its claim is
 * tied to this process. */
sm_err sm_begin_run(semel *s, const semel_call *call, semel_answer *a);

/* Never waits. Otherwise as semel_begin. */
sm_err sm_ask(semel *s, sm_asking *q, semel_answer *a);

/* Answers from this process' memory alone, if that can tell: true if the answer is a replay. False
 * says nothing. Does no I/O, and leaves long arguments alone: a server's own thread may call it. */
bool sm_ask_memory(semel *s, sm_asking *q, semel_answer *a);

/* Blocks until q->of may have changed (true), or until then. */
bool sm_ask_wait(semel *s, const sm_asking *q, int64_t deadline_ns);

/* Gives a claim back under which nothing was done: the key is free again. `actor` absent: the
 * ledger's own. SEMEL_E_NOT_FOUND: it is not a claim, or its attempt is over. */
sm_err sm_give_back(semel *s, sm_str claim, sm_str actor, semel_answer *a);

/* Refuses in the ledger's words, without asking it: by a code, or because of a fault. */
void sm_refuse(semel_answer *a, semel_code code);
void sm_refuse_fault(semel_answer *a, sm_err e, const sm_fault *fault);

/* The fault behind a refusal, in the store's or reader's own words; absent if there is none. And
 * gives a refusal the code's own words instead. */
sm_str sm_answer_fault(const semel_answer *a);
void sm_answer_reword(semel_answer *a);

/* Memory that lives as long as what the answer says. */
sm_arena *sm_answer_arena(const semel_answer *a);

/* The part of an answer's warning that is about budgets. It comes with the answer that allows an
 * attempt; whoever executes it here carries it to the answer at its end. */
sm_str sm_answer_budget_warning(const semel_answer *a);

/* The answer is not used for a while: large memory goes back. */
void sm_answer_rest(semel_answer *a);

/* Answers, outcomes and events as JSON objects. */
void sm_answer_put_json(const semel_answer *a, sm_buf *out);
void sm_outcome_put_json(const semel_outcome *o, sm_buf *out);
void sm_event_put_json(const semel_event *e, sm_buf *out);

/* The members that say what loop was found (detector, period, count), or which limit was reached.
 */
void sm_answer_put_guard(const semel_answer *a, sm_buf *out);

/* What waits for an approval, of an effect that semel_get has just read. */
typedef struct sm_pending {
    sm_str scope, step, tool, args;
    int64_t created_at;
    int64_t expires_at; /* INT64_MAX: never */
    uint32_t approvals, quorum;
} sm_pending;
void sm_pending_of(const semel_answer *a, sm_pending *out);

/* A call that runs unrecorded, because its tool only reads or its contract says so. */
typedef struct sm_passed {
    uint64_t call; /* a number for it: sm_asking.passed, or from sm_pass */
    sm_str scope, tool;
} sm_passed;

/* Counts a call that is passed on without asking, because its tool only reads. Returns the number
 * for sm_pass_ended; 0: there is nothing to tell. Does no I/O. */
uint64_t sm_pass(semel *s, const semel_call *call, semel_answer *a);

/* It has ended. The answer, which is about nothing else, gets a warning if the run repeats itself.
 * Does no I/O. */
void sm_pass_ended(semel *s, const sm_passed *p, const semel_outcome *o, semel_answer *a);

/* In a child made by fork, of a ledger that its parent has open: lets go of what was inherited and
 * tells the ledger nothing. It is not used any more; its memory stays. */
void sm_forsake(semel *s);

/* ---- attempts that Semel executes itself -----------------------------------------------------*/

/* What Semel itself executes holds a short lease and renews it. */
#define SM_RUN_LEASE_MS 15000

/* One attempt that this handle runs, or whose end it has yet to record. Whoever runs it gives the
 * memory, zeroed; the rest is the ledger's. */
typedef struct sm_running {
    struct sm_running *next;
    sm_handle claim;
    bool entered;
    struct sm_recalled *seen; /* the record when the attempt began; NULL: out of memory */
    int64_t renew_ns;         /* when to renew it next, or to try again, by the monotonic clock */
    size_t most;              /* bytes of its outcome that are kept */
    bool lost;                /* the ledger had lost its record, and it was put back */
    bool unrecorded;          /* it has ended, and the ledger could not be told */
    bool owed;                /* and the keeper goes on trying */
    sm_health health;         /* what its end says of the tool */
} sm_running;

/* Enters the attempt that `execute` has just let begin: its lease is renewed until its end is
 * recorded. Of its outcome at most so many bytes are kept (SM_OUTCOME_MAX, SM_LARGE_OUTCOME_MAX).
 */
void sm_running_add(semel *s, sm_running *r, const semel_answer *execute, size_t most);

/* Its lease is kept no longer, and its end will not be recorded: it will be in doubt. Accepts one
 * that was not entered. */
void sm_running_remove(semel *s, sm_running *r);

/* The `result` of an attempt whose record was put back. */
#define SM_PUT_BACK "put_back"

/* The `result` of a call that has run and whose outcome the ledger does not have yet. */
#define SM_UNRECORDED "unrecorded"

/* Prepares an outcome for keeping: its size, whether it is JSON, its bounds. At most so many bytes
 * are kept. The arena is for reading it. */
void sm_outcome_settle(sm_arena *a, semel_outcome *o, size_t most);

/* How the end of an attempt is recorded. */
typedef struct sm_recording {
    const semel_outcome *outcome; /* NULL: nothing was done, and the claim is given back */
    sm_health health;             /* what that says of the tool */
    sm_str actor;
    int64_t patience_ms;     /* how long it is tried again */
    const atomic_bool *stop; /* whoever records has no time any more; NULL: has time */
    /* Called once, when the first try fails. May be NULL. */
    void (*on_failure)(void *context, sm_str reason);
    void *context;
} sm_recording;

/* Records how an attempt ended, and removes the attempt from the table. If the ledger is
 * unavailable, it tries again for patience_ms, or until *stop. After that it gives up with the
 * error, and the background goes on trying, as long as the handle is open: a late outcome still
 * settles the doubt that has arisen meanwhile. Until it is recorded, equal calls of this handle get
 * the outcome as a replay with the result SM_UNRECORDED. The result is SM_PUT_BACK if the ledger
 * had lost the attempt's record. */
sm_err sm_record(semel *s, sm_running *r, const sm_recording *what, semel_answer *a);

/* When the effect that an answer is about was settled, and when its window ends (INT64_MAX: never),
 * by the store's clock; 0: it is not settled. */
int64_t sm_settled_at(const semel_answer *a, int64_t *window_end);

/* Checks the place of the ledger that a URL names (NULL: as in semel_options) as opening does, but
 * asks no server, and opens and makes nothing. */
sm_err sm_ledger_place(const char *url, sm_fault *fault);

/* Whether the store takes writes now: SM_OK, or the error of a write. Blocks as a write does. */
sm_err sm_try_write(semel *s, sm_fault *fault);

/* ---- following -------------------------------------------------------------------------------*/

/* The scope that an effect was made in, whatever its generation. The text lives in the answer.
 * SEMEL_E_NOT_FOUND if there is no such effect. */
sm_err sm_scope_of(semel *s, const sm_handle *effect, semel_answer *a, sm_str *scope,
                   sm_fault *fault);

/* Blocks until there is an event after seq `after`: true, and at times for no reason; or until
 * then, or as long as the ledger can be asked: false. */
bool sm_wait_events(semel *s, uint64_t after, int64_t deadline_ns);

/* ---- contracts -------------------------------------------------------------------------------*/

/* Replaces the contracts by those of a file's text, if they are right and this ledger may hold
 * them. Calls under way end under the old ones. `report` (made with the same text) gets what is
 * wrong, and warnings about tools whose retries will not be recognised. */
sm_err sm_contracts_replace(semel *s, sm_str name, sm_str text, sm_report *report, sm_fault *fault);

/* The contracts in use, until the answer is used again or freed. */
const sm_contracts *sm_contracts_now(semel *s, semel_answer *a);

/* The same, held until they are freed. */
sm_contracts *sm_contracts_keep(semel *s, semel_answer *a);

/* ---- people whom the caller has authenticated ------------------------------------------------*/

/* As semel_decide, also if the contract says `via: gateway`. FORBIDDEN if the actor approves and
 * has asked for the call (sm_asking.actor), unless the contract says `self_approval`. Those who
 * have approved a call cannot ask for it either (I7). */
sm_err sm_decide(semel *s, const semel_decision *decision, semel_answer *a);

/* Whether a decision that names a version is about another one than the answer, which semel_get has
 * just made. If it is, the answer becomes the refusal; nothing is written. */
bool sm_decision_stale(semel_answer *a, uint64_t if_version);

/* As semel_commit and semel_renew, by whoever was authenticated. */
sm_err sm_commit_as(semel *s, sm_str claim, const semel_outcome *outcome, size_t most, sm_str actor,
                    semel_answer *a);
sm_err sm_renew_as(semel *s, sm_str claim, int64_t lease_ms, sm_str actor, semel_answer *a);

/* ---- undoing ---------------------------------------------------------------------------------*/

/* Whether an effect can be undone. */
typedef enum sm_undo_status {
    SM_UNDO_TODO,    /* `call` undoes it; if that was begun before, `undo` is its effect */
    SM_UNDO_DONE,    /* it was undone by `undo` */
    SM_UNDO_NOTHING, /* there is nothing to undo, as `why` says */
    SM_UNDO_CANNOT,  /* it took effect and cannot be undone, as `why` says */
    SM_UNDO_OPEN,    /* it runs, or may run at any moment: nobody knows yet what to undo */
    SM_UNDO_DOUBT,   /* it is in doubt. `call` undoes it if it took effect, and is absent (no tool)
                        if it cannot be made, as `why` says */
} sm_undo_status;

/* Its texts live in the answer. */
typedef struct sm_undo {
    sm_undo_status status;
    semel_state state; /* the effect's */
    sm_str effect, scope, tool;
    sm_str why;
    sm_str undo;            /* absent: nobody has tried to undo it */
    semel_state undo_state; /* NONE with that */
    semel_call call;
    bool upstream; /* the contract says how to execute it over HTTP */
    bool stays;    /* and that a failure is replayed: the call is not tried again */
} sm_undo;

/* The rule of what undoes an effect, by the contracts in use. The answer is about nothing, or is
 * the refusal. */
sm_err sm_undo_of(semel *s, const sm_handle *effect, semel_answer *a, sm_undo *out);

/* What keeps the call of an undo from having succeeded: what it was answered, or else what became
 * of it. NONE: it has failed itself. */
semel_code sm_undo_code(const semel_answer *answer, const sm_undo *after);

/* The effects of one scope (none of those below it), the newest first: at most `room`, *n of them.
 * *cursor is 0 to start, and 0 again at the end. */
sm_err sm_scope_effects(semel *s, sm_str scope, uint64_t *cursor, sm_handle *out, size_t room,
                        size_t *n, sm_fault *fault);

/* "todo", "done", "nothing", "cannot", "running", "in_doubt". */
const char *sm_undo_status_name(sm_undo_status status);

/* One item of a plan, as JSON. */
void sm_undo_put_json(const sm_undo *u, sm_buf *out);

/* The call of an undo has succeeded: the effect in doubt is abandoned, so that it never runs again.
 * The undo's handle becomes part of the evidence, which has at most so many bytes. */
#define SM_UNDO_EVIDENCE_MAX (SM_REASON_MAX - SM_HANDLE_TEXT - 20)
sm_err sm_undo_resolve(semel *s, const sm_handle *effect, sm_str undo, sm_str evidence,
                       sm_str actor, uint64_t if_version, semel_answer *a);

/* ---- the stop button -------------------------------------------------------------------------*/

/* As semel_stop and semel_resume, by somebody who is bound to a scope (absent: to none). What
 * somebody stopped who is not bound to it is not for them to resume: SEMEL_E_BARRED. */
sm_err sm_stop(semel *s, semel_stop_kind kind, sm_str name, sm_str actor, sm_str bound,
               sm_str reason, bool *changed, sm_fault *fault);
sm_err sm_resume(semel *s, semel_stop_kind kind, sm_str name, sm_str actor, sm_str bound,
                 sm_str reason, bool *changed, sm_fault *fault);

/* ---- what is left over -----------------------------------------------------------------------*/

/* Called from the ledger's background thread, about once a second for each effect that was begun
 * with `upstream` and is in doubt at a step that Semel takes, or approved and not begun: must not
 * block. Set before the first call. */
typedef void sm_due_fn(void *context, const sm_handle *effect);
void sm_on_due(semel *s, sm_due_fn *fn, void *context);

/* What is to be done about such an effect, or about any other that is in doubt. The texts live in
 * the answer. */
typedef struct sm_remedy {
    bool upstream;     /* it was begun so, and somebody is told that it is due */
    semel_state state; /* IN_DOUBT or READY; anything else: nothing is to be done */
    sm_doubt step;     /* in doubt: RESEND, PROBE, RERUN or HOLD */
    semel_call call;   /* the recorded one; READY and RERUN ask with it again */
    uint64_t attempt;
    uint64_t shape; /* of what was sent */
    sm_hash key;
    uint64_t fence;         /* of the newest attempt */
    int64_t window_left_ms; /* resend: until the downstream forgets its key */
    int64_t doubt_age_ms;
    int64_t settle_left_ms; /* probe: until "absent" counts; not above 0: it does */
} sm_remedy;
sm_err sm_remedy_of(semel *s, const sm_handle *effect, semel_answer *a, sm_remedy *out);

/* Starts the resend that the effect's chain is at. effect->fence, if there is one, is the newest
 * attempt's when that was looked at. The answer is execute with a claim, or a refusal
 * (ILLEGAL_STATE) if it is not there, or if there is a newer attempt by now; STOPPED while its
 * writes are stopped: it is put off, and due again later. */
sm_err sm_resend(semel *s, const sm_handle *effect, int64_t lease_ms, semel_answer *a);

/* What a probe found. effect->fence is the newest attempt's when it was asked; if there is a newer
 * one by now, it says nothing. With APPLIED `outcome` becomes the effect's. The answer's state says
 * where it is now; waits (state in doubt and code UPSTREAM_TIMEOUT) if it is too early to tell. */
sm_err sm_probed(semel *s, const sm_handle *effect, sm_found_kind found,
                 const semel_outcome *outcome, semel_answer *a);

/* sm_due_fn is not called about this effect for so long. */
sm_err sm_put_off(semel *s, const sm_handle *effect, int64_t pause_ms, semel_answer *a);

/* Nothing but a person settles this doubt from now on: before its undo runs, so that it is not sent
 * again afterwards. SEMEL_DONE with the effect's version; refused if it is not in doubt, or its
 * version is not `if_version` (0: whatever it is). */
sm_err sm_doubt_hold(semel *s, const sm_handle *effect, uint64_t if_version, semel_answer *a);

#endif
