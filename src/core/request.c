/* Fields of a request that decide more than others. */
#include "core/request.h"

#include <strings.h>

#include "base/buf.h"
#include "base/fold.h"
#include "base/header.h"
#include "base/limits.h"
#include "base/method.h"
#include "base/url.h"
#include "base/utf8.h"
#include "core/identity.h"
#include "core/secret.h"

/* ---- names and values of a query -------------------------------------------------------------*/

typedef struct pair {
    sm_str name, value; /* as they came; the value is absent if there is no = */
} pair;

/* Takes the next pair off a query. Some servers split at a semicolon, too. */
static bool next_pair(sm_str *rest, pair *out)
{
    size_t n = 0;
    if (rest->n == 0)
        return false;
    while (n < rest->n && rest->p[n] != '&' && rest->p[n] != ';')
        n++;
    const char *is = memchr(rest->p, '=', n);
    size_t name = is == NULL ? n : (size_t)(is - rest->p);
    *out = (pair){.name = {rest->p, name}};
    if (is != NULL)
        out->value = (sm_str){is + 1, n - name - 1};
    n += n < rest->n;
    *rest = (sm_str){rest->p + n, rest->n - n};
    return true;
}

/* Decodes a name or value as lenient servers do: what is not an escape stays. Absent if there is no
 * memory. */
static sm_str decode(sm_arena *a, sm_str from)
{
    char *to = sm_arena_alloc(a, from.n + 1);
    size_t n = 0;
    for (size_t i = 0; to != NULL && i < from.n; i++) {
        bool escape = from.p[i] == '%' && i + 2 < from.n && sm_hex_digit(from.p[i + 1]) >= 0 &&
                      sm_hex_digit(from.p[i + 2]) >= 0;
        to[n++] = escape ? (char)(sm_hex_digit(from.p[i + 1]) * 16 + sm_hex_digit(from.p[i + 2]))
                  : from.p[i] == '+' ? ' '
                                     : from.p[i];
        i += escape ? 2 : 0;
    }
    return (sm_str){to, n};
}

bool sm_query_next(sm_arena *a, sm_str *rest, sm_str *name)
{
    pair p;
    if (!next_pair(rest, &p))
        return false;
    *name = decode(a, p.name);
    return true;
}

/* Whether a character does not count at the end of a name. */
static bool is_trimmed(sm_str one)
{
    return sm_utf8_step((const unsigned char *)one.p, one.n) == one.n &&
           sm_fold_next(&one, true) == 0;
}

sm_str sm_name_trim(sm_str name)
{
    size_t n = 1;
    while (name.n > 0 && n > 0) {
        n = sm_utf8_step((const unsigned char *)name.p, name.n);
        if (name.p[0] != '?' && name.p[0] != '#' && !is_trimmed((sm_str){name.p, n}))
            n = 0;
        name = (sm_str){name.p + n, name.n - n};
    }
    for (n = 1; name.n > 0 && n > 0;) {
        while (n < 4 && n < name.n && ((unsigned char)name.p[name.n - n] & 0xC0) == 0x80)
            n++;
        bool trimmed = is_trimmed((sm_str){name.p + name.n - n, n});
        name.n -= trimmed ? n : 0;
        n = trimmed;
    }
    return name;
}

/* ---- the method ------------------------------------------------------------------------------*/

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

bool sm_name_method(sm_str name)
{
    static const char word[] = "method";
    const size_t n = sizeof word - 1;
    size_t at = 0;
    while (at < name.n && !is_word(name.p[at]))
        at++;
    return sm_header_method(sm_name_trim(name)) ||
           (at > 0 && name.n - at >= n && strncasecmp(name.p + at, word, n) == 0 &&
            (name.n - at == n || !is_word(name.p[at + n])));
}

/* A search for a method that is named beside that of the request. */
typedef struct search {
    sm_arena *arena;
    unsigned does; /* those methods count that do this; 0: any */
} search;

static bool counts(const search *s, sm_str value)
{
    const sm_method_row *row = sm_methods;
    while (row->name != NULL && !sm_header_is(value, sm_str_from(row->name)))
        row++;
    return s->does == 0 || (row->does & s->does) != 0;
}

static bool in_query(const search *s, sm_str query)
{
    pair p;
    while (next_pair(&query, &p)) {
        sm_str name = decode(s->arena, p.name), value = decode(s->arena, p.value);
        if (name.p == NULL || value.p == NULL || (sm_name_method(name) && counts(s, value)))
            return true;
    }
    return false;
}

/* In the members of an object; of those that are lists, too. */
static bool in_members(const search *s, const sm_json *object, bool (*named)(sm_str))
{
    if (object == NULL || object->type != SM_JSON_OBJECT)
        return false;
    const sm_json *name = object + 1;
    for (uint32_t i = 0; i < object->len; i++, name = sm_json_next(name + 1)) {
        bool list = name[1].type == SM_JSON_ARRAY;
        const sm_json *value = list ? name + 2 : name + 1;
        if (!named(sm_json_text(name)))
            continue;
        if (s->does == 0)
            return true;
        for (uint32_t k = 0; k < (list ? name[1].len : 1); k++, value = sm_json_next(value))
            if (value->type == SM_JSON_STRING && counts(s, sm_json_text(value)))
                return true;
    }
    return false;
}

static sm_str text_of(const sm_json *request, const char *member)
{
    const sm_json *v = sm_json_find(request, sm_str_from(member));
    return v != NULL && v->type == SM_JSON_STRING ? sm_json_text(v) : (sm_str){0};
}

static bool names_method(const search *s, const sm_json *request)
{
    return in_members(s, sm_json_find(request, SM_STR("headers")), sm_header_method) ||
           in_members(s, sm_json_find(request, SM_STR("form")), sm_name_method) ||
           in_members(s, sm_json_find(request, SM_STR("body")), sm_name_method) ||
           in_query(s, text_of(request, "query"));
}

bool sm_query_overrides(sm_arena *a, sm_str query)
{
    return in_query(&(search){.arena = a}, query);
}

bool sm_request_overrides(sm_arena *a, const sm_json *request)
{
    return names_method(&(search){.arena = a}, request);
}

static bool has_name(sm_str query, const char *name)
{
    pair p;
    while (next_pair(&query, &p))
        if (sm_str_is(p.name, name))
            return true;
    return false;
}

/* Whether some reader takes a name of the query for another one. */
static bool query_odd(sm_arena *a, sm_str query)
{
    sm_str name;
    while (sm_query_next(a, &query, &name))
        if (name.p == NULL || sm_name_trim(name).n < name.n)
            return true;
    return false;
}

static bool has_word(sm_str text, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= text.n; i++)
        if (strncasecmp(text.p + i, word, n) == 0)
            return true;
    return false;
}

/* Whether a body that counts by its bytes has fields for some server: its label says so, or there
 * is none. */
static bool body_odd(const sm_json *request)
{
    const sm_json *headers = sm_json_find(request, SM_STR("headers"));
    if (sm_json_find(request, SM_STR("body_sha256")) == NULL)
        return false;
    sm_str type = headers == NULL ? (sm_str){0} : text_of(headers, "content-type");
    return type.n == 0 || memchr(type.p, '/', type.n) == NULL || has_word(type, "multipart/") ||
           has_word(type, "form") || has_word(type, "json");
}

bool sm_request_odd(sm_arena *a, const sm_json *request)
{
    static const char *const marks[] = {";", "//", "%2f", "%5c", "%3b", "%25"};
    sm_str path = text_of(request, "path");
    for (size_t i = 0; i < path.n; i++)
        for (size_t k = 0; k < sizeof marks / sizeof *marks; k++) {
            size_t n = strlen(marks[k]);
            if (path.n - i >= n && strncasecmp(path.p + i, marks[k], n) == 0)
                return true;
        }
    return body_odd(request) || query_odd(a, text_of(request, "query")) ||
           sm_request_overrides(a, request);
}

/* Whether a POST begins or completes an upload in parts, as S3 does it: without a body, and with
 * one that is neither JSON nor a form. */
static bool is_upload(const sm_json *request, sm_str query)
{
    bool read = sm_json_find(request, SM_STR("body")) != NULL ||
                sm_json_find(request, SM_STR("form")) != NULL;
    bool bytes = sm_json_find(request, SM_STR("body_sha256")) != NULL;
    return !read && (bytes ? has_name(query, "uploadId") : has_name(query, "uploads"));
}

sm_acts sm_request_acts(sm_arena *a, const sm_json *request)
{
    sm_str query = text_of(request, "query");
    bool post = sm_str_is(text_of(request, "method"), "POST");
    if (!post || names_method(&(search){a, SM_METHOD_SETS}, request))
        return has_name(query, "uploadId") && has_name(query, "partNumber") ? SM_ACTS_ON_PART
                                                                            : SM_ACTS_ON_PATH;
    return is_upload(request, query) ? SM_ACTS_ON_PATH : SM_ACTS_ON_NOTHING;
}

sm_str sm_path_plain(sm_arena *a, sm_str path)
{
    static const char digits[] = "0123456789ABCDEF";
    char *to = sm_arena_alloc(a, path.n + SM_TEXT_PAD);
    size_t n = 0;
    for (size_t i = 0; to != NULL && i < path.n; i++) {
        bool escape = path.p[i] == '%' && i + 2 < path.n && sm_hex_digit(path.p[i + 1]) >= 0 &&
                      sm_hex_digit(path.p[i + 2]) >= 0;
        int c = escape ? sm_hex_digit(path.p[i + 1]) * 16 + sm_hex_digit(path.p[i + 2]) : path.p[i];
        if (escape && (c <= ' ' || c >= 0x7F || c == '%')) {
            to[n++] = '%';
            to[n++] = digits[c / 16];
            to[n++] = digits[c % 16];
        } else {
            to[n++] = (char)c;
        }
        i += escape ? 2 : 0;
    }
    if (to != NULL)
        memset(to + n, 0, SM_TEXT_PAD);
    return (sm_str){to, n};
}

/* ---- secrets ---------------------------------------------------------------------------------*/

/* Where a value ends for servers that split at & only. */
static const char *end_of_value(sm_str query, sm_str value)
{
    const char *end = query.p + query.n, *and = memchr(value.p, '&', (size_t)(end - value.p));
    return and == NULL ? end : and;
}

sm_str sm_query_redact(sm_arena *a, sm_str query)
{
    sm_str rest = query;
    sm_buf out;
    pair p;
    bool any = false, lost = false;
    sm_buf_init(&out, SM_ARENA_MAX);
    while (next_pair(&rest, &p)) {
        sm_str name = decode(a, p.name);
        const char *end = p.value.p == NULL ? NULL : end_of_value(query, p.value);
        bool secret = name.p != NULL && end > p.value.p && sm_name_secret(name, SM_IN_URL);
        const char *from = p.name.p;
        if (secret) {
            sm_buf_bytes(&out, from, p.name.n + 1);
            sm_buf_text(&out, SM_REDACTED);
            from = end;
            if (from > rest.p) /* a semicolon is part of the value for most servers */
                rest = (sm_str){from, (size_t)(query.p + query.n - from)};
        }
        sm_buf_bytes(&out, from, (size_t)(rest.p - from)); /* what is between pairs, too */
        any = any || secret;
        lost = lost || name.p == NULL;
    }
    sm_str text = any ? sm_arena_text(a, sm_buf_view(&out)) : query;
    if (lost || out.err != SM_OK)
        text = (sm_str){0};
    sm_buf_fini(&out);
    return text;
}
