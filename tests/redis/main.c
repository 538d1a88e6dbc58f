/*
 * The Redis store with a real server, beyond what every store must do.
 *
 * SEMEL_STORE_URL names a plain server and SEMEL_CLUSTER_URL any node of a cluster (redis://host:
 * port, without a user). Without one of them the tests that need it skip themselves. The tests
 * change the plain server's settings for a moment and put them back; nobody else should use it
 * meanwhile.
 */
#include "server.h"

#include <unistd.h>

#include "store/redis/redis.h"
#include "store/stores.h"

place the_server;
bool there_is_a_server;
static unsigned opened;

bool place_of(const char *variable, place *out)
{
    const char *url = getenv(variable);
    sm_arena a;
    sm_rd_config c;
    sm_arena_init(&a, 1 << 20);
    bool good = url != NULL && sm_rd_config_read(&a, sm_str_from(url), &c, NULL) == SM_OK;
    if (good) {
        snprintf(out->host, sizeof out->host, "%s", c.places[0].host);
        out->port = c.places[0].port;
    }
    sm_arena_fini(&a);
    return good;
}

void url_with(char out[512], const place *p, const char *options)
{
    snprintf(out, 512, "redis://%s:%d?prefix=x%ld-%u:%s%s", p->host, p->port, (long)getpid(),
             opened, options[0] == '\0' ? "" : "&", options);
}

int ledger_name(void **state)
{
    ledger *l = calloc(1, sizeof *l);
    if (l == NULL)
        return -1;
    l->ops = &sm_store_redis;
    opened++;
    url_with(l->url, &the_server, "");
    desk_init(&l->desk);
    *state = l;
    return 0;
}

redisContext *call_server(const place *p)
{
    redisContext *c = redisConnect(p->host, p->port);
    assert_true(c != NULL && c->err == 0);
    return c;
}

redisReply *ask_server(redisContext *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    redisReply *r = redisvCommand(c, format, args);
    va_end(args);
    expect(r != NULL, "the server is gone");
    expect(r->type != REDIS_REPLY_ERROR, "%s: %s", format, r->str);
    return r;
}

void tell_server(redisContext *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    redisReply *r = redisvCommand(c, format, args);
    va_end(args);
    expect(r != NULL, "the server is gone");
    expect(r->type != REDIS_REPLY_ERROR, "%s: %s", format, r->str);
    freeReplyObject(r);
}

int main(void)
{
    int failed = 0;
    char state[] = "/tmp/semel-redis-XXXXXX", command[64];
    if (mkdtemp(state) == NULL || setenv("XDG_STATE_HOME", state, 1) != 0)
        return 70; /* tests remove notes, and those of the person who tests must stay */
    there_is_a_server = place_of("SEMEL_STORE_URL", &the_server);
    failed += plain_tests();
    failed += between_tests();
    failed += finding_tests();
    failed += loss_tests();
    there_is_a_server = place_of("SEMEL_CLUSTER_URL", &the_server);
    failed += cluster_tests();
    failed += cluster_finding_tests();
    failed += cluster_loss_tests();
    snprintf(command, sizeof command, "rm -rf %s", state);
    return system(command) == 0 ? failed : 70;
}
