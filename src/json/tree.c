/* Sorting the members of an object, and looking them up. */
#include "json/tree.h"

#include <assert.h>
#include <stdlib.h>

#include "base/utf8.h"

/* Up to this many members count as a small object. */
#define SMALL 16u

typedef struct name_ref {
    uint64_t prefix;
    const sm_json *name;
} name_ref;

static inline int compare_refs(const name_ref *a, const name_ref *b)
{
    if (a->prefix != b->prefix)
        return a->prefix < b->prefix ? -1 : 1;
    return sm_utf16_compare(sm_json_text(a->name), sm_json_text(b->name));
}

/* Equal names stay in the document's order, so that it is the second of them that is reported. */
static int compare_for_qsort(const void *a, const void *b)
{
    const name_ref *x = a, *y = b;
    int c = compare_refs(x, y);
    return c != 0 ? c : (x->name > y->name) - (x->name < y->name);
}

static const sm_json *later(const sm_json *a, const sm_json *b)
{
    return a > b ? a : b;
}

/* The general case: any number of members, names compared to their end. */
static sm_err close_large(sm_arena *a, sm_json *object, const sm_json **again)
{
    uint32_t n = object->len;
    name_ref *refs = malloc(n * sizeof *refs);
    if (refs == NULL)
        return SEMEL_E_NOMEM;
    bool sorted = true;
    const sm_json *name = object + 1;
    for (uint32_t i = 0; i < n; i++, name = sm_json_next(name + 1)) {
        refs[i] = (name_ref){sm_json_prefix(name), name};
        sorted &= i == 0 || compare_refs(&refs[i - 1], &refs[i]) < 0;
    }
    sm_err e = SM_OK;
    if (sorted)
        goto cleanup;
    qsort(refs, n, sizeof *refs, compare_for_qsort);
    for (uint32_t i = 1; i < n; i++) {
        if (compare_refs(&refs[i - 1], &refs[i]) != 0)
            continue;
        const sm_json *second = later(refs[i - 1].name, refs[i].name);
        if (e == SM_OK || second < *again)
            *again = second;
        e = SEMEL_E_DUPLICATE;
    }
    uint32_t *order = e == SM_OK ? sm_arena_alloc(a, n * sizeof *order) : NULL;
    if (e == SM_OK && order == NULL)
        e = SEMEL_E_NOMEM;
    for (uint32_t i = 0; order != NULL && i < n; i++)
        order[i] = (uint32_t)(refs[i].name - object);
    object->order = order;
cleanup:
    free(refs);
    return e;
}

/* Small objects are sorted by counting for each name how many are smaller. That is quadratic but
 * has no branch that depends on the names, and a mispredicted branch costs more than all the
 * comparisons of a small object. Prefixes that are equal are left to the other way. */
static sm_err close_small(sm_arena *a, sm_json *object, const sm_json **again)
{
    uint64_t prefix[SMALL];
    uint32_t offset[SMALL], rank[SMALL];
    uint32_t n = object->len;
    bool equal = false, sorted = true;
    uint32_t at = 1;
    for (uint32_t i = 0; i < n; i++, at += 1 + object[at + 1].span) {
        prefix[i] = sm_json_prefix(&object[at]);
        offset[i] = at;
        uint32_t smaller = 0;
        for (uint32_t j = 0; j < i; j++) {
            bool above = prefix[j] > prefix[i];
            equal |= prefix[j] == prefix[i];
            rank[j] += above;
            smaller += !above;
        }
        rank[i] = smaller;
        sorted &= smaller == i;
    }
    if (equal)
        return close_large(a, object, again);
    if (sorted)
        return SM_OK;
    uint32_t *order = sm_arena_alloc(a, n * sizeof *order);
    if (order == NULL)
        return SEMEL_E_NOMEM;
    for (uint32_t i = 0; i < n; i++)
        order[rank[i]] = offset[i];
    object->order = order;
    return SM_OK;
}

sm_err sm_json_close_object(sm_arena *a, sm_json *object, const sm_json **again)
{
    assert(object->type == SM_JSON_OBJECT);
    object->order = NULL;
    if (object->len < 2)
        return SM_OK;
    return object->len <= SMALL ? close_small(a, object, again) : close_large(a, object, again);
}

const sm_json *sm_json_find(const sm_json *object, sm_str name)
{
    if (object == NULL || object->type != SM_JSON_OBJECT)
        return NULL;
    const sm_json *member = object + 1;
    for (uint32_t i = 0; i < object->len; i++, member = sm_json_next(member + 1)) {
        if (sm_str_eq(sm_json_text(member), name))
            return member + 1;
    }
    return NULL;
}

const char *sm_json_type_name(const sm_json *v)
{
    static const char *const names[] = {"null",     "false",    "true",     "a number",
                                        "a string", "an array", "an object"};
    return names[v->type];
}
