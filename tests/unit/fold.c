/* Which names lenient readers take for one another. */
#include "unit.h"

#include "base/fold.h"

static void names_are_alike_that_some_reader_takes_for_one_another(void **state)
{
    (void)state;
    static const struct {
        const char *what, *a, *b;
        bool alike;
    } rows[] = {
        {"itself", "method", "method", true},
        {"case", "method", "METHod", true},
        {"the long s of Go's encoding/json", "params", "param\xC5\xBF", true},
        {"the Kelvin sign", "token",
         "to\xE2\x84\xAA"
         "en",
         true},
        {"dotless i", "id",
         "\xC4\xB1"
         "d",
         true},
        {"dotted I", "id",
         "\xC4\xB0"
         "D",
         true},
        {"names of Python's models", "protocolVersion", "protocol_version", true},
        {"a field that has an alias", "_meta", "meta", true},
        {"dashes", "requestId", "Request-Id", true},
        {"a byte order mark", "method", "\xEF\xBB\xBFmethod", true},
        {"a blank", "method", " method\t", true},
        {"nothing that is seen", "method", "met\xE2\x80\x8Bhod", true},
        {"what could not be decoded", "method", "met\xEF\xBF\xBDhod", true},
        {"another name", "method", "methods", false},
        {"the beginning of it", "method", "meth", false},
        {"a letter that only looks like one of it", "id",
         "\xD1\x96"
         "d",
         false},
        {"accents", "method", "m\xC3\xA9thod", false},
        {"marks that count", "a/b", "a.b", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_str a = sm_str_from(rows[i].a), b = sm_str_from(rows[i].b);
        expect(sm_fold_alike(a, b) == rows[i].alike, "%s", rows[i].what);
        expect(sm_fold_alike(b, a) == rows[i].alike, "%s, the other way round", rows[i].what);
    }
    assert_true(sm_fold_alike((sm_str){"a\0", 2}, SM_STR("a")));
    assert_true(sm_fold_alike((sm_str){0}, SM_STR("_-")));
}

/* Every code point that folds to a letter of ASCII, by Unicode's tables and by those who uppercase.
 */
static void no_other_character_folds_to_a_letter(void **state)
{
    (void)state;
    unsigned found = 0;
    for (uint32_t cp = 0x80; cp <= 0x10FFFF; cp++)
        found += sm_fold(cp) >= 'a' && sm_fold(cp) <= 'z';
    assert_int_equal(found, 4);
    assert_int_equal(sm_fold(0xD800), 0);
    assert_int_equal(sm_fold(0), 0);
    assert_int_equal(sm_fold('/'), '/');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_alike_that_some_reader_takes_for_one_another),
        cmocka_unit_test(no_other_character_folds_to_a_letter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
