/* JSON that the ledger gives, for people: lists of objects as tables, and events as lines. Hashes
 * are left out. */
#ifndef SM_CLI_STORY_H
#define SM_CLI_STORY_H

#include "cli/table.h"
#include "cli/when.h"
#include "json/json.h"

/* Reads what the ledger wrote, which may be larger than what it takes in. NULL if that fails. */
const sm_json *cli_story_read(sm_arena *a, sm_str json);

/* The text of a member that is a string or a number; absent if there is none. */
sm_str cli_member(const sm_json *object, const char *name);

/* Its time, as how long ago that is; "" if there is none. */
sm_str cli_member_age(const sm_json *object, const char *name, int64_t now,
                      char out[CLI_WHEN_TEXT]);

/* Any value in one line: a time as people read it, a string's text, else canonical JSON. */
void cli_put_value(sm_buf *out, const sm_json *v);

/* A list of objects as a table, a column for each name that they have. */
void cli_put_objects(sm_buf *out, size_t indent, const sm_json *list);

/* The attempts of semel_show's story, a row for each: its list has an entry for all that befell
 * one. */
void cli_put_attempts(sm_buf *out, size_t indent, const sm_json *list);

/* What is stopped, as semel_stops and semel_scope_show list it (stop.c). */
void cli_put_stops(sm_buf *out, size_t indent, const sm_json *list);

/* Events as semel_event_json writes them. */
void cli_event_columns(cli_table *t, bool with_effect);
void cli_event_row(cli_table *t, const sm_json *event, bool with_effect);

#endif
