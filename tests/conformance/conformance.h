/*
 * What the conformance tests share: a fresh ledger for each test, records and writes to try on it,
 * and threads.
 *
 * Every test holds for every store. Where stores differ, a test asks for the capability that the
 * store declared, and skips itself without it.
 */
#ifndef SM_TESTS_CONFORMANCE_H
#define SM_TESTS_CONFORMANCE_H

#include "../unit/unit.h"

#include "semel/store.h"

/* The groups of tests, one for each file. */
int opening_tests(void);
int writing_tests(void);
int refusing_tests(void);
int racing_tests(void);
int reading_tests(void);
int logging_tests(void);
int waiting_tests(void);
int keeping_tests(void);

/* ---- ledgers ---------------------------------------------------------------------------------*/

/* A caller's memory: what a store hands out lives in it. */
typedef struct desk {
    semel_room room; /* first: the store gets this, and desk_alloc gets the rest back */
    sm_arena arena;
} desk;

void desk_init(desk *d);
void desk_fini(desk *d);

typedef struct ledger {
    const semel_store_ops *ops;
    semel_store *st;
    uint32_t caps;
    desk desk;
    char url[512];
} ledger;

/* A ledger that no test had before. */
int ledger_setup(void **state);
int ledger_teardown(void **state); /* looks whether it is still sound, too */

/* A name for one, with nothing opened yet. */
int ledger_name(void **state);
int ledger_unname(void **state);

/* Opens what `l` names; closes it. */
semel_err ledger_open(ledger *l, bool must_exist, semel_fault *fault);
void ledger_close(ledger *l);

#define on_ledger(test) cmocka_unit_test_setup_teardown(test, ledger_setup, ledger_teardown)
#define on_name(test)   cmocka_unit_test_setup_teardown(test, ledger_name, ledger_unname)

/* Skips a test that is about what this store does not promise. */
void needs_caps(const ledger *l, uint32_t caps);

/* ---- time ------------------------------------------------------------------------------------*/

int64_t clock_ms(void);     /* the machine's, since 1970 */
int64_t monotonic_ns(void); /* what deadlines are told in */
void pause_ms(int64_t ms);

/* ---- records and writes ----------------------------------------------------------------------*/

/* The key of a number: looks random, and is the same in every run. And the id of a key's effects,
 * which is derived as the ledger does it: a store may do so too. */
semel_hash key_of(uint64_t n);
uint64_t id_of(const semel_hash *key);

/* A claim of a new key: running, its lease over in an hour, with an event. */
semel_write fresh(uint64_t n);

/* The write after `cur` that puts it into another state; and one that begins its next generation,
 * running. Their texts are those of `cur`. */
semel_write change(const semel_record *cur, semel_state state);
semel_write repeat(const semel_record *cur);

/* Sets a settled record's times: relative to now, 0 for never. */
void set_windows(semel_record *r, int64_t result_ms, int64_t window_ms, int64_t purge_ms);

/* The scope of records that have no other, and the shard of a scope. */
#define SCOPE "tests/conformance"
uint8_t shard_of(const char *scope);

/* Refs that name nothing are absent: all events, any event. */
static inline const semel_ref *of_effect(const semel_ref *ref)
{
    return ref->id == 0 ? NULL : ref;
}

static inline const semel_ref *of_key(const semel_ref *ref)
{
    return ref->key == NULL ? NULL : ref;
}

/* What must succeed. The records' texts live on the ledger's desk. */
semel_record claim_new(ledger *l, const semel_write *w); /* and must insert */
semel_record apply_to(ledger *l, const semel_write *w);
semel_record get_key(ledger *l, uint64_t n);
semel_record settled(ledger *l, uint64_t n); /* a new key, succeeded */

/* What may fail. */
semel_err try_claim(ledger *l, const semel_write *w, semel_record *cur, bool *inserted);
semel_err try_apply(ledger *l, const semel_write *w, semel_record *cur);
semel_err try_get(ledger *l, const semel_ref *ref, semel_record *cur);

/* Fails unless the two are equal in every field, absent texts absent in both. */
#define expect_record(actual, expected) expect_record_at(actual, expected, __FILE__, __LINE__)
void expect_record_at(const semel_record *actual, const semel_record *expected, const char *file,
                      int line);

/* As what a claim or an apply should have made of a write: its version is the store's. */
void expect_written(const semel_record *actual, const semel_write *w, uint64_t version);

#define expect_error(actual, expected)                                                             \
    do {                                                                                           \
        semel_err actual_ = (actual);                                                              \
        expect(actual_ == (expected), "got %s", semel_err_name(actual_));                          \
    } while (0)

/* What peek says about a key: NOT_FOUND, or exactly what get says. */
semel_err peek_truly(ledger *l, uint64_t n);

/* The newest event's seq, the number of an effect's events (of all with id 0), a counter. */
uint64_t last_seq(ledger *l);

/* Writes a seal, as the ledger does before it purges events. Returns the newest seq before it. */
uint64_t seal_before_purge(ledger *l);
size_t events_of(ledger *l, uint64_t id, uint64_t generation);
int64_t counter_of(ledger *l, const char *name);

/* ---- sinks -----------------------------------------------------------------------------------*/

/* Collects copies of what a store gives. `stop_after` ends it early; 0: never. */
#define SEEN_MAX 4096u
typedef struct seen {
    sm_arena arena;
    size_t n, stop_after;
    semel_record records[SEEN_MAX];
    semel_event events[SEEN_MAX];
    semel_note notes[SEEN_MAX];
} seen;

seen *seen_new(void);
void seen_free(seen *s);
void seen_clear(seen *s);
bool see_record(void *context, const semel_record *r, int64_t now);
bool see_event(void *context, const semel_event *e);
bool see_note(void *context, const semel_note *n);

/* ---- threads ---------------------------------------------------------------------------------*/

/* One of several threads on one ledger. It has a desk of its own, asserts nothing, and says what is
 * wrong by setting `wrong`. */
typedef struct worker {
    ledger ledger; /* the shared handle with a desk of this thread's */
    size_t index, of;
    void *context;
    const char *wrong;
} worker;

typedef void worker_fn(worker *w);

/* Runs `n` of them at once, and fails if one of them says that something is wrong. */
void run_workers(ledger *l, size_t n, worker_fn *work, void *context);

/* Settled records of the keys from `first` on, by several threads. */
void fill(ledger *l, uint64_t first, size_t n);

#endif
