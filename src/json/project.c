/*
 * Keeping, dropping and filling places of a document.
 *
 * All three walk the document and the set of places side by side and write the nodes of a new
 * document. What the set says nothing about is copied as one run of nodes: offsets inside a subtree
 * are relative, so a copied subtree is complete. Recursion follows the set, whose depth is bounded
 * by SM_POINTER_TOKENS_MAX, never the document.
 */
#include <assert.h>

#include "json/pointer.h"
#include "json/tree.h"

/* What the contract fills in, at the place of a pointer, is as deep as the two together. */
_Static_assert(SM_POINTER_TOKENS_MAX + SM_CONTRACT_DEPTH_MAX <= SM_JSON_DEPTH_MAX,
               "a filled document can be walked with the fixed stacks");

struct sm_places {
    sm_str token;
    uint32_t index; /* the token as an array's index, or SM_NO_INDEX */
    sm_places *children;
    sm_places *next;
    bool named;          /* a pointer ends here */
    const sm_json *fill; /* what to put here when nothing is */
    uint32_t fill_nodes; /* most nodes that filling here and below can add */
};

typedef struct writer {
    sm_arena *arena;
    sm_json *nodes;
    uint32_t used;
    uint32_t cap;
    sm_err err;
} writer;

sm_places *sm_places_new(sm_arena *a)
{
    return sm_arena_zalloc(a, 1, sizeof(sm_places));
}

static sm_places *child_of(const sm_places *set, sm_str token)
{
    sm_places *c = set->children;
    while (c != NULL && !sm_str_eq(c->token, token))
        c = c->next;
    return c;
}

static sm_places *child_at(const sm_places *set, uint32_t index)
{
    sm_places *c = set->children;
    while (c != NULL && c->index != index)
        c = c->next;
    return c;
}

sm_err sm_places_add(sm_places *set, sm_arena *a, const sm_pointer *p, const sm_json *fill)
{
    uint32_t nodes = fill == NULL ? 0 : fill->span + 2 * p->count + 1;
    set->fill_nodes += nodes;
    for (uint32_t i = 0; i < p->count; i++) {
        sm_places *c = child_of(set, p->tokens[i]);
        if (c == NULL) {
            c = sm_places_new(a);
            if (c == NULL)
                return SEMEL_E_NOMEM;
            c->token = p->tokens[i];
            c->index = sm_pointer_index(c->token);
            sm_places **last = &set->children;
            while (*last != NULL)
                last = &(*last)->next;
            *last = c;
        }
        c->fill_nodes += nodes;
        set = c;
    }
    set->named = true;
    if (fill != NULL)
        set->fill = fill;
    return SM_OK;
}

static sm_err writer_init(writer *w, sm_arena *a, size_t nodes)
{
    *w = (writer){.arena = a, .cap = (uint32_t)nodes};
    w->nodes = sm_arena_alloc(a, nodes * sizeof *w->nodes);
    return w->nodes == NULL ? SEMEL_E_NOMEM : SM_OK;
}

static sm_json *write_node(writer *w)
{
    assert(w->used < w->cap);
    return &w->nodes[w->used++];
}

static void copy_run(writer *w, const sm_json *first, uint32_t n)
{
    assert(w->cap - w->used >= n);
    memcpy(w->nodes + w->used, first, n * sizeof *first);
    w->used += n;
}

/* Opens a container like `model`; returns its index, for the node array is written behind it. */
static uint32_t begin_container(writer *w, const sm_json *model)
{
    uint32_t index = w->used;
    sm_json *v = write_node(w);
    *v = *model;
    v->len = 0;
    v->order = NULL;
    return index;
}

static void end_container(writer *w, uint32_t index)
{
    sm_json *v = &w->nodes[index];
    v->span = w->used - index;
    const sm_json *again;
    if (v->type == SM_JSON_OBJECT && w->err == SM_OK)
        w->err = sm_json_close_object(w->arena, v, &again);
}

static void write_name(writer *w, sm_str name)
{
    *write_node(w) = (sm_json){.type = SM_JSON_STRING,
                               .flags = SM_JSON_WIDE, /* it may be */
                               .len = (uint32_t)name.n,
                               .span = 1,
                               .text = name.p};
}

static bool keep_into(writer *w, const sm_json *v, const sm_places *set);

static void keep_members(writer *w, const sm_json *v, const sm_places *set, uint32_t self)
{
    const sm_json *name = v + 1;
    for (uint32_t i = 0; i < v->len; i++, name = sm_json_next(name + 1)) {
        const sm_places *c = child_of(set, sm_json_text(name));
        if (c == NULL)
            continue;
        uint32_t before = w->used;
        copy_run(w, name, 1);
        if (keep_into(w, name + 1, c))
            w->nodes[self].len++;
        else
            w->used = before;
    }
}

static void keep_elements(writer *w, const sm_json *v, const sm_places *set, uint32_t self)
{
    const sm_json *element = v + 1;
    uint32_t end = w->used; /* behind the last element that is kept for its own sake */
    for (uint32_t i = 0; i < v->len; i++, element = sm_json_next(element)) {
        const sm_places *c = child_at(set, i);
        uint32_t before = w->used;
        if (c != NULL && keep_into(w, element, c)) {
            end = w->used;
            w->nodes[self].len = i + 1;
        } else {
            w->used = before;
            *write_node(w) = (sm_json){.type = SM_JSON_NULL, .span = 1, .at = element->at};
        }
    }
    w->used = end;
}

/* Writes what is named at or below `v`; false, having written nothing, if there is none. */
static bool keep_into(writer *w, const sm_json *v, const sm_places *set)
{
    if (set->named) {
        copy_run(w, v, v->span);
        return true;
    }
    if (v->type < SM_JSON_ARRAY)
        return false;
    uint32_t self = begin_container(w, v);
    if (v->type == SM_JSON_OBJECT)
        keep_members(w, v, set, self);
    else
        keep_elements(w, v, set, self);
    if (w->nodes[self].len == 0) {
        w->used = self;
        return false;
    }
    end_container(w, self);
    return true;
}

sm_err sm_json_keep(sm_arena *a, const sm_json *root, const sm_places *set, const sm_json **out)
{
    *out = set->named ? root : NULL;
    if (set->named)
        return SM_OK;
    writer w;
    sm_err e = writer_init(&w, a, root->span);
    if (e != SM_OK)
        return e;
    bool any = keep_into(&w, root, set);
    if (any && w.err == SM_OK)
        *out = w.nodes;
    return w.err;
}

/* Writes `v` without what is named below it; `v` itself is not named. */
static void drop_into(writer *w, const sm_json *v, const sm_places *set)
{
    if (v->type < SM_JSON_ARRAY || set->children == NULL) {
        copy_run(w, v, v->span);
        return;
    }
    bool object = v->type == SM_JSON_OBJECT;
    uint32_t self = begin_container(w, v);
    const sm_json *item = v + 1;
    for (uint32_t i = 0; i < v->len; i++) {
        const sm_json *value = object ? item + 1 : item;
        const sm_places *c = object ? child_of(set, sm_json_text(item)) : child_at(set, i);
        if (c == NULL) {
            copy_run(w, item, object + value->span);
            w->nodes[self].len++;
        } else if (!c->named) {
            if (object)
                copy_run(w, item, 1);
            drop_into(w, value, c);
            w->nodes[self].len++;
        }
        item = sm_json_next(value);
    }
    end_container(w, self);
}

sm_err sm_json_drop(sm_arena *a, const sm_json *root, const sm_places *set, const sm_json **out)
{
    *out = root;
    assert(!set->named);
    if (set->children == NULL)
        return SM_OK;
    writer w;
    sm_err e = writer_init(&w, a, root->span);
    if (e != SM_OK)
        return e;
    drop_into(&w, root, set);
    if (w.err == SM_OK)
        *out = w.nodes;
    return w.err;
}

/* Whether something can be put at a place that is absent. Objects on the way are made, arrays are
 * not: tokens that could be an index are alone no reason to make an object. */
static bool makeable(const sm_places *set)
{
    if (set->fill != NULL)
        return true;
    for (const sm_places *c = set->children; c != NULL; c = c->next) {
        if (c->index == SM_NO_INDEX && !sm_str_is(c->token, "-") && makeable(c))
            return true;
    }
    return false;
}

/* Whether filling would change anything at or below `v`, NULL for a place that is absent. */
static bool lacks(const sm_json *v, const sm_places *set)
{
    if (set->fill_nodes == 0)
        return false;
    if (v == NULL)
        return makeable(set);
    if (v->type < SM_JSON_ARRAY)
        return false;
    for (const sm_places *c = set->children; c != NULL; c = c->next) {
        const sm_pointer one = {.tokens = &c->token, .count = 1};
        const sm_json *below = sm_pointer_get(&one, v);
        if ((below != NULL || v->type == SM_JSON_OBJECT) && lacks(below, c))
            return true;
    }
    return false;
}

/* Writes the value of a place that was absent. */
static void fill_absent(writer *w, const sm_places *set)
{
    if (set->fill != NULL) {
        copy_run(w, set->fill, set->fill->span);
        return;
    }
    static const sm_json empty = {.type = SM_JSON_OBJECT, .span = 1};
    uint32_t self = begin_container(w, &empty);
    for (const sm_places *c = set->children; c != NULL; c = c->next) {
        if (!makeable(c))
            continue; /* once there is an object, any token is a name in it */
        write_name(w, c->token);
        fill_absent(w, c);
        w->nodes[self].len++;
    }
    end_container(w, self);
}

static void fill_into(writer *w, const sm_json *v, const sm_places *set)
{
    if (!lacks(v, set)) {
        copy_run(w, v, v->span);
        return;
    }
    bool object = v->type == SM_JSON_OBJECT;
    uint32_t self = begin_container(w, v);
    const sm_json *item = v + 1;
    for (uint32_t i = 0; i < v->len; i++) {
        const sm_json *value = object ? item + 1 : item;
        const sm_places *c = object ? child_of(set, sm_json_text(item)) : child_at(set, i);
        if (object)
            copy_run(w, item, 1);
        if (c == NULL)
            copy_run(w, value, value->span);
        else
            fill_into(w, value, c);
        w->nodes[self].len++;
        item = sm_json_next(value);
    }
    for (const sm_places *c = set->children; object && c != NULL; c = c->next) {
        if (!makeable(c) || sm_json_find(v, c->token) != NULL)
            continue;
        write_name(w, c->token);
        fill_absent(w, c);
        w->nodes[self].len++;
    }
    end_container(w, self);
}

sm_err sm_json_fill(sm_arena *a, const sm_json *root, const sm_places *set, const sm_json **out)
{
    *out = root;
    if (!lacks(root, set))
        return SM_OK;
    writer w;
    sm_err e = writer_init(&w, a, (size_t)root->span + set->fill_nodes);
    if (e != SM_OK)
        return e;
    fill_into(&w, root, set);
    if (w.err == SM_OK)
        *out = w.nodes;
    return w.err;
}
