/* Taking our own options out of a URL and leaving everything else as it was. */
#include "store/shared/url.h"

#include <string.h>

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

sm_err sm_url_decode(sm_arena *a, sm_str text, sm_str *out)
{
    char *to = sm_arena_alloc(a, text.n + 1);
    if (to == NULL)
        return SEMEL_E_NOMEM;
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (c == '%') {
            bool whole = text.n - i > 2 && hex(text.p[i + 1]) >= 0 && hex(text.p[i + 2]) >= 0;
            if (!whole)
                return SEMEL_E_BAD_ARGUMENTS;
            c = (char)(hex(text.p[i + 1]) * 16 + hex(text.p[i + 2]));
            i += 2;
        }
        if (c == '\0')
            return SEMEL_E_BAD_ARGUMENTS;
        to[n++] = c;
    }
    to[n] = '\0';
    *out = (sm_str){to, n};
    return SM_OK;
}

/* The option of this name in the list, or NULL. */
static sm_url_option *find(sm_url_option *options, size_t n, sm_str name)
{
    for (size_t i = 0; i < n; i++) {
        if (sm_str_is(name, options[i].name))
            return &options[i];
    }
    return NULL;
}

static sm_err take(sm_arena *a, sm_url_option *o, sm_str value, sm_fault *fault)
{
    if (o->value.p != NULL)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "the ledger's URL has %s twice", o->name);
    sm_err e = sm_url_decode(a, value, &o->value);
    return e == SM_OK
               ? e
               : sm_fault_set(fault, e, "the ledger's URL has a %s that cannot be read", o->name);
}

sm_err sm_url_take(sm_arena *a, sm_str *url, sm_url_option *options, size_t n, sm_fault *fault)
{
    const char *mark = memchr(url->p, '?', url->n);
    size_t head = mark == NULL ? url->n : (size_t)(mark - url->p);
    char *to = sm_arena_alloc(a, url->n + 1);
    if (to == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    memcpy(to, url->p, head);
    size_t len = head;
    for (size_t i = head; i < url->n;) {
        const char *part = url->p + i + 1, *end = url->p + url->n;
        const char *stop = memchr(part, '&', (size_t)(end - part));
        stop = stop == NULL ? end : stop;
        const char *equals = memchr(part, '=', (size_t)(stop - part));
        const char *name_end = equals == NULL ? stop : equals;
        sm_url_option *o = find(options, n, (sm_str){part, (size_t)(name_end - part)});
        if (o != NULL) {
            const char *value = equals == NULL ? stop : equals + 1;
            sm_err e = take(a, o, (sm_str){value, (size_t)(stop - value)}, fault);
            if (e != SM_OK)
                return e;
        } else if (stop > part) {
            to[len] = len == head ? '?' : '&';
            memcpy(to + len + 1, part, (size_t)(stop - part));
            len += 1 + (size_t)(stop - part);
        }
        i = (size_t)(stop - url->p);
    }
    to[len] = '\0';
    *url = (sm_str){to, len};
    return SM_OK;
}

sm_err sm_url_number(const sm_url_option *o, int64_t least, int64_t most, int64_t absent,
                     int64_t *out, sm_fault *fault)
{
    *out = absent;
    if (o->value.p == NULL)
        return SM_OK;
    int64_t n = 0;
    bool good = o->value.n > 0 && o->value.n < 10;
    for (size_t i = 0; good && i < o->value.n; i++) {
        good = o->value.p[i] >= '0' && o->value.p[i] <= '9';
        n = n * 10 + (o->value.p[i] - '0');
    }
    if (!good || n < least || n > most)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the ledger's URL needs a %s from %lld to %lld", o->name,
                            (long long)least, (long long)most);
    *out = n;
    return SM_OK;
}
