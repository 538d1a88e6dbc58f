/* The keys of a database: each is remembered as the server dumps it, and restored. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/redis/redis.h"
#include "tamper.h"

typedef struct bytes {
    char *p;
    size_t n;
} bytes;

typedef struct kept {
    bytes key, dump;
    long long ttl_ms;
    char type;
} kept;

/* One or two commands, each with up to five words. */
typedef struct command {
    bytes words[2][5];
    int count[2];
} command;

static redisContext *db;
static char host[128];
static int port;
static kept *all;
static size_t n_all;

static bytes copy_of(const char *p, size_t n)
{
    bytes b = {malloc(n + 1), n};
    must(b.p != NULL, "out of memory");
    memcpy(b.p, p, n);
    b.p[n] = '\0';
    return b;
}

static bytes word(const char *text)
{
    return copy_of(text, strlen(text));
}

static redisReply *ask(const bytes *words, int n)
{
    const char *argv[8];
    size_t lengths[8];
    for (int i = 0; i < n; i++) {
        argv[i] = words[i].p;
        lengths[i] = words[i].n;
    }
    redisReply *r = redisCommandArgv(db, n, argv, lengths);
    must(r != NULL, "the server is gone");
    return r;
}

static redisReply *ask_key(const char *name, bytes key, const char *a, const char *b)
{
    bytes words[4] = {word(name), key};
    int n = 2;
    if (a != NULL)
        words[n++] = word(a);
    if (b != NULL)
        words[n++] = word(b);
    return ask(words, n);
}

/* ---- changes ---------------------------------------------------------------------------------*/

static void put_shown(sm_buf *out, bytes b)
{
    for (size_t i = 0; i < b.n && i < 60; i++) {
        if (b.p[i] > ' ' && b.p[i] < 127)
            sm_buf_byte(out, b.p[i]);
        else
            sm_buf_printf(out, "\\x%02x", (unsigned char)b.p[i]);
    }
}

static void add(surface *out, int n, const bytes *first, int m, const bytes *second)
{
    command *c = calloc(1, sizeof *c);
    sm_buf what;
    sm_buf_init(&what, 1 << 20);
    must(c != NULL, "out of memory");
    c->count[0] = n;
    c->count[1] = m;
    for (int i = 0; i < n + m; i++) {
        bytes w = i < n ? first[i] : second[i - n];
        c->words[i >= n][i < n ? i : i - n] = w;
        if (i > 0)
            sm_buf_text(&what, i == n ? "; " : " ");
        put_shown(&what, w);
    }
    surface_add(out, print_new("%.*s", (int)what.len, what.p), c);
    sm_buf_fini(&what);
}

#define ADD(out, ...)                                                                              \
    add(out, (int)(sizeof((bytes[]){__VA_ARGS__}) / sizeof(bytes)), (bytes[]){__VA_ARGS__}, 0, NULL)

static bytes flipped(bytes b, unsigned part)
{
    bytes f = copy_of(b.p, b.n);
    if (b.n == 0)
        return word("x");
    f.p[(b.n - 1) * part / 7] ^= 1;
    return f;
}

static bytes longer(bytes b)
{
    bytes f = copy_of(b.p, b.n + 1);
    f.p[b.n] = 'x';
    return f;
}

static bytes text_in(const redisReply *r, size_t i)
{
    return copy_of(r->element[i]->str, r->element[i]->len);
}

/* Of two keys, whether they are of the same sort: what comes before their own names is the same. */
static bool alike(const kept *a, const kept *b)
{
    const char *x = strchr(a->key.p, '}'), *y = strchr(b->key.p, '}');
    return x != NULL && y != NULL && a->type == b->type && strncmp(x, y, 3) == 0;
}

static const kept *next_alike(size_t i)
{
    for (size_t k = 1; k < n_all; k++) {
        if (alike(&all[i], &all[(i + k) % n_all]))
            return &all[(i + k) % n_all];
    }
    return NULL;
}

static void list_string(surface *out, const kept *k, const kept *other)
{
    redisReply *r = ask_key("GET", k->key, NULL, NULL);
    bytes value = copy_of(r->str, r->len);
    freeReplyObject(r);
    for (unsigned part = 0; part < 8; part++)
        ADD(out, word("SET"), k->key, flipped(value, part), word("KEEPTTL"));
    ADD(out, word("SET"), k->key, word(""), word("KEEPTTL"));
    ADD(out, word("SET"), k->key, longer(value), word("KEEPTTL"));
    if (value.n > 1)
        ADD(out, word("SET"), k->key, copy_of(value.p, value.n - 1), word("KEEPTTL"));
    if (other == NULL)
        return;
    r = ask_key("GET", other->key, NULL, NULL);
    bytes theirs = copy_of(r->str, r->len);
    freeReplyObject(r);
    bytes set[] = {word("SET"), k->key, theirs, word("KEEPTTL")},
          back[] = {word("SET"), other->key, value, word("KEEPTTL")};
    ADD(out, set[0], set[1], set[2], set[3]);
    add(out, 4, set, 4, back);
}

static void list_hash(surface *out, const kept *k, const kept *other)
{
    redisReply *r = ask_key("HGETALL", k->key, NULL, NULL);
    for (size_t i = 0; i + 1 < r->elements; i += 2) {
        bytes field = text_in(r, i), value = text_in(r, i + 1);
        ADD(out, word("HDEL"), k->key, field);
        for (unsigned part = 0; part < 8; part++)
            ADD(out, word("HSET"), k->key, field, flipped(value, part));
        ADD(out, word("HSET"), k->key, field, word(""));
        ADD(out, word("HSET"), k->key, flipped(field, 7), value);
        if (other != NULL)
            ADD(out, word("HSET"), other->key, field, value);
        if (i + 3 < r->elements) {
            bytes first[] = {word("HSET"), k->key, field, text_in(r, i + 3)},
                  second[] = {word("HSET"), k->key, text_in(r, i + 2), value};
            add(out, 4, first, 4, second);
        }
    }
    freeReplyObject(r);
}

static void list_set(surface *out, const kept *k, const kept *other)
{
    redisReply *r = ask_key("ZRANGE", k->key, "0", "-1");
    for (size_t i = 0; i < r->elements; i++) {
        bytes member = text_in(r, i);
        ADD(out, word("ZREM"), k->key, member);
        ADD(out, word("ZINCRBY"), k->key, word("1"), member);
        ADD(out, word("ZINCRBY"), k->key, word("-1"), member);
        ADD(out, word("ZADD"), k->key, word("32503680000000"), member);
        ADD(out, word("ZADD"), k->key, word("0"), member);
        ADD(out, word("ZADD"), k->key, word("1"), flipped(member, 0));
        ADD(out, word("ZADD"), k->key, word("1"), flipped(member, 4));
        ADD(out, word("ZADD"), k->key, word("1"), flipped(member, 7));
        ADD(out, word("ZADD"), k->key, word("0"), longer(member));
        ADD(out, word("ZADD"), k->key, word("1"), word(""));
        bytes gone[] = {word("ZREM"), k->key, member},
              put[] = {word("ZADD"), k->key, word("1"), flipped(member, 5)};
        add(out, 3, gone, 4, put);
        if (other != NULL)
            ADD(out, word("ZADD"), other->key, word("0"), member);
    }
    freeReplyObject(r);
}

static void list_list(surface *out, const kept *k)
{
    redisReply *r = ask_key("LRANGE", k->key, "0", "-1");
    for (size_t i = 0; i < r->elements; i++) {
        bytes entry = text_in(r, i);
        ADD(out, word("LREM"), k->key, word("1"), entry);
        ADD(out, word("RPUSH"), k->key, flipped(entry, 3));
        ADD(out, word("RPUSH"), k->key, entry);
    }
    freeReplyObject(r);
}

static void list_key(surface *out, size_t i)
{
    const kept *k = &all[i], *other = next_alike(i);
    ADD(out, word("DEL"), k->key);
    ADD(out, word("COPY"), k->key, flipped(k->key, 7), word("REPLACE"));
    if (other != NULL)
        ADD(out, word("COPY"), other->key, k->key, word("REPLACE"));
    ADD(out, word("RENAME"), k->key, longer(k->key));
    bytes wrong[] = {word("DEL"), k->key}, type[] = {word("SADD"), k->key, word("x")};
    add(out, 2, wrong, 3, type);
    switch (k->type) {
    case 's': list_string(out, k, other); break;
    case 'h': list_hash(out, k, other); break;
    case 'z': list_set(out, k, other); break;
    case 'l': list_list(out, k); break;
    default: must(false, "a kind of key that is new: %s", k->key.p);
    }
}

/* ---- the database ----------------------------------------------------------------------------*/

static void reconnect(void)
{
    db = redisConnect(host, port);
    must(db != NULL && db->err == 0, "no server");
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const kept *)a)->key.p, ((const kept *)b)->key.p);
}

static void remember(void)
{
    bytes words[] = {word("KEYS"), word("*")};
    redisReply *keys = ask(words, 2);
    n_all = keys->elements;
    all = calloc(n_all, sizeof *all);
    must(all != NULL && n_all > 0, "there are no keys");
    for (size_t i = 0; i < n_all; i++) {
        kept *k = &all[i];
        k->key = text_in(keys, i);
        redisReply *r = ask_key("DUMP", k->key, NULL, NULL);
        k->dump = copy_of(r->str, r->len);
        freeReplyObject(r);
        r = ask_key("PEXPIRETIME", k->key, NULL, NULL);
        k->ttl_ms = r->type == REDIS_REPLY_INTEGER && r->integer > 0 ? r->integer : 0;
        freeReplyObject(r);
        r = ask_key("TYPE", k->key, NULL, NULL);
        k->type = r->str[0];
        freeReplyObject(r);
    }
    freeReplyObject(keys);
    qsort(all, n_all, sizeof *all, by_key);
}

static bool ends_in(const kept *k, const char *tail)
{
    size_t n = strlen(tail);
    return k->key.n >= n && memcmp(k->key.p + k->key.n - n, tail, n) == 0;
}

static void start(surface *out, const char *url)
{
    sm_arena a;
    sm_rd_config c;
    sm_arena_init(&a, 1 << 20);
    must(sm_rd_config_read(&a, sm_str_from(url), &c, NULL) == SM_OK, "%s", url);
    snprintf(host, sizeof host, "%s", c.places[0].host);
    port = c.places[0].port;
    sm_arena_fini(&a);
    reconnect();
    remember();
    for (size_t i = 0; i < n_all; i++) {
        bool global = strstr(all[i].key.p, "{semel}") != NULL;
        out->of = (global && all[i].type == 's') || ends_in(&all[i], "}tick") ? OF_META : 0;
        list_key(out, i);
    }
    out->of = 0;
    redisFree(db);
    db = NULL;
}

static void restore(bool noted)
{
    (void)noted; /* a server that may lose data has no notes */
    if (db == NULL)
        reconnect();
    int asked = 1;
    redisAppendCommand(db, "FLUSHDB");
    for (size_t i = 0; i < n_all; i++, asked++)
        redisAppendCommand(db, "RESTORE %b %lld %b ABSTTL", all[i].key.p, all[i].key.n,
                           all[i].ttl_ms, all[i].dump.p, all[i].dump.n);
    for (; asked > 0; asked--) {
        redisReply *r = NULL;
        must(redisGetReply(db, (void **)&r) == REDIS_OK && r->type != REDIS_REPLY_ERROR,
             "a key cannot be put back");
        freeReplyObject(r);
    }
}

static bool change(surface *s, const tampering *one)
{
    (void)s;
    const command *c = one->detail;
    for (int i = 0; i < 2 && c->count[i] > 0; i++) {
        redisReply *r = ask(c->words[i], c->count[i]);
        bool good = r->type != REDIS_REPLY_ERROR;
        freeReplyObject(r);
        if (!good)
            return false;
    }
    return true;
}

const store_kind tamper_redis = {"redis", false, start, change, restore};
