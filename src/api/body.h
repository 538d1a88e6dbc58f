/*
 * Bodies of requests: JSON objects whose members are described by tables.
 *
 * A table says what each member is called, what it must be and where it goes. Reading reports the
 * first thing that is wrong, with its place and what to do: malformed text, a name that is not
 * among the members (with what was probably meant), one that is missing, a value of another type or
 * out of bounds. Nothing is guessed: null is a value and not an absent member.
 *
 * Pure: all of it works on texts.
 */
#ifndef SM_API_BODY_H
#define SM_API_BODY_H

#include "base/arena.h"
#include "json/json.h"
#include "semel/semel.h"

/* How much of a client's text is repeated to it, in bytes. */
#define SM_QUOTED_MAX 60u

/* An object and where it stands in the text that it was read from. */
typedef struct sm_object {
    const sm_json *node;
    sm_str source;
    size_t end;               /* offset behind its closing brace */
    const char *const *taken; /* names that are passed over, ended by NULL; NULL: none */
} sm_object;

typedef enum sm_member_kind {
    SM_M_TEXT,   /* sm_str */
    SM_M_LABEL,  /* sm_str: a text, or a whole number's digits */
    SM_M_COUNT,  /* int64_t from .min to .max */
    SM_M_AMOUNT, /* sm_str: an amount of money, from a number or a text, to the last digit */
    SM_M_CHOICE, /* int, index into .names */
    SM_M_ANY,    /* sm_str: any value, its bytes as they were sent */
    SM_M_BOOL,   /* bool */
    SM_M_OBJECT, /* sm_object */
} sm_member_kind;

typedef struct sm_object_member {
    const char *name;
    sm_member_kind kind;
    bool required;
    size_t offset; /* of where it goes in the structure */
    int64_t min, max;
    const char *const *names; /* ended by NULL */
} sm_object_member;

/* Reads a text that must be one JSON object. Decoded texts are in the arena; what is given as it
 * was sent points into `text`. */
sm_err sm_object_parse(sm_arena *a, sm_str text, sm_object *out, sm_fault *fault);

/* Reads an object's members into `out`, which holds its defaults already: members that are not
 * there leave it as it is. */
sm_err sm_object_read(sm_arena *a, const sm_object *o, const sm_object_member *members,
                      size_t count, void *out, sm_fault *fault);

/* Both at once; an empty text is told which members are needed. */
sm_err sm_object_take(sm_arena *a, sm_str text, const char *const *taken,
                      const sm_object_member *members, size_t count, void *out, sm_fault *fault);

/* ---- calls (call.c) --------------------------------------------------------------------------*/

/* Which of the two forms a call has: CALL waits 30 s unless it says otherwise, BEGIN does not wait
 * and may have `after`. */
typedef enum sm_call_form { SM_FORM_CALL, SM_FORM_BEGIN } sm_call_form;

/* Reads {scope, step?, tool, args, key?, wait_ms?}. Everything in *out is in the arena, the
 * arguments as they were sent. */
sm_err sm_call_parse(sm_arena *a, sm_str text, const char *const *taken, sm_call_form form,
                     int64_t wait_max_ms, semel_call *out, sm_fault *fault);

/* The same of an object that was parsed already. */
sm_err sm_call_read(sm_arena *a, const sm_object *o, sm_call_form form, int64_t wait_max_ms,
                    semel_call *out, sm_fault *fault);

#endif
