/*
 * Server-sent events, read as they come: the framing of answers over Streamable HTTP.
 *
 * Bytes come in pieces, cut anywhere. An event is given out when its blank line has come; one that
 * its stream's end cuts short is none. An event's data is bounded: what is larger is read to its
 * end and not held. Nothing is checked of what the data says.
 */
#ifndef SM_MCP_WIRE_SSE_H
#define SM_MCP_WIRE_SSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

#define MCP_EVENT_ID_MAX 1024u /* bytes of an id; a longer one counts as none */

/* Borrowed until the function that is told returns. */
typedef struct mcp_sse_event {
    sm_str type;      /* empty: a message */
    sm_str data;      /* its lines with line feeds between them; empty: there is none */
    sm_str id;        /* empty, with has_id: what came before is not to be named any more */
    bool has_id;      /* it names an id */
    int64_t retry_ms; /* how long to wait before coming back; -1: it does not say */
    bool too_long;    /* its data was larger than the bound and is not here, only: */
    uint64_t length;  /* how large it was */
} mcp_sse_event;

/* False stops: the rest of the piece is dropped, and nothing more may be added. */
typedef bool mcp_event_fn(void *context, const mcp_sse_event *event);

typedef struct mcp_sse mcp_sse;

mcp_sse *mcp_sse_new(size_t event_max); /* NULL when out of memory */
void mcp_sse_free(mcp_sse *s);          /* accepts NULL */

/* False when out of memory: the stream is lost. */
bool mcp_sse_add(mcp_sse *s, sm_str piece, mcp_event_fn *sink, void *context);

/* Bytes that are held. */
size_t mcp_sse_held(const mcp_sse *s);

#endif
