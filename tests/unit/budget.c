/* Accounts: which calls share a budget, and until when. */
#include "unit.h"

#include "core/budget.h"

#define HOUR ((int64_t)3600000)
#define DAY  (24 * HOUR)

static sm_account account(int per, const char *of, const char *scope, int64_t now, int64_t *until)
{
    sm_digest d;
    sm_buf scratch;
    sm_account a;
    sm_budget_rule rule = {.per = per, .calls = 1, .tokens = -1, .of = sm_str_from(of)};
    sm_buf_init(&scratch, 4096);
    assert_int_equal(sm_digest_init(&d), SM_OK);
    assert_int_equal(sm_account_of(&d, &scratch, &rule, sm_str_from(scope), now, &a, until), SM_OK);
    sm_digest_fini(&d);
    sm_buf_fini(&scratch);
    return a;
}

static void who_shares_a_budget(void **state)
{
    (void)state;
    const struct {
        int per;
        const char *scope, *other;
        bool same;
    } rows[] = {
        {SM_PER_RUN, "acme/bot/1", "acme/bot/1", true},
        {SM_PER_RUN, "acme/bot/1", "acme/bot/2", false},
        {SM_PER_AGENT, "acme/bot/1", "acme/bot/2", true},
        {SM_PER_AGENT, "acme/bot/1", "acme/bot/2/child", true},
        {SM_PER_AGENT, "acme/bot/1", "acme/other/1", false},
        {SM_PER_AGENT, "acme/bot", "acme/bot/1", true},
        {SM_PER_TENANT, "acme/bot/1", "acme/other/1", true},
        {SM_PER_TENANT, "acme", "acme/other/1", true},
        {SM_PER_TENANT, "acme", "acm", false},
        {SM_PER_HOUR, "acme/bot/1", "acme/other/1", true},
        {SM_PER_DAY, "acme/bot/1", "other/bot/1", false},
    };
    int64_t until;
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_account a = account(rows[i].per, "mail", rows[i].scope, 1000 * DAY, &until);
        sm_account b = account(rows[i].per, "mail", rows[i].other, 1000 * DAY, &until);
        sm_account c = account(rows[i].per, "", rows[i].scope, 1000 * DAY, &until);
        sm_account d = account((rows[i].per + 1) % 5, "mail", rows[i].scope, 1000 * DAY, &until);
        expect((memcmp(a.id, b.id, sizeof a.id) == 0) == rows[i].same, "row %zu", i);
        expect(memcmp(a.id, c.id, sizeof a.id) != 0, "row %zu: of another tool", i);
        expect(memcmp(a.id, d.id, sizeof a.id) != 0, "row %zu: for something else", i);
        assert_int_equal(a.measures, 1 << SM_CALLS);
    }
    /* Where the tool's name ends is part of it. */
    sm_account a = account(SM_PER_RUN, "mail", "x", 0, &until);
    sm_account b = account(SM_PER_RUN, "mai", "lx", 0, &until);
    assert_memory_not_equal(a.id, b.id, sizeof a.id);
}

static void hours_and_days_begin_anew(void **state)
{
    (void)state;
    int64_t start = 20000 * DAY, until, later;
    sm_account a = account(SM_PER_HOUR, "", "x", start, &until);
    assert_true(until > start + HOUR);
    sm_account b = account(SM_PER_HOUR, "", "x", start + HOUR - 1, &later);
    assert_memory_equal(a.id, b.id, sizeof a.id);
    assert_int_equal(until, later);
    b = account(SM_PER_HOUR, "", "x", start + HOUR, &until);
    assert_memory_not_equal(a.id, b.id, sizeof a.id);
    a = account(SM_PER_DAY, "", "x", start, &until);
    b = account(SM_PER_DAY, "", "x", start + DAY - 1, &until);
    assert_memory_equal(a.id, b.id, sizeof a.id);
    b = account(SM_PER_DAY, "", "x", start + DAY, &until);
    assert_memory_not_equal(a.id, b.id, sizeof a.id);
    a = account(SM_PER_RUN, "", "x", start, &until);
    b = account(SM_PER_RUN, "", "x", start + 50 * DAY, &later);
    assert_memory_equal(a.id, b.id, sizeof a.id);
    assert_int_equal(later - until, 50 * DAY);
    const sm_budget_rule hour = {.per = SM_PER_HOUR}, day = {.per = SM_PER_DAY},
                         run = {.per = SM_PER_RUN};
    assert_int_equal(sm_budget_ends(&hour, start), start + HOUR);
    assert_int_equal(sm_budget_ends(&hour, start + HOUR - 1), start + HOUR);
    assert_int_equal(sm_budget_ends(&day, start + HOUR), start + DAY);
    assert_int_equal(sm_budget_ends(&run, start), INT64_MAX);
}

static void a_counter_is_named_by_account_and_measure(void **state)
{
    (void)state;
    sm_account a = {.id = {0xAB, 1}};
    char text[SM_ACCOUNT_NAME];
    sm_str name = sm_account_name(&a, SM_TOKENS, text);
    expect_text(name, "budget:ab010000000000000000000000000000:tokens");
    name = sm_account_name(&a, SM_CALLS, text);
    expect_text(name, "budget:ab010000000000000000000000000000:calls");
}

/* What an answer says of its cost may be anything. What it takes for more than anything takes is
 * recorded as not to be read. */
static void what_an_answer_says_that_it_cost_is_read_or_marked(void **state)
{
    (void)state;
    static const uint64_t unreadable = UINT64_MAX - 1;
    const struct {
        const char *value, *cost;
        uint64_t tokens;
    } rows[] = {
        {"null", NULL, 0},
        {"0", "0", SEMEL_TOKENS_NONE},
        {"7", "7", 7},
        {"1e3", "1e3", 1000},
        {"1000000000000000", "1000000000000000", 1000000000000000},
        {"1000000000000001", "1000000000000001", unreadable},
        {"9223372036854775807", "9223372036854775807", unreadable},
        {"1e30", "1e30", unreadable},
        {"-7", "-7", unreadable},
        {"0.5", "0.5", unreadable},
        {"\"7\"", "7", unreadable},
        {"true", "?", unreadable},
        {"[7]", "?", unreadable},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_arena a;
        const sm_json *value;
        semel_outcome o = {.size = sizeof o};
        sm_arena_init(&a, 1 << 20);
        assert_int_equal(
            sm_json_read(&a, sm_str_from(rows[i].value), &sm_json_args_limits, &value, NULL),
            SM_OK);
        sm_spent_take(value, value, &o);
        expect(o.tokens == rows[i].tokens, "%s: %llu", rows[i].value, (unsigned long long)o.tokens);
        expect(rows[i].cost == NULL ? o.cost.p == NULL : sm_str_is(o.cost, rows[i].cost),
               "%s: %.*s", rows[i].value, SM_FMT(o.cost));
        sm_arena_fini(&a);
    }
    semel_outcome o = {.size = sizeof o};
    sm_spent_take(NULL, NULL, &o);
    assert_true(o.cost.p == NULL && o.tokens == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_shares_a_budget),
        cmocka_unit_test(hours_and_days_begin_anew),
        cmocka_unit_test(a_counter_is_named_by_account_and_measure),
        cmocka_unit_test(what_an_answer_says_that_it_cost_is_read_or_marked),
    };
    return cmocka_run_group_tests_name("budget", tests, NULL, NULL);
}
