/*
 * Variables of the environment that are needed and not set, told before a call needs them.
 *
 * Values are looked for and never read any further: nothing that is said here can hold one.
 */
#include <stdio.h>
#include <stdlib.h>

#include "gateway/config.h"

#define NAME_MAX_BYTES 255u
#define VARIABLES_MAX  256u /* that are told of one file */

/* The next ${NAME} of a text from *at on whose variable is not set; false if there is none. Files
 * are checked for whole ones when they are read. */
static bool next_unset(sm_str text, size_t *at, char name[NAME_MAX_BYTES + 1])
{
    while (*at + 1 < text.n) {
        const char *start = text.p + *at;
        const char *end =
            start[0] == '$' && start[1] == '{' ? memchr(start, '}', text.n - *at) : NULL;
        size_t n = end == NULL ? 0 : (size_t)(end - start) - 2;
        *at += end == NULL ? 1 : n + 3;
        if (n == 0 || n > NAME_MAX_BYTES)
            continue;
        memcpy(name, start + 2, n);
        name[n] = '\0';
        if (getenv(name) == NULL)
            return true;
    }
    return false;
}

/* ---- of a configuration ----------------------------------------------------------------------*/

typedef struct telling {
    gw_tell_fn *tell;
    void *context;
    unsigned wrong;
} telling;

/* Names with values; `what` they are, and whose. */
static void tell_unset(telling *t, const gw_place *place, const char *what, sm_str whose,
                       const sm_headers *list)
{
    char name[NAME_MAX_BYTES + 1];
    for (uint32_t i = 0; i < list->n; i++) {
        for (size_t at = 0; next_unset(list->v[i].value, &at, name); t->wrong++) {
            sm_fault fault = {0};
            gw_config_fault(&fault, SEMEL_E_INVALID, place,
                            "the environment variable %s is not set; the %s %.*s of %.*s needs it",
                            name, what, SM_FMT(list->v[i].name), SM_FMT(whose));
            t->tell(t->context, &fault);
        }
    }
}

unsigned gw_config_variables(const gw_config *c, gw_tell_fn *tell, void *context)
{
    telling t = {.tell = tell, .context = context};
    for (uint32_t i = 0; i < c->proxies.n; i++) {
        const gw_upstream_api *api = &c->proxies.v[i];
        tell_unset(&t, &api->place, "header", api->name, &api->headers);
    }
    for (uint32_t i = 0; i < c->mcp.n; i++) {
        const gw_mcp_server *s = &c->mcp.v[i];
        tell_unset(&t, &s->place, "header", s->name, &s->headers);
        tell_unset(&t, &s->place, "variable", s->name, &s->env);
    }
    return t.wrong;
}

/* ---- of contracts ----------------------------------------------------------------------------*/

/* A variable that is not set, and who needs it. */
typedef struct unset {
    char name[NAME_MAX_BYTES + 1];
    sm_str tool, header; /* the first that does */
    size_t at;           /* of the header's value in the file */
    sm_str latest;       /* the tool that was counted last */
    uint32_t others;
} unset;

typedef struct search {
    unset *v;
    size_t n;
} search;

static void need(search *s, const char *name, sm_str tool, sm_str header, size_t at)
{
    size_t i = 0;
    while (i < s->n && strcmp(s->v[i].name, name) != 0)
        i++;
    if (i == VARIABLES_MAX)
        return;
    unset *u = &s->v[i];
    if (i == s->n) {
        *u = (unset){.tool = tool, .header = header, .at = at, .latest = tool};
        memcpy(u->name, name, strlen(name) + 1);
        s->n++;
    } else if (!sm_str_eq(u->latest, tool)) {
        u->latest = tool;
        u->others++;
    }
}

/* Where a header's value stands in the file, or at least its upstream. */
static size_t place_of(const sm_json *upstream, sm_str header)
{
    const sm_json *headers = sm_json_find(upstream, SM_STR("headers"));
    const sm_json *value = headers == NULL ? NULL : sm_json_find(headers, header);
    return value != NULL ? value->at : upstream->at;
}

static void search_contract(search *s, sm_str tool, const sm_contract *c)
{
    char name[NAME_MAX_BYTES + 1];
    const sm_json *upstream = c->origin[SM_F_UPSTREAM].given;
    if (upstream == NULL)
        return;
    for (uint32_t i = 0; i < c->upstream.headers.n; i++) {
        const sm_header *h = &c->upstream.headers.v[i];
        for (size_t at = 0; next_unset(h->value, &at, name);)
            need(s, name, tool, h->name, place_of(upstream, h->name));
    }
}

void gw_contract_variables(const sm_contracts *set, sm_severity severity, sm_report *report)
{
    search s = {.v = calloc(VARIABLES_MAX, sizeof *s.v)};
    if (s.v == NULL)
        return; /* whoever makes the call is told then */
    for (uint32_t i = 0; i < set->tool_count; i++) {
        const sm_declared_tool *t = &set->tools[i];
        search_contract(&s, t->name, &t->contract);
        for (uint32_t v = 0; v < t->contract.variant_count; v++)
            search_contract(&s, t->name, &t->contract.variants[v].contract);
    }
    for (size_t i = 0; i < s.n; i++) {
        const unset *u = &s.v[i];
        char others[40] = "";
        if (u->others > 0)
            snprintf(others, sizeof others, " and %u other tool%s", u->others,
                     u->others == 1 ? "" : "s");
        sm_report_add(report, severity, u->at,
                      "the environment variable %s is not set, and the header %.*s of %.*s%s needs "
                      "it: calls fail without it",
                      u->name, SM_FMT(u->header), SM_FMT(u->tool), others);
    }
    free(s.v);
}
