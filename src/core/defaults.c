/*
 * Defaults of arguments, from a tool's input schema.
 *
 * A call that leaves an argument out and one that gives its default are the same action, so the
 * default is put in before anything is hashed. Followed are `properties`, and `properties` inside
 * of those: a default below an object that is absent is put in only if the object itself has a
 * default, as validators do. References and combinations of schemas are not followed: what they
 * come to depends on more than the schema says in one place.
 *
 * What a schema says is taken out of it once, sorted by name, so that filling takes time in
 * proportion to the arguments and the defaults, however many of both there are.
 *
 * Nothing here checks arguments against their schema. Recursion is bounded by the depth that
 * documents may have.
 */
#include "core/defaults.h"

#include "base/limits.h"
#include "base/utf8.h"
#include "json/write.h"

typedef struct property {
    sm_str name;
    const sm_json *value;     /* what to put in; NULL: nothing */
    const sm_defaults *below; /* inside of it, if it is an object; NULL: nothing */
} property;

struct sm_defaults {
    uint32_t count;
    property v[]; /* only those that say something, in the order of sm_utf16_compare */
};

const sm_defaults *sm_defaults_of(sm_arena *a, const sm_json *schema)
{
    const sm_json *properties = sm_json_find(schema, SM_STR("properties"));
    if (properties == NULL || properties->type != SM_JSON_OBJECT || properties->len == 0)
        return NULL;
    property *found = sm_arena_zalloc(a, properties->len, sizeof *found);
    if (found == NULL)
        return NULL;
    uint32_t n = 0;
    const sm_json *name = NULL;
    for (uint32_t i = 0; i < properties->len; i++) {
        name = sm_json_sorted(properties, i, name);
        property p = {
            .name = sm_json_text(name),
            .value = sm_json_find(name + 1, SM_STR("default")),
            .below = sm_defaults_of(a, name + 1),
        };
        if (p.value != NULL || p.below != NULL)
            found[n++] = p;
    }
    sm_defaults *d = n == 0 ? NULL : sm_arena_alloc(a, sizeof(sm_defaults) + n * sizeof(property));
    if (d != NULL) {
        d->count = n;
        memcpy(d->v, found, n * sizeof *found);
    }
    return d;
}

static const property *find(const sm_defaults *d, sm_str name)
{
    uint32_t from = 0, to = d == NULL ? 0 : d->count;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        int order = sm_utf16_compare(name, d->v[middle].name);
        if (order == 0)
            return &d->v[middle];
        if (order < 0)
            to = middle;
        else
            from = middle + 1;
    }
    return NULL;
}

/* What is being written. */
typedef struct filling {
    sm_arena *arena;
    sm_buf *out;
    size_t added; /* how many were put in */
    bool failed;  /* out of memory */
} filling;

static void put(filling *f, const sm_json *v, const sm_defaults *d);

static void put_member(filling *f, bool first, sm_str name, const sm_json *v, const sm_defaults *d)
{
    if (!first)
        sm_buf_byte(f->out, ',');
    sm_json_put_string(f->out, name);
    sm_buf_byte(f->out, ':');
    put(f, v, d);
}

static void put_object(filling *f, const sm_json *v, const sm_defaults *d)
{
    bool *there = d == NULL ? NULL : sm_arena_zalloc(f->arena, d->count, sizeof *there);
    if (d != NULL && there == NULL) {
        f->failed = true;
        return;
    }
    bool first = true;
    sm_buf_byte(f->out, '{');
    const sm_json *name = v + 1;
    for (uint32_t i = 0; i < v->len; i++, name = sm_json_next(name + 1)) {
        const property *p = find(d, sm_json_text(name));
        if (p != NULL)
            there[p - d->v] = true;
        put_member(f, first, sm_json_text(name), name + 1, p == NULL ? NULL : p->below);
        first = false;
    }
    for (uint32_t i = 0; d != NULL && i < d->count; i++) {
        const property *p = &d->v[i];
        if (there[i] || p->value == NULL)
            continue;
        put_member(f, first, p->name, p->value, p->below);
        first = false;
        f->added++;
    }
    sm_buf_byte(f->out, '}');
}

/* A value as it was read: numbers keep their digits. */
static void put(filling *f, const sm_json *v, const sm_defaults *d)
{
    static const char *const words[] = {"null", "false", "true"};
    const sm_json *element = v + 1;
    switch ((sm_json_type)v->type) {
    case SM_JSON_NULL:
    case SM_JSON_FALSE:
    case SM_JSON_TRUE: sm_buf_text(f->out, words[v->type]); break;
    case SM_JSON_NUMBER: sm_buf_str(f->out, sm_json_text(v)); break;
    case SM_JSON_STRING: sm_json_put_string(f->out, sm_json_text(v)); break;
    case SM_JSON_OBJECT: put_object(f, v, d); break;
    case SM_JSON_ARRAY:
        sm_buf_byte(f->out, '[');
        for (uint32_t i = 0; i < v->len; i++, element = sm_json_next(element)) {
            if (i > 0)
                sm_buf_byte(f->out, ',');
            put(f, element, NULL);
        }
        sm_buf_byte(f->out, ']');
        break;
    }
}

/* ---- what is kept of them --------------------------------------------------------------------*/

static void put_properties(filling *f, const sm_defaults *d)
{
    sm_put_open(f->out, "properties", '{');
    for (uint32_t i = 0; i < d->count; i++) {
        const property *p = &d->v[i];
        if (i > 0)
            sm_buf_byte(f->out, ',');
        sm_json_put_string(f->out, p->name);
        sm_buf_text(f->out, ":{");
        if (p->value != NULL) {
            sm_put_name(f->out, "default");
            put(f, p->value, NULL);
        }
        if (p->below != NULL)
            put_properties(f, p->below);
        sm_buf_byte(f->out, '}');
    }
    sm_buf_byte(f->out, '}');
}

void sm_defaults_put(sm_buf *out, const sm_defaults *d)
{
    filling f = {.out = out};
    sm_buf_byte(out, '{');
    if (d != NULL)
        put_properties(&f, d);
    sm_buf_byte(out, '}');
}

/* ---- filling ---------------------------------------------------------------------------------*/

sm_err sm_defaults_fill(const sm_defaults *d, sm_arena *a, const sm_json *root, size_t most,
                        sm_str *out, size_t *added)
{
    sm_buf b;
    sm_buf_init(&b, most);
    filling f = {.arena = a, .out = &b};
    put(&f, root, d);
    sm_err e = f.failed ? SEMEL_E_NOMEM : b.err;
    *added = f.added;
    if (e == SM_OK && f.added > 0) {
        *out = sm_arena_text(a, sm_buf_view(&b));
        e = out->p == NULL ? SEMEL_E_NOMEM : SM_OK;
    }
    sm_buf_fini(&b);
    return e;
}

bool sm_defaults_missing(const sm_defaults *d, sm_arena *a, const sm_json *root)
{
    sm_buf b;
    sm_buf_init(&b, SM_ARENA_MAX);
    filling f = {.arena = a, .out = &b};
    if (d != NULL)
        put(&f, root, d);
    sm_buf_fini(&b);
    return f.added > 0 || f.failed;
}
