/*
 * Whether the sets that lead to records agree with the records: by age, by state, and by the group
 * that they bar. Each look is one script, so that writes meanwhile do not disturb it. And whether
 * keys are what they should be, and stay.
 */
#include <stdio.h>
#include <stdlib.h>

#include "store/redis/redis.h"

#define CHECK_PAGE 100u

/* ---- keys that stay --------------------------------------------------------------------------*/

/* A kind of key, and the type of its values. */
typedef struct key_kind {
    const char *name, *type;
} key_kind;

#define KINDS(list) (list), sizeof(list) / sizeof *(list)

static void put_looks(sm_rd_batch *b, unsigned shard, const key_kind *kind, uint64_t id)
{
    static const char *const looks[] = {"PTTL", "TYPE"};
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        sm_rd_command(b, shard, looks[i]);
        if (id == 0)
            sm_rd_key(b, shard, kind->name);
        else
            sm_rd_key_id(b, shard, kind->name, id, 0);
    }
}

/* Runs a batch of such looks, at keys of these kinds in turn. None may have a time to live: only
 * arguments and outcomes may leave by themselves, for the record has their hashes. */
static semel_err check_keys(sm_rd_batch *b, const key_kind *kinds, size_t n, semel_fault *fault)
{
    semel_err e = sm_rd_run(b, sm_rd_deadline(b->st), fault);
    for (size_t i = 0; e == SEMEL_OK && i < b->n / 2; i++) {
        const key_kind *kind = &kinds[i % n];
        sm_str type = sm_rd_text(sm_rd_reply(b, 2 * i + 1));
        if (sm_rd_number(sm_rd_reply(b, 2 * i)) >= 0)
            e = sm_fault_set(fault, SEMEL_E_CORRUPT,
                             "a key of the ledger has a time to live: the server will remove part "
                             "of the history. Find it with PTTL, and use PERSIST on it");
        else if (!sm_str_is(type, "none") && !sm_str_is(type, kind->type))
            e = sm_fault_set(fault, SEMEL_E_CORRUPT,
                             "a key \"%s\" of the ledger has the type %.*s, not %s; was the ledger "
                             "changed by something else?",
                             kind->name, SM_FMT(type), kind->type);
    }
    return e;
}

/* The keys that the whole ledger has one of. */
static semel_err check_whole(semel_store *st, semel_fault *fault)
{
    static const key_kind kinds[] = {{"meta", "string"},  {"seq", "string"},  {"log", "zset"},
                                     {"epoch", "string"}, {"sealed", "zset"}, {"seals", "hash"}};
    sm_rd_batch b;
    sm_rd_batch_init(&b, st);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        put_looks(&b, SM_RD_GLOBAL, &kinds[i], 0);
    semel_err e = check_keys(&b, KINDS(kinds), fault);
    sm_rd_batch_fini(&b);
    return e;
}

/* Those that each shard has one of. */
static semel_err check_shards(semel_store *st, semel_fault *fault)
{
    static const key_kind kinds[] = {
        {"tick", "string"}, {"log", "list"}, {"due", "zset"}, {"gone", "zset"}};
    sm_rd_batch b;
    sm_rd_batch_init(&b, st);
    for (unsigned shard = 0; shard < SM_RD_SHARDS; shard++) {
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            put_looks(&b, shard, &kinds[i], 0);
    }
    semel_err e = check_keys(&b, KINDS(kinds), fault);
    sm_rd_batch_clear(&b);
    for (unsigned shard = 0; shard < SM_RD_SHARDS; shard++) {
        sm_rd_command(&b, shard, "GET");
        sm_rd_key(&b, shard, "tick");
    }
    if (e == SEMEL_OK)
        e = sm_rd_run(&b, sm_rd_deadline(st), fault);
    for (unsigned shard = 0; e == SEMEL_OK && shard < SM_RD_SHARDS; shard++) {
        if (!sm_rd_tick_sound(sm_rd_reply(&b, shard)))
            e = sm_fault_set(
                fault, SEMEL_E_CORRUPT,
                "shard %02x: \"tick\" does not hold two stamps; was the ledger changed "
                "by something else?",
                shard);
    }
    sm_rd_batch_fini(&b);
    return e;
}

static bool no_more(void *context, const semel_note *note)
{
    (void)context;
    (void)note;
    return false;
}

/* Of each record on a page: its events, the list of its older generations, and its notes, which lie
 * in the shard that its id names. */
static semel_err check_histories(semel_store *st, unsigned shard, const redisReply *page,
                                 semel_fault *fault)
{
    enum { EVENTS, GENERATIONS, NOTES, N_KINDS };
    static const key_kind kinds[N_KINDS] = {
        [EVENTS] = {"h:", "hash"}, [GENERATIONS] = {"v:", "zset"}, [NOTES] = {"n:", "zset"}};
    sm_rd_batch b;
    sm_rd_member m;
    sm_rd_batch_init(&b, st);
    for (size_t i = 0; i < sm_rd_elements(page); i++) {
        if (!sm_rd_member_read(sm_rd_text(sm_rd_element(page, i)), &m))
            continue; /* check_page has told */
        for (size_t k = 0; k < N_KINDS; k++)
            put_looks(&b, k == NOTES ? m.id & 0xFF : shard, &kinds[k], m.id);
    }
    semel_err e = check_keys(&b, KINDS(kinds), fault);
    /* Few records have notes: those that do are read. */
    for (size_t i = 0, at = NOTES; e == SEMEL_OK && i < sm_rd_elements(page); i++) {
        if (!sm_rd_member_read(sm_rd_text(sm_rd_element(page, i)), &m))
            continue;
        if (!sm_str_is(sm_rd_text(sm_rd_reply(&b, 2 * at + 1)), "none"))
            e = sm_rd_notes(st, m.id, 0, SIZE_MAX, no_more, NULL, fault);
        at += N_KINDS;
    }
    sm_rd_batch_fini(&b);
    return e;
}

/* ---- sets ------------------------------------------------------------------------------------*/

/* One page of a set: whether each member has its record, and the record its place. */
static semel_err check_page(semel_store *st, unsigned shard, const char *set,
                            const redisReply *page, int64_t deadline_ns, semel_fault *fault)
{
    sm_rd_batch b;
    size_t n = sm_rd_elements(page), skip = strcmp(set, "open") == 0;
    sm_rd_batch_init(&b, st);
    sm_rd_call(&b, shard, SM_RD_CHECK, (unsigned)(3 + 2 * n));
    sm_rd_key(&b, shard, "all");
    sm_rd_key(&b, shard, "open");
    sm_rd_key(&b, shard, "gone");
    bool good = true;
    for (size_t i = 0; i < n; i++) {
        sm_str text = sm_rd_text(sm_rd_element(page, i));
        sm_rd_member m = {0};
        good =
            good && text.n > skip && sm_rd_member_read((sm_str){text.p + skip, text.n - skip}, &m);
        sm_rd_key_id(&b, shard, "r:", m.id, 0); /* two of the records */
        sm_rd_key_id(&b, shard, "r:", m.id, m.generation);
    }
    sm_rd_arg_text(&b, set);
    for (size_t i = 0; i < n; i++) /* members */
        sm_rd_arg(&b, sm_rd_text(sm_rd_element(page, i)));
    semel_err e = good ? sm_rd_run(&b, deadline_ns, fault) : SEMEL_OK;
    sm_str wrong = e == SEMEL_OK && good ? sm_rd_text(sm_rd_reply(&b, 0)) : (sm_str){0};
    if (!good || wrong.p != NULL)
        e = sm_fault_set(fault, SEMEL_E_CORRUPT,
                         "shard %02x: the list \"%s\" and the records do not agree (%.*s); was "
                         "the ledger changed by something else, or restored in part?",
                         shard, set, SM_FMT(wrong));
    sm_rd_batch_fini(&b);
    return e;
}

static semel_err check_set(semel_store *st, unsigned shard, const char *set, semel_fault *fault)
{
    sm_rd_batch b;
    char from[80] = "-";
    semel_err e = SEMEL_OK;
    size_t n = CHECK_PAGE;
    sm_rd_batch_init(&b, st);
    while (e == SEMEL_OK && n == CHECK_PAGE) {
        int64_t deadline_ns = sm_rd_deadline(st);
        sm_rd_batch_clear(&b);
        sm_rd_command(&b, shard, "ZRANGEBYLEX");
        sm_rd_key(&b, shard, set);
        sm_rd_arg_text(&b, from);
        sm_rd_arg_text(&b, "+");
        sm_rd_arg_text(&b, "LIMIT");
        sm_rd_arg_int(&b, 0);
        sm_rd_arg_int(&b, CHECK_PAGE);
        e = sm_rd_run(&b, deadline_ns, fault);
        n = e == SEMEL_OK ? sm_rd_elements(sm_rd_reply(&b, 0)) : 0;
        if (n == 0)
            break;
        sm_str last = sm_rd_text(sm_rd_element(sm_rd_reply(&b, 0), n - 1));
        snprintf(from, sizeof from, "(%.*s", SM_FMT(last));
        e = check_page(st, shard, set, sm_rd_reply(&b, 0), deadline_ns, fault);
        if (e == SEMEL_OK && strcmp(set, "all") == 0)
            e = check_histories(st, shard, sm_rd_reply(&b, 0), fault);
    }
    sm_rd_batch_fini(&b);
    return e;
}

/* ---- groups ----------------------------------------------------------------------------------*/

/* Asks a node for some of its groups' keys; *cursor is what to ask for next. */
static semel_err find_groups(semel_store *st, sm_rd_batch *b, unsigned node, char cursor[24],
                             semel_fault *fault)
{
    char pattern[2 * SM_RD_PREFIX_MAX + 16];
    size_t n = 0;
    for (size_t i = 0; i < st->config.prefix.n; i++) {
        if (strchr("*?[]\\^-", st->config.prefix.p[i]) != NULL)
            pattern[n++] = '\\';
        pattern[n++] = st->config.prefix.p[i];
    }
    snprintf(pattern + n, sizeof pattern - n, "{??}g:*");
    sm_rd_batch_clear(b);
    sm_rd_command_at(b, node, "SCAN");
    sm_rd_arg_text(b, cursor);
    sm_rd_arg_text(b, "MATCH");
    sm_rd_arg_text(b, pattern);
    sm_rd_arg_text(b, "COUNT");
    sm_rd_arg_int(b, 1000);
    semel_err e = sm_rd_run(b, sm_rd_deadline(st), fault);
    if (e == SEMEL_OK) {
        sm_str next = sm_rd_text(sm_rd_element(sm_rd_reply(b, 0), 0));
        snprintf(cursor, 24, "%.*s", SM_FMT(next));
    }
    return e;
}

static semel_err check_group(semel_store *st, sm_str key, semel_fault *fault)
{
    sm_rd_batch b;
    bool good = key.n > st->config.prefix.n + 3;
    unsigned shard =
        good ? (unsigned)sm_rd_hex(key.p + st->config.prefix.n + 1, 2, &good) : SM_RD_SHARDS;
    sm_rd_batch_init(&b, st);
    sm_rd_call(&b, good ? shard : 0, SM_RD_GROUP, 1);
    if (b.n > 0)
        b.asks[0].tolerant = true;
    sm_rd_arg(&b, key); /* set */
    semel_err e = sm_rd_run(&b, sm_rd_deadline(st), fault);
    if (e == SEMEL_OK && (!good || sm_rd_reply(&b, 0)->type != REDIS_REPLY_NIL))
        e = sm_fault_set(fault, SEMEL_E_CORRUPT,
                         "shard %02x: a list of what bars a group does not agree with the records; "
                         "was the ledger changed by something else, or restored in part?",
                         shard & 0xFF);
    sm_rd_batch_fini(&b);
    return e;
}

static semel_err check_groups(semel_store *st, semel_fault *fault)
{
    unsigned nodes[SM_RD_NODES_MAX], n = sm_rd_masters(st, nodes);
    sm_rd_batch b;
    semel_err e = SEMEL_OK;
    sm_rd_batch_init(&b, st);
    for (unsigned i = 0; i < n && e == SEMEL_OK; i++) {
        char cursor[24] = "0";
        do {
            e = find_groups(st, &b, nodes[i], cursor, fault);
            const redisReply *keys = e == SEMEL_OK ? sm_rd_element(sm_rd_reply(&b, 0), 1) : NULL;
            for (size_t k = 0; k < sm_rd_elements(keys) && e == SEMEL_OK; k++)
                e = check_group(st, sm_rd_text(sm_rd_element(keys, k)), fault);
        } while (e == SEMEL_OK && strcmp(cursor, "0") != 0);
    }
    sm_rd_batch_fini(&b);
    return e;
}

semel_err sm_rd_check(semel_store *st, semel_fault *fault)
{
    semel_err e = check_whole(st, fault);
    if (e == SEMEL_OK)
        e = check_shards(st, fault);
    for (unsigned shard = 0; e == SEMEL_OK && shard < SM_RD_SHARDS; shard++) {
        e = check_set(st, shard, "open", fault);
        if (e == SEMEL_OK)
            e = check_set(st, shard, "all", fault);
    }
    return e == SEMEL_OK ? check_groups(st, fault) : e;
}
