/*
 * Fields of a configuration file, described by tables.
 *
 * A table says what each field is called, what kind of value it takes and where it goes. One
 * function reads a mapping by its table, reporting every unknown name (with what was probably
 * meant), wrong type and bad value; another lists what a structure holds. So a field is written
 * down once.
 */
#ifndef SM_CORE_FIELD_H
#define SM_CORE_FIELD_H

#include "base/buf.h"
#include "base/decimal.h"
#include "core/pattern.h"
#include "core/report.h"
#include "json/json.h"
#include "json/pointer.h"

/* An amount of money: its exact text, as written, and its value in billionths. */
#define SM_MONEY_PLACES 9u
typedef struct sm_money {
    sm_str text;
    int64_t billionths;
} sm_money;

typedef struct sm_pointers {
    const sm_pointer *v;
    uint32_t n;
} sm_pointers;

typedef enum sm_field_kind {
    SM_KIND_STRING,   /* sm_str */
    SM_KIND_LABEL,    /* sm_str, from a string or a number's text */
    SM_KIND_SWITCH,   /* bool, from true, false, on, off */
    SM_KIND_COUNT,    /* int64_t from .min to .max */
    SM_KIND_SIZE,     /* int64_t bytes from .min to .max */
    SM_KIND_MONEY,    /* sm_money, from a number or a decimal string, not negative */
    SM_KIND_DURATION, /* int64_t ms */
    SM_KIND_ENUM,     /* int, index into .names */
    SM_KIND_POINTER,  /* sm_pointer */
    SM_KIND_POINTERS, /* sm_pointers */
    SM_KIND_GROUP,    /* a structure described by .group */
    SM_KIND_CUSTOM,   /* anything, read by .read */
} sm_field_kind;

enum {
    SM_FIELD_REQUIRED = 1,
    SM_FIELD_ZERO = 2,    /* a duration that may be 0 */
    SM_FIELD_FOREVER = 4, /* a duration that may be forever */
    SM_FIELD_OFF = 8,     /* it may be "off": a group, whose structure starts with a bool; a count,
                             which is 0 then */
};

typedef struct sm_loader sm_loader;
typedef struct sm_group sm_group;

typedef struct sm_field {
    const char *name;
    sm_field_kind kind;
    uint32_t offset;
    uint32_t size;
    uint32_t flags;
    const char *const *names; /* NULL-terminated */
    int64_t min, max;
    const sm_group *group;
    void (*read)(sm_loader *l, const sm_json *value, void *out);
    void (*show)(const void *value, sm_buf *out); /* NULL: as it was given */
} sm_field;

/* `defaults` is what a structure holds before its mapping is read. If `brief` is not NULL, a plain
 * string in place of the mapping is taken for that field; a list too, if the field is a list. */
struct sm_group {
    const sm_field *fields;
    uint32_t count;
    const void *defaults;
    size_t size;
    const char *brief;
    const char *also; /* a field that somebody else reads, for "did you mean"; may be NULL */
};

#define SM_FIELD(type, member) .offset = offsetof(type, member), .size = sizeof(((type *)0)->member)

/* What reading needs: memory for what is kept, and where to complain. */
struct sm_loader {
    sm_arena *arena;
    sm_report *report;
    sm_pattern *patterns; /* all that were made */
    bool failed;          /* out of memory */
};

/* Complains about a place. */
#define sm_complain(l, value, ...) sm_report_add((l)->report, SM_ERROR, (value)->at, __VA_ARGS__)
#define sm_advise(l, value, ...)   sm_report_add((l)->report, SM_WARNING, (value)->at, __VA_ARGS__)

/* A short sentence on what a value is, such as `a number (5)`. Valid until the next call. */
const char *sm_found(sm_loader *l, const sm_json *value);

/* Memory that is zeroed; NULL sets `failed`. */
void *sm_loader_alloc(sm_loader *l, size_t count, size_t size);

/* Reads one value; false if it was wrong, and `out` is then of no use. */
bool sm_field_read(sm_loader *l, const sm_field *f, const sm_json *value, void *out);

/* Reads a whole mapping into a structure that holds its defaults already. `what` names the mapping
 * in sentences, such as "a tool". `seen`, if not NULL, gets a bit for each field given and right.
 */
void sm_group_read(sm_loader *l, const sm_group *g, const char *what, const sm_json *mapping,
                   void *out, uint64_t *seen);

/* Reads a pointer; for use in custom readers too. */
bool sm_read_pointer(sm_loader *l, const sm_json *value, sm_pointer *out);

/* Reads a regular expression. */
sm_pattern *sm_read_pattern(sm_loader *l, const sm_json *value, bool whole);

/* Complains if a value, or anything in it, is a plain YAML scalar that people read differently or a
 * number without canonical form. True if it is all clear. */
bool sm_check_plain(sm_loader *l, const sm_json *value);

/* Told one leaf: its dotted name, its value as JSON text, and where it was given (NULL if it was
 * not). */
typedef void sm_show_fn(void *context, const char *name, sm_str json, const sm_json *given);

/* Lists a field's leaves. `given` is the field's value in the file, or NULL. */
void sm_field_show(const sm_field *f, const char *name, const void *value, const sm_json *given,
                   sm_show_fn *show, void *context);

#endif
