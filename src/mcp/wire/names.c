/* The tables, and one walk over an object for each. */
#include "mcp/wire/names.h"

#include <stdio.h>

#include "base/fold.h"
#include "json/raw.h"

#define NAMES_MAX 16u /* of one table */

typedef struct entry {
    const char *name;
    const mcp_names *inside; /* of its value, if that decides something too */
} entry;

struct mcp_names {
    entry v[NAMES_MAX]; /* ends with a name that is NULL */
};

#define META "io.modelcontextprotocol/"

static const mcp_names capabilities = {{{"elicitation", NULL}}};
static const mcp_names client_info = {{{"name", NULL}, {"version", NULL}}};

static const mcp_names meta = {{
    {"progressToken", NULL},
    {"semel/scope", NULL},
    {"semel/step", NULL},
    {"semel/after", NULL},
    {META "protocolVersion", NULL},
    {META "clientCapabilities", &capabilities},
    {META "clientInfo", &client_info},
    {META "subscriptionId", NULL},
}};

static const mcp_names content = {{{"approve", NULL}}};
const mcp_names mcp_names_reply = {{{"action", NULL}, {"content", &content}}};
static const mcp_names responses = {{{"semel-approval", &mcp_names_reply}}};

static const mcp_names result_task = {{{"taskId", NULL}}};
const mcp_names mcp_names_result = {{
    {"content", NULL},
    {"structuredContent", NULL},
    {"isError", NULL},
    {"resultType", NULL},
    {"task", &result_task},
}};
const mcp_names mcp_names_error = {{{"code", NULL}}};

/* ---- params ----------------------------------------------------------------------------------*/

static const mcp_names of_any = {{{"_meta", &meta}}};
static const mcp_names of_call = {{
    {"name", NULL},
    {"arguments", NULL},
    {"_meta", &meta},
    {"idempotencyKey", NULL},
    {"task", NULL},
    {"inputResponses", &responses},
    {"requestState", NULL},
}};
static const mcp_names of_list = {{{"cursor", NULL}, {"_meta", &meta}}};
static const mcp_names of_initialize = {{
    {"protocolVersion", NULL},
    {"capabilities", &capabilities},
    {"clientInfo", &client_info},
    {"_meta", &meta},
}};
static const mcp_names of_cancel = {{{"requestId", NULL}, {"_meta", &meta}}};
static const mcp_names of_name = {{{"name", NULL}, {"_meta", &meta}}};
static const mcp_names of_uri = {{{"uri", NULL}, {"_meta", &meta}}};
static const mcp_names of_task = {{{"taskId", NULL}, {"_meta", &meta}}};

/* The methods that decide something. */
static const struct {
    const char *method;
    const mcp_names *params;
} methods[] = {
    {"tools/call", &of_call},       {"tools/list", &of_list},
    {"initialize", &of_initialize}, {"notifications/cancelled", &of_cancel},
    {"server/discover", &of_any},   {"subscriptions/listen", &of_any},
    {"prompts/get", &of_name},      {"resources/read", &of_uri},
    {"tasks/get", &of_task},        {"tasks/result", &of_task},
    {"tasks/update", &of_task},     {"tasks/cancel", &of_task},
};

/* ---- walking ---------------------------------------------------------------------------------*/

bool mcp_names_plain(sm_str value, const mcp_names *names, char flaw[MCP_FLAW_MAX])
{
    size_t cursor = 0;
    bool seen[NAMES_MAX] = {false};
    sm_str name, item;
    while (sm_raw_is_object(value) && sm_raw_next(value, &cursor, &name, &item)) {
        for (size_t i = 0; i < NAMES_MAX && names->v[i].name != NULL; i++) {
            const entry *e = &names->v[i];
            sm_likeness like = sm_raw_name_like(name, e->name);
            if (like == SM_UNLIKE)
                continue;
            if (like == SM_ALIKE || seen[i]) {
                mcp_put_flaw(flaw, e->name, like);
                return false;
            }
            seen[i] = true;
            if (e->inside != NULL && !mcp_names_plain(item, e->inside, flaw))
                return false;
        }
    }
    return true;
}

bool mcp_names_asked(const mcp_message *m, char flaw[MCP_FLAW_MAX])
{
    const mcp_names *params = &of_any;
    if (strlen(m->method) + 4 > MCP_METHOD_MAX) { /* it may have been cut */
        snprintf(flaw, MCP_FLAW_MAX, "the method is too long");
        return false;
    }
    sm_str method = sm_str_from(m->method);
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (strcmp(m->method, methods[i].method) == 0) {
            params = methods[i].params;
        } else if (sm_fold_alike(method, sm_str_from(methods[i].method))) {
            snprintf(flaw, MCP_FLAW_MAX,
                     "the method is not \"%s\", but some servers take it for that",
                     methods[i].method);
            return false;
        }
    }
    return mcp_names_plain(m->params, params, flaw);
}
