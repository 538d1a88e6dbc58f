/*
 * One poll loop moves everything: signals in, the command's input out, its two streams in, and our
 * two streams out. Nothing in it blocks but poll itself, so a signal is passed on even while
 * somebody does not read what we print.
 *
 * Backpressure is the reader's: while our output has not been taken, the command's is not read, as
 * if it wrote to our output itself. After its end the rest is read regardless, up to a bound, so
 * that how it ended can be recorded.
 */
#include "effect/child.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define READ_BYTES  65536u
#define WRITE_BYTES 4096u /* what a pipe that polls as writable takes without blocking */
#define UNSENT_BYTES                                                                               \
    ((size_t)256 << 10) /* read ahead of our readers, once the command has ended                   \
                         */

/* ---- signals ---------------------------------------------------------------------------------*/

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};
#define PASSED_ON (sizeof passed_on / sizeof passed_on[0])

sm_err sm_signals_hold(sm_signals *s, sm_fault *fault)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < PASSED_ON; i++) {
        struct sigaction now;
        if (sigaction(passed_on[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&set, passed_on[i]);
    }
    /* Whoever started us may have ignored the ends of children, which would hide them. */
    signal(SIGCHLD, SIG_DFL);
    sigaddset(&set, SIGCHLD);
    s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->fd < 0)
        return sm_fault_set(fault, SEMEL_E_IO, "cannot hold signals: %s", strerror(errno));
    pthread_sigmask(SIG_BLOCK, &set, &s->before);
    return SM_OK;
}

void sm_signals_release(sm_signals *s)
{
    if (s->fd < 0)
        return;
    close(s->fd);
    s->fd = -1;
    pthread_sigmask(SIG_SETMASK, &s->before, NULL);
}

static bool next_signal(sm_signals *s, struct signalfd_siginfo *info)
{
    ssize_t n;
    do {
        n = read(s->fd, info, sizeof *info);
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof *info;
}

int sm_signals_ending(sm_signals *s)
{
    struct signalfd_siginfo info;
    while (next_signal(s, &info))
        if (info.ssi_signo != SIGCHLD && info.ssi_signo != SIGWINCH)
            return (int)info.ssi_signo;
    return 0;
}

/* ---- starting --------------------------------------------------------------------------------*/

/* Our ends of the command's pipes, and where it is in its life. */
typedef struct running {
    sm_child *c;
    pid_t pid;
    int input;            /* -1: closed */
    int from[SM_STREAMS]; /* likewise */
    size_t fed;           /* bytes of the input that it has been given */
    bool ended, lost;
    int status;
    int64_t deadline; /* once ended: when to stop reading */
} running;

/* All pipes of a start: [0] is the reading end. */
typedef struct pipes {
    int input[2], from[SM_STREAMS][2], failure[2];
} pipes;

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void close_pipes(pipes *p)
{
    for (int i = 0; i < 2; i++) {
        close_fd(&p->input[i]);
        close_fd(&p->failure[i]);
        for (int s = 0; s < SM_STREAMS; s++)
            close_fd(&p->from[s][i]);
    }
}

static bool open_pipes(pipes *p, bool with_input)
{
    *p = (pipes){{-1, -1}, {{-1, -1}, {-1, -1}}, {-1, -1}};
    if (pipe2(p->failure, O_CLOEXEC) != 0)
        return false;
    for (int s = 0; s < SM_STREAMS; s++)
        if (pipe2(p->from[s], O_CLOEXEC) != 0)
            return false;
    if (with_input)
        return pipe2(p->input, O_CLOEXEC) == 0 && fcntl(p->input[1], F_SETFL, O_NONBLOCK) == 0;
    p->input[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return p->input[0] >= 0;
}

/* In the new process: only calls that are safe between fork and exec. */
static _Noreturn void become(const sm_child *c, const pipes *p)
{
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &c->signals->before, NULL);
    if (dup2(p->input[0], STDIN_FILENO) >= 0 &&
        dup2(p->from[SM_STREAM_OUT][1], STDOUT_FILENO) >= 0 &&
        dup2(p->from[SM_STREAM_ERR][1], STDERR_FILENO) >= 0)
        execvpe(c->argv[0], c->argv, c->envp);
    int error = errno;
    ssize_t told = write(p->failure[1], &error, sizeof error);
    _exit(told == (ssize_t)sizeof error ? SM_STATUS_NOT_FOUND : SM_STATUS_NOT_EXECUTABLE);
}

static void not_started(sm_child *c, int error)
{
    c->end =
        (sm_ending){.status = error == ENOENT ? SM_STATUS_NOT_FOUND : SM_STATUS_NOT_EXECUTABLE};
    snprintf(c->end.error, sizeof c->end.error, "%s",
             error == ENOENT ? "command not found" : strerror(error));
}

/* True if the command runs. The pipe for failures closes when exec has succeeded. */
static bool start(running *r)
{
    sm_child *c = r->c;
    pipes p;
    int error = 0;
    if (!open_pipes(&p, c->input.p != NULL) || (r->pid = fork()) < 0) {
        error = errno;
    } else if (r->pid == 0) {
        become(c, &p);
    } else {
        close_fd(&p.failure[1]);
        ssize_t n;
        do {
            n = read(p.failure[0], &error, sizeof error);
        } while (n < 0 && errno == EINTR);
        if (n != (ssize_t)sizeof error)
            error = 0;
        else
            waitpid(r->pid, NULL, 0);
    }
    if (error == 0) {
        r->input = p.input[1];
        p.input[1] = -1;
        for (int s = 0; s < SM_STREAMS; s++) {
            r->from[s] = p.from[s][0];
            p.from[s][0] = -1;
        }
    } else {
        not_started(c, error);
    }
    close_pipes(&p);
    return error == 0;
}

/* ---- moving bytes ----------------------------------------------------------------------------*/

static void feed(running *r)
{
    sm_str rest = {r->c->input.p + r->fed, r->c->input.n - r->fed};
    ssize_t n = rest.n == 0 ? 0 : write(r->input, rest.p, rest.n);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        r->fed += (size_t)n;
    if (n < 0 || r->fed == r->c->input.n) /* a command need not read its input */
        close_fd(&r->input);
}

/* Reads at most `most` bytes, which are there or are the end. */
static void take_output(running *r, sm_child_stream s, size_t most)
{
    char bytes[READ_BYTES];
    ssize_t n = read(r->from[s], bytes, most < sizeof bytes ? most : sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        close_fd(&r->from[s]);
        return;
    }
    sm_str got = {bytes, (size_t)n};
    sm_transcript_add(r->c->record, s, got);
    if (r->c->live_error[s] != 0)
        return;
    sm_buf_str(&r->c->unsent[s], got);
    if (r->c->unsent[s].err != SM_OK)
        r->c->live_error[s] = ENOMEM;
}

static void send_live(sm_child *c, sm_child_stream s)
{
    sm_buf *b = &c->unsent[s];
    ssize_t n = write(c->live[s], b->p, b->len < WRITE_BYTES ? b->len : WRITE_BYTES);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n < 0) {
        c->live_error[s] = errno;
        sm_buf_clear(b);
        return;
    }
    memmove(b->p, b->p + n, b->len - (size_t)n);
    b->len -= (size_t)n;
}

static void look_for_end(running *r)
{
    int status = 0;
    pid_t pid = waitpid(r->pid, &status, WNOHANG);
    if (pid == 0 || (pid < 0 && errno == EINTR))
        return;
    r->ended = true;
    r->lost = pid < 0;
    r->status = status;
    r->deadline = sm_clock_mono_ns() / 1000000 + SM_CHILD_GRACE_MS;
    close_fd(&r->input);
}

static void take_signals(running *r)
{
    struct signalfd_siginfo info;
    while (next_signal(r->c->signals, &info)) {
        if (info.ssi_signo == SIGCHLD) {
            if (!r->ended)
                look_for_end(r);
        } else if (!r->ended && info.ssi_code != SI_KERNEL) {
            kill(r->pid, (int)info.ssi_signo); /* the kernel's went to the whole group */
        }
    }
}

/* ---- the loop --------------------------------------------------------------------------------*/

enum { SLOT_SIGNALS, SLOT_INPUT, SLOT_FROM, SLOT_LIVE = SLOT_FROM + SM_STREAMS, SLOTS = 6 };

static void turn(running *r)
{
    sm_child *c = r->c;
    size_t ahead = r->ended ? UNSENT_BYTES : 1;
    struct pollfd slots[SLOTS] = {
        [SLOT_SIGNALS] = {.fd = c->signals->fd, .events = POLLIN},
        [SLOT_INPUT] = {.fd = r->input, .events = POLLOUT},
    };
    for (int s = 0; s < SM_STREAMS; s++) {
        slots[SLOT_FROM + s] =
            (struct pollfd){.fd = c->unsent[s].len < ahead ? r->from[s] : -1, .events = POLLIN};
        slots[SLOT_LIVE + s] =
            (struct pollfd){.fd = c->unsent[s].len > 0 ? c->live[s] : -1, .events = POLLOUT};
    }
    int64_t left = r->ended ? r->deadline - sm_clock_mono_ns() / 1000000 : -1;
    if (poll(slots, SLOTS, r->ended && left < 0 ? 0 : (int)left) <= 0)
        return;
    for (int s = 0; s < SM_STREAMS; s++)
        if (slots[SLOT_LIVE + s].revents != 0)
            send_live(c, (sm_child_stream)s);
    for (int s = 0; s < SM_STREAMS; s++)
        if (slots[SLOT_FROM + s].revents != 0)
            take_output(r, (sm_child_stream)s, READ_BYTES);
    if (slots[SLOT_INPUT].revents != 0)
        feed(r);
    if (slots[SLOT_SIGNALS].revents != 0)
        take_signals(r);
}

static bool still_open(const running *r)
{
    return r->from[SM_STREAM_OUT] >= 0 || r->from[SM_STREAM_ERR] >= 0;
}

/* Somebody else holds the streams open: what is in the pipes now is the last of it. */
static void cut_off(running *r)
{
    for (int s = 0; s < SM_STREAMS; s++) {
        int left = 0;
        if (r->from[s] >= 0 && ioctl(r->from[s], FIONREAD, &left) == 0 && left > 0)
            take_output(r, (sm_child_stream)s, (size_t)left);
        close_fd(&r->from[s]);
    }
}

sm_err sm_child_run(sm_child *c)
{
    running r = {.c = c, .pid = -1, .input = -1, .from = {-1, -1}};
    for (int s = 0; s < SM_STREAMS; s++)
        sm_buf_init(&c->unsent[s], UNSENT_BYTES + 2 * (size_t)READ_BYTES);
    if (!start(&r)) {
        c->end.at_ms = sm_clock_ms();
        return SM_OK;
    }
    while (!r.ended || (still_open(&r) && sm_clock_mono_ns() / 1000000 < r.deadline))
        turn(&r);
    cut_off(&r);
    assert(r.input < 0 && !still_open(&r));
    c->end = (sm_ending){.started = true, .at_ms = sm_clock_ms()};
    if (r.lost)
        return SEMEL_E_IO;
    c->end.signal = WIFSIGNALED(r.status) ? WTERMSIG(r.status) : 0;
    c->end.status = c->end.signal != 0 ? SM_STATUS_SIGNAL + c->end.signal : WEXITSTATUS(r.status);
    return SM_OK;
}

void sm_child_flush(sm_child *c)
{
    for (int s = 0; s < SM_STREAMS; s++) {
        if (c->live_error[s] == 0)
            c->live_error[s] = sm_write_all(c->live[s], sm_buf_view(&c->unsent[s]));
        sm_buf_clear(&c->unsent[s]);
    }
}

void sm_child_fini(sm_child *c)
{
    for (int s = 0; s < SM_STREAMS; s++)
        sm_buf_fini(&c->unsent[s]);
}
