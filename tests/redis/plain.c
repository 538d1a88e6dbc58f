/* One plain server: lost answers, lost scripts, settings, expiry, and a server in trouble. */
#include "server.h"

#include "store/redis/redis.h"
#include "store/stores.h"

/* ---- ledgers ---------------------------------------------------------------------------------*/

static int setup(void **state)
{
    return there_is_a_server ? ledger_setup(state) : 0;
}

static int teardown(void **state)
{
    return there_is_a_server ? ledger_teardown(state) : 0;
}

#define on_server(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* The same ledger with other options, in place of the handle. */
static void reopen(ledger *l, const place *p, const char *options)
{
    semel_fault fault = {0};
    ledger_close(l);
    url_with(l->url, p, options);
    semel_err e = ledger_open(l, false, &fault);
    expect(e == SEMEL_OK, "%s", fault.text);
}

/* The name of a key of effect `id` as the server knows it. */
static void key_name(const ledger *l, char out[256], const char *kind, uint64_t id)
{
    const char *prefix = strstr(l->url, "prefix=") + 7;
    int n = (int)strcspn(prefix, "&");
    snprintf(out, 256, "%.*s{%02x}%s%016llx", n, prefix, shard_of(SCOPE), kind,
             (unsigned long long)id);
}

static long long ttl_of(redisContext *c, const ledger *l, const char *kind, uint64_t id)
{
    char name[256];
    key_name(l, name, kind, id);
    redisReply *r = ask_server(c, "PTTL %s", name);
    long long ttl = r->integer;
    freeReplyObject(r);
    return ttl;
}

/* ---- scripts and connections -----------------------------------------------------------------*/

static void scripts_that_the_server_forgot_are_sent_again(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    semel_record cur = settled(l, 1);
    tell_server(c, "SCRIPT FLUSH");
    semel_write w = change(&cur, SEMEL_S_FAILED);
    cur = apply_to(l, &w);
    tell_server(c, "SCRIPT FLUSH");
    assert_int_equal(events_of(l, cur.id, 0), 3);
    redisFree(c);
}

/* A history is read in pages, and one event of a long one costs no more than it has to. */
static void a_long_history_is_read_in_pages(void **state)
{
    needs_server();
    ledger *l = *state;
    semel_write w = fresh(1);
    semel_record cur = claim_new(l, &w);
    const size_t total = 600;
    for (size_t i = 1; i < total; i++) {
        sm_arena_reset(&l->desk.arena);
        cur = get_key(l, 1);
        w = change(&cur, i % 2 == 0 ? SEMEL_S_RUNNING : SEMEL_S_READY);
        cur = apply_to(l, &w);
    }
    static const size_t limits[] = {1000, 256, 7};
    seen *s = seen_new();
    for (size_t i = 0; i < COUNT(limits); i++) {
        for (uint64_t generation = 0; generation < 2; generation++) {
            semel_ref of = {.id = cur.id, .generation = generation};
            uint64_t after = 0;
            size_t before;
            seen_clear(s);
            do {
                before = s->n;
                expect_error(l->ops->events(l->st, &of, &after, limits[i], see_event, s, NULL),
                             SEMEL_OK);
                assert_true(s->n - before <= limits[i]);
            } while (s->n > before);
            assert_int_equal(s->n, total);
            for (size_t k = 0; k < total; k++)
                assert_int_equal(s->events[k].index, k + 1);
        }
    }
    seen_free(s);
}

static void connections_that_were_cut_are_replaced(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    for (uint64_t n = 1; n <= 5; n++) {
        fill(l, n * 100, 32); /* many connections */
        tell_server(c, "CLIENT KILL TYPE normal SKIPME yes");
        semel_write w = fresh(n);
        claim_new(l, &w);
    }
    redisFree(c);
}

/* The write was done and the answer was lost: it is found out, and done once. */
static void a_lost_answer_is_no_lost_write(void **state)
{
    needs_server();
    ledger *l = *state;
    proxy x;
    proxy_start(&x, &the_server);
    place through = {.port = x.port};
    snprintf(through.host, sizeof through.host, "127.0.0.1");
    reopen(l, &through, "");
    semel_counter counter = {SM_STR("spent"), 5, 1000, 0};
    for (uint64_t n = 1; n <= 10; n++) {
        semel_write w = fresh(n);
        w.counters = &counter;
        w.n_counters = 1;
        atomic_store(&x.armed, 1);
        semel_record cur = claim_new(l, &w);
        assert_int_equal(atomic_load(&x.armed), 0);
        expect_written(&cur, &w, 1);
        w = change(&cur, SEMEL_S_SUCCEEDED);
        w.counters = &counter;
        w.n_counters = 1;
        atomic_store(&x.armed, 1);
        cur = apply_to(l, &w);
        expect_written(&cur, &w, 2);
        assert_int_equal(events_of(l, cur.id, 0), 2);
    }
    assert_int_equal(counter_of(l, "spent"), 100);
    semel_event seal = {.index = 1, .what = SM_STR("sealed"), .body = SM_STR("{}")};
    memset(&seal.hash, 7, sizeof seal.hash);
    semel_health h;
    last_seq(l); /* the events have their numbers: what is lost below is the seal's answer */
    atomic_store(&x.armed, 5);
    expect_error(l->ops->seal(l->st, &seal, 0, NULL), SEMEL_OK);
    atomic_store(&x.armed, 0);
    expect_error(l->ops->health(l->st, false, &h, NULL), SEMEL_OK);
    assert_int_equal(h.seal_index, 1);
    assert_int_equal(h.last_seq, 21);
    ledger_close(l);
    proxy_stop(&x);
    expect_error(ledger_open(l, true, NULL), SEMEL_E_UNAVAILABLE); /* nobody is there now */
    url_with(l->url, &the_server, "");
    expect_error(ledger_open(l, true, NULL), SEMEL_OK);
}

/* ---- what the server promises ----------------------------------------------------------------*/

static void settings_are_told_in_plain_words(void **state)
{
    needs_server();
    ledger *l = *state;
    static const struct {
        const char *name, *value, *says;
    } rows[] = {
        {"appendfsync", "everysec", "last second"},
        {"appendfsync", "no", "appendfsync is no"},
        {"no-appendfsync-on-rewrite", "yes", "rewrites"},
        {"appendonly", "no", "append-only file"},
        {"maxmemory-policy", "allkeys-lru", "evict"},
    };
    redisContext *c = call_server(&the_server);
    for (size_t i = 0; i < COUNT(rows); i++) {
        semel_health h;
        redisReply *was = ask_server(c, "CONFIG GET %s", rows[i].name);
        tell_server(c, "CONFIG SET %s %s", rows[i].name, rows[i].value);
        reopen(l, &the_server, "");
        assert_int_equal(l->caps & SEMEL_STORE_DURABLE, 0);
        assert_int_not_equal(l->caps & SEMEL_STORE_LOSSY, 0);
        expect_error(l->ops->health(l->st, false, &h, NULL), SEMEL_OK);
        expect(strstr(h.durability, rows[i].says) != NULL, "<%s>", h.durability);
        reopen(l, &the_server, "accept_data_loss=yes");
        assert_int_equal(l->caps & (SEMEL_STORE_DURABLE | SEMEL_STORE_LOSSY), 0);
        tell_server(c, "CONFIG SET %s %s", rows[i].name, was->element[1]->str);
        freeReplyObject(was);
    }
    for (int tries = 0; tries < 100;
         tries++) { /* an append-only file is rewritten when it begins */
        redisReply *r = ask_server(c, "INFO persistence");
        bool busy = strstr(r->str, "aof_rewrite_in_progress:1") != NULL ||
                    strstr(r->str, "aof_rewrite_scheduled:1") != NULL;
        freeReplyObject(r);
        if (!busy)
            break;
        pause_ms(50);
    }
    redisFree(c);
}

static void expect_unavailable(ledger *l, uint64_t n, const char *says)
{
    semel_write w = fresh(n);
    semel_record cur;
    int64_t now, began = monotonic_ns();
    bool inserted = true;
    semel_fault fault = {0};
    semel_err e = l->ops->claim(l->st, &w, &l->desk.room, &cur, &now, &inserted, &fault);
    expect(e == SEMEL_E_UNAVAILABLE, "got %s", semel_err_name(e));
    assert_false(inserted);
    expect(strstr(fault.text, says) != NULL, "it says: %s", fault.text);
    assert_true(monotonic_ns() - began < 8000000000);
}

static void a_failover_to_a_replica_may_lose_what_was_acknowledged(void **state)
{
    needs_server();
    ledger *l = *state;
    semel_health h;
    for (int port = 0; port < 2; port++) { /* without a port it is a copy for a backup */
        redisContext *replica = call_server(&the_server);
        tell_server(replica, "REPLCONF listening-port %d", port);
        assert_int_equal(redisAppendCommand(replica, "PSYNC ? -1"), REDIS_OK);
        for (int done = 0; done == 0;)
            assert_int_equal(redisBufferWrite(replica, &done), REDIS_OK);
        pause_ms(50);
        if (port != 0) { /* the handle that is open is durable, and looks again after a second */
            atomic_store(&sm_rd_node_at(l->st, 0)->judged_ns, 1);
            expect_unavailable(l, 1, "the server has replicas");
        }
        reopen(l, &the_server, "");
        assert_int_equal((l->caps & SEMEL_STORE_DURABLE) != 0, port == 0);
        assert_int_equal((l->caps & SEMEL_STORE_LOSSY) != 0, port != 0);
        expect_error(l->ops->health(l->st, false, &h, NULL), SEMEL_OK);
        expect((strstr(h.durability, "failover") != NULL) == (port != 0), "<%s>", h.durability);
        redisFree(replica);
        pause_ms(50);
    }
    reopen(l, &the_server, "");
    assert_int_not_equal(l->caps & SEMEL_STORE_DURABLE, 0);
}

static void payloads_of_what_is_settled_are_removed_by_the_server(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    semel_write w = fresh(1);
    semel_record cur = claim_new(l, &w);
    assert_int_equal(ttl_of(c, l, "r:", cur.id), -1); /* what is live never goes (I17) */
    assert_int_equal(ttl_of(c, l, "a:", cur.id), -1);
    w = change(&cur, SEMEL_S_FAILED);
    set_windows(&w.next, 100000, 200000, 300000);
    cur = apply_to(l, &w);
    static const char *const kinds[] = {"o:", "a:", "r:"};
    assert_int_equal(ttl_of(c, l, "r:", cur.id),
                     -1);         /* its events are there: only purge takes it */
    for (int i = 0; i < 2; i++) { /* a minute later than its time: purge has the first turn */
        long long left = ttl_of(c, l, kinds[i], cur.id), most = 100000 * (i + 1) + 60000;
        expect(left > most - 30000 && left <= most, "%s goes in %lld ms", kinds[i], left);
    }
    w = change(&cur, SEMEL_S_RUNNING); /* again: it stays */
    w.same_args = w.same_outcome = true;
    cur = apply_to(l, &w);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ttl_of(c, l, kinds[i], cur.id), -1);
    w = change(&cur, SEMEL_S_SUCCEEDED);
    set_windows(&w.next, 100000, 200000, 300000);
    cur = apply_to(l, &w);

    semel_record none = settled(l, 2);
    w = change(&none, SEMEL_S_NONE);
    set_windows(&w.next, 100000, 200000, 300000);
    apply_to(l, &w);

    /* The server evicts them: nothing is damaged, and purge tidies up. */
    for (int i = 0; i < 6; i++) {
        char name[256];
        key_name(l, name, kinds[i % 3], i < 3 ? cur.id : none.id);
        tell_server(c, "PEXPIRE %s 1", name);
    }
    pause_ms(20);
    semel_record got;
    semel_health h;
    expect_error(try_get(l, &(semel_ref){.id = cur.id}, &got), SEMEL_E_NOT_FOUND);
    expect_error(l->ops->health(l->st, true, &h, NULL), SEMEL_OK);
    seen *s = seen_new();
    uint64_t cursor = 0;
    expect_error(l->ops->query(l->st, &(semel_filter){0}, &cursor, 10, see_record, s, NULL),
                 SEMEL_OK);
    assert_int_equal(s->n, 0);
    seen_free(s);
    redisFree(c);
}

/* Somebody may set a time to live on any key. Verifying reports it before the key expires. */
static void a_record_that_the_server_is_to_remove_shows(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    semel_write w = fresh(1);
    semel_record cur = claim_new(l, &w);
    semel_health h;
    static const char *const sets[] = {"all", "open"};
    char name[256];
    expect_error(l->ops->health(l->st, true, &h, NULL), SEMEL_OK);
    key_name(l, name, "r:", cur.id);
    tell_server(c, "PEXPIRE %s 100000", name);
    expect_error(l->ops->health(l->st, true, &h, NULL), SEMEL_E_CORRUPT);
    tell_server(c, "PERSIST %s", name);
    expect_error(l->ops->health(l->st, true, &h, NULL), SEMEL_OK);
    for (size_t i = 0; i < COUNT(sets); i++) {
        snprintf(strchr(name, '}') + 1, 8, "%s", sets[i]);
        tell_server(c, "PEXPIRE %s 100000", name);
        expect_error(l->ops->health(l->st, true, &h, NULL), SEMEL_E_CORRUPT);
        tell_server(c, "PERSIST %s", name);
    }
    expect_error(l->ops->health(l->st, true, &h, NULL), SEMEL_OK);
    redisFree(c);
}

/* So is who looks at what the history needs. Arguments and outcomes may leave: their hashes stay.
 */
static void a_history_that_the_server_is_to_remove_shows(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    semel_record one = settled(l, 1);
    semel_event seal = {.at = 1000, .what = SM_STR("sealed")};
    semel_health h;
    char name[256];
    last_seq(l); /* numbers them */
    expect_error(l->ops->seal(l->st, &seal, 0, NULL), SEMEL_OK);
    static const char *const whole[] = {"meta", "seq", "log", "sealed", "seals"};
    for (size_t i = 0; i < 2 + COUNT(whole); i++) {
        key_name(l, name, "h:", one.id);
        if (i == 1)
            snprintf(strchr(name, '}') + 1, 8, "tick");
        else if (i > 1)
            snprintf(strchr(name, '{'), 32, "{semel}%s", whole[i - 2]);
        redisReply *r = redisCommand(c, "PEXPIRE %s 100000", name);
        expect(r != NULL && r->integer == 1, "there is no %s", name);
        freeReplyObject(r);
        semel_err e = l->ops->health(l->st, true, &h, NULL);
        expect(e == SEMEL_E_CORRUPT, "%s: %s", name, semel_err_name(e));
        tell_server(c, "PERSIST %s", name);
    }
    key_name(l, name, "a:", one.id);
    tell_server(c, "PEXPIRE %s 100000", name);
    expect_error(l->ops->health(l->st, true, &h, NULL), SEMEL_OK);
    redisFree(c);
}

/* What only makes calls fail shows too, before somebody meets it. */
static void a_key_that_cannot_be_read_shows(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    semel_record one = settled(l, 1);
    semel_health h;
    static const char *const types[] = {"due", "gone", "tick", "v:", "n:"};
    static const char *const ticks[] = {"", "1", "1 2", "x 1", "2 1x"};
    for (size_t i = 0; i < COUNT(types) + COUNT(ticks); i++) {
        bool typed = i < COUNT(types);
        char name[256];
        key_name(l, name, "", one.id);
        char *kind = strchr(name, '}') + 1;
        if (typed && strcmp(types[i], "n:") == 0) /* which is where the id says */
            snprintf(kind - 3, 8, "%02x}", (unsigned)(one.id & 0xFF));
        if (typed && types[i][1] == ':')
            snprintf(kind, 32, "%s%016llx", types[i], (unsigned long long)one.id);
        else
            snprintf(kind, 32, "%s", typed ? types[i] : "tick");
        expect_error(l->ops->health(l->st, true, &h, NULL), SEMEL_OK);
        redisReply *was = ask_server(c, "DUMP %s", name);
        tell_server(c, "DEL %s", name);
        freeReplyObject(typed ? ask_server(c, "SADD %s x", name)
                              : ask_server(c, "SET %s %s", name, ticks[i - COUNT(types)]));
        semel_err e = l->ops->health(l->st, true, &h, NULL);
        expect(e == SEMEL_E_CORRUPT, "%s: %s", name, semel_err_name(e));
        tell_server(c, "DEL %s", name);
        if (was->type == REDIS_REPLY_STRING)
            freeReplyObject(redisCommand(c, "RESTORE %s 0 %b", name, was->str, was->len));
        freeReplyObject(was);
    }
    redisFree(c);
}

static void an_older_generation_comes_up_when_the_newest_goes(void **state)
{
    needs_server();
    ledger *l = *state;
    semel_record one = settled(l, 1), got;
    semel_write w = repeat(&one);
    semel_record two = apply_to(l, &w);
    w = change(&two, SEMEL_S_SUCCEEDED);
    set_windows(&w.next, -3000, -2000, -1000);
    apply_to(l, &w);
    uint64_t done = 0;
    bool left;
    expect_error(l->ops->purge(l->st, 10, 0, 0, &done, &left, NULL), SEMEL_OK);
    assert_int_equal(done, 1);
    got = get_key(l, 1);
    expect_record(&got, &one);
    expect_error(try_get(l, &(semel_ref){.id = one.id, .generation = 2}, &got), SEMEL_E_NOT_FOUND);
    w = repeat(&one); /* and the key goes on */
    apply_to(l, &w);
}

/* What others keep on the server is not the ledger's. */
static void the_memory_of_the_ledger_is_its_own(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    char name[64];
    semel_health before, after, beside;
    snprintf(name, sizeof name, "other-%lld", (long long)monotonic_ns());
    expect_error(l->ops->health(l->st, false, &before, NULL), SEMEL_OK);
    fill(l, 1, 300);
    expect_error(l->ops->health(l->st, false, &after, NULL), SEMEL_OK);
    tell_server(c, "SETRANGE %s 20000000 x", name);
    expect_error(l->ops->health(l->st, false, &beside, NULL), SEMEL_OK);
    tell_server(c, "DEL %s", name);
    expect(before.bytes > 0 && before.bytes < 10000, "%llu", (unsigned long long)before.bytes);
    expect(after.bytes > 300 * 500 && after.bytes < 300 * 20000, "%llu",
           (unsigned long long)after.bytes);
    expect(beside.bytes < after.bytes + 100000, "%llu", (unsigned long long)beside.bytes);
    redisFree(c);
}

/* ---- a server in trouble ---------------------------------------------------------------------*/

/* What runs already ends in good order: else it would be in doubt. */
static void without_memory_nothing_new_is_begun(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    semel_record one = settled(l, 1), got, done;
    semel_write w = fresh(3);
    semel_record running = claim_new(l, &w);
    uint64_t seq = last_seq(l);
    tell_server(c, "SCRIPT FLUSH");
    tell_server(c, "CONFIG SET maxmemory 1");
    expect_unavailable(l, 2, "out of memory");
    semel_err tried = l->ops->try_write(l->st, NULL);
    w = repeat(&one);
    semel_err again = try_apply(l, &w, &got);
    w = change(&running, SEMEL_S_SUCCEEDED);
    semel_err e = try_apply(l, &w, &done);
    semel_err read = try_get(l, &(semel_ref){.id = one.id}, &got);
    ledger other = {.ops = l->ops};
    memcpy(other.url, l->url, sizeof other.url);
    semel_err opens = ledger_open(&other, false, NULL);
    if (opens == SEMEL_OK)
        ledger_close(&other);
    tell_server(c, "CONFIG SET maxmemory 0");
    expect_error(opens, SEMEL_OK);
    expect_error(tried, SEMEL_E_UNAVAILABLE);
    expect_error(l->ops->try_write(l->st, NULL), SEMEL_OK);
    expect_error(again, SEMEL_E_UNAVAILABLE);
    expect_error(e, SEMEL_OK);
    expect_written(&done, &w, 2);
    expect_error(read, SEMEL_OK); /* what is there can be read */
    expect_record(&got, &one);
    assert_int_equal(last_seq(l), seq + 1);
    w = fresh(2);
    claim_new(l, &w);
    redisFree(c);
}

static void a_server_that_became_a_replica_is_not_written_to(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    reopen(l, &the_server, "timeout=1000");
    settled(l, 1);
    tell_server(c, "REPLICAOF 127.0.0.1 1");
    expect_unavailable(l, 2, "replica");
    semel_fault fault = {0};
    ledger other = {.ops = l->ops};
    memcpy(other.url, l->url, sizeof other.url);
    semel_err e = ledger_open(&other, false, &fault);
    tell_server(c, "REPLICAOF NO ONE");
    expect_error(e, SEMEL_E_UNAVAILABLE);
    expect(strstr(fault.text, "replica") != NULL, "it says: %s", fault.text);
    reopen(l, &the_server, "");
    semel_write w = fresh(2);
    claim_new(l, &w);
    redisFree(c);
}

/* Reads decide too: a replica may not know yet what its master has acknowledged. */
static void a_server_that_became_a_replica_is_not_read_either(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    reopen(l, &the_server, "timeout=1000");
    semel_record one = settled(l, 1), got;
    tell_server(c, "REPLICAOF 127.0.0.1 1");
    pause_ms(1100);
    semel_err e = try_get(l, &(semel_ref){.id = one.id, .sharded = true, .shard = one.shard}, &got);
    tell_server(c, "REPLICAOF NO ONE");
    expect_error(e, SEMEL_E_UNAVAILABLE);
    reopen(l, &the_server, "");
    redisFree(c);
}

/* It is not gone, but says nothing: bounded time, and good again by itself. */
static void a_server_that_stalls_is_waited_for_no_longer_than_the_timeout(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    reopen(l, &the_server, "timeout=1000");
    settled(l, 1);
    redisReply *r = ask_server(c, "CLIENT PAUSE 5000 ALL");
    freeReplyObject(r);
    for (uint64_t n = 2; n < 5; n++)
        expect_unavailable(l, n, "");
    int64_t deadline = monotonic_ns() + 20000000000;
    semel_err e = SEMEL_E_UNAVAILABLE;
    while (e == SEMEL_E_UNAVAILABLE && monotonic_ns() < deadline) {
        semel_write w = fresh(10);
        semel_record cur;
        bool inserted;
        e = try_claim(l, &w, &cur, &inserted);
        pause_ms(20);
    }
    expect_error(e, SEMEL_OK);
    redisFree(c);
}

/* ---- waiting for another handle --------------------------------------------------------------*/

#define WAIT_NS (20 * 1000000000ll)

/* A handle that waits for a record, which another one changes. */
typedef struct waiting {
    ledger *l, other;
    semel_record cur;
    redisContext *c;
    pthread_t thread;
    int64_t woken_ns;
} waiting;

static void *wait_for_change(void *context)
{
    waiting *x = context;
    semel_ref of = {.key = &x->cur.key, .generation = 1, .sharded = true, .shard = x->cur.shard};
    int64_t deadline = monotonic_ns() + WAIT_NS;
    semel_record got;
    while (x->l->ops->wait(x->l->st, &of, x->cur.version, deadline, NULL) == SEMEL_OK &&
           try_get(x->l, &of, &got) == SEMEL_OK && got.version == x->cur.version)
        continue; /* it may wake for no reason */
    x->woken_ns = monotonic_ns();
    return NULL;
}

static void waiting_start(waiting *x, ledger *l, uint64_t n)
{
    *x = (waiting){.l = l, .other.ops = l->ops, .c = call_server(&the_server)};
    desk_init(&x->other.desk);
    url_with(x->other.url, &the_server, "");
    expect_error(ledger_open(&x->other, true, NULL), SEMEL_OK);
    x->cur = settled(&x->other, n);
    assert_int_equal(pthread_create(&x->thread, NULL, wait_for_change, x), 0);
}

/* Whether the server knows in time that the thread waits. */
static bool is_marked(waiting *x)
{
    char name[256];
    bool marked = false;
    key_name(&x->other, name, "r:", x->cur.id);
    for (int64_t end = monotonic_ns() + WAIT_NS; !marked && monotonic_ns() < end; pause_ms(1)) {
        redisReply *r = ask_server(x->c, "GETRANGE %s 33 33", name);
        marked = strcmp(r->str, "1") == 0;
        freeReplyObject(r);
    }
    return marked;
}

/* Whether the server knows in time that the thread's handle listens. */
static bool is_listening(waiting *x)
{
    const char *prefix = strstr(x->l->url, "prefix=") + 7;
    char channel[256];
    snprintf(channel, sizeof channel, "%.*s{semel}wake", (int)strcspn(prefix, "&"), prefix);
    bool listens = false;
    for (int64_t end = monotonic_ns() + WAIT_NS; !listens && monotonic_ns() < end; pause_ms(1)) {
        redisReply *r = ask_server(x->c, "PUBSUB NUMSUB %s", channel);
        listens = r->elements == 2 && r->element[1]->integer == 1;
        freeReplyObject(r);
    }
    return listens;
}

/* How long it took to be woken. */
static int64_t waiting_end(waiting *x)
{
    semel_write w = change(&x->cur, SEMEL_S_FAILED);
    apply_to(&x->other, &w);
    int64_t changed_ns = monotonic_ns();
    pthread_join(x->thread, NULL);
    ledger_close(&x->other);
    desk_fini(&x->other.desk);
    redisFree(x->c);
    return x->woken_ns - changed_ns;
}

static void who_waits_listens(void **state)
{
    needs_server();
    waiting x;
    waiting_start(&x, *state, 1);
    bool marked = is_marked(&x), listens = is_listening(&x);
    int64_t took = waiting_end(&x);
    expect(marked, "the server does not know that somebody waits");
    expect(listens, "nobody listens");
    assert_true(took < WAIT_NS / 2);
}

/* One of them is prompt: who looks once a second never is. */
static void who_does_not_hear_looks_often(void **state)
{
    needs_server();
    ledger *l = *state;
    bool marked = true;
    int64_t took = WAIT_NS;
    l->st->ear.started = true; /* as if: so none is started */
    for (uint64_t n = 1; marked && n < 10 && took > 500000000; n++) {
        waiting x;
        waiting_start(&x, l, n);
        marked = is_marked(&x);
        took = waiting_end(&x);
    }
    l->st->ear.started = false;
    expect(marked, "the server does not know that somebody waits");
    expect(took <= 500000000, "it took %lld ms", (long long)(took / 1000000));
}

/* ---- who may do what, and what is not ours ---------------------------------------------------*/

static void a_user_without_rights_is_told_what_is_missing(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    char url[512], prefix[64];
    semel_fault fault = {0};
    snprintf(prefix, sizeof prefix, "%.63s", strstr(l->url, "prefix=") + 7);
    tell_server(c, "ACL SETUSER semel-test reset on >s%%cret ~%s* +@all -config -publish -memory",
                prefix);
    snprintf(url, sizeof url, "redis://semel-test:s%%25cret@%s:%d?prefix=%s", the_server.host,
             the_server.port, prefix);
    ledger_close(l);
    snprintf(l->url, sizeof l->url, "%s", url);
    semel_err e = ledger_open(l, false, &fault);
    expect(e == SEMEL_OK, "%s", fault.text);
    assert_int_not_equal(l->caps & SEMEL_STORE_LOSSY, 0); /* its settings are not known */
    assert_int_equal(l->caps & SEMEL_STORE_NOTIFY, 0);
    semel_health h;
    expect_error(l->ops->health(l->st, false, &h, NULL), SEMEL_OK);
    assert_non_null(strstr(h.durability, "not known"));
    assert_int_equal(h.bytes, 0);
    assert_null(strstr(h.where, "cret"));
    /* It may not publish: waiters find out by themselves. */
    semel_record cur = settled(l, 1);
    semel_ref of = {.key = &cur.key, .generation = 1};
    int64_t deadline = monotonic_ns() + 50000000;
    semel_err waited = SEMEL_OK; /* it may wake for no reason */
    while (waited == SEMEL_OK && monotonic_ns() < deadline)
        waited = l->ops->wait(l->st, &of, cur.version, deadline, NULL);
    expect_error(waited, SEMEL_E_TIMEOUT);
    semel_write w = change(&cur, SEMEL_S_FAILED);
    apply_to(l, &w);
    ledger_close(l);

    tell_server(c, "ACL SETUSER semel-test +publish resetchannels"); /* but to no channel */
    expect_error(ledger_open(l, false, NULL), SEMEL_OK);
    assert_int_equal(l->caps & SEMEL_STORE_NOTIFY, 0);
    ledger_close(l);
    tell_server(c, "ACL SETUSER semel-test &%s*", prefix);
    expect_error(ledger_open(l, false, NULL), SEMEL_OK);
    assert_int_not_equal(l->caps & SEMEL_STORE_NOTIFY, 0);
    ledger_close(l);

    ledger wrong = {.ops = l->ops};
    snprintf(wrong.url, sizeof wrong.url, "redis://semel-test:wr0ng@%s:%d?prefix=%s",
             the_server.host, the_server.port, prefix);
    expect_error(ledger_open(&wrong, false, &fault), SEMEL_E_UNAVAILABLE);
    assert_null(strstr(fault.text, "wr0ng"));
    expect(strstr(fault.text, "does not accept") != NULL, "it says: %s", fault.text);
    expect(strstr(fault.text, the_server.host) != NULL, "it says: %s", fault.text);
    snprintf(wrong.url, sizeof wrong.url, "redis://semel-test:s%%25cret@%s:%d?prefix=other",
             the_server.host, the_server.port);
    expect_error(ledger_open(&wrong, false, &fault), SEMEL_E_UNAVAILABLE);
    expect(strstr(fault.text, "may not") != NULL, "it says: %s", fault.text);
    tell_server(c, "ACL DELUSER semel-test");
    url_with(l->url, &the_server, "");
    expect_error(ledger_open(l, true, NULL), SEMEL_OK);
    redisFree(c);
}

static void the_database_of_the_url_is_used(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    const char *prefix = strstr(l->url, "prefix=");
    char url[512], name[256];
    snprintf(url, sizeof url, "redis://%s:%d/3?%s", the_server.host, the_server.port, prefix);
    ledger_close(l);
    snprintf(l->url, sizeof l->url, "%s", url);
    expect_error(ledger_open(l, false, NULL), SEMEL_OK);
    semel_record one = settled(l, 1);
    key_name(l, name, "r:", one.id);
    for (int db = 0; db < 4; db += 3) {
        tell_server(c, "SELECT %d", db);
        redisReply *r = ask_server(c, "EXISTS %s", name);
        assert_int_equal(r->integer, db == 3);
        freeReplyObject(r);
    }
    redisFree(c);
}

static void what_is_not_a_ledger_is_refused(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    static const struct {
        const char *command, *value, *says;
    } rows[] = {
        {"SET", "something", "not a ledger"},
        {"RPUSH", "something", "not a ledger"},
        {"SET", "semel ledger 999", "newer"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char prefix[64], meta[96];
        ledger other = {.ops = l->ops};
        semel_fault fault = {0};
        snprintf(prefix, sizeof prefix, "y%zu-%lld:", i, (long long)monotonic_ns());
        snprintf(meta, sizeof meta, "%s{semel}meta", prefix);
        tell_server(c, "%s %s %s", rows[i].command, meta, rows[i].value);
        snprintf(other.url, sizeof other.url, "redis://%s:%d?prefix=%s", the_server.host,
                 the_server.port, prefix);
        expect_error(ledger_open(&other, false, &fault), SEMEL_E_UNAVAILABLE);
        expect(strstr(fault.text, rows[i].says) != NULL, "it says: %s", fault.text);
        assert_int_equal(fault.code, SEMEL_E_BAD_ARGUMENTS);
        tell_server(c, "DEL %s", meta);
    }
    redisFree(c);
}

int plain_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_server(scripts_that_the_server_forgot_are_sent_again),
        on_server(a_long_history_is_read_in_pages),
        on_server(connections_that_were_cut_are_replaced),
        on_server(a_lost_answer_is_no_lost_write),
        on_server(settings_are_told_in_plain_words),
        on_server(a_failover_to_a_replica_may_lose_what_was_acknowledged),
        on_server(payloads_of_what_is_settled_are_removed_by_the_server),
        on_server(a_record_that_the_server_is_to_remove_shows),
        on_server(a_history_that_the_server_is_to_remove_shows),
        on_server(a_key_that_cannot_be_read_shows),
        on_server(an_older_generation_comes_up_when_the_newest_goes),
        on_server(the_memory_of_the_ledger_is_its_own),
        on_server(without_memory_nothing_new_is_begun),
        on_server(a_server_that_became_a_replica_is_not_written_to),
        on_server(a_server_that_became_a_replica_is_not_read_either),
        on_server(a_server_that_stalls_is_waited_for_no_longer_than_the_timeout),
        on_server(who_waits_listens),
        on_server(who_does_not_hear_looks_often),
        on_server(a_user_without_rights_is_told_what_is_missing),
        on_server(the_database_of_the_url_is_used),
        on_server(what_is_not_a_ledger_is_refused),
    };
    return cmocka_run_group_tests_name("plain", tests, NULL, NULL);
}
