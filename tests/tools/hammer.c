/*
 * Many callers, one key, at the same time: the work runs once and all get the same bytes (I1, I4).
 *
 *     tool_hammer [--url URL] --log FILE [--threads 64] [--processes 1] [--keys 1000] [--shared]
 *
 * Every thread of every process runs through the keys in the same order. Whoever is first with a
 * key executes, the others wait for it, and so all come to the next key together. The work appends
 * one line, "KEY HASH", to FILE, which is therefore the count of executions; HASH is of the bytes
 * that it returned. Each process keeps for each key the hash of the bytes that its callers got, and
 * the parent compares all of them with what the file says.
 *
 * With --shared it is one of several that run through the same keys, with the same log: each looks
 * at the whole log when it is done, the last one at all there is. Without --url the ledger is that
 * of the environment.
 *
 * Exit code: 0 if every key ran once and everybody got that, and the audit trail is sound.
 */
#include "tool.h"

#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define VALUE_MAX 4096

/* What one process found, in memory that it shares with the parent. */
typedef struct findings {
    _Atomic uint64_t executed, replayed;
    _Atomic uint64_t refused;   /* an answer that is no result */
    _Atomic uint64_t different; /* two callers in this process got different bytes */
    _Atomic uint64_t got[];     /* by key: hash of the bytes; 0 is none */
} findings;

static const char *url, *log_path;
static unsigned threads = 64, processes = 1, keys = 1000;
static bool shared;
static int log_fd;
static semel *ledger;
static findings *found;

/* ---- one process -----------------------------------------------------------------------------*/

typedef struct worker {
    pthread_t thread;
    unsigned key; /* that it is at */
    uint64_t random;
    char value[VALUE_MAX];
} worker;

/* Returns bytes that nobody else returns, of any kind, and takes its time now and then. */
static void do_work(void *context, const semel_answer *execute, semel_outcome *outcome)
{
    (void)execute;
    worker *w = context;
    size_t n = 16 + next_random(&w->random) % (w->key % 7 == 0 ? VALUE_MAX - 16 : 64);
    for (size_t i = 0; i < n; i++)
        w->value[i] = (char)next_random(&w->random);
    outcome->value = (semel_str){w->value, n};
    char line[64];
    int length =
        snprintf(line, sizeof line, "%u %" PRIx64 "\n", w->key, hash_bytes(outcome->value));
    append_line(log_fd, line, (size_t)length);
    if (w->key % 10 == 0)
        usleep(2000);
}

static void note_result(worker *w, const semel_answer *a, semel_err e)
{
    if (e != SEMEL_OK || a->verdict == SEMEL_REFUSED || !a->outcome.kept) {
        if (atomic_fetch_add(&found->refused, 1) == 0)
            fprintf(stderr, "key %u was refused: %s %s: %.*s\n", w->key, semel_err_name(e),
                    semel_code_name(a->code), FMT(a->message));
        return;
    }
    atomic_fetch_add(a->executed ? &found->executed : &found->replayed, 1);
    uint64_t hash = hash_bytes(a->outcome.value), before = 0;
    if (!atomic_compare_exchange_strong(&found->got[w->key], &before, hash) && before != hash)
        atomic_fetch_add(&found->different, 1);
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        die("out of memory");
    for (w->key = 0; w->key < keys; w->key++) {
        char args[64], scope[64];
        int n = snprintf(args, sizeof args, "{\"key\": %u}", w->key);
        int m = snprintf(scope, sizeof scope, "hammer-%u", w->key % 16); /* in several shards */
        semel_call call = {.size = sizeof call,
                           .scope = {scope, (size_t)m},
                           .tool = TEXT("count"),
                           .args = {args, (size_t)n},
                           .wait_ms = 120000};
        note_result(w, a, semel_run(ledger, &call, do_work, w, a));
    }
    semel_answer_free(a);
    return NULL;
}

static bool in_memory(void)
{
    return url != NULL && strncmp(url, "memory:", 7) == 0;
}

static bool run_process(unsigned number)
{
    ledger = open_ledger(url, NULL);
    worker *workers = calloc(threads, sizeof *workers);
    if (workers == NULL)
        die("out of memory");
    for (unsigned i = 0; i < threads; i++) {
        workers[i].random = ((uint64_t)getpid() << 32) + number * 1000003u + i;
        if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) != 0)
            die("a thread could not be started");
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    free(workers);
    /* What is in memory can be verified by nobody else. */
    bool sound = !in_memory() || verify_ledger(ledger);
    semel_close(ledger);
    return sound;
}

/* ---- the parent ------------------------------------------------------------------------------*/

/* Reads the count of executions: hash by key. Returns how many keys did not run exactly once. */
static unsigned read_log(uint64_t *ran)
{
    FILE *f = fopen(log_path, "r");
    unsigned *times = calloc(keys, sizeof *times), key, wrong = 0;
    uint64_t hash;
    if (f == NULL || times == NULL)
        die("%s cannot be read", log_path);
    while (fscanf(f, "%u %" SCNx64, &key, &hash) == 2) {
        if (key >= keys)
            die("the log names key %u", key);
        times[key]++;
        ran[key] = hash;
    }
    fclose(f);
    for (key = 0; key < keys; key++) {
        if (times[key] == 1)
            continue;
        if (wrong++ < 10)
            printf("key %u was executed %u times\n", key, times[key]);
    }
    free(times);
    return wrong;
}

static size_t findings_bytes(void)
{
    return sizeof(findings) + keys * sizeof(uint64_t);
}

static findings *findings_of(char *all, unsigned process)
{
    return (findings *)(void *)(all + process * findings_bytes());
}

static bool compare(char *all)
{
    uint64_t *ran = calloc(keys, sizeof *ran);
    if (ran == NULL)
        die("out of memory");
    uint64_t executed = 0, replayed = 0, refused = 0, different = 0;
    unsigned wrong = read_log(ran);
    for (unsigned p = 0; p < processes; p++) {
        findings *f = findings_of(all, p);
        executed += atomic_load(&f->executed);
        replayed += atomic_load(&f->replayed);
        refused += atomic_load(&f->refused);
        different += atomic_load(&f->different);
        for (unsigned key = 0; key < keys; key++)
            different += atomic_load(&f->got[key]) != ran[key];
    }
    free(ran);
    printf("%u processes x %u threads x %u keys: %" PRIu64 " executed, %" PRIu64
           " replayed, %" PRIu64 " refused, %" PRIu64 " got other bytes, %u keys not once\n",
           processes, threads, keys, executed, replayed, refused, different, wrong);
    return wrong == 0 && refused == 0 && different == 0 && (shared || executed == keys) &&
           executed + replayed == (uint64_t)processes * threads * keys;
}

static bool run_all(char *all)
{
    bool good = true;
    if (processes == 1) {
        found = findings_of(all, 0);
        return run_process(0);
    }
    for (unsigned p = 0; p < processes; p++) {
        pid_t pid = fork();
        if (pid < 0)
            die("fork: %s", strerror(errno));
        if (pid == 0) {
            found = findings_of(all, p);
            _exit(run_process(p) ? 0 : 1);
        }
    }
    for (unsigned p = 0; p < processes; p++) {
        int status;
        if (wait(&status) < 0 || status != 0) {
            printf("a process ended with status %d\n", status);
            good = false;
        }
    }
    return good;
}

static void read_options(int argc, char **argv)
{
    static const struct option options[] = {
        {"url", required_argument, NULL, 'u'},
        {"log", required_argument, NULL, 'l'},
        {"threads", required_argument, NULL, 't'},
        {"keys", required_argument, NULL, 'k'},
        {"processes", required_argument, NULL, 'p'},
        {"shared", no_argument, NULL, 's'},
        {0},
    };
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'u': url = optarg; break;
        case 'l': log_path = optarg; break;
        case 't': threads = (unsigned)atoi(optarg); break;
        case 'k': keys = (unsigned)atoi(optarg); break;
        case 'p': processes = (unsigned)atoi(optarg); break;
        case 's': shared = true; break;
        default: exit(64);
        }
    }
    if (log_path == NULL || threads == 0 || keys == 0 || processes == 0)
        die("usage: tool_hammer [--url URL] --log FILE [--threads N] [--processes N] [--keys N]"
            " [--shared]");
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    log_fd = open_log(log_path);
    char *all = mmap(NULL, processes * findings_bytes(), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        die("out of memory");
    int64_t began = now_ms();
    bool good = run_all(all);
    good = compare(all) && good;
    printf("%" PRId64 " ms\n", now_ms() - began);
    if (!in_memory()) {
        ledger = open_ledger(url, NULL);
        good = verify_ledger(ledger) && good;
        semel_close(ledger);
    }
    return good ? 0 : 1;
}
