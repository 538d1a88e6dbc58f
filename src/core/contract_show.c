/* Effective contracts as text: every leaf with its origin, and the part that makes identity. */
#include <stdlib.h>

#include "core/contract.h"
#include "json/canon.h"

typedef struct leaf_context {
    sm_contract_show_fn *show;
    void *context;
    sm_origin origin;
} leaf_context;

/* A leaf inside a mapping that does not give it holds the mapping's built-in default. */
static void show_leaf(void *context, const char *name, sm_str json, const sm_json *given)
{
    const leaf_context *leaf = context;
    bool built_in = given == NULL && leaf->origin.given != NULL;
    leaf->show(leaf->context, name, json, built_in ? SM_FROM_BUILT_IN : leaf->origin.layer, given);
}

static bool shown_for_read(int id)
{
    switch (id) {
    case SM_F_KEY:
    case SM_F_ON_DRIFT:
    case SM_F_WINDOW:
    case SM_F_RESULT_WINDOW:
    case SM_F_LEASE:
    case SM_F_ON_HIT:
    case SM_F_FAILURES:
    case SM_F_ON_REPEAT:
    case SM_F_REPEAT_AFTER:
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
        out->err = SM_E_NOMEM;
        return;
    }
    for (uint32_t i = 0; i < list->n; i++)
        sorted[i] = &list->v[i];
    qsort(sorted, list->n, sizeof *sorted, by_text);
    sm_buf_printf(out, ",\"%s\":[", name);
    for (uint32_t i = 0; i < list->n; i++) {
        if (i > 0)
            sm_buf_byte(out, ',');
        sm_json_put_string(out, sorted[i]->text);
    }
    sm_buf_byte(out, ']');
    free(sorted);
}

static void put_identity(const sm_contract *c, sm_buf *out)
{
    sm_strategy strategy = sm_contract_strategy(c);
    sm_buf_printf(out, "{\"strategy\":\"%s\"", sm_strategy_name((int)strategy));
    if (strategy == SM_KEY_FIELDS)
        put_pointers(out, "fields", &c->key.fields);
    if (strategy == SM_KEY_HASH && c->key.ignore.n > 0)
        put_pointers(out, "ignore", &c->key.ignore);
    if ((strategy == SM_KEY_HASH || strategy == SM_KEY_FIELDS) &&
        c->origin[SM_F_FILL].given != NULL) {
        sm_buf_text(out, ",\"fill\":");
        sm_json_canon(c->origin[SM_F_FILL].given, out, (sm_str){0}, NULL);
    }
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
