/* Any bytes through the strict reader: a refusal is placed, a document is sound and has a form. */
#include "fuzz.h"

/* Under tighter limits the same text is read the same, or refused for the limit. */
static void read_within(sm_arena *a, sm_str text, const sm_json_limits *limits, sm_err unbounded)
{
    const sm_json *root = NULL;
    sm_fault f = {0};
    sm_err e = sm_json_read(a, text, limits, &root, &f);
    must((e == SM_OK) == (root != NULL));
    if (e != SM_OK)
        must_be_placed(&f, e, text);
    must(e == unbounded || e == SEMEL_E_LIMIT);
    if (root != NULL)
        must(root->span <= limits->values && text.n <= limits->bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sm_str text = input(data, size);
    sm_arena a;
    sm_arena_init(&a, SM_ARENA_MAX);
    const sm_json *root = NULL;
    sm_fault f = {0};
    sm_err e = sm_json_read(&a, text, &sm_json_default_limits, &root, &f);
    must((e == SM_OK) == (root != NULL));
    if (e != SM_OK) {
        must_be_placed(&f, e, text);
    } else {
        must_be_sound(root, 0);
        sm_buf form;
        if (canonical(root, text, &form))
            must_be_canonical(&a, sm_buf_view(&form));
        sm_buf_fini(&form);
    }
    sm_json_limits tight = {.bytes = size, .depth = 3, .values = 8};
    read_within(&a, text, &tight, e);
    tight = (sm_json_limits){.bytes = size, .depth = SM_JSON_DEPTH_MAX, .values = 3};
    read_within(&a, text, &tight, e);

    /* With little memory it is the same, or out of memory. */
    sm_arena small;
    sm_arena_init(&small, 3 * size);
    sm_err with_less = sm_json_read(&small, text, &sm_json_default_limits, &root, NULL);
    must(with_less == e || with_less == SEMEL_E_NOMEM);
    sm_arena_fini(&small);
    sm_arena_fini(&a);
    return 0;
}
