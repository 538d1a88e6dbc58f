/* Which addresses are below a proxy's url, and what they are called below the proxy. */
#include "gateway/proxy/redirect.h"

#include <strings.h>

#include "core/wire.h"
#include "gateway/inside/gateway.h"
#include "upstream/upstream.h"

/* An address in its parts. A relative one has no authority, and maybe no path from the root. */
typedef struct address {
    sm_str scheme, authority; /* absent if they are not there */
    sm_str rest;              /* path, query and fragment */
} address;

static sm_str from(sm_str s, size_t n)
{
    return (sm_str){s.p + n, s.n - n};
}

static bool begins(sm_str s, sm_str with)
{
    return s.n >= with.n && strncasecmp(s.p, with.p, with.n) == 0;
}

static address split(sm_str text)
{
    static const char *const schemes[] = {"http:", "https:"};
    address a = {.rest = text};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes && a.scheme.p == NULL; i++) {
        sm_str scheme = sm_str_from(schemes[i]);
        if (begins(text, scheme)) {
            a.scheme = (sm_str){text.p, scheme.n};
            a.rest = from(text, scheme.n);
        }
    }
    if (!begins(a.rest, SM_STR("//")))
        return a;
    a.authority = from(a.rest, 2);
    size_t n = 0;
    while (n < a.authority.n && memchr("/?#\\", a.authority.p[n], 4) == NULL)
        n++;
    a.rest = from(a.authority, n);
    a.authority.n = n;
    return a;
}

/* An authority without the port that its scheme has anyway. */
static sm_str plain_authority(sm_str authority, sm_str scheme)
{
    if (authority.n > 0 && authority.p[authority.n - 1] == ':')
        authority.n--;
    sm_str port = begins(scheme, SM_STR("https:")) ? SM_STR(":443") : SM_STR(":80");
    if (authority.n > port.n && memcmp(authority.p + authority.n - port.n, port.p, port.n) == 0)
        authority.n -= port.n;
    return authority;
}

/* Whether an absolute address is on the API's own host. An API that gets the client's Host takes
 * that for its own name. */
static bool is_own(const gw_request *r, const address *a, const address *base)
{
    sm_str scheme = a->scheme.p != NULL ? a->scheme : base->scheme;
    sm_str host = gw_header(r, "Host");
    if (r->upstream->pass_host && host.p != NULL && sm_header_is(a->authority, host))
        return true;
    return sm_header_is(scheme, base->scheme) &&
           sm_header_is(plain_authority(a->authority, scheme),
                        plain_authority(base->authority, base->scheme));
}

/* The path of an address without query and fragment. */
static sm_str path_of(sm_str rest)
{
    size_t n = 0;
    while (n < rest.n && rest.p[n] != '?' && rest.p[n] != '#')
        n++;
    return (sm_str){rest.p, n};
}

static bool has(sm_str text, char c)
{
    return text.n > 0 && memchr(text.p, c, text.n) != NULL;
}

/* Clients drop line ends and tabs, and take a backslash for a slash. */
static bool is_clean(sm_str text)
{
    bool clean = !has(path_of(text), '\\');
    for (size_t i = 0; i < text.n && clean; i++)
        clean = (unsigned char)text.p[i] > ' ' && text.p[i] != 0x7F;
    return clean;
}

/* A place below the proxy: two parts of an address, one behind the other. */
typedef struct place {
    sm_str front, rest;
} place;

/* Whether a path is plain enough to be sure that it leads below the proxy. At an address of the
 * proxy's own, two slashes at the start would be a host's name. */
static bool leads_below(const place *p)
{
    char text[2048];
    sm_str path = path_of(p->rest);
    size_t n = p->front.n + path.n;
    if (n > sizeof text)
        return false;
    if (p->front.n > 0)
        memcpy(text, p->front.p, p->front.n);
    if (path.n > 0)
        memcpy(text + p->front.n, path.p, path.n);
    sm_str whole = {text, n};
    return n == 0 || (text[0] == '/' && !begins(whole, SM_STR("//")) && sm_path_stays(whole) &&
                      !sm_path_deceives(whole));
}

/* Whether an address leads below the proxy, and where. A relative one is seen from the request's
 * own at the API. */
static bool leads_back(const gw_request *r, sm_str text, place *out)
{
    address a = split(text), base = split(r->upstream->url);
    sm_str path = path_of(a.rest);
    *out = (place){0};
    if (!is_clean(text) || (a.authority.p == NULL ? a.scheme.p != NULL : !is_own(r, &a, &base)))
        return false;
    if (a.authority.p == NULL && !begins(path, SM_STR("/"))) {
        sm_str own = r->target;
        size_t n = path.n == 0 ? own.n : 0; /* a query alone is for the same path */
        for (size_t i = 0; i < own.n && path.n > 0; i++)
            n = own.p[i] == '/' ? i + 1 : n;
        size_t colon = 0;
        while (colon < path.n && path.p[colon] != ':' && path.p[colon] != '/')
            colon++;
        if ((colon < path.n && path.p[colon] == ':') || (path.n > 0 && n == 0 && base.rest.n > 0))
            return false; /* another scheme; or beside the base, which is no directory here */
        *out = (place){.front = path.n > 0 && n == 0 ? SM_STR("/") : (sm_str){own.p, n},
                       .rest = a.rest};
    } else {
        if (a.rest.n < base.rest.n || memcmp(a.rest.p, base.rest.p, base.rest.n) != 0)
            return false;
        out->rest = from(a.rest, base.rest.n);
    }
    return leads_below(out);
}

/* Appends the address of a place below the proxy. By which name the client knows a proxy in front
 * of us is not known here. */
static void put_place(const gw_request *r, const place *p, bool absolute, sm_buf *out)
{
    sm_str host = gw_header(r, "Host");
    bool rooted = p->front.n > 0 || begins(p->rest, SM_STR("/"));
    if (absolute && host.n > 0 && !r->g->config->behind_proxy)
        sm_buf_printf(out, "%s://%.*s", r->secure ? "https" : "http", SM_FMT(host));
    if (r->mounted == NULL)
        sm_buf_printf(out, "/proxy/%.*s", SM_FMT(r->upstream->name));
    else if (!rooted)
        sm_buf_byte(out, '/');
    sm_buf_str(out, p->front);
    sm_buf_str(out, p->rest);
}

/* Appends an address as the client gets it. False: as it is. A path of the API's that is not below
 * the proxy becomes absolute: the client would look for it at the gateway. */
static bool put_mapped(const gw_request *r, sm_str text, bool absolute, sm_buf *out)
{
    place p;
    address base = split(r->upstream->url);
    if (leads_back(r, text, &p)) {
        put_place(r, &p, absolute, out);
        return true;
    }
    if (!begins(text, SM_STR("/")) || begins(text, SM_STR("//")) || !is_clean(text))
        return false;
    sm_buf_printf(out, "%.*s//%.*s%.*s", SM_FMT(base.scheme), SM_FMT(base.authority), SM_FMT(text));
    return true;
}

/* Appends the value of a Link header: each <address> in it is mapped. */
static bool map_links(const gw_request *r, sm_str value, sm_buf *out)
{
    bool any = false;
    while (value.n > 0) {
        const char *open = memchr(value.p, '<', value.n);
        size_t n = open == NULL ? value.n : (size_t)(open - value.p) + 1;
        sm_buf_str(out, (sm_str){value.p, n});
        value = from(value, n);
        const char *close = memchr(value.p, '>', value.n);
        sm_str text = {value.p, close == NULL ? 0 : (size_t)(close - value.p)};
        if (text.n == 0 || !put_mapped(r, text, true, out))
            continue;
        value = from(value, text.n);
        any = true;
    }
    return any;
}

bool gw_redirect_map(const gw_request *r, sm_str name, sm_str value, sm_buf *out)
{
    if (r->upstream == NULL || value.n == 0)
        return false;
    if (sm_header_is(name, SM_STR("Link")))
        return map_links(r, value, out);
    return (sm_header_is(name, SM_STR("Location")) ||
            sm_header_is(name, SM_STR("Content-Location"))) &&
           put_mapped(r, value, false, out);
}

sm_str gw_redirect_host(sm_str location)
{
    sm_str host = split(location).authority;
    const char *at = host.n == 0 ? NULL : memrchr(host.p, '@', host.n);
    return at == NULL ? host : from(host, (size_t)(at - host.p) + 1);
}

bool gw_redirect_strays(const gw_request *r, int status, sm_str location)
{
    place p;
    bool reads = r->method == GW_GET || r->method == GW_HEAD || r->method == GW_OPTIONS;
    return r->upstream != NULL && location.n > 0 && !reads &&
           sm_http_redirects(r->method_text, status) && !leads_back(r, location, &p);
}
