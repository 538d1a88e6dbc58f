/* Loops: against their definition, on random sequences and on what agents really do. */
#include "unit.h"

#include "core/loop.h"
#include "semel/semel.h"

#define LENGTH_MAX 96

/* ---- the definition --------------------------------------------------------------------------*/

typedef struct sequence {
    sm_loop_entry entry[LENGTH_MAX + 1];
    bool progress[LENGTH_MAX + 1];
    uint32_t length;
} sequence;

static bool equal(const sequence *s, uint32_t a, uint32_t b)
{
    return s->entry[a].call == s->entry[b].call && s->entry[a].result == s->entry[b].result;
}

/* Whether the last p * copies entries are copies of the last p. */
static bool ends_in(const sequence *s, uint32_t p, uint32_t copies)
{
    if (p * copies > s->length)
        return false;
    for (uint32_t copy = 1; copy < copies; copy++) {
        for (uint32_t i = 1; i <= p; i++) {
            if (!equal(s, s->length - i, s->length - i - copy * p))
                return false;
        }
    }
    return true;
}

/* How often the last entry was there since the last progress; one that came before so many others
 * that it is forgotten does not count. */
static uint32_t times_seen(const sequence *s)
{
    uint32_t count = 1, last = s->length - 1, others = 0;
    for (uint32_t i = last; i > 0 && !s->progress[i]; i--) {
        if (equal(s, i - 1, s->length - 1)) {
            count++;
            last = i - 1;
            others = 0;
            continue;
        }
        bool counted = false; /* among the others since */
        for (uint32_t j = i; j < last && !counted; j++)
            counted = equal(s, j, i - 1);
        others += !counted;
        if (others == SM_LOOP_SEEN_MAX)
            break;
    }
    return count;
}

static sm_loop_match defined(const sequence *s, uint32_t max_cycle)
{
    sm_loop_match best = {SM_LOOP_REPEAT, 1, 1, s->entry[s->length - 1].result};
    for (uint32_t p = 1; p <= max_cycle; p++) {
        uint32_t copies = 1;
        while (ends_in(s, p, copies + 1))
            copies++;
        if (copies > best.count)
            best = (sm_loop_match){p == 1 ? SM_LOOP_REPEAT : SM_LOOP_CYCLE, p, copies, best.result};
    }
    uint32_t seen = times_seen(s);
    bool next_copy = best.detector == SM_LOOP_CYCLE && seen == best.count + 1;
    if (seen > best.count && !next_copy)
        best = (sm_loop_match){SM_LOOP_NO_PROGRESS, 0, seen, best.result};
    best.count += next_copy;
    return best;
}

/* What a call could complete at most, whatever of its earlier results it returned. */
static uint32_t defined_most(sequence *s, uint64_t call, uint32_t max_cycle)
{
    uint32_t most = 1;
    s->length++;
    s->progress[s->length - 1] = false;
    for (uint32_t i = 0; i + 1 < s->length; i++) {
        if (s->entry[i].call != call)
            continue;
        s->entry[s->length - 1] = s->entry[i];
        uint32_t count = defined(s, max_cycle).count;
        most = count > most ? count : most;
    }
    s->length--;
    return most;
}

static uint64_t seed = 16;

static uint32_t below(uint32_t n)
{
    return random_below(&seed, n);
}

/* Mostly copies of what was there a little before, so that patterns begin, go on and break. */
static sm_loop_entry random_entry(const sequence *s, uint32_t alphabet, uint32_t period)
{
    if (s->length >= period && below(8) > 0)
        return s->entry[s->length - period];
    return (sm_loop_entry){1 + below(alphabet), below(3)};
}

/* Two processes tell each other what they know: also what was new. */
static void what_is_appended_is_as_if_it_was_added(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        sequence s = {.length = 0};
        uint32_t first = below(30), length = first + below(SM_LOOP_CYCLE_MAX + 1);
        sm_loop l = {.periods = 4}, known = l;
        while (s.length < length) {
            if (s.length == first)
                known = l;
            s.entry[s.length] = random_entry(&s, 6, 2);
            sm_loop_add(&l, s.entry[s.length++], below(6) == 0, 4);
        }
        if (length == first)
            known = l;
        sm_loop_append(&known, &l, length - first);
        assert_memory_equal(&known, &l, sizeof l);
    }
}

/* What lies further back than is remembered may have been new: nothing is held against the run. */
static void appending_more_than_is_remembered_begins_with_something_new(void **state)
{
    (void)state;
    sm_loop known = {.periods = 4}, l = known;
    const sm_loop_entry asked = {7, 7};
    sm_loop_add(&known, asked, false, 4);
    for (uint32_t i = 0; i < SM_LOOP_CYCLE_MAX + 1; i++)
        sm_loop_add(&l, (sm_loop_entry){100 + i % 12, 1}, false, 4);
    sm_loop_append(&known, &l, l.calls);
    sm_loop same = known;
    assert_int_equal(sm_loop_add(&known, asked, false, 4).count, 1);
    /* But what is remembered counts: it is the 33rd, and was the 9th and the 21st. */
    assert_int_equal(sm_loop_add(&same, (sm_loop_entry){109, 1}, false, 4).count, 3);
}

static void it_finds_what_the_definition_says(void **state)
{
    (void)state;
    uint32_t counts[3] = {0};
    for (int round = 0; round < 100000; round++) {
        sequence s = {.length = 0};
        uint32_t cycle = 1 + below(6), alphabet = 1 + below(24);
        uint32_t period = 1 + below(8), length = 1 + below(round % 50 == 0 ? 96 : 24);
        sm_loop l = {.periods = cycle + below(3)};
        while (s.length < length) {
            sm_loop_entry e = random_entry(&s, alphabet, period);
            sm_loop_match foreseen = sm_loop_foresee(&l, e.call, cycle);
            if (round % 10 == 0)
                assert_int_equal(foreseen.count, defined_most(&s, e.call, cycle));
            s.progress[s.length] = below(12) == 0;
            s.entry[s.length] = e;
            bool progress = s.progress[s.length++];
            sm_loop_match got = sm_loop_add(&l, e, progress, cycle), want = defined(&s, cycle);
            if (got.detector != want.detector || got.period != want.period ||
                got.count != want.count || got.result != want.result)
                fail_msg("round %d, entry %u: %s of %u, %u times, but it is %s of %u, %u times",
                         round, s.length, sm_loop_name(got.detector), got.period, got.count,
                         sm_loop_name(want.detector), want.period, want.count);
            if (!progress && foreseen.count > 1 && foreseen.result == e.result)
                assert_true(foreseen.count <= got.count);
            counts[got.detector] += got.count > 2;
            if (below(40) == 0)
                period = 1 + below(8);
        }
    }
    for (int i = 0; i < 3; i++)
        assert_true(counts[i] > 10000);
}

/* ---- what agents do --------------------------------------------------------------------------*/

/* A transcript: a word a call, "tool=result"; a tool in capitals does something new if it says ok.
 */
typedef struct told {
    sm_loop l;
    sm_loop_match worst;
} told;

static uint64_t hash_of(const char *p, size_t n)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)p[i]) * 0x100000001B3u;
    return h;
}

static void tell(told *t, const char *text)
{
    for (const char *at = text + strspn(text, " "); *at != '\0'; at += strspn(at, " ")) {
        size_t n = strcspn(at, " "), name = strcspn(at, "=");
        bool progress =
            *at >= 'A' && *at <= 'Z' && n == name + 3 && memcmp(at + name, "=ok", 3) == 0;
        sm_loop_entry e = {hash_of(at, name), hash_of(at + name, n - name)};
        sm_loop_match m = sm_loop_add(&t->l, e, progress, 4);
        if (m.count > t->worst.count)
            t->worst = m;
        at += n;
    }
}

static told told_times(const char *text, int times)
{
    told t = {.l.periods = 4};
    for (int i = 0; i < times; i++)
        tell(&t, text);
    return t;
}

static void expect_worst(const told *t, sm_loop_detector detector, uint32_t period, uint32_t count)
{
    if (t->worst.detector != detector || t->worst.period != period || t->worst.count != count)
        fail_msg("%s of %u, %u times", sm_loop_name(t->worst.detector), t->worst.period,
                 t->worst.count);
}

static void the_same_error_again_and_again_is_a_repeat(void **state)
{
    (void)state;
    told t = told_times("EDIT:a=no-such-file", 85);
    expect_worst(&t, SM_LOOP_REPEAT, 1, 85);
}

static void two_in_turn_are_a_cycle(void **state)
{
    (void)state;
    told t = told_times("ask:planner=later ask:coder=later", 6);
    expect_worst(&t, SM_LOOP_CYCLE, 2, 6);
}

static void read_and_failing_edit_and_failing_test_are_a_cycle_of_three(void **state)
{
    (void)state;
    told t = told_times("read:a=text EDIT:a=no-match test=failed", 7);
    expect_worst(&t, SM_LOOP_CYCLE, 3, 7);
}

static void the_same_test_after_edits_that_fail_makes_no_progress(void **state)
{
    (void)state;
    told t = {.l.periods = 4};
    tell(&t, "EDIT:1=no-match test=failed look:x=1 EDIT:2=no-match test=failed EDIT:3=no-match "
             "look:y=2 look:z=3 test=failed EDIT:4=no-match look:q=1 test=failed");
    expect_worst(&t, SM_LOOP_NO_PROGRESS, 0, 4);
}

static void edits_and_tests_in_turn_are_no_loop(void **state)
{
    (void)state;
    told t = {.l.periods = 4};
    char text[64];
    for (int i = 0; i < 40; i++) {
        snprintf(text, sizeof text, "EDIT:%d=ok test=failed", i);
        tell(&t, text);
    }
    expect_worst(&t, SM_LOOP_REPEAT, 1, 1);
}

static void a_batch_over_a_long_list_is_no_loop(void **state)
{
    (void)state;
    told t = {.l.periods = 4};
    char text[96];
    for (int i = 0; i < 500; i++) {
        snprintf(text, sizeof text, "template=text SEND:%d=ok read:%d=done", i, i);
        tell(&t, text);
    }
    expect_worst(&t, SM_LOOP_REPEAT, 1, 1);
}

static void a_question_whose_answer_changes_is_no_loop(void **state)
{
    (void)state;
    told t = {.l.periods = 4};
    char text[64];
    for (int i = 0; i < 50; i++) {
        snprintf(text, sizeof text, "status=%d-percent", 2 * i);
        tell(&t, text);
    }
    tell(&t, "status=ready FETCH=ok");
    expect_worst(&t, SM_LOOP_REPEAT, 1, 1);
}

static void what_breaks_a_pattern_ends_it(void **state)
{
    (void)state;
    told t = {.l.periods = 4};
    tell(&t, "a=1 a=1 a=1 SEND:x=ok a=1 a=1");
    expect_worst(&t, SM_LOOP_REPEAT, 1, 3);
    assert_int_equal(sm_loop_foresee(&t.l, hash_of("a", 1), 4).count, 3);
    assert_int_equal(sm_loop_foresee(&t.l, hash_of("b", 1), 4).count, 1);
}

static void counts_do_not_overflow(void **state)
{
    (void)state;
    sm_loop l = {.periods = 1};
    sm_loop_entry e = {1, 1};
    sm_loop_add(&l, e, false, 1);
    sm_loop_add(&l, e, false, 1);
    l.same[0] = l.seen[0].count = UINT32_MAX - 4;
    for (int i = 0; i < 4; i++)
        assert_true(sm_loop_add(&l, e, false, 1).count >= UINT32_MAX - 4);
    assert_true(sm_loop_foresee(&l, 1, 1).count >= UINT32_MAX - 4);
}

/* ---- the detector alone ----------------------------------------------------------------------*/

static semel_loop *new_loop(uint32_t repeats, uint32_t max_cycle)
{
    semel_loop_options o = {.size = sizeof o, .repeats = repeats, .max_cycle = max_cycle};
    semel_loop *l;
    assert_int_equal(semel_loop_new(&o, &l, NULL), SEMEL_OK);
    return l;
}

static void alone_it_finds_three_repeats_and_cycles_of_two(void **state)
{
    (void)state;
    semel_loop *l;
    semel_loop_match m;
    assert_int_equal(semel_loop_new(NULL, &l, NULL), SEMEL_OK);
    const sm_str a = SM_STR("search"), b = SM_STR("open"), c = SM_STR("read"), none = {0};
    for (uint32_t i = 1; i <= 5; i++) {
        assert_int_equal(semel_loop_add(l, a, SM_STR("{\"q\":1}"), SM_STR("[]"), &m), i >= 3);
        assert_true(sm_str_is(m.detector, "repeat") && m.period == 1 && m.count == i);
    }
    for (uint32_t i = 1; i <= 4; i++) {
        semel_loop_add(l, b, none, none, NULL);
        assert_int_equal(semel_loop_add(l, c, none, none, &m), i >= 3);
        assert_int_equal(m.count, i);
    }
    assert_true(sm_str_is(m.detector, "cycle") && m.period == 2);
    for (int i = 0; i < 20; i++) { /* of three: too long for this one */
        const sm_str tools[] = {a, b, c};
        assert_false(semel_loop_add(l, tools[i % 3], none, none, NULL));
    }
    semel_loop_free(l);
    semel_loop_free(NULL);
}

static void alone_it_compares_json_by_value_and_the_rest_by_bytes(void **state)
{
    (void)state;
    const struct {
        const char *args[2], *result[2];
        bool equal;
    } rows[] = {
        {{"{\"a\":1,\"b\":2}", " { \"b\": 2.0, \"a\": 1 }"}, {"[1]", "[ 1 ]"}, true},
        {{NULL, "{}"}, {NULL, NULL}, true},
        {{"{}", "{}"}, {NULL, "null"}, false},
        {{"{}", "{}"}, {"1", "2"}, false},
        {{"{\"a\":1}", "{\"a\":2}"}, {"1", "1"}, false},
        {{"not json", "not json"}, {"{", "{"}, true},
        {{"not json", "not  json"}, {"1", "1"}, false},
        {{"\"x\"", "x"}, {"1", "1"}, false},
        {{"{\"a\":12345678901234567890}", "{\"a\":12345678901234567891}"}, {"1", "1"}, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        semel_loop *l = new_loop(2, 1);
        bool found = false;
        for (int k = 0; k < 2; k++)
            found = semel_loop_add(l, SM_STR("t"), sm_str_from(rows[i].args[k]),
                                   sm_str_from(rows[i].result[k]), NULL);
        if (found != rows[i].equal)
            fail_msg("row %zu", i);
        semel_loop_free(l);
    }
    /* A tool's name does not run into its arguments. */
    semel_loop *l = new_loop(2, 1);
    semel_loop_add(l, SM_STR("tb"), SM_STR("x"), (sm_str){0}, NULL);
    assert_false(semel_loop_add(l, SM_STR("t"), SM_STR("bx"), (sm_str){0}, NULL));
    semel_loop_free(l);
}

static void alone_it_refuses_options_out_of_range(void **state)
{
    (void)state;
    const semel_loop_options rows[] = {
        {.repeats = 3},
        {.size = sizeof rows[0], .repeats = 1},
        {.size = sizeof rows[0], .max_cycle = 33},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        semel_loop *l;
        semel_fault fault;
        assert_int_equal(semel_loop_new(&rows[i], &l, &fault), SEMEL_E_BAD_ARGUMENTS);
        assert_null(l);
        assert_true(strlen(fault.text) > 10);
    }
    semel_loop_free(new_loop(2, 32));
}

static void alone_it_is_quiet_about_work(void **state)
{
    (void)state;
    semel_loop *l = new_loop(0, 0);
    char text[64];
    for (int i = 0; i < 500; i++) {
        snprintf(text, sizeof text, "{\"to\":%d}", i);
        assert_false(semel_loop_add(l, SM_STR("template"), (sm_str){0}, SM_STR("\"Dear\""), NULL));
        assert_false(semel_loop_add(l, SM_STR("send"), sm_str_from(text), SM_STR("\"ok\""), NULL));
        snprintf(text, sizeof text, "\"%d %%\"", i / 5);
        assert_false(semel_loop_add(l, SM_STR("status"), (sm_str){0}, sm_str_from(text), NULL));
    }
    semel_loop_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_finds_what_the_definition_says),
        cmocka_unit_test(what_is_appended_is_as_if_it_was_added),
        cmocka_unit_test(appending_more_than_is_remembered_begins_with_something_new),
        cmocka_unit_test(the_same_error_again_and_again_is_a_repeat),
        cmocka_unit_test(two_in_turn_are_a_cycle),
        cmocka_unit_test(read_and_failing_edit_and_failing_test_are_a_cycle_of_three),
        cmocka_unit_test(the_same_test_after_edits_that_fail_makes_no_progress),
        cmocka_unit_test(edits_and_tests_in_turn_are_no_loop),
        cmocka_unit_test(a_batch_over_a_long_list_is_no_loop),
        cmocka_unit_test(a_question_whose_answer_changes_is_no_loop),
        cmocka_unit_test(what_breaks_a_pattern_ends_it),
        cmocka_unit_test(counts_do_not_overflow),
        cmocka_unit_test(alone_it_finds_three_repeats_and_cycles_of_two),
        cmocka_unit_test(alone_it_compares_json_by_value_and_the_rest_by_bytes),
        cmocka_unit_test(alone_it_refuses_options_out_of_range),
        cmocka_unit_test(alone_it_is_quiet_about_work),
    };
    return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
