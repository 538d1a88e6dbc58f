/*
 * Reading: by name, by what records are, and by what is due.
 *
 * A record, its arguments and its outcome are read by one MGET, so they belong together. The newest
 * generation is under the id alone; when the next one begins, the older one is renamed. So who
 * looks for an older one looks there first, and does not find it gone in between.
 *
 * Lists come from sets that are sorted by birth. Each shard gives its next few members; they are
 * merged, and only as far as no shard can have something in between. A query is one such round: it
 * may give less than there is, and says so by its cursor, the birth of the last one it looked at.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/digest.h"
#include "core/glob.h"
#include "core/handle.h"
#include "store/redis/redis.h"

#define ROUND_ONE 256u /* members of a round, if one shard is asked */
#define ROUND_ALL 64u  /* ... from each of all shards */
#define PAGE      16u  /* records that are read at once */
#define DUE_MAX   1000u
#define GROUP_MAX 100000u

/* ---- by name ---------------------------------------------------------------------------------*/

static semel_err id_of(const semel_hash *key, uint64_t *id)
{
    sm_digest d;
    semel_err e = sm_digest_init(&d);
    if (e == SEMEL_OK)
        e = sm_effect_id(&d, key, id);
    sm_digest_fini(&d);
    return e;
}

static void put_mget(sm_rd_batch *b, unsigned shard, uint64_t id, uint64_t generation)
{
    sm_rd_command(b, shard, "MGET");
    sm_rd_key_id(b, shard, "r:", id, generation);
    sm_rd_key_id(b, shard, "a:", id, generation);
    sm_rd_key_id(b, shard, "o:", id, generation);
}

/* Reads three answers of one MGET. NOT_FOUND if there is no record. Texts are borrowed. */
static semel_err record_of(const redisReply *mget, semel_record *out, char birth[SM_RD_BIRTH],
                           semel_fault *fault)
{
    sm_str bytes = sm_rd_text(sm_rd_element(mget, 0));
    if (bytes.p == NULL)
        return SEMEL_E_NOT_FOUND;
    semel_err e = sm_rd_record_unpack(bytes, out, birth, fault);
    out->args = sm_rd_text(sm_rd_element(mget, 1));
    out->outcome = sm_rd_text(sm_rd_element(mget, 2));
    return e;
}

semel_err sm_rd_find(semel_store *st, const semel_ref *ref, uint64_t *id, uint8_t *shard,
                     int64_t deadline_ns, semel_fault *fault)
{
    *id = ref->id;
    if (ref->key != NULL && id_of(ref->key, id) != SEMEL_OK)
        return sm_fault_set(fault, SEMEL_E_CRYPTO, "the cryptographic library failed");
    if (ref->sharded) {
        *shard = ref->shard;
        return SEMEL_OK;
    }
    sm_rd_batch b;
    sm_rd_batch_init(&b, st);
    uint8_t hint;
    bool hinted = sm_rd_hinted(st, *id, &hint), found = false;
    semel_err e = SEMEL_OK;
    for (unsigned pass = hinted ? 0 : 1; pass < 2 && e == SEMEL_OK && !found; pass++) {
        unsigned first = pass == 0 ? hint : 0, last = pass == 0 ? hint : SM_RD_SHARDS - 1;
        sm_rd_batch_clear(&b);
        for (unsigned s = first; s <= last; s++) {
            sm_rd_command(&b, s, "EXISTS");
            sm_rd_key_id(&b, s, "r:", *id, 0);
            sm_rd_command(&b, s, "EXISTS"); /* what is left of one that is gone */
            sm_rd_key_id(&b, s, "h:", *id, 0);
            sm_rd_command(&b, s, "EXISTS");
            sm_rd_key_id(&b, s, "v:", *id, 0);
        }
        e = sm_rd_run(&b, deadline_ns, fault);
        for (size_t i = 0; e == SEMEL_OK && i < b.n && !found; i++) {
            found = sm_rd_number(sm_rd_reply(&b, i)) > 0;
            *shard = (uint8_t)(first + i / 3);
        }
    }
    sm_rd_batch_fini(&b);
    return e != SEMEL_OK ? e : found ? SEMEL_OK : SEMEL_E_NOT_FOUND;
}

/* The time, from any server of the ledger. */
static semel_err ask_time(semel_store *st, int64_t *now, int64_t deadline_ns, semel_fault *fault)
{
    sm_rd_batch b;
    sm_rd_batch_init(&b, st);
    sm_rd_command(&b, SM_RD_GLOBAL, "TIME");
    semel_err e = sm_rd_run(&b, deadline_ns, fault);
    if (e == SEMEL_OK)
        sm_rd_time(sm_rd_reply(&b, 0), now);
    sm_rd_batch_fini(&b);
    return e;
}

semel_err sm_rd_get(semel_store *st, const semel_ref *ref, semel_room *room, semel_record *cur,
                    int64_t *now, semel_fault *fault)
{
    int64_t deadline_ns = sm_rd_deadline(st);
    uint64_t id;
    uint8_t shard;
    *now = 0;
    memset(cur, 0, sizeof *cur);
    semel_err e = sm_rd_find(st, ref, &id, &shard, deadline_ns, fault);
    if (e == SEMEL_E_NOT_FOUND) {
        semel_err asked = ask_time(st, now, deadline_ns, fault);
        return asked != SEMEL_OK ? asked : e;
    }
    if (e != SEMEL_OK)
        return e;
    sm_rd_batch b;
    sm_rd_batch_init(&b, st);
    uint64_t generation = ref->key != NULL ? 0 : ref->generation;
    for (unsigned look = 0; look < 2; look++) {
        semel_record r;
        char birth[SM_RD_BIRTH];
        sm_rd_batch_clear(&b);
        put_mget(&b, shard, id, look == 0 ? 0 : generation);
        sm_rd_command(&b, shard, "TIME");
        e = sm_rd_run(&b, deadline_ns, fault);
        if (e != SEMEL_OK)
            break;
        sm_rd_time(sm_rd_reply(&b, 1), now);
        e = record_of(sm_rd_reply(&b, 0), &r, birth, fault);
        if (e == SEMEL_OK && generation != 0 && r.generation != generation)
            e = SEMEL_E_NOT_FOUND;
        if (e == SEMEL_OK && ref->key != NULL && memcmp(&r.key, ref->key, sizeof r.key) != 0)
            e = sm_fault_set(fault, SEMEL_E_CORRUPT,
                             "two keys have one id; give one of the calls another scope or step");
        if (e == SEMEL_OK)
            e = sm_record_copy(&r, room, cur);
        if (e != SEMEL_E_NOT_FOUND || generation == 0)
            break;
    }
    if (e == SEMEL_OK)
        sm_rd_hint(st, id, shard);
    sm_rd_batch_fini(&b);
    return e;
}

/* ---- records of members ----------------------------------------------------------------------*/

typedef struct found {
    sm_rd_member m;
    uint8_t shard;
    double score;
} found;

/* Records on their way to a sink. */
typedef struct giving {
    semel_store *st;
    const semel_filter *filter; /* NULL: all */
    semel_record_sink *sink;
    void *context;
    size_t left; /* how many more may be given */
    bool stop;
    int64_t deadline_ns;
} giving;

static bool in_scope(semel_str prefix, semel_str scope)
{
    return prefix.n == 0 || (scope.n >= prefix.n && memcmp(scope.p, prefix.p, prefix.n) == 0 &&
                             (scope.n == prefix.n || scope.p[prefix.n] == '/'));
}

static bool wanted(const semel_filter *f, const semel_record *r)
{
    return f == NULL || ((f->states == 0 || (f->states >> r->state & 1u) != 0) &&
                         (f->since == 0 || r->created_at >= f->since) &&
                         (f->until == 0 || r->created_at < f->until) &&
                         (f->group == NULL || memcmp(f->group, &r->group, sizeof r->group) == 0) &&
                         (f->scope.p == NULL || in_scope(f->scope, r->scope)) &&
                         (f->tool.p == NULL || sm_glob_matches(f->tool, r->tool)));
}

/* Asks for the record of a member under both of its names: it may be renamed at any time. */
static void put_both(sm_rd_batch *b, const found *f, bool payloads)
{
    static const char *const kinds[] = {"r:", "a:", "o:"};
    sm_rd_command(b, f->shard, "MGET");
    for (unsigned i = 0; i < (payloads ? 3u : 1u); i++) {
        sm_rd_key_id(b, f->shard, kinds[i], f->m.id, 0);
        sm_rd_key_id(b, f->shard, kinds[i], f->m.id, f->m.generation);
    }
}

/* The one of the two that is the member's. NOT_FOUND if it is gone. */
static semel_err take_one(const redisReply *reply, const found *f, semel_record *r,
                          semel_fault *fault)
{
    for (unsigned older = 0; older < 2; older++) {
        char birth[SM_RD_BIRTH];
        sm_str bytes = sm_rd_text(sm_rd_element(reply, older));
        if (bytes.p == NULL)
            continue;
        semel_err e = sm_rd_record_unpack(bytes, r, birth, fault);
        if (e != SEMEL_OK)
            return e;
        if (memcmp(birth, f->m.birth, sizeof birth) != 0)
            continue;
        r->args = sm_rd_text(sm_rd_element(reply, 2 + older));
        r->outcome = sm_rd_text(sm_rd_element(reply, 4 + older));
        return SEMEL_OK;
    }
    return SEMEL_E_NOT_FOUND;
}

/* Which of a page of members pass the filter; payloads are read for those only. */
static semel_err sift(giving *g, const found *page, size_t n, size_t at[PAGE], size_t *k,
                      semel_fault *fault)
{
    sm_rd_batch b;
    sm_rd_batch_init(&b, g->st);
    for (size_t i = 0; i < n; i++)
        put_both(&b, &page[i], false);
    semel_err e = sm_rd_run(&b, g->deadline_ns, fault);
    *k = 0;
    for (size_t i = 0; e == SEMEL_OK && i < n; i++) {
        semel_record r;
        semel_err read = take_one(sm_rd_reply(&b, i), &page[i], &r, fault);
        if (read == SEMEL_OK && wanted(g->filter, &r))
            at[(*k)++] = i;
        else if (read != SEMEL_OK && read != SEMEL_E_NOT_FOUND)
            e = read;
    }
    sm_rd_batch_fini(&b);
    return e;
}

/* Reads a page of members and gives those that are wanted. *seen is how many were looked at. */
static semel_err give(giving *g, const found *page, size_t n, size_t *seen, semel_fault *fault)
{
    sm_rd_batch b;
    size_t at[PAGE], k = 0;
    int64_t now = 0;
    *seen = 0;
    sm_rd_batch_init(&b, g->st);
    semel_err e = sift(g, page, n, at, &k, fault);
    for (size_t i = 0; i < k; i++)
        put_both(&b, &page[at[i]], true);
    if (e == SEMEL_OK && k > 0) {
        sm_rd_command(&b, page[0].shard, "TIME");
        e = sm_rd_run(&b, g->deadline_ns, fault);
        if (e == SEMEL_OK)
            sm_rd_time(sm_rd_reply(&b, k), &now);
    }
    for (size_t i = 0; e == SEMEL_OK && i < k && !g->stop && g->left > 0; i++) {
        semel_record r;
        semel_err read = take_one(sm_rd_reply(&b, i), &page[at[i]], &r, fault);
        *seen = at[i] + 1;
        if (read != SEMEL_OK && read != SEMEL_E_NOT_FOUND)
            e = read;
        /* It may have changed since it was looked at. */
        if (read != SEMEL_OK || !wanted(g->filter, &r))
            continue;
        g->left--;
        g->stop = !g->sink(g->context, &r, now);
    }
    if (e == SEMEL_OK && !g->stop && g->left > 0)
        *seen = n;
    sm_rd_batch_fini(&b);
    return e;
}

static semel_err give_all(giving *g, const found *all, size_t n, size_t *seen, semel_fault *fault)
{
    semel_err e = SEMEL_OK;
    *seen = 0;
    while (e == SEMEL_OK && *seen < n && !g->stop && g->left > 0) {
        size_t page = n - *seen < PAGE ? n - *seen : PAGE, looked = 0;
        e = give(g, all + *seen, page, &looked, fault);
        *seen += looked;
    }
    return e;
}

/* ---- queries ---------------------------------------------------------------------------------*/

/* Where a query looks: in which shards, in which sets. */
typedef struct plan {
    unsigned first, last; /* shards */
    bool group;           /* the set of the group */
    uint32_t states;      /* else the sets of these states; 0: all records */
    size_t round;
} plan;

#define UNSETTLED                                                                                  \
    (1u << SEMEL_S_NONE | 1u << SEMEL_S_PENDING | 1u << SEMEL_S_READY | 1u << SEMEL_S_RUNNING |    \
     1u << SEMEL_S_IN_DOUBT)

static semel_err plan_of(const semel_filter *f, plan *p)
{
    uint32_t barring = 1u << SEMEL_S_RUNNING | 1u << SEMEL_S_IN_DOUBT;
    static const semel_hash none;
    *p = (plan){.last = SM_RD_SHARDS - 1, .round = ROUND_ALL};
    p->group = f->group != NULL && f->states != 0 && (f->states & ~barring) == 0 &&
               memcmp(f->group, &none, sizeof none) != 0;
    p->states = (f->states & ~UNSETTLED) == 0 ? f->states : 0;
    if (f->scope.n == 0)
        return SEMEL_OK;
    sm_digest d;
    uint8_t shard = 0;
    semel_err e = sm_digest_init(&d);
    if (e == SEMEL_OK)
        e = sm_scope_shard(&d, f->scope, &shard);
    sm_digest_fini(&d);
    p->first = p->last = shard;
    p->round = ROUND_ONE;
    return e;
}

static void put_round(sm_rd_batch *b, const plan *p, const semel_filter *f, uint64_t cursor)
{
    for (unsigned shard = p->first; shard <= p->last; shard++) {
        if (p->group) {
            sm_rd_command(b, shard, "ZRANGE");
            sm_rd_key_name(b, shard, "g:", (sm_str){(const char *)f->group->b, sizeof f->group->b});
            sm_rd_arg_int(b, 0);
            sm_rd_arg_int(b, GROUP_MAX);
            continue;
        }
        for (unsigned state = 0; state < SEMEL_S_COUNT; state++) {
            if (p->states == 0 ? state > 0 : (p->states >> state & 1u) == 0)
                continue;
            sm_rd_command(b, shard, "ZREVRANGEBYLEX");
            sm_rd_key(b, shard, p->states == 0 ? "all" : "open");
            char mark[2] = {p->states == 0 ? '\0' : (char)('0' + state), '\0'};
            if (cursor == 0)
                sm_rd_argf(b, "(%sg", mark); /* behind every digit */
            else
                sm_rd_argf(b, "(%s%016llx", mark, (unsigned long long)cursor);
            sm_rd_argf(b, "[%s", mark[0] == '\0' ? "0" : mark);
            sm_rd_arg_text(b, "LIMIT");
            sm_rd_arg_int(b, 0);
            sm_rd_arg_int(b, (int64_t)p->round);
        }
    }
}

static int newest_first(const void *a, const void *b)
{
    return memcmp(((const found *)b)->m.birth, ((const found *)a)->m.birth, SM_RD_BIRTH);
}

/* The members of all answers, newest first, as far as none can be missing in between; *more: there
 * are others behind them. */
static semel_err merge(const sm_rd_batch *b, const plan *p, uint64_t cursor, found **out, size_t *n,
                       bool *more, semel_fault *fault)
{
    size_t total = 0, per_shard = b->n / (p->last - p->first + 1);
    char limit[SM_RD_BIRTH] = {0};
    *more = false;
    *n = 0;
    for (size_t i = 0; i < b->n; i++)
        total += sm_rd_elements(sm_rd_reply(b, i));
    found *all = *out = calloc(total + 1, sizeof *all);
    if (all == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    for (size_t i = 0; i < b->n; i++) {
        const redisReply *r = sm_rd_reply(b, i);
        size_t count = sm_rd_elements(r);
        for (size_t k = 0; k < count; k++) {
            sm_str text = sm_rd_text(sm_rd_element(r, k));
            size_t skip = p->states != 0 && !p->group && text.n > 0 ? 1 : 0;
            found *f = &all[*n];
            bool good = true;
            if (!sm_rd_member_read((sm_str){text.p + skip, text.n - skip}, &f->m))
                return sm_fault_set(fault, SEMEL_E_CORRUPT, "a list of the ledger is damaged");
            f->shard = (uint8_t)(p->first + i / per_shard);
            *n += cursor == 0 || sm_rd_hex(f->m.birth, SM_RD_BIRTH, &good) < cursor;
            if (k == p->round - 1 && !p->group && memcmp(f->m.birth, limit, sizeof limit) > 0)
                memcpy(limit, f->m.birth, sizeof limit);
        }
        *more = *more || (!p->group && count == p->round);
    }
    qsort(all, *n, sizeof *all, newest_first);
    while (*more && *n > 0 && memcmp(all[*n - 1].m.birth, limit, sizeof limit) < 0)
        --*n;
    return SEMEL_OK;
}

/* What was born so long before that it cannot have been created since. */
static size_t cut_off(const semel_filter *f, const found *all, size_t n)
{
    bool good = true;
    int64_t least = f->since - 2 * SEMEL_CLOCK_SLACK_MS;
    while (f->since > 0 && n > 0 &&
           (int64_t)(sm_rd_hex(all[n - 1].m.birth, SM_RD_STAMP, &good) / 1000) < least)
        n--;
    return n;
}

semel_err sm_rd_query(semel_store *st, const semel_filter *filter, uint64_t *cursor, size_t limit,
                      semel_record_sink *sink, void *context, semel_fault *fault)
{
    plan p;
    sm_rd_batch b;
    found *all = NULL;
    size_t n = 0, seen = 0;
    bool more = false, good = true;
    giving g = {.st = st,
                .filter = filter,
                .sink = sink,
                .context = context,
                .left = limit,
                .deadline_ns = sm_rd_deadline(st)};
    sm_rd_batch_init(&b, st);
    semel_err e = plan_of(filter, &p);
    if (e != SEMEL_OK) {
        sm_fault_set(fault, e, "the cryptographic library failed");
        goto cleanup;
    }
    put_round(&b, &p, filter, *cursor);
    e = sm_rd_run(&b, g.deadline_ns, fault);
    if (e == SEMEL_OK)
        e = merge(&b, &p, *cursor, &all, &n, &more, fault);
    if (e != SEMEL_OK)
        goto cleanup;
    sm_rd_batch_clear(&b);
    size_t young = cut_off(filter, all, n);
    e = give_all(&g, all, young, &seen, fault);
    if (e != SEMEL_OK)
        goto cleanup;
    if (seen == young && (young < n || !more))
        *cursor = 0;
    else if (seen > 0)
        *cursor = sm_rd_hex(all[seen - 1].m.birth, SM_RD_BIRTH, &good);

cleanup:
    free(all);
    sm_rd_batch_fini(&b);
    return e;
}

/* ---- due -------------------------------------------------------------------------------------*/

static int longest_first(const void *a, const void *b)
{
    double x = ((const found *)a)->score, y = ((const found *)b)->score;
    return (x > y) - (x < y);
}

semel_err sm_rd_due(semel_store *st, size_t limit, semel_record_sink *sink, void *context,
                    semel_fault *fault)
{
    sm_rd_batch b;
    found *all = NULL;
    size_t n = 0, total = 0, seen;
    int64_t now;
    giving g = {.st = st,
                .sink = sink,
                .context = context,
                .left = limit < DUE_MAX ? limit : DUE_MAX,
                .deadline_ns = sm_rd_deadline(st)};
    sm_rd_batch_init(&b, st);
    semel_err e = ask_time(st, &now, g.deadline_ns, fault);
    for (unsigned shard = 0; shard < SM_RD_SHARDS; shard++) {
        sm_rd_command(&b, shard, "ZRANGEBYSCORE");
        sm_rd_key(&b, shard, "due");
        sm_rd_arg_text(&b, "-inf");
        sm_rd_arg_int(&b, now);
        sm_rd_arg_text(&b, "WITHSCORES");
        sm_rd_arg_text(&b, "LIMIT");
        sm_rd_arg_int(&b, 0);
        sm_rd_arg_int(&b, (int64_t)g.left);
    }
    if (e == SEMEL_OK)
        e = sm_rd_run(&b, g.deadline_ns, fault);
    if (e != SEMEL_OK)
        goto cleanup;
    for (size_t i = 0; i < b.n; i++)
        total += sm_rd_elements(sm_rd_reply(&b, i)) / 2;
    all = calloc(total + 1, sizeof *all);
    if (all == NULL) {
        e = sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
        goto cleanup;
    }
    for (size_t i = 0; i < b.n; i++) {
        const redisReply *r = sm_rd_reply(&b, i);
        for (size_t k = 0; k + 1 < sm_rd_elements(r); k += 2) {
            if (!sm_rd_member_read(sm_rd_text(sm_rd_element(r, k)), &all[n].m))
                continue;
            all[n].score = strtod(sm_rd_text(sm_rd_element(r, k + 1)).p, NULL);
            all[n++].shard = (uint8_t)i;
        }
    }
    qsort(all, n, sizeof *all, longest_first);
    e = give_all(&g, all, n, &seen, fault);

cleanup:
    free(all);
    sm_rd_batch_fini(&b);
    return e;
}
