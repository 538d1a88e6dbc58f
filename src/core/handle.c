/* Handles, to text and back. */
#include "core/handle.h"

#include <endian.h>
#include <stdio.h>

static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
#define ID_DIGITS 13u

sm_err sm_effect_id(sm_digest *d, const sm_hash *key, uint64_t *id)
{
    static const char version[] = "semel-effect-1";
    uint8_t text[sizeof version - 1 + sizeof key->b];
    memcpy(text, version, sizeof version - 1);
    memcpy(text + sizeof version - 1, key->b, sizeof key->b);
    sm_hash h;
    sm_err e = sm_digest_bytes(d, text, sizeof text, &h);
    if (e != SM_OK)
        return e;
    memcpy(id, h.b, sizeof *id);
    *id = be64toh(*id);
    if (*id == 0)
        *id = 1;
    return SM_OK;
}

sm_err sm_scope_shard(sm_digest *d, sm_str scope, uint8_t *shard)
{
    const char *slash = memchr(scope.p, '/', scope.n);
    sm_hash h;
    sm_err e = sm_digest_bytes(d, scope.p, slash == NULL ? scope.n : (size_t)(slash - scope.p), &h);
    *shard = e == SM_OK ? h.b[0] : 0;
    return e;
}

/* The part that all handles share. A loop and two shifts: this is on the path of every answer. */
static size_t put_stem(const char *prefix, const sm_handle *h, char *out)
{
    static const char hex[] = "0123456789abcdef";
    memcpy(out, prefix, 3);
    out[3] = hex[h->shard >> 4];
    out[4] = hex[h->shard & 15];
    uint64_t v = h->id;
    for (size_t i = ID_DIGITS; i-- > 0; v >>= 5)
        out[5 + i] = digits[v & 31];
    size_t n = 5 + ID_DIGITS;
    if (h->generation != 1)
        n += (size_t)sprintf(out + n, ".%llu", (unsigned long long)h->generation);
    out[n] = '\0';
    return n;
}

size_t sm_handle_effect(const sm_handle *h, char out[SM_HANDLE_TEXT])
{
    return put_stem("ef_", h, out);
}

size_t sm_handle_request(const sm_handle *h, char out[SM_HANDLE_TEXT])
{
    size_t n = put_stem("ap_", h, out);
    return n + (size_t)sprintf(out + n, ".%llu", (unsigned long long)h->request);
}

size_t sm_handle_claim(const sm_handle *h, char out[SM_HANDLE_TEXT])
{
    size_t n = put_stem("cl_", h, out);
    n += (size_t)sprintf(out + n, ".%llu.", (unsigned long long)h->fence);
    for (size_t i = 0; i < sizeof h->secret; i++)
        n += (size_t)sprintf(out + n, "%02x", h->secret[i]);
    return n;
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse_hex(sm_str text, uint8_t *out, size_t n)
{
    if (text.n != 2 * n)
        return false;
    for (size_t i = 0; i < n; i++) {
        int high = hex_value(text.p[2 * i]), low = hex_value(text.p[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* A number from 1 without sign or leading zeros. */
static bool parse_number(sm_str text, uint64_t *out)
{
    if (text.n == 0 || text.n > 18 || text.p[0] == '0')
        return false;
    *out = 0;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9')
            return false;
        *out = *out * 10 + (uint64_t)(text.p[i] - '0');
    }
    return true;
}

/* Cuts off what stands behind the last dot. */
static sm_str cut_last(sm_str *text)
{
    const char *dot = text->n == 0 ? NULL : memrchr(text->p, '.', text->n);
    if (dot == NULL)
        return (sm_str){0};
    sm_str last = {dot + 1, text->n - (size_t)(dot + 1 - text->p)};
    text->n = (size_t)(dot - text->p);
    return last;
}

static bool parse_id(sm_str text, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < text.n; i++) {
        const char *at = text.p[i] == '\0' ? NULL : strchr(digits, text.p[i]);
        if (at == NULL || (i == 0 && at - digits > 15)) /* 13 digits hold 65 bits */
            return false;
        *out = *out << 5 | (uint64_t)(at - digits);
    }
    return *out != 0;
}

bool sm_handle_parse(const char *prefix, sm_str text, sm_handle *out)
{
    *out = (sm_handle){.generation = 1};
    if (text.n < 5 + ID_DIGITS || memcmp(text.p, prefix, 3) != 0)
        return false;
    sm_str rest = {text.p + 3, text.n - 3};
    if (prefix[0] == 'c' && (!parse_hex(cut_last(&rest), out->secret, sizeof out->secret) ||
                             !parse_number(cut_last(&rest), &out->fence)))
        return false;
    if (prefix[0] == 'a' && !parse_number(cut_last(&rest), &out->request))
        return false;
    if (rest.n != 2 + ID_DIGITS &&
        (!parse_number(cut_last(&rest), &out->generation) || out->generation == 1))
        return false;
    return rest.n == 2 + ID_DIGITS && parse_hex((sm_str){rest.p, 2}, &out->shard, 1) &&
           parse_id((sm_str){rest.p + 2, ID_DIGITS}, &out->id);
}
