/* regcomp and regexec, behind a check of what they are asked to do. */
#include "core/pattern.h"

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

static sm_err check_cost(const char *text, sm_fault *fault)
{
    unsigned long product = 1;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '\\' && p[1] != '\0') {
            p++;
            if (*p >= '1' && *p <= '9')
                return sm_fault_set(fault, SM_E_SYNTAX,
                                    "back-references (\\%c) are not supported in patterns", *p);
        } else if (*p == '{') {
            unsigned long n = repeat_count(p + 1);
            product = n > SM_PATTERN_REPEAT_MAX ? SM_PATTERN_REPEAT_MAX + 1 : product * n;
            if (product > SM_PATTERN_REPEAT_MAX)
                return sm_fault_set(fault, SM_E_LIMIT,
                                    "the repeat counts of a pattern may multiply to at most %u",
                                    SM_PATTERN_REPEAT_MAX);
        }
    }
    return SM_OK;
}

static sm_err compile(regex_t *re, const char *text, sm_fault *fault)
{
    int code = regcomp(re, text, REG_EXTENDED | REG_NOSUB);
    if (code == 0)
        return SM_OK;
    char why[128];
    regerror(code, re, why, sizeof why);
    return sm_fault_set(fault, code == REG_ESPACE ? SM_E_LIMIT : SM_E_SYNTAX,
                        "not a POSIX extended regular expression: %s", why);
}

sm_err sm_pattern_new(sm_arena *a, sm_str text, bool whole, sm_pattern **out, sm_fault *fault)
{
    *out = NULL;
    if (text.n > SM_PATTERN_MAX)
        return sm_fault_set(fault, SM_E_LIMIT, "a pattern may be at most %u bytes long",
                            SM_PATTERN_MAX);
    if (memchr(text.p, '\0', text.n) != NULL)
        return sm_fault_set(fault, SM_E_SYNTAX, "a pattern must not contain a NUL byte");
    sm_pattern *p = sm_arena_zalloc(a, 1, sizeof *p);
    sm_str alone = sm_arena_text(a, text);
    sm_str wrapped = sm_arena_printf(a, "^(%.*s)$", SM_FMT(text));
    if (p == NULL || alone.p == NULL || wrapped.p == NULL)
        return sm_fault_set(fault, SM_E_NOMEM, "%s", sm_err_text(SM_E_NOMEM));
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

void sm_pattern_fini(sm_pattern *p)
{
    if (p != NULL)
        regfree(&p->re);
}

bool sm_pattern_matches(const sm_pattern *p, sm_str value)
{
    regmatch_t range = {.rm_so = 0, .rm_eo = (regoff_t)value.n};
    return regexec(&p->re, value.p, 1, &range, REG_STARTEND) == 0;
}

sm_pattern *sm_pattern_chain(sm_pattern *p, sm_pattern *rest)
{
    p->next = rest;
    return p;
}

void sm_pattern_fini_all(sm_pattern *first)
{
    for (; first != NULL; first = first->next)
        sm_pattern_fini(first);
}
