/*
 * What a request to an API is as a call: the arguments of the tool proxy.NAME. docs/proxy.md lists
 * them. Headers are in headers.c.
 */
#include "gateway/proxy/args.h"

#include <strings.h>

#include "base/header.h"
#include "base/limits.h"
#include "gateway/proxy/form.h"
#include "gateway/proxy/headers.h"
#include "json/number.h"
#include "json/write.h"

#define UNPACKED_MAX ((size_t)8 << 20)
#define HEADERS_ROOM ((size_t)4 * SM_REQUEST_HEAD_MAX) /* for what follows the body */

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

#define SHORT_NUMBER 15u /* bytes: so many digits at most are exact in any case */

/* Whether the canonical form tells every number exactly. It has fractions as doubles, and an API
 * may read more digits. */
static bool numbers_exact(const sm_json *body)
{
    bool exact = true;
    for (uint32_t i = 0; exact && i < body->span; i++) {
        char text[SM_NUMBER_MAX];
        sm_decimal given, told;
        if (body[i].type != SM_JSON_NUMBER || body[i].len <= SHORT_NUMBER)
            continue;
        size_t n = sm_number_canonical(sm_json_text(&body[i]), text);
        exact = n > 0 && sm_decimal_parse(sm_json_text(&body[i]), &given) &&
                sm_decimal_parse((sm_str){text, n}, &told) &&
                sm_decimal_compare(&given, &told) == 0;
    }
    return exact;
}

/* Appends the value of a JSON body. */
static bool put_json(gw_writing *w, sm_str bytes)
{
    const sm_json *body = NULL;
    sm_json_limits limits = sm_json_default_limits;
    limits.depth -= 2; /* it goes into an object */
    limits.bytes -= SM_JSON_BYTES_MAX / 4;
    limits.values -= HEADERS_ROOM / 64;
    sm_err e = sm_json_read(w->arena, bytes, &limits, &body, NULL);
    if (e == SEMEL_E_NOMEM)
        w->out.err = e;
    return e == SM_OK && gw_json_names_clear(w->arena, w->query, body) && numbers_exact(body) &&
           sm_json_canon(body, &w->out, bytes, NULL) == SM_OK;
}

/* A parameter such as charset*=utf-16''x is one that only some servers read. */
static bool is_urlencoded(sm_str type)
{
    return sm_header_is(media_type(type), SM_STR("application/x-www-form-urlencoded")) &&
           sm_type_is_utf8(type) && memchr(type.p, '*', type.n) == NULL;
}

/* Appends the body as what its label says that it is. False: it cannot be read so. */
static bool put_read(gw_writing *w, sm_str type, sm_str bytes)
{
    size_t before = w->out.len;
    bool json = is_json(type), right = false;
    if (w->out.err != SM_OK)
        return false;
    sm_put_name(&w->out, json ? "body" : "form");
    if (json)
        right = put_json(w, bytes);
    else if (is_urlencoded(type))
        right = gw_form_urlencoded(w->arena, w->query, bytes, &w->out);
    else if (sm_header_is(media_type(type), SM_STR("multipart/form-data")))
        right = w->parted = gw_form_multipart(w->arena, &w->digest, w->query, bytes,
                                              gw_form_boundary(w->arena, type), &w->out);
    if (right && w->out.err == SM_OK && w->out.len <= SM_JSON_BYTES_MAX - HEADERS_ROOM)
        return true;
    w->parted = false;
    w->out.len = before;
    if (w->out.err != SEMEL_E_NOMEM) /* it is too large to be shown so */
        w->out.err = SM_OK;
    return false;
}

static sm_err put_bytes(gw_writing *w, sm_str bytes)
{
    sm_hash hash;
    char hex[SM_HASH_HEX + 1];
    sm_err e = sm_digest_bytes(&w->digest, bytes.p, bytes.n, &hash);
    if (e != SM_OK)
        return e;
    sm_hash_hex(&hash, hex);
    sm_put_text(&w->out, "body_sha256", sm_str_from(hex));
    return SM_OK;
}

/* Whether some server reads a body of this type as a form. */
static bool is_form(sm_str type)
{
    sm_str media = media_type(type);
    return begins(media, "multipart/") || begins(media, "application/x-www-form-urlencoded");
}

/* A form in a wrapping counts by its bytes. Many servers do not unwrap a body, and they would find
 * fields in the wrapping itself. They find no JSON there: neither wrapping begins like an object or
 * a list. */
static sm_err put_body(gw_writing *w, const gw_request *r)
{
    sm_str bytes = sm_buf_view(&r->body), type = gw_header(r, "Content-Type");
    sm_str encoding = gw_header(r, "Content-Encoding");
    if (bytes.n == 0)
        return SM_OK;
    bool plain = encoding.p == NULL || sm_header_is(encoding, SM_STR("identity"));
    sm_buf unpacked;
    sm_buf_init(&unpacked, UNPACKED_MAX);
    bool form = is_form(type);
    bool gzip = !form && sm_header_is(encoding, SM_STR("gzip")) && gw_unpack_gzip(bytes, &unpacked);
    if (gzip)
        w->unpacked = is_json(type); /* other servers store what is packed, as it is */
    else if (!form && sm_header_is(encoding, SM_STR("aws-chunked")) &&
             begins(gw_header(r, "x-amz-content-sha256"), "STREAMING-"))
        w->unpacked = gw_unpack_aws(bytes, &unpacked);
    if (w->unpacked || gzip)
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
    gw_writing w = {.api = api, .headers = headers, .n = n, .arena = a, .query = r->query};
    sm_buf_init(&w.out, SM_ARENA_MAX);
    sm_buf_byte(&w.out, '{');
    sm_put_text(&w.out, "method", sm_str_from(r->method_text));
    sm_put_text(&w.out, "path", path_sent(api, path));
    if (r->query.n > 0)
        sm_put_text(&w.out, "query", r->query);
    sm_err e = sm_digest_init(&w.digest);
    if (e == SM_OK)
        e = put_body(&w, r);
    if (e == SM_OK)
        e = gw_put_headers(&w);
    sm_buf_byte(&w.out, '}');
    *out = sm_arena_text(a, sm_buf_view(&w.out));
    e = e != SM_OK ? e : w.out.err != SM_OK ? w.out.err : out->p == NULL ? SEMEL_E_NOMEM : SM_OK;
    sm_digest_fini(&w.digest);
    sm_buf_fini(&w.out);
    return e;
}
