/*
 * Writes: claim, apply, counters.
 *
 * A write is one script. If its answer is lost it is sent again, which changes nothing if the first
 * time did it: the compare-and-swap fails then. Whether it was ours that is there now is seen by
 * the hash of its event, which is the record's head. If somebody has written since, the caller is
 * told what is there now, as if it had come too late: it has a better idea of what to do than we.
 */
#include <stdio.h>
#include <stdlib.h>

#include "store/redis/redis.h"

/* Purge has the first turn; what nobody purges, the server removes by itself. */
#define GRACE_MS   60000
#define BARRED_MAX 50u /* times that the effect that barred did so no more when it was read */

static bool is_zero(const semel_hash *h)
{
    static const semel_hash zero;
    return memcmp(h, &zero, sizeof zero) == 0;
}

void sm_rd_hint(semel_store *st, uint64_t id, uint8_t shard)
{
    atomic_store_explicit(&st->hints[id >> 8 & 1023u], (id & ~0xFFull) | shard,
                          memory_order_relaxed);
}

bool sm_rd_hinted(semel_store *st, uint64_t id, uint8_t *shard)
{
    uint64_t hint = atomic_load_explicit(&st->hints[id >> 8 & 1023u], memory_order_relaxed);
    *shard = (uint8_t)hint;
    return hint != 0 && hint >> 8 == id >> 8;
}

/* ---- asking ----------------------------------------------------------------------------------*/

/* A write under way. */
typedef struct writing {
    semel_store *st;
    const semel_write *w;
    bool claim, next_generation;
    uint64_t version;
    semel_hash before; /* the group that the record was in, if that is another one */
    char head[SM_RD_HEAD];
    sm_buf tail, event;
    sm_rd_batch batch;
    semel_record written;
    bool unsure; /* an earlier try may have done it */
    bool real;   /* an effect that barred was there when it was read */
} writing;

/* A time as a score or an expiry; empty for none. */
static void arg_time(sm_rd_batch *b, int64_t at, int64_t grace_ms)
{
    if (at <= 0 || at > INT64_MAX - grace_ms)
        sm_rd_arg(b, (sm_str){0});
    else
        sm_rd_arg_int(b, at + grace_ms);
}

static void arg_payload(sm_rd_batch *b, semel_str text, bool same)
{
    sm_rd_arg_text(b, same ? "=" : text.p == NULL ? "-" : "+");
    sm_rd_arg(b, same ? (sm_str){0} : text);
}

/* From when on it bars its group; all that run or are in doubt have such a time. */
static int64_t bars_at(const semel_record *r)
{
    if (is_zero(&r->group))
        return -1;
    if (r->state == SEMEL_S_IN_DOUBT)
        return 0;
    if (r->state == SEMEL_S_RUNNING)
        return r->lease_end > 0 ? r->lease_end : INT64_MAX;
    return -1;
}

/* Keys and arguments have the names and the order that scripts/write.lua gives them. */
static void put_keys(writing *x)
{
    static const char *const sets[] = {"all", "open", "due", "gone", "log", "tick"};
    const semel_write *w = x->w;
    const semel_record *r = &w->next;
    sm_rd_batch *b = &x->batch;
    sm_rd_key_id(b, r->shard, "r:", r->id, 0); /* record */
    sm_rd_key_id(b, r->shard, "a:", r->id, 0); /* arguments */
    sm_rd_key_id(b, r->shard, "o:", r->id, 0); /* outcome */
    sm_rd_key_id(b, r->shard, "h:", r->id, 0); /* events */
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        sm_rd_key(b, r->shard, sets[i]);
    if (!is_zero(&r->group)) /* group */
        sm_rd_key_name(b, r->shard, "g:", (sm_str){(const char *)r->group.b, sizeof r->group.b});
    if (!is_zero(&x->before)) /* before */
        sm_rd_key_name(b, r->shard, "g:", (sm_str){(const char *)x->before.b, sizeof x->before.b});
    if (x->next_generation) {
        sm_rd_key_id(b, r->shard, "r:", r->id, w->expect_generation); /* older_record */
        sm_rd_key_id(b, r->shard, "a:", r->id, w->expect_generation); /* older_arguments */
        sm_rd_key_id(b, r->shard, "o:", r->id, w->expect_generation); /* older_outcome */
        sm_rd_key_id(b, r->shard, "v:", r->id, 0);                    /* generations */
    }
    for (size_t i = 0; i < w->n_counters; i++) /* counters */
        sm_rd_key_name(b, r->shard, "c:", w->counters[i].name);
}

static void put_group(sm_rd_batch *b, const semel_hash *group)
{
    sm_rd_arg(b, is_zero(group) ? (sm_str){0} : (sm_str){(const char *)group->b, sizeof group->b});
}

/* When the server removes payloads that nobody purged. The record itself stays until it is purged:
 * its events are still there, and a key without a record would begin again with the same handle. */
static void put_ends(writing *x)
{
    const semel_record *r = &x->w->next;
    bool over = r->state == SEMEL_S_NONE || semel_state_settled(r->state);
    int64_t outcome_end = r->window_end;
    if (r->result_end > 0 && (outcome_end <= 0 || r->result_end < outcome_end))
        outcome_end = r->result_end;
    arg_time(&x->batch, over ? r->window_end : 0, GRACE_MS); /* arguments_end */
    arg_time(&x->batch, over ? outcome_end : 0, GRACE_MS);   /* outcome_end */
}

static void put_write(writing *x)
{
    const semel_write *w = x->w;
    const semel_record *r = &w->next;
    sm_rd_batch *b = &x->batch;
    bool settled = semel_state_settled(r->state), same = !x->claim && !x->next_generation;
    unsigned keys = 10 + !is_zero(&r->group) + !is_zero(&x->before) +
                    (x->next_generation ? 4u : 0u) + (unsigned)w->n_counters;
    const char *barred_by = !w->barred_by_group || is_zero(&r->group) ? "" : w->alone ? "a" : "b";
    sm_str newest_event = {0};
    if (same)
        newest_event = (sm_str){(const char *)w->event.prev.b, sizeof w->event.prev.b};
    sm_rd_call(b, r->shard, same ? SM_RD_RECORD : SM_RD_WRITE, keys);
    put_keys(x);
    sm_rd_arg_text(b, x->claim ? "c" : "a"); /* action */
    sm_rd_argf(b, "%016llx%016llx", (unsigned long long)w->expect_generation,
               (unsigned long long)w->expect_version);                 /* expected */
    sm_rd_arg(b, (sm_str){(const char *)r->key.b, sizeof r->key.b});   /* key */
    sm_rd_arg(b, (sm_str){x->head, SM_RD_HEAD});                       /* head */
    sm_rd_arg(b, sm_buf_view(&x->tail));                               /* tail */
    sm_rd_argf(b, "%016llx", (unsigned long long)r->id);               /* id */
    sm_rd_argf(b, "%llx", (unsigned long long)r->generation);          /* generation */
    sm_rd_argf(b, "%02x", r->shard);                                   /* shard */
    sm_rd_arg_int(b, w->now);                                          /* caller_now */
    sm_rd_arg_int(b, SEMEL_CLOCK_SLACK_MS);                            /* slack */
    sm_rd_arg(b, sm_buf_view(&x->event));                              /* event */
    arg_payload(b, r->args, same && w->same_args);                     /* arguments_how, _text */
    arg_payload(b, r->outcome, same && w->same_outcome);               /* outcome_how, _text */
    arg_time(b, settled || r->due_at == INT64_MAX ? 0 : r->due_at, 0); /* due_at */
    int64_t gone_at = sm_record_next_purge(r);
    arg_time(b, gone_at == INT64_MAX ? 0 : gone_at, 0); /* gone_at */
    if (bars_at(r) < 0)                                 /* bars_at */
        sm_rd_arg(b, (sm_str){0});
    else
        sm_rd_arg_int(b, bars_at(r));
    put_ends(x); /* arguments_end, outcome_end */
    sm_rd_arg_text(b, barred_by);
    put_group(b, &r->group);  /* group_name */
    put_group(b, &x->before); /* before_name */
    if (x->next_generation)   /* older */
        sm_rd_argf(b, "%016llx", (unsigned long long)w->expect_generation);
    else
        sm_rd_arg(b, (sm_str){0});
    sm_rd_key(b, SM_RD_GLOBAL, "wake");                              /* channel */
    sm_rd_arg(b, (sm_str){(const char *)r->key.b, sizeof r->key.b}); /* message */
    sm_rd_arg_seen(b, r->shard, w->evidence);                        /* seen_last, seen_first */
    sm_rd_arg(b, newest_event);
    for (size_t i = 0; i < w->n_counters; i++) { /* counters */
        sm_rd_arg_int(b, w->counters[i].delta);
        sm_rd_arg_int(b, w->counters[i].cap);
        arg_time(b, w->counters[i].until == INT64_MAX ? 0 : w->counters[i].until, 0);
    }
}

/* ---- what came of it -------------------------------------------------------------------------*/

/* A record that an answer has from this part on. */
static semel_err take_current(const redisReply *reply, size_t at, semel_record *out,
                              char birth[SM_RD_BIRTH], semel_fault *fault)
{
    semel_err e = sm_rd_record_unpack(sm_rd_text(sm_rd_element(reply, at)), out, birth, fault);
    out->args = sm_rd_text(sm_rd_element(reply, at + 1));
    out->outcome = sm_rd_text(sm_rd_element(reply, at + 2));
    return e;
}

/* Whether the record that is there now is what an earlier try of this write has made. */
static bool is_ours(const writing *x, const semel_record *cur)
{
    return x->unsure && cur->generation == x->w->next.generation && cur->version == x->version &&
           memcmp(&cur->head, &x->w->event.hash, sizeof cur->head) == 0;
}

/* The effect that bars. NOT_FOUND if it is gone or bars no more, so that the write may be tried
 * again. The script gives it as it was then, for what only ran has often ended a moment later; it
 * cannot if the newest generation is another, or if the slot moves. */
static semel_err take_barring(writing *x, const redisReply *reply, int64_t now, semel_room *room,
                              semel_record *cur, semel_fault *fault)
{
    sm_rd_member m;
    int64_t then;
    if (!sm_rd_member_read(sm_rd_text(sm_rd_element(reply, 3)), &m))
        return sm_fault_set(fault, SEMEL_E_CORRUPT, "the barrier of a group cannot be read");
    semel_record there;
    char birth[SM_RD_BIRTH];
    if (sm_rd_text(sm_rd_element(reply, 4)).p != NULL) {
        semel_err read = take_current(reply, 4, &there, birth, fault);
        if (read == SEMEL_OK && memcmp(birth, m.birth, sizeof birth) == 0) {
            read = sm_record_copy(&there, room, cur);
            return read == SEMEL_OK ? SEMEL_E_BARRED : read;
        }
        if (read != SEMEL_OK)
            return read;
    }
    semel_ref ref = {
        .id = m.id, .generation = m.generation, .sharded = true, .shard = x->w->next.shard};
    semel_err e = sm_rd_get(x->st, &ref, room, cur, &then, fault);
    if (e != SEMEL_OK)
        return e;
    x->real = true;
    int64_t bars = bars_at(cur);
    bool still = bars >= 0 && (x->w->alone || bars <= (then > now ? then : now));
    return still ? SEMEL_E_BARRED : SEMEL_E_NOT_FOUND;
}

static semel_err done(writing *x, const redisReply *reply, semel_record *cur)
{
    *cur = x->written;
    if (sm_rd_number(sm_rd_element(reply, 3)) == 0)
        cur->args = (semel_str){0};
    if (sm_rd_number(sm_rd_element(reply, 4)) == 0)
        cur->outcome = (semel_str){0};
    sm_rd_hint(x->st, cur->id, cur->shard);
    sm_bell_ring(&x->st->bell, &cur->key);
    sm_bell_ring(&x->st->bell, NULL);
    return SEMEL_OK;
}

/* What the script said. NOT_FOUND and `again`: it is to be sent once more. */
static semel_err judge(writing *x, const redisReply *reply, semel_room *room, semel_record *cur,
                       int64_t now, bool *inserted, bool *again, semel_fault *fault)
{
    sm_str word = sm_rd_text(sm_rd_element(reply, 0));
    if (sm_str_is(word, "ok")) {
        *inserted = true;
        return done(x, reply, cur);
    }
    if (sm_str_is(word, "found") || sm_str_is(word, "stale")) {
        semel_record there;
        char birth[SM_RD_BIRTH];
        semel_err e = take_current(reply, 3, &there, birth, fault);
        if (e == SEMEL_OK)
            e = sm_record_copy(&there, room, cur);
        if (e != SEMEL_OK)
            return e;
        sm_rd_hint(x->st, cur->id, cur->shard);
        *inserted = is_ours(x, cur);
        return *inserted || x->claim ? SEMEL_OK : SEMEL_E_STALE;
    }
    if (sm_str_is(word, "lost")) {
        semel_err e = sm_rd_bereft(x->st, fault);
        *again = e == SEMEL_OK;
        return *again ? SEMEL_E_NOT_FOUND : e;
    }
    if (sm_str_is(word, "late"))
        return SEMEL_E_STALE;
    if (sm_str_is(word, "none"))
        return SEMEL_E_NOT_FOUND;
    if (sm_str_is(word, "cap"))
        return SEMEL_E_OVER_CAP;
    if (sm_str_is(word, "other"))
        return sm_fault_set(fault, SEMEL_E_CORRUPT,
                            "two keys have one id; give one of the calls another scope or step");
    if (sm_str_is(word, "barred")) {
        semel_err e = take_barring(x, reply, now, room, cur, fault);
        *again = e == SEMEL_E_NOT_FOUND;
        return e;
    }
    sm_str group = sm_rd_text(sm_rd_element(reply, 3));
    if (sm_str_is(word, "group") && group.n == sizeof x->before.b) {
        memcpy(x->before.b, group.p, group.n);
        *again = true;
        return SEMEL_E_NOT_FOUND;
    }
    return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "the Redis server gave an unexpected answer");
}

/* Sends it, if the ledger is still the one that was opened. A server that was replaced under way,
 * before it was asked about this shard, is looked at once more. */
static semel_err send_write(writing *x, int64_t deadline_ns, semel_fault *fault)
{
    semel_store *st = x->st;
    uint8_t shard = x->w->next.shard;
    bool first = atomic_load(&st->seen[shard].last) == 0;
    unsigned long long greetings = atomic_load(&st->greetings);
    bool evidence = x->w->evidence;
    semel_err e = evidence ? SEMEL_OK : sm_rd_trust(st, shard, deadline_ns, fault);
    if (e != SEMEL_OK)
        return e;
    sm_rd_batch_clear(&x->batch);
    x->batch.evidence = evidence;
    put_write(x);
    e = sm_rd_run(&x->batch, deadline_ns, fault);
    if (e == SEMEL_OK && first && !evidence && atomic_load(&st->greetings) != greetings)
        e = sm_rd_trust(st, shard, deadline_ns, fault);
    if (e == SEMEL_OK && !evidence) {
        sm_rd_seen(st, shard, sm_rd_element(sm_rd_reply(&x->batch, 0), 2));
        sm_rd_trust_note_soon(st);
    }
    return e;
}

static semel_err write_record(writing *x, semel_room *room, semel_record *cur, int64_t *now,
                              bool *inserted, semel_fault *fault)
{
    const semel_write *w = x->w;
    int64_t deadline_ns = sm_rd_deadline(x->st);
    semel_event event = w->event;
    semel_record next = w->next;
    *inserted = false;
    *now = 0;
    memset(cur, 0, sizeof *cur);
    next.version = x->version;
    event.id = next.id;
    event.generation = next.generation;
    event.shard = next.shard;
    sm_buf_init(&x->tail, SM_RD_BATCH_MAX);
    sm_buf_init(&x->event, SM_RD_BATCH_MAX);
    sm_rd_batch_init(&x->batch, x->st);
    sm_rd_record_pack(&next, x->version, x->head, &x->tail);
    sm_rd_event_pack(&event, &x->event);
    semel_err e = sm_record_copy(&next, room, &x->written);
    if (e == SEMEL_OK && (x->tail.err != SM_OK || x->event.err != SM_OK))
        e = SEMEL_E_NOMEM;
    bool again = e == SEMEL_OK;
    for (unsigned tries = 0; again && tries < BARRED_MAX; tries++) {
        again = false;
        e = send_write(x, deadline_ns, fault);
        if (e != SEMEL_OK)
            break;
        x->unsure = x->unsure || x->batch.asks[0].unsure;
        const redisReply *reply = sm_rd_reply(&x->batch, 0);
        *now = sm_rd_number(sm_rd_element(reply, 1));
        e = judge(x, reply, room, cur, *now, inserted, &again, fault);
    }
    if (again && x->real)
        e = sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                         "the effects of this tool and scope come and go too fast; try again");
    else if (again)
        e = sm_fault_set(fault, SEMEL_E_CORRUPT,
                         "the barrier of a group names an effect that is not there");
    sm_rd_batch_fini(&x->batch);
    sm_buf_fini(&x->event);
    sm_buf_fini(&x->tail);
    return e;
}

semel_err sm_rd_claim(semel_store *st, const semel_write *fresh, semel_room *room,
                      semel_record *cur, int64_t *now, bool *inserted, semel_fault *fault)
{
    writing x = {.st = st, .w = fresh, .claim = true, .version = 1};
    return write_record(&x, room, cur, now, inserted, fault);
}

semel_err sm_rd_apply(semel_store *st, const semel_write *w, semel_room *room, semel_record *cur,
                      int64_t *now, semel_fault *fault)
{
    bool next = w->next.generation != w->expect_generation, did;
    writing x = {
        .st = st, .w = w, .next_generation = next, .version = next ? 1 : w->expect_version + 1};
    return write_record(&x, room, cur, now, &did, fault);
}

semel_err sm_rd_counter(semel_store *st, uint8_t shard, semel_str name, int64_t *value,
                        semel_fault *fault)
{
    sm_rd_batch b;
    sm_rd_batch_init(&b, st);
    sm_rd_command(&b, shard, "GET");
    sm_rd_key_name(&b, shard, "c:", name);
    semel_err e = sm_rd_run(&b, sm_rd_deadline(st), fault);
    *value = e == SEMEL_OK ? sm_rd_number(sm_rd_reply(&b, 0)) : 0;
    sm_rd_batch_fini(&b);
    return e;
}
