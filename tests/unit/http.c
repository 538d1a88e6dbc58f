/*
 * The HTTP client against real servers: what was sent, what came back, and that a write is sent at
 * most once whatever becomes of its connection.
 */
#include "servers.h"

#include <dlfcn.h>
#include <netdb.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "upstream/http.h"

static upstream plain, secure, foreign;
static sm_http *http; /* trusts `secure`, not `foreign` */

/* ---- names -----------------------------------------------------------------------------------*/

static atomic_int lookups; /* of the slow name, under way */
static atomic_bool known;  /* they end */

/* Stands before the C library's: one name that is slow to look up, and one that does not exist. */
int getaddrinfo(const char *restrict name, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict out)
{
    if (name != NULL && strcmp(name, "slow.invalid") == 0) {
        while (!atomic_load(&known))
            usleep(1000);
        atomic_fetch_sub(&lookups, 1);
        return EAI_NONAME;
    }
    if (name != NULL && strcmp(name, "no-such-host.invalid") == 0)
        return EAI_NONAME;
    int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&next = dlsym(RTLD_NEXT, "getaddrinfo");
    return next(name, service, hints, out);
}

/* ---- one exchange, waited for ----------------------------------------------------------------*/

typedef struct outcome {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_uint done;
    unsigned heads, unsent_heads, pieces;
    bool whole;   /* the body is to be kept */
    bool refuse;  /* pieces, until resumed */
    bool refused; /* one was */
    sm_http_result r;
    char *headers; /* "Name: value\n" each */
    char *body;
    size_t body_length;
    char error[256];
} outcome;

static void outcome_init(outcome *o)
{
    memset(o, 0, sizeof *o);
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, NULL);
}

static void outcome_fini(outcome *o)
{
    free(o->headers);
    free(o->body);
    pthread_mutex_destroy(&o->lock);
    pthread_cond_destroy(&o->changed);
}

static void keep(outcome *o, sm_str bytes)
{
    o->body = realloc(o->body, o->body_length + bytes.n + 1);
    assert_non_null(o->body);
    memcpy(o->body + o->body_length, bytes.p, bytes.n);
    o->body_length += bytes.n;
    o->body[o->body_length] = '\0';
}

static char *list_headers(const sm_http_result *r)
{
    sm_buf b;
    sm_buf_init(&b, 1u << 20);
    for (size_t i = 0; i < r->header_count; i++)
        sm_buf_printf(&b, "%.*s: %.*s\n", SM_FMT(r->headers[i].name), SM_FMT(r->headers[i].value));
    sm_buf_byte(&b, '\0');
    return b.p;
}

static void on_done(void *context, const sm_http_result *r)
{
    outcome *o = context;
    pthread_mutex_lock(&o->lock);
    o->done++;
    o->r = *r;
    if (r->body.p != NULL)
        keep(o, r->body);
    free(o->headers);
    o->headers = list_headers(r);
    snprintf(o->error, sizeof o->error, "%s", r->error == NULL ? "" : r->error);
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
}

static bool on_head(void *context, const sm_http_result *head)
{
    outcome *o = context;
    pthread_mutex_lock(&o->lock);
    o->heads++;
    o->unsent_heads += !head->sent;
    o->r.status = head->status;
    bool trickles = !o->whole;
    pthread_mutex_unlock(&o->lock);
    return trickles;
}

static bool on_data(void *context, sm_str piece)
{
    outcome *o = context;
    pthread_mutex_lock(&o->lock);
    bool taken = !o->refuse;
    o->refused |= !taken;
    if (taken) {
        o->pieces++;
        keep(o, piece);
    }
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    return taken;
}

static void wait_done(outcome *o)
{
    pthread_mutex_lock(&o->lock);
    while (o->done == 0)
        pthread_cond_wait(&o->changed, &o->lock);
    pthread_mutex_unlock(&o->lock);
}

static sm_http_exchange *begin(const sm_http_request *q, int64_t pause_ms, outcome *o)
{
    sm_http_exchange *x;
    sm_http_callbacks callbacks = {.done = on_done, .head = on_head, .data = on_data, .context = o};
    outcome_init(o);
    assert_int_equal(sm_http_send(http, q, pause_ms, &callbacks, &x), SM_OK);
    return x;
}

static const char *url_of(const char *base, const char *path)
{
    static char urls[4][512];
    static unsigned next;
    char *url = urls[next++ % 4];
    snprintf(url, sizeof urls[0], "%s%s", base, path);
    return url;
}

/* A write with a small body, unless it is changed before it is used. */
static sm_http_request request_for(const char *base, const char *path)
{
    return (sm_http_request){.method = "POST",
                             .url = sm_str_from(url_of(base, path)),
                             .body = SM_STR("{\"a\":1}"),
                             .timeout_ms = 10000,
                             .write = true,
                             .body_max = 1u << 20};
}

static void perform(const sm_http_request *q, outcome *o)
{
    begin(q, 0, o);
    wait_done(o);
}

static void perform_on(const char *base, const char *path, outcome *o)
{
    sm_http_request q = request_for(base, path);
    perform(&q, o);
}

/* ---- what was sent ---------------------------------------------------------------------------*/

static void expect_not_sent(const sm_http_request *q, const char *says)
{
    outcome o;
    perform(q, &o);
    expect(!o.r.sent && !o.r.complete && o.r.status == 0, "%.*s: sent %d, complete %d, %s",
           SM_FMT(q->url), o.r.sent, o.r.complete, o.error);
    expect(strstr(o.error, says) != NULL, "%.*s: expected <%s> in <%s>", SM_FMT(q->url), says,
           o.error);
    outcome_fini(&o);
}

static void what_cannot_be_reached_was_not_sent(void **state)
{
    (void)state;
    int port;
    int nobody = bind_here(&port);
    char base[64];
    snprintf(base, sizeof base, "http://127.0.0.1:%d", port);
    sm_http_request q = request_for(base, "/ok");
    expect_not_sent(&q, "connect");
    q = request_for("http://no-such-host.invalid", "/ok");
    expect_not_sent(&q, "resolve");
    close(nobody);
}

/* A queue that is full lets nobody in, and says nothing. */
static void a_connection_that_is_not_made_in_time_was_not_sent(void **state)
{
    (void)state;
    int port, fds[8];
    int listener = listen_here(&port, 0);
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (size_t i = 0; i < COUNT(fds); i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(fds[i], (struct sockaddr *)&a, sizeof a);
    }
    char base[64];
    snprintf(base, sizeof base, "http://127.0.0.1:%d", port);
    sm_http_request q = request_for(base, "/ok");
    q.timeout_ms = 300;
    outcome o;
    perform(&q, &o);
    assert_true(!o.r.sent && !o.r.complete && o.r.timed_out);
    assert_true(o.r.took_ms >= 250 && o.r.took_ms < 5000);
    outcome_fini(&o);
    for (size_t i = 0; i < COUNT(fds); i++)
        close(fds[i]);
    close(listener);
}

/* Name lookups are done by threads of their own, which nobody waits for. */
static void a_slow_name_holds_nobody_up(void **state)
{
    (void)state;
    outcome slow, other;
    sm_http_request q = request_for("http://slow.invalid", "/ok");
    q.timeout_ms = 200;
    atomic_store(&lookups, 1);
    begin(&q, 0, &slow);
    while (slow.done == 0) {
        perform_on(plain.base, "/ok", &other);
        assert_true(other.r.complete);
        outcome_fini(&other);
    }
    wait_done(&slow);
    assert_true(!slow.r.sent && slow.r.timed_out);
    outcome_fini(&slow);
    assert_int_equal(atomic_load(&lookups), 1);
    atomic_store(&known, true);
    while (atomic_load(&lookups) > 0)
        usleep(1000);
    usleep(20000); /* for the thread to end */
}

static void without_a_trusted_server_nothing_is_sent(void **state)
{
    (void)state;
    char base[64];
    sm_http_request q = request_for(foreign.base, "/ok");
    expect_not_sent(&q, "certificate");
    snprintf(base, sizeof base, "https://localhost:%d", secure.port); /* another name */
    q = request_for(base, "/ok");
    expect_not_sent(&q, "localhost");
    static scripted s = {.unasked = true}; /* no TLS there */
    scripted_start(&s, SM_STR("HTTP/1.1 400 What\r\n\r\n"));
    snprintf(base, sizeof base, "https://127.0.0.1:%d", s.port);
    q = request_for(base, "/ok");
    expect_not_sent(&q, "SSL");
    scripted_stop(&s);
    snprintf(base, sizeof base, "https://127.0.0.1:%d", plain.port); /* nor there, and silent */
    q = request_for(base, "/ok");
    q.timeout_ms = 200;
    expect_not_sent(&q, "time"); /* our words, or libcurl's if its clock is first */
    assert_int_equal(effects(&foreign), 0);
}

static void what_was_sent_and_not_answered_is_told_so(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        unsigned effects;
        int status;
        bool timed_out;
    } rows[] = {
        {"/close-after", 1, 0, false},  {"/reset-after", 1, 0, false},
        {"/reset-before", 0, 0, false}, {"/hang", 1, 0, true},
        {"/half-body", 1, 200, false},
    };
    const upstream *servers[] = {&plain, &secure};
    for (size_t s = 0; s < COUNT(servers); s++) {
        for (size_t i = 0; i < COUNT(rows); i++) {
            size_t before = effects(servers[s]);
            sm_http_request q = request_for(servers[s]->base, rows[i].path);
            q.timeout_ms = rows[i].timed_out ? 300 : 10000;
            outcome o;
            perform(&q, &o);
            expect(o.r.sent && !o.r.complete, "%.*s: sent %d, complete %d", SM_FMT(q.url), o.r.sent,
                   o.r.complete);
            expect(o.r.status == rows[i].status, "%.*s: status %d", SM_FMT(q.url), o.r.status);
            expect(o.r.timed_out == rows[i].timed_out, "%.*s: %s", SM_FMT(q.url), o.error);
            expect(o.error[0] != '\0' && o.r.body.p == NULL, "an incomplete answer is no answer");
            expect(effects(servers[s]) == before + rows[i].effects, "%.*s: done %zu times",
                   SM_FMT(q.url), effects(servers[s]) - before);
            outcome_fini(&o);
        }
    }
}

/* ---- at most once ----------------------------------------------------------------------------*/

/* A client that has no connection yet, for a while. */
static sm_http *without_connections(void)
{
    sm_http *common = http;
    assert_int_equal(sm_http_start(in_scratch("trusted.pem"), &http, NULL), SM_OK);
    return common;
}

static void with_connections(sm_http *common)
{
    sm_http_stop(http);
    sm_http_free(http);
    http = common;
}

/* The server does the work, then closes a connection that it has answered on before. libcurl takes
 * that for a connection that had gone stale, and would send the request once more. */
static void expect_once(const upstream *u, const char *method, sm_str body)
{
    outcome o;
    sm_http *common = without_connections();
    sm_http_request q = request_for(u->base, "/ok-then-close");
    perform(&q, &o); /* leaves a connection behind */
    assert_true(o.r.complete && o.r.status == 200);
    outcome_fini(&o);
    size_t before = effects(u);
    q.method = method;
    q.body = body;
    perform(&q, &o);
    expect(effects(u) == before + 1, "%s, %zu bytes: done %zu times", method, body.n,
           effects(u) - before);
    expect(o.r.sent && !o.r.complete, "%s: sent %d, complete %d, status %d", method, o.r.sent,
           o.r.complete, o.r.status);
    outcome_fini(&o);
    with_connections(common);
}

static void a_write_on_a_connection_that_dies_is_sent_once(void **state)
{
    (void)state;
    char *large = malloc(300000);
    assert_non_null(large);
    memset(large, 'x', 300000);
    const upstream *servers[] = {&plain, &secure};
    for (size_t i = 0; i < COUNT(servers); i++) {
        expect_once(servers[i], "POST", SM_STR("{\"a\":1}"));
        expect_once(servers[i], "POST", (sm_str){0});
        expect_once(servers[i], "DELETE", (sm_str){0});
        expect_once(servers[i], "GET", (sm_str){0});
        expect_once(servers[i], "PUT", (sm_str){large, 300000});
    }
    free(large);
}

/* The same with a read shows that there is something to prevent. */
static void a_read_on_a_connection_that_dies_is_sent_again(void **state)
{
    (void)state;
    outcome o;
    sm_http *common = without_connections();
    sm_http_request q = request_for(plain.base, "/ok-then-close");
    q.method = "GET";
    q.body = (sm_str){0};
    q.write = false;
    perform(&q, &o);
    outcome_fini(&o);
    size_t before = effects(&plain);
    perform(&q, &o);
    assert_true(o.r.complete && o.r.status == 200);
    assert_int_equal(effects(&plain), before + 2);
    outcome_fini(&o);
    with_connections(common);
}

/* A connection that the server closed while it was idle is not used: nothing is in doubt. */
static void a_connection_that_was_closed_meanwhile_does_no_harm(void **state)
{
    (void)state;
    static scripted s;
    scripted_start(&s, SM_STR("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
    for (int i = 0; i < 5; i++) {
        outcome o;
        perform_on(s.base, "/", &o);
        expect(o.r.complete && o.r.status == 200, "try %d: %s", i, o.error);
        outcome_fini(&o);
        usleep(20000);
    }
    assert_int_equal(s.served, 5);
    scripted_stop(&s);
}

/* ---- requests --------------------------------------------------------------------------------*/

static void a_request_arrives_as_it_was_made(void **state)
{
    static const sm_http_field fields[] = {
        {BYTES("X-Plain"), BYTES("a value")},
        {BYTES("x-Empty"), BYTES("")},
        {BYTES("X-Blanks"), BYTES("  ")},
        {BYTES("Content-Type"), BYTES("text/odd; charset=x")},
    };
    const upstream *servers[] = {&plain, &secure};
    for (size_t i = 0; i < COUNT(servers); i++) {
        outcome o;
        sm_http_request q =
            request_for(servers[i]->base, "/echo/a/../b/./c%2fd//e?q=%20&x={y}&z[]='1'");
        q.method = "PATCH";
        q.headers = fields;
        q.header_count = COUNT(fields);
        q.body = SM_STR("line\nend");
        perform(&q, &o);
        expect(o.r.complete && o.r.status == 200, "%s", o.error);
        const sm_json *v = document(*state, o.body);
        expect_text(sm_json_text(sm_json_find(v, SM_STR("method"))), "PATCH");
        expect_text(sm_json_text(sm_json_find(v, SM_STR("target"))),
                    "/echo/a/../b/./c%2fd//e?q=%20&x={y}&z[]='1'");
        expect_text(sm_json_text(sm_json_find(v, SM_STR("body"))), "line\nend");
        const sm_json *h = sm_json_find(v, SM_STR("headers"));
        expect_text(sm_json_text(sm_json_find(h, SM_STR("X-Plain"))), "a value");
        expect_text(sm_json_text(sm_json_find(h, SM_STR("x-Empty"))), "");
        expect_text(sm_json_text(sm_json_find(h, SM_STR("X-Blanks"))), "");
        expect_text(sm_json_text(sm_json_find(h, SM_STR("Content-Type"))), "text/odd; charset=x");
        expect_text(sm_json_text(sm_json_find(h, SM_STR("User-Agent"))),
                    "semel/" SEMEL_VERSION_STRING);
        assert_null(sm_json_find(h, SM_STR("Expect")));
        assert_null(sm_json_find(h, SM_STR("Accept-Encoding")));
        assert_null(sm_json_find(h, SM_STR("Cookie")));
        outcome_fini(&o);
    }
}

static void a_body_has_no_type_and_no_expectation_of_its_own(void **state)
{
    outcome o;
    size_t n = 2u << 20;
    char *large = malloc(n);
    assert_non_null(large);
    memset(large, 'y', n);
    sm_http_request q = request_for(plain.base, "/echo");
    q.body = (sm_str){large, n};
    q.body_max = 4u << 20;
    perform(&q, &o);
    assert_true(o.r.complete);
    assert_null(strstr(o.body, "\"Expect\""));
    assert_null(strstr(o.body, "\"Content-Type\""));
    assert_non_null(strstr(o.body, "\"Content-Length\":\"2097152\""));
    outcome_fini(&o);
    free(large);
    q.body = (sm_str){0};
    perform(&q, &o); /* after one with a body, on the same carrier */
    const sm_json *h = sm_json_find(document(*state, o.body), SM_STR("headers"));
    expect_text(sm_json_text(sm_json_find(h, SM_STR("Content-Length"))), "0");
    outcome_fini(&o);
    q.method = "DELETE";
    perform(&q, &o);
    assert_null(strstr(o.body, "Content-Length"));
    outcome_fini(&o);
    q.method = "HEAD";
    perform(&q, &o);
    assert_true(o.r.complete && o.r.status == 200 && o.body_length == 0);
    outcome_fini(&o);
    q.method = "GET";
    perform(&q, &o);
    assert_true(o.r.complete && o.body_length > 0);
    outcome_fini(&o);
}

static void what_must_not_be_sent_is_refused(void **state)
{
    (void)state;
    static const char *const urls[] = {
        "ftp://127.0.0.1/",       "127.0.0.1/",          "http://",
        "http://u@127.0.0.1/",    "http://u:p@x/",       "http://127.0.0.1/a b",
        "http://127.0.0.1/\r\nX", "http://127.0.0.1/#f", "http://127.0.0.1:0/",
        "http://127.0.0.1:99999", "http://a%62c/",       "http://[::1/",
        "http://x/\xC3\xA9",      "file:///etc/passwd",  "HTTP//x",
    };
    sm_http_callbacks callbacks = {.done = on_done};
    for (size_t i = 0; i < COUNT(urls); i++) {
        sm_http_request q = request_for(plain.base, "/ok");
        q.url = sm_str_from(urls[i]);
        expect(sm_http_send(http, &q, 0, &callbacks, NULL) == SEMEL_E_INVALID, "%s", urls[i]);
    }
    static const sm_http_field fields[] = {
        {BYTES("A"), BYTES("b\r\nC: d")},
        {BYTES("A"), BYTES("b\nc")},
        {BYTES("A"), BYTES("b\0c")},
        {BYTES("A b"), BYTES("c")},
        {BYTES("A:"), BYTES("c")},
        {BYTES(""), BYTES("c")},
        {BYTES("Content-Length"), BYTES("1")},
        {BYTES("transfer-encoding"), BYTES("chunked")},
        {BYTES("Connection"), BYTES("x")},
    };
    for (size_t i = 0; i < COUNT(fields); i++) {
        sm_http_request q = request_for(plain.base, "/ok");
        q.headers = &fields[i];
        q.header_count = 1;
        expect(sm_http_send(http, &q, 0, &callbacks, NULL) == SEMEL_E_INVALID, "header %zu", i);
    }
    sm_http_request q = request_for(plain.base, "/ok");
    q.method = "PO ST";
    assert_int_equal(sm_http_send(http, &q, 0, &callbacks, NULL), SEMEL_E_INVALID);
}

/* ---- answers ---------------------------------------------------------------------------------*/

static void a_redirect_is_an_answer(void **state)
{
    (void)state;
    outcome o;
    size_t before = effects(&plain);
    perform_on(plain.base, "/redirect", &o);
    assert_true(o.r.complete && o.r.status == 302);
    assert_non_null(strstr(o.headers, "Location: /ok\n"));
    assert_int_equal(effects(&plain), before);
    outcome_fini(&o);
}

static void the_body_of_an_answer_is_bounded(void **state)
{
    (void)state;
    outcome o;
    sm_http_request q = request_for(plain.base, "/huge/5000000");
    q.body_max = 100000;
    perform(&q, &o);
    assert_true(o.r.sent && o.r.complete && o.r.cut && o.r.status == 200);
    assert_int_equal(o.body_length, 100000); /* how it begins */
    outcome_fini(&o);
    q = request_for(plain.base, "/huge/100000");
    q.body_max = 100000;
    perform(&q, &o);
    assert_true(o.r.complete && !o.r.cut && o.body_length == 100000);
    outcome_fini(&o);
    q.body_max = 99999;
    perform(&q, &o);
    assert_true(o.r.complete && o.r.cut);
    outcome_fini(&o);
    perform_on(plain.base, "/nothing", &o);
    assert_true(o.r.complete && o.r.status == 204 && o.r.body.p != NULL && o.r.body.n == 0);
    outcome_fini(&o);
}

static void expect_scripted(sm_str script, bool complete, int status, const char *headers,
                            const char *body)
{
    static scripted s;
    outcome o;
    scripted_start(&s, script);
    perform_on(s.base, "/", &o);
    expect(o.r.sent && o.r.complete == complete && o.r.status == status,
           "%.60s: complete %d, status %d, %s", script.p, o.r.complete, o.r.status, o.error);
    if (headers != NULL)
        assert_string_equal(o.headers, headers);
    if (body != NULL)
        assert_string_equal(o.body == NULL ? "" : o.body, body);
    outcome_fini(&o);
    scripted_stop(&s);
}

static void the_head_of_an_answer_is_kept_exactly(void **state)
{
    (void)state;
    expect_scripted(SM_STR("HTTP/1.1 200 Fine\r\nX-a:b\r\nx-A:  c \t\r\nX-Empty:\r\n"
                           "X-Fold: one\r\n  two\r\nContent-Length: 2\r\n\r\nok"),
                    true, 200, "X-a: b\nx-A: c\nX-Empty: \nX-Fold: one two\nContent-Length: 2\n",
                    "ok");
    /* Announcements and trailers are no part of it. */
    expect_scripted(SM_STR("HTTP/1.1 100 Continue\r\nA: b\r\n\r\nHTTP/1.1 103 Early\r\nB: c\r\n\r\n"
                           "HTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n"
                           "Trailer: x\r\n\r\n"),
                    true, 201, "Transfer-Encoding: chunked\n", "ok");
    expect_scripted(SM_STR("HTTP/1.0 200\r\n\r\nto the end"), true, 200, "", "to the end");
    expect_scripted(SM_STR("HTTP/1.1 409 No\r\n\r\n"), true, 409, "", "");
    expect_scripted(SM_STR("HTTP/1.1 999 No\r\n\r\n"), true, 999, "", "");
}

static void an_answer_that_is_none_is_not_complete(void **state)
{
    (void)state;
    expect_scripted(SM_STR("HTTP/1.1 100 Continue\r\n\r\n"), false, 100, NULL, NULL);
    expect_scripted(SM_STR("HTTP/1.1 101 Other\r\nUpgrade: x\r\n\r\n"), false, 101, NULL, NULL);
    expect_scripted(SM_STR("HTTP/1.1 200 OK\r\nContent-Le"), false, 200, NULL, NULL);
    expect_scripted(SM_STR("what is this\r\n\r\n"), false, 0, NULL, NULL);
    expect_scripted(SM_STR("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"), false,
                    200, NULL, NULL);
    sm_buf b;
    sm_buf_init(&b, 1u << 20);
    sm_buf_text(&b, "HTTP/1.1 200 OK\r\n");
    for (int i = 0; i < 3000; i++)
        sm_buf_printf(&b, "X-%d: abcdefghijklmnopqrstuvwxyz\r\n", i);
    sm_buf_text(&b, "Content-Length: 0\r\n\r\n");
    expect_scripted(sm_buf_view(&b), false, 200, NULL, NULL);
    sm_buf_fini(&b);
}

/* ---- piece by piece --------------------------------------------------------------------------*/

static void a_trickle_comes_as_it_arrives(void **state)
{
    (void)state;
    outcome o;
    sm_http_request q = request_for(plain.base, "/slow-body");
    q.trickle = true;
    q.timeout_ms = 400; /* all of it takes 800 ms: only silence counts */
    perform(&q, &o);
    expect(o.r.complete && o.r.status == 200, "%s", o.error);
    assert_true(o.heads == 1 && o.unsent_heads == 0 && o.pieces > 5 && o.body_length == 40);
    outcome_fini(&o);
}

static void a_trickle_that_falls_silent_is_ended(void **state)
{
    (void)state;
    static scripted s = {.linger = true};
    outcome o;
    scripted_start(&s, SM_STR("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"));
    sm_http_request q = request_for(s.base, "/");
    q.trickle = true;
    q.timeout_ms = 300;
    perform(&q, &o);
    assert_true(o.r.sent && !o.r.complete && o.r.timed_out && o.r.status == 200);
    assert_true(o.heads == 1 && o.unsent_heads == 0 && o.body_length == 3);
    outcome_fini(&o);
    scripted_stop(&s);
}

static void a_trickle_can_be_declined_when_its_head_is_known(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        size_t most, bytes;
        bool cut;
    } rows[] = {{"/huge/100000", 1u << 20, 100000, false}, {"/huge/100000", 1000, 1000, true}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        outcome o;
        outcome_init(&o);
        o.whole = true;
        sm_http_request q = request_for(plain.base, rows[i].path);
        q.trickle = true;
        q.body_max = rows[i].most;
        sm_http_callbacks callbacks = {
            .done = on_done, .head = on_head, .data = on_data, .context = &o};
        assert_int_equal(sm_http_send(http, &q, 0, &callbacks, NULL), SM_OK);
        wait_done(&o);
        assert_true(o.r.complete && o.r.cut == rows[i].cut && o.heads == 1 && o.pieces == 0);
        assert_int_equal(o.body_length, rows[i].bytes);
        outcome_fini(&o);
    }
}

static void wait_refused(outcome *o)
{
    pthread_mutex_lock(&o->lock);
    while (!o->refused && o->done == 0)
        pthread_cond_wait(&o->changed, &o->lock);
    pthread_mutex_unlock(&o->lock);
}

static void a_trickle_waits_for_whoever_is_slower(void **state)
{
    (void)state;
    const upstream *servers[] = {&plain, &secure};
    for (size_t i = 0; i < COUNT(servers); i++) {
        outcome o;
        outcome_init(&o);
        o.refuse = true;
        sm_http_request q = request_for(servers[i]->base, "/huge/1000000");
        q.trickle = true;
        q.timeout_ms = 200;
        sm_http_exchange *x;
        sm_http_callbacks callbacks = {
            .done = on_done, .head = on_head, .data = on_data, .context = &o};
        assert_int_equal(sm_http_send(http, &q, 0, &callbacks, &x), SM_OK);
        wait_refused(&o);
        usleep(500000);    /* longer than silence may be: it is we who are slow */
        sm_http_resume(x); /* it is refused again */
        usleep(50000);
        pthread_mutex_lock(&o.lock);
        assert_true(o.done == 0 && o.pieces == 0);
        o.refuse = false;
        sm_http_resume(x);
        pthread_mutex_unlock(&o.lock);
        wait_done(&o);
        expect(o.r.complete && o.body_length == 1000000, "%zu bytes, %s", o.body_length, o.error);
        outcome_fini(&o);
    }
}

/* ---- time, and the end -----------------------------------------------------------------------*/

static void pauses_are_kept(void **state)
{
    (void)state;
    static const int64_t pauses[] = {120, 10, 60, 0, 200, 30, 90, 150, 5, 45};
    outcome o[COUNT(pauses)];
    int64_t began = sm_clock_mono_ns();
    sm_http_request q = request_for(plain.base, "/ok");
    for (size_t i = 0; i < COUNT(pauses); i++)
        begin(&q, pauses[i], &o[i]);
    for (int64_t due = 0; due <= 200; due += 5) {
        for (size_t i = 0; i < COUNT(pauses); i++) {
            if (pauses[i] != due)
                continue;
            wait_done(&o[i]);
            int64_t took = (sm_clock_mono_ns() - began) / 1000000;
            expect(took >= due, "a pause of %d ms took %d", (int)due, (int)took);
            assert_true(o[i].r.complete);
        }
    }
    for (size_t i = 0; i < COUNT(pauses); i++)
        outcome_fini(&o[i]);
}

static void what_is_given_up_ends_with_what_is_known(void **state)
{
    (void)state;
    outcome o;
    size_t before = effects(&plain);
    sm_http_request q = request_for(plain.base, "/ok");
    sm_http_exchange *x = begin(&q, 60000, &o);
    sm_http_cancel(x);
    wait_done(&o);
    assert_true(o.done == 1 && !o.r.sent && !o.r.complete);
    assert_int_equal(effects(&plain), before);
    outcome_fini(&o);
    q = request_for(plain.base, "/hang");
    x = begin(&q, 0, &o);
    while (effects(&plain) == before)
        usleep(1000);
    sm_http_cancel(x);
    wait_done(&o);
    assert_true(o.done == 1 && o.r.sent && !o.r.complete && !o.r.timed_out);
    outcome_fini(&o);
}

static void stopping_ends_everything_once(void **state)
{
    (void)state;
    outcome hanging, waiting, again;
    sm_http *common = http;
    size_t before = effects(&plain);
    assert_int_equal(sm_http_start(NULL, &http, NULL), SM_OK);
    sm_http_request q = request_for(plain.base, "/hang");
    begin(&q, 0, &hanging);
    q = request_for(plain.base, "/ok");
    begin(&q, 60000, &waiting);
    while (effects(&plain) == before)
        usleep(1000);
    assert_int_equal(sm_http_under_way(http), 2);
    q = request_for(plain.base, "/nothing");
    begin(&q, 0, &again); /* may or may not be in time */
    sm_http_stop(http);
    sm_http_free(http);
    http = common;
    assert_true(hanging.done == 1 && hanging.r.sent && !hanging.r.complete);
    assert_true(waiting.done == 1 && !waiting.r.sent && !waiting.r.complete);
    assert_true(again.done == 1);
    outcome_fini(&hanging);
    outcome_fini(&waiting);
    outcome_fini(&again);
}

static void a_client_without_its_certificates_does_not_start(void **state)
{
    (void)state;
    sm_fault fault;
    sm_http *h;
    assert_int_equal(sm_http_start(in_scratch("nothing.pem"), &h, &fault), SEMEL_E_INVALID);
    assert_null(h);
    assert_non_null(strstr(fault.text, "nothing.pem"));
    sm_http_stop(NULL);
    sm_http_free(NULL);
}

/* ---- many ------------------------------------------------------------------------------------*/

typedef struct crowd {
    atomic_int left, right, wrong;
    sm_http_request q;
} crowd;

/* Each starts the next one, from the callback. */
static void on_one_of_many(void *context, const sm_http_result *r)
{
    crowd *c = context;
    atomic_fetch_add(r->complete && r->status == 200 ? &c->right : &c->wrong, 1);
    sm_http_callbacks callbacks = {.done = on_one_of_many, .context = c};
    if (atomic_fetch_sub(&c->left, 1) > 0 &&
        sm_http_send(http, &c->q, 0, &callbacks, NULL) != SM_OK)
        atomic_fetch_add(&c->wrong, 1);
}

static void many_at_once_are_each_done_once(void **state)
{
    (void)state;
    enum { MANY = 3000, AT_ONCE = 100 };
    size_t before = effects(&plain);
    crowd c = {.q = request_for(plain.base, "/ok")};
    atomic_store(&c.left, MANY - AT_ONCE);
    sm_http_callbacks callbacks = {.done = on_one_of_many, .context = &c};
    for (int i = 0; i < AT_ONCE; i++)
        assert_int_equal(sm_http_send(http, &c.q, 0, &callbacks, NULL), SM_OK);
    while (sm_http_under_way(http) > 0)
        usleep(1000);
    assert_int_equal(atomic_load(&c.right), MANY);
    assert_int_equal(atomic_load(&c.wrong), 0);
    assert_int_equal(effects(&plain), before + MANY);
}

static void the_environment_chooses_no_proxy(void **state)
{
    (void)state;
    outcome o;
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
    perform_on(plain.base, "/ok", &o);
    unsetenv("http_proxy");
    unsetenv("ALL_PROXY");
    assert_true(o.r.complete && o.r.status == 200);
    outcome_fini(&o);
}

/* ---- around ----------------------------------------------------------------------------------*/

static int prepare(void **state)
{
    snprintf(scratch, sizeof scratch, "/tmp/unit_http.XXXXXX");
    assert_non_null(mkdtemp(scratch));
    certificate_make("trusted");
    certificate_make("foreign");
    upstream_start(&plain, "plain", NULL, NULL);
    upstream_start(&secure, "secure", in_scratch("trusted.pem"), in_scratch("trusted.key"));
    upstream_start(&foreign, "foreign", in_scratch("foreign.pem"), in_scratch("foreign.key"));
    assert_int_equal(sm_http_start(in_scratch("trusted.pem"), &http, NULL), SM_OK);
    static sm_arena arena;
    sm_arena_init(&arena, SM_ARENA_MAX);
    *state = &arena;
    return 0;
}

static int clear(void **state)
{
    sm_http_stop(http);
    sm_http_free(http);
    upstream_stop(&plain);
    upstream_stop(&secure);
    upstream_stop(&foreign);
    sm_arena_fini(*state);
    static const char *const files[] = {"trusted.pem", "trusted.key", "foreign.pem", "foreign.key",
                                        "plain.log",   "plain.port",  "secure.log",  "secure.port",
                                        "foreign.log", "foreign.port"};
    for (size_t i = 0; i < COUNT(files); i++)
        unlink(in_scratch(files[i]));
    return rmdir(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_reached_was_not_sent),
        cmocka_unit_test(a_connection_that_is_not_made_in_time_was_not_sent),
        cmocka_unit_test(a_slow_name_holds_nobody_up),
        cmocka_unit_test(without_a_trusted_server_nothing_is_sent),
        cmocka_unit_test(what_was_sent_and_not_answered_is_told_so),
        cmocka_unit_test(a_write_on_a_connection_that_dies_is_sent_once),
        cmocka_unit_test(a_read_on_a_connection_that_dies_is_sent_again),
        cmocka_unit_test(a_connection_that_was_closed_meanwhile_does_no_harm),
        cmocka_unit_test(a_request_arrives_as_it_was_made),
        cmocka_unit_test(a_body_has_no_type_and_no_expectation_of_its_own),
        cmocka_unit_test(what_must_not_be_sent_is_refused),
        cmocka_unit_test(a_redirect_is_an_answer),
        cmocka_unit_test(the_body_of_an_answer_is_bounded),
        cmocka_unit_test(the_head_of_an_answer_is_kept_exactly),
        cmocka_unit_test(an_answer_that_is_none_is_not_complete),
        cmocka_unit_test(a_trickle_comes_as_it_arrives),
        cmocka_unit_test(a_trickle_that_falls_silent_is_ended),
        cmocka_unit_test(a_trickle_can_be_declined_when_its_head_is_known),
        cmocka_unit_test(a_trickle_waits_for_whoever_is_slower),
        cmocka_unit_test(pauses_are_kept),
        cmocka_unit_test(what_is_given_up_ends_with_what_is_known),
        cmocka_unit_test(stopping_ends_everything_once),
        cmocka_unit_test(a_client_without_its_certificates_does_not_start),
        cmocka_unit_test(many_at_once_are_each_done_once),
        cmocka_unit_test(the_environment_chooses_no_proxy),
    };
    return cmocka_run_group_tests(tests, prepare, clear);
}
