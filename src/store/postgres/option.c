/*
 * Which option of a URL nobody knows.
 *
 * It is asked after libpq could not read a text, and names options, never their values. Even a name
 * may be a part of a secret: a password with a special character in it looks like more options. So
 * a text in which that may be the case is not quoted, and neither is what is not like a name.
 */
#include "store/postgres/postgres.h"

#include <stdio.h>

#include "base/suggest.h"

#define SPACES     " \t\n\v\f\r"
#define OPTION_MAX 32u

typedef struct search {
    PQconninfoOption *known; /* libpq's */
    const char *const *own;  /* ours; ends with a NULL */
    bool secret;             /* what follows may belong to a password */
    char found[160];         /* for people */
} search;

static bool is_ours(const search *s, semel_str name)
{
    for (const char *const *o = s->own; *o != NULL; o++) {
        if (sm_str_is(name, *o))
            return true;
    }
    return false;
}

static bool is_known(const search *s, semel_str name)
{
    for (const PQconninfoOption *o = s->known; o->keyword != NULL; o++) {
        if (sm_str_is(name, o->keyword))
            return true;
    }
    return false;
}

static bool is_plain(semel_str name)
{
    bool plain = name.n > 0 && name.n <= OPTION_MAX;
    for (size_t i = 0; plain && i < name.n; i++) {
        char c = name.p[i];
        plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    }
    return plain;
}

static semel_str nearest_to(const search *s, semel_str name)
{
    sm_nearest n = {0};
    for (const char *const *o = s->own; *o != NULL; o++)
        sm_nearest_try(&n, name, sm_str_from(*o));
    for (const PQconninfoOption *o = s->known; o->keyword != NULL; o++)
        sm_nearest_try(&n, name, sm_str_from(o->keyword));
    return sm_nearest_get(&n, name);
}

static void look_at(search *s, semel_str name)
{
    if (is_known(s, name))
        return;
    semel_str near = is_ours(s, name) ? (semel_str){0} : nearest_to(s, name);
    if (!is_ours(s, name) && (s->secret || (near.p == NULL && !is_plain(name))))
        return;
    size_t n = strlen(s->found);
    if (n + name.n + near.n + sizeof ",  (did you mean ?)" > sizeof s->found)
        return;
    n += (size_t)snprintf(s->found + n, sizeof s->found - n, "%s%.*s", n == 0 ? "" : ", ",
                          SM_FMT(name));
    if (near.p != NULL)
        snprintf(s->found + n, sizeof s->found - n, " (did you mean %.*s?)", SM_FMT(near));
}

/* name=value&name=value */
static void search_query(search *s, const char *p)
{
    if (strchr(p, '@') != NULL)
        return; /* the question mark may be a part of the password */
    while (*p != '\0') {
        size_t n = strcspn(p, "=&");
        semel_str name = {p, n};
        if (p[n] == '=') {
            look_at(s, name);
            s->secret = s->secret || sm_str_is(name, "password") || sm_str_is(name, "sslpassword");
        }
        p += strcspn(p, "&");
        p += strspn(p, "&");
    }
}

/* name=value name='value' */
static void search_keywords(search *s, const char *p)
{
    for (;;) {
        p += strspn(p, SPACES);
        semel_str name = {p, strcspn(p, "=" SPACES)};
        p += name.n;
        p += strspn(p, SPACES);
        if (*p != '=')
            return;
        p++;
        p += strspn(p, SPACES);
        look_at(s, name);
        bool quoted = *p == '\'';
        s->secret = s->secret ||
                    (!quoted && (sm_str_is(name, "password") || sm_str_is(name, "sslpassword")));
        const char *end = quoted ? "'" : SPACES;
        p += quoted ? 1 : 0;
        while (*p != '\0' && strchr(end, *p) == NULL)
            p += *p == '\\' && p[1] != '\0' ? 2 : 1;
        p += quoted && *p != '\0' ? 1 : 0;
    }
}

bool sm_pg_find_unknown(const char *text, const char *what, const char *const *own,
                        const char *own_list, semel_fault *fault)
{
    search s = {.known = PQconninfoParse("", NULL), .own = own};
    bool url = strstr(text, "://") != NULL;
    const char *query = url ? strchr(text, '?') : NULL;
    if (s.known == NULL)
        return false;
    if (query != NULL)
        search_query(&s, query + 1);
    else if (!url)
        search_keywords(&s, text);
    PQconninfoFree(s.known);
    if (s.found[0] == '\0')
        return false;
    if (own[0] == NULL)
        sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "%s has what is no option of libpq: %s", what,
                     s.found);
    else if (url)
        sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                     "%s has an option that there is not: %s. There are %s, and those of libpq",
                     what, s.found, own_list);
    else
        sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                     "%s has a keyword that libpq does not know: %s. The ledger's own options (%s) "
                     "come after a question mark, as in postgres:host=... dbname=...?schema=NAME",
                     what, s.found, own_list);
    return true;
}
