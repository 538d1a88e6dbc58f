/*
 * Lines of the log. Each is put together in memory and written by one write(2), so that lines of
 * several threads are not mixed.
 *
 *     2026-11-16T06:07:01.123Z info  listening  address=http://127.0.0.1:8787
 *     {"time":"2026-11-16T06:07:01.123Z","level":"info","message":"listening","address":"..."}
 */
#include "gateway/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stamp.h"
#include "base/utf8.h"
#include "base/visible.h"
#include "json/write.h"

#define VALUE_MAX  1024u /* bytes of a value that are shown */
#define LINE_MAX   16384u
#define FIELDS_MAX 24u

static const char *const level_names[] = {"debug", "info", "warn", "error"};

/* A value as it may be shown: visible, and cut. */
static void put_value(sm_buf *out, sm_str value)
{
    sm_str head = sm_utf8_cut(value, VALUE_MAX);
    sm_visible_put(out, head);
    if (head.n < value.n)
        sm_buf_text(out, "...");
}

/* Whether a value needs quotes, for blanks and quotes in it would end it too early. */
static bool needs_quotes(sm_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == ' ' || s.p[i] == '"' || s.p[i] == '=' || s.p[i] == '\\')
            return true;
    }
    return s.n == 0;
}

static void put_field(sm_buf *line, sm_buf *room, bool json, const gw_log_field *f)
{
    sm_buf_clear(room);
    put_value(room, f->value);
    sm_str value = sm_buf_view(room);
    if (json)
        sm_put_name(line, f->name);
    else
        sm_buf_printf(line, " %s=", f->name);
    if (f->is_number || (!json && !needs_quotes(value)))
        sm_buf_str(line, value);
    else
        sm_json_put_string(line, value);
}

static void put_head(sm_buf *line, sm_buf *room, bool json, gw_log_level level, const char *message)
{
    char stamp[SM_STAMP_TEXT];
    sm_stamp_text(sm_clock_ms(), stamp);
    put_value(room, sm_str_from(message));
    if (!json) {
        sm_buf_printf(line, "%s %-5s ", stamp, level_names[level]);
        sm_buf_str(line, sm_buf_view(room));
        return;
    }
    sm_buf_byte(line, '{');
    sm_put_text(line, "time", sm_str_from(stamp));
    sm_put_text(line, "level", sm_str_from(level_names[level]));
    sm_put_text(line, "message", sm_buf_view(room));
}

void gw_say_fields(const gw_log *log, gw_log_level level, const char *message,
                   const gw_log_field *fields, size_t n)
{
    if ((int)level < log->rule.level)
        return;
    bool json = log->rule.format == GW_LOG_JSON;
    sm_buf line, room;
    sm_buf_init(&line, LINE_MAX);
    sm_buf_init(&room, LINE_MAX);
    put_head(&line, &room, json, level, message);
    if (n > 0 && !json)
        sm_buf_byte(&line, ' ');
    for (size_t i = 0; i < n; i++) {
        size_t before = line.len;
        if (fields[i].value.p == NULL)
            continue;
        put_field(&line, &room, json, &fields[i]);
        if (line.err != SM_OK || line.len + 2 > LINE_MAX) {
            line.len = before; /* what is whole stays: a line is never half a field */
            line.err = SM_OK;
            break;
        }
    }
    sm_buf_text(&line, json ? "}\n" : "\n");
    gw_log_put(log, &line);
    sm_buf_fini(&room);
}

void gw_say(const gw_log *log, gw_log_level level, const char *message, ...)
{
    gw_log_field fields[FIELDS_MAX];
    size_t n = 0;
    va_list args;
    va_start(args, message);
    for (const char *name; n < FIELDS_MAX && (name = va_arg(args, const char *)) != NULL; n++)
        fields[n] = (gw_log_field){.name = name, .value = sm_str_from(va_arg(args, const char *))};
    va_end(args);
    gw_say_fields(log, level, message, fields, n);
}

static void say_place(const gw_log *log, gw_log_level level, const char *message, sm_str file,
                      uint32_t line, uint32_t column, sm_str what)
{
    char lines[16], columns[16];
    snprintf(lines, sizeof lines, "%u", line);
    snprintf(columns, sizeof columns, "%u", column);
    const gw_log_field fields[] = {{"file", file, false},
                                   {"line", sm_str_from(line > 0 ? lines : NULL), true},
                                   {"column", sm_str_from(line > 0 ? columns : NULL), true},
                                   {"what", what, false}};
    gw_say_fields(log, level, message, fields, sizeof fields / sizeof fields[0]);
}

void gw_say_findings(const gw_log *log, const char *message, sm_str file, sm_report *report)
{
    sm_report_sort(report);
    for (uint32_t i = 0; i < report->count; i++) {
        const sm_finding *f = &report->items[i];
        say_place(log, f->severity == SM_ERROR ? GW_ERROR : GW_WARN, message, file, f->line,
                  f->column, f->text);
    }
}

void gw_say_fault(const gw_log *log, gw_log_level level, const char *message, sm_str file,
                  const sm_fault *fault)
{
    say_place(log, level, message, fault->line > 0 ? file : (sm_str){0}, fault->line, fault->column,
              sm_str_from(fault->text));
}
