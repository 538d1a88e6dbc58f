/*
 * The ledger's URL: our own options are taken out, and the rest is libpq's business.
 *
 * libpq's words about a text that it cannot read may quote that text, password and all. So they are
 * never passed on: a sentence of our own says what is wrong, and may name an option.
 */
#include "store/postgres/postgres.h"

#include <stdio.h>
#include <stdlib.h>

#include "store/shared/url.h"

#define URL_ARENA ((size_t)64 << 10)
#define OWN_LIST  "pooler, listen, schema, pool, timeout, accept_data_loss"

/* A text for libpq: what it is called, and the options of ours that it may have. */
typedef struct source {
    const char *what;
    const char *const *own; /* ends with a NULL */
} source;

static const char *const own_names[] = {"pooler",  "listen",           "schema", "pool",
                                        "timeout", "accept_data_loss", NULL};
static const char *const no_names[] = {NULL};
static const source of_main = {"the ledger's URL", own_names};
static const source of_listen = {"listen= in the ledger's URL", no_names};

/* ---- libpq's options -------------------------------------------------------------------------*/

static const char *value_of(const sm_pg_target *t, const char *name)
{
    for (const PQconninfoOption *o = t->options; o != NULL && o->keyword != NULL; o++) {
        if (strcmp(o->keyword, name) == 0 && o->val != NULL && o->val[0] != '\0')
            return o->val;
    }
    return NULL;
}

/* A decision is never read from a replica, whatever the URL or the environment says. */
static sm_err check_session(const sm_pg_target *t, const source *from, semel_fault *fault)
{
    const char *attrs = value_of(t, "target_session_attrs");
    if (attrs == NULL || strcmp(attrs, "read-write") == 0 || strcmp(attrs, "primary") == 0)
        return SM_OK;
    return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                        "%s asks for a server that may be a replica, from which no decision may be "
                        "read: leave target_session_attrs out",
                        from->what);
}

/* A password with a special character in it makes libpq take a part of it for a host, a port or a
 * database, which are named in messages. Such a URL has an @ where none belongs, or a port that is
 * no number. */
static bool is_clear(const sm_pg_target *t, const char *text)
{
    const char *rest = strstr(text, "://"), *port = value_of(t, "port");
    if (port != NULL && port[strspn(port, "0123456789,")] != '\0')
        return false;
    if (rest == NULL)
        return true; /* keywords and values */
    const char *at = strchr(rest, '@');
    size_t head = strcspn(rest + 3, "/?") + 3, path = strcspn(rest, "?");
    return at == NULL || (size_t)(at - rest) > path ||
           ((size_t)(at - rest) < head &&
            memchr(at + 1, '@', path - (size_t)(at + 1 - rest)) == NULL);
}

static sm_err target_init(sm_pg_target *t, const char *text, const source *from, int64_t timeout_ms,
                          semel_fault *fault)
{
    char *error = NULL;
    t->options = PQconninfoParse(text, &error);
    bool nomem = t->options == NULL && error == NULL;
    PQfreemem(error);
    if (nomem)
        return sm_pg_nomem(fault);
    if (t->options == NULL && sm_pg_find_unknown(text, from->what, from->own, OWN_LIST, fault))
        return SEMEL_E_BAD_ARGUMENTS;
    if (t->options == NULL || !is_clear(t, text))
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "%s cannot be read: write postgres://user@host:port/"
                            "database?option=value, with %%XX for special characters in each part",
                            from->what);
    sm_err e = check_session(t, from, fault);
    if (e != SM_OK)
        return e;
    /* A server that vanished is noticed by the kernel at about the time at which we give up. */
    snprintf(t->timeout, sizeof t->timeout, "%lld", (long long)timeout_ms);
    snprintf(t->idle, sizeof t->idle, "%lld",
             (long long)(timeout_ms < 2000 ? 1 : timeout_ms / 2000));
    const struct {
        const char *key, *value;
    } defaults[] = {{"application_name", "semel"},    {"target_session_attrs", "read-write"},
                    {"tcp_user_timeout", t->timeout}, {"keepalives_idle", t->idle},
                    {"keepalives_interval", "2"},     {"keepalives_count", "3"}};
    size_t n = 0;
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        if (value_of(t, defaults[i].key) == NULL) {
            t->keys[n] = defaults[i].key;
            t->values[n++] = defaults[i].value;
        }
    }
    for (const PQconninfoOption *o = t->options; o->keyword != NULL; o++) {
        if (o->val == NULL || o->val[0] == '\0')
            continue;
        if (n == SM_PG_OPTIONS_MAX)
            return sm_fault_set(fault, SEMEL_E_LIMIT, "the ledger's URL has too many options");
        t->keys[n] = o->keyword;
        t->values[n++] = o->val;
    }
    return SM_OK;
}

static void target_fini(sm_pg_target *t)
{
    for (PQconninfoOption *o = t->options; o != NULL && o->keyword != NULL; o++) {
        if (o->val != NULL)
            explicit_bzero(o->val, strlen(o->val));
    }
    if (t->options != NULL)
        PQconninfoFree(t->options);
    *t = (sm_pg_target){0};
}

/* ---- our own options -------------------------------------------------------------------------*/

enum { POOLER, LISTEN, SCHEMA, POOL, TIMEOUT, ACCEPT, OWN_COUNT }; /* as in own_names */

_Static_assert(sizeof own_names / sizeof *own_names == OWN_COUNT + 1, "one name for each");

/* The schema's name is written into statements, so it is a plain one. */
static sm_err take_schema(sm_pg_settings *s, const sm_url_option *o, semel_fault *fault)
{
    semel_str name = o->value.p == NULL ? SM_STR("semel") : o->value;
    bool good = name.n > 0 && name.n <= SM_PG_NAME_MAX && !(name.p[0] >= '0' && name.p[0] <= '9') &&
                (name.n < 3 || memcmp(name.p, "pg_", 3) != 0);
    for (size_t i = 0; good && i < name.n; i++) {
        char c = name.p[i];
        good = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    }
    if (!good)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the ledger's URL needs a schema of at most %u lowercase letters, "
                            "digits and _, which does not begin with a digit or with pg_",
                            SM_PG_NAME_MAX);
    snprintf(s->schema, sizeof s->schema, "%.*s", SM_FMT(name));
    snprintf(s->channel, sizeof s->channel, "semel_%.*s", SM_FMT(name));
    return SM_OK;
}

/* An option that has one possible value. */
static sm_err take_word(const sm_url_option *o, const char *word, bool *out, semel_fault *fault)
{
    *out = o->value.p != NULL;
    if (o->value.p == NULL || sm_str_is(o->value, word))
        return SM_OK;
    return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "the ledger's URL can have %s=%s, or no %s",
                        o->name, word, o->name);
}

static sm_err take_yes(const sm_url_option *o, bool *out, semel_fault *fault)
{
    *out = o->value.p != NULL && sm_str_is(o->value, "yes");
    if (o->value.p == NULL || *out || sm_str_is(o->value, "no"))
        return SM_OK;
    return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "the ledger's URL can have %s=yes or %s=no",
                        o->name, o->name);
}

static sm_err take_own(sm_pg_settings *s, const sm_url_option own[OWN_COUNT], semel_fault *fault)
{
    sm_err e = take_word(&own[POOLER], "transaction", &s->pooler, fault);
    if (e == SM_OK)
        e = take_yes(&own[ACCEPT], &s->accept_loss, fault);
    if (e == SM_OK)
        e = take_schema(s, &own[SCHEMA], fault);
    if (e == SM_OK)
        e = sm_url_number(&own[POOL], 1, SM_PG_POOL_MAX, 16, &s->pool, fault);
    if (e == SM_OK)
        e = sm_url_number(&own[TIMEOUT], 100, 600000, 10000, &s->timeout_ms, fault);
    return e;
}

/* What libpq gets: the URL, or what follows the scheme if that is not //. */
static const char *for_libpq(semel_str url)
{
    const char *colon = memchr(url.p, ':', url.n);
    return colon != NULL && strncmp(colon, "://", 3) != 0 ? colon + 1 : url.p;
}

sm_err sm_pg_settings_init(sm_pg_settings *s, semel_str url, semel_fault *fault)
{
    sm_url_option own[OWN_COUNT];
    for (size_t i = 0; i < OWN_COUNT; i++)
        own[i] = (sm_url_option){.name = own_names[i]};
    *s = (sm_pg_settings){0};
    sm_arena a;
    sm_arena_init(&a, URL_ARENA);
    sm_err e = memchr(url.p, '\0', url.n) == NULL
                   ? sm_url_take(&a, &url, own, OWN_COUNT, fault)
                   : sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "the ledger's URL has a NUL in it");
    if (e == SM_OK)
        e = take_own(s, own, fault);
    if (e == SM_OK)
        e = target_init(&s->main, for_libpq(url), &of_main, s->timeout_ms, fault);
    if (e == SM_OK && own[LISTEN].value.p != NULL)
        e = target_init(&s->listen, for_libpq(own[LISTEN].value), &of_listen, s->timeout_ms, fault);
    if (e == SM_OK)
        explicit_bzero((char *)(uintptr_t)url.p, url.n); /* the arena's copy */
    sm_arena_fini(&a);
    if (e != SM_OK)
        sm_pg_settings_fini(s);
    return e;
}

void sm_pg_settings_fini(sm_pg_settings *s)
{
    target_fini(&s->main);
    target_fini(&s->listen);
}
