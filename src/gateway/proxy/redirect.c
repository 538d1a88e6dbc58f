/* Which addresses are below a proxy's url, and what they are called below the proxy. */
#include "gateway/proxy/redirect.h"

#include <strings.h>

#include "base/header.h"
#include "base/url.h"
#include "gateway/inside/gateway.h"

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

#define PLACE_MAX 2048u /* bytes of a path that is looked at */

/* A place: a path at the API, and the query and fragment behind it. */
typedef struct place {
    char text[PLACE_MAX];
    size_t n;
    sm_str tail;
} place;

static bool put_path(place *p, sm_str text)
{
    if (text.n > sizeof p->text - p->n)
        return false;
    if (text.n > 0)
        memcpy(p->text + p->n, text.p, text.n);
    p->n += text.n;
    return true;
}

/* Whether an address has no scheme and no host: it is seen from the request's own at the API. */
static bool is_relative(const address *a)
{
    sm_str path = path_of(a->rest);
    size_t colon = 0;
    while (colon < path.n && path.p[colon] != ':' && path.p[colon] != '/')
        colon++;
    return a->scheme.p == NULL && a->authority.p == NULL &&
           (colon == path.n || path.p[colon] == '/');
}

/* The place of an address, as it is written. False if it is too long. */
static bool find_place(const gw_request *r, const address *a, place *out)
{
    sm_str path = path_of(a->rest);
    out->n = 0;
    out->tail = from(a->rest, path.n);
    if (a->authority.p != NULL || begins(path, SM_STR("/")))
        return put_path(out, path);
    if (!put_path(out, path_of(split(r->upstream->url).rest)) || !put_path(out, r->target))
        return false;
    if (path.n == 0) /* a query alone is for the same path */
        return true;
    while (out->n > 0 && out->text[out->n - 1] != '/')
        out->n--;
    return (out->n > 0 || put_path(out, SM_STR("/"))) && put_path(out, path);
}

/* Takes "." and ".." out of a path, as every client does. False if there are some in another
 * spelling, which only some clients know. */
static bool resolve(place *p)
{
    size_t n = 0;
    bool plain = p->n == 0 || p->text[0] == '/';
    for (size_t at = 0, end; plain && at < p->n; at = end) {
        end = at + 1;
        while (end < p->n && p->text[end] != '/')
            end++;
        sm_str segment = {p->text + at, end - at};
        bool up = sm_str_is(segment, "/.."), stays = up || sm_str_is(segment, "/.");
        plain = stays || sm_path_stays(segment);
        while (up && n > 0 && p->text[--n] != '/')
            continue;
        if (stays)
            segment = end == p->n ? SM_STR("/") : SM_STR("");
        if (segment.n > 0)
            memmove(p->text + n, segment.p, segment.n);
        n += segment.n;
    }
    p->n = n;
    return plain;
}

/* Whether an address leads below the proxy, and where: *out is the place behind the proxy's url. At
 * an address of the proxy's own, two slashes at the start would be a host's name. */
static bool leads_back(const gw_request *r, sm_str text, place *out)
{
    address a = split(text), base = split(r->upstream->url);
    sm_str front = path_of(base.rest);
    if (!is_clean(text) || !(is_relative(&a) || (a.authority.p != NULL && is_own(r, &a, &base))) ||
        !find_place(r, &a, out) || !resolve(out) || out->n < front.n ||
        memcmp(out->text, front.p, front.n) != 0)
        return false;
    out->n -= front.n;
    memmove(out->text, out->text + front.n, out->n);
    sm_str path = {out->text, out->n};
    return path.n == 0 || (path.p[0] == '/' && !begins(path, SM_STR("//")) && sm_path_stays(path) &&
                           !sm_path_deceives(path));
}

/* Appends the address of a place below the proxy. By which name the client knows a proxy in front
 * of us is not known here. */
static void put_place(const gw_request *r, const place *p, bool absolute, sm_buf *out)
{
    sm_str host = gw_header(r, "Host");
    if (absolute && host.n > 0 && !r->g->config->behind_proxy)
        sm_buf_printf(out, "%s://%.*s", r->secure ? "https" : "http", SM_FMT(host));
    if (r->mounted == NULL)
        sm_buf_printf(out, "/proxy/%.*s", SM_FMT(r->upstream->name));
    else if (p->n == 0)
        sm_buf_byte(out, '/');
    sm_buf_bytes(out, p->text, p->n);
    sm_buf_str(out, p->tail);
}

/* Appends an address as the client gets it. False: as it is. A relative one that does not lead
 * below the proxy becomes absolute: the client would look for it at the gateway. */
static bool put_mapped(const gw_request *r, sm_str text, bool absolute, sm_buf *out)
{
    place p;
    address a = split(text), base = split(r->upstream->url);
    if (leads_back(r, text, &p)) {
        put_place(r, &p, absolute, out);
        return true;
    }
    if (!is_relative(&a) || !find_place(r, &a, &p))
        return false;
    sm_buf_printf(out, "%.*s//%.*s%.*s%.*s", SM_FMT(base.scheme), SM_FMT(base.authority), (int)p.n,
                  p.text, SM_FMT(p.tail));
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

bool gw_redirect_repeats(const gw_request *r, int status)
{
    bool reads = r->method == GW_GET || r->method == GW_HEAD || r->method == GW_OPTIONS;
    bool becomes_get = status == 303 || status == 304 ||
                       (r->method == GW_POST && (status == 301 || status == 302));
    return r->upstream != NULL && !reads && status >= 300 && status <= 399 && !becomes_get;
}

bool gw_redirect_strays(const gw_request *r, sm_str location)
{
    place p;
    return location.n > 0 && !leads_back(r, location, &p);
}
