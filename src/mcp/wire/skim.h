/*
 * A message that is too long to be held: its bytes are looked at as they pass, in pieces of any
 * size, for the little that is needed to answer it.
 *
 * This is no check. Text that is no JSON may pass as some; names are compared as they are written.
 */
#ifndef SM_MCP_WIRE_SKIM_H
#define SM_MCP_WIRE_SKIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "mcp/message.h"

typedef struct mcp_skim {
    uint64_t depth; /* of open objects and arrays */
    uint8_t place;
    bool quoted, escaped; /* inside a string; behind a backslash there */
    bool lost;            /* this is no object, or more than one */
    bool id_twice;
    bool method;                    /* it has one */
    bool error;                     /* it has one */
    bool odd_name;                  /* with an escape, or one that matters comes twice */
    bool in_result;                 /* the value of `result` is passing */
    uint8_t results;                /* how many `result` there are, two at most */
    uint8_t flags;                  /* and in it how many `isError`, */
    uint8_t types;                  /* and `resultType` */
    uint8_t inner;                  /* the place in the result, as `place` */
    bool failed;                    /* isError is true */
    bool asks;                      /* resultType may be input_required: nothing was done yet */
    uint8_t name_n;                 /* a name, as far as it matters */
    char name[sizeof "resultType"]; /* the longest that is looked for, and one byte more */
    size_t id_n;
    char id[MCP_ID_MAX + 1];
} mcp_skim;

/* A zeroed object has seen nothing. */
void mcp_skim_add(mcp_skim *s, sm_str piece);

/* After all of it: the id as written, in the object's memory; absent if it has none, or several, or
 * one that is not well formed, or if the text is no whole object. */
sm_str mcp_skim_id(const mcp_skim *s);

/* After all of it: whether it is an answer with a result. `failed` then tells whether the result
 * has isError. */
bool mcp_skim_result(const mcp_skim *s);

#endif
