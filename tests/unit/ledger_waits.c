/* Those who wait for somebody else's attempt: who wakes them, and that each is woken or leaves,
 * once. */
#include "ledger.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/container.h"
#include "serve/waits.h"

#define WRITES  "{version: 1, tools: {t: {class: write}}}"
#define MANY    ((size_t)1000)
#define LONG_MS 20000 /* nothing here takes as long, however busy the machine is */

/* Somebody who asks and waits. */
typedef struct guest {
    sm_waiter waiter;
    sm_asking ask;
    sm_waits *waits;
    atomic_int woken;
} guest;

/* Whoever is woken may use its waiter again at once. */
static void count_wake(sm_waiter *waiter)
{
    waiter->next = waiter->prev = NULL;
    guest *g = SM_CONTAINER(waiter, guest, waiter);
    atomic_fetch_add(&g->woken, 1);
}

static sm_err hear(sm_asking *q, const sm_contract *c, const sm_json *args, sm_fault *fault)
{
    (void)c;
    (void)args;
    (void)fault;
    guest *g = SM_CONTAINER(q, guest, ask);
    g->waiter.heard = sm_waits_heard(g->waits, q->id);
    return SM_OK;
}

static void guest_init(guest *g, sm_waits *waits, const char *args)
{
    *g = (guest){.ask = {.call = call_of("t", args), .lease_ms = 60000, .prepare = hear},
                 .waits = waits};
    g->waiter.ask = &g->ask;
    g->waiter.wake = count_wake;
}

static void ask(ledger *l, guest *g)
{
    take(l, sm_ask(l->s, &g->ask, l->a));
    sm_contracts_free(g->ask.contracts);
    g->ask.contracts = NULL;
}

/* Asks for what somebody else is at. */
static void ask_in_vain(ledger *l, guest *g)
{
    ask(l, g);
    expect_refused(l, SEMEL_C_RETRY_IN_FLIGHT);
    assert_true(g->ask.waits);
}

static void begin_it(ledger *l, sm_waits *waits, const char *args)
{
    guest g;
    guest_init(&g, waits, args);
    ask(l, &g);
    expect_execute(l);
}

static bool is_woken(guest *g, int64_t within_ms)
{
    int64_t deadline = sm_clock_deadline_ns(within_ms);
    while (atomic_load(&g->woken) == 0 && sm_clock_mono_ns() < deadline)
        usleep(500);
    return atomic_load(&g->woken) > 0;
}

static sm_waits *new_waits(ledger *l)
{
    sm_waits *w = NULL;
    assert_int_equal(sm_waits_new(l->s, &w), SM_OK);
    return w;
}

/* ---- who wakes -------------------------------------------------------------------------------*/

static void a_bell_wakes_all_who_wait_for_its_effect_and_nobody_else(void **state)
{
    (void)state;
    ledger l = new_ledger(WRITES);
    sm_waits *w = new_waits(&l);
    guest one, two, other;
    begin_it(&l, w, "{\"n\": 1}");
    begin_it(&l, w, "{\"n\": 2}");
    guest_init(&one, w, "{\"n\": 1}");
    guest_init(&two, w, "{\"n\": 1}");
    guest_init(&other, w, "{\"n\": 2}");
    ask_in_vain(&l, &other);
    ask_in_vain(&l, &one);
    ask_in_vain(&l, &two);
    assert_int_equal(sm_waits_park(w, &one.waiter, MANY), SM_PARKED);
    assert_int_equal(sm_waits_park(w, &two.waiter, MANY), SM_PARKED);
    assert_int_equal(sm_waits_park(w, &other.waiter, MANY), SM_PARKED);
    assert_int_equal(sm_waits_parked(w), 3);

    sm_waits_ring_handle(w, SM_STR("cl_000000000000000.1"));
    sm_waits_ring_handle(w, SM_STR("nonsense"));
    assert_int_equal(sm_waits_parked(w), 3);
    sm_waits_ring_handle(w, sm_str_from(l.effect)); /* of the newest answer: the first one's */
    assert_int_equal(one.woken, 1);                 /* on the thread that rings */
    assert_int_equal(two.woken, 1);
    assert_int_equal(other.woken, 0);
    assert_int_equal(sm_waits_parked(w), 1);
    assert_false(sm_waits_leave(w, &one.waiter));
    assert_true(sm_waits_leave(w, &other.waiter));
    sm_waits_ring(w, other.ask.id);
    sm_waits_free(w);
    assert_int_equal(one.woken + two.woken, 2);
    assert_int_equal(other.woken, 0);
    end_ledger(&l);
}

static void a_change_wakes_without_a_bell(void **state)
{
    (void)state;
    ledger l = new_ledger(WRITES);
    sm_waits *w = new_waits(&l);
    guest g;
    begin_it(&l, w, "{}");
    guest_init(&g, w, "{}");
    ask_in_vain(&l, &g);
    assert_int_equal(sm_waits_park(w, &g.waiter, MANY), SM_PARKED);
    commit(&l, "\"done\"");
    assert_true(is_woken(&g, LONG_MS));
    ask(&l, &g);
    expect_replay(&l, "\"done\"");
    sm_waits_free(w);
    assert_int_equal(g.woken, 1);
    end_ledger(&l);
}

static void a_change_between_asking_and_parking_is_not_missed(void **state)
{
    (void)state;
    ledger l = new_ledger(WRITES);
    sm_waits *w = new_waits(&l);
    guest rung, silent;
    begin_it(&l, w, "{}");
    guest_init(&rung, w, "{}");
    guest_init(&silent, w, "{}");
    ask_in_vain(&l, &rung);
    ask_in_vain(&l, &silent);
    commit(&l, "1");
    sm_waits_ring(w, rung.ask.id);
    assert_int_equal(sm_waits_park(w, &rung.waiter, MANY), SM_RUNG);
    assert_false(sm_waits_leave(w, &rung.waiter));

    silent.waiter.heard = sm_waits_heard(w, silent.ask.id); /* as if nobody had rung */
    assert_int_equal(sm_waits_park(w, &silent.waiter, MANY), SM_PARKED);
    assert_true(is_woken(&silent, LONG_MS));
    sm_waits_free(w);
    assert_int_equal(rung.woken, 0);
    assert_int_equal(silent.woken, 1);
    end_ledger(&l);
}

static void who_saw_less_than_others_does_not_wait_for_the_next_change(void **state)
{
    (void)state;
    ledger l = new_ledger(WRITES);
    sm_waits *w = new_waits(&l);
    guest early, late, first;
    begin_it(&l, w, "{}");
    guest_init(&early, w, "{}");
    guest_init(&first, w, "{}");
    guest_init(&late, w, "{}");
    ask_in_vain(&l, &early);
    ask_in_vain(&l, &first);
    assert_int_equal(semel_renew(l.s, sm_str_from(l.claim), 90000, l.a), SEMEL_OK);
    ask_in_vain(&l, &late);
    assert_true(late.ask.version > early.ask.version);
    assert_int_equal(sm_waits_park(w, &late.waiter, MANY), SM_PARKED);
    assert_int_equal(sm_waits_park(w, &early.waiter, MANY), SM_RUNG);
    ask_in_vain(&l, &early);
    assert_int_equal(sm_waits_park(w, &early.waiter, MANY), SM_PARKED);
    assert_int_equal(sm_waits_parked(w), 2);
    sm_waits_wake_all(w);

    /* The other way round: whoever is there already is woken, whoever joins it. */
    sm_waits_free(w);
    w = new_waits(&l);
    late.woken = 0;
    assert_int_equal(sm_waits_park(w, &first.waiter, MANY), SM_PARKED);
    assert_int_equal(sm_waits_park(w, &late.waiter, MANY), SM_PARKED);
    assert_true(is_woken(&first, LONG_MS));
    sm_waits_leave(w, &late.waiter);
    sm_waits_free(w);
    end_ledger(&l);
}

static void who_is_to_look_again_is_woken_without_any_change(void **state)
{
    (void)state;
    ledger l = new_ledger(WRITES);
    sm_waits *w = new_waits(&l);
    guest later, sooner;
    begin_it(&l, w, "{}");
    guest_init(&later, w, "{}");
    guest_init(&sooner, w, "{}");
    ask_in_vain(&l, &later);
    ask_in_vain(&l, &sooner);
    sooner.ask.look_ms = 100;
    assert_int_equal(sm_waits_park(w, &later.waiter, MANY), SM_PARKED);
    assert_int_equal(sm_waits_park(w, &sooner.waiter, MANY), SM_PARKED);
    assert_true(is_woken(&sooner, LONG_MS));
    assert_true(is_woken(&later, LONG_MS));
    sm_waits_free(w);
    end_ledger(&l);
}

/* ---- places ----------------------------------------------------------------------------------*/

static void there_is_room_for_so_many(void **state)
{
    (void)state;
    ledger l = new_ledger(WRITES);
    sm_waits *w = new_waits(&l);
    guest one, two;
    begin_it(&l, w, "{}");
    guest_init(&one, w, "{}");
    guest_init(&two, w, "{}");
    ask_in_vain(&l, &one);
    ask_in_vain(&l, &two);
    assert_false(sm_waits_leave(w, &one.waiter)); /* never parked */
    assert_int_equal(sm_waits_park(w, &one.waiter, 0), SM_NO_ROOM);
    assert_int_equal(sm_waits_park(w, &one.waiter, 1), SM_PARKED);
    assert_int_equal(sm_waits_park(w, &two.waiter, 1), SM_NO_ROOM);
    assert_false(sm_waits_leave(w, &two.waiter));
    assert_true(sm_waits_leave(w, &one.waiter));
    assert_false(sm_waits_leave(w, &one.waiter));
    assert_int_equal(sm_waits_park(w, &two.waiter, 1), SM_PARKED);
    assert_true(sm_waits_leave(w, &two.waiter));
    assert_int_equal(sm_waits_parked(w), 0);
    commit(&l, "1");
    sm_waits_free(w);
    assert_int_equal(one.woken + two.woken, 0);
    end_ledger(&l);
}

static void all_can_be_woken_at_once(void **state)
{
    (void)state;
    enum { EFFECTS = 30, EACH = 3 };
    ledger l = new_ledger(WRITES);
    sm_waits *w = new_waits(&l);
    static guest guests[EFFECTS][EACH];
    static char args[EFFECTS][32];
    for (int i = 0; i < EFFECTS; i++) {
        snprintf(args[i], sizeof args[i], "{\"n\": %d}", i);
        begin_it(&l, w, args[i]);
        for (int k = 0; k < EACH; k++) {
            guest_init(&guests[i][k], w, args[i]);
            ask_in_vain(&l, &guests[i][k]);
            assert_int_equal(sm_waits_park(w, &guests[i][k].waiter, MANY), SM_PARKED);
        }
    }
    assert_int_equal(sm_waits_parked(w), EFFECTS * EACH);
    sm_waits_wake_all(w);
    assert_int_equal(sm_waits_parked(w), 0);
    sm_waits_wake_all(w);
    sm_waits_free(w);
    for (int i = 0; i < EFFECTS * EACH; i++)
        assert_int_equal(guests[i / EACH][i % EACH].woken, 1);
    end_ledger(&l);
}

/* ---- other handles ---------------------------------------------------------------------------*/

/* More effects than there are threads to watch them. */
static void what_another_handle_does_wakes_however_many_wait(void **state)
{
    (void)state;
    enum { EFFECTS = 40 };
    char url[512];
    snprintf(url, sizeof url, "%s", fresh_url());
    ledger ours = {.s = open_ledger(url, WRITES, true), .a = semel_answer_new()};
    ledger theirs = {.s = open_ledger(url, WRITES, true), .a = semel_answer_new()};
    assert_non_null(ours.a);
    assert_non_null(theirs.a);
    sm_waits *w = new_waits(&ours);
    static guest guests[EFFECTS];
    static char args[EFFECTS][32], claims[EFFECTS][128];
    for (int i = 0; i < EFFECTS; i++) {
        snprintf(args[i], sizeof args[i], "{\"n\": %d}", i);
        begin_it(&theirs, w, args[i]);
        strcpy(claims[i], theirs.claim);
        guest_init(&guests[i], w, args[i]);
        ask_in_vain(&ours, &guests[i]);
        assert_int_equal(sm_waits_park(w, &guests[i].waiter, MANY), SM_PARKED);
    }
    usleep(1500000); /* each has had its turn, and nobody is woken by the end of one */
    assert_int_equal(sm_waits_parked(w), EFFECTS);
    for (int i = 0; i < EFFECTS; i += 2)
        commit_as(&theirs, claims[i], SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "1");
    for (int i = 0; i < EFFECTS; i += 2) {
        assert_true(is_woken(&guests[i], LONG_MS));
        ask(&ours, &guests[i]);
        expect_replay(&ours, "1");
    }
    assert_int_equal(sm_waits_parked(w), EFFECTS / 2);
    for (int i = 1; i < EFFECTS; i += 2)
        assert_true(sm_waits_leave(w, &guests[i].waiter));
    sm_waits_free(w);
    for (int i = 0; i < EFFECTS; i++)
        assert_int_equal(guests[i].woken, i % 2 == 0);
    end_ledger(&theirs);
    end_ledger(&ours);
}

/* ---- races -----------------------------------------------------------------------------------*/

enum { RACERS = 4, RACED_EFFECTS = 3 };

typedef struct race {
    ledger l;
    sm_waits *w;
    guest asked[RACED_EFFECTS]; /* as the ledger left them: the models of those who race */
    int64_t until_ns;
    atomic_bool over;
    atomic_ullong parked, left, woken, rung, wrong;
} race;

/* Parks and leaves as fast as can be. Each time with memory of its own, which is given back as soon
 * as it has left or has been woken. */
static void *come_and_go(void *context)
{
    race *r = context;
    uint64_t random = (uint64_t)(uintptr_t)&random;
    while (sm_clock_mono_ns() < r->until_ns) {
        guest *g = malloc(sizeof *g);
        if (g == NULL)
            break;
        const guest *model = &r->asked[random_below(&random, RACED_EFFECTS)];
        guest_init(g, r->w, "{}");
        g->ask = model->ask;
        g->ask.of.key = &g->ask.key;
        g->ask.look_ms = random_below(&random, 8) == 0 ? 0 : 60000;
        g->waiter.heard = sm_waits_heard(r->w, g->ask.id);
        if (random_below(&random, 4) == 0)
            sched_yield();
        if (sm_waits_park(r->w, &g->waiter, RACERS) == SM_PARKED) {
            atomic_fetch_add(&r->parked, 1);
            for (uint32_t i = random_below(&random, 20); i > 0; i--)
                sched_yield();
            bool left = sm_waits_leave(r->w, &g->waiter);
            if (!left && !is_woken(g, LONG_MS))
                atomic_fetch_add(&r->wrong, 1);
            if (atomic_load(&g->woken) != !left)
                atomic_fetch_add(&r->wrong, 1);
            atomic_fetch_add(left ? &r->left : &r->woken, 1);
        } else {
            atomic_fetch_add(&r->rung, 1);
        }
        free(g);
    }
    return NULL;
}

static void *ring_wildly(void *context)
{
    race *r = context;
    uint64_t random = 7;
    while (!atomic_load(&r->over)) {
        if (random_below(&random, 16) == 0)
            sm_waits_wake_all(r->w);
        else
            sm_waits_ring(r->w, r->asked[random_below(&random, RACED_EFFECTS)].ask.id);
        for (uint32_t i = random_below(&random, 10); i > 0; i--)
            sched_yield();
    }
    return NULL;
}

/* Whoever leaves and whoever wakes it meet: one of them has it. The ledger changes meanwhile, so
 * that the watches wake too; those who race have seen less and less of it. */
static void of_leaving_and_waking_one_happens(void **state)
{
    (void)state;
    static race r;
    r = (race){.l = new_ledger(WRITES), .until_ns = sm_clock_deadline_ns(700)};
    r.w = new_waits(&r.l);
    char args[RACED_EFFECTS][32], claims[RACED_EFFECTS][128];
    for (int i = 0; i < RACED_EFFECTS; i++) {
        snprintf(args[i], sizeof args[i], "{\"n\": %d}", i);
        begin_it(&r.l, r.w, args[i]);
        strcpy(claims[i], r.l.claim);
        guest_init(&r.asked[i], r.w, args[i]);
        ask_in_vain(&r.l, &r.asked[i]);
    }
    pthread_t racers[RACERS], ringer;
    for (int i = 0; i < RACERS; i++)
        assert_int_equal(pthread_create(&racers[i], NULL, come_and_go, &r), 0);
    assert_int_equal(pthread_create(&ringer, NULL, ring_wildly, &r), 0);
    usleep(300000);
    for (int i = 1; i < RACED_EFFECTS; i++)
        semel_renew(r.l.s, sm_str_from(claims[i]), 90000, r.l.a);
    for (int i = 0; i < RACERS; i++)
        pthread_join(racers[i], NULL);
    atomic_store(&r.over, true);
    pthread_join(ringer, NULL);
    assert_int_equal(sm_waits_parked(r.w), 0);
    sm_waits_free(r.w);
    assert_int_equal(r.wrong, 0);
    assert_int_equal(r.parked, r.left + r.woken);
    expect(r.left > 0 && r.woken > 0, "%llu left, %llu were woken, %llu were not parked",
           (unsigned long long)r.left, (unsigned long long)r.woken, (unsigned long long)r.rung);
    end_ledger(&r.l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bell_wakes_all_who_wait_for_its_effect_and_nobody_else),
        cmocka_unit_test(a_change_wakes_without_a_bell),
        cmocka_unit_test(a_change_between_asking_and_parking_is_not_missed),
        cmocka_unit_test(who_saw_less_than_others_does_not_wait_for_the_next_change),
        cmocka_unit_test(who_is_to_look_again_is_woken_without_any_change),
        cmocka_unit_test(there_is_room_for_so_many),
        cmocka_unit_test(all_can_be_woken_at_once),
        cmocka_unit_test(of_leaving_and_waking_one_happens),
    };
    const struct CMUnitTest lasting[] = {
        cmocka_unit_test(what_another_handle_does_wakes_however_many_wait),
    };
    return run_on_stores(tests, COUNT(tests), lasting, COUNT(lasting), NULL, 0);
}
