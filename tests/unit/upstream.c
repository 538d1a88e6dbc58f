/*
 * Requests made from contracts and arguments, and what an exchange proves about the world: all
 * without a socket.
 */
#include "contracts.h"

#include "base/duration.h"
#include "base/url.h"
#include "upstream/call/body.h"
#include "upstream/upstream.h"

/* A contract whose upstream is given as a YAML flow mapping. */
#define UPSTREAM(fields) ONE_TOOL("{ class: write, upstream: {" fields "} }")

typedef struct making {
    sm_contracts *set;
    sm_upstream_call call;
    sm_err err;
    sm_fault fault;
} making;

static void make(sm_arena *a, making *m, const char *contract, const char *args)
{
    memset(m, 0, sizeof *m);
    m->set = contracts(contract);
    m->err = sm_upstream_make(a, sm_contracts_find(m->set, SM_STR("t")), document(a, args),
                              &m->call, &m->fault);
    sm_contracts_free(m->set); /* the call does not need it any more */
}

static const char *header(const sm_upstream_call *c, const char *name)
{
    const char *found = NULL;
    for (size_t i = 0; i < c->request.header_count; i++) {
        if (!sm_str_is(c->request.headers[i].name, name))
            continue;
        assert_null(found); /* never twice */
        found = c->request.headers[i].value.p;
    }
    return found;
}

/* ---- shapes ----------------------------------------------------------------------------------*/

/* An attempt is sent again only as the request that it was: another shape is another request. */
static void every_part_of_how_it_is_sent_is_in_its_shape(void **state)
{
    (void)state;
    static const char *const others[] = {
        UPSTREAM("url: 'http://x/b', method: POST, headers: {A: b}, idempotency: {header: K}"),
        UPSTREAM("url: 'http://x/a', method: PUT, headers: {A: b}, idempotency: {header: K}"),
        UPSTREAM("url: 'http://x/a', method: POST, headers: {B: b}, idempotency: {header: K}"),
        UPSTREAM("url: 'http://x/a', method: POST, headers: {A: c}, idempotency: {header: K}"),
        UPSTREAM("url: 'http://x/a', method: POST, idempotency: {header: K}"),
        UPSTREAM("url: 'http://x/a', method: POST, headers: {A: b}, idempotency: {header: L}"),
        UPSTREAM("url: 'http://x/a', method: POST, headers: {A: b}, idempotency: {argument: K}"),
        UPSTREAM("url: 'http://x/a', method: POST, headers: {A: b}, idempotency: {header: K, "
                 "style: quoted}"),
        UPSTREAM("url: 'http://x/a', method: POST, body: form, headers: {A: b}, idempotency: "
                 "{header: K}"),
        UPSTREAM("url: 'http://x/a', method: POST, body: none, headers: {A: b}, idempotency: "
                 "{header: K}"),
        UPSTREAM("url: 'http://x/a', method: POST, headers: {A: b}"),
    };
    static const char one[] =
        UPSTREAM("url: 'http://x/a', method: POST, headers: {A: b}, idempotency: {header: K}");
    uint64_t shapes[COUNT(others) + 2];
    for (size_t i = 0; i < COUNT(shapes); i++) {
        sm_contracts *set = contracts(i < COUNT(others) ? others[i] : one);
        shapes[i] = sm_upstream_shape(sm_contracts_find(set, SM_STR("t")));
        sm_contracts_free(set);
    }
    assert_true(shapes[COUNT(others)] == shapes[COUNT(others) + 1]);
    for (size_t i = 0; i < COUNT(others); i++)
        for (size_t k = i + 1; k <= COUNT(others); k++)
            expect(shapes[i] != shapes[k], "%zu and %zu are one", i, k);
}

/* ---- URLs ------------------------------------------------------------------------------------*/

static void arguments_fill_the_url(void **state)
{
    static const struct {
        const char *url, *args, *expected;
    } rows[] = {
        {"http://x", "{}", "http://x"},
        {"https://x:8443/a?b=c", "{}", "https://x:8443/a?b=c"},
        {"http://x/{id}", "{\"id\":\"a\"}", "http://x/a"},
        {"http://x/{/a/b}/c", "{\"a\":{\"b\":\"d\"}}", "http://x/d/c"},
        {"http://x/{/a/0/b~1c}", "{\"a\":[{\"b/c\":1}]}", "http://x/1"},
        {"http://x/p{a}-{b}.json?q={c}&r={a}", "{\"a\":1,\"b\":true,\"c\":\"\"}",
         "http://x/p1-true.json?q=&r=1"},
        {"http://x/{id}", "{\"id\":1.0}", "http://x/1"},
        {"http://x/{id}", "{\"id\":12345678901234567890}", "http://x/12345678901234567890"},
        {"http://x/{id}", "{\"id\":\"a/b?c#d&e=f%20\"}", "http://x/a%2Fb%3Fc%23d%26e%3Df%2520"},
        {"http://x/{id}", "{\"id\":\"-._~\\u00e9 +@:\\u0000\\r\\n\"}",
         "http://x/-._~%C3%A9%20%2B%40%3A%00%0D%0A"},
        {"http://x/{id}", "{\"id\":\"...\"}", "http://x/..."},
        {"http://x/?q={id}", "{\"id\":\"..\"}", "http://x/?q=.."},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char contract[512];
        making m;
        snprintf(contract, sizeof contract, UPSTREAM("url: '%s'"), rows[i].url);
        make(*state, &m, contract, rows[i].args);
        expect(m.err == SM_OK, "%s with %s: %s", rows[i].url, rows[i].args, m.fault.text);
        expect_text(m.call.request.url, rows[i].expected);
        expect(sm_url_check(m.call.request.url, NULL) == SM_OK, "%s", rows[i].expected);
    }
}

static void arguments_that_do_not_fill_the_url_are_refused(void **state)
{
    static const struct {
        const char *url, *args, *says;
    } rows[] = {
        {"http://x/{id}", "{}", "needs the argument id"},
        {"http://x/{/a/b}", "{\"a\":1}", "needs the argument /a/b"},
        {"http://x/{id}", "[1]", "needs the argument id"},
        {"http://x/{id}", "{\"id\":null}", "not null"},
        {"http://x/{id}", "{\"id\":{}}", "not an object"},
        {"http://x/?q={id}", "{\"id\":[1]}", "not an array"},
        {"http://x/{id}", "{\"id\":\"\"}", "must not be empty"},
        {"http://x/{id}", "{\"id\":\".\"}", "must not make"},
        {"http://x/{id}", "{\"id\":\"../y\"}", "must not make"},
        {"http://x/a/{id}", "{\"id\":\"b\\\\..\"}", "must not make"},
        {"http://x/{id}{id}", "{\"id\":\".\"}", "must not make"},
        {"http://x/{id}/y", "{\"id\":\"..\"}", "must not make"},
        {"http://x/.{id}", "{\"id\":\".\"}", "must not make"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char contract[512];
        making m;
        snprintf(contract, sizeof contract, UPSTREAM("url: '%s'"), rows[i].url);
        make(*state, &m, contract, rows[i].args);
        expect(m.err == SEMEL_E_BAD_ARGUMENTS, "%s with %s: %s", rows[i].url, rows[i].args,
               semel_err_name(m.err));
        expect(strstr(m.fault.text, rows[i].says) != NULL, "<%s> in <%s>", rows[i].says,
               m.fault.text);
    }
    making m;
    char *args = malloc(20100);
    snprintf(args, 20100, "{\"id\":\"%020000d\"}", 0);
    make(*state, &m, UPSTREAM("url: 'http://x/{id}'"), args);
    assert_int_equal(m.err, SEMEL_E_BAD_ARGUMENTS);
    free(args);
}

static void a_wrong_template_is_refused_with_its_contract(void **state)
{
    static const struct {
        const char *url, *says;
    } rows[] = {
        {"http://{host}/a", "must not choose the host"},
        {"http://x:{port}/a", "must not choose the host"},
        {"http://x{a}", "must not choose the host"},
        {"{scheme}://x/", "expected http://"},
        {"http{s}://x/", "starts with http://"},
        {"http://x/{id", "a { has no }"},
        {"http://x/id}", "a } has no {"},
        {"http://x/{a{b}}", "a { has no }"},
        {"http://x/{}", "names an argument"},
        {"http://x/{/a~2}", "names an argument"},
        {"http://x/a#{id}", "never sent"},
        {"http://x/?{name}=1", "stands for a value"},
        {"http://x/?a=1&{name}", "stands for a value"},
        {"http://x/\\u00e9", "percent-encoded"},
        {"http:///a", "comes a host"},
        {"http://x:0/", "comes a host"},
        {"http://x:65536/", "comes a host"},
        {"http://[::1/", "comes a host"},
        {"http://a b/", "without blanks"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char contract[512];
        snprintf(contract, sizeof contract, UPSTREAM("url: \"%s\""), rows[i].url);
        const char *found = findings(*state, contract, SM_ERROR);
        expect(strstr(found, rows[i].says) != NULL, "%s: expected <%s> in <%s>", rows[i].url,
               rows[i].says, found);
    }
    static const char *const right[] = {"http://[::1]:80/{a}", "https://a-b.c_d/{/x/0}?y={z}",
                                        "http://x/?a[]={b}&c=d={e}"};
    for (size_t i = 0; i < COUNT(right); i++)
        expect(sm_url_template_check(sm_str_from(right[i]), NULL) == SM_OK, "%s", right[i]);
}

static void what_does_not_fit_an_upstream_is_told(void **state)
{
    static const struct {
        const char *contract, *says;
        sm_severity severity;
    } rows[] = {
        {UPSTREAM("url: 'http://x', headers: {Content-Length: '1'}"), "remove it", SM_ERROR},
        {UPSTREAM("url: 'http://x', headers: {transfer-encoding: x}"), "remove it", SM_ERROR},
        {UPSTREAM("url: 'http://x', idempotency: {header: 'a b'}"), "not a header", SM_ERROR},
        {UPSTREAM("url: 'http://x', idempotency: {argument: '/a~'}"), "~0", SM_ERROR},
        {UPSTREAM("url: 'http://x', body: none, idempotency: {argument: a}"), "no body", SM_ERROR},
        {UPSTREAM("url: 'http://x', method: GET, idempotency: {argument: a}"), "no body", SM_ERROR},
        {UPSTREAM("url: 'http://x', headers: {x-key: a}, idempotency: {header: X-Key}"),
         "remove it from headers", SM_ERROR},
        {UPSTREAM("url: 'http://x', method: GET, body: form"), "a GET has no body", SM_WARNING},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *found = findings(*state, rows[i].contract, rows[i].severity);
        expect(strstr(found, rows[i].says) != NULL, "%s: expected <%s> in <%s>", rows[i].contract,
               rows[i].says, found);
    }
}

/* ---- bodies and headers ----------------------------------------------------------------------*/

static void arguments_become_the_body(void **state)
{
    static const struct {
        const char *how, *args, *body, *type;
    } rows[] = {
        {"body: json", "{\"b\":1.0,\"a\":[null]}", "{\"a\":[null],\"b\":1}", "application/json"},
        {"body: json", "[1, 2]", "[1,2]", "application/json"},
        {"method: DELETE", "{}", "{}", "application/json"},
        {"body: form", "{\"b\":\"x y&=+\\u00e9\",\"a\":1.50,\"c\":true,\"d\":null}",
         "a=1.5&b=x%20y%26%3D%2B%C3%A9&c=true&d=", "application/x-www-form-urlencoded"},
        {"body: form", "{\"a\":{\"b\":1,\"c\":[\"x\",{\"d\":false}]},\"e\":[],\"f\":{}}",
         "a[b]=1&a[c][0]=x&a[c][1][d]=false", "application/x-www-form-urlencoded"},
        {"body: form", "{\"a[b]\":1,\"\":2}", "=2&a%5Bb%5D=1", "application/x-www-form-urlencoded"},
        {"body: form", "{}", "", "application/x-www-form-urlencoded"},
        {"body: none", "{\"a\":1}", NULL, NULL},
        {"method: GET", "{\"a\":1}", NULL, NULL},
        {"headers: {content-type: application/vnd.x}", "{}", "{}", NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char contract[512];
        making m;
        snprintf(contract, sizeof contract, UPSTREAM("url: 'http://x', %s"), rows[i].how);
        make(*state, &m, contract, rows[i].args);
        expect(m.err == SM_OK, "%s: %s", rows[i].how, m.fault.text);
        if (rows[i].body == NULL)
            assert_null(m.call.request.body.p);
        else
            expect_text(m.call.request.body, rows[i].body);
        const char *type = header(&m.call, "Content-Type");
        expect((type == NULL) == (rows[i].type == NULL), "%s: %s", rows[i].how, type);
        if (type != NULL)
            assert_string_equal(type, rows[i].type);
    }
    making m;
    make(*state, &m, UPSTREAM("url: 'http://x', body: form"), "[1]");
    assert_int_equal(m.err, SEMEL_E_BAD_ARGUMENTS);
}

static void a_form_that_grows_too_large_is_refused(void **state)
{
    sm_buf b;
    sm_buf_init(&b, 1u << 20);
    for (int i = 0; i < 100; i++)
        sm_buf_printf(&b, "{\"%0500d\":", 0);
    sm_buf_text(&b, "[0");
    for (int i = 0; i < 20000; i++)
        sm_buf_text(&b, ",0");
    sm_buf_byte(&b, ']');
    for (int i = 0; i < 100; i++)
        sm_buf_byte(&b, '}');
    sm_buf_byte(&b, '\0');
    making m;
    make(*state, &m, UPSTREAM("url: 'http://x', body: form"), b.p);
    assert_int_equal(m.err, SEMEL_E_BAD_ARGUMENTS);
    assert_non_null(strstr(m.fault.text, "too large"));
    sm_buf_fini(&b);
}

static void secrets_come_from_the_environment(void **state)
{
    making m;
    setenv("SM_TEST_SECRET", "s3cret", 1);
    setenv("SM_TEST_EVIL", "hush\r\nX-Evil: 1", 1);
    unsetenv("SM_TEST_ABSENT");
    make(*state, &m,
         UPSTREAM("url: 'http://x', headers: {Authorization: 'Bearer ${SM_TEST_SECRET}', "
                  "X-Two: '${SM_TEST_SECRET}-${SM_TEST_SECRET}', X-Cost: '$5', X-None: ''}"),
         "{}");
    expect(m.err == SM_OK, "%s", m.fault.text);
    assert_string_equal(header(&m.call, "Authorization"), "Bearer s3cret");
    assert_string_equal(header(&m.call, "X-Two"), "s3cret-s3cret");
    assert_string_equal(header(&m.call, "X-Cost"), "$5");
    assert_string_equal(header(&m.call, "X-None"), "");
    make(*state, &m, UPSTREAM("url: 'http://x', headers: {A: 'b ${SM_TEST_ABSENT}'}"), "{}");
    assert_int_equal(m.err, SEMEL_E_INVALID);
    assert_non_null(strstr(m.fault.text, "SM_TEST_ABSENT is not set"));
    make(*state, &m, UPSTREAM("url: 'http://x', headers: {A: '${SM_TEST_EVIL}'}"), "{}");
    assert_int_equal(m.err, SEMEL_E_INVALID);
    assert_non_null(strstr(m.fault.text, "SM_TEST_EVIL"));
    assert_null(strstr(m.fault.text, "hush"));
    assert_null(strstr(m.fault.text, "X-Evil"));
}

static void the_request_is_what_the_contract_says(void **state)
{
    making m;
    make(*state, &m,
         UPSTREAM("url: 'http://x', method: PUT, timeout: 5s, rejects_before_work: on, "
                  "retry: {attempts: 7}"),
         "{}");
    assert_string_equal(m.call.request.method, "PUT");
    assert_true(m.call.request.write && m.call.rejects_before_work);
    assert_int_equal(m.call.request.timeout_ms, 5000);
    assert_int_equal(m.call.retry.attempts, 7);
    make(*state, &m, ONE_TOOL("{ class: read, upstream: {url: 'http://x', method: GET} }"), "{}");
    assert_false(m.call.request.write);
    /* Headers can be added beyond those that there was room for. */
    for (int i = 0; i < 50; i++)
        assert_int_equal(sm_upstream_header(*state, &m.call, SM_STR("X"), SM_STR("y")), SM_OK);
    assert_int_equal(m.call.request.header_count, 50);
    assert_ptr_equal(m.call.request.headers, m.call.headers);
}

/* ---- keys ------------------------------------------------------------------------------------*/

static void the_key_goes_where_the_contract_says(void **state)
{
    static const struct {
        const char *how, *args, *header, *body;
    } rows[] = {
        {"", "{\"a\":1}", NULL, "{\"a\":1}"},
        {"idempotency: {header: K}", "{\"a\":1}", "k\"1", "{\"a\":1}"},
        {"idempotency: {header: K, style: quoted}", "{\"a\":1}", "\"k\\\"1\"", "{\"a\":1}"},
        {"idempotency: {argument: b}", "{\"a\":1}", NULL, "{\"a\":1,\"b\":\"k\\\"1\"}"},
        {"idempotency: {argument: b}", "{\"c\":1,\"b\":{\"x\":1}}", NULL,
         "{\"b\":\"k\\\"1\",\"c\":1}"},
        {"idempotency: {argument: /m/b}", "{\"c\":1}", NULL, "{\"c\":1,\"m\":{\"b\":\"k\\\"1\"}}"},
        {"idempotency: {argument: /m/b}", "{\"m\":{\"a\":1,\"b\":2}}", NULL,
         "{\"m\":{\"a\":1,\"b\":\"k\\\"1\"}}"},
        {"idempotency: {argument: b}, body: form", "{\"a\":1,\"b\":2}", NULL, "a=1&b=k%221"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char contract[512];
        making m;
        snprintf(contract, sizeof contract, UPSTREAM("url: 'http://x', %s"), rows[i].how);
        make(*state, &m, contract, rows[i].args);
        expect(m.err == SM_OK, "%s: %s", rows[i].how, m.fault.text);
        for (int again = 0; again < 2; again++) {
            expect(sm_upstream_key(*state, &m.call, SM_STR("k\"1"), &m.fault) == SM_OK, "%s: %s",
                   rows[i].how, m.fault.text);
            const char *found = header(&m.call, "K");
            expect((found == NULL) == (rows[i].header == NULL), "%s", rows[i].how);
            if (found != NULL)
                assert_string_equal(found, rows[i].header);
            expect_text(m.call.request.body, rows[i].body);
        }
    }
}

static void a_key_that_has_no_place_or_cannot_be_sent_is_refused(void **state)
{
    making m;
    make(*state, &m, UPSTREAM("url: 'http://x', idempotency: {argument: b}"), "[1]");
    expect(m.err == SM_OK, "%s", m.fault.text);
    assert_int_equal(sm_upstream_key(*state, &m.call, SM_STR("k"), &m.fault),
                     SEMEL_E_BAD_ARGUMENTS);
    make(*state, &m, UPSTREAM("url: 'http://x', idempotency: {header: K}"), "{}");
    assert_int_equal(sm_upstream_key(*state, &m.call, SM_STR("k\r\nX: y"), &m.fault),
                     SEMEL_E_BAD_ARGUMENTS);
    assert_null(header(&m.call, "K"));
}

static void a_key_may_be_declared_for_the_tool(void **state)
{
    making m;
    make(*state, &m,
         ONE_TOOL("{ class: write, upstream: {url: 'http://x'}, idempotency: {argument: id} }"),
         "{}");
    expect(m.err == SM_OK, "%s", m.fault.text);
    assert_int_equal(sm_upstream_key(*state, &m.call, SM_STR("k"), &m.fault), SM_OK);
    expect_text(m.call.request.body, "{\"id\":\"k\"}");
}

/* ---- what it proves --------------------------------------------------------------------------*/

static void an_exchange_proves_what_the_table_says(void **state)
{
    (void)state;
    enum { SENT = 1, COMPLETE = 2, DECLARED = 4, PUT = 8 };
    static const struct {
        int how, status;
        semel_kind kind;
        semel_applied applied;
        bool passing;
    } rows[] = {
        {0, 0, SEMEL_FAILURE, SEMEL_APPLIED_NO, true},
        {SENT, 0, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, false},
        {SENT, 200, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, false},
        {SENT, 429, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, false},
        {SENT | COMPLETE, 200, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, false},
        {SENT | COMPLETE, 299, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, false},
        {SENT | COMPLETE, 302, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, false},
        {SENT | COMPLETE, 301, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, false},
        {SENT | COMPLETE, 303, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, false},
        {SENT | COMPLETE | PUT, 303, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, false},
        {SENT | COMPLETE, 304, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, false},
        {SENT | COMPLETE, 307, SEMEL_FAILURE, SEMEL_APPLIED_NO, false},
        {SENT | COMPLETE, 308, SEMEL_FAILURE, SEMEL_APPLIED_NO, false},
        {SENT | COMPLETE | PUT, 301, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, false},
        {SENT | COMPLETE | PUT, 302, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, false},
        {SENT | COMPLETE | PUT, 307, SEMEL_FAILURE, SEMEL_APPLIED_NO, false},
        {SENT | COMPLETE | PUT, 308, SEMEL_FAILURE, SEMEL_APPLIED_NO, false},
        {SENT | PUT, 307, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, false},
        {SENT | COMPLETE, 400, SEMEL_FAILURE, SEMEL_APPLIED_NO, false},
        {SENT | COMPLETE, 404, SEMEL_FAILURE, SEMEL_APPLIED_NO, false},
        {SENT | COMPLETE, 409, SEMEL_FAILURE, SEMEL_APPLIED_NO, false},
        {SENT | COMPLETE, 499, SEMEL_FAILURE, SEMEL_APPLIED_NO, false},
        {SENT | COMPLETE, 408, SEMEL_FAILURE, SEMEL_APPLIED_NO, true},
        {SENT | COMPLETE, 425, SEMEL_FAILURE, SEMEL_APPLIED_NO, true},
        {SENT | COMPLETE, 429, SEMEL_FAILURE, SEMEL_APPLIED_NO, true},
        {SENT | COMPLETE, 503, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, false},
        {SENT | COMPLETE | DECLARED, 503, SEMEL_FAILURE, SEMEL_APPLIED_NO, true},
        {SENT | COMPLETE | DECLARED, 500, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, false},
        {SENT | COMPLETE, 500, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, false},
        {SENT | COMPLETE, 504, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, false},
        {SENT | COMPLETE, 599, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, false},
        {SENT | COMPLETE, 100, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, false},
        {SENT | COMPLETE, 101, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, false},
        {SENT | COMPLETE, 0, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, false},
        {SENT | COMPLETE, 600, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_http_result r = {.sent = rows[i].how & SENT,
                            .complete = rows[i].how & COMPLETE,
                            .status = rows[i].status};
        sm_upstream_ruling out;
        sm_upstream_call up = {.rejects_before_work = rows[i].how & DECLARED};
        up.request.method = rows[i].how & PUT ? "PUT" : "POST";
        sm_upstream_judge(&up, &r, 0, &out);
        expect(out.kind == rows[i].kind && out.applied == rows[i].applied &&
                   out.passing == rows[i].passing && out.retry_after_ms == 0 &&
                   out.elsewhere == (out.applied == SEMEL_APPLIED_NO && rows[i].status / 100 == 3),
               "row %zu, status %d: kind %d, applied %d, passing %d", i, rows[i].status, out.kind,
               out.applied, out.passing);
        /* Only an answer says anything for the upstream. */
        bool rejects = out.elsewhere ||
                       (rows[i].how & COMPLETE && rows[i].status / 100 == 4 && !rows[i].passing);
        expect(out.health == (out.kind == SEMEL_SUCCESS ? SM_HEALTH_WELL
                              : rejects                 ? SM_HEALTH_ANSWERED
                                                        : SM_HEALTH_FAILED),
               "row %zu, status %d: health %d", i, rows[i].status, (int)out.health);
    }
}

static void retry_after_is_seconds_or_a_moment(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        int64_t ms;
    } rows[] = {
        {"0", 0},
        {"1", 1000},
        {"120", 120000},
        {"99999999999999999999", 86400000},
        {"-1", 0},
        {"1.5", 0},
        {"soon", 0},
        {"", 0},
        {"Thu, 01 Jan 1970 00:01:00 GMT", 59000}, /* now is one second after the start */
        {"Thu, 01 Jan 1970 00:00:00 GMT", 0},
        {"Fri, 02 Jan 2037 00:00:00 GMT", 86400000},
        {"0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
         "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000001",
         0}, /* longer than any of them */
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_http_field field = {SM_STR("retry-AFTER"), sm_str_from(rows[i].value)};
        sm_http_result r = {
            .sent = true, .complete = true, .status = 429, .headers = &field, .header_count = 1};
        sm_upstream_ruling out;
        sm_upstream_judge(&(sm_upstream_call){.request.method = "POST"}, &r, 1000, &out);
        expect(out.retry_after_ms == rows[i].ms, "%s: %d ms", rows[i].value,
               (int)out.retry_after_ms);
    }
}

static void pauses_grow_and_stay_bounded(void **state)
{
    (void)state;
    sm_retry retry = {.attempts = 9, .backoff_ms = 200, .max_backoff_ms = 5000};
    static const int64_t most[] = {200, 400, 800, 1600, 3200, 5000, 5000};
    for (size_t i = 0; i < COUNT(most); i++) {
        for (uint64_t random = 0; random < 5000; random += 7) {
            int64_t pause = sm_upstream_pause(&retry, (int64_t)i + 1, 0, random);
            expect(pause >= most[i] / 2 && pause <= most[i], "attempt %zu: %d", i, (int)pause);
        }
        assert_int_equal(sm_upstream_pause(&retry, (int64_t)i + 1, 9000, 1), 9000);
    }
    assert_int_equal(sm_upstream_pause(&retry, 1, 86400000, 1), 60000);
    assert_true(sm_upstream_pause(&retry, INT64_MAX, 0, UINT64_MAX) <= 5000);
    sm_retry odd = {.backoff_ms = SM_DURATION_MAX_MS, .max_backoff_ms = SM_DURATION_MAX_MS};
    assert_true(sm_upstream_pause(&odd, 100, 0, UINT64_MAX) <= SM_DURATION_MAX_MS);
    odd = (sm_retry){.backoff_ms = 1, .max_backoff_ms = 1};
    assert_int_equal(sm_upstream_pause(&odd, 5, 0, 12345), 1);
}

static int arena_make(void **state)
{
    sm_arena *a = malloc(sizeof *a);
    sm_arena_init(a, SM_ARENA_MAX);
    *state = a;
    return 0;
}

static int arena_drop(void **state)
{
    sm_arena_fini(*state);
    free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_of_how_it_is_sent_is_in_its_shape),
        cmocka_unit_test(arguments_fill_the_url),
        cmocka_unit_test(arguments_that_do_not_fill_the_url_are_refused),
        cmocka_unit_test(a_wrong_template_is_refused_with_its_contract),
        cmocka_unit_test(what_does_not_fit_an_upstream_is_told),
        cmocka_unit_test(arguments_become_the_body),
        cmocka_unit_test(a_form_that_grows_too_large_is_refused),
        cmocka_unit_test(secrets_come_from_the_environment),
        cmocka_unit_test(the_request_is_what_the_contract_says),
        cmocka_unit_test(the_key_goes_where_the_contract_says),
        cmocka_unit_test(a_key_that_has_no_place_or_cannot_be_sent_is_refused),
        cmocka_unit_test(a_key_may_be_declared_for_the_tool),
        cmocka_unit_test(an_exchange_proves_what_the_table_says),
        cmocka_unit_test(retry_after_is_seconds_or_a_moment),
        cmocka_unit_test(pauses_grow_and_stay_bounded),
    };
    return cmocka_run_group_tests(tests, arena_make, arena_drop);
}
