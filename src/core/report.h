/*
 * Everything that is wrong or doubtful in one file, each with its place: a file is reported on
 * whole, not up to its first mistake.
 */
#ifndef SM_CORE_REPORT_H
#define SM_CORE_REPORT_H

#include "base/arena.h"
#include "base/error.h"

typedef enum sm_severity { SM_ERROR, SM_WARNING } sm_severity;

typedef struct sm_finding {
    sm_severity severity;
    size_t at; /* byte offset */
    uint32_t line;
    uint32_t column;
    sm_str text; /* NUL-terminated */
} sm_finding;

typedef struct sm_report {
    sm_arena arena;
    sm_str source; /* the file's text; must stay valid while findings are added */
    sm_finding *items;
    uint32_t count;
    uint32_t errors;
    uint32_t warnings;
    uint32_t dropped; /* beyond SM_REPORT_MAX */
} sm_report;

sm_err sm_report_init(sm_report *r, sm_str source);
void sm_report_fini(sm_report *r); /* accepts a zeroed object */

/* Adds a finding, unless the same was said of the same place before. */
void sm_report_add(sm_report *r, sm_severity severity, size_t at, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Sorts the findings by place. */
void sm_report_sort(sm_report *r);

#endif
