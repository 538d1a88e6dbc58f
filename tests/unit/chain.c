/* The hash of an event covers all that it says. And handles, as people copy them. */
#include "unit.h"

#include <openssl/evp.h>

#include "core/chain.h"
#include "core/handle.h"

static semel_event event(void)
{
    return (semel_event){.id = 1,
                         .generation = 1,
                         .shard = 1,
                         .index = 1,
                         .at = 1,
                         .what = SM_STR("started"),
                         .actor = SM_STR("ann"),
                         .body = SM_STR("{}")};
}

static void each_part_of_an_event_is_in_its_hash(void **state)
{
    (void)state;
    sm_digest d;
    sm_buf scratch;
    assert_int_equal(sm_digest_init(&d), SM_OK);
    sm_buf_init(&scratch, 4096);
    semel_event events[11];
    for (size_t i = 0; i < COUNT(events); i++)
        events[i] = event();
    events[1].id = 2;
    events[2].generation = 2;
    events[3].shard = 2;
    events[4].index = 2;
    events[5].at = 2;
    events[6].what = SM_STR("starteda");
    events[6].actor = SM_STR("nn"); /* where one text ends counts */
    events[7].actor = (sm_str){0};
    events[8].body = SM_STR("[]");
    events[9].prev.b[31] = 1;
    events[10].what = SM_STR("ended");
    for (size_t i = 0; i < COUNT(events); i++) {
        assert_int_equal(sm_chain_hash(&d, &scratch, &events[i]), SM_OK);
        for (size_t k = 0; k < i; k++)
            expect(memcmp(&events[i].hash, &events[k].hash, sizeof(sm_hash)) != 0, "%zu and %zu", i,
                   k);
    }
    sm_buf_fini(&scratch);
    sm_digest_fini(&d);
}

static void what_cannot_be_hashed_is_told(void **state)
{
    (void)state;
    sm_digest d;
    sm_buf scratch;
    semel_event e = event();
    uint8_t shard;
    assert_int_equal(sm_digest_init(&d), SM_OK);
    sm_buf_init(&scratch, 16);
    assert_int_equal(sm_chain_hash(&d, &scratch, &e), SEMEL_E_LIMIT);
    sm_buf_fini(&scratch);
    sm_buf_init(&scratch, 16);
    assert_int_equal(sm_seal_hash(&d, &scratch, (sm_str){0}, &e), SEMEL_E_LIMIT);
    sm_buf_fini(&scratch);
    sm_digest_fini(&d);
    d.ctx = EVP_MD_CTX_new();
    assert_int_equal(sm_scope_shard(&d, SM_STR("shop"), &shard), SEMEL_E_CRYPTO);
    sm_digest_fini(&d);
}

static void the_largest_numbers_of_a_handle_are_read(void **state)
{
    (void)state;
    const uint64_t largest = UINT64_C(999999999999999999);
    sm_handle h = {.shard = 7, .id = 1, .generation = largest, .request = largest}, back;
    char text[SM_HANDLE_TEXT];
    sm_handle_request(&h, text);
    expect(sm_handle_parse("ap_", sm_str_from(text), &back), "%s", text);
    assert_true(back.generation == largest && back.request == largest);
    h.request++;
    sm_handle_request(&h, text);
    expect(!sm_handle_parse("ap_", sm_str_from(text), &back), "%s", text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_part_of_an_event_is_in_its_hash),
        cmocka_unit_test(what_cannot_be_hashed_is_told),
        cmocka_unit_test(the_largest_numbers_of_a_handle_are_read),
    };
    return cmocka_run_group_tests_name("chain", tests, NULL, NULL);
}
