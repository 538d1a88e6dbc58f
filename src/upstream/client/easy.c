/*
 * One exchange in libcurl's hands: its options, and what its callbacks note.
 *
 * Whether bytes of a request may have left is known exactly: libcurl calls on_request when it has a
 * connection, TLS included, and before it writes the first byte. So before that call nothing was
 * sent, and after it something may have been. The same call makes a write happen at most once:
 * where libcurl would silently repeat a request because a reused connection died, it calls
 * on_request a second time, and is refused. That keeps connections in use for writes, and holds for
 * requests without a body too.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/header.h"
#include "base/method.h"
#include "upstream/client/engine.h"

static int on_request(void *context, char *peer, char *self, int peer_port, int self_port)
{
    (void)peer, (void)self;
    sm_http_exchange *x = context;
    long connects = 0;
    curl_easy_getinfo(x->carrier->easy, CURLINFO_NUM_CONNECTS, &connects);
    x->stale = connects == 0 && x->requests == 0 &&
               (sm_http_socket_stale(x->http, self_port, peer_port) || sm_http_tls_stale(x));
    if (x->stale || (x->write && x->requests > 0))
        return CURL_PREREQFUNC_ABORT;
    x->requests++;
    return CURL_PREREQFUNC_OK;
}

/* ---- the head of an answer -------------------------------------------------------------------*/

/* Puts the texts where their marks say: now they no longer move. */
static bool gather_fields(carrier *c)
{
    const head_mark *marks = (const head_mark *)(const void *)c->marks.p;
    size_t n = c->marks.len / sizeof *marks;
    sm_buf_clear(&c->fields);
    for (size_t i = 0; i < n; i++) {
        sm_http_field f = {.name = {c->head.p + marks[i].name, marks[i].name_length},
                           .value = {c->head.p + marks[i].value, marks[i].value_length}};
        sm_buf_bytes(&c->fields, &f, sizeof f);
    }
    return c->fields.err == SM_OK;
}

static void describe_head(const sm_http_exchange *x, sm_http_result *out)
{
    const carrier *c = x->carrier;
    out->sent = true;
    out->status = x->status;
    out->headers = (const sm_http_field *)(const void *)c->fields.p;
    out->header_count = c->fields.len / sizeof(sm_http_field);
}

static sm_str trim(sm_str s)
{
    while (s.n > 0 && (s.p[0] == ' ' || s.p[0] == '\t')) {
        s.p++;
        s.n--;
    }
    while (s.n > 0 && strchr(" \t\r\n", s.p[s.n - 1]) != NULL)
        s.n--;
    return s;
}

static void add_field(carrier *c, sm_str line)
{
    const char *colon = memchr(line.p, ':', line.n);
    if (colon == NULL || colon == line.p)
        return; /* no header */
    sm_str name = {line.p, (size_t)(colon - line.p)};
    sm_str value = trim((sm_str){colon + 1, line.n - name.n - 1});
    head_mark m = {.name = c->head.len, .name_length = name.n};
    sm_buf_str(&c->head, name);
    sm_buf_byte(&c->head, '\0');
    m.value = c->head.len;
    m.value_length = value.n;
    sm_buf_str(&c->head, value);
    sm_buf_byte(&c->head, '\0');
    sm_buf_bytes(&c->marks, &m, sizeof m);
}

/* A line that begins with a blank goes on with the value before it. */
static void continue_field(carrier *c, sm_str line)
{
    if (c->marks.len == 0)
        return;
    head_mark m;
    memcpy(&m, c->marks.p + c->marks.len - sizeof m, sizeof m);
    line = trim(line);
    c->head.p[c->head.len - 1] = ' ';
    sm_buf_str(&c->head, line);
    sm_buf_byte(&c->head, '\0');
    m.value_length += 1 + line.n;
    memcpy(c->marks.p + c->marks.len - sizeof m, &m, sizeof m);
}

static int status_of(sm_str line)
{
    const char *blank = memchr(line.p, ' ', line.n);
    size_t left = blank == NULL ? 0 : line.n - (size_t)(blank - line.p) - 1;
    int status = 0;
    for (size_t i = 1; i <= 3 && left >= 3; i++) {
        if (blank[i] < '0' || blank[i] > '9')
            return 0;
        status = status * 10 + (blank[i] - '0');
    }
    return status;
}

/* Whether an answer that has no body by its nature announces one. A server that means it sends the
 * body, too, and it may still be on its way when the connection is used again. */
static bool announces_body(const sm_http_exchange *x)
{
    const carrier *c = x->carrier;
    const sm_http_field *f = (const sm_http_field *)(const void *)c->fields.p;
    bool announces = false;
    for (size_t i = 0; i < c->fields.len / sizeof *f; i++)
        announces =
            announces || sm_header_is(f[i].name, SM_STR("Transfer-Encoding")) ||
            (sm_header_is(f[i].name, SM_STR("Content-Length")) && !sm_str_is(f[i].value, "0"));
    return announces && (x->status == 204 || x->status == 304 || strcmp(x->method, "HEAD") == 0);
}

/* Whether the head names more than one length for the body. Readers do not agree on which one
 * counts, so nobody knows where the answer ends. */
static bool lengths_differ(const carrier *c)
{
    const sm_http_field *f = (const sm_http_field *)(const void *)c->fields.p, *first = NULL;
    bool differ = false;
    for (size_t i = 0; i < c->fields.len / sizeof *f; i++) {
        if (!sm_header_is(f[i].name, SM_STR("Content-Length")))
            continue;
        first = first == NULL ? &f[i] : first;
        differ = differ || !sm_str_eq(f[i].value, first->value) ||
                 (f[i].value.n > 0 && memchr(f[i].value.p, ',', f[i].value.n) != NULL);
    }
    return differ;
}

/* The blank line. Answers that only announce another one do not count. */
static bool end_head(sm_http_exchange *x)
{
    if (x->status < 200)
        return true;
    if (!gather_fields(x->carrier))
        return false;
    if (lengths_differ(x->carrier)) {
        x->failed = "the answer names several lengths";
        return false;
    }
    x->head_whole = true;
    if (announces_body(x))
        curl_easy_setopt(x->carrier->easy, CURLOPT_FORBID_REUSE, 1L);
    if (x->trickle && x->callbacks.head != NULL) {
        sm_http_result head = {0};
        describe_head(x, &head);
        x->trickle = x->callbacks.head(x->callbacks.context, &head);
    }
    return true;
}

static size_t on_head(char *p, size_t size, size_t n, void *context)
{
    sm_http_exchange *x = context;
    carrier *c = x->carrier;
    sm_str line = {p, size * n};
    if (x->trickle)
        x->heard_ns = sm_clock_mono_ns();
    bool right = true;
    if (x->head_whole)
        return line.n; /* trailers */
    if (line.n > 5 && memcmp(p, "HTTP/", 5) == 0) {
        sm_buf_clear(&c->head);
        sm_buf_clear(&c->marks);
        x->status = status_of(line);
    } else if (trim(line).n == 0) {
        right = end_head(x);
    } else if (p[0] == ' ' || p[0] == '\t') {
        continue_field(c, line);
    } else {
        add_field(c, line);
    }
    if (right && c->head.err == SM_OK && c->marks.err == SM_OK)
        return line.n;
    if (x->failed == NULL)
        x->failed = "the headers of the answer are too large";
    return 0;
}

/* ---- the body --------------------------------------------------------------------------------*/

static size_t on_body(char *p, size_t size, size_t n, void *context)
{
    sm_http_exchange *x = context;
    sm_str piece = {p, size * n};
    if (x->trickle) {
        x->heard_ns = sm_clock_mono_ns();
        x->paused = !x->callbacks.data(x->callbacks.context, piece);
        return x->paused ? CURL_WRITEFUNC_PAUSE : piece.n;
    }
    sm_buf *body = &x->carrier->body;
    size_t room = x->body_max - body->len;
    x->cut = piece.n > room;
    sm_buf_bytes(body, piece.p, x->cut ? room : piece.n);
    if (body->err != SM_OK)
        x->failed = "out of memory";
    return x->cut || x->failed != NULL ? 0 : piece.n;
}

/* ---- carriers --------------------------------------------------------------------------------*/

/* What is the same for every exchange. */
static CURLcode set_always(CURL *easy, const sm_http *h, char *detail)
{
    CURLcode e = CURLE_OK;
#define SET(option, value)                                                                         \
    do {                                                                                           \
        if (e == CURLE_OK)                                                                         \
            e = curl_easy_setopt(easy, option, value);                                             \
    } while (0)
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_PATH_AS_IS, 1L);
    SET(CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    SET(CURLOPT_PROXY, ""); /* none from the environment either */
    SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1); /* a connection has one request */
    SET(CURLOPT_HTTP09_ALLOWED, 0L);
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_USERAGENT, "semel/" SEMEL_VERSION_STRING);
    SET(CURLOPT_SHARE, h->share);
    /* Ending an exchange must not wait for its name lookup: everybody else would wait too. */
    SET(CURLOPT_QUICK_EXIT, 1L);
    SET(CURLOPT_OPENSOCKETFUNCTION, sm_http_socket_open);
    SET(CURLOPT_OPENSOCKETDATA, h);
    SET(CURLOPT_CLOSESOCKETFUNCTION, sm_http_socket_close);
    SET(CURLOPT_CLOSESOCKETDATA, h);
    SET(CURLOPT_PREREQFUNCTION, on_request);
    SET(CURLOPT_HEADERFUNCTION, on_head);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_ERRORBUFFER, detail);
    if (h->ca_file != NULL)
        SET(CURLOPT_CAINFO, h->ca_file);
    return e;
}

carrier *sm_http_carrier_new(sm_http *h)
{
    carrier *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    sm_buf_init(&c->head, SM_HTTP_HEAD_MAX);
    sm_buf_init(&c->marks, SM_HTTP_HEAD_MAX);
    sm_buf_init(&c->fields, SM_HTTP_HEAD_MAX);
    sm_buf_init(&c->body, 0);
    c->easy = curl_easy_init();
    if (c->easy == NULL || set_always(c->easy, h, c->detail) != CURLE_OK) {
        sm_http_carrier_free(c);
        return NULL;
    }
    return c;
}

void sm_http_carrier_free(carrier *c)
{
    if (c == NULL)
        return;
    curl_easy_cleanup(c->easy);
    sm_buf_fini(&c->head);
    sm_buf_fini(&c->marks);
    sm_buf_fini(&c->fields);
    sm_buf_fini(&c->body);
    free(c);
}

void sm_http_carrier_clear(carrier *c)
{
    sm_buf_clear(&c->head);
    sm_buf_clear(&c->marks);
    sm_buf_clear(&c->fields);
    sm_buf_clear(&c->body);
    if (c->body.cap > SM_HTTP_HEAD_MAX) {
        sm_buf_fini(&c->body);
        sm_buf_init(&c->body, 0);
    }
    c->detail[0] = '\0';
}

static bool has_length(const sm_http_exchange *x)
{
    return x->body.p != NULL || (sm_method_does(x->method) & SM_METHOD_SENDS) != 0;
}

bool sm_http_load(sm_http_exchange *x)
{
    CURL *easy = x->carrier->easy;
    CURLcode e = CURLE_OK;
    x->carrier->body.limit = x->body_max;
    int64_t connect_ms = x->timeout_ms < SM_HTTP_CONNECT_MS ? x->timeout_ms : SM_HTTP_CONNECT_MS;
    SET(CURLOPT_HTTPGET, 1L); /* forgets what the exchange before was */
    if (has_length(x)) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)x->body.n);
        SET(CURLOPT_POSTFIELDS, x->body.p == NULL ? "" : x->body.p);
    } else if (strcmp(x->method, "HEAD") == 0) {
        SET(CURLOPT_NOBODY, 1L);
    }
    SET(CURLOPT_CUSTOMREQUEST, x->method);
    SET(CURLOPT_URL, x->url);
    SET(CURLOPT_HTTPHEADER, x->headers);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms);
    SET(CURLOPT_MAXAGE_CONN, (long)(x->write ? SM_HTTP_IDLE_WRITE_S : SM_HTTP_IDLE_S));
    SET(CURLOPT_FRESH_CONNECT, (long)x->fresh);
    SET(CURLOPT_FORBID_REUSE, 0L);
    SET(CURLOPT_PREREQDATA, x);
    SET(CURLOPT_HEADERDATA, x);
    SET(CURLOPT_WRITEDATA, x);
    SET(CURLOPT_PRIVATE, x);
#undef SET
    return e == CURLE_OK;
}

/* ---- the end ---------------------------------------------------------------------------------*/

/* Before anything was sent libcurl's own words are the best there are: they name the host, or what
 * is wrong with a certificate. Afterwards what counts is what is known of the answer. */
static const char *reason(const sm_http_exchange *x, CURLcode code, bool timed_out)
{
    if (x->failed != NULL)
        return x->failed;
    if (x->requests == 0) {
        if (x->carrier != NULL && x->carrier->detail[0] != '\0')
            return x->carrier->detail;
        return timed_out ? "no connection in time" : curl_easy_strerror(code);
    }
    if (timed_out)
        return x->head_whole ? "the answer did not end in time" : "no answer in time";
    if (x->status == 0)
        return "the connection was lost before an answer came";
    return "the answer broke off";
}

void sm_http_conclude(sm_http_exchange *x, CURLcode code, sm_http_result *out)
{
    *out = (sm_http_result){0};
    if (x->head_whole)
        describe_head(x, out);
    out->sent = x->requests > 0;
    out->status = x->status;
    out->complete = x->head_whole && (code == CURLE_OK || x->cut);
    out->cut = x->cut;
    if (out->complete && !x->trickle)
        out->body = x->carrier->body.len == 0 ? SM_STR("") : sm_buf_view(&x->carrier->body);
    if (x->began_ns != 0)
        out->took_ms = (sm_clock_mono_ns() - x->began_ns) / 1000000;
    if (out->complete)
        return;
    out->timed_out = x->timed_out || code == CURLE_OPERATION_TIMEDOUT;
    out->error = reason(x, code, out->timed_out);
}
