/* Findings in an arena of their own, so that they outlive what they are about. */
#include "core/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/utf8.h"

sm_err sm_report_init(sm_report *r, sm_str source)
{
    *r = (sm_report){.source = source};
    sm_arena_init(&r->arena, SM_ARENA_MAX);
    r->items = sm_arena_zalloc(&r->arena, SM_REPORT_MAX, sizeof *r->items);
    return r->items == NULL ? SM_E_NOMEM : SM_OK;
}

void sm_report_fini(sm_report *r)
{
    sm_arena_fini(&r->arena);
    *r = (sm_report){0};
}

void sm_report_add(sm_report *r, sm_severity severity, size_t at, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->items[i].at == at && sm_str_is(r->items[i].text, text))
            return;
    }
    *(severity == SM_ERROR ? &r->errors : &r->warnings) += 1;
    sm_str copy =
        r->count < SM_REPORT_MAX ? sm_arena_text(&r->arena, sm_str_from(text)) : (sm_str){0};
    if (copy.p == NULL) {
        r->dropped++;
        return;
    }
    sm_finding *f = &r->items[r->count++];
    *f = (sm_finding){.severity = severity, .at = at, .text = copy};
    sm_text_position(r->source, at, &f->line, &f->column);
}

static int by_place(const void *a, const void *b)
{
    const sm_finding *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return strcmp(x->text.p, y->text.p);
}

void sm_report_sort(sm_report *r)
{
    if (r->count > 1)
        qsort(r->items, r->count, sizeof *r->items, by_place);
}
