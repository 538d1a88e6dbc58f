/*
 * What others do between two questions of one call: with a proxy that stops at a given question,
 * so that it happens every time.
 */
#include "server.h"

#include "store/redis/redis.h"

/* ---- ledgers behind a proxy ------------------------------------------------------------------*/

/* A ledger by way of a proxy, and another handle of the same one that goes there directly. */
typedef struct bench {
    ledger *l, other;
    proxy x;
    redisContext *c;
    char scripts[SM_RD_SCRIPT_COUNT][SM_RD_SHA + 1];
} bench;

static int setup(void **state)
{
    if (!there_is_a_server)
        return 0;
    bench *b = calloc(1, sizeof *b);
    void *l = NULL;
    if (b == NULL || ledger_name(&l) != 0 || sm_rd_script_names(b->scripts) != SEMEL_OK)
        return -1;
    b->l = l;
    b->other.ops = b->l->ops;
    desk_init(&b->other.desk);
    proxy_start(&b->x, &the_server);
    place through = {.port = b->x.port};
    snprintf(through.host, sizeof through.host, "127.0.0.1");
    url_with(b->l->url, &through, "");
    url_with(b->other.url, &the_server, "");
    b->c = call_server(&the_server);
    *state = b;
    return ledger_open(b->l, false, NULL) == SEMEL_OK &&
                   ledger_open(&b->other, false, NULL) == SEMEL_OK
               ? 0
               : -1;
}

static int teardown(void **state)
{
    bench *b = *state;
    if (!there_is_a_server)
        return 0;
    ledger_close(&b->other);
    desk_fini(&b->other.desk);
    void *l = b->l;
    int failed = ledger_teardown(&l);
    proxy_stop(&b->x);
    redisFree(b->c);
    free(b);
    return failed;
}

#define on_bench(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
#define needs_server()                                                                             \
    do {                                                                                           \
        if (!there_is_a_server)                                                                    \
            skip();                                                                                \
    } while (0)

/* The name of a key as the server knows it: "r:", with an id if there is one. */
static void key_name(const bench *b, char out[256], const char *kind, uint64_t id)
{
    const char *prefix = strstr(b->other.url, "prefix=") + 7;
    int n = snprintf(out, 256, "%.*s{%02x}%s", (int)strcspn(prefix, "&"), prefix, shard_of(SCOPE),
                     kind);
    if (id != 0)
        snprintf(out + n, 256 - (size_t)n, "%016llx", (unsigned long long)id);
}

/* ---- purge -----------------------------------------------------------------------------------*/

static void purge_takes_only_what_is_over_when_it_takes_it(void **state)
{
    needs_server();
    bench *b = *state;
    ledger *l = &b->other;
    semel_write w = fresh(1);
    semel_record cur = claim_new(l, &w), got;
    w = change(&cur, SEMEL_S_FAILED);
    w.next.outcome = SM_STR("first");
    set_windows(&w.next, -1000, 100000, 200000);
    cur = apply_to(l, &w);
    /* It was listed because its outcome was over; since then it has run and ended anew. */
    char gone[256];
    key_name(b, gone, "gone", 0);
    redisReply *r = ask_server(b->c, "ZRANGE %s 0 0", gone);
    assert_int_equal(r->elements, 1);
    w = change(&cur, SEMEL_S_RUNNING);
    cur = apply_to(l, &w);
    tell_server(b->c, "ZADD %s 1 %s", gone, r->element[0]->str);
    uint64_t done = 0;
    bool left;
    expect_error(l->ops->purge(l->st, 10, 0, 0, &done, &left, NULL), SEMEL_OK);
    w = change(&cur, SEMEL_S_SUCCEEDED);
    w.next.outcome = SM_STR("second");
    set_windows(&w.next, 100000, 100000, 200000);
    cur = apply_to(l, &w);
    tell_server(b->c, "ZADD %s 1 %s", gone, r->element[0]->str);
    freeReplyObject(r);
    expect_error(l->ops->purge(l->st, 10, 0, 0, &done, &left, NULL), SEMEL_OK);
    assert_int_equal(done, 0);
    got = get_key(l, 1);
    expect_record(&got, &cur);
}

static void repeat_first(void *context)
{
    bench *b = context;
    semel_hash key = key_of(1);
    semel_record cur;
    if (try_get(&b->other, &(semel_ref){.key = &key, .sharded = true, .shard = shard_of(SCOPE)},
                &cur) != SEMEL_OK)
        return;
    semel_write w = change(&cur, SEMEL_S_RUNNING);
    if (try_apply(&b->other, &w, &cur) != SEMEL_OK)
        return;
    w = change(&cur, SEMEL_S_SUCCEEDED);
    set_windows(&w.next, 100000, 100000, 200000);
    try_apply(&b->other, &w, &cur);
}

static void purge_leaves_what_has_changed_since_it_was_read(void **state)
{
    needs_server();
    bench *b = *state;
    semel_write w = fresh(1);
    semel_record cur = claim_new(&b->other, &w);
    w = change(&cur, SEMEL_S_FAILED);
    set_windows(&w.next, -3000, -2000, -1000);
    apply_to(&b->other, &w);
    trap t = {.word = b->scripts[SM_RD_REAP], .meddle = repeat_first, .context = b};
    atomic_store(&b->x.trap, &t);
    uint64_t done = 0;
    bool left;
    expect_error(b->l->ops->purge(b->l->st, 10, 0, 0, &done, &left, NULL), SEMEL_OK);
    assert_null(atomic_load(&b->x.trap));
    assert_int_equal(done, 0);
    cur = get_key(&b->other, 1);
    assert_int_equal(cur.state, SEMEL_S_SUCCEEDED);
}

/* ---- barriers --------------------------------------------------------------------------------*/

/* The effect that bars ends while the one that it barred wants to read it. */
static void end_it(void *context)
{
    bench *b = context;
    ledger *l = &b->other;
    semel_hash key = key_of(1);
    semel_record cur;
    if (try_get(l, &(semel_ref){.key = &key, .sharded = true, .shard = shard_of(SCOPE)}, &cur) !=
        SEMEL_OK)
        return;
    semel_write w = change(&cur, SEMEL_S_SUCCEEDED);
    try_apply(l, &w, &cur);
}

static void who_ran_and_has_just_ended_bars_as_one_that_ran(void **state)
{
    needs_server();
    bench *b = *state;
    semel_write w = fresh(1);
    memset(&w.next.group, 5, sizeof w.next.group);
    semel_record one = claim_new(&b->other, &w), cur;
    w = fresh(2);
    memset(&w.next.group, 5, sizeof w.next.group);
    w.barred_by_group = w.alone = true;
    bool inserted;
    trap t = {.word = "MGET", .meddle = end_it, .context = b};
    atomic_store(&b->x.trap, &t);
    expect_error(try_claim(b->l, &w, &cur, &inserted), SEMEL_E_BARRED);
    expect_record(&cur, &one); /* as it was when it barred */
    atomic_store(&b->x.trap, NULL);
    end_it(b);
    claim_new(b->l, &w); /* nobody is there any more */
}

static semel_write grouped(semel_write w, int group)
{
    memset(&w.next.group, group, sizeof w.next.group);
    w.barred_by_group = true;
    return w;
}

static void who_changes_the_group_leaves_the_old_one(void **state)
{
    needs_server();
    bench *b = *state;
    ledger *l = &b->other;
    semel_write w = grouped(fresh(1), 3);
    semel_record one = claim_new(l, &w), cur;
    w = grouped(change(&one, SEMEL_S_IN_DOUBT), 4);
    one = apply_to(l, &w);
    bool inserted;
    w = grouped(fresh(2), 4);
    expect_error(try_claim(l, &w, &cur, &inserted), SEMEL_E_BARRED);
    assert_int_equal(cur.id, one.id);
    w = grouped(fresh(2), 3);
    w.alone = true;
    claim_new(l, &w);
}

/* Generations of the key itself do not bar it, however many there are before one that does. */
static void all_of_a_group_are_looked_at(void **state)
{
    needs_server();
    bench *b = *state;
    ledger *l = &b->other;
    semel_write w = grouped(fresh(1), 3);
    semel_record one = claim_new(l, &w), cur;
    for (int i = 0; i < 12; i++) {
        w = grouped(change(&one, SEMEL_S_IN_DOUBT), 3);
        w.barred_by_group = false;
        one = apply_to(l, &w);
        w = grouped(repeat(&one), 3);
        one = apply_to(l, &w);
    }
    w = grouped(fresh(2), 3);
    w.barred_by_group = false;
    semel_record two = claim_new(l, &w);
    w = grouped(change(&two, SEMEL_S_IN_DOUBT), 3);
    w.barred_by_group = false;
    two = apply_to(l, &w);
    w = grouped(change(&one, SEMEL_S_RUNNING), 3);
    expect_error(try_apply(l, &w, &cur), SEMEL_E_BARRED);
    assert_int_equal(cur.id, two.id);
}

/* ---- the order of all events -----------------------------------------------------------------*/

/* Another handle writes an event and seals it, after the order was made and before it is read. */
static void write_and_seal(void *context)
{
    bench *b = context;
    semel_write w = fresh(2);
    semel_record cur;
    bool inserted;
    semel_event seal = {.index = 1, .what = SM_STR("sealed"), .body = SM_STR("{}")};
    memset(&seal.hash, 7, sizeof seal.hash);
    try_claim(&b->other, &w, &cur, &inserted);
    b->other.ops->seal(b->other.st, &seal, 0, NULL);
}

static void a_reader_of_all_events_looks_no_further_than_where_it_began(void **state)
{
    needs_server();
    bench *b = *state;
    semel_write w = fresh(1);
    claim_new(&b->other, &w);
    trap t = {.word = "}sealed", .meddle = write_and_seal, .context = b};
    seen *s = seen_new();
    uint64_t after = 0;
    atomic_store(&b->x.trap, &t);
    expect_error(b->l->ops->events(b->l->st, NULL, &after, 100, see_event, s, NULL), SEMEL_OK);
    assert_null(atomic_load(&b->x.trap));
    assert_int_equal(s->n, 1);
    assert_int_equal(after, 1);
    expect_error(b->l->ops->events(b->l->st, NULL, &after, 100, see_event, s, NULL), SEMEL_OK);
    assert_int_equal(s->n, 3);
    seen_free(s);
}

/* Others number the event and remove it, after this one has read it in its queue. */
static void number_and_purge(void *context)
{
    bench *b = context;
    semel_health h;
    uint64_t done = 0;
    bool left;
    b->other.ops->health(b->other.st, false, &h, NULL);
    b->other.ops->purge(b->other.st, 100, h.last_seq, 0, &done, &left, NULL);
}

static void what_was_purged_is_not_numbered_again(void **state)
{
    needs_server();
    bench *b = *state;
    semel_write w = fresh(1);
    claim_new(&b->other, &w);
    trap t = {.word = b->scripts[SM_RD_NUMBER], .meddle = number_and_purge, .context = b};
    atomic_store(&b->x.trap, &t);
    assert_int_equal(events_of(b->l, 0, 0), 0);
    assert_null(atomic_load(&b->x.trap));
    assert_int_equal(last_seq(b->l), 1);
}

/* Others have purged something else meanwhile. */
static void begin_epoch(void *context)
{
    bench *b = context;
    const char *prefix = strstr(b->other.url, "prefix=") + 7;
    freeReplyObject(redisCommand(b->c, "INCR %s{semel}epoch", prefix));
}

static void what_was_not_numbered_stays_in_its_queue(void **state)
{
    needs_server();
    bench *b = *state;
    semel_write w = fresh(1);
    claim_new(&b->other, &w);
    trap t = {.word = b->scripts[SM_RD_NUMBER], .meddle = begin_epoch, .context = b};
    atomic_store(&b->x.trap, &t);
    assert_int_equal(events_of(b->l, 0, 0), 1);
    assert_null(atomic_load(&b->x.trap));
}

static void a_lost_answer_is_no_lost_seal(void **state)
{
    needs_server();
    bench *b = *state;
    trap t = {.word = b->scripts[SM_RD_SEAL], .lose = true};
    semel_event seal = {.index = 1, .what = SM_STR("sealed"), .body = SM_STR("{}")};
    memset(&seal.hash, 7, sizeof seal.hash);
    expect_error(b->other.ops->seal(b->other.st, &seal, 0, NULL), SEMEL_OK);
    atomic_store(&b->x.trap, &t);
    seal.index = 2;
    memset(&seal.hash, 8, sizeof seal.hash);
    expect_error(b->l->ops->seal(b->l->st, &seal, 1, NULL), SEMEL_OK);
    assert_null(atomic_load(&b->x.trap));
    semel_health h;
    expect_error(b->l->ops->health(b->l->st, false, &h, NULL), SEMEL_OK);
    assert_int_equal(h.seal_index, 2);
    assert_int_equal(h.last_seq, 2);
    /* ... but another's is not taken for it */
    atomic_store(&b->x.trap, &t);
    seal.index = 3;
    memset(&seal.hash, 9, sizeof seal.hash);
    expect_error(b->l->ops->seal(b->l->st, &seal, 1, NULL), SEMEL_E_STALE);
}

/* ---- claims ----------------------------------------------------------------------------------*/

static void claim_first(void *context)
{
    bench *b = context;
    semel_write w = fresh(1);
    semel_record cur;
    bool inserted;
    memset(&w.event.hash, 9, sizeof w.event.hash);
    w.next.head = w.event.hash;
    try_claim(&b->other, &w, &cur, &inserted);
}

/* The answer is lost, and the record that is there is of the same version: it is another's. */
static void who_sends_a_claim_again_does_not_take_anothers_for_its_own(void **state)
{
    needs_server();
    bench *b = *state;
    settled(b->l, 2); /* the script is known, so that the question names it */
    trap t = {.word = b->scripts[SM_RD_WRITE], .meddle = claim_first, .context = b, .lose = true};
    semel_write w = fresh(1);
    semel_record cur;
    bool inserted = true;
    atomic_store(&b->x.trap, &t);
    expect_error(try_claim(b->l, &w, &cur, &inserted), SEMEL_OK);
    assert_null(atomic_load(&b->x.trap));
    assert_false(inserted);
    assert_int_equal(cur.head.b[0], 9);
}

/* What the server is for a moment. */
typedef struct demotion {
    bench *b;
    trap back;
} demotion;

static void demote(void *context)
{
    demotion *d = context;
    freeReplyObject(redisCommand(d->b->c, "REPLICAOF 127.0.0.1 1"));
    atomic_store(&d->b->x.trap, &d->back);
}

static void promote(void *context)
{
    const demotion *d = context;
    freeReplyObject(redisCommand(d->b->c, "REPLICAOF NO ONE"));
}

static void a_failover_is_waited_for(void **state)
{
    needs_server();
    bench *b = *state;
    settled(b->l, 2);
    demotion d = {.b = b, .back = {.word = "ROLE", .meddle = promote, .context = &d}};
    trap t = {.word = b->scripts[SM_RD_WRITE], .meddle = demote, .context = &d};
    semel_write w = fresh(1);
    semel_record cur;
    bool inserted = false;
    atomic_store(&b->x.trap, &t);
    semel_err e = try_claim(b->l, &w, &cur, &inserted);
    tell_server(b->c, "REPLICAOF NO ONE");
    expect_error(e, SEMEL_OK);
    assert_true(inserted);
    assert_null(atomic_load(&b->x.trap));
}

/* ---- answers that are none -------------------------------------------------------------------*/

#define TIME_REPLY "*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n"

static void what_is_no_answer_to_the_question_is_not_taken_for_none(void **state)
{
    needs_server();
    bench *b = *state;
    static const char *const answers[] = {
        ":1\r\n" TIME_REPLY,
        "*0\r\n" TIME_REPLY,
        "*-1\r\n" TIME_REPLY,
        "*3\r\n:1\r\n$-1\r\n$-1\r\n" TIME_REPLY,
        "*3\r\n*0\r\n$-1\r\n$-1\r\n" TIME_REPLY,
        "*3\r\n$-1\r\n$-1\r\n$-1\r\n:7\r\n",
    };
    semel_record cur = settled(&b->other, 1), got;
    semel_ref ref = {.id = cur.id, .sharded = true, .shard = cur.shard};
    for (size_t i = 0; i < COUNT(answers); i++) {
        trap t = {.word = "MGET", .answer = answers[i]};
        atomic_store(&b->x.trap, &t);
        semel_err e = try_get(b->l, &ref, &got);
        expect(e == SEMEL_E_UNAVAILABLE, "answer %zu: %s", i, semel_err_name(e));
        assert_null(atomic_load(&b->x.trap));
        expect_error(try_get(b->l, &ref, &got), SEMEL_OK);
        expect_record(&got, &cur);
    }
}

static void what_was_said_without_being_asked_is_no_answer(void **state)
{
    needs_server();
    bench *b = *state;
    semel_record one = settled(&b->other, 1), got;
    semel_ref ref = {.id = one.id, .sharded = true, .shard = one.shard};
    trap t = {.word = "MGET", .answer = "*3\r\n$-1\r\n$-1\r\n$-1\r\n" TIME_REPLY "+OK\r\n"};
    for (int i = 0; i < 2; i++) {
        atomic_store(&b->x.trap, &t);
        expect_error(try_get(b->l, &ref, &got), SEMEL_OK); /* asked again, elsewhere */
        assert_null(atomic_load(&b->x.trap));
        expect_record(&got, &one);
    }
}

static void an_answer_that_claims_to_be_endless_is_none(void **state)
{
    needs_server();
    bench *b = *state;
    semel_record one = settled(&b->other, 1), got;
    semel_ref ref = {.id = one.id, .sharded = true, .shard = one.shard};
    trap t = {.word = "MGET", .answer = "*2147483647\r\n$-1\r\n"};
    int64_t began = monotonic_ns();
    atomic_store(&b->x.trap, &t);
    expect_error(try_get(b->l, &ref, &got), SEMEL_OK); /* asked again, elsewhere */
    assert_null(atomic_load(&b->x.trap));
    assert_true(monotonic_ns() - began < 8000000000);
}

static void what_is_due_has_a_time(void **state)
{
    needs_server();
    bench *b = *state;
    sm_buf answer;
    sm_buf_init(&answer, 65536);
    sm_buf_text(&answer, "*2\r\n$33\r\n0000000000000000000000000000000a1\r\n:5\r\n");
    for (unsigned shard = 1; shard < SM_RD_SHARDS; shard++)
        sm_buf_text(&answer, "*0\r\n");
    sm_buf_byte(&answer, '\0');
    assert_int_equal(answer.err, SM_OK);
    trap t = {.word = "}due", .answer = answer.p};
    seen *s = seen_new();
    atomic_store(&b->x.trap, &t);
    expect_error(b->l->ops->due(b->l->st, 10, see_record, s, NULL), SEMEL_E_UNAVAILABLE);
    assert_null(atomic_load(&b->x.trap));
    seen_free(s);
    sm_buf_fini(&answer);
}

/* An answer that is not about the group says nothing about damage. */
static void a_group_that_was_not_told_of_is_not_taken_for_damaged(void **state)
{
    needs_server();
    bench *b = *state;
    semel_write w = grouped(fresh(1), 3);
    semel_health h;
    claim_new(b->l, &w);
    expect_error(b->l->ops->health(b->l->st, true, &h, NULL), SEMEL_OK); /* the script is known */
    trap t = {.word = b->scripts[SM_RD_GROUP], .answer = ":7\r\n"};
    atomic_store(&b->x.trap, &t);
    expect_error(b->l->ops->health(b->l->st, true, &h, NULL), SEMEL_E_UNAVAILABLE);
    assert_null(atomic_load(&b->x.trap));
}

static void who_wants_no_records_gets_none(void **state)
{
    needs_server();
    bench *b = *state;
    settled(b->l, 1);
    uint64_t cursor = 0;
    seen *s = seen_new();
    expect_error(b->l->ops->query(b->l->st, &(semel_filter){0}, &cursor, 0, see_record, s, NULL),
                 SEMEL_OK);
    assert_int_equal(s->n, 0);
    seen_free(s);
}

int between_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_bench(purge_takes_only_what_is_over_when_it_takes_it),
        on_bench(purge_leaves_what_has_changed_since_it_was_read),
        on_bench(who_ran_and_has_just_ended_bars_as_one_that_ran),
        on_bench(who_changes_the_group_leaves_the_old_one),
        on_bench(all_of_a_group_are_looked_at),
        on_bench(a_reader_of_all_events_looks_no_further_than_where_it_began),
        on_bench(what_was_purged_is_not_numbered_again),
        on_bench(what_was_not_numbered_stays_in_its_queue),
        on_bench(a_lost_answer_is_no_lost_seal),
        on_bench(who_sends_a_claim_again_does_not_take_anothers_for_its_own),
        on_bench(a_failover_is_waited_for),
        on_bench(what_is_no_answer_to_the_question_is_not_taken_for_none),
        on_bench(what_was_said_without_being_asked_is_no_answer),
        on_bench(an_answer_that_claims_to_be_endless_is_none),
        on_bench(what_is_due_has_a_time),
        on_bench(a_group_that_was_not_told_of_is_not_taken_for_damaged),
        on_bench(who_wants_no_records_gets_none),
    };
    return cmocka_run_group_tests_name("between", tests, NULL, NULL);
}
