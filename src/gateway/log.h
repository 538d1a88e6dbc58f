/*
 * The log: one line for each thing, as text for people or JSON for machines, on stderr.
 *
 * A line has a time, a level, a message and named fields. Values are made visible: no line feed or
 * control character of a client reaches the terminal. Secrets are never passed in: no headers, no
 * bodies, no queries, no keys, no claims.
 *
 * Nobody waits for whoever reads the log: lines go through a bounded queue to a thread of their own
 * (log_queue.c). When it is full they are dropped and counted, and the log says how many are
 * missing once it is read again.
 */
#ifndef SM_GATEWAY_LOG_H
#define SM_GATEWAY_LOG_H

#include "base/buf.h"
#include "gateway/config.h"

typedef enum gw_log_level { GW_DEBUG, GW_INFO, GW_WARN, GW_ERROR } gw_log_level;

typedef struct gw_log {
    gw_log_rule rule;
    int fd;
} gw_log;

/* Fields are pairs of a name and a value, ended by NULL; numbers go as text made by the caller.
 * One write(2) for each line, from any thread. */
void gw_say(const gw_log *log, gw_log_level level, const char *message, ...)
    __attribute__((sentinel));

/* The same with values that are not NUL-terminated. */
typedef struct gw_log_field {
    const char *name;
    sm_str value; /* absent: left out */
    bool is_number;
} gw_log_field;
void gw_say_fields(const gw_log *log, gw_log_level level, const char *message,
                   const gw_log_field *fields, size_t n);

/* A line for each finding about a file, in the order of their places; `message` says what kind of
 * file it is. */
void gw_say_findings(const gw_log *log, const char *message, sm_str file, sm_report *report);

/* A line about a fault, with the file and its place there if it has one. */
void gw_say_fault(const gw_log *log, gw_log_level level, const char *message, sm_str file,
                  const sm_fault *fault);

/* ---- the queue (log_queue.c) -----------------------------------------------------------------*/

/* Starts the thread that writes, for the whole process: there is one stderr. Each start has its
 * stop. Without it, before and after, lines are written at once, and lost if there is no room for
 * them within a moment. */
bool gw_log_start(void);

/* Waits for what is in the queue to be written, but not for long. The last one ends the thread. */
void gw_log_stop(void);
void gw_log_flush(void);

/* Internal to the log: a line on its way, which is taken. `log` says how lines look that the queue
 * itself has to tell. */
void gw_log_put(const gw_log *log, sm_buf *line);

#endif
