/* Any bytes as YAML: a refusal is placed; a document is sound, and its form is that of JSON. And
 * what the strict reader of JSON accepts means the same as YAML, if YAML has it at all. */
#include "fuzz.h"

#include "json/diff.h"
#include "json/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const sm_json_limits limits = {SM_CONTRACT_BYTES_MAX, SM_CONTRACT_DEPTH_MAX,
                                   SM_JSON_VALUES_MAX};
    sm_str text = input(data, size);
    sm_arena a;
    sm_arena_init(&a, SM_ARENA_MAX);
    const sm_json *root = NULL, *json = NULL;
    sm_fault f = {0};
    sm_err e = sm_yaml_read(&a, text, &limits, &root, &f);
    must((e == SM_OK) == (root != NULL));
    if (e != SM_OK) {
        must_be_placed(&f, e, text);
    } else {
        must_be_sound(root, 0);
        for (uint32_t i = 0; i < root->span; i++)
            must(root[i].at <= text.n);
        sm_buf form;
        if (canonical(root, text, &form))
            must_be_canonical(&a, sm_buf_view(&form));
        sm_buf_fini(&form);
        if (sm_json_read(&a, text, &limits, &json, NULL) == SM_OK)
            must(sm_json_equal(root, json));
    }
    sm_arena_fini(&a);
    return 0;
}
