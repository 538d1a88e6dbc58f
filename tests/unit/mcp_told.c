/* When an equal call is a deliberate repeat: the times that prove it, and what takes proof away. */
#include "unit.h"

#include <pthread.h>

#include "core/contract.h"
#include "mcp/session/session.h"

#define NOW_MS ((int64_t)1000000)
#define EFFECT 7u
#define TICKET 100u
#define OTHERS (MCP_TOLD + 1u)

typedef struct answer {
    int64_t asked_ms, taken_ms; /* -1: it was not taken */
    bool done;
} answer;

static const sm_contract usual = {.repeat_after_ms = 2000, .delivered_within_ms = 1000};

static mcp_session *session_new(void)
{
    mcp_session *s = calloc(1, sizeof *s);
    assert_non_null(s);
    pthread_mutex_init(&s->told_lock, NULL);
    return s;
}

static void session_free(mcp_session *s)
{
    pthread_mutex_destroy(&s->told_lock);
    free(s);
}

static void tell_as(mcp_session *s, uint64_t effect, uint64_t ticket, sm_str id, const answer *a)
{
    mcp_exchange x = {.effect = effect, .done = a->done, .id = id, .greeting = s->greeting};
    x.asked_ms = NOW_MS + a->asked_ms;
    memcpy(x.handle, "ef_x", 5);
    mcp_told_add(s, &x, ticket);
    if (a->taken_ms >= 0)
        mcp_session_taken(s, ticket, NOW_MS + a->taken_ms);
}

static void tell(mcp_session *s, uint64_t effect, uint64_t ticket, const answer *a)
{
    tell_as(s, effect, ticket, SM_STR("1"), a);
}

static bool repeats(mcp_session *s, int64_t at_ms, const sm_contract *c)
{
    char handle[SM_HANDLE_TEXT] = "";
    mcp_exchange x = {.asked_ms = NOW_MS + at_ms};
    bool found = mcp_told_of(s, &x, EFFECT, c, handle);
    assert_true(!found || strcmp(handle, "ef_x") == 0);
    return found;
}

static void only_an_answer_that_was_taken_quickly_and_long_ago_is_proof(void **state)
{
    (void)state;
    static const struct {
        answer a;
        int64_t repeat_ms;
        bool meant;
    } rows[] = {
        {{0, 0, true}, 2000, true},     {{0, 999, true}, 2999, true},
        {{0, 1000, true}, 9000, false}, {{0, 5000, true}, 99000, false},
        {{0, 999, true}, 2998, false},  {{0, 10, true}, 500, false},
        {{0, 10, false}, 9000, false},  {{0, -1, true}, 9000, false},
        {{0, 500, true}, 400, false}, /* it was asked before the answer was taken */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        mcp_session *s = session_new();
        tell(s, EFFECT, TICKET, &rows[i].a);
        expect(repeats(s, rows[i].repeat_ms, &usual) == rows[i].meant, "row %zu", i);
        session_free(s);
    }
}

static void the_contract_says_how_long_an_answer_may_take(void **state)
{
    (void)state;
    mcp_session *s = session_new();
    sm_contract c = {.repeat_after_ms = 0, .delivered_within_ms = 5000};
    tell(s, EFFECT, TICKET, &(answer){0, 4000, true});
    assert_true(repeats(s, 4000, &c));
    c.delivered_within_ms = 0;
    assert_false(repeats(s, 4000, &c));
    tell(s, EFFECT, TICKET + 1, &(answer){5000, 5000, true});
    assert_false(repeats(s, 9000, &c)); /* 0: never */
    session_free(s);
}

static void the_newest_answer_counts(void **state)
{
    (void)state;
    mcp_session *s = session_new();
    /* Late, then replayed at once: now it is known. */
    tell(s, EFFECT, TICKET, &(answer){0, 6000, true});
    assert_false(repeats(s, 9000, &usual));
    tell(s, EFFECT, TICKET + 1, &(answer){9000, 9001, true});
    assert_true(repeats(s, 12000, &usual));
    /* Then it gets an answer that says to come back: the next call is a retry. */
    tell(s, EFFECT, TICKET + 2, &(answer){12000, 12001, false});
    assert_false(repeats(s, 15000, &usual));
    session_free(s);
}

static void what_cannot_be_known_is_no_proof(void **state)
{
    (void)state;
    mcp_session *s = session_new();
    mcp_session_taken(s, TICKET, NOW_MS);
    tell(s, EFFECT, 0, &(answer){0, -1, true}); /* without a ticket, as over HTTP */
    assert_false(repeats(s, 9000, &usual));
    assert_true(mcp_told_about(s, EFFECT));

    tell(s, EFFECT, TICKET + 1, &(answer){0, 1, true});
    assert_true(repeats(s, 9000, &usual));
    mcp_told_canceled(s, SM_STR("1"));
    assert_false(repeats(s, 9000, &usual));

    tell(s, EFFECT, TICKET + 2, &(answer){0, 1, true});
    mcp_told_forget(s);
    assert_false(repeats(s, 9000, &usual));

    /* The answer to what the client before had asked for. */
    mcp_exchange x = {.effect = EFFECT, .done = true, .id = SM_STR("1"), .greeting = s->greeting};
    memcpy(x.handle, "ef_x", 5);
    mcp_told_forget(s);
    mcp_told_add(s, &x, TICKET + 2);
    assert_false(mcp_told_about(s, EFFECT));

    tell(s, EFFECT, TICKET + 3, &(answer){0, 1, true});
    for (uint64_t i = 1; i < OTHERS; i++)
        tell(s, EFFECT + i, TICKET + 3 + i, &(answer){0, 1, true});
    assert_false(repeats(s, 9000, &usual)); /* there was no room for it any more */
    session_free(s);
}

static void a_cancel_that_crosses_the_answer_takes_its_proof_away(void **state)
{
    (void)state;
    mcp_session *s = session_new();
    tell(s, EFFECT, TICKET, &(answer){0, -1, true});
    mcp_told_canceled(s, SM_STR("1"));
    mcp_session_taken(s, TICKET, NOW_MS + 1);
    assert_false(repeats(s, 9000, &usual));
    session_free(s);
}

static void a_cancel_may_spell_the_id_otherwise(void **state)
{
    (void)state;
    static const struct {
        const char *asked, *canceled;
        bool meant;
    } rows[] = {
        {"\"req/1\"", "\"req/1\"", false},   {"\"req/1\"", "\"req\\/1\"", false},
        {"\"req\\/1\"", "\"req/1\"", false}, {"\"\\u0065\"", "\"e\"", false},
        {"\"req/1\"", "\"req/2\"", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        mcp_session *s = session_new();
        tell_as(s, EFFECT, TICKET, sm_str_from(rows[i].asked), &(answer){0, 1, true});
        mcp_told_canceled(s, sm_str_from(rows[i].canceled));
        expect(repeats(s, 9000, &usual) == rows[i].meant, "row %zu", i);
        session_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_an_answer_that_was_taken_quickly_and_long_ago_is_proof),
        cmocka_unit_test(the_contract_says_how_long_an_answer_may_take),
        cmocka_unit_test(the_newest_answer_counts),
        cmocka_unit_test(what_cannot_be_known_is_no_proof),
        cmocka_unit_test(a_cancel_that_crosses_the_answer_takes_its_proof_away),
        cmocka_unit_test(a_cancel_may_spell_the_id_otherwise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
