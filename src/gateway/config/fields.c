/*
 * The tables behind the configuration file: what each field is called, takes and defaults to.
 *
 * What it says about those behind the gateway is read in behind.c. A value with a secret in
 * it is not repeated in a message.
 */
#include "base/container.h"
#include "base/utf8.h"
#include "gateway/config.h"

#define COUNT(array)     (sizeof(array) / sizeof((array)[0]))
#define SECONDS(n)       ((int64_t)(n)*1000)
#define KIB              ((int64_t)1 << 10)
#define MIB              ((int64_t)1 << 20)
#define LISTENERS_MAX    8u
#define HOSTS_MAX        32u
#define HOST_NAME_MAX    253u
#define LEDGER_BYTES_MAX 4000u

/* ---- texts and lists of them -----------------------------------------------------------------*/

static bool starts(sm_str s, const char *with)
{
    size_t n = strlen(with);
    return s.n >= n && memcmp(s.p, with, n) == 0;
}

/* Reads a text; false, and complained about, if it is none. */
static bool read_text(sm_loader *l, const char *name, const sm_json *value, sm_str *out)
{
    const sm_field text = {.name = name, .kind = SM_KIND_STRING};
    return sm_field_read(l, &text, value, out);
}

/* How many items a list has, of which the first comes back; one value stands for a list of one. */
static uint32_t list_of(sm_loader *l, const sm_json *value, const char *name, uint32_t most,
                        const sm_json **first)
{
    if (value->type != SM_JSON_ARRAY) {
        *first = value;
        return 1;
    }
    if (value->len == 0 || value->len > most) {
        sm_complain(l, value, "%s: expected one, or a list of 1 to %u, found a list of %u", name,
                    most, value->len);
        return 0;
    }
    *first = value + 1;
    return value->len;
}

gw_place gw_place_of(sm_loader *l, const char *name, const sm_json *value)
{
    gw_place at = {.name = name};
    sm_text_position(l->report->source, value->at, &at.line, &at.column);
    return at;
}

void gw_read_path(sm_loader *l, const sm_json *value, void *out)
{
    sm_str text;
    if (!read_text(l, "this", value, &text))
        return;
    if (memmem(text.p, text.n, "${", 2) != NULL) {
        sm_complain(l, value,
                    "environment variables (${...}) are filled in only in ledger and in the values "
                    "of headers and env; write the file's name out");
        return;
    }
    sm_str path = gw_path_from(l->arena, SM_CONTAINER(l, gw_config_loader, l)->directory, text);
    l->failed |= path.p == NULL;
    *(sm_str *)out = path;
}

static bool name_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
}

/* A copy in lowercase: host names ignore case. */
static sm_str lower(sm_loader *l, sm_str text)
{
    char *p = sm_loader_alloc(l, text.n + 1, 1);
    for (size_t i = 0; p != NULL && i < text.n; i++)
        p[i] = (char)(text.p[i] >= 'A' && text.p[i] <= 'Z' ? text.p[i] | 0x20 : text.p[i]);
    return (sm_str){p, p == NULL ? 0 : text.n};
}

static bool host_name(sm_str s)
{
    bool good = s.n > 0 && s.n <= HOST_NAME_MAX;
    for (size_t i = 0; good && i < s.n; i++)
        good = name_character(s.p[i]);
    return good;
}

/* An address of the sixth version, as it stands in a URL. */
static bool bracketed(sm_str s)
{
    bool good = s.n > 2 && s.n < 48 && s.p[0] == '[' && s.p[s.n - 1] == ']';
    for (size_t i = 1; good && i + 1 < s.n; i++)
        good = memchr("0123456789abcdef:.", s.p[i], 18) != NULL;
    return good;
}

static bool check_host(sm_str s)
{
    return host_name(s) || bracketed(s);
}

/* scheme://host[:port], which is all that browsers send. */
static bool check_origin(sm_str s)
{
    size_t scheme = starts(s, "http://") ? 7 : starts(s, "https://") ? 8 : 0;
    sm_str host = {s.p + scheme, s.n - scheme};
    size_t digits = 0;
    while (digits < host.n && host.p[host.n - 1 - digits] >= '0' &&
           host.p[host.n - 1 - digits] <= '9')
        digits++;
    if (digits > 0 && digits <= 5 && host.n > digits && host.p[host.n - 1 - digits] == ':')
        host.n -= digits + 1;
    return scheme > 0 && check_host(host);
}

static void read_names(sm_loader *l, const sm_json *value, const char *name, uint32_t most,
                       bool (*right)(sm_str text), const char *expected, gw_texts *out)
{
    const sm_json *item = NULL;
    uint32_t n = list_of(l, value, name, most, &item);
    sm_str *v = sm_loader_alloc(l, n, sizeof *v);
    for (uint32_t i = 0; v != NULL && i < n; i++, item = sm_json_next(item)) {
        if (!read_text(l, name, item, &v[i]))
            continue;
        v[i] = lower(l, v[i]);
        if (!right(v[i]))
            sm_complain(l, item, "%s: expected %s, found %s", name, expected, sm_found(l, item));
    }
    *out = (gw_texts){v, n};
}

static void read_hosts(sm_loader *l, const sm_json *value, void *out)
{
    read_names(l, value, "hosts", HOSTS_MAX, check_host,
               "the name in a URL of ours, without scheme and port, such as semel.example.com",
               out);
}

static void read_origins(sm_loader *l, const sm_json *value, void *out)
{
    read_names(l, value, "origins", HOSTS_MAX, check_origin,
               "scheme and host of a page, without a path, such as https://ops.example.com", out);
}

/* ---- where to listen, and the ledger ---------------------------------------------------------*/

void gw_read_listen(sm_loader *l, const sm_json *value, void *out)
{
    const sm_json *item = NULL;
    uint32_t n = list_of(l, value, "listen", LISTENERS_MAX, &item);
    gw_listen *v = sm_loader_alloc(l, n, sizeof *v);
    for (uint32_t i = 0; v != NULL && i < n; i++, item = sm_json_next(item)) {
        sm_str text;
        sm_fault fault;
        if (item->type == SM_JSON_NUMBER) {
            sm_complain(l, item,
                        "listen: an address belongs before the port; write 127.0.0.1:%.*s for this "
                        "machine only",
                        SM_FMT(sm_json_text(item)));
            continue;
        }
        if (!read_text(l, "listen", item, &text))
            continue;
        sm_err e = gw_listen_read(l->arena, text, SM_CONTAINER(l, gw_config_loader, l)->directory,
                                  &v[i], &fault);
        v[i].place = gw_place_of(l, "listen", item);
        if (e != SM_OK)
            sm_complain(l, item, "%s", fault.text);
        for (uint32_t j = 0; e == SM_OK && j < i; j++) {
            if (sm_str_eq(v[j].text, v[i].text) && v[i].port + v[i].path.n > 0)
                sm_complain(l, item, "listen: %.*s is there already; remove one of them",
                            SM_FMT(text));
        }
    }
    *(gw_listens *)out = (gw_listens){v, n};
}

/* Whether a URL has a password that is written out: user:password@ or a password parameter. */
static bool literal_password(sm_str url)
{
    const char *end = url.p + url.n, *host = memmem(url.p, url.n, "//", 2);
    const char *start = host == NULL ? end : host + 2;
    size_t authority = 0;
    while (start + authority < end && memchr("/?#", start[authority], 3) == NULL)
        authority++;
    const char *at = memrchr(start, '@', authority);
    const char *colon = at == NULL ? NULL : memchr(start, ':', (size_t)(at - start));
    const char *given = colon == NULL ? NULL : colon + 1;
    const char *named = memmem(url.p, url.n, "password=", 9);
    bool user = given != NULL && given < at && strncmp(given, "${", 2) != 0;
    return user || (named != NULL && named + 9 < end && strncmp(named + 9, "${", 2) != 0);
}

static void read_ledger(sm_loader *l, const sm_json *value, void *out)
{
    static const char *const schemes[] = {
        "sqlite:", "postgres://", "postgresql://", "redis://", "rediss://", "memory:", "${"};
    sm_str text;
    if (value->type != SM_JSON_STRING || !read_text(l, "ledger", value, &text)) {
        if (value->type != SM_JSON_STRING)
            sm_complain(l, value, "ledger: expected a URL such as sqlite:/var/lib/semel/ledger.db");
        return;
    }
    bool known = false;
    for (size_t i = 0; i < COUNT(schemes); i++)
        known |= starts(text, schemes[i]);
    if (!known || text.n > LEDGER_BYTES_MAX)
        sm_complain(l, value,
                    "ledger: expected sqlite:PATH, postgres://..., redis://... or \"memory:\" (in "
                    "quotes, for its colon)");
    sm_check_variables(l, value);
    if (literal_password(text))
        sm_advise(l, value,
                  "ledger: a password is written out here; keep it in the environment and write "
                  "${NAME} in its place");
    if (starts(text, "memory:"))
        sm_advise(l, value,
                  "ledger: what is kept in memory is gone with the process, and retries after that "
                  "run again; write sqlite:PATH");
    if (starts(text, "sqlite:") && !starts(text, "sqlite:${")) {
        sm_str path = {text.p + 7, text.n - 7};
        path = gw_path_from(l->arena, SM_CONTAINER(l, gw_config_loader, l)->directory, path);
        text = sm_arena_printf(l->arena, "sqlite:%.*s", SM_FMT(path));
        l->failed |= path.p == NULL || text.p == NULL;
    }
    *(sm_str *)out = text;
}

/* ---- the whole -------------------------------------------------------------------------------*/

static const sm_field tls_fields[] = {
    {"certificate", SM_KIND_CUSTOM, SM_FIELD(gw_tls, certificate), SM_FIELD_REQUIRED,
     .read = gw_read_path},
    {"key", SM_KIND_CUSTOM, SM_FIELD(gw_tls, key), SM_FIELD_REQUIRED, .read = gw_read_path},
};
static const sm_group tls_group = {tls_fields, COUNT(tls_fields), .size = sizeof(gw_tls)};

static const sm_field limit_fields[] = {
    {"body", SM_KIND_SIZE, SM_FIELD(gw_limits, body_bytes), .min = KIB, .max = 32 * MIB},
    {"result", SM_KIND_SIZE, SM_FIELD(gw_limits, result_bytes), .min = KIB, .max = 1024 * MIB},
    {"connections", SM_KIND_COUNT, SM_FIELD(gw_limits, connections), .min = 1, .max = 1000000},
    {"connections_per_address", SM_KIND_COUNT, SM_FIELD(gw_limits, connections_per_address),
     .min = 0, .max = 1000000},
    {"in_flight", SM_KIND_COUNT, SM_FIELD(gw_limits, in_flight), .min = 1, .max = 100000},
    {"waiting", SM_KIND_COUNT, SM_FIELD(gw_limits, waiting), .min = 1, .max = 1000000},
    {"streams", SM_KIND_COUNT, SM_FIELD(gw_limits, streams), .min = 0, .max = 10000},
    {"request", SM_KIND_DURATION, SM_FIELD(gw_limits, request_ms)},
    {"idle", SM_KIND_DURATION, SM_FIELD(gw_limits, idle_ms)},
    {"wait", SM_KIND_DURATION, SM_FIELD(gw_limits, wait_ms), SM_FIELD_ZERO},
};
#define LIMITS                                                                                     \
    {                                                                                              \
        .body_bytes = MIB, .result_bytes = 16 * MIB, .connections = 12000, .in_flight = 2000,      \
        .waiting = 10000, .streams = 64, .request_ms = SECONDS(10), .idle_ms = SECONDS(75),        \
        .wait_ms = SECONDS(300)                                                                    \
    }
static const gw_limits limit_defaults = LIMITS;
static const sm_group limit_group = {limit_fields, COUNT(limit_fields), &limit_defaults,
                                     .size = sizeof(gw_limits)};

static const char *const format_names[] = {"text", "json", NULL};
static const char *const level_names[] = {"debug", "info", "warn", "error", NULL};
static const char *const request_names[] = {"writes", "all", "none", NULL};
static const sm_field log_fields[] = {
    {"format", SM_KIND_ENUM, SM_FIELD(gw_log_rule, format), .names = format_names},
    {"level", SM_KIND_ENUM, SM_FIELD(gw_log_rule, level), .names = level_names},
    {"requests", SM_KIND_ENUM, SM_FIELD(gw_log_rule, requests), .names = request_names},
};
static const gw_log_rule log_defaults = {.level = 1};
static const sm_group log_group = {log_fields, COUNT(log_fields), &log_defaults,
                                   .size = sizeof(gw_log_rule)};

static const sm_field config_fields[] = {
    {"version", SM_KIND_COUNT, SM_FIELD(gw_config, version), SM_FIELD_REQUIRED, .min = 1, .max = 1},
    {"listen", SM_KIND_CUSTOM, SM_FIELD(gw_config, listen), .read = gw_read_listen},
    {"tls", SM_KIND_GROUP, SM_FIELD(gw_config, tls), SM_FIELD_OFF, .group = &tls_group},
    {"behind_proxy", SM_KIND_SWITCH, SM_FIELD(gw_config, behind_proxy)},
    {"hosts", SM_KIND_CUSTOM, SM_FIELD(gw_config, hosts), .read = read_hosts},
    {"origins", SM_KIND_CUSTOM, SM_FIELD(gw_config, origins), .read = read_origins},
    {"ledger", SM_KIND_CUSTOM, SM_FIELD(gw_config, ledger), .read = read_ledger},
    {"contract", SM_KIND_CUSTOM, SM_FIELD(gw_config, contract), .read = gw_read_path},
    {"tokens", SM_KIND_CUSTOM, SM_FIELD(gw_config, tokens), .read = gw_read_path},
    {"seal_key", SM_KIND_CUSTOM, SM_FIELD(gw_config, seal_key), .read = gw_read_path},
    {"ca_file", SM_KIND_CUSTOM, SM_FIELD(gw_config, ca_file), .read = gw_read_path},
    {"proxies", SM_KIND_CUSTOM, SM_FIELD(gw_config, proxies), .read = gw_read_proxies},
    {"mcp", SM_KIND_CUSTOM, SM_FIELD(gw_config, mcp), .read = gw_read_mcp},
    {"limits", SM_KIND_GROUP, SM_FIELD(gw_config, limits), .group = &limit_group},
    {"log", SM_KIND_GROUP, SM_FIELD(gw_config, log), .group = &log_group},
    {"drain", SM_KIND_DURATION, SM_FIELD(gw_config, drain_ms), SM_FIELD_ZERO},
    {"threads", SM_KIND_COUNT, SM_FIELD(gw_config, threads), .min = 0, .max = 64},
};
static const gw_config config_defaults = {
    .limits = LIMITS, .log = {.level = 1}, .drain_ms = SECONDS(30)};
const sm_group gw_config_group = {config_fields, COUNT(config_fields), &config_defaults,
                                  .size = sizeof(gw_config)};
