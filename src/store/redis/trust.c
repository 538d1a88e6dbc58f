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
 * The next handle of the same user begins with the newest of these ticks: it is noted when a handle
 * is closed, and once a second while it writes (store/shared/mark.h).
 *
 * What is found out depends on what was promised. A durable handle answers nothing from then on,
 * for nobody can know what ran (I3, I8). Where loss was to be expected, the ledger goes on.
 *
 * It does not find what a server lost in a shard that others have written to since, if the shard as
 * such is still the same.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "store/redis/redis.h"

#define NOTE_NS 1000000000

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

bool sm_rd_tick_sound(const redisReply *reply)
{
    uint64_t last, first;
    char text[48];
    sm_str given = sm_rd_text(reply);
    if (given.p == NULL)
        return true;
    tick_read(reply, &last, &first);
    snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64, last, first);
    return first <= last && sm_str_is(given, text);
}

bool sm_rd_lost(semel_store *st, semel_fault *fault)
{
    if (!atomic_load(&st->lost))
        return false;
    bool noted = st->mark.path[0] != '\0';
    sm_fault_set(fault, SEMEL_E_CORRUPT,
                 "the Redis server has lost effects that it had acknowledged: it was wiped, "
                 "restored, or failed over to a replica that lacked them. Find out what ran, then "
                 "%s%.200s%sopen the ledger anew",
                 noted ? "remove " : "", st->mark.path, noted ? " and " : "");
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

void sm_rd_arg_seen(sm_rd_batch *b, uint8_t shard, bool nothing)
{
    unsigned long long last = nothing ? 0 : atomic_load(&b->st->seen[shard].last);
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

void sm_rd_trust_note(semel_store *st)
{
    unsigned shard = newest_shard(st);
    if (shard == SM_RD_SHARDS || atomic_load(&st->lost))
        return;
    sm_seen seen = {.seq = (int64_t)atomic_load(&st->seen[shard].last),
                    .id = shard,
                    .hash = atomic_load(&st->seen[shard].first)};
    sm_mark_write(&st->mark, &seen);
}

void sm_rd_trust_note_soon(semel_store *st)
{
    long long last = atomic_load(&st->noted_ns), now = sm_clock_mono_ns();
    if (now - last > NOTE_NS && atomic_compare_exchange_strong(&st->noted_ns, &last, now))
        sm_rd_trust_note(st);
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

/* A ledger is identified by its place, database and prefix: what the server lost includes its name.
 */
semel_err sm_rd_trust_start(semel_store *st, int64_t deadline_ns, semel_fault *fault)
{
    char where[SM_RD_PLACES_MAX * 272], ledger[sizeof where + SM_RD_PREFIX_MAX + 16];
    sm_seen noted;
    if (!st->durable)
        return SEMEL_OK;
    sm_rd_config_where(&st->config, where, sizeof where);
    snprintf(ledger, sizeof ledger, "%s %d %.*s", where, st->config.db, SM_FMT(st->config.prefix));
    sm_mark_init(&st->mark, ledger);
    if (!sm_mark_read(&st->mark, &noted) || noted.id < 0 || noted.id >= SM_RD_SHARDS)
        return SEMEL_OK;
    atomic_store(&st->seen[noted.id].first, noted.hash);
    atomic_store(&st->seen[noted.id].last, (uint64_t)noted.seq);
    return sm_rd_trust(st, (uint8_t)((noted.id + 1) % SM_RD_SHARDS), deadline_ns, fault);
}
