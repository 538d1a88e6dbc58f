/* Errors, buffers, arenas, digests, durations and suggestions. */
#include "unit.h"

#include "base/digest.h"
#include "base/duration.h"
#include "base/limits.h"
#include "base/suggest.h"
#include "base/utf8.h"

static void every_error_has_a_name_and_a_sentence(void **state)
{
    (void)state;
    for (int e = 0; e < SEMEL_E_COUNT; e++) {
        assert_true(strlen(semel_err_name((sm_err)e)) > 1);
        assert_true(strlen(semel_err_text((sm_err)e)) > 1);
        for (int other = 0; other < e; other++)
            assert_string_not_equal(semel_err_name((sm_err)e), semel_err_name((sm_err)other));
    }
    assert_string_equal(semel_err_name(SEMEL_E_BAD_ARGUMENTS), "BAD_ARGUMENTS");
}

static void a_fault_returns_its_code_and_forgets_what_was_there_before(void **state)
{
    (void)state;
    sm_fault f = {.code = SEMEL_E_IO, .at = 7, .line = 8, .column = 9, .text = "old"};
    assert_int_equal(sm_fault_set(&f, SEMEL_E_RANGE, "%d is too much", 12), SEMEL_E_RANGE);
    assert_int_equal(f.code, SEMEL_E_RANGE);
    assert_int_equal(f.at, 0);
    assert_int_equal(f.line, 0);
    assert_int_equal(f.column, 0);
    assert_string_equal(f.text, "12 is too much");
    assert_int_equal(sm_fault_set(NULL, SEMEL_E_LIMIT, "nobody looks"), SEMEL_E_LIMIT);
}

static void a_long_fault_is_cut_between_characters(void **state)
{
    (void)state;
    static const char *const characters[] = {"x", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
    for (size_t i = 0; i < COUNT(characters); i++) {
        for (size_t shift = 0; shift < 4; shift++) {
            char text[1024] = "...";
            text[shift] = '\0';
            while (strlen(text) < 800)
                strcat(text, characters[i]);
            sm_fault f;
            sm_fault_set(&f, SEMEL_E_SYNTAX, "%s", text);
            size_t n = strlen(f.text);
            assert_true(n >= SEMEL_FAULT_TEXT_MAX - 5 && n < SEMEL_FAULT_TEXT_MAX);
            assert_true(sm_utf8_valid((sm_str){f.text, n}));
            assert_memory_equal(f.text, text, n);
        }
    }
}

static void a_buffer_grows_up_to_its_bound_and_no_further(void **state)
{
    (void)state;
    static const size_t limits[] = {1, 10, 255, 256, 257, 1000, 5000};
    for (size_t i = 0; i < COUNT(limits); i++) {
        sm_buf b;
        sm_buf_init(&b, limits[i]);
        for (size_t n = 0; n < limits[i]; n++) {
            sm_buf_byte(&b, (char)('a' + n % 26));
            assert_true(b.cap <= limits[i]);
        }
        assert_int_equal(b.err, SM_OK);
        assert_int_equal(b.len, limits[i]);
        sm_buf_byte(&b, '!');
        assert_int_equal(b.err, SEMEL_E_LIMIT);
        assert_int_equal(b.len, limits[i]);
        for (size_t n = 0; n < limits[i]; n++)
            assert_int_equal(b.p[n], 'a' + n % 26);
        sm_buf_fini(&b);
    }
}

static void a_failed_append_is_remembered_until_the_buffer_is_cleared(void **state)
{
    (void)state;
    sm_buf b;
    sm_buf_init(&b, 8);
    sm_buf_text(&b, "12345");
    sm_buf_text(&b, "6789");
    expect_text(sm_buf_view(&b), "12345");
    assert_int_equal(b.err, SEMEL_E_LIMIT);
    sm_buf_text(&b, "6");
    assert_int_equal(b.err, SEMEL_E_LIMIT);
    sm_buf_clear(&b);
    assert_int_equal(b.err, SM_OK);
    sm_buf_text(&b, "12345678");
    assert_int_equal(b.err, SM_OK);
    expect_text(sm_buf_view(&b), "12345678");
    sm_buf_fini(&b);
}

static void a_buffer_takes_formatted_text_and_nul_bytes(void **state)
{
    (void)state;
    sm_buf b;
    sm_buf_init(&b, 1000);
    sm_buf_printf(&b, "%s-%d", "a", 7);
    sm_buf_bytes(&b, "\0\0", 2);
    sm_buf_bytes(&b, NULL, 0);
    sm_buf_printf(&b, "%s", "");
    sm_buf_printf(&b, "%0600d", 0);
    assert_int_equal(b.err, SM_OK);
    assert_int_equal(b.len, 605);
    assert_memory_equal(b.p, "a-7\0\0000", 6);
    sm_buf_printf(&b, "%0600d", 0);
    assert_int_equal(b.err, SEMEL_E_LIMIT);
    assert_int_equal(b.len, 605);
    sm_buf_fini(&b);
}

static void zeroed_objects_can_be_finished(void **state)
{
    (void)state;
    sm_buf b = {0};
    sm_buf_fini(&b);
    sm_arena a = {0};
    sm_arena_fini(&a);
    sm_digest d = {0};
    sm_digest_fini(&d);
}

static void an_arena_hands_out_aligned_pieces_that_do_not_overlap(void **state)
{
    sm_arena *a = *state;
    unsigned char *pieces[200];
    for (size_t i = 0; i < COUNT(pieces); i++) {
        pieces[i] = sm_arena_alloc(a, i * 7 + 1);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % 16, 0);
        memset(pieces[i], (int)i, i * 7 + 1);
    }
    for (size_t i = 0; i < COUNT(pieces); i++) {
        for (size_t j = 0; j < i * 7 + 1; j++)
            assert_int_equal(pieces[i][j], i);
    }
}

static void an_arena_has_a_piece_of_no_bytes(void **state)
{
    sm_arena *a = *state;
    assert_non_null(sm_arena_alloc(a, 0));
    assert_non_null(sm_arena_zalloc(a, 0, 8));
}

static void an_arena_over_its_bound_says_so_and_stays_usable(void **state)
{
    (void)state;
    sm_arena a;
    sm_arena_init(&a, 10000);
    assert_null(sm_arena_alloc(&a, 10001));
    assert_null(sm_arena_alloc(&a, SIZE_MAX));
    assert_null(sm_arena_alloc(&a, SIZE_MAX - 8));
    assert_null(sm_arena_zalloc(&a, SIZE_MAX / 2, 3));
    assert_non_null(sm_arena_alloc(&a, 9000));
    assert_null(sm_arena_alloc(&a, 9000));
    assert_non_null(sm_arena_alloc(&a, 100));
    size_t pieces = 0;
    while (sm_arena_alloc(&a, 16) != NULL)
        pieces++;
    assert_true(pieces < 10000 / 16);
    assert_true(a.held <= 10000);
    assert_null(sm_arena_text(&a, SM_STR("no room")).p);
    assert_null(sm_arena_printf(&a, "no %s", "room").p);
    sm_arena_fini(&a);
}

static void a_reset_arena_keeps_no_large_memory(void **state)
{
    (void)state;
    sm_arena a;
    sm_arena_init(&a, SM_ARENA_MAX);
    assert_non_null(sm_arena_alloc(&a, 100));
    assert_non_null(sm_arena_alloc(&a, (size_t)16 << 20));
    sm_arena_reset(&a);
    assert_true(a.held > 0 && a.held <= SM_KEPT_BYTES);
    assert_non_null(sm_arena_alloc(&a, 100));
    sm_arena_fini(&a);
    sm_arena_init(&a, SM_ARENA_MAX);
    assert_non_null(sm_arena_alloc(&a, (size_t)16 << 20));
    sm_arena_reset(&a);
    assert_int_equal(a.held, 0);
    memset(sm_arena_alloc(&a, 100), 1, 100);
    sm_arena_fini(&a);
}

static void a_reset_arena_gives_the_same_room_again(void **state)
{
    (void)state;
    sm_arena a;
    sm_arena_init(&a, 1 << 20);
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 100; i++) {
            char *p = sm_arena_alloc(&a, 1000);
            assert_non_null(p);
            memset(p, round, 1000);
        }
        assert_true(a.held <= 1 << 20);
        sm_arena_reset(&a);
    }
    sm_arena_fini(&a);
    sm_arena_init(&a, 100);
    sm_arena_reset(&a); /* nothing was handed out yet */
    sm_arena_fini(&a);
}

static void an_arena_zeroes_and_pads(void **state)
{
    sm_arena *a = *state;
    memset(sm_arena_alloc(a, 512), 0xAA, 512);
    sm_arena_reset(a);
    const unsigned char *zeros = sm_arena_zalloc(a, 32, 16);
    for (size_t i = 0; i < 512; i++)
        assert_int_equal(zeros[i], 0);
    sm_arena_reset(a);
    static const char bytes[] = "ab\0cd";
    sm_str texts[] = {sm_arena_text(a, (sm_str){bytes, 5}), sm_arena_text(a, (sm_str){0}),
                      sm_arena_printf(a, "%s!", "text"), sm_arena_printf(a, "%s", "")};
    static const char *const expected[] = {bytes, "", "text!", ""};
    static const size_t lengths[] = {5, 0, 5, 0};
    for (size_t i = 0; i < COUNT(texts); i++) {
        assert_non_null(texts[i].p);
        assert_int_equal(texts[i].n, lengths[i]);
        assert_memory_equal(texts[i].p, expected[i], lengths[i]);
        for (size_t j = 0; j < SM_TEXT_PAD; j++)
            assert_int_equal(texts[i].p[texts[i].n + j], 0);
    }
}

/* SHA-256 test vectors of FIPS 180-4, in base64url. */
static void a_digest_is_sha_256_and_can_be_used_again(void **state)
{
    (void)state;
    char thousand[1000];
    memset(thousand, 'a', sizeof thousand);
    const struct {
        sm_str bytes;
        const char *text;
    } rows[] = {
        {SM_STR(""), "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"},
        {SM_STR("abc"), "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0"},
        {{thousand, sizeof thousand}, "Qe3s5C1j6Nm_UVqbppMuHCDLyfWl0TRkWttdsblzfqM"},
        {SM_STR("abc"), "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0"},
    };
    sm_digest d;
    assert_int_equal(sm_digest_init(&d), SM_OK);
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_hash h;
        assert_int_equal(sm_digest_bytes(&d, rows[i].bytes.p, rows[i].bytes.n, &h), SM_OK);
        char text[SM_HASH_TEXT + 1];
        sm_hash_text(&h, text);
        assert_string_equal(text, rows[i].text);
    }
    sm_digest_fini(&d);
}

static void a_hash_survives_its_text_form(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 2000; round++) {
        sm_hash h, again;
        for (size_t i = 0; i < SM_HASH_BYTES; i++)
            h.b[i] = (uint8_t)(round == 0 ? 0 : round == 1 ? 0xFF : next_random(&seed));
        char text[SM_HASH_TEXT + 1];
        sm_hash_text(&h, text);
        assert_int_equal(strlen(text), 43);
        assert_int_equal(strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                      "0123456789-_"),
                         43);
        assert_true(sm_hash_parse((sm_str){text, 43}, &again));
        assert_memory_equal(h.b, again.b, SM_HASH_BYTES);
    }
}

static void only_the_text_form_that_is_written_is_read(void **state)
{
    (void)state;
    static const char good[] = "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0";
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    sm_hash h;
    assert_true(sm_hash_parse((sm_str){good, 43}, &h));
    assert_false(sm_hash_parse((sm_str){good, 42}, &h));
    assert_false(sm_hash_parse((sm_str){0}, &h));
    assert_false(sm_hash_parse(SM_STR("ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0="), &h));
    /* Only sixteen last characters leave the two unused bits zero. */
    int accepted = 0;
    for (size_t i = 0; i < 64; i++) {
        char text[44];
        memcpy(text, good, sizeof text);
        text[42] = alphabet[i];
        accepted += sm_hash_parse((sm_str){text, 43}, &h);
        assert_int_equal(sm_hash_parse((sm_str){text, 43}, &h), i % 4 == 0);
    }
    assert_int_equal(accepted, 16);
    static const char foreign[] = {'+', '/', '=', ' ', '\n', '.', '~', '\0', '\x7F', '\xC3'};
    for (size_t i = 0; i < sizeof foreign; i++) {
        char text[44];
        memcpy(text, good, sizeof text);
        text[20] = foreign[i];
        assert_false(sm_hash_parse((sm_str){text, 43}, &h));
    }
}

static void durations_are_read_and_written(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
        const char *written;
    } rows[] = {
        {"0s", 0, "0s"},
        {"0ms", 0, "0s"},
        {"1ms", 1, "1ms"},
        {"200ms", 200, "200ms"},
        {"1500ms", 1500, "1500ms"},
        {"2000ms", 2000, "2s"},
        {"30s", 30000, "30s"},
        {"90s", 90000, "90s"},
        {"120s", 120000, "2m"},
        {"5m", 300000, "5m"},
        {"60m", 3600000, "1h"},
        {"24h", 86400000, "24h"},
        {"1d", 86400000, "24h"},
        {"36h", 129600000, "36h"},
        {"48h", 172800000, "2d"},
        {"7d", 604800000, "7d"},
        {"007d", 604800000, "7d"},
        {"36500d", SM_DURATION_MAX_MS, "36500d"},
        {"forever", SM_FOREVER, "forever"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t ms = -1, again = -1;
        expect(sm_duration_parse(sm_str_from(rows[i].text), &ms), "%s", rows[i].text);
        expect(ms == rows[i].ms, "%s gave %lld", rows[i].text, (long long)ms);
        char text[SM_DURATION_TEXT];
        sm_duration_text(ms, text);
        assert_string_equal(text, rows[i].written);
        assert_true(sm_duration_parse(sm_str_from(text), &again));
        assert_int_equal(ms, again);
    }
}

static void what_is_no_duration_is_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        "s",
        "5",
        "5 m",
        "5M",
        "5min",
        "-5m",
        "+5m",
        "1.5h",
        "1h3m",
        "36501d",
        "5w",
        " 5m",
        "5m ",
        "0x5m",
        "Forever",
        "ever",
        "forever ",
        "5\nm",
        "876001h",
        "99999999999999999999s",
        "1e3ms",
        "5mss",
        "m5",
        "3153600000001ms",
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t ms = 77;
        expect(!sm_duration_parse(sm_str_from(rows[i]), &ms), "<%s> was read", rows[i]);
        assert_int_equal(ms, 77);
    }
    int64_t ms;
    assert_false(sm_duration_parse(SM_STR("5m\0"), &ms));
}

static void edits_are_counted(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        size_t edits;
    } rows[] = {
        {"", "", 0},
        {"abc", "abc", 0},
        {"", "abc", 3},
        {"abc", "", 3},
        {"abc", "abx", 1},
        {"abc", "ab", 1},
        {"abc", "abcd", 1},
        {"abc", "acb", 1}, /* neighbours swapped */
        {"window", "widnow", 1},
        {"approval", "aproval", 1},
        {"kitten", "sitting", 3},
        {"Window", "window", 0}, /* case is no edit */
        {"on-hit", "on_hit", 0}, /* nor is the kind of dash */
        {"window", "upstream", 8},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_str a = sm_str_from(rows[i].a), b = sm_str_from(rows[i].b);
        expect(sm_edit_distance(a, b) == rows[i].edits, "%s %s: %zu", rows[i].a, rows[i].b,
               sm_edit_distance(a, b));
        assert_int_equal(sm_edit_distance(b, a), rows[i].edits);
    }
    char longest[66];
    memset(longest, 'x', sizeof longest);
    assert_int_equal(sm_edit_distance((sm_str){longest, 64}, (sm_str){longest, 64}), 0);
    assert_int_equal(sm_edit_distance((sm_str){longest, 65}, (sm_str){longest, 65}), 64);
    assert_int_equal(sm_edit_distance((sm_str){longest, 65}, SM_STR("x")), 64);
}

static void the_nearest_name_is_suggested_only_when_it_is_near(void **state)
{
    (void)state;
    static const char *const names[] = {"window", "lease", "class", "key", "on_hit", "on_repeat"};
    static const struct {
        const char *wrong, *suggestion;
    } rows[] = {
        {"widnow", "window"},
        {"windows", "window"},
        {"clas", "class"},
        {"keys", "key"},
        {"kye", "key"},
        {"onhit", "on_hit"},
        {"on_reapet", "on_repeat"},
        {"timeout", NULL},
        {"x", NULL},
        {"completely_else", NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_str wrong = sm_str_from(rows[i].wrong);
        sm_nearest nearest = {0};
        for (size_t j = 0; j < COUNT(names); j++)
            sm_nearest_try(&nearest, wrong, sm_str_from(names[j]));
        sm_str found = sm_nearest_get(&nearest, wrong);
        if (rows[i].suggestion == NULL)
            expect(found.p == NULL, "%s: %.*s", rows[i].wrong, SM_FMT(found));
        else
            expect_text(found, rows[i].suggestion);
    }
    sm_nearest none = {0};
    assert_null(sm_nearest_get(&none, SM_STR("x")).p);
}

static void strings_are_compared_by_length_and_bytes(void **state)
{
    (void)state;
    assert_true(sm_str_eq((sm_str){0}, SM_STR("")));
    assert_true(sm_str_eq(SM_STR("a\0b"), SM_STR("a\0b")));
    assert_false(sm_str_eq(SM_STR("a\0b"), SM_STR("a\0c")));
    assert_false(sm_str_eq(SM_STR("a"), SM_STR("ab")));
    assert_false(sm_str_is(SM_STR("a\0b"), "a"));
    assert_int_equal(sm_str_from(NULL).n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_error_has_a_name_and_a_sentence),
        cmocka_unit_test(a_fault_returns_its_code_and_forgets_what_was_there_before),
        cmocka_unit_test(a_long_fault_is_cut_between_characters),
        cmocka_unit_test(a_buffer_grows_up_to_its_bound_and_no_further),
        cmocka_unit_test(a_failed_append_is_remembered_until_the_buffer_is_cleared),
        cmocka_unit_test(a_buffer_takes_formatted_text_and_nul_bytes),
        cmocka_unit_test(zeroed_objects_can_be_finished),
        with_arena(an_arena_hands_out_aligned_pieces_that_do_not_overlap),
        with_arena(an_arena_has_a_piece_of_no_bytes),
        cmocka_unit_test(an_arena_over_its_bound_says_so_and_stays_usable),
        cmocka_unit_test(a_reset_arena_gives_the_same_room_again),
        cmocka_unit_test(a_reset_arena_keeps_no_large_memory),
        with_arena(an_arena_zeroes_and_pads),
        cmocka_unit_test(a_digest_is_sha_256_and_can_be_used_again),
        cmocka_unit_test(a_hash_survives_its_text_form),
        cmocka_unit_test(only_the_text_form_that_is_written_is_read),
        cmocka_unit_test(durations_are_read_and_written),
        cmocka_unit_test(what_is_no_duration_is_refused),
        cmocka_unit_test(edits_are_counted),
        cmocka_unit_test(the_nearest_name_is_suggested_only_when_it_is_near),
        cmocka_unit_test(strings_are_compared_by_length_and_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
