/*
 * The ledger's insides: what its files share.
 *
 * Every operation has the same shape. It reads a record, lets the life cycle judge an event
 * (core/transition), makes one write of the result, and applies it by compare-and-swap; if somebody
 * else was faster it starts over with what is there now. No lock of ours is held across a store's
 * call or a caller's work.
 *
 * Locks: the keeper's, the contracts', the board's, one for each stripe of the journal and of the
 * runs, and for each part of the remembered records (recall.h). A thread holds one of them at a
 * time, but for the board's under that of a stripe of runs; and none across a call of a store or of
 * the program. Stores have locks of their own, which are never held when they call back.
 */
#ifndef SM_LEDGER_WORK_LEDGER_H
#define SM_LEDGER_WORK_LEDGER_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/chain.h"
#include "ledger/guard/board.h"
#include "ledger/guard/runs.h"
#include "ledger/service.h"
#include "ledger/work/journal.h"
#include "ledger/work/recall.h"
#include "ledger/work/work.h"

#define SM_RUN_RENEW_MS 5000 /* of leases of SM_RUN_LEASE_MS */

/* A lost race is tried again; more often than this means that the store does not keep its word. */
#define SM_RACES_MAX 10000

#define SM_RUNNING_BUCKETS 256u

/* How many lines of budgets a handle remembers as crossed. One that it forgets costs a call more
 * round trips, and nothing else. */
#define SM_WARNED 1024u

typedef struct sm_withdrawal sm_withdrawal; /* withdraw.c */

typedef struct sm_keeper {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* CLOCK_MONOTONIC */
    pthread_t renewer; /* started by the first attempt that this handle runs; nothing else may delay
                          a renewal */
    pthread_cond_t beat; /* CLOCK_MONOTONIC */
    bool started, renewing, stop;
    bool stir;                               /* something became due */
    sm_running *running[SM_RUNNING_BUCKETS]; /* by id */
    atomic_size_t entered;                   /* how many */
    atomic_size_t owed_bytes;                /* of outcomes that could not be recorded */
    sm_withdrawal *withdrawn;
    size_t withdrawals;
} sm_keeper;

struct semel {
    const semel_store_ops *ops; /* &table */
    semel_store_ops table;      /* the store's, as far as it goes */
    semel_store *store;
    uint32_t caps;
    char durability[512];              /* what a crash may lose; empty: nothing */
    _Atomic(sm_contracts *) contracts; /* replaced under the lock; see sm_contracts_of */
    pthread_mutex_t contracts_lock;
    semel_options o;
    char *actor;
    char *seal_key; /* NULL: seals are not keyed */
    size_t seal_key_bytes;
    sm_holder self;
    sm_journal journal;
    sm_recall recall;
    sm_keeper keeper;
    sm_noticeboard board;
    sm_runs runs;
    atomic_uint_fast64_t warned[SM_WARNED]; /* lines that somebody was warned of, see charge.c */
    _Atomic(sm_hash *) secret;              /* guard/secret.h; NULL: not read yet */
    void (*_Atomic on_due)(void *context, const sm_handle *effect); /* remedy.c; NULL: nobody */
    void *on_due_context;
    atomic_int_least64_t ahead_ms; /* the store's clock before ours, see time.c */
    atomic_uint_fast64_t written;  /* events since the last seal of this handle */
    atomic_uint_fast64_t kept_to;  /* events up to here are the newest of no record that decides */
    atomic_uint_fast64_t begins, executes, replays, refused, waits, commits;
};

static inline void sm_count(atomic_uint_fast64_t *what)
{
    atomic_fetch_add_explicit(what, 1, memory_order_relaxed);
}

/* How a store's functions are told of a record. */
static inline semel_ref sm_ref_of(const semel_record *r)
{
    return (semel_ref){&r->key, r->id, r->generation, true, r->shard};
}

static inline sm_str sm_ledger_actor(const semel *s, sm_str given)
{
    return given.p != NULL && given.n > 0 ? given : sm_str_from(s->actor);
}

/* Whether this ledger may hold what such a contract lets run: nothing irreversible is begun where a
 * crash may lose that it was (I3). */
sm_err sm_ledger_fits(const semel *s, const sm_contract *c, semel_fault *fault); /* open.c */
sm_err sm_ledger_fits_all(const semel *s, const sm_contracts *set, semel_fault *fault);

/* The contracts in use. They stay as long as the workspace is not used for another call, whoever
 * replaces them meanwhile. */
const sm_contracts *sm_contracts_of(semel *s, sm_work *w); /* open.c */

/* ---- time (time.c) ---------------------------------------------------------------------------*/

/* The store's time now, as far as it is known: this machine's clock, or where the store has its
 * own, what its last answer said and what has passed since. */
int64_t sm_now(semel *s);

/* What the store said its time is, when asked at that time of sm_clock_boot_ms. */
void sm_learn(semel *s, int64_t now, int64_t asked_ms);

/* Asks the store for its time, where it has one. */
sm_err sm_learn_first(semel *s, semel_fault *fault);

/* ---- reading (read.c) ------------------------------------------------------------------------*/

/* Reads a record by key (the newest) or handle (the one it names, or the newest) into w->cur,
 * w->now and w->memo. */
sm_err sm_load_key(semel *s, sm_work *w, const sm_hash *key, const uint8_t *shard); /* or NULL */
sm_err sm_load_handle(semel *s, sm_work *w, const sm_handle *h, bool newest);

/* Remembers w->cur, whose attempt this handle let run; and reads it back, as of now, for what ends
 * in a compare-and-swap. False if it is not remembered. */
void sm_remember(semel *s, sm_work *w);
bool sm_recollect(semel *s, sm_work *w, const sm_handle *claim);

/* After a store has put a record into w->cur: unpacks it. */
sm_err sm_load_cur(sm_work *w);

/* Lets the life cycle judge an event about w->cur, by the terms that it was begun under. */
void sm_judge(semel *s, sm_work *w, sm_life_event *ev);

/* What the clock makes of w->memo now, without writing it down. A window that is over frees the
 * key, but the effect is still the one it was. */
void sm_look_now(semel *s, sm_work *w);

/* ---- writing (write.c) -----------------------------------------------------------------------*/

/* A budget or a limit that was in the way of a write. */
typedef struct sm_over {
    const sm_budget_rule *rule; /* NULL: it was a limit */
    sm_str of;                  /* whose budget it is: see sm_budgets */
    sm_measure measure;
    int64_t value, wanted; /* what is spent or reserved, and what this one needs */
    const sm_limit_rule *limit;
    int64_t free_at; /* when it allows the next call; INT64_MAX: nobody knows */
} sm_over;

/* Budgets that are nearly used up, of which the caller is warned (core/budget.h). */
#define SM_LINES_MAX (SM_BUDGETS_MAX * SM_MEASURES)
typedef struct sm_crossed {
    uint32_t n;
    struct {
        const sm_budget_rule *rule;
        sm_measure measure;
        int64_t value; /* what is spent or reserved now */
    } v[SM_LINES_MAX];
} sm_crossed;

/* The counters that change with a record: of its resource, its budgets with their marks, and its
 * limits. */
#define SM_COUNTERS_MAX (1 + 2 * SM_LINES_MAX + SM_DESTINATIONS_MAX)
typedef struct sm_counters {
    size_t n;
    semel_counter v[SM_COUNTERS_MAX];
    char name[SM_COUNTERS_MAX][64];
} sm_counters;

/* What a write says beyond the step that it makes true. */
typedef struct sm_change {
    sm_str actor;
    const semel_outcome *outcome; /* becomes the record's; NULL: it stays */
    bool drop_outcome;
    bool drop_args;
    const sm_identity *identity; /* begin: whose arguments run or are asked about */
    const sm_parsed_call *call;  /* begin: the rest of it */
    const semel_record *import;  /* a record from elsewhere, in place of identity and call */
    bool returns;                /* with that: a lost record is put back, and its history goes on */
    bool evidence;               /* see semel_write */
    const uint8_t *secret;       /* a claim's */
    bool detached;
    bool barrier;
    bool alone;                /* with that: see semel_write */
    bool upstream;             /* begin: Semel itself executes it */
    uint64_t shape;            /* begin: see sm_asking */
    int64_t next_at;           /* of what is left over; 0: as it was, in a new state unset */
    const sm_charge *spent;    /* what the attempt that ends has spent; NULL: as declared */
    const sm_destinations *to; /* begin: whom the call is for; NULL: no limit is to be held */
    bool undoes;         /* begin: budgets are charged, and refuse nothing; and it is remembered
                            for ever */
    sm_over *over;       /* begin: set if the answer is SEMEL_E_OVER_CAP */
    sm_crossed *crossed; /* begin: set if it was written */
} sm_change;

/* Starts the body of the event; the caller may add members in front of what the write adds. */
void sm_body_start(sm_work *w);
void sm_body_text(sm_work *w, const char *name, sm_str value);
void sm_body_number(sm_work *w, const char *name, uint64_t value);
void sm_body_hash(sm_work *w, const char *name, const sm_hash *value);

/* Writes w->step over w->cur (or as a new record if w->cur.version is 0), with w->memo as changed
 * by the caller. On SM_OK w->cur and w->memo are what was written. On SEMEL_E_STALE they are what
 * is there now, and the caller judges again. On SEMEL_E_BARRED w->cur is the record that bars. On
 * SEMEL_E_OVER_CAP nothing has changed, and change->over says which budget does not allow it. */
sm_err sm_write(semel *s, sm_work *w, const sm_change *change);

/* What a barrier is about. */
sm_err sm_group_of(sm_work *w, sm_str scope, sm_str tool, sm_hash *out);

/* Reads an outcome that a program gives (base/given.h). */
sm_err sm_outcome_read(semel_outcome *out, const semel_outcome *given, semel_fault *fault);

/* SHA-256 of a contract's every effective field; what an approval is bound to, among others (I7).
 */
sm_err sm_approval_digest(sm_work *w, const sm_identity *id, const sm_parsed_call *call,
                          sm_hash *out);

/* ---- answering (answer.c) --------------------------------------------------------------------*/

/* The handle of a record's effect, in the answer's memory. */
sm_str sm_answer_handle(sm_work *w, const semel_record *r);

/* What w->cur and w->memo say: handle, state, outcome and so on. */
sm_err sm_answer_about(sm_work *w, semel_answer *a);

/* The same after something that gave `e`: an error is answered with what it says. Returns it. */
sm_err sm_answer_after(sm_work *w, semel_answer *a, sm_err e);

/* Refuses with a code and its words; returns `e`. */
sm_err sm_answer_refuse(sm_work *w, semel_answer *a, semel_code code, sm_err e);

/* An error of the world as a refusal. */
sm_err sm_answer_error(sm_work *w, semel_answer *a, sm_err e);

/* Words for the code that the answer has. */
void sm_answer_words(sm_work *w, semel_answer *a);

/* ---- begin (begin.c) -------------------------------------------------------------------------*/

/* The answer to whoever starts the attempt that was just written: its claim, the downstream's key,
 * and what is left of the lease. */
sm_err sm_execute(semel *s, sm_work *w, const uint8_t *secret, int64_t lease_ms, semel_answer *a);
sm_err sm_renew(semel *s, const sm_handle *claim, int64_t lease_ms, semel_answer *a);

/* ---- the doubt barrier (barrier.c) ------------------------------------------------------------*/

/* Puts in doubt what runs in a group although its holder is gone, whether or not anybody has asked
 * for that very effect since. */
sm_err sm_barrier_settle(semel *s, sm_work *w, sm_str scope, sm_str tool);

/* The handle of another effect in doubt that would bar this call; absent if there is none. */
sm_err sm_barrier_find(semel *s, sm_work *w, const sm_parsed_call *call, const sm_hash *key,
                       sm_str *handle);

/* ---- claims that nobody was told of (withdraw.c) ----------------------------------------------*/

/* Remembers a claim that may or may not have been recorded, and under which nothing runs. */
void sm_withdraw(semel *s, const sm_handle *claim);

/* Takes one back, in one write or not at all. */
typedef enum sm_unclaimed {
    SM_CLAIM_BACK,   /* it is taken back */
    SM_CLAIM_OVER,   /* its attempt has ended, or does not run any more */
    SM_CLAIM_ABSENT, /* there is no such claim, or not yet */
} sm_unclaimed;
sm_err sm_unclaim(semel *s, const sm_handle *claim, sm_health health, sm_str actor, semel_answer *a,
                  sm_unclaimed *what); /* commit.c */

/* Takes back what can be taken back now. */
void sm_withdraw_all(semel *s, semel_answer *a);
void sm_withdraw_fini(semel *s);

/* ---- attempts of this handle (running.c) ------------------------------------------------------*/

/* Records how it ended, in one try; it stays entered. */
sm_err sm_running_end(semel *s, sm_running *r, const semel_outcome *outcome, sm_str actor,
                      semel_answer *a);

/* Removes it; the background tries again to record its end, as long as the handle is open. */
void sm_running_owe(semel *s, sm_running *r, const semel_outcome *outcome, sm_str actor);

/* Whether w->cur, the ledger's record of an effect, lacks an attempt that this handle runs, or gave
 * to an agent. Its record is put back as running, if that is still possible. */
typedef enum sm_missed {
    SM_MISSED_NONE,
    SM_MISSED_BACK, /* put back: read w->cur again */
    SM_MISSED_RUNS, /* it cannot be put back yet */
    SM_MISSED_LOST, /* an agent's, whose lease is over */
} sm_missed;
sm_err sm_running_return(semel *s, sm_work *w, uint64_t id, sm_missed *missed);

/* Puts the record of an agent's claim back, if the ledger has lost it. */
bool sm_given_return(semel *s, sm_work *w, const sm_handle *claim);

/* An attempt in the table, for whom the ledger does not say what became of it. */
typedef struct sm_held {
    sm_recalled *seen; /* its record when it began; to be freed */
    uint64_t fence;
    bool ended;            /* its outcome is known and has yet to be recorded: */
    semel_outcome outcome; /* settled, with its texts in the workspace */
} sm_held;

/* Finds the newest attempt of this effect in the table. False if there is none. */
bool sm_running_find(semel *s, sm_work *w, uint64_t id, sm_held *out);

/* The attempt has ended, and the ledger could not be told. */
void sm_running_unrecorded(semel *s, sm_running *r);

/* Whether that is so of the attempt of this record: nothing may run in its place. */
bool sm_running_ended(semel *s, const semel_record *r);

void sm_running_renew(semel *s, semel_answer *a); /* the leases that need it */
void sm_running_pay(semel *s, semel_answer *a);   /* records the ends that are due */
void sm_running_fini(semel *s);                   /* tries all of them a last time */

/* As sm_commit_as. `own`: this handle ran it, and nobody could correct a cost that is no amount.
 * `seen` may be NULL; with it the record is put back if the ledger has lost it. */
sm_err sm_end_attempt(semel *s, const sm_handle *claim, const semel_outcome *outcome, size_t most,
                      sm_str actor, bool own, sm_health health, const sm_recalled *seen,
                      semel_answer *a); /* commit.c */

/* ---- the keeper (keeper.c) -------------------------------------------------------------------*/

sm_err sm_keeper_start(semel *s, semel_fault *fault);
void sm_keeper_stop(semel *s);
bool sm_keeper_stopping(semel *s); /* its handle is being closed */
void sm_keeper_stir(semel *s);
void sm_keeper_renews(semel *s); /* something runs: its lease is to be renewed */

/* Seals if enough has happened (this many events, or some and a minute), or if `force`. */
#define SM_SEAL_EVENTS 1000u
sm_err sm_seal_now(semel *s, bool force, semel_fault *fault);

#endif
