/* The presets. Their contracts are files, presets/NAME.yaml, which are part of the program. */
#include "gateway/preset.h"

#include "gateway/config/preset_texts.h"

#define MINUTES(n) ((int64_t)(n)*60000)
#define HOURS(n)   MINUTES((n)*60)

const char *const gw_preset_names[] = {"none",     "stripe", "openai", "anthropic",
                                       "aws-json", "github", NULL};

enum { NONE, STRIPE, OPENAI, ANTHROPIC, AWS_JSON, GITHUB };

sm_str gw_preset_text(int i)
{
    switch (i) {
    case STRIPE: return (sm_str){gw_preset_stripe, gw_preset_stripe_bytes};
    case OPENAI: return (sm_str){gw_preset_openai, gw_preset_openai_bytes};
    case ANTHROPIC: return (sm_str){gw_preset_anthropic, gw_preset_anthropic_bytes};
    case AWS_JSON: return (sm_str){gw_preset_aws_json, gw_preset_aws_json_bytes};
    case GITHUB: return (sm_str){gw_preset_github, gw_preset_github_bytes};
    default: return (sm_str){0};
    }
}

/* None of them knows its clients by cookies. Some set one with every answer, and clients with a
 * cookie jar send it along. */
static const sm_str cookies[] = {{"Cookie", 6}};

void gw_preset_apply(sm_str name, gw_upstream_api *api)
{
    int i = NONE;
    while (gw_preset_names[i] != NULL && !sm_str_is(name, gw_preset_names[i]))
        i++;
    if (i > NONE && gw_preset_names[i] != NULL)
        api->ignore_headers = (gw_texts){cookies, 1};
    switch (i) {
    case STRIPE: /* both SDKs make a new key for each call */
        api->client_key = GW_KEY_IGNORE;
        api->idempotency.header = SM_STR("Idempotency-Key");
        api->idempotency.window_ms = HOURS(24);
        api->timeout_ms = MINUTES(1) + MINUTES(1) / 3; /* as the SDKs have it */
        break;
    case OPENAI: /* the SDK makes a new key for each call, and the API says nothing about keys */
    case ANTHROPIC:
        api->client_key = GW_KEY_IGNORE;
        api->timeout_ms = MINUTES(10); /* generations take minutes */
        break;
    case AWS_JSON:
    case GITHUB: api->client_key = GW_KEY_IGNORE; break;
    }
}
