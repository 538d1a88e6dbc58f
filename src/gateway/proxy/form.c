/* Forms, and bodies in a wrapping. All of it is hostile: whatever is odd makes the body count by
 * its bytes. */
#include "gateway/proxy/form.h"

#include <stdlib.h>
#include <strings.h>
#include <zlib.h>

#include "base/header.h"
#include "base/utf8.h"
#include "json/write.h"

#define FIELDS_MAX 1000u              /* of more, some servers read only the first thousand */
#define TEXT_MAX   ((size_t)64 << 10) /* of a field that is shown as it is */

/* ---- fields ----------------------------------------------------------------------------------*/

typedef struct field {
    sm_str name;
    sm_str json; /* its value, as it is shown */
    unsigned at; /* its place among all */
} field;

typedef struct fields {
    sm_arena *arena;
    sm_str query; /* of the request that has them */
    field v[FIELDS_MAX];
    unsigned n;
} fields;

static bool add_field(fields *f, sm_str name, const sm_buf *json)
{
    if (f->n == FIELDS_MAX || json->err != SM_OK || !sm_utf8_valid(name))
        return false;
    sm_str text = sm_arena_text(f->arena, sm_buf_view(json));
    f->v[f->n] = (field){name, text, f->n};
    f->n++;
    return text.p != NULL;
}

static int by_name(const void *a, const void *b)
{
    const field *x = a, *y = b;
    size_t n = x->name.n < y->name.n ? x->name.n : y->name.n;
    int c = n == 0 ? 0 : memcmp(x->name.p, y->name.p, n);
    if (c == 0)
        c = (x->name.n > y->name.n) - (x->name.n < y->name.n);
    return c != 0 ? c : (x->at > y->at) - (x->at < y->at);
}

/* Sorts the fields. False if servers disagree on their names. */
static bool settle_fields(fields *f)
{
    sm_str *names = sm_arena_alloc(f->arena, f->n * sizeof *names + 1);
    size_t n = 0;
    if (names == NULL)
        return false;
    qsort(f->v, f->n, sizeof f->v[0], by_name);
    for (unsigned i = 0; i < f->n; i++)
        if (i == 0 || !sm_str_eq(f->v[i].name, f->v[i - 1].name))
            names[n++] = f->v[i].name;
    return gw_form_names_clear(f->arena, f->query, names, n);
}

/* Fields of one name are a list, in their order. */
static void put_fields(fields *f, sm_buf *out)
{
    sm_buf_byte(out, '{');
    for (unsigned i = 0, next; i < f->n; i = next) {
        for (next = i + 1; next < f->n && sm_str_eq(f->v[i].name, f->v[next].name);)
            next++;
        if (i > 0)
            sm_buf_byte(out, ',');
        sm_json_put_string(out, f->v[i].name);
        sm_buf_text(out, next - i > 1 ? ":[" : ":");
        for (unsigned k = i; k < next; k++) {
            if (k > i)
                sm_buf_byte(out, ',');
            sm_buf_str(out, f->v[k].json);
        }
        if (next - i > 1)
            sm_buf_byte(out, ']');
    }
    sm_buf_byte(out, '}');
}

static fields *fields_new(sm_arena *a, sm_str query)
{
    fields *f = sm_arena_alloc(a, sizeof *f);
    if (f != NULL) {
        f->arena = a;
        f->query = query;
        f->n = 0;
    }
    return f;
}

/* Puts all of it, or nothing. */
static bool finish(fields *f, bool right, sm_buf *out)
{
    size_t before = out->len;
    right = right && out->err == SM_OK && settle_fields(f);
    if (right)
        put_fields(f, out);
    if (right && out->err == SM_OK)
        return true;
    if (right) { /* it was too much for `out`, which was sound before */
        out->len = before;
        out->err = SM_OK;
    }
    return false;
}

/* ---- urlencoded ------------------------------------------------------------------------------*/

/* Decodes a name or value. False if an escape is malformed, or the result is not UTF-8. */
static bool decode(sm_arena *a, sm_str from, sm_str *out)
{
    char *to = sm_arena_alloc(a, from.n + 1);
    size_t n = 0;
    if (to == NULL)
        return false;
    for (size_t i = 0; i < from.n; i++) {
        char c = from.p[i];
        if (c == '%') {
            int high = i + 2 < from.n ? sm_hex_digit(from.p[i + 1]) : -1;
            int low = high < 0 ? -1 : sm_hex_digit(from.p[i + 2]);
            if (low < 0)
                return false;
            c = (char)(high * 16 + low);
            i += 2;
        } else if (c == '+') {
            c = ' ';
        }
        to[n++] = c;
    }
    to[n] = '\0';
    *out = (sm_str){to, n};
    return sm_utf8_valid(*out);
}

bool gw_form_urlencoded(sm_arena *a, sm_str query, sm_str body, sm_buf *out)
{
    fields *f = fields_new(a, query);
    sm_buf json;
    sm_buf_init(&json, TEXT_MAX * 2);
    /* Some servers split at a semicolon, too. */
    bool right = f != NULL && (body.n == 0 || memchr(body.p, ';', body.n) == NULL);
    for (size_t at = 0; right && at < body.n;) {
        const char *start = body.p + at, *and = memchr(start, '&', body.n - at);
        sm_str pair = {start, and == NULL ? body.n - at : (size_t)(and-start)};
        at += pair.n + 1;
        if (pair.n == 0)
            continue;
        const char *is = memchr(pair.p, '=', pair.n);
        sm_str name = {pair.p, is == NULL ? pair.n : (size_t)(is - pair.p)}, value = {0};
        right = decode(a, name, &name);
        sm_buf_clear(&json);
        if (right && is != NULL) {
            right = decode(a, (sm_str){is + 1, pair.n - (size_t)(is + 1 - pair.p)}, &value) &&
                    value.n <= TEXT_MAX;
            if (right)
                sm_json_put_string(&json, value);
        } else {
            sm_buf_text(&json, "null");
        }
        right = right && add_field(f, name, &json);
    }
    sm_buf_fini(&json);
    return finish(f, right, out);
}

/* ---- multipart -------------------------------------------------------------------------------*/

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Whether readers disagree on a parameter. Some read name*=utf-8''value and name*0=value (RFC
 * 2231), single quotes, or =?utf-8?Q?value?= (RFC 2047), and others do not. */
static bool is_odd(sm_str name, sm_str value, bool quoted)
{
    return !sm_header_name(name) || memchr(name.p, '*', name.n) != NULL ||
           memmem(value.p, value.n, "=?", 2) != NULL ||
           (!quoted && (!sm_header_name(value) || memchr(value.p, '\'', value.n) != NULL));
}

/* Reads "; name=value" or "; name=\"value\"" at *at. False at the end; *odd if it is neither. */
static bool next_parameter(sm_str s, size_t *at, sm_str *name, sm_str *value, bool *odd)
{
    size_t i = *at;
    while (i < s.n && (is_blank(s.p[i]) || s.p[i] == ';'))
        i++;
    size_t begin = i;
    while (i < s.n && s.p[i] != '=' && s.p[i] != ';')
        i++;
    *name = (sm_str){s.p + begin, i - begin};
    if (begin == s.n)
        return false;
    if (i == s.n || s.p[i] == ';') {
        *odd = true;
        return false;
    }
    begin = ++i;
    bool quoted = i < s.n && s.p[i] == '"';
    if (quoted) {
        const char *end = memchr(s.p + i + 1, '"', s.n - i - 1);
        *value = (sm_str){s.p + i + 1, end == NULL ? 0 : (size_t)(end - s.p) - i - 1};
        /* Readers do not agree on what a backslash means. */
        *odd = end == NULL || memchr(value->p, '\\', value->n) != NULL;
        i = end == NULL ? s.n : (size_t)(end - s.p) + 1;
        while (i < s.n && is_blank(s.p[i]))
            i++;
        *odd = *odd || (i < s.n && s.p[i] != ';');
    } else {
        while (i < s.n && s.p[i] != ';')
            i++;
        *value = sm_header_trim((sm_str){s.p + begin, i - begin});
    }
    *odd = *odd || is_odd(*name, *value, quoted);
    *at = i;
    return !*odd;
}

sm_str gw_form_boundary(sm_arena *a, sm_str type)
{
    const char *rest = type.p == NULL ? NULL : memchr(type.p, ';', type.n);
    sm_str boundary = {0}, charset = {0}, name, text;
    bool odd = false;
    size_t at = 0;
    sm_str list = rest == NULL ? (sm_str){"", 0} : (sm_str){rest, type.n - (size_t)(rest - type.p)};
    while (next_parameter(list, &at, &name, &text, &odd)) {
        sm_str *to = sm_header_is(name, SM_STR("boundary"))  ? &boundary
                     : sm_header_is(name, SM_STR("charset")) ? &charset
                                                             : NULL;
        if (to == NULL || to->p != NULL)
            return (sm_str){0};
        *to = text;
    }
    bool utf8 = charset.p == NULL || sm_header_is(charset, SM_STR("utf-8"));
    return odd || !utf8 || boundary.n == 0 ? (sm_str){0} : sm_arena_text(a, boundary);
}

sm_str gw_parameter_drop(sm_arena *a, sm_str value, const char *name)
{
    const char *rest = value.p == NULL ? NULL : memchr(value.p, ';', value.n);
    if (rest == NULL)
        return value;
    sm_str media = sm_header_trim((sm_str){value.p, (size_t)(rest - value.p)});
    sm_str list = {rest, value.n - (size_t)(rest - value.p)}, one, text;
    char *to = sm_arena_alloc(a, value.n + 1);
    size_t n = media.n;
    bool odd = false;
    if (to == NULL)
        return (sm_str){0};
    memcpy(to, media.p, n);
    for (size_t from = 0, at = 0; next_parameter(list, &at, &one, &text, &odd); from = at) {
        if (sm_header_is(one, sm_str_from(name)))
            continue;
        memcpy(to + n, list.p + from, at - from);
        n += at - from;
    }
    to[n] = '\0';
    return odd ? value : (sm_str){to, n};
}

/* What the head of a part says. */
typedef struct part {
    sm_str name, filename, type;
    bool more; /* it says something else too */
} part;

static bool read_disposition(sm_str value, part *p)
{
    sm_str kind = SM_STR("form-data"), name, text;
    bool odd = false;
    size_t at = kind.n;
    if (value.n <= kind.n || strncasecmp(value.p, kind.p, kind.n) != 0)
        return false;
    while (at < value.n && is_blank(value.p[at]))
        at++;
    if (at == value.n || value.p[at] != ';')
        return false;
    while (next_parameter(value, &at, &name, &text, &odd)) {
        sm_str *to = sm_header_is(name, SM_STR("name"))       ? &p->name
                     : sm_header_is(name, SM_STR("filename")) ? &p->filename
                                                              : NULL;
        if (to == NULL)
            p->more = true;
        else if (to->p != NULL)
            return false;
        else
            *to = text;
    }
    return !odd && p->name.p != NULL;
}

/* The head of a part: lines that end with CR LF. */
static bool read_part_head(sm_str head, part *p)
{
    bool disposed = false;
    while (head.n > 0) {
        const char *end = memmem(head.p, head.n, "\r\n", 2);
        size_t n = end == NULL ? head.n : (size_t)(end - head.p);
        const char *colon = memchr(head.p, ':', n);
        if (colon == NULL)
            return false;
        sm_str name = {head.p, (size_t)(colon - head.p)};
        sm_str value = sm_header_trim((sm_str){colon + 1, n - name.n - 1});
        if (!sm_header_name(name) || !sm_header_value(value))
            return false; /* some servers drop blanks, or end a line at a bare line feed */
        if (sm_header_is(name, SM_STR("Content-Disposition"))) {
            if (disposed || !read_disposition(value, p))
                return false;
            disposed = true;
        } else if (sm_header_is(name, SM_STR("Content-Type")) && p->type.p == NULL) {
            p->type = value;
        } else {
            p->more = true;
        }
        size_t skip = end == NULL ? n : n + 2;
        head = (sm_str){head.p + skip, head.n - skip};
    }
    return disposed;
}

static bool put_digest(sm_digest *digest, const char *name, sm_str bytes, sm_buf *out)
{
    sm_hash hash;
    char hex[SM_HASH_HEX + 1];
    if (sm_digest_bytes(digest, bytes.p, bytes.n, &hash) != SM_OK)
        return false;
    sm_hash_hex(&hash, hex);
    sm_put_text(out, name, sm_str_from(hex));
    return true;
}

static bool put_part(sm_digest *digest, const part *p, sm_str head, sm_str body, sm_buf *out)
{
    sm_buf_clear(out);
    if (p->filename.p == NULL && p->type.p == NULL && !p->more && body.n <= TEXT_MAX &&
        sm_utf8_valid(body)) {
        sm_json_put_string(out, body);
        return true;
    }
    if (!sm_utf8_valid(p->filename) || !sm_utf8_valid(p->type))
        return false;
    sm_buf_byte(out, '{');
    sm_put_number(out, "size", body.n);
    sm_put_text(out, "filename", p->filename);
    sm_put_text(out, "type", p->type);
    bool right = put_digest(digest, "sha256", body, out) &&
                 (!p->more || put_digest(digest, "head_sha256", head, out));
    sm_buf_byte(out, '}');
    return right;
}

/* Whether a line begins like a boundary's, but does not follow CR LF. Some servers end a part
 * there, too. */
static bool has_loose_mark(sm_str text, sm_str mark)
{
    const char *line = mark.p + 2; /* without its CR LF */
    size_t n = mark.n - 2;
    for (size_t at = 0; text.n - at >= n;) {
        const char *found = memmem(text.p + at, text.n - at, line, n);
        if (found == NULL)
            return false;
        if (found == text.p || found[-1] == '\n' || found[-1] == '\r')
            return true;
        at = (size_t)(found - text.p) + 1;
    }
    return false;
}

/* Cuts one part off *rest, which begins behind a boundary's CR LF. *last if the closing boundary
 * follows. */
static bool cut_part(sm_str *rest, sm_str mark, sm_str *head, sm_str *body, bool *last)
{
    const char *blank = memmem(rest->p, rest->n, "\r\n\r\n", 4);
    const char *end = memmem(rest->p, rest->n, mark.p, mark.n);
    if (blank == NULL || end == NULL || end < blank + 4)
        return false;
    *head = (sm_str){rest->p, (size_t)(blank - rest->p)};
    *body = (sm_str){blank + 4, (size_t)(end - blank) - 4};
    const char *behind = end + mark.n;
    size_t left = rest->n - (size_t)(behind - rest->p);
    *last = left >= 2 && memcmp(behind, "--", 2) == 0;
    if (!*last && (left < 2 || memcmp(behind, "\r\n", 2) != 0))
        return false;
    *rest = (sm_str){behind + 2, left - 2};
    return !has_loose_mark(*head, mark) && !has_loose_mark(*body, mark);
}

bool gw_form_multipart(sm_arena *a, sm_digest *digest, sm_str query, sm_str body, sm_str boundary,
                       sm_buf *out)
{
    fields *f = fields_new(a, query);
    sm_str mark = sm_arena_printf(a, "\r\n--%.*s", SM_FMT(boundary)), head, text;
    bool last = false;
    if (f == NULL || mark.p == NULL || boundary.n == 0)
        return false;
    sm_str line = {mark.p + 2, mark.n - 2}; /* the first one has no CR LF before it */
    if (body.n < line.n + 2 || memcmp(body.p, line.p, line.n) != 0 ||
        memcmp(body.p + line.n, "\r\n", 2) != 0)
        return false;
    sm_str rest = {body.p + line.n + 2, body.n - line.n - 2};
    sm_buf json;
    sm_buf_init(&json, TEXT_MAX * 8);
    bool right = true;
    while (right && !last) {
        part p = {0};
        right = cut_part(&rest, mark, &head, &text, &last) && read_part_head(head, &p) &&
                put_part(digest, &p, head, text, &json) && add_field(f, p.name, &json);
    }
    sm_buf_fini(&json);
    bool ends = rest.n == 0 || (rest.n == 2 && memcmp(rest.p, "\r\n", 2) == 0);
    return finish(f, right && ends, out);
}

/* ---- wrappings -------------------------------------------------------------------------------*/

/* A header of gzip without flags: they announce a name, a comment or more, which nobody compares.
 */
static bool is_plain_gzip(sm_str body)
{
    return body.n > 3 && body.p[3] == 0;
}

bool gw_unpack_gzip(sm_str body, sm_buf *out)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)body.p, .avail_in = (uInt)body.n};
    if (!is_plain_gzip(body) || body.n > UINT32_MAX || inflateInit2(&z, 16 + MAX_WBITS) != Z_OK)
        return false;
    int status = Z_OK;
    while (status == Z_OK && sm_buf_reserve(out, 4096)) {
        size_t room = out->cap - out->len;
        z.next_out = (Bytef *)out->p + out->len;
        z.avail_out = room > UINT32_MAX ? UINT32_MAX : (uInt)room;
        size_t given = z.avail_out;
        status = inflate(&z, Z_NO_FLUSH);
        out->len += given - z.avail_out;
    }
    bool whole = status == Z_STREAM_END && z.avail_in == 0;
    inflateEnd(&z);
    return whole;
}

/* Pieces of "SIZE;chunk-signature=...", CR LF, bytes, CR LF; the last one has size 0, and trailers
 * may follow it. Signatures and trailers are sums of the bytes, and must not be able to say more.
 */
static bool is_signature(sm_str extension)
{
    static const char name[] = ";chunk-signature=";
    const size_t n = sizeof name - 1;
    bool right = extension.n > n && memcmp(extension.p, name, n) == 0;
    for (size_t i = n; right && i < extension.n; i++)
        right = sm_hex_digit(extension.p[i]) >= 0;
    return right || extension.n == 0;
}

/* A header of AWS with a sum in base64 or hexadecimal digits. */
static bool is_aws_sum(sm_str line)
{
    const char *colon = memchr(line.p, ':', line.n);
    if (colon == NULL || line.n < 6 || strncasecmp(line.p, "x-amz-", 6) != 0 ||
        !sm_header_name((sm_str){line.p, (size_t)(colon - line.p)}))
        return false;
    sm_str sum = sm_header_trim((sm_str){colon + 1, line.n - (size_t)(colon + 1 - line.p)});
    while (sum.n > 0 && sum.p[sum.n - 1] == '=')
        sum.n--;
    bool right = true;
    for (size_t i = 0; right && i < sum.n; i++)
        right = (sum.p[i] >= '0' && sum.p[i] <= '9') || sum.p[i] == '+' || sum.p[i] == '/' ||
                ((sum.p[i] | 0x20) >= 'a' && (sum.p[i] | 0x20) <= 'z');
    return right;
}

/* Behind the last chunk: headers of AWS, if any, and an empty line. */
static bool is_aws_trailer(sm_str rest)
{
    const char *end;
    while ((end = memmem(rest.p, rest.n, "\r\n", 2)) != NULL && end != rest.p) {
        size_t line = (size_t)(end - rest.p);
        if (!is_aws_sum((sm_str){rest.p, line}))
            return false;
        rest = (sm_str){end + 2, rest.n - line - 2};
    }
    return end != NULL && rest.n == 2;
}

bool gw_unpack_aws(sm_str body, sm_buf *out)
{
    for (;;) {
        const char *end = memmem(body.p, body.n, "\r\n", 2);
        if (end == NULL)
            return false;
        size_t line = (size_t)(end - body.p), size = 0, i = 0;
        for (; i < line && sm_hex_digit(body.p[i]) >= 0; i++) {
            if (size > SIZE_MAX >> 8)
                return false;
            size = size * 16 + (size_t)sm_hex_digit(body.p[i]);
        }
        if (i == 0 || !is_signature((sm_str){body.p + i, line - i}))
            return false;
        body = (sm_str){end + 2, body.n - line - 2};
        if (size == 0)
            return is_aws_trailer(body);
        if (body.n < 2 || size > body.n - 2 || memcmp(body.p + size, "\r\n", 2) != 0)
            return false;
        sm_buf_bytes(out, body.p, size);
        if (out->err != SM_OK)
            return false;
        body = (sm_str){body.p + size + 2, body.n - size - 2};
    }
}
