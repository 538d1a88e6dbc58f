/*
 * The listed tool that was probably meant.
 *
 * Names come from clients: what is too long to be compared is as far from everything as can be, so
 * that the work is bounded by the number of tools.
 */
#include "gateway/api/nearest.h"

#include "base/suggest.h"

sm_str gw_nearest_tool(const sm_contracts *set, sm_str name)
{
    sm_nearest nearest = {0};
    for (uint32_t i = 0; i < set->exact_count; i++)
        sm_nearest_try(&nearest, name, set->index[i]->name);
    return sm_nearest_get(&nearest, name);
}
