/* Tables are collected first, because a column is as wide as its widest cell. */
#include "cli/table.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/utf8.h"

#define GAP         2u   /* blanks between columns */
#define CELL_MAX    120u /* characters of a cell when there is no terminal to fit */
#define SHRUNK_MIN  8u   /* a column that shrinks keeps this many */
#define LABEL_WIDTH 16
#define WRAP_INDENT 4u  /* of what goes onto lines of its own */
#define WRAP_MIN    20u /* a narrower terminal wraps by itself */

/* The width of the terminal that stdout is, in characters; 0 if stdout is something else. */
static size_t width(void)
{
    struct winsize size;
    if (!isatty(STDOUT_FILENO))
        return 0;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

void cli_table_init(cli_table *t, const cli_column *columns, size_t n)
{
    *t = (cli_table){.columns = columns, .n_columns = n};
    assert(n <= CLI_COLUMNS_MAX);
    sm_buf_init(&t->text, SM_ARENA_MAX);
}

void cli_table_fini(cli_table *t)
{
    free(t->cells);
    sm_buf_fini(&t->text);
    *t = (cli_table){0};
}

static sm_str cell_text(const cli_table *t, const cli_cell *cell)
{
    return cell->n == 0 ? SM_STR("") : (sm_str){t->text.p + cell->at, cell->n};
}

void cli_table_cell(cli_table *t, cli_style style, sm_str text)
{
    if (t->count == t->room) {
        size_t room = t->room == 0 ? 256 : 2 * t->room;
        cli_cell *cells = realloc(t->cells, room * sizeof *cells);
        if (cells == NULL) {
            t->text.err = SEMEL_E_NOMEM;
            return;
        }
        t->cells = cells;
        t->room = room;
    }
    cli_cell *cell = &t->cells[t->count++];
    *cell = (cli_cell){.at = t->text.len, .style = style};
    bool wraps = t->columns[(t->count - 1) % t->n_columns].fit == CLI_WRAPS;
    cli_put(&t->text, wraps ? text : sm_utf8_cut(text, 4 * CELL_MAX + 4));
    cell->n = t->text.len - cell->at;
    cell->width = sm_utf8_count(cell_text(t, cell));
}

void cli_table_printf(cli_table *t, cli_style style, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cli_table_cell(t, style, sm_str_from(text));
}

/* How wide each column is to be. */
static void measure(cli_table *t, size_t indent, bool titles)
{
    size_t total = indent, room = width(), *widths = t->widths;
    for (size_t c = 0; c < t->n_columns; c++) {
        size_t title = titles ? strlen(t->columns[c].title) : 0;
        bool wraps = t->columns[c].fit == CLI_WRAPS;
        if (title > widths[c] || wraps)
            widths[c] = title;
        for (size_t i = c; !wraps && i < t->count; i += t->n_columns) {
            if (t->cells[i].width > widths[c])
                widths[c] = t->cells[i].width;
        }
        if (widths[c] > CELL_MAX)
            widths[c] = CELL_MAX;
        total += widths[c] + (c > 0 ? GAP : 0);
    }
    /* The widest column that may shrink gives way, one character at a time. */
    while (room > 0 && total > room) {
        size_t widest = t->n_columns;
        for (size_t c = 0; c < t->n_columns; c++) {
            if (t->columns[c].fit == CLI_SHRINKS && widths[c] > SHRUNK_MIN &&
                (widest == t->n_columns || widths[c] > widths[widest]))
                widest = c;
        }
        if (widest == t->n_columns)
            break;
        widths[widest]--;
        total--;
    }
    size_t last = t->n_columns - 1;
    if (t->columns[last].fit == CLI_WRAPS) /* it gets what the others leave */
        widths[last] = room == 0 ? SIZE_MAX : room > total ? widths[last] + room - total : 0;
}

static void put_blanks(sm_buf *out, size_t n)
{
    while (n-- > 0)
        sm_buf_byte(out, ' ');
}

void cli_styled(sm_buf *out, cli_style style, sm_str text)
{
    if (text.n == 0)
        return;
    if (style != CLI_PLAIN)
        sm_buf_text(out, cli_color(stdout, style));
    sm_buf_str(out, text);
    if (style != CLI_PLAIN)
        sm_buf_text(out, cli_color(stdout, CLI_PLAIN));
}

/* Appends text in lines of at most `width` characters behind `indent` blanks, the first of which
 * are there already. Words are not broken: a name stays one that can be copied. */
static void put_wrapped(sm_buf *out, size_t indent, size_t width, cli_style style, sm_str text)
{
    for (size_t start = 0; start < text.n;) {
        size_t end = 0, at = start;
        for (size_t n = 0; at < text.n && (n <= width || end == 0); n++) {
            if (text.p[at] == ' ')
                end = at;
            at += sm_utf8_step((const unsigned char *)text.p + at, text.n - at);
            if (at == text.n && n < width)
                end = at;
        }
        if (end == 0)
            end = text.n;
        if (start > 0)
            put_blanks(out, indent);
        cli_styled(out, style, (sm_str){text.p + start, end - start});
        sm_buf_byte(out, '\n');
        start = end < text.n ? end + 1 : end;
    }
}

/* The first `n` characters of a text that is longer, the last three being dots. */
static size_t shortened(sm_str text, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i + 3 < n && at < text.n; i++)
        at += sm_utf8_step((const unsigned char *)text.p + at, text.n - at);
    return at;
}

static void put_cell(sm_buf *out, const cli_column *column, size_t width, bool last, sm_str text,
                     size_t text_width, cli_style style)
{
    bool cut = text_width > width;
    size_t pad = cut ? 0 : width - text_width;
    if (cut) {
        text.n = shortened(text, width);
        text_width = width;
    }
    if (column->right)
        put_blanks(out, pad);
    cli_styled(out, style, text);
    if (cut)
        sm_buf_text(out, "...");
    if (!last)
        put_blanks(out, (column->right ? 0 : pad) + GAP);
}

/* Nobody sees the blanks of empty cells at a line's end. */
static void end_line(sm_buf *out)
{
    while (out->len > 0 && out->p[out->len - 1] == ' ')
        out->len--;
    sm_buf_byte(out, '\n');
}

void cli_table_put(cli_table *t, size_t indent, bool titles, sm_buf *out)
{
    size_t room = width(), beside = indent + WRAP_INDENT;
    size_t wrapped = room > beside + WRAP_MIN ? room - beside : WRAP_MIN;
    measure(t, indent, titles);
    if (titles) {
        put_blanks(out, indent);
        for (size_t c = 0; c < t->n_columns; c++)
            put_cell(out, &t->columns[c], t->widths[c], c + 1 == t->n_columns,
                     sm_str_from(t->columns[c].title), strlen(t->columns[c].title), CLI_DIM);
        end_line(out);
    }
    for (size_t i = 0; i < t->count; i++) {
        size_t c = i % t->n_columns;
        const cli_cell *cell = &t->cells[i];
        if (c == 0)
            put_blanks(out, indent);
        if (t->columns[c].fit == CLI_WRAPS && cell->width > t->widths[c]) {
            end_line(out);
            put_blanks(out, indent + WRAP_INDENT);
            put_wrapped(out, indent + WRAP_INDENT, wrapped, cell->style, cell_text(t, cell));
            continue;
        }
        put_cell(out, &t->columns[c], t->widths[c], c + 1 == t->n_columns, cell_text(t, cell),
                 cell->width, cell->style);
        if (c + 1 == t->n_columns)
            end_line(out);
    }
    if (t->text.err != SM_OK)
        out->err = t->text.err;
    t->count = 0;
    sm_buf_clear(&t->text);
}

void cli_row(sm_buf *out, const char *label, sm_str text)
{
    if (text.p == NULL)
        return;
    sm_buf_printf(out, "%s%-*s%s ", cli_color(stdout, CLI_BOLD), LABEL_WIDTH, label,
                  cli_color(stdout, CLI_PLAIN));
    size_t room = width();
    if (room < LABEL_WIDTH + 1 + WRAP_MIN || text.n == 0) {
        cli_put(out, text);
        sm_buf_byte(out, '\n');
        return;
    }
    sm_buf shown;
    sm_buf_init(&shown, 4 * SM_ARENA_MAX);
    cli_put(&shown, text);
    put_wrapped(out, LABEL_WIDTH + 1, room - LABEL_WIDTH - 1, CLI_PLAIN, sm_buf_view(&shown));
    if (shown.err != SM_OK)
        out->err = shown.err;
    sm_buf_fini(&shown);
}

void cli_rowf(sm_buf *out, const char *label, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cli_row(out, label, sm_str_from(text));
}

void cli_put_block(sm_buf *out, size_t indent, sm_str text, size_t most)
{
    sm_str shown = text.n > most ? sm_utf8_cut(text, most) : text;
    for (size_t at = 0; at < shown.n;) {
        const char *feed = memchr(shown.p + at, '\n', shown.n - at);
        size_t n = feed == NULL ? shown.n - at : (size_t)(feed - shown.p) - at;
        put_blanks(out, indent);
        cli_put(out, (sm_str){shown.p + at, n});
        sm_buf_byte(out, '\n');
        at += n + 1;
    }
    if (shown.n < text.n) {
        put_blanks(out, indent);
        sm_buf_printf(out, "... and %zu bytes more; --json has all of it\n", text.n - shown.n);
    }
}
