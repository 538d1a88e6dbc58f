/*
 * The rules, in the order in which they are looked at: what the message says of itself in _meta;
 * that the headers, where they are there, say the same; that the version is one that is spoken
 * here; that the headers are there.
 *
 * A message is of the modern era if it names its version in _meta, or if its header names one that
 * is not of the sessions' era: then the missing _meta is a flaw, and never a reason to take the
 * message for an older one. Answers of clients, and initialize, belong to the older era.
 */
#include "gateway/mcp/modern.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "gateway/run/run.h"
#include "json/write.h"
#include "mcp/param_headers.h"

#define META         "io.modelcontextprotocol/"
#define VERSION      META "protocolVersion"
#define CAPABILITIES META "clientCapabilities"

/* JSON-RPC's, and the protocol's own. */
#define E_INVALID_REQUEST -32600
#define E_NO_METHOD       -32601
#define E_INVALID_PARAMS  -32602
#define E_MISMATCH        -32020
#define E_NO_CAPABILITY   -32021
#define E_NO_VERSION      -32022

/* ---- what is said ----------------------------------------------------------------------------*/

static int refuse(sm_buf *out, sm_str id, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static int refuse(sm_buf *out, sm_str id, int code, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    mcp_put_error(out, id, code, sm_str_from(text));
    return code == E_NO_METHOD ? 404 : 400;
}

static int refuse_version(sm_buf *out, sm_str id, sm_str version)
{
    mcp_put_answer(out, id);
    sm_put_open(out, "error", '{');
    sm_put_signed(out, "code", E_NO_VERSION);
    sm_put_text(out, "message", SM_STR("Unsupported protocol version"));
    sm_put_open(out, "data", '{');
    sm_put_raw(out, "supported", SM_STR("[\"" MCP_MODERN "\"]"));
    sm_put_raw(out, "requested", version);
    sm_buf_text(out, "}}}");
    return 400;
}

/* ---- _meta -----------------------------------------------------------------------------------*/

/* What a message claims to be; absent: nothing. */
static sm_str claim_of(sm_str params)
{
    sm_str meta, version;
    if (params.p != NULL && sm_raw_find(params, "_meta", &meta) &&
        sm_raw_find(meta, VERSION, &version))
        return version;
    return (sm_str){0};
}

/* Whether a version in a header is not of the sessions' era. They are dates, and so in order. */
static bool header_is_modern(sm_str version)
{
    static const char first[] = MCP_MODERN;
    size_t n = version.n < sizeof first - 1 ? version.n : sizeof first - 1;
    int order = n == 0 ? 0 : memcmp(version.p, first, n);
    return order > 0 || (order == 0 && version.n >= sizeof first - 1);
}

/* The key of _meta that is not as it must be, and why; NULL: all are. */
static const char *flaw_of_meta(sm_str meta, const char **why)
{
    sm_str value, part;
    *why = "is missing";
    if (!sm_raw_find(meta, VERSION, &value))
        return VERSION;
    *why = "is no text";
    if (!sm_raw_is_string(value))
        return VERSION;
    *why = "is missing";
    if (!sm_raw_find(meta, CAPABILITIES, &value))
        return CAPABILITIES;
    *why = "is no object";
    if (!sm_raw_is_object(value))
        return CAPABILITIES;
    *why = "is no object with name and version";
    if (sm_raw_find(meta, META "clientInfo", &value) &&
        !(sm_raw_find(value, "name", &part) && sm_raw_is_string(part) &&
          sm_raw_find(value, "version", &part) && sm_raw_is_string(part)))
        return META "clientInfo";
    return NULL;
}

static int check_meta(const mcp_message *m, sm_buf *out)
{
    sm_str meta;
    const char *why;
    if (!sm_raw_is_object(m->params) || !sm_raw_find(m->params, "_meta", &meta) ||
        !sm_raw_is_object(meta))
        return refuse(out, m->id, E_INVALID_PARAMS,
                      "Invalid params: the request is missing the required _meta.");
    const char *key = flaw_of_meta(meta, &why);
    return key == NULL ? 0
                       : refuse(out, m->id, E_INVALID_PARAMS, "Invalid params: %s %s.", key, why);
}

/* ---- headers ---------------------------------------------------------------------------------*/

static int mismatch(sm_buf *out, sm_str id, const char *header, sm_str given)
{
    if (given.p == NULL)
        return refuse(out, id, E_MISMATCH,
                      "The headers and the body disagree: %s is required and missing.", header);
    return refuse(out, id, E_MISMATCH,
                  "The headers and the body disagree: %s does not say what the body says.", header);
}

/* A header without the blanks around it. */
static sm_str bare(sm_str value)
{
    while (value.n > 0 && (value.p[0] == ' ' || value.p[0] == '\t'))
        value = (sm_str){value.p + 1, value.n - 1};
    while (value.n > 0 && (value.p[value.n - 1] == ' ' || value.p[value.n - 1] == '\t'))
        value.n--;
    return value;
}

static bool name_fits(sm_str header, sm_str value)
{
    char text[MCP_REPEATED_MAX + 1];
    sm_buf given;
    sm_buf_init(&given, 2 * MCP_REPEATED_MAX);
    bool fits = mcp_header_take(&given, header) && given.err == SM_OK &&
                sm_raw_text(value, text, sizeof text) && sm_str_is(sm_buf_view(&given), text);
    sm_buf_fini(&given);
    return fits;
}

/* A proxy may route by this header, so it must say what the body says. */
static int check_method(const mcp_channel *c, const mcp_message *m, sm_buf *out)
{
    bool same = c->method.p == NULL || sm_str_is(bare(c->method), m->method);
    return same ? 0 : mismatch(out, m->id, "Mcp-Method", c->method);
}

/* Headers that are there say what the body says. `claim` may be absent. */
static int check_said(const mcp_channel *c, const mcp_message *m, sm_str claim, sm_buf *out)
{
    char version[128];
    sm_str said = bare(c->version);
    if (c->version.p != NULL && claim.p != NULL &&
        !(sm_raw_text(claim, version, sizeof version) && sm_str_is(said, version)))
        return mismatch(out, m->id, "MCP-Protocol-Version", c->version);
    return check_method(c, m, out);
}

/* Those that a request must have are there. */
static int check_required(const mcp_channel *c, const mcp_message *m, sm_buf *out)
{
    const char *member = mcp_name_member(m->method);
    sm_str name;
    if (c->version.p == NULL)
        return mismatch(out, m->id, "MCP-Protocol-Version", c->version);
    if (c->method.p == NULL)
        return mismatch(out, m->id, "Mcp-Method", c->method);
    if (member == NULL || !sm_raw_find(m->params, member, &name) || !sm_raw_is_string(name))
        return 0; /* whoever understands the method says what is wrong with that */
    if (c->name.p == NULL || !name_fits(c->name, name))
        return mismatch(out, m->id, "Mcp-Name", c->name);
    return 0;
}

/* ---- headers that repeat arguments -----------------------------------------------------------*/

static bool keep_param(void *context, sm_str name, sm_str value)
{
    mcp_channel *c = context;
    sm_http_field *all = (sm_http_field *)(uintptr_t)c->headers;
    if (c->header_count < MCP_REPEATED_ARGS && name.n > sizeof MCP_PARAM_PREFIX - 1 &&
        strncasecmp(name.p, MCP_PARAM_PREFIX, sizeof MCP_PARAM_PREFIX - 1) == 0)
        all[c->header_count++] = (sm_http_field){.name = sm_arena_text(&c->arena, name),
                                                 .value = sm_arena_text(&c->arena, value)};
    return true;
}

sm_err gw_modern_params(mcp_channel *c, const gw_request *r)
{
    c->headers = sm_arena_zalloc(&c->arena, MCP_REPEATED_ARGS, sizeof *c->headers);
    if (c->headers == NULL)
        return SEMEL_E_NOMEM;
    gw_headers_each(r, keep_param, c);
    for (size_t i = 0; i < c->header_count; i++)
        if (c->headers[i].name.p == NULL || c->headers[i].value.p == NULL)
            return SEMEL_E_NOMEM;
    return SM_OK;
}

/* ---- messages --------------------------------------------------------------------------------*/

/* Whether a message is of the era without sessions: it claims so, or its header says so. */
static bool is_modern(mcp_channel *c, sm_str claim)
{
    bool modern = claim.p != NULL || header_is_modern(bare(c->version));
    gw_channel_is(c, modern ? GW_CH_MODERN : GW_CH_MESSAGE);
    return modern;
}

static int check_request(mcp_channel *c, const mcp_message *m, sm_buf *out)
{
    bool child = c->site->argv != NULL;
    sm_str claim = claim_of(m->params);
    if (!is_modern(c, claim) || (!child && strcmp(m->method, "tools/call") != 0))
        return check_method(c, m, out); /* the server checks the rest itself */
    int status = check_meta(m, out);
    if (status != 0 && strcmp(m->method, "initialize") == 0) {
        sm_buf_clear(out);
        return is_modern(c, (sm_str){0}) ? mismatch(out, m->id, "MCP-Protocol-Version", c->version)
                                         : 0;
    }
    if (status == 0)
        status = check_said(c, m, claim, out);
    if (status == 0 && child && !sm_raw_is(claim, MCP_MODERN))
        status = refuse_version(out, m->id, claim);
    if (status == 0)
        status = check_required(c, m, out);
    /* A child of many clients is nobody's to begin a session with. */
    if (status == 0 && child && strcmp(m->method, "initialize") == 0)
        status = refuse(out, m->id, E_NO_METHOD, "Method not found");
    return status;
}

static int check_notification(mcp_channel *c, const mcp_message *m, sm_buf *out)
{
    sm_str claim = claim_of(m->params);
    if (!is_modern(c, claim) || c->site->argv == NULL)
        return check_method(c, m, out);
    if (claim.p != NULL && !sm_raw_is_string(claim))
        return refuse(out, (sm_str){0}, E_INVALID_PARAMS,
                      "Invalid params: " VERSION " is no text.");
    return check_said(c, m, claim, out);
}

/* Messages of the modern era go one by one. */
static int check_batch(const mcp_message *batch, sm_buf *out)
{
    size_t cursor = 0;
    sm_str name, item, params;
    while (sm_raw_next(batch->text, &cursor, &name, &item)) {
        if (sm_raw_find(item, "params", &params) && claim_of(params).p != NULL)
            return refuse(out, (sm_str){0}, E_INVALID_REQUEST,
                          "This revision of the protocol has no batches: send the messages one by "
                          "one.");
    }
    return 0;
}

int gw_modern_check(mcp_channel *c, const mcp_message *m, sm_buf *out)
{
    int status = 0;
    switch (m->kind) {
    case MCP_REQUEST: return check_request(c, m, out);
    case MCP_NOTIFICATION: return check_notification(c, m, out);
    case MCP_BATCH: status = check_batch(m, out); break;
    default: break;
    }
    return status != 0 ? status : check_method(c, m, out);
}

/* ---- answers ---------------------------------------------------------------------------------*/

int gw_modern_status(sm_str answer)
{
    mcp_message m;
    sm_str code;
    char digits[16] = "";
    if (!mcp_read(answer, &m) || m.kind != MCP_ERROR || !sm_raw_find(m.error, "code", &code) ||
        code.n >= sizeof digits)
        return 200;
    memcpy(digits, code.p, code.n);
    switch (atoi(digits)) {
    case E_NO_METHOD: return 404;
    case -32700:
    case E_INVALID_REQUEST:
    case E_NO_CAPABILITY:
    case E_NO_VERSION: return 400;
    default: return 200; /* said by what was called, about what it was called for */
    }
}
