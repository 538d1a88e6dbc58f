/*
 * What a server says of its tools: their hints, and the defaults of their arguments; and what it
 * said when they were first seen, so that a change is noticed.
 *
 * A server is not trusted. Its list is bounded, and a tool whose description cannot be understood
 * counts as one without any hints.
 */
#ifndef SM_MCP_TOOLS_H
#define SM_MCP_TOOLS_H

#include "base/digest.h"
#include "core/contract.h"
#include "core/defaults.h"
#include "json/json.h"
#include "mcp/message.h"

#define MCP_TOOLS_MAX 10000u /* of one server */
#define MCP_PAGES_MAX 1000u  /* of one list */

/* As annotated; what is not said has the protocol's default. */
typedef struct mcp_hints {
    bool read_only;   /* false */
    bool destructive; /* true */
    bool idempotent;  /* false */
    bool open_world;  /* true */
} mcp_hints;

typedef struct mcp_tool {
    sm_str name;
    sm_str description;        /* as the server says it, decoded; absent: none, or far too long */
    mcp_hints said;            /* by the server */
    mcp_hints hints;           /* the stricter of what is said and what was pinned */
    const sm_json *schema;     /* its inputSchema; NULL: none that could be read */
    const sm_defaults *fill;   /* defaults that count: the schema's, until pins are checked */
    sm_str pinned;             /* those as they are pinned; absent: they are not */
    const sm_defaults *latest; /* the schema's, as the server says them now */
    bool drifted;              /* which are not those that count */
    bool unsure;               /* it is not known which count: what leaves one out is refused */
    bool gone;             /* it is not listed any more, and only its pinned defaults are known */
    bool has_output;       /* it has an outputSchema, which clients hold its results to */
    sm_hash schema_digest; /* of its canonical form, or of its text if it could not be read */
} mcp_tool;

typedef struct mcp_tools mcp_tools;

mcp_tools *mcp_tools_new(void);    /* NULL when out of memory */
void mcp_tools_free(mcp_tools *t); /* accepts NULL */

/* Adds one page: the result of tools/list, as written. `cursor` is the next page's, as
 * written, until that is added; absent: this was the last, or no more is read. SEMEL_E_INVALID with
 * a sentence if it is no such result; a tool that is listed twice keeps its first description. */
sm_err mcp_tools_add(mcp_tools *t, sm_str result, sm_str *cursor, sm_fault *fault);

size_t mcp_tools_count(const mcp_tools *t);

/* How many were listed and not added: their names cannot be called, or there are too many. */
size_t mcp_tools_left_out(const mcp_tools *t);
const mcp_tool *mcp_tools_at(const mcp_tools *t, size_t i);      /* in the server's order */
const mcp_tool *mcp_tools_find(const mcp_tools *t, sm_str name); /* NULL: it is not listed */

/* The same, or one that is gone: its calls are still filled as they were. */
const mcp_tool *mcp_tools_known(const mcp_tools *t, sm_str name);

/* Whether a tool that the contract does not list is a read because the server says so. */
bool mcp_tool_hinted(const mcp_tool *tool, const sm_contracts *set);

/* The arguments of a call with the tool's defaults put in where something is missing, at any
 * depth of objects that are there, as JSON text in the arena. `args` is as written; absent: {}.
 * Those without anything to fill are given as they are. The fault is about the arguments, which
 * must be an object. `tool` may be NULL. */
sm_err mcp_tool_fill(const mcp_tool *tool, sm_arena *a, sm_str args, const sm_json_limits *limits,
                     sm_str *out, sm_fault *fault);

/* Whether the arguments leave out what has, or had, a default, and the server means another one
 * than is filled in: then the filled arguments are not what the server will do. */
bool mcp_tool_loose(const mcp_tool *tool, sm_arena *a, sm_str args, const sm_json_limits *limits);

/* Appends the result of tools/list without the tools that `shown` does not want, else byte for
 * byte. One whose name cannot be told for sure is left out too. */
typedef bool mcp_shown_fn(void *context, sm_str name);
sm_err mcp_tools_filter(sm_str result, mcp_shown_fn *shown, void *context, sm_buf *out);

/* ---- pins (pins.c) ---------------------------------------------------------------------------*/

/* Told one thing that has changed, in a sentence that names the tool and says what to do. */
typedef void mcp_pin_fn(void *context, const char *text);

/* Compares with what was seen first, kept in a file of that name (a JSON document, readable by
 * people, replaced as a whole; its directory is made if need be); tools that are new are added to
 * it. Told are: hints that have loosened (the tool keeps the stricter ones in `t`), an input schema
 * that has changed (once: its digest is pinned anew then). A file that cannot be read or written is
 * told too.
 *
 * From then on the tools in `t` have the defaults that were seen first, and no others; so do tools
 * that are gone. Where nothing can be kept (`path` is NULL, or must not be written), they have
 * none. If the file cannot be used for a reason that passes, or has to be mended, they are unsure.
 *
 * `before` (may be NULL) is an earlier list that was checked: tools that are still the same keep
 * what came of it, without being told again; if all are, the file is not looked at. */
void mcp_pins_check(const char *path, mcp_tools *t, const mcp_tools *before, mcp_pin_fn *tell,
                    void *context);

/* For pins.c: the hints of the i-th tool, to be made stricter. */
mcp_hints *mcp_tools_hints(mcp_tools *t, size_t i);

/* For pins.c: the defaults of the i-th tool are those of this text, or there are none (absent); or
 * nobody knows now. And a tool that is gone has those of this text. */
void mcp_tools_pin(mcp_tools *t, size_t i, sm_str text);
void mcp_tools_doubt(mcp_tools *t, size_t i);
void mcp_tools_pin_gone(mcp_tools *t, sm_str name, sm_str text);

/* For pins.c: what mcp_tools_pin_gone has added. */
size_t mcp_tools_gone(const mcp_tools *t);
const mcp_tool *mcp_tools_gone_at(const mcp_tools *t, size_t i);

#endif
