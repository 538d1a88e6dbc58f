/*
 * The states of the gateway's objects: which of them can be, and that what cannot be is seen. The
 * objects assert it themselves at every step, in all tests that use a gateway.
 */
#include "unit.h"

#include "gateway/http/server.h"
#include "gateway/mcp/mcp.h"
#include "gateway/run/run.h"

/* ---- requests --------------------------------------------------------------------------------*/

/* A request in this state, sound in all else. */
static void make_request(gw_inner *q, gw_conn *conn, gw_request_stage stage, gw_presence client)
{
    static const gw_route route;
    memset(q, 0, sizeof *q);
    q->conn = stage >= GW_DELIVERED ? NULL : conn;
    q->r.route = &route;
    q->status = stage == GW_DELIVERED ? 200 : 0;
    conn->held = stage == GW_SUSPENDED ? q : NULL;
    q->stage = stage;
    q->r.client = client;
}

static void of_a_request_only_some_states_can_be(void **state)
{
    (void)state;
    /* For each stage: whether its client can be here, given up, unheard, gone, lost. */
    static const char *const can[] = {
        [GW_AT_HEAD] = "x....",    [GW_AT_BODY] = "x....",   [GW_SWALLOWS] = "x....",
        [GW_AT_HANDLER] = "x....", [GW_ORPHANED] = "..xxx",  [GW_SUSPENDED] = "xx...",
        [GW_AWAKE] = "xx.xx",      [GW_DELIVERED] = "xx.xx", [GW_LEFT] = "xx.xx",
    };
    gw_inner q;
    gw_conn conn = {0};
    for (unsigned stage = 0; stage < COUNT(can); stage++) {
        for (unsigned client = 0; client <= GW_LOST; client++) {
            make_request(&q, &conn, (gw_request_stage)stage, (gw_presence)client);
            const char *flaw = gw_inner_flaw(&q);
            expect((flaw == NULL) == (can[stage][client] == 'x'), "stage %u, client %u: %s", stage,
                   client, flaw == NULL ? "sound" : flaw);
        }
    }
}

static void of_a_request_flaws_are_seen(void **state)
{
    (void)state;
    gw_inner q;
    gw_conn conn = {0};
    make_request(&q, &conn, GW_SUSPENDED, GW_HERE);
    assert_null(gw_inner_flaw(&q));
    conn.held = NULL;
    assert_non_null(gw_inner_flaw(&q));
    make_request(&q, &conn, GW_DELIVERED, GW_HERE);
    q.status = 0;
    assert_non_null(gw_inner_flaw(&q));
    make_request(&q, &conn, GW_LEFT, GW_GONE);
    q.conn = &conn;
    assert_non_null(gw_inner_flaw(&q));
    make_request(&q, &conn, GW_AWAKE, GW_HERE);
    q.r.route = NULL;
    assert_non_null(gw_inner_flaw(&q));
    make_request(&q, &conn, GW_AT_HANDLER, GW_HERE);
    q.flow = (gw_flow *)(void *)&conn;
    assert_non_null(gw_inner_flaw(&q));
}

/* ---- channels --------------------------------------------------------------------------------*/

static void of_a_channel_only_some_states_can_be(void **state)
{
    (void)state;
    gw_request r = {0};
    gw_talk talk = {0};
    char *argv[] = {NULL};
    gw_site child = {.argv = argv}, remote = {0};
    for (unsigned kind = 0; kind <= GW_CH_DELETE; kind++) {
        for (unsigned at = 0; at <= GW_CH_ANSWERED; at++) {
            mcp_channel c = {.site = &child,
                             .kind = (gw_channel_kind)kind,
                             .state = (gw_channel_state)at,
                             .r = at == GW_CH_ANSWERED ? NULL : &r,
                             .talk = at == GW_CH_FLOWS ? &talk : NULL};
            bool can = kind != GW_CH_DELETE || at != GW_CH_FLOWS;
            bool ours = kind == GW_CH_OPENING || kind == GW_CH_STREAM;
            expect((gw_channel_flaw(&c) == NULL) == can, "kind %u, state %u", kind, at);
            c.site = &remote;
            expect((gw_channel_flaw(&c) == NULL) == (can && !ours), "remote: kind %u, state %u",
                   kind, at);
        }
    }
}

static void of_a_channel_flaws_are_seen(void **state)
{
    (void)state;
    gw_request r = {0};
    gw_talk talk = {0};
    gw_site site = {0};
    gw_leaving *leaving = (gw_leaving *)(void *)&talk;
    const mcp_channel rows[] = {
        {.site = &site, .state = GW_CH_WAITS},
        {.site = &site, .state = GW_CH_FLOWS, .r = &r},
        {.site = &site, .state = GW_CH_ANSWERED, .r = &r},
        {.site = &site, .state = GW_CH_ANSWERED, .talk = &talk},
        {.site = &site, .state = GW_CH_ANSWERED, .kind = GW_CH_DELETE, .leaving = leaving},
        {.site = &site, .state = GW_CH_WAITS, .r = &r, .leaving = leaving},
        {.site = &site, .state = GW_CH_WAITS, .r = &r, .kind = GW_CH_DELETE, .talk = &talk},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect(gw_channel_flaw(&rows[i]) != NULL, "row %zu", i);
    const mcp_channel leaves = {.site = &site, .r = &r, .kind = GW_CH_DELETE, .leaving = leaving};
    assert_null(gw_channel_flaw(&leaves));
}

/* ---- runs ------------------------------------------------------------------------------------*/

static void of_a_run_flaws_are_seen(void **state)
{
    (void)state;
    static gw_run run; /* too large for a frame */
    gw_request r = {0};
    const sm_idempotency key = {0};
    assert_null(gw_run_flaw(&run));
    run.repeat = GW_CARRIES;
    assert_non_null(gw_run_flaw(&run));
    run.at.ask.down = &key;
    assert_null(gw_run_flaw(&run));
    run.relay.r = &r;
    assert_non_null(gw_run_flaw(&run));
    run.relay.began = true;
    assert_null(gw_run_flaw(&run));
    run.gives = SM_STR("a: b");
    assert_null(gw_run_flaw(&run));
    run.cut = true;
    assert_non_null(gw_run_flaw(&run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_a_request_only_some_states_can_be),
        cmocka_unit_test(of_a_request_flaws_are_seen),
        cmocka_unit_test(of_a_channel_only_some_states_can_be),
        cmocka_unit_test(of_a_channel_flaws_are_seen),
        cmocka_unit_test(of_a_run_flaws_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
