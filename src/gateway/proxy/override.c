/*
 * Requests that ask for another path or method than they have.
 *
 * Some upstreams take the path from a header. No such request is passed on: nobody could say what
 * it is about. Others take the method from a header, or from a field of query, form or JSON body
 * (core/request.h). A request that may write is recorded with that, and an approver sees it. One
 * that only reads would go around the ledger.
 *
 * A body that was not read as what its label says may still be read so by the upstream. So may a
 * body without a label, and multipart of any kind, as a form. Its words are looked at then; and if
 * it is packed or encoded in a way that hides them, it is refused.
 */
#include "gateway/proxy/override.h"

#include "base/header.h"
#include "core/request.h"

static bool names_path(void *context, sm_str name, sm_str value)
{
    static const char *const paths[] = {"x-original-url", "x-rewrite-url"};
    bool *found = context;
    (void)value;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        *found = *found || sm_header_alike(name, sm_str_from(paths[i]));
    return !*found;
}

static bool names_method(void *context, sm_str name, sm_str value)
{
    bool *found = context;
    (void)value;
    *found = *found || sm_header_method(name);
    return !*found;
}

bool gw_asks_other_path(const gw_request *r)
{
    bool found = false;
    gw_headers_each(r, names_path, &found);
    return found;
}

static bool has(sm_str text, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= text.n; i++)
        if (sm_header_is((sm_str){text.p + i, n}, sm_str_from(word)))
            return true;
    return false;
}

/* The character that an escape stands for: %5F in a form, \u005F in JSON. *n is how long it is; 0:
 * it is none. */
static char unescape(sm_str at, size_t *n)
{
    bool json = at.p[0] == '\\';
    size_t digits = json ? 4 : 2, from = json ? 2 : 1;
    unsigned value = 0;
    *n = 0;
    if (at.n < from + digits || (json ? at.p[1] != 'u' : at.p[0] != '%'))
        return 0;
    for (size_t i = from; i < from + digits; i++) {
        const char *hex = "0123456789abcdef", *digit = memchr(hex, at.p[i] | 0x20, 16);
        if (digit == NULL)
            return 0;
        value = value * 16 + (unsigned)(digit - hex);
    }
    *n = from + digits;
    return value < 128 ? (char)value : '?';
}

/* What some readers drop in front of a name (sm_name_trim). No name of a method's field has more
 * than ASCII. */
static bool is_dropped(char c)
{
    return c <= ' ' || c > '~' || c == '+' || c == '?' || c == '#';
}

/* Whether a word of the body is the name of a method's field. Words are what is between quotes in
 * JSON, and between any marks in a form. */
static bool words_name_method(sm_str body, bool json)
{
    static const char marks[] = "\"'&;=\r\n";
    char word[64];
    size_t n = 0;
    for (size_t i = 0, step; i <= body.n; i += step) {
        char c = i < body.n ? body.p[i] : '"';
        step = 1;
        if (json ? c == '"' : memchr(marks, c, sizeof marks - 1) != NULL) {
            if (n < sizeof word && sm_name_method((sm_str){word, n}))
                return true;
            n = 0;
            continue;
        }
        size_t escape = 0;
        if (c == '\\' || c == '%')
            c = unescape((sm_str){body.p + i, body.n - i}, &escape);
        if (escape > 0)
            step = escape;
        else if (c == 0 && json && i + 1 < body.n && body.p[i] == '\\')
            step = 2; /* \" ends nothing */
        c = escape > 0 ? c : body.p[i];
        if (n < sizeof word && !(n == 0 && is_dropped(c)))
            word[n++] = c;
    }
    return false;
}

/* Whether a part may hide its name from those who look at words: name*0=_met; name*1=hod, or
 * name="=?utf-8?Q?=5Fmethod?=". */
static bool hides_name(sm_str body)
{
    static const char *const hiding[] = {"*", "==?", "=\"=?"};
    sm_str word = SM_STR("name");
    for (size_t i = 0; i + word.n < body.n; i++) {
        bool longer = i > 0 && ((body.p[i - 1] | 0x20) >= 'a' && (body.p[i - 1] | 0x20) <= 'z');
        if (longer || (body.p[i] | 0x20) != 'n' ||
            !sm_header_is((sm_str){body.p + i, word.n}, word))
            continue; /* filename is another one */
        sm_str rest = {body.p + i + word.n, body.n - i - word.n};
        for (size_t k = 0; k < sizeof hiding / sizeof *hiding; k++) {
            size_t n = strlen(hiding[k]);
            if (rest.n >= n && memcmp(rest.p, hiding[k], n) == 0)
                return true;
        }
    }
    return false;
}

/* A body that counts by its bytes. */
static bool bytes_ask(const gw_request *r)
{
    sm_str type = gw_header(r, "Content-Type"), encoding = gw_header(r, "Content-Encoding");
    sm_str body = sm_buf_view(&r->body);
    bool labelled = type.n > 0 && memchr(type.p, '/', type.n) != NULL;
    bool parted = has(type, "multipart/");
    bool json = has(type, "json"), form = !labelled || parted || has(type, "form");
    if (!json && !form)
        return false;
    bool plain = encoding.p == NULL || sm_header_is(encoding, SM_STR("identity"));
    bool utf8 = !has(type, "charset") || has(type, "utf-8");
    return !plain || !utf8 || words_name_method(body, json && labelled && !parted) ||
           (parted && hides_name(body));
}

bool gw_asks_other_method(const gw_request *r, sm_arena *a, const sm_json *args)
{
    bool found = false;
    gw_headers_each(r, names_method, &found);
    if (!found)
        found = sm_query_overrides(a, r->query.p == NULL ? SM_STR("") : r->query);
    if (!found && args != NULL)
        found = sm_request_overrides(a, args) ||
                (sm_json_find(args, SM_STR("body_sha256")) != NULL && bytes_ask(r));
    return found;
}
