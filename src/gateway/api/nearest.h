/* "Did you mean": the tool that a name which no contract lists was probably meant for. */
#ifndef SM_GATEWAY_API_NEAREST_H
#define SM_GATEWAY_API_NEAREST_H

#include "core/contract.h"

/* The listed tool whose name is nearest to `name`, if it is near enough to be worth saying; `p` is
 * NULL otherwise. Patterns are no names and are not among them. What comes back belongs to the set.
 * Looks at every tool: for a call that is refused, not for one that is made. */
sm_str gw_nearest_tool(const sm_contracts *set, sm_str name);

#endif
