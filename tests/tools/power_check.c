/*
 * Power losses, simulated from a recording (power_shim.c, power_disk.h): opens the ledger in many
 * states in which a power loss may have left it, and checks that everything acknowledged before
 * still holds, and that the audit trail is sound.
 *
 *     tool_power_check --log FILE --scratch DIR [--seed N] [--states N]
 *                      [--lie sync|order|names] [--again N --work PROGRAM --shim LIBRARY]
 *
 * With --again, in N of the states a program opens the ledger instead, is recorded while it asks
 * for everything, and the power fails once more: the answers that it got must hold as well.
 *
 * The last line is "STATES states, WRONG wrong". Exit code: 0 if nothing was wrong, else 1. --seed
 * and --states 1 with the numbers that are printed make one state again.
 */
#include "tool.h"

#include <ftw.h>
#include <getopt.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "power_disk.h"

enum { KEYS_MAX = 5000, AGAIN_STATES = 6, TOLD_MAX = 10 };

static const char ledger_name[] = "semel/ledger.db";
static const char *log_path, *scratch, *work_program, *shim_library;
static uint64_t seed = 1;
static unsigned states = 100, again;
static power_lie lie;
static unsigned checked, wrong, reopened;

/* What programs were told about a key. */
typedef struct told {
    unsigned executed;
    bool known;
    uint64_t hash; /* of its outcome; 0: not settled */
} told;

/* ---- what was acknowledged -------------------------------------------------------------------*/

static void tell(const char *what, size_t at, uint64_t state_seed, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void tell(const char *what, size_t at, uint64_t state_seed, const char *format, ...)
{
    va_list args;
    wrong++;
    if (wrong > TOLD_MAX)
        return;
    printf("%s after record %zu, seed %" PRIu64 ": ", what, at, state_seed);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

/* Reads the marks of the first `count` records. */
static void read_marks(const power_log *log, size_t count, told *keys, bool complain)
{
    memset(keys, 0, KEYS_MAX * sizeof *keys);
    for (size_t i = 0; i < count; i++) {
        const power_record *r = log->records[i];
        if (r->kind != POWER_MARK)
            continue;
        char line[128];
        snprintf(line, sizeof line, "%.*s", (int)r->bytes, (const char *)(r + 1) + r->name);
        unsigned key = KEYS_MAX;
        uint64_t hash = 0;
        bool executed = sscanf(line, "executed %u", &key) == 1;
        if (!executed && sscanf(line, "settled %u %" SCNx64, &key, &hash) != 2)
            sscanf(line, "seen %u", &key);
        if (key >= KEYS_MAX)
            die("the recording says \"%s\"", line);
        told *t = &keys[key];
        if (complain && executed && (t->executed > 0 || t->hash != 0))
            tell("the recording", i, 0, "key %u ran again", key);
        if (complain && hash != 0 && t->hash != 0 && hash != t->hash)
            tell("the recording", i, 0, "key %u has two outcomes", key);
        t->executed += executed;
        t->known = true;
        if (hash != 0)
            t->hash = hash;
    }
}

/* ---- one state -------------------------------------------------------------------------------*/

static int remove_one(const char *path, const struct stat *about, int flag, struct FTW *walk)
{
    (void)about;
    (void)flag;
    return walk->level == 0 ? 0 : remove(path);
}

static void clear(const char *directory)
{
    mkdir(directory, 0700);
    nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static bool count_flaw(void *context, semel_str text)
{
    char *first = context;
    if (first[0] == '\0')
        snprintf(first, 256, "%.*s", FMT(text));
    return true;
}

static const char *check_keys(semel *s, const told *keys, char text[256])
{
    const char *flaw = NULL;
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        die("out of memory");
    for (unsigned key = 0; key < KEYS_MAX && flaw == NULL; key++) {
        const told *t = &keys[key];
        if (!t->known)
            continue;
        char key_text[16];
        int n = snprintf(key_text, sizeof key_text, "%u", key);
        semel_name name = {
            .size = sizeof name, .scope = TEXT("power"), .key = {key_text, (size_t)n}};
        semel_err e = semel_get(s, &name, a);
        bool same = a->state == SEMEL_S_SUCCEEDED && a->has_outcome && a->outcome.kept &&
                    hash_bytes(a->outcome.value) == t->hash;
        if (e == SEMEL_OK && a->verdict != SEMEL_REFUSED && (t->hash == 0 || same))
            continue;
        snprintf(text, 256, "key %u was %s, and is %s", key, t->hash != 0 ? "settled" : "recorded",
                 e != SEMEL_OK || a->verdict == SEMEL_REFUSED ? semel_code_name(a->code)
                                                              : semel_state_name(a->state));
        flaw = text;
    }
    semel_answer_free(a);
    return flaw;
}

/* NULL, or what is wrong with the ledger. */
static const char *check_ledger(const char *path, const told *keys, bool any, char text[256])
{
    if (access(path, F_OK) != 0)
        return any ? "the ledger is gone" : NULL;
    char url[4096 + 8];
    snprintf(url, sizeof url, "sqlite:%s", path);
    semel *s = NULL;
    semel_fault fault = {0};
    semel_options o = {.size = sizeof o, .url = url, .actor = TEXT("test")};
    if (semel_open(&o, &s, &fault) != SEMEL_OK) {
        snprintf(text, 256, "it is not opened: %.200s", fault.text);
        return text;
    }
    const char *flaw = check_keys(s, keys, text);
    semel_verified v = {.size = sizeof v};
    semel_stats stats = {.size = sizeof stats};
    char first[256] = "";
    if (flaw == NULL && semel_verify(s, count_flaw, NULL, first, &v, &fault) != SEMEL_OK)
        flaw = "the audit trail cannot be read";
    if (flaw == NULL && v.flaws > 0) {
        snprintf(text, 256, "the audit trail: %.200s", first);
        flaw = text;
    }
    if (flaw == NULL && semel_stats_get(s, true, &stats, &fault) != SEMEL_OK) {
        snprintf(text, 256, "%.250s", fault.text);
        flaw = text;
    }
    semel_close(s);
    return flaw;
}

static void check_state(const power_log *log, size_t count, uint64_t state_seed, const char *what)
{
    static told keys[KEYS_MAX];
    char directory[2048], path[4096], text[256];
    snprintf(directory, sizeof directory, "%s/state", scratch);
    snprintf(path, sizeof path, "%s/%s", directory, ledger_name);
    clear(directory);
    power_disk_make(log, count, state_seed, lie, directory);
    read_marks(log, count, keys, false);
    bool any = false;
    for (unsigned i = 0; i < KEYS_MAX; i++)
        any = any || keys[i].known;
    const char *flaw = check_ledger(path, keys, any, text);
    checked++;
    if (flaw != NULL)
        tell(what, count, state_seed, "%s", flaw);
}

/* When the power fails: anywhere, or as often right after something was acknowledged. */
static size_t pick(const power_log *log, size_t from, uint64_t *random)
{
    size_t at = from + next_random(random) % (log->count - from + 1);
    if (next_random(random) % 2 == 0)
        while (at > from && log->records[at - 1]->kind != POWER_MARK)
            at--;
    return at;
}

/* ---- a second loss ---------------------------------------------------------------------------*/

static int copy_fd; /* for nftw, which has no context */
static size_t copy_skip;

static void put_record(power_kind kind, const char *name, uint64_t id, const char *p, size_t n)
{
    power_record r = {
        .kind = kind, .name = (uint32_t)strlen(name), .file = id, .bytes = (uint32_t)n};
    append_line(copy_fd, (const char *)&r, sizeof r);
    append_line(copy_fd, name, r.name);
    append_line(copy_fd, p, n);
}

/* Says of one file that it is on the disk. */
static int put_file(const char *path, const struct stat *about, int flag, struct FTW *walk)
{
    (void)walk;
    const char *name = path + copy_skip;
    if (flag == FTW_D) {
        if (name[0] != '\0')
            put_record(POWER_DIRECTORY, name + 1, 0, "", 0);
        return 0;
    }
    size_t size = (size_t)about->st_size;
    char *bytes = malloc(size + 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (bytes == NULL || fd < 0 || read(fd, bytes, size) != (ssize_t)size)
        die("%s cannot be read", path);
    close(fd);
    put_record(POWER_MAKE, name + 1, about->st_ino, "", 0);
    put_record(POWER_WRITE, name + 1, about->st_ino, bytes, size);
    put_record(POWER_SYNC, name + 1, about->st_ino, "", 0);
    free(bytes);
    return 0;
}

static int sync_directory(const char *path, const struct stat *about, int flag, struct FTW *walk)
{
    (void)about;
    (void)walk;
    const char *name = path + copy_skip;
    if (flag == FTW_D)
        put_record(POWER_SYNC, name[0] == '\0' ? "" : name + 1, 0, "", 0);
    return 0;
}

/* Begins a recording with what is on the disk now and what was acknowledged so far. */
static void begin_recording(const power_log *log, size_t count, const char *directory,
                            const char *path)
{
    unlink(path);
    copy_fd = open_log(path);
    copy_skip = strlen(directory);
    nftw(directory, put_file, 16, FTW_PHYS);
    nftw(directory, sync_directory, 16, FTW_PHYS);
    for (size_t i = 0; i < count; i++) {
        const power_record *r = log->records[i];
        if (r->kind == POWER_MARK)
            put_record(POWER_MARK, "", 0, (const char *)(r + 1) + r->name, r->bytes);
    }
    close(copy_fd);
}

static int run_work(const char *directory, const char *recording)
{
    pid_t pid = fork();
    if (pid == 0) {
        setenv("LD_PRELOAD", shim_library, 1);
        setenv("XDG_STATE_HOME", directory, 1);
        setenv("POWER_DIRECTORY", directory, 1);
        setenv("POWER_LOG", recording, 1);
        execl(work_program, work_program, "--ask", "1000", "--from", "4000", "--count", "6",
              (char *)NULL);
        _exit(127);
    }
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        die("%s cannot be run", work_program);
    return status;
}

static void lose_again(const power_log *log, size_t count, uint64_t *random)
{
    char directory[2048], recording[2048];
    snprintf(directory, sizeof directory, "%s/again", scratch);
    snprintf(recording, sizeof recording, "%s/again.log", scratch);
    clear(directory);
    power_disk_make(log, count, next_random(random), lie, directory);
    begin_recording(log, count, directory, recording);
    power_log second;
    power_log_read(&second, recording);
    size_t before = second.count;
    power_log_free(&second);
    if (run_work(directory, recording) != 0)
        tell("a second opening", count, 0, "it is refused");
    power_log_read(&second, recording);
    for (unsigned i = 0; i < AGAIN_STATES; i++)
        check_state(&second, pick(&second, before, random), next_random(random), "the second loss");
    power_log_free(&second);
    reopened++;
}

/* ---- all of it -------------------------------------------------------------------------------*/

static void read_options(int argc, char **argv)
{
    static const struct option options[] = {
        {"log", required_argument, NULL, 'l'},
        {"scratch", required_argument, NULL, 'd'},
        {"seed", required_argument, NULL, 's'},
        {"states", required_argument, NULL, 'c'},
        {"lie", required_argument, NULL, 'i'},
        {"again", required_argument, NULL, 'a'},
        {"work", required_argument, NULL, 'w'},
        {"shim", required_argument, NULL, 'm'},
        {0},
    };
    static const char *const lies[] = {"", "sync", "order", "names"};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'l': log_path = optarg; break;
        case 'd': scratch = optarg; break;
        case 's': seed = strtoull(optarg, NULL, 10); break;
        case 'c': states = (unsigned)atoi(optarg); break;
        case 'i':
            for (unsigned i = 1; i < 4; i++)
                lie = strcmp(optarg, lies[i]) == 0 ? (power_lie)i : lie;
            break;
        case 'a': again = (unsigned)atoi(optarg); break;
        case 'w': work_program = optarg; break;
        case 'm': shim_library = optarg; break;
        default: exit(64);
        }
    }
    if (log_path == NULL || scratch == NULL ||
        (again > 0 && (work_program == NULL || shim_library == NULL)))
        die("usage: tool_power_check --log FILE --scratch DIR ...");
}

int main(int argc, char **argv)
{
    static told keys[KEYS_MAX];
    read_options(argc, argv);
    power_log log;
    power_log_read(&log, log_path);
    read_marks(&log, log.count, keys, true);
    uint64_t random = seed;
    for (unsigned i = 0; i < states; i++) {
        size_t count = i == 0 ? log.count : pick(&log, 0, &random);
        check_state(&log, count, next_random(&random), "a loss");
    }
    for (unsigned i = 0; i < again; i++)
        lose_again(&log, pick(&log, 0, &random), &random);
    size_t records = log.count;
    power_log_free(&log);
    printf("%zu records, %u states, %u opened again, %u wrong\n", records, checked, reopened,
           wrong);
    return wrong == 0 ? 0 : 1;
}
