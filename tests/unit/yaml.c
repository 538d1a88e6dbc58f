/* YAML read into the tree of JSON. */
#include "unit.h"

#include "json/yaml.h"

static const sm_json *yaml(sm_arena *a, const char *text)
{
    const sm_json *root = NULL;
    sm_fault f = {0};
    sm_err e = sm_yaml_read(a, sm_str_from(text), &sm_json_default_limits, &root, &f);
    expect(e == SM_OK, "<%s> was refused: %u:%u %s", text, f.line, f.column, f.text);
    return root;
}

static void documents_become_the_tree_of_json(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *text, *form;
    } rows[] = {
        {"a: 1\nb: two\n", "{\"a\":1,\"b\":\"two\"}"},
        {"b: 1\na: 2\n", "{\"a\":2,\"b\":1}"},
        {"- 1\n- [2, 3]\n- {a: b}\n", "[1,[2,3],{\"a\":\"b\"}]"},
        {"a:\n  b:\n    - c: 1\n      d: 2\n    - e\n",
         "{\"a\":{\"b\":[{\"c\":1,\"d\":2},\"e\"]}}"},
        {"a:\nb:\n", "{\"a\":null,\"b\":null}"},
        {"-\n-\n", "[null,null]"},
        {"{}", "{}"},
        {"[]", "[]"},
        {"just text", "\"just text\""},
        {"# a note\na: 1 # another\n", "{\"a\":1}"},
        {"---\na: 1\n...\n", "{\"a\":1}"},
        {"--- 5\n", "5"},
        {"a: |\n  two\n  lines\n", "{\"a\":\"two\\nlines\\n\"}"},
        {"a: >-\n  one\n  line\n", "{\"a\":\"one line\"}"},
        {"'it''s': \"tab\\t\\u00e9\\U0001F600\"", "{\"it's\":\"tab\\t\xC3\xA9\xF0\x9F\x98\x80\"}"},
        {"1: one\ntrue: two\nnull: three\n", "{\"1\":\"one\",\"null\":\"three\",\"true\":\"two\"}"},
        {"? a\n: 1\n", "{\"a\":1}"},
        {"\"<<\": 1\n", "{\"<<\":1}"},
        {"a: '<<'\nb: <<\n", "{\"a\":\"<<\",\"b\":\"<<\"}"},
        {"a: \"\\0\"\n", "{\"a\":\"\\u0000\"}"},
        {"\xEF\xBB\xBF"
         "a: 1\n",
         "{\"a\":1}"},
        {"\xEF\xBB\xBF"
         "a: 1\nb: 2\n",
         "{\"a\":1,\"b\":2}"},
        {"a: 1\r\nb: 2\r\n", "{\"a\":1,\"b\":2}"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_text(sm_str_from(canonical(a, yaml(a, rows[i].text))), rows[i].form);
}

static void a_json_document_means_the_same(void **state)
{
    sm_arena *a = *state;
    static const char *const rows[] = {
        "{\"b\":[1,2.50,-0,1e21,true,false,null,\"text\"],\"a\":{\"c\":{}}}",
        "{\n  \"name\": \"value\",\n  \"list\": [\n    1,\n    [],\n    {}\n  ]\n}\n",
        "[\"\\u20ac\\n\\\"\\\\\\/\", \"\xC3\xA9\", \"yes\", \"012\", \"\"]",
        "\"text\"",
        "[1E5, 1e-5, 0.000001, 9007199254740993]",
        "{\"\": \"\", \" \": \" \"}",
        "{\"a\":1}",
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_text(sm_str_from(canonical(a, yaml(a, rows[i]))), canonical_text(a, rows[i]));
}

static void plain_scalars_are_what_json_would_take_them_for(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *text;
        sm_json_type type;
        bool ambiguous;
    } rows[] = {
        {"null", SM_JSON_NULL, false},
        {"~", SM_JSON_NULL, false},
        {"Null", SM_JSON_NULL, false},
        {"NULL", SM_JSON_NULL, false},
        {"nULL", SM_JSON_STRING, false},
        {"true", SM_JSON_TRUE, false},
        {"True", SM_JSON_TRUE, false},
        {"TRUE", SM_JSON_TRUE, false},
        {"tRUE", SM_JSON_STRING, false},
        {"false", SM_JSON_FALSE, false},
        {"False", SM_JSON_FALSE, false},
        {"FALSE", SM_JSON_FALSE, false},
        {"0", SM_JSON_NUMBER, false},
        {"-0", SM_JSON_NUMBER, false},
        {"12", SM_JSON_NUMBER, false},
        {"-1.5", SM_JSON_NUMBER, false},
        {"1e5", SM_JSON_NUMBER, false},
        {"1E+05", SM_JSON_NUMBER, false},
        {"9007199254740993", SM_JSON_NUMBER, false},
        {"abc", SM_JSON_STRING, false},
        {"usd", SM_JSON_STRING, false},
        {"24h", SM_JSON_STRING, false},
        {"1.2.3", SM_JSON_STRING, false},
        {"2024-01-31", SM_JSON_STRING, false},
        {"1-2", SM_JSON_STRING, false},
        {"e5", SM_JSON_STRING, false},
        {"1abc", SM_JSON_STRING, false},
        {"0xyz", SM_JSON_STRING, false},
        {"...x", SM_JSON_STRING, false},
        {"_", SM_JSON_STRING, false},
        {"+", SM_JSON_STRING, false},
        {"/a/b", SM_JSON_STRING, false},
        {"yesterday", SM_JSON_STRING, false},
        /* strings that others read as something else */
        {"yes", SM_JSON_STRING, true},
        {"Yes", SM_JSON_STRING, true},
        {"YES", SM_JSON_STRING, true},
        {"no", SM_JSON_STRING, true},
        {"No", SM_JSON_STRING, true},
        {"NO", SM_JSON_STRING, true},
        {"on", SM_JSON_STRING, true},
        {"On", SM_JSON_STRING, true},
        {"ON", SM_JSON_STRING, true},
        {"off", SM_JSON_STRING, true},
        {"Off", SM_JSON_STRING, true},
        {"OFF", SM_JSON_STRING, true},
        {"y", SM_JSON_STRING, true},
        {"Y", SM_JSON_STRING, true},
        {"n", SM_JSON_STRING, true},
        {"N", SM_JSON_STRING, true},
        {"012", SM_JSON_STRING, true},
        {"00", SM_JSON_STRING, true},
        {"-012", SM_JSON_STRING, true},
        {"+1", SM_JSON_STRING, true},
        {"+1.5", SM_JSON_STRING, true},
        {".5", SM_JSON_STRING, true},
        {"-.5", SM_JSON_STRING, true},
        {"5.", SM_JSON_STRING, true},
        {"1.e5", SM_JSON_STRING, true},
        {"1_000", SM_JSON_STRING, true},
        {"1_000.5", SM_JSON_STRING, true},
        {"0x1F", SM_JSON_STRING, true},
        {"0xff_ff", SM_JSON_STRING, true},
        {"-0x1f", SM_JSON_STRING, true},
        {"0o17", SM_JSON_STRING, true},
        {"0b101", SM_JSON_STRING, true},
        {"0bad", SM_JSON_STRING, false},
        {"0o89", SM_JSON_STRING, false},
        {"12:30:45", SM_JSON_STRING, true}, /* YAML 1.1 counts in sixties */
        {"1:30", SM_JSON_STRING, true},
        {"-1:30.5", SM_JSON_STRING, true},
        {"1:99", SM_JSON_STRING, false},
        {"127.0.0.1:80", SM_JSON_STRING, false},
        {"1::2", SM_JSON_STRING, false},
        {".inf", SM_JSON_STRING, true},
        {"-.Inf", SM_JSON_STRING, true},
        {".nan", SM_JSON_STRING, true},
        {".NaN", SM_JSON_STRING, true},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[64];
        snprintf(text, sizeof text, "[%s, '%s', \"%s\", x]", rows[i].text, rows[i].text,
                 rows[i].text);
        const sm_json *v = yaml(a, text) + 1;
        expect(v->type == rows[i].type, "%s is %s", rows[i].text, sm_json_type_name(v));
        expect(!!(v->flags & SM_JSON_AMBIGUOUS) == rows[i].ambiguous, "%s: ambiguous: %d",
               rows[i].text, !rows[i].ambiguous);
        /* In quotes, nothing is anything else. */
        for (const sm_json *quoted = v + 1; quoted < v + 3; quoted++) {
            assert_int_equal(quoted->type, SM_JSON_STRING);
            assert_int_equal(quoted->flags & SM_JSON_AMBIGUOUS, 0);
            expect_text(sm_json_text(quoted), rows[i].text);
        }
    }
}

static void a_key_is_text_and_never_ambiguous(void **state)
{
    sm_arena *a = *state;
    const sm_json *v = yaml(a, "yes: 1\n012: 2\n");
    expect_text(sm_json_text(v + 1), "yes");
    assert_int_equal(v[1].flags & SM_JSON_AMBIGUOUS, 0);
    assert_int_equal(v[3].flags & SM_JSON_AMBIGUOUS, 0);
    assert_non_null(sm_json_find(v, SM_STR("012")));
}

typedef struct refusal {
    const char *text;
    sm_err code;
    uint32_t line, column;
    const char *word;
} refusal;

static void what_is_not_supported_is_refused_where_it_stands(void **state)
{
    sm_arena *a = *state;
    static const refusal rows[] = {
        /* nothing */
        {"", SEMEL_E_SYNTAX, 1, 1, "empty"},
        {"# only a note\n", SEMEL_E_SYNTAX, 1, 1, "empty"},
        /* a key twice */
        {"a: 1\na: 2\n", SEMEL_E_DUPLICATE, 2, 1, "twice"},
        {"a: 1\nb: 2\n\"a\": 3\n", SEMEL_E_DUPLICATE, 3, 1, "twice"},
        {"x:\n  a: 1\n  'a': 2\n", SEMEL_E_DUPLICATE, 3, 3, "twice"},
        {"{a: 1, b: 2, \"\\x61\": 3}", SEMEL_E_DUPLICATE, 1, 14, "twice"},
        {"1: a\n'1': b\n", SEMEL_E_DUPLICATE, 2, 1, "twice"},
        {"\xC3\xA9: 1\n\"\\u00e9\": 2\n", SEMEL_E_DUPLICATE, 2, 1, "twice"},
        {"a: 1\nb: {x: 1, y: 2}\nc: 3\nb: 4\n", SEMEL_E_DUPLICATE, 4, 1, "twice"},
        /* anchors, aliases, tags, merge keys */
        {"a: &x 1\nb: *x\n", SEMEL_E_SYNTAX, 1, 4, "anchors"},
        {"a: &x [1]\n", SEMEL_E_SYNTAX, 1, 4, "anchors"},
        {"a: &x {b: 1}\n", SEMEL_E_SYNTAX, 1, 4, "anchors"},
        {"&k a: 1\n", SEMEL_E_SYNTAX, 1, 1, "anchors"},
        {"a: 1\nb: *x\n", SEMEL_E_SYNTAX, 2, 4, "aliases"},
        {"- *x\n", SEMEL_E_SYNTAX, 1, 3, "aliases"},
        {"a: !!str 1\n", SEMEL_E_SYNTAX, 1, 4, "tags"},
        {"a: !mine {b: 1}\n", SEMEL_E_SYNTAX, 1, 4, "tags"},
        {"a: ! x\n", SEMEL_E_SYNTAX, 1, 4, "tags"},
        {"- !!binary aGk=\n", SEMEL_E_SYNTAX, 1, 3, "tags"},
        {"base: {a: 1}\nx:\n  <<: {b: 2}\n", SEMEL_E_SYNTAX, 3, 3, "merge keys"},
        {"<<: {}\n", SEMEL_E_SYNTAX, 1, 1, "merge keys"},
        /* one document */
        {"a: 1\n---\nb: 2\n", SEMEL_E_SYNTAX, 2, 1, "more than one document"},
        {"a: 1\n...\n---\nb: 2\n", SEMEL_E_SYNTAX, 3, 1, "more than one document"},
        {"---\n---\n", SEMEL_E_SYNTAX, 2, 1, "more than one document"},
        /* keys that are no text */
        {"? [a]\n: 1\n", SEMEL_E_SYNTAX, 1, 3, "a key must be"},
        {"{[a]: 1}", SEMEL_E_SYNTAX, 1, 2, "a key must be"},
        {"{{a: 1}: 1}", SEMEL_E_SYNTAX, 1, 2, "a key must be"},
        /* what is not YAML */
        {"a: [1, 2\n", SEMEL_E_SYNTAX, 2, 1, "not valid YAML"},
        {"a: b: c\n", SEMEL_E_SYNTAX, 1, 5, "not valid YAML"},
        {"\ta: 1\n", SEMEL_E_SYNTAX, 1, 1, "not valid YAML"},
        {"a: \"x\nb: 1\n", SEMEL_E_SYNTAX, 3, 1, "not valid YAML"},
        {"a: 1\n b: 2\n", SEMEL_E_SYNTAX, 2, 3, "not valid YAML"},
        {"a: '\xFF'\n", SEMEL_E_SYNTAX, 1, 5, "not valid YAML text"},
        {"a: '\xED\xA0\x80'\n", SEMEL_E_SYNTAX, 1, 5, "not valid YAML text"},
        {"a: \x01\n", SEMEL_E_SYNTAX, 1, 4, "not valid YAML text"},
        {"a: \"\\ud800\"\n", SEMEL_E_SYNTAX, 1, 7, "not valid YAML"},
        /* positions count characters, whatever stands before them */
        {"\xC3\xA9\xF0\x9F\x98\x80: *x\n", SEMEL_E_SYNTAX, 1, 5, "aliases"},
        {"# \xE2\x82\xAC\n\xC3\xA9: 1\nb: \"\xF0\x9F\x98\x80\"\n\xC3\xA9: 2\n", SEMEL_E_DUPLICATE,
         4, 1, "twice"},
        {"\xC3\xA9: {\xE2\x82\xAC: 1, \xE2\x82\xAC: 2}\n", SEMEL_E_DUPLICATE, 1, 11, "twice"},
        {"\xEF\xBB\xBF"
         "a: 1\na: 2\n",
         SEMEL_E_DUPLICATE, 2, 1, "twice"},
        {"\xEF\xBB\xBF"
         "a: *x\n",
         SEMEL_E_SYNTAX, 1, 4, "aliases"},
        {"\xEF\xBB\xBF"
         "a: 'b\xFF'\n",
         SEMEL_E_SYNTAX, 1, 6, "not valid YAML text"},
        {"\xEF\xBB\xBF", SEMEL_E_SYNTAX, 1, 1, "empty"},
        {"a: 1\r\nb: 2\r\na: 3\r\n", SEMEL_E_DUPLICATE, 3, 1, "twice"},
        {"\xC3\xA9: 1\n\xE2\x82\xAC: '\xFF'\n", SEMEL_E_SYNTAX, 2, 5, "not valid YAML text"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const refusal *r = &rows[i];
        const sm_json *root = (const sm_json *)r;
        sm_fault f = {0};
        sm_err e = sm_yaml_read(a, sm_str_from(r->text), &sm_json_default_limits, &root, &f);
        expect(e == r->code, "<%s> gave %s: %s", r->text, semel_err_name(e), f.text);
        assert_null(root);
        expect(strstr(f.text, r->word) != NULL, "<%s>: \"%s\"", r->text, f.text);
        expect(f.line == r->line && f.column == r->column, "<%s> at %u:%u, not %u:%u (%s)", r->text,
               f.line, f.column, r->line, r->column, f.text);
        assert_int_equal(
            sm_yaml_read(a, sm_str_from(r->text), &sm_json_default_limits, &root, NULL), r->code);
    }
    const sm_json *root;
    assert_int_equal(sm_yaml_read(a, (sm_str){0}, &sm_json_default_limits, &root, NULL),
                     SEMEL_E_SYNTAX);
    assert_int_equal(sm_yaml_read(a, SM_STR("a: \0b"), &sm_json_default_limits, &root, NULL),
                     SEMEL_E_SYNTAX);
}

static void nodes_know_where_they_stood(void **state)
{
    sm_arena *a = *state;
    static const char text[] = "# \xE2\x82\xAC\n\xC3\xA9: [\"\xF0\x9F\x98\x80\", b]\nkey: {x: 1}\n";
    const sm_json *v = yaml(a, text);
    static const char *const begins[] = {"\xC3\xA9:", "\xC3\xA9:", "[", "\"", "b]",
                                         "key",       "{",         "x", "1"};
    assert_int_equal(v->span, COUNT(begins));
    for (size_t i = 0; i < COUNT(begins); i++)
        expect(strncmp(text + v[i].at, begins[i], strlen(begins[i])) == 0, "node %zu at %u", i,
               v[i].at);
}

static void limits_hold(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *text;
        sm_json_limits limits;
        const char *word;
    } rows[] = {
        {"[[[1]]]", {100, 3, 4}, NULL},
        {"[[[1]]]", {100, 2, 100}, "deep"},
        {"a:\n  b:\n    c: 1\n", {100, 2, 100}, "deep"},
        {"a:\n  b:\n    c: 1\n", {100, 3, 7}, NULL},
        {"a:\n  b:\n    c: 1\n", {100, 3, 6}, "too many values"},
        {"[[[1]]]", {100, 3, 3}, "too many values"},
        {"[[[1]]]", {7, 3, 4}, NULL},
        {"[[[1]]]", {6, 3, 4}, "too large"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const sm_json *root;
        sm_fault f = {0};
        sm_err e = sm_yaml_read(a, sm_str_from(rows[i].text), &rows[i].limits, &root, &f);
        expect(e == (rows[i].word == NULL ? SM_OK : SEMEL_E_LIMIT), "row %zu: %s", i, f.text);
        if (rows[i].word != NULL)
            expect(strstr(f.text, rows[i].word) != NULL, "row %zu: %s", i, f.text);
    }
    char *deep = malloc(100000);
    memset(deep, '[', 100000);
    const sm_json *root;
    assert_int_equal(sm_yaml_read(a, (sm_str){deep, 100000}, &sm_json_default_limits, &root, NULL),
                     SEMEL_E_LIMIT);
    free(deep);
}

/* Documents in which a value takes the fewest bytes: room for them is guessed from the size. */
static void documents_of_many_small_values_fit(void **state)
{
    sm_arena *a = *state;
    static const char *const units[][3] = {
        {"[", "a,", "]"},  {"", "-\n", ""},   {"{", "a%d,", "}"}, {"[", "a: ,", "]"},
        {"[", ": ,", "]"}, {"[", "? ,", "]"}, {"[", "[],", "]"},  {"[", "'',", "]"},
    };
    for (size_t i = 0; i < COUNT(units); i++) {
        sm_buf b;
        sm_buf_init(&b, 1 << 20);
        sm_buf_text(&b, units[i][0]);
        for (int n = 0; n < 1000; n++) {
            if (strcmp(units[i][1], "a%d,") == 0)
                sm_buf_printf(&b, "%d,", n);
            else
                sm_buf_text(&b, units[i][1]);
        }
        sm_buf_text(&b, units[i][2]);
        const sm_json *root;
        sm_fault f = {0};
        sm_err e = sm_yaml_read(a, sm_buf_view(&b), &sm_json_default_limits, &root, &f);
        expect(e == SM_OK || e == SEMEL_E_SYNTAX, "%s: %s", units[i][1], f.text);
        if (e == SM_OK)
            assert_int_equal(root->len, 1000);
        sm_buf_fini(&b);
    }
}

static void an_arena_that_is_too_small_is_out_of_memory(void **state)
{
    (void)state;
    sm_err e = SEMEL_E_NOMEM;
    for (size_t limit = 0; e != SM_OK; limit += 16) {
        sm_arena a;
        sm_arena_init(&a, limit);
        const sm_json *root;
        e = sm_yaml_read(&a, SM_STR("z: 1\ny: [two, 'three']\nx: {b: 1, a: 2}\n"),
                         &sm_json_default_limits, &root, NULL);
        assert_true(e == SM_OK || (e == SEMEL_E_NOMEM && root == NULL));
        sm_arena_fini(&a);
        assert_true(limit < 100000);
    }
}

static void large_mappings_find_their_duplicates(void **state)
{
    sm_arena *a = *state;
    sm_buf b;
    sm_buf_init(&b, 1 << 20);
    for (int i = 0; i < 500; i++)
        sm_buf_printf(&b, "the_key_number_%d: %d\n", i * 7 % 500, i);
    const sm_json *root;
    sm_fault f = {0};
    assert_int_equal(sm_yaml_read(a, sm_buf_view(&b), &sm_json_default_limits, &root, &f), SM_OK);
    assert_int_equal(root->len, 500);
    sm_buf_text(&b, "the_key_number_250: 0\n");
    assert_int_equal(sm_yaml_read(a, sm_buf_view(&b), &sm_json_default_limits, &root, &f),
                     SEMEL_E_DUPLICATE);
    assert_int_equal(f.line, 501);
    sm_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_arena(documents_become_the_tree_of_json),
        with_arena(a_json_document_means_the_same),
        with_arena(plain_scalars_are_what_json_would_take_them_for),
        with_arena(a_key_is_text_and_never_ambiguous),
        with_arena(what_is_not_supported_is_refused_where_it_stands),
        with_arena(nodes_know_where_they_stood),
        with_arena(limits_hold),
        with_arena(documents_of_many_small_values_fit),
        cmocka_unit_test(an_arena_that_is_too_small_is_out_of_memory),
        with_arena(large_mappings_find_their_duplicates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
