/*
 * Housekeeping: what the windows of settled effects allow to go, in small batches.
 *
 * The sets of each shard say which records may have something to give. They are read, and given to
 * a script that takes what is over by the clock of their server, and does so only if the record is
 * still as it was read: it may have begun and ended anew since it was listed. A record that is
 * not there, because a full server has evicted it, leaves its members behind: those go here too.
 *
 * When the newest generation goes and an older one is still there, that one becomes the newest.
 *
 * Events go with their effect's part first and their seq last, so that what is left after a crash
 * is found again. See log.c for why they leave the queue, too.
 */
#include <stdio.h>
#include <stdlib.h>

#include "store/redis/redis.h"

#define LIMIT_MAX   1000u
#define PAGE        32u /* records that are read at once */
#define REF         (2 + SM_RD_ID + SM_RD_STAMP)
#define NOTE_SERIAL 32u

/* A purge under way. */
typedef struct purging {
    semel_store *st;
    size_t budget;
    int64_t now, deadline_ns;
    uint64_t done;
    bool left;
    semel_fault *fault;
} purging;

typedef struct leaving {
    sm_rd_member m;
    uint8_t shard;
    bool newest;
    uint64_t before; /* the generation that takes its place */
} leaving;

/* ---- records ---------------------------------------------------------------------------------*/

/* Which records have something to give, at most as many as the budget allows. */
static semel_err list_records(purging *p, leaving *out, size_t *n)
{
    sm_rd_batch b;
    *n = 0;
    sm_rd_batch_init(&b, p->st);
    for (unsigned shard = 0; shard < SM_RD_SHARDS; shard++) {
        sm_rd_command(&b, shard, "ZRANGEBYSCORE");
        sm_rd_key(&b, shard, "gone");
        sm_rd_arg_text(&b, "-inf");
        sm_rd_arg_int(&b, p->now);
        sm_rd_arg_text(&b, "LIMIT");
        sm_rd_arg_int(&b, 0);
        sm_rd_arg_int(&b, (int64_t)p->budget + 1);
    }
    semel_err e = sm_rd_run(&b, p->deadline_ns, p->fault);
    for (size_t i = 0; e == SEMEL_OK && i < b.n; i++) {
        const redisReply *r = sm_rd_reply(&b, i);
        for (size_t k = 0; k < sm_rd_elements(r); k++) {
            if (*n == p->budget) {
                p->left = true;
                break;
            }
            out[*n] = (leaving){.shard = (uint8_t)i};
            if (!sm_rd_member_read(sm_rd_text(sm_rd_element(r, k)), &out[*n].m))
                e = sm_fault_set(p->fault, SEMEL_E_CORRUPT, "a list of the ledger is damaged");
            ++*n;
        }
    }
    sm_rd_batch_fini(&b);
    return e;
}

static void put_member(sm_rd_batch *b, const leaving *l)
{
    sm_rd_argf(b, "%.*s%016llx%llx", (int)SM_RD_BIRTH, l->m.birth, (unsigned long long)l->m.id,
               (unsigned long long)l->m.generation);
}

/* The record is not there: its members go. */
static void put_forget(sm_rd_batch *b, const leaving *l)
{
    static const char *const sets[] = {"all", "due", "gone"};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        sm_rd_command(b, l->shard, "ZREM");
        sm_rd_key(b, l->shard, sets[i]);
        put_member(b, l);
    }
    sm_rd_command(b, l->shard, "ZREM"); /* of all that is open, only state none may go */
    sm_rd_key(b, l->shard, "open");
    sm_rd_argf(b, "%u%.*s%016llx%llx", SEMEL_S_NONE, (int)SM_RD_BIRTH, l->m.birth,
               (unsigned long long)l->m.id, (unsigned long long)l->m.generation);
}

static void put_end(sm_rd_batch *b, int64_t at)
{
    if (at <= 0 || at == INT64_MAX)
        sm_rd_arg(b, (sm_str){0});
    else
        sm_rd_arg_int(b, at);
}

/* Keys and arguments have the names and the order that scripts/reap.lua gives them. */
static void put_reap(sm_rd_batch *b, const leaving *l, const semel_record *r)
{
    static const char *const sets[] = {"all", "gone", "open", "due"};
    static const char *const kinds[] = {"r:", "a:", "o:"};
    uint64_t own = l->newest ? 0 : l->m.generation;
    sm_rd_call(b, l->shard, SM_RD_REAP, l->before == 0 ? 8 : 11);
    for (unsigned i = 0; i < 3; i++) /* record, arguments, outcome */
        sm_rd_key_id(b, l->shard, kinds[i], l->m.id, own);
    for (unsigned i = 0; i < 4; i++)
        sm_rd_key(b, l->shard, sets[i]);
    sm_rd_key_id(b, l->shard, "v:", l->m.id, 0);       /* generations */
    for (unsigned i = 0; i < 3 && l->before != 0; i++) /* before_record, _arguments, _outcome */
        sm_rd_key_id(b, l->shard, kinds[i], l->m.id, l->before);
    sm_rd_argf(b, "%016llx%016llx", (unsigned long long)r->generation,
               (unsigned long long)r->version);                      /* expected */
    put_member(b, l);                                                /* member */
    put_end(b, r->result_end);                                       /* outcome_end */
    put_end(b, r->window_end);                                       /* arguments_end */
    put_end(b, r->purge_at);                                         /* record_end */
    sm_rd_argf(b, "%016llx", (unsigned long long)l->m.generation);   /* generation */
    sm_rd_arg_text(b, l->newest ? "n" : "");                         /* newest */
    sm_rd_argf(b, "%016llx", (unsigned long long)l->before);         /* expected_before */
    sm_rd_key(b, SM_RD_GLOBAL, "wake");                              /* channel */
    sm_rd_arg(b, (sm_str){(const char *)r->key.b, sizeof r->key.b}); /* message */
}

/* Asks for a member's record under both of its names. */
static void put_look(sm_rd_batch *b, const leaving *l)
{
    sm_rd_command(b, l->shard, "MGET");
    sm_rd_key_id(b, l->shard, "r:", l->m.id, 0);
    sm_rd_key_id(b, l->shard, "r:", l->m.id, l->m.generation);
}

/* The record of a member, without payloads. */
static semel_err take_look(const redisReply *mget, leaving *l, semel_record *r, semel_fault *fault)
{
    for (unsigned older = 0; older < 2; older++) {
        char birth[SM_RD_BIRTH];
        sm_str bytes = sm_rd_text(sm_rd_element(mget, older));
        if (bytes.p == NULL)
            continue;
        semel_err e = sm_rd_record_unpack(bytes, r, birth, fault);
        if (e != SEMEL_OK)
            return e;
        if (memcmp(birth, l->m.birth, sizeof birth) != 0)
            continue;
        l->newest = older == 0;
        return SEMEL_OK;
    }
    return SEMEL_E_NOT_FOUND;
}

/* Looks at a page of records and takes what their times allow. */
static semel_err reap_page(purging *p, leaving *page, size_t n)
{
    sm_rd_batch looks, b;
    size_t asked[PAGE];
    semel_record records[PAGE];
    sm_rd_batch_init(&looks, p->st);
    sm_rd_batch_init(&b, p->st);
    for (size_t i = 0; i < n; i++)
        put_look(&looks, &page[i]);
    semel_err e = sm_rd_run(&looks, p->deadline_ns, p->fault);
    for (size_t i = 0; e == SEMEL_OK && i < n; i++) {
        semel_err read = take_look(sm_rd_reply(&looks, i), &page[i], &records[i], p->fault);
        asked[i] = SIZE_MAX;
        if (read == SEMEL_OK) {
            asked[i] = b.n;
            put_reap(&b, &page[i], &records[i]);
        } else if (read == SEMEL_E_NOT_FOUND) {
            put_forget(&b, &page[i]);
            p->done++;
        } else {
            e = read;
        }
    }
    if (e == SEMEL_OK)
        e = sm_rd_run(&b, p->deadline_ns, p->fault);
    for (size_t i = 0; e == SEMEL_OK && i < n; i++) {
        if (asked[i] == SIZE_MAX)
            continue;
        const redisReply *r = sm_rd_reply(&b, asked[i]);
        sm_str before = sm_rd_text(r);
        if (before.n == 16 && page[i].before == 0) {
            /* An older generation takes its place: once more, and with its keys. */
            sm_rd_batch again;
            bool good = true;
            sm_rd_batch_init(&again, p->st);
            page[i].before = sm_rd_hex(before.p, before.n, &good);
            put_reap(&again, &page[i], &records[i]);
            e = sm_rd_run(&again, p->deadline_ns, p->fault);
            p->done += e == SEMEL_OK && sm_rd_number(sm_rd_reply(&again, 0)) == 1;
            sm_rd_batch_fini(&again);
        } else {
            p->done += sm_rd_number(r) == 1;
        }
        sm_bell_ring(&p->st->bell, &records[i].key);
    }
    sm_rd_batch_fini(&b);
    sm_rd_batch_fini(&looks);
    return e;
}

static semel_err purge_records(purging *p)
{
    size_t n = 0;
    leaving *all = calloc(p->budget + 1, sizeof *all);
    if (all == NULL)
        return sm_fault_set(p->fault, SEMEL_E_NOMEM, "out of memory");
    semel_err e = list_records(p, all, &n);
    for (size_t i = 0; e == SEMEL_OK && i < n; i += PAGE)
        e = reap_page(p, all + i, n - i < PAGE ? n - i : PAGE);
    p->budget -= n;
    free(all);
    return e;
}

/* ---- events and notes ------------------------------------------------------------------------*/

static semel_err purge_events(purging *p, uint64_t events_to)
{
    sm_rd_batch list, parts, b;
    semel_err e;
    sm_rd_batch_init(&list, p->st);
    sm_rd_batch_init(&parts, p->st);
    sm_rd_batch_init(&b, p->st);
    sm_rd_command(&list, SM_RD_GLOBAL, "ZRANGEBYSCORE");
    sm_rd_key(&list, SM_RD_GLOBAL, "log");
    sm_rd_arg_text(&list, "-inf");
    sm_rd_argf(&list, "%llu", (unsigned long long)events_to);
    sm_rd_arg_text(&list, "LIMIT");
    sm_rd_arg_int(&list, 0);
    sm_rd_arg_int(&list, (int64_t)p->budget + 1);
    e = sm_rd_run(&list, p->deadline_ns, p->fault);
    const redisReply *r = e == SEMEL_OK ? sm_rd_reply(&list, 0) : NULL;
    size_t n = sm_rd_elements(r);
    p->left = p->left || n > p->budget;
    n = n < p->budget ? n : p->budget;
    if (e != SEMEL_OK || n == 0)
        goto cleanup;
    uint64_t last; /* what is searched below are queues that are short then */
    e = sm_rd_collate(p->st, &last, p->deadline_ns, p->fault);
    if (e != SEMEL_OK)
        goto cleanup;
    sm_rd_call(&b, SM_RD_GLOBAL, SM_RD_UNNUMBER, 2);
    sm_rd_key(&b, SM_RD_GLOBAL, "epoch");
    sm_rd_key(&b, SM_RD_GLOBAL, "log");
    for (size_t i = 0; i < n; i++) {
        sm_str ref = sm_rd_text(sm_rd_element(r, i));
        bool good = ref.n == REF;
        unsigned shard = good ? (unsigned)sm_rd_hex(ref.p, 2, &good) : 0;
        uint64_t id = good ? sm_rd_hex(ref.p + 2, SM_RD_ID, &good) : 0;
        if (!good) {
            e = sm_fault_set(p->fault, SEMEL_E_CORRUPT, "the log of events is damaged");
            goto cleanup;
        }
        const char *stamp = ref.p + 2 + SM_RD_ID;
        sm_rd_command(&parts, shard, "HDEL");
        sm_rd_key_id(&parts, shard, "h:", id, 0);
        sm_rd_arg(&parts, (sm_str){stamp, SM_RD_STAMP});
        sm_rd_command(&parts, shard, "LREM");
        sm_rd_key(&parts, shard, "log");
        sm_rd_arg_int(&parts, 0);
        sm_rd_argf(&parts, "%.*s%.*s", (int)SM_RD_STAMP, stamp, (int)SM_RD_ID, ref.p + 2);
        sm_rd_arg(&b, ref); /* one of the events */
    }
    e = sm_rd_run(&parts, p->deadline_ns, p->fault);
    if (e == SEMEL_OK)
        e = sm_rd_run(&b, p->deadline_ns, p->fault);
    if (e == SEMEL_OK)
        p->done += (uint64_t)sm_rd_number(sm_rd_reply(&b, 0));
    p->budget -= n;

cleanup:
    sm_rd_batch_fini(&b);
    sm_rd_batch_fini(&parts);
    sm_rd_batch_fini(&list);
    return e;
}

static semel_err purge_notes(purging *p, int64_t before)
{
    sm_rd_batch list, b;
    sm_rd_batch_init(&list, p->st);
    sm_rd_batch_init(&b, p->st);
    for (unsigned shard = 0; shard < SM_RD_SHARDS; shard++) {
        sm_rd_command(&list, shard, "ZRANGEBYSCORE");
        sm_rd_key(&list, shard, "notes");
        sm_rd_arg_text(&list, "-inf");
        sm_rd_argf(&list, "(%lld", (long long)before);
        sm_rd_arg_text(&list, "LIMIT");
        sm_rd_arg_int(&list, 0);
        sm_rd_arg_int(&list, (int64_t)p->budget + 1);
    }
    semel_err e = sm_rd_run(&list, p->deadline_ns, p->fault);
    size_t n = 0;
    for (size_t i = 0; e == SEMEL_OK && i < list.n; i++) {
        const redisReply *r = sm_rd_reply(&list, i);
        for (size_t k = 0; k < sm_rd_elements(r); k++) {
            sm_str entry = sm_rd_text(sm_rd_element(r, k));
            bool good = entry.n == 32 + NOTE_SERIAL;
            uint64_t id = good ? sm_rd_hex(entry.p, 16, &good) : 0;
            int64_t at = good ? (int64_t)sm_rd_hex(entry.p + 16, 16, &good) : 0;
            if (n == p->budget) {
                p->left = true;
                break;
            }
            n++;
            sm_rd_call(&b, (unsigned)i, SM_RD_NOTE_DROP, 2);
            sm_rd_key_id(&b, (unsigned)i, "n:", id, 0); /* own */
            sm_rd_key(&b, (unsigned)i, "notes");
            sm_rd_arg_int(&b, at);                                                   /* time */
            sm_rd_arg(&b, good ? (sm_str){entry.p + 32, NOTE_SERIAL} : SM_STR("-")); /* serial */
            sm_rd_arg(&b, entry);                                                    /* entry */
        }
    }
    if (e == SEMEL_OK)
        e = sm_rd_run(&b, p->deadline_ns, p->fault);
    for (size_t i = 0; e == SEMEL_OK && i < b.n; i++)
        p->done += sm_rd_number(sm_rd_reply(&b, i)) == 1;
    sm_rd_batch_fini(&b);
    sm_rd_batch_fini(&list);
    return e;
}

semel_err sm_rd_purge(semel_store *st, size_t limit, uint64_t events_to, int64_t notes_before,
                      uint64_t *done, bool *left, semel_fault *fault)
{
    purging p = {.st = st,
                 .budget = limit < LIMIT_MAX ? limit : LIMIT_MAX,
                 .deadline_ns = sm_rd_deadline(st),
                 .fault = fault};
    sm_rd_batch b;
    sm_rd_batch_init(&b, st);
    sm_rd_command(&b, SM_RD_GLOBAL, "TIME");
    semel_err e = sm_rd_run(&b, p.deadline_ns, fault);
    if (e == SEMEL_OK)
        sm_rd_time(sm_rd_reply(&b, 0), &p.now);
    sm_rd_batch_fini(&b);
    if (e == SEMEL_OK)
        e = purge_records(&p);
    if (e == SEMEL_OK && events_to > 0)
        e = purge_events(&p, events_to);
    if (e == SEMEL_OK)
        e = purge_notes(&p, notes_before);
    *done += p.done;
    *left = p.left;
    return e;
}
