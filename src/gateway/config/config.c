/*
 * Reading the configuration, and what must hold before anything is started with it.
 *
 * Nothing here opens a file or a socket: that a certificate can be read, or an address be had, is
 * found out by whoever uses it.
 */
#include "gateway/config.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/utf8.h"

#define DEFAULT_PORT 8787u

/* ---- names of files, variables ---------------------------------------------------------------*/

sm_str gw_path_from(sm_arena *a, sm_str directory, sm_str path)
{
    if (directory.n == 0 || (path.n > 0 && path.p[0] == '/'))
        return sm_arena_text(a, path);
    bool slash = directory.p[directory.n - 1] == '/';
    return sm_arena_printf(a, "%.*s%s%.*s", SM_FMT(directory), slash ? "" : "/", SM_FMT(path));
}

static sm_str directory_of(sm_str file)
{
    const char *slash = memrchr(file.p, '/', file.n);
    if (slash == NULL)
        return (sm_str){0};
    return (sm_str){file.p, slash == file.p ? 1 : (size_t)(slash - file.p)};
}

/* Beside the user's own ledger; absent if there is no home directory. */
static sm_str default_tokens(sm_arena *a)
{
    char path[SM_PATH_MAX];
    return sm_state_path("tokens.json", path) ? sm_arena_text(a, sm_str_from(path)) : (sm_str){0};
}

sm_err gw_expand(sm_str text, sm_buf *out, sm_fault *fault)
{
    for (size_t i = 0; i < text.n; i++) {
        const char *end = text.n - i < 2 || text.p[i] != '$' || text.p[i + 1] != '{'
                              ? NULL
                              : memchr(text.p + i, '}', text.n - i);
        if (end == NULL) {
            sm_buf_byte(out, text.p[i]);
            continue;
        }
        char name[256];
        size_t n = (size_t)(end - text.p) - i - 2;
        if (n == 0 || n >= sizeof name)
            return sm_fault_set(fault, SEMEL_E_INVALID,
                                "an environment variable is written ${NAME}, with a name of at "
                                "most %zu letters, digits and _",
                                sizeof name - 1);
        memcpy(name, text.p + i + 2, n);
        name[n] = '\0';
        const char *value = getenv(name);
        if (value == NULL)
            return sm_fault_set(fault, SEMEL_E_INVALID,
                                "the environment variable %s is not set, and ${%s} stands for it",
                                name, name);
        sm_buf_text(out, value);
        i += n + 2;
    }
    if (out->err != SM_OK)
        return sm_fault_set(fault, out->err, "%s", semel_err_text(out->err));
    return SM_OK;
}

/* ---- addresses -------------------------------------------------------------------------------*/

static sm_err listen_unix(sm_arena *a, sm_str path, sm_str directory, gw_listen *out,
                          sm_fault *fault)
{
    out->path = gw_path_from(a, directory, path);
    if (out->path.p == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "%s", semel_err_text(SEMEL_E_NOMEM));
    if (path.n == 0 || out->path.n >= sizeof((struct sockaddr_un *)0)->sun_path)
        return sm_fault_set(fault, SEMEL_E_INVALID,
                            "listen: the path of a Unix socket has 1 to %zu bytes, such as "
                            "unix:/run/semel/semel.sock",
                            sizeof((struct sockaddr_un *)0)->sun_path - 1);
    out->loopback = true;
    return SM_OK;
}

/* The port behind the last colon; false if there is none. */
static bool split_port(sm_str text, sm_str *host, uint16_t *port)
{
    const char *colon = memrchr(text.p, ':', text.n);
    size_t at = colon == NULL ? text.n : (size_t)(colon - text.p), n = text.n - at;
    unsigned value = 0;
    if (n < 2 || n > 6)
        return false;
    for (size_t i = at + 1; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9')
            return false;
        value = value * 10 + (unsigned)(text.p[i] - '0');
    }
    *host = (sm_str){text.p, at};
    *port = (uint16_t)value;
    return value <= UINT16_MAX;
}

/* Whether a text is an address, and of this machine only. */
static bool address(sm_str host, char out[INET6_ADDRSTRLEN], bool *loopback)
{
    bool six = host.n > 2 && host.p[0] == '[' && host.p[host.n - 1] == ']';
    sm_str bare = six ? (sm_str){host.p + 1, host.n - 2} : host;
    struct in_addr v4;
    struct in6_addr v6;
    if (bare.n == 0 || bare.n >= INET6_ADDRSTRLEN)
        return false;
    memcpy(out, bare.p, bare.n);
    out[bare.n] = '\0';
    if (six && inet_pton(AF_INET6, out, &v6) == 1) {
        *loopback = IN6_IS_ADDR_LOOPBACK(&v6) ||
                    (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == IN_LOOPBACKNET);
        return true;
    }
    if (six || inet_pton(AF_INET, out, &v4) != 1)
        return false;
    *loopback = ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
    return true;
}

sm_err gw_listen_read(sm_arena *a, sm_str text, sm_str directory, gw_listen *out, sm_fault *fault)
{
    *out = (gw_listen){.text = sm_arena_text(a, text)};
    if (out->text.p == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "%s", semel_err_text(SEMEL_E_NOMEM));
    if (text.n >= 5 && memcmp(text.p, "unix:", 5) == 0)
        return listen_unix(a, (sm_str){text.p + 5, text.n - 5}, directory, out, fault);
    sm_str host = {0};
    char clean[INET6_ADDRSTRLEN];
    bool port = split_port(text, &host, &out->port);
    if (port && sm_str_is(host, "localhost"))
        host = SM_STR("127.0.0.1");
    if (!port || !address(host, clean, &out->loopback))
        return sm_fault_set(fault, SEMEL_E_INVALID,
                            "listen: expected an address and a port, such as 127.0.0.1:8787 or "
                            "[::1]:8787, or unix:/run/semel/semel.sock; found \"%.*s\"",
                            (int)(text.n < 100 ? text.n : 100), text.p);
    out->host = sm_arena_text(a, sm_str_from(clean));
    return out->host.p != NULL
               ? SM_OK
               : sm_fault_set(fault, SEMEL_E_NOMEM, "%s", semel_err_text(SEMEL_E_NOMEM));
}

/* ---- reading ---------------------------------------------------------------------------------*/

static const struct {
    const char *group, *field, *name;
} named[GW_NAMED] = {
    [GW_NAMED_CERTIFICATE] = {"tls", "certificate", "tls.certificate"},
    [GW_NAMED_KEY] = {"tls", "key", "tls.key"},
    [GW_NAMED_LEDGER] = {NULL, "ledger", "ledger"},
    [GW_NAMED_CONTRACT] = {NULL, "contract", "contract"},
    [GW_NAMED_TOKENS] = {NULL, "tokens", "tokens"},
    [GW_NAMED_SEAL_KEY] = {NULL, "seal_key", "seal_key"},
    [GW_NAMED_CA_FILE] = {NULL, "ca_file", "ca_file"},
};

static gw_config *config_new(void)
{
    gw_config *c = malloc(sizeof *c);
    if (c == NULL)
        return NULL;
    memcpy(c, gw_config_group.defaults, sizeof *c);
    sm_arena_init(&c->arena, SM_ARENA_MAX);
    for (size_t i = 0; i < GW_NAMED; i++)
        c->places[i] = (gw_place){.name = named[i].name};
    return c;
}

/* Where the file names what has to be there. */
static void find_places(gw_config *c, sm_str text, const sm_json *root)
{
    for (size_t i = 0; i < GW_NAMED; i++) {
        gw_place *at = &c->places[i];
        const sm_json *in = root;
        if (named[i].group != NULL)
            in = sm_json_find(root, sm_str_from(named[i].group));
        if (in != NULL && in->type == SM_JSON_OBJECT)
            in = sm_json_find(in, sm_str_from(named[i].field));
        else
            in = NULL;
        if (in != NULL)
            sm_text_position(text, in->at, &at->line, &at->column);
    }
}

void gw_config_free(gw_config *c)
{
    if (c == NULL)
        return;
    for (uint32_t i = 0; i < c->proxies.n; i++)
        sm_contracts_free(c->proxies.v[i].contracts);
    sm_arena_fini(&c->arena);
    free(c);
}

/* What a file may leave out. */
static bool fill_in(gw_config *c)
{
    if (c->listen.n == 0) {
        gw_listen *one = sm_arena_zalloc(&c->arena, 1, sizeof *one);
        if (one == NULL)
            return false;
        *one = (gw_listen){.text = SM_STR("127.0.0.1:8787"),
                           .host = SM_STR("127.0.0.1"),
                           .port = DEFAULT_PORT,
                           .loopback = true,
                           .place = {.name = "listen"}};
        c->listen = (gw_listens){one, 1};
    }
    if (c->tokens.p == NULL)
        c->tokens = default_tokens(&c->arena);
    return true;
}

/* Requests name a host, and one that nobody expects is refused, but not on Unix sockets. Addresses
 * that could not be read have no host and are told about already. */
static void lint_hosts(sm_loader *l, const sm_json *root, const gw_config *c)
{
    const sm_json *proxy = sm_json_find(root, SM_STR("behind_proxy"));
    const sm_json *listen = sm_json_find(root, SM_STR("listen"));
    bool tcp = false, open = false;
    for (uint32_t i = 0; i < c->listen.n; i++) {
        bool host = c->listen.v[i].host.p != NULL;
        tcp |= host;
        open |= host && !c->listen.v[i].loopback;
    }
    if (c->hosts.n > 0)
        return;
    if (c->behind_proxy && tcp)
        sm_advise(l, proxy,
                  "requests that come through the proxy name its host, which is refused unless it "
                  "is listed; write hosts: [semel.example.com]");
    else if (listen != NULL && open)
        sm_advise(l, listen,
                  "requests from other machines name this host, and a name that is not listed is "
                  "refused; write hosts: [semel.example.com]");
}

sm_err gw_config_read(sm_str name, sm_str text, gw_config **out, sm_report *report)
{
    *out = NULL;
    gw_config *c = config_new();
    if (c == NULL)
        return SEMEL_E_NOMEM;
    const sm_json *root;
    sm_fault fault;
    c->file = sm_arena_text(&c->arena, name);
    gw_config_loader loader = {.l = {.arena = &c->arena, .report = report}};
    loader.directory = directory_of(c->file);
    sm_err e =
        c->file.p == NULL ? SEMEL_E_NOMEM : sm_tree_read(&c->arena, name, text, &root, &fault);
    if (e == SM_OK && root->type != SM_JSON_OBJECT) {
        sm_complain(&loader.l, root,
                    "a configuration is a mapping with version and so on, found %s",
                    sm_found(&loader.l, root));
    } else if (e == SM_OK) {
        sm_group_read(&loader.l, &gw_config_group, "the configuration", root, c, NULL);
        loader.l.failed |= !fill_in(c);
        find_places(c, text, root);
        lint_hosts(&loader.l, root, c);
    } else if (e != SEMEL_E_NOMEM) {
        sm_report_add(report, SM_ERROR, fault.at, "%s", fault.text);
    }
    sm_report_sort(report);
    if (loader.l.failed)
        e = SEMEL_E_NOMEM;
    else if (e == SM_OK && report->errors > 0)
        e = SEMEL_E_INVALID;
    if (e == SM_OK)
        *out = c;
    else
        gw_config_free(c);
    return e;
}

sm_err gw_config_default(gw_config **out)
{
    gw_config *c = *out = config_new();
    if (c != NULL && fill_in(c))
        return SM_OK;
    gw_config_free(c);
    *out = NULL;
    return SEMEL_E_NOMEM;
}

sm_err gw_config_ledger(const gw_config *c, sm_buf *out, sm_fault *fault)
{
    sm_fault inner = {0};
    sm_err e = gw_expand(c->ledger, out, &inner);
    sm_buf_byte(out, '\0');
    if (e == SM_OK && out->err != SM_OK)
        e = sm_fault_set(&inner, out->err, "%s", semel_err_text(out->err));
    return e == SM_OK ? e
                      : gw_config_fault(fault, e, &c->places[GW_NAMED_LEDGER], "%s", inner.text);
}

/* ---- what may be started ---------------------------------------------------------------------*/

sm_err gw_config_fault(sm_fault *fault, sm_err e, const gw_place *at, const char *format, ...)
{
    char text[SEMEL_FAULT_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sm_fault_set(fault, e, "%s: %s", at->name, text);
    fault->line = at->line;
    fault->column = at->column;
    return e;
}

const gw_listen *gw_config_address(const gw_config *c, uint32_t i, const gw_upstream_api **api)
{
    *api = NULL;
    if (i < c->listen.n)
        return &c->listen.v[i];
    i -= c->listen.n;
    for (uint32_t k = 0; k < c->proxies.n; k++) {
        *api = &c->proxies.v[k];
        if (i < (*api)->listen.n)
            return &(*api)->listen.v[i];
        i -= (*api)->listen.n;
    }
    return NULL;
}

/* Another address before this one that is the same. */
static bool is_taken(const gw_config *c, const gw_listen *at)
{
    const gw_upstream_api *api;
    const gw_listen *other;
    for (uint32_t i = 0; (other = gw_config_address(c, i, &api)) != at; i++)
        if (at->path.p != NULL
                ? sm_str_eq(other->path, at->path)
                : at->port > 0 && other->port == at->port && sm_str_eq(other->host, at->host))
            return true;
    return false;
}

static sm_err check_address(const gw_config *c, const gw_listen *at, const gw_upstream_api *api,
                            sm_fault *fault)
{
    if (is_taken(c, at))
        return gw_config_fault(fault, SEMEL_E_INVALID, &at->place,
                               "%.*s is there already; each proxy needs an address of its own",
                               SM_FMT(at->text));
    if (at->loopback)
        return SM_OK;
    if (api != NULL && api->client.on)
        return gw_config_fault(
            fault, SEMEL_E_INVALID, &api->client.place,
            "who comes to the address without a token would be \"%.*s\", and %.*s can be reached "
            "from other machines. Remove client, so that clients need Semel-Token; or listen on "
            "127.0.0.1 or on unix:PATH only",
            SM_FMT(api->client.name), SM_FMT(at->text));
    if (!c->tls.on && !c->behind_proxy)
        return gw_config_fault(
            fault, SEMEL_E_INVALID, &at->place,
            "%.*s can be reached from other machines, and tokens would travel there for "
            "everyone to read. Give tls: { certificate: FILE, key: FILE }; or write "
            "behind_proxy: true if a reverse proxy in front of it speaks TLS; or listen on "
            "127.0.0.1 or on unix:PATH only",
            SM_FMT(at->text));
    return SM_OK;
}

sm_err gw_config_safe(const gw_config *c, sm_fault *fault)
{
    const gw_upstream_api *api;
    const gw_listen *at;
    for (uint32_t i = 0; (at = gw_config_address(c, i, &api)) != NULL; i++) {
        sm_err e = i < GW_ADDRESSES_MAX
                       ? check_address(c, at, api, fault)
                       : gw_config_fault(fault, SEMEL_E_INVALID, &at->place,
                                         "there may be %u addresses in all", GW_ADDRESSES_MAX);
        if (e != SM_OK)
            return e;
    }
    if (c->tokens.p == NULL)
        return sm_fault_set(fault, SEMEL_E_INVALID,
                            "there is no home directory for the tokens; name a file for them, such "
                            "as tokens: /var/lib/semel/tokens.json");
    return SM_OK;
}
