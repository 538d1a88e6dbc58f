/* Operations at a door without HTTP: one reply for each, parameters in the body, and who may what.
 */
#include "api/operation.h"

#include "ledger.h"

/* A door that keeps what it replied. */
typedef struct asked {
    sm_operation op;
    sm_arena arena;
    int replies, status;
    char code[64], text[4096];
} asked;

static asked *asked_of(sm_operation *op)
{
    return (asked *)(void *)op; /* its first member */
}

static void keep(asked *q, int status, const char *code, sm_str text)
{
    q->replies++;
    q->status = status;
    snprintf(q->code, sizeof q->code, "%s", code);
    snprintf(q->text, sizeof q->text, "%.*s", SM_FMT(text));
}

static void answer(sm_operation *op, const semel_answer *a)
{
    sm_str text = a->verdict == SEMEL_REFUSED ? a->message : a->result;
    keep(asked_of(op), 0, semel_code_name(a->code), text);
}

static void json(sm_operation *op, sm_str text)
{
    keep(asked_of(op), 200, "", text);
}

static void problem(sm_operation *op, int status, const char *code, const char *advice,
                    const char *message)
{
    assert_non_null(advice);
    keep(asked_of(op), status, code, sm_str_from(message));
}

static const sm_door door = {.answer = answer, .json = json, .problem = problem};

typedef struct place {
    ledger l;
    sm_waits *waits;
    asked q;
} place;

#define CONTRACT                                                                                   \
    "version: 1\n"                                                                                 \
    "tools:\n"                                                                                     \
    "  pay: { class: write }\n"                                                                    \
    "  ask: { class: write, approval: { via: gateway } }\n"

static int start(void **state)
{
    place *p = calloc(1, sizeof *p);
    p->l = new_ledger(CONTRACT);
    assert_int_equal(sm_waits_new(p->l.s, &p->waits), SM_OK);
    sm_arena_init(&p->q.arena, SM_ARENA_MAX);
    *state = p;
    return 0;
}

static int end(void **state)
{
    place *p = *state;
    sm_arena_fini(&p->q.arena);
    sm_waits_free(p->waits);
    end_ledger(&p->l);
    free(p);
    return 0;
}

/* Does an operation; the fields of p->q.op that a test sets stay. */
static const asked *does(place *p, sm_api_fn *what, const char *name, const char *body)
{
    static const char *const taken[] = {"op", NULL};
    p->q.replies = 0;
    sm_operation *op = &p->q.op;
    op->door = &door;
    op->ledger = p->l.s;
    op->waits = p->waits;
    op->arena = &p->q.arena;
    op->name = sm_str_from(name);
    op->body = sm_str_from(body);
    op->taken = taken;
    what(op, p->l.a);
    assert_int_equal(p->q.replies, 1);
    return &p->q;
}

static void expect_told(const asked *q, int status, const char *code, const char *text)
{
    expect(q->status == status && strcmp(q->code, code) == 0 && strstr(q->text, text) != NULL,
           "%d %s %s", q->status, q->code, q->text);
}

/* ---- replies ---------------------------------------------------------------------------------*/

static void every_operation_replies_once_whatever_it_is_asked(void **state)
{
    static sm_api_fn *const all[] = {
        sm_api_commit,  sm_api_renew,  sm_api_approve, sm_api_deny,      sm_api_cancel,
        sm_api_resolve, sm_api_forget, sm_api_stop,    sm_api_resume,    sm_api_reset,
        sm_api_effects, sm_api_effect, sm_api_events,  sm_api_approvals, sm_api_tools,
        sm_api_scopes,  sm_api_scope,  sm_api_spend,   sm_api_stops,     sm_api_undo_plan,
    };
    static const char *const bodies[] = {
        "", "{}", "{\"op\":1}", "{\"x\":1}", "[", "{\"limit\":\"x\"}", "{\"reason\":\"\"}",
    };
    place *p = *state;
    for (size_t i = 0; i < COUNT(all); i++)
        for (size_t k = 0; k < COUNT(bodies); k++) {
            does(p, all[i], NULL, bodies[k]);
            does(p, all[i], "ef_1", bodies[k]);
        }
}

static void a_claim_is_renewed_and_committed(void **state)
{
    place *p = *state;
    char body[300];
    begin(&p->l, "pay", "{\"n\":1}");
    snprintf(body, sizeof body, "{\"op\":\"renew\",\"claim\":\"%s\",\"lease_ms\":60000}",
             p->l.claim);
    expect_told(does(p, sm_api_renew, NULL, body), 0, "", "");
    snprintf(body, sizeof body, "{\"claim\":\"%s\",\"kind\":\"success\",\"value\":{\"id\" : 7}}",
             p->l.claim);
    expect_told(does(p, sm_api_commit, NULL, body), 0, "", "committed");
    begin(&p->l, "pay", "{\"n\":1}");
    assert_int_equal(p->l.a->verdict, SEMEL_REPLAY);
    expect_text(p->l.a->outcome.value, "{\"id\" : 7}");
}

/* ---- parameters ------------------------------------------------------------------------------*/

static void parameters_are_members_of_the_body(void **state)
{
    place *p = *state;
    begin(&p->l, "pay", "{\"n\":1}");
    begin(&p->l, "pay", "{\"n\":2}");
    expect_told(does(p, sm_api_effects, NULL, "{\"op\":\"effects\",\"limit\":1}"), 200, "",
                "\"cursor\":\"");
    expect_told(does(p, sm_api_effects, NULL, ""), 200, "", "\"state\":\"running\"");
    /* An empty text is none, and a position may be a number. */
    expect_told(does(p, sm_api_effects, NULL, "{\"cursor\":\"\",\"scope\":\"\"}"), 200, "",
                "\"tool\":\"pay\"");
    expect_told(does(p, sm_api_events, p->l.effect, "{\"after\":1000000}"), 200, "",
                "{\"items\":[]}");
    static const struct {
        const char *body, *says;
    } rows[] = {
        {"{\"limit\":\"1\"}", "\"limit\" must be a whole number from 1 to 1000, not a string"},
        {"{\"limit\":0}", "\"limit\" must be a whole number from 1 to 1000, not a number (0)"},
        {"{\"scope\":7}", "\"scope\" must be a string, not a number (7)"},
        {"{\"scop\":\"a\"}", "did you mean \"scope\"?"},
        {"{\"scope\":\"a\\u0000\"}", "\"scope\" has a NUL character"},
        {"{\"cursor\":\"x\"}", SM_BAD_CURSOR},
        {"{\"state\":\"sucseeded\"}", "did you mean succeeded?"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_told(does(p, sm_api_effects, NULL, rows[i].body), 400, "BAD_ARGUMENTS",
                    rows[i].says);
}

/* ---- who may what ----------------------------------------------------------------------------*/

static void what_is_outside_of_a_scope_is_not_there(void **state)
{
    place *p = *state;
    char body[300];
    begin(&p->l, "pay", "{\"n\":1}");
    p->q.op.bound = SM_STR("other");
    expect_told(does(p, sm_api_effect, p->l.effect, ""), 0, "NOT_FOUND", "");
    expect_told(does(p, sm_api_scope, "test", ""), 404, "NOT_FOUND", "");
    expect_told(does(p, sm_api_effects, NULL, ""), 200, "", "{\"items\":[]}");
    expect_told(does(p, sm_api_effects, NULL, "{\"scope\":\"test\"}"), 403, "FORBIDDEN", "other");
    expect_told(does(p, sm_api_undo_plan, "test", ""), 403, "FORBIDDEN", "other");
    expect_told(does(p, sm_api_stop, NULL, "{\"all\":true,\"reason\":\"r\"}"), 403, "FORBIDDEN",
                "other");
    snprintf(body, sizeof body, "{\"claim\":\"%s\",\"kind\":\"success\"}", p->l.claim);
    expect_told(does(p, sm_api_commit, NULL, body), 0, "BAD_CLAIM", "");
    p->q.op.bound = SM_STR("test");
    expect_told(does(p, sm_api_commit, NULL, body), 0, "", "committed");
}

static void only_who_was_authenticated_approves_via_the_gateway(void **state)
{
    place *p = *state;
    char body[300];
    begin(&p->l, "ask", "{\"n\":1}");
    snprintf(body, sizeof body, "{\"request\":\"%s\"}", p->l.request);
    p->q.op.actor = SM_STR("alice");
    expect_told(does(p, sm_api_approve, p->l.effect, body), 0, "FORBIDDEN", "");
    p->q.op.known = true;
    expect_told(does(p, sm_api_approve, p->l.effect, body), 0, "", "");
}

static void without_an_executor_nothing_is_compensated(void **state)
{
    place *p = *state;
    begin(&p->l, "pay", "{\"n\":1}");
    expect_told(
        does(p, sm_api_resolve, p->l.effect, "{\"result\":\"compensate\",\"evidence\":\"e\"}"), 422,
        "BAD_ARGUMENTS", "nothing is executed here");
}

#define with_place(test) cmocka_unit_test_setup_teardown(test, start, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_place(every_operation_replies_once_whatever_it_is_asked),
        with_place(a_claim_is_renewed_and_committed),
        with_place(parameters_are_members_of_the_body),
        with_place(what_is_outside_of_a_scope_is_not_there),
        with_place(only_who_was_authenticated_approves_via_the_gateway),
        with_place(without_an_executor_nothing_is_compensated),
    };
    return run_on_stores(tests, COUNT(tests), NULL, 0, NULL, 0);
}
