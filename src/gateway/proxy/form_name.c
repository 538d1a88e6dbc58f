/*
 * The names of a form's fields, as servers read them.
 *
 * Many servers read `a[b]` as a place inside of `a`, and `a[]` as one more of `a`. PHP takes a dot
 * or a blank for an underscore and drops blanks in front, others ignore case. Two different names
 * that some server takes for one are a clash: the order of fields decides then what that server
 * reads, and servers disagree. A name of the form that is also in the query is a clash, too: one
 * server takes the value of the form, another that of the query. So it is with JSON. And a name
 * with something at its ends that some readers drop (sm_name_trim) is one that is not clear by
 * itself.
 */
#include <stdlib.h>

#include "base/fold.h"
#include "base/utf8.h"
#include "core/request.h"
#include "gateway/proxy/form.h"

#define INTO 1u /* stands for one step into what is named; less than every character */

/* A name in its most lenient reading: a, INTO, b for a[b]. */
typedef struct reading {
    uint32_t *v;
    size_t n;
    bool query; /* it is a name of the query */
    bool loose; /* some readers drop something at its ends */
} reading;

static uint32_t fold_one(sm_str *rest)
{
    size_t step = sm_utf8_step((const unsigned char *)rest->p, rest->n);
    sm_str one = {rest->p, step == 0 ? 1 : step};
    *rest = (sm_str){rest->p + one.n, rest->n - one.n};
    return one.p[0] == '.' || one.p[0] == ' ' ? '_' : sm_fold_next(&one, true);
}

/* False if the brackets are not plain, or fields are counted in their order: a[][b]. */
static bool read_name(sm_arena *a, sm_str name, reading *out)
{
    enum { BEFORE, INSIDE, BEHIND } at = BEFORE;
    bool several = false; /* it ended with [] */
    size_t begin = 0;
    sm_str plain = sm_name_trim(name);
    *out = (reading){.v = sm_arena_alloc(a, (plain.n + 1) * sizeof *out->v),
                     .loose = plain.n < name.n};
    name = plain;
    while (name.n > 0) {
        char c = name.p[0];
        if (out->v == NULL || several || c == '\0' || (at == BEHIND && c != '['))
            return false;
        if (c == '[') {
            if (at == INSIDE || out->n == 0)
                return false;
            at = INSIDE;
            out->v[out->n++] = INTO;
            begin = out->n;
        } else if (c == ']') {
            if (at != INSIDE)
                return false;
            at = BEHIND;
            several = out->n == begin;
            out->n -= several;
        }
        if (c == '[' || c == ']') {
            name = (sm_str){name.p + 1, name.n - 1};
            continue;
        }
        uint32_t folded = fold_one(&name);
        if (folded != 0)
            out->v[out->n++] = folded;
    }
    return at != INSIDE && out->v != NULL;
}

static int compare(const void *a, const void *b)
{
    const reading *x = a, *y = b;
    for (size_t i = 0; i < x->n && i < y->n; i++)
        if (x->v[i] != y->v[i])
            return x->v[i] < y->v[i] ? -1 : 1;
    return (x->n > y->n) - (x->n < y->n);
}

/* Whether `b` names the same as `a`, or a place inside of it. */
static bool covers(const reading *a, const reading *b)
{
    return b->n >= a->n && memcmp(a->v, b->v, a->n * sizeof *a->v) == 0 &&
           (b->n == a->n || b->v[a->n] == INTO);
}

/* Reads the names of a query behind the `n` that are there. There is room for all. `lenient`: those
 * that cannot be read are left out. */
static bool read_query(sm_arena *a, sm_str query, reading *all, size_t *n, bool lenient)
{
    sm_str name;
    while (sm_query_next(a, &query, &name)) {
        bool read = name.p != NULL && sm_utf8_valid(name) && read_name(a, name, &all[*n]);
        if (name.p == NULL || (!lenient && (!read || all[*n].loose)))
            return false;
        all[*n].query = true;
        *n += read;
    }
    return true;
}

/* `alone`: whether the names are also to be clear beside each other. */
static bool names_clear(sm_arena *a, sm_str query, const sm_str *names, size_t n, bool alone)
{
    size_t room = n + (query.n > 0);
    for (size_t i = 0; i < query.n; i++)
        room += query.p[i] == '&' || query.p[i] == ';';
    reading *all = sm_arena_alloc(a, room * sizeof *all + 1);
    bool clear = all != NULL;
    for (size_t i = 0; clear && i < n; i++)
        clear = read_name(a, names[i], &all[i]) && !(alone && all[i].loose);
    if (!clear || !read_query(a, query, all, &n, !alone))
        return false;
    qsort(all, n, sizeof *all, compare);
    /* Names inside of a name come right behind it. These are the last ones, of form and query, that
     * are not inside of another. Names of the query may be inside of each other. */
    const reading *form = NULL, *asked = NULL;
    for (size_t i = 0; clear && i < n; i++) {
        bool in_form = form != NULL && covers(form, &all[i]) && (alone || all[i].query);
        bool in_query = asked != NULL && covers(asked, &all[i]);
        clear = !in_form && (all[i].query || !in_query);
        if (all[i].query && !in_query)
            asked = &all[i];
        else if (!all[i].query)
            form = &all[i];
    }
    return clear;
}

bool gw_form_names_clear(sm_arena *a, sm_str query, const sm_str *names, size_t n)
{
    return names_clear(a, query, names, n, true);
}

bool gw_json_names_clear(sm_arena *a, sm_str query, const sm_json *object)
{
    if (query.n == 0 || object->type != SM_JSON_OBJECT)
        return true;
    sm_str *names = sm_arena_alloc(a, object->len * sizeof *names + 1);
    const sm_json *name = object + 1;
    for (uint32_t i = 0; names != NULL && i < object->len; i++, name = sm_json_next(name + 1))
        names[i] = sm_json_text(name);
    return names != NULL && names_clear(a, query, names, object->len, false);
}
