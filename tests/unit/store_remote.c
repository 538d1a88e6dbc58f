/* What distant stores share: options in a URL, the gate of a server in trouble, and how the ledger
 * treats a store with a clock of its own or one that may lose something. */
#include "ledger.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/digest.h"
#include "ledger/work/ledger.h"
#include "store/shared/gate.h"
#include "store/shared/url.h"
#include "store/stores.h"

/* ---- URLs ------------------------------------------------------------------------------------*/

static void options_of_ours_are_taken_out(void **state)
{
    (void)state;
    static const struct {
        const char *url, *rest, *pool, *schema;
    } rows[] = {
        {"x://h/d", "x://h/d", NULL, NULL},
        {"x://h/d?pool=4", "x://h/d", "4", NULL},
        {"x://h/d?a=1&pool=4&b=2", "x://h/d?a=1&b=2", "4", NULL},
        {"x://h/d?pool=4&schema=a%20b&c", "x://h/d?c", "4", "a b"},
        {"x://h/d?pools=4", "x://h/d?pools=4", NULL, NULL},
        {"x://h/d?schema=", "x://h/d", NULL, ""},
        {"x://h/d?schema", "x://h/d", NULL, ""},
        {"x://h/d?&&a=1&", "x://h/d?a=1", NULL, NULL},
        {"x://h/d?a=b?pool=4", "x://h/d?a=b?pool=4", NULL, NULL},
        {"x://h/d?", "x://h/d", NULL, NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_arena a;
        sm_arena_init(&a, 1 << 16);
        sm_url_option o[] = {{.name = "pool"}, {.name = "schema"}};
        sm_str url = sm_str_from(rows[i].url);
        assert_int_equal(sm_url_take(&a, &url, o, 2, NULL), SM_OK);
        expect_text(url, rows[i].rest);
        expect((o[0].value.p == NULL) == (rows[i].pool == NULL), "%s", rows[i].url);
        expect((o[1].value.p == NULL) == (rows[i].schema == NULL), "%s", rows[i].url);
        if (rows[i].pool != NULL)
            expect_text(o[0].value, rows[i].pool);
        if (rows[i].schema != NULL)
            expect_text(o[1].value, rows[i].schema);
        sm_arena_fini(&a);
    }
}

static void what_cannot_be_read_is_refused_without_repeating_it(void **state)
{
    (void)state;
    static const char *const bad[] = {"x://u:secret@h?pool=1&pool=secret", "x://h?pool=%secret",
                                      "x://h?pool=secret%", "x://h?pool=%2",
                                      "x://h?pool=a%00secret"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        sm_arena a;
        sm_arena_init(&a, 1 << 16);
        sm_url_option o = {.name = "pool"};
        sm_fault fault = {0};
        sm_str url = sm_str_from(bad[i]);
        expect(sm_url_take(&a, &url, &o, 1, &fault) == SEMEL_E_BAD_ARGUMENTS, "%s", bad[i]);
        assert_non_null(strstr(fault.text, "pool"));
        assert_null(strstr(fault.text, "secret"));
        sm_arena_fini(&a);
    }
    static const char *const numbers[] = {"", "0", "201", "-1", "1x", "99999999999", " 5"};
    for (size_t i = 0; i < COUNT(numbers); i++) {
        int64_t n;
        sm_fault fault = {0};
        sm_url_option o = {"pool", sm_str_from(numbers[i])};
        expect(sm_url_number(&o, 1, 200, 16, &n, &fault) == SEMEL_E_BAD_ARGUMENTS, "%s",
               numbers[i]);
        assert_non_null(strstr(fault.text, "pool from 1 to 200"));
    }
    int64_t n;
    assert_int_equal(sm_url_number(&(sm_url_option){"pool", SM_STR("200")}, 1, 200, 16, &n, NULL),
                     SM_OK);
    assert_int_equal(n, 200);
    assert_int_equal(sm_url_number(&(sm_url_option){.name = "pool"}, 1, 200, 16, &n, NULL), SM_OK);
    assert_int_equal(n, 16);
}

/* ---- the gate --------------------------------------------------------------------------------*/

static int64_t in_ms(int64_t ms)
{
    return sm_clock_mono_ns() + ms * 1000000;
}

static void a_gate_is_open_until_something_fails(void **state)
{
    (void)state;
    sm_gate g;
    sm_gate_init(&g, 60000000000);
    assert_int_equal(sm_gate_enter(&g, 0, NULL), SM_OK);
    sm_gate_good(&g);
    sm_fault why = {.code = SEMEL_E_UNAVAILABLE, .text = "nobody is there"}, told = {0};
    int64_t began = sm_clock_mono_ns();
    sm_gate_bad(&g, &why);
    sm_err e = sm_gate_enter(&g, in_ms(1), &told);
    if (e != SM_OK) { /* else this thread had to wait for a processor */
        assert_int_equal(e, SEMEL_E_UNAVAILABLE);
        assert_string_equal(told.text, "nobody is there");
        e = sm_gate_enter(&g, in_ms(60000), &told); /* a young trouble is waited out */
    }
    assert_int_equal(e, SM_OK);
    int64_t took = sm_clock_mono_ns() - began;
    expect(took > 10 * 1000000, "%lld ns", (long long)took);
    /* One tries; the others wait for how it went. */
    assert_int_equal(sm_gate_enter(&g, in_ms(20), &told), SEMEL_E_UNAVAILABLE);
    sm_gate_good(&g);
    assert_int_equal(sm_gate_enter(&g, 0, NULL), SM_OK);
    sm_gate_fini(&g);
}

static void an_old_trouble_is_told_at_once(void **state)
{
    (void)state;
    sm_gate g;
    sm_gate_init(&g, 1000000); /* a patience of one millisecond */
    sm_fault why = {.code = SEMEL_E_UNAVAILABLE, .text = "gone"}, told = {0};
    sm_gate_bad(&g, &why);
    usleep(3000);
    while (sm_gate_enter(&g, in_ms(5000), &told) != SM_OK) /* until it is this caller's to try */
        usleep(1000);
    int64_t began = sm_clock_mono_ns();
    for (int i = 0; i < 100; i++) {
        assert_int_equal(sm_gate_enter(&g, in_ms(5000), &told), SEMEL_E_UNAVAILABLE);
        expect(sm_clock_mono_ns() - began < 4000 * 1000000ll, "caller %d waited", i);
    }
    assert_string_equal(told.text, "gone");
    sm_gate_fini(&g);
}

typedef struct crowd {
    sm_gate gate;
    atomic_uint tries;
    int64_t until_ns;
} crowd;

static void *keep_trying(void *context)
{
    crowd *c = context;
    const sm_fault why = {.code = SEMEL_E_UNAVAILABLE, .text = "gone"};
    while (sm_clock_mono_ns() < c->until_ns) {
        sm_fault told;
        if (sm_gate_enter(&c->gate, c->until_ns, &told) == SM_OK) {
            atomic_fetch_add(&c->tries, 1);
            sm_gate_bad(&c->gate, &why);
        } else {
            usleep(1000);
        }
    }
    return NULL;
}

static void many_callers_try_seldom(void **state)
{
    (void)state;
    enum { N = 16 };
    crowd c = {.until_ns = in_ms(1500)};
    sm_gate_init(&c.gate, 100000000);
    pthread_t threads[N];
    for (int i = 0; i < N; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, keep_trying, &c), 0);
    for (int i = 0; i < N; i++)
        pthread_join(threads[i], NULL);
    /* The first tries of all may meet; after that each pause is longer than the one before. */
    expect(atomic_load(&c.tries) >= 3 && atomic_load(&c.tries) <= N + 8, "%u tries",
           atomic_load(&c.tries));
    sm_gate_fini(&c.gate);
}

/* ---- stores that are not like ours -----------------------------------------------------------*/

/* The memory store, with a clock that is an hour ahead, or that may lose something. */
static semel_store_ops odd;
static uint32_t odd_caps;
static int64_t odd_ms;
static unsigned odd_claims, odd_gets;
static int64_t odd_takes_ms; /* from a claim to its answer */
static enum { LOSES_NOTHING, LOSES_ANSWER, LOSES_WRITE } odd_loses;
static bool odd_away; /* it gives no record */

static semel_err odd_open(semel_str url, const semel_store_env *env, semel_store **out,
                          uint32_t *caps, semel_fault *fault)
{
    semel_err e = sm_store_memory.open(url, env, out, caps, fault);
    *caps |= odd_caps;
    return e;
}

/* So many answers say that there is nothing, although there is: it has not arrived yet. */
static atomic_int odd_hides;

/* What is stopped is read beside all that is asked for. */
static bool is_board(const semel_ref *ref)
{
    static const char hashed[] = "semel-shared-1 /board ";
    sm_digest d;
    sm_hash key;
    assert_int_equal(sm_digest_init(&d), SM_OK);
    assert_int_equal(sm_digest_bytes(&d, hashed, sizeof hashed - 1, &key), SM_OK);
    sm_digest_fini(&d);
    return ref->key != NULL && memcmp(ref->key, &key, sizeof key) == 0;
}

static semel_err odd_get(semel_store *st, const semel_ref *ref, semel_room *room, semel_record *cur,
                         int64_t *now, semel_fault *fault)
{
    if (is_board(ref)) {
        semel_err e = sm_store_memory.get(st, ref, room, cur, now, fault);
        *now = sm_clock_ms() + odd_ms;
        return e;
    }
    odd_gets++;
    if (odd_away)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "nobody is there");
    semel_err e = sm_store_memory.get(st, ref, room, cur, now, fault);
    *now = sm_clock_ms() + odd_ms;
    return atomic_load(&odd_hides) > 0 && atomic_fetch_sub(&odd_hides, 1) > 0 ? SEMEL_E_NOT_FOUND
                                                                              : e;
}

static semel_err odd_claim(semel_store *st, const semel_write *fresh, semel_room *room,
                           semel_record *cur, int64_t *now, bool *inserted, semel_fault *fault)
{
    odd_claims++;
    if (odd_loses == LOSES_ANSWER)
        sm_store_memory.claim(st, fresh, room, cur, now, inserted, fault);
    if (odd_loses != LOSES_NOTHING)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "the answer was lost");
    int64_t off = fresh->now - sm_clock_ms() - odd_ms;
    if (off < -SEMEL_CLOCK_SLACK_MS || off > SEMEL_CLOCK_SLACK_MS) {
        *now = sm_clock_ms() + odd_ms;
        cur->version = 0;
        return SEMEL_E_STALE;
    }
    semel_err e = sm_store_memory.claim(st, fresh, room, cur, now, inserted, fault);
    *now = sm_clock_ms() + odd_ms;
    usleep((useconds_t)(odd_takes_ms * 1000));
    return e;
}

static semel_err odd_apply(semel_store *st, const semel_write *w, semel_room *room,
                           semel_record *cur, int64_t *now, semel_fault *fault)
{
    semel_err e = sm_store_memory.apply(st, w, room, cur, now, fault);
    *now = sm_clock_ms() + odd_ms;
    return e;
}

static semel_err odd_health(semel_store *st, bool thorough, semel_health *out, semel_fault *fault)
{
    semel_err e = sm_store_memory.health(st, thorough, out, fault);
    snprintf(out->durability, sizeof out->durability, "the last second may be lost");
    return e;
}

static void make_odd(uint32_t caps, int64_t ms)
{
    odd = sm_store_memory;
    odd.open = odd_open;
    odd.get = odd_get;
    odd.claim = odd_claim;
    odd.apply = odd_apply;
    odd.health = odd_health;
    odd.peek = NULL;
    odd_caps = caps;
    odd_ms = ms;
}

static semel_err open_odd(const char *contract, uint32_t caps, int64_t ms, semel **out,
                          semel_fault *fault)
{
    make_odd(caps, ms);
    semel_options o = {
        .size = sizeof o, .url = "memory:", .store = &odd, .contract = sm_str_from(contract)};
    return semel_open(&o, out, fault);
}

static void the_stores_clock_counts_not_ours(void **state)
{
    (void)state;
    ledger l = {.a = semel_answer_new()};
    semel_fault fault = {0};
    assert_int_equal(open_odd(NULL, SEMEL_STORE_CLOCK, 3600000, &l.s, &fault), SEMEL_OK);
    odd_claims = odd_gets = 0;
    begin(&l, "t", "{}");
    expect_execute(&l);
    commit(&l, "1");
    assert_int_equal(odd_claims, 1); /* two round trips in all: the time was known */
    assert_int_equal(odd_gets, 0);
    begin(&l, "t", "{}");
    expect_replay(&l, "1");
    assert_int_equal(odd_claims, 2);
    assert_int_equal(odd_gets, 0);

    odd_ms = -7200000; /* another server takes over, whose clock is wrong */
    begin(&l, "t", "{\"other\":1}");
    expect_execute(&l);
    assert_int_equal(odd_claims, 4);
    commit(&l, "2");
    begin(&l, "t", "{\"other\":1}");
    expect_replay(&l, "2");
    semel_stats stats = {.size = sizeof stats};
    assert_int_equal(semel_stats_get(l.s, false, &stats, NULL), SEMEL_OK);
    expect(stats.ahead_ms > -7201000 && stats.ahead_ms < -7199000, "%lld",
           (long long)stats.ahead_ms);
    end_ledger(&l);
}

static bool count_item(void *context, const semel_answer *a, const semel_record *r)
{
    (void)a;
    (void)r;
    ++*(unsigned *)context;
    return true;
}

static void a_claim_that_nobody_was_told_of_is_taken_back(void **state)
{
    (void)state;
    for (int keeps = 0; keeps < 2; keeps++) {
        ledger l = {.a = semel_answer_new()};
        semel_fault fault = {0};
        assert_int_equal(
            open_odd("{version: 1, tools: {t: {class: write, failures: replay, lease: 1h}}}", 0, 0,
                     &l.s, &fault),
            SEMEL_OK);
        odd_loses = keeps ? LOSES_ANSWER : LOSES_WRITE;
        assert_int_equal(begin(&l, "t", "{}"), SEMEL_E_UNAVAILABLE);
        expect_refused(&l, SEMEL_C_LEDGER_UNAVAILABLE);
        odd_loses = LOSES_NOTHING;
        semel_call c = call_of("t", "{}"); /* the keeper's next round gives the key back */
        int64_t end = sm_clock_deadline_ns(10000);
        do {
            usleep(20000);
            take(&l, semel_begin(l.s, &c, l.a));
        } while (l.a->verdict != SEMEL_EXECUTE && sm_clock_mono_ns() < end);
        expect_execute(&l);
        commit(&l, "1");
        begin(&l, "t", "{}");
        expect_replay(&l, "1");
        end_ledger(&l);
    }
}

static void a_claim_that_arrives_late_is_taken_back_too(void **state)
{
    (void)state;
    ledger l = {.a = semel_answer_new()};
    semel_fault fault = {0};
    assert_int_equal(open_odd(NULL, 0, 0, &l.s, &fault), SEMEL_OK);
    odd_loses = LOSES_ANSWER;
    begin(&l, "t", "{}");
    atomic_store(&odd_hides, 2); /* the keeper looks twice in vain */
    odd_loses = LOSES_NOTHING;
    int64_t end = sm_clock_deadline_ns(10000);
    while (atomic_load(&odd_hides) > 0 && sm_clock_mono_ns() < end)
        usleep(10000);
    do {
        usleep(20000);
        begin(&l, "t", "{}");
    } while (l.a->verdict != SEMEL_EXECUTE && sm_clock_mono_ns() < end);
    expect_execute(&l);
    end_ledger(&l);
}

static void a_claim_that_cannot_be_taken_back_yet_is_not_forgotten(void **state)
{
    (void)state;
    ledger l = {.a = semel_answer_new()};
    make_odd(0, 0);
    semel_options o = {.size = sizeof o, .url = "memory:", .store = &odd, .one_shot = true};
    assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
    odd_loses = LOSES_ANSWER;
    assert_int_equal(begin(&l, "t", "{}"), SEMEL_E_UNAVAILABLE);
    odd_loses = LOSES_NOTHING;
    odd_away = true;
    for (int i = 0; i < 2; i++) /* as the keeper does, which a handle for one call has not */
        sm_withdraw_all(l.s, l.a);
    odd_away = false;
    begin(&l, "t", "{}");
    expect_refused(&l, SEMEL_C_RETRY_IN_FLIGHT);
    sm_withdraw_all(l.s, l.a);
    begin(&l, "t", "{}");
    expect_execute(&l);
    end_ledger(&l);
}

/* A file, and a claim in it whose answer is lost. */
static semel_err claim_unheard(semel_store *st, const semel_write *fresh, semel_room *room,
                               semel_record *cur, int64_t *now, bool *inserted, semel_fault *fault)
{
    assert_int_equal(sm_store_sqlite.claim(st, fresh, room, cur, now, inserted, fault), SEMEL_OK);
    return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "the answer was lost");
}

static void a_claim_that_nobody_was_told_of_is_taken_back_when_the_ledger_is_closed(void **state)
{
    (void)state;
    char url[128];
    semel_store_ops unheard = sm_store_sqlite;
    unheard.claim = claim_unheard;
    snprintf(url, sizeof url, "sqlite:%s/unheard.db", ledger_scratch());
    semel_options o = {.size = sizeof o, .url = url, .store = &unheard, .one_shot = true};
    ledger l = {.a = semel_answer_new()};
    assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
    assert_int_equal(begin(&l, "t", "{}"), SEMEL_E_UNAVAILABLE);
    end_ledger(&l);
    l = (ledger){.s = open_ledger(url, NULL, true), .a = semel_answer_new()};
    begin(&l, "t", "{}");
    expect_execute(&l);
    end_ledger(&l);
}

/* Observe mode runs the call although the ledger does not answer. So nobody may say that it did not
 * run. */
static void who_is_told_after_the_leases_end_runs_nothing(void **state)
{
    (void)state;
    for (int clock = 0; clock < 2; clock++) {
        ledger l = {.a = semel_answer_new()};
        semel_fault fault = {0};
        assert_int_equal(open_odd("{version: 1, tools: {t: {class: write, lease: 2s}}}",
                                  clock ? SEMEL_STORE_CLOCK : 0, 0, &l.s, &fault),
                         SEMEL_OK);
        odd_takes_ms = 2100;
        assert_int_equal(begin(&l, "t", "{}"), SEMEL_E_UNAVAILABLE);
        expect_refused(&l, SEMEL_C_LEDGER_UNAVAILABLE);
        odd_takes_ms = 0;
        int64_t end = sm_clock_deadline_ns(10000); /* and it is taken back */
        do {
            usleep(20000);
            begin(&l, "t", "{}");
        } while (l.a->verdict != SEMEL_EXECUTE && sm_clock_mono_ns() < end);
        expect_execute(&l);
        /* A slow answer has not made the next lease shorter. */
        expect(l.a->lease_ms > 1500, "%lld", (long long)l.a->lease_ms);
        commit(&l, "1");
        odd_takes_ms = 800;
        begin(&l, "t", "{\"slow\":1}");
        expect_execute(&l);
        expect(l.a->lease_ms > 200 && l.a->lease_ms <= 1210, "%lld", (long long)l.a->lease_ms);
        odd_takes_ms = 0;
        end_ledger(&l);
    }
}

static void what_is_observed_is_not_taken_back(void **state)
{
    (void)state;
    ledger l = {.a = semel_answer_new()};
    semel_fault fault = {0};
    assert_int_equal(open_odd("{version: 1, tools: {t: {class: write, mode: observe, lease: 1h}}}",
                              0, 0, &l.s, &fault),
                     SEMEL_OK);
    odd_loses = LOSES_ANSWER;
    begin(&l, "t", "{}");
    odd_loses = LOSES_NOTHING;
    assert_int_equal(l.a->verdict, SEMEL_EXECUTE);
    usleep(1500000); /* one round of the keeper and more */
    semel_query q = {.size = sizeof q, .filter = {.states = 1u << SEMEL_S_RUNNING}};
    unsigned running = 0;
    assert_int_equal(semel_list(l.s, &q, count_item, &running, &fault), SEMEL_OK);
    assert_int_equal(running, 1);
    end_ledger(&l);
}

static void nothing_irreversible_is_begun_where_it_may_be_forgotten(void **state)
{
    (void)state;
    static const char contract[] = "version: 1\ntools:\n  note: {class: write}\n"
                                   "  pay: {class: irreversible}\n";
    semel *s = NULL;
    semel_fault fault = {0};
    assert_int_equal(open_odd(contract, SEMEL_STORE_LOSSY, 0, &s, &fault), SEMEL_E_UNAVAILABLE);
    assert_null(s);
    assert_non_null(strstr(fault.text, "the last second may be lost"));
    assert_non_null(strstr(fault.text, "accept_data_loss=yes"));
    static const char variant[] =
        "version: 1\ntools:\n  pay:\n    class: write\n    variants:\n"
        "      - when: [{field: /action, equals: delete}]\n        class: irreversible\n";
    assert_int_equal(open_odd(variant, SEMEL_STORE_LOSSY, 0, &s, &fault), SEMEL_E_UNAVAILABLE);
    assert_non_null(strstr(fault.text, "cannot hold irreversible effects"));
    /* Whichever of the tools it is. */
    assert_int_equal(open_odd("version: 1\ntools:\n  pay: {class: irreversible}\n"
                              "  note: {class: write}\n",
                              SEMEL_STORE_LOSSY, 0, &s, &fault),
                     SEMEL_E_UNAVAILABLE);

    ledger l = {.a = semel_answer_new()}; /* what can be done again is let by */
    assert_int_equal(open_odd("version: 1\ntools:\n  note: {class: write}\n", SEMEL_STORE_LOSSY, 0,
                              &l.s, &fault),
                     SEMEL_OK);
    begin(&l, "note", "{}");
    expect_execute(&l);
    end_ledger(&l);
    assert_int_equal(open_odd(contract, 0, 0, &s, &fault), SEMEL_OK); /* or who has agreed to it */
    semel_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_of_ours_are_taken_out),
        cmocka_unit_test(what_cannot_be_read_is_refused_without_repeating_it),
        cmocka_unit_test(a_gate_is_open_until_something_fails),
        cmocka_unit_test(an_old_trouble_is_told_at_once),
        cmocka_unit_test(many_callers_try_seldom),
        cmocka_unit_test(the_stores_clock_counts_not_ours),
        cmocka_unit_test(a_claim_that_nobody_was_told_of_is_taken_back),
        cmocka_unit_test(a_claim_that_arrives_late_is_taken_back_too),
        cmocka_unit_test(a_claim_that_cannot_be_taken_back_yet_is_not_forgotten),
        cmocka_unit_test(a_claim_that_nobody_was_told_of_is_taken_back_when_the_ledger_is_closed),
        cmocka_unit_test(who_is_told_after_the_leases_end_runs_nothing),
        cmocka_unit_test(what_is_observed_is_not_taken_back),
        cmocka_unit_test(nothing_irreversible_is_begun_where_it_may_be_forgotten),
    };
    int failed = cmocka_run_group_tests_name("store_remote", tests, NULL, NULL);
    ledger_cleanup();
    return failed;
}
