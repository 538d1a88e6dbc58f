/*
 * From bytes to lines: the framing of MCP over stdio.
 *
 * Bytes come in pieces. What makes up a whole line within one piece is given out without being
 * copied; the rest is held until its line feed comes. A line that is longer than the bound is not
 * held: it is read to its end for the one thing that is needed to answer it, its id, which some
 * clients write last.
 */
#ifndef SM_MCP_WIRE_LINES_H
#define SM_MCP_WIRE_LINES_H

#include <stdint.h>

#include "mcp/message.h"

/* What the sink is told. */
typedef struct mcp_text_line mcp_text_line;
struct mcp_text_line {
    sm_str text;     /* without its line feed (and a carriage return before it); borrowed */
    bool too_long;   /* then there is no text, only: */
    uint64_t length; /* how long it was */
    sm_str id;       /* as written; absent: it has none, or it could not be told */
    bool request;    /* it has a method */
    bool result;     /* it is an answer with a result */
    bool failed;     /* with that: which has isError */
};

/* Blank lines are not told. False stops: the rest of the piece is held for later. */
typedef bool mcp_text_line_fn(void *context, const mcp_text_line *line);

typedef struct mcp_lines mcp_lines;

mcp_lines *mcp_lines_new(size_t line_max); /* NULL when out of memory */
void mcp_lines_free(mcp_lines *l);         /* accepts NULL */

/* Takes a piece; an empty one continues with what was held after a stop. *stopped (may be NULL):
 * the sink has said so. What is added while it is stopped is held too, so nothing should be. A last
 * line without a line feed is ended by adding one. The sink must neither add nor free. False when
 * out of memory: the stream is lost. */
bool mcp_lines_add(mcp_lines *l, sm_str piece, mcp_text_line_fn *sink, void *context,
                   bool *stopped);

/* Bytes that are held. */
size_t mcp_lines_held(const mcp_lines *l);

#endif
