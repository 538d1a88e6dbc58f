/*
 * Framing by line feeds.
 *
 *     |  line  |  rest  |  what comes next
 *
 * `line` is the beginning of a line whose end has not come; it is never longer than a line may be.
 * `rest` is what the sink did not want yet: whole lines and the beginning of one, not looked at. Of
 * a line that is too long nothing is kept: its bytes are skimmed (skim.h) as they come.
 */
#include "mcp/wire/lines.h"

#include <stdlib.h>

#include "base/buf.h"
#include "json/scan.h"
#include "mcp/wire/skim.h"

#define KEEP_MAX ((size_t)64 << 10) /* bytes of memory that are kept for the next line */

struct mcp_lines {
    size_t line_max;
    sm_buf line;
    sm_buf rest;
    size_t rest_at;  /* so much of it has been used */
    bool skimming;   /* the line is too long */
    uint64_t length; /* then: how much of it has come, */
    bool returned;   /* and whether that ends with a carriage return */
    mcp_skim skim;
};

mcp_lines *mcp_lines_new(size_t line_max)
{
    mcp_lines *l = calloc(1, sizeof *l);
    if (l == NULL)
        return NULL;
    l->line_max = line_max;
    sm_buf_init(&l->line, line_max + 1); /* and a carriage return */
    sm_buf_init(&l->rest, SIZE_MAX / 2);
    return l;
}

void mcp_lines_free(mcp_lines *l)
{
    if (l == NULL)
        return;
    sm_buf_fini(&l->line);
    sm_buf_fini(&l->rest);
    free(l);
}

size_t mcp_lines_held(const mcp_lines *l)
{
    return l->line.len + l->rest.len - l->rest_at;
}

/* Empties a buffer, and gives back memory that a large line has left. */
static void empty(sm_buf *b)
{
    size_t limit = b->limit;
    if (b->cap > KEEP_MAX) {
        sm_buf_fini(b);
        sm_buf_init(b, limit);
    }
    sm_buf_clear(b);
}

static void skim(mcp_lines *l, sm_str bytes)
{
    if (bytes.n == 0)
        return;
    mcp_skim_add(&l->skim, bytes);
    l->length += bytes.n;
    l->returned = bytes.p[bytes.n - 1] == '\r';
}

/* Keeps a part of a line, or skims it. False when out of memory. */
static bool keep(mcp_lines *l, sm_str part)
{
    if (!l->skimming && l->line.len + part.n > l->line_max + 1) {
        l->skimming = true;
        l->length = 0;
        memset(&l->skim, 0, sizeof l->skim);
        skim(l, sm_buf_view(&l->line));
        empty(&l->line);
    }
    if (l->skimming)
        skim(l, part);
    else
        sm_buf_str(&l->line, part);
    return l->line.err == SM_OK;
}

static bool tell_too_long(mcp_lines *l, mcp_text_line_fn *sink, void *context)
{
    mcp_text_line line = {.too_long = true, .length = l->length - l->returned};
    line.id = mcp_skim_id(&l->skim);
    line.request = l->skim.method;
    line.result = mcp_skim_result(&l->skim);
    line.failed = line.result && l->skim.failed;
    l->skimming = false;
    return sink(context, &line);
}

/* Tells of a whole line, unless it is blank. False: stop. */
static bool tell(mcp_lines *l, sm_str text, mcp_text_line_fn *sink, void *context)
{
    if (text.n > 0 && text.p[text.n - 1] == '\r')
        text.n--;
    if (text.n > l->line_max) {
        /* Of one byte more it could not be told whether it is a carriage return. */
        memset(&l->skim, 0, sizeof l->skim);
        l->length = 0;
        skim(l, text);
        l->returned = false;
        return tell_too_long(l, sink, context);
    }
    if (text.n == 0 || sm_scan_blanks(text.p, text.p + text.n) == text.p + text.n)
        return true;
    mcp_text_line line = {.text = text, .length = text.n};
    return sink(context, &line);
}

/* Takes bytes line by line, until they are used up or the sink stops. False when out of memory. */
static bool take(mcp_lines *l, sm_str bytes, mcp_text_line_fn *sink, void *context, size_t *used,
                 bool *go_on)
{
    *used = 0;
    *go_on = true;
    while (*used < bytes.n && *go_on) {
        sm_str part = {bytes.p + *used, bytes.n - *used};
        const char *feed = memchr(part.p, '\n', part.n);
        if (feed == NULL) {
            *used = bytes.n;
            return keep(l, part);
        }
        part.n = (size_t)(feed - part.p);
        *used += part.n + 1;
        if (!l->skimming && l->line.len == 0) {
            *go_on = tell(l, part, sink, context); /* all of it is here: nothing is copied */
            continue;
        }
        if (!keep(l, part))
            return false;
        if (l->skimming) {
            *go_on = tell_too_long(l, sink, context);
        } else {
            *go_on = tell(l, sm_buf_view(&l->line), sink, context);
            empty(&l->line);
        }
    }
    return true;
}

/* Holds what the sink does not want yet. */
static bool hold(mcp_lines *l, sm_str bytes)
{
    if (l->rest_at > l->rest.len / 2) { /* seldom enough that moving costs little */
        memmove(l->rest.p, l->rest.p + l->rest_at, l->rest.len - l->rest_at);
        l->rest.len -= l->rest_at;
        l->rest_at = 0;
    }
    sm_buf_str(&l->rest, bytes);
    return l->rest.err == SM_OK;
}

bool mcp_lines_add(mcp_lines *l, sm_str piece, mcp_text_line_fn *sink, void *context, bool *stopped)
{
    bool go_on = true, well;
    size_t used;
    if (l->rest.len > 0) {
        well = hold(l, piece);
        if (well) {
            sm_str rest = {l->rest.p + l->rest_at, l->rest.len - l->rest_at};
            well = take(l, rest, sink, context, &used, &go_on);
            l->rest_at += used;
        }
        if (l->rest_at == l->rest.len) {
            empty(&l->rest);
            l->rest_at = 0;
        }
    } else {
        well = take(l, piece, sink, context, &used, &go_on);
        if (well && used < piece.n)
            well = hold(l, (sm_str){piece.p + used, piece.n - used});
    }
    if (stopped != NULL)
        *stopped = !go_on;
    return well;
}
