/* Two documents walked side by side: objects merged by their sorted names, arrays by index. */
#include "json/diff.h"

#include <assert.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "json/number.h"
#include "json/pointer.h"

/* Two containers of the same kind. `x` and `y` are the next items, i and j how many are behind. */
typedef struct pair {
    const sm_json *a, *b;
    const sm_json *x, *y;
    uint32_t i, j;
    size_t path; /* length of the pointer to them */
} pair;

/* Whether two scalars of any type have the same canonical form. */
static bool same_scalar(const sm_json *a, const sm_json *b)
{
    if (a->type != b->type)
        return false;
    if (a->type < SM_JSON_NUMBER || sm_str_eq(sm_json_text(a), sm_json_text(b)))
        return true;
    if (a->type == SM_JSON_STRING)
        return false;
    char p[SM_NUMBER_MAX], q[SM_NUMBER_MAX];
    size_t n = sm_number_canonical(sm_json_text(a), p), m = sm_number_canonical(sm_json_text(b), q);
    return n != 0 && sm_str_eq((sm_str){p, n}, (sm_str){q, m});
}

/* Takes the next item of each side that belong together; one may be NULL. False when both ended. */
static bool next_items(pair *t, sm_buf *path, const sm_json **va, const sm_json **vb)
{
    bool more_a = t->i < t->a->len, more_b = t->j < t->b->len;
    if (!more_a && !more_b)
        return false;
    path->len = t->path;
    bool take_a = more_a, take_b = more_b;
    if (t->a->type == SM_JSON_OBJECT) {
        const sm_json *p = more_a ? sm_json_sorted(t->a, t->i, t->x) : NULL;
        const sm_json *q = more_b ? sm_json_sorted(t->b, t->j, t->y) : NULL;
        if (more_a && more_b) {
            int c = sm_utf16_compare(sm_json_text(p), sm_json_text(q));
            take_a = c <= 0;
            take_b = c >= 0;
        }
        if (take_a)
            t->x = p;
        if (take_b)
            t->y = q;
        sm_pointer_put_token(path, sm_json_text(take_a ? p : q));
        *va = take_a ? p + 1 : NULL;
        *vb = take_b ? q + 1 : NULL;
    } else {
        if (take_a)
            t->x = t->i == 0 ? t->a + 1 : sm_json_next(t->x);
        if (take_b)
            t->y = t->j == 0 ? t->b + 1 : sm_json_next(t->y);
        sm_buf_printf(path, "/%u", take_a ? t->i : t->j);
        *va = take_a ? t->x : NULL;
        *vb = take_b ? t->y : NULL;
    }
    t->i += take_a;
    t->j += take_b;
    return true;
}

sm_err sm_json_diff(const sm_json *a, const sm_json *b, sm_json_diff_fn *tell, void *context)
{
    pair stack[SM_JSON_DEPTH_MAX];
    size_t depth = 0;
    sm_buf path;
    sm_buf_init(&path, 2 * (size_t)SM_JSON_BYTES_MAX);
    for (;;) {
        if (a != NULL && b != NULL && a->type == b->type && a->type >= SM_JSON_ARRAY) {
            assert(depth < SM_JSON_DEPTH_MAX);
            stack[depth++] = (pair){.a = a, .b = b, .path = path.len};
        } else if (a == NULL || b == NULL || a->type >= SM_JSON_ARRAY || !same_scalar(a, b)) {
            if (path.err == SM_OK && !tell(context, sm_buf_view(&path), a, b))
                break;
        }
        while (depth > 0 && !next_items(&stack[depth - 1], &path, &a, &b))
            depth--;
        if (depth == 0 || path.err != SM_OK)
            break;
    }
    sm_err e = path.err;
    sm_buf_fini(&path);
    return e;
}

static bool on_difference(void *context, sm_str pointer, const sm_json *a, const sm_json *b)
{
    (void)pointer, (void)a, (void)b;
    *(bool *)context = false;
    return false;
}

bool sm_json_equal(const sm_json *a, const sm_json *b)
{
    bool equal = true;
    return sm_json_diff(a, b, on_difference, &equal) == SM_OK && equal;
}
