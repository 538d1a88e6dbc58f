/*
 * Kills a program at its N-th write-like system call, for crash tests.
 *
 *     tool_kill_at [--after] N -- PROGRAM ARGUMENT...     kill when the N-th call enters (or, with
 *                                                         --after, returns)
 *     tool_kill_at count -- PROGRAM ARGUMENT...           let it end, print how many there were
 *
 * Calls are counted over all threads of the program, in the order in which they enter; the order
 * between threads may differ from run to run, so the same N is not always the same call. Processes
 * that the program forks are not followed, and survive it.
 *
 * A call that is killed at its entry does not happen. What is written through a memory mapping is
 * no call and cannot be seen here.
 *
 * Exit status: 137 if it was killed; 0 if it ended by itself before that, with "done" on stderr;
 * count: 0 and the number on stdout, the program's own output going to stderr. 70 if it cannot be
 * traced.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS_MAX 256

typedef struct tracing {
    pid_t program;
    pid_t known[THREADS_MAX]; /* threads that have been seen */
    int threads;
    unsigned long long calls; /* write-like ones so far */
    unsigned long long at;    /* 0: never */
    bool after;
    bool started; /* exec has happened: what comes before it is ours, not the program's */
    pid_t doomed; /* --after: the thread in the call that is the last */
} tracing;

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "tool_kill_at: %s: %s\n", what, strerror(errno));
    exit(70);
}

/* Whether a call changes what others may see of the program after its death. */
static bool write_like(const struct __ptrace_syscall_info *info)
{
    const __uint64_t *args = info->entry.args;
    switch (info->entry.nr) {
    case SYS_write:
    case SYS_pwrite64:
    case SYS_writev:
    case SYS_pwritev:
    case SYS_pwritev2:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_fsync:
    case SYS_fdatasync:
    case SYS_msync:
    case SYS_sync_file_range:
    case SYS_ftruncate:
    case SYS_fallocate:
    case SYS_renameat:
    case SYS_renameat2:
    case SYS_unlinkat:
    case SYS_linkat:
    case SYS_mkdirat:
    case SYS_fchmod:
    case SYS_fchmodat: return true;
    case SYS_openat: return (args[2] & (O_CREAT | O_TRUNC)) != 0;
#ifdef SYS_open
    case SYS_open: return (args[1] & (O_CREAT | O_TRUNC)) != 0;
    case SYS_creat:
    case SYS_rename:
    case SYS_unlink:
    case SYS_rmdir:
    case SYS_link:
    case SYS_mkdir:
    case SYS_chmod: return true;
#endif
    default: return false;
    }
}

/* True the first time that a thread is seen. */
static bool meet(tracing *t, pid_t thread)
{
    for (int i = 0; i < t->threads; i++)
        if (t->known[i] == thread)
            return false;
    if (t->threads == THREADS_MAX) {
        errno = E2BIG;
        fail("threads");
    }
    t->known[t->threads++] = thread;
    return true;
}

/* A thread has stopped at the entry or return of a call; true if that was the last one. */
static bool at_call(tracing *t, pid_t thread)
{
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) <= 0)
        return false; /* it is being killed */
    if (info.op == PTRACE_SYSCALL_INFO_EXIT)
        return thread == t->doomed;
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY || !t->started || !write_like(&info) ||
        ++t->calls != t->at)
        return false;
    if (!t->after)
        return true;
    t->doomed = thread;
    return false;
}

static _Noreturn void become(char **argv, bool counting)
{
    if (counting && dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        fail("dup2");
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        fail("ptrace");
    raise(SIGSTOP);
    execvp(argv[0], argv);
    fail(argv[0]);
}

static int kill_it(const tracing *t)
{
    kill(t->program, SIGKILL);
    while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR)
        continue;
    return 128 + SIGKILL;
}

/* What to pass on to a thread that stopped for a signal: none for the stops of tracing itself. */
static int signal_for(tracing *t, pid_t thread, int status)
{
    int number = WSTOPSIG(status);
    bool fresh = meet(t, thread);
    t->started = t->started || status >> 16 == PTRACE_EVENT_EXEC;
    if (status >> 16 != 0 || (fresh && number == SIGSTOP) || number == SIGTRAP)
        return 0;
    return number;
}

/* Runs the program, stop by stop; -1 once it has ended by itself. */
static int trace(tracing *t)
{
    int status;
    if (waitpid(t->program, &status, 0) != t->program || !WIFSTOPPED(status))
        fail("the program");
    meet(t, t->program);
    const long options =
        PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, t->program, NULL, options) != 0)
        fail("ptrace");
    pid_t thread = t->program;
    long pass = 0;
    for (;;) {
        /* This fails only if the thread has just been killed: its end is reported next. */
        ptrace(PTRACE_SYSCALL, thread, NULL, pass);
        do {
            thread = waitpid(-1, &status, __WALL);
        } while (thread < 0 && errno == EINTR);
        if (thread < 0)
            return -1;
        pass = 0;
        if (!WIFSTOPPED(status)) {
            if (thread == t->program)
                return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : -1;
        } else if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
            meet(t, thread);
            if (at_call(t, thread))
                return kill_it(t);
        } else {
            pass = signal_for(t, thread, status);
        }
    }
}

static int usage(void)
{
    fprintf(stderr, "usage: tool_kill_at [--after] N -- PROGRAM ARGUMENT...\n"
                    "       tool_kill_at count -- PROGRAM ARGUMENT...\n");
    return 64;
}

int main(int argc, char **argv)
{
    tracing t = {0};
    int i = 1;
    if (i < argc && strcmp(argv[i], "--after") == 0) {
        t.after = true;
        i++;
    }
    if (i + 2 >= argc || strcmp(argv[i + 1], "--") != 0)
        return usage();
    bool counting = strcmp(argv[i], "count") == 0;
    t.at = counting ? 0 : strtoull(argv[i], NULL, 10);
    if (!counting && t.at == 0)
        return usage();
    t.program = fork();
    if (t.program < 0)
        fail("fork");
    if (t.program == 0)
        become(argv + i + 2, counting);
    int code = trace(&t);
    if (!t.started)
        return 70;
    if (counting)
        printf("%llu\n", t.calls);
    if (code < 0 && !counting)
        fprintf(stderr, "done\n");
    return code < 0 ? 0 : code;
}
