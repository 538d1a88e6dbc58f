/* What a probe asks with, and how its answer is judged. It is asked by whoever executes the tool.
 */
#include "core/probe.h"

#include "base/limits.h"
#include "json/canon.h"

sm_err sm_probe_args(sm_arena *a, const sm_probe *probe, const sm_json *args, const sm_json **out,
                     sm_fault *fault)
{
    const sm_argument_map *map = &probe->args;
    const sm_json *empty = NULL;
    sm_places *places = sm_places_new(a);
    sm_err e = places == NULL ? SEMEL_E_NOMEM : SM_OK;
    for (uint32_t i = 0; e == SM_OK && i < map->count; i++) {
        const sm_json *value = sm_pointer_get(&map->from[i], args);
        if (value != NULL)
            e = sm_places_add(places, a, &map->to[i], value);
    }
    if (e == SM_OK)
        e = sm_json_read(a, SM_STR("{}"), &sm_json_default_limits, &empty, fault);
    return e == SM_OK ? sm_json_fill(a, empty, places, out) : e;
}

/* What is said to be the outcome, in canonical form. */
static sm_str outcome_of(sm_arena *a, const sm_probe_case *applied, const sm_json *said)
{
    const sm_json *value =
        applied->outcome.text.p == NULL ? said : sm_pointer_get(&applied->outcome, said);
    sm_str out = {0};
    sm_buf text;
    sm_buf_init(&text, SM_ARENA_MAX);
    if (value != NULL && sm_json_canon(value, &text, (sm_str){0}, NULL) == SM_OK)
        out = sm_arena_text(a, sm_buf_view(&text));
    sm_buf_fini(&text);
    return out;
}

sm_found_kind sm_probe_judge(sm_arena *a, const sm_probe *probe, const sm_json *said, bool failed,
                             sm_str *outcome)
{
    *outcome = (sm_str){0};
    if (said == NULL)
        return SM_FOUND_UNKNOWN;
    if (!failed && sm_conditions_hold(&probe->applied.when, said, false)) {
        *outcome = outcome_of(a, &probe->applied, said);
        return SM_FOUND_APPLIED;
    }
    return probe->absent.when.n > 0 && sm_conditions_prove(&probe->absent.when, said)
               ? SM_FOUND_ABSENT
               : SM_FOUND_UNKNOWN;
}
