/* The circuit breaker: each step, and random sequences against a model that remembers everything.
 */
#include "unit.h"

#include "core/breaker.h"

static const sm_breaker_rule in_a_row = {
    .on = true, .failures = 3, .cooldown_ms = 1000, .probes = 1};
static const sm_breaker_rule within = {
    .on = true, .failures = 3, .window_ms = 500, .cooldown_ms = 1000, .probes = 2};

static sm_circuit_probe call_of(uint64_t n, int64_t until)
{
    return (sm_circuit_probe){.attempt = {.id = n, .generation = 1, .fence = n},
                              .turn = n,
                              .until = until,
                              .last = until};
}

static sm_circuit_change end(sm_breaker *b, const sm_breaker_rule *r, uint64_t n, sm_health health,
                             int64_t now)
{
    sm_handle h = call_of(n, 0).attempt;
    return sm_breaker_end(b, r, &h, health, now);
}

static bool begin(sm_breaker *b, const sm_breaker_rule *r, uint64_t n, int64_t now)
{
    sm_circuit_change change;
    sm_circuit_probe call = call_of(n, now + 100);
    return sm_breaker_begin(b, r, &call, now, &change);
}

static void open_it(sm_breaker *b, const sm_breaker_rule *r, int64_t now)
{
    for (int64_t i = 1; i < r->failures; i++)
        assert_int_equal(end(b, r, 1, SM_HEALTH_FAILED, now), SM_CIRCUIT_FAILING);
    assert_int_equal(end(b, r, 1, SM_HEALTH_FAILED, now), SM_CIRCUIT_OPENED);
}

/* ---- each step -------------------------------------------------------------------------------*/

static void failures_in_a_row_open_it(void **state)
{
    (void)state;
    sm_breaker b = {0};
    open_it(&b, &in_a_row, 10000);
    assert_int_equal(b.state, SM_CIRCUIT_OPEN);
    assert_int_equal(b.failures, 3);
    assert_int_equal(sm_breaker_until(&b, &in_a_row, 10000), 11000);
    assert_false(begin(&b, &in_a_row, 9, 10999));
}

static void a_failure_a_day_after_the_one_before_begins_a_new_row(void **state)
{
    (void)state;
    sm_breaker b = {0};
    int64_t at = 10000;
    for (int n = 0; n < 5; n++, at += SM_BREAKER_ROW_MS) {
        assert_int_equal(end(&b, &in_a_row, 1, SM_HEALTH_FAILED, at), SM_CIRCUIT_FAILING);
        assert_int_equal(b.failures, 1);
    }
    at--;
    assert_int_equal(end(&b, &in_a_row, 1, SM_HEALTH_FAILED, at), SM_CIRCUIT_FAILING);
    assert_int_equal(end(&b, &in_a_row, 1, SM_HEALTH_FAILED, at), SM_CIRCUIT_OPENED);
}

static void
a_call_that_ends_well_starts_the_count_anew_and_one_that_is_turned_down_does_not(void **state)
{
    (void)state;
    static const struct {
        sm_health between;
        sm_circuit_change change, third;
    } rows[] = {
        {SM_HEALTH_WELL, SM_CIRCUIT_RECOVERED, SM_CIRCUIT_FAILING},
        {SM_HEALTH_ANSWERED, SM_CIRCUIT_SAME, SM_CIRCUIT_OPENED},
        {SM_HEALTH_UNTRIED, SM_CIRCUIT_SAME, SM_CIRCUIT_OPENED},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_breaker b = {0};
        end(&b, &in_a_row, 1, SM_HEALTH_FAILED, 1);
        end(&b, &in_a_row, 2, SM_HEALTH_FAILED, 2);
        assert_int_equal(end(&b, &in_a_row, 3, rows[i].between, 3), rows[i].change);
        assert_int_equal(end(&b, &in_a_row, 4, SM_HEALTH_FAILED, 4), rows[i].third);
    }
}

static void wrong_arguments_never_open_it(void **state)
{
    (void)state;
    sm_breaker b = {0};
    for (int i = 0; i < 10000; i++)
        assert_int_equal(end(&b, &in_a_row, 1, SM_HEALTH_ANSWERED, i), SM_CIRCUIT_SAME);
}

static void a_window_forgets_failures_and_does_not_ask_for_a_row(void **state)
{
    (void)state;
    sm_breaker b = {0};
    end(&b, &within, 1, SM_HEALTH_FAILED, 1000);
    end(&b, &within, 2, SM_HEALTH_FAILED, 1400);
    assert_int_equal(end(&b, &within, 3, SM_HEALTH_WELL, 1450), SM_CIRCUIT_SAME);
    assert_int_equal(end(&b, &within, 4, SM_HEALTH_FAILED, 1500), SM_CIRCUIT_FAILING);
    assert_int_equal(b.failures, 2); /* the first is half a second old */
    assert_int_equal(end(&b, &within, 5, SM_HEALTH_FAILED, 1899), SM_CIRCUIT_OPENED);
}

static void a_probe_decides_and_so_many_run_at_a_time(void **state)
{
    (void)state;
    sm_breaker b = {0};
    open_it(&b, &within, 0);
    assert_true(begin(&b, &within, 10, 1000));
    assert_int_equal(b.state, SM_CIRCUIT_HALF_OPEN);
    assert_true(begin(&b, &within, 11, 1001));
    assert_false(begin(&b, &within, 12, 1002));
    assert_true(begin(&b, &within, 11, 1003)); /* it tries to begin once more */
    assert_int_equal(b.probing, 2);
    assert_int_equal(end(&b, &within, 1, SM_HEALTH_FAILED, 1004), SM_CIRCUIT_SAME); /* of before */
    assert_int_equal(end(&b, &within, 1, SM_HEALTH_WELL, 1004), SM_CIRCUIT_SAME);
    assert_int_equal(end(&b, &within, 10, SM_HEALTH_UNTRIED, 1005), SM_CIRCUIT_PROBING);
    assert_true(begin(&b, &within, 12, 1006));
    assert_int_equal(end(&b, &within, 11, SM_HEALTH_FAILED, 1100), SM_CIRCUIT_OPENED);
    assert_int_equal(sm_breaker_until(&b, &within, 1100), 2100);
    assert_int_equal(end(&b, &within, 12, SM_HEALTH_WELL, 1101), SM_CIRCUIT_SAME);
    assert_true(begin(&b, &within, 13, 2100));
    assert_int_equal(end(&b, &within, 12, SM_HEALTH_FAILED, 2101), SM_CIRCUIT_SAME);
    assert_int_equal(end(&b, &within, 13, SM_HEALTH_WELL, 2102), SM_CIRCUIT_SHUT);
    assert_int_equal(b.failures, 0);
    assert_true(begin(&b, &within, 14, 2103));
}

static void an_earlier_attempt_of_the_same_effect_is_not_the_probe(void **state)
{
    (void)state;
    sm_breaker b = {0};
    open_it(&b, &in_a_row, 0);
    begin(&b, &in_a_row, 10, 1000);
    sm_handle other[] = {call_of(10, 0).attempt, call_of(10, 0).attempt, call_of(10, 0).attempt};
    other[0].fence--;
    other[1].generation++;
    other[2].id++;
    for (size_t i = 0; i < COUNT(other); i++) {
        assert_int_equal(sm_breaker_end(&b, &in_a_row, &other[i], SM_HEALTH_WELL, 1001),
                         SM_CIRCUIT_SAME);
        assert_int_equal(sm_breaker_end(&b, &in_a_row, &other[i], SM_HEALTH_FAILED, 1001),
                         SM_CIRCUIT_SAME);
    }
    assert_int_equal(end(&b, &in_a_row, 10, SM_HEALTH_WELL, 1002), SM_CIRCUIT_SHUT);
}

static void a_probe_that_is_turned_down_shows_that_the_tool_answers(void **state)
{
    (void)state;
    sm_breaker b = {0};
    open_it(&b, &in_a_row, 0);
    begin(&b, &in_a_row, 10, 1000);
    assert_int_equal(end(&b, &in_a_row, 10, SM_HEALTH_ANSWERED, 1001), SM_CIRCUIT_SHUT);
}

static void whoever_leaves_frees_only_its_own_place(void **state)
{
    (void)state;
    sm_breaker b = {0};
    sm_circuit_change change;
    open_it(&b, &within, 0);
    sm_circuit_probe first = call_of(10, 2000), second = first;
    second.turn = 11; /* the same attempt, wanted by two */
    assert_true(sm_breaker_begin(&b, &within, &first, 1000, &change));
    assert_int_equal(change, SM_CIRCUIT_HALVED);
    assert_true(sm_breaker_begin(&b, &within, &second, 1000, &change));
    assert_int_equal(change, SM_CIRCUIT_PROBING);
    assert_int_equal(sm_breaker_leave(&b, 11), SM_CIRCUIT_PROBING);
    assert_int_equal(sm_breaker_leave(&b, 11), SM_CIRCUIT_SAME);
    assert_int_equal(b.probing, 1);
    assert_int_equal(b.probes[0].turn, 10);
}

static void a_clock_that_is_set_back_does_not_keep_it_open(void **state)
{
    (void)state;
    sm_breaker b = {0};
    open_it(&b, &within, 1000000);
    assert_int_equal(sm_breaker_until(&b, &within, 999000), 999000);
    assert_true(begin(&b, &within, 9, 999000));
    sm_breaker c = {0};
    end(&c, &within, 1, SM_HEALTH_FAILED, 1000000);
    end(&c, &within, 1, SM_HEALTH_FAILED, 1000000);
    assert_int_equal(end(&c, &within, 1, SM_HEALTH_FAILED, 999000), SM_CIRCUIT_FAILING);
    assert_int_equal(c.failures, 1);
}

static void what_an_outcome_says_of_its_tool(void **state)
{
    (void)state;
    static const struct {
        semel_kind kind;
        semel_applied applied;
        int status;
        sm_health health;
    } rows[] = {
        {SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, 0, SM_HEALTH_WELL},
        {SEMEL_PARTIAL, SEMEL_APPLIED_DEFAULT, 207, SM_HEALTH_WELL},
        {SEMEL_FAILURE, SEMEL_APPLIED_DEFAULT, 0, SM_HEALTH_ANSWERED},
        {SEMEL_FAILURE, SEMEL_APPLIED_NO, 0, SM_HEALTH_ANSWERED},
        {SEMEL_FAILURE, SEMEL_APPLIED_YES, 0, SM_HEALTH_ANSWERED},
        {SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, 0, SM_HEALTH_FAILED},
        {SEMEL_FAILURE, SEMEL_APPLIED_NO, 1, SM_HEALTH_ANSWERED}, /* a command's */
        {SEMEL_FAILURE, SEMEL_APPLIED_NO, 400, SM_HEALTH_ANSWERED},
        {SEMEL_FAILURE, SEMEL_APPLIED_NO, 404, SM_HEALTH_ANSWERED},
        {SEMEL_FAILURE, SEMEL_APPLIED_NO, 408, SM_HEALTH_FAILED},
        {SEMEL_FAILURE, SEMEL_APPLIED_NO, 422, SM_HEALTH_ANSWERED},
        {SEMEL_FAILURE, SEMEL_APPLIED_NO, 425, SM_HEALTH_FAILED},
        {SEMEL_FAILURE, SEMEL_APPLIED_NO, 429, SM_HEALTH_FAILED},
        {SEMEL_FAILURE, SEMEL_APPLIED_NO, 499, SM_HEALTH_ANSWERED},
        {SEMEL_FAILURE, SEMEL_APPLIED_NO, 500, SM_HEALTH_FAILED},
        {SEMEL_FAILURE, SEMEL_APPLIED_NO, 599, SM_HEALTH_FAILED},
        {SEMEL_FAILURE, SEMEL_APPLIED_NO, 600, SM_HEALTH_ANSWERED},
        {SEMEL_FAILURE, SEMEL_APPLIED_DEFAULT, 32603, SM_HEALTH_ANSWERED}, /* of JSON-RPC */
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        semel_outcome o = {
            .kind = rows[i].kind, .applied = rows[i].applied, .status = rows[i].status};
        expect(sm_health_of(&o) == rows[i].health, "row %zu: %d", i, (int)sm_health_of(&o));
    }
}

static void the_origin_of_an_upstream_is_part_of_its_url(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"https://api.example/v1/{id}", "https://api.example"},
        {"http://127.0.0.1:8080/a://b", "http://127.0.0.1:8080"},
        {"http://[::1]:80?x={y}", "http://[::1]:80"},
        {"https://api.example", "https://api.example"},
    };
    sm_contract c = {0};
    assert_null(sm_contract_origin(&c).p);
    for (size_t i = 0; i < COUNT(rows); i++) {
        c.upstream.url = sm_str_from(rows[i][0]);
        expect_text(sm_contract_origin(&c), rows[i][1]);
    }
}

/* ---- what is kept of it ----------------------------------------------------------------------*/

static void round_trip(sm_breaker *b)
{
    sm_buf text;
    sm_arena arena;
    sm_breaker back;
    sm_arena_init(&arena, SM_ARENA_MAX);
    sm_buf_init(&text, SM_ARENA_MAX);
    sm_breaker_put(b, &text);
    bool read = sm_breaker_read(&arena, sm_buf_view(&text), &back);
    expect(read, "%.*s", (int)text.len, text.p);
    assert_true(back.state == b->state && back.since == b->since && back.failures == b->failures &&
                back.probing == b->probing);
    for (uint32_t i = 0; i < b->failures; i++)
        assert_int_equal(back.at[i], b->at[i]);
    for (uint32_t i = 0; i < b->probing; i++) {
        const sm_circuit_probe *x = &b->probes[i], *y = &back.probes[i];
        assert_true(x->turn == y->turn && x->until == y->until && x->last == y->last &&
                    x->attempt.id == y->attempt.id && x->attempt.fence == y->attempt.fence &&
                    x->attempt.generation == y->attempt.generation &&
                    x->attempt.shard == y->attempt.shard);
    }
    memcpy(b, &back, sizeof back);
    sm_buf_fini(&text);
    sm_arena_fini(&arena);
}

static void the_largest_state_is_kept_whole(void **state)
{
    (void)state;
    static sm_breaker b = {.state = SM_CIRCUIT_HALF_OPEN, .since = INT64_MAX};
    for (; b.failures < SM_BREAKER_FAILURES_MAX; b.failures++)
        b.at[b.failures] = INT64_MAX - b.failures;
    for (; b.probing < SM_BREAKER_PROBES_MAX; b.probing++)
        b.probes[b.probing] = (sm_circuit_probe){.attempt = {.shard = 255,
                                                             .id = UINT64_MAX - b.probing,
                                                             .generation = 7,
                                                             .fence = INT64_MAX},
                                                 .turn = INT64_MAX - b.probing,
                                                 .until = INT64_MAX,
                                                 .last = INT64_MAX};
    round_trip(&b);
}

static void what_is_not_a_circuit_is_not_read(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "[]",
        "{}",
        "{\"state\":\"ajar\",\"since\":0,\"failures\":[],\"probes\":[]}",
        "{\"state\":\"open\",\"failures\":[],\"probes\":[]}",
        "{\"state\":\"open\",\"since\":\"0\",\"failures\":[],\"probes\":[]}",
        "{\"state\":\"open\",\"since\":0,\"failures\":[\"1\"],\"probes\":[]}",
        "{\"state\":\"open\",\"since\":0,\"failures\":[[1]],\"probes\":[]}",
        "{\"state\":\"open\",\"since\":0,\"failures\":{},\"probes\":[]}",
        "{\"state\":\"half_open\",\"since\":0,\"failures\":[],\"probes\":[1]}",
        "{\"state\":\"half_open\",\"since\":0,\"failures\":[],\"probes\":[{}]}",
        ("{\"state\":\"half_open\",\"since\":0,\"failures\":[],\"probes\":[{\"effect\":\"x\","
         "\"fence\":1,\"turn\":1,\"until\":1,\"last\":1}]}"),
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        sm_arena arena;
        sm_breaker b;
        sm_arena_init(&arena, SM_ARENA_MAX);
        expect(!sm_breaker_read(&arena, sm_str_from(texts[i]), &b), "%s", texts[i]);
        sm_arena_fini(&arena);
    }
}

/* ---- against a model -------------------------------------------------------------------------*/

#define STEPS 40
#define CALLS 12

/* Everything that happened, and no cleverness. */
typedef struct model {
    sm_circuit_state state;
    int64_t opened;
    int64_t failed[STEPS]; /* since it was closed, or a call ended well where that counts */
    unsigned failures;
    bool probes[CALLS]; /* which calls have a place */
} model;

static unsigned probing(const model *m)
{
    unsigned n = 0;
    for (unsigned i = 0; i < CALLS; i++)
        n += m->probes[i];
    return n;
}

static void open_model(model *m, int64_t now)
{
    m->state = SM_CIRCUIT_OPEN;
    m->opened = now;
    memset(m->probes, 0, sizeof m->probes);
}

static void close_model(model *m)
{
    memset(m, 0, sizeof *m);
}

static bool model_begin(model *m, const sm_breaker_rule *r, unsigned call, int64_t now)
{
    if (m->state == SM_CIRCUIT_OPEN && now >= m->opened + r->cooldown_ms)
        m->state = SM_CIRCUIT_HALF_OPEN;
    if (m->state != SM_CIRCUIT_HALF_OPEN)
        return m->state == SM_CIRCUIT_CLOSED;
    if (!m->probes[call] && probing(m) >= r->probes)
        return false;
    return m->probes[call] = true;
}

static void model_end(model *m, const sm_breaker_rule *r, unsigned call, sm_health h, int64_t now)
{
    if (m->state == SM_CIRCUIT_HALF_OPEN && m->probes[call]) {
        m->probes[call] = false;
        if (h == SM_HEALTH_FAILED)
            open_model(m, now);
        else if (h != SM_HEALTH_UNTRIED)
            close_model(m);
    } else if (m->state == SM_CIRCUIT_CLOSED && h == SM_HEALTH_FAILED) {
        unsigned count = 0;
        m->failed[m->failures++] = now;
        for (unsigned i = 0; i < m->failures; i++)
            count += r->window_ms == 0 || now - m->failed[i] < r->window_ms;
        if (count >= r->failures)
            open_model(m, now);
    } else if (m->state == SM_CIRCUIT_CLOSED && h == SM_HEALTH_WELL && r->window_ms == 0) {
        m->failures = 0;
    }
}

static uint64_t seed = 20260717;

static unsigned some(unsigned n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed % n);
}

static void agree(const sm_breaker *b, const model *m, int sequence, int step)
{
    expect(b->state == m->state, "sequence %d, step %d: %d, not %d", sequence, step, (int)b->state,
           (int)m->state);
    expect(b->probing == probing(m), "sequence %d, step %d: %u probes, not %u", sequence, step,
           b->probing, probing(m));
    for (uint32_t i = 0; i < b->probing; i++)
        expect(m->probes[b->probes[i].turn], "sequence %d, step %d", sequence, step);
}

static void random_sequences_are_as_the_model_says(void **state)
{
    (void)state;
    unsigned opened = 0, closed = 0;
    static sm_breaker b;
    for (int sequence = 0; sequence < 100000; sequence++) {
        sm_breaker_rule r = {.on = true,
                             .failures = 1 + some(5),
                             .window_ms = some(2) ? 0 : 1 + some(60),
                             .cooldown_ms = some(40),
                             .probes = 1 + some(4)};
        model m = {0};
        b.state = SM_CIRCUIT_CLOSED;
        b.failures = b.probing = 0;
        int64_t now = 1000;
        for (int step = 0; step < STEPS; step++) {
            unsigned call = 1 + some(CALLS - 1), what = some(10);
            now += some(3) ? some(4) : some(50);
            sm_circuit_state before = b.state;
            sm_circuit_change change = SM_CIRCUIT_SAME;
            if (what < 4) {
                sm_circuit_probe p = call_of(call, now + 10);
                bool may = sm_breaker_begin(&b, &r, &p, now, &change);
                expect(may == model_begin(&m, &r, call, now), "sequence %d, step %d", sequence,
                       step);
            } else if (what < 9) {
                static const sm_health ends[] = {SM_HEALTH_FAILED, SM_HEALTH_FAILED, SM_HEALTH_WELL,
                                                 SM_HEALTH_ANSWERED, SM_HEALTH_UNTRIED};
                sm_health h = ends[some(COUNT(ends))];
                change = end(&b, &r, call, h, now);
                model_end(&m, &r, call, h, now);
            } else {
                change = sm_breaker_leave(&b, call);
                m.probes[call] = false;
            }
            agree(&b, &m, sequence, step);
            expect((change == SM_CIRCUIT_OPENED) ==
                       (b.state == SM_CIRCUIT_OPEN && before != SM_CIRCUIT_OPEN),
                   "sequence %d, step %d: opened", sequence, step);
            expect((change == SM_CIRCUIT_HALVED) ==
                       (b.state == SM_CIRCUIT_HALF_OPEN && before == SM_CIRCUIT_OPEN),
                   "sequence %d, step %d: half open", sequence, step);
            expect((change == SM_CIRCUIT_SHUT) ==
                       (b.state == SM_CIRCUIT_CLOSED && before != SM_CIRCUIT_CLOSED),
                   "sequence %d, step %d: closed", sequence, step);
            opened += change == SM_CIRCUIT_OPENED;
            closed += change == SM_CIRCUIT_SHUT;
            if (step % 13 == 0)
                round_trip(&b);
        }
    }
    expect(opened > 100000 && closed > 10000, "%u, %u", opened, closed); /* it tells something */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_in_a_row_open_it),
        cmocka_unit_test(a_failure_a_day_after_the_one_before_begins_a_new_row),
        cmocka_unit_test(
            a_call_that_ends_well_starts_the_count_anew_and_one_that_is_turned_down_does_not),
        cmocka_unit_test(wrong_arguments_never_open_it),
        cmocka_unit_test(a_window_forgets_failures_and_does_not_ask_for_a_row),
        cmocka_unit_test(a_probe_decides_and_so_many_run_at_a_time),
        cmocka_unit_test(an_earlier_attempt_of_the_same_effect_is_not_the_probe),
        cmocka_unit_test(a_probe_that_is_turned_down_shows_that_the_tool_answers),
        cmocka_unit_test(whoever_leaves_frees_only_its_own_place),
        cmocka_unit_test(a_clock_that_is_set_back_does_not_keep_it_open),
        cmocka_unit_test(what_an_outcome_says_of_its_tool),
        cmocka_unit_test(the_origin_of_an_upstream_is_part_of_its_url),
        cmocka_unit_test(the_largest_state_is_kept_whole),
        cmocka_unit_test(what_is_not_a_circuit_is_not_read),
        cmocka_unit_test(random_sequences_are_as_the_model_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
