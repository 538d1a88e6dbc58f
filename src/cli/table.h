/*
 * Text for people: aligned tables, labelled rows, and blocks of lines.
 *
 * On a terminal a table fits its width: columns that may shrink give way, and what does not fit
 * ends in "...", but for a column that wraps: what does not fit beside the others goes onto lines
 * of its own. Elsewhere nothing is lost but the tail of very long cells. All text is made harmless
 * first (cli_put). Colours are those of stdout.
 */
#ifndef SM_CLI_TABLE_H
#define SM_CLI_TABLE_H

#include "cli/cli.h"

typedef enum cli_fit {
    CLI_WHOLE,   /* as wide as its widest cell */
    CLI_SHRINKS, /* gives way */
    CLI_WRAPS,   /* nothing of it is ever cut; the last column only */
} cli_fit;

typedef struct cli_column {
    const char *title;
    cli_fit fit;
    bool right; /* aligned to the right, as numbers are */
} cli_column;

typedef struct cli_cell {
    size_t at, n; /* in `text` */
    size_t width; /* in characters */
    cli_style style;
} cli_cell;

#define CLI_COLUMNS_MAX 16u

typedef struct cli_table {
    const cli_column *columns;
    size_t n_columns;
    cli_cell *cells; /* row by row */
    size_t count, room;
    size_t widths[CLI_COLUMNS_MAX]; /* of what was put before: later rows stay in line with it */
    sm_buf text;
} cli_table;

/* At most CLI_COLUMNS_MAX columns, which must outlive the table. */
void cli_table_init(cli_table *t, const cli_column *columns, size_t n);
void cli_table_fini(cli_table *t); /* accepts a zeroed table */

/* Appends the next cell. A failure is remembered and told by cli_table_put. */
void cli_table_cell(cli_table *t, cli_style style, sm_str text);
void cli_table_printf(cli_table *t, cli_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Appends the rows so far to `out`, each behind `indent` blanks, with the titles if `titles`; the
 * table is empty afterwards. */
void cli_table_put(cli_table *t, size_t indent, bool titles, sm_buf *out);

/* Appends a row "label  text", on a terminal in as many lines as it takes. Nothing if the text is
 * absent. */
void cli_row(sm_buf *out, const char *label, sm_str text);
void cli_rowf(sm_buf *out, const char *label, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Appends lines of text behind `indent` blanks, at most `most` bytes of it; says if there was more.
 */
void cli_put_block(sm_buf *out, size_t indent, sm_str text, size_t most);

/* Appends text in a style. */
void cli_styled(sm_buf *out, cli_style style, sm_str text);

#endif
