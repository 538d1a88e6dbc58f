/* The rules of URLs, URL templates and paths. */
#include "base/url.h"

#include <ctype.h>
#include <strings.h>

#include "base/limits.h"

static sm_err refuse(sm_fault *fault, size_t at, const char *sentence)
{
    sm_fault_set(fault, SEMEL_E_SYNTAX, "%s", sentence);
    if (fault != NULL)
        fault->at = at;
    return SEMEL_E_SYNTAX;
}

/* Where the authority begins: behind the scheme; 0 if the scheme is none of ours. */
static size_t authority_start(sm_str url)
{
    if (url.n > 7 && memcmp(url.p, "http://", 7) == 0)
        return 7;
    return url.n > 8 && memcmp(url.p, "https://", 8) == 0 ? 8 : 0;
}

static size_t authority_end(sm_str url, size_t start)
{
    size_t end = start;
    while (end < url.n && strchr("/?#", url.p[end]) == NULL)
        end++;
    return end;
}

static bool port_right(sm_str port)
{
    unsigned long n = 0;
    for (size_t i = 0; i < port.n; i++) {
        if (!sm_is_digit(port.p[i]) || i == 5)
            return false;
        n = n * 10 + (unsigned long)(port.p[i] - '0');
    }
    return n > 0 && n <= 65535;
}

/* A name, an IPv4 address or [an IPv6 address], and maybe a port. */
static bool authority_right(sm_str s)
{
    size_t host = 0;
    if (s.n > 0 && s.p[0] == '[') {
        host = 1;
        while (host < s.n && s.p[host] != ']') {
            char c = s.p[host++], lower = (char)(c | 0x20);
            if (!sm_is_digit(c) && !(lower >= 'a' && lower <= 'f') && c != ':' && c != '.')
                return false;
        }
        if (host == s.n)
            return false;
        host++;
    } else {
        while (host < s.n && (sm_is_alpha(s.p[host]) || sm_is_digit(s.p[host]) ||
                              s.p[host] == '.' || s.p[host] == '-' || s.p[host] == '_'))
            host++;
    }
    if (host == 0)
        return false;
    return host == s.n ||
           (s.p[host] == ':' && port_right((sm_str){s.p + host + 1, s.n - host - 1}));
}

/* Whether what is between braces names an argument: a name, or a pointer. */
static bool placeholder_right(sm_str name)
{
    if (name.n == 0)
        return false;
    if (name.p[0] != '/')
        return true;
    size_t parts = 0;
    for (size_t i = 0; i < name.n; i++) {
        parts += name.p[i] == '/';
        if (name.p[i] == '~' && (i + 1 == name.n || (name.p[i + 1] | 1) != '1'))
            return false;
    }
    return parts <= SM_POINTER_TOKENS_MAX;
}

/* Checks one placeholder that begins at `at`, and says where it ends. `value` tells whether a
 * parameter's value is being written. */
static sm_err check_placeholder(sm_str url, size_t at, bool query, bool value, size_t *end,
                                sm_fault *fault)
{
    size_t close = at + 1;
    while (close < url.n && url.p[close] != '}' && url.p[close] != '{')
        close++;
    if (close == url.n || url.p[close] == '{')
        return refuse(fault, at,
                      "a { has no }; a literal brace is written %7B or %7D, an argument {name}");
    if (!placeholder_right((sm_str){url.p + at + 1, close - at - 1}))
        return refuse(fault, at, "a placeholder names an argument: {order_id} or {/order/id}");
    if (query && !value)
        return refuse(fault, at,
                      "in the query a placeholder stands for a value; write name={name}");
    *end = close + 1;
    return SM_OK;
}

/* Path and query. */
static sm_err check_rest(sm_str url, size_t at, bool template, sm_fault *fault)
{
    bool query = false, value = false;
    while (at < url.n) {
        char c = url.p[at];
        if (c == '#')
            return refuse(fault, at, "what is behind a # is never sent; remove it, or write %23");
        if (template && c == '}')
            return refuse(
                fault, at,
                "a } has no {; a literal brace is written %7B or %7D, an argument {name}");
        if (template && c == '{') {
            sm_err e = check_placeholder(url, at, query, value, &at, fault);
            if (e != SM_OK)
                return e;
            continue;
        }
        value = query && c != '&' && (value || c == '=');
        query |= c == '?';
        at++;
    }
    return SM_OK;
}

static sm_err check(sm_str url, bool template, sm_fault *fault)
{
    size_t start = authority_start(url);
    if (start == 0)
        return refuse(fault, 0, "a URL starts with http:// or https:// and a host");
    for (size_t i = 0; i < url.n; i++) {
        unsigned char c = (unsigned char)url.p[i];
        if (c <= 0x20 || c >= 0x7F)
            return refuse(fault, i,
                          "a URL holds no blanks, control or non-ASCII characters; write them "
                          "percent-encoded");
    }
    size_t end = authority_end(url, start);
    sm_str authority = {url.p + start, end - start};
    if (memchr(authority.p, '@', authority.n) != NULL)
        return refuse(fault, start,
                      "a password does not belong in a URL; send it in a header, as ${NAME}");
    if (template && memchr(authority.p, '{', authority.n) != NULL)
        return refuse(fault, start,
                      "an argument must not choose the host; placeholders belong in the path and "
                      "the query");
    if (!authority_right(authority))
        return refuse(fault, start,
                      "behind // comes a host, and maybe a port: api.example.com:443");
    return check_rest(url, end, template, fault);
}

sm_err sm_url_check(sm_str url, sm_fault *fault)
{
    return check(url, false, fault);
}

sm_err sm_url_template_check(sm_str url, sm_fault *fault)
{
    return check(url, true, fault);
}

bool sm_url_template_next(sm_str url, size_t *at, sm_url_part *part)
{
    if (*at >= url.n)
        return false;
    size_t from = *at;
    bool argument = url.p[from] == '{';
    const char *stop = memchr(url.p + from, argument ? '}' : '{', url.n - from);
    size_t end = stop == NULL ? url.n : (size_t)(stop - url.p);
    *part = (sm_url_part){
        .text = {url.p + from + argument, end - from - argument},
        .argument = argument,
        .query = memchr(url.p, '?', from) != NULL,
    };
    *at = end + argument;
    return true;
}

/* Where an escape goes on behind its percent sign; 0: none begins here. Some servers decode twice,
 * so the percent sign may be encoded too, however often. */
static size_t behind_percent(sm_str s)
{
    size_t n = s.n > 0 && s.p[0] == '%';
    while (n > 0 && s.n > n + 2 && memcmp(s.p + n, "25", 2) == 0)
        n += 2;
    return n;
}

/* Takes one escape off: *byte is what it stands for. */
static bool take_escape(sm_str *s, unsigned *byte)
{
    size_t n = behind_percent(*s);
    if (n == 0 || s->n < n + 2 || sm_hex_digit(s->p[n]) < 0 || sm_hex_digit(s->p[n + 1]) < 0)
        return false;
    *byte = (unsigned)(sm_hex_digit(s->p[n]) * 16 + sm_hex_digit(s->p[n + 1]));
    *s = (sm_str){s->p + n + 2, s->n - n - 2};
    return true;
}

/* Takes one character off, given as it is or percent-encoded. */
static bool take(sm_str *s, char c)
{
    sm_str rest = *s;
    unsigned byte;
    if (s->n > 0 && s->p[0] == c) {
        *s = (sm_str){s->p + 1, s->n - 1};
        return true;
    }
    if (!take_escape(&rest, &byte) || byte != (unsigned char)c)
        return false;
    *s = rest;
    return true;
}

/* Some servers decode before they split. */
static bool take_slash(sm_str *s)
{
    return take(s, '/') || take(s, '\\');
}

/* Whether a path begins with such an escape. */
static bool is_deceptive(sm_str at)
{
    unsigned first, second = 0;
    size_t n = behind_percent(at);
    if (n > 0 && at.n > n + 2 && (at.p[n] | 0x20) == 'u')
        return sm_hex_digit(at.p[n + 1]) >= 0 && sm_hex_digit(at.p[n + 2]) >= 0;
    if (!take_escape(&at, &first))
        return false;
    take_escape(&at, &second);
    return first == 0 || first == 0xC0 || first == 0xC1 ||
           (first == 0xE0 && second >= 0x80 && second < 0xA0) ||
           (first == 0xF0 && second >= 0x80 && second < 0x90) ||
           (first < 0x80 && isalnum((int)first));
}

bool sm_path_deceives(sm_str path)
{
    for (size_t i = 0; i < path.n; i++)
        if (path.p[i] == '%' && is_deceptive((sm_str){path.p + i, path.n - i}))
            return true;
    return false;
}

bool sm_path_stays(sm_str path)
{
    for (size_t i = 0; i < path.n; i++) {
        unsigned char c = (unsigned char)path.p[i];
        if (c <= 0x20 || c >= 0x7F || c == '\\' || c == '#' || c == '?')
            return false;
    }
    for (sm_str rest = path; rest.n > 0;) {
        if (!take_slash(&rest)) {
            rest = (sm_str){rest.p + 1, rest.n - 1};
            continue;
        }
        sm_str segment = rest;
        unsigned dots = 0;
        while (dots < 3 && take(&segment, '.'))
            dots++;
        bool over = segment.n == 0 || take(&segment, ';') || take(&segment, '?') ||
                    take(&segment, '#') || take(&segment, ' ') || take_slash(&segment);
        if ((dots == 1 || dots == 2) && over)
            return false;
    }
    return true;
}
