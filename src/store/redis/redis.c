/*
 * The Redis store: many machines, one ledger in the memory of a server or of a cluster.
 *
 * Opening it finds out what it talks to: whether it is a cluster, whether the prefix is a ledger of
 * ours, and what the server's settings promise. The only thing that it makes is the key that says
 * which version of the schema this is.
 *
 * Its parts and the names of its keys are in redis.h. There is no cache: what a process remembers,
 * another may have changed.
 */
#include "store/redis/redis.h"

#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>

#include "store/stores.h"

#define MARK "semel ledger "

/* Whether a node belongs to a cluster, as far as it may be asked. */
static semel_err find_cluster(semel_store *st, unsigned node, bool *is, bool *known,
                              int64_t deadline_ns, semel_fault *fault)
{
    sm_rd_batch b;
    sm_rd_batch_init(&b, st);
    sm_rd_command_at(&b, node, "INFO");
    sm_rd_arg_text(&b, "cluster");
    sm_rd_command_at(&b, node, "CLUSTER");
    sm_rd_arg_text(&b, "INFO");
    for (size_t i = 0; i < b.n; i++)
        b.asks[i].tolerant = true;
    semel_err e = sm_rd_run(&b, deadline_ns, fault);
    if (e == SEMEL_OK) {
        sm_str info = sm_rd_text(sm_rd_reply(&b, 0)), cluster = sm_rd_text(sm_rd_reply(&b, 1));
        *known = info.p != NULL || cluster.p != NULL;
        *is = info.p != NULL ? strstr(info.p, "cluster_enabled:1") != NULL : cluster.p != NULL;
    }
    sm_rd_batch_fini(&b);
    return e;
}

/* Finds out what the servers are that the URL names, and which of them to talk to. */
static semel_err meet(semel_store *st, int64_t deadline_ns, semel_fault *fault)
{
    const sm_rd_config *c = &st->config;
    unsigned n = atomic_load(&st->map.n);
    bool is = false, known = false;
    semel_err e = SEMEL_E_UNAVAILABLE;
    /* Until it is known, no server is asked whether it is the master: in a cluster it says who is.
     */
    st->cluster = true;
    for (unsigned i = 0; i < n && e != SEMEL_OK; i++) {
        int64_t now = sm_clock_mono_ns(), part = i + 1 < n ? 2 : 1;
        e = find_cluster(st, i, &is, &known, now + (deadline_ns - now) / part, fault);
    }
    if (e != SEMEL_OK)
        return e;
    if (known && c->cluster != SM_RD_FIND_OUT && is != (c->cluster == SM_RD_CLUSTER))
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the Redis server %s a cluster; take cluster=%s out of the ledger's "
                            "URL",
                            is ? "belongs to" : "does not belong to", is ? "no" : "yes");
    st->cluster = c->cluster == SM_RD_FIND_OUT ? is : c->cluster == SM_RD_CLUSTER;
    /* Connections that were opened before that was known may lead to a replica. */
    for (unsigned i = 0; i < n && !st->cluster; i++)
        sm_rd_forget_idle(sm_rd_node_at(st, i));
    return sm_rd_map_learn(st, deadline_ns, fault);
}

static void put_get_mark(sm_rd_batch *b)
{
    sm_rd_command(b, SM_RD_GLOBAL, "GET");
    sm_rd_key(b, SM_RD_GLOBAL, "meta");
    if (b->n > 0)
        b->asks[b->n - 1].tolerant = true;
}

/* Looks for the ledger under the prefix, and makes it if that is allowed. */
static semel_err find_ledger(semel_store *st, bool must_exist, int64_t deadline_ns,
                             semel_fault *fault)
{
    sm_rd_batch b;
    char mine[SM_RD_NAME], where[256];
    sm_rd_config_where(&st->config, where, sizeof where);
    /* What was made anew under the same prefix is another ledger. */
    snprintf(mine, sizeof mine, MARK "%u %016llx", SM_RD_SCHEMA, (unsigned long long)st->tag);
    sm_rd_batch_init(&b, st);
    put_get_mark(&b);
    semel_err e = sm_rd_run(&b, deadline_ns, fault);
    /* A ledger that is there is not written to: a server without memory can be read. */
    if (e == SEMEL_OK && !must_exist && sm_rd_reply(&b, 0)->type == REDIS_REPLY_NIL) {
        sm_rd_batch_clear(&b);
        sm_rd_command(&b, SM_RD_GLOBAL, "SETNX");
        sm_rd_key(&b, SM_RD_GLOBAL, "meta");
        sm_rd_arg_text(&b, mine);
        put_get_mark(&b);
        e = sm_rd_run(&b, deadline_ns, fault);
    }
    if (e == SEMEL_OK) {
        const redisReply *r = sm_rd_reply(&b, b.n - 1);
        sm_str there = sm_rd_text(r);
        size_t n = strlen(MARK);
        long version = there.n > n && there.n < SM_RD_NAME && memcmp(there.p, MARK, n) == 0
                           ? atol(there.p + n)
                           : 0;
        if (r->type == REDIS_REPLY_ERROR && strncmp(r->str, "WRONGTYPE", 9) != 0)
            e = sm_rd_explain((sm_str){r->str, r->len}, fault);
        else if (r->type == REDIS_REPLY_NIL)
            e = sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                             "there is no ledger with the prefix %.*s in %s; if that is the right "
                             "place, `semel store migrate` makes one",
                             SM_FMT(st->config.prefix), where);
        else if (version < 1)
            e = sm_fault_set(
                fault, SEMEL_E_BAD_ARGUMENTS,
                "what has the prefix %.*s in %s is not a ledger; choose another prefix",
                SM_FMT(st->config.prefix), where);
        else if (version > (long)SM_RD_SCHEMA)
            e = sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                             "the ledger was made by a newer version of Semel (schema %ld)",
                             version);
        else if (version < (long)SM_RD_SCHEMA)
            e = sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                             "the ledger was made by an older version of Semel (schema %ld), whose "
                             "audit trail covers less: start a new one under another prefix",
                             version);
        else
            snprintf(st->name, sizeof st->name, "%s", there.p);
    }
    sm_rd_batch_fini(&b);
    return e;
}

/* The scripts use what came with 6.2. An older server would refuse in the middle of one. */
static semel_err check_version(const char *version, semel_fault *fault)
{
    unsigned major = 0, minor = 0;
    if (sscanf(version, "Redis %u.%u", &major, &minor) != 2 || major > 6 ||
        (major == 6 && minor >= 2))
        return SEMEL_OK;
    return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                        "the ledger needs Redis 6.2 or newer; this is %s", version);
}

static void redis_close(semel_store *st)
{
    if (st == NULL)
        return;
    sm_rd_trust_note(st);
    sm_rd_ear_fini(st);
    sm_rd_map_fini(st);
    sm_bell_fini(&st->bell);
    if (st->config.password.p != NULL)
        explicit_bzero((char *)(uintptr_t)st->config.password.p, st->config.password.n);
    sm_arena_fini(&st->arena);
    free(st);
}

/* All that needs no server. */
static semel_err prepare(semel_store *st, semel_fault *fault)
{
    if (sm_rd_map_init(st) != SEMEL_OK)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    for (unsigned i = 0; i < SM_RD_SHARDS; i++) {
        char tag[8];
        int n = snprintf(tag, sizeof tag, "{%02x}", i);
        st->slots[i] = sm_rd_slot((sm_str){tag, (size_t)n});
    }
    st->slots[SM_RD_GLOBAL] = sm_rd_slot(SM_STR("{semel}"));
    atomic_store(&st->serial, (uint64_t)sm_clock_ms() << 20);
    if (RAND_bytes((unsigned char *)&st->tag, sizeof st->tag) != 1 ||
        sm_rd_script_names(st->scripts) != SEMEL_OK)
        return sm_fault_set(fault, SEMEL_E_CRYPTO, "the cryptographic library failed");
    return SEMEL_OK;
}

/* Whatever is wrong, there is no ledger to use. The fault keeps the code of a mistake, so that
 * callers can tell that trying again does not help. */
static semel_err unopened(semel_err e)
{
    return e == SEMEL_E_BAD_ARGUMENTS || e == SEMEL_E_LIMIT ? SEMEL_E_UNAVAILABLE : e;
}

static semel_err redis_open(semel_str url, const semel_store_env *env, semel_store **out,
                            uint32_t *caps, semel_fault *fault)
{
    *out = NULL;
    semel_store *st = calloc(1, sizeof *st);
    if (st == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    char lost[512], version[128];
    sm_arena_init(&st->arena, 1 << 20);
    sm_bell_init(&st->bell);
    sm_rd_ear_init(st);
    semel_err e = sm_rd_config_read(&st->arena, url, &st->config, fault);
    if (e == SEMEL_OK)
        e = prepare(st, fault);
    else
        pthread_mutex_init(&st->map.lock, NULL);
    int64_t deadline_ns = sm_rd_deadline(st);
    if (e == SEMEL_OK)
        e = meet(st, deadline_ns, fault);
    if (e == SEMEL_OK)
        e = sm_rd_durability(st, lost, sizeof lost, version, sizeof version, deadline_ns, fault);
    if (e == SEMEL_OK)
        e = check_version(version, fault);
    if (e == SEMEL_OK)
        e = find_ledger(st, env->must_exist, deadline_ns, fault);
    st->durable = e == SEMEL_OK && lost[0] == '\0';
    if (e == SEMEL_OK)
        e = sm_rd_trust_start(st, deadline_ns, fault);
    if (e != SEMEL_OK) {
        redis_close(st);
        return unopened(e);
    }
    *caps = SEMEL_STORE_SHARED | SEMEL_STORE_CLOCK;
    if (sm_rd_may_wake(st, deadline_ns))
        *caps |= SEMEL_STORE_NOTIFY;
    if (st->durable)
        *caps |= SEMEL_STORE_DURABLE;
    else if (!st->config.accept_loss)
        *caps |= SEMEL_STORE_LOSSY;
    st->opened = true;
    *out = st;
    return SEMEL_OK;
}

static semel_err rediss_open(semel_str url, const semel_store_env *env, semel_store **out,
                             uint32_t *caps, semel_fault *fault)
{
    (void)url;
    (void)env;
    *out = NULL;
    *caps = 0;
    return unopened(
        sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                     "rediss:// is not supported: this build's Redis client has no TLS. Run a "
                     "TLS tunnel such as stunnel beside it, and use redis:// to the tunnel"));
}

static void rediss_close(semel_store *st)
{
    (void)st; /* there never is one */
}

const semel_store_ops sm_store_redis = {
    .size = sizeof(semel_store_ops),
    .version = SEMEL_STORE_VERSION,
    .scheme = "redis",
    .open = redis_open,
    .close = redis_close,
    .claim = sm_rd_claim,
    .apply = sm_rd_apply,
    .get = sm_rd_get,
    .query = sm_rd_query,
    .events = sm_rd_events,
    .due = sm_rd_due,
    .wait = sm_rd_wait,
    .journal = sm_rd_journal,
    .notes = sm_rd_notes,
    .seal = sm_rd_seal,
    .purge = sm_rd_purge,
    .counter = sm_rd_counter,
    .health = sm_rd_health,
    .try_write = sm_rd_try_write,
};

const semel_store_ops sm_store_rediss = {
    .size = sizeof(semel_store_ops),
    .version = SEMEL_STORE_VERSION,
    .scheme = "rediss",
    .open = rediss_open,
    .close = rediss_close,
};
