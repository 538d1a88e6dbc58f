/* UTF-8 validation and encoding, the UTF-16 order, and positions in text. */
#include "unit.h"

#include "base/utf8.h"

static void malformed_sequences_have_no_step(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        sm_str bytes;
    } rows[] = {
        {"nothing", BYTES("")},
        {"a lone continuation byte", BYTES("\x80")},
        {"the last continuation byte", BYTES("\xBF\x80")},
        {"an overlong slash in two bytes", BYTES("\xC0\xAF")},
        {"an overlong NUL in two bytes", BYTES("\xC0\x80")},
        {"the last overlong form in two bytes", BYTES("\xC1\xBF")},
        {"an overlong slash in three bytes", BYTES("\xE0\x80\xAF")},
        {"the last overlong form in three bytes", BYTES("\xE0\x9F\xBF")},
        {"an overlong slash in four bytes", BYTES("\xF0\x80\x80\xAF")},
        {"the last overlong form in four bytes", BYTES("\xF0\x8F\xBF\xBF")},
        {"the first surrogate", BYTES("\xED\xA0\x80")},
        {"the last high surrogate", BYTES("\xED\xAF\xBF")},
        {"the first low surrogate", BYTES("\xED\xB0\x80")},
        {"the last surrogate", BYTES("\xED\xBF\xBF")},
        {"a pair of encoded surrogates", BYTES("\xED\xA0\xBD\xED\xB8\x80")},
        {"the first above U+10FFFF", BYTES("\xF4\x90\x80\x80")},
        {"a lead that can only be too large", BYTES("\xF5\x80\x80\x80")},
        {"a five-byte form", BYTES("\xF8\x88\x80\x80\x80")},
        {"a six-byte form", BYTES("\xFC\x84\x80\x80\x80\x80")},
        {"FE", BYTES("\xFE")},
        {"FF", BYTES("\xFF")},
        {"two bytes, cut", BYTES("\xC3")},
        {"three bytes, cut after one", BYTES("\xE2")},
        {"three bytes, cut after two", BYTES("\xE2\x82")},
        {"four bytes, cut after one", BYTES("\xF0")},
        {"four bytes, cut after two", BYTES("\xF0\x9F")},
        {"four bytes, cut after three", BYTES("\xF0\x9F\x98")},
        {"two bytes, the second ASCII", BYTES("\xC3(")},
        {"three bytes, the third ASCII", BYTES("\xE2\x82(")},
        {"three bytes, the third a lead", BYTES("\xE2\x82\xC3")},
        {"four bytes, the fourth ASCII", BYTES("\xF0\x9F\x98(")},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const sm_str s = rows[i].bytes;
        expect(sm_utf8_step((const unsigned char *)s.p, s.n) == 0, "%s", rows[i].what);
        if (s.n == 0)
            continue;
        /* The same bytes behind and before good text. */
        char text[32] = "good";
        memcpy(text + 4, s.p, s.n);
        memcpy(text + 4 + s.n, "good", 4);
        expect(!sm_utf8_valid((sm_str){text, s.n + 8}), "%s", rows[i].what);
        expect(!sm_utf8_valid((sm_str){text, s.n + 4}), "%s", rows[i].what);
    }
    assert_true(sm_utf8_valid((sm_str){0}));
}

/* The first bytes of any sequence are never read past the byte that breaks it. */
static void a_step_never_reads_past_its_bytes(void **state)
{
    (void)state;
    static const char whole[] = "\xF0\x9F\x98\x80";
    for (size_t n = 1; n <= 4; n++) {
        char *exact = malloc(n); /* the sanitizer watches its end */
        memcpy(exact, whole, n);
        assert_int_equal(sm_utf8_step((const unsigned char *)exact, n), n == 4 ? 4 : 0);
        free(exact);
    }
}

static void every_code_point_is_written_as_it_is_read(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        if (cp >= 0xD800 && cp <= 0xDFFF)
            continue;
        char text[4] = {0};
        size_t n = sm_utf8_put(text, cp);
        size_t right = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
        if (n != right || sm_utf8_step((const unsigned char *)text, n) != n ||
            sm_utf8_count((sm_str){text, n}) != 1)
            fail_msg("U+%04X", cp);
        uint32_t back = (unsigned char)text[0];
        if (n > 1)
            back &= 0x7Fu >> n;
        for (size_t i = 1; i < n; i++)
            back = back << 6 | ((unsigned char)text[i] & 0x3F);
        if (back != cp)
            fail_msg("U+%04X came back as U+%04X", cp, back);
    }
}

static void characters_are_counted(void **state)
{
    (void)state;
    assert_int_equal(sm_utf8_count((sm_str){0}), 0);
    assert_int_equal(sm_utf8_count(SM_STR("abc")), 3);
    assert_int_equal(sm_utf8_count(SM_STR("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80!")), 4);
}

/* The rule itself: turn both texts into UTF-16 and compare unit by unit. */
static size_t to_utf16(const uint32_t *cps, size_t n, uint16_t *units)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        if (cps[i] < 0x10000) {
            units[m++] = (uint16_t)cps[i];
        } else {
            units[m++] = (uint16_t)(0xD800 + ((cps[i] - 0x10000) >> 10));
            units[m++] = (uint16_t)(0xDC00 + ((cps[i] - 0x10000) & 0x3FF));
        }
    }
    return m;
}

static int compare_units(const uint16_t *a, size_t n, const uint16_t *b, size_t m)
{
    for (size_t i = 0; i < n && i < m; i++) {
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    }
    return (n > m) - (n < m);
}

static int sign(int v)
{
    return (v > 0) - (v < 0);
}

static void the_order_is_that_of_utf_16_code_units(void **state)
{
    (void)state;
    static const uint32_t edges[] = {
        0,       1,       0x1F,    ' ',     '1',     'A',      'a',      0x7F,
        0x80,    0xF6,    0x7FF,   0x800,   0x20AC,  0xCFFF,   0xD000,   0xD7FF,
        0xE000,  0xEFFF,  0xF000,  0xFB33,  0xFFFD,  0xFFFF,   0x10000,  0x103FF,
        0x10400, 0x1F600, 0x3FFFF, 0x40000, 0xFFFFF, 0x100000, 0x10FFFF,
    };
    uint64_t seed = 2;
    for (int round = 0; round < 200000; round++) {
        uint32_t cps[2][4];
        size_t n[2], bytes[2], units[2];
        char text[2][16];
        uint16_t wide[2][8];
        uint32_t common = random_below(&seed, 3);
        for (size_t side = 0; side < 2; side++) {
            n[side] = common + random_below(&seed, 2);
            bytes[side] = 0;
            for (size_t i = 0; i < n[side]; i++) {
                cps[side][i] =
                    side == 1 && i < common ? cps[0][i] : edges[random_below(&seed, COUNT(edges))];
                bytes[side] += sm_utf8_put(text[side] + bytes[side], cps[side][i]);
            }
            units[side] = to_utf16(cps[side], n[side], wide[side]);
        }
        int right = compare_units(wide[0], units[0], wide[1], units[1]);
        int got = sm_utf16_compare((sm_str){text[0], bytes[0]}, (sm_str){text[1], bytes[1]});
        expect(sign(got) == right, "round %d", round);
    }
}

static void astral_characters_sort_before_the_end_of_the_basic_plane(void **state)
{
    (void)state;
    assert_true(sm_utf16_compare(SM_STR("\xF0\x9F\x98\x80"), SM_STR("\xEF\xAC\xB3")) < 0);
    assert_true(sm_utf16_compare(SM_STR("\xEE\x80\x80"), SM_STR("\xF0\x90\x80\x80")) > 0);
    assert_true(sm_utf16_compare(SM_STR("\xED\x9F\xBF"), SM_STR("\xF0\x90\x80\x80")) < 0);
    assert_true(sm_utf16_compare(SM_STR("a"), SM_STR("a\0")) < 0);
    assert_int_equal(sm_utf16_compare((sm_str){0}, SM_STR("")), 0);
}

static void positions_count_lines_and_characters_from_one(void **state)
{
    (void)state;
    static const char text[] = "ab\n\xC3\xA9\xE2\x82\xAC x\n\ny\xF0\x9F\x98\x80z";
    static const struct {
        size_t at;
        uint32_t line, column;
    } rows[] = {
        {0, 1, 1},  {1, 1, 2},  {2, 1, 3},  {3, 2, 1},  {5, 2, 2},  {8, 2, 3},  {9, 2, 4},
        {10, 2, 5}, {11, 3, 1}, {12, 4, 1}, {13, 4, 2}, {17, 4, 3}, {18, 4, 4}, {999, 4, 4},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint32_t line, column;
        sm_text_position(SM_STR(text), rows[i].at, &line, &column);
        expect(line == rows[i].line && column == rows[i].column, "byte %zu is at %u:%u", rows[i].at,
               line, column);
    }
    uint32_t line = 0, column = 0;
    sm_text_position((sm_str){0}, 5, &line, &column);
    assert_int_equal(line, 1);
    assert_int_equal(column, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed_sequences_have_no_step),
        cmocka_unit_test(a_step_never_reads_past_its_bytes),
        cmocka_unit_test(every_code_point_is_written_as_it_is_read),
        cmocka_unit_test(characters_are_counted),
        cmocka_unit_test(the_order_is_that_of_utf_16_code_units),
        cmocka_unit_test(astral_characters_sort_before_the_end_of_the_basic_plane),
        cmocka_unit_test(positions_count_lines_and_characters_from_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
