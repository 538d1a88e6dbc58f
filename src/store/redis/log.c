/*
 * The order of all events, and seals.
 *
 * A write leaves its event with its effect, and a reference to it at the end of its shard's queue.
 * It has no seq: in a cluster no counter is in the same slot as every shard. Whoever wants to see
 * the whole order collates first:
 *
 *     1. the epoch is read, and the queues of all shards;
 *     2. one script numbers the events that have no number yet, in the order of their stamps;
 *     3. they leave the queues.
 *
 * An event is in its queue until it has its number, so none is lost if somebody dies between the
 * steps. The numbered ones are members of one set, so none is numbered twice, however many collate
 * at once. Only what has left that set again could be: that is why removing events (purge.c)
 * takes them out of the queue first, and begins a new epoch in the same script that takes them out
 * of the set. Who read a queue in an older epoch reads again.
 *
 * An event's reference is shard, id and stamp. Numbers grow, and are given out by one server: an
 * event that is numbered later is always behind those that were seen. Who reads looks no further
 * than the last number at which it began: two questions are not one, and what the second one finds
 * beyond it may be behind something that came after the first.
 */
#include <stdio.h>
#include <stdlib.h>

#include "store/redis/redis.h"

#define QUEUE_MAX 1000u /* references that are read from one queue at once */
#define BATCH     1000u /* ... that are numbered by one call */
#define PAGE      256u  /* events that are read at once */
#define REF       (2 + SM_RD_ID + SM_RD_STAMP)
#define ENTRY     (SM_RD_STAMP + SM_RD_ID)
#define ROUNDS    100000u

/* ---- collating -------------------------------------------------------------------------------*/

typedef struct queued {
    char entry[ENTRY]; /* stamp, id */
    uint8_t shard;
} queued;

static int by_stamp(const void *a, const void *b)
{
    const queued *x = a, *y = b;
    int order = memcmp(x->entry, y->entry, SM_RD_STAMP);
    return order != 0 ? order : (int)x->shard - (int)y->shard;
}

static int by_shard(const void *a, const void *b)
{
    const queued *x = a, *y = b;
    int order = (int)x->shard - (int)y->shard;
    return order != 0 ? order : memcmp(x->entry, y->entry, SM_RD_STAMP);
}

/* Reads the epoch, then the queues. Events behind the last one of a queue that was not read to its
 * end are left for the next round, so that the order is right. */
static semel_err read_queues(semel_store *st, sm_str *epoch, char room[24], queued **out, size_t *n,
                             bool *more, int64_t deadline_ns, semel_fault *fault)
{
    sm_rd_batch b;
    char last[SM_RD_STAMP];
    size_t total = 0;
    *n = 0;
    *more = false;
    memset(last, 'g', sizeof last); /* behind every stamp */
    sm_rd_batch_init(&b, st);
    sm_rd_command(&b, SM_RD_GLOBAL, "GET");
    sm_rd_key(&b, SM_RD_GLOBAL, "epoch");
    semel_err e = sm_rd_run(&b, deadline_ns, fault);
    if (e != SEMEL_OK)
        goto cleanup;
    sm_str text = sm_rd_text(sm_rd_reply(&b, 0));
    snprintf(room, 24, "%.*s", text.p == NULL ? 1 : (int)text.n, text.p == NULL ? "0" : text.p);
    *epoch = sm_str_from(room);
    sm_rd_batch_clear(&b);
    for (unsigned shard = 0; shard < SM_RD_SHARDS; shard++) {
        sm_rd_command(&b, shard, "LRANGE");
        sm_rd_key(&b, shard, "log");
        sm_rd_arg_int(&b, 0);
        sm_rd_arg_int(&b, QUEUE_MAX - 1);
    }
    e = sm_rd_run(&b, deadline_ns, fault);
    if (e != SEMEL_OK)
        goto cleanup;
    for (size_t i = 0; i < b.n; i++)
        total += sm_rd_elements(sm_rd_reply(&b, i));
    *out = calloc(total + 1, sizeof **out);
    if (*out == NULL) {
        e = sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
        goto cleanup;
    }
    for (size_t i = 0; i < b.n; i++) {
        const redisReply *r = sm_rd_reply(&b, i);
        size_t count = sm_rd_elements(r);
        for (size_t k = 0; k < count; k++) {
            sm_str entry = sm_rd_text(sm_rd_element(r, k));
            if (entry.n != ENTRY) {
                e = sm_fault_set(fault, SEMEL_E_CORRUPT, "a queue of events is damaged");
                goto cleanup;
            }
            memcpy((*out)[*n].entry, entry.p, ENTRY);
            (*out)[(*n)++].shard = (uint8_t)i;
            if (k == QUEUE_MAX - 1 && memcmp(entry.p, last, SM_RD_STAMP) < 0)
                memcpy(last, entry.p, SM_RD_STAMP);
        }
        *more = *more || count == QUEUE_MAX;
    }
    qsort(*out, *n, sizeof **out, by_stamp);
    while (*n > 0 && memcmp((*out)[*n - 1].entry, last, SM_RD_STAMP) > 0)
        --*n;

cleanup:
    sm_rd_batch_fini(&b);
    return e;
}

/* Numbers what was read. *seq is the newest one, or -1 if the epoch is over. */
static semel_err number(semel_store *st, sm_str epoch, const queued *q, size_t n, int64_t *seq,
                        int64_t deadline_ns, semel_fault *fault)
{
    sm_rd_batch b;
    semel_err e = SEMEL_OK;
    sm_rd_batch_init(&b, st);
    *seq = 0;
    for (size_t from = 0; e == SEMEL_OK && *seq >= 0 && (from == 0 || from < n); from += BATCH) {
        size_t to = n - from < BATCH ? n : from + BATCH;
        sm_rd_batch_clear(&b);
        sm_rd_call(&b, SM_RD_GLOBAL, SM_RD_NUMBER, 3);
        sm_rd_key(&b, SM_RD_GLOBAL, "epoch");
        sm_rd_key(&b, SM_RD_GLOBAL, "seq");
        sm_rd_key(&b, SM_RD_GLOBAL, "log");
        sm_rd_arg(&b, epoch);              /* epoch_read */
        for (size_t i = from; i < to; i++) /* events */
            sm_rd_argf(&b, "%02x%.*s%.*s", q[i].shard, (int)SM_RD_ID, q[i].entry + SM_RD_STAMP,
                       (int)SM_RD_STAMP, q[i].entry);
        e = sm_rd_run(&b, deadline_ns, fault);
        if (e == SEMEL_OK)
            *seq = sm_rd_number(sm_rd_reply(&b, 0));
    }
    sm_rd_batch_fini(&b);
    return e;
}

static semel_err dequeue(semel_store *st, queued *q, size_t n, int64_t deadline_ns,
                         semel_fault *fault)
{
    sm_rd_batch b;
    sm_rd_batch_init(&b, st);
    qsort(q, n, sizeof *q, by_shard);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || q[i].shard != q[i - 1].shard) {
            sm_rd_call(&b, q[i].shard, SM_RD_DEQUEUE, 1);
            sm_rd_key(&b, q[i].shard, "log");
        }
        sm_rd_arg(&b, (sm_str){q[i].entry, ENTRY}); /* one of the entries */
    }
    semel_err e = sm_rd_run(&b, deadline_ns, fault);
    sm_rd_batch_fini(&b);
    return e;
}

semel_err sm_rd_collate(semel_store *st, uint64_t *last, int64_t deadline_ns, semel_fault *fault)
{
    semel_err e = SEMEL_OK;
    bool more = true;
    for (unsigned round = 0; more && round < ROUNDS && e == SEMEL_OK; round++) {
        queued *q = NULL;
        size_t n = 0;
        char room[24];
        sm_str epoch;
        int64_t seq = 0;
        e = read_queues(st, &epoch, room, &q, &n, &more, deadline_ns, fault);
        if (e == SEMEL_OK)
            e = number(st, epoch, q, n, &seq, deadline_ns, fault);
        if (e == SEMEL_OK && seq >= 0 && n > 0)
            e = dequeue(st, q, n, deadline_ns, fault);
        more = more || seq < 0;
        *last = seq < 0 ? 0 : (uint64_t)seq;
        free(q);
    }
    return e;
}

/* ---- events of all effects -------------------------------------------------------------------*/

/* One event to be read. */
typedef struct listed {
    uint64_t seq;
    char ref[REF]; /* of an effect's event */
    bool seal;
} listed;

static int by_seq(const void *a, const void *b)
{
    uint64_t x = ((const listed *)a)->seq, y = ((const listed *)b)->seq;
    return (x > y) - (x < y);
}

static void put_range(sm_rd_batch *b, const char *set, uint64_t after, uint64_t last, size_t limit)
{
    sm_rd_command(b, SM_RD_GLOBAL, "ZRANGEBYSCORE");
    sm_rd_key(b, SM_RD_GLOBAL, set);
    sm_rd_argf(b, "(%llu", (unsigned long long)after);
    sm_rd_argf(b, "%llu", (unsigned long long)last);
    sm_rd_arg_text(b, "WITHSCORES");
    sm_rd_arg_text(b, "LIMIT");
    sm_rd_arg_int(b, 0);
    sm_rd_arg_int(b, (int64_t)limit);
}

/* The next events and seals after a seq and up to `last`, at most `limit`. */
static semel_err list_page(semel_store *st, uint64_t after, uint64_t last, size_t limit,
                           listed *out, size_t *n, int64_t deadline_ns, semel_fault *fault)
{
    sm_rd_batch b;
    listed all[2 * PAGE];
    *n = 0;
    sm_rd_batch_init(&b, st);
    put_range(&b, "log", after, last, limit);
    put_range(&b, "sealed", after, last, limit);
    semel_err e = sm_rd_run(&b, deadline_ns, fault);
    for (size_t i = 0; e == SEMEL_OK && i < 2; i++) {
        const redisReply *r = sm_rd_reply(&b, i);
        for (size_t k = 0; k + 1 < sm_rd_elements(r) && *n < 2 * PAGE; k += 2) {
            sm_str ref = sm_rd_text(sm_rd_element(r, k));
            all[*n].seq = (uint64_t)sm_rd_number(sm_rd_element(r, k + 1));
            all[*n].seal = i == 1;
            if (i == 0 && ref.n == REF)
                memcpy(all[*n].ref, ref.p, REF);
            else if (i == 0)
                e = sm_fault_set(fault, SEMEL_E_CORRUPT, "the log of events is damaged");
            ++*n;
        }
    }
    qsort(all, *n, sizeof *all, by_seq);
    *n = *n < limit ? *n : limit;
    memcpy(out, all, *n * sizeof *all);
    sm_rd_batch_fini(&b);
    return e;
}

static void put_event(sm_rd_batch *b, const listed *l)
{
    bool good = true;
    unsigned shard = l->seal ? SM_RD_GLOBAL : (unsigned)sm_rd_hex(l->ref, 2, &good);
    sm_rd_command(b, shard, "HGET");
    if (l->seal) {
        sm_rd_key(b, shard, "seals");
        sm_rd_argf(b, "%llu", (unsigned long long)l->seq);
    } else {
        sm_rd_key_id(b, shard, "h:", sm_rd_hex(l->ref + 2, SM_RD_ID, &good), 0);
        sm_rd_arg(b, (sm_str){l->ref + 2 + SM_RD_ID, SM_RD_STAMP});
    }
}

static semel_err events_of_all(semel_store *st, uint64_t *after, size_t limit,
                               semel_event_sink *sink, void *context, semel_fault *fault)
{
    int64_t deadline_ns = sm_rd_deadline(st);
    listed page[PAGE];
    size_t n = 1, given = 0;
    uint64_t at = *after, last;
    bool on = true;
    sm_rd_batch b;
    sm_rd_batch_init(&b, st);
    semel_err e = sm_rd_collate(st, &last, deadline_ns, fault);
    while (e == SEMEL_OK && on && given < limit && n > 0) {
        deadline_ns = sm_rd_deadline(st); /* a sink may take its time */
        size_t want = limit - given < PAGE ? limit - given : PAGE;
        e = list_page(st, at, last, want, page, &n, deadline_ns, fault);
        sm_rd_batch_clear(&b);
        for (size_t i = 0; e == SEMEL_OK && i < n; i++)
            put_event(&b, &page[i]);
        if (e == SEMEL_OK)
            e = sm_rd_run(&b, deadline_ns, fault);
        for (size_t i = 0; e == SEMEL_OK && i < n && on; i++) {
            sm_str bytes = sm_rd_text(sm_rd_reply(&b, i));
            semel_event event;
            at = page[i].seq;
            if (bytes.p == NULL)
                continue; /* purged meanwhile */
            e = sm_rd_event_unpack(bytes, &event, fault);
            if (e != SEMEL_OK)
                break;
            event.seq = *after = at;
            given++;
            on = sink(context, &event);
        }
    }
    sm_rd_batch_fini(&b);
    return e;
}

/* ---- events of one effect --------------------------------------------------------------------*/

typedef struct own_event {
    sm_str stamp;
    uint64_t seq;
} own_event;

static int by_own_seq(const void *a, const void *b)
{
    uint64_t x = ((const own_event *)a)->seq, y = ((const own_event *)b)->seq;
    return (x > y) - (x < y);
}

/* Which events of an effect have a number after `after` and up to `last`, in their order. Only
 * stamps and numbers are read: a history is read in pages, and each page comes by here. The stamps
 * are borrowed from the batch. */
static semel_err list_own(sm_rd_batch *b, uint8_t shard, uint64_t id, uint64_t after, uint64_t last,
                          own_event **out, size_t *n, int64_t deadline_ns, semel_fault *fault)
{
    sm_rd_batch scores;
    *n = 0;
    sm_rd_batch_init(&scores, b->st);
    sm_rd_command(b, shard, "HKEYS");
    sm_rd_key_id(b, shard, "h:", id, 0);
    semel_err e = sm_rd_run(b, deadline_ns, fault);
    const redisReply *r = e == SEMEL_OK ? sm_rd_reply(b, 0) : NULL;
    size_t total = sm_rd_elements(r);
    if (e != SEMEL_OK || total == 0)
        goto cleanup;
    *out = calloc(total, sizeof **out);
    if (*out == NULL) {
        e = sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
        goto cleanup;
    }
    sm_rd_command(&scores, SM_RD_GLOBAL, "ZMSCORE");
    sm_rd_key(&scores, SM_RD_GLOBAL, "log");
    for (size_t i = 0; i < total; i++) {
        sm_str stamp = sm_rd_text(sm_rd_element(r, i));
        if (stamp.n != SM_RD_STAMP)
            e = sm_fault_set(fault, SEMEL_E_CORRUPT, "the events of an effect are damaged");
        else
            sm_rd_argf(&scores, "%02x%016llx%.*s", shard, (unsigned long long)id, SM_FMT(stamp));
    }
    if (e == SEMEL_OK)
        e = sm_rd_run(&scores, deadline_ns, fault);
    for (size_t i = 0; e == SEMEL_OK && i < total; i++) {
        uint64_t seq = (uint64_t)sm_rd_number(sm_rd_element(sm_rd_reply(&scores, 0), i));
        if (seq > after && seq <= last)
            (*out)[(*n)++] = (own_event){sm_rd_text(sm_rd_element(r, i)), seq};
    }
    qsort(*out, *n, sizeof **out, by_own_seq);

cleanup:
    sm_rd_batch_fini(&scores);
    return e;
}

/* Reads events of one effect in pages and gives those of the generation, at most `limit`. */
static semel_err give_own(semel_store *st, const semel_ref *of, uint8_t shard, uint64_t id,
                          const own_event *list, size_t n, uint64_t *after, size_t limit,
                          semel_event_sink *sink, void *context, semel_fault *fault)
{
    sm_rd_batch b;
    semel_err e = SEMEL_OK;
    bool on = true;
    sm_rd_batch_init(&b, st);
    for (size_t from = 0, given = 0; e == SEMEL_OK && on && from < n && given < limit;) {
        size_t to = n - from < PAGE ? n : from + PAGE;
        if (of->generation == 0 && to - from > limit - given)
            to = from + limit - given;
        sm_rd_batch_clear(&b);
        sm_rd_command(&b, shard, "HMGET");
        sm_rd_key_id(&b, shard, "h:", id, 0);
        for (size_t i = from; i < to; i++)
            sm_rd_arg(&b, list[i].stamp);
        e = sm_rd_run(&b, sm_rd_deadline(st), fault); /* a sink may take its time */
        for (size_t i = from; e == SEMEL_OK && on && i < to && given < limit; i++) {
            semel_event event;
            sm_str bytes = sm_rd_text(sm_rd_element(sm_rd_reply(&b, 0), i - from));
            if (bytes.p == NULL)
                continue; /* purged meanwhile */
            e = sm_rd_event_unpack(bytes, &event, fault);
            if (e != SEMEL_OK || (of->generation != 0 && event.generation != of->generation))
                continue;
            event.seq = *after = list[i].seq;
            given++;
            on = sink(context, &event);
        }
        from = to;
    }
    sm_rd_batch_fini(&b);
    return e;
}

static semel_err events_of_one(semel_store *st, const semel_ref *of, uint64_t *after, size_t limit,
                               semel_event_sink *sink, void *context, semel_fault *fault)
{
    int64_t deadline_ns = sm_rd_deadline(st);
    uint64_t id, last;
    uint8_t shard;
    own_event *list = NULL;
    size_t n = 0;
    sm_rd_batch b;
    sm_rd_batch_init(&b, st);
    semel_err e = sm_rd_collate(st, &last, deadline_ns, fault);
    if (e == SEMEL_OK)
        e = sm_rd_find(st, of, &id, &shard, deadline_ns, fault);
    if (e == SEMEL_OK)
        e = list_own(&b, shard, id, *after, last, &list, &n, deadline_ns, fault);
    if (e == SEMEL_OK)
        e = give_own(st, of, shard, id, list, n, after, limit, sink, context, fault);
    free(list);
    sm_rd_batch_fini(&b);
    return e == SEMEL_E_NOT_FOUND ? SEMEL_OK : e;
}

semel_err sm_rd_events(semel_store *st, const semel_ref *of, uint64_t *after, size_t limit,
                       semel_event_sink *sink, void *context, semel_fault *fault)
{
    return of == NULL ? events_of_all(st, after, limit, sink, context, fault)
                      : events_of_one(st, of, after, limit, sink, context, fault);
}

/* ---- seals -----------------------------------------------------------------------------------*/

/* Whether the newest seal is this one: then an earlier try has written it. */
static bool is_newest(semel_store *st, const semel_event *seal, int64_t deadline_ns)
{
    sm_rd_batch b;
    semel_event there = {0};
    bool same = false;
    sm_rd_batch_init(&b, st);
    sm_rd_command(&b, SM_RD_GLOBAL, "ZREVRANGE");
    sm_rd_key(&b, SM_RD_GLOBAL, "sealed");
    sm_rd_arg_int(&b, 0);
    sm_rd_arg_int(&b, 0);
    if (sm_rd_run(&b, deadline_ns, NULL) == SEMEL_OK) {
        char seq[24];
        sm_str newest = sm_rd_text(sm_rd_element(sm_rd_reply(&b, 0), 0));
        snprintf(seq, sizeof seq, "%.*s", (int)newest.n, newest.p == NULL ? "" : newest.p);
        sm_rd_batch_clear(&b);
        sm_rd_command(&b, SM_RD_GLOBAL, "HGET");
        sm_rd_key(&b, SM_RD_GLOBAL, "seals");
        sm_rd_arg_text(&b, seq);
        same = sm_rd_run(&b, deadline_ns, NULL) == SEMEL_OK &&
               sm_rd_event_unpack(sm_rd_text(sm_rd_reply(&b, 0)), &there, NULL) == SEMEL_OK &&
               memcmp(&there.hash, &seal->hash, sizeof there.hash) == 0;
    }
    sm_rd_batch_fini(&b);
    return same;
}

semel_err sm_rd_seal(semel_store *st, const semel_event *seal, uint64_t expect, semel_fault *fault)
{
    int64_t deadline_ns = sm_rd_deadline(st);
    uint64_t last;
    sm_buf packed;
    sm_rd_batch b;
    sm_buf_init(&packed, SM_RD_BATCH_MAX);
    sm_rd_batch_init(&b, st);
    semel_err e = sm_rd_collate(st, &last, deadline_ns, fault);
    sm_rd_event_pack(seal, &packed);
    sm_rd_call(&b, SM_RD_GLOBAL, SM_RD_SEAL, 3);
    sm_rd_key(&b, SM_RD_GLOBAL, "seq");
    sm_rd_key(&b, SM_RD_GLOBAL, "sealed");
    sm_rd_key(&b, SM_RD_GLOBAL, "seals");
    sm_rd_argf(&b, "%llu", (unsigned long long)expect); /* expected */
    sm_rd_arg(&b, sm_buf_view(&packed));                /* seal */
    if (packed.err != SM_OK)
        e = sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    if (e == SEMEL_OK)
        e = sm_rd_run(&b, deadline_ns, fault);
    if (e == SEMEL_OK && sm_rd_number(sm_rd_reply(&b, 0)) == 0 &&
        !(b.asks[0].unsure && is_newest(st, seal, deadline_ns)))
        e = SEMEL_E_STALE;
    if (e == SEMEL_OK)
        sm_bell_ring(&st->bell, NULL);
    sm_rd_batch_fini(&b);
    sm_buf_fini(&packed);
    return e;
}
