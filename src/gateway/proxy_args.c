/*
 * What a request to an API is as a call: the arguments of the tool proxy.NAME. docs/proxy.md lists
 * them.
 *
 * A header that is passed on is one of four kinds. It names the action or whose it is: it is under
 * `headers`, and part of the key. Or nobody knows what it means: it is under `other_headers`, and
 * an equal request must have it with the same value (core/identity.c). Or the configuration says
 * that it does not matter: it is under `loose_headers`, which only an approval looks at. Or it is
 * known to say nothing about the action: it is in no argument.
 *
 * A call that a person has to approve is sent without those that do not matter (gw_proxy_leave):
 * the approver sees all that is sent, and a header that varies does not make it another request.
 */
#include <strings.h>

#include "base/limits.h"
#include "base/utf8.h"
#include "core/wire.h"
#include "gateway/form.h"
#include "gateway/pass.h"
#include "json/canon.h"

#define UNPACKED_MAX ((size_t)8 << 20)

/* ---- headers ---------------------------------------------------------------------------------*/

typedef enum kind { NAMES, OTHER, LOOSE, SAYS_NOTHING, N_KINDS } kind;

/* Names that say what is acted on, as whom, or how, beside those of sm_header_method. One that ends
 * with a dash stands for all that begin with it. */
static const char *const naming[] = {
    "host", /* where it is passed on, it may name a bucket or a site */
    "content-type",
    "content-encoding",
    "content-language",
    "content-range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "stripe-account",
    "stripe-context",
    "openai-organization",
    "openai-project",
    "x-goog-user-project",
    "x-forwarded-user",
    "x-forwarded-email",
    "x-forwarded-groups",
    "x-forwarded-preferred-username",
    "x-forwarded-host",
    "x-forwarded-prefix",
    "x-amz-",
};

/* What a client, its retries, or the way here add. Their values change from try to try. Headers in
 * which a proxy names the user or the site (X-Forwarded-User) are not among them. */
static const char *const idle[] = {
    "user-agent",
    "date",
    "via",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-real-ip",
    "referer",
    "origin",
    "dnt",
    "sec-",
    "priority",
    "pragma",
    "cache-control",
    "content-md5",
    "digest",
    "content-digest",
    "baggage",
    "b3",
    "x-b3-",
    "x-request-id",
    "request-id",
    "x-correlation-id",
    "x-cloud-trace-context",
    "x-amzn-trace-id",
    "x-datadog-",
    "sentry-trace",
    "x-stainless-",
    "x-retry-",
    "retry-attempt",
    "amz-sdk-",
    "x-amz-date",
    "x-amz-security-token",
    "x-amz-user-agent",
    "x-stripe-client-",
    "x-goog-api-client",
    "x-ms-date",
    "x-ms-client-request-id",
};

static bool listed(sm_str name, const char *const *list, size_t n, bool alike)
{
    for (size_t i = 0; i < n; i++) {
        if ((name.p[0] | 0x20) != list[i][0])
            continue; /* as most are */
        sm_str one = sm_str_from(list[i]);
        sm_str begin = one.p[one.n - 1] == '-' && name.n > one.n ? (sm_str){name.p, one.n} : name;
        if (alike ? sm_header_alike(begin, one) : sm_header_is(begin, one))
            return true;
    }
    return false;
}

static bool configured(sm_str name, const gw_texts *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (sm_header_is(name, list->v[i]))
            return true;
    return false;
}

#define LIST(array) (array), sizeof(array) / sizeof((array)[0])

/* A spelling with underscores names what some servers take it for; it is never one that says
 * nothing. */
static kind kind_of(const gw_upstream_api *api, sm_str name)
{
    sm_header header = {.name = name, .value = SM_STR("")};
    if (configured(name, &api->identity_headers))
        return NAMES;
    if (configured(name, &api->ignore_headers))
        return LOOSE;
    if (listed(name, LIST(idle), false))
        return SAYS_NOTHING;
    return listed(name, LIST(naming), true) || sm_header_method(name) || sm_header_secret(&header)
               ? NAMES
               : OTHER;
}

bool gw_proxy_leave(const gw_upstream_api *api, sm_upstream_call *up, size_t *given)
{
    size_t kept = 0, n = up->request.header_count;
    for (size_t i = 0; i < n; i++) {
        sm_http_field h = up->headers[i];
        sm_header header = {.name = h.name, .value = SM_STR("")};
        bool credential = sm_header_secret(&header) && !sm_header_alike(h.name, SM_STR("cookie"));
        if (i >= *given || credential || kind_of(api, h.name) != LOOSE)
            up->headers[kept++] = h;
    }
    up->request.header_count = kept;
    *given -= n - kept;
    return kept < n;
}

typedef struct writing {
    const gw_upstream_api *api;
    const sm_http_field *headers;
    kind *kinds; /* of each */
    size_t n;
    sm_arena *arena;
    sm_digest digest;
    sm_buf out;
    bool unpacked; /* the body was compared without its Content-Encoding */
    bool parted;   /* it was read as multipart */
} writing;

/* The values of a header, of which there may be several, as servers join them. */
static void join_values(const writing *w, sm_str name, sm_buf *out)
{
    bool first = true;
    sm_buf_clear(out);
    for (size_t i = 0; i < w->n; i++) {
        if (!sm_header_is(w->headers[i].name, name))
            continue;
        if (!first)
            sm_buf_text(out, ", ");
        first = false;
        sm_buf_str(out, w->headers[i].value);
    }
}

/* A digest of what must not be stored, or is no text. */
static sm_err put_hidden(writing *w, sm_str name, sm_str value)
{
    static const char version[] = "semel-credential-1";
    sm_hash hash;
    char hex[SM_HASH_HEX + 1];
    sm_err e = sm_digest_start(&w->digest);
    if (e == SM_OK)
        e = sm_digest_add(&w->digest, version, sizeof version);
    if (e == SM_OK)
        e = sm_digest_add(&w->digest, name.p, name.n);
    if (e == SM_OK)
        e = sm_digest_add(&w->digest, "", 1);
    if (e == SM_OK)
        e = sm_digest_add(&w->digest, value.p, value.n);
    if (e == SM_OK)
        e = sm_digest_finish(&w->digest, &hash);
    if (e != SM_OK)
        return e;
    sm_hash_hex(&hash, hex);
    sm_buf_printf(&w->out, "\"sha256:%s\"", hex);
    return SM_OK;
}

/* Whose signature it is, and for what: "AWS4-HMAC-SHA256
 * Credential=KEY/20260301/REGION/SERVICE/...". Signature and date change from try to try. But local
 * servers take the region from here. Absent if the value is not such a signature. */
static sm_str signer(sm_arena *a, sm_str value)
{
    static const char begin[] = "AWS4-HMAC-SHA256 Credential=";
    const size_t n = sizeof begin - 1;
    /* A second one could be what the server reads. */
    if (value.n <= n || memcmp(value.p, begin, n) != 0 ||
        memmem(value.p + n, value.n - n, "Credential=", 11) != NULL)
        return (sm_str){0};
    const char *at = value.p + n;
    const char *comma = memchr(at, ',', value.n - (size_t)(at - value.p));
    const char *end = comma != NULL ? comma : value.p + value.n;
    const char *date = memchr(at, '/', (size_t)(end - at));
    const char *place = date == NULL ? NULL : memchr(date + 1, '/', (size_t)(end - date) - 1);
    if (place == NULL || !sm_utf8_valid((sm_str){at, (size_t)(end - at)}))
        return (sm_str){0};
    return sm_arena_printf(a, "AWS4-HMAC-SHA256 %.*s%.*s", (int)(date - at), at, (int)(end - place),
                           place);
}

static sm_err put_value(writing *w, sm_str name, sm_str value)
{
    sm_header header = {.name = name, .value = SM_STR("")};
    if (sm_header_is(name, SM_STR("authorization"))) {
        sm_str text = signer(w->arena, value);
        if (text.p != NULL) {
            sm_json_put_string(&w->out, text);
            return SM_OK;
        }
    }
    if (sm_header_secret(&header) || !sm_utf8_valid(value))
        return put_hidden(w, name, value);
    /* A boundary is new for every request, and its form was read. */
    if (w->parted && sm_header_is(name, SM_STR("content-type")))
        value = gw_parameter_drop(w->arena, value, "boundary");
    sm_json_put_string(&w->out, value);
    return value.p == NULL ? SEMEL_E_NOMEM : SM_OK;
}

static bool came_before(const writing *w, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (sm_header_is(w->headers[i].name, w->headers[at].name))
            return true;
    return false;
}

/* All headers of one kind, as an object. */
static sm_err put_headers(writing *w, kind which, const char *member)
{
    sm_err e = SM_OK;
    bool any = false;
    sm_buf value;
    sm_buf_init(&value, SM_ARENA_MAX);
    for (size_t i = 0; e == SM_OK && i < w->n; i++) {
        sm_str given = w->headers[i].name;
        if (w->kinds[i] != which || came_before(w, i) ||
            (w->unpacked && sm_header_is(given, SM_STR("content-encoding"))))
            continue;
        char *lower = sm_arena_alloc(w->arena, given.n + 1);
        if (lower == NULL) {
            e = SEMEL_E_NOMEM;
            break;
        }
        for (size_t k = 0; k < given.n; k++)
            lower[k] =
                (char)(given.p[k] >= 'A' && given.p[k] <= 'Z' ? given.p[k] | 0x20 : given.p[k]);
        sm_str name = {lower, given.n};
        join_values(w, given, &value);
        sm_buf_printf(&w->out, any ? "," : ",\"%s\":{", member);
        any = true;
        sm_json_put_string(&w->out, name);
        sm_buf_byte(&w->out, ':');
        e = value.err != SM_OK ? value.err : put_value(w, name, sm_buf_view(&value));
    }
    if (any)
        sm_buf_byte(&w->out, '}');
    sm_buf_fini(&value);
    return e;
}

/* ---- the body --------------------------------------------------------------------------------*/

/* The media type of a Content-Type, without parameters. */
static sm_str media_type(sm_str value)
{
    const char *end = value.p == NULL ? NULL : memchr(value.p, ';', value.n);
    return sm_header_trim(end == NULL ? value : (sm_str){value.p, (size_t)(end - value.p)});
}

static bool begins(sm_str s, const char *with)
{
    size_t n = strlen(with);
    return s.n >= n && strncasecmp(s.p, with, n) == 0;
}

static bool is_json(sm_str type)
{
    sm_str media = media_type(type);
    bool plus = media.n > 5 && strncasecmp(media.p + media.n - 5, "+json", 5) == 0;
    return sm_type_is_utf8(type) &&
           (sm_header_is(media, SM_STR("application/json")) ||
            begins(media, "application/x-amz-json-") || (begins(media, "application/") && plus));
}

/* Appends the value of a JSON body. */
static bool put_json(writing *w, sm_str bytes)
{
    const sm_json *body = NULL;
    sm_json_limits limits = sm_json_default_limits;
    limits.depth -= 2; /* it goes into an object */
    limits.bytes -= SM_JSON_BYTES_MAX / 4;
    return sm_json_read(w->arena, bytes, &limits, &body, NULL) == SM_OK &&
           sm_json_canon(body, &w->out, bytes, NULL) == SM_OK;
}

static bool put_multipart(writing *w, sm_str type, sm_str bytes)
{
    sm_str charset = gw_parameter(w->arena, type, "charset");
    return (charset.p == NULL || sm_header_is(charset, SM_STR("utf-8"))) &&
           gw_form_multipart(w->arena, &w->digest, bytes, gw_parameter(w->arena, type, "boundary"),
                             &w->out);
}

/* Appends the body as what its label says that it is. False: it cannot be read so. */
static bool put_read(writing *w, sm_str type, sm_str bytes)
{
    sm_str media = media_type(type);
    size_t before = w->out.len;
    bool json = is_json(type), right = false;
    sm_buf_text(&w->out, json ? ",\"body\":" : ",\"form\":");
    if (json)
        right = put_json(w, bytes);
    else if (sm_header_is(media, SM_STR("application/x-www-form-urlencoded")) &&
             sm_type_is_utf8(type))
        right = gw_form_urlencoded(w->arena, bytes, &w->out);
    else if (sm_header_is(media, SM_STR("multipart/form-data")))
        right = w->parted = put_multipart(w, type, bytes);
    if (right && w->out.err == SM_OK && w->out.len <= SM_JSON_BYTES_MAX - 1024)
        return true;
    w->parted = false;
    w->out.len = before;
    w->out.err = SM_OK;
    return false;
}

static sm_err put_bytes(writing *w, sm_str bytes)
{
    sm_hash hash;
    char hex[SM_HASH_HEX + 1];
    sm_err e = sm_digest_bytes(&w->digest, bytes.p, bytes.n, &hash);
    if (e != SM_OK)
        return e;
    sm_hash_hex(&hash, hex);
    sm_buf_printf(&w->out, ",\"body_sha256\":\"%s\"", hex);
    return SM_OK;
}

static sm_err put_body(writing *w, const gw_request *r)
{
    sm_str bytes = sm_buf_view(&r->body), type = gw_header(r, "Content-Type");
    sm_str encoding = gw_header(r, "Content-Encoding");
    if (bytes.n == 0)
        return SM_OK;
    bool plain = encoding.p == NULL || sm_header_is(encoding, SM_STR("identity"));
    sm_buf unpacked;
    sm_buf_init(&unpacked, UNPACKED_MAX);
    if (sm_header_is(encoding, SM_STR("gzip")))
        w->unpacked = gw_unpack_gzip(bytes, &unpacked);
    else if (sm_header_is(encoding, SM_STR("aws-chunked")))
        w->unpacked = gw_unpack_aws(bytes, &unpacked);
    if (w->unpacked)
        bytes = sm_buf_view(&unpacked);
    sm_err e = (plain || w->unpacked) && put_read(w, type, bytes) ? SM_OK : put_bytes(w, bytes);
    sm_buf_fini(&unpacked);
    return e;
}

/* ---- all of it -------------------------------------------------------------------------------*/

/* The path behind the base, as the upstream gets it: where there is no path at all, that is "/". */
static sm_str path_sent(const gw_upstream_api *api, sm_str path)
{
    const char *host = memmem(api->url.p, api->url.n, "://", 3);
    size_t from = host == NULL ? 0 : (size_t)(host - api->url.p) + 3;
    bool bare = memchr(api->url.p + from, '/', api->url.n - from) == NULL;
    return path.n == 0 && bare ? SM_STR("/") : path;
}

sm_err gw_proxy_args(const gw_request *r, sm_arena *a, const gw_upstream_api *api,
                     const sm_http_field *headers, size_t n, sm_str path, sm_str *out)
{
    writing w = {.api = api, .headers = headers, .n = n, .arena = a};
    sm_buf_init(&w.out, SM_ARENA_MAX);
    sm_buf_text(&w.out, "{\"method\":");
    sm_json_put_string(&w.out, sm_str_from(r->method_text));
    sm_buf_text(&w.out, ",\"path\":");
    sm_json_put_string(&w.out, path_sent(api, path));
    if (r->query.p != NULL && r->query.n > 0) {
        sm_buf_text(&w.out, ",\"query\":");
        sm_json_put_string(&w.out, r->query);
    }
    w.kinds = sm_arena_alloc(a, n * sizeof *w.kinds + 1);
    for (size_t i = 0; w.kinds != NULL && i < n; i++)
        w.kinds[i] = kind_of(api, headers[i].name);
    sm_err e = w.kinds == NULL ? SEMEL_E_NOMEM : sm_digest_init(&w.digest);
    if (e == SM_OK)
        e = put_body(&w, r);
    static const char *const members[] = {
        [NAMES] = "headers", [OTHER] = "other_headers", [LOOSE] = "loose_headers"};
    for (kind k = NAMES; e == SM_OK && k < SAYS_NOTHING; k++)
        e = put_headers(&w, k, members[k]);
    sm_buf_byte(&w.out, '}');
    *out = sm_arena_text(a, sm_buf_view(&w.out));
    e = e != SM_OK ? e : w.out.err != SM_OK ? w.out.err : out->p == NULL ? SEMEL_E_NOMEM : SM_OK;
    sm_digest_fini(&w.digest);
    sm_buf_fini(&w.out);
    return e;
}
