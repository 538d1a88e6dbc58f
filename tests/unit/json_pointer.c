/* JSON Pointers, and keeping, dropping and filling the places they name. */
#include "unit.h"

#include "json/pointer.h"

static sm_pointer pointer(sm_arena *a, const char *text)
{
    sm_pointer p;
    sm_fault f = {0};
    expect(sm_pointer_parse(a, sm_str_from(text), &p, &f) == SM_OK, "%s: %s", text, f.text);
    return p;
}

/* The canonical text of what a pointer names, or "(nothing)". */
static const char *at(sm_arena *a, const char *document_text, const char *pointer_text)
{
    sm_pointer p = pointer(a, pointer_text);
    const sm_json *v = sm_pointer_get(&p, document(a, document_text));
    return v == NULL ? "(nothing)" : canonical(a, v);
}

/* RFC 6901, section 5. */
static void the_examples_of_rfc_6901_name_what_it_says(void **state)
{
    sm_arena *a = *state;
    static const char sample[] = "{\"foo\":[\"bar\",\"baz\"],\"\":0,\"a/b\":1,\"c%d\":2,\"e^f\":3,"
                                 "\"g|h\":4,\"i\\\\j\":5,\"k\\\"l\":6,\" \":7,\"m~n\":8}";
    static const struct {
        const char *pointer, *value;
    } rows[] = {
        {"/foo", "[\"bar\",\"baz\"]"},
        {"/foo/0", "\"bar\""},
        {"/foo/1", "\"baz\""},
        {"/", "0"},
        {"/a~1b", "1"},
        {"/c%d", "2"},
        {"/e^f", "3"},
        {"/g|h", "4"},
        {"/i\\j", "5"},
        {"/k\"l", "6"},
        {"/ ", "7"},
        {"/m~0n", "8"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_text(sm_str_from(at(a, sample, rows[i].pointer)), rows[i].value);
    assert_string_equal(at(a, sample, ""), canonical_text(a, sample));
}

static void tokens_are_decoded_once(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *text;
        const char *tokens[5];
    } rows[] = {
        {"", {NULL}},
        {"/", {"", NULL}},
        {"//", {"", "", NULL}},
        {"/a", {"a", NULL}},
        {"/a/", {"a", "", NULL}},
        {"/a/b/c", {"a", "b", "c", NULL}},
        {"/~0", {"~", NULL}},
        {"/~1", {"/", NULL}},
        {"/~01", {"~1", NULL}}, /* not "/" */
        {"/~10", {"/0", NULL}},
        {"/~0~1~0", {"~/~", NULL}},
        {"/a~1b/c~0d", {"a/b", "c~d", NULL}},
        {"/\xC3\xA9/\xF0\x9F\x98\x80", {"\xC3\xA9", "\xF0\x9F\x98\x80", NULL}},
        {"/%7E/ /-", {"%7E", " ", "-", NULL}},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_pointer p = pointer(a, rows[i].text);
        expect_text(p.text, rows[i].text);
        sm_buf written;
        sm_buf_init(&written, 1000);
        uint32_t n = 0;
        for (; rows[i].tokens[n] != NULL; n++) {
            assert_true(n < p.count);
            expect_text(p.tokens[n], rows[i].tokens[n]);
            sm_pointer_put_token(&written, p.tokens[n]);
        }
        assert_int_equal(p.count, n);
        expect_text(sm_buf_view(&written), rows[i].text);
        sm_buf_fini(&written);
    }
}

static void what_is_no_pointer_is_refused_with_advice(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *text, *word;
    } rows[] = {
        {"a", "write \"/a\""},      {"a/b", "write \"/a/b\""},
        {"#/a", "starts with '/'"}, {" /a", "starts with '/'"},
        {"$.a", "starts with '/'"}, {"/~", "~0 for '~'"},
        {"/~2", "~0 for '~'"},      {"/a~/b", "~0 for '~'"},
        {"/a/b~", "~0 for '~'"},    {"/~~", "~0"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_pointer p;
        sm_fault f = {0};
        expect(sm_pointer_parse(a, sm_str_from(rows[i].text), &p, &f) == SEMEL_E_SYNTAX, "%s",
               rows[i].text);
        expect(strstr(f.text, rows[i].word) != NULL, "%s: %s", rows[i].text, f.text);
        assert_int_equal(sm_pointer_parse(a, sm_str_from(rows[i].text), &p, NULL), SEMEL_E_SYNTAX);
    }
}

static void the_number_of_tokens_is_bounded(void **state)
{
    sm_arena *a = *state;
    char text[2 * SM_POINTER_TOKENS_MAX + 3];
    for (size_t i = 0; i <= SM_POINTER_TOKENS_MAX; i++)
        memcpy(text + 2 * i, "/a", 3);
    sm_pointer p;
    sm_fault f;
    assert_int_equal(sm_pointer_parse(a, sm_str_from(text), &p, &f), SEMEL_E_LIMIT);
    assert_non_null(strstr(f.text, "at most 32"));
    text[2 * SM_POINTER_TOKENS_MAX] = '\0';
    assert_int_equal(sm_pointer_parse(a, sm_str_from(text), &p, &f), SM_OK);
    assert_int_equal(p.count, SM_POINTER_TOKENS_MAX);
}

static void indexes_are_plain_digits(void **state)
{
    (void)state;
    static const struct {
        const char *token;
        uint32_t index;
    } rows[] = {
        {"0", 0},
        {"1", 1},
        {"10", 10},
        {"999999999", 999999999},
        {"", SM_NO_INDEX},
        {"-", SM_NO_INDEX},
        {"00", SM_NO_INDEX},
        {"01", SM_NO_INDEX},
        {"-1", SM_NO_INDEX},
        {"+1", SM_NO_INDEX},
        {"1.0", SM_NO_INDEX},
        {"1e0", SM_NO_INDEX},
        {" 1", SM_NO_INDEX},
        {"1 ", SM_NO_INDEX},
        {"a", SM_NO_INDEX},
        {"1a", SM_NO_INDEX},
        {"4294967295", SM_NO_INDEX},
        {"4294967296", SM_NO_INDEX},
        {"99999999999999999999999999", SM_NO_INDEX},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect(sm_pointer_index(sm_str_from(rows[i].token)) == rows[i].index, "%s", rows[i].token);
}

static void what_is_not_there_is_nothing(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *document, *pointer, *value;
    } rows[] = {
        {"{\"a\":{\"b\":1}}", "/a/b", "1"},
        {"{\"a\":{\"b\":1}}", "/a/c", "(nothing)"},
        {"{\"a\":{\"b\":1}}", "/b", "(nothing)"},
        {"{\"a\":{\"b\":1}}", "/a/b/c", "(nothing)"}, /* below a scalar */
        {"{\"a\":null}", "/a", "null"},
        {"[1,2]", "/1", "2"},
        {"[1,2]", "/2", "(nothing)"},
        {"[1,2]", "/-", "(nothing)"},
        {"[1,2]", "/01", "(nothing)"},
        {"[1,2]", "/a", "(nothing)"},
        {"[1,2]", "/", "(nothing)"},
        {"[[1],{\"a\":[2,3]},4]", "/1/a/1", "3"},
        {"[[1],{\"a\":[2,3]},4]", "/2", "4"},
        {"{\"0\":1,\"01\":2,\"-\":3}", "/0", "1"}, /* in an object these are names */
        {"{\"0\":1,\"01\":2,\"-\":3}", "/01", "2"},
        {"{\"0\":1,\"01\":2,\"-\":3}", "/-", "3"},
        {"\"text\"", "", "\"text\""},
        {"\"text\"", "/0", "(nothing)"},
        {"{\"\\u0061\":1}", "/a", "1"},
        {"{\"a\\u0000\":1}", "/a", "(nothing)"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_text(sm_str_from(at(a, rows[i].document, rows[i].pointer)), rows[i].value);
}

static void pointers_overlap_when_one_is_above_the_other(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *a, *b;
        bool overlap;
    } rows[] = {
        {"/a", "/a", true},   {"/a", "/a/b", true},     {"", "/a", true},
        {"", "", true},       {"/a", "/b", false},      {"/a/b", "/a/c", false},
        {"/a", "/ab", false}, {"/a~1b", "/a/b", false}, {"/a/0", "/a/0/x", true},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_pointer p = pointer(a, rows[i].a), q = pointer(a, rows[i].b);
        expect(sm_pointer_overlap(&p, &q) == rows[i].overlap, "%s %s", rows[i].a, rows[i].b);
        assert_int_equal(sm_pointer_overlap(&q, &p), rows[i].overlap);
    }
}

/* A set of up to four pointers; for filling, each is followed by the text of its value. */
static sm_places *places(sm_arena *a, const char *const *texts, bool fill)
{
    sm_places *set = sm_places_new(a);
    assert_non_null(set);
    for (; *texts != NULL; texts++) {
        sm_pointer p = pointer(a, *texts);
        const sm_json *value = fill ? document(a, *++texts) : NULL;
        assert_int_equal(sm_places_add(set, a, &p, value), SM_OK);
    }
    return set;
}

typedef sm_err project(sm_arena *a, const sm_json *root, const sm_places *set, const sm_json **out);

typedef struct projection {
    const char *document;
    const char *set[9];
    const char *result; /* NULL: nothing is left */
} projection;

static void expect_projections(sm_arena *a, const projection *rows, size_t n, project *make,
                               bool fill)
{
    for (size_t i = 0; i < n; i++) {
        const sm_json *root = document(a, rows[i].document), *out = NULL;
        sm_json *before = sm_arena_alloc(a, root->span * sizeof *root);
        memcpy(before, root, root->span * sizeof *root);
        assert_int_equal(make(a, root, places(a, rows[i].set, fill), &out), SM_OK);
        if (rows[i].result == NULL) {
            expect(out == NULL, "%s: %s", rows[i].document, canonical(a, out));
        } else {
            expect(out != NULL, "%s: nothing", rows[i].document);
            expect_text(sm_str_from(canonical(a, out)), rows[i].result);
        }
        expect(memcmp(before, root, root->span * sizeof *root) == 0, "%s was changed",
               rows[i].document);
    }
}

static void keeping_leaves_only_what_is_named(void **state)
{
    static const projection rows[] = {
        {"{\"a\":1,\"b\":2,\"c\":3}", {"/b", NULL}, "{\"b\":2}"},
        {"{\"a\":1,\"b\":2,\"c\":3}", {"/c", "/a", NULL}, "{\"a\":1,\"c\":3}"},
        {"{\"a\":1}", {"/b", NULL}, NULL},
        {"{\"a\":1}", {NULL}, NULL},
        {"{\"a\":1}", {"", NULL}, "{\"a\":1}"},
        {"{\"a\":1,\"b\":2}", {"", "/a", NULL}, "{\"a\":1,\"b\":2}"},
        {"5", {"", NULL}, "5"},
        {"5", {"/a", NULL}, NULL},
        {"{\"a\":null}", {"/a", NULL}, "{\"a\":null}"}, /* null is there */
        {"{\"a\":{\"b\":1,\"c\":2},\"d\":3}", {"/a/b", NULL}, "{\"a\":{\"b\":1}}"},
        {"{\"a\":{\"b\":1,\"c\":2},\"d\":3}", {"/a", NULL}, "{\"a\":{\"b\":1,\"c\":2}}"},
        {"{\"a\":{\"b\":1,\"c\":2},\"d\":3}", {"/a", "/a/b", NULL}, "{\"a\":{\"b\":1,\"c\":2}}"},
        {"{\"a\":{\"b\":1,\"c\":2},\"d\":3}", {"/a/b", "/a", NULL}, "{\"a\":{\"b\":1,\"c\":2}}"},
        {"{\"a\":{},\"d\":3}", {"/a", "/d", NULL}, "{\"a\":{},\"d\":3}"},
        {"{\"a\":{},\"d\":3}", {"/a/b", "/d", NULL}, "{\"d\":3}"}, /* nothing named is in a */
        {"{\"a\":1,\"d\":3}", {"/a/b", "/d", NULL}, "{\"d\":3}"},
        {"{\"a\":{\"b\":{\"c\":{}}}}", {"/a/b/c/d", NULL}, NULL},
        {"{\"z\":{\"b\":1,\"a\":2,\"c\":0},\"y\":1}",
         {"/y", "/z/b", "/z/a", NULL},
         "{\"y\":1,\"z\":{\"a\":2,\"b\":1}}"},
        {"{\"a/b\":1,\"a\":{\"b\":2}}", {"/a~1b", NULL}, "{\"a/b\":1}"},
        {"{\"a/b\":1,\"a\":{\"b\":2}}", {"/a/b", NULL}, "{\"a\":{\"b\":2}}"},
        /* arrays: an element keeps its index, null stands for what is not named */
        {"[10,11,12,13]", {"/0", NULL}, "[10]"},
        {"[10,11,12,13]", {"/2", NULL}, "[null,null,12]"},
        {"[10,11,12,13]", {"/3", "/1", NULL}, "[null,11,null,13]"},
        {"[10,11,12,13]", {"/4", NULL}, NULL},
        {"[10,11,12,13]", {"/-", NULL}, NULL},
        {"[10,11,12,13]", {"/01", NULL}, NULL},
        {"[[],{\"a\":1,\"b\":2},[3]]", {"/1/a", NULL}, "[null,{\"a\":1}]"},
        {"[[],{\"a\":1,\"b\":2},[3]]", {"/2/0", "/0/0", NULL}, "[null,null,[3]]"},
        {"[[1,2],[3,4],[5,6]]", {"/0/1", "/2/0", NULL}, "[[null,2],null,[5]]"},
        {"[[1,[2,3]],4]", {"/0/1/1", NULL}, "[[null,[null,3]]]"},
        {"{\"a\":[{\"x\":1},{\"y\":2}],\"b\":1}", {"/a/1/y", NULL}, "{\"a\":[null,{\"y\":2}]}"},
        {"{\"a\":[{\"x\":1},{\"y\":2}],\"b\":1}", {"/a/1/x", NULL}, NULL},
        {"[null,1]", {"/0", NULL}, "[null]"},
        {"{\"0\":1,\"1\":2}", {"/1", NULL}, "{\"1\":2}"}, /* names, not indexes */
    };
    expect_projections(*state, rows, COUNT(rows), sm_json_keep, false);
}

static void dropping_leaves_all_but_what_is_named(void **state)
{
    static const projection rows[] = {
        {"{\"a\":1,\"b\":2,\"c\":3}", {"/b", NULL}, "{\"a\":1,\"c\":3}"},
        {"{\"c\":1,\"b\":2,\"a\":3}", {"/b", NULL}, "{\"a\":3,\"c\":1}"},
        {"{\"a\":1}", {"/a", NULL}, "{}"},
        {"{\"a\":1}", {"/b", NULL}, "{\"a\":1}"},
        {"{\"a\":1}", {"/a/b", NULL}, "{\"a\":1}"},
        {"{\"a\":1}", {NULL}, "{\"a\":1}"},
        {"5", {"/a", NULL}, "5"},
        {"{\"a\":{\"b\":1,\"c\":2},\"d\":3}", {"/a/b", NULL}, "{\"a\":{\"c\":2},\"d\":3}"},
        {"{\"a\":{\"b\":1}}", {"/a/b", NULL}, "{\"a\":{}}"}, /* what is above stays */
        {"{\"a\":{\"b\":1}}", {"/a", "/a/b", NULL}, "{}"},
        {"{\"a\":{\"b\":1}}", {"/a/b", "/a", NULL}, "{}"},
        {"[10,11,12,13]", {"/1", NULL}, "[10,12,13]"},    /* those behind move up */
        {"[10,11,12,13]", {"/0", "/3", NULL}, "[11,12]"}, /* indexes are those before */
        {"[10,11,12,13]", {"/4", NULL}, "[10,11,12,13]"},
        {"[10,11,12,13]", {"/-", NULL}, "[10,11,12,13]"},
        {"[{\"a\":1,\"b\":[2,3]},{\"a\":1}]", {"/0/a", "/0/b/0", NULL}, "[{\"b\":[3]},{\"a\":1}]"},
        {"{\"meta\":{\"ts\":1,\"id\":2},\"x\":{\"ts\":3}}",
         {"/meta/ts", NULL},
         "{\"meta\":{\"id\":2},\"x\":{\"ts\":3}}"},
        {"{\"0\":1,\"1\":2}", {"/1", NULL}, "{\"0\":1}"},
    };
    expect_projections(*state, rows, COUNT(rows), sm_json_drop, false);
}

static void filling_adds_what_is_absent(void **state)
{
    static const projection rows[] = {
        {"{}", {"/a", "1", NULL}, "{\"a\":1}"},
        {"{\"a\":2}", {"/a", "1", NULL}, "{\"a\":2}"},
        {"{\"a\":null}", {"/a", "1", NULL}, "{\"a\":null}"}, /* null is there */
        {"{\"b\":1}",
         {"/c", "3", "/a", "{\"x\":[1,2]}", NULL},
         "{\"a\":{\"x\":[1,2]},\"b\":1,\"c\":3}"},
        {"{}", {NULL}, "{}"},
        /* missing objects on the way are made */
        {"{}", {"/a/b/c", "1", NULL}, "{\"a\":{\"b\":{\"c\":1}}}"},
        {"{\"a\":{}}", {"/a/b/c", "1", NULL}, "{\"a\":{\"b\":{\"c\":1}}}"},
        {"{}", {"/a/x", "1", "/a/y", "2", "/b", "3", NULL}, "{\"a\":{\"x\":1,\"y\":2},\"b\":3}"},
        {"{\"a\":{\"y\":9}}", {"/a/x", "1", "/a/y", "2", NULL}, "{\"a\":{\"x\":1,\"y\":9}}"},
        {"{\"z\":{\"q\":1,\"p\":2}}",
         {"/z/o", "3", "/y", "4", NULL},
         "{\"y\":4,\"z\":{\"o\":3,\"p\":2,\"q\":1}}"},
        {"{}", {"/a~1b/c~0d", "1", NULL}, "{\"a/b\":{\"c~d\":1}}"},
        {"{}",
         {"/\xF0\x9F\x98\x80", "1", "/\xEF\xAC\xB3", "2", NULL},
         "{\"\xF0\x9F\x98\x80\":1,\"\xEF\xAC\xB3\":2}"},
        {"{}", {"/0", "1", "/-", "2", NULL}, "{\"-\":2,\"0\":1}"}, /* an object's names */
        /* what could be an array is not made up */
        {"{}", {"/items/0/qty", "1", NULL}, "{}"},
        {"{}", {"/a/-", "9", NULL}, "{}"},
        {"{}", {"/a/0", "1", "/a/b", "2", NULL}, "{\"a\":{\"0\":1,\"b\":2}}"}, /* an object it is */
        {"{\"a\":{}}", {"/a/0", "1", "/a/b", "2", NULL}, "{\"a\":{\"0\":1,\"b\":2}}"},
        /* an array or a scalar on the way is left alone */
        {"{\"a\":[]}", {"/a/0", "1", NULL}, "{\"a\":[]}"},
        {"{\"a\":[5]}", {"/a/1", "1", NULL}, "{\"a\":[5]}"},
        {"{\"a\":[5]}", {"/a/-", "1", NULL}, "{\"a\":[5]}"},
        {"{\"a\":[5]}", {"/a/b", "1", NULL}, "{\"a\":[5]}"},
        {"{\"a\":5}", {"/a/b", "1", NULL}, "{\"a\":5}"},
        {"{\"a\":null}", {"/a/b", "1", NULL}, "{\"a\":null}"},
        {"[]", {"/a", "1", NULL}, "[]"},
        {"\"text\"", {"/a", "1", NULL}, "\"text\""},
        {"7", {"", "1", NULL}, "7"},
        /* an element that is there is a place like any other */
        {"{\"a\":[{\"x\":1},{}]}", {"/a/1/x", "2", NULL}, "{\"a\":[{\"x\":1},{\"x\":2}]}"},
        {"[[{}]]", {"/0/0/a", "1", "/0/1/a", "2", NULL}, "[[{\"a\":1}]]"},
        /* the same place twice: the last value counts */
        {"{}", {"/a", "1", "/a", "2", NULL}, "{\"a\":2}"},
    };
    expect_projections(*state, rows, COUNT(rows), sm_json_fill, true);
}

/* A set may name places without a value for them; filling passes over those. */
static void filling_passes_over_places_without_a_value(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *bare, *filled, *document, *result;
    } rows[] = {
        {"/a", "/b", "{}", "{\"b\":1}"},
        {"/a", "/a/b", "{}", "{\"a\":{\"b\":1}}"},
        {"/a/c", "/a/b", "{}", "{\"a\":{\"b\":1}}"},
        {"/a/b", "/a/b", "{}", "{\"a\":{\"b\":1}}"},
        {"", "/a", "{}", "{\"a\":1}"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (int order = 0; order < 2; order++) {
            sm_places *set = sm_places_new(a);
            sm_pointer bare = pointer(a, rows[i].bare), filled = pointer(a, rows[i].filled);
            const sm_json *out, *one = document(a, "1");
            if (order == 0)
                assert_int_equal(sm_places_add(set, a, &bare, NULL), SM_OK);
            assert_int_equal(sm_places_add(set, a, &filled, one), SM_OK);
            if (order == 1)
                assert_int_equal(sm_places_add(set, a, &bare, NULL), SM_OK);
            assert_int_equal(sm_json_fill(a, document(a, rows[i].document), set, &out), SM_OK);
            expect_text(sm_str_from(canonical(a, out)), rows[i].result);
        }
    }
}

static void nothing_to_change_gives_the_document_itself(void **state)
{
    sm_arena *a = *state;
    const sm_json *root = document(a, "{\"a\":{\"b\":1},\"c\":[1]}"), *out;
    assert_int_equal(
        sm_json_fill(a, root, places(a, (const char *[]){"/a/b", "2", NULL}, true), &out), SM_OK);
    assert_ptr_equal(out, root);
    assert_int_equal(
        sm_json_fill(a, root, places(a, (const char *[]){"/c/x", "2", NULL}, true), &out), SM_OK);
    assert_ptr_equal(out, root);
    assert_int_equal(sm_json_drop(a, root, places(a, (const char *[]){NULL}, false), &out), SM_OK);
    assert_ptr_equal(out, root);
    assert_int_equal(sm_json_keep(a, root, places(a, (const char *[]){"", NULL}, false), &out),
                     SM_OK);
    assert_ptr_equal(out, root);
}

/* Filling, then keeping: omitted equals explicit, which is what both are for. */
static void projections_can_follow_each_other(void **state)
{
    sm_arena *a = *state;
    const sm_places *defaults =
        places(a, (const char *[]){"/currency", "\"usd\"", "/o/q", "1", NULL}, true);
    const sm_places *identity = places(a, (const char *[]){"/currency", "/id", "/o", NULL}, false);
    static const char *const equal[] = {
        "{\"id\":7,\"note\":\"x\"}",
        "{\"note\":\"y\",\"id\":7.0,\"currency\":\"usd\"}",
        "{\"currency\":\"usd\",\"o\":{\"q\":1e0},\"id\":7}",
        "{\"o\":{},\"id\":7}",
    };
    for (size_t i = 0; i < COUNT(equal); i++) {
        const sm_json *filled, *kept;
        assert_int_equal(sm_json_fill(a, document(a, equal[i]), defaults, &filled), SM_OK);
        assert_int_equal(sm_json_keep(a, filled, identity, &kept), SM_OK);
        assert_string_equal(canonical(a, kept), "{\"currency\":\"usd\",\"id\":7,\"o\":{\"q\":1}}");
    }
}

static void large_objects_are_sorted_again_after_a_projection(void **state)
{
    sm_arena *a = *state;
    sm_buf text, dropped;
    sm_buf_init(&text, 1 << 20);
    sm_buf_init(&dropped, 1 << 20);
    for (int i = 0; i < 200; i++)
        sm_buf_printf(&text, "%c\"a long name %03d\":%d", i == 0 ? '{' : ',', i * 77 % 200,
                      i * 77 % 200);
    sm_buf_byte(&text, '}');
    for (int i = 0; i < 200; i++) {
        if (i != 100)
            sm_buf_printf(&dropped, "%c\"a long name %03d\":%d", i == 0 ? '{' : ',', i, i);
    }
    sm_buf_byte(&dropped, '}');
    sm_buf_byte(&text, '\0');
    sm_buf_byte(&dropped, '\0');
    const sm_json *out;
    assert_int_equal(sm_json_drop(a, document(a, text.p),
                                  places(a, (const char *[]){"/a long name 100", NULL}, false),
                                  &out),
                     SM_OK);
    assert_string_equal(canonical(a, out), dropped.p);
    assert_int_equal(
        sm_json_fill(a, out, places(a, (const char *[]){"/a long name 100", "100", NULL}, true),
                     &out),
        SM_OK);
    assert_string_equal(canonical(a, out), canonical_text(a, text.p));
    sm_buf_fini(&text);
    sm_buf_fini(&dropped);
}

static void projecting_without_memory_says_so(void **state)
{
    sm_arena *a = *state;
    const sm_json *root = document(a, "{\"c\":1,\"b\":{\"e\":1,\"d\":2},\"a\":[1,2]}");
    static const char *const pointers[] = {"/b/e", "/c", "/a/1", NULL};
    static const char *const fills[] = {"/b/a", "1", "/a0", "{\"x\":1}", NULL};
    for (int which = 0; which < 3; which++) {
        project *make = (project *[]){sm_json_keep, sm_json_drop, sm_json_fill}[which];
        const sm_places *set = places(a, which == 2 ? fills : pointers, which == 2);
        sm_err e = SEMEL_E_NOMEM;
        for (size_t limit = 0; e != SM_OK; limit += 16) {
            sm_arena small;
            sm_arena_init(&small, limit);
            const sm_json *out = NULL;
            e = make(&small, root, set, &out);
            if (e != SM_OK)
                assert_int_equal(e, SEMEL_E_NOMEM);
            sm_arena_fini(&small);
            assert_true(limit < 10000);
        }
        e = SEMEL_E_NOMEM;
        for (size_t limit = 0; e != SM_OK; limit += 16) {
            sm_arena small;
            sm_arena_init(&small, limit);
            sm_pointer p;
            e = sm_pointer_parse(&small, SM_STR("/a/b"), &p, NULL);
            sm_places *places_set = e == SM_OK ? sm_places_new(&small) : NULL;
            e = places_set == NULL ? SEMEL_E_NOMEM : sm_places_add(places_set, &small, &p, NULL);
            assert_true(e == SM_OK || e == SEMEL_E_NOMEM);
            sm_arena_fini(&small);
            assert_true(limit < 10000);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_arena(the_examples_of_rfc_6901_name_what_it_says),
        with_arena(tokens_are_decoded_once),
        with_arena(what_is_no_pointer_is_refused_with_advice),
        with_arena(the_number_of_tokens_is_bounded),
        cmocka_unit_test(indexes_are_plain_digits),
        with_arena(what_is_not_there_is_nothing),
        with_arena(pointers_overlap_when_one_is_above_the_other),
        with_arena(keeping_leaves_only_what_is_named),
        with_arena(dropping_leaves_all_but_what_is_named),
        with_arena(filling_adds_what_is_absent),
        with_arena(filling_passes_over_places_without_a_value),
        with_arena(nothing_to_change_gives_the_document_itself),
        with_arena(projections_can_follow_each_other),
        with_arena(large_objects_are_sorted_again_after_a_projection),
        with_arena(projecting_without_memory_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
