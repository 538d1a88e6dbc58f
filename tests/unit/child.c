/* Commands as effects: what is recorded, what is replayed, and that nothing hangs or is lost. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base64.h"
#include "effect/child.h"
#include "json/json.h"

extern char **environ;

/* A command, run with its live output going into files that nobody else sees. */
typedef struct fixture {
    sm_arena arena;
    sm_signals signals;
    sm_transcript record;
    sm_child child;
    sm_buf value;
    int live[SM_STREAMS];
} fixture;

static int memory_file(void)
{
    char path[] = "/tmp/semel-unit-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    return fd;
}

static sm_str contents(sm_arena *a, int fd)
{
    off_t n = lseek(fd, 0, SEEK_END);
    char *p = sm_arena_zalloc(a, (size_t)n + 1, 1);
    assert_non_null(p);
    assert_int_equal(pread(fd, p, (size_t)n, 0), n);
    return (sm_str){p, (size_t)n};
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    sm_arena_init(&f->arena, SM_ARENA_MAX);
    sm_buf_init(&f->value, SM_TRANSCRIPT_TEXT_MAX);
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(sm_signals_hold(&f->signals, NULL), SM_OK);
    assert_int_equal(sm_transcript_init(&f->record), SM_OK);
    for (int s = 0; s < SM_STREAMS; s++)
        f->live[s] = memory_file();
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    sm_signals_release(&f->signals);
    sm_transcript_fini(&f->record);
    sm_child_fini(&f->child);
    sm_buf_fini(&f->value);
    sm_arena_fini(&f->arena);
    for (int s = 0; s < SM_STREAMS; s++)
        close(f->live[s]);
    free(f);
    return 0;
}

static void run(fixture *f, char *const *argv, sm_str input)
{
    f->child = (sm_child){.argv = argv,
                          .envp = environ,
                          .input = input,
                          .live = {f->live[0], f->live[1]},
                          .signals = &f->signals,
                          .record = &f->record};
    assert_int_equal(sm_child_run(&f->child), SM_OK);
    sm_child_flush(&f->child);
    assert_int_equal(sm_transcript_write(&f->record, &f->child.end, &f->value), SM_OK);
}

static void run_shell(fixture *f, const char *script)
{
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
    run(f, argv, (sm_str){0});
}

/* Replays the record into fresh files: the same bytes as live, and the same ending. */
static sm_replay replayed(fixture *f)
{
    sm_replay r;
    sm_fault fault = {0};
    sm_err e = sm_replay_read(&f->arena, sm_buf_view(&f->value), &r, &fault);
    expect(e == SM_OK, "not read: %s in %.*s", fault.text, SM_FMT(sm_buf_view(&f->value)));
    const int fds[SM_STREAMS] = {memory_file(), memory_file()};
    assert_int_equal(sm_replay_write(&r, fds), SM_OK);
    for (int s = 0; s < SM_STREAMS; s++) {
        sm_str live = contents(&f->arena, f->live[s]), again = contents(&f->arena, fds[s]);
        expect(r.truncated || sm_str_eq(live, again), "stream %d: %zu live, %zu replayed", s,
               live.n, again.n);
        assert_int_equal(r.total[s], live.n);
        close(fds[s]);
    }
    assert_int_equal(r.end.status, f->child.end.status);
    assert_int_equal(r.end.signal, f->child.end.signal);
    assert_int_equal(r.end.started, f->child.end.started);
    return r;
}

static void streams_are_recorded_in_order(void **state)
{
    fixture *f = *state;
    run_shell(f, "echo one; sleep 0.05; echo two >&2; sleep 0.05; printf three; exit 7");
    sm_replay r = replayed(f);
    assert_int_equal(r.end.status, 7);
    const char *chunks =
        "\"chunks\":[[\"out\",\"one\\n\"],[\"err\",\"two\\n\"],[\"out\",\"three\"]]";
    expect(memmem(f->value.p, f->value.len, chunks, strlen(chunks)) != NULL, "%.*s",
           SM_FMT(sm_buf_view(&f->value)));
    assert_int_equal(strlen(r.ended), strlen("2026-11-15 12:00:03 UTC"));
}

static void bytes_that_are_no_text_come_back(void **state)
{
    fixture *f = *state;
    run_shell(f, "printf '\\377\\000\\001'; sleep 0.05; printf 'a\\000b' >&2; sleep 0.05;"
                 "printf '\\001\\002\\003\\004\\005\\006\\007\\010'");
    sm_replay r = replayed(f);
    assert_int_equal(r.total[SM_STREAM_OUT], 11);
    expect(memmem(f->value.p, f->value.len, "\"/wAB\",\"base64\"", 15) != NULL, "%.*s",
           SM_FMT(sm_buf_view(&f->value)));
}

/* As people can read it in the ledger, unless base64 is much shorter. */
static void text_is_recorded_as_text(void **state)
{
    fixture *f = *state;
    run_shell(f, "printf 'o n e   l o n g   l i n e   o f   t e x t\\n a n d   m o r e'");
    replayed(f);
    const char *chunk =
        "[\"out\",\"o n e   l o n g   l i n e   o f   t e x t\\n a n d   m o r e\"]";
    expect(memmem(f->value.p, f->value.len, chunk, strlen(chunk)) != NULL, "%.*s",
           SM_FMT(sm_buf_view(&f->value)));
}

/* The length of the escapes decides between text and base64. */
static void lines_are_recorded_as_text(void **state)
{
    fixture *f = *state;
    run_shell(f, "printf 'a\\nb\\nc\\nd\\n'");
    replayed(f);
    const char *chunk = "[\"out\",\"a\\nb\\nc\\nd\\n\"]";
    expect(memmem(f->value.p, f->value.len, chunk, strlen(chunk)) != NULL, "%.*s",
           SM_FMT(sm_buf_view(&f->value)));
}

static void too_much_output_is_cut_and_hashed(void **state)
{
    fixture *f = *state;
    run_shell(f, "head -c 1048576 /dev/zero; echo last");
    sm_replay r = replayed(f);
    assert_true(r.truncated);
    assert_int_equal(r.total[SM_STREAM_OUT], 1048576 + 5);
    sm_digest d;
    sm_hash hash;
    char hex[SM_HASH_HEX + 1];
    sm_str live = contents(&f->arena, f->live[SM_STREAM_OUT]);
    assert_int_equal(sm_digest_init(&d), SM_OK);
    assert_int_equal(sm_digest_bytes(&d, live.p, live.n, &hash), SM_OK);
    sm_hash_hex(&hash, hex);
    expect_text(r.sha256[SM_STREAM_OUT], hex);
    sm_digest_fini(&d);
}

/* The worst that streams can do to the size of the record: alternate at each byte. */
static void a_full_record_fits_its_bound(void **state)
{
    fixture *f = *state;
    for (size_t i = 0; i < SM_TRANSCRIPT_CHUNKS_MAX + 10; i++)
        sm_transcript_add(&f->record, i % 2 == 0 ? SM_STREAM_OUT : SM_STREAM_ERR,
                          i % 3 == 0 ? SM_STR("\xFF") : SM_STR("\x01"));
    assert_true(f->record.truncated);
    char *much = malloc(SM_TRANSCRIPT_BYTES_MAX);
    /* Their JSON is longer than their base64. */
    static const char longer[] = {1, '\n', '\\', '"'};
    for (size_t n = 0; n < COUNT(longer); n++) {
        memset(much, longer[n], SM_TRANSCRIPT_BYTES_MAX);
        fixture g = {0};
        assert_int_equal(sm_transcript_init(&g.record), SM_OK);
        for (size_t i = 0; i + 1 < SM_TRANSCRIPT_CHUNKS_MAX; i++)
            sm_transcript_add(&g.record, (sm_child_stream)(i % 2), SM_STR("\x01"));
        sm_transcript_add(&g.record, SM_STREAM_OUT, (sm_str){much, SM_TRANSCRIPT_BYTES_MAX});
        assert_true(g.record.truncated);
        sm_ending end = {.started = true};
        sm_replay r;
        sm_buf_clear(&f->value);
        assert_int_equal(sm_transcript_write(&g.record, &end, &f->value), SM_OK);
        assert_int_equal(sm_replay_read(&f->arena, sm_buf_view(&f->value), &r, NULL), SM_OK);
        sm_transcript_fini(&g.record);
    }
    free(much);
}

static void input_is_given_without_deadlock(void **state)
{
    fixture *f = *state;
    char *argv[] = {(char *)"cat", NULL};
    size_t n = 3 << 20;
    char *bytes = malloc(n);
    memset(bytes, 'x', n);
    run(f, argv, (sm_str){bytes, n});
    assert_int_equal(replayed(f).total[SM_STREAM_OUT], n);
    free(bytes);
}

static void a_command_need_not_read_its_input(void **state)
{
    fixture *f = *state;
    char *argv[] = {(char *)"true", NULL};
    char *bytes = calloc(1, 1 << 20);
    run(f, argv, (sm_str){bytes, 1 << 20});
    assert_int_equal(replayed(f).end.status, 0);
    free(bytes);
}

static void without_input_it_reads_nothing(void **state)
{
    fixture *f = *state;
    char *argv[] = {(char *)"cat", NULL};
    run(f, argv, (sm_str){0});
    assert_int_equal(replayed(f).total[SM_STREAM_OUT], 0);
}

static void what_cannot_be_started_is_told_apart(void **state)
{
    fixture *f = *state;
    char *missing[] = {(char *)"semel-no-such-command", NULL};
    run(f, missing, (sm_str){0});
    assert_false(f->child.end.started);
    assert_int_equal(f->child.end.status, 127);
    sm_replay r = replayed(f);
    assert_string_equal(r.end.error, "command not found");

    char *directory[] = {(char *)"/tmp", NULL};
    f->child.argv = directory;
    sm_child_fini(&f->child);
    assert_int_equal(sm_child_run(&f->child), SM_OK);
    assert_false(f->child.end.started);
    assert_int_equal(f->child.end.status, 126);
    /* A command that itself exits with 127 did run. */
    sm_child_fini(&f->child);
    char *own[] = {(char *)"sh", (char *)"-c", (char *)"exit 127", NULL};
    f->child.argv = own;
    assert_int_equal(sm_child_run(&f->child), SM_OK);
    assert_true(f->child.end.started);
    assert_int_equal(f->child.end.status, 127);
}

/* No more than so many files can be opened until the limit that this returns is set again. */
static struct rlimit only_more_files(rlim_t n)
{
    struct rlimit before;
    int next = dup(STDERR_FILENO); /* the lowest number that is free */
    assert_true(next >= 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit now = {.rlim_cur = (rlim_t)next + n, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    return before;
}

static void without_a_pipe_it_is_not_started(void **state)
{
    fixture *f = *state;
    char *argv[] = {(char *)"true", NULL};
    for (rlim_t n = 0; n < 7; n++) { /* three pipes, and an input without anything */
        struct rlimit before = only_more_files(n);
        sm_child_fini(&f->child);
        f->child = (sm_child){.argv = argv, .signals = &f->signals, .record = &f->record};
        sm_err e = sm_child_run(&f->child);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(e, SM_OK);
        assert_false(f->child.end.started);
        assert_int_equal(f->child.end.status, 126);
        assert_string_equal(f->child.end.error, strerror(EMFILE));
    }
}

/* A pipe gets the number of our standard input if we have none. */
static void every_pipe_is_closed_afterwards(void **state)
{
    fixture *f = *state;
    int input = dup(STDIN_FILENO);
    close(STDIN_FILENO);
    run_shell(f, "echo on");
    bool open = fcntl(STDIN_FILENO, F_GETFD) >= 0;
    if (input >= 0) {
        dup2(input, STDIN_FILENO);
        close(input);
    }
    assert_false(open);
    replayed(f);
}

static void a_signal_that_ends_it_is_recorded(void **state)
{
    fixture *f = *state;
    run_shell(f, "echo before; kill -KILL $$");
    sm_replay r = replayed(f);
    assert_int_equal(r.end.status, 128 + SIGKILL);
    assert_int_equal(r.end.signal, SIGKILL);
}

static void signals_are_passed_on(void **state)
{
    fixture *f = *state;
    char ready[64], command[200];
    pid_t self = getpid();
    snprintf(ready, sizeof ready, "/tmp/semel-child-%d", (int)self);
    snprintf(command, sizeof command,
             "trap 'echo got it; exit 5' USR1; : >%s; while :; do sleep 0.02; done", ready);
    pid_t sender = fork();
    if (sender == 0) {
        while (access(ready, F_OK) != 0) /* before, the signal would end it */
            nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        kill(self, SIGUSR1);
        _exit(0);
    }
    run_shell(f, command);
    waitpid(sender, NULL, 0);
    unlink(ready);
    assert_int_equal(replayed(f).end.status, 5);
    sm_signals_ending(&f->signals); /* one more may have come */
}

static void a_signal_that_came_before_is_told(void **state)
{
    fixture *f = *state;
    assert_int_equal(sm_signals_ending(&f->signals), 0);
    kill(getpid(), SIGWINCH); /* it ends nothing */
    assert_int_equal(sm_signals_ending(&f->signals), 0);
    kill(getpid(), SIGTERM);
    assert_int_equal(sm_signals_ending(&f->signals), SIGTERM);
    assert_int_equal(sm_signals_ending(&f->signals), 0);
}

static void signals_that_cannot_be_held_are_told(void **state)
{
    (void)state;
    sm_signals more;
    struct rlimit before = only_more_files(0);
    sm_err e = sm_signals_hold(&more, NULL);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(e, SEMEL_E_IO);
}

static void signals_are_released_once(void **state)
{
    fixture *f = *state;
    sigset_t own, now;
    sm_signals_release(&f->signals);
    sigemptyset(&own);
    sigaddset(&own, SIGURG);
    pthread_sigmask(SIG_BLOCK, &own, NULL);
    sm_signals_release(&f->signals);
    pthread_sigmask(SIG_UNBLOCK, &own, &now);
    assert_int_equal(sigismember(&now, SIGURG), 1);
}

/* A shell would clear the mask by itself. */
static void signals_and_pipes_are_as_they_were(void **state)
{
    fixture *f = *state;
    char *argv[] = {(char *)"grep", (char *)"-E", (char *)"^Sig(Blk|Ign)",
                    (char *)"/proc/self/status", NULL};
    run(f, argv, (sm_str){0});
    sm_str out = contents(&f->arena, f->live[SM_STREAM_OUT]);
    unsigned long long blocked, ignored;
    assert_int_equal(sscanf(out.p, "SigBlk: %llx SigIgn: %llx", &blocked, &ignored), 2);
    assert_int_equal(blocked, 0);
    assert_int_equal(ignored & 1ull << (SIGPIPE - 1), 0);
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int64_t spent_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void a_command_that_closes_its_output_is_waited_for_in_sleep(void **state)
{
    fixture *f = *state;
    int64_t before = spent_ms();
    run_shell(f, "exec >&- 2>&-; sleep 1; exit 4");
    assert_int_equal(replayed(f).end.status, 4);
    expect(spent_ms() - before < 500, "it took %d ms of a processor", (int)(spent_ms() - before));
}

/* Nobody waits for more after the last of its output. A busy machine may delay some of them. */
static void the_end_of_the_output_is_not_waited_for(void **state)
{
    fixture *f = *state;
    int64_t took = SM_CHILD_GRACE_MS;
    for (int tries = 0; tries < 9 && took > SM_CHILD_GRACE_MS / 2; tries++) {
        int64_t start = now_ms();
        sm_child_fini(&f->child);
        sm_buf_clear(&f->value);
        run_shell(f, "exit 6");
        took = now_ms() - start;
        assert_int_equal(f->child.end.status, 6);
    }
    expect(took <= SM_CHILD_GRACE_MS / 2, "it took %d ms", (int)took);
}

/* How it ended is not known then: that is not an end without an error. */
static void an_end_that_nobody_can_tell_is_an_error(void **state)
{
    fixture *f = *state;
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)"echo on; exit 7", NULL};
    struct sigaction before, lost = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
    assert_int_equal(sigaction(SIGCHLD, &lost, &before), 0);
    alarm(60); /* ends one that waits on */
    f->child = (sm_child){.argv = argv,
                          .envp = environ,
                          .live = {f->live[0], f->live[1]},
                          .signals = &f->signals,
                          .record = &f->record};
    sm_err e = sm_child_run(&f->child);
    alarm(0);
    assert_int_equal(sigaction(SIGCHLD, &before, NULL), 0);
    assert_int_equal(e, SEMEL_E_IO);
    assert_true(f->child.end.started);
    assert_int_equal(f->record.total[SM_STREAM_OUT], strlen("on\n"));
}

static void who_holds_the_output_open_does_not_hold_us(void **state)
{
    fixture *f = *state;
    int64_t start = now_ms();
    run_shell(f, "(sleep 0.2; echo late; sleep 3; echo never) & echo early");
    int64_t took = now_ms() - start;
    replayed(f);
    expect_text(contents(&f->arena, f->live[SM_STREAM_OUT]), "early\nlate\n");
    expect(took >= SM_CHILD_GRACE_MS - 50 && took < 5000, "it took %d ms", (int)took);
}

static void a_writer_without_end_does_not_hold_us(void **state)
{
    fixture *f = *state;
    close(f->live[SM_STREAM_OUT]);
    f->live[SM_STREAM_OUT] = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int64_t start = now_ms();
    run_shell(f, "yes & exit 3");
    assert_int_equal(f->child.end.status, 3);
    expect(now_ms() - start < 5000, "it took long");
    assert_true(f->record.truncated);
}

/* Nobody reads our output: the command is not disturbed, and all is recorded. */
static void a_closed_output_disturbs_nothing(void **state)
{
    fixture *f = *state;
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    close(pipe_fds[0]);
    close(f->live[SM_STREAM_OUT]);
    f->live[SM_STREAM_OUT] = pipe_fds[1];
    run_shell(f, "head -c 200000 /dev/zero && echo done >&2");
    assert_int_equal(f->child.end.status, 0);
    assert_int_equal(f->child.live_error[SM_STREAM_OUT], EPIPE);
    assert_int_equal(f->record.total[SM_STREAM_OUT], 200000);
    expect_text(contents(&f->arena, f->live[SM_STREAM_ERR]), "done\n");
}

/* A reader that does not read: the end is known all the same, and the rest is kept for it. What the
 * command writes fits into two pipes, so that it can end. */
static void a_stuck_reader_does_not_hide_the_end(void **state)
{
    fixture *f = *state;
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    close(f->live[SM_STREAM_OUT]);
    f->live[SM_STREAM_OUT] = pipe_fds[1];
    char *argv[] = {(char *)"head", (char *)"-c", (char *)"100000", (char *)"/dev/zero", NULL};
    f->child = (sm_child){.argv = argv,
                          .envp = environ,
                          .live = {f->live[0], f->live[1]},
                          .signals = &f->signals,
                          .record = &f->record};
    assert_int_equal(sm_child_run(&f->child), SM_OK);
    assert_int_equal(f->record.total[SM_STREAM_OUT], 100000);
    assert_true(f->child.unsent[SM_STREAM_OUT].len >= 100000 - 65536);
    close(pipe_fds[0]);
}

static void records_that_do_not_hold_together_are_refused(void **state)
{
    fixture *f = *state;
#define SHA           "\"0123456789012345678901234567890123456789012345678901234567890123\""
#define NO_SHA(digit) "\"012345678901234567890123456789012345678901234567890123456789012" digit "\""
#define TAIL          ",\"stdout_sha256\":" SHA ",\"stderr_sha256\":" SHA "}"
#define GOOD                                                                                       \
    "{\"started\":true,\"exit\":0,\"truncated\":false,\"stdout_bytes\":1,\"stderr_bytes\":0"
    static const struct {
        const char *text;
        sm_err e;
    } rows[] = {
        {GOOD ",\"chunks\":[[\"out\",\"a\"]]" TAIL, SM_OK},
        {GOOD ",\"chunks\":[[\"out\",\"YQ==\",\"base64\"]]" TAIL, SM_OK},
        {GOOD ",\"chunks\":[[\"out\",\"YR==\",\"base64\"]]" TAIL, SEMEL_E_CORRUPT},
        {GOOD ",\"chunks\":[[\"out\",\"a\",\"hex\"]]" TAIL, SEMEL_E_CORRUPT},
        {GOOD ",\"chunks\":[[\"out\",\"YQ==\",\"hex\"]]" TAIL, SEMEL_E_CORRUPT},
        {GOOD ",\"chunks\":[[\"out\",\"YQ==\",\"base64\",\"more\"]]" TAIL, SEMEL_E_CORRUPT},
        {GOOD ",\"chunks\":[[\"out\",\"ab\"]]" TAIL, SEMEL_E_CORRUPT},
        {GOOD ",\"chunks\":[[\"log\",\"a\"]]" TAIL, SEMEL_E_CORRUPT},
        {GOOD ",\"chunks\":[[\"out\"]]" TAIL, SEMEL_E_CORRUPT},
        {GOOD ",\"chunks\":[[\"out\",7]]" TAIL, SEMEL_E_CORRUPT},
        {GOOD ",\"chunks\":{\"out\":\"a\"}" TAIL, SEMEL_E_CORRUPT},
        {GOOD ",\"chunks\":[]" TAIL, SEMEL_E_CORRUPT},
        {"{\"started\":true,\"exit\":256,\"truncated\":false,\"stdout_bytes\":0,\"stderr_bytes\":0,"
         "\"chunks\":[]" TAIL,
         SEMEL_E_CORRUPT},
        {"{\"started\":true,\"exit\":-1,\"truncated\":false,\"stdout_bytes\":0,\"stderr_bytes\":0,"
         "\"chunks\":[]" TAIL,
         SEMEL_E_CORRUPT},
        {"{\"started\":true,\"exit\":1.5,\"truncated\":false,\"stdout_bytes\":0,\"stderr_bytes\":0,"
         "\"chunks\":[]" TAIL,
         SEMEL_E_CORRUPT},
        {"{\"started\":true,\"exit\":0,\"stdout_bytes\":0,\"stderr_bytes\":0,\"chunks\":[]" TAIL,
         SEMEL_E_CORRUPT},
        {GOOD ",\"chunks\":[[\"out\",\"a\"]],\"stdout_sha256\":" SHA ",\"stderr_sha256\":\"0\"}",
         SEMEL_E_CORRUPT},
        {GOOD ",\"chunks\":[[\"out\",\"a\"]],\"stdout_sha256\":\"0\",\"stderr_sha256\":" SHA "}",
         SEMEL_E_CORRUPT},
        {GOOD ",\"chunks\":[[\"out\",\"a\"]],\"stdout_sha256\":" NO_SHA(
             "g") ",\"stderr_sha256\":" SHA "}",
         SEMEL_E_CORRUPT},
        {GOOD ",\"chunks\":[[\"out\",\"a\"]],\"stdout_sha256\":" SHA
              ",\"stderr_sha256\":" NO_SHA("F") "}",
         SEMEL_E_CORRUPT},
        {GOOD ",\"signal\":9,\"chunks\":[[\"out\",\"a\"]]" TAIL, SM_OK},
        {GOOD ",\"signal\":128,\"chunks\":[[\"out\",\"a\"]]" TAIL, SEMEL_E_CORRUPT},
        {GOOD ",\"signal\":\"9\",\"chunks\":[[\"out\",\"a\"]]" TAIL, SEMEL_E_CORRUPT},
        {"{\"started\":false,\"exit\":127,\"truncated\":false,\"stdout_bytes\":0,"
         "\"stderr_bytes\":0,\"chunks\":[]" TAIL,
         SEMEL_E_CORRUPT},
        {"{\"chunks\":[]}", SEMEL_E_CORRUPT},
        {"{\"id\":\"ch_1\"}", SEMEL_E_NOT_FOUND},
        {"[]", SEMEL_E_NOT_FOUND},
        {"not JSON", SEMEL_E_NOT_FOUND},
        {"", SEMEL_E_NOT_FOUND},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_replay r;
        sm_err e = sm_replay_read(&f->arena, sm_str_from(rows[i].text), &r, NULL);
        expect(e == rows[i].e, "row %zu: %s", i, semel_err_name(e));
    }
    sm_replay r;
    assert_int_equal(sm_replay_read(&f->arena, (sm_str){0}, &r, NULL), SEMEL_E_NOT_FOUND);
}

static void the_time_of_the_end_may_be_in_whole_seconds(void **state)
{
    fixture *f = *state;
    static const char *const rows[][2] = {
        {"2026-11-15T12:00:03", "2026-11-15 12:00:03 UTC"},
        {"2026-11-15T12:00:03.250Z", "2026-11-15 12:00:03 UTC"},
        {"2026-11-15T12:00:0", ""},
        {"2026-11-15 12:00:03", ""},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[512];
        sm_replay r;
        snprintf(text, sizeof text, GOOD ",\"ended_at\":\"%s\",\"chunks\":[[\"out\",\"a\"]]" TAIL,
                 rows[i][0]);
        assert_int_equal(sm_replay_read(&f->arena, sm_str_from(text), &r, NULL), SM_OK);
        assert_string_equal(r.ended, rows[i][1]);
    }
}

static void a_replay_that_cannot_be_written_is_told(void **state)
{
    fixture *f = *state;
    sm_replay r;
    int fds[SM_STREAMS] = {open("/dev/full", O_WRONLY | O_CLOEXEC), memory_file()};
    sm_str text = SM_STR(GOOD ",\"chunks\":[[\"out\",\"a\"]]" TAIL);
    assert_int_equal(sm_replay_read(&f->arena, text, &r, NULL), SM_OK);
    assert_int_equal(sm_replay_write(&r, fds), SEMEL_E_IO);
    /* A chunk that cannot be decoded any more is told, too. */
    size_t n = 2 * SM_TRANSCRIPT_TEXT_MAX;
    char *large = malloc(n + 64);
    int at = sprintf(large, "[[\"out\",\"a\"],[\"err\",\"");
    memset(large + at, 'A', n);
    strcpy(large + at + n, "\",\"base64\"]]");
    sm_json_limits limits = sm_json_default_limits;
    limits.bytes = 2 * n;
    assert_int_equal(sm_json_read(&f->arena, sm_str_from(large), &limits, &r.chunks, NULL), SM_OK);
    assert_int_equal(sm_replay_write(&r, fds), SEMEL_E_LIMIT);
    free(large);
    for (int s = 0; s < SM_STREAMS; s++)
        close(fds[s]);
}

static void what_cannot_be_recorded_or_read_is_told(void **state)
{
    fixture *f = *state;
    sm_ending end = {.started = true};
    sm_buf small;
    sm_buf_init(&small, 100);
    assert_int_equal(sm_transcript_write(&f->record, &end, &small), SEMEL_E_LIMIT);
    sm_buf_fini(&small);
    EVP_MD_CTX_reset(f->record.digest[SM_STREAM_ERR].ctx);
    assert_int_equal(sm_transcript_write(&f->record, &end, &f->value), SEMEL_E_CRYPTO);
    sm_transcript none;
    assert_int_equal(EVP_set_default_properties(NULL, "provider=none"), 1);
    sm_err e = sm_transcript_init(&none);
    assert_int_equal(EVP_set_default_properties(NULL, ""), 1);
    assert_int_equal(e, SEMEL_E_CRYPTO);
    sm_arena tiny;
    sm_replay r;
    sm_arena_init(&tiny, 64);
    assert_int_equal(sm_replay_read(&tiny, SM_STR("{\"chunks\":[]}"), &r, NULL), SEMEL_E_NOMEM);
    sm_arena_fini(&tiny);
}

static void base64_is_exact(void **state)
{
    fixture *f = *state;
    static const char *const pairs[][2] = {
        {"", ""},        {"f", "Zg=="},        {"fo", "Zm8="},
        {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"\xFB\xFF", "+/8="}};
    for (size_t i = 0; i < COUNT(pairs); i++) {
        sm_buf_clear(&f->value);
        sm_base64_put(&f->value, sm_str_from(pairs[i][0]));
        expect_text(sm_buf_view(&f->value), pairs[i][1]);
        sm_buf_clear(&f->value);
        assert_true(sm_base64_take(&f->value, sm_str_from(pairs[i][1])));
        expect_text(sm_buf_view(&f->value), pairs[i][0]);
    }
    static const char *const bad[] = {
        "Z", "Zg", "Zg=", "Zh==", "Zm9=", "====", "Zg==Zg==", "Z g=", "Zm9-", "=Zg=", "Zg=a"};
    for (size_t i = 0; i < COUNT(bad); i++)
        expect(!sm_base64_take(&f->value, sm_str_from(bad[i])), "<%s> was taken", bad[i]);
}

#define with_fixture(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fixture(streams_are_recorded_in_order),
        with_fixture(bytes_that_are_no_text_come_back),
        with_fixture(text_is_recorded_as_text),
        with_fixture(lines_are_recorded_as_text),
        with_fixture(too_much_output_is_cut_and_hashed),
        with_fixture(a_full_record_fits_its_bound),
        with_fixture(input_is_given_without_deadlock),
        with_fixture(a_command_need_not_read_its_input),
        with_fixture(without_input_it_reads_nothing),
        with_fixture(what_cannot_be_started_is_told_apart),
        with_fixture(without_a_pipe_it_is_not_started),
        with_fixture(every_pipe_is_closed_afterwards),
        with_fixture(a_signal_that_ends_it_is_recorded),
        with_fixture(signals_are_passed_on),
        with_fixture(a_signal_that_came_before_is_told),
        with_fixture(signals_that_cannot_be_held_are_told),
        with_fixture(signals_are_released_once),
        with_fixture(signals_and_pipes_are_as_they_were),
        with_fixture(a_command_that_closes_its_output_is_waited_for_in_sleep),
        with_fixture(the_end_of_the_output_is_not_waited_for),
        with_fixture(an_end_that_nobody_can_tell_is_an_error),
        with_fixture(who_holds_the_output_open_does_not_hold_us),
        with_fixture(a_writer_without_end_does_not_hold_us),
        with_fixture(a_closed_output_disturbs_nothing),
        with_fixture(a_stuck_reader_does_not_hide_the_end),
        with_fixture(records_that_do_not_hold_together_are_refused),
        with_fixture(the_time_of_the_end_may_be_in_whole_seconds),
        with_fixture(a_replay_that_cannot_be_written_is_told),
        with_fixture(what_cannot_be_recorded_or_read_is_told),
        with_fixture(base64_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
