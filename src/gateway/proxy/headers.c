/*
 * Which headers of a request to an API are part of the call, and how.
 *
 * A header that is passed on is one of four kinds. It names the action or whose it is: it is under
 * `headers`, and part of the key. Or nobody knows what it means: it is under `other_headers`, and
 * an equal request must have it with the same value (core/identity.c). Or the configuration says
 * that it does not matter: it is under `loose_headers`, which only an approval looks at. Or it is
 * known to say nothing about the action: it is in no argument.
 *
 * A call that a person has to approve is sent without those that do not matter, and without those
 * that say nothing, unless an API may need them to accept a request at all (gw_proxy_leave). So the
 * approver sees all that is sent but the latter, and a header that varies does not make it another
 * request.
 */
#include "gateway/proxy/headers.h"

#include <strings.h>

#include "base/header.h"
#include "base/utf8.h"
#include "gateway/proxy/form.h"
#include "gateway/proxy/forward.h"
#include "json/write.h"

typedef enum kind { NAMES, OTHER, LOOSE, NEEDED, SAYS_NOTHING } kind;

/* Names that say what is acted on, as whom, or how, beside those of sm_header_method. One that ends
 * with a dash stands for all that begin with it. */
static const char *const naming[] = {
    "host", /* where it is passed on, it may name a bucket or a site */
    "content-type",
    "content-encoding",
    "content-language",
    "content-range",
    "content-disposition",
    "destination",
    "overwrite",
    "upload-",
    "x-ms-",
    "x-goog-",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "if-range",
    "range", /* what of it is written, or asked for */
    "stripe-account",
    "stripe-context",
    "openai-organization",
    "openai-project",
    "anthropic-workspace-id",
    "anthropic-user-profile-id",
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
    "via",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-real-ip",
    "dnt",
    "pragma",
    "baggage",
    "b3",
    "x-b3-",
    "x-request-id",
    "request-id",
    "x-correlation-id",
    "x-cloud-trace-context",
    "x-amzn-trace-id",
    "x-datadog-",
    "x-trace-id",
    "x-envoy-",
    "x-newrelic-",
    "newrelic",
    "uber-trace-id",
    "grpc-trace-bin",
    "cf-ray",
    "x-amz-cf-id",
    "sentry-trace",
    "x-stainless-",
    "x-retry-",
    "retry-attempt",
    "x-stripe-client-",
    "x-goog-api-client",
    "x-goog-gcs-idempotency-token",
    "x-ms-client-request-id",
};

/* Those among them without which an API may refuse a request: what belongs to a signature, what
 * says that the body came whole, who the client is, and which page it comes from. */
static const char *const needed[] = {
    "user-agent",
    "date",
    "x-ms-date",
    "amz-sdk-",
    "x-amz-date",
    "x-amz-security-token",
    "x-amz-user-agent",
    "content-md5",
    "digest",
    "content-digest",
    "referer",
    "origin",
    "sec-",
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

/* Forwarded can have all that its older relatives have, and the host may choose a site. */
static bool names_host(const sm_http_field *field)
{
    static const char host[] = "host";
    const size_t n = sizeof host - 1;
    bool names = false;
    if (!sm_header_is(field->name, SM_STR("forwarded")))
        return false;
    for (size_t i = 0; i + n <= field->value.n && !names; i++) {
        sm_str rest = {field->value.p + i + n, field->value.n - i - n};
        rest = sm_header_trim(rest);
        names = strncasecmp(field->value.p + i, host, n) == 0 && rest.n > 0 && rest.p[0] == '=';
    }
    return names;
}

/* A spelling with underscores names what some servers take it for; it is never one that says
 * nothing. */
static kind kind_of(const gw_upstream_api *api, const sm_http_field *field)
{
    sm_str name = field->name;
    sm_header header = {.name = name, .value = SM_STR("")};
    if (configured(name, &api->identity_headers))
        return NAMES;
    if (configured(name, &api->ignore_headers))
        return LOOSE;
    if (listed(name, LIST(idle), false))
        return names_host(field) ? NAMES : SAYS_NOTHING;
    if (listed(name, LIST(needed), false))
        return NEEDED;
    return listed(name, LIST(naming), true) || sm_header_method(name) || sm_header_secret(&header)
               ? NAMES
               : OTHER;
}

bool gw_proxy_header_decides(const gw_upstream_api *api, sm_str name)
{
    static const char *const body[] = {"content-", "x-amz-"};
    return listed(name, LIST(body), true) ||
           kind_of(api, &(sm_http_field){.name = name, .value = SM_STR("")}) == NAMES;
}

bool gw_proxy_leave(const gw_request *r, const gw_upstream_api *api, sm_upstream_call *up,
                    size_t *given)
{
    size_t kept = 0, n = up->request.header_count;
    for (size_t i = 0; i < n; i++) {
        sm_http_field h = up->headers[i];
        sm_header header = {.name = h.name, .value = SM_STR("")};
        bool credential = sm_header_secret(&header) && !sm_header_alike(h.name, SM_STR("cookie"));
        kind k = i < *given ? kind_of(api, &h) : NAMES; /* the others are the configuration's */
        if ((k != LOOSE && k != SAYS_NOTHING) || (k == LOOSE && credential) ||
            gw_lists(gw_signed_headers(r), ';', h.name))
            up->headers[kept++] = h;
    }
    up->request.header_count = kept;
    *given -= n - kept;
    return kept < n;
}

bool gw_proxy_twins(const sm_http_field *headers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sm_str name = headers[i].name;
        bool plain = true; /* as almost all are */
        for (size_t k = 0; k < name.n && plain; k++)
            plain = name.p[k] == '-' || (name.p[k] >= '0' && name.p[k] <= '9') ||
                    ((name.p[k] | 0x20) >= 'a' && (name.p[k] | 0x20) <= 'z');
        for (size_t k = 0; k < n && !plain; k++)
            if (sm_header_alike(headers[k].name, name) && !sm_header_is(headers[k].name, name))
                return true;
    }
    return false;
}

/* A digest of what must not be stored, or is no text. */
static sm_err put_hidden(gw_writing *w, sm_str name, sm_str value)
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

/* Whether the rest of a signature's header is nothing but the signature. */
static bool only_signs(sm_str rest)
{
    static const char *const names[] = {"SignedHeaders=", "Signature="};
    while (rest.n > 0) {
        bool known = false;
        while (rest.n > 0 && (rest.p[0] == ',' || rest.p[0] == ' '))
            rest = (sm_str){rest.p + 1, rest.n - 1};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            size_t n = strlen(names[i]);
            known = known || (rest.n > n && memcmp(rest.p, names[i], n) == 0);
        }
        if (!known)
            return false;
        const char *comma = memchr(rest.p, ',', rest.n);
        size_t n = comma == NULL ? rest.n : (size_t)(comma - rest.p);
        rest = (sm_str){rest.p + n, rest.n - n};
    }
    return true;
}

/* Whose signature it is, and for what: "AWS4-HMAC-SHA256
 * Credential=KEY/20260301/REGION/SERVICE/...". Signature and date change from try to try. But local
 * servers take the region from here. Google's storage has the same form. Absent if the value is not
 * such a signature. */
static sm_str signer(sm_arena *a, sm_str value)
{
    static const char *const schemes[] = {"AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256",
                                          "GOOG4-HMAC-SHA256", "GOOG4-RSA-SHA256"};
    static const char begin[] = " Credential=";
    const size_t n = sizeof begin - 1;
    const char *scheme = NULL;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes && scheme == NULL; i++) {
        size_t k = strlen(schemes[i]);
        if (value.n > k + n && memcmp(value.p, schemes[i], k) == 0 &&
            memcmp(value.p + k, begin, n) == 0)
            scheme = schemes[i];
    }
    if (scheme == NULL)
        return (sm_str){0};
    const char *at = value.p + strlen(scheme) + n, *all = value.p + value.n;
    /* A second one could be what the server reads. */
    if (memmem(at, (size_t)(all - at), begin + 1, n - 1) != NULL)
        return (sm_str){0};
    /* Whatever else there is could be what the server reads, too. */
    const char *comma = memchr(at, ',', (size_t)(all - at));
    const char *end = comma != NULL ? comma : all;
    const char *date = memchr(at, '/', (size_t)(end - at));
    const char *place = date == NULL ? NULL : memchr(date + 1, '/', (size_t)(end - date) - 1);
    if (place == NULL || !sm_utf8_valid((sm_str){at, (size_t)(end - at)}) ||
        !only_signs((sm_str){end, (size_t)(all - end)}))
        return (sm_str){0};
    return sm_arena_printf(a, "%s %.*s%.*s", scheme, (int)(date - at), at, (int)(end - place),
                           place);
}

static sm_err put_value(gw_writing *w, sm_str name, sm_str value)
{
    sm_header header = {.name = name, .value = SM_STR("")};
    if (sm_header_is(name, SM_STR("authorization"))) {
        sm_str text = signer(w->arena, value);
        if (text.p != NULL) {
            sm_json_put_string(&w->out, text);
            return SM_OK;
        }
    }
    bool digest = value.n > 7 && memcmp(value.p, "sha256:", 7) == 0; /* looks like a hidden one */
    if (sm_header_secret(&header) || digest || !sm_utf8_valid(value))
        return put_hidden(w, name, value);
    /* A boundary is new for every request, and its form was read. */
    if (w->parted && sm_header_is(name, SM_STR("content-type")))
        value = gw_parameter_drop(w->arena, value, "boundary");
    sm_json_put_string(&w->out, value);
    return value.p == NULL ? SEMEL_E_NOMEM : SM_OK;
}

/* How many headers of this one's name there are, and whether it is the first. */
static size_t count_values(const gw_writing *w, size_t at, bool *first)
{
    size_t n = 0;
    *first = true;
    for (size_t i = 0; i < w->n; i++) {
        bool same = sm_header_is(w->headers[i].name, w->headers[at].name);
        *first = *first && !(same && i < at);
        n += same;
    }
    return n;
}

static sm_str lowercase(sm_arena *a, sm_str name)
{
    char *lower = sm_arena_alloc(a, name.n + 1);
    for (size_t i = 0; lower != NULL && i < name.n; i++)
        lower[i] = (char)(name.p[i] >= 'A' && name.p[i] <= 'Z' ? name.p[i] | 0x20 : name.p[i]);
    return (sm_str){lower, name.n};
}

/* The value of a header, or a list of them: some servers read only one of several, so they are not
 * the same as one value with commas. */
static sm_err put_values(gw_writing *w, size_t at, size_t n)
{
    sm_str given = w->headers[at].name, name = lowercase(w->arena, given);
    sm_err e = name.p == NULL ? SEMEL_E_NOMEM : SM_OK;
    if (e != SM_OK)
        return e;
    sm_json_put_string(&w->out, name);
    sm_buf_text(&w->out, n > 1 ? ":[" : ":");
    for (size_t i = at; e == SM_OK && i < w->n; i++) {
        if (!sm_header_is(w->headers[i].name, given))
            continue;
        if (i > at)
            sm_buf_byte(&w->out, ',');
        e = put_value(w, name, w->headers[i].value);
    }
    if (n > 1)
        sm_buf_byte(&w->out, ']');
    return e;
}

/* All headers of one kind, as an object. */
static sm_err put_kind(gw_writing *w, const kind *kinds, kind which, const char *member)
{
    sm_err e = SM_OK;
    bool any = false, first;
    for (size_t i = 0; e == SM_OK && i < w->n; i++) {
        if (kinds[i] != which ||
            (w->unpacked && sm_header_is(w->headers[i].name, SM_STR("content-encoding"))))
            continue;
        size_t n = count_values(w, i, &first);
        if (!first)
            continue;
        if (!any)
            sm_put_open(&w->out, member, '{');
        else
            sm_buf_byte(&w->out, ',');
        any = true;
        e = put_values(w, i, n);
    }
    if (any)
        sm_buf_byte(&w->out, '}');
    return e;
}

/* Headers of one name are of one kind: the one that counts most. */
static void level(const gw_writing *w, kind *kinds)
{
    for (size_t i = 0; i < w->n; i++)
        for (size_t k = 0; kinds[i] == NAMES && k < w->n; k++)
            if (sm_header_is(w->headers[k].name, w->headers[i].name))
                kinds[k] = NAMES;
}

sm_err gw_put_headers(gw_writing *w)
{
    static const char *const members[] = {
        [NAMES] = "headers", [OTHER] = "other_headers", [LOOSE] = "loose_headers"};
    kind *kinds = sm_arena_alloc(w->arena, w->n * sizeof *kinds + 1);
    sm_err e = kinds == NULL ? SEMEL_E_NOMEM : SM_OK;
    bool forwarded = false;
    for (size_t i = 0; e == SM_OK && i < w->n; i++) {
        kinds[i] = kind_of(w->api, &w->headers[i]);
        forwarded = forwarded || names_host(&w->headers[i]);
    }
    if (e == SM_OK && forwarded)
        level(w, kinds);
    for (kind k = NAMES; e == SM_OK && k <= LOOSE; k++)
        e = put_kind(w, kinds, k, members[k]);
    return e;
}
