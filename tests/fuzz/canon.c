/*
 * A document and a set of pointers: the canonical form says all that the document says, and
 * keeping, dropping and filling do what pointer.h promises.
 *
 * The first part is the document. Each further part is a pointer; one that is none names, by its
 * first byte, a node of the document instead.
 */
#include "fuzz.h"

#include "json/diff.h"
#include "json/pointer.h"

#define MOST 16

typedef struct places {
    sm_pointer pointers[MOST];
    const sm_json *fills[MOST];
    size_t count;
} places;

static bool no_difference(void *context, sm_str pointer, const sm_json *a, const sm_json *b)
{
    (void)context, (void)a, (void)b;
    fprintf(stderr, "differs at \"%.*s\"\n", SM_FMT(pointer));
    must(!"no difference");
    return true;
}

/* Appends the pointer to the value at node `target` below `v`; false if it is not there or is a
 * member's name. */
static bool put_path(const sm_json *v, const sm_json *target, sm_buf *out)
{
    if (v == target)
        return true;
    if (v->type < SM_JSON_ARRAY || target > v + v->span - 1)
        return false;
    const sm_json *item = v + 1;
    for (uint32_t i = 0; i < v->len; i++) {
        const sm_json *value = v->type == SM_JSON_OBJECT ? item + 1 : item;
        if (target < value)
            return false;
        if (target < value + value->span) {
            if (v->type == SM_JSON_OBJECT)
                sm_pointer_put_token(out, sm_json_text(item));
            else
                sm_buf_printf(out, "/%u", i);
            return put_path(value, target, out);
        }
        item = sm_json_next(value);
    }
    return false;
}

/* The pointer that a part is, or that it stands for. */
static bool pointer_of(sm_arena *a, const sm_json *root, sm_str part, sm_pointer *out)
{
    sm_fault f = {0};
    if (part.n > 0 && part.p[0] == '/') {
        sm_err e = sm_pointer_parse(a, part, out, &f);
        must(e == SM_OK || f.text[0] != '\0');
        /* Names are UTF-8 wherever they come from; filling would otherwise write some that are
         * not. */
        return e == SM_OK && sm_utf8_valid(part);
    }
    sm_buf path;
    sm_buf_init(&path, 4 * (size_t)SM_JSON_BYTES_MAX);
    size_t index = part.n == 0 ? 0 : (unsigned char)part.p[0] % root->span;
    bool found = put_path(root, root + index, &path) && path.err == SM_OK &&
                 sm_pointer_parse(a, sm_buf_view(&path), out, &f) == SM_OK;
    if (found)
        must(sm_pointer_get(out, root) == root + index);
    sm_buf_fini(&path);
    return found;
}

/* Pointers that do not overlap, as a contract has them. */
static void read_places(sm_arena *a, const sm_json *root, sm_str rest, places *set)
{
    static const char *const fills[] = {"1.50", "null", "\"\\u00e9\"", "{\"b\":[],\"a\":{\"c\":1}}",
                                        "[[1],{}]"};
    set->count = 0;
    sm_str part;
    while (set->count < MOST && next_part(&rest, &part)) {
        sm_pointer p;
        if (!pointer_of(a, root, part, &p))
            continue;
        bool overlap = false;
        for (size_t i = 0; i < set->count; i++)
            overlap |= sm_pointer_overlap(&set->pointers[i], &p);
        if (overlap)
            continue;
        const char *fill = fills[(part.n + set->count) % (sizeof fills / sizeof fills[0])];
        set->pointers[set->count] = p;
        must(sm_json_read(a, sm_str_from(fill), &sm_json_default_limits, &set->fills[set->count],
                          NULL) == SM_OK);
        set->count++;
    }
}

static sm_places *tree_of(sm_arena *a, const places *set, bool fill)
{
    sm_places *tree = sm_places_new(a);
    must(tree != NULL);
    for (size_t i = 0; i < set->count; i++)
        must(sm_places_add(tree, a, &set->pointers[i], fill ? set->fills[i] : NULL) == SM_OK);
    return tree;
}

static void must_be_equal(const sm_json *a, const sm_json *b)
{
    must((a == NULL) == (b == NULL));
    if (a != NULL)
        must(sm_json_diff(a, b, no_difference, NULL) == SM_OK && sm_json_equal(a, b));
}

static void must_have_a_form(sm_arena *a, const sm_json *v)
{
    must_be_sound(v, 0);
    sm_buf form;
    must(canonical(v, (sm_str){0}, &form));
    must_be_equal(v, must_be_canonical(a, sm_buf_view(&form)));
    sm_buf_fini(&form);
}

static void keep(sm_arena *a, const sm_json *root, const places *set)
{
    const sm_places *tree = tree_of(a, set, false);
    const sm_json *kept = NULL, *again = NULL;
    must(sm_json_keep(a, root, tree, &kept) == SM_OK);
    bool any = false;
    for (size_t i = 0; i < set->count; i++) {
        const sm_json *before = sm_pointer_get(&set->pointers[i], root);
        any |= before != NULL;
        must_be_equal(before, kept == NULL ? NULL : sm_pointer_get(&set->pointers[i], kept));
    }
    must(any == (kept != NULL));
    if (kept == NULL)
        return;
    must(kept->span <= root->span);
    must_have_a_form(a, kept);
    must(sm_json_keep(a, kept, tree, &again) == SM_OK);
    must_be_equal(kept, again);
}

/* Whether all containers above a place are objects: elements of arrays move when others go. */
static bool only_objects_above(const sm_pointer *p, const sm_json *root)
{
    sm_pointer above = *p;
    for (above.count = 0; above.count < p->count; above.count++) {
        const sm_json *v = sm_pointer_get(&above, root);
        if (v != NULL && v->type == SM_JSON_ARRAY)
            return false;
    }
    return true;
}

static void drop(sm_arena *a, const sm_json *root, const places *set)
{
    const sm_json *left = NULL;
    for (size_t i = 0; i < set->count; i++) {
        if (set->pointers[i].count == 0)
            return; /* the whole document cannot be dropped */
    }
    must(sm_json_drop(a, root, tree_of(a, set, false), &left) == SM_OK);
    must(left != NULL && left->span <= root->span);
    must_have_a_form(a, left);
    for (size_t i = 0; i < set->count; i++) {
        if (only_objects_above(&set->pointers[i], root))
            must(sm_pointer_get(&set->pointers[i], left) == NULL);
    }
}

static void fill(sm_arena *a, const sm_json *root, const places *set)
{
    const sm_places *tree = tree_of(a, set, true);
    const sm_json *filled = NULL, *again = NULL;
    must(sm_json_fill(a, root, tree, &filled) == SM_OK);
    must(filled != NULL && filled->span >= root->span);
    must_have_a_form(a, filled);
    for (size_t i = 0; i < set->count; i++) {
        const sm_json *before = sm_pointer_get(&set->pointers[i], root);
        const sm_json *after = sm_pointer_get(&set->pointers[i], filled);
        if (before != NULL)
            must_be_equal(before, after);
        else if (after != NULL)
            must_be_equal(set->fills[i], after);
    }
    must(sm_json_fill(a, filled, tree, &again) == SM_OK);
    must(again == filled);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sm_str rest = input(data, size), text = {0};
    if (!next_part(&rest, &text))
        return 0;
    sm_arena a;
    sm_arena_init(&a, SM_ARENA_MAX);
    const sm_json *root = NULL;
    sm_buf form = {0}, after = {0};
    if (sm_json_read(&a, text, &sm_json_default_limits, &root, NULL) == SM_OK &&
        canonical(root, text, &form)) {
        must_be_equal(root, must_be_canonical(&a, sm_buf_view(&form)));
        places set;
        read_places(&a, root, rest, &set);
        keep(&a, root, &set);
        drop(&a, root, &set);
        fill(&a, root, &set);
        must(canonical(root, text, &after)); /* and the document is as it was */
        must(sm_str_eq(sm_buf_view(&form), sm_buf_view(&after)));
    }
    sm_buf_fini(&form);
    sm_buf_fini(&after);
    sm_arena_fini(&a);
    return 0;
}
