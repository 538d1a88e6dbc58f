/* What is in the ledger. */
#include <stdio.h>
#include <stdlib.h>

#include "store/redis/redis.h"

#define SAMPLE_SHARDS  8u
#define SAMPLE_RECORDS 8 /* of each of them */
#define TRY_KEPT_MS    60000

/* ---- health ----------------------------------------------------------------------------------*/

/* The shards with the most records, and how many those are. */
typedef struct sample {
    unsigned shards[SAMPLE_SHARDS], n;
    uint64_t records[SAMPLE_SHARDS];
} sample;

static void sample_add(sample *s, unsigned shard, uint64_t records)
{
    unsigned at = s->n;
    if (records == 0)
        return;
    while (at > 0 && s->records[at - 1] < records)
        at--;
    if (at == SAMPLE_SHARDS)
        return;
    s->n = s->n < SAMPLE_SHARDS ? s->n + 1 : SAMPLE_SHARDS;
    for (unsigned i = s->n - 1; i > at; i--) {
        s->shards[i] = s->shards[i - 1];
        s->records[i] = s->records[i - 1];
    }
    s->shards[at] = shard;
    s->records[at] = records;
}

static semel_err count_records(semel_store *st, semel_health *out, sample *s, int64_t deadline_ns,
                               semel_fault *fault)
{
    sm_rd_batch sizes, b;
    sm_rd_batch_init(&sizes, st);
    sm_rd_batch_init(&b, st);
    for (unsigned shard = 0; shard < SM_RD_SHARDS; shard++) {
        sm_rd_command(&sizes, shard, "ZCARD");
        sm_rd_key(&sizes, shard, "all");
        sm_rd_command(&sizes, shard, "ZCARD");
        sm_rd_key(&sizes, shard, "open");
    }
    semel_err e = sm_rd_run(&sizes, deadline_ns, fault);
    for (unsigned shard = 0; e == SEMEL_OK && shard < SM_RD_SHARDS; shard++) {
        uint64_t records = (uint64_t)sm_rd_number(sm_rd_reply(&sizes, 2 * shard));
        out->records += records;
        sample_add(s, shard, records);
        if (sm_rd_number(sm_rd_reply(&sizes, 2 * shard + 1)) == 0)
            continue;
        for (unsigned state = 0; state <= SEMEL_S_IN_DOUBT; state++) {
            sm_rd_command(&b, shard, "ZLEXCOUNT");
            sm_rd_key(&b, shard, "open");
            sm_rd_argf(&b, "[%u", state);
            sm_rd_argf(&b, "(%u", state + 1);
        }
    }
    if (e == SEMEL_OK)
        e = sm_rd_run(&b, deadline_ns, fault);
    for (size_t i = 0; e == SEMEL_OK && i < b.n; i++)
        out->in_state[i % (SEMEL_S_IN_DOUBT + 1)] += (uint64_t)sm_rd_number(sm_rd_reply(&b, i));
    sm_rd_batch_fini(&b);
    sm_rd_batch_fini(&sizes);
    return e;
}

/* ---- memory ----------------------------------------------------------------------------------*/

static void put_usage(sm_rd_batch *b, unsigned shard)
{
    sm_rd_command(b, shard, "MEMORY");
    if (b->n > 0)
        b->asks[b->n - 1].tolerant = true;
    sm_rd_arg_text(b, "USAGE");
}

/* All answers together; false: one of them was refused. A key that is not there takes nothing. */
static bool add_usage(const sm_rd_batch *b, uint64_t *sum)
{
    *sum = 0;
    for (size_t i = 0; i < b->n; i++) {
        if (sm_rd_reply(b, i)->type == REDIS_REPLY_ERROR)
            return false;
        *sum += (uint64_t)sm_rd_number(sm_rd_reply(b, i));
    }
    return true;
}

/* Some of the records of a sample's shards: their keys. Returns how many records. */
static uint64_t put_records(sm_rd_batch *b, const sample *s, const sm_rd_batch *lists)
{
    static const char *const kinds[] = {"r:", "a:", "o:", "h:"};
    uint64_t n = 0;
    for (unsigned i = 0; i < s->n; i++) {
        const redisReply *list = sm_rd_reply(lists, i);
        for (size_t k = 0; k < sm_rd_elements(list); k++) {
            sm_rd_member m;
            if (!sm_rd_member_read(sm_rd_text(sm_rd_element(list, k)), &m))
                continue;
            n++;
            for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
                put_usage(b, s->shards[i]);
                sm_rd_key_id(b, s->shards[i], kinds[kind], m.id, 0);
            }
        }
    }
    return n;
}

/* About how much memory the ledger takes: what the whole has one of, and for each record as much as
 * those of a sample take on the average, with their part of their shards' sets. 0: it may not be
 * asked. */
static semel_err estimate_bytes(semel_store *st, const sample *s, semel_health *out,
                                int64_t deadline_ns, semel_fault *fault)
{
    static const char *const sets[] = {"all", "open", "due", "gone", "log", "notes"};
    static const char *const global[] = {"meta", "seq", "log", "epoch", "sealed", "seals"};
    uint64_t whole = 0, shared = 0, own = 0, counted = 0;
    sm_rd_batch b, lists;
    sm_rd_batch_init(&b, st);
    sm_rd_batch_init(&lists, st);
    for (size_t i = 0; i < sizeof global / sizeof *global; i++) {
        put_usage(&b, SM_RD_GLOBAL);
        sm_rd_key(&b, SM_RD_GLOBAL, global[i]);
    }
    semel_err e = sm_rd_run(&b, deadline_ns, fault);
    bool may = e == SEMEL_OK && add_usage(&b, &whole);
    sm_rd_batch_clear(&b);
    for (unsigned i = 0; i < s->n; i++) {
        counted += s->records[i];
        sm_rd_command(&lists, s->shards[i], "ZRANGE");
        sm_rd_key(&lists, s->shards[i], "all");
        sm_rd_arg_int(&lists, 0);
        sm_rd_arg_int(&lists, SAMPLE_RECORDS - 1);
        for (size_t k = 0; k < sizeof sets / sizeof *sets; k++) {
            put_usage(&b, s->shards[i]);
            sm_rd_key(&b, s->shards[i], sets[k]);
        }
    }
    if (!may || s->n == 0)
        goto cleanup;
    e = sm_rd_run(&b, deadline_ns, fault);
    may = e == SEMEL_OK && add_usage(&b, &shared);
    if (may)
        e = sm_rd_run(&lists, deadline_ns, fault);
    if (!may || e != SEMEL_OK)
        goto cleanup;
    sm_rd_batch_clear(&b);
    uint64_t looked_at = put_records(&b, s, &lists);
    e = sm_rd_run(&b, deadline_ns, fault);
    may = e == SEMEL_OK && add_usage(&b, &own);
    if (looked_at > 0)
        whole += (uint64_t)((double)out->records *
                            ((double)own / (double)looked_at + (double)shared / (double)counted));

cleanup:
    out->bytes = may ? whole : 0;
    sm_rd_batch_fini(&lists);
    sm_rd_batch_fini(&b);
    return e;
}

/* ---- the log ---------------------------------------------------------------------------------*/

static bool take_at(void *context, const semel_event *e)
{
    *(int64_t *)context = e->at;
    return e->id == 0; /* a seal: the next one */
}

/* The newest seal, and the oldest event that is none. */
static semel_err look_at_log(semel_store *st, semel_health *out, int64_t deadline_ns,
                             semel_fault *fault)
{
    sm_rd_batch b;
    sm_rd_batch_init(&b, st);
    sm_rd_command(&b, SM_RD_GLOBAL, "ZREVRANGE");
    sm_rd_key(&b, SM_RD_GLOBAL, "sealed");
    sm_rd_arg_int(&b, 0);
    sm_rd_arg_int(&b, 0);
    sm_rd_command(&b, SM_RD_GLOBAL, "ZRANGE");
    sm_rd_key(&b, SM_RD_GLOBAL, "log");
    sm_rd_arg_int(&b, 0);
    sm_rd_arg_int(&b, 0);
    sm_rd_arg_text(&b, "WITHSCORES");
    semel_err e = sm_rd_run(&b, deadline_ns, fault);
    if (e != SEMEL_OK)
        goto cleanup;
    uint64_t seal = (uint64_t)sm_rd_number(sm_rd_element(sm_rd_reply(&b, 0), 0));
    uint64_t first = (uint64_t)sm_rd_number(sm_rd_element(sm_rd_reply(&b, 1), 1));
    if (first > 0) {
        uint64_t after = first - 1;
        e = sm_rd_events(st, NULL, &after, SIZE_MAX, take_at, &out->oldest_event_at, fault);
    }
    sm_rd_batch_clear(&b);
    if (e != SEMEL_OK || seal == 0)
        goto cleanup;
    sm_rd_command(&b, SM_RD_GLOBAL, "HGET");
    sm_rd_key(&b, SM_RD_GLOBAL, "seals");
    sm_rd_argf(&b, "%llu", (unsigned long long)seal);
    e = sm_rd_run(&b, deadline_ns, fault);
    semel_event event;
    if (e == SEMEL_OK)
        e = sm_rd_event_unpack(sm_rd_text(sm_rd_reply(&b, 0)), &event, fault);
    if (e != SEMEL_OK)
        goto cleanup;
    out->seal_seq = seal;
    out->seal_index = event.index;
    out->seal_hash = event.hash;
    out->seal_at = event.at;

cleanup:
    sm_rd_batch_fini(&b);
    return e;
}

semel_err sm_rd_health(semel_store *st, bool thorough, semel_health *out, semel_fault *fault)
{
    int64_t deadline_ns = sm_rd_deadline(st);
    char where[400];
    sample s = {0};
    memset(out, 0, sizeof *out);
    out->schema = SM_RD_SCHEMA;
    sm_rd_config_where(&st->config, where, sizeof where);
    snprintf(out->where, sizeof out->where, "%s, prefix %.*s", where, SM_FMT(st->config.prefix));
    semel_err e = sm_rd_durability(st, out->durability, sizeof out->durability, out->server,
                                   sizeof out->server, deadline_ns, fault);
    if (e == SEMEL_OK)
        e = sm_rd_collate(st, &out->last_seq, deadline_ns, fault);
    if (e == SEMEL_OK)
        e = count_records(st, out, &s, deadline_ns, fault);
    if (e == SEMEL_OK)
        e = estimate_bytes(st, &s, out, deadline_ns, fault);
    if (e == SEMEL_OK)
        e = look_at_log(st, out, deadline_ns, fault);
    return e == SEMEL_OK && thorough ? sm_rd_check(st, fault) : e;
}

/* Writes a key that nobody reads, to one shard after the other: in a cluster they are on several
 * servers. */
semel_err sm_rd_try_write(semel_store *st, semel_fault *fault)
{
    if (sm_rd_lost(st, fault))
        return SEMEL_E_UNAVAILABLE;
    unsigned shard = atomic_fetch_add(&st->tries, 1) % SM_RD_SHARDS;
    sm_rd_batch b;
    sm_rd_batch_init(&b, st);
    sm_rd_command(&b, shard, "SET");
    sm_rd_key(&b, shard, "try");
    sm_rd_arg_int(&b, 1);
    sm_rd_arg(&b, SM_STR("PX"));
    sm_rd_arg_int(&b, TRY_KEPT_MS);
    semel_err e = sm_rd_run(&b, sm_rd_deadline(st), fault);
    sm_rd_batch_fini(&b);
    return e;
}
