/*
 * The ledger through its C API: replays, durable effects, small and large ledgers, waking.
 *
 * Ledgers are files on a real disk: in a temporary directory below $TMPDIR, or beside this program
 * if that is kept in memory. They are removed at the end, and when the run is interrupted.
 */
#include "ledger.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "measure.h"

static semel_str text(const char *s)
{
    return (semel_str){s, strlen(s)};
}

/* ---- files -----------------------------------------------------------------------------------*/

static char our_dir[BENCH_DIR_MAX];

/* Only what a signal handler may do: paths are put together by hand. */
static void remove_all(void)
{
    static const char *const names[] = {"replay.db", "fresh.db", "small.db", "large.db",
                                        "wake.db",   "disk",     "off.db",   "on.db"};
    static const char *const tails[] = {"", "-wal", "-shm", "-semel", "-journal"};
    char path[PATH_MAX];
    size_t dir = strlen(our_dir);
    if (dir == 0)
        return;
    memcpy(path, our_dir, dir);
    path[dir] = '/';
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (size_t j = 0; j < sizeof tails / sizeof tails[0]; j++) {
            strcpy(path + dir + 1, names[i]);
            strcat(path + dir + 1, tails[j]);
            unlink(path);
        }
    }
    rmdir(our_dir);
}

static void interrupted(int signal_number)
{
    remove_all();
    _exit(128 + signal_number);
}

static bool in_memory(const char *dir)
{
    struct statfs fs;
    return statfs(dir, &fs) != 0 || fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC;
}

static void make_dir(bench_options *o)
{
    const char *parent = getenv("TMPDIR");
    char beside[BENCH_DIR_MAX] = "";
    if (parent == NULL || in_memory(parent)) {
        ssize_t n = readlink("/proc/self/exe", beside, sizeof beside - 1);
        bench_must(n > 0, "cannot tell where this program is");
        beside[n] = '\0';
        *strrchr(beside, '/') = '\0';
        parent = beside;
    }
    bench_must(!in_memory(parent), "set TMPDIR to a directory on a disk: this one is in memory");
    int n = snprintf(o->dir, sizeof o->dir, "%s/bench-ledger.XXXXXX", parent);
    bench_must(n < (int)sizeof o->dir && mkdtemp(o->dir) != NULL, "cannot make a directory");
    strcpy(our_dir, o->dir);
    atexit(remove_all);
    signal(SIGINT, interrupted);
    signal(SIGTERM, interrupted);
}

void bench_path(const bench_options *o, const char *name, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%s", o->dir, name);
}

semel *bench_open(const bench_options *o, const char *name)
{
    return bench_open_with(o, name, NULL);
}

semel *bench_open_with(const bench_options *o, const char *name, const char *contract)
{
    char path[PATH_MAX], url[PATH_MAX + 8] = "memory:";
    if (name != NULL) {
        bench_path(o, name, path);
        snprintf(url, sizeof url, "sqlite:%s", path);
    }
    semel *s = NULL;
    semel_fault fault;
    semel_options options = {.size = sizeof options, .url = url, .actor = text("bench")};
    if (contract != NULL)
        options.contract = text(contract);
    bench_must(semel_open(&options, &s, &fault) == SEMEL_OK, fault.text);
    return s;
}

/* ---- printing --------------------------------------------------------------------------------*/

void bench_figure(const bench_options *o, const char *metric, double value, const char *unit)
{
    bench_print(o->json, "ledger", metric, value, unit);
    fflush(stdout);
}

void bench_title(const bench_options *o, const char *title)
{
    if (!o->json)
        printf("%s\n", title);
    fflush(stdout);
}

void bench_target(const bench_options *o, const char *target)
{
    if (!o->json)
        printf("  target: %s\n", target);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--waiter") == 0)
        return bench_waiter(argv[2]);
    bench_options o = {0};
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            o.json = true;
        else if (strcmp(argv[i], "--full") == 0)
            o.full = true;
        else
            only = argv[i];
    }
    static const struct {
        const char *name;
        void (*run)(const bench_options *o);
    } parts[] = {{"replay", bench_replay},
                 {"wake", bench_wake},
                 {"fresh", bench_fresh},
                 {"guards", bench_guards},
                 {"size", bench_size}};
    make_dir(&o);
    if (!o.json)
        printf("ledger: files in %s\n", o.dir);
    bool ran = false;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (only == NULL || strcmp(only, parts[i].name) == 0) {
            parts[i].run(&o);
            ran = true;
        }
    }
    if (!ran)
        fprintf(stderr,
                "usage: bench-ledger [--json] [--full] [replay | wake | fresh | guards | size]\n");
    return ran ? 0 : 64;
}
