/* Reading: by name, by what records are, and by what is due. */
#include "conformance.h"

static void get_finds_by_key_and_by_id(void **state)
{
    ledger *l = *state;
    semel_record one = settled(l, 1), two = settled(l, 2), got;
    const struct {
        semel_ref ref;
        const semel_record *expected;
    } rows[] = {
        {{.key = &one.key}, &one},
        {{.key = &two.key, .id = one.id}, &two}, /* a key decides */
        {{.id = one.id}, &one},
        {{.id = two.id, .generation = 1}, &two},
        {{.id = two.id, .generation = 2}, NULL},
        {{.id = one.id + 1}, NULL},
        {{.id = 0}, NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        semel_err err = try_get(l, &rows[i].ref, &got);
        expect(err == (rows[i].expected == NULL ? SEMEL_E_NOT_FOUND : SEMEL_OK), "row %zu: %s", i,
               semel_err_name(err));
        if (rows[i].expected != NULL)
            expect_record(&got, rows[i].expected);
    }
    semel_hash key = key_of(3);
    expect_error(try_get(l, &(semel_ref){.key = &key}, &got), SEMEL_E_NOT_FOUND);
}

static void *no_room(semel_room *room, size_t n)
{
    (void)room;
    (void)n;
    return NULL;
}

static void a_caller_without_memory_is_told_so(void **state)
{
    ledger *l = *state;
    semel_room none = {no_room};
    semel_record one = settled(l, 1), cur;
    semel_write w = fresh(1);
    int64_t now;
    bool inserted;
    expect_error(l->ops->get(l->st, &(semel_ref){.id = one.id}, &none, &cur, &now, NULL),
                 SEMEL_E_NOMEM);
    expect_error(l->ops->claim(l->st, &w, &none, &cur, &now, &inserted, NULL), SEMEL_E_NOMEM);
    semel_record got = get_key(l, 1);
    expect_record(&got, &one);
}

/* ---- peek ------------------------------------------------------------------------------------*/

static void peek_never_says_what_is_not_so(void **state)
{
    ledger *l = *state;
    if (l->ops->peek == NULL)
        skip();
    expect_error(peek_truly(l, 1), SEMEL_E_NOT_FOUND);
    semel_write w = fresh(1);
    semel_record cur = claim_new(l, &w);
    peek_truly(l, 1);
    static const semel_state walk[] = {SEMEL_S_SUCCEEDED, SEMEL_S_NONE,   SEMEL_S_RUNNING,
                                       SEMEL_S_IN_DOUBT,  SEMEL_S_FAILED, SEMEL_S_RUNNING,
                                       SEMEL_S_PARTIAL};
    for (size_t i = 0; i < COUNT(walk); i++) {
        w = change(&cur, walk[i]);
        cur = apply_to(l, &w);
        peek_truly(l, 1);
    }
    w = repeat(&cur);
    cur = apply_to(l, &w);
    peek_truly(l, 1);
    w = change(&cur, SEMEL_S_SUCCEEDED);
    cur = apply_to(l, &w);
    peek_truly(l, 1);
}

static void peek_knows_a_settled_record_that_was_just_read(void **state)
{
    ledger *l = *state;
    if (l->ops->peek == NULL)
        skip();
    for (uint64_t n = 1; n <= 20; n++) {
        settled(l, n);
        get_key(l, n);
        expect_error(peek_truly(l, n), SEMEL_OK);
    }
}

/* ---- query -----------------------------------------------------------------------------------*/

/* All records that a filter gives, in pages of `limit`. */
static void query_all(ledger *l, const semel_filter *f, size_t limit, seen *s)
{
    uint64_t cursor = 0;
    seen_clear(s);
    do {
        size_t before = s->n;
        expect_error(l->ops->query(l->st, f, &cursor, limit, see_record, s, NULL), SEMEL_OK);
        expect(s->n - before <= limit, "%zu records for a limit of %zu", s->n - before, limit);
    } while (cursor != 0);
}

static void claim_as(ledger *l, uint64_t n, semel_state state, const char *scope, const char *tool,
                     int64_t created_at)
{
    semel_write w = fresh(n);
    w.next.state = (uint8_t)state;
    w.next.scope = sm_str_from(scope);
    w.next.shard = w.event.shard = shard_of(scope);
    w.next.tool = sm_str_from(tool);
    if (created_at != 0)
        w.next.created_at = created_at;
    memset(&w.next.group, (int)(n % 3), sizeof w.next.group);
    claim_new(l, &w);
}

/* Which keys came, as text: "5 3 1". */
static const char *keys_seen(const seen *s)
{
    static char text[512];
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < s->n; i++) {
        uint64_t number = 0;
        for (uint64_t k = 1; k < 20 && number == 0; k++) {
            semel_hash key = key_of(k);
            number = memcmp(&key, &s->records[i].key, sizeof key) == 0 ? k : 0;
        }
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%llu", n == 0 ? "" : " ",
                              (unsigned long long)number);
    }
    return text;
}

static void queries_give_what_their_filter_says_the_newest_first(void **state)
{
    ledger *l = *state;
    int64_t t = clock_ms() - 100000;
    bool exact = (l->caps & SEMEL_STORE_CLOCK) == 0;
    claim_as(l, 1, SEMEL_S_RUNNING, "a", "mail.send", t + 1000);
    claim_as(l, 2, SEMEL_S_SUCCEEDED, "a/b", "mail.send", t + 2000);
    claim_as(l, 3, SEMEL_S_IN_DOUBT, "a/b/c", "mail.find", t + 3000);
    claim_as(l, 4, SEMEL_S_FAILED, "a/bc", "mail_send", t + 4000);
    claim_as(l, 5, SEMEL_S_RUNNING, "a/b", "m", t + 5000);
    claim_as(l, 6, SEMEL_S_CANCELED, "A/b", "[x]%_'", t + 6000);
    semel_hash group;
    memset(&group, 1, sizeof group);

#define STATE(s) (1u << SEMEL_S_##s)
    const struct {
        semel_filter filter;
        const char *keys;
    } rows[] = {
        {{0}, "6 5 4 3 2 1"},
        {{.states = STATE(RUNNING)}, "5 1"},
        {{.states = STATE(RUNNING) | STATE(FAILED)}, "5 4 1"},
        {{.states = STATE(CANCELED)}, "6"},
        {{.states = STATE(READY)}, ""},
        {{.tool = SM_STR("mail.send")}, "2 1"},
        {{.tool = SM_STR("mail.*")}, "3 2 1"},
        {{.tool = SM_STR("mail?send")}, "4 2 1"},
        {{.tool = SM_STR("*")}, "6 5 4 3 2 1"},
        {{.tool = SM_STR("?")}, "5"},
        {{.tool = SM_STR("*send")}, "4 2 1"},
        {{.tool = SM_STR("*.*nd")}, "3 2 1"},
        {{.tool = SM_STR("mail.sen")}, ""},
        {{.tool = SM_STR("MAIL.SEND")}, ""},
        {{.tool = SM_STR("MAIL*")}, ""},
        {{.tool = SM_STR("[x]%_'")}, "6"},
        {{.tool = SM_STR("[x]*")}, "6"},
        {{.tool = SM_STR("[m]*")}, ""},
        {{.tool = SM_STR("mail%")}, ""},
        {{.scope = SM_STR("a")}, "5 4 3 2 1"},
        {{.scope = SM_STR("a/b")}, "5 3 2"},
        {{.scope = SM_STR("a/b/c")}, "3"},
        {{.scope = SM_STR("a/bc")}, "4"},
        {{.scope = SM_STR("b")}, ""},
        {{.scope = SM_STR("a/%")}, ""},
        {{.since = t + 3000}, "6 5 4 3"},
        {{.until = t + 3000}, "2 1"},
        {{.since = t + 2000, .until = t + 5000}, "4 3 2"},
        {{.group = &group}, "4 1"},
        {{.states = STATE(RUNNING), .tool = SM_STR("mail*"), .scope = SM_STR("a")}, "1"},
        {{.group = &group, .states = STATE(FAILED), .since = t + 4000, .until = t + 4001}, "4"},
        {{.group = &group, .states = STATE(FAILED), .until = t + 4000}, ""},
    };
    seen *s = seen_new();
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (!exact && (rows[i].filter.since != 0 || rows[i].filter.until != 0))
            continue; /* created_at is the store's then */
        for (size_t limit = 1; limit <= 7; limit += 3) {
            query_all(l, &rows[i].filter, limit, s);
            expect(strcmp(keys_seen(s), rows[i].keys) == 0,
                   "row %zu by %zu: got <%s>, expected <%s>", i, limit, keys_seen(s), rows[i].keys);
        }
    }
    seen_free(s);
}

static void queries_give_what_was_created_in_a_span_of_time(void **state)
{
    ledger *l = *state;
    semel_record one = settled(l, 1), two = one;
    for (uint64_t n = 2; two.created_at <= one.created_at; n++) { /* in a later millisecond */
        expect(n < 10000, "the store's time stands still");
        pause_ms(1);
        two = settled(l, n);
    }
    const struct {
        semel_filter filter;
        bool first, last;
    } rows[] = {
        {{.since = one.created_at}, true, true},
        {{.since = two.created_at}, false, true},
        {{.since = two.created_at + 1}, false, false},
        {{.until = one.created_at}, false, false},
        {{.until = two.created_at}, true, false},
        {{.until = two.created_at + 1}, true, true},
        {{.since = one.created_at, .until = two.created_at}, true, false},
    };
    seen *s = seen_new();
    for (size_t i = 0; i < COUNT(rows); i++) {
        bool first = false, last = false;
        query_all(l, &rows[i].filter, 10, s);
        for (size_t k = 0; k < s->n; k++) {
            first = first || s->records[k].id == one.id;
            last = last || s->records[k].id == two.id;
        }
        expect(first == rows[i].first && last == rows[i].last, "row %zu: %d %d", i, first, last);
    }
    seen_free(s);
}

static void queries_give_whole_records(void **state)
{
    ledger *l = *state;
    semel_record one = settled(l, 1);
    semel_write w = fresh(2);
    w.next.step = SM_STR("");
    w.next.life = (semel_str){"a\0b", 3};
    semel_record two = claim_new(l, &w);
    seen *s = seen_new();
    query_all(l, &(semel_filter){0}, 10, s);
    assert_int_equal(s->n, 2);
    expect_record(&s->records[0], &two);
    expect_record(&s->records[1], &one);
    seen_free(s);
}

static void paging_neither_loses_nor_repeats(void **state)
{
    ledger *l = *state;
    enum { N = 1200 };
    fill(l, 1, N);
    static const size_t limits[] = {1000000, 100, 7};
    seen *s = seen_new();
    for (size_t k = 0; k < COUNT(limits); k++) {
        query_all(l, &(semel_filter){.states = 1u << SEMEL_S_SUCCEEDED}, limits[k], s);
        expect(s->n == N, "%zu records in pages of %zu", s->n, limits[k]);
        static bool was[N + 1];
        memset(was, 0, sizeof was);
        for (uint64_t n = 1; n <= N; n++) {
            semel_hash key = key_of(n);
            for (size_t i = 0; i < s->n && !was[n]; i++)
                was[n] = memcmp(&key, &s->records[i].key, sizeof key) == 0;
            expect(was[n], "key %d is lost in pages of %zu", (int)n, limits[k]);
        }
    }
    query_all(l, &(semel_filter){.states = 1u << SEMEL_S_RUNNING}, 10, s);
    assert_int_equal(s->n, 0);
    seen_free(s);
}

static void a_query_that_was_stopped_goes_on_where_it_was(void **state)
{
    ledger *l = *state;
    fill(l, 1, 10);
    seen *s = seen_new();
    uint64_t cursor = 0;
    for (size_t round = 1; round <= 3; round++) {
        s->stop_after = round * 3;
        expect_error(l->ops->query(l->st, &(semel_filter){0}, &cursor, 10, see_record, s, NULL),
                     SEMEL_OK);
        assert_int_equal(s->n, round * 3);
        assert_int_not_equal(cursor, 0);
    }
    s->stop_after = 0;
    while (cursor != 0)
        expect_error(l->ops->query(l->st, &(semel_filter){0}, &cursor, 10, see_record, s, NULL),
                     SEMEL_OK);
    assert_int_equal(s->n, 10);
    for (size_t i = 0; i < 10; i++) {
        for (size_t k = 0; k < i; k++)
            assert_memory_not_equal(&s->records[i].key, &s->records[k].key, sizeof(semel_hash));
    }
    seen_free(s);
}

typedef struct nested {
    ledger *ledger;
    size_t n;
} nested;

static bool use_the_store(void *context, const semel_record *r, int64_t now)
{
    nested *in = context;
    semel_record got;
    (void)now;
    expect_error(try_get(in->ledger, &(semel_ref){.key = &r->key}, &got), SEMEL_OK);
    expect_record(&got, r);
    in->n++;
    return true;
}

static void a_sink_may_use_the_store(void **state)
{
    ledger *l = *state;
    fill(l, 1, 5);
    nested in = {l, 0};
    uint64_t cursor = 0;
    expect_error(l->ops->query(l->st, &(semel_filter){0}, &cursor, 10, use_the_store, &in, NULL),
                 SEMEL_OK);
    assert_int_equal(in.n, 5);
}

/* ---- due -------------------------------------------------------------------------------------*/

static void due_at(ledger *l, uint64_t n, semel_state state, int64_t at)
{
    semel_write w = fresh(n);
    w.next.state = (uint8_t)state;
    w.next.due_at = at;
    claim_new(l, &w);
}

static void what_is_due_comes_the_longest_due_first(void **state)
{
    ledger *l = *state;
    int64_t now = clock_ms();
    due_at(l, 1, SEMEL_S_RUNNING, now - 1000);
    due_at(l, 2, SEMEL_S_PENDING, now - 50000);
    due_at(l, 3, SEMEL_S_IN_DOUBT, now - 30000);
    due_at(l, 4, SEMEL_S_SUCCEEDED, now - 40000); /* settled: never due */
    due_at(l, 5, SEMEL_S_READY, now + 3600000);
    due_at(l, 6, SEMEL_S_RUNNING, 0);
    due_at(l, 7, SEMEL_S_RUNNING, INT64_MAX);
    due_at(l, 8, SEMEL_S_READY, now - 40000);
    seen *s = seen_new();
    expect_error(l->ops->due(l->st, 100, see_record, s, NULL), SEMEL_OK);
    expect_text(sm_str_from(keys_seen(s)), "2 8 3 1");
    semel_record got = get_key(l, 2);
    expect_record(&s->records[0], &got);

    seen_clear(s);
    expect_error(l->ops->due(l->st, 2, see_record, s, NULL), SEMEL_OK);
    expect_text(sm_str_from(keys_seen(s)), "2 8");
    seen_clear(s);
    s->stop_after = 1;
    expect_error(l->ops->due(l->st, 100, see_record, s, NULL), SEMEL_OK);
    expect_text(sm_str_from(keys_seen(s)), "2");

    semel_write w = change(&got, SEMEL_S_DENIED);
    apply_to(l, &w);
    got = get_key(l, 8);
    w = change(&got, SEMEL_S_READY);
    w.next.due_at = now - 60000;
    apply_to(l, &w);
    got = get_key(l, 3);
    w = change(&got, SEMEL_S_IN_DOUBT);
    w.next.due_at = 0;
    apply_to(l, &w);
    seen_clear(s);
    expect_error(l->ops->due(l->st, 100, see_record, s, NULL), SEMEL_OK);
    expect_text(sm_str_from(keys_seen(s)), "8 1");
    seen_free(s);
}

static void something_falls_due_without_a_write(void **state)
{
    ledger *l = *state;
    due_at(l, 1, SEMEL_S_RUNNING, clock_ms() + 300);
    seen *s = seen_new();
    expect_error(l->ops->due(l->st, 100, see_record, s, NULL), SEMEL_OK);
    assert_int_equal(s->n, 0);
    pause_ms(350);
    expect_error(l->ops->due(l->st, 100, see_record, s, NULL), SEMEL_OK);
    assert_int_equal(s->n, 1);
    seen_free(s);
}

int reading_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_ledger(get_finds_by_key_and_by_id),
        on_ledger(a_caller_without_memory_is_told_so),
        on_ledger(peek_never_says_what_is_not_so),
        on_ledger(peek_knows_a_settled_record_that_was_just_read),
        on_ledger(queries_give_what_their_filter_says_the_newest_first),
        on_ledger(queries_give_what_was_created_in_a_span_of_time),
        on_ledger(queries_give_whole_records),
        on_ledger(paging_neither_loses_nor_repeats),
        on_ledger(a_query_that_was_stopped_goes_on_where_it_was),
        on_ledger(a_sink_may_use_the_store),
        on_ledger(what_is_due_comes_the_longest_due_first),
        on_ledger(something_falls_due_without_a_write),
    };
    return cmocka_run_group_tests_name("reading", tests, NULL, NULL);
}
