/* Effective contracts as text: every leaf with its origin, and the part that makes identity. */
#include <stdlib.h>

#include "core/contract.h"
#include "json/write.h"

typedef struct leaf_context {
    sm_contract_show_fn *show;
    void *context;
    sm_origin origin;
} leaf_context;

/* A leaf inside a mapping that does not give it holds the mapping's built-in default. */
static void show_leaf(void *context, const char *name, sm_str json, const sm_json *given)
{
    const leaf_context *leaf = context;
    sm_layer layer = leaf->origin.layer;
    if (given == NULL && leaf->origin.given != NULL)
        layer = sm_str_is(json, "\"fields\"") && strcmp(name, "key.strategy") == 0
                    ? SM_FROM_DERIVED
                    : SM_FROM_BUILT_IN;
    leaf->show(leaf->context, name, json, layer, given);
}

static bool shown_for_read(int id)
{
    switch (id) {
    case SM_F_KEY:
    case SM_F_RESOURCE:
    case SM_F_LIMIT:
    case SM_F_ON_DRIFT:
    case SM_F_WINDOW:
    case SM_F_RESULT_WINDOW:
    case SM_F_LEASE:
    case SM_F_ON_HIT:
    case SM_F_FAILURES:
    case SM_F_ON_REPEAT:
    case SM_F_REPEAT_AFTER:
    case SM_F_DELIVERED_WITHIN:
    case SM_F_APPROVAL:
    case SM_F_ON_IN_DOUBT:
    case SM_F_BARRIER:
    case SM_F_STEP: return false;
    default: return true;
    }
}

void sm_contract_show(const sm_contract *c, sm_contract_show_fn *show, void *context)
{
    for (int id = 0; id < SM_F_COUNT; id++) {
        if (c->class == SM_CLASS_READ && !shown_for_read(id))
            continue;
        const sm_field *f = &sm_contract_group.fields[id];
        leaf_context leaf = {show, context, c->origin[id]};
        if (id == SM_F_KEY && c->origin[id].given == NULL)
            show(context, "key.strategy", SM_STR("\"hash\""), SM_FROM_BUILT_IN, NULL);
        else
            sm_field_show(f, f->name, (const char *)c + f->offset, c->origin[id].given, show_leaf,
                          &leaf);
    }
    static const char *const exceptions[] = {
        [SM_EXCEPTION_PASSES] = "\"pass through\"",
        [SM_EXCEPTION_FAILED] = "\"failed\"",
        [SM_EXCEPTION_DOUBT_IF_VAGUE] =
            "\"timeouts, resets and cancellations in doubt, others failed\"",
        [SM_EXCEPTION_DOUBT] = "\"in doubt unless declared not applied\"",
    };
    show(context, "(handler exception)", sm_str_from(exceptions[sm_contract_exception(c)]),
         SM_FROM_CLASS, NULL);
}

static void put_leaf(void *context, const char *name, sm_str json, sm_layer layer,
                     const sm_json *given)
{
    (void)layer;
    (void)given;
    sm_buf_printf(context, "%s=", name);
    sm_buf_str(context, json);
    sm_buf_byte(context, '\n');
}

void sm_contract_put(const sm_contract *c, sm_buf *out)
{
    sm_contract_show(c, put_leaf, out);
}

static int by_text(const void *a, const void *b)
{
    const sm_pointer *x = *(const sm_pointer *const *)a, *y = *(const sm_pointer *const *)b;
    size_t n = x->text.n < y->text.n ? x->text.n : y->text.n;
    int c = memcmp(x->text.p, y->text.p, n);
    return c != 0 ? c : (x->text.n > y->text.n) - (x->text.n < y->text.n);
}

/* The order in which pointers are listed does not matter to a key. */
static void put_pointers(sm_buf *out, const char *name, const sm_pointers *list)
{
    const sm_pointer **sorted = calloc(list->n + 1, sizeof *sorted);
    if (sorted == NULL) {
        out->err = SEMEL_E_NOMEM;
        return;
    }
    for (uint32_t i = 0; i < list->n; i++)
        sorted[i] = &list->v[i];
    qsort(sorted, list->n, sizeof *sorted, by_text);
    sm_put_open(out, name, '[');
    for (uint32_t i = 0; i < list->n; i++) {
        sm_put_item(out);
        sm_json_put_string(out, sorted[i]->text);
    }
    sm_buf_byte(out, ']');
    free(sorted);
}

/* Whether a filled-in place can end up in the key. */
static bool fill_counts(const sm_contract *c, const sm_pointer *p)
{
    if (c->variant_count > 0)
        return true; /* it may decide which variant applies */
    bool fields = c->key.strategy == SM_KEY_FIELDS;
    const sm_pointers *list = fields ? &c->key.fields : &c->key.ignore;
    for (uint32_t i = 0; i < list->n; i++) {
        const sm_pointer *q = &list->v[i];
        /* A field above, at or below the place takes it in; only ignoring at or above leaves it
         * out. */
        if (sm_pointer_overlap(q, p) && (fields || q->count <= p->count))
            return fields;
    }
    return !fields;
}

static void put_fill(const sm_contract *c, sm_buf *out)
{
    const sm_json *fill = c->origin[SM_F_FILL].given;
    bool any = false;
    const sm_json *name = NULL;
    for (uint32_t i = 0; fill != NULL && i < fill->len; i++) {
        name = sm_json_sorted(fill, i, name);
        const sm_pointer *p = c->fill.pointers;
        while (!sm_str_eq(p->text, sm_json_text(name)))
            p++;
        if (!fill_counts(c, p))
            continue;
        sm_buf_text(out, any ? "," : ",\"fill\":{");
        sm_json_put_string(out, p->text);
        sm_buf_byte(out, ':');
        sm_json_canon(name + 1, out, (sm_str){0}, NULL);
        any = true;
    }
    if (any)
        sm_buf_byte(out, '}');
}

static void put_identity(const sm_contract *c, sm_buf *out)
{
    sm_strategy strategy = sm_contract_strategy(c);
    sm_buf_byte(out, '{');
    sm_put_text(out, "strategy", sm_str_from(sm_strategy_name((int)strategy)));
    if (strategy == SM_KEY_FIELDS)
        put_pointers(out, "fields", &c->key.fields);
    if (strategy == SM_KEY_HASH && c->key.ignore.n > 0)
        put_pointers(out, "ignore", &c->key.ignore);
    if (strategy == SM_KEY_HASH || strategy == SM_KEY_FIELDS || c->variant_count > 0)
        put_fill(c, out);
    sm_buf_byte(out, '}');
}

void sm_contract_identity(const sm_contract *c, sm_buf *out)
{
    put_identity(c, out);
    for (uint32_t i = 0; i < c->variant_count; i++) {
        sm_buf_text(out, " when ");
        sm_json_canon(c->variants[i].given, out, (sm_str){0}, NULL);
        sm_buf_byte(out, ' ');
        put_identity(&c->variants[i].contract, out);
    }
}
