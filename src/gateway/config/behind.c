/*
 * What the configuration says about those behind the gateway: the APIs of `proxies` and the servers
 * of `mcp`.
 *
 * What is declared about an API is read by the same tables as an upstream of a contract. Values of
 * headers and of variables may be secrets, and are in no message. Whether a command or a directory
 * is there is looked at elsewhere (files.c): here is only what the file itself says.
 */
#include "base/header.h"
#include "base/limits.h"
#include "gateway/config.h"
#include "gateway/preset.h"
#include "gateway/tokens.h"

#define COUNT(array)    (sizeof(array) / sizeof((array)[0]))
#define SECONDS(n)      ((int64_t)(n)*1000)
#define PROXY_NAME_MAX  64u
#define MCP_NAME_BYTES  100u
#define MCP_SERVERS_MAX 64u
#define COMMAND_MAX     256u /* words of one command */
#define VARIABLE_MAX    255u /* bytes of a variable's name */

/* ---- what both have --------------------------------------------------------------------------*/

/* A name is one segment of a path, as it stands there. */
static void check_name(sm_loader *l, const char *whose, const sm_json *name, size_t most)
{
    sm_str s = sm_json_text(name);
    bool right = s.n > 0 && s.n <= most;
    for (size_t i = 0; right && i < s.n; i++)
        right =
            (s.p[i] >= 'a' && s.p[i] <= 'z') || (s.p[i] >= '0' && s.p[i] <= '9') || s.p[i] == '-';
    if (!right)
        sm_complain(l, name, "%s name is a part of URLs: 1 to %zu lowercase letters, digits and -",
                    whose, most);
}

/* Names with values, some of which may be secrets that belong in the environment. A number is none,
 * and neither is nothing. */
static void lint_secrets(sm_loader *l, const sm_json *mapping, const sm_headers *read)
{
    for (uint32_t i = 0; mapping != NULL && i < read->n; i++) {
        const sm_json *value = sm_json_find(mapping, read->v[i].name);
        if (value != NULL && value->type == SM_JSON_STRING && value->len > 0 &&
            sm_header_secret(&read->v[i]))
            sm_advise(l, value,
                      "%.*s looks like a secret written out; keep it in the environment and write "
                      "\"${NAME}\"",
                      SM_FMT(read->v[i].name));
    }
}

/* ---- proxies ---------------------------------------------------------------------------------*/

/* A base: nothing may stand behind its path, and the path must not end in a slash. */
static void read_base_url(sm_loader *l, const sm_json *value, void *out)
{
    uint32_t errors = l->report->errors;
    sm_str *url = out;
    sm_read_http_url(l, value, url);
    if (l->report->errors != errors)
        return;
    for (size_t i = 0; i < url->n; i++) {
        if (memchr("?#{}\\", url->p[i], 5) == NULL)
            continue;
        sm_complain(l, value,
                    "url: a base has neither a query nor placeholders; write scheme, host and "
                    "path, such as https://api.example.com/v1");
        return;
    }
    while (url->n > 0 && url->p[url->n - 1] == '/')
        url->n--;
}

static const sm_field client_fields[] = {
    {"name", SM_KIND_STRING, SM_FIELD(gw_client, name), SM_FIELD_REQUIRED},
    {"scope", SM_KIND_STRING, SM_FIELD(gw_client, scope), SM_FIELD_REQUIRED},
};
static const sm_group client_group = {client_fields, COUNT(client_fields),
                                      .size = sizeof(gw_client)};

/* Names of headers of requests. */
static void read_header_names(sm_loader *l, const sm_json *value, void *out)
{
    bool list = value->type == SM_JSON_ARRAY;
    const sm_json *item = list ? value + 1 : value;
    uint32_t n = list ? value->len : 1;
    if (n > SM_POINTERS_MAX || (!list && value->type != SM_JSON_STRING)) {
        sm_complain(l, value,
                    "expected a list of at most %u names of headers, such as [X-Account], found %s",
                    SM_POINTERS_MAX, sm_found(l, value));
        return;
    }
    sm_str *v = sm_loader_alloc(l, n, sizeof *v);
    for (uint32_t i = 0; v != NULL && i < n; i++, item = sm_json_next(item)) {
        v[i] = item->type == SM_JSON_STRING ? sm_json_text(item) : (sm_str){0};
        if (v[i].n == 0 || !sm_header_name(v[i]))
            sm_complain(l, item, "expected the name of a header, such as X-Account, found %s",
                        sm_found(l, item));
    }
    *(gw_texts *)out = (gw_texts){v, v == NULL ? 0 : n};
}

static const char *const client_key_names[] = {"honour", "ignore", NULL};

static const sm_field proxy_fields[] = {
    {"preset", SM_KIND_ENUM, SM_FIELD(gw_upstream_api, preset), .names = gw_preset_names},
    {"url", SM_KIND_CUSTOM, SM_FIELD(gw_upstream_api, url), SM_FIELD_REQUIRED,
     .read = read_base_url},
    {"headers", SM_KIND_CUSTOM, SM_FIELD(gw_upstream_api, headers), .read = sm_read_headers},
    {"timeout", SM_KIND_DURATION, SM_FIELD(gw_upstream_api, timeout_ms)},
    {"idempotency", SM_KIND_GROUP, SM_FIELD(gw_upstream_api, idempotency),
     .group = &sm_idempotency_group},
    {"retry", SM_KIND_GROUP, SM_FIELD(gw_upstream_api, retry), .group = &sm_retry_group},
    {"rejects_before_work", SM_KIND_SWITCH, SM_FIELD(gw_upstream_api, rejects_before_work)},
    {"cost", SM_KIND_POINTER, SM_FIELD(gw_upstream_api, cost)},
    {"tokens", SM_KIND_POINTER, SM_FIELD(gw_upstream_api, tokens)},
    {"stream", SM_KIND_SWITCH, SM_FIELD(gw_upstream_api, stream)},
    {"listen", SM_KIND_CUSTOM, SM_FIELD(gw_upstream_api, listen), .read = gw_read_listen},
    {"pass_host", SM_KIND_SWITCH, SM_FIELD(gw_upstream_api, pass_host)},
    {"client", SM_KIND_GROUP, SM_FIELD(gw_upstream_api, client), SM_FIELD_OFF,
     .group = &client_group},
    {"client_key", SM_KIND_ENUM, SM_FIELD(gw_upstream_api, client_key), .names = client_key_names},
    {"identity_headers", SM_KIND_CUSTOM, SM_FIELD(gw_upstream_api, identity_headers),
     .read = read_header_names},
    {"ignore_headers", SM_KIND_CUSTOM, SM_FIELD(gw_upstream_api, ignore_headers),
     .read = read_header_names},
};
static const sm_group proxy_group = {proxy_fields, COUNT(proxy_fields),
                                     .size = sizeof(gw_upstream_api)};

/* Where it may listen is checked with all addresses (gw_config_safe). */
static void check_client(sm_loader *l, const sm_json *client, gw_upstream_api *api)
{
    sm_fault fault;
    if (client == NULL || !api->client.on)
        return;
    api->client.place = gw_place_of(l, "client", client);
    if (api->listen.n == 0)
        sm_complain(l, client,
                    "client: says who comes without a token to the proxy's own address, and it has "
                    "none; write listen: 127.0.0.1:9000 beside it");
    else if (api->client.scope.n == 0)
        sm_complain(l, client, "client: scope is empty; write one such as acme/shop");
    else if (gw_token_right(api->client.name, api->client.scope, &fault) != SM_OK)
        sm_complain(l, client, "client: %s", fault.text);
}

/* Whether a header decides how a request is read. */
static bool decides(sm_str name)
{
    return sm_header_method(name) || sm_header_alike(name, SM_STR("content-type")) ||
           sm_header_alike(name, SM_STR("content-encoding"));
}

static void check_proxy(sm_loader *l, const sm_json *mapping, const gw_upstream_api *api)
{
    const sm_json *key = sm_json_find(mapping, SM_STR("idempotency"));
    const sm_json *retry = sm_json_find(mapping, SM_STR("retry"));
    if (key != NULL && (api->idempotency.header.p == NULL || api->idempotency.meta.p != NULL ||
                        api->idempotency.argument.p != NULL))
        sm_complain(l, key,
                    "idempotency: an API behind the proxy is given its key in a header; write { "
                    "header: Idempotency-Key }");
    for (uint32_t i = 0; i < api->ignore_headers.n; i++)
        if (decides(api->ignore_headers.v[i]))
            sm_complain(l, sm_json_find(mapping, SM_STR("ignore_headers")),
                        "%.*s decides what a request does, so it cannot be ignored; remove it",
                        SM_FMT(api->ignore_headers.v[i]));
    for (uint32_t i = 0; i < api->ignore_headers.n; i++)
        for (uint32_t k = 0; k < api->identity_headers.n; k++)
            if (sm_header_is(api->ignore_headers.v[i], api->identity_headers.v[k]))
                sm_complain(l, sm_json_find(mapping, SM_STR("ignore_headers")),
                            "%.*s is listed under identity_headers too; remove one of them",
                            SM_FMT(api->ignore_headers.v[i]));
    if (retry != NULL && api->retry.backoff_ms > api->retry.max_backoff_ms)
        sm_complain(l, retry, "retry: backoff is longer than max_backoff; swap them");
    lint_secrets(l, sm_json_find(mapping, SM_STR("headers")), &api->headers);
}

/* The contract of its preset. It is part of the program, and so has no mistakes. */
static void read_preset(sm_loader *l, gw_upstream_api *api)
{
    sm_report report = {0};
    sm_str text = gw_preset_text(api->preset);
    if (text.p == NULL)
        return;
    sm_err e = sm_report_init(&report, text);
    if (e == SM_OK)
        e = sm_contracts_read(SM_STR("preset"), text, &api->contracts, &report);
    l->failed |= e != SM_OK;
    sm_report_fini(&report);
}

void gw_read_proxies(sm_loader *l, const sm_json *value, void *out)
{
    if (value->type != SM_JSON_OBJECT || value->len > SM_POINTERS_MAX) {
        sm_complain(l, value,
                    "proxies: expected a mapping of at most %u names, such as { stripe: { url: "
                    "https://api.stripe.com } }, found %s",
                    SM_POINTERS_MAX, sm_found(l, value));
        return;
    }
    gw_upstream_api *v = sm_loader_alloc(l, value->len, sizeof *v);
    const sm_json *name = value + 1;
    for (uint32_t i = 0; v != NULL && i < value->len; i++, name = sm_json_next(name + 1)) {
        v[i] = (gw_upstream_api){.name = sm_json_text(name), .timeout_ms = SECONDS(30)};
        v[i].retry = *(const sm_retry *)sm_retry_group.defaults;
        v[i].place = gw_place_of(l, "proxies", name);
        check_name(l, "a proxy's", name, PROXY_NAME_MAX);
        if (name[1].type != SM_JSON_OBJECT) {
            sm_complain(l, name + 1, "a proxy is a mapping with url and so on, found %s",
                        sm_found(l, name + 1));
            continue;
        }
        const sm_json *preset = sm_json_find(name + 1, SM_STR("preset"));
        if (preset != NULL && preset->type == SM_JSON_STRING)
            gw_preset_apply(sm_json_text(preset), &v[i]);
        sm_group_read(l, &proxy_group, "a proxy", name + 1, &v[i], NULL);
        read_preset(l, &v[i]);
        check_proxy(l, name + 1, &v[i]);
        check_client(l, sm_json_find(name + 1, SM_STR("client")), &v[i]);
    }
    *(gw_apis *)out = (gw_apis){v, value->len};
}

/* ---- MCP servers -----------------------------------------------------------------------------*/

/* The address itself, to which nothing is added: it may have a query, but nothing fills it in. */
static void read_server_url(sm_loader *l, const sm_json *value, void *out)
{
    uint32_t errors = l->report->errors;
    sm_str *url = out;
    sm_read_http_url(l, value, url);
    for (size_t i = 0; l->report->errors == errors && i < url->n; i++) {
        if (memchr("{}\\", url->p[i], 3) != NULL)
            sm_complain(l, value,
                        "url: an MCP server's has no placeholders; write it as it is, such as "
                        "https://mcp.example.com/mcp");
    }
}

/* Some headers say what a message is, and only whoever sends the message knows. */
static void read_server_headers(sm_loader *l, const sm_json *value, void *out)
{
    static const char *const own[] = {"Accept", "Content-Type", "Last-Event-ID"};
    sm_headers *headers = out;
    sm_read_headers(l, value, headers);
    const sm_json *name = value + 1;
    for (uint32_t i = 0; i < headers->n; i++, name = sm_json_next(name + 1)) {
        sm_str s = headers->v[i].name;
        bool taken = s.n >= 4 && sm_header_is((sm_str){s.p, 4}, SM_STR("Mcp-"));
        for (size_t k = 0; k < COUNT(own); k++)
            taken |= sm_header_is(s, sm_str_from(own[k]));
        if (taken)
            sm_complain(l, name, "%.*s is set by the protocol for each message; remove it",
                        SM_FMT(s));
    }
}

/* A word as the program gets it: a text, or a number as it is written. */
static bool read_word(sm_loader *l, const char *what, const sm_json *value, sm_str *out)
{
    if (value->type != SM_JSON_STRING && value->type != SM_JSON_NUMBER) {
        sm_complain(l, value, "%s must be a text; write it in quotes", what);
        return false;
    }
    *out = sm_arena_text(l->arena, sm_json_text(value));
    l->failed |= out->p == NULL;
    if (out->p != NULL && memchr(out->p, '\0', out->n) == NULL)
        return true;
    if (out->p != NULL)
        sm_complain(l, value, "%s must not contain a NUL byte", what);
    return false;
}

/* No shell takes the words apart, and nothing is filled in: everybody may see the words of a
 * command that runs. */
static void read_command(sm_loader *l, const sm_json *value, void *out)
{
    bool list = value->type == SM_JSON_ARRAY;
    const sm_json *item = list ? value + 1 : value;
    uint32_t n = list ? value->len : 1;
    if (n == 0 || n > COMMAND_MAX || (!list && value->type != SM_JSON_STRING) ||
        (!list && memchr(value->text, ' ', value->len) != NULL)) {
        sm_complain(l, value,
                    "command: expected a list of 1 to %u words, for no shell takes it apart, such "
                    "as [npx, -y, \"@modelcontextprotocol/server-memory\"], found %s",
                    COMMAND_MAX, n == 0 ? "an empty one" : sm_found(l, value));
        return;
    }
    sm_str *v = sm_loader_alloc(l, n, sizeof *v);
    for (uint32_t i = 0; v != NULL && i < n; i++, item = sm_json_next(item)) {
        if (!read_word(l, "a word of a command", item, &v[i]))
            continue;
        if (i == 0 && v[i].n == 0)
            sm_complain(l, item, "command: the first word names a program, and is empty");
        if (memmem(v[i].p, v[i].n, "${", 2) != NULL)
            sm_complain(l, item,
                        "command: environment variables (${...}) are not filled in here, where "
                        "everybody on the machine may read them; give the program its values in "
                        "env");
    }
    *(gw_texts *)out = (gw_texts){v, v == NULL ? 0 : n};
}

static bool variable_name(sm_str s)
{
    bool right = s.n > 0 && s.n <= VARIABLE_MAX;
    for (size_t i = 0; right && i < s.n; i++)
        right = (unsigned char)s.p[i] > ' ' && s.p[i] != 0x7F && s.p[i] != '=';
    return right;
}

static void read_env(sm_loader *l, const sm_json *value, void *out)
{
    if (value->type != SM_JSON_OBJECT || value->len > SM_POINTERS_MAX) {
        sm_complain(l, value,
                    "env: expected a mapping of at most %u names to values, such as { LOG_LEVEL: "
                    "warn }, found %s",
                    SM_POINTERS_MAX, sm_json_type_name(value));
        return;
    }
    sm_header *v = sm_loader_alloc(l, value->len, sizeof *v);
    const sm_json *name = value + 1;
    for (uint32_t i = 0; v != NULL && i < value->len; i++, name = sm_json_next(name + 1)) {
        v[i].name = sm_json_text(name);
        if (!variable_name(v[i].name))
            sm_complain(l, name,
                        "the name of a variable has 1 to %u bytes, without blanks and =, such as "
                        "LOG_LEVEL",
                        VARIABLE_MAX);
        if (read_word(l, "a variable's value", name + 1, &v[i].value))
            sm_check_variables(l, name + 1);
    }
    *(sm_headers *)out = (sm_headers){v, v == NULL ? 0 : value->len};
}

static const sm_field server_fields[] = {
    {"command", SM_KIND_CUSTOM, SM_FIELD(gw_mcp_server, command), .read = read_command},
    {"env", SM_KIND_CUSTOM, SM_FIELD(gw_mcp_server, env), .read = read_env},
    {"directory", SM_KIND_CUSTOM, SM_FIELD(gw_mcp_server, directory), .read = gw_read_path},
    {"url", SM_KIND_CUSTOM, SM_FIELD(gw_mcp_server, url), .read = read_server_url},
    {"headers", SM_KIND_CUSTOM, SM_FIELD(gw_mcp_server, headers), .read = read_server_headers},
};
static const sm_group server_group = {server_fields, COUNT(server_fields),
                                      .size = sizeof(gw_mcp_server)};

/* That a server is either a command or a URL, and has nothing of the other. */
static void check_server(sm_loader *l, const sm_json *mapping, const gw_mcp_server *s)
{
    const sm_json *command = sm_json_find(mapping, SM_STR("command"));
    const sm_json *url = sm_json_find(mapping, SM_STR("url"));
    const sm_json *env = sm_json_find(mapping, SM_STR("env"));
    const sm_json *directory = sm_json_find(mapping, SM_STR("directory"));
    const sm_json *headers = sm_json_find(mapping, SM_STR("headers"));
    const sm_json *args = sm_json_find(mapping, SM_STR("args"));
    if (command == NULL && url == NULL)
        sm_complain(l, mapping,
                    "an MCP server needs a command, which is started, or a url, where it is "
                    "reached over HTTP");
    if (command != NULL && url != NULL)
        sm_complain(l, url,
                    "an MCP server is either started by its command or reached at its url; remove "
                    "one of them");
    if (command == NULL && url != NULL && env != NULL)
        sm_complain(l, env, "env: only a command has an environment; give a url its headers");
    if (command == NULL && url != NULL && directory != NULL)
        sm_complain(l, directory, "directory: only a command starts in one; remove it");
    if (command != NULL && url == NULL && headers != NULL)
        sm_complain(l, headers, "headers: only a url is sent any; give a command its env");
    if (command != NULL && args != NULL)
        sm_complain(l, args,
                    "args: all words stand in one list, the program first; write command: [npx, "
                    "-y, ...]");
    lint_secrets(l, headers, &s->headers);
    lint_secrets(l, env, &s->env);
}

void gw_read_mcp(sm_loader *l, const sm_json *value, void *out)
{
    if (value->type != SM_JSON_OBJECT || value->len > MCP_SERVERS_MAX) {
        sm_complain(l, value,
                    "mcp: expected a mapping of at most %u names, such as { notes: { command: "
                    "[npx, -y, \"@modelcontextprotocol/server-memory\"] } }, found %s",
                    MCP_SERVERS_MAX, sm_found(l, value));
        return;
    }
    gw_mcp_server *v = sm_loader_alloc(l, value->len, sizeof *v);
    const sm_json *name = value + 1;
    for (uint32_t i = 0; v != NULL && i < value->len; i++, name = sm_json_next(name + 1)) {
        v[i].name = sm_json_text(name);
        v[i].place = gw_place_of(l, "mcp", name);
        check_name(l, "an MCP server's", name, MCP_NAME_BYTES);
        if (name[1].type != SM_JSON_OBJECT) {
            sm_complain(l, name + 1, "an MCP server is a mapping with command or url, found %s",
                        sm_found(l, name + 1));
            continue;
        }
        sm_group_read(l, &server_group, "an MCP server", name + 1, &v[i], NULL);
        check_server(l, name + 1, &v[i]);
    }
    *(gw_mcps *)out = (gw_mcps){v, v == NULL ? 0 : value->len};
}
