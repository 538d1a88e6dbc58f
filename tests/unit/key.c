/*
 * Calls and their keys. The expected keys were computed apart from this code, with another
 * language's SHA-256 and base64url, from the encoding as key.h describes it.
 */
#include "unit.h"

#include "base/utf8.h"
#include "core/call.h"
#include "core/key.h"

#define CHARGE "{\"order_id\":\"order-123\",\"currency\":\"usd\",\"amount\":1000}"

static const uint8_t counting[SM_NONCE_BYTES] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                 8, 9, 10, 11, 12, 13, 14, 15};

typedef struct fixture {
    sm_arena arena;
    sm_keyer keyer;
} fixture;

static int setup(void **state)
{
    fixture *f = malloc(sizeof *f);
    sm_arena_init(&f->arena, SM_ARENA_MAX);
    *state = f;
    return sm_keyer_init(&f->keyer) == SM_OK ? 0 : -1;
}

static int teardown(void **state)
{
    fixture *f = *state;
    sm_keyer_fini(&f->keyer);
    sm_arena_fini(&f->arena);
    free(f);
    return 0;
}

#define with_keyer(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* A call as text; a NULL step or key is absent. */
typedef struct call_text {
    sm_strategy strategy;
    const char *scope, *step, *tool, *args, *key;
} call_text;

static sm_parsed_call call_of(fixture *f, const call_text *t)
{
    sm_parsed_call c = {
        .scope = sm_str_from(t->scope),
        .step = sm_str_from(t->step),
        .tool = sm_str_from(t->tool),
        .key = sm_str_from(t->key),
        .args = document(&f->arena, t->args),
        .args_text = sm_str_from(t->args),
    };
    return c;
}

static sm_key key_of(fixture *f, const call_text *t)
{
    sm_parsed_call c = call_of(f, t);
    sm_key key;
    sm_fault fault = {0};
    assert_int_equal(sm_call_check(&c, &fault), SM_OK);
    expect(sm_key_make(&f->keyer, t->strategy, &c, c.args, counting, &key, &fault) == SM_OK, "%s",
           fault.text);
    return key;
}

static void expect_key(const sm_hash *hash, const char *expected)
{
    char text[SM_HASH_TEXT + 1];
    sm_hash_text(hash, text);
    assert_string_equal(text, expected);
}

static bool same(const sm_hash *a, const sm_hash *b)
{
    return memcmp(a->b, b->b, SM_HASH_BYTES) == 0;
}

static void keys_are_those_of_the_documented_encoding(void **state)
{
    fixture *f = *state;
    static const struct {
        call_text call;
        const char *key;
    } rows[] = {
        {{SM_KEY_HASH, "order-123", NULL, "stripe.charge", CHARGE, NULL},
         "sJExtz59_0kM7KSSp3RAcSGpGc-m8XnPQcGAoe-ARBU"},
        {{SM_KEY_HASH, "order-123", "2", "stripe.charge", CHARGE, NULL},
         "k_u3F658gbOkDYfLgORYCDSm9YSDz3QFeSlOettRWvE"},
        {{SM_KEY_FIELDS, "tenant/agent/run", NULL, "stripe.charge", "{\"order_id\":\"order-123\"}",
          NULL},
         "SFLuGyeNeMQqbF97G5Z2PH0Z7HELLEXcfvUkCMvcO9o"},
        {{SM_KEY_STEP, "tenant/agent/run", "charge-1", "stripe.charge", CHARGE, NULL},
         "hC464bpd61cq33LejmpKiDGkWQm35Eki1Ldtu_rpZ8o"},
        {{SM_KEY_EXPLICIT, "tenant/agent/run", NULL, "stripe.charge", CHARGE, "invoice 7/\xC3\xA9"},
         "QAai2Ew5UwC0XF_haMPSSPdkcOcq5VJDSFzsXiADme8"},
        {{SM_KEY_UNIQUE, "default", NULL, "send_email", "{}", NULL},
         "_hzIoNjk_g8dH9fpxIYM3pE010JfGL2A0MkeDmn7RJU"},
        {{SM_KEY_HASH, "s", NULL, "t", "{}", NULL}, "GBUYz1qoZ9HbDn5R8uTa1uHqUf7aCYWVJ3N6BJ8HJ4I"},
        {{SM_KEY_HASH, "s", NULL, "t", " null ", NULL},
         "LYMivq60wlwmjhLqgz5jirg25VDCc9l0Bkk6PFkSIxo"},
        {{SM_KEY_HASH, "s", NULL, "t", "{\"\\ufb33\":1e21,\"\\ud83d\\ude00\":1.0}", NULL},
         "J0WMg7cuJp-Z04Z--RomfnyxV1oLUfYLiTzIzbZzAyQ"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_key key = key_of(f, &rows[i].call);
        expect_key(&key.hash, rows[i].key);
    }
}

static void fingerprints_are_those_of_the_documented_encoding(void **state)
{
    fixture *f = *state;
    sm_fingerprint print;
    sm_err e = sm_fingerprint_make(&f->keyer, SM_STR("stripe.charge"), document(&f->arena, CHARGE),
                                   (sm_str){0}, &print, NULL);
    assert_int_equal(e, SM_OK);
    expect_key(&print.hash, "1zd3bIjn2xBIhOyf7IXNLQzs_W25PIbJc8rJcLng-i8");
    e = sm_fingerprint_make(&f->keyer, SM_STR("t"), document(&f->arena, "[ ]"), (sm_str){0}, &print,
                            NULL);
    assert_int_equal(e, SM_OK);
    expect_key(&print.hash, "gC7BHZlSJoLpbQg9J1YjbT2UDnSlufxurNGIZSi9HbM");
}

static void downstream_keys_are_those_of_the_documented_encoding(void **state)
{
    fixture *f = *state;
    static const struct {
        uint64_t generation, run;
        const char *key;
    } rows[] = {
        {1, 1, "8y2m3x6LZkfX9NDKoEbQPQXR1PhyfWC_mlefu-hGxmU"},
        {1, 2, "A0kvjRH0E7oSYPDmQBieu9n1FZXmb4HWPm-FLa9FrsY"},
        {2, 1, "ir4YOeVVETidAL-ceLDLvNb5-IADMvVDajIyE10e2oA"},
        {0, 0, "iSl3ymz7n_d2UfDCduPaoEl6RifkZmUQ8rYPUP6hmZ4"},
        {UINT64_MAX, (uint64_t)1 << 40, "ZO5Akc4hhdugid3OluFDKGZlvnh84qfcyBstBazIj4w"},
    };
    sm_key key =
        key_of(f, &(call_text){SM_KEY_HASH, "order-123", NULL, "stripe.charge", CHARGE, NULL});
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_down_key down;
        assert_int_equal(sm_down_key_make(&f->keyer, &key, rows[i].generation, rows[i].run, &down),
                         SM_OK);
        expect_key(&down.hash, rows[i].key);
    }
}

/* What each strategy hashes, by walking the preimage. */
static void each_strategy_has_its_own_parts(void **state)
{
    fixture *f = *state;
    static const struct {
        call_text call;
        const char *parts;
    } rows[] = {
        {{SM_KEY_HASH, "sc", NULL, "to", "{\"b\":1.0,\"a\":2}", NULL},
         "1=sc 3=to 4={\"a\":2,\"b\":1} "},
        {{SM_KEY_HASH, "sc", "st", "to", "[1e0]", NULL}, "1=sc 2=st 3=to 4=[1] "},
        {{SM_KEY_HASH, "sc", "st", "to", "{}", "ck"}, "1=sc 2=st 3=to 4={} "},
        {{SM_KEY_FIELDS, "sc", "st", "to", "{}", NULL}, "1=sc 2=st 3=to 4={} "},
        {{SM_KEY_FIELDS, "sc", NULL, "to", "\"\"", NULL}, "1=sc 3=to 4=\"\" "},
        {{SM_KEY_STEP, "sc", "st", "to", "{\"a\":1}", NULL}, "1=sc 2=st 3=to "},
        {{SM_KEY_EXPLICIT, "sc", "st", "to", "{\"a\":1}", "ck"}, "1=sc 5=ck "},
        {{SM_KEY_UNIQUE, "sc", "st", "to", "{\"a\":1}", NULL}, "1=sc 3=to 6=(16) "},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        key_of(f, &rows[i].call);
        sm_str preimage = sm_buf_view(&f->keyer.preimage), part;
        assert_memory_equal(preimage.p, "semel-key-1", 11);
        char parts[256] = "";
        size_t at = 0, total = 11;
        sm_part tag;
        while (sm_key_part(preimage, &at, &tag, &part)) {
            total += 9 + part.n;
            if (tag == SM_PART_NONCE)
                sprintf(parts + strlen(parts), "%d=(%zu) ", tag, part.n);
            else
                sprintf(parts + strlen(parts), "%d=%.*s ", tag, SM_FMT(part));
        }
        assert_string_equal(parts, rows[i].parts);
        assert_int_equal(total, preimage.n);
        assert_int_equal(at, preimage.n);
    }
}

/* Calls that a careless encoding would confuse. All keys are different. */
static void no_two_of_these_calls_share_a_key(void **state)
{
    fixture *f = *state;
    static const call_text calls[] = {
        {SM_KEY_HASH, "tenant1|x", NULL, "y", "{}", NULL},
        {SM_KEY_HASH, "tenant1", NULL, "x|y", "{}", NULL},
        {SM_KEY_HASH, "tenant1", "x", "y", "{}", NULL},
        {SM_KEY_HASH, "tenant1/x", NULL, "y", "{}", NULL},
        {SM_KEY_HASH, "tenant1", NULL, "x/y", "{}", NULL},
        {SM_KEY_HASH, "tenant1x", NULL, "y", "{}", NULL},
        {SM_KEY_HASH, "tenant1", NULL, "xy", "{}", NULL},
        {SM_KEY_HASH, "tenant", "1x", "y", "{}", NULL},
        {SM_KEY_HASH, "tenant", "1", "xy", "{}", NULL},
        {SM_KEY_HASH, "tenant1", NULL, "x", "\"y\"", NULL},
        {SM_KEY_HASH, "tenant1", NULL, "x\"y\"", "{}", NULL},
        {SM_KEY_HASH, "tenant1", NULL, "x{}", "{}", NULL},
        {SM_KEY_HASH, "tenant1", NULL, "x", "{}", NULL},
        {SM_KEY_HASH, "tenant1", NULL, "x", "[]", NULL},
        {SM_KEY_HASH, "tenant1", NULL, "x", "null", NULL},
        {SM_KEY_HASH, "tenant1", NULL, "x", "\"\"", NULL},
        {SM_KEY_HASH, "tenant1", NULL, "x", "\"{}\"", NULL},
        {SM_KEY_HASH, "tenant1", NULL, "x", "1", NULL},
        {SM_KEY_HASH, "tenant1", NULL, "x", "\"1\"", NULL},
        {SM_KEY_HASH, "tenant1", NULL, "x", "9223372036854775806", NULL},
        {SM_KEY_HASH, "tenant1", NULL, "x", "9223372036854775807", NULL},
        {SM_KEY_HASH, "tenant1", NULL, "x", "{\"a\":null}", NULL},
        {SM_KEY_HASH, "tenant1", NULL, "X", "{}", NULL},
        {SM_KEY_HASH, "Tenant1", NULL, "x", "{}", NULL},
        {SM_KEY_HASH, "tenant1", "0", "x", "{}", NULL},
        {SM_KEY_HASH, "tenant1", "00", "x", "{}", NULL},
        {SM_KEY_HASH, "tenant1", " ", "x", "{}", NULL},
        {SM_KEY_HASH, "tenant1", NULL, "\xC3\xA9", "{}", NULL},
        {SM_KEY_HASH, "tenant1", NULL, "e\xCC\x81", "{}", NULL}, /* no normalisation */
        {SM_KEY_STEP, "tenant1", "x", "y", "{}", NULL},
        {SM_KEY_STEP, "tenant1", "xy", "z", "{}", NULL},
        {SM_KEY_STEP, "tenant1", "x", "yz", "{}", NULL},
        {SM_KEY_EXPLICIT, "tenant1", NULL, "y", "{}", "x"},
        {SM_KEY_EXPLICIT, "tenant1/x", NULL, "y", "{}", "y"},
        {SM_KEY_EXPLICIT, "tenant1", NULL, "y", "{}", "x/y"},
        {SM_KEY_EXPLICIT, "tenant1", NULL, "y", "{}", "xy"},
        {SM_KEY_UNIQUE, "tenant1", NULL, "y", "{}", NULL},
        {SM_KEY_UNIQUE, "tenant1", NULL, "x", "{}", NULL},
    };
    sm_key keys[COUNT(calls)];
    for (size_t i = 0; i < COUNT(calls); i++) {
        keys[i] = key_of(f, &calls[i]);
        for (size_t j = 0; j < i; j++)
            expect(!same(&keys[i].hash, &keys[j].hash), "calls %zu and %zu", j, i);
    }
}

/* All ways to cut one run of bytes into scope, step and tool: no two share a key. */
static void bytes_that_move_between_parts_change_the_key(void **state)
{
    fixture *f = *state;
    static const char run[] = "abababababab";
    sm_key keys[200];
    size_t n = 0;
    for (size_t i = 1; i < sizeof run - 1; i++) {
        for (size_t j = i; j < sizeof run - 1; j++) {
            /* scope [0, i), step [i, j) or none, tool [j, end) */
            sm_parsed_call c = {.scope = {run, i},
                                .step = {j > i ? run + i : NULL, j - i},
                                .tool = {run + j, sizeof run - 1 - j},
                                .args = document(&f->arena, "{}")};
            assert_true(n < COUNT(keys));
            assert_int_equal(sm_key_make(&f->keyer, SM_KEY_HASH, &c, c.args, NULL, &keys[n], NULL),
                             SM_OK);
            for (size_t k = 0; k < n; k++)
                assert_false(same(&keys[k].hash, &keys[n].hash));
            n++;
        }
    }
    assert_int_equal(n, 66);
}

static void an_absent_step_is_not_an_empty_one(void **state)
{
    fixture *f = *state;
    sm_parsed_call absent = call_of(f, &(call_text){SM_KEY_HASH, "s", NULL, "t", "{}", NULL});
    sm_parsed_call empty = absent;
    empty.step = SM_STR("");
    sm_key p, q;
    assert_int_equal(sm_key_make(&f->keyer, SM_KEY_HASH, &absent, absent.args, NULL, &p, NULL),
                     SM_OK);
    assert_int_equal(sm_key_make(&f->keyer, SM_KEY_HASH, &empty, empty.args, NULL, &q, NULL),
                     SM_OK);
    assert_false(same(&p.hash, &q.hash));
    assert_int_equal(sm_call_check(&absent, NULL), SM_OK);
    assert_int_equal(sm_call_check(&empty, NULL), SEMEL_E_BAD_ARGUMENTS);
}

static void equal_arguments_share_a_key_however_they_are_written(void **state)
{
    fixture *f = *state;
    static const char *const args[] = {
        CHARGE,
        "{\"amount\":1000,\"currency\":\"usd\",\"order_id\":\"order-123\"}",
        " { \"amount\" : 1e3 , \"order_id\" : \"order\\u002d123\" , \"currency\":\"usd\" } ",
        "{\"\\u0061mount\":1000.00,\"currency\":\"\\u0075sd\",\"order_id\":\"order-123\"}",
    };
    for (size_t i = 0; i < COUNT(args); i++) {
        sm_key key =
            key_of(f, &(call_text){SM_KEY_HASH, "order-123", NULL, "stripe.charge", args[i], NULL});
        expect_key(&key.hash, "sJExtz59_0kM7KSSp3RAcSGpGc-m8XnPQcGAoe-ARBU");
    }
}

static void a_nonce_makes_every_call_its_own(void **state)
{
    fixture *f = *state;
    sm_parsed_call c = call_of(f, &(call_text){SM_KEY_UNIQUE, "s", NULL, "t", "{}", NULL});
    uint8_t nonce[SM_NONCE_BYTES] = {0};
    sm_key first, key;
    assert_int_equal(sm_key_make(&f->keyer, SM_KEY_UNIQUE, &c, NULL, nonce, &first, NULL), SM_OK);
    for (size_t i = 0; i < SM_NONCE_BYTES; i++) {
        nonce[i] ^= 1;
        assert_int_equal(sm_key_make(&f->keyer, SM_KEY_UNIQUE, &c, NULL, nonce, &key, NULL), SM_OK);
        assert_false(same(&first.hash, &key.hash));
        nonce[i] ^= 1;
    }
    assert_int_equal(sm_key_make(&f->keyer, SM_KEY_UNIQUE, &c, NULL, nonce, &key, NULL), SM_OK);
    assert_true(same(&first.hash, &key.hash));
}

static void a_fingerprint_tells_tools_and_arguments_apart(void **state)
{
    fixture *f = *state;
    static const char *const calls[][2] = {
        {"t", "{\"a\":1}"}, {"t", "{\"a\":2}"}, {"u", "{\"a\":1}"},     {"t", "{}"},
        {"t", "[]"},        {"t{}", "{}"},      {"t", "{\"a\":\"1\"}"}, {"t", "{\"a\":1,\"b\":1}"},
    };
    sm_fingerprint prints[COUNT(calls)];
    for (size_t i = 0; i < COUNT(calls); i++) {
        assert_int_equal(sm_fingerprint_make(&f->keyer, sm_str_from(calls[i][0]),
                                             document(&f->arena, calls[i][1]), (sm_str){0},
                                             &prints[i], NULL),
                         SM_OK);
        for (size_t j = 0; j < i; j++)
            assert_false(same(&prints[i].hash, &prints[j].hash));
    }
    sm_fingerprint again;
    assert_int_equal(sm_fingerprint_make(&f->keyer, SM_STR("t"),
                                         document(&f->arena, "{\"b\":1.0,\"a\":1}"), (sm_str){0},
                                         &again, NULL),
                     SM_OK);
    assert_true(same(&again.hash, &prints[7].hash));
}

static void a_downstream_key_varies_and_never_is_the_key(void **state)
{
    fixture *f = *state;
    sm_key keys[] = {key_of(f, &(call_text){SM_KEY_HASH, "s", NULL, "t", "{}", NULL}),
                     key_of(f, &(call_text){SM_KEY_HASH, "s", NULL, "t", "[]", NULL})};
    static const uint64_t numbers[] = {0, 1, 2, 255, 256, (uint64_t)1 << 32, UINT64_MAX};
    sm_down_key seen[2 * COUNT(numbers) * COUNT(numbers)];
    size_t n = 0;
    for (size_t k = 0; k < COUNT(keys); k++) {
        for (size_t i = 0; i < COUNT(numbers); i++) {
            for (size_t j = 0; j < COUNT(numbers); j++) {
                assert_int_equal(
                    sm_down_key_make(&f->keyer, &keys[k], numbers[i], numbers[j], &seen[n]), SM_OK);
                assert_false(same(&seen[n].hash, &keys[0].hash));
                assert_false(same(&seen[n].hash, &keys[1].hash));
                for (size_t m = 0; m < n; m++)
                    assert_false(same(&seen[m].hash, &seen[n].hash));
                n++;
            }
        }
    }
}

static void a_number_without_a_form_has_no_key(void **state)
{
    fixture *f = *state;
    sm_parsed_call c =
        call_of(f, &(call_text){SM_KEY_HASH, "s", NULL, "t", "{\"a\":1,\n \"b\":1e400}", NULL});
    sm_key key;
    sm_fingerprint print;
    sm_fault fault = {0};
    assert_int_equal(sm_key_make(&f->keyer, SM_KEY_HASH, &c, c.args, NULL, &key, &fault),
                     SEMEL_E_RANGE);
    assert_int_equal(fault.line, 2);
    assert_int_equal(fault.column, 6);
    assert_int_equal(sm_fingerprint_make(&f->keyer, c.tool, c.args, c.args_text, &print, &fault),
                     SEMEL_E_RANGE);
    /* The keyer is as good as new afterwards. */
    key = key_of(f, &(call_text){SM_KEY_HASH, "s", NULL, "t", "{}", NULL});
    expect_key(&key.hash, "GBUYz1qoZ9HbDn5R8uTa1uHqUf7aCYWVJ3N6BJ8HJ4I");
}

/* The document whose canonical form is longest for its size still has a key. */
static void the_longest_canonical_form_has_a_key(void **state)
{
    fixture *f = *state;
    sm_buf b;
    sm_buf_init(&b, SM_JSON_BYTES_MAX);
    sm_buf_byte(&b, '[');
    while (b.len + 40 < SM_JSON_BYTES_MAX)
        sm_buf_printf(&b, "%s9007199254740993e292", b.len > 1 ? "," : "");
    sm_buf_byte(&b, ']');
    const sm_json *args;
    assert_int_equal(sm_json_read(&f->arena, sm_buf_view(&b), &sm_json_default_limits, &args, NULL),
                     SM_OK);
    sm_parsed_call c = {.scope = SM_STR("s"), .tool = SM_STR("t"), .args = args};
    sm_key key;
    sm_fault fault = {0};
    expect(sm_key_make(&f->keyer, SM_KEY_HASH, &c, args, NULL, &key, &fault) == SM_OK, "%s",
           fault.text);
    assert_true(f->keyer.preimage.len > 14 * b.len);
    sm_buf_fini(&b);
}

static void calls_are_checked_part_by_part(void **state)
{
    (void)state;
    static const struct {
        const char *scope, *step, *tool, *key;
        const char *word; /* NULL: the call is good */
    } rows[] = {
        {"default", NULL, "send_email", NULL, NULL},
        {"tenant/agent/run", "1", "stripe.charge", "invoice-7", NULL},
        {"a", "b", "c", "d", NULL},
        {"with space/and ~", " ", " ", " ", NULL},
        {"\xC3\xA9t\xC3\xA9/\xF0\x9F\x98\x80", "\xE2\x82\xAC", "\xE2\x82\xAC", "\xC3\xA9", NULL},
        {"a.b:c@d", NULL, "ns.tool-name_2", NULL, NULL},
        /* absent and empty */
        {NULL, NULL, "t", NULL, "scope is empty"},
        {"", NULL, "t", NULL, "scope is empty"},
        {"s", NULL, NULL, NULL, "tool is empty"},
        {"s", NULL, "", NULL, "tool is empty"},
        {"s", "", "t", NULL, "step is empty"},
        {"s", NULL, "t", "", "key is empty"},
        /* a good part does not excuse a bad one */
        {"s", "step", "", "key", "tool is empty"},
        {"", "step", "t", NULL, "scope is empty"},
        {"a/", "step", "t", NULL, "empty segment"},
        {"a/", NULL, "t", "key", "empty segment"},
        {"s", "", "t", "key", "step is empty"},
        /* segments */
        {"/", NULL, "t", NULL, "empty segment"},
        {"/a", NULL, "t", NULL, "empty segment"},
        {"a/", NULL, "t", NULL, "empty segment"},
        {"a//b", NULL, "t", NULL, "empty segment"},
        {"a/b/", NULL, "t", NULL, "empty segment"},
        /* control characters */
        {"a\nb", NULL, "t", NULL, "control character (0x0A) at byte 2"},
        {"s", NULL, "tool\t", NULL, "control character (0x09) at byte 5"},
        {"s", "\x7F", "t", NULL, "control character (0x7F) at byte 1"},
        {"s", NULL, "t", "twelve bytes\x1F", "control character (0x1F) at byte 13"},
        {"s", NULL, "\xC3\xA9\x01", NULL, "control character (0x01) at byte 3"},
        {"s", "1234567\x01", "t", NULL, "control character (0x01) at byte 8"},
        {"s", "12345678\x01", "t", NULL, "control character (0x01) at byte 9"},
        /* UTF-8 */
        {"s\xFF", NULL, "t", NULL, "scope is not valid UTF-8"},
        {"s", NULL, "\xC3", NULL, "tool is not valid UTF-8"},
        {"s", "\xED\xA0\x80", "t", NULL, "step is not valid UTF-8"},
        {"s", NULL, "t", "\xC0\xAF", "key is not valid UTF-8"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_parsed_call c = {.scope = sm_str_from(rows[i].scope),
                            .step = sm_str_from(rows[i].step),
                            .tool = sm_str_from(rows[i].tool),
                            .key = sm_str_from(rows[i].key)};
        sm_fault f = {0};
        sm_err e = sm_call_check(&c, &f);
        if (rows[i].word == NULL) {
            expect(e == SM_OK, "row %zu: %s", i, f.text);
        } else {
            expect(e == SEMEL_E_BAD_ARGUMENTS, "row %zu", i);
            expect(strstr(f.text, rows[i].word) != NULL, "row %zu: %s", i, f.text);
        }
    }
    sm_parsed_call nul = {.scope = SM_STR("a\0b"), .tool = SM_STR("t")};
    assert_int_equal(sm_call_check(&nul, NULL), SEMEL_E_BAD_ARGUMENTS);
}

/* Every byte, at every place that is looked at in one piece. */
static void every_byte_is_judged_the_same_at_every_place(void **state)
{
    (void)state;
    for (size_t n = 1; n < 20; n++) {
        for (size_t at = 0; at < n; at++) {
            for (int byte = 0; byte < 256; byte++) {
                char tool[20];
                memset(tool, 'x', sizeof tool);
                tool[at] = (char)byte;
                sm_parsed_call c = {.scope = SM_STR("s"), .tool = {tool, n}};
                bool good = byte >= 0x20 && byte < 0x7F;
                expect((sm_call_check(&c, NULL) == SM_OK) == good, "byte %02X at %zu of %zu",
                       (unsigned)byte, at, n);
            }
        }
    }
}

static void the_length_of_each_part_is_bounded(void **state)
{
    (void)state;
    char text[SM_KEY_MAX + SM_SCOPE_MAX];
    memset(text, 'x', sizeof text);
    static const struct {
        size_t part, most;
    } rows[] = {{0, SM_SCOPE_MAX}, {1, SM_STEP_MAX}, {2, SM_TOOL_MAX}, {3, SM_KEY_MAX}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (size_t over = 0; over < 2; over++) {
            sm_str part = {text, rows[i].most + over};
            sm_parsed_call c = {.scope = i == 0 ? part : SM_STR("s"),
                                .step = i == 1 ? part : (sm_str){0},
                                .tool = i == 2 ? part : SM_STR("t"),
                                .key = i == 3 ? part : (sm_str){0}};
            sm_fault f = {0};
            assert_int_equal(sm_call_check(&c, &f), over ? SEMEL_E_BAD_ARGUMENTS : SM_OK);
            if (over)
                assert_non_null(strstr(f.text, "at most"));
        }
    }
}

static void resource_is(fixture *f, const char *scope, const char *const *values, size_t n,
                        const char *expected)
{
    const sm_json *documents[4];
    for (size_t i = 0; i < n; i++)
        documents[i] = values[i] == NULL ? NULL : document(&f->arena, values[i]);
    sm_resource r;
    assert_int_equal(
        sm_resource_make(&f->keyer, sm_str_from(scope), SM_STR("file"), documents, n, &r, NULL),
        SM_OK);
    char text[SM_HASH_TEXT + 1];
    sm_hash_text(&r.hash, text);
    assert_string_equal(text, expected);
}

static void resources_are_the_tenants_and_of_values(void **state)
{
    fixture *f = *state;
    static const char one[] = "ba9lsUAZyzHQPj9_WDbe3OPtOah4463s1vLr2qfgbR8",
                      three[] = "y_-EvCRSC1tVSsky2QXmPMXUSyblbf8mwCb3YJC9xPo";
    resource_is(f, "acme", (const char *[]){"\"/a\""}, 1, one);
    resource_is(f, "acme/agent/run", (const char *[]){" \"\\u002fa\""}, 1, one);
    resource_is(f, "acme", (const char *[]){"\"/a\"", NULL, "{\"b\":2,\"a\":1.0}"}, 3, three);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_keyer(keys_are_those_of_the_documented_encoding),
        with_keyer(fingerprints_are_those_of_the_documented_encoding),
        with_keyer(downstream_keys_are_those_of_the_documented_encoding),
        with_keyer(each_strategy_has_its_own_parts),
        with_keyer(no_two_of_these_calls_share_a_key),
        with_keyer(bytes_that_move_between_parts_change_the_key),
        with_keyer(an_absent_step_is_not_an_empty_one),
        with_keyer(equal_arguments_share_a_key_however_they_are_written),
        with_keyer(a_nonce_makes_every_call_its_own),
        with_keyer(a_fingerprint_tells_tools_and_arguments_apart),
        with_keyer(a_downstream_key_varies_and_never_is_the_key),
        with_keyer(a_number_without_a_form_has_no_key),
        with_keyer(the_longest_canonical_form_has_a_key),
        cmocka_unit_test(calls_are_checked_part_by_part),
        cmocka_unit_test(every_byte_is_judged_the_same_at_every_place),
        cmocka_unit_test(the_length_of_each_part_is_bounded),
        with_keyer(resources_are_the_tenants_and_of_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
