/* A verification under way: what its parts share. */
#ifndef SM_LEDGER_TRAIL_VERIFY_H
#define SM_LEDGER_TRAIL_VERIFY_H

#include "ledger/trail/seal.h"
#include "ledger/work/ledger.h"

/* The newest event of one effect. */
typedef struct sm_trail_link {
    uint64_t id, generation, index;
    sm_hash hash;
    sm_hash record;   /* the digest of the record that it left */
    int64_t purge_at; /* until then there must be a record; 0: always */
    uint8_t shard;
    bool kept;     /* there is a record */
    bool unrooted; /* it began after a generation without events */
} sm_trail_link;

/* The newest write to a resource. */
typedef struct sm_written {
    sm_resource resource;
    uint64_t count; /* that it made; 0: this place in the table is free */
    int64_t until;  /* there must be a counter until then; INT64_MAX: always */
    uint8_t shard;
} sm_written;

/* An event since the last seal. */
typedef struct sm_unsealed {
    uint64_t seq;
    sm_hash hash;
} sm_unsealed;

typedef struct sm_check {
    semel *s;
    sm_work *w;
    semel_verified *out;
    semel_flaw_fn *flaw;
    semel_progress_fn *progress;
    void *context;
    uint64_t total, seen;
    uint64_t
        last_seq; /* of the newest event that was checked; later ones are newer than the look */
    sm_trail_link *links; /* open hash table, a power of two */
    size_t slots, used;
    sm_written *written; /* likewise */
    size_t written_slots, written_used;
    sm_unsealed *open;
    size_t open_count, open_room;
    uint64_t seal_index;
    sm_hash seal_hash;
    uint64_t sealed_to;
    uint64_t purged_to;
    uint64_t leftover; /* events that a seal calls purged */
    uint64_t keyed;    /* seals made with a key */
    uint64_t orphans, first_orphan;
    bool unrooted; /* there are such generations */
    bool stopped;
    sm_err err;
} sm_check;

/* Reports a flaw. */
void sm_check_tell(sm_check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

const char *sm_check_handle(uint8_t shard, uint64_t id, uint64_t generation,
                            char out[SM_HANDLE_TEXT]);

/* The link of an effect; its index is 0 if no event of it was seen. */
sm_trail_link *sm_check_find(const sm_check *c, uint64_t id, uint64_t generation);

/* Checks that an event follows the link, which then becomes the event's. A first event follows
 * `older`, the link of the generation before. */
void sm_check_link(sm_check *c, const semel_event *e, const sm_trail_link *older, sm_trail_link *l);

/* Notes a generation that has no event, or began after one that has none. */
void sm_check_unrooted(sm_check *c, uint64_t id, uint64_t generation);

/* Notes which resource an event has written, and checks that its count follows the one before
 * (verify_resource.c). Then, after all events: that the counters have the newest counts. */
void sm_check_written(sm_check *c, const semel_event *e);
sm_err sm_check_counters(sm_check *c, semel_fault *fault);

/* Checks every record against its newest event, and that none is missing. */
sm_err sm_check_records(sm_check *c, semel_fault *fault);

#endif
