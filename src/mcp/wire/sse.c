/*
 * A line is a field's name, a colon, and its value; it ends with a carriage return, a line feed, or
 * both. The value of `data` goes straight into the event: most bytes of a stream are looked at by
 * memchr and copied once.
 *
 *     NAME --':'--> COLON --> VALUE --end of line--> NAME          a blank line: the event is given
 *
 * A stream may begin with a byte-order mark, which is no part of it.
 */
#include "mcp/wire/sse.h"

#include <stdlib.h>

#include "base/buf.h"

#define KEPT_MAX ((size_t)256 << 10) /* memory that outlives an event */
#define NAME_MAX 6u                  /* a longer name is none that counts */

typedef enum place { IN_NAME, AT_COLON, IN_VALUE } place;
typedef enum field { DATA, EVENT, ID, RETRY, OTHER } field;

struct mcp_sse {
    place place;
    field field;
    char name[NAME_MAX];
    size_t name_length; /* of the name so far; may be larger than what is kept of it */
    bool after_return;  /* a line feed now belongs to the carriage return before it */
    unsigned mark;      /* bytes of a byte-order mark that were seen; 3: no more to look for */

    sm_buf data, value, type, id;
    bool has_id, seen, too_long;
    uint64_t length; /* of the data so far */
    int64_t retry_ms;
};

static const char byte_order_mark[] = "\xEF\xBB\xBF";

mcp_sse *mcp_sse_new(size_t event_max)
{
    mcp_sse *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    sm_buf_init(&s->data, event_max + 1); /* a line feed behind the last line is taken off again */
    sm_buf_init(&s->value, MCP_EVENT_ID_MAX);
    sm_buf_init(&s->type, MCP_EVENT_ID_MAX);
    sm_buf_init(&s->id, MCP_EVENT_ID_MAX);
    s->retry_ms = -1;
    return s;
}

void mcp_sse_free(mcp_sse *s)
{
    if (s == NULL)
        return;
    sm_buf_fini(&s->data);
    sm_buf_fini(&s->value);
    sm_buf_fini(&s->type);
    sm_buf_fini(&s->id);
    free(s);
}

size_t mcp_sse_held(const mcp_sse *s)
{
    return s->data.len;
}

/* ---- lines -----------------------------------------------------------------------------------*/

static field field_of(const mcp_sse *s)
{
    static const char *const names[] = {
        [DATA] = "data", [EVENT] = "event", [ID] = "id", [RETRY] = "retry"};
    for (field f = DATA; f < OTHER; f++) {
        if (s->name_length == strlen(names[f]) && memcmp(s->name, names[f], s->name_length) == 0)
            return f;
    }
    return OTHER;
}

/* Some bytes of a value. False when out of memory. */
static bool add_value(mcp_sse *s, const char *p, size_t n)
{
    if (s->field == OTHER || n == 0)
        return true;
    sm_buf *to = s->field == DATA ? &s->data : &s->value;
    s->length += s->field == DATA ? n : 0;
    if (s->field == DATA && s->too_long)
        return true;
    sm_buf_bytes(to, p, n);
    if (to->err == SEMEL_E_NOMEM)
        return false;
    if (s->field == DATA && to->err != SM_OK) {
        s->too_long = true;
        sm_buf_clear(to);
    }
    return true; /* a small value that does not fit is remembered in its buffer */
}

static int64_t milliseconds(sm_str text)
{
    int64_t v = 0;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9')
            return -1;
        if (v < INT64_MAX / 100)
            v = v * 10 + (text.p[i] - '0');
    }
    return text.n == 0 ? -1 : v;
}

/* A value is whole. */
static bool end_value(mcp_sse *s)
{
    sm_str value = s->value.err == SM_OK ? sm_buf_view(&s->value) : SM_STR("");
    switch (s->field) {
    case DATA: s->seen = true; return add_value(s, "\n", 1);
    case EVENT:
        sm_buf_clear(&s->type);
        sm_buf_str(&s->type, value);
        if (s->value.err != SM_OK)
            sm_buf_text(&s->type, "?"); /* no type that anybody knows */
        break;
    case ID:
        if (value.n > 0 && memchr(value.p, '\0', value.n) != NULL)
            break;
        s->has_id = s->seen = true;
        sm_buf_clear(&s->id);
        sm_buf_str(&s->id, value);
        break;
    case RETRY:
        if (milliseconds(value) >= 0) {
            s->retry_ms = milliseconds(value);
            s->seen = true;
        }
        break;
    case OTHER: break;
    }
    sm_buf_clear(&s->value);
    return s->type.err != SEMEL_E_NOMEM && s->id.err != SEMEL_E_NOMEM;
}

/* A blank line. False: the sink wants no more. */
static bool give(mcp_sse *s, mcp_event_fn *sink, void *context)
{
    bool go_on = true;
    if (s->seen) {
        mcp_sse_event e = {.has_id = s->has_id, .retry_ms = s->retry_ms, .too_long = s->too_long};
        e.length = s->length - (s->length > 0);
        e.type = sm_buf_view(&s->type);
        e.id = sm_buf_view(&s->id);
        if (!s->too_long && s->data.len > 0)
            e.data = (sm_str){s->data.p, s->data.len - 1};
        go_on = sink(context, &e);
    }
    size_t limit = s->data.limit;
    if (s->data.cap > KEPT_MAX) {
        sm_buf_fini(&s->data);
        sm_buf_init(&s->data, limit);
    }
    sm_buf_clear(&s->data);
    sm_buf_clear(&s->type);
    sm_buf_clear(&s->id);
    s->has_id = s->seen = s->too_long = false;
    s->length = 0;
    s->retry_ms = -1;
    return go_on;
}

/* ---- bytes -----------------------------------------------------------------------------------*/

static void begin_line(mcp_sse *s)
{
    s->place = IN_NAME;
    s->name_length = 0;
}

/* One byte where a name may be. *stop: the sink wants no more. */
static bool name_byte(mcp_sse *s, char c, mcp_event_fn *sink, void *context, bool *stop)
{
    if (c == ':') {
        s->field = field_of(s);
        s->place = AT_COLON;
        return true;
    }
    if (c != '\r' && c != '\n') {
        if (s->name_length < NAME_MAX)
            s->name[s->name_length] = c;
        s->name_length++;
        return true;
    }
    bool right = true;
    if (s->name_length == 0) {
        *stop = !give(s, sink, context);
    } else {
        s->field = field_of(s);
        right = end_value(s);
    }
    begin_line(s);
    return right;
}

/* How many of these bytes come before the end of the line. */
static size_t line_rest(const char *p, size_t n)
{
    const char *feed = memchr(p, '\n', n);
    n = feed == NULL ? n : (size_t)(feed - p);
    const char *back = memchr(p, '\r', n);
    return back == NULL ? n : (size_t)(back - p);
}

/* Takes off a byte-order mark, which may come in pieces. What only began like one is part of the
 * first name after all, and makes it one that nobody knows. */
static sm_str skip_mark(mcp_sse *s, sm_str piece)
{
    while (s->mark < 3 && piece.n > 0) {
        if (piece.p[0] != byte_order_mark[s->mark]) {
            s->name_length = s->mark == 0 ? 0 : NAME_MAX + 1;
            s->mark = 3;
            break;
        }
        s->mark++;
        piece.p++;
        piece.n--;
    }
    return piece;
}

bool mcp_sse_add(mcp_sse *s, sm_str piece, mcp_event_fn *sink, void *context)
{
    piece = skip_mark(s, piece);
    bool stop = false;
    for (size_t i = 0; i < piece.n && !stop;) {
        char c = piece.p[i];
        if (s->after_return) {
            s->after_return = false;
            if (c == '\n') {
                i++;
                continue;
            }
        }
        if (s->place == IN_NAME) {
            s->after_return = c == '\r';
            i++;
            if (!name_byte(s, c, sink, context, &stop))
                return false;
            continue;
        }
        if (s->place == AT_COLON) {
            s->place = IN_VALUE;
            i += c == ' ';
            continue;
        }
        size_t n = line_rest(piece.p + i, piece.n - i);
        if (!add_value(s, piece.p + i, n))
            return false;
        i += n;
        if (i < piece.n) {
            s->after_return = piece.p[i++] == '\r';
            if (!end_value(s))
                return false;
            begin_line(s);
        }
    }
    return true;
}
