/*
 * The head of a request: whether it means one thing only, and a copy of it that is ours.
 *
 * libmicrohttpd takes heads apart leniently. Its texts end at the first NUL that a client sends, a
 * folded line is added to the name of the header before it, and lines may end with a bare line
 * feed. What stands in front of us may read all of that in another way, and then two sides see
 * different requests on one connection. So the pieces that it gives are held against the bytes that
 * they were cut from, which still lie where they were read:
 *
 *     METHOD 0 TARGET 0 VERSION 0 0   NAME 0 blanks VALUE 0 0   NAME 0 ...   0 0
 *            ^ the space              ^ the colon         ^ CR LF           ^ CR LF of the end
 *
 * If each piece begins where the one before ends, nothing was left out and nothing was moved. A
 * flaw is answered with 400 and costs the connection.
 *
 * Heads also share their memory with the head of the answer. A request is refused while there is
 * room to say so: one that was carried out and can never be answered would be worse.
 */
#include <strings.h>

#include "base/header.h"
#include "gateway/http/server.h"

#define BEHIND_BYTES 256u /* libmicrohttpd reads on behind the head, and rounds up */
#define GROWTH       16u  /* beyond half of all memory it reads ahead by this part of it */

/* ---- as it came ------------------------------------------------------------------------------*/

static bool is_visible(sm_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] <= ' ' || s.p[i] == 127)
            return false;
    return true;
}

typedef struct head {
    gw_inner *q;
    const char *at; /* where the next header must begin; NULL: one was not there */
    size_t bytes;
} head;

/* Whether a header is where it must be, with nothing but blanks before its value. */
static void follow(head *h, const gw_pair *pair)
{
    const char *at = h->at == pair->name.p ? pair->name.p + pair->name.n + 1 : NULL;
    while (at != NULL && at < pair->value.p)
        at = *at == ' ' || *at == '\t' ? at + 1 : NULL;
    h->at = at == NULL ? NULL : at + pair->value.n + 2;
}

static enum MHD_Result take_header(void *context, enum MHD_ValueKind kind, const char *name,
                                   size_t name_size, const char *value, size_t value_size)
{
    (void)kind;
    head *h = context;
    gw_inner *q = h->q;
    if (q->header_count == GW_HEADERS_MAX) {
        q->flaw = "the request has too many headers";
        return MHD_NO;
    }
    gw_pair *pair = &q->headers[q->header_count++];
    *pair = (gw_pair){{name, name_size}, {value == NULL ? "" : value, value_size}};
    follow(h, pair);
    if (!sm_header_name(pair->name))
        q->flaw = "a header's name has characters that no name has";
    else if (!sm_header_value(pair->value))
        q->flaw = "a header's value has control characters";
    h->bytes += name_size + value_size + 2;
    return MHD_YES;
}

/* Where the first header must begin; NULL if there is more in the first line than we were told. */
static const char *behind_line(const gw_inner *q, const gw_line *line)
{
    const char *target = line->method + strlen(line->method) + 1;
    bool plain = line->target == target && line->version == target + q->target_bytes + 1;
    return plain ? line->version + strlen(line->version) + 2 : NULL;
}

static size_t whole_bytes(const gw_inner *q)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(q->conn->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return info != NULL ? info->header_size : 0;
}

/* How much of the connection's memory the head of the answer may have. A client that sends its next
 * request ahead may fill half of all memory with both; then there must be room for a small one. A
 * head of more than half may have more behind it. */
static void measure(gw_inner *q)
{
    int records = MHD_get_connection_values_n(
        q->conn->mhd, MHD_HEADER_KIND | MHD_COOKIE_KIND | MHD_GET_ARGUMENT_KIND, NULL, NULL);
    size_t kept = records > 0 ? (size_t)records * GW_RECORD_BYTES : 0;
    kept += gw_header(&q->r, "Cookie").n; /* it is copied */
    size_t all = q->conn->roomy ? GW_ROOMY_BYTES : GW_CONNECTION_BYTES;
    size_t used = q->head_bytes + BEHIND_BYTES + kept;
    if (q->conn->roomy && q->head_bytes > all / 2 - all / GROWTH)
        used += all / GROWTH;
    q->room = used < all ? all - used : 0;
    if (all / 2 + kept + GW_SPARE_BYTES > all)
        q->room = 0;
    q->outgrown = !q->conn->roomy && q->head_bytes > GW_SMALL_HEAD;
}

/* ---- what it says ----------------------------------------------------------------------------*/

/* One of the headers that may come only once. */
static void take_once(gw_inner *q, sm_str *out, sm_str value, const char *flaw)
{
    if (out->p != NULL)
        q->flaw = flaw;
    *out = value;
}

static void take_length(gw_inner *q, sm_str value)
{
    if (q->length >= 0)
        q->flaw = "the request has more than one Content-Length";
    q->length = 0;
    if (value.n == 0 || value.n > 18)
        q->flaw = "Content-Length is not a number of bytes";
    for (size_t i = 0; i < value.n && q->flaw == NULL; i++) {
        if (value.p[i] < '0' || value.p[i] > '9')
            q->flaw = "Content-Length is not a number of bytes";
        q->length = q->length * 10 + (value.p[i] - '0');
    }
}

static void take_encoding(gw_inner *q, sm_str value)
{
    if (q->chunked || value.n != 7 || strncasecmp(value.p, "chunked", 7) != 0)
        q->flaw = "Transfer-Encoding must be chunked, or absent";
    else if (q->old)
        q->flaw = "HTTP/1.0 has no Transfer-Encoding";
    q->chunked = true;
}

/* Names of one length differ in what they are, so that most headers are passed over by it. */
static void classify(gw_inner *q, const gw_pair *h)
{
#define IS(text) (strncasecmp(h->name.p, text, sizeof(text) - 1) == 0)
    switch (h->name.n) {
    case 4:
        if (IS("host"))
            take_once(q, &q->host, h->value, "the request has more than one Host");
        break;
    case 6:
        if (IS("origin"))
            take_once(q, &q->origin, h->value, "the request has more than one Origin");
        else if (IS("expect"))
            q->expects = true;
        break;
    case 10:
        if (IS("tracestate"))
            q->tracestate = h->value;
        break;
    case 11:
        if (IS("traceparent"))
            q->traceparent = h->value;
        else if (IS("semel-token"))
            take_once(q, &q->token, h->value, "the request has more than one Semel-Token");
        break;
    case 13:
        if (IS("authorization"))
            take_once(q, &q->authorization, h->value,
                      "the request has more than one Authorization");
        break;
    case 14:
        if (IS("content-length"))
            take_length(q, h->value);
        break;
    case 17:
        if (IS("transfer-encoding"))
            take_encoding(q, h->value);
        break;
    }
#undef IS
}

/* Headers that decide something. A name that ends with a dash stands for all that begin with it. */
#define NAMED(text)                                                                                \
    {                                                                                              \
        text, sizeof text - 1                                                                      \
    }
static const sm_str deciding[] = {
    NAMED("content-type"),
    NAMED("content-encoding"),
    NAMED("content-length"),
    NAMED("transfer-encoding"),
    NAMED("last-event-id"),
    NAMED("idempotency-key"),
    NAMED("semel-"),
    NAMED("mcp-"),
    NAMED("mcp-session-id"),
    NAMED("mcp-method"),
    NAMED("mcp-protocol-version"),
    NAMED("mcp-name"),
    NAMED("mcp-param-"),
};

/* Whether some server takes a header for one of them; *flaw is set if not all servers do. */
static bool decides(sm_str name, bool *flaw)
{
    bool found = false;
    *flaw = false;
    for (size_t i = 0; i < sizeof deciding / sizeof deciding[0]; i++) {
        sm_str one = deciding[i];
        if ((name.p[0] | 0x20) != one.p[0])
            continue; /* most headers decide nothing, and this is all that they cost */
        sm_str begin = one.p[one.n - 1] == '-' && name.n > one.n ? (sm_str){name.p, one.n} : name;
        if (sm_header_alike(begin, one)) {
            found = true;
            *flaw = *flaw || !sm_header_is(begin, one);
        }
    }
    return found;
}

/* Each of them may be there once: of two, the server may read another one than we do. It must be
 * spelled with dashes: servers of the CGI kind read other spellings too, and we do not. */
static void check_deciding(gw_inner *q)
{
    for (unsigned i = 0; i < q->header_count; i++) {
        sm_str name = q->headers[i].name;
        bool misspelled, twice = false;
        if (!decides(name, &misspelled))
            continue;
        for (unsigned k = 0; k < i && !twice; k++)
            twice = sm_header_alike(name, q->headers[k].name);
        if (!misspelled && !twice)
            continue;
        sm_str flaw =
            misspelled
                ? sm_arena_printf(&q->arena, "%.*s must be spelled with dashes", SM_FMT(name))
                : sm_arena_printf(&q->arena, "the request has more than one %.*s", SM_FMT(name));
        q->flaw = flaw.p == NULL ? "a header is there twice, or misspelled" : flaw.p;
        return;
    }
}

/* Copies the headers, for the request may outlive its connection, and looks at what they say. */
static void keep_headers(gw_inner *q, size_t bytes)
{
    char *to = sm_arena_alloc(&q->arena, bytes + SM_TEXT_PAD);
    if (to == NULL) {
        q->header_count = 0;
        q->flaw = "the headers do not fit into memory";
        return;
    }
    memset(to + bytes, 0, SM_TEXT_PAD);
    for (unsigned i = 0; i < q->header_count; i++) {
        sm_str *value = &q->headers[i].value;
        while (value->n > 0 && (value->p[value->n - 1] == ' ' || value->p[value->n - 1] == '\t'))
            value->n--; /* blanks around a value are not part of it */
        sm_str *parts[] = {&q->headers[i].name, &q->headers[i].value};
        for (int j = 0; j < 2; j++) {
            memcpy(to, parts[j]->p, parts[j]->n);
            to[parts[j]->n] = '\0';
            parts[j]->p = to;
            to += parts[j]->n + 1;
        }
        classify(q, &q->headers[i]);
    }
}

void gw_head_read(gw_inner *q, const gw_line *line)
{
    head h = {.q = q, .at = behind_line(q, line)};
    q->head_bytes = whole_bytes(q);
    q->length = -1;
    q->old = strcmp(line->version, "HTTP/1.0") == 0;
    MHD_get_connection_values_n(q->conn->mhd, MHD_HEADER_KIND, take_header, &h);
    bool whole = h.at != NULL && h.at + 2 == line->method + q->head_bytes;
    keep_headers(q, h.bytes);
    check_deciding(q);
    measure(q);
    if (q->chunked && q->length >= 0)
        q->flaw = "the request has both Content-Length and Transfer-Encoding";
    /* libmicrohttpd can be told to look at the next two, and then answers twice. */
    if (!q->old && q->host.p == NULL)
        q->flaw = "the request has no Host";
    if (!is_visible(q->r.path) || (q->r.query.p != NULL && !is_visible(q->r.query)))
        q->flaw = "the path has characters that must be percent-encoded";
    if (!sm_header_name(sm_str_from(line->method)))
        q->flaw = "the method has characters that no method has";
    if (!whole && q->flaw == NULL)
        q->flaw = "the head has a NUL, a folded line, or a line that does not end with CR LF";
    /* A request for a whole URI is for the host that the URI names, whatever Host says. */
    if (q->authority.p != NULL)
        q->host = q->authority;
    for (unsigned i = 0; q->authority.p != NULL && i < q->header_count; i++)
        if (sm_header_is(q->headers[i].name, SM_STR("Host")))
            q->headers[i].value = q->authority;
}
