/* Events, seals and notes. */
#include "conformance.h"

static void read_events(ledger *l, uint64_t id, uint64_t generation, uint64_t *after, size_t limit,
                        seen *s)
{
    expect_error(l->ops->events(l->st, of_effect(&(semel_ref){.id = id, .generation = generation}),
                                after, limit, see_event, s, NULL),
                 SEMEL_OK);
}

static void expect_event(const semel_event *actual, const semel_event *expected)
{
    assert_int_equal(actual->id, expected->id);
    assert_int_equal(actual->generation, expected->generation);
    assert_int_equal(actual->shard, expected->shard);
    assert_int_equal(actual->index, expected->index);
    assert_int_equal(actual->at, expected->at);
    assert_true(sm_str_eq(actual->what, expected->what));
    assert_int_equal(actual->actor.p == NULL, expected->actor.p == NULL);
    assert_true(sm_str_eq(actual->actor, expected->actor));
    assert_true(sm_str_eq(actual->body, expected->body));
    assert_memory_equal(&actual->prev, &expected->prev, sizeof actual->prev);
    assert_memory_equal(&actual->hash, &expected->hash, sizeof actual->hash);
}

/* ---- events ----------------------------------------------------------------------------------*/

static void every_write_leaves_its_event_in_order(void **state)
{
    ledger *l = *state;
    semel_write writes[6];
    writes[0] = fresh(1);
    semel_record one = claim_new(l, &writes[0]);
    writes[1] = fresh(2);
    writes[1].event.actor = (semel_str){0};
    semel_record two = claim_new(l, &writes[1]);
    writes[2] = change(&one, SEMEL_S_SUCCEEDED);
    one = apply_to(l, &writes[2]);
    writes[3] = change(&two, SEMEL_S_IN_DOUBT);
    two = apply_to(l, &writes[3]);
    writes[4] = repeat(&one);
    one = apply_to(l, &writes[4]);
    writes[5] = change(&one, SEMEL_S_FAILED);
    one = apply_to(l, &writes[5]);

    seen *s = seen_new();
    uint64_t after = 0;
    read_events(l, 0, 0, &after, 100, s);
    assert_int_equal(s->n, 6);
    for (size_t i = 0; i < 6; i++) {
        expect_event(&s->events[i], &writes[i].event);
        assert_true(i == 0 || s->events[i].seq > s->events[i - 1].seq);
    }
    assert_true(s->events[0].seq > 0);
    assert_int_equal(after, s->events[5].seq);
    assert_int_equal(last_seq(l), after);
    read_events(l, 0, 0, &after, 100, s); /* nothing more */
    assert_int_equal(s->n, 6);
    assert_int_equal(after, s->events[5].seq);
    seen_free(s);
}

static void events_are_read_by_effect_and_generation(void **state)
{
    ledger *l = *state;
    semel_record one = settled(l, 1);
    settled(l, 2);
    semel_write w = repeat(&one);
    one = apply_to(l, &w);
    assert_int_equal(events_of(l, one.id, 0), 3);
    assert_int_equal(events_of(l, one.id, 1), 2);
    assert_int_equal(events_of(l, one.id, 2), 1);
    assert_int_equal(events_of(l, one.id, 3), 0);
    assert_int_equal(events_of(l, one.id + 1, 0), 0);
    assert_int_equal(events_of(l, 0, 0), 5);

    seen *s = seen_new();
    uint64_t after = 0;
    for (size_t i = 1; i <= 3; i++) { /* one by one */
        read_events(l, one.id, 0, &after, 1, s);
        assert_int_equal(s->n, i);
        assert_int_equal(after, s->events[i - 1].seq);
    }
    assert_int_equal(s->events[2].generation, 2);
    read_events(l, one.id, 0, &after, 1, s);
    assert_int_equal(s->n, 3);
    seen_free(s);
}

static void events_are_read_in_pages(void **state)
{
    ledger *l = *state;
    fill(l, 1, 350);
    seen *s = seen_new();
    uint64_t after = 0;
    size_t before;
    do {
        before = s->n;
        read_events(l, 0, 0, &after, 100, s);
        expect(s->n - before == (before + 100 <= 700 ? 100 : 700 - before), "%zu events after %zu",
               s->n - before, before);
    } while (s->n > before);
    assert_int_equal(s->n, 700);
    for (size_t i = 1; i < s->n; i++)
        assert_true(s->events[i].seq > s->events[i - 1].seq);

    uint64_t middle = s->events[349].seq;
    seen_clear(s);
    s->stop_after = 5;
    read_events(l, 0, 0, &middle, 1000, s);
    assert_int_equal(s->n, 5);
    assert_int_equal(middle, s->events[4].seq);
    after = UINT64_MAX / 2;
    read_events(l, 0, 0, &after, 10, s);
    assert_int_equal(s->n, 5);
    seen_free(s);
}

/* ---- seals -----------------------------------------------------------------------------------*/

static semel_event seal_of(uint64_t index)
{
    semel_event e = {.index = index,
                     .at = 1700000000000 + (int64_t)index,
                     .what = SM_STR("sealed"),
                     .body = SM_STR("{\"to\":3}")};
    memset(&e.prev, (int)index - 1, sizeof e.prev);
    memset(&e.hash, (int)index, sizeof e.hash);
    return e;
}

static void a_seal_is_written_if_the_newest_one_is_as_expected(void **state)
{
    ledger *l = *state;
    settled(l, 1);
    semel_event first = seal_of(1), second = seal_of(2);
    expect_error(l->ops->seal(l->st, &first, 7, NULL), SEMEL_E_STALE);
    expect_error(l->ops->seal(l->st, &first, 0, NULL), SEMEL_OK);
    expect_error(l->ops->seal(l->st, &first, 0, NULL), SEMEL_E_STALE);

    semel_health health;
    expect_error(l->ops->health(l->st, false, &health, NULL), SEMEL_OK);
    assert_int_equal(health.seal_index, 1);
    assert_int_equal(health.seal_at, first.at);
    assert_int_equal(health.seal_seq, health.last_seq);
    assert_memory_equal(&health.seal_hash, &first.hash, sizeof first.hash);
    settled(l, 2);
    expect_error(l->ops->seal(l->st, &second, health.seal_seq, NULL), SEMEL_OK);

    seen *s = seen_new();
    uint64_t after = 0;
    read_events(l, 0, 0, &after, 100, s);
    assert_int_equal(s->n, 6);
    expect_event(&s->events[2], &first);
    expect_event(&s->events[5], &second);
    assert_int_equal(s->events[2].id, 0);
    for (size_t i = 1; i < s->n; i++)
        assert_true(s->events[i].seq > s->events[i - 1].seq);
    assert_int_equal(s->events[2].seq, health.seal_seq);
    expect_error(l->ops->health(l->st, false, &health, NULL), SEMEL_OK);
    assert_int_equal(health.seal_seq, s->events[5].seq);
    assert_int_equal(health.seal_index, 2);
    seen_free(s);
}

typedef struct sealing {
    size_t won[64]; /* by worker */
    uint64_t expect;
} sealing;

static void seal_once(worker *w)
{
    sealing *race = w->context;
    semel_event e = seal_of(1);
    semel_err err = w->ledger.ops->seal(w->ledger.st, &e, race->expect, NULL);
    if (err == SEMEL_OK)
        race->won[w->index]++;
    else if (err != SEMEL_E_STALE)
        w->wrong = "a sealer got another error than STALE";
}

static void of_many_sealers_one_wins(void **state)
{
    ledger *l = *state;
    for (size_t round = 1; round <= 10; round++) {
        semel_health health;
        expect_error(l->ops->health(l->st, false, &health, NULL), SEMEL_OK);
        sealing race = {.expect = health.seal_seq};
        run_workers(l, 16, seal_once, &race);
        size_t won = 0;
        for (size_t i = 0; i < 16; i++)
            won += race.won[i];
        assert_int_equal(won, 1);
        assert_int_equal(events_of(l, 0, 0), round);
    }
}

/* ---- notes -----------------------------------------------------------------------------------*/

static semel_note note_of(uint64_t id, uint64_t generation, int64_t at, uint64_t count)
{
    return (semel_note){.id = id,
                        .generation = generation,
                        .first_at = at,
                        .last_at = at + 5,
                        .count = count,
                        .what = SM_STR("replayed"),
                        .scope = SM_STR("tests/notes"),
                        .tool = SM_STR("shop.charge")};
}

static void read_notes(ledger *l, uint64_t id, uint64_t generation, size_t limit, seen *s)
{
    seen_clear(s);
    expect_error(l->ops->notes(l->st, id, generation, limit, see_note, s, NULL), SEMEL_OK);
}

static void notes_come_back_the_oldest_first(void **state)
{
    ledger *l = *state;
    semel_record one = settled(l, 1);
    int64_t t = clock_ms() - 10000;
    uint64_t seq = last_seq(l);
    semel_note notes[] = {note_of(one.id, 1, t, 1), note_of(one.id, 2, t + 100, 2),
                          note_of(0, 0, t + 200, 3), note_of(one.id, 1, t + 300, 4)};
    notes[2].what = SM_STR("passed");
    expect_error(l->ops->journal(l->st, notes, 2, NULL), SEMEL_OK);
    expect_error(l->ops->journal(l->st, notes + 2, 2, NULL), SEMEL_OK);
    expect_error(l->ops->journal(l->st, NULL, 0, NULL), SEMEL_OK);
    assert_int_equal(last_seq(l), seq); /* notes are not events */

    seen *s = seen_new();
    read_notes(l, one.id, 0, 100, s);
    assert_int_equal(s->n, 3);
    assert_int_equal(s->notes[0].count, 1);
    assert_int_equal(s->notes[1].count, 2);
    assert_int_equal(s->notes[2].count, 4);
    assert_int_equal(s->notes[1].generation, 2);
    assert_int_equal(s->notes[1].first_at, t + 100);
    assert_int_equal(s->notes[1].last_at, t + 105);
    expect_text(s->notes[1].what, "replayed");
    expect_text(s->notes[1].scope, "tests/notes");
    expect_text(s->notes[1].tool, "shop.charge");
    read_notes(l, one.id, 1, 100, s);
    assert_int_equal(s->n, 2);
    read_notes(l, one.id, 3, 100, s);
    assert_int_equal(s->n, 0);
    read_notes(l, 0, 0, 100, s);
    assert_int_equal(s->n, 1);
    expect_text(s->notes[0].what, "passed");
    read_notes(l, one.id, 0, 2, s); /* the newest two */
    assert_int_equal(s->n, 2);
    assert_int_equal(s->notes[0].count, 2);
    assert_int_equal(s->notes[1].count, 4);
    read_notes(l, one.id + 1, 0, 100, s);
    assert_int_equal(s->n, 0);
    seen_free(s);
}

static void many_notes_are_kept(void **state)
{
    ledger *l = *state;
    static semel_note notes[500];
    int64_t t = clock_ms() - 10000;
    for (size_t i = 0; i < COUNT(notes); i++)
        notes[i] = note_of(1 + i % 5, 1, t + (int64_t)i, i);
    expect_error(l->ops->journal(l->st, notes, COUNT(notes), NULL), SEMEL_OK);
    seen *s = seen_new();
    for (uint64_t id = 1; id <= 5; id++) {
        read_notes(l, id, 0, 1000, s);
        assert_int_equal(s->n, 100);
        for (size_t i = 1; i < s->n; i++)
            assert_true(s->notes[i].first_at > s->notes[i - 1].first_at);
    }
    seen_free(s);
}

int logging_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_ledger(every_write_leaves_its_event_in_order),
        on_ledger(events_are_read_by_effect_and_generation),
        on_ledger(events_are_read_in_pages),
        on_ledger(a_seal_is_written_if_the_newest_one_is_as_expected),
        on_ledger(of_many_sealers_one_wins),
        on_ledger(notes_come_back_the_oldest_first),
        on_ledger(many_notes_are_kept),
    };
    return cmocka_run_group_tests_name("logging", tests, NULL, NULL);
}
