/*
 * What only the SQLite store does: files and their modes, files that are not ledgers, damage, full
 * and failing disks, and several processes. What every store does is in the conformance suite.
 *
 * Disks that fail are simulated by a layer over SQLite's own file functions, in this process only.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/handle.h"
#include "store/sqlite/sqlite.h"
#include "store/stores.h"

#define OPS (&sm_store_sqlite)

/* ---- ledgers ---------------------------------------------------------------------------------*/

typedef struct desk {
    semel_room room;
    sm_arena arena;
} desk;

static char dir[64];
static desk the_desk;

/* How the disk behaves: see "disks that fail". */
static _Atomic int fail_sync, fail_write; /* the result codes that log files give */
static _Atomic bool die_at_sync;          /* of a log file, before anything is synced */
typedef void hook(void);
static hook *_Atomic at_write; /* called before the next write to a log file */
static hook *_Atomic at_sync;  /* and before its next sync */
static bool others_write;      /* while a handle that opens looks what the newest event is */
static _Atomic int64_t log_written,
    log_unsynced; /* bytes of log files, of all and since the last sync */

static void *desk_alloc(semel_room *room, size_t n)
{
    return sm_arena_alloc(&((desk *)(void *)room)->arena, n);
}

static int remove_one(const char *path, const struct stat *about, int flag, struct FTW *walk)
{
    (void)about;
    (void)flag;
    (void)walk;
    return remove(path);
}

static int setup(void **state)
{
    (void)state;
    fail_sync = fail_write = 0;
    at_write = at_sync = (hook *)0;
    others_write = false;
    snprintf(dir, sizeof dir, "%s", "/tmp/semel-sqlite-XXXXXX");
    the_desk.room.alloc = desk_alloc;
    sm_arena_init(&the_desk.arena, SM_ARENA_MAX);
    return mkdtemp(dir) == NULL ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    sqlite3_reset_auto_extension();
    sm_arena_fini(&the_desk.arena);
    return nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#define with_dir(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* The path of a file in the test's directory; one at a time. */
static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static semel_err open_with(const char *name, const semel_store_env *env, semel_store **st,
                           semel_fault *fault)
{
    char url[160];
    uint32_t caps;
    snprintf(url, sizeof url, "sqlite:%s", path_of(name));
    return OPS->open(sm_str_from(url), env, st, &caps, fault);
}

static semel_err try_open(const char *name, size_t cache_bytes, bool must_exist, semel_store **st,
                          semel_fault *fault)
{
    semel_store_env env = {
        .size = sizeof env, .cache_bytes = cache_bytes, .must_exist = must_exist};
    return open_with(name, &env, st, fault);
}

static semel_store *open_ledger(const char *name)
{
    semel_store *st = NULL;
    semel_fault fault = {0};
    semel_err e = try_open(name, 0, false, &st, &fault);
    expect(e == SEMEL_OK, "%s", fault.text);
    return st;
}

static void expect_refused(const char *name, bool must_exist, const char *words)
{
    semel_store *st = NULL;
    semel_fault fault = {0};
    semel_err e = try_open(name, 0, must_exist, &st, &fault);
    assert_null(st);
    expect(e == SEMEL_E_UNAVAILABLE && strstr(fault.text, words) != NULL, "%s: %s",
           semel_err_name(e), fault.text);
}

static int64_t monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static semel_write fresh(uint64_t n)
{
    semel_write w = {.now = clock_ms()};
    sm_digest d;
    assert_int_equal(sm_digest_init(&d), SM_OK);
    for (size_t i = 0; i < 4; i++) {
        uint64_t x = next_random(&n);
        memcpy(w.next.key.b + 8 * i, &x, 8);
    }
    assert_int_equal(sm_effect_id(&d, &w.next.key, &w.next.id), SM_OK);
    sm_digest_fini(&d);
    w.next.generation = 1;
    w.next.state = SEMEL_S_RUNNING;
    w.next.events = 1;
    w.next.created_at = w.next.updated_at = w.now;
    w.next.lease_end = w.next.due_at = w.now + 300000;
    w.next.scope = SM_STR("tests/sqlite");
    w.next.tool = SM_STR("shop.charge");
    w.next.args = SM_STR("{\"amount\":1000}");
    w.next.life = SM_STR("{}");
    w.event = (semel_event){.id = w.next.id,
                            .generation = 1,
                            .index = 1,
                            .at = w.now,
                            .what = SM_STR("started"),
                            .body = SM_STR("{}")};
    return w;
}

static semel_write change(const semel_record *cur, semel_state state)
{
    semel_write w = {.next = *cur,
                     .expect_generation = cur->generation,
                     .expect_version = cur->version,
                     .now = clock_ms()};
    w.next.state = (uint8_t)state;
    w.next.events++;
    w.next.lease_end = w.next.due_at = 0;
    if (semel_state_settled(state)) {
        w.next.settled_at = w.now;
        w.next.outcome = SM_STR("{\"id\":\"ch_1\"}");
        w.next.result_end = w.next.window_end = w.next.purge_at = INT64_MAX;
    }
    w.event = (semel_event){.id = cur->id,
                            .shard = cur->shard,
                            .generation = cur->generation,
                            .index = w.next.events,
                            .at = w.now,
                            .what = SM_STR("changed"),
                            .body = SM_STR("{}")};
    return w;
}

static semel_err try_claim(semel_store *st, const semel_write *w, semel_record *cur,
                           semel_fault *fault)
{
    int64_t now;
    bool inserted;
    return OPS->claim(st, w, &the_desk.room, cur, &now, &inserted, fault);
}

static semel_record claim(semel_store *st, uint64_t n)
{
    semel_write w = fresh(n);
    semel_record cur;
    semel_fault fault = {0};
    semel_err e = try_claim(st, &w, &cur, &fault);
    expect(e == SEMEL_OK, "%s", fault.text);
    return cur;
}

static semel_record apply(semel_store *st, const semel_record *from, semel_state state)
{
    semel_write w = change(from, state);
    semel_record cur;
    semel_fault fault = {0};
    int64_t now;
    semel_err e = OPS->apply(st, &w, &the_desk.room, &cur, &now, &fault);
    expect(e == SEMEL_OK, "%s: %s", semel_err_name(e), fault.text);
    return cur;
}

static semel_record settle(semel_store *st, uint64_t n)
{
    semel_record cur = claim(st, n);
    return apply(st, &cur, SEMEL_S_SUCCEEDED);
}

static semel_err get(semel_store *st, const semel_hash *key, semel_record *cur, semel_fault *fault)
{
    int64_t now;
    return OPS->get(st, &(semel_ref){.key = key}, &the_desk.room, cur, &now, fault);
}

static bool peek(semel_store *st, const semel_hash *key, semel_record *cur)
{
    int64_t now;
    return OPS->peek(st, key, &the_desk.room, cur, &now) == SEMEL_OK;
}

/* Runs SQL on a ledger that is closed, and gives the first value of the last row, or "". */
static const char *sql(const char *name, const char *statement)
{
    static char value[4096];
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    value[0] = '\0';
    assert_int_equal(sqlite3_open(path_of(name), &db), SQLITE_OK);
    expect(sqlite3_prepare_v2(db, statement, -1, &stmt, NULL) == SQLITE_OK, "%s",
           sqlite3_errmsg(db));
    while (sqlite3_step(stmt) == SQLITE_ROW)
        snprintf(value, sizeof value, "%s", (const char *)sqlite3_column_text(stmt, 0));
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return value;
}

static void write_file(const char *name, const void *p, size_t n)
{
    int fd = open(path_of(name), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, p, n), n);
    close(fd);
}

static sm_str read_file(const char *name)
{
    struct stat about;
    assert_int_equal(stat(path_of(name), &about), 0);
    char *p = sm_arena_alloc(&the_desk.arena, (size_t)about.st_size + 1);
    int fd = open(path_of(name), O_RDONLY);
    assert_int_equal(read(fd, p, (size_t)about.st_size), about.st_size);
    close(fd);
    return (sm_str){p, (size_t)about.st_size};
}

/* ---- files -----------------------------------------------------------------------------------*/

/* The members that a store compiled earlier reads stay where they were. */
_Static_assert(offsetof(semel_store_env, migrate) == 2 * sizeof(size_t) + 1 &&
                   offsetof(semel_store_env, partitions) == 2 * sizeof(size_t) + 4 &&
                   offsetof(semel_store_env, default_place) == 2 * sizeof(size_t) + 8,
               "semel_store_env only grows at its end");

static unsigned mode_of(const char *name)
{
    struct stat about;
    expect(stat(path_of(name), &about) == 0, "%s: %s", name, strerror(errno));
    return about.st_mode & 0777;
}

static void files_are_their_owners_alone(void **state)
{
    (void)state;
    mode_t before = umask(0);
    semel_store_env env = {.size = sizeof env, .default_place = true};
    semel_store *st = NULL;
    assert_int_equal(open_with("a/b/ledger.db", &env, &st, NULL), SEMEL_OK);
    claim(st, 1);
    umask(before);
    assert_int_equal(mode_of("a"), 0700);
    assert_int_equal(mode_of("a/b"), 0700);
    static const char *const names[] = {"a/b/ledger.db", "a/b/ledger.db-wal", "a/b/ledger.db-shm",
                                        "a/b/ledger.db-semel"};
    for (size_t i = 0; i < COUNT(names); i++)
        expect(mode_of(names[i]) == 0600, "%s has %o", names[i], mode_of(names[i]));
    OPS->close(st);
    /* Closed, it is one file that can be copied: nothing is left in the log. */
    assert_int_equal(access(path_of("a/b/ledger.db-wal"), F_OK), -1);
}

/* What cannot be put right by trying again. */
static void expect_wrong(const char *name, const char *words)
{
    semel_store *st = NULL;
    semel_fault fault = {0};
    semel_err e = try_open(name, 0, false, &st, &fault);
    assert_null(st);
    expect(e == SEMEL_E_BAD_ARGUMENTS && strstr(fault.text, words) != NULL, "%s: %s",
           semel_err_name(e), fault.text);
}

static void a_named_ledger_without_a_directory_is_a_mistake(void **state)
{
    (void)state;
    expect_wrong("typo/ledger.db", "there is no directory");
    assert_int_equal(access(path_of("typo"), F_OK), -1);
    write_file("plain", "x", 1);
    expect_refused("plain/ledger.db", false, "there is no ledger");
}

static void a_ledger_that_others_can_change_is_refused(void **state)
{
    (void)state;
    semel_store *st = open_ledger("ledger.db");
    claim(st, 1);
    OPS->close(st);
    static const mode_t open_to_others[] = {0602, 0660, 0666};
    for (size_t i = 0; i < COUNT(open_to_others); i++) {
        assert_int_equal(chmod(path_of("ledger.db"), open_to_others[i]), 0);
        expect_wrong("ledger.db", "chmod 600 ");
    }
    assert_int_equal(chmod(path_of("ledger.db"), 0600), 0);
    assert_int_equal(chmod(dir, 0777), 0);
    expect_wrong("ledger.db", "chmod o-w ");
    assert_int_equal(chmod(dir, 0700), 0);
    /* Files beside it from which SQLite or we would recover. */
    static const char *const beside[] = {"ledger.db-wal", "ledger.db-shm", "ledger.db-journal",
                                         "ledger.db-semel"};
    for (size_t i = 0; i < COUNT(beside); i++) {
        unlink(path_of(beside[i]));
        write_file(beside[i], "x", 1);
        assert_int_equal(chmod(path_of(beside[i]), 0666), 0);
        expect_wrong("ledger.db", "chmod 600 ");
        unlink(path_of(beside[i]));
        assert_int_equal(symlink("/etc/hostname", path_of(beside[i])), 0);
        expect_wrong("ledger.db", "is not a file");
        unlink(path_of(beside[i]));
    }
    OPS->close(open_ledger("ledger.db"));
}

static void what_stands_beside_a_linked_ledger_must_be_right(void **state)
{
    (void)state;
    OPS->close(open_ledger("ledger.db"));
    assert_int_equal(mkdir(path_of("mine"), 0700), 0);
    assert_int_equal(symlink("../ledger.db", path_of("mine/link")), 0);
    static const char *const beside[] = {"ledger.db-wal", "ledger.db-shm", "ledger.db-journal"};
    for (size_t i = 0; i < COUNT(beside); i++) {
        write_file(beside[i], "x", 1);
        assert_int_equal(chmod(path_of(beside[i]), 0666), 0);
        expect_wrong("mine/link", "chmod 600 ");
        unlink(path_of(beside[i]));
    }
    OPS->close(open_ledger("mine/link"));
}

#define SOMEBODY 12345u

static uid_t owner_of(const char *name)
{
    struct stat about;
    expect(stat(path_of(name), &about) == 0, "%s: %s", name, strerror(errno));
    return about.st_uid;
}

static void root_gives_a_ledger_to_the_owner_of_its_directory(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(chown(dir, SOMEBODY, SOMEBODY), 0);
    semel_store *st = open_ledger("ledger.db");
    claim(st, 1);
    static const char *const names[] = {"ledger.db", "ledger.db-wal", "ledger.db-shm",
                                        "ledger.db-semel"};
    for (size_t i = 0; i < COUNT(names); i++)
        expect(owner_of(names[i]) == SOMEBODY, "%s belongs to %u", names[i], owner_of(names[i]));
    OPS->close(st);
    OPS->close(open_ledger("ledger.db")); /* root may use it again */
    assert_int_equal(chown(path_of("ledger.db"), SOMEBODY + 1, SOMEBODY), 0);
    expect_wrong("ledger.db", "chown root ");
    assert_int_equal(chown(dir, 0, 0), 0);
    assert_int_equal(chown(path_of("ledger.db"), SOMEBODY, SOMEBODY), 0);
    expect_wrong("ledger.db", "is owned by the user \"12345\"");
}

static void what_is_not_a_ledger_is_left_alone(void **state)
{
    (void)state;
    static char text[8192];
    memset(text, 'x', sizeof text);
    write_file("text", text, sizeof text);
    expect_refused("text", false, "not an SQLite file");
    sm_str after = read_file("text");
    assert_int_equal(after.n, sizeof text);
    assert_memory_equal(after.p, text, sizeof text);

    static const char *const journals[] = {"delete", "wal"};
    for (size_t i = 0; i < COUNT(journals); i++) {
        char pragma[64];
        snprintf(pragma, sizeof pragma, "PRAGMA journal_mode = %s", journals[i]);
        sql(journals[i], pragma);
        sql(journals[i], "CREATE TABLE theirs(x)");
        sm_str before = read_file(journals[i]);
        expect_refused(journals[i], false, "another program");
        after = read_file(journals[i]);
        assert_int_equal(after.n, before.n);
        assert_memory_equal(after.p, before.p, before.n);
        char side[32];
        snprintf(side, sizeof side, "%s-semel", journals[i]);
        assert_int_equal(access(path_of(side), F_OK), -1);
    }
    sql("id", "PRAGMA application_id = 77");
    expect_refused("id", false, "another program");
    assert_int_equal(mkdir(path_of("d"), 0700), 0);
    expect_wrong("d", "not a file");
    write_file("empty", "", 0);
    expect_refused("empty", true, "empty");
    OPS->close(open_ledger("empty")); /* but one may be made in it */
}

static void a_ledger_that_was_given_another_journal_opens_at_once(void **state)
{
    (void)state;
    semel_store *st = open_ledger("ledger");
    semel_record one = settle(st, 1), cur;
    OPS->close(st);
    sql("ledger", "PRAGMA journal_mode = delete");
    st = open_ledger("ledger");
    assert_int_equal(get(st, &one.key, &cur, NULL), SEMEL_OK);
    settle(st, 2);
    OPS->close(st);
}

static void a_newer_ledger_is_not_touched(void **state)
{
    (void)state;
    OPS->close(open_ledger("ledger"));
    sql("ledger", "PRAGMA user_version = 7");
    sm_str before = read_file("ledger");
    expect_refused("ledger", false, "newer version of semel (schema 7; this one knows 3)");
    sm_str after = read_file("ledger");
    assert_int_equal(after.n, before.n);
    assert_memory_equal(after.p, before.p, before.n);
    sql("ledger", "PRAGMA user_version = 1");
    expect_refused("ledger", false, "older version of semel (schema 1; this one knows 3)");
}

static int64_t counter(semel_store *st, const char *name)
{
    int64_t value = -1;
    semel_fault fault = {0};
    semel_err e = OPS->counter(st, 0, sm_str_from(name), &value, &fault);
    expect(e == SEMEL_OK, "%s", fault.text);
    return value;
}

/* A file as the version before made it: counters had no end. */
static void an_older_ledger_is_upgraded(void **state)
{
    (void)state;
    semel_store *st = open_ledger("ledger");
    semel_record one = settle(st, 1), cur;
    OPS->close(st);
    sql("ledger", "DROP TABLE counter");
    sql("ledger", "CREATE TABLE counter(name TEXT PRIMARY KEY, value INTEGER NOT NULL)"
                  " WITHOUT ROWID");
    sql("ledger", "INSERT INTO counter VALUES('spent', 5)");
    sql("ledger", "PRAGMA user_version = 2");
    st = open_ledger("ledger");
    assert_int_equal(get(st, &one.key, &cur, NULL), SEMEL_OK);
    assert_int_equal(counter(st, "spent"), 5);
    settle(st, 2);
    uint64_t done = 0;
    bool left = true;
    assert_int_equal(OPS->purge(st, 100, 0, 0, &done, &left, NULL), SEMEL_OK);
    assert_int_equal(counter(st, "spent"), 5); /* it has no end */
    semel_health h;
    assert_int_equal(OPS->health(st, true, &h, NULL), SEMEL_OK);
    OPS->close(st);
    OPS->close(open_ledger("ledger"));
}

/* Runs `work` in a process of its own; its status is what it returns. */
static int in_process(int work(void *context), void *context)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(work(context));
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* Opens as somebody who is not root, for whom nothing is read-only. */
static int open_as_nobody(void *context)
{
    semel_store *st = NULL;
    semel_fault fault = {0};
    if (geteuid() == 0 && setuid(65534) != 0)
        return 9;
    if (try_open("sub/ledger", 0, false, &st, &fault) != SEMEL_E_UNAVAILABLE)
        return 1;
    return strstr(fault.text, context) != NULL ? 0 : 2;
}

static void read_only_files_and_directories_are_told(void **state)
{
    (void)state;
    assert_int_equal(mkdir(path_of("sub"), 0700), 0);
    OPS->close(open_ledger("sub/ledger"));
    if (geteuid() == 0) {
        assert_int_equal(chown(path_of("sub/ledger"), 65534, 65534), 0);
        assert_int_equal(chown(path_of("sub/ledger-semel"), 65534, 65534), 0);
        assert_int_equal(chown(path_of("sub"), 65534, 65534), 0);
        assert_int_equal(chown(dir, 65534, 65534), 0);
    }
    assert_int_equal(chmod(path_of("sub/ledger"), 0400), 0);
    assert_int_equal(in_process(open_as_nobody, (void *)(uintptr_t) "read-only"), 0);
    assert_int_equal(chmod(path_of("sub/ledger"), 0600), 0);
    assert_int_equal(unlink(path_of("sub/ledger-semel")), 0);
    assert_int_equal(chmod(path_of("sub"), 0500), 0);
    assert_int_equal(in_process(open_as_nobody, (void *)(uintptr_t) "read-only"), 0);
    assert_int_equal(chmod(path_of("sub"), 0700), 0);
}

static void a_moved_ledger_takes_no_writes(void **state)
{
    (void)state;
    semel_store *st = open_ledger("ledger");
    claim(st, 1);
    char away[128];
    snprintf(away, sizeof away, "%s", path_of("away"));
    assert_int_equal(rename(path_of("ledger"), away), 0);
    semel_write w = fresh(2);
    semel_record cur;
    semel_fault fault = {0};
    assert_int_equal(try_claim(st, &w, &cur, &fault), SEMEL_E_UNAVAILABLE);
    expect(strstr(fault.text, "moved") != NULL, "%s", fault.text);
    assert_int_equal(rename(away, path_of("ledger")), 0);
    claim(st, 2);
    OPS->close(st);
}

/* Each name would have a log of its own, and what is in one is not seen through the other. */
static void a_ledger_with_two_names_is_refused(void **state)
{
    (void)state;
    semel_store *st = open_ledger("ledger");
    claim(st, 1);
    char other[128];
    snprintf(other, sizeof other, "%s", path_of("other"));
    assert_int_equal(link(path_of("ledger"), other), 0);
    expect_refused("other", false, "hard links");
    claim(st, 2);
    OPS->close(st);
    expect_refused("ledger", false, "hard links");
    assert_int_equal(unlink(other), 0);
    OPS->close(open_ledger("ledger"));
}

static void a_deleted_side_file_is_made_anew(void **state)
{
    (void)state;
    semel_store *a = open_ledger("ledger"), *b = open_ledger("ledger");
    semel_record one = settle(a, 1), cur;
    assert_true(peek(a, &one.key, &cur));
    assert_int_equal(unlink(path_of("ledger-semel")), 0);
    settle(a, 2);
    assert_int_equal(mode_of("ledger-semel"), 0600);
    settle(b, 3);
    assert_int_equal(get(b, &one.key, &cur, NULL), SEMEL_OK);
    assert_true(peek(b, &one.key, &cur));
    apply(a, &one, SEMEL_S_NONE); /* both have the new one: they hear of each other again */
    assert_false(peek(b, &one.key, &cur));
    OPS->close(a);
    OPS->close(b);
}

static void people_can_read_it(void **state)
{
    (void)state;
    semel_store *st = open_ledger("ledger");
    semel_write w = fresh(1);
    w.next.shard = w.event.shard = 0xA7;
    w.next.created_at = 1700000000123;
    semel_record cur;
    assert_int_equal(try_claim(st, &w, &cur, NULL), SEMEL_OK);
    apply(st, &cur, SEMEL_S_SUCCEEDED);
    cur = claim(st, 2);
    apply(st, &cur, SEMEL_S_PENDING);
    cur = claim(st, 3);
    apply(st, &cur, SEMEL_S_IN_DOUBT);
    semel_note note = {.id = w.next.id, .generation = 1, .count = 3, .what = SM_STR("replayed")};
    assert_int_equal(OPS->journal(st, &note, 1, NULL), SEMEL_OK);
    OPS->close(st);

    char handle[SM_HANDLE_TEXT];
    sm_handle_effect(&(sm_handle){.shard = 0xA7, .id = w.next.id, .generation = 1}, handle);
    static const struct {
        const char *statement, *answer;
    } rows[] = {
        {"SELECT state FROM effects WHERE n = 1", "succeeded"},
        {"SELECT created FROM effects WHERE n = 1", "2023-11-14T22:13:20.123Z"},
        {"SELECT window_end FROM effects WHERE n = 1", "never"},
        {"SELECT outcome FROM effects WHERE n = 1", "{\"id\":\"ch_1\"}"},
        {"SELECT args FROM approvals", "{\"amount\":1000}"},
        {"SELECT count(*) FROM approvals", "1"},
        {"SELECT tool FROM in_doubt", "shop.charge"},
        {"SELECT group_concat(what) FROM history WHERE scope = 'tests/sqlite'",
         "started,changed,started,changed,started,changed"},
        {"SELECT count FROM notes", "3"},
        {"PRAGMA journal_mode", "wal"},
        {"PRAGMA page_size", "4096"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_text(sm_str_from(sql("ledger", rows[i].statement)), rows[i].answer);
    expect_text(sm_str_from(sql("ledger", "SELECT effect FROM effects WHERE n = 1")), handle);
    expect_text(sm_str_from(sql("ledger", "SELECT effect FROM history WHERE seq = 2")), handle);
    expect_text(sm_str_from(sql("ledger", "SELECT effect FROM notes")), handle);
}

/* ---- damage ----------------------------------------------------------------------------------*/

static bool any_record(void *context, const semel_record *r, int64_t now)
{
    (void)context;
    (void)r;
    (void)now;
    return true;
}

static void damage_is_found_and_named(void **state)
{
    (void)state;
    semel_store *st = open_ledger("ledger");
    for (uint64_t n = 1; n <= 400; n++)
        claim(st, n);
    OPS->close(st);
    struct stat about;
    assert_int_equal(stat(path_of("ledger"), &about), 0);
    int fd = open(path_of("ledger"), O_WRONLY);
    static char junk[4096];
    memset(junk, 0xA5, sizeof junk);
    for (off_t at = about.st_size / 8192 * 4096; at < about.st_size; at += 4096)
        assert_int_equal(pwrite(fd, junk, sizeof junk, at), sizeof junk);
    close(fd);

    st = open_ledger("ledger");
    semel_health health;
    semel_fault fault = {0};
    assert_int_equal(OPS->health(st, true, &health, &fault), SEMEL_E_CORRUPT);
    expect(strstr(fault.text, "damaged") != NULL, "%s", fault.text);
    uint64_t cursor = 0;
    fault = (semel_fault){0};
    assert_int_equal(OPS->query(st, &(semel_filter){0}, &cursor, 1000, any_record, NULL, &fault),
                     SEMEL_E_CORRUPT);
    expect(strstr(fault.text, "semel doctor") != NULL, "%s", fault.text);
    semel_write w = fresh(1000);
    semel_record cur;
    assert_int_equal(try_claim(st, &w, &cur, NULL), SEMEL_E_CORRUPT);
    OPS->close(st);
}

/* ---- disks that fail -------------------------------------------------------------------------*/

typedef struct shim {
    sqlite3_file base;
    bool is_log;
    sqlite3_file *real; /* behind this */
} shim;

static sqlite3_vfs *real_vfs;
static sqlite3_io_methods shim_methods[4]; /* by version */

static sqlite3_file *real_of(sqlite3_file *f)
{
    return ((shim *)(void *)f)->real;
}

static int shim_close(sqlite3_file *f)
{
    return real_of(f)->pMethods->xClose(real_of(f));
}
static int shim_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at)
{
    return real_of(f)->pMethods->xRead(real_of(f), p, n, at);
}
static void call_once(hook *_Atomic *work)
{
    hook *now = atomic_exchange(work, (hook *)0);
    if (now != NULL)
        now();
}
static int shim_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
    if (((shim *)(void *)f)->is_log)
        call_once(&at_write);
    if (((shim *)(void *)f)->is_log && fail_write != 0)
        return fail_write;
    if (((shim *)(void *)f)->is_log) {
        log_written += n;
        log_unsynced += n;
    }
    return real_of(f)->pMethods->xWrite(real_of(f), p, n, at);
}
static int shim_truncate(sqlite3_file *f, sqlite3_int64 n)
{
    return real_of(f)->pMethods->xTruncate(real_of(f), n);
}
static int shim_sync(sqlite3_file *f, int flags)
{
    if (((shim *)(void *)f)->is_log)
        call_once(&at_sync);
    if (((shim *)(void *)f)->is_log && fail_sync != 0)
        return fail_sync;
    if (((shim *)(void *)f)->is_log && die_at_sync)
        _exit(0);
    if (((shim *)(void *)f)->is_log)
        log_unsynced = 0;
    return real_of(f)->pMethods->xSync(real_of(f), flags);
}
static int shim_size(sqlite3_file *f, sqlite3_int64 *n)
{
    return real_of(f)->pMethods->xFileSize(real_of(f), n);
}
static int shim_lock(sqlite3_file *f, int how)
{
    return real_of(f)->pMethods->xLock(real_of(f), how);
}
static int shim_unlock(sqlite3_file *f, int how)
{
    return real_of(f)->pMethods->xUnlock(real_of(f), how);
}
static int shim_reserved(sqlite3_file *f, int *out)
{
    return real_of(f)->pMethods->xCheckReservedLock(real_of(f), out);
}
static int shim_control(sqlite3_file *f, int op, void *p)
{
    return real_of(f)->pMethods->xFileControl(real_of(f), op, p);
}
static int shim_sector(sqlite3_file *f)
{
    return real_of(f)->pMethods->xSectorSize(real_of(f));
}
static int shim_device(sqlite3_file *f)
{
    return real_of(f)->pMethods->xDeviceCharacteristics(real_of(f));
}
static int shim_map(sqlite3_file *f, int i, int n, int extend, void volatile **out)
{
    return real_of(f)->pMethods->xShmMap(real_of(f), i, n, extend, out);
}
static int shim_shm_lock(sqlite3_file *f, int at, int n, int flags)
{
    return real_of(f)->pMethods->xShmLock(real_of(f), at, n, flags);
}
static void shim_barrier(sqlite3_file *f)
{
    real_of(f)->pMethods->xShmBarrier(real_of(f));
}
static int shim_unmap(sqlite3_file *f, int remove_it)
{
    return real_of(f)->pMethods->xShmUnmap(real_of(f), remove_it);
}

static int shim_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *out)
{
    shim *s = (shim *)(void *)f;
    (void)vfs;
    s->is_log = (flags & SQLITE_OPEN_WAL) != 0;
    s->real = (sqlite3_file *)(void *)(s + 1);
    int rc = real_vfs->xOpen(real_vfs, name, s->real, flags, out);
    int version = rc == SQLITE_OK ? s->real->pMethods->iVersion : 0;
    s->base.pMethods = rc == SQLITE_OK ? &shim_methods[version >= 2 ? 2 : 1] : NULL;
    return rc;
}

static void shim_install(void)
{
    static sqlite3_vfs vfs;
    real_vfs = sqlite3_vfs_find(NULL);
    vfs = *real_vfs;
    vfs.zName = "failing";
    vfs.szOsFile = (int)sizeof(shim) + real_vfs->szOsFile;
    vfs.xOpen = shim_open;
    for (int version = 1; version <= 2; version++)
        shim_methods[version] =
            (sqlite3_io_methods){.iVersion = version,
                                 .xClose = shim_close,
                                 .xRead = shim_read,
                                 .xWrite = shim_write,
                                 .xTruncate = shim_truncate,
                                 .xSync = shim_sync,
                                 .xFileSize = shim_size,
                                 .xLock = shim_lock,
                                 .xUnlock = shim_unlock,
                                 .xCheckReservedLock = shim_reserved,
                                 .xFileControl = shim_control,
                                 .xSectorSize = shim_sector,
                                 .xDeviceCharacteristics = shim_device,
                                 .xShmMap = version == 2 ? shim_map : NULL,
                                 .xShmLock = version == 2 ? shim_shm_lock : NULL,
                                 .xShmBarrier = version == 2 ? shim_barrier : NULL,
                                 .xShmUnmap = version == 2 ? shim_unmap : NULL};
    sqlite3_vfs_register(&vfs, 1);
}

static void a_full_disk_refuses_and_recovers(void **state)
{
    (void)state;
    semel_store *st = open_ledger("ledger");
    semel_record one = claim(st, 1), cur;
    fail_write = SQLITE_FULL;
    semel_write w = fresh(2);
    semel_fault fault = {0};
    assert_int_equal(try_claim(st, &w, &cur, &fault), SEMEL_E_UNAVAILABLE);
    expect(strstr(fault.text, "no space left for") != NULL, "%s", fault.text);
    assert_int_equal(get(st, &w.next.key, &cur, NULL), SEMEL_E_NOT_FOUND);
    assert_int_equal(get(st, &one.key, &cur, NULL), SEMEL_OK);
    fail_write = 0;
    claim(st, 2);
    apply(st, &one, SEMEL_S_SUCCEEDED);
    semel_health health;
    assert_int_equal(OPS->health(st, true, &health, NULL), SEMEL_OK);
    assert_int_equal(health.records, 2);
    OPS->close(st);
}

/* The soft limit can be raised again: the process has room again, as when a quota grows. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_limit_on_the_size_of_files_refuses_and_recovers(void **state)
{
    (void)state;
    semel_store *st = open_ledger("ledger");
    semel_record one = claim(st, 1), cur;
    struct stat about;
    semel_fault fault = {0};
    assert_int_equal(stat(path_of("ledger-wal"), &about), 0);
    limit_files((rlim_t)about.st_size + 100); /* the next page does not fit */
    semel_write w = fresh(2);
    semel_err e = try_claim(st, &w, &cur, &fault), tried = SEMEL_OK;
    while (tried == SEMEL_OK) /* until the claim before no longer tells that one can write */
        tried = OPS->try_write(st, NULL);
    limit_files(RLIM_INFINITY);
    assert_int_equal(e, SEMEL_E_UNAVAILABLE);
    expect(strstr(fault.text, "no space left for") != NULL, "%s", fault.text);
    assert_int_equal(tried, SEMEL_E_UNAVAILABLE);
    assert_int_equal(get(st, &w.next.key, &cur, NULL), SEMEL_E_NOT_FOUND);
    assert_int_equal(OPS->try_write(st, &fault), SEMEL_OK);
    claim(st, 2);
    apply(st, &one, SEMEL_S_SUCCEEDED);
    OPS->close(st);
}

static void a_try_meets_what_a_write_meets(void **state)
{
    (void)state;
    semel_store *st = open_ledger("ledger");
    semel_fault fault = {0};
    char aside[128];
    claim(st, 1);
    snprintf(aside, sizeof aside, "%s", path_of("aside"));
    assert_int_equal(OPS->try_write(st, &fault), SEMEL_OK);
    assert_int_equal(rename(path_of("ledger"), aside), 0);
    assert_int_equal(OPS->try_write(st, &fault), SEMEL_E_UNAVAILABLE);
    expect(strstr(fault.text, "moved, deleted, replaced or truncated") != NULL, "%s", fault.text);
    write_file("ledger", "", 0);
    assert_int_equal(OPS->try_write(st, &fault), SEMEL_E_UNAVAILABLE);
    assert_int_equal(rename(aside, path_of("ledger")), 0);
    assert_int_equal(OPS->try_write(st, &fault), SEMEL_OK);
    semel_store *other = open_ledger("ledger"); /* which has written nothing yet */
    fail_write = SQLITE_FULL;
    assert_int_equal(OPS->try_write(other, &fault), SEMEL_E_UNAVAILABLE);
    fail_write = 0;
    assert_int_equal(OPS->try_write(other, &fault), SEMEL_OK);
    OPS->close(other);
    OPS->close(st);
}

static void expect_no_write(semel_store *st, uint64_t n, const char *words)
{
    semel_write w = fresh(n);
    semel_record cur;
    semel_fault fault = {0};
    assert_int_equal(try_claim(st, &w, &cur, &fault), SEMEL_E_UNAVAILABLE);
    expect(strstr(fault.text, words) != NULL, "%s", fault.text);
}

static void move_log(void)
{
    char aside[128];
    snprintf(aside, sizeof aside, "%s", path_of("aside"));
    rename(path_of("ledger-wal"), aside);
}

static void move_index(void)
{
    char aside[128];
    snprintf(aside, sizeof aside, "%s", path_of("aside"));
    rename(path_of("ledger-shm"), aside);
}

static void cut_log(void)
{
    int ignored = truncate(path_of("ledger-wal"), 0);
    (void)ignored;
}

static void a_commit_is_not_acknowledged_if_its_log_is_gone_when_it_ends(void **state)
{
    (void)state;
    static const struct {
        hook *work;
        const char *file;
    } cases[] = {{move_log, "ledger-wal"}, {move_index, "ledger-shm"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        char aside[128];
        snprintf(aside, sizeof aside, "%s", path_of("aside"));
        semel_store *st = open_ledger("ledger");
        settle(st, 10 * i + 1);
        at_sync = cases[i].work;
        expect_no_write(st, 10 * i + 2, cases[i].file);
        assert_int_equal(OPS->try_write(st, NULL), SEMEL_E_UNAVAILABLE);
        assert_int_equal(rename(aside, path_of(cases[i].file)), 0);
        assert_int_equal(OPS->try_write(st, NULL), SEMEL_OK);
        claim(st, 10 * i + 3);
        OPS->close(st);
    }
}

static void a_log_that_was_cut_takes_no_writes(void **state)
{
    (void)state;
    semel_store *st = open_ledger("ledger");
    settle(st, 1);
    cut_log();
    expect_no_write(st, 2, "ledger-wal was moved, deleted, replaced or truncated");
    assert_int_equal(OPS->try_write(st, NULL), SEMEL_E_UNAVAILABLE);
    expect_refused("ledger", false, "ledger-wal was moved, deleted, replaced or truncated");
    OPS->close(st);
    expect_refused("ledger", false, "has lost effects");
}

/* SQLite goes on behind the hole, so the size is right again. */
static void a_log_that_is_cut_during_a_commit_is_noticed(void **state)
{
    (void)state;
    static hook *_Atomic *const when[] = {&at_write, &at_sync};
    for (size_t i = 0; i < COUNT(when); i++) {
        semel_store *st = open_ledger("ledger");
        settle(st, 1);
        *when[i] = cut_log;
        expect_no_write(st, 2, "ledger-wal");
        OPS->close(st);
        expect_refused("ledger", false, "has lost effects");
        assert_int_equal(unlink(path_of("ledger")), 0);
    }
}

static void a_log_that_was_removed_is_saved_by_the_last_to_close(void **state)
{
    (void)state;
    semel_store *st = open_ledger("ledger");
    semel_record one = settle(st, 1), cur;
    assert_int_equal(unlink(path_of("ledger-wal")), 0);
    expect_refused("ledger", false, "ledger-wal was moved");
    expect_no_write(st, 2, "ledger-wal was moved");
    OPS->close(st);
    st = open_ledger("ledger");
    assert_int_equal(get(st, &one.key, &cur, NULL), SEMEL_OK);
    assert_int_equal(cur.state, SEMEL_S_SUCCEEDED);
    OPS->close(st);
}

static void after_a_failed_sync_nothing_is_trusted(void **state)
{
    (void)state;
    static const int codes[] = {SQLITE_IOERR_FSYNC, SQLITE_IOERR_WRITE};
    for (size_t i = 0; i < COUNT(codes); i++) {
        semel_store *st = open_ledger("ledger");
        semel_record one = settle(st, 10 * i + 1), cur;
        assert_true(peek(st, &one.key, &cur));
        *(codes[i] == SQLITE_IOERR_FSYNC ? &fail_sync : &fail_write) = codes[i];
        semel_write w = fresh(10 * i + 2);
        semel_fault fault = {0};
        assert_int_equal(try_claim(st, &w, &cur, &fault), SEMEL_E_UNAVAILABLE);
        expect(strstr(fault.text, "open it again") != NULL, "%s", fault.text);
        sm_str log = read_file("ledger-wal"), file = read_file("ledger");
        fail_sync = fail_write = 0;
        fault = (semel_fault){0};
        assert_int_equal(try_claim(st, &w, &cur, &fault), SEMEL_E_UNAVAILABLE);
        expect(strstr(fault.text, "open it again") != NULL, "%s", fault.text);
        assert_int_equal(get(st, &one.key, &cur, NULL), SEMEL_E_UNAVAILABLE);
        assert_false(peek(st, &one.key, &cur));
        int64_t count;
        assert_int_equal(OPS->counter(st, 0, SM_STR("c"), &count, NULL), SEMEL_E_UNAVAILABLE);
        OPS->close(st); /* without a last word */
        sm_str log_after = read_file("ledger-wal"), file_after = read_file("ledger");
        assert_true(log_after.n == log.n && memcmp(log_after.p, log.p, log.n) == 0);
        assert_true(file_after.n == file.n && memcmp(file_after.p, file.p, file.n) == 0);
        st = open_ledger("ledger");
        assert_int_equal(get(st, &one.key, &cur, NULL), SEMEL_OK);
        OPS->close(st);
    }
}

/* Records one effect, and dies between the writes of a second one and their sync. */
static int die_unsynced(void *context)
{
    (void)context;
    semel_store *st = open_ledger("ledger");
    settle(st, 1);
    die_at_sync = true;
    claim(st, 2);
    return 1;
}

/* The bytes of the log that somebody left behind who died before its sync. */
static int64_t leave_unsynced(void)
{
    struct stat about;
    assert_int_equal(in_process(die_unsynced, NULL), 0);
    assert_int_equal(stat(path_of("ledger-wal"), &about), 0);
    assert_true(about.st_size > 0);
    log_written = log_unsynced = 0;
    return about.st_size;
}

static void a_log_that_nobody_synced_is_made_durable_first(void **state)
{
    (void)state;
    int64_t size = leave_unsynced();
    semel_store *st = open_ledger("ledger");
    expect(log_written >= size && log_unsynced == 0, "%d of %d bytes were written, %d not synced",
           (int)log_written, (int)size, (int)log_unsynced);
    assert_int_equal(read_file("ledger-wal").n, 0);
    semel_record cur;
    for (uint64_t n = 1; n <= 2; n++) {
        semel_write w = fresh(n);
        assert_int_equal(get(st, &w.next.key, &cur, NULL), SEMEL_OK);
    }
    log_written = 0; /* who comes later need not do it again */
    semel_store *other = open_ledger("ledger");
    assert_int_equal(log_written, 0);
    OPS->close(other);
    OPS->close(st);
}

static void a_log_that_cannot_be_made_durable_is_not_opened(void **state)
{
    (void)state;
    leave_unsynced();
    fail_sync = SQLITE_IOERR_FSYNC;
    expect_refused("ledger", false, "cannot be made safe");
    fail_sync = 0;
    fail_write = SQLITE_IOERR_WRITE;
    expect_refused("ledger", false, "cannot be made safe");
    fail_write = 0;
    semel_store *st = open_ledger("ledger");
    semel_write w = fresh(1);
    semel_record cur;
    assert_int_equal(get(st, &w.next.key, &cur, NULL), SEMEL_OK);
    OPS->close(st);
}

/* File systems reserve blocks for what is appended next, and call them unwritten. */
static void blocks_behind_the_end_are_not_lost_ones(void **state)
{
    (void)state;
    leave_unsynced();
    struct stat about;
    int fd = open(path_of("ledger"), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &about) == 0);
    int rc = fallocate(fd, FALLOC_FL_KEEP_SIZE, about.st_size, 1 << 20);
    close(fd);
    if (rc != 0)
        skip(); /* not on this file system */
    OPS->close(open_ledger("ledger"));
}

/* Somebody reads in a transaction, so that the log cannot be truncated. It is durable all the same.
 */
static void a_reader_of_another_program_is_not_in_the_way(void **state)
{
    (void)state;
    int64_t size = leave_unsynced();
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path_of("ledger"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN; SELECT count(*) FROM effect", NULL, NULL, NULL),
                     SQLITE_OK);
    semel_store *st = open_ledger("ledger");
    expect(log_written >= size && log_unsynced == 0, "%d of %d bytes were written, %d not synced",
           (int)log_written, (int)size, (int)log_unsynced);
    claim(st, 3);
    sqlite3_close(db);
    OPS->close(st);
}

/* ---- batches ---------------------------------------------------------------------------------*/

#define TEXT_MAX 100000u /* what this ledger takes, in the test */

/* A claim by a thread of its own. */
typedef struct claimer {
    pthread_t thread;
    desk desk;
    semel_write w;
    semel_err e;
} claimer;

static semel_store *shared;
static claimer claimers[3];

static void *claim_shared(void *arg)
{
    claimer *c = arg;
    semel_record cur;
    int64_t now;
    bool inserted;
    c->e = OPS->claim(shared, &c->w, &c->desk.room, &cur, &now, &inserted, NULL);
    return NULL;
}

static size_t gathered(semel_store *st)
{
    pthread_mutex_lock(&st->writer.lock);
    size_t count = st->writer.gather->count;
    pthread_mutex_unlock(&st->writer.lock);
    return count;
}

/* Called while the writer commits: all claims gather for its next batch, in their order. */
static void gather_claims(void)
{
    for (size_t i = 0; i < COUNT(claimers); i++) {
        claimer *c = &claimers[i];
        if (pthread_create(&c->thread, NULL, claim_shared, c) != 0)
            abort();
        while (gathered(shared) <= i)
            sched_yield();
    }
}

/* The claims, of which the one in the middle is more than the ledger takes. */
static void prepare_claims(void)
{
    static char large[TEXT_MAX + 1];
    memset(large, 'a', sizeof large);
    shared = open_ledger("ledger");
    sqlite3_limit(shared->writer.conn->db, SQLITE_LIMIT_LENGTH, TEXT_MAX);
    for (size_t i = 0; i < COUNT(claimers); i++) {
        claimers[i] = (claimer){.w = fresh(i + 2), .desk.room.alloc = desk_alloc};
        sm_arena_init(&claimers[i].desk.arena, SM_ARENA_MAX);
    }
    claimers[1].w.next.args = (semel_str){large, sizeof large};
}

/* All but that one are recorded, whole, and so is the claim that was there before them. */
static void expect_claims(const semel_record *before)
{
    static const char *const tables[] = {"effect", "name", "args", "event"};
    semel_record cur;
    for (size_t i = 0; i < COUNT(claimers); i++) {
        pthread_join(claimers[i].thread, NULL);
        assert_int_equal(claimers[i].e, i == 1 ? SEMEL_E_LIMIT : SEMEL_OK);
        assert_int_equal(get(shared, &claimers[i].w.next.key, &cur, NULL),
                         i == 1 ? SEMEL_E_NOT_FOUND : SEMEL_OK);
        sm_arena_fini(&claimers[i].desk.arena);
    }
    assert_int_equal(get(shared, &before->key, &cur, NULL), SEMEL_OK);
    OPS->close(shared);
    for (size_t i = 0; i < COUNT(tables); i++) {
        char count[64];
        snprintf(count, sizeof count, "SELECT count(*) FROM %s", tables[i]);
        const char *n = sql("ledger", count);
        expect(strcmp(n, "3") == 0, "%s rows in %s", n, tables[i]);
    }
}

static void a_write_that_fails_by_its_own_fault_takes_no_other_of_its_batch_along(void **state)
{
    (void)state;
    prepare_claims();
    at_sync = gather_claims;
    semel_record before = claim(shared, 1);
    expect_claims(&before);
}

/* Called while the writer is about to write the event of a claim. */
static int join_claims(unsigned kind, void *context, void *statement, void *text)
{
    (void)kind, (void)text;
    bool *joined = context;
    if (*joined || strstr(sqlite3_sql(statement), "INSERT INTO event") == NULL)
        return 0;
    *joined = true;
    gather_claims();
    return 0;
}

static void a_write_at_fault_that_joins_a_transaction_takes_nothing_of_it_along(void **state)
{
    (void)state;
    bool joined = false;
    prepare_claims();
    sqlite3_trace_v2(shared->writer.conn->db, SQLITE_TRACE_STMT, join_claims, &joined);
    semel_record before = claim(shared, 1);
    assert_true(joined);
    expect_claims(&before);
}

/* ---- notes of what was acknowledged ----------------------------------------------------------*/

static int on_statement(unsigned kind, void *context, void *statement, void *text)
{
    (void)kind, (void)context, (void)text;
    const char *is = sqlite3_sql(statement);
    if (!others_write || strstr(is, "FROM event ORDER BY seq DESC") == NULL)
        return 0;
    others_write = false;
    semel_store *other = open_ledger("ledger");
    claim(other, 2);
    OPS->close(other); /* and leaves a note of it */
    return 0;
}

static int watch_statements(sqlite3 *db, const char **why, const struct sqlite3_api_routines *api)
{
    (void)why, (void)api;
    return sqlite3_trace_v2(db, SQLITE_TRACE_STMT, on_statement, NULL);
}

static void what_others_write_while_the_ledger_is_opened_is_not_missed(void **state)
{
    (void)state;
    sqlite3_auto_extension((void (*)(void))watch_statements);
    semel_store *st = open_ledger("ledger");
    claim(st, 1);
    OPS->close(st);
    others_write = true;
    st = open_ledger("ledger");
    assert_false(others_write);
    claim(st, 3);
    OPS->close(st);
}

/* ---- the cache -------------------------------------------------------------------------------*/

static void the_cache_keeps_to_its_bound(void **state)
{
    (void)state;
    static char large[100000];
    memset(large, 'o', sizeof large);
    semel_store *st = NULL;
    assert_int_equal(try_open("ledger", (size_t)4 << 20, false, &st, NULL), SEMEL_OK);
    semel_hash keys[400];
    for (uint64_t n = 0; n < COUNT(keys); n++) {
        semel_record cur = claim(st, n + 1);
        semel_write w = change(&cur, SEMEL_S_SUCCEEDED);
        w.next.outcome = (semel_str){large, sizeof large};
        int64_t now;
        assert_int_equal(OPS->apply(st, &w, &the_desk.room, &cur, &now, NULL), SEMEL_OK);
        keys[n] = cur.key;
        sm_arena_reset(&the_desk.arena);
    }
    size_t known = 0;
    for (size_t n = 0; n < COUNT(keys); n++) {
        semel_record cur;
        known += peek(st, &keys[n], &cur);
        sm_arena_reset(&the_desk.arena);
    }
    expect(known > 5 && known <= 42, "%zu are known", known);
    OPS->close(st);
}

static void what_is_often_asked_for_stays(void **state)
{
    (void)state;
    semel_store *st = NULL;
    assert_int_equal(try_open("ledger", (size_t)256 << 10, false, &st, NULL), SEMEL_OK);
    semel_record hot = settle(st, 1), cur;
    for (uint64_t n = 2; n < 1500; n++) {
        settle(st, n);
        int64_t now;
        if (OPS->peek(st, &hot.key, &the_desk.room, &cur, &now) != SEMEL_OK)
            get(st, &hot.key, &cur, NULL); /* once a second everything may be looked at anew */
        if (n % 100 == 0)
            sm_arena_reset(&the_desk.arena);
    }
    get(st, &hot.key, &cur, NULL);
    assert_true(peek(st, &hot.key, &cur));
    OPS->close(st);
}

/* Somebody changes the file who knows nothing of epochs. */
static void a_change_from_outside_is_noticed(void **state)
{
    (void)state;
    semel_store *st = open_ledger("ledger");
    semel_record one = settle(st, 1), cur;
    assert_true(peek(st, &one.key, &cur));
    struct timespec pause = {.tv_sec = 1, .tv_nsec = 100000000};
    nanosleep(&pause, NULL);
    assert_true(get(st, &one.key, &cur, NULL) == SEMEL_OK && peek(st, &one.key, &cur));
    sql("ledger", "UPDATE effect SET state = 0 WHERE n = 1");
    nanosleep(&pause, NULL);
    peek(st, &one.key, &cur); /* this one looks, and the answer may still be the old one */
    assert_false(peek(st, &one.key, &cur));
    OPS->close(st);
}

/* The backstop needs a connection of its own. */
static void without_a_look_at_the_file_nothing_is_known(void **state)
{
    (void)state;
    semel_store *st = open_ledger("ledger");
    semel_record one = settle(st, 1), cur;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_max = before.rlim_max}), 0);
    peek(st, &one.key, &cur); /* this one looks */
    bool known = peek(st, &one.key, &cur);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_false(known);
    assert_int_equal(get(st, &one.key, &cur, NULL), SEMEL_OK);
    OPS->close(st);
}

/* ---- several processes -----------------------------------------------------------------------*/

/* Two pipes to a process that does as it is told, one byte at a time. */
typedef struct peer {
    pid_t pid;
    int to, from;
} peer;

static peer peer_start(void work(int in, int out))
{
    int to[2], from[2];
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    peer p = {fork(), to[1], from[0]};
    assert_true(p.pid >= 0);
    if (p.pid == 0) {
        close(to[1]);
        close(from[0]);
        work(to[0], from[1]);
        _exit(0);
    }
    close(to[0]);
    close(from[1]);
    return p;
}

static void tell(int fd, const void *p, size_t n)
{
    assert_int_equal(write(fd, p, n), n);
}

static void hear(int fd, void *p, size_t n)
{
    assert_int_equal(read(fd, p, n), n);
}

static void peer_stop(peer *p)
{
    int status = 0;
    close(p->to);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    assert_int_equal(status, 0);
    close(p->from);
}

/* Forgets the key whose number it is told, and answers when the store has. */
static void forget_keys(int in, int out)
{
    semel_store *st = open_ledger("ledger");
    uint64_t n;
    tell(out, "r", 1);
    while (read(in, &n, sizeof n) == sizeof n) {
        semel_write w = fresh(n);
        semel_record cur;
        if (get(st, &w.next.key, &cur, NULL) != SEMEL_OK)
            _exit(1);
        apply(st, &cur, SEMEL_S_NONE);
        tell(out, "d", 1);
        sm_arena_reset(&the_desk.arena);
    }
    OPS->close(st);
}

static void what_another_process_forgot_is_not_answered(void **state)
{
    (void)state;
    char byte;
    OPS->close(open_ledger("ledger"));
    peer p = peer_start(forget_keys);
    hear(p.from, &byte, 1);
    semel_store *st = open_ledger("ledger");
    for (uint64_t n = 1; n <= 200; n++) {
        semel_record one = settle(st, n), cur;
        if (n == 1)
            peek(st, &one.key, &cur); /* the first look of the backstop */
        assert_true(peek(st, &one.key, &cur) || get(st, &one.key, &cur, NULL) == SEMEL_OK);
        tell(p.to, &n, sizeof n);
        hear(p.from, &byte, 1);
        expect(!peek(st, &one.key, &cur), "key %d was answered", (int)n);
        sm_arena_reset(&the_desk.arena);
    }
    OPS->close(st);
    peer_stop(&p);
}

/* Has the ledger open, and says whether it answers each time it is asked. */
static void say_whether_it_answers(int in, int out)
{
    semel_store *st = open_ledger("ledger");
    semel_write w = fresh(1);
    semel_record cur;
    char byte;
    tell(out, "r", 1);
    while (read(in, &byte, 1) == 1)
        tell(out, get(st, &w.next.key, &cur, NULL) == SEMEL_OK ? "y" : "n", 1);
    OPS->close(st);
}

static void a_failed_sync_is_everybodys(void **state)
{
    (void)state;
    char byte;
    OPS->close(open_ledger("ledger"));
    peer p = peer_start(say_whether_it_answers);
    hear(p.from, &byte, 1);
    semel_store *a = open_ledger("ledger"), *b = open_ledger("ledger");
    semel_record one = settle(a, 1), cur;
    assert_int_equal(get(b, &one.key, &cur, NULL), SEMEL_OK);
    tell(p.to, "?", 1);
    hear(p.from, &byte, 1);
    assert_int_equal(byte, 'y');
    fail_sync = SQLITE_IOERR_FSYNC;
    semel_write w = fresh(2);
    assert_int_equal(try_claim(a, &w, &cur, NULL), SEMEL_E_UNAVAILABLE);
    fail_sync = 0;
    OPS->close(a);
    assert_int_equal(try_claim(b, &w, &cur, NULL), SEMEL_E_UNAVAILABLE);
    assert_int_equal(get(b, &one.key, &cur, NULL), SEMEL_E_UNAVAILABLE);
    assert_false(peek(b, &one.key, &cur));
    tell(p.to, "?", 1);
    hear(p.from, &byte, 1);
    assert_int_equal(byte, 'n');
    expect_refused("ledger", false, "every process");
    OPS->close(b);
    expect_refused("ledger", false, "every process");
    peer_stop(&p);
    b = open_ledger("ledger");
    assert_int_equal(get(b, &one.key, &cur, NULL), SEMEL_OK);
    OPS->close(b);
}

/* Fills the log, and closes the ledger when it is stopped. */
static void close_late(int in, int out)
{
    char byte;
    semel_store *st = open_ledger("ledger");
    for (uint64_t n = 100; n < 120; n++)
        settle(st, n);
    tell(out, "r", 1);
    assert_int_equal(read(in, &byte, 1), 0);
    OPS->close(st);
}

/* Another process has made a new index and used the log anew. */
static void who_closes_with_an_old_index_damages_nothing(void **state)
{
    (void)state;
    char byte;
    OPS->close(open_ledger("ledger"));
    peer p = peer_start(close_late);
    hear(p.from, &byte, 1);
    assert_int_equal(unlink(path_of("ledger-shm")), 0);
    semel_store *st = open_ledger("ledger");
    semel_record one = settle(st, 1), cur;
    for (uint64_t n = 2; n <= 40; n++)
        settle(st, n);
    OPS->close(st);
    peer_stop(&p);
    st = open_ledger("ledger");
    semel_health health;
    semel_fault fault = {0};
    semel_err e = OPS->health(st, true, &health, &fault);
    expect(e == SEMEL_OK, "%s", fault.text);
    assert_int_equal(health.records, 60);
    assert_int_equal(get(st, &one.key, &cur, NULL), SEMEL_OK);
    assert_int_equal(cur.state, SEMEL_S_SUCCEEDED);
    OPS->close(st);
}

/* Dies while it writes, on command. */
static void die_writing(int in, int out)
{
    char byte;
    semel_store *st = open_ledger("ledger");
    tell(out, "r", 1);
    hear(in, &byte, 1);
    die_at_sync = true;
    claim(st, 2);
}

/* The next writer makes the log of one that died durable before it goes on: SQLite may recover from
 * it at any time. */
static void a_dead_writers_log_is_made_durable_first(void **state)
{
    (void)state;
    char byte;
    peer p = peer_start(die_writing);
    hear(p.from, &byte, 1);
    semel_store *st = open_ledger("ledger"); /* no thread of ours when it forks */
    claim(st, 1);
    tell(p.to, "!", 1);
    peer_stop(&p);
    struct stat about;
    assert_int_equal(stat(path_of("ledger-wal"), &about), 0);
    log_written = 0;
    claim(st, 3);
    expect(log_written > about.st_size, "%d of %d bytes were written", (int)log_written,
           (int)about.st_size);
    log_written = 0;
    claim(st, 4);
    assert_true(log_written < about.st_size);
    OPS->close(st);
}

#define HAMMERS   4u
#define HAMMER_MS 1500

/* Claims as fast as it can for a while, and tells how often it could. */
static void hammer(int in, int out)
{
    semel_store *st = open_ledger("ledger");
    char byte;
    tell(out, "r", 1);
    hear(in, &byte, 1);
    uint64_t done = 0, seed = (uint64_t)getpid() << 32;
    int64_t end = monotonic_ns() + HAMMER_MS * INT64_C(1000000);
    while (monotonic_ns() < end) {
        claim(st, seed + done++);
        sm_arena_reset(&the_desk.arena);
    }
    tell(out, &done, sizeof done);
    OPS->close(st);
}

static void processes_get_fair_shares(void **state)
{
    (void)state;
    OPS->close(open_ledger("ledger"));
    peer peers[HAMMERS];
    uint64_t done[HAMMERS], total = 0;
    char byte;
    for (size_t i = 0; i < HAMMERS; i++)
        peers[i] = peer_start(hammer);
    for (size_t i = 0; i < HAMMERS; i++)
        hear(peers[i].from, &byte, 1);
    for (size_t i = 0; i < HAMMERS; i++)
        tell(peers[i].to, "g", 1);
    for (size_t i = 0; i < HAMMERS; i++) {
        hear(peers[i].from, &done[i], sizeof done[i]);
        total += done[i];
    }
    for (size_t i = 0; i < HAMMERS; i++)
        peer_stop(&peers[i]);
    for (size_t i = 0; i < HAMMERS; i++)
        expect(done[i] * 10 >= total, "process %d wrote %d of %d", (int)i, (int)done[i],
               (int)total);
    semel_store *st = open_ledger("ledger");
    semel_health health;
    assert_int_equal(OPS->health(st, true, &health, NULL), SEMEL_OK);
    assert_int_equal(health.records, total);
    OPS->close(st);
}

/* Settles the key whose number it is told, and tells when it had. */
static void settle_keys(int in, int out)
{
    semel_store *st = open_ledger("ledger");
    uint64_t n;
    tell(out, "r", 1);
    while (read(in, &n, sizeof n) == sizeof n) {
        struct timespec pause = {.tv_nsec = 10000000}; /* until the other one sleeps */
        nanosleep(&pause, NULL);
        semel_write w = fresh(n);
        semel_record cur;
        if (get(st, &w.next.key, &cur, NULL) != SEMEL_OK)
            _exit(1);
        apply(st, &cur, SEMEL_S_SUCCEEDED);
        int64_t now = monotonic_ns();
        tell(out, &now, sizeof now);
    }
    OPS->close(st);
}

static void another_process_wakes_a_waiter(void **state)
{
    (void)state;
    char byte;
    punctual r = {0};
    int64_t took;
    uint64_t n = 0;
    OPS->close(open_ledger("ledger"));
    peer p = peer_start(settle_keys);
    hear(p.from, &byte, 1);
    semel_store *st = open_ledger("ledger");
    do {
        semel_record cur = claim(st, ++n);
        int64_t deadline = monotonic_ns() + 5000000000, wrote;
        tell(p.to, &n, sizeof n);
        semel_err e = SEMEL_OK;
        while (e == SEMEL_OK && cur.version == 1) {
            semel_hash key = cur.key;
            e = OPS->wait(st, &(semel_ref){.key = &key, .generation = 1}, 1, deadline, NULL);
            if (e == SEMEL_OK)
                e = get(st, &key, &cur, NULL);
        }
        int64_t woke = monotonic_ns();
        assert_int_equal(e, SEMEL_OK);
        hear(p.from, &wrote, sizeof wrote);
        took = woke > wrote ? woke - wrote : 0;
    } while (want_more(&r, took, 50000000));
    OPS->close(st);
    peer_stop(&p);
}

/* Takes the lock of writers and keeps it, as a process that was stopped would. */
static void hold_the_lock(int in, int out)
{
    char byte;
    int fd = open(path_of("ledger-semel"), O_RDWR);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 1};
    if (fd < 0 || fcntl(fd, F_OFD_SETLKW, &lock) != 0)
        _exit(1);
    tell(out, "h", 1);
    while (read(in, &byte, 1) == 1)
        continue;
}

/* Has the writer of a second handle stand in line, and closes it. */
static void *close_in_line(void *arg)
{
    semel_store *st = arg;
    semel_note note = {.id = 1, .generation = 1, .count = 1, .what = SM_STR("replayed")};
    semel_err e = OPS->journal(st, &note, 1, NULL);
    int64_t start = monotonic_ns();
    OPS->close(st);
    bool quick = monotonic_ns() - start < 3000000000;
    return e == SEMEL_E_UNAVAILABLE && quick ? arg : NULL;
}

static void a_process_that_hangs_does_not_hang_the_others(void **state)
{
    (void)state;
    char byte;
    semel_store *st = open_ledger("ledger"), *other = open_ledger("ledger");
    pthread_t thread;
    void *closed = NULL;
    semel_record one = settle(st, 1), cur;
    peer p = peer_start(hold_the_lock);
    hear(p.from, &byte, 1);
    semel_write w = fresh(2);
    semel_fault fault = {0};
    assert_int_equal(pthread_create(&thread, NULL, close_in_line, other), 0);
    assert_int_equal(try_claim(st, &w, &cur, &fault), SEMEL_E_UNAVAILABLE);
    pthread_join(thread, &closed);
    assert_non_null(closed);
    expect(strstr(fault.text, "busy") != NULL, "%s", fault.text);
    assert_int_equal(get(st, &one.key, &cur, NULL), SEMEL_OK); /* reading goes on */
    peer_stop(&p);
    claim(st, 3);
    assert_int_equal(get(st, &w.next.key, &cur, NULL), SEMEL_E_NOT_FOUND);
    OPS->close(st);
}

/* Does nothing with the handles that it has from its parent. */
static void sit_idle(int in, int out)
{
    char byte;
    tell(out, "r", 1);
    while (read(in, &byte, 1) == 1)
        continue;
}

/* A child shares its parent's open files, but must not share the locks on them. */
static void a_child_keeps_no_lock(void **state)
{
    (void)state;
    char byte;
    semel_store *st = open_ledger("ledger");
    claim(st, 1);
    peer p = peer_start(sit_idle);
    hear(p.from, &byte, 1);
    OPS->close(st);
    int fd = open(path_of("ledger-semel"), O_RDWR | O_CLOEXEC);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 3};
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
    close(fd);
    peer_stop(&p);
}

/* ---- many ------------------------------------------------------------------------------------*/

static bool note_key(void *context, const semel_record *r, int64_t now)
{
    (void)now;
    semel_hash *keys = context;
    keys[1] = keys[0];
    keys[0] = r->key;
    return true;
}

/* A query by group must not give up among the many that are open in other groups. */
static void a_group_is_found_among_many(void **state)
{
    (void)state;
    semel_store *st = open_ledger("ledger");
    semel_write w = fresh(1), v = fresh(2);
    semel_record cur, doubt;
    memset(&w.next.group, 7, sizeof w.next.group);
    v.next.group = w.next.group;
    w.next.lease_end = 0; /* no lease: never bars, and runs all the same */
    assert_int_equal(try_claim(st, &w, &cur, NULL), SEMEL_OK);
    assert_int_equal(try_claim(st, &v, &cur, NULL), SEMEL_OK);
    doubt = apply(st, &cur, SEMEL_S_IN_DOUBT);
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path_of("ledger"), &db), SQLITE_OK);
    int rc =
        sqlite3_exec(db,
                     "WITH RECURSIVE i(x) AS (VALUES(100) UNION ALL SELECT x + 1 FROM i"
                     " WHERE x < 30000) INSERT INTO effect(n, id, generation, version, shard,"
                     " state, tombstone, fence, events, key, grp, bars_from)"
                     " SELECT x, x, 1, 1, 0, 3, 0, 1, 1, randomblob(32), zeroblob(31) || x'01',"
                     " 9000000000000 FROM i",
                     NULL, NULL, NULL);
    expect(rc == SQLITE_OK, "%s", sqlite3_errmsg(db));
    sqlite3_close(db);
    const struct {
        uint32_t states;
        const semel_hash *first, *second;
    } cases[] = {
        {1u << SEMEL_S_RUNNING, &w.next.key, NULL},
        {1u << SEMEL_S_IN_DOUBT, &doubt.key, NULL},
        {1u << SEMEL_S_RUNNING | 1u << SEMEL_S_IN_DOUBT, &doubt.key, &w.next.key},
    };
    for (size_t i = 0; i < 3; i++) {
        semel_hash keys[2] = {0}, none = {0};
        uint64_t cursor = 0;
        semel_filter filter = {.states = cases[i].states, .group = &w.next.group};
        assert_int_equal(OPS->query(st, &filter, &cursor, 1000, note_key, keys, NULL), SEMEL_OK);
        assert_int_equal(cursor, 0);
        const semel_hash *last = cases[i].second != NULL ? cases[i].second : cases[i].first;
        const semel_hash *before = cases[i].second != NULL ? cases[i].first : &none;
        assert_memory_equal(&keys[0], last, sizeof *last);
        assert_memory_equal(&keys[1], before, sizeof *before);
    }
    OPS->close(st);
}

/* Large payloads are removed a few at a time, so that callers do not wait for all of them. */
static void a_purge_is_bounded_in_bytes(void **state)
{
    (void)state;
    enum { EACH = 600 << 10, COUNT = 5 };
    semel_store *st = open_ledger("ledger");
    char *large = calloc(EACH, 1);
    assert_non_null(large);
    for (uint64_t n = 1; n <= COUNT; n++) {
        semel_record cur = claim(st, n);
        semel_write w = change(&cur, SEMEL_S_SUCCEEDED);
        int64_t now;
        w.next.outcome = (semel_str){large, EACH};
        w.next.result_end = w.next.window_end = w.next.purge_at = w.now - 1;
        assert_int_equal(OPS->apply(st, &w, &the_desk.room, &cur, &now, NULL), SEMEL_OK);
    }
    free(large);
    bool left = true;
    for (uint64_t done = 0, gone = 2; left; gone = gone + 2 < COUNT ? gone + 2 : COUNT) {
        assert_int_equal(OPS->purge(st, 100, 0, 0, &done, &left, NULL), SEMEL_OK);
        assert_int_equal(done, gone);
        assert_int_equal(left, gone < COUNT);
    }
    OPS->close(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_dir(files_are_their_owners_alone),
        with_dir(a_named_ledger_without_a_directory_is_a_mistake),
        with_dir(a_ledger_that_others_can_change_is_refused),
        with_dir(what_stands_beside_a_linked_ledger_must_be_right),
        with_dir(root_gives_a_ledger_to_the_owner_of_its_directory),
        with_dir(what_is_not_a_ledger_is_left_alone),
        with_dir(a_ledger_that_was_given_another_journal_opens_at_once),
        with_dir(a_newer_ledger_is_not_touched),
        with_dir(an_older_ledger_is_upgraded),
        with_dir(read_only_files_and_directories_are_told),
        with_dir(a_moved_ledger_takes_no_writes),
        with_dir(a_ledger_with_two_names_is_refused),
        with_dir(a_deleted_side_file_is_made_anew),
        with_dir(people_can_read_it),
        with_dir(damage_is_found_and_named),
        with_dir(a_full_disk_refuses_and_recovers),
        with_dir(a_limit_on_the_size_of_files_refuses_and_recovers),
        with_dir(a_try_meets_what_a_write_meets),
        with_dir(a_commit_is_not_acknowledged_if_its_log_is_gone_when_it_ends),
        with_dir(a_log_that_was_cut_takes_no_writes),
        with_dir(a_log_that_is_cut_during_a_commit_is_noticed),
        with_dir(a_log_that_was_removed_is_saved_by_the_last_to_close),
        with_dir(after_a_failed_sync_nothing_is_trusted),
        with_dir(a_log_that_nobody_synced_is_made_durable_first),
        with_dir(a_log_that_cannot_be_made_durable_is_not_opened),
        with_dir(blocks_behind_the_end_are_not_lost_ones),
        with_dir(a_reader_of_another_program_is_not_in_the_way),
        with_dir(a_write_that_fails_by_its_own_fault_takes_no_other_of_its_batch_along),
        with_dir(a_write_at_fault_that_joins_a_transaction_takes_nothing_of_it_along),
        with_dir(what_others_write_while_the_ledger_is_opened_is_not_missed),
        with_dir(the_cache_keeps_to_its_bound),
        with_dir(what_is_often_asked_for_stays),
        with_dir(a_change_from_outside_is_noticed),
        with_dir(without_a_look_at_the_file_nothing_is_known),
        with_dir(what_another_process_forgot_is_not_answered),
        with_dir(a_failed_sync_is_everybodys),
        with_dir(who_closes_with_an_old_index_damages_nothing),
        with_dir(a_dead_writers_log_is_made_durable_first),
        with_dir(processes_get_fair_shares),
        with_dir(another_process_wakes_a_waiter),
        with_dir(a_process_that_hangs_does_not_hang_the_others),
        with_dir(a_child_keeps_no_lock),
        with_dir(a_group_is_found_among_many),
        with_dir(a_purge_is_bounded_in_bytes),
    };
    shim_install();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
