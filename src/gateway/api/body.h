/*
 * Bodies of requests: JSON objects whose members are described by tables.
 *
 * A table says what each member is called, what it must be and where it goes. Reading reports the
 * first thing that is wrong, with its place and what to do: malformed text, a name that is not
 * among the members (with what was probably meant), one that is missing, a value of another type or
 * out of bounds. Nothing is guessed: null is a value and not an absent member.
 *
 * What reads is pure and works on texts; the functions that take a request answer it themselves
 * when something is wrong.
 */
#ifndef SM_GATEWAY_API_BODY_H
#define SM_GATEWAY_API_BODY_H

#include "base/arena.h"
#include "gateway/http/request.h"
#include "json/json.h"
#include "semel/semel.h"

/* An object and where it stands in the text that it was read from. */
typedef struct gw_object {
    const sm_json *node;
    sm_str source;
    size_t end; /* offset behind its closing brace */
} gw_object;

typedef enum gw_member_kind {
    GW_M_TEXT,   /* sm_str */
    GW_M_LABEL,  /* sm_str: a text, or a whole number's digits */
    GW_M_COUNT,  /* int64_t from .min to .max */
    GW_M_AMOUNT, /* sm_str: an amount of money, from a number or a text, to the last digit */
    GW_M_CHOICE, /* int, index into .names */
    GW_M_ANY,    /* sm_str: any value, its bytes as they were sent */
    GW_M_OBJECT, /* gw_object */
} gw_member_kind;

typedef struct gw_member {
    const char *name;
    gw_member_kind kind;
    bool required;
    size_t offset; /* of where it goes in the structure */
    int64_t min, max;
    const char *const *names; /* ended by NULL */
} gw_member;

/* Reads a text that must be one JSON object. Decoded texts are in the arena; what is given as it
 * was sent points into `text`. */
sm_err gw_object_parse(sm_arena *a, sm_str text, gw_object *out, sm_fault *fault);

/* Reads an object's members into `out`, which holds its defaults already: members that are not
 * there leave it as it is. */
sm_err gw_object_read(sm_arena *a, const gw_object *o, const gw_member *members, size_t count,
                      void *out, sm_fault *fault);

/* Both at once; an empty text is told which members are needed. */
sm_err gw_object_take(sm_arena *a, sm_str text, const gw_member *members, size_t count, void *out,
                      sm_fault *fault);

/* The same for a request's body, which must be application/json if it says what it is. False if
 * something was wrong: the request has its answer then. */
bool gw_body_read(gw_request *r, sm_arena *a, const gw_member *members, size_t count, void *out);

/* Whether a body may be read as JSON by what the request says of it; if not, the request has its
 * answer. */
bool gw_body_json(gw_request *r);

/* Answers with 400 and the fault's words and place; with 503 if there was no memory. */
void gw_body_refuse(gw_request *r, const sm_fault *fault);

/* ---- calls (body_call.c) ---------------------------------------------------------------------*/

/* Which of the two forms a call has: POST /v1/call waits 30 s unless it says otherwise, POST
 * /v1/begin does not wait and may have `after`. */
typedef enum gw_call_form { GW_FORM_CALL, GW_FORM_BEGIN } gw_call_form;

/* Reads {scope, step?, tool, args, key?, wait_ms?}. Everything in *out is in the arena, the
 * arguments as they were sent. `header` is the value of Idempotency-Key or absent; a key may be
 * there and in the body if both are equal. */
sm_err gw_call_parse(sm_arena *a, sm_str body, sm_str header, gw_call_form form,
                     int64_t wait_max_ms, semel_call *out, sm_fault *fault);

/* The same of a request. False if it was wrong, or if the scope is not the token's: the request has
 * its answer then. */
bool gw_read_call(gw_request *r, sm_arena *a, gw_call_form form, semel_call *out);

/* The key in a value of Idempotency-Key: a string of RFC 8941, or the bare text. */
sm_err gw_key_parse(sm_arena *a, sm_str header, sm_str *key, sm_fault *fault);

/* The request's own; absent if it has none. False if it is wrong or there are several: the request
 * has its answer then. */
bool gw_read_key(gw_request *r, sm_arena *a, sm_str *key);

#endif
