/*
 * What a server's settings promise.
 *
 * A Redis server acknowledges writes that a crash may lose, unless it is set up not to: it needs an
 * append-only file that is synced before every answer, no eviction, and no replicas. Replicas get
 * every write a moment later, so a failover loses what was acknowledged last.
 *
 * Every master is asked for its settings when the store is opened. Each server is asked again on
 * every new connection, and before a question if the last answer is more than a second old:
 * somebody may change the settings, or another server may take over. A setting that the user may
 * not read counts as not durable (I3).
 */
#include <stdio.h>
#include <stdlib.h>

#include "store/redis/redis.h"

enum { APPENDONLY, APPENDFSYNC, NO_SYNC, POLICY, PERSISTENCE, REPLICATION, SERVER, QUESTIONS };
_Static_assert(QUESTIONS == SM_RD_SETTINGS, "each has an answer");

static const char *const asked[SM_RD_SETTINGS][3] = {
    [APPENDONLY] = {"CONFIG", "GET", "appendonly"},
    [APPENDFSYNC] = {"CONFIG", "GET", "appendfsync"},
    [NO_SYNC] = {"CONFIG", "GET", "no-appendfsync-on-rewrite"},
    [POLICY] = {"CONFIG", "GET", "maxmemory-policy"},
    [PERSISTENCE] = {"INFO", "persistence"},
    [REPLICATION] = {"INFO", "replication"},
    [SERVER] = {"INFO", "server"},
};

static unsigned words_of(unsigned question)
{
    return asked[question][2] == NULL ? 2 : 3;
}

void sm_rd_settings_put(sm_buf *out)
{
    for (unsigned i = 0; i < SM_RD_SETTINGS; i++) {
        sm_buf_printf(out, "*%u\r\n", words_of(i));
        for (unsigned k = 0; k < words_of(i); k++)
            sm_buf_printf(out, "$%zu\r\n%s\r\n", strlen(asked[i][k]), asked[i][k]);
    }
}

static void put_questions(sm_rd_batch *b, unsigned node)
{
    for (unsigned i = 0; i < SM_RD_SETTINGS; i++) {
        sm_rd_command_at(b, node, asked[i][0]);
        for (unsigned k = 1; k < words_of(i); k++)
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

/* Whether a replica is connected that could take over. A copy for a backup has no port. */
static bool has_replicas(const redisReply *info)
{
    sm_str count = info_value(info, "connected_slaves");
    long n = count.p == NULL ? 0 : atol(count.p);
    for (long i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "slave%ld", i);
        sm_str line = info_value(info, name);
        const char *port = line.p == NULL ? NULL : memmem(line.p, line.n, ",port=", 6);
        if (line.p == NULL)
            break;
        if (port == NULL || atoi(port + 6) != 0)
            return true;
    }
    return false;
}

/* What one server's settings mean. */
static void say_what_may_be_lost(redisReply *const *replies, sm_buf *out)
{
    sm_str aof = setting(replies[APPENDONLY]), sync = setting(replies[APPENDFSYNC]);
    sm_str policy = setting(replies[POLICY]), no_sync = setting(replies[NO_SYNC]);
    sm_str role = info_value(replies[REPLICATION], "connected_slaves");
    sm_str status = info_value(replies[PERSISTENCE], "aof_last_write_status");
    if (aof.p == NULL || sync.p == NULL || policy.p == NULL || no_sync.p == NULL ||
        role.p == NULL) {
        sm_buf_text(out, "what a crash of the server may lose is not known: the ledger's user may "
                         "not read its settings (CONFIG GET, INFO); ");
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
    else if (!sm_str_is(no_sync, "no"))
        sm_buf_text(out, "a crash of the server's machine while it rewrites its append-only file "
                         "may lose what was written meanwhile: no-appendfsync-on-rewrite is yes; ");
    if (sm_str_is(aof, "yes") && status.p != NULL && !sm_str_is(status, "ok"))
        sm_buf_text(out, "the server's last write to its append-only file failed; ");
    if (!sm_str_is(policy, "noeviction"))
        sm_buf_printf(out, "maxmemory-policy is %.*s: a full server may evict effects; ",
                      SM_FMT(policy));
    if (has_replicas(replies[REPLICATION]))
        sm_buf_text(out, "the server has replicas, which get every write a moment later: a "
                         "failover may lose what was acknowledged last; ");
}

sm_rd_talk sm_rd_settings_judge(semel_store *st, redisReply *const *replies, const char *name,
                                semel_fault *fault)
{
    if (!st->durable)
        return SM_RD_FINE;
    sm_buf said;
    sm_buf_init(&said, 4096);
    say_what_may_be_lost(replies, &said);
    sm_rd_talk talk = said.len == 0 && said.err == SM_OK ? SM_RD_FINE : SM_RD_REFUSED;
    if (talk != SM_RD_FINE)
        sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                     "the Redis server at %s promises less than when the ledger was opened: %.*s. "
                     "Set it up as it was, or open the ledger anew",
                     name, said.len > 2 ? (int)said.len - 2 : 0, said.p);
    sm_buf_fini(&said);
    return talk;
}

unsigned sm_rd_settings_major(redisReply *const *replies)
{
    sm_str version = info_value(replies[SERVER], "redis_version");
    return version.p == NULL ? 0 : (unsigned)strtoul(version.p, NULL, 10);
}

semel_err sm_rd_durability(semel_store *st, char *out, size_t n, char *version, size_t version_n,
                           int64_t deadline_ns, semel_fault *fault)
{
    unsigned masters[SM_RD_NODES_MAX], count = sm_rd_masters(st, masters);
    sm_rd_batch b;
    sm_buf said;
    out[0] = version[0] = '\0';
    sm_rd_batch_init(&b, st);
    sm_buf_init(&said, 4096);
    for (unsigned i = 0; i < count; i++)
        put_questions(&b, masters[i]);
    semel_err e = sm_rd_run(&b, deadline_ns, fault);
    for (unsigned i = 0; e == SEMEL_OK && i < count; i++) {
        redisReply *replies[SM_RD_SETTINGS];
        for (size_t k = 0; k < SM_RD_SETTINGS; k++)
            replies[k] = b.asks[i * SM_RD_SETTINGS + k].reply;
        if (said.len == 0) /* of several servers that are not well set up, the first */
            say_what_may_be_lost(replies, &said);
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
