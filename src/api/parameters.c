/* Reading parameters: times and positions, and tables of them, from a query or from a body. */
#include <stdio.h>

#include "api/operation.h"
#include "base/clock.h"
#include "base/duration.h"
#include "base/stamp.h"
#include "base/suggest.h"
#include "base/utf8.h"

typedef struct reading {
    const sm_object_member *members;
    size_t count;
    char *out;
    uint64_t seen;
    sm_fault fault;
} reading;

static bool no_parameter(reading *q, sm_str name)
{
    sm_nearest nearest = {0};
    char list[256] = "";
    for (size_t i = 0, at = 0; i < q->count; i++) {
        sm_nearest_try(&nearest, name, sm_str_from(q->members[i].name));
        int n =
            snprintf(list + at, sizeof list - at, "%s%s", i == 0 ? "" : ", ", q->members[i].name);
        at += n > 0 && (size_t)n < sizeof list - at ? (size_t)n : 0;
    }
    sm_str near = sm_nearest_get(&nearest, name);
    if (near.p != NULL)
        sm_fault_set(&q->fault, SEMEL_E_BAD_ARGUMENTS,
                     "there is no parameter \"%.*s\"; did you mean \"%.*s\"?",
                     SM_FMT(sm_quoted(name)), SM_FMT(near));
    else
        sm_fault_set(&q->fault, SEMEL_E_BAD_ARGUMENTS,
                     "there is no parameter \"%.*s\"; there are: %s", SM_FMT(sm_quoted(name)),
                     q->count == 0 ? "none" : list);
    return false;
}

bool sm_cursor_parse(sm_str text, uint64_t *out)
{
    uint64_t v = 0;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9' || v > (UINT64_MAX - 9) / 10)
            return false;
        v = v * 10 + (uint64_t)(text.p[i] - '0');
    }
    *out = v;
    return text.n > 0;
}

static bool is_text(sm_str value)
{
    return sm_utf8_valid(value) && memchr(value.p, '\0', value.n) == NULL;
}

static bool take_parameter(void *context, sm_str name, sm_str value)
{
    reading *q = context;
    size_t i = 0;
    while (i < q->count && !sm_str_is(name, q->members[i].name))
        i++;
    if (i == q->count)
        return no_parameter(q, name);
    const sm_object_member *m = &q->members[i];
    if (q->seen >> i & 1) {
        sm_fault_set(&q->fault, SEMEL_E_BAD_ARGUMENTS, "the parameter \"%s\" is given twice",
                     m->name);
        return false;
    }
    q->seen |= (uint64_t)1 << i;
    if (value.p == NULL || value.n == 0)
        return true;
    if (m->kind != SM_M_COUNT) {
        *(sm_str *)(void *)(q->out + m->offset) = value;
        if (is_text(value))
            return true;
        sm_fault_set(&q->fault, SEMEL_E_BAD_ARGUMENTS, "the parameter \"%s\" is not UTF-8 text",
                     m->name);
        return false;
    }
    uint64_t n;
    if (sm_cursor_parse(value, &n) && n >= (uint64_t)m->min && n <= (uint64_t)m->max) {
        *(int64_t *)(void *)(q->out + m->offset) = (int64_t)n;
        return true;
    }
    sm_fault_set(&q->fault, SEMEL_E_BAD_ARGUMENTS,
                 "the parameter \"%s\" must be a whole number from %lld to %lld, not \"%.*s\"",
                 m->name, (long long)m->min, (long long)m->max, SM_FMT(sm_quoted(value)));
    return false;
}

/* They are texts, as those of a query. */
static bool from_texts(sm_operation *op, const sm_object_member *members, size_t count, void *out)
{
    reading q = {.members = members, .count = count, .out = out};
    op->door->parameters(op, take_parameter, &q);
    if (q.fault.code == SM_OK)
        return true;
    sm_op_problem(op, 400, "BAD_ARGUMENTS", "Correct the query.", "%s", q.fault.text);
    return false;
}

/* They are members of the body, which may be empty. */
static bool from_body(sm_operation *op, const sm_object_member *members, size_t count, void *out)
{
    sm_fault fault = {0};
    if (op->body.n > 0 && !sm_op_body(op, members, count, out))
        return false;
    for (size_t i = 0; i < count; i++) {
        sm_str *text = (void *)((char *)out + members[i].offset);
        if (members[i].kind == SM_M_COUNT)
            continue;
        if (text->n == 0)
            *text = (sm_str){0};
        else if (!is_text(*text))
            sm_fault_set(&fault, SEMEL_E_BAD_ARGUMENTS, "\"%s\" has a NUL character",
                         members[i].name);
    }
    if (fault.code != SM_OK)
        sm_op_refuse(op, &fault);
    return fault.code == SM_OK;
}

bool sm_op_parameters(sm_operation *op, const sm_object_member *members, size_t count, void *out)
{
    return op->door->parameters != NULL ? from_texts(op, members, count, out)
                                        : from_body(op, members, count, out);
}

sm_err sm_time_parse(const char *name, sm_str text, int64_t *out, sm_fault *fault)
{
    int64_t ms;
    if (text.p == NULL)
        return SM_OK;
    if (sm_duration_parse(text, &ms)) {
        int64_t now = sm_clock_ms();
        *out = ms < now ? now - ms : 1;
        return SM_OK;
    }
    if (sm_stamp_parse(text, out) && *out > 0)
        return SM_OK;
    return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                        "%s: write a time such as 2026-03-01T12:00:00Z, or how long ago, such as "
                        "2h, not \"%.*s\"",
                        name, SM_FMT(sm_utf8_cut(text, SM_QUOTED_MAX)));
}
