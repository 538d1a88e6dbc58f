/*
 * One connection of an MCP client that measures: to a child's standard streams (mcp_wire.c), or
 * over Streamable HTTP (mcp_wire_http.c).
 *
 * It can do what the peers of the benchmark need and no more. Answers are told apart by the caller,
 * if at all; they come in any order. Whatever goes wrong ends the program with a sentence.
 */
#ifndef SM_BENCH_MCP_WIRE_H
#define SM_BENCH_MCP_WIRE_H

#include <stddef.h>

#define BENCH_IN_FLIGHT 64 /* requests at once, at most */

/* An answer, ended by a zero byte. */
typedef void bench_answer_fn(void *context, const char *text);

typedef struct bench_wire {
    /* A request; it may be held back until answers are taken. */
    void (*send)(struct bench_wire *w, const char *text, size_t n);
    /* A message that nobody answers. */
    void (*notify)(struct bench_wire *w, const char *text, size_t n);
    /* Waits for answers, and gives out those that are there. */
    void (*take)(struct bench_wire *w, bench_answer_fn *fn, void *context);
    /* Ends the connection in good order, and frees it. Nothing is in flight. */
    void (*close)(struct bench_wire *w);
} bench_wire;

/* Starts the command, which must end with 0. */
bench_wire *bench_wire_spawn(char *const *argv);

/* `url` is http://127.0.0.1:PORT/PATH. Shows the token in SEMEL_BENCH_TOKEN, if there is one. */
bench_wire *bench_wire_dial(const char *url);

#endif
