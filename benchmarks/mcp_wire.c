/*
 * MCP over a child's standard streams. What is sent is held back until answers are taken, so that
 * however many requests follow from one read, they are one write; the other side does the same.
 *
 * Both ends may block: a pipe takes more than all that is ever in flight.
 */
#include "mcp_wire.h"

#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"

#define BYTES ((size_t)256 << 10)

extern char **environ;

typedef struct streams {
    bench_wire wire; /* first */
    pid_t child;
    int to, from;
    size_t filled, held;
    char out[BYTES], in[BYTES];
} streams;

static void flush(streams *s)
{
    for (size_t at = 0; at < s->filled;) {
        ssize_t n = write(s->to, s->out + at, s->filled - at);
        bench_must(n > 0 || errno == EINTR, "the MCP server does not read");
        at += n > 0 ? (size_t)n : 0;
    }
    s->filled = 0;
}

static void send_line(bench_wire *w, const char *text, size_t n)
{
    streams *s = (streams *)(void *)w;
    bench_must(n < sizeof s->out - s->filled, "too much is sent at once");
    memcpy(s->out + s->filled, text, n);
    s->filled += n;
    s->out[s->filled++] = '\n';
}

static void take(bench_wire *w, bench_answer_fn *fn, void *context)
{
    streams *s = (streams *)(void *)w;
    flush(s);
    ssize_t n = read(s->from, s->in + s->held, sizeof s->in - s->held);
    bench_must(n > 0, "the MCP server has ended, or says more than it was asked for");
    s->held += (size_t)n;
    char *at = s->in, *end = s->in + s->held, *feed;
    while ((feed = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        *feed = '\0';
        fn(context, at);
        at = feed + 1;
    }
    s->held = (size_t)(end - at);
    memmove(s->in, at, s->held);
}

static void hang_up(bench_wire *w)
{
    streams *s = (streams *)(void *)w;
    int status = 0;
    flush(s);
    close(s->to);
    bench_must(waitpid(s->child, &status, 0) == s->child && status == 0,
               "the MCP server did not end in peace");
    close(s->from);
    free(s);
}

bench_wire *bench_wire_spawn(char *const *argv)
{
    int to[2], from[2];
    posix_spawn_file_actions_t actions;
    streams *s = malloc(sizeof *s);
    bench_must(s != NULL && pipe(to) == 0 && pipe(from) == 0, "cannot make pipes");
    s->wire = (bench_wire){.send = send_line, .notify = send_line, .take = take, .close = hang_up};
    s->filled = s->held = 0;
    s->to = to[1];
    s->from = from[0];
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    const int others[] = {to[0], to[1], from[0], from[1]};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        posix_spawn_file_actions_addclose(&actions, others[i]);
    bench_must(posix_spawnp(&s->child, argv[0], &actions, NULL, argv, environ) == 0,
               "cannot start the MCP server");
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    return &s->wire;
}
