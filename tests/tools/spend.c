/*
 * Many callers against one budget or limit: no cap is ever passed, and nothing stays reserved
 * (I14).
 *
 *     tool_spend [--url URL] --log FILE --contract FILE --cap N [--price N] [--least N]
 *                [--processes 4] [--threads 16] [--kills N]
 *
 * Every caller makes one new call after the other, each of which costs --price (1), or where
 * --least is given something from there up to the price, which its commit reports. Some fail and
 * did nothing. A caller stops when it was refused a few times in a row. With --kills a process is
 * killed with SIGKILL whenever a few more calls have begun, and another one takes its place, as
 * often as the budget lasts.
 *
 * The work appends to FILE, which is the independent count of what is spent or reserved:
 *
 *     + CALL PRICE     it runs; after the ledger has let it begin
 *     = CALL SPENT     it was done; before the ledger is told
 *     - CALL 0         nothing was done; before the ledger is told
 *
 * So the sum over the calls is at no moment more than what the ledger has reserved. In the end what
 * is in doubt is resolved by what the file says, and whatever was freed can be spent: calls are
 * made one by one until one is refused.
 *
 * Exit code: 0 if the sum never passed the cap, in the end is so near to it that no call fits any
 * more, one caller was warned that the budget is nearly used up (--warned), nothing is left over,
 * and the audit trail is sound.
 */
#include "tool.h"

#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define CALLS_MAX 200000
#define KILL_STEP 12 /* calls that begin between two kills */

static const char *url, *log_path, *contract;
static int64_t cap, price = 1, least;
static unsigned processes = 4, threads = 16, kills;
static bool warned_once;
static int log_fd;
static semel *ledger;

/* In memory that all processes share. */
typedef struct findings {
    _Atomic unsigned next; /* number of a call */
    _Atomic unsigned begun, refused, warned;
    _Atomic unsigned strange; /* an answer that nobody expected */
} findings;
static findings *found;

static void note(char what, unsigned call, int64_t amount)
{
    char line[64];
    int n = snprintf(line, sizeof line, "%c %u %" PRId64 "\n", what, call, amount);
    append_line(log_fd, line, (size_t)n);
}

static void complain(const char *what, unsigned call, const semel_answer *a, semel_err e)
{
    if (atomic_fetch_add(&found->strange, 1) == 0)
        fprintf(stderr, "%s of call %u: %s %s: %.*s\n", what, call, semel_err_name(e),
                semel_code_name(a->code), FMT(a->message));
}

/* ---- callers ---------------------------------------------------------------------------------*/

/* A server that does not answer in time is asked again, as callers do: nothing was begun that
 * anybody was told of. What was begun all the same is taken back, and runs until then. */
#define PATIENCE_S 120
typedef struct patience {
    time_t since;
    bool asked_in_vain;
} patience;

static bool must_ask_again(patience *p, semel_err e, semel_code code)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    p->since = p->since == 0 ? now.tv_sec : p->since;
    p->asked_in_vain |= e == SEMEL_E_UNAVAILABLE;
    bool waits = e == SEMEL_E_UNAVAILABLE || (p->asked_in_vain && code == SEMEL_C_RETRY_IN_FLIGHT);
    if (!waits || now.tv_sec - p->since > PATIENCE_S)
        return false;
    usleep(50000);
    return true;
}

static bool begin(unsigned call, semel_answer *a)
{
    char args[64], scope[64];
    int n = snprintf(args, sizeof args, "{\"n\":%u,\"to\":\"ann\"}", call);
    int m = snprintf(scope, sizeof scope, "acme/agent/%u", call % 7);
    semel_call c = {.size = sizeof c,
                    .scope = {scope, (size_t)m},
                    .tool = TEXT("spend"),
                    .args = {args, (size_t)n}};
    patience p = {0};
    semel_err e;
    do
        e = semel_begin(ledger, &c, a);
    while (must_ask_again(&p, e, a->code));
    if (a->warning.n > 0)
        atomic_fetch_add(&found->warned, 1);
    if (e == SEMEL_OK && a->verdict == SEMEL_EXECUTE)
        return true;
    if (e != SEMEL_OK || a->code != SEMEL_C_BUDGET_EXCEEDED)
        complain("begin", call, a, e);
    atomic_fetch_add(&found->refused, 1);
    return false;
}

static void finish(unsigned call, bool fails, int64_t spent, semel_answer *a)
{
    char claim[128], cost[32];
    semel_outcome o = {.size = sizeof o, .kind = fails ? SEMEL_FAILURE : SEMEL_SUCCESS};
    int n = snprintf(claim, sizeof claim, "%.*s", FMT(a->claim));
    if (fails)
        o.applied = SEMEL_APPLIED_NO;
    if (!fails && least > 0) { /* amounts are billionths */
        int m = snprintf(cost, sizeof cost, "%" PRId64 ".%09" PRId64, spent / 1000000000,
                         spent % 1000000000);
        o.cost = (semel_str){cost, (size_t)m};
    }
    patience p = {0};
    semel_err e;
    do
        e = semel_commit(ledger, (semel_str){claim, (size_t)n}, &o, a);
    while (must_ask_again(&p, e, a->code));
    if (e != SEMEL_OK || a->verdict != SEMEL_DONE)
        complain("commit", call, a, e);
}

/* One new call; false if it was refused. */
static bool make_call(uint64_t *random, semel_answer *a, bool always)
{
    unsigned call = atomic_fetch_add(&found->next, 1);
    if (call >= CALLS_MAX)
        die("too many calls were made");
    if (!begin(call, a))
        return false;
    note('+', call, price);
    atomic_fetch_add(&found->begun, 1);
    bool fails = !always && next_random(random) % (kills > 0 ? 2 : 4) == 0;
    int64_t spent =
        least == 0 ? price : least + (int64_t)(next_random(random) % (uint64_t)(price - least + 1));
    if (kills > 0 && !always)
        usleep((useconds_t)(next_random(random) % 3000));
    note(fails ? '-' : '=', call, fails ? 0 : spent);
    finish(call, fails, spent, a);
    return true;
}

static void *caller(void *context)
{
    uint64_t random = (uint64_t)(uintptr_t)context * 1000003u + (uint64_t)getpid();
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        die("out of memory");
    for (int refused = 0; refused < 3;)
        refused = make_call(&random, a, false) ? 0 : refused + 1;
    semel_answer_free(a);
    return NULL;
}

static void run_process(void)
{
    pthread_t all[256];
    semel_fault fault = {0};
    semel_options o = {
        .size = sizeof o, .url = url, .actor = TEXT("test"), .contract = text_of(contract)};
    patience p = {0};
    while (must_ask_again(&p, semel_open(&o, &ledger, &fault), SEMEL_C_NONE))
        continue;
    if (ledger == NULL)
        die("the ledger was not opened: %s", fault.text);
    for (unsigned i = 0; i < threads; i++) {
        if (pthread_create(&all[i], NULL, caller, (void *)(uintptr_t)(i + 1)) != 0)
            die("a thread could not be started");
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(all[i], NULL);
    semel_close(ledger);
}

/* ---- processes -------------------------------------------------------------------------------*/

static pid_t start_process(void)
{
    pid_t pid = fork();
    if (pid < 0)
        die("fork: %s", strerror(errno));
    if (pid == 0) {
        run_process();
        _exit(0);
    }
    return pid;
}

/* Kills a process, and starts another one. */
static void replace(pid_t *pids, unsigned which)
{
    int status;
    kill(pids[which], SIGKILL);
    if (waitpid(pids[which], &status, 0) != pids[which])
        die("waitpid: %s", strerror(errno));
    pids[which] = start_process();
}

/* True as soon as `begun` calls have begun; false when all processes have ended before. */
static bool wait_begun(pid_t *pids, unsigned begun)
{
    while (atomic_load(&found->begun) < begun) {
        bool alive = false;
        for (unsigned p = 0; p < processes; p++) {
            siginfo_t info = {0};
            alive |= waitid(P_PID, (id_t)pids[p], &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                     info.si_pid == 0;
        }
        if (!alive)
            return atomic_load(&found->begun) >= begun;
        usleep(500);
    }
    return true;
}

static bool run_all(void)
{
    pid_t pids[64];
    bool good = true;
    unsigned killed = 0;
    for (unsigned p = 0; p < processes; p++)
        pids[p] = start_process();
    while (killed < kills && wait_begun(pids, (killed + 1) * KILL_STEP)) {
        replace(pids, killed % processes);
        killed++;
    }
    for (unsigned p = 0; p < processes; p++) {
        int status;
        if (waitpid(pids[p], &status, 0) < 0 || status != 0) {
            printf("a process ended with status %d\n", status);
            good = false;
        }
    }
    printf("%u processes x %u callers, %u killed: ", processes, threads, killed);
    return good && (kills == 0 || killed > 0);
}

/* ---- the independent count -------------------------------------------------------------------*/

typedef struct count {
    int64_t sum, most;           /* now, and at its highest */
    unsigned done, failed, open; /* calls */
    int64_t *amount;             /* by call: -1 it did not begin */
    char *last;
} count;

static count read_log(void)
{
    count c = {.amount = calloc(CALLS_MAX, sizeof *c.amount), .last = calloc(CALLS_MAX, 1)};
    FILE *f = fopen(log_path, "r");
    char what;
    unsigned call;
    int64_t amount;
    if (f == NULL || c.amount == NULL || c.last == NULL)
        die("%s cannot be read", log_path);
    while (fscanf(f, " %c %u %" SCNd64, &what, &call, &amount) == 3) {
        if (call >= CALLS_MAX)
            die("the log names call %u", call);
        c.sum += amount - c.amount[call];
        c.amount[call] = amount;
        c.most = c.sum > c.most ? c.sum : c.most;
        c.open += what == '+';
        c.open -= what != '+' && c.last[call] == '+';
        c.done += what == '=' && c.last[call] != '=';
        c.failed += what == '-';
        c.last[call] = what;
    }
    fclose(f);
    return c;
}

static void free_count(count *c)
{
    free(c->amount);
    free(c->last);
}

/* ---- what is left over -----------------------------------------------------------------------*/

typedef struct left {
    unsigned n;
    struct {
        char effect[128];
        unsigned call;
    } v[1000];
} left;

static bool keep_item(void *context, const semel_answer *a, const semel_record *r)
{
    left *l = context;
    char args[64];
    snprintf(args, sizeof args, "%.*s", FMT(r->args));
    if (l->n == sizeof l->v / sizeof l->v[0] || sscanf(args, "{\"n\":%u", &l->v[l->n].call) != 1)
        die("a record has the arguments %s", args);
    snprintf(l->v[l->n].effect, sizeof l->v[l->n].effect, "%.*s", FMT(a->effect));
    l->n++;
    return true;
}

static void list_open(left *out)
{
    semel_fault fault = {0};
    semel_query q = {.size = sizeof q, .limit = 1000};
    out->n = 0;
    q.filter.states = 1u << SEMEL_S_RUNNING | 1u << SEMEL_S_IN_DOUBT;
    do {
        if (semel_list(ledger, &q, keep_item, out, &fault) != SEMEL_OK)
            die("list: %s", fault.text);
    } while (q.cursor != 0);
}

/* Resolves what the killed have left, as the log says. What a commit would have reported is not
 * known: it stays charged as declared. */
static unsigned resolve_all(semel_answer *a)
{
    left *l = malloc(sizeof *l);
    if (l == NULL)
        die("out of memory");
    list_open(l);
    unsigned n = l->n;
    count c = read_log();
    for (unsigned i = 0; i < l->n; i++) {
        bool done = c.last[l->v[i].call] == '=';
        note(done ? '=' : '-', l->v[i].call, done ? price : 0);
        semel_err e = semel_resolve(ledger, text_of(l->v[i].effect),
                                    done ? SEMEL_RESOLVE_APPLIED : SEMEL_RESOLVE_NOT_APPLIED, NULL,
                                    TEXT("the log says so"), (semel_str){0}, a);
        if (e != SEMEL_OK || a->verdict != SEMEL_DONE)
            complain("resolve", l->v[i].call, a, e);
    }
    list_open(l);
    if (l->n > 0)
        printf("%u are left over; ", l->n);
    n = l->n > 0 ? UINT32_MAX : n;
    free_count(&c);
    free(l);
    return n;
}

static bool judge(unsigned resolved)
{
    count c = read_log();
    unsigned warned = atomic_load(&found->warned);
    bool good = c.most <= cap && c.sum <= cap && c.sum > cap - price && c.open == 0 &&
                resolved != UINT32_MAX && atomic_load(&found->strange) == 0 &&
                (!warned_once || warned == 1);
    printf("%u done, %u not, %u refused, %u resolved, %u warned; at most %" PRId64 ", in the end "
           "%" PRId64 " of %" PRId64 "\n",
           c.done, c.failed, atomic_load(&found->refused), resolved, warned, c.most, c.sum, cap);
    free_count(&c);
    return good;
}

/* ---- the parent ------------------------------------------------------------------------------*/

static const char *read_file(const char *path)
{
    static char text[4096];
    FILE *f = fopen(path, "r");
    size_t n = f == NULL ? 0 : fread(text, 1, sizeof text - 1, f);
    if (n == 0)
        die("%s cannot be read", path);
    fclose(f);
    return text;
}

static void read_options(int argc, char **argv)
{
    static const struct option options[] = {
        {"url", required_argument, NULL, 'u'},
        {"log", required_argument, NULL, 'l'},
        {"contract", required_argument, NULL, 'c'},
        {"cap", required_argument, NULL, 'm'},
        {"price", required_argument, NULL, 'p'},
        {"least", required_argument, NULL, 'e'},
        {"processes", required_argument, NULL, 'n'},
        {"threads", required_argument, NULL, 't'},
        {"kills", required_argument, NULL, 'k'},
        {"warned", no_argument, NULL, 'w'},
        {0},
    };
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'u': url = optarg; break;
        case 'l': log_path = optarg; break;
        case 'c': contract = read_file(optarg); break;
        case 'm': cap = atoll(optarg); break;
        case 'p': price = atoll(optarg); break;
        case 'e': least = atoll(optarg); break;
        case 'n': processes = (unsigned)atoi(optarg); break;
        case 't': threads = (unsigned)atoi(optarg); break;
        case 'k': kills = (unsigned)atoi(optarg); break;
        case 'w': warned_once = true; break;
        default: exit(64);
        }
    }
    if (log_path == NULL || contract == NULL || cap <= 0 || price <= 0 || processes == 0 ||
        processes > 64 || threads == 0 || threads > 256)
        die("usage: tool_spend [--url URL] --log FILE --contract FILE --cap N [--price N] "
            "[--least N] [--processes N] [--threads N] [--kills N] [--warned]");
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    log_fd = open_log(log_path);
    found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED)
        die("out of memory");
    bool good = run_all();
    semel_answer *a = semel_answer_new();
    uint64_t random = 1;
    ledger = open_ledger(url, contract);
    unsigned resolved = resolve_all(a);
    while (make_call(&random, a, true)) /* what was freed can be spent */
        continue;
    good = judge(resolved) && good;
    good = verify_ledger(ledger) && good;
    semel_answer_free(a);
    semel_close(ledger);
    return good ? 0 : 1;
}
