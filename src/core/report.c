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
    return r->items == NULL ? SEMEL_E_NOMEM : SM_OK;
}

void sm_report_fini(sm_report *r)
{
    sm_arena_fini(&r->arena);
    *r = (sm_report){0};
}

/* Room for one more, or NULL. Errors are what must be mended: one takes a warning's place. */
static sm_finding *make_room(sm_report *r, sm_severity severity)
{
    if (r->count < SM_REPORT_MAX)
        return &r->items[r->count++];
    r->dropped++;
    for (uint32_t i = r->count; severity == SM_ERROR && i-- > 0;) {
        if (r->items[i].severity == SM_WARNING)
            return &r->items[i];
    }
    return NULL;
}

void sm_report_add(sm_report *r, sm_severity severity, size_t at, const char *format, ...)
{
    char buffer[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(buffer, sizeof buffer, format, args);
    va_end(args);
    sm_str text = sm_utf8_cut(sm_str_from(buffer), sizeof buffer - 2);
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->items[i].at == at && sm_str_eq(r->items[i].text, text))
            return;
    }
    *(severity == SM_ERROR ? &r->errors : &r->warnings) += 1;
    sm_finding *f = make_room(r, severity);
    if (f == NULL)
        return;
    sm_str copy = sm_arena_text(&r->arena, text);
    *f = (sm_finding){.severity = severity, .at = at};
    f->text = copy.p != NULL ? copy : SM_STR("out of memory");
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
