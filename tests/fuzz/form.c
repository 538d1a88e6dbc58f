/*
 * Bodies of requests through the reverse proxy: forms, and what is packed.
 *
 * The first byte chooses. What a form is shown as is a JSON object, is the same for every order of
 * its names and every boundary, and has everything in it: a form that is made of it is shown as the
 * same. Unpacking is bounded. A query is stored without its secrets.
 */
#include "fuzz.h"

#include "core/request.h"
#include "gateway/proxy/form.h"

#define ROOM ((size_t)1 << 20)

/* Reads what a form is shown as. */
static const sm_json *must_be_object(sm_arena *a, sm_str shown)
{
    const sm_json *v = NULL;
    sm_json_limits limits = sm_json_default_limits;
    limits.bytes = SM_ARENA_MAX;
    must(sm_json_read(a, shown, &limits, &v, NULL) == SM_OK);
    must(v->type == SM_JSON_OBJECT);
    must_be_sound(v, 0);
    return v;
}

static void put_encoded(sm_buf *out, sm_str text)
{
    for (size_t i = 0; i < text.n; i++)
        sm_buf_printf(out, "%%%02X", (unsigned char)text.p[i]);
}

static void put_pair(sm_buf *out, sm_str name, const sm_json *value)
{
    if (out->len > 0)
        sm_buf_byte(out, '&');
    put_encoded(out, name);
    if (value->type == SM_JSON_STRING) {
        sm_buf_byte(out, '=');
        put_encoded(out, sm_json_text(value));
    } else {
        must(value->type == SM_JSON_NULL);
    }
}

static void urlencoded(sm_arena *a, sm_str body)
{
    sm_buf shown, again, text;
    sm_buf_init(&shown, ROOM * 8);
    sm_buf_init(&again, ROOM * 8);
    sm_buf_init(&text, ROOM * 8);
    if (gw_form_urlencoded(a, SM_STR(""), body, &shown)) {
        const sm_json *form = must_be_object(a, sm_buf_view(&shown));
        const sm_json *name = form + 1;
        bool bare = false; /* a nameless field without a value cannot be written */
        for (uint32_t i = 0; i < form->len; i++, name = sm_json_next(name + 1)) {
            const sm_json *value = name + 1;
            bool list = value->type == SM_JSON_ARRAY;
            const sm_json *item = list ? value + 1 : value;
            for (uint32_t k = 0; k < (list ? value->len : 1); k++, item = sm_json_next(item)) {
                bare |= name->len == 0 && item->type == SM_JSON_NULL;
                put_pair(&text, sm_json_text(name), item);
            }
        }
        must(!bare && text.err == SM_OK);
        must(gw_form_urlencoded(a, SM_STR(""), sm_buf_view(&text), &again));
        must(sm_str_eq(sm_buf_view(&shown), sm_buf_view(&again)));
    } else {
        must(shown.len == 0 && shown.err == SM_OK);
    }
    sm_buf_fini(&shown);
    sm_buf_fini(&again);
    sm_buf_fini(&text);
}

/* The same body with another boundary. */
static void put_with_boundary(sm_buf *out, sm_str body, sm_str old, const char *new)
{
    size_t at = 0;
    while (at < body.n) {
        const char *mark = memmem(body.p + at, body.n - at, old.p, old.n);
        size_t n = mark == NULL ? body.n - at : (size_t)(mark - body.p) - at;
        sm_buf_bytes(out, body.p + at, n);
        at += n;
        if (mark != NULL) {
            sm_buf_text(out, new);
            at += old.n;
        }
    }
}

static void multipart(sm_arena *a, sm_str body)
{
    static const char other[] = "--another-one-that-is-not-in-it";
    sm_digest digest = {0};
    sm_buf shown, again, text;
    sm_buf_init(&shown, ROOM * 8);
    sm_buf_init(&again, ROOM * 8);
    sm_buf_init(&text, ROOM * 8);
    must(sm_digest_init(&digest) == SM_OK);
    if (gw_form_multipart(a, &digest, SM_STR(""), body, SM_STR("b"), &shown)) {
        must_be_object(a, sm_buf_view(&shown));
        put_with_boundary(&text, body, SM_STR("\r\n--b"), "\r\n--another-one-that-is-not-in-it");
        if (memmem(body.p, body.n, other, sizeof other - 1) == NULL && text.err == SM_OK) {
            /* The first one has no line before it. */
            sm_buf whole;
            sm_buf_init(&whole, ROOM * 8);
            sm_buf_text(&whole, other);
            sm_buf_bytes(&whole, text.p + 3, text.len - 3);
            must(gw_form_multipart(a, &digest, SM_STR(""), sm_buf_view(&whole),
                                   SM_STR("another-one-that-is-not-in-it"), &again));
            must(sm_str_eq(sm_buf_view(&shown), sm_buf_view(&again)));
            sm_buf_fini(&whole);
        }
    } else {
        must(shown.len == 0 && shown.err == SM_OK);
    }
    sm_digest_fini(&digest);
    sm_buf_fini(&shown);
    sm_buf_fini(&again);
    sm_buf_fini(&text);
}

static void packed(sm_str body, bool (*unpack)(sm_str, sm_buf *))
{
    sm_buf out;
    sm_buf_init(&out, ROOM);
    unpack(body, &out);
    must(out.len <= ROOM);
    sm_buf_fini(&out);
}

/* A query without its secrets has none, and is as long in pairs. */
static void query(sm_arena *a, sm_str text)
{
    sm_str once = sm_query_redact(a, text);
    must(once.p != NULL);
    sm_str twice = sm_query_redact(a, once);
    must(sm_str_eq(once, twice));
    sm_query_overrides(a, text);
    size_t before = 0, after = 0;
    for (size_t i = 0; i < text.n; i++)
        before += text.p[i] == '&';
    for (size_t i = 0; i < once.n; i++)
        after += once.p[i] == '&';
    must(before == after);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sm_arena a;
    if (size == 0)
        return 0;
    sm_str body = input(data + 1, size - 1);
    sm_arena_init(&a, SM_ARENA_MAX);
    switch (data[0] & 3) {
    case 0: urlencoded(&a, body); break;
    case 1: multipart(&a, body); break;
    case 2: packed(body, gw_unpack_gzip); break;
    case 3: packed(body, gw_unpack_aws); break;
    }
    sm_str found = gw_form_boundary(&a, body);
    must(found.p == NULL || found.n <= body.n);
    sm_str left = gw_parameter_drop(&a, body, "boundary");
    must(left.n <= body.n);
    query(&a, body);
    sm_arena_fini(&a);
    return 0;
}
