/*
 * JSON-RPC messages. A message stays one text; its parts are ranges of that text. So everything is
 * passed on as it came: ids, numbers, order and blanks, unknown members.
 *
 * The whole text is checked to be one JSON value (RFC 8259, UTF-8, a bounded depth), in one pass
 * and without memory of its own. Names are compared as they decode, so that "m\u0065thod" is
 * "method". A name that decides something and is there twice, or beside one that some readers take
 * for it (base/fold.h), makes the message invalid: two readers could see two different calls.
 */
#ifndef SM_MCP_MESSAGE_H
#define SM_MCP_MESSAGE_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/str.h"
#include "json/raw.h"

#define MCP_LINE_MAX   ((size_t)16 << 20) /* bytes of one message */
#define MCP_METHOD_MAX 127u               /* bytes of a method that are looked at */
#define MCP_ID_MAX     1024u              /* bytes of an id as it is written */
#define MCP_FLAW_MAX   160u               /* bytes of a sentence about a flaw */

/* Versions of the protocol: the newest one with sessions, and the one without. */
#define MCP_LEGACY "2025-11-25"
#define MCP_MODERN "2026-07-28"

/* What a client says once a session has begun. */
#define MCP_INITIALIZED "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"

/* JSON-RPC's codes for a wrong message. */
#define MCP_E_JUNK    -32700
#define MCP_E_MESSAGE -32600
#define MCP_E_PARAMS  -32602

typedef enum mcp_message_kind {
    MCP_INVALID, /* `flaw` says why; `id` is there if it could be told */
    MCP_REQUEST,
    MCP_NOTIFICATION,
    MCP_RESULT,
    MCP_ERROR,
    MCP_BATCH, /* an array; see sm_raw_next */
} mcp_message_kind;

/* Borrowed from the text. Absent parts have p == NULL. */
typedef struct mcp_message {
    mcp_message_kind kind;
    sm_str text;                     /* all of it, without blanks around */
    sm_str id;                       /* as written: "7" and 7 differ */
    sm_str params;                   /* as written */
    sm_str result, error;            /* as written */
    char method[MCP_METHOD_MAX + 1]; /* decoded; a longer one is cut, and none of ours; what a C
                                        string cannot hold is U+FFFD */
    int code;                        /* INVALID: JUNK if it is not even JSON, MESSAGE or PARAMS */
    bool answer;             /* INVALID: it has no method, and a result, an error or an id */
    char flaw[MCP_FLAW_MAX]; /* INVALID: a sentence for people */
} mcp_message;

/* Reads one message. An id is a string or a whole number (digits alone: neither 1.0 nor 1e2) of at
 * most MCP_ID_MAX bytes; a response may have null, and an error none. A message that is nested too
 * deeply is INVALID but not JUNK, so that it can be answered. False for MCP_INVALID. */
bool mcp_read(sm_str text, mcp_message *out);

/* Reads a message of a client, or one of its batch. A request or notification is also INVALID if
 * servers may read the deciding members of its params differently (names.h). */
bool mcp_read_client(sm_str text, mcp_message *out);

/* Whether this is an id as it may be written: a string or a whole number, which -?[0-9]+ is and 1.0
 * and 1e2 are not, of at most MCP_ID_MAX bytes. Any bytes are taken. */
bool mcp_is_id(sm_str value);

/* The form in which ids are compared: two ids are equal if some server could confuse them. A string
 * is decoded, so that "a\/b" is "a/b", with U+FFFD for half a surrogate pair. A number with many
 * digits becomes its nearest double. */
sm_str mcp_id_key(sm_str id, char room[MCP_ID_MAX + 2]);

/* Opens a message and writes jsonrpc, id and method; the caller adds params, result or error, and
 * closes it. A request without an id is a notification; an answer without one has null. */
void mcp_put_request(sm_buf *out, sm_str id, const char *method);
void mcp_put_answer(sm_buf *out, sm_str id);

/* The whole of an answer that is an error. */
void mcp_put_error(sm_buf *out, sm_str id, int code, sm_str message);

/* The sentence about a name that is there twice, or beside one that looks like it. */
void mcp_put_flaw(char flaw[MCP_FLAW_MAX], const char *name, sm_likeness other);

#endif
