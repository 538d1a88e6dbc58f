/*
 * A server that lost what it had acknowledged: an open ledger notices, and nothing runs again where
 * that was not to be expected. Each test ends with a ledger that is gone, and looks at it no more.
 */
#include "server.h"

#include <unistd.h>

#include "store/redis/redis.h"

static int setup(void **state)
{
    return there_is_a_server ? ledger_setup(state) : 0;
}

static int teardown(void **state)
{
    return there_is_a_server ? ledger_unname(state) : 0;
}

#define on_server(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* A claim of a scope that no other test has: a shard of its own, most likely. */
static semel_write elsewhere(uint64_t n)
{
    semel_write w = fresh(n);
    w.next.scope = SM_STR("somewhere-else/x");
    w.next.shard = w.event.shard = shard_of("somewhere-else/x");
    assert_int_not_equal(w.next.shard, shard_of(SCOPE));
    return w;
}

/* Nothing is answered any more, whatever is asked. */
static void expect_lost(ledger *l, const semel_write *w)
{
    semel_record cur;
    int64_t now;
    bool inserted = true;
    semel_fault fault = {0};
    semel_health h;
    semel_err e = l->ops->claim(l->st, w, &l->desk.room, &cur, &now, &inserted, &fault);
    expect(e == SEMEL_E_UNAVAILABLE, "got %s", semel_err_name(e));
    assert_false(inserted);
    expect(strstr(fault.text, "has lost effects") != NULL, "it says: %s", fault.text);
    expect_error(try_get(l, &(semel_ref){.key = &w->next.key}, &cur), SEMEL_E_UNAVAILABLE);
    expect_error(l->ops->health(l->st, false, &h, NULL), SEMEL_E_UNAVAILABLE);
}

static long long keys_of(redisContext *c)
{
    redisReply *r = ask_server(c, "DBSIZE");
    long long n = r->integer;
    freeReplyObject(r);
    return n;
}

/* What an operator does who has found out what ran; or another user's handles have noted nothing.
 */
static void forget_notes(void)
{
    assert_int_equal(system("rm -rf \"$XDG_STATE_HOME/semel/seen\""), 0);
}

static void a_wiped_server_runs_nothing_again(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    assert_int_not_equal(l->caps & SEMEL_STORE_DURABLE, 0);
    settled(l, 1);
    tell_server(c, "FLUSHALL");
    semel_write again = fresh(1);
    expect_lost(l, &again);
    assert_int_equal(keys_of(c), 0); /* and nothing was changed */
    ledger_close(l);
    expect_error(ledger_open(l, true, NULL), SEMEL_E_UNAVAILABLE);
    forget_notes();
    expect_error(ledger_open(l, false, NULL), SEMEL_OK);
    again = fresh(1);
    claim_new(l, &again);
    redisFree(c);
}

static void a_server_that_was_wiped_between_two_handles_is_not_taken_for_a_new_one(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    settled(l, 1);
    ledger_close(l);
    tell_server(c, "FLUSHALL");
    for (int i = 0; i < 2; i++) {
        semel_fault fault = {0};
        expect_error(ledger_open(l, false, &fault), SEMEL_E_UNAVAILABLE);
        expect(strstr(fault.text, "has lost effects") != NULL && strstr(fault.text, "remove /"),
               "%s", fault.text);
    }
    forget_notes();
    expect_error(ledger_open(l, false, NULL), SEMEL_OK);
    redisFree(c);
}

static void databases_behind_one_socket_have_notes_of_their_own(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    redisReply *r = ask_server(c, "CONFIG GET unixsocket");
    char given[512];
    bool there = r->elements == 2 && r->element[1]->len > 0;
    ledger_close(l);
    snprintf(given, sizeof given, "%s", strchr(l->url, '?') + 1);
    for (int db = 1; there && db <= 2; db++) {
        snprintf(l->url, sizeof l->url, "redis:///%d?socket=%s&%.100s", db, r->element[1]->str,
                 given);
        expect_error(ledger_open(l, false, NULL), SEMEL_OK);
        settled(l, (uint64_t)db);
        if (db == 1)
            ledger_close(l);
    }
    freeReplyObject(r);
    redisFree(c);
    if (!there)
        skip();
}

static void so_it_is_in_a_shard_that_was_not_used_yet(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    tell_server(c, "FLUSHALL");
    semel_write w = fresh(1);
    expect_lost(l, &w);
    assert_int_equal(keys_of(c), 0);
    redisFree(c);
}

static void a_ledger_that_others_made_anew_is_another_one(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    settled(l, 1);
    tell_server(c, "FLUSHALL");
    ledger other = {.ops = l->ops}, idle = {.ops = l->ops};
    memcpy(other.url, l->url, sizeof other.url);
    memcpy(idle.url, l->url, sizeof idle.url);
    desk_init(&other.desk);
    desk_init(&idle.desk);
    forget_notes(); /* they are another user's */
    expect_error(ledger_open(&other, false, NULL), SEMEL_OK);
    settled(&other, 2);
    semel_write w = fresh(1);
    expect_lost(l, &w); /* in the shard that the other has used */
    expect_error(ledger_open(&idle, false, NULL), SEMEL_OK);
    tell_server(c, "FLUSHALL");
    ledger_close(l);
    forget_notes();
    expect_error(ledger_open(l, false, NULL), SEMEL_OK);
    expect_lost(&idle, &w); /* and in one that nobody has */
    ledger_close(&other);
    ledger_close(&idle);
    desk_fini(&other.desk);
    desk_fini(&idle.desk);
    redisFree(c);
}

/* Back to an older state, as from a backup: the shard is younger than what was seen of it. */
static void a_server_that_went_back_in_time_is_noticed(void **state)
{
    needs_server();
    redisContext *c = call_server(&the_server);
    for (int unused = 0; unused < 2; unused++) {
        ledger *l = *state;
        char tick[256];
        const char *prefix = strstr(l->url, "prefix=") + 7;
        snprintf(tick, sizeof tick, "%.*s{%02x}tick", (int)strcspn(prefix, "&"), prefix,
                 shard_of(SCOPE));
        settled(l, 1);
        redisReply *then = ask_server(c, "GET %s", tick);
        settled(l, 2);
        tell_server(c, "SET %s %s", tick, then->str);
        freeReplyObject(then);
        semel_write w = unused ? elsewhere(3) : fresh(3);
        expect_lost(l, &w);
        ledger_unname(state);
        assert_int_equal(ledger_setup(state), 0);
    }
    redisFree(c);
}

/* What has happened is recorded, also where nothing new may begin: by a new connection, in a shard
 * that this handle has not used. */
static void evidence_is_taken_whatever_was_lost(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    const char *prefix = strstr(l->url, "prefix=") + 7;
    char tick[256];
    ledger other = {.ops = l->ops};
    memcpy(other.url, l->url, sizeof other.url);
    desk_init(&other.desk);
    expect_error(ledger_open(&other, true, NULL), SEMEL_OK);
    settled(l, 1);
    semel_write w = elsewhere(2);
    semel_record cur = claim_new(&other, &w);
    snprintf(tick, sizeof tick, "%.*s{%02x}tick", (int)strcspn(prefix, "&"), prefix,
             shard_of(SCOPE));
    tell_server(c, "DEL %s", tick);
    tell_server(c, "CLIENT KILL TYPE normal SKIPME yes");
    w = change(&cur, SEMEL_S_SUCCEEDED);
    w.evidence = true;
    cur = apply_to(l, &w);
    assert_int_equal(cur.state, SEMEL_S_SUCCEEDED);
    w = elsewhere(3);
    expect_lost(l, &w);
    ledger_close(&other);
    desk_fini(&other.desk);
    redisFree(c);
}

static void where_loss_was_to_be_expected_the_ledger_goes_on(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    static const char *const options[] = {"", "accept_data_loss=yes"};
    tell_server(c, "CONFIG SET appendfsync everysec");
    for (size_t i = 0; i < COUNT(options); i++) {
        ledger_close(l);
        url_with(l->url, &the_server, options[i]);
        expect_error(ledger_open(l, false, NULL), SEMEL_OK);
        settled(l, 1);
        tell_server(c, "FLUSHALL");
        settled(l, 1);
        semel_write w = elsewhere(2);
        claim_new(l, &w);
        ledger_close(l);
        expect_error(ledger_open(l, true, NULL), SEMEL_OK); /* it has its name again */
        tell_server(c, "FLUSHALL");
        claim_new(l, &w);
        tell_server(c, "FLUSHALL");
    }
    tell_server(c, "CONFIG SET appendfsync always");
    redisFree(c);
}

/* ---- promises --------------------------------------------------------------------------------*/

static void expect_refused(ledger *l, uint64_t n, const char *says)
{
    semel_write w = fresh(n);
    semel_record cur;
    int64_t now;
    bool inserted = true;
    semel_fault fault = {0};
    semel_err e = l->ops->claim(l->st, &w, &l->desk.room, &cur, &now, &inserted, &fault);
    expect(e == SEMEL_E_UNAVAILABLE, "got %s", semel_err_name(e));
    assert_false(inserted);
    expect(strstr(fault.text, says) != NULL, "it says: %s", fault.text);
}

static void a_durable_ledger_is_not_written_to_a_server_that_is_not(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    static const struct {
        const char *setting, *good, *bad, *says;
    } rows[] = {
        {"appendfsync", "always", "no", "appendfsync is no"},
        {"maxmemory-policy", "noeviction", "allkeys-lru", "may evict effects"},
        {"no-appendfsync-on-rewrite", "no", "yes", "on-rewrite is yes"},
    };
    for (uint64_t n = 1; n <= 2 * COUNT(rows); n++) {
        size_t i = n % COUNT(rows);
        settled(l, n);
        tell_server(c, "CONFIG SET %s %s", rows[i].setting, rows[i].bad);
        if (n <= COUNT(rows)) /* another server may be there now */
            tell_server(c, "CLIENT KILL TYPE normal SKIPME yes");
        else /* the last look was more than a second ago */
            atomic_store(&sm_rd_node_at(l->st, 0)->judged_ns, 1);
        expect_refused(l, n + 10, rows[i].says);
        expect_refused(l, n + 10, "promises less");
        tell_server(c, "CONFIG SET %s %s", rows[i].setting, rows[i].good);
        settled(l, n + 10);
    }
    redisFree(c);
}

/* Many threads write without a pause, so that no connection is ever idle for long. */
typedef struct writer {
    ledger *l;
    uint64_t first;
    int64_t last_ns; /* when the last write was acknowledged */
    atomic_bool *stop;
    atomic_uint *wrote;
} writer;

static void *write_on(void *context)
{
    writer *x = context;
    for (uint64_t n = x->first; !atomic_load(x->stop); n++) {
        semel_write w = fresh(n);
        semel_record cur;
        int64_t now;
        bool inserted = false;
        desk d;
        desk_init(&d);
        if (x->l->ops->claim(x->l->st, &w, &d.room, &cur, &now, &inserted, NULL) == SEMEL_OK) {
            x->last_ns = sm_clock_mono_ns();
            atomic_fetch_add(x->wrote, 1);
        }
        desk_fini(&d);
    }
    return NULL;
}

static void what_a_server_promises_is_looked_at_every_second(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    enum { WRITERS = 8 };
    pthread_t threads[WRITERS];
    writer writers[WRITERS];
    atomic_bool stop = false;
    atomic_uint wrote = 0;
    for (size_t i = 0; i < WRITERS; i++) {
        writers[i] = (writer){l, (i + 1) * 1000000, 0, &stop, &wrote};
        assert_int_equal(pthread_create(&threads[i], NULL, write_on, &writers[i]), 0);
    }
    while (atomic_load(&wrote) < 100)
        usleep(1000);
    tell_server(c, "CONFIG SET appendfsync no");
    int64_t since = sm_clock_mono_ns();
    /* No write of any thread for a second: they are refused. */
    for (unsigned last = 0; last != atomic_load(&wrote);) {
        last = atomic_load(&wrote);
        sleep(1);
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
        int64_t late_ms = (writers[i].last_ns - since) / 1000000;
        expect(late_ms < 15000, "a thread still wrote after %lld ms", (long long)late_ms);
    }
    expect_refused(l, 11, "appendfsync is no");
    tell_server(c, "CONFIG SET appendfsync always");
    redisFree(c);
}

/* ---- clusters --------------------------------------------------------------------------------*/

static void wipe_cluster(void)
{
    redisContext *c = call_server(&the_server);
    redisReply *r = ask_server(c, "CLUSTER SLOTS");
    for (size_t i = 0; i < r->elements; i++) {
        const redisReply *master = r->element[i]->element[2];
        place p = {.port = (int)master->element[1]->integer};
        snprintf(p.host, sizeof p.host, "%s", master->element[0]->str);
        redisContext *node = call_server(&p);
        tell_server(node, "FLUSHALL");
        redisFree(node);
    }
    freeReplyObject(r);
    redisFree(c);
}

static void a_wiped_cluster_runs_nothing_again(void **state)
{
    needs_server();
    for (int unused = 0; unused < 2; unused++) {
        ledger *l = *state;
        settled(l, 1);
        wipe_cluster();
        semel_write w = unused ? elsewhere(2) : fresh(1);
        expect_lost(l, &w);
        ledger_unname(state);
        assert_int_equal(ledger_setup(state), 0);
    }
}

int loss_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_server(a_wiped_server_runs_nothing_again),
        on_server(a_server_that_was_wiped_between_two_handles_is_not_taken_for_a_new_one),
        on_server(databases_behind_one_socket_have_notes_of_their_own),
        on_server(so_it_is_in_a_shard_that_was_not_used_yet),
        on_server(a_ledger_that_others_made_anew_is_another_one),
        on_server(a_server_that_went_back_in_time_is_noticed),
        on_server(evidence_is_taken_whatever_was_lost),
        on_server(where_loss_was_to_be_expected_the_ledger_goes_on),
        on_server(a_durable_ledger_is_not_written_to_a_server_that_is_not),
        on_server(what_a_server_promises_is_looked_at_every_second),
    };
    return cmocka_run_group_tests_name("loss", tests, NULL, NULL);
}

int cluster_loss_tests(void)
{
    const struct CMUnitTest tests[] = {on_server(a_wiped_cluster_runs_nothing_again)};
    return cmocka_run_group_tests_name("loss in a cluster", tests, NULL, NULL);
}
