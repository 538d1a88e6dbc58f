/* regcomp and regexec, behind a check of what they are asked to do. */
#include "core/pattern.h"

#include <locale.h>
#include <pthread.h>
#include <regex.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/limits.h"

struct sm_pattern {
    regex_t re;
    sm_pattern *next;
};

/* The largest number in "{n}", "{n,}" or "{n,m}" at `p` (behind the brace), 1 if there is none. */
static unsigned long repeat_count(const char *p)
{
    unsigned long most = 1;
    while ((*p >= '0' && *p <= '9') || *p == ',') {
        char *end = (char *)p + 1;
        if (*p != ',') {
            unsigned long n = strtoul(p, &end, 10);
            if (n > most)
                most = n;
        }
        p = end;
    }
    return most;
}

/* The end of the bracket expression that starts at `p`, or of the text. */
static const char *skip_bracket(const char *p)
{
    p++;
    p += *p == '^';
    p += *p == ']';
    while (*p != '\0' && *p != ']') {
        if (*p == '[' && (p[1] == ':' || p[1] == '.' || p[1] == '=')) {
            char end[3] = {p[1], ']', '\0'};
            const char *close = strstr(p + 2, end);
            p = close == NULL ? p + 1 : close + 2;
        } else {
            p++;
        }
    }
    return p;
}

/* Walks an expression, keeping for each open group how deep the repeats inside it are nested. */
static sm_err check_cost(const char *text, sm_fault *fault)
{
    unsigned char nest[SM_PATTERN_MAX + 1] = {0}; /* by group; nest[0] is the whole */
    size_t depth = 0;
    unsigned atom = 0; /* nesting inside the atom just read */
    unsigned long product = 1;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '(' || *p == '|') {
            if (*p == '(')
                nest[++depth] = 0;
            atom = 0;
        } else if (*p == ')' && depth > 0) {
            atom = nest[depth--];
            if (atom > nest[depth])
                nest[depth] = (unsigned char)atom;
        } else if (*p == '*' || *p == '+' || *p == '?' || *p == '{') {
            unsigned long n = *p == '{' ? repeat_count(p + 1) : 1;
            product = n > SM_PATTERN_REPEAT_MAX ? SM_PATTERN_REPEAT_MAX + 1 : product * n;
            if (product > SM_PATTERN_REPEAT_MAX)
                return sm_fault_set(fault, SEMEL_E_LIMIT,
                                    "the repeat counts of a pattern may multiply to at most %u",
                                    SM_PATTERN_REPEAT_MAX);
            if (++atom > SM_PATTERN_NEST_MAX)
                return sm_fault_set(fault, SEMEL_E_LIMIT,
                                    "repeats may be nested at most %u deep in a pattern",
                                    SM_PATTERN_NEST_MAX);
            if (atom > nest[depth])
                nest[depth] = (unsigned char)atom;
        } else {
            atom = 0;
            if (*p == '[') {
                p = skip_bracket(p);
            } else if (*p == '\\' && p[1] != '\0') {
                p++;
                if (*p >= '1' && *p <= '9')
                    return sm_fault_set(fault, SEMEL_E_SYNTAX,
                                        "back-references (\\%c) are not supported in patterns", *p);
            }
            if (*p == '\0')
                break;
        }
    }
    return SM_OK;
}

/* Patterns mean the same in every program: they are compiled and matched in the C locale. */
static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static locale_t enter_c_locale(void)
{
    pthread_once(&c_locale_once, make_c_locale);
    return c_locale == (locale_t)0 ? (locale_t)0 : uselocale(c_locale);
}

static void leave_c_locale(locale_t before)
{
    if (before != (locale_t)0)
        uselocale(before);
}

static sm_err compile(regex_t *re, const char *text, sm_fault *fault)
{
    locale_t before = enter_c_locale();
    int code = before == (locale_t)0 ? REG_ESPACE : regcomp(re, text, REG_EXTENDED | REG_NOSUB);
    char why[128] = "out of memory";
    if (code != 0 && before != (locale_t)0)
        regerror(code, re, why, sizeof why);
    leave_c_locale(before);
    if (code == 0)
        return SM_OK;
    return sm_fault_set(fault, code == REG_ESPACE ? SEMEL_E_LIMIT : SEMEL_E_SYNTAX,
                        "not a POSIX extended regular expression: %s", why);
}

sm_err sm_pattern_new(sm_arena *a, sm_str text, bool whole, sm_pattern **out, sm_fault *fault)
{
    *out = NULL;
    if (text.n > SM_PATTERN_MAX)
        return sm_fault_set(fault, SEMEL_E_LIMIT, "a pattern may be at most %u bytes long",
                            SM_PATTERN_MAX);
    if (memchr(text.p, '\0', text.n) != NULL)
        return sm_fault_set(fault, SEMEL_E_SYNTAX, "a pattern must not contain a NUL byte");
    sm_pattern *p = sm_arena_zalloc(a, 1, sizeof *p);
    sm_str alone = sm_arena_text(a, text);
    sm_str wrapped = sm_arena_printf(a, "^(%.*s)$", SM_FMT(text));
    if (p == NULL || alone.p == NULL || wrapped.p == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "%s", semel_err_text(SEMEL_E_NOMEM));
    sm_err e = check_cost(alone.p, fault);
    if (e == SM_OK)
        e = compile(&p->re, alone.p, fault);
    if (e != SM_OK)
        return e;
    if (whole) {
        /* Compiled alone first: "a)(b" must not become valid by the parentheses around it. */
        regfree(&p->re);
        e = compile(&p->re, wrapped.p, fault);
        if (e != SM_OK)
            return e;
    }
    *out = p;
    return SM_OK;
}

static void fini(sm_pattern *p)
{
    if (p != NULL)
        regfree(&p->re);
}

bool sm_pattern_can(sm_str value)
{
    return value.n <= SM_MATCH_MAX && (value.n == 0 || memchr(value.p, '\0', value.n) == NULL);
}

bool sm_pattern_matches(const sm_pattern *p, sm_str value)
{
    if (!sm_pattern_can(value))
        return false;
    regmatch_t range = {.rm_so = 0, .rm_eo = (regoff_t)value.n};
    locale_t before = enter_c_locale();
    bool matches = regexec(&p->re, value.n == 0 ? "" : value.p, 1, &range, REG_STARTEND) == 0;
    leave_c_locale(before);
    return matches;
}

sm_pattern *sm_pattern_chain(sm_pattern *p, sm_pattern *rest)
{
    p->next = rest;
    return p;
}

void sm_pattern_fini_all(sm_pattern *first)
{
    for (; first != NULL; first = first->next)
        fini(first);
}
