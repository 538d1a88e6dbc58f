/* The call that undoes an effect: its key and its arguments. */
#include "core/undo.h"

#include <string.h>

#include "base/limits.h"
#include "core/identity.h"

#define PREFIX "undo:"

size_t sm_undo_key(const sm_handle *effect, char out[SM_UNDO_KEY_TEXT])
{
    memcpy(out, PREFIX, sizeof PREFIX - 1);
    return sizeof PREFIX - 1 + sm_handle_effect(effect, out + sizeof PREFIX - 1);
}

bool sm_undo_key_reserved(sm_str key)
{
    size_t n = sizeof PREFIX - 1;
    return key.n >= n && memcmp(key.p, PREFIX, n) == 0;
}

bool sm_undo_key_parse(sm_str key, sm_handle *effect)
{
    size_t n = sizeof PREFIX - 1;
    return sm_undo_key_reserved(key) &&
           sm_handle_parse("ef_", (sm_str){key.p + n, key.n - n}, effect);
}

/* Whether a value, or a part of it, was not stored. */
static bool is_redacted(const sm_json *value)
{
    const sm_json *end = sm_json_next(value);
    for (const sm_json *v = value; v < end; v++) {
        if (v->type == SM_JSON_STRING && sm_str_is(sm_json_text(v), SM_REDACTED))
            return true;
    }
    return false;
}

/* The value that one argument is made of; NULL with a fault if there is none. */
static const sm_json *value_of(const sm_argument_map *map, uint32_t i, const sm_json *args,
                               const sm_json *outcome, sm_fault *fault)
{
    bool of_outcome = map->of_outcome != NULL && map->of_outcome[i];
    const sm_json *from = of_outcome ? outcome : args;
    const char *what = of_outcome ? "outcome" : "arguments";
    sm_str place = map->from[i].text;
    const sm_json *value = from == NULL ? NULL : sm_pointer_get(&map->from[i], from);
    if (from == NULL)
        sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                     of_outcome ? "its outcome is not kept as JSON, and %.*s of it is needed"
                                : "its arguments are not kept any more, and %.*s of them is needed",
                     SM_FMT(place));
    else if (value == NULL)
        sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "there is no %.*s in its %s", SM_FMT(place),
                     what);
    else if (is_redacted(value))
        sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "%.*s of its %s is redacted", SM_FMT(place),
                     what);
    else
        return value;
    return NULL;
}

sm_err sm_undo_args(sm_arena *a, const sm_compensate *rule, const sm_json *args,
                    const sm_json *outcome, const sm_json **out, sm_fault *fault)
{
    const sm_argument_map *map = &rule->args;
    const sm_json *empty = NULL;
    sm_places *places = sm_places_new(a);
    sm_err e = places == NULL ? SEMEL_E_NOMEM : SM_OK;
    for (uint32_t i = 0; e == SM_OK && i < map->count; i++) {
        const sm_json *value = value_of(map, i, args, outcome, fault);
        e = value == NULL ? SEMEL_E_BAD_ARGUMENTS : sm_places_add(places, a, &map->to[i], value);
    }
    if (e == SM_OK)
        e = sm_json_read(a, SM_STR("{}"), &sm_json_default_limits, &empty, fault);
    if (e == SM_OK)
        e = sm_json_fill(a, empty, places, out);
    for (uint32_t i = 0; e == SM_OK && i < map->count; i++) {
        if (sm_pointer_get(&map->to[i], *out) == NULL)
            e = sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "the argument %.*s cannot be made",
                             SM_FMT(map->to[i].text));
    }
    return e;
}
