/*
 * JSON as text: its parts are found where they are, and nothing is taken apart. So what is passed
 * on stays as it was written: numbers, order and blanks, unknown members.
 *
 * Everything here takes a value that was scanned (json/scan.h), or a part of one. What was not is
 * never read beyond its end either: it just has no parts.
 */
#ifndef SM_JSON_RAW_H
#define SM_JSON_RAW_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/str.h"

/* ---- parts -----------------------------------------------------------------------------------*/

/* The next member of an object, or element of an array (name is absent then). *cursor starts at
 * zero. `name` is as written, without its quotes. False at the end, and for any other value. */
bool sm_raw_next(sm_str value, size_t *cursor, sm_str *name, sm_str *item);

/* A member by its name, the first of several. False if it is missing, or the value is not an
 * object. */
bool sm_raw_find(sm_str object, const char *name, sm_str *out);

/* The same, but false also if there are several, or others that some readers take for it
 * (base/fold.h). */
bool sm_raw_find_plain(sm_str object, const char *name, sm_str *out);

/* A string, decoded and NUL-terminated. False if it is no string, is longer than room - 1, or holds
 * a NUL or half a surrogate pair; `out` is empty then. */
bool sm_raw_text(sm_str value, char *out, size_t room);

/* Whether it is a string that decodes to this. */
bool sm_raw_is(sm_str value, const char *text);

static inline bool sm_raw_is_object(sm_str value)
{
    return value.n > 0 && value.p[0] == '{';
}

static inline bool sm_raw_is_string(sm_str value)
{
    return value.n > 0 && value.p[0] == '"';
}

static inline bool sm_raw_is_true(sm_str value)
{
    return value.n == 4 && value.p[0] == 't';
}

/* Whether a text is one JSON value, so that these may be asked about it. */
bool sm_raw_is_json(sm_str text);

/* ---- names and strings ------------------------------------------------------------------------*/

/* Whether a name as it is written, without its quotes, decodes to this, or a lenient reader would
 * take it for that (base/fold.h). */
typedef enum sm_likeness { SM_UNLIKE, SM_EXACT, SM_ALIKE } sm_likeness;
sm_likeness sm_raw_name_like(sm_str name, const char *text);

/* The same for names that users choose, where underscores and dashes count. */
sm_likeness sm_raw_word_like(sm_str name, const char *text);

/* A string, decoded and NUL-terminated; what does not fit is cut. What has no place in a C string,
 * NUL and half a surrogate pair, becomes U+FFFD: it must not look like a shorter or another text.
 */
void sm_raw_text_cut(sm_str value, char *out, size_t room);

/* ---- changing ---------------------------------------------------------------------------------*/

/* One range of a text, and what is to stand there instead. */
typedef struct sm_raw_edit {
    sm_str at;   /* inside the text; empty: inserted there */
    sm_str with; /* as written */
} sm_raw_edit;

/* Appends the text with the edits made, which are in the text's order and do not overlap. */
void sm_raw_put_edited(sm_buf *out, sm_str text, const sm_raw_edit *edits, size_t n);

/* Appends an object with one member set: replaced in its place, else put in front. Further members
 * of the same name, or of one that some readers take for it (sm_raw_word_like), are removed. The
 * object is as written; an absent one, or another value, counts as {}. `value` absent: the member
 * is removed. */
void sm_raw_put_with(sm_buf *out, sm_str object, const char *name, sm_str value);

/* Appends it as one line for every reader. Line feeds and carriage returns between its parts
 * become spaces. U+0085, U+2028 and U+2029 in its strings, at which some readers end a line, are
 * escaped. Check the buffer's err. */
void sm_raw_put_line(sm_buf *out, sm_str text);

#endif
