/*
 * A server's process: in a group of its own, and never left behind.
 *
 * A client that signals its own group reaches us, not the server in the middle of a write. We wait
 * for the write, then end the server's group. If we are killed, the kernel kills the server
 * (PR_SET_PDEATHSIG), and the server's own children see the end of their input.
 *
 * This is fork and exec, because posix_spawn cannot set that signal.
 */
#include "mcp/link/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define LOOK_MS 20
#define LOOKS   25u

extern char **environ;

/* The server's group is not the terminal's, so reading from the terminal would stop the server for
 * ever. With these signals ignored, the read fails instead. */
static void set_signals(const sigset_t *mask)
{
    sigset_t none;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGTTIN, SIG_IGN);
    signal(SIGTTOU, SIG_IGN);
    sigprocmask(SIG_SETMASK, mask != NULL ? mask : &none, NULL);
}

/* In the new process: only calls that are safe between fork and exec. */
static _Noreturn void become(const mcp_child_options *o, int in, int out, int failure, pid_t parent)
{
    /* If the parent has ended already, the signal will never come. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(127);
    set_signals(o->mask);
    if (setpgid(0, 0) == 0 && dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
        (o->directory == NULL || chdir(o->directory) == 0))
        execvpe(o->argv[0], o->argv, o->envp != NULL ? o->envp : environ);
    int error = errno;
    ssize_t told = write(failure, &error, sizeof error);
    _exit(told == (ssize_t)sizeof error ? 127 : 126);
}

int mcp_spawn(const mcp_child_options *o, int in, int out, pid_t *pid)
{
    int failure[2], error = 0;
    pid_t parent = getpid();
    if (pipe2(failure, O_CLOEXEC) != 0)
        return errno;
    *pid = fork();
    if (*pid == 0)
        become(o, in, out, failure[1], parent);
    if (*pid < 0)
        error = errno;
    close(failure[1]);
    if (*pid > 0) {
        ssize_t n; /* the pipe closes when exec has succeeded */
        do {
            n = read(failure[0], &error, sizeof error);
        } while (n < 0 && errno == EINTR);
        if (n == (ssize_t)sizeof error)
            waitpid(*pid, NULL, 0);
        else
            error = 0;
    }
    close(failure[0]);
    if (error != 0)
        *pid = 0;
    return error;
}

/* ---- the rest of a group ---------------------------------------------------------------------*/

typedef struct rest {
    mcp_alarm timer;
    mcp_loop *loop;
    pid_t group;
    unsigned looks;
} rest;

static void look(mcp_alarm *t)
{
    rest *r = SM_CONTAINER(t, rest, timer);
    bool late = r->looks++ == LOOKS;
    if (kill(-r->group, late ? SIGKILL : 0) == 0 && !late) {
        mcp_loop_time(r->loop, t, sm_clock_deadline_ns(LOOK_MS));
        return;
    }
    mcp_loop_keep(r->loop, -1);
    free(r);
}

void mcp_spawn_finish(mcp_loop *loop, pid_t group)
{
    if (kill(-group, 0) != 0)
        return;
    rest *r = calloc(1, sizeof *r);
    if (r == NULL) {
        kill(-group, SIGKILL);
        return;
    }
    *r = (rest){.timer = {.due = look}, .loop = loop, .group = group};
    mcp_loop_keep(loop, 1);
    look(&r->timer);
}
