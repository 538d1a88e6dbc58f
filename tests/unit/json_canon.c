/* The canonical form of documents (I10). */
#include "unit.h"

#include "base/utf8.h"

/* RFC 8785, sections 3.2.2 and 3.2.4. */
static void the_sample_of_rfc_8785_is_written_as_it_says(void **state)
{
    sm_arena *a = *state;
    static const char sample[] =
        "{\n"
        "  \"numbers\": [333333333.33333329, 1E30, 4.50,\n"
        "              2e-3, 0.000000000000000000000000001],\n"
        "  \"string\": \"\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\\"\\/\",\n"
        "  \"literals\": [null, true, false]\n"
        "}";
    assert_string_equal(canonical_text(a, sample),
                        "{\"literals\":[null,true,false],"
                        "\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],"
                        "\"string\":\"\xE2\x82\xAC$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}");
}

/* RFC 8785, section 3.2.3. */
static void names_sort_as_rfc_8785_says(void **state)
{
    sm_arena *a = *state;
    static const char sample[] = "{\n"
                                 "  \"\\u20ac\": \"Euro Sign\",\n"
                                 "  \"\\r\": \"Carriage Return\",\n"
                                 "  \"\\ufb33\": \"Hebrew Letter Dalet With Dagesh\",\n"
                                 "  \"1\": \"One\",\n"
                                 "  \"\\ud83d\\ude00\": \"Emoji: Grinning Face\",\n"
                                 "  \"\\u0080\": \"Control\",\n"
                                 "  \"\\u00f6\": \"Latin Small Letter O With Diaeresis\"\n"
                                 "}";
    assert_string_equal(canonical_text(a, sample),
                        "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\xC2\x80\":\"Control\","
                        "\"\xC3\xB6\":\"Latin Small Letter O With Diaeresis\","
                        "\"\xE2\x82\xAC\":\"Euro Sign\","
                        "\"\xF0\x9F\x98\x80\":\"Emoji: Grinning Face\","
                        "\"\xEF\xAC\xB3\":\"Hebrew Letter Dalet With Dagesh\"}");
}

static void names_sort_by_utf_16_code_units(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *text, *form;
    } rows[] = {
        {"{\"b\":1,\"a\":2}", "{\"a\":2,\"b\":1}"},
        {"{\"\":1,\"a\":2}", "{\"\":1,\"a\":2}"},
        {"{\"ab\":1,\"a\":2,\"\":3}", "{\"\":3,\"a\":2,\"ab\":1}"},
        {"{\"a\\u0000\":1,\"a\":2}", "{\"a\":2,\"a\\u0000\":1}"},
        {"{\"a\":1,\"B\":2,\"_\":3,\"10\":4,\"9\":5}",
         "{\"10\":4,\"9\":5,\"B\":2,\"_\":3,\"a\":1}"},
        /* astral characters are surrogates in UTF-16, below U+E000 and above U+D7FF */
        {"{\"\\ue000\":1,\"\\ud800\\udc00\":2,\"\\ud7ff\":3,\"\\uffff\":4,\"\\udbff\\udfff\":5}",
         "{\"\xED\x9F\xBF\":3,\"\xF0\x90\x80\x80\":2,\"\xF4\x8F\xBF\xBF\":5,\"\xEE\x80\x80\":1,"
         "\"\xEF\xBF\xBF\":4}"},
        {"{\"x\xEE\x80\x80\":1,\"x\xF0\x90\x80\x80\":2}",
         "{\"x\xF0\x90\x80\x80\":2,\"x\xEE\x80\x80\":1}"},
        /* the difference lies behind the first eight bytes */
        {"{\"12345678\xEF\xAC\xB3\":1,\"12345678\xF0\x9F\x98\x80\":2,\"12345678\":3}",
         "{\"12345678\":3,\"12345678\xF0\x9F\x98\x80\":2,\"12345678\xEF\xAC\xB3\":1}"},
        /* and across their end */
        {"{\"123456\xEF\xAC\xB3\":1,\"123456\xEF\xAC\xB2\":2,\"123456\xF0\x9F\x98\x80\":3}",
         "{\"123456\xF0\x9F\x98\x80\":3,\"123456\xEF\xAC\xB2\":2,\"123456\xEF\xAC\xB3\":1}"},
        {"{\"1234567\xEF\xAC\xB3\":1,\"1234567\xF0\x9F\x98\x80\":2,\"1234567\":3}",
         "{\"1234567\":3,\"1234567\xF0\x9F\x98\x80\":2,\"1234567\xEF\xAC\xB3\":1}"},
        /* names that differ only in their spelling are sorted by what they say */
        {"{\"\\u007a\":1,\"\\u0061\":2}", "{\"a\":2,\"z\":1}"},
        {"{\"b\":{\"d\":1,\"c\":2},\"a\":[{\"f\":1,\"e\":2}]}",
         "{\"a\":[{\"e\":2,\"f\":1}],\"b\":{\"c\":2,\"d\":1}}"},
        {"{\"q\":1,\"p\":2,\"o\":3,\"n\":4,\"m\":5,\"l\":6,\"k\":7,\"j\":8,\"i\":9,\"h\":10,\"g\":"
         "11,\"f\":12,\"e\":13,\"d\":14,\"c\":15,\"b\":16,\"a\":17}",
         "{\"a\":17,\"b\":16,\"c\":15,\"d\":14,\"e\":13,\"f\":12,\"g\":11,\"h\":10,\"i\":9,\"j\":8,"
         "\"k\":7,\"l\":6,\"m\":5,\"n\":4,\"o\":3,\"p\":2,\"q\":1}"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_text(sm_str_from(canonical_text(a, rows[i].text)), rows[i].form);
}

static void only_what_must_be_escaped_is(void **state)
{
    sm_arena *a = *state;
    assert_string_equal(
        canonical_text(a, "\"\\u0000\\u0001\\u0002\\u0003\\u0004\\u0005\\u0006\\u0007"
                          "\\u0008\\u0009\\u000a\\u000b\\u000c\\u000d\\u000e\\u000f"
                          "\\u0010\\u0011\\u0012\\u0013\\u0014\\u0015\\u0016\\u0017"
                          "\\u0018\\u0019\\u001A\\u001B\\u001C\\u001D\\u001E\\u001F\""),
        "\"\\u0000\\u0001\\u0002\\u0003\\u0004\\u0005\\u0006\\u0007\\b\\t\\n\\u000b\\f\\r\\u000e"
        "\\u000f\\u0010\\u0011\\u0012\\u0013\\u0014\\u0015\\u0016\\u0017\\u0018\\u0019\\u001a"
        "\\u001b\\u001c\\u001d\\u001e\\u001f\"");
    static const struct {
        const char *text, *form;
    } rows[] = {
        {"\"\\u0022\\u005C\\u002F\"", "\"\\\"\\\\/\""},
        {"\"\\u007f\\u0080\\u2028\\u2029\\ufeff\\uffff\"",
         "\"\x7F\xC2\x80\xE2\x80\xA8\xE2\x80\xA9\xEF\xBB\xBF\xEF\xBF\xBF\""},
        {"\"<script>&'\"", "\"<script>&'\""},
        {"\"e\xCC\x81\"", "\"e\xCC\x81\""}, /* no normalisation */
        {"{\"a\\\"b\\n\":\"\\t\"}", "{\"a\\\"b\\n\":\"\\t\"}"},
        {"[\"\",\"a\",\"\\u0062\"]", "[\"\",\"a\",\"b\"]"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_text(sm_str_from(canonical_text(a, rows[i].text)), rows[i].form);
}

static void space_disappears_and_structure_stays(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *text, *form;
    } rows[] = {
        {" [ ] ", "[]"},
        {" { } ", "{}"},
        {"[ [ ] , { } , [ [ ] ] ]", "[[],{},[[]]]"},
        {"\t[\r\n1 ,\t2 ]\n", "[1,2]"},
        {"{ \"a\" : { } , \"b\" : [ ] }", "{\"a\":{},\"b\":[]}"},
        {"[null,true,false]", "[null,true,false]"},
        {"[3,1,2]", "[3,1,2]"},
        {"[{\"a\":[{\"b\":[{}]}]}]", "[{\"a\":[{\"b\":[{}]}]}]"},
        {"-0", "0"},
        {"[1,1.0,1e0,-0,1e21,1000000000000000000000]", "[1,1,1,0,1e+21,1e+21]"},
        {"[9007199254740993,18446744073709551615,18446744073709551614]",
         "[9007199254740993,18446744073709551615,18446744073709551614]"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_text(sm_str_from(canonical_text(a, rows[i].text)), rows[i].form);
}

static void the_form_of_a_form_is_itself(void **state)
{
    sm_arena *a = *state;
    static const char *const rows[] = {
        "null",
        "[]",
        "{}",
        "\"\"",
        "0",
        "-0",
        "1.50",
        "\"a string of more than sixteen bytes, \\u00e9 included\"",
        "{\"b\":1,\"a\":[{\"d\":1e21,\"c\":1e-7}]}",
        "[0.1,1e22,123456789012345678901234567890,5e-324,1.7976931348623157e308]",
        "{\"\\ud83d\\ude00\":\"\\u0000\",\"\\ufb33\":\"\\u001f\\u007f\"}",
        "[[[[[[[[[[[[[[[[{\"z\":{},\"y\":{\"x\":[]}}]]]]]]]]]]]]]]]]",
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *once = canonical_text(a, rows[i]);
        assert_string_equal(canonical_text(a, once), once);
    }
}

static void a_number_without_a_form_is_refused_where_it_stands(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *text;
        uint32_t line, column;
    } rows[] = {
        {"1e400", 1, 1},
        {"[1,\n -1e309]", 2, 2},
        {"{\"a\":1,\n\"\xC3\xA9\":[2,1e999]}", 2, 8},
        {"{\"b\":1,\"a\":{\"c\":1e309}}", 1, 17},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_str text = sm_str_from(rows[i].text);
        sm_buf out;
        sm_buf_init(&out, 1 << 20);
        sm_fault f = {0};
        assert_int_equal(sm_json_canon(document(a, rows[i].text), &out, text, &f), SEMEL_E_RANGE);
        assert_int_equal(f.code, SEMEL_E_RANGE);
        assert_non_null(strstr(f.text, "too large"));
        expect(f.line == rows[i].line && f.column == rows[i].column, "%s at %u:%u", rows[i].text,
               f.line, f.column);
        assert_ptr_equal(text.p + f.at, strstr(text.p, i == 1 ? "-1e" : "1e"));
        assert_int_equal(sm_json_canon(document(a, rows[i].text), &out, text, NULL), SEMEL_E_RANGE);
        sm_buf_fini(&out);
    }
}

static void writing_goes_on_behind_what_is_there(void **state)
{
    sm_arena *a = *state;
    sm_buf out;
    sm_buf_init(&out, 1000);
    sm_buf_text(&out, "before ");
    assert_int_equal(sm_json_canon(document(a, "{\"a\":1.0}"), &out, (sm_str){0}, NULL), SM_OK);
    sm_buf_text(&out, " after");
    expect_text(sm_buf_view(&out), "before {\"a\":1} after");
    sm_buf_fini(&out);
}

/* Whatever the bound is, it holds; from some size on, the whole form fits. */
static void a_bounded_buffer_bounds_the_form(void **state)
{
    sm_arena *a = *state;
    static const char *const texts[] = {
        "[]",
        "\"a string that is written as it is\"",
        "\"a string\\nwith an escape\"",
        "[1.50,1e22,12345678901234567890123]",
        "{\"b\":[true,false,null,{}],\"a\\n\":1e-7}",
        "[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]",
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        const sm_json *v = document(a, texts[i]);
        const char *form = canonical(a, v);
        bool fits = false;
        for (size_t limit = 0; limit <= strlen(form) + 64; limit++) {
            sm_buf out;
            sm_buf_init(&out, limit);
            sm_err e = sm_json_canon(v, &out, (sm_str){0}, NULL);
            assert_true(out.cap <= limit && out.len <= limit);
            if (e == SM_OK)
                expect_text(sm_buf_view(&out), form);
            else
                assert_int_equal(e, SEMEL_E_LIMIT);
            expect(!fits || e == SM_OK, "%s fits in %zu, not in %zu", texts[i], limit - 1, limit);
            fits = e == SM_OK;
            sm_buf_fini(&out);
        }
        assert_true(fits);
    }
}

static void the_deepest_document_has_a_form(void **state)
{
    sm_arena *a = *state;
    char text[SM_JSON_DEPTH_MAX * 8 + 8], *w = text;
    for (uint32_t i = 0; i < SM_JSON_DEPTH_MAX; i++)
        w += sprintf(w, "%s", i % 2 == 0 ? "[" : "{\"a\":");
    *w++ = '1';
    for (uint32_t i = SM_JSON_DEPTH_MAX; i-- > 0;)
        *w++ = i % 2 == 0 ? ']' : '}';
    *w = '\0';
    assert_string_equal(canonical_text(a, text), text);
}

static void a_string_literal_is_written_alone(void **state)
{
    (void)state;
    sm_buf out;
    sm_buf_init(&out, 100);
    sm_json_put_string(&out, SM_STR("a\"\\/\n\x01\0\x7F\xC3\xA9"));
    expect_text(sm_buf_view(&out), "\"a\\\"\\\\/\\n\\u0001\\u0000\x7F\xC3\xA9\"");
    sm_buf_fini(&out);
}

static void a_text_that_was_cut_inside_of_a_character_is_written_as_a_valid_literal(void **state)
{
    (void)state;
    sm_buf out;
    sm_buf_init(&out, 100);
    sm_json_put_string(&out, SM_STR("\xE2\x82\xAC\"\xE2\x82"));
    expect_text(sm_buf_view(&out), "\"\xE2\x82\xAC\\\"\xEF\xBF\xBD\xEF\xBF\xBD\"");
    sm_buf_clear(&out);
    sm_json_put_string(&out, SM_STR("\xC3(\n"));
    expect_text(sm_buf_view(&out), "\"\xEF\xBF\xBD(\\n\"");
    sm_buf_fini(&out);
}

/*
 * One random document written twice. What it says comes from one seed; how it is written (space,
 * escapes, spellings of numbers, the order of members) comes from another.
 */
typedef struct twins {
    uint64_t content, style;
} twins;

static void put_space(sm_buf *b, twins *t)
{
    for (uint32_t n = random_below(&t->style, 3); n-- > 0;)
        sm_buf_byte(b, " \t\r\n"[random_below(&t->style, 4)]);
}

static uint32_t random_character(uint64_t *seed)
{
    switch (random_below(seed, 6)) {
    case 0: return random_below(seed, 0x20);
    case 1: return 0x80 + random_below(seed, 0x800 - 0x80);
    case 2: return 0x800 + random_below(seed, 0xD800 - 0x800);
    case 3: return 0xE000 + random_below(seed, 0x2000);
    case 4: return 0x10000 + random_below(seed, 0x100000);
    default: return 0x20 + random_below(seed, 0x60);
    }
}

static void put_unit(sm_buf *b, twins *t, uint32_t unit)
{
    sm_buf_printf(b, random_below(&t->style, 2) ? "\\u%04x" : "\\u%04X", unit);
}

static void put_character(sm_buf *b, twins *t, uint32_t cp)
{
    static const char brief[] = "\"\\/\b\f\n\r\t", letters[] = "\"\\/bfnrt";
    const char *found = cp != 0 && cp < 0x80 ? strchr(brief, (int)cp) : NULL;
    if (found != NULL && random_below(&t->style, 2) == 0) {
        sm_buf_byte(b, '\\');
        sm_buf_byte(b, letters[found - brief]);
    } else if (cp < 0x20 || cp == '"' || cp == '\\' || random_below(&t->style, 4) == 0) {
        if (cp >= 0x10000) {
            put_unit(b, t, 0xD800 + ((cp - 0x10000) >> 10));
            put_unit(b, t, 0xDC00 + ((cp - 0x10000) & 0x3FF));
        } else {
            put_unit(b, t, cp);
        }
    } else {
        char text[4];
        sm_buf_bytes(b, text, sm_utf8_put(text, cp));
    }
}

static void put_text(sm_buf *b, twins *t, const char *lead)
{
    sm_buf_byte(b, '"');
    sm_buf_text(b, lead);
    for (uint32_t n = random_below(&t->content, 12); n-- > 0;)
        put_character(b, t, random_character(&t->content));
    sm_buf_byte(b, '"');
}

/* digits x 10^exponent, as an integer part, a fraction or an exponent. */
static void put_digits(sm_buf *b, twins *t)
{
    uint64_t digits = next_random(&t->content) >> random_below(&t->content, 64);
    int exponent = (int)random_below(&t->content, 40) - 20;
    if (random_below(&t->content, 2) == 0)
        sm_buf_byte(b, '-');
    for (uint32_t shift = random_below(&t->style, 4); shift-- > 0 && digits < UINT64_MAX / 10;) {
        digits *= 10;
        exponent--;
    }
    if (random_below(&t->style, 2) == 0 && digits % 10 == 0 && digits != 0) {
        digits /= 10;
        exponent++;
    }
    sm_buf_printf(b, "%llu%s%c%d", (unsigned long long)digits,
                  random_below(&t->style, 2) ? ".0" : "", random_below(&t->style, 2) ? 'e' : 'E',
                  exponent);
}

static void put_value(sm_buf *b, twins *t, int depth)
{
    put_space(b, t);
    uint32_t kind = random_below(&t->content, depth > 5 ? 6 : 9);
    if (kind < 3) {
        sm_buf_text(b, kind == 0 ? "null" : kind == 1 ? "true" : "false");
    } else if (kind < 4) {
        put_text(b, t, "");
    } else if (kind < 6) {
        put_digits(b, t);
    } else if (kind == 6) {
        uint32_t n = random_below(&t->content, 5);
        sm_buf_byte(b, '[');
        for (uint32_t i = 0; i < n; i++) {
            if (i > 0)
                sm_buf_byte(b, ',');
            put_value(b, t, depth + 1);
        }
        sm_buf_byte(b, ']');
    } else {
        /* Members are written one by one, then strung together in an order of the style. */
        sm_buf members[20];
        uint32_t n = random_below(&t->content, depth < 2 ? COUNT(members) : 4);
        for (uint32_t i = 0; i < n; i++) {
            sm_buf_init(&members[i], 1 << 20);
            char lead[32]; /* makes the name unique */
            snprintf(lead, sizeof lead, kind == 7 ? "%u." : "a common beginning %u.", i * 37 % 20);
            put_space(&members[i], t);
            put_text(&members[i], t, lead);
            put_space(&members[i], t);
            sm_buf_byte(&members[i], ':');
            put_value(&members[i], t, depth + 1);
        }
        for (uint32_t i = n; i > 1; i--) {
            uint32_t j = random_below(&t->style, i);
            sm_buf swap = members[i - 1];
            members[i - 1] = members[j];
            members[j] = swap;
        }
        sm_buf_byte(b, '{');
        for (uint32_t i = 0; i < n; i++) {
            if (i > 0)
                sm_buf_byte(b, ',');
            sm_buf_str(b, sm_buf_view(&members[i]));
            sm_buf_fini(&members[i]);
        }
        sm_buf_byte(b, '}');
    }
    put_space(b, t);
}

static const char *twin(sm_arena *a, uint64_t content, uint64_t style)
{
    sm_buf b;
    sm_buf_init(&b, 1 << 20);
    twins t = {content, style};
    put_value(&b, &t, 0);
    assert_int_equal(b.err, SM_OK);
    sm_str text = sm_arena_text(a, sm_buf_view(&b));
    sm_buf_fini(&b);
    return text.p;
}

static void documents_that_say_the_same_have_one_form(void **state)
{
    sm_arena *a = *state;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        const char *one = twin(a, seed, 1), *other = twin(a, seed, 1000000 + seed);
        const char *form = canonical_text(a, one);
        expect(strcmp(form, canonical_text(a, other)) == 0, "seed %llu:\n%s\n%s",
               (unsigned long long)seed, one, other);
        expect(strcmp(form, canonical_text(a, form)) == 0, "seed %llu: %s",
               (unsigned long long)seed, one);
        sm_arena_reset(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_arena(the_sample_of_rfc_8785_is_written_as_it_says),
        with_arena(names_sort_as_rfc_8785_says),
        with_arena(names_sort_by_utf_16_code_units),
        with_arena(only_what_must_be_escaped_is),
        with_arena(space_disappears_and_structure_stays),
        with_arena(the_form_of_a_form_is_itself),
        with_arena(a_number_without_a_form_is_refused_where_it_stands),
        with_arena(writing_goes_on_behind_what_is_there),
        with_arena(a_bounded_buffer_bounds_the_form),
        with_arena(the_deepest_document_has_a_form),
        cmocka_unit_test(a_string_literal_is_written_alone),
        cmocka_unit_test(a_text_that_was_cut_inside_of_a_character_is_written_as_a_valid_literal),
        with_arena(documents_that_say_the_same_have_one_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
