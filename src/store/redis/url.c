/*
 * What the ledger's URL says about a Redis server.
 *
 *     redis://[user[:password]@]host[:port][,host[:port]...][/db][?options]
 *
 * Several hosts are nodes of one cluster to ask, or servers of which one is the master.
 * A fault names the option that is wrong and never its neighbours: the URL may hold a password.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "store/redis/redis.h"
#include "store/shared/url.h"

#define PORT          6379
#define DB_MAX        9999
#define PASSWORD_MAX  4096u
#define POOL_MAX      1024
#define TIMEOUT_MAX   600000
#define KNOWN_OPTIONS "prefix, pool, timeout, socket, password_file, accept_data_loss, cluster"

static semel_err bad(semel_fault *fault, const char *what)
{
    return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "the ledger's URL %s", what);
}

static semel_err yes_or_no(const sm_url_option *o, bool *yes, semel_fault *fault)
{
    *yes = sm_str_is(o->value, "yes");
    if (o->value.p == NULL || *yes || sm_str_is(o->value, "no"))
        return SEMEL_OK;
    return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "the ledger's URL needs %s=yes or %s=no",
                        o->name, o->name);
}

/* The first line of a file, so that a password need not be where others can see it. */
static semel_err read_password(sm_arena *a, const char *path, sm_str *out, semel_fault *fault)
{
    char *p = sm_arena_alloc(a, PASSWORD_MAX + 1);
    if (p == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, p, PASSWORD_MAX + 1);
    int saved = errno;
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "the password file %s: %s", path,
                            strerror(saved));
    const char *end = memchr(p, '\n', (size_t)n);
    size_t len = end == NULL ? (size_t)n : (size_t)(end - p);
    if (len > 0 && p[len - 1] == '\r')
        len--;
    if (len == 0 || len > PASSWORD_MAX)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "the password file %s needs one line of at most %u bytes", path,
                            PASSWORD_MAX);
    *out = (sm_str){p, len};
    return SEMEL_OK;
}

static semel_err read_user(sm_arena *a, sm_str text, sm_rd_config *c, semel_fault *fault)
{
    const char *colon = memchr(text.p, ':', text.n);
    sm_str user = {text.p, colon == NULL ? text.n : (size_t)(colon - text.p)};
    semel_err e = sm_url_decode(a, user, &c->user);
    if (e == SEMEL_OK && colon != NULL)
        e = sm_url_decode(a, (sm_str){colon + 1, text.n - user.n - 1}, &c->password);
    return e == SEMEL_E_BAD_ARGUMENTS ? bad(fault, "has a user or password that cannot be read")
           : e != SEMEL_OK            ? sm_fault_set(fault, e, "out of memory")
                                      : e;
}

static bool read_digits(sm_str text, int most, int *out)
{
    int n = 0;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9' || n > most)
            return false;
        n = n * 10 + (text.p[i] - '0');
    }
    *out = n;
    return text.n > 0 && n <= most;
}

/* host, host:port, [v6], [v6]:port */
static semel_err read_host(sm_arena *a, sm_str text, sm_rd_place *out, semel_fault *fault)
{
    sm_str host = text, port = {0};
    const char *close = text.n > 0 && text.p[0] == '[' ? memchr(text.p, ']', text.n) : NULL;
    const char *from = close == NULL ? text.p : close;
    const char *colon = memchr(from, ':', (size_t)(text.p + text.n - from));
    if (text.n > 0 && text.p[0] == '[' &&
        (close == NULL || (close + 1 < text.p + text.n && close[1] != ':')))
        return bad(fault, "has a host that cannot be read");
    if (colon != NULL) {
        host.n = (size_t)(colon - text.p);
        port = (sm_str){colon + 1, text.n - host.n - 1};
    }
    if (close != NULL)
        host = (sm_str){text.p + 1, (size_t)(close - text.p) - 1};
    out->port = PORT;
    if (port.p != NULL && (!read_digits(port, 65535, &out->port) || out->port == 0))
        return bad(fault, "needs a port from 1 to 65535");
    if (host.n == 0)
        host = SM_STR("localhost");
    semel_err e = sm_url_decode(a, host, &host);
    out->host = host.p;
    return e == SEMEL_OK ? e : bad(fault, "has a host that cannot be read");
}

static semel_err read_hosts(sm_arena *a, sm_str text, sm_rd_config *c, semel_fault *fault)
{
    semel_err e = SEMEL_OK;
    const char *end = text.p + text.n, *comma = NULL;
    bool several = text.n > 0 && memchr(text.p, ',', text.n) != NULL;
    for (const char *p = text.p; e == SEMEL_OK; p = comma + 1) {
        comma = p == end ? NULL : memchr(p, ',', (size_t)(end - p));
        sm_str one = {p, (size_t)((comma == NULL ? end : comma) - p)};
        if (c->n_places == SM_RD_PLACES_MAX)
            return bad(fault, "names more than 16 hosts");
        if (several && one.n == 0)
            return bad(fault, "has a comma without a host beside it");
        e = read_host(a, one, &c->places[c->n_places++], fault);
        if (comma == NULL)
            break;
    }
    return e;
}

void sm_rd_config_where(const sm_rd_config *c, char *out, size_t n)
{
    sm_buf b;
    sm_buf_init(&b, 1 << 16);
    sm_buf_text(&b, c->places[0].port == 0 ? "redis " : "redis://");
    for (unsigned i = 0; i < c->n_places; i++) {
        const sm_rd_place *p = &c->places[i];
        bool v6 = p->port != 0 && strchr(p->host, ':') != NULL;
        sm_buf_printf(&b, "%s%s%s%s", i == 0 ? "" : ",", v6 ? "[" : "", p->host, v6 ? "]" : "");
        if (p->port != 0)
            sm_buf_printf(&b, ":%d", p->port);
    }
    if (c->places[0].port != 0)
        sm_buf_printf(&b, "/%d", c->db);
    snprintf(out, n, "%.*s", (int)b.len, b.p == NULL ? "" : b.p);
    sm_buf_fini(&b);
}

enum { PREFIX, POOL, TIMEOUT, SOCKET, PASSWORD_FILE, ACCEPT, CLUSTER, OPTIONS };

static semel_err read_options(sm_arena *a, const sm_url_option *o, sm_rd_config *c,
                              semel_fault *fault)
{
    int64_t pool;
    bool yes = false;
    semel_err e = sm_url_number(&o[POOL], 1, POOL_MAX, 16, &pool, fault);
    if (e == SEMEL_OK)
        e = sm_url_number(&o[TIMEOUT], 10, TIMEOUT_MAX, 10000, &c->timeout_ms, fault);
    if (e == SEMEL_OK)
        e = yes_or_no(&o[ACCEPT], &c->accept_loss, fault);
    if (e == SEMEL_OK)
        e = yes_or_no(&o[CLUSTER], &yes, fault);
    if (e != SEMEL_OK)
        return e;
    c->pool = (unsigned)pool;
    c->cluster = o[CLUSTER].value.p == NULL ? SM_RD_FIND_OUT : yes ? SM_RD_CLUSTER : SM_RD_PLAIN;
    c->prefix = o[PREFIX].value.p == NULL ? SM_STR("semel:") : o[PREFIX].value;
    /* A brace of its own would move the hash tag, and with it all shards into one slot. */
    if (c->prefix.n > SM_RD_PREFIX_MAX || memchr(c->prefix.p, '{', c->prefix.n) != NULL ||
        memchr(c->prefix.p, '}', c->prefix.n) != NULL)
        return bad(fault, "needs a prefix of at most 64 bytes without braces");
    if (o[SOCKET].value.p != NULL) {
        c->places[0] = (sm_rd_place){.host = o[SOCKET].value.p};
        c->n_places = 1;
    }
    if (o[PASSWORD_FILE].value.p == NULL)
        return SEMEL_OK;
    if (c->password.p != NULL)
        return bad(fault, "has both a password and a password_file");
    return read_password(a, o[PASSWORD_FILE].value.p, &c->password, fault);
}

semel_err sm_rd_config_read(sm_arena *a, semel_str url, sm_rd_config *out, semel_fault *fault)
{
    const sm_str scheme = SM_STR("redis://");
    sm_url_option o[OPTIONS] = {{"prefix", {0}}, {"pool", {0}},          {"timeout", {0}},
                                {"socket", {0}}, {"password_file", {0}}, {"accept_data_loss", {0}},
                                {"cluster", {0}}};
    *out = (sm_rd_config){0};
    if (url.n < scheme.n || memcmp(url.p, scheme.p, scheme.n) != 0)
        return bad(fault, "has the form redis://user@host:port/db?options");
    semel_err e = sm_url_take(a, &url, o, OPTIONS, fault);
    if (e != SEMEL_OK)
        return e;
    if (memchr(url.p, '?', url.n) != NULL)
        return bad(fault, "has an option that is not known; there are: " KNOWN_OPTIONS);
    sm_str rest = {url.p + scheme.n, url.n - scheme.n};
    const char *slash = memchr(rest.p, '/', rest.n);
    sm_str authority = {rest.p, slash == NULL ? rest.n : (size_t)(slash - rest.p)};
    sm_str db = slash == NULL ? (sm_str){0} : (sm_str){slash + 1, rest.n - authority.n - 1};
    const char *at = authority.n == 0 ? NULL : memrchr(authority.p, '@', authority.n);
    if (at != NULL) {
        sm_str user = {authority.p, (size_t)(at - authority.p)};
        authority = (sm_str){at + 1, authority.n - user.n - 1};
        e = read_user(a, user, out, fault);
    }
    if (e == SEMEL_OK)
        e = read_hosts(a, authority, out, fault);
    if (e == SEMEL_OK && db.n > 0 && !read_digits(db, DB_MAX, &out->db))
        e = bad(fault, "needs the number of a database after the host");
    return e == SEMEL_OK ? read_options(a, o, out, fault) : e;
}
