/*
 * Whether the server still has what it has acknowledged.
 *
 * A server that was wiped, restored, restarted without its file, or replaced by a replica that
 * lagged behind answers as if nothing had happened, and effects that ran would run again. So the
 * handle remembers of each shard the newest tick that it has seen, and where the shard's ticks
 * began. Every write brings both along, and its script refuses before any change if the shard is
 * younger than that, or another one.
 *
 * A shard that this handle has not seen yet has nothing to compare with. Before its first use the
 * key that names the ledger is looked at: a new ledger of the same prefix has another name. So is
 * the shard with the newest tick of all: who goes back in time loses that one first.
 *
 * What is found out depends on what was promised. A durable handle answers nothing from then on,
 * for nobody can know what ran (I3, I8). Where loss was to be expected, the ledger goes on.
 *
 * It does not find what a server lost in a shard that others have written to since, if the shard as
 * such is still the same.
 */
#include <stdlib.h>

#include "store/redis.h"

/* A tick as it is stored: the last stamp, and the first one. False: there is none. */
static bool tick_read(const redisReply *reply, uint64_t *last, uint64_t *first)
{
    sm_str text = sm_rd_text(reply);
    char *end = NULL;
    *last = *first = 0;
    if (text.n == 0)
        return false;
    *last = strtoull(text.p, &end, 10);
    *first = *end == ' ' ? strtoull(end + 1, NULL, 10) : 0;
    return *last > 0;
}

bool sm_rd_lost(semel_store *st, semel_fault *fault)
{
    if (!atomic_load(&st->lost))
        return false;
    sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                 "the Redis server has lost effects that it had acknowledged: it was wiped, "
                 "restored, or failed over to a replica that lacked them. Find out what ran, then "
                 "open the ledger anew");
    return true;
}

void sm_rd_seen(semel_store *st, uint8_t shard, const redisReply *tick)
{
    uint64_t last, first;
    if (!tick_read(tick, &last, &first))
        return;
    atomic_store(&st->seen[shard].first, first);
    unsigned long long known = atomic_load(&st->seen[shard].last);
    while (known < last && !atomic_compare_exchange_weak(&st->seen[shard].last, &known, last))
        continue;
}

void sm_rd_arg_seen(sm_rd_batch *b, uint8_t shard)
{
    unsigned long long last = atomic_load(&b->st->seen[shard].last);
    if (last == 0)
        sm_rd_arg(b, (sm_str){0});
    else
        sm_rd_argf(b, "%llu", last);
    sm_rd_argf(b, "%llu", (unsigned long long)atomic_load(&b->st->seen[shard].first));
}

semel_err sm_rd_bereft(semel_store *st, semel_fault *fault)
{
    if (st->durable) {
        atomic_store(&st->lost, true);
        sm_rd_lost(st, fault);
        return SEMEL_E_UNAVAILABLE;
    }
    for (unsigned i = 0; i < SM_RD_SHARDS; i++)
        atomic_store(&st->seen[i].last, 0);
    return SEMEL_OK;
}

/* The shard whose newest tick is the newest of all; SM_RD_SHARDS: none was seen. */
static unsigned newest_shard(semel_store *st)
{
    unsigned long long most = 0;
    unsigned best = SM_RD_SHARDS;
    for (unsigned i = 0; i < SM_RD_SHARDS; i++) {
        unsigned long long last = atomic_load(&st->seen[i].last);
        if (last > most)
            best = i;
        most = last > most ? last : most;
    }
    return best;
}

semel_err sm_rd_trust(semel_store *st, uint8_t shard, int64_t deadline_ns, semel_fault *fault)
{
    if (atomic_load(&st->seen[shard].last) != 0)
        return SEMEL_OK;
    unsigned other = st->durable ? newest_shard(st) : SM_RD_SHARDS;
    unsigned long long known = other < SM_RD_SHARDS ? atomic_load(&st->seen[other].last) : 0;
    uint64_t last = 0, first = 0;
    sm_rd_batch b;
    sm_rd_batch_init(&b, st);
    sm_rd_command(&b, SM_RD_GLOBAL, "GET");
    sm_rd_key(&b, SM_RD_GLOBAL, "meta");
    if (known > 0) {
        sm_rd_command(&b, other, "GET");
        sm_rd_key(&b, other, "tick");
    }
    semel_err e = sm_rd_run(&b, deadline_ns, fault);
    sm_str name = e == SEMEL_OK ? sm_rd_text(sm_rd_reply(&b, 0)) : (sm_str){0};
    if (e == SEMEL_OK && st->durable) {
        bool same = sm_str_is(name, st->name);
        if (known > 0)
            same = same && tick_read(sm_rd_reply(&b, 1), &last, &first) && last >= known &&
                   first == atomic_load(&st->seen[other].first);
        if (!same)
            e = sm_rd_bereft(st, fault);
    } else if (e == SEMEL_OK && name.p == NULL) {
        /* Where loss is to be expected the name is made again, so that others find the ledger. */
        sm_rd_batch_clear(&b);
        sm_rd_command(&b, SM_RD_GLOBAL, "SETNX");
        sm_rd_key(&b, SM_RD_GLOBAL, "meta");
        sm_rd_arg_text(&b, st->name);
        e = sm_rd_run(&b, deadline_ns, fault);
    }
    sm_rd_batch_fini(&b);
    return e;
}
