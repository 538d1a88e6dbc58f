/* What is known about well-known APIs: defaults for a proxy's fields, and a contract for its tool.
 */
#ifndef SM_GATEWAY_PRESET_H
#define SM_GATEWAY_PRESET_H

#include "gateway/config.h"

/* The names, for the configuration's table: the first one means none; NULL ends the list. */
extern const char *const gw_preset_names[];

/* Sets the fields that the preset of this name knows. */
void gw_preset_apply(sm_str name, gw_upstream_api *api);

/* The contract of preset number `i` as text (YAML); absent if it has none. */
sm_str gw_preset_text(int i);

#endif
