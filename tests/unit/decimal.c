/* Exact decimals. */
#include "unit.h"

#include "base/decimal.h"

static sm_decimal decimal(const char *text)
{
    sm_decimal d;
    expect(sm_decimal_parse(sm_str_from(text), &d), "<%s> was refused", text);
    return d;
}

static void a_number_is_taken_apart(void **state)
{
    (void)state;
    static const struct {
        const char *text, *digits;
        int64_t exp;
        bool negative, integer;
    } rows[] = {
        {"0", "", 0, false, true},
        {"-0", "", 0, false, true},
        {"0.000", "", 0, false, true},
        {"-0e99", "", 0, false, true},
        {"0e99999999999999999999", "", 0, false, true},
        {"1", "1", 1, false, true},
        {"-1", "1", 1, true, true},
        {"10", "1", 2, false, true},
        {"1.0", "1", 1, false, true},
        {"1.50", "15", 1, false, false},
        {"100.00", "1", 3, false, true},
        {"0.5", "5", 0, false, false},
        {"0.05", "5", -1, false, false},
        {"0.050", "5", -1, false, false},
        {"10.01", "1001", 2, false, false},
        {"1e3", "1", 4, false, true},
        {"1E+3", "1", 4, false, true},
        {"1e-3", "1", -2, false, false},
        {"1000e-3", "1", 1, false, true},
        {"1234e-2", "1234", 2, false, false},
        {"12.34e2", "1234", 4, false, true},
        {"12.34e1", "1234", 3, false, false},
        {"0.0012e4", "12", 2, false, true},
        {"9007199254740993", "9007199254740993", 16, false, true},
        {"-123456789012345678901234567890", "12345678901234567890123456789", 30, true, true},
        {"1e0000000000000000000000000005", "1", 6, false, true},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_decimal d = decimal(rows[i].text);
        char digits[64] = {0};
        size_t n = sm_decimal_digits(&d, digits, sizeof digits);
        expect(n == d.count && strcmp(digits, rows[i].digits) == 0, "%s: %s", rows[i].text, digits);
        expect(d.exp == rows[i].exp, "%s: exponent %lld", rows[i].text, (long long)d.exp);
        expect(d.negative == rows[i].negative, "%s", rows[i].text);
        expect(sm_decimal_integer(&d) == rows[i].integer, "%s", rows[i].text);
    }
}

static void only_so_many_digits_are_copied_as_asked_for(void **state)
{
    (void)state;
    sm_decimal d = decimal("12.345");
    char digits[8] = "xxxxxxx";
    assert_int_equal(sm_decimal_digits(&d, digits, 3), 3);
    assert_string_equal(digits, "123xxxx");
    assert_int_equal(sm_decimal_digits(&d, digits, 0), 0);
}

static void what_is_no_json_number_is_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",     "-",     "+1",  ".5",       "-.5", "1.",   "1.e3",     "01",
        "-01",  "00",    "1e",  "1e+",      "1e-", "1ee1", "1e1.5",    "1.2.3",
        "0x10", "1_000", "1,5", " 1",       "1 ",  "NaN",  "Infinity", "--1",
        "1-",   "e5",    "1a",  "\xD9\xA1", "inf", "0.",   "1e5 ",     "-e1",
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_decimal d;
        expect(!sm_decimal_parse(sm_str_from(rows[i]), &d), "<%s> was read", rows[i]);
    }
    sm_decimal d;
    assert_false(sm_decimal_parse((sm_str){0}, &d));
    assert_false(sm_decimal_parse(SM_STR("1\0"), &d));
}

/* The text need not end where the number does: nothing behind it is looked at. */
static void reading_stops_at_the_given_length(void **state)
{
    (void)state;
    static const char *const texts[] = {"-12.5e-10", "-12.5e-1", "-12.5", "-12", "-1"};
    for (size_t i = 0; i < COUNT(texts); i++) {
        size_t n = strlen(texts[i]);
        char *exact = malloc(n); /* the sanitizer watches its end */
        memcpy(exact, texts[i], n);
        sm_decimal d, same = decimal(texts[i]);
        assert_true(sm_decimal_parse((sm_str){exact, n}, &d));
        assert_int_equal(sm_decimal_compare(&d, &same), 0);
        free(exact);
    }
}

/* Each row is smaller than the next; spellings within a row are equal. */
static void decimals_are_ordered_exactly(void **state)
{
    (void)state;
    static const char *const rows[][4] = {
        {"-1e999999999", NULL},
        {"-1e400", NULL},
        {"-9007199254740993", NULL},
        {"-9007199254740992", NULL},
        {"-10.5", "-1.05e1", "-105e-1", NULL},
        {"-10", "-1e1", NULL},
        {"-1e-400", NULL},
        {"0", "-0", "0.0", NULL},
        {"1e-999999999", NULL},
        {"1e-400", NULL},
        {"0.1", "1e-1", "0.100", NULL},
        {"0.1000000000000000000000000000000000001", NULL},
        {"1", "1.0", "100e-2", NULL},
        {"1.5", "15e-1", NULL},
        {"9.99", NULL},
        {"10", "1e1", "10.0", NULL},
        {"99", NULL},
        {"100", NULL},
        {"9007199254740992", NULL},
        {"9007199254740993", "9007199254740993.0", NULL},
        {"9007199254740993.5", NULL},
        {"18446744073709551615", NULL},
        {"18446744073709551616", NULL},
        {"1e400", NULL},
        {"1.0000000001e400", NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (size_t j = 0; j < COUNT(rows); j++) {
            for (const char *const *x = rows[i]; *x != NULL; x++) {
                for (const char *const *y = rows[j]; *y != NULL; y++) {
                    sm_decimal a = decimal(*x), b = decimal(*y);
                    int c = sm_decimal_compare(&a, &b);
                    expect((c > 0) - (c < 0) == (i > j) - (i < j), "%s against %s gave %d", *x, *y,
                           c);
                }
            }
        }
    }
}

static void integers_compare_as_integers_do(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int round = 0; round < 100000; round++) {
        int64_t a = (int64_t)next_random(&seed) >> random_below(&seed, 64);
        int64_t b = random_below(&seed, 2) == 0
                        ? (int64_t)next_random(&seed) >> random_below(&seed, 64)
                        : a + (int64_t)(a < INT64_MAX);
        char x[32], y[32];
        snprintf(x, sizeof x, "%lld", (long long)a);
        snprintf(y, sizeof y, "%lld%s", (long long)b, random_below(&seed, 2) == 0 ? "" : ".0");
        sm_decimal p = decimal(x), q = decimal(y);
        int c = sm_decimal_compare(&p, &q);
        expect((c > 0) - (c < 0) == (a > b) - (a < b), "%s against %s gave %d", x, y, c);
    }
}

static void a_decimal_becomes_a_whole_number_of_parts_and_text_again(void **state)
{
    (void)state;
    const struct {
        const char *text;
        int64_t scaled;
        const char *shown;
    } rows[] = {
        {"0", 0, "0"},
        {"0.00", 0, "0"},
        {"1", 1000000000, "1"},
        {"0.05", 50000000, "0.05"},
        {"5e-2", 50000000, "0.05"},
        {"12.50", 12500000000, "12.5"},
        {"100", 100000000000, "100"},
        {"0.000000001", 1, "0.000000001"},
        {"1.000000001", 1000000001, "1.000000001"},
        {"9223372036.854775807", INT64_MAX, "9223372036.854775807"},
        {"-9223372036.854775808", INT64_MIN, "-9223372036.854775808"},
        {"-0.5", -500000000, "-0.5"},
    };
    char text[SM_DECIMAL_TEXT];
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_decimal d = decimal(rows[i].text);
        int64_t got = 7;
        expect(sm_decimal_scaled(&d, 9, &got) && got == rows[i].scaled, "%s gave %lld",
               rows[i].text, (long long)got);
        sm_str shown = {text, sm_decimal_put(got, 9, text)};
        expect_text(shown, rows[i].shown);
    }
    static const char *const beyond[] = {
        "0.0000000001",          "1.0000000005", "9223372036.854775808",     "1e10", "1e300",
        "-9223372036.854775809", "1e-300",       "1234567890123456789012345"};
    for (size_t i = 0; i < COUNT(beyond); i++) {
        sm_decimal d = decimal(beyond[i]);
        int64_t got;
        expect(!sm_decimal_scaled(&d, 9, &got), "%s", beyond[i]);
    }
    sm_str whole = {text, sm_decimal_put(120, 0, text)};
    expect_text(whole, "120");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_is_taken_apart),
        cmocka_unit_test(only_so_many_digits_are_copied_as_asked_for),
        cmocka_unit_test(what_is_no_json_number_is_refused),
        cmocka_unit_test(reading_stops_at_the_given_length),
        cmocka_unit_test(decimals_are_ordered_exactly),
        cmocka_unit_test(integers_compare_as_integers_do),
        cmocka_unit_test(a_decimal_becomes_a_whole_number_of_parts_and_text_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
