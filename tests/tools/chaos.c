/*
 * A mixed load whose processes are killed at any moment and started again.
 *
 *     tool_chaos [--url URL] --dir DIR [--seed N] [--seconds N] [--processes N] [--threads N]
 *
 * Every thread picks a key, asks, and does one of the things that people do: the work in time, the
 * work too late, with a renewal or without, a failure, nothing at all, a resolution, a lie. Each
 * process writes its history to a file of its own in DIR (history.h); the changes to the world go
 * to one file, DIR/world, where whoever resolves a doubt looks first. tool_history judges.
 *
 * The seed decides what each thread wants and when processes are killed; what comes of it is up to
 * the scheduler.
 */
#include "history.h"
#include "tool.h"

#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { KEYS = 50, LEASE_MS = 200, PROCESSES_MAX = 64 };

static const char contract[] = "{version: 1, defaults: {loop: off}, tools: {"
                               "hold: {class: write, lease: 200ms},"
                               "short: {class: write, lease: 200ms, window: 1s},"
                               "wire: {class: irreversible, key: {fields: [/k]}, lease: 200ms},"
                               "again: {class: write_idempotent, lease: 200ms}}}";

static const char *const tools[] = {"hold", "short", "wire", "again"};

static const char *url, *dir;
static uint64_t seed = 1;
static unsigned seconds = 15, processes = 3, threads = 2;
static atomic_bool *stop; /* in memory that all processes share */
static int log_fd, world_fd;
static semel *ledger;

/* ---- writing it down -------------------------------------------------------------------------*/

typedef struct worker {
    pthread_t thread;
    uint64_t random;
    uint64_t counter; /* of resolutions, unique over all processes */
    const char *tool;
    uint64_t asked_at; /* when the call began, as the history tells time */
    char effect[64];
    char value[128]; /* of semel_run's work */
    semel_answer *a;
} worker;

static uint64_t below(worker *w, uint64_t n)
{
    return next_random(&w->random) % n;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void put(int fd, const worker *w, history_word word, uint64_t fence, uint64_t number,
                uint64_t hash, const char *more)
{
    char line[512];
    int n =
        snprintf(line, sizeof line, "%" PRIu64 " %s %s %" PRIu64 " %" PRIu64 " %" PRIx64 " %s%s\n",
                 now_ns(), history_words[word], w->effect[0] != '\0' ? w->effect : "-", fence,
                 number, hash, w->tool, more);
    append_line(fd, line, (size_t)n);
}

static void note(const worker *w, history_word word, uint64_t fence, uint64_t number, uint64_t hash)
{
    put(log_fd, w, word, fence, number, hash, "");
}

static history_result result_of(const semel_answer *a)
{
    return a->result.n == 9    ? R_COMMITTED /* by their lengths */
           : a->result.n == 12 ? R_LATE_SETTLED
                               : R_LATE_EVIDENCE;
}

/* An answer that no run should see: the ledger is sound, and nobody misuses it. */
static void broken(worker *w, const char *what)
{
    fprintf(stderr, "%s: %s: %.*s\n", what, semel_code_name(w->a->code), FMT(w->a->message));
    note(w, H_broken, 0, 0, 0);
}

/* ---- an attempt ------------------------------------------------------------------------------*/

static semel_str value_of(char out[128], const semel_answer *execute)
{
    int n = snprintf(out, 128, "\"%.*s/%" PRIu64 "/%ld\"", FMT(execute->effect), execute->fence,
                     (long)getpid());
    return (semel_str){out, (size_t)n};
}

/* Changes the world. */
static void do_effect(worker *w, uint64_t fence, semel_str value)
{
    char more[160];
    snprintf(more, sizeof more, " %.*s", FMT(value));
    put(world_fd, w, H_did, fence, 0, hash_bytes(value), more);
}

static void commit(worker *w, semel_str claim, uint64_t fence, semel_outcome *o, history_word word)
{
    o->size = sizeof *o;
    semel_err e = semel_commit(ledger, claim, o, w->a);
    if (e != SEMEL_OK || w->a->verdict != SEMEL_DONE)
        broken(w, "commit");
    else
        note(w, word, fence, result_of(w->a), hash_bytes(o->value));
}

static void run_attempt(worker *w)
{
    char claim_text[256], value_text[128];
    uint64_t fence = w->a->fence;
    int n = snprintf(claim_text, sizeof claim_text, "%.*s", FMT(w->a->claim));
    semel_str claim = {claim_text, (size_t)n}, value = value_of(value_text, w->a);
    semel_outcome success = {.value = value};
    semel_outcome failure = {.kind = SEMEL_FAILURE, .applied = SEMEL_APPLIED_NO, .value = value};
    uint64_t dice = below(w, 100);
    note(w, H_execute, fence, w->a->attempt, w->asked_at);
    usleep((useconds_t)below(w, 5000));
    if (dice < 10) { /* it fails, and did nothing; perhaps late */
        if (dice < 3)
            usleep((useconds_t)below(w, 2 * LEASE_MS * 1000));
        note(w, H_failing, fence, 0, hash_bytes(value));
        commit(w, claim, fence, &failure, H_failed);
        return;
    }
    if (dice < 13) /* it is never heard of again, and did nothing */
        return;
    if (dice < 18) { /* it keeps its lease for a while */
        usleep(LEASE_MS * 500);
        semel_renew(ledger, claim, 0, w->a);
        usleep(LEASE_MS * 700);
    } else if (dice < 28) { /* or it may lose it */
        usleep((useconds_t)below(w, 2 * LEASE_MS * 1000));
    }
    do_effect(w, fence, value);
    if (dice < 31) /* it is never heard of again */
        return;
    if (dice < 40)
        usleep((useconds_t)below(w, 2 * LEASE_MS * 1000));
    if (dice < 43) { /* nobody knows; and then somebody does, or not */
        failure.applied = SEMEL_APPLIED_UNKNOWN;
        semel_commit(ledger, claim, &failure, w->a);
        if (dice == 42)
            return;
    }
    commit(w, claim, fence, &success, H_acked);
    if (dice < 60) /* the same again: its answer may have been lost */
        commit(w, claim, fence, &success, H_acked);
    if (dice < 50) { /* something else */
        semel_outcome other = {.value = TEXT("\"forged\"")};
        commit(w, claim, fence, &other, H_forged);
    }
}

/* ---- a person --------------------------------------------------------------------------------*/

/* Looks in the world for what an effect did. */
static bool look(const worker *w, char value[128])
{
    char path[512], *line = NULL;
    snprintf(path, sizeof path, "%s/world", dir);
    FILE *f = fopen(path, "r");
    size_t room = 0;
    bool found = false;
    while (f != NULL && !found && getline(&line, &room, f) > 0) {
        char effect[64];
        found = sscanf(line, "%*s did %63s %*s %*s %*s %*s %127s", effect, value) == 2 &&
                strcmp(effect, w->effect) == 0;
    }
    if (f != NULL)
        fclose(f);
    free(line);
    return found;
}

static void resolve(worker *w)
{
    char value[128] = "";
    bool applied = look(w, value);
    semel_resolution how = applied            ? SEMEL_RESOLVE_APPLIED
                           : below(w, 10) < 1 ? SEMEL_RESOLVE_ABANDON
                                              : SEMEL_RESOLVE_NOT_APPLIED;
    semel_outcome o = {.size = sizeof o, .value = text_of(value)};
    uint64_t number = ++w->counter;
    note(w, H_resolving, how, number, applied ? hash_bytes(o.value) : 0);
    semel_err e = semel_resolve(ledger, text_of(w->effect), how, applied ? &o : NULL,
                                TEXT("looked at the world"), (semel_str){0}, w->a);
    bool done = e == SEMEL_OK && w->a->verdict == SEMEL_DONE;
    if (!done && w->a->code != SEMEL_C_ILLEGAL_STATE)
        broken(w, "resolve");
    else
        note(w, done ? H_resolved : H_unresolved, how, number, 0);
}

static void forget(worker *w)
{
    note(w, H_forgetting, 0, 0, 0);
    semel_forget(ledger, text_of(w->effect), (semel_str){0}, TEXT("chaos"), w->a);
}

/* ---- a call ----------------------------------------------------------------------------------*/

static void take_effect(worker *w, const semel_answer *a)
{
    snprintf(w->effect, sizeof w->effect, "%.*s", FMT(a->effect));
}

/* The work of semel_run: it renews by itself, and only being killed keeps it from its commit. */
static void work(void *context, const semel_answer *execute, semel_outcome *outcome)
{
    worker *w = context;
    take_effect(w, execute);
    note(w, H_execute, execute->fence, execute->attempt, w->asked_at);
    outcome->value = value_of(w->value, execute);
    usleep((useconds_t)below(w, 20000));
    do_effect(w, execute->fence, outcome->value);
    usleep((useconds_t)below(w, 20000));
}

/* A begin that takes longer than its lease runs nothing, and a busy machine is slow. */
static bool took_too_long(const worker *w)
{
    return w->a->code == SEMEL_C_LEDGER_UNAVAILABLE &&
           now_ns() - w->asked_at > LEASE_MS * UINT64_C(1000000);
}

static void take_answer(worker *w)
{
    const semel_answer *a = w->a;
    take_effect(w, a);
    if (a->verdict == SEMEL_EXECUTE && a->executed) {
        note(w, H_acked, a->fence, result_of(a), hash_bytes(a->outcome.value));
    } else if (a->verdict == SEMEL_EXECUTE) {
        run_attempt(w);
    } else if (a->verdict == SEMEL_REPLAY) {
        bool good = a->has_outcome && a->outcome.kind == SEMEL_SUCCESS;
        if (a->outcome.kept)
            note(w, good ? H_ok : H_nok, 0, w->asked_at, hash_bytes(a->outcome.value));
        if (below(w, 100) < 8)
            forget(w);
    } else if (a->code == SEMEL_C_IN_DOUBT) {
        note(w, H_doubt, 0, w->asked_at, 0);
        if (below(w, 100) < 30)
            resolve(w);
    } else if (a->code != SEMEL_C_RETRY_IN_FLIGHT && !took_too_long(w)) {
        broken(w, "begin");
    }
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    w->a = semel_answer_new();
    if (w->a == NULL)
        die("out of memory");
    while (!atomic_load(stop)) {
        unsigned key = (unsigned)below(w, KEYS);
        char args[64], scope[64];
        int n = snprintf(args, sizeof args, "{\"k\": %u}", key);
        int m = snprintf(scope, sizeof scope, "chaos/%u", key); /* no key bars another */
        w->tool = tools[key % 4];
        w->effect[0] = '\0';
        w->asked_at = now_ns();
        semel_call call = {.size = sizeof call,
                           .scope = {scope, (size_t)m},
                           .tool = text_of(w->tool),
                           .args = {args, (size_t)n},
                           .wait_ms = (int64_t)below(w, LEASE_MS)};
        if (below(w, 100) < 25)
            semel_run(ledger, &call, work, w, w->a);
        else
            semel_begin(ledger, &call, w->a);
        take_answer(w);
    }
    semel_answer_free(w->a);
    return NULL;
}

/* ---- processes -------------------------------------------------------------------------------*/

static pid_t start(unsigned number)
{
    pid_t pid = fork();
    if (pid < 0)
        die("fork: %s", strerror(errno));
    if (pid > 0)
        return pid;
    char path[512];
    snprintf(path, sizeof path, "%s/log.%u", dir, number);
    log_fd = open_log(path);
    ledger = open_ledger(url, contract);
    worker *workers = calloc(threads, sizeof *workers);
    if (workers == NULL)
        die("out of memory");
    for (unsigned i = 0; i < threads; i++) {
        workers[i].random = seed * 1000003 + number * 101 + i;
        workers[i].counter = ((uint64_t)number * threads + i) << 32;
        if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) != 0)
            die("a thread could not be started");
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    free(workers);
    semel_close(ledger);
    _exit(0);
}

/* Kills and starts processes until the time is up, then lets them end by themselves. */
static int supervise(void)
{
    pid_t pids[PROCESSES_MAX];
    unsigned started = 0, kills = 0, bad = 0;
    uint64_t random = seed;
    for (unsigned i = 0; i < processes; i++)
        pids[i] = start(started++);
    for (int64_t end = now_ms() + seconds * INT64_C(1000); now_ms() < end;) {
        usleep((useconds_t)(20000 + next_random(&random) % 400000));
        unsigned i = (unsigned)(next_random(&random) % processes);
        int status;
        kill(pids[i], SIGKILL);
        waitpid(pids[i], &status, 0);
        bad += !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL;
        kills++;
        pids[i] = start(started++);
    }
    atomic_store(stop, true);
    for (unsigned i = 0; i < processes; i++) {
        int status;
        waitpid(pids[i], &status, 0);
        bad += status != 0;
    }
    printf("%u processes, %u kills, %u ended otherwise\n", started, kills, bad);
    return bad == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"url", required_argument, NULL, 'u'},
        {"dir", required_argument, NULL, 'd'},
        {"seed", required_argument, NULL, 's'},
        {"seconds", required_argument, NULL, 't'},
        {"processes", required_argument, NULL, 'p'},
        {"threads", required_argument, NULL, 'n'},
        {0},
    };
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'u': url = optarg; break;
        case 'd': dir = optarg; break;
        case 's': seed = strtoull(optarg, NULL, 10); break;
        case 't': seconds = (unsigned)atoi(optarg); break;
        case 'p': processes = (unsigned)atoi(optarg); break;
        case 'n': threads = (unsigned)atoi(optarg); break;
        default: return 64;
        }
    }
    if (dir == NULL || processes == 0 || processes > PROCESSES_MAX || threads == 0)
        die("usage: tool_chaos [--url URL] --dir DIR [--seed N] [--seconds N] [--processes N]");
    char path[512];
    snprintf(path, sizeof path, "%s/world", dir);
    world_fd = open_log(path);
    stop = mmap(NULL, sizeof *stop, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (stop == MAP_FAILED)
        die("out of memory");
    return supervise();
}
