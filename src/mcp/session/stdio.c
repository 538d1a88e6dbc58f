/*
 * One loop moves everything: the client's lines in, its answers out, the server's process, signals.
 *
 * It also gathers the evidence for told.c, from the kernel. A request was sent after its pipe was
 * last seen empty. It counts as sent when it is read, unless the last look is longer ago than
 * LATE_MS: we may have been stopped, or too busy, while the client's timeout ran. An answer was
 * taken once the pipe or socket holds nothing more of it: a stopped client has not taken it. We
 * look soon after an answer is written, then less and less often.
 */
#include "mcp/stdio.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "mcp/session/outlet.h"
#include "mcp/session/parting.h"
#include "mcp/session/session.h"
#include "mcp/wire/lines.h"

#define READ_BYTES  65536u
#define HOLD_BYTES  ((size_t)4 << 20) /* not taken by the client: the server has to wait */
#define PATIENCE_MS 10000             /* for answers, after the end of the input (HTTP) */
#define SILENT_MS   250  /* a client that closes its end after such a silence has left */
#define GRACE_MS    1500 /* for running writes, after a signal: clients kill after 2 s */
#define SETTLE_MS   1000 /* for the last of the server's group */
#define FUTILE_MAX  5    /* starts in a row after which nothing was said */
#define SOON_MS     2    /* the first look at whether an answer was taken */
#define LOOK_MS     1000 /* at most this long between two looks */
#define LATE_MS     1500 /* longer between two looks: we were stopped, or starved */

/* The client. end_of_input moves it to the right, note_gone down.
 *
 *     SPEAKS ---- its input ends ----> SILENT
 *       |                                |
 *       | it cannot be told anything     | the same
 *       v                                v
 *     LEAVES ---- its input is left --> GONE
 */
typedef enum stdio_client {
    SPEAKS,
    SILENT, /* it says nothing more, but may still listen */
    LEAVES, /* it does not listen any more, and on_went ends its input too */
    GONE,   /* neither */
} stdio_client;

/* The server's end: SERVES -> HUNG_UP (hang_up) -> OVER (on_over), or at once to OVER. */
typedef enum stdio_life {
    SERVES,
    HUNG_UP, /* the client is SILENT or GONE and nothing is under way: the server was told */
    OVER,    /* it has ended, and does not come back */
} stdio_life;

/* Signals that ask us to end: UNASKED -> GRACE (on_signal) -> ASKED (pass_signal). A signal after
 * the first is passed on at once. */
typedef enum stdio_asked {
    UNASKED,
    GRACE, /* `signal` is passed on when no write is running, or after GRACE_MS */
    ASKED,
} stdio_asked;

typedef struct stdio {
    mcp_hub *hub;
    mcp_server *server;
    mcp_session *session;
    mcp_link *link;
    bool child; /* the server is one */
    sm_signals *signals;
    mcp_descriptor in, out, steering;
    mcp_outlet outlet;
    mcp_lines *lines;
    stdio_client client;
    stdio_life life;
    stdio_asked asked;
    int signal;    /* GRACE: that one; otherwise 0 */
    bool resuming; /* `resume` is in the mailbox */
    mcp_post resume, went;
    bool held;     /* the server has to wait for the client */
    uint64_t seen; /* bytes that the client has taken */
    mcp_alarm look;
    int64_t pause_ms; /* between two looks */
    int64_t empty_ms; /* when the input was last seen open and empty */
    int64_t heard_ms; /* when the client last said something, or could again; 0: it has not yet */
    int status;       /* of the server, at the end */
    int futile;       /* ends in a row before which it said nothing */
    mcp_alarm grace, patience;
    mcp_parting parting;
} stdio;

static void pass_signal(stdio *p);

/* ---- its state -------------------------------------------------------------------------------*/

/* Nothing more will be read from the client. */
static bool has_ended(const stdio *p)
{
    return p->client == SILENT || p->client == GONE;
}

/* Nothing more is written to it. */
static bool is_gone(const stdio *p)
{
    return p->client == LEAVES || p->client == GONE;
}

static const char *stdio_flaw(const stdio *p)
{
    if (has_ended(p) != (p->in.fd < 0))
        return "the input of a client that speaks is closed, or of a silent one is open";
    if (p->life == HUNG_UP && !has_ended(p))
        return "the server was told of an end that has not come";
    if (p->life == OVER && !p->child)
        return "a server over HTTP has no end";
    if ((p->asked == GRACE) != (p->signal != 0))
        return "a signal is passed on later and is not known, or is known and is not passed on";
    return NULL;
}

static void set_client(stdio *p, stdio_client to)
{
    p->client = to;
    assert(stdio_flaw(p) == NULL);
}

static void set_life(stdio *p, stdio_life to)
{
    p->life = to;
    assert(stdio_flaw(p) == NULL);
}

static void set_asked(stdio *p, stdio_asked to, int signal)
{
    p->asked = to;
    p->signal = signal;
    assert(stdio_flaw(p) == NULL);
}

/* ---- the end ---------------------------------------------------------------------------------*/

/* The client says nothing more: once nothing that writes is under way, the server is told. */
static void hang_up(stdio *p)
{
    if (!has_ended(p) || p->life != SERVES || (mcp_lines_held(p->lines) > 0 && !is_gone(p)) ||
        mcp_session_busy(p->session, !p->child))
        return;
    set_life(p, HUNG_UP);
    if (p->child && mcp_child_runs(p->link))
        mcp_child_hang_up(p->link);
    else
        mcp_loop_stop(p->hub->loop);
}

/* What a distant server has not answered by now is given up; what writes is waited for. */
static void on_patience(mcp_alarm *t)
{
    stdio *p = SM_CONTAINER(t, stdio, patience);
    if (mcp_session_busy(p->session, false))
        mcp_loop_time(p->hub->loop, &p->patience, sm_clock_deadline_ns(PATIENCE_MS));
    else
        mcp_loop_stop(p->hub->loop);
}

static void end_of_input(stdio *p)
{
    if (p->in.fd >= 0)
        mcp_loop_unwatch(p->hub->loop, &p->in);
    p->in.fd = -1;
    set_client(p, is_gone(p) ? GONE : SILENT);
    mcp_session_deaf(p->session);
    if (!p->child)
        mcp_loop_time(p->hub->loop, &p->patience, sm_clock_deadline_ns(PATIENCE_MS));
    hang_up(p);
}

/* The client has gone: what is under way is recorded, and nothing stays for ever. */
static void leave(stdio *p)
{
    mcp_session_end(p->session);
    end_of_input(p);
    mcp_parting_begin(&p->parting);
}

static void on_went(mcp_post *post)
{
    leave(SM_CONTAINER(post, stdio, went));
}

/* Not from inside of what the session does. */
static void note_gone(stdio *p)
{
    set_client(p, has_ended(p) ? GONE : LEAVES);
    mcp_loop_post(p->hub->loop, &p->went);
}

/* ---- evidence --------------------------------------------------------------------------------*/

/* Looks in so many milliseconds. A look that is due before stays: a steady stream of messages must
 * not postpone it for ever. */
static void look_in(stdio *p, int64_t ms)
{
    int64_t due_ns = sm_clock_deadline_ns(ms);
    if (p->look.timer.at == 0 || p->look.timer.due_ns > due_ns)
        mcp_loop_time(p->hub->loop, &p->look, due_ns);
}

/* A client that leaves closes our input and takes no more messages: Python's raises on any. A shell
 * that pipes requests in closes it right after the last one, and reads on. The end may be read much
 * later than it came. So what tells is a look that found the input open after a while of silence.
 */
static bool was_silent(const stdio *p)
{
    return p->empty_ms - p->heard_ms >= SILENT_MS;
}

/* The client said something, or could again: its silence begins anew. */
static void note_heard(stdio *p)
{
    p->heard_ms = sm_clock_boot_ms();
    look_in(p, SILENT_MS);
}

/* The input is open and empty. If nobody has looked for long, we were stopped, and the client may
 * have been stopped with us. */
static void note_empty(stdio *p, int64_t now_ms)
{
    if (now_ms - p->empty_ms > LATE_MS && p->heard_ms != 0)
        p->heard_ms = now_ms;
    p->empty_ms = now_ms;
}

/* How much the client has taken by `now_ms`. */
static void note_taken(stdio *p, int64_t now_ms)
{
    uint64_t untaken, written = p->outlet.written;
    if (p->seen == written || !mcp_outlet_untaken(&p->outlet, &untaken) ||
        untaken > written - p->seen)
        return;
    p->seen = written - untaken;
    mcp_session_taken(p->session, p->seen, now_ms);
}

static void on_look(mcp_alarm *t)
{
    stdio *p = SM_CONTAINER(t, stdio, look);
    int64_t now = sm_clock_boot_ms();
    struct pollfd in = {.fd = p->in.fd, .events = POLLIN};
    if (!has_ended(p) && poll(&in, 1, 0) == 0)
        note_empty(p, now);
    note_taken(p, now);
    /* Nobody reads our output, and the input has ended or is not read now: the client is gone. */
    if ((has_ended(p) || mcp_session_paused(p->session)) && !is_gone(p) &&
        !mcp_outlet_heard(&p->outlet))
        note_gone(p);
    int64_t silent_ms = p->heard_ms + SILENT_MS - now;
    p->pause_ms = p->seen == p->outlet.written ? LOOK_MS : 2 * p->pause_ms;
    p->pause_ms = p->pause_ms < LOOK_MS ? p->pause_ms : LOOK_MS;
    look_in(p, silent_ms > 0 && silent_ms < p->pause_ms ? silent_ms : p->pause_ms);
}

/* Something is about to be read. Lines after an incomplete or waiting one count as sent with it. */
static void note_asked(stdio *p, int64_t now_ms)
{
    if (mcp_lines_held(p->lines) > 0 || p->outlet.unread == 0)
        return;
    int64_t asked_ms = now_ms - p->empty_ms <= LATE_MS ? now_ms : p->empty_ms;
    mcp_session_asked(p->session, asked_ms);
}

/* ---- to the client ---------------------------------------------------------------------------*/

static void regulate(stdio *p, bool held)
{
    if (held == p->held)
        return;
    p->held = held;
    mcp_link_hold(p->link, held);
}

static void write_out(stdio *p)
{
    if (!is_gone(p) && !mcp_outlet_write(&p->outlet))
        note_gone(p);
    if (is_gone(p))
        mcp_outlet_drop(&p->outlet);
    size_t left = mcp_outlet_waiting(&p->outlet);
    mcp_loop_watch(p->hub->loop, &p->out, left > 0 ? MCP_WRITABLE : 0);
    regulate(p, left > HOLD_BYTES);
    if (p->outlet.unread == 0)
        return;
    p->pause_ms = SOON_MS;
    look_in(p, SOON_MS);
}

static void on_writable(mcp_descriptor *w, unsigned ready)
{
    (void)ready;
    write_out(SM_CONTAINER(w, stdio, out));
}

static uint64_t deliver(void *context, mcp_channel *channel, sm_str text, bool last)
{
    (void)channel;
    stdio *p = context;
    if (is_gone(p))
        return 0;
    bool whole = mcp_outlet_add(&p->outlet, text, last);
    if (!whole)
        mcp_say(p->hub, MCP_ERROR_LEVEL, "the client does not read its messages; one is lost");
    write_out(p);
    return is_gone(p) || !whole ? 0 : p->outlet.queued;
}

/* ---- from the client -------------------------------------------------------------------------*/

static bool on_line(void *context, const mcp_text_line *line)
{
    stdio *p = context;
    if (line->too_long)
        mcp_session_too_long(p->session, line->id, line->request, line->length);
    else
        mcp_session_from_client(p->session, line->text, NULL, NULL, 0);
    return !mcp_session_paused(p->session);
}

static void take_lines(stdio *p, sm_str piece)
{
    if (mcp_lines_add(p->lines, piece, on_line, p, NULL))
        return;
    mcp_say(p->hub, MCP_ERROR_LEVEL, "out of memory: no more is read from the client");
    end_of_input(p);
}

static void on_readable(mcp_descriptor *w, unsigned ready)
{
    (void)ready;
    stdio *p = SM_CONTAINER(w, stdio, in);
    char bytes[READ_BYTES];
    int64_t now = sm_clock_boot_ms();
    note_taken(p, now);
    note_asked(p, now);
    ssize_t n = read(p->in.fd, bytes, sizeof bytes);
    if (n > 0) {
        if ((size_t)n < sizeof bytes)
            p->empty_ms = now;
        take_lines(p, (sm_str){bytes, (size_t)n});
        note_heard(p);
    } else if (n == 0) {
        take_lines(p, SM_STR("\n")); /* a last line without its end */
        if (was_silent(p))
            leave(p);
        else
            end_of_input(p);
    } else if (errno != EINTR && errno != EAGAIN) {
        end_of_input(p);
    }
}

static void pause_client(void *context, bool paused)
{
    stdio *p = context;
    if (p->in.fd >= 0)
        mcp_loop_watch(p->hub->loop, &p->in, paused ? 0 : MCP_READABLE);
    if (!paused)
        note_heard(p);
    if (paused || p->resuming)
        return;
    p->resuming = true; /* not from inside of whatever has just ended */
    mcp_loop_post(p->hub->loop, &p->resume);
}

static void on_resume(mcp_post *post)
{
    stdio *p = SM_CONTAINER(post, stdio, resume);
    p->resuming = false;
    if (!mcp_session_paused(p->session) && !is_gone(p))
        take_lines(p, SM_STR(""));
    hang_up(p);
}

/* Less is under way than before. */
static void on_rest(void *context)
{
    stdio *p = context;
    size_t writes = mcp_session_writes(p->session);
    mcp_parting_rest(&p->parting);
    hang_up(p);
    if (p->asked == GRACE && writes == 0) {
        mcp_loop_untime(p->hub->loop, &p->grace);
        pass_signal(p);
    }
    if (p->life == OVER && writes == 0)
        mcp_loop_stop(p->hub->loop);
}

/* The server is gone for good. What was lost with it is still written down and told. */
static void on_over(void *context)
{
    stdio *p = context;
    set_life(p, OVER);
    mcp_session_wind_up(p->session);
    on_rest(p);
}

/* ---- the server's process --------------------------------------------------------------------*/

/* One that ends while nobody asked it to is started again if it crashed, and had been of use: what
 * cannot even start, and what ends in peace, is the client's business as it would be without us. */
static bool on_ended(void *context, int status, bool served)
{
    stdio *p = mcp_session_context(context);
    bool crashed = WIFSIGNALED(status) || WEXITSTATUS(status) != 0;
    p->status = status;
    p->futile = served ? 0 : p->futile + 1;
    return !has_ended(p) && p->asked == UNASKED && crashed && p->futile < FUTILE_MAX;
}

/* ---- signals ---------------------------------------------------------------------------------*/

static void pass_signal(stdio *p)
{
    int signal = p->signal;
    set_asked(p, ASKED, 0);
    if (p->child && mcp_child_runs(p->link))
        mcp_child_ask(p->link, signal);
    else
        mcp_loop_stop(p->hub->loop);
}

static void on_grace(mcp_alarm *t)
{
    pass_signal(SM_CONTAINER(t, stdio, grace));
}

/* A signal that asks us to end is passed on once no write is running, or after GRACE_MS, or when it
 * comes again. The server's group is not the terminal's, so the terminal's signals are passed on
 * too. */
static void on_signal(mcp_descriptor *w, unsigned ready)
{
    (void)ready;
    stdio *p = SM_CONTAINER(w, stdio, steering);
    struct signalfd_siginfo info;
    while (read(w->fd, &info, sizeof info) == (ssize_t)sizeof info) {
        int signal = (int)info.ssi_signo;
        bool ends = signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
        if (signal == SIGCHLD)
            continue;
        if (!ends) {
            if (p->child)
                mcp_child_signal(p->link, signal, info.ssi_code == SI_KERNEL);
            continue;
        }
        bool again = p->asked != UNASKED;
        p->status = signal;
        set_asked(p, GRACE, signal);
        if (again || mcp_session_writes(p->session) == 0)
            pass_signal(p);
        else
            mcp_loop_time(p->hub->loop, &p->grace, sm_clock_deadline_ns(GRACE_MS));
    }
}

/* ---- life ------------------------------------------------------------------------------------*/

static void say(void *context, mcp_level level, const char *text)
{
    (void)context, (void)level;
    dprintf(STDERR_FILENO, "semel: mcp: %s\n", text);
}

static sm_err open_link(stdio *p, const mcp_stdio_options *o, sm_fault *fault)
{
    mcp_link_events events = mcp_session_events(p->session);
    mcp_child_options child = {.argv = o->argv, .mask = &o->signals->before, .ended = on_ended};
    mcp_remote_options remote = {0};
    p->child = o->argv != NULL;
    if (!p->child) {
        remote = *o->remote;
        remote.tool = mcp_session_tool;
        remote.tool_context = p->session;
    }
    sm_err e = p->child ? mcp_child_open(p->hub->loop, &child, &events, &p->link, fault)
                        : mcp_remote_open(p->hub->loop, &remote, &events, &p->link, fault);
    if (e == SM_OK)
        mcp_session_attach(p->session, p->link);
    mcp_parting_init(&p->parting, p->hub, p->session, p->child ? p->link : NULL);
    return e;
}

sm_err mcp_stdio_run(const mcp_stdio_options *o, int *status, sm_fault *fault)
{
    stdio p = {.hub = o->hub,
               .signals = o->signals,
               .in = {.fd = -1},
               .out = {.fd = -1},
               .futile = FUTILE_MAX}; /* what was never of use is not started again */
    mcp_client_ops client = {
        .deliver = deliver, .pause = pause_client, .rest = on_rest, .over = on_over, .context = &p};
    mcp_session_options session = {.client = &client, .renews = true};
    o->hub->say = say;
    mcp_outlet_init(&p.outlet);
    p.grace.due = on_grace;
    p.patience.due = on_patience;
    p.look.due = on_look;
    p.empty_ms = sm_clock_boot_ms();
    p.resume.take = on_resume;
    p.went.take = on_went;
    p.lines = mcp_lines_new(MCP_LINE_MAX);
    sm_err e = p.lines == NULL ? SEMEL_E_NOMEM : mcp_server_new(o->hub, &o->server, &p.server);
    if (e == SM_OK)
        e = mcp_session_new(p.server, &session, &p.session);
    if (e != SM_OK)
        sm_fault_set(fault, e, "%s", semel_err_text(e));
    else
        e = open_link(&p, o, fault);
    if (e == SM_OK) {
        p.in = (mcp_descriptor){.fd = STDIN_FILENO, .ready = on_readable};
        mcp_outlet_open(&p.outlet, STDOUT_FILENO);
        p.out = (mcp_descriptor){.fd = p.outlet.fd, .ready = on_writable};
        p.steering = (mcp_descriptor){.fd = o->signals->fd, .ready = on_signal};
        mcp_loop_watch(o->hub->loop, &p.steering, MCP_READABLE);
        if (!mcp_loop_watch(o->hub->loop, &p.in, MCP_READABLE))
            end_of_input(&p);
        p.pause_ms = LOOK_MS;
        look_in(&p, LOOK_MS);
        mcp_loop_run(o->hub->loop);
        *status = p.status;
        mcp_session_end(p.session);
        mcp_hub_settle(o->hub);
        /* What the client has not taken yet: it has a moment. */
        int64_t deadline = sm_clock_deadline_ns(GRACE_MS);
        while (!is_gone(&p) && mcp_outlet_waiting(&p.outlet) > 0 && sm_clock_mono_ns() < deadline) {
            struct pollfd fd = {.fd = p.out.fd, .events = POLLOUT};
            poll(&fd, 1, 50);
            write_out(&p);
        }
        mcp_loop_unwatch(o->hub->loop, &p.steering);
        if (p.in.fd >= 0)
            mcp_loop_unwatch(o->hub->loop, &p.in);
        mcp_loop_unwatch(o->hub->loop, &p.out);
    }
    mcp_loop_untime(o->hub->loop, &p.grace);
    mcp_loop_untime(o->hub->loop, &p.patience);
    mcp_parting_fini(&p.parting);
    mcp_loop_untime(o->hub->loop, &p.look);
    mcp_session_free(p.session);
    mcp_loop_unpost(o->hub->loop, &p.resume); /* a client that goes now is not waited for */
    mcp_loop_unpost(o->hub->loop, &p.went);
    mcp_loop_settle(o->hub->loop, SETTLE_MS);
    mcp_server_free(p.server);
    mcp_lines_free(p.lines);
    mcp_outlet_fini(&p.outlet);
    return e;
}
