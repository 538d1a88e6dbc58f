/*
 * A server that is a child process and speaks over its standard input and output.
 *
 * It inherits our standard error, so that its messages arrive unchanged and at once. It has a
 * process group of its own (spawn.c), so a signal to our group does not end it. If we asked it to
 * end by a signal, the rest of its group ends with it. If it ends by itself, also because its input
 * has ended, what it started goes on, as without us: that may be what a call was for.
 *
 * All writes to it go through one buffer. Each request remembers at which byte of all writes it
 * begins, so that when the child ends we know which requests it may have seen.
 *
 * A pidfd tells when the child ends: others may hold its pipes open. We read the rest of its output
 * first. A child that is started again gets new pipes, so it never gets a request that was meant
 * for the one before.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "mcp/link.h"
#include "mcp/link/spawn.h"
#include "mcp/wire/lines.h"

#define FULL_BYTES     ((size_t)1 << 20) /* waiting to be written: whoever sends should wait */
#define WAITING_MAX    ((size_t)64 << 20)
#define READ_BYTES     65536u
#define LAST_READS     64 /* after its end: more than any pipe holds */
#define FIRST_PAUSE_MS 100
#define LAST_PAUSE_MS  30000
#define STEADY_MS      10000 /* one that lived so long starts the pauses anew */

typedef struct child {
    mcp_link link;
    mcp_child_options o;

    pid_t pid;                       /* 0: none runs */
    mcp_descriptor process, in, out; /* its end; what it says; what it is told */
    mcp_lines *lines;
    sm_buf waiting;   /* not written yet */
    size_t taken;     /* of that, what has been */
    uint64_t written; /* bytes that it has been given */
    uint64_t queued;  /* and those that are on their way */
    bool served;      /* it has said something */
    bool hang_up;     /* its input is closed once everything is written */
    bool full;
    bool held;    /* what it says is not read for now */
    bool closing; /* nothing is told any more */
    bool asked;   /* a signal has asked its group to end */
    int endings;  /* closing: how far we have gone */
    int64_t started_ns, pause_ms;
    mcp_alarm timer; /* the next start; closing: the next step */
    mcp_way ways;    /* requests under way: a ring */
} child;

static child *of(mcp_link *l)
{
    return SM_CONTAINER(l, child, link);
}

/* ---- requests under way ----------------------------------------------------------------------*/

static void way_remove(mcp_way *way)
{
    if (way->next == NULL)
        return;
    way->prev->next = way->next;
    way->next->prev = way->prev;
    way->next = way->prev = NULL;
}

static void way_add(child *c, mcp_way *way)
{
    way->next = &c->ways;
    way->prev = c->ways.prev;
    way->prev->next = way;
    c->ways.prev = way;
}

/* ---- writing ---------------------------------------------------------------------------------*/

static void close_watch(child *c, mcp_descriptor *w)
{
    if (w->fd < 0)
        return;
    mcp_loop_unwatch(c->link.loop, w);
    close(w->fd);
    w->fd = -1;
}

static size_t unwritten(const child *c)
{
    return c->waiting.len - c->taken;
}

/* Writes what the pipe takes. A child that does not read is not our trouble: its end is told by its
 * process. */
static void write_out(child *c)
{
    while (c->out.fd >= 0 && unwritten(c) > 0) {
        ssize_t n = write(c->out.fd, c->waiting.p + c->taken, unwritten(c));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            close_watch(c, &c->out);
            return;
        }
        c->taken += (size_t)n;
        c->written += (uint64_t)n;
    }
    if (unwritten(c) == 0) {
        if (c->waiting.cap > FULL_BYTES) {
            sm_buf_fini(&c->waiting);
            sm_buf_init(&c->waiting, WAITING_MAX);
        }
        sm_buf_clear(&c->waiting);
        c->taken = 0;
        if (c->hang_up)
            close_watch(c, &c->out);
    }
    if (c->out.fd >= 0)
        mcp_loop_watch(c->link.loop, &c->out, unwritten(c) > 0 ? MCP_WRITABLE : 0);
}

static void on_writable(mcp_descriptor *w, unsigned ready)
{
    (void)ready;
    child *c = SM_CONTAINER(w, child, out);
    write_out(c);
    if (c->full && unwritten(c) < FULL_BYTES / 2) {
        c->full = false;
        if (!c->closing)
            c->link.events.room(c->link.events.context);
    }
}

/* Room for more behind what is not written yet, without growing for what is. */
static void compact(child *c)
{
    if (c->taken < FULL_BYTES)
        return;
    memmove(c->waiting.p, c->waiting.p + c->taken, unwritten(c));
    c->waiting.len = unwritten(c);
    c->taken = 0;
}

static bool send(mcp_link *l, sm_str text, mcp_way *way)
{
    child *c = of(l);
    if (c->pid == 0 || c->closing || c->out.fd < 0)
        return false;
    compact(c);
    size_t before = c->waiting.len;
    sm_raw_put_line(&c->waiting, text);
    sm_buf_byte(&c->waiting, '\n');
    if (c->waiting.err != SM_OK) {
        c->waiting.err = SM_OK;
        c->waiting.len = before;
        return false;
    }
    if (way != NULL) {
        way->from = c->queued;
        way_add(c, way);
    }
    c->queued += c->waiting.len - before;
    write_out(c);
    c->full = unwritten(c) > FULL_BYTES;
    return true;
}

static void forget(mcp_link *l, mcp_way *way)
{
    (void)l;
    way_remove(way);
}

static bool full(const mcp_link *l)
{
    const child *c = (const child *)(const void *)l;
    return c->full;
}

/* ---- reading ---------------------------------------------------------------------------------*/

static bool on_line(void *context, const mcp_text_line *line)
{
    child *c = context;
    c->served = true;
    if (line->too_long)
        c->link.events.too_long(c->link.events.context, line);
    else
        c->link.events.message(c->link.events.context, NULL, line->text);
    return !c->closing;
}

typedef enum said { SAID_SOMETHING, SAID_NOTHING, SAID_LAST } said;

static said read_some(child *c)
{
    char bytes[READ_BYTES];
    ssize_t n = read(c->in.fd, bytes, sizeof bytes);
    if (n < 0)
        return errno == EINTR ? SAID_SOMETHING : errno == EAGAIN ? SAID_NOTHING : SAID_LAST;
    if (n == 0)
        return SAID_LAST;
    if (!c->closing && !mcp_lines_add(c->lines, (sm_str){bytes, (size_t)n}, on_line, c, NULL))
        kill(-c->pid, SIGKILL); /* out of memory: its answers would be lost */
    return SAID_SOMETHING;
}

static void on_readable(mcp_descriptor *w, unsigned ready)
{
    (void)ready;
    child *c = SM_CONTAINER(w, child, in);
    if (read_some(c) == SAID_LAST)
        close_watch(c, &c->in);
}

static void hold(mcp_link *l, bool held)
{
    child *c = of(l);
    c->held = held;
    if (c->in.fd >= 0)
        mcp_loop_watch(l->loop, &c->in, held ? 0 : MCP_READABLE);
}

/* ---- the process -----------------------------------------------------------------------------*/

static void release(child *c)
{
    close_watch(c, &c->process);
    close_watch(c, &c->in);
    close_watch(c, &c->out);
    mcp_loop_untime(c->link.loop, &c->timer);
    mcp_lines_free(c->lines);
    sm_buf_fini(&c->waiting);
    free(c);
}

static void say_status(int status, char out[64])
{
    if (WIFSIGNALED(status))
        snprintf(out, 64, "the server was ended by signal %d", WTERMSIG(status));
    else
        snprintf(out, 64, "the server ended with status %d", WEXITSTATUS(status));
}

/* Everything that is under way will get no answer. */
static void lose_all(child *c, const char *why)
{
    while (c->ways.next != &c->ways) {
        mcp_way *way = c->ways.next;
        way_remove(way);
        c->link.events.lost(c->link.events.context, way,
                            &(mcp_loss){.sent = c->written > way->from, .why = why});
    }
}

static void start_later(child *c)
{
    int64_t lived_ms = (sm_clock_mono_ns() - c->started_ns) / 1000000;
    c->pause_ms = c->pause_ms == 0 || lived_ms > STEADY_MS ? FIRST_PAUSE_MS : c->pause_ms * 2;
    if (c->pause_ms > LAST_PAUSE_MS)
        c->pause_ms = LAST_PAUSE_MS;
    mcp_loop_time(c->link.loop, &c->timer, sm_clock_deadline_ns(c->pause_ms));
}

static void on_end(mcp_descriptor *w, unsigned ready)
{
    (void)ready;
    child *c = SM_CONTAINER(w, child, process);
    int status = 0;
    if (waitpid(c->pid, &status, WNOHANG) != c->pid)
        return;
    if (c->asked)
        mcp_spawn_finish(c->link.loop, c->pid);
    mcp_loop_keep(c->link.loop, -1);
    /* What it said before its end is in the pipe already. Others may go on holding it open. */
    for (int i = 0; i < LAST_READS && c->in.fd >= 0 && read_some(c) == SAID_SOMETHING; i++)
        ;
    c->pid = 0;
    close_watch(c, &c->process);
    close_watch(c, &c->in);
    close_watch(c, &c->out);
    if (c->closing) {
        release(c);
        return;
    }
    char why[64];
    say_status(status, why);
    lose_all(c, why);
    sm_buf_clear(&c->waiting);
    c->taken = 0;
    c->full = false;
    bool again = c->o.ended(c->link.events.context, status, c->served);
    if (c->closing) /* by whoever was just told */
        return;
    c->link.events.down(c->link.events.context, why, !again);
    if (again && !c->closing)
        start_later(c);
}

/* Pipes with our ends not blocking, and none of them for anybody else's children. */
static bool make_pipes(int to[2], int from[2])
{
    to[0] = to[1] = from[0] = from[1] = -1;
    return pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0 &&
           fcntl(to[1], F_SETFL, O_NONBLOCK) == 0 && fcntl(from[0], F_SETFL, O_NONBLOCK) == 0;
}

/* Starts the process; 0 or what is wrong. */
static int start(child *c)
{
    int to[2], from[2];
    mcp_lines *lines = mcp_lines_new(MCP_LINE_MAX);
    int error = lines == NULL          ? ENOMEM
                : make_pipes(to, from) ? mcp_spawn(&c->o, to[0], from[1], &c->pid)
                                       : errno;
    if (lines != NULL) {
        for (int i = 0; i < 2; i++) {
            int theirs = i == 0 ? to[0] : from[1], ours = i == 0 ? to[1] : from[0];
            if (theirs >= 0)
                close(theirs);
            if (error != 0 && ours >= 0)
                close(ours);
        }
    }
    if (error == 0) {
        c->process.fd = (int)syscall(SYS_pidfd_open, c->pid, 0);
        c->in.fd = from[0];
        c->out.fd = to[1];
    }
    if (error != 0 || c->process.fd < 0 ||
        !mcp_loop_watch(c->link.loop, &c->process, MCP_READABLE) ||
        !mcp_loop_watch(c->link.loop, &c->in, c->held ? 0 : MCP_READABLE)) {
        mcp_lines_free(lines);
        if (error == 0) {
            error = errno;
            kill(-c->pid, SIGKILL);
            waitpid(c->pid, NULL, 0);
            c->pid = 0;
            close_watch(c, &c->process);
            close_watch(c, &c->in);
            close_watch(c, &c->out);
        }
        return error;
    }
    mcp_loop_keep(c->link.loop, 1);
    mcp_lines_free(c->lines);
    c->lines = lines;
    c->written = c->queued = 0;
    c->served = c->hang_up = c->asked = false;
    c->started_ns = sm_clock_mono_ns();
    return 0;
}

static void end_it(child *c);

static void on_time(mcp_alarm *t)
{
    child *c = SM_CONTAINER(t, child, timer);
    if (c->closing) {
        end_it(c);
    } else if (start(c) != 0) {
        start_later(c);
    } else {
        c->link.events.up(c->link.events.context);
    }
}

/* ---- ending ----------------------------------------------------------------------------------*/

/* Asks it to end, more urgently each time. */
static void end_it(child *c)
{
    if (c->endings > 0) {
        c->asked = true;
        kill(-c->pid, c->endings == 1 ? SIGTERM : SIGKILL);
    }
    c->endings++;
    mcp_loop_time(c->link.loop, &c->timer, sm_clock_deadline_ns(SM_MCP_END_MS));
}

static void close_link(mcp_link *l)
{
    child *c = of(l);
    c->closing = true;
    while (c->ways.next != &c->ways)
        way_remove(c->ways.next);
    mcp_loop_untime(l->loop, &c->timer);
    if (c->pid == 0) {
        release(c);
        return;
    }
    c->hang_up = true;
    write_out(c);
    end_it(c);
}

void mcp_child_hang_up(mcp_link *l)
{
    child *c = of(l);
    c->hang_up = true;
    write_out(c);
}

bool mcp_child_runs(const mcp_link *l)
{
    return ((const child *)(const void *)l)->pid > 0;
}

void mcp_child_signal(mcp_link *l, int signal, bool group)
{
    const child *c = of(l);
    if (c->pid > 0)
        kill(group ? -c->pid : c->pid, signal);
}

void mcp_child_ask(mcp_link *l, int signal)
{
    of(l)->asked = true;
    mcp_child_signal(l, signal, true);
}

static const mcp_link_ops ops = {
    .send = send, .forget = forget, .full = full, .hold = hold, .close = close_link};

sm_err mcp_child_open(mcp_loop *loop, const mcp_child_options *o, const mcp_link_events *events,
                      mcp_link **out, sm_fault *fault)
{
    child *c = calloc(1, sizeof *c);
    *out = NULL;
    if (c == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    c->link = (mcp_link){.ops = &ops, .events = *events, .loop = loop};
    c->o = *o;
    c->process = (mcp_descriptor){.fd = -1, .ready = on_end};
    c->in = (mcp_descriptor){.fd = -1, .ready = on_readable};
    c->out = (mcp_descriptor){.fd = -1, .ready = on_writable};
    c->timer.due = on_time;
    c->ways.next = c->ways.prev = &c->ways;
    sm_buf_init(&c->waiting, WAITING_MAX);
    int error = start(c);
    if (error != 0) {
        release(c);
        return sm_fault_set(fault, error == ENOENT ? SEMEL_E_NOT_FOUND : SEMEL_E_IO,
                            "the server cannot be started: %s: %s", o->argv[0],
                            error == ENOENT ? "command not found" : strerror(error));
    }
    *out = &c->link;
    return SM_OK;
}
