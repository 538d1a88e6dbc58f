/*
 * What the servers promise, and whether the ledger is sound.
 *
 * A Redis server acknowledges writes that a crash may lose, unless it is set up not to: an
 * append-only file that is synced before every answer, and no eviction. What a server's settings
 * are is asked when the store is opened, of every master of a cluster, and told in plain words.
 * What may not be asked counts as not durable (I3).
 */
#include <stdio.h>
#include <stdlib.h>

#include "store/redis.h"

#define CHECK_PAGE 100u

/* ---- durability ------------------------------------------------------------------------------*/

enum { APPENDONLY, APPENDFSYNC, POLICY, PERSISTENCE, SERVER, MEMORY, QUESTIONS };

static void put_questions(sm_rd_batch *b, unsigned node)
{
    static const char *const asked[QUESTIONS][3] = {
        {"CONFIG", "GET", "appendonly"},
        {"CONFIG", "GET", "appendfsync"},
        {"CONFIG", "GET", "maxmemory-policy"},
        {"INFO", "persistence", NULL},
        {"INFO", "server", NULL},
        {"INFO", "memory", NULL},
    };
    for (size_t i = 0; i < QUESTIONS; i++) {
        sm_rd_command_at(b, node, asked[i][0]);
        for (size_t k = 1; k < 3 && asked[i][k] != NULL; k++)
            sm_rd_arg_text(b, asked[i][k]);
        if (b->n > 0)
            b->asks[b->n - 1].tolerant = true;
    }
}

/* The value of a line "name:value" of INFO, or absent. */
static sm_str info_value(const redisReply *info, const char *name)
{
    sm_str text = sm_rd_text(info);
    size_t n = strlen(name);
    const char *p = text.p;
    while (p != NULL && (p = strstr(p, name)) != NULL) {
        if ((p == text.p || p[-1] == '\n') && p[n] == ':')
            return (sm_str){p + n + 1, strcspn(p + n + 1, "\r\n")};
        p += n;
    }
    return (sm_str){0};
}

static sm_str setting(const redisReply *config)
{
    return sm_rd_text(sm_rd_element(config, 1));
}

/* What one server's settings mean. */
static void say_what_may_be_lost(redisReply *const *replies, sm_buf *out)
{
    sm_str aof = setting(replies[APPENDONLY]), sync = setting(replies[APPENDFSYNC]);
    sm_str policy = setting(replies[POLICY]);
    sm_str status = info_value(replies[PERSISTENCE], "aof_last_write_status");
    if (aof.p == NULL || sync.p == NULL || policy.p == NULL) {
        sm_buf_text(out, "what a crash of the server may lose is not known: the ledger's user may "
                         "not read its settings (CONFIG GET); ");
        return;
    }
    if (!sm_str_is(aof, "yes"))
        sm_buf_text(out, "without an append-only file a restart of the server loses what was "
                         "written since its last snapshot, or everything; ");
    else if (sm_str_is(sync, "everysec"))
        sm_buf_text(out, "a crash of the server may lose about the last second: appendfsync is "
                         "everysec; ");
    else if (!sm_str_is(sync, "always"))
        sm_buf_printf(out,
                      "a crash of the server's machine may lose the last half minute or more: "
                      "appendfsync is %.*s; ",
                      SM_FMT(sync));
    if (sm_str_is(aof, "yes") && status.p != NULL && !sm_str_is(status, "ok"))
        sm_buf_text(out, "the server's last write to its append-only file failed; ");
    if (!sm_str_is(policy, "noeviction"))
        sm_buf_printf(out, "maxmemory-policy is %.*s: a full server may evict effects; ",
                      SM_FMT(policy));
}

semel_err sm_rd_durability(semel_store *st, char *out, size_t n, char *version, size_t version_n,
                           uint64_t *bytes, int64_t deadline_ns, semel_fault *fault)
{
    unsigned masters[SM_RD_NODES_MAX], count = sm_rd_masters(st, masters);
    sm_rd_batch b;
    sm_buf said;
    *bytes = 0;
    out[0] = version[0] = '\0';
    sm_rd_batch_init(&b, st);
    sm_buf_init(&said, 4096);
    for (unsigned i = 0; i < count; i++)
        put_questions(&b, masters[i]);
    semel_err e = sm_rd_run(&b, deadline_ns, fault);
    for (unsigned i = 0; e == SEMEL_OK && i < count; i++) {
        redisReply *replies[QUESTIONS];
        for (size_t k = 0; k < QUESTIONS; k++)
            replies[k] = b.asks[i * QUESTIONS + k].reply;
        if (said.len == 0) /* of several servers that are not well set up, the first */
            say_what_may_be_lost(replies, &said);
        sm_str used = info_value(replies[MEMORY], "used_memory");
        *bytes += used.p == NULL ? 0 : strtoull(used.p, NULL, 10);
        sm_str is = info_value(replies[SERVER], "redis_version");
        if (i == 0)
            snprintf(version, version_n, "Redis%s%.*s", is.p == NULL ? "" : " ", SM_FMT(is));
    }
    size_t len = strlen(version);
    if (e == SEMEL_OK && st->cluster)
        snprintf(version + len, version_n - len, ", cluster of %u", count);
    if (e == SEMEL_OK && said.len > 2)
        snprintf(out, n, "%.*s", (int)said.len - 2, said.p); /* without the last "; " */
    sm_buf_fini(&said);
    sm_rd_batch_fini(&b);
    return e;
}

/* ---- health ----------------------------------------------------------------------------------*/

static semel_err count_records(semel_store *st, semel_health *out, int64_t deadline_ns,
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
        out->records += (uint64_t)sm_rd_number(sm_rd_reply(&sizes, 2 * shard));
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

/* ---- soundness -------------------------------------------------------------------------------*/

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
        sm_rd_key_id(&b, shard, "r:", m.id, 0);
        sm_rd_key_id(&b, shard, "r:", m.id, m.generation);
    }
    sm_rd_arg_text(&b, set);
    for (size_t i = 0; i < n; i++)
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
    }
    sm_rd_batch_fini(&b);
    return e;
}

semel_err sm_rd_health(semel_store *st, bool thorough, semel_health *out, semel_fault *fault)
{
    int64_t deadline_ns = sm_rd_deadline(st);
    const sm_rd_config *c = &st->config;
    memset(out, 0, sizeof *out);
    out->schema = SM_RD_SCHEMA;
    if (c->port == 0)
        snprintf(out->where, sizeof out->where, "redis %s, prefix %.*s", c->host,
                 SM_FMT(c->prefix));
    else
        snprintf(out->where, sizeof out->where, "redis://%s:%d/%d, prefix %.*s", c->host, c->port,
                 c->db, SM_FMT(c->prefix));
    semel_err e = sm_rd_durability(st, out->durability, sizeof out->durability, out->server,
                                   sizeof out->server, &out->bytes, deadline_ns, fault);
    if (e == SEMEL_OK)
        e = sm_rd_collate(st, &out->last_seq, deadline_ns, fault);
    if (e == SEMEL_OK)
        e = count_records(st, out, deadline_ns, fault);
    if (e == SEMEL_OK)
        e = look_at_log(st, out, deadline_ns, fault);
    for (unsigned shard = 0; thorough && e == SEMEL_OK && shard < SM_RD_SHARDS; shard++) {
        e = check_set(st, shard, "open", fault);
        if (e == SEMEL_OK)
            e = check_set(st, shard, "all", fault);
    }
    return e;
}
