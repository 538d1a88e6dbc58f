/*
 * Parts of the HTTP server that need no connection: routes, hosts, traces, problems, a ledger that
 * fails, decoding, and the workers.
 */
#include "unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "api/problem.h"
#include "gateway/http/problem.h"
#include "gateway/http/server.h"
#include "gateway/run/returned.h"
#include "gateway/telemetry/metrics.h"
#include "gateway/telemetry/trace.h"
#include "ledger/service.h"
#include "ledger/work/ledger.h"

/* ---- routes ----------------------------------------------------------------------------------*/

static void routes_are_found_by_method_and_path(void **state)
{
    (void)state;
    static const struct {
        gw_method method;
        const char *path, *route, *rest, *allowed;
    } rows[] = {
        {GW_POST, "/v1/call", "/v1/call", NULL, ""},
        {GW_GET, "/v1/effects", "/v1/effects", NULL, ""},
        {GW_HEAD, "/v1/effects", "/v1/effects", NULL, ""},
        {GW_GET, "/v1/effects/ef_1", "/v1/effects/{id}", "ef_1", ""},
        {GW_GET, "/v1/effects/ef_1/events", "/v1/effects/{id}/events", "ef_1", ""},
        {GW_POST, "/v1/effects/ef_1/approve", "/v1/effects/{id}/approve", "ef_1", ""},
        {GW_PATCH, "/proxy/api/a/b", "/proxy/*", "api/a/b", ""},
        {GW_OTHER, "/proxy/", "/proxy/*", "", ""},
        {GW_GET, "/v1/call", NULL, NULL, "POST"},
        {GW_DELETE, "/v1/effects/ef_1", NULL, NULL, "GET, HEAD"},
        {GW_GET, "/v1/effects/ef_1/approve", NULL, NULL, "POST"},
        {GW_GET, "/v1/effects/", NULL, NULL, ""},
        {GW_GET, "/v1/effects//events", NULL, NULL, ""},
        {GW_GET, "/v1/effects/a/b", NULL, NULL, ""},
        {GW_GET, "/v1/effects/ef_1/events/", NULL, NULL, ""},
        {GW_POST, "/v1/call/", NULL, NULL, ""},
        {GW_POST, "/v1/Call", NULL, NULL, ""},
        {GW_POST, "/v1/cal", NULL, NULL, ""},
        {GW_GET, "//v1/effects", NULL, NULL, ""},
        {GW_GET, "/v1/%65ffects", NULL, NULL, ""},
        {GW_GET, "/proxy", NULL, NULL, ""},
        {GW_GET, "*", NULL, NULL, ""},
        {GW_GET, "", NULL, NULL, ""},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char allowed[64];
        sm_str rest;
        const gw_route *route =
            gw_route_find(rows[i].method, sm_str_from(rows[i].path), &rest, allowed);
        expect((route == NULL) == (rows[i].route == NULL), "%s", rows[i].path);
        expect(route == NULL || strcmp(route->path, rows[i].route) == 0, "%s", rows[i].path);
        expect(rows[i].rest == NULL ? rest.p == NULL : sm_str_is(rest, rows[i].rest), "%s",
               rows[i].path);
        expect(route != NULL || strcmp(allowed, rows[i].allowed) == 0, "%s: %s", rows[i].path,
               allowed);
    }
}

/* An agent decides nothing, and what is open to everybody names no roles. */
static void roles_are_as_they_must_be(void **state)
{
    (void)state;
    for (size_t i = 0; i < gw_route_count; i++) {
        const gw_route *r = &gw_routes[i];
        bool open = (r->flags & GW_OPEN) != 0;
        bool decides = r->method == GW_POST && strncmp(r->path, "/v1/effects/", 12) == 0;
        expect(open == (r->roles == 0), "%s", r->path);
        expect(open || (r->roles & GW_ADMIN) != 0, "%s", r->path);
        expect(!decides || (r->roles & GW_AGENT) == 0, "%s", r->path);
        expect(r->handle != NULL, "%s", r->path);
    }
    char allowed[64];
    sm_str rest;
    assert_int_equal(gw_route_find(GW_POST, SM_STR("/v1/effects/x/resolve"), &rest, allowed)->roles,
                     GW_OPERATOR | GW_ADMIN);
    assert_int_equal(gw_route_find(GW_GET, SM_STR("/metrics"), &rest, allowed)->flags,
                     GW_WHOLE | GW_READS);
    assert_int_equal(gw_route_find(GW_POST, SM_STR("/v1/commit"), &rest, allowed)->flags, 0);
}

/* ---- hosts -----------------------------------------------------------------------------------*/

static void hosts_are_names_of_ours_or_none(void **state)
{
    (void)state;
    static gw_mount s;
    s.names[0] = SM_STR("127.0.0.1");
    s.names[1] = SM_STR("127.0.0.1:8787");
    s.names[2] = SM_STR("[::1]:8787");
    s.names[3] = SM_STR("semel.example");
    s.name_count = 4;
    static const struct {
        const char *host;
        bool named, any;
    } rows[] = {
        {"127.0.0.1", true, true},
        {"127.0.0.1:8787", true, true},
        {"SEMEL.example", true, true},
        {"[::1]:8787", true, true},
        {"127.0.0.1:80", true, true},
        {"10.0.0.1", false, true},
        {"[2001:db8::1]", false, true},
        {"[2001:db8::1]:8787", false, true},
        {"semel.example:1", true, true},
        {"semel.example.evil", false, false},
        {"evil", false, false},
        {"127.0.0.1.evil", false, false},
        {"10.0.0.1.evil:8787", false, false},
        {"[::1", false, false},
        {"[", false, false},
        {"[]", false, false},
        {":", false, false},
        {":8787", false, false},
        {"", false, false},
        {"1111111111111111111111111111111111111111111111111111111111111111111", false, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        s.any_address = false;
        expect(gw_host_allowed(&s, sm_str_from(rows[i].host)) == rows[i].named, "%s", rows[i].host);
        s.any_address = true;
        expect(gw_host_allowed(&s, sm_str_from(rows[i].host)) == rows[i].any, "%s", rows[i].host);
    }
}

/* ---- traces ----------------------------------------------------------------------------------*/

#define TRACE  "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"

static void a_trace_is_continued_only_if_it_is_well_formed(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool good, sampled;
    } rows[] = {
        {"00-" TRACE "-" PARENT "-01", true, true},
        {"00-" TRACE "-" PARENT "-00", true, false},
        {"00-" TRACE "-" PARENT "-ff", true, true},
        {"cc-" TRACE "-" PARENT "-01", true, true},
        {"cc-" TRACE "-" PARENT "-01-more", true, true},
        {"00-" TRACE "-" PARENT "-01-more", false, true},
        {"cc-" TRACE "-" PARENT "-01more", false, true},
        {"ff-" TRACE "-" PARENT "-01", false, true},
        {"00-" TRACE "-" PARENT "-0", false, true},
        {"00-" TRACE "-" PARENT, false, true},
        {"00-" TRACE "-0000000000000000-01", false, true},
        {"00-00000000000000000000000000000000-" PARENT "-01", false, true},
        {"00-4BF92F3577B34DA6A3CE929D0E0E4736-" PARENT "-01", false, true},
        {"00_" TRACE "-" PARENT "-01", false, true},
        {"", false, true},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        gw_trace t;
        char text[GW_TRACEPARENT_TEXT];
        gw_trace_start(&t, sm_str_from(rows[i].text), SM_STR("a=b"));
        bool taken = strcmp(t.id, TRACE) == 0 && strcmp(t.parent, PARENT) == 0;
        expect(taken == rows[i].good, "%s", rows[i].text);
        expect(t.sampled == rows[i].sampled, "%s", rows[i].text);
        expect((t.state.p != NULL) == rows[i].good, "%s", rows[i].text);
        expect(rows[i].good || t.parent[0] == '\0', "%s", rows[i].text);
        expect(strlen(t.id) == 32 && strlen(t.span) == 16, "%s", rows[i].text);

        /* What is passed on is taken by the next. */
        gw_trace next;
        gw_trace_parent(&t, text);
        gw_trace_start(&next, sm_str_from(text), (sm_str){0});
        expect(strcmp(next.id, t.id) == 0 && strcmp(next.parent, t.span) == 0, "%s", text);
    }
}

static void traces_that_begin_here_differ(void **state)
{
    (void)state;
    gw_trace a, b;
    gw_trace_start(&a, (sm_str){0}, (sm_str){0});
    gw_trace_start(&b, (sm_str){0}, (sm_str){0});
    assert_string_not_equal(a.id, b.id);
    assert_string_not_equal(a.span, b.span);
}

/* ---- problems --------------------------------------------------------------------------------*/

static sm_str member(const sm_json *o, const char *name)
{
    const sm_json *v = sm_json_find(o, sm_str_from(name));
    return v == NULL ? (sm_str){0} : sm_json_text(v);
}

static void under_a_proxy_a_refusal_has_no_status_of_success(void **state)
{
    (void)state;
    for (int code = 0; code < SEMEL_C_COUNT; code++) {
        int status = sm_problem_status((semel_code)code), proxied = gw_proxied_status(status);
        expect(proxied >= 400 && (status < 400 || proxied == status), "%s",
               semel_code_name((semel_code)code));
    }
    assert_int_equal(gw_proxied_status(202), 403);
    assert_true(gw_route_proxied(SM_STR("/proxy/x")) && gw_route_proxied(SM_STR("/proxy/x/y")));
    assert_false(gw_route_proxied(SM_STR("/v1/call")) || gw_route_proxied(SM_STR("/proxyx")));
}

static void a_problem_can_have_an_error_object(void **state)
{
    (void)state;
    static const struct {
        const char *code, *message, *advice, *type, *whole;
    } rows[] = {
        {"KEY_CONFLICT", "It differs.", "Change it.", "idempotency_error",
         "It differs. Change it."},
        {"IN_DOUBT", "who knows", "Look.", "semel_error", "who knows. Look."},
        {"OVERLOADED", "\"a\"\n", NULL, "semel_error", "\"a\"\n"},
    };
    sm_buf text;
    sm_arena arena;
    sm_buf_init(&text, 4096);
    sm_arena_init(&arena, SM_ARENA_MAX);
    for (size_t i = 0; i < COUNT(rows); i++) {
        const sm_json *o, *error;
        sm_str message = sm_str_from(rows[i].message), advice = sm_str_from(rows[i].advice);
        sm_buf_clear(&text);
        sm_problem_put(&text, 409, rows[i].code, false, 0, message, advice);
        gw_problem_add_error(&text, rows[i].code, message, advice);
        assert_int_equal(
            sm_json_read(&arena, sm_buf_view(&text), &sm_json_default_limits, &o, NULL), SM_OK);
        error = sm_json_find(o, SM_STR("error"));
        assert_true(sm_str_is(member(o, "code"), rows[i].code));
        assert_true(sm_str_is(member(error, "code"), rows[i].code));
        assert_true(sm_str_is(member(error, "type"), rows[i].type));
        assert_true(sm_str_is(member(error, "message"), rows[i].whole));
    }
    sm_arena_fini(&arena);
    sm_buf_fini(&text);
}

/* ---- headers of an upstream's answer ---------------------------------------------------------*/

static void expect_recorded(const sm_http_field *fields, size_t n, const char *expected)
{
    sm_buf text;
    sm_buf_init(&text, 1u << 20);
    gw_returned_record(&(sm_http_result){.headers = fields, .header_count = n}, &text);
    expect(sm_str_is(sm_buf_view(&text), expected), "%.*s", SM_FMT(sm_buf_view(&text)));
    sm_buf_fini(&text);
}

#define FIELD(name, value)                                                                         \
    {                                                                                              \
        SM_STR(name), SM_STR(value)                                                                \
    }

static void cookies_and_credentials_are_not_recorded(void **state)
{
    (void)state;
    const sm_http_field fields[] = {
        FIELD("Content-Type", "a/b"),
        FIELD("Set-Cookie", "x"),
        FIELD("set-cookie2", "x"),
        FIELD("Authorization", "x"),
        FIELD("X-Api-Key", "x"),
        FIELD("x-csrf-token", "x"),
        FIELD("X-Secret", "x"),
        FIELD("WWW-Authenticate", "x"),
        FIELD("Date", "x"),
        FIELD("Authentication-Info", "x"),
        FIELD("Connection", "close, x-hop"),
        FIELD("X-Hop", "x"),
        FIELD("Transfer-Encoding", "chunked"),
        FIELD("Content-Length", "1"),
        FIELD("Semel-Effect", "x"),
        FIELD("Idempotent-Replayed", "true"),
        FIELD("Cache-Control", "x"),
        FIELD("X-Bytes", "\xFF"),
        FIELD("Warning", "1"),
        FIELD("ETag", "\"e\""),
        FIELD("warning", "2"),
    };
    expect_recorded(fields, COUNT(fields),
                    "{\"Content-Type\":\"a/b\",\"Warning\":[\"1\",\"2\"],\"ETag\":\"\\\"e\\\"\"}");
    expect_recorded(fields, 0, "{}");
}

static void the_longest_headers_are_not_recorded_if_there_are_too_many(void **state)
{
    (void)state;
    char long_text[SM_ANSWER_HEADERS_MAX];
    memset(long_text, 'v', sizeof long_text);
    const sm_http_field fields[] = {{SM_STR("A"), {long_text, sizeof long_text - 1}},
                                    FIELD("B", "1"),
                                    {SM_STR("C"), {long_text, sizeof long_text / 2}},
                                    {SM_STR("b"), {long_text, sizeof long_text / 2 + 9}},
                                    FIELD("D", "2")};
    sm_buf text;
    sm_buf_init(&text, 1u << 20);
    sm_buf_printf(&text, "{\"B\":\"1\",\"C\":\"%.*s\",\"D\":\"2\"}", (int)(sizeof long_text / 2),
                  long_text);
    sm_buf_byte(&text, '\0');
    expect_recorded(fields, COUNT(fields), text.p);
    sm_buf_fini(&text);
}

/* ---- a ledger that fails ---------------------------------------------------------------------*/

/* A gateway whose log can be read. */
static void gateway_make(gateway *g, int ends[2])
{
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    *g = (gateway){.log = {.rule = {.format = GW_LOG_TEXT, .level = GW_INFO}, .fd = ends[1]}};
}

static void expect_logged(int ends[2], const char *end)
{
    char text[1000];
    ssize_t n = read(ends[0], text, sizeof text);
    size_t length = strlen(end);
    assert_true(n > 0 && (size_t)n >= length);
    expect(memcmp(text + n - length, end, length) == 0, "%.*s", (int)n, text);
    close(ends[0]);
    close(ends[1]);
}

static semel_err health_fails(semel_store *st, bool thorough, semel_health *out, semel_fault *fault)
{
    (void)st;
    (void)thorough;
    (void)out;
    return sm_fault_set(fault, SEMEL_E_IO, "cannot read it");
}

static void a_ledger_that_takes_writes_and_cannot_be_read_is_not_in_order(void **state)
{
    (void)state;
    gateway g;
    int ends[2];
    semel_options options = {.size = sizeof options, .url = "memory:"};
    sm_fault fault = {0};
    semel_stats stats;
    gateway_make(&g, ends);
    assert_int_equal(gw_metrics_new(&g.metrics), SM_OK);
    assert_int_equal(semel_open(&options, &g.ledger, &fault), SM_OK);
    g.ledger->table.health = health_fails;
    assert_int_equal(sm_try_write(g.ledger, &fault), SM_OK);
    assert_int_equal(gw_ledger_stats(&g, &stats, &fault), SEMEL_E_IO);
    assert_string_equal(fault.text, "cannot read it");
    expect_logged(ends, "the ledger cannot be used  reason=\"cannot read it\"\n");
    semel_close(g.ledger);
    gw_metrics_free(g.metrics);
}

static void a_refusal_without_a_reason_is_logged_with_its_words(void **state)
{
    (void)state;
    gateway g;
    int ends[2];
    static gw_inner q; /* too large for a frame */
    semel_answer *a = semel_answer_new();
    gateway_make(&g, ends);
    q = (gw_inner){.r = {.g = &g}};
    sm_arena_init(&q.arena, SM_ARENA_MAX);
    sm_refuse(a, SEMEL_C_LEDGER_UNAVAILABLE);
    gw_reply_refusal(&q.r, a);
    assert_int_equal(q.status, 503);
    expect_logged(ends, "the ledger cannot be used  reason=\"The ledger cannot be used now, so "
                        "nothing may run.\"\n");
    MHD_destroy_response(q.answer);
    sm_arena_fini(&q.arena);
    semel_answer_free(a);
}

/* ---- arrivals --------------------------------------------------------------------------------*/

static void a_server_that_cannot_accept_is_not_started(void **state)
{
    (void)state;
    static gw_http_server s; /* too large for a frame */
    gw_listener closed = {.fd = -1};
    sm_fault fault = {0};
    s.listeners = &closed;
    s.listener_count = 1;
    assert_int_equal(gw_arrive_start(&s, &fault), SEMEL_E_IO);
    assert_false(s.accepts);
    assert_int_equal(strncmp(fault.text, "cannot start", 12), 0);
}

/* ---- decoding --------------------------------------------------------------------------------*/

static void percent_encoding_is_taken_off(void **state)
{
    (void)state;
    static const struct {
        const char *text, *plain, *plus;
    } rows[] = {
        {"abc", "abc", "abc"},       {"a%20b", "a b", "a b"}, {"a+b", "a+b", "a b"},
        {"%41%4a%4A", "AJJ", "AJJ"}, {"%", "%", "%"},         {"%4", "%4", "%4"},
        {"%zz%41", "%zzA", "%zzA"},  {"%%41", "%A", "%A"},    {"", "", ""},
    };
    sm_arena a;
    sm_arena_init(&a, SM_ARENA_MAX);
    for (size_t i = 0; i < COUNT(rows); i++) {
        expect(sm_str_is(gw_decode(&a, sm_str_from(rows[i].text), false), rows[i].plain), "%s",
               rows[i].text);
        expect(sm_str_is(gw_decode(&a, sm_str_from(rows[i].text), true), rows[i].plus), "%s",
               rows[i].text);
    }
    sm_arena_fini(&a);
}

/* ---- workers ---------------------------------------------------------------------------------*/

#define JOBS    2000
#define AT_ONCE 4

static atomic_int ran, running, most;
static sm_pool *pool;

typedef struct counted {
    sm_job job;
    int times;
} counted;

static void count_job(sm_job *job, semel_answer *a)
{
    counted *c = (counted *)job;
    assert_non_null(a);
    int now = atomic_fetch_add(&running, 1) + 1;
    for (int seen = most; now > seen && !atomic_compare_exchange_weak(&most, &seen, now);)
        ;
    bool again = --c->times > 0;
    atomic_fetch_add(&ran, 1);
    atomic_fetch_sub(&running, 1);
    if (again)
        sm_pool_add(pool, job);
}

static void *add_jobs(void *context)
{
    counted *jobs = context;
    for (int i = 0; i < JOBS; i++)
        sm_pool_add(pool, &jobs[i].job);
    return NULL;
}

static void all_jobs_run_and_no_more_than_allowed_at_once(void **state)
{
    (void)state;
    static counted jobs[2][JOBS];
    ran = running = most = 0;
    for (int i = 0; i < 2 * JOBS; i++)
        jobs[i / JOBS][i % JOBS] = (counted){.job.run = count_job, .times = 1 + i % 3};
    assert_int_equal(sm_pool_new(AT_ONCE, &pool), SEMEL_OK);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_jobs, jobs[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    sm_pool_free(pool); /* runs what is left, and what that adds */
    int wanted = 0;
    for (int i = 0; i < 2 * JOBS; i++)
        wanted += 1 + i % 3;
    assert_int_equal(ran, wanted);
    assert_in_range(most, 1, AT_ONCE);
}

/* Jobs that read wait until they are let go. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static bool open_gate;
static atomic_int held, settled;

static void hold_job(sm_job *job, semel_answer *a)
{
    (void)job;
    (void)a;
    atomic_fetch_add(&held, 1);
    pthread_mutex_lock(&gate);
    while (!open_gate)
        pthread_cond_wait(&opened, &gate);
    pthread_mutex_unlock(&gate);
    atomic_fetch_add(&ran, 1);
}

static void let_go(void)
{
    pthread_mutex_lock(&gate);
    open_gate = true;
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&gate);
}

static void settle_job(sm_job *job, semel_answer *a)
{
    (void)job;
    (void)a;
    atomic_fetch_add(&settled, 1);
}

static bool comes_to(atomic_int *number, int wanted)
{
    for (int i = 0; i < 5000 && *number < wanted; i++)
        usleep(1000);
    return *number >= wanted;
}

static void what_settles_finds_a_thread_however_much_is_read(void **state)
{
    (void)state;
    static sm_job reads[50], settles[50];
    ran = held = settled = 0;
    open_gate = false;
    assert_int_equal(sm_pool_new(AT_ONCE, &pool), SEMEL_OK);
    for (int i = 0; i < 50; i++) {
        reads[i] = (sm_job){.run = hold_job, .reads = true};
        sm_pool_add(pool, &reads[i]);
    }
    assert_true(comes_to(&held, AT_ONCE / 2));
    for (int i = 0; i < 50; i++) {
        settles[i] = (sm_job){.run = settle_job};
        sm_pool_add(pool, &settles[i]);
    }
    assert_true(comes_to(&settled, 50));
    usleep(20000);
    assert_int_equal(held, AT_ONCE / 2);
    assert_int_equal(sm_pool_waiting(pool), 50 - AT_ONCE / 2);

    let_go();
    assert_true(comes_to(&ran, 50));
    sm_pool_free(pool);
}

static void a_pool_has_no_more_threads_than_allowed(void **state)
{
    (void)state;
    static sm_job jobs[50];
    ran = held = 0;
    open_gate = false;
    assert_int_equal(sm_pool_new(AT_ONCE, &pool), SEMEL_OK);
    for (int i = 0; i < 50; i++) {
        jobs[i] = (sm_job){.run = hold_job};
        sm_pool_add(pool, &jobs[i]);
    }
    assert_true(comes_to(&held, AT_ONCE));
    usleep(20000);
    assert_int_equal(held, AT_ONCE);
    assert_int_equal(sm_pool_waiting(pool), 50 - AT_ONCE);
    let_go();
    assert_true(comes_to(&ran, 50));
    sm_pool_free(pool);
}

static void an_unused_pool_has_no_threads_to_end(void **state)
{
    (void)state;
    assert_int_equal(sm_pool_new(1, &pool), SEMEL_OK);
    assert_int_equal(sm_pool_waiting(pool), 0);
    sm_pool_free(pool);
    sm_pool_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_are_found_by_method_and_path),
        cmocka_unit_test(roles_are_as_they_must_be),
        cmocka_unit_test(hosts_are_names_of_ours_or_none),
        cmocka_unit_test(a_trace_is_continued_only_if_it_is_well_formed),
        cmocka_unit_test(traces_that_begin_here_differ),
        cmocka_unit_test(under_a_proxy_a_refusal_has_no_status_of_success),
        cmocka_unit_test(a_problem_can_have_an_error_object),
        cmocka_unit_test(cookies_and_credentials_are_not_recorded),
        cmocka_unit_test(the_longest_headers_are_not_recorded_if_there_are_too_many),
        cmocka_unit_test(a_ledger_that_takes_writes_and_cannot_be_read_is_not_in_order),
        cmocka_unit_test(a_refusal_without_a_reason_is_logged_with_its_words),
        cmocka_unit_test(a_server_that_cannot_accept_is_not_started),
        cmocka_unit_test(percent_encoding_is_taken_off),
        cmocka_unit_test(all_jobs_run_and_no_more_than_allowed_at_once),
        cmocka_unit_test(what_settles_finds_a_thread_however_much_is_read),
        cmocka_unit_test(a_pool_has_no_more_threads_than_allowed),
        cmocka_unit_test(an_unused_pool_has_no_threads_to_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
