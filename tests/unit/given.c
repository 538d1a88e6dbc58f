/*
 * What other versions of the headers give us: structures that start with their size, tables of
 * stores; and the version itself.
 */
#include "ledger.h"

#include "base/given.h"
#include "ledger/service.h"
#include "store/stores.h"

/* ---- the rule --------------------------------------------------------------------------------*/

/* A structure as it was, as it is, and as it will be. */
typedef struct old_thing {
    size_t size;
    int64_t a;
} old_thing;

typedef struct thing {
    size_t size;
    int64_t a;
    int64_t b;
} thing;

typedef struct new_thing {
    size_t size;
    int64_t a;
    int64_t b;
    int64_t c, d;
} new_thing;

static sm_err read_thing(thing *ours, const void *given, sm_fault *fault)
{
    return sm_given_read(ours, sizeof *ours, given, SM_FIRST_SIZE(thing, a), "the thing", fault);
}

static void a_structure_of_an_older_caller_is_read_as_if_the_rest_were_zero(void **state)
{
    (void)state;
    struct {
        old_thing given;
        int64_t behind;
    } place = {{sizeof(old_thing), 7}, -1};
    thing ours;
    memset(&ours, 0xFF, sizeof ours);
    assert_int_equal(read_thing(&ours, &place.given, NULL), SM_OK);
    assert_int_equal(ours.size, sizeof ours);
    assert_int_equal(ours.a, 7);
    assert_int_equal(ours.b, 0);
}

static void a_structure_of_an_older_caller_is_filled_in_as_far_as_it_goes(void **state)
{
    (void)state;
    struct {
        old_thing given;
        int64_t behind;
    } place = {{sizeof(old_thing), 7}, -1};
    sm_given_fill(&place.given, &(thing){sizeof(thing), 8, 9}, sizeof(thing));
    assert_int_equal(place.given.size, sizeof(old_thing));
    assert_int_equal(place.given.a, 8);
    assert_int_equal(place.behind, -1);

    new_thing newer = {sizeof newer, 1, 2, 0, 0};
    sm_given_fill(&newer, &(thing){sizeof(thing), 8, 9}, sizeof(thing));
    assert_int_equal(newer.size, sizeof newer);
    assert_int_equal(newer.a, 8);
    assert_int_equal(newer.b, 9);
    assert_int_equal(newer.c, 0);
}

static void a_structure_of_a_newer_caller_is_refused_if_it_says_more_than_we_know(void **state)
{
    (void)state;
    thing ours;
    sm_fault fault = {0};
    new_thing newer = {sizeof newer, 1, 2, 0, 0};
    assert_int_equal(read_thing(&ours, &newer, &fault), SM_OK);
    assert_int_equal(ours.size, sizeof ours);
    assert_int_equal(ours.b, 2);
    newer.d = INT64_MIN; /* one bit, in the last byte */
    assert_int_equal(read_thing(&ours, &newer, &fault), SEMEL_E_BAD_ARGUMENTS);
    assert_non_null(strstr(fault.text, "there is more in the thing than this version"));
    newer.d = 0;
    newer.c = 1;
    assert_int_equal(read_thing(&ours, &newer, NULL), SEMEL_E_BAD_ARGUMENTS);
}

static void a_size_that_was_never_set_is_refused(void **state)
{
    (void)state;
    static const size_t sizes[] = {0,
                                   1,
                                   sizeof(size_t),
                                   sizeof(old_thing) - 1,
                                   sizeof(thing) + SM_GIVEN_BEYOND_MAX + 1,
                                   SIZE_MAX / 2,
                                   SIZE_MAX};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        thing ours, given = {sizes[i], 1, 2};
        sm_fault fault = {0};
        expect(read_thing(&ours, &given, &fault) == SEMEL_E_BAD_ARGUMENTS, "size %zu", sizes[i]);
        expect(strstr(fault.text, "the size of the thing is not set") != NULL, "%s", fault.text);
    }
}

/* ---- every structure that the library takes --------------------------------------------------*/

/* Enough for the largest, and for what a newer version may add. */
#define BEYOND 40u
typedef union place {
    size_t size;
    max_align_t align;
    char bytes[sizeof(semel_stats) + sizeof(semel_store_ops) + BEYOND];
} place;

typedef struct use {
    ledger l;
    semel_fault fault;
} use;

/* What the answer says, as those say it that have no answer. */
static semel_err told(use *u, semel_err e)
{
    snprintf(u->fault.text, sizeof u->fault.text, "%.*s", SM_FMT(u->l.a->message));
    return e;
}

static void start_options(use *u, place *p)
{
    (void)u;
    semel_options o = {.size = sizeof o, .url = "memory:", .one_shot = true};
    memcpy(p, &o, sizeof o);
}

static semel_err use_options(use *u, place *p)
{
    semel *s = NULL;
    semel_err e = semel_open((const semel_options *)p, &s, &u->fault);
    assert_true((e == SEMEL_OK) == (s != NULL));
    semel_close(s);
    return e;
}

static void start_call(use *u, place *p)
{
    (void)u;
    semel_call c = call_of("t", "{}");
    memcpy(p, &c, sizeof c);
}

static semel_err use_begin(use *u, place *p)
{
    semel_err e = told(u, semel_begin(u->l.s, (const semel_call *)p, u->l.a));
    if (e != SEMEL_OK)
        expect_refused(&u->l, SEMEL_C_BAD_ARGUMENTS);
    return e;
}

static void work(void *context, const semel_answer *execute, semel_outcome *outcome)
{
    (void)execute;
    ++*(int *)context;
    outcome->value = semel_text("1");
}

static semel_err use_run(use *u, place *p)
{
    int runs = 0;
    semel_err e = told(u, semel_run(u->l.s, (const semel_call *)p, work, &runs, u->l.a));
    assert_int_equal(runs, e == SEMEL_OK);
    return e;
}

/* An effect that runs, and the outcome for it. */
static void start_outcome(use *u, place *p)
{
    assert_int_equal(begin(&u->l, "t", "{}"), SEMEL_OK);
    expect_execute(&u->l);
    semel_outcome o = {.size = sizeof o, .value = semel_text("1")};
    memcpy(p, &o, sizeof o);
}

static semel_err use_commit(use *u, place *p)
{
    return told(u, semel_commit(u->l.s, semel_text(u->l.claim), (const semel_outcome *)p, u->l.a));
}

/* An effect that is in doubt, and what it came to. */
static void start_doubt(use *u, place *p)
{
    start_outcome(u, p);
    assert_int_equal(
        commit_as(&u->l, u->l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "\"broken\""), SEMEL_OK);
    assert_int_equal(u->l.a->state, SEMEL_S_IN_DOUBT);
}

static semel_err use_resolve(use *u, place *p)
{
    return told(u, semel_resolve(u->l.s, semel_text(u->l.effect), SEMEL_RESOLVE_APPLIED,
                                 (const semel_outcome *)p, semel_text("seen"), semel_text("ann"),
                                 u->l.a));
}

static void start_name(use *u, place *p)
{
    assert_int_equal(begin(&u->l, "t", "{}"), SEMEL_OK);
    semel_name n = {.size = sizeof n, .text = semel_text(u->l.effect)};
    memcpy(p, &n, sizeof n);
}

static semel_err use_get(use *u, place *p)
{
    return told(u, semel_get(u->l.s, (const semel_name *)p, u->l.a));
}

static semel_err use_show(use *u, place *p)
{
    semel_str json;
    return told(u, semel_show(u->l.s, (const semel_name *)p, u->l.a, &json));
}

static void start_query(use *u, place *p)
{
    (void)u;
    semel_query q = {.size = sizeof q};
    memcpy(p, &q, sizeof q);
}

static bool any_item(void *context, const semel_answer *item, const semel_record *record)
{
    (void)context;
    (void)item;
    (void)record;
    return true;
}

static semel_err use_list(use *u, place *p)
{
    return semel_list(u->l.s, (semel_query *)p, any_item, NULL, &u->fault);
}

static void start_imported(use *u, place *p)
{
    (void)u;
    semel_imported c = {.size = sizeof c};
    memcpy(p, &c, sizeof c);
}

static bool import_line(void *context, semel_str line)
{
    void **both = context;
    use *u = both[0];
    semel *s = open_ledger("memory:", NULL, true);
    semel_err e = semel_import_line(s, line, both[1], &u->fault);
    semel_close(s);
    return e == SEMEL_OK;
}

static semel_err use_import(use *u, place *p)
{
    const semel_imported *counts = (const semel_imported *)p;
    void *both[] = {u, p};
    u->fault = (semel_fault){0};
    assert_int_equal(begin(&u->l, "t", "{}"), SEMEL_OK);
    semel_export(u->l.s, (semel_str){0}, import_line, both, NULL);
    if (u->fault.code == SEMEL_OK) {
        assert_int_equal(counts->lines, 1);
        assert_int_equal(counts->added, 1);
    }
    return u->fault.code;
}

static void start_verified(use *u, place *p)
{
    assert_int_equal(begin(&u->l, "t", "{}"), SEMEL_OK);
    semel_verified v = {.size = sizeof v, .effects = 99};
    memcpy(p, &v, sizeof v);
}

static semel_err use_verify(use *u, place *p)
{
    const semel_verified *v = (const semel_verified *)p;
    semel_err e = semel_verify(u->l.s, NULL, NULL, NULL, (semel_verified *)p, &u->fault);
    assert_int_equal(v->effects, e == SEMEL_OK ? 1 : 99);
    return e;
}

static void start_stats(use *u, place *p)
{
    assert_int_equal(begin(&u->l, "t", "{}"), SEMEL_OK);
    semel_stats t = {.size = sizeof t, .begins = 99};
    memcpy(p, &t, sizeof t);
}

static semel_err use_stats(use *u, place *p)
{
    const semel_stats *t = (const semel_stats *)p;
    semel_err e = semel_stats_get(u->l.s, false, (semel_stats *)p, &u->fault);
    assert_int_equal(t->begins, e == SEMEL_OK ? 1 : 99);
    if (e == SEMEL_OK)
        assert_int_equal(t->store.records, 1);
    return e;
}

static void start_store(use *u, place *p)
{
    (void)u;
    memcpy(p, &sm_store_memory, sizeof sm_store_memory);
}

static semel_err use_store(use *u, place *p)
{
    semel_options o = {
        .size = sizeof o, .url = "memory:", .store = (const semel_store_ops *)p, .one_shot = true};
    semel *s = NULL;
    semel_err e = semel_open(&o, &s, &u->fault);
    assert_true((e == SEMEL_OK) == (s != NULL));
    semel_close(s);
    return e;
}

static const struct {
    const char *name;
    void (*start)(use *u, place *p);
    semel_err (*use)(use *u, place *p);
} takers[] = {
    {"semel_open", start_options, use_options},   {"semel_begin", start_call, use_begin},
    {"semel_run", start_call, use_run},           {"semel_commit", start_outcome, use_commit},
    {"semel_resolve", start_doubt, use_resolve},  {"semel_get", start_name, use_get},
    {"semel_show", start_name, use_show},         {"semel_list", start_query, use_list},
    {"semel_import", start_imported, use_import}, {"semel_verify", start_verified, use_verify},
    {"semel_stats", start_stats, use_stats},      {"a store", start_store, use_store},
};

/* Uses a structure that was changed; gives what it was told. */
static void take_changed(size_t which, void (*change)(place *p), semel_err expected,
                         const char *sentence)
{
    use u = {.l = new_ledger("{version: 1, tools: {t: {class: irreversible}}}")};
    place *p = calloc(1, sizeof *p);
    assert_non_null(p);
    takers[which].start(&u, p);
    change(p);
    size_t size = p->size;
    u.fault = (semel_fault){0};
    semel_err e = takers[which].use(&u, p);
    expect(e == expected, "%s: %s (%s)", takers[which].name, semel_err_name(e), u.fault.text);
    expect(e == SEMEL_OK || strstr(u.fault.text, sentence) != NULL, "%s: %s", takers[which].name,
           u.fault.text);
    expect(p->size == size, "%s: the size has become %zu", takers[which].name, p->size);
    free(p);
    end_ledger(&u.l);
}

static void as_it_is(place *p)
{
    (void)p;
}

static void unset(place *p)
{
    p->size = 0;
}

static void cut(place *p)
{
    p->size = 2 * sizeof(size_t);
}

static void grow(place *p)
{
    p->size += BEYOND;
}

static void say_more(place *p)
{
    p->size += BEYOND;
    p->bytes[p->size - 1] = 1;
}

static void every_structure_must_have_its_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(takers); i++) {
        take_changed(i, as_it_is, SEMEL_OK, "");
        take_changed(i, unset, SEMEL_E_BAD_ARGUMENTS, "is not set");
        take_changed(i, cut, SEMEL_E_BAD_ARGUMENTS, "is not set");
    }
}

static void every_structure_may_be_larger_if_it_says_no_more(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(takers); i++) {
        take_changed(i, grow, SEMEL_OK, "");
        take_changed(i, say_more, SEMEL_E_BAD_ARGUMENTS, "than this version");
    }
}

static void spare_words_and_unknown_flags_must_be_zero(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    assert_int_equal(begin(&l, "t", "{}"), SEMEL_OK);
    semel_outcome o = {.size = sizeof o, .spare = {1}};
    assert_int_equal(semel_commit(l.s, semel_text(l.claim), &o, l.a), SEMEL_E_BAD_ARGUMENTS);
    o.spare[0] = 0; /* it may commit again with the same claim */
    assert_int_equal(semel_commit(l.s, semel_text(l.claim), &o, l.a), SEMEL_OK);
    semel_call c = call_of("t", "{}");
    c.flags = SEMEL_CALL_DETACHED | UINT64_C(1) << 63;
    assert_int_equal(semel_begin(l.s, &c, l.a), SEMEL_E_BAD_ARGUMENTS);
    expect_refused(&l, SEMEL_C_BAD_ARGUMENTS);
    semel_query q = {.size = sizeof q, .filter = {.spare = {1}}};
    semel_fault fault = {0};
    assert_int_equal(semel_list(l.s, &q, any_item, NULL, &fault), SEMEL_E_BAD_ARGUMENTS);
    assert_int_equal(fault.code, SEMEL_E_BAD_ARGUMENTS);
    end_ledger(&l);
}

/* ---- stores ----------------------------------------------------------------------------------*/

static semel_err no_try_write(semel_store *st, semel_fault *fault)
{
    (void)st;
    (void)fault;
    fail_msg("what lies beyond the table's size was called");
    return SEMEL_OK;
}

static void a_store_of_an_older_header_goes_on_working(void **state)
{
    (void)state;
    semel_store_ops older = sm_store_memory;
    older.size = offsetof(semel_store_ops, try_write);
    older.try_write = no_try_write;
    semel_options o = {.size = sizeof o, .url = "memory:", .store = &older, .one_shot = true};
    ledger l = {.a = semel_answer_new()};
    assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
    assert_int_equal(begin(&l, "t", "{}"), SEMEL_OK);
    assert_int_equal(commit(&l, "1"), SEMEL_OK);
    assert_int_equal(begin(&l, "t", "{}"), SEMEL_OK);
    expect_replay(&l, "1");
    assert_int_equal(sm_try_write(l.s, NULL), SEMEL_OK);
    end_ledger(&l);
}

static void a_store_of_a_newer_header_is_refused(void **state)
{
    (void)state;
    semel_store_ops newer = sm_store_memory;
    semel_options o = {.size = sizeof o, .url = "memory:", .store = &newer, .one_shot = true};
    semel *s = NULL;
    semel_fault fault = {0};
    newer.version = SEMEL_STORE_VERSION + 1;
    assert_int_equal(semel_open(&o, &s, &fault), SEMEL_E_BAD_ARGUMENTS);
    assert_null(s);
    assert_int_equal(fault.code, SEMEL_E_BAD_ARGUMENTS);
    assert_non_null(strstr(fault.text, "use a newer library"));
}

static void a_store_must_say_its_version(void **state)
{
    (void)state;
    semel_store_ops without = sm_store_memory;
    semel_options o = {.size = sizeof o, .url = "memory:", .store = &without, .one_shot = true};
    semel *s = NULL;
    semel_fault fault = {0};
    without.version = 0;
    assert_int_equal(semel_open(&o, &s, &fault), SEMEL_E_BAD_ARGUMENTS);
    assert_null(s);
    assert_non_null(strstr(fault.text, "SEMEL_STORE_VERSION"));
}

/* ---- what others have compiled ---------------------------------------------------------------*/

/* A structure that lies within another one, or of which there are lists, has this size for ever, or
 * whoever was compiled against these headers breaks. The others only grow, and SM_FIRST_SIZE of
 * them stays. */
static void sizes_that_others_count_on_stay(void **state)
{
    (void)state;
    if (sizeof(void *) != 8)
        skip();
    static const struct {
        const char *name;
        size_t is, was;
    } rows[] = {
#define ROW(type, was) {#type, sizeof(type), was}
        ROW(semel_str, 16),      ROW(semel_hash, 32),   ROW(semel_fault, 536),
        ROW(semel_outcome, 120), ROW(semel_filter, 96), ROW(semel_health, 1448),
        ROW(semel_record, 384),  ROW(semel_event, 160), ROW(semel_counter, 40),
        ROW(semel_note, 88),
#undef ROW
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect(rows[i].is == rows[i].was, "%s has %zu bytes", rows[i].name, rows[i].is);
    static const struct {
        const char *name;
        size_t is, first;
    } grows[] = {
#define ROW(type, first) {#type, sizeof(type), first}
        ROW(semel_options, 120),   ROW(semel_call, 120),    ROW(semel_name, 56),
        ROW(semel_query, 120),     ROW(semel_imported, 32), ROW(semel_verified, 56),
        ROW(semel_stats, 1520),    ROW(semel_answer, 384),  ROW(semel_symptom, 88),
        ROW(semel_write, 592),     ROW(semel_ref, 32),      ROW(semel_store_env, 32),
        ROW(semel_store_ops, 160),
#undef ROW
    };
    for (size_t i = 0; i < COUNT(grows); i++)
        expect(grows[i].is >= grows[i].first, "%s has %zu bytes", grows[i].name, grows[i].is);
}

static void the_version_is_the_same_in_all_its_forms(void **state)
{
    (void)state;
    char made[32];
    snprintf(made, sizeof made, "%d.%d.%d", SEMEL_VERSION_MAJOR, SEMEL_VERSION_MINOR,
             SEMEL_VERSION_PATCH);
    assert_string_equal(SEMEL_VERSION_STRING, made);
    assert_string_equal(semel_version(), made);
}

static void a_text_is_made_of_a_c_string(void **state)
{
    (void)state;
    const char *s = "charge";
    assert_ptr_equal(semel_text(s).p, s);
    assert_int_equal(semel_text(s).n, 6);
    assert_non_null(semel_text("").p);
    assert_int_equal(semel_text("").n, 0);
    assert_null(semel_text(NULL).p);
    assert_int_equal(semel_text(NULL).n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_structure_of_an_older_caller_is_read_as_if_the_rest_were_zero),
        cmocka_unit_test(a_structure_of_an_older_caller_is_filled_in_as_far_as_it_goes),
        cmocka_unit_test(a_structure_of_a_newer_caller_is_refused_if_it_says_more_than_we_know),
        cmocka_unit_test(a_size_that_was_never_set_is_refused),
        cmocka_unit_test(every_structure_must_have_its_size),
        cmocka_unit_test(every_structure_may_be_larger_if_it_says_no_more),
        cmocka_unit_test(spare_words_and_unknown_flags_must_be_zero),
        cmocka_unit_test(a_store_of_an_older_header_goes_on_working),
        cmocka_unit_test(a_store_of_a_newer_header_is_refused),
        cmocka_unit_test(a_store_must_say_its_version),
        cmocka_unit_test(sizes_that_others_count_on_stay),
        cmocka_unit_test(the_version_is_the_same_in_all_its_forms),
        cmocka_unit_test(a_text_is_made_of_a_c_string),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
