/*
 * From an effect to the record that a store keeps, and back.
 *
 * A store sees a few columns that it needs for finding things; the rest of the life's state is one
 * opaque text. Beside the effect itself that is what was agreed when it began: an operator who has
 * no contract file still settles it by the terms under which it ran.
 */
#ifndef SM_CORE_RECORD_H
#define SM_CORE_RECORD_H

#include "core/budget.h"
#include "core/handle.h"
#include "core/limit.h"
#include "core/transition.h"
#include "semel/semel.h"

/* What a contract says about the rest of an effect's life. */
typedef struct sm_terms {
    uint8_t class;
    uint8_t mode;
    uint32_t variant;
    int64_t window_ms, result_window_ms, lease_ms;
    sm_doubt_chain on_in_doubt;
    int64_t down_window_ms; /* the downstream's */
    int64_t settle_ms;      /* of the probe */
    bool authoritative;
    bool asks;   /* these arguments need approval */
    bool self;   /* the requester may approve */
    uint8_t via; /* 1: not on a local ledger */
    bool barrier;
    bool upstream; /* Semel itself executes it: what is left over is looked after */
    bool resource; /* it acts on one: see sm_memo */
    bool redacted; /* not all arguments are stored: nothing runs from those that are */
    bool charged;  /* it cost something, or has a budget: see sm_memo */
    bool limited;  /* it has taken slots of limits: likewise */
    bool sited;    /* its circuit is of an upstream, which the contract names */
    sm_breaker_rule breaker;
    uint64_t quorum;
    int64_t expires_ms;
} sm_terms;

/* Who runs an attempt. A zero pid: nobody whose end could be noticed. */
typedef struct sm_holder {
    uint64_t boot;  /* of the boot id */
    uint64_t space; /* the pid namespace */
    uint64_t pid;
    uint64_t start; /* when that process began, so that a reused pid is somebody else */
} sm_holder;

#define SM_CLAIM_HASH 16u

/* What an effect is charged. */
typedef struct sm_charged {
    bool held;        /* `charge` is in the counters: reserved, or spent */
    uint8_t accounts; /* how many of `account` */
    uint8_t slots;    /* how many of `slot` */
    sm_charge charge;
    sm_charge sunk; /* spent by attempts that did nothing */
    sm_account account[SM_BUDGETS_MAX];
    sm_slot slot[SM_DESTINATIONS_MAX];
} sm_charged;

/* All but the lists, of which only what is counted means something. */
#define SM_CHARGED_HEAD offsetof(sm_charged, account)

typedef struct sm_memo {
    sm_terms terms;
    sm_holder holder;
    uint8_t claim[SM_CLAIM_HASH]; /* of the newest attempt's secret */
    sm_hash args, outcome;        /* of what the record holds; zero: nothing */
    uint64_t told;                /* the newest request of which somebody was told */
    uint64_t notices;             /* tries to tell somebody of the newest request */
    int64_t notice_at;            /* when to try next */
    uint64_t shape;               /* of what was sent, as its contract described it; 0: unknown */
    int64_t next_at; /* upstream: what is left over is looked at again then; 0: no time was set */
    sm_resource resource; /* what it acts on */
    uint64_t written; /* applied or in doubt: the resource's count of writes that this one made, or
                         0 if others wrote while it ran. Before that: the count when it began */
    int64_t keep_until; /* an older generation stays so long: this one must not go first */
    sm_effect effect;
    sm_charged charged;
} sm_memo;

/* What is agreed by a contract, and a contract that says just that. */
void sm_terms_take(const sm_contract *c, sm_terms *out);
void sm_terms_contract(const sm_terms *t, sm_contract *out);

/* Writes the memo into the record's columns and its `life`, whose bytes are in `life` and must
 * outlive the record. */
sm_err sm_memo_pack(const sm_memo *m, semel_record *r, sm_buf *life);

/* SEMEL_E_CORRUPT if the record does not make sense. Every record from a store passes here before
 * it is used. */
sm_err sm_memo_unpack(const semel_record *r, sm_memo *out);

/* Whether an answer still depends on a record: it is not settled, or its window is not over. */
bool sm_record_decides(const semel_record *r, int64_t now);

/* Stored outcomes: everything but the value has a fixed order; the value's bytes come last. */
sm_err sm_outcome_pack(const semel_outcome *o, sm_buf *out);
bool sm_outcome_unpack(sm_str stored, semel_outcome *out);

#endif
