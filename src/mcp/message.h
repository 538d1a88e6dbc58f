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

#define MCP_LINE_MAX   ((size_t)16 << 20) /* bytes of one message */
#define MCP_DEPTH_MAX  1024u              /* of nested values */
#define MCP_METHOD_MAX 127u               /* bytes of a method that are looked at */
#define MCP_ID_MAX     1024u              /* bytes of an id as it is written */
#define MCP_FLAW_MAX   160u               /* bytes of a sentence about a flaw */

/* JSON-RPC's codes for a wrong message. */
#define MCP_E_JUNK    -32700
#define MCP_E_MESSAGE -32600
#define MCP_E_PARAMS  -32602

typedef enum mcp_kind {
    MCP_INVALID, /* `flaw` says why; `id` is there if it could be told */
    MCP_REQUEST,
    MCP_NOTIFICATION,
    MCP_RESULT,
    MCP_ERROR,
    MCP_BATCH, /* an array; see mcp_next */
} mcp_kind;

/* Borrowed from the text. Absent parts have p == NULL. */
typedef struct mcp_message {
    mcp_kind kind;
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

/* ---- inside ----------------------------------------------------------------------------------*/

/* These take a value that mcp_read has seen, such as params or result, or a part of one. */

/* The next member of an object, or element of an array (name is absent then). *cursor starts at
 * zero. `name` is as written, without its quotes. False at the end, and for any other value. */
bool mcp_next(sm_str value, size_t *cursor, sm_str *name, sm_str *item);

/* A member by its name, the first of several. False if it is missing, or the value is not an
 * object. */
bool mcp_find(sm_str object, const char *name, sm_str *out);

/* The same, but false also if there are several, or others that some readers take for it
 * (base/fold.h). */
bool mcp_find_plain(sm_str object, const char *name, sm_str *out);

/* A string, decoded and NUL-terminated. False if it is no string, is longer than room - 1, or holds
 * a NUL or half a surrogate pair; `out` is empty then. */
bool mcp_text(sm_str value, char *out, size_t room);

/* Whether it is a string that decodes to this. */
bool mcp_is(sm_str value, const char *text);

static inline bool mcp_is_object(sm_str value)
{
    return value.n > 0 && value.p[0] == '{';
}

static inline bool mcp_is_string(sm_str value)
{
    return value.n > 0 && value.p[0] == '"';
}

static inline bool mcp_is_true(sm_str value)
{
    return value.n == 4 && value.p[0] == 't';
}

/* Whether a text is one JSON value, so that these may be asked about it. */
bool mcp_is_json(sm_str text);

/* The form in which ids are compared: two ids are equal if some server could confuse them. A string
 * is decoded, so that "a\/b" is "a/b", with U+FFFD for half a surrogate pair. A number with many
 * digits becomes its nearest double. */
sm_str mcp_id_key(sm_str id, char room[MCP_ID_MAX + 2]);

/* ---- changing --------------------------------------------------------------------------------*/

/* One range of a text, and what is to stand there instead. */
typedef struct mcp_edit {
    sm_str at;   /* inside the text; empty: inserted there */
    sm_str with; /* as written */
} mcp_edit;

/* Appends the text with the edits made, which are in the text's order and do not overlap. */
void mcp_put_edited(sm_buf *out, sm_str text, const mcp_edit *edits, size_t n);

/* Appends an object with one member set: replaced in its place, else put in front. Further members
 * of the same name, or of one that readers who ignore case take for it, are removed. The object is
 * as written; an absent one, or another value, counts as {}. `value` absent: the member is
 * removed. */
void mcp_put_with(sm_buf *out, sm_str object, const char *name, sm_str value);

/* Appends a message as one line for every reader. Line feeds and carriage returns between its parts
 * become spaces. U+0085, U+2028 and U+2029 in its strings, at which some readers end a line, are
 * escaped. Check the buffer's err. */
void mcp_put_line(sm_buf *out, sm_str text);

#endif
