/* The contracts of the presets, presets/NAME.yaml, as they were when this was built. */
#ifndef SM_GATEWAY_CONFIG_PRESET_TEXTS_H
#define SM_GATEWAY_CONFIG_PRESET_TEXTS_H

#include <stddef.h>

extern const char gw_preset_stripe[], gw_preset_openai[], gw_preset_anthropic[],
    gw_preset_aws_json[], gw_preset_github[];
extern const size_t gw_preset_stripe_bytes, gw_preset_openai_bytes, gw_preset_anthropic_bytes,
    gw_preset_aws_json_bytes, gw_preset_github_bytes;

#endif
