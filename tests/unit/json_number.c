/* Numbers in canonical form. */
#include "unit.h"

#include <locale.h>
#include <math.h>

#include "base/decimal.h"
#include "json/number.h"

static sm_str canonical_number(const char *literal, char out[SM_NUMBER_MAX])
{
    return (sm_str){out, sm_number_canonical(sm_str_from(literal), out)};
}

static double from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* RFC 8785, Appendix B. */
static void doubles_are_written_as_rfc_8785_says(void **state)
{
    (void)state;
    static const struct {
        uint64_t bits;
        const char *text;
    } rows[] = {
        {0x0000000000000000, "0"},
        {0x8000000000000000, "0"},
        {0x0000000000000001, "5e-324"},
        {0x8000000000000001, "-5e-324"},
        {0x7fefffffffffffff, "1.7976931348623157e+308"},
        {0xffefffffffffffff, "-1.7976931348623157e+308"},
        {0x4340000000000000, "9007199254740992"},
        {0xc340000000000000, "-9007199254740992"},
        {0x4430000000000000, "295147905179352830000"},
        {0x44b52d02c7e14af5, "9.999999999999997e+22"},
        {0x44b52d02c7e14af6, "1e+23"},
        {0x44b52d02c7e14af7, "1.0000000000000001e+23"},
        {0x444b1ae4d6e2ef4e, "999999999999999700000"},
        {0x444b1ae4d6e2ef4f, "999999999999999900000"},
        {0x444b1ae4d6e2ef50, "1e+21"},
        {0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
        {0x3eb0c6f7a0b5ed8d, "0.000001"},
        {0x41b3de4355555553, "333333333.3333332"},
        {0x41b3de4355555554, "333333333.33333325"},
        {0x41b3de4355555555, "333333333.3333333"},
        {0x41b3de4355555556, "333333333.3333334"},
        {0x41b3de4355555557, "333333333.33333343"},
        {0xbecbf647612f3696, "-0.0000033333333333333333"},
        {0x43143ff3c1cb0959, "1424953923781206.2"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[SM_NUMBER_MAX];
        expect_text(((sm_str){text, sm_number_es6(from_bits(rows[i].bits), text)}), rows[i].text);
    }
}

static void spellings_of_one_value_have_one_form(void **state)
{
    (void)state;
    static const struct {
        const char *form;
        const char *spellings[8];
    } rows[] = {
        {"0", {"0", "-0", "0.0", "-0.0", "0e5", "-0E-5", "0.000e999999999999", NULL}},
        {"1", {"1", "1.0", "1e0", "1E+00", "0.1e1", "10e-1", "1.000000000000000000000", NULL}},
        {"-1", {"-1", "-1.0", "-1e0", "-100e-2", NULL}},
        {"10", {"10", "1e1", "1.0e+1", "100.0e-1", NULL}},
        {"0.1",
         {"0.1", "0.10", "1e-1", "0.01e1", "0.100000000000000005551115123126",
          "0.1000000000000000055511151231257827021181583404541015625", NULL}},
        {"4.5", {"4.5", "4.50", "45e-1", NULL}},
        {"0.002", {"0.002", "2e-3", "0.0020", NULL}},
        {"0.000001", {"0.000001", "1e-6", "0.0000010", NULL}},
        {"1e-7", {"0.0000001", "1e-7", "1E-07", NULL}},
        {"1.5e-7", {"0.00000015", "15e-8", NULL}},
        {"1e+21", {"1e21", "1000000000000000000000", "1000000000000000000000.0", "10e20", NULL}},
        {"100000000000000000000", {"1e20", "100000000000000000000", NULL}},
        {"123456789012345680000", {"123456789012345680000", "12345678901234568e4", NULL}},
        {"1e+30", {"1E30", "1000000000000000000000000000000", NULL}},
        {"1e-27", {"0.000000000000000000000000001", "1e-27", NULL}},
        {"333333333.3333333", {"333333333.33333329", "333333333.3333333", NULL}},
        {"9007199254740993",
         {"9007199254740993", "9007199254740993.0", "9007199254740993e0", "90071992547409930e-1",
          NULL}},
        {"5e-324", {"5e-324", "4.9406564584124654e-324", "3e-324", "7e-324", NULL}},
        {"1.7976931348623157e+308", {"1.7976931348623157e308", "1.79769313486231570e+308", NULL}},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (const char *const *s = rows[i].spellings; *s != NULL; s++) {
            char text[SM_NUMBER_MAX];
            expect_text(canonical_number(*s, text), rows[i].form);
        }
    }
}

static void integers_stay_exact(void **state)
{
    (void)state;
    static const struct {
        const char *literal, *form;
    } rows[] = {
        {"9007199254740991", "9007199254740991"},
        {"9007199254740992", "9007199254740992"},
        {"9007199254740993", "9007199254740993"},
        {"-9007199254740993", "-9007199254740993"},
        {"9223372036854775807", "9223372036854775807"},
        {"9223372036854775808", "9223372036854775808"},
        {"18446744073709551615", "18446744073709551615"},
        {"18446744073709551616", "18446744073709551616"},
        {"1.8446744073709551615e19", "18446744073709551615"},
        {"295147905179352825856", "295147905179352825856"}, /* 2^68, whose short form is not it */
        {"295147905179352830000", "295147905179352830000"},
        {"999999999999999999999", "999999999999999999999"},
        {"1000000000000000000001", "1000000000000000000001"},
        {"-1000000000000000000001", "-1000000000000000000001"},
        {"1.000000000000000000001e21", "1000000000000000000001"},
        {"1000000000000000000001.000", "1000000000000000000001"},
        {"1000000000000000000000.5", "1e+21"}, /* a fraction: its nearest double */
        {"9007199254740992.5", "9007199254740992"},
        {"9007199254740993.5", "9007199254740994"},
        {"1.2345678901234567e300", "1.2345678901234567e+300"},
        {"123456789012345678901234567890123456789", "123456789012345678901234567890123456789"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[SM_NUMBER_MAX];
        expect_text(canonical_number(rows[i].literal, text), rows[i].form);
    }
}

/* Two 64-bit account numbers, however close, never share a form. */
static void neighbouring_integers_have_different_forms(void **state)
{
    (void)state;
    uint64_t seed = 4;
    for (int round = 0; round < 20000; round++) {
        uint64_t n = next_random(&seed) | (uint64_t)1 << 63;
        char p[32], q[32], x[SM_NUMBER_MAX], y[SM_NUMBER_MAX];
        snprintf(p, sizeof p, "%llu", (unsigned long long)n);
        snprintf(q, sizeof q, "%llu", (unsigned long long)(n - 1));
        expect_text(canonical_number(p, x), p);
        expect_text(canonical_number(q, y), q);
    }
}

static void the_largest_integers_are_written_in_full(void **state)
{
    (void)state;
    /* One below the largest double's ECMAScript form: 309 digits, nearest to that double. */
    char literal[400], text[SM_NUMBER_MAX];
    strcpy(literal, "17976931348623156");
    memset(literal + 17, '9', 292);
    literal[309] = '\0';
    expect_text(canonical_number(literal, text), literal);
    char negative[401] = "-";
    strcat(negative, literal);
    expect_text(canonical_number(negative, text), negative);
    /* The last integer that is nearer to the largest double than to what would come next. */
    static const char last[] =
        "17976931348623158079372897140530341507993413271003782693617377898044496829276475"
        "09466490179775872070963302864166928879109465555478519404026306574886715058206819"
        "08902000708383676273854845817711531764475730270069855571366959622842914819860834"
        "936475292719074168444365510704342711559699508093042880177904174497791";
    expect_text(canonical_number(last, text), last);
    char brief[64] = "17976931348623156999e289";
    sm_str full = canonical_number(brief, text);
    assert_int_equal(full.n, 309);
    assert_memory_equal(full.p, "17976931348623156999000", 23);
}

static void what_has_no_finite_double_has_no_form(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "1e309",
        "-1e309",
        "1e400",
        "-1e400",
        "1e99999999999999999999999999",
        "1.8e308",
        "1.7976931348623159e308",
        "17976931348623158079372897140530341507993413271003782693617377898044496829276475"
        "09466490179775872070963302864166928879109465555478519404026306574886715058206819"
        "08902000708383676273854845817711531764475730270069855571366959622842914819860834"
        "936475292719074168444365510704342711559699508093042880177904174497792",
        "10000000000000000000000000000000e300",
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[SM_NUMBER_MAX];
        expect(canonical_number(rows[i], text).n == 0, "%s", rows[i]);
    }
    char digits[501], text[SM_NUMBER_MAX];
    memset(digits, '9', 500);
    digits[500] = '\0';
    assert_int_equal(canonical_number(digits, text).n, 0);
}

static void what_is_too_small_for_a_double_is_zero(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "1e-400",  "-1e-400", "2e-324", "-2.4703282292062327e-324", "1e-99999999999999999999999999",
        "0.1e-400"};
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[SM_NUMBER_MAX];
        expect_text(canonical_number(rows[i], text), "0");
    }
}

/* Powers of two have a nearer neighbour below than above; subnormals have few digits; and the
 * borders of every layout. */
static void hard_doubles_are_written_with_the_fewest_digits(void **state)
{
    (void)state;
    static const struct {
        const char *literal, *form;
    } rows[] = {
        {"5.684341886080802e-14", "5.684341886080802e-14"}, /* 2^-44 */
        {"5.6843418860808015e-14", "5.684341886080802e-14"},
        {"5.684341886080801486968994140625e-14", "5.684341886080802e-14"},
        {"9007199254740992.0000001", "9007199254740992"},
        {"1.1102230246251565e-16", "1.1102230246251565e-16"}, /* 2^-53 */
        {"2.220446049250313e-16", "2.220446049250313e-16"},   /* 2^-52 */
        {"9.5367431640625e-7", "9.5367431640625e-7"},         /* 2^-20 */
        {"9.8813129168249309e-324", "1e-323"},
        {"1.4821969375237396e-323", "1.5e-323"},
        {"2.2250738585072009e-308", "2.225073858507201e-308"}, /* the largest subnormal */
        {"2.2250738585072011e-308", "2.225073858507201e-308"},
        {"2.2250738585072012e-308", "2.2250738585072014e-308"}, /* nearest to the smallest normal */
        {"2.2250738585072014e-308", "2.2250738585072014e-308"},
        {"4.4501477170144028e-308", "4.450147717014403e-308"},
        {"1.5e-310", "1.5e-310"},
        {"0.3", "0.3"},
        {"0.30000000000000004", "0.30000000000000004"},
        {"0.29999999999999998", "0.3"},
        {"2.5e-7", "2.5e-7"},
        {"123456.7890123456789", "123456.78901234567"},
        {"0.000001234567890123456789", "0.0000012345678901234567"},
        {"0.0000001234567890123456789", "1.2345678901234568e-7"},
        {"99999999999999999999.5", "100000000000000000000"},
        {"999999999999999999999.5", "1e+21"},
        {"1.0000000000000002", "1.0000000000000002"},
        {"1.00000000000000011102230246251565404236316680908203125", "1"}, /* a tie, to even */
        {"1.00000000000000011102230246251565404236316680908203126", "1.0000000000000002"},
        {"1.00000000000000033306690738754696212708950042724609375", "1.0000000000000004"},
        {"8.41e21", "8.41e+21"},
        {"9.3e-300", "9.3e-300"},
        {"5e-320", "5e-320"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[SM_NUMBER_MAX];
        expect_text(canonical_number(rows[i].literal, text), rows[i].form);
    }
}

/* A tie that is broken only by a digit very far behind. */
static void no_digit_is_too_far_behind_to_count(void **state)
{
    (void)state;
    static const size_t zeros[] = {0, 1, 700, 745, 746, 747, 748, 799, 800, 5000};
    for (size_t i = 0; i < COUNT(zeros); i++) {
        sm_buf b;
        sm_buf_init(&b, 10000);
        sm_buf_text(&b, "1.00000000000000011102230246251565404236316680908203125");
        for (size_t n = 0; n < zeros[i]; n++)
            sm_buf_byte(&b, '0');
        char text[SM_NUMBER_MAX];
        expect_text(((sm_str){text, sm_number_canonical(sm_buf_view(&b), text)}), "1");
        sm_buf_byte(&b, '1');
        expect_text(((sm_str){text, sm_number_canonical(sm_buf_view(&b), text)}),
                    "1.0000000000000002");
        sm_buf_fini(&b);
    }
}

static void long_literals_are_read_whole(void **state)
{
    (void)state;
    char *literal = malloc(100100), text[SM_NUMBER_MAX];
    memset(literal, '0', 100100);
    literal[1] = '.';
    strcpy(literal + 100000, "15e99999"); /* 15 x 10^-99999 x 10^99999 / 10 */
    expect_text(canonical_number(literal, text), "1.5");
    literal[0] = '1';
    literal[1] = '0';
    strcpy(literal + 100000, "e-99999");
    expect_text(canonical_number(literal, text), "1");
    free(literal);
}

/* A random literal of any layout. */
static void random_literal(uint64_t *seed, char *out)
{
    char *w = out;
    if (random_below(seed, 3) == 0)
        *w++ = '-';
    uint32_t whole = random_below(seed, 24), fraction = random_below(seed, 24);
    if (whole == 0 || random_below(seed, 4) == 0) {
        *w++ = '0';
    } else {
        *w++ = (char)('1' + random_below(seed, 9));
        for (uint32_t i = 1; i < whole; i++)
            *w++ = (char)('0' + random_below(seed, 10));
    }
    if (random_below(seed, 2) == 0 && fraction > 0) {
        *w++ = '.';
        uint32_t zeros = random_below(seed, 2) * random_below(seed, 9);
        for (uint32_t i = 0; i < zeros; i++)
            *w++ = '0';
        for (uint32_t i = 0; i < fraction; i++)
            *w++ = (char)('0' + random_below(seed, 10));
    }
    *w = '\0';
    if (random_below(seed, 3) == 0)
        sprintf(w, "%c%s%u", random_below(seed, 2) ? 'e' : 'E',
                (const char *[]){"", "+", "-"}[random_below(seed, 3)],
                random_below(seed, random_below(seed, 2) ? 30 : 340));
}

static void a_form_keeps_the_value_and_is_its_own_form(void **state)
{
    sm_arena *a = *state;
    uint64_t seed = 5;
    for (int round = 0; round < 200000; round++) {
        char literal[400], once[SM_NUMBER_MAX], twice[SM_NUMBER_MAX];
        random_literal(&seed, literal);
        sm_str form = canonical_number(literal, once);
        double value = strtod(literal, NULL);
        expect((form.n == 0) == !isfinite(value), "%s", literal);
        if (form.n == 0)
            continue;
        once[form.n] = '\0';
        expect(strtod(once, NULL) == value, "%s became %s", literal, once);
        expect_text(canonical_number(once, twice), once);
        sm_decimal exact, written;
        assert_true(sm_decimal_parse(sm_str_from(literal), &exact));
        assert_true(sm_decimal_parse(form, &written));
        if (sm_decimal_integer(&exact))
            expect(sm_decimal_compare(&exact, &written) == 0, "%s became %s", literal, once);
        else
            expect(form.n <= 25, "%s became %s", literal, once);
        /* What the reader takes for canonical without looking closely must be. */
        const sm_json *v = document(a, literal);
        if (v->flags & SM_JSON_VERBATIM)
            expect_text(sm_json_text(v), once);
        sm_arena_reset(a);
    }
}

/* The shortest digits, checked by trying all lengths and both neighbours. */
static void no_shorter_digits_read_back(void **state)
{
    (void)state;
    uint64_t seed = 6;
    for (int round = 0; round < 20000; round++) {
        uint64_t bits = next_random(&seed) >> 1;
        if (round % 4 == 0)
            bits &= (uint64_t)0x7FF << 52; /* a power of two */
        if (round % 4 == 1)
            bits >>= random_below(&seed, 52) + 11; /* subnormal */
        double value = from_bits(bits);
        if (!isfinite(value) || value == 0)
            continue;
        char text[SM_NUMBER_MAX];
        size_t n = sm_number_es6(value, text);
        sm_decimal d;
        assert_true(sm_decimal_parse((sm_str){text, n}, &d));
        text[n] = '\0';
        expect(strtod(text, NULL) == value, "%a became %s", value, text);
        for (int precision = 1; precision < (int)d.count; precision++) {
            char shorter[64];
            snprintf(shorter, sizeof shorter, "%.*e", precision - 1, value);
            expect(strtod(shorter, NULL) != value, "%s for %s", shorter, text);
        }
    }
}

static void the_locale_changes_nothing(void **state)
{
    sm_arena *a = *state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8",  "de_DE",       "fr_FR.UTF-8",
                                        "es_ES.UTF-8", "it_IT.UTF-8", "pt_BR.UTF-8", "ru_RU.UTF-8"};
    bool found = false;
    for (size_t i = 0; i < COUNT(names) && !found; i++)
        found = setlocale(LC_ALL, names[i]) != NULL && *localeconv()->decimal_point != '.';
    if (!found) {
        setlocale(LC_ALL, "C");
        print_message("no locale with a decimal comma is installed\n");
        skip();
    }
    assert_string_equal(
        canonical_text(a, "[333333333.33333329,1E30,4.50,2e-3,0.30000000000000004,1.5e-310,"
                          "123456.7890123456789,9007199254740993,5.6843418860808015e-14]"),
        "[333333333.3333333,1e+30,4.5,0.002,0.30000000000000004,1.5e-310,123456.78901234567,"
        "9007199254740993,5.684341886080802e-14]");
    setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubles_are_written_as_rfc_8785_says),
        cmocka_unit_test(spellings_of_one_value_have_one_form),
        cmocka_unit_test(integers_stay_exact),
        cmocka_unit_test(neighbouring_integers_have_different_forms),
        cmocka_unit_test(the_largest_integers_are_written_in_full),
        cmocka_unit_test(what_has_no_finite_double_has_no_form),
        cmocka_unit_test(what_is_too_small_for_a_double_is_zero),
        cmocka_unit_test(hard_doubles_are_written_with_the_fewest_digits),
        cmocka_unit_test(no_digit_is_too_far_behind_to_count),
        cmocka_unit_test(long_literals_are_read_whole),
        with_arena(a_form_keeps_the_value_and_is_its_own_form),
        cmocka_unit_test(no_shorter_digits_read_back),
        with_arena(the_locale_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
