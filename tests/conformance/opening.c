/* Opening, closing, and several handles on one ledger: in this process and in others. */
#include "conformance.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void must_open(ledger *l)
{
    semel_fault fault = {0};
    semel_err err = ledger_open(l, false, &fault);
    expect(err == SEMEL_OK, "%s: %s", semel_err_name(err), fault.text);
}

/* A second handle on the ledger that `l` names. */
static ledger *handle_new(const ledger *l)
{
    ledger *other = calloc(1, sizeof *other);
    assert_non_null(other);
    *other = (ledger){.ops = l->ops};
    memcpy(other->url, l->url, sizeof other->url);
    desk_init(&other->desk);
    must_open(other);
    return other;
}

static void handle_free(ledger *l)
{
    l->ops->close(l->st);
    desk_fini(&l->desk);
    free(l);
}

/* ---- the table -------------------------------------------------------------------------------*/

static void the_table_is_complete(void **state)
{
    ledger *l = *state;
    const semel_store_ops *o = l->ops;
    assert_true(o->size >= sizeof *o);
    assert_int_equal(o->version, SEMEL_STORE_VERSION);
    assert_int_equal(strncmp(l->url, o->scheme, strlen(o->scheme)), 0);
    assert_true(o->open && o->close && o->claim && o->apply && o->get && o->query && o->events);
    assert_true(o->due && o->wait && o->journal && o->notes && o->seal && o->purge && o->counter);
    assert_non_null(o->health);
    o->close(NULL);
}

static void a_ledger_that_must_exist_is_not_made(void **state)
{
    ledger *l = *state;
    for (int i = 0; i < 2; i++) { /* nor does the attempt make it */
        semel_fault fault = {0};
        l->st = (semel_store *)(void *)l;
        expect_error(ledger_open(l, true, &fault), SEMEL_E_UNAVAILABLE);
        assert_null(l->st);
        expect(fault.code == SEMEL_E_UNAVAILABLE && fault.text[0] != '\0', "it says nothing");
    }
    expect_error(ledger_open(l, true, NULL), SEMEL_E_UNAVAILABLE);
    must_open(l);
    if ((l->caps & SEMEL_STORE_DURABLE) == 0)
        return;
    ledger_close(l);
    expect_error(ledger_open(l, true, NULL), SEMEL_OK);
}

/* ---- durability ------------------------------------------------------------------------------*/

static void everything_is_there_after_closing_and_opening(void **state)
{
    ledger *l = *state;
    must_open(l);
    needs_caps(l, SEMEL_STORE_DURABLE);
    semel_counter counter = {SM_STR("spent"), 5, 10, 0};
    semel_write w = fresh(1);
    w.counters = &counter;
    w.n_counters = 1;
    semel_record one = claim_new(l, &w), got;
    w = change(&one, SEMEL_S_SUCCEEDED);
    one = apply_to(l, &w);
    w = repeat(&one);
    semel_record two = apply_to(l, &w);
    semel_event seal = {.index = 1, .at = w.now, .what = SM_STR("sealed"), .body = SM_STR("{}")};
    expect_error(l->ops->seal(l->st, &seal, 0, NULL), SEMEL_OK);
    semel_note note = {.id = one.id, .first_at = 1, .last_at = 2, .count = 3, .what = SM_STR("x")};
    expect_error(l->ops->journal(l->st, &note, 1, NULL), SEMEL_OK);
    uint64_t seq = last_seq(l);

    ledger_close(l);
    must_open(l);
    got = get_key(l, 1);
    expect_record(&got, &two);
    expect_error(try_get(l, &(semel_ref){.id = one.id, .generation = 1}, &got), SEMEL_OK);
    expect_record(&got, &one);
    assert_int_equal(counter_of(l, "spent"), 5);
    assert_int_equal(last_seq(l), seq);
    assert_int_equal(events_of(l, 0, 0), 4);
    semel_health health;
    expect_error(l->ops->health(l->st, true, &health, NULL), SEMEL_OK);
    assert_int_equal(health.seal_seq, seq);
    seen *s = seen_new();
    expect_error(l->ops->notes(l->st, one.id, 0, 10, see_note, s, NULL), SEMEL_OK);
    assert_int_equal(s->n, 1);
    seen_free(s);
    w = change(&two, SEMEL_S_FAILED);
    apply_to(l, &w);
    assert_true(last_seq(l) > seq);
}

/* ---- several handles -------------------------------------------------------------------------*/

static void two_handles_are_one_ledger(void **state)
{
    ledger *a = *state;
    must_open(a);
    needs_caps(a, SEMEL_STORE_SHARED);
    ledger *b = handle_new(a);
    semel_counter counter = {SM_STR("spent"), 6, 10, 0};
    semel_record cur, got;
    bool inserted = true;
    for (uint64_t n = 1; n <= 20; n++) {
        ledger *x = n & 1 ? a : b, *y = n & 1 ? b : a;
        semel_write w = fresh(n);
        cur = claim_new(x, &w);
        expect_error(try_claim(y, &w, &got, &inserted), SEMEL_OK);
        assert_false(inserted);
        expect_record(&got, &cur);
        w = change(&cur, SEMEL_S_SUCCEEDED);
        semel_write stale = change(&cur, SEMEL_S_FAILED);
        cur = apply_to(y, &w);
        expect_error(try_apply(x, &stale, &got), SEMEL_E_STALE);
        expect_record(&got, &cur);
        got = get_key(x, n);
        expect_record(&got, &cur);
        /* What one handle remembers, the other may change. */
        peek_truly(x, n);
        peek_truly(y, n);
        w = change(&cur, SEMEL_S_NONE);
        cur = apply_to(x, &w);
        peek_truly(y, n);
        w = change(&cur, SEMEL_S_FAILED);
        cur = apply_to(y, &w);
        peek_truly(x, n);
        w = repeat(&cur);
        apply_to(x, &w);
        peek_truly(y, n);
    }
    assert_int_equal(last_seq(a), last_seq(b));
    semel_write w = fresh(100);
    w.counters = &counter;
    w.n_counters = 1;
    claim_new(a, &w);
    w = fresh(101);
    w.counters = &counter;
    w.n_counters = 1;
    expect_error(try_claim(b, &w, &got, &inserted), SEMEL_E_OVER_CAP);
    assert_int_equal(counter_of(b, "spent"), 6);
    handle_free(b);
}

/* ---- several processes -----------------------------------------------------------------------*/

/* Runs `work` in a process of its own, which opens the ledger itself. What it returns is the
 * process's exit status; 100 and above mean that it could not begin. */
typedef int process_fn(ledger *l, size_t index, int to_parent);

static pid_t process_start(const ledger *l, size_t index, process_fn *work, int *from_child)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        static ledger own;
        close(ends[0]);
        own = (ledger){.ops = l->ops};
        memcpy(own.url, l->url, sizeof own.url);
        desk_init(&own.desk);
        if (ledger_open(&own, false, NULL) != SEMEL_OK)
            _exit(100);
        int status = work(&own, index, ends[1]);
        own.ops->close(own.st);
        _exit(status);
    }
    close(ends[1]);
    *from_child = ends[0];
    return pid;
}

static int process_join(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool tell(int fd, const void *p, size_t n)
{
    return write(fd, p, n) == (ssize_t)n;
}

static void hear(int fd, void *p, size_t n)
{
    assert_int_equal(read(fd, p, n), n);
}

/* Nothing is open while it forks; afterwards the parent has the ledger too. */
static bool shared_by_processes(ledger *l, uint32_t caps)
{
    must_open(l);
    bool fits = (l->caps & caps) == caps;
    ledger_close(l);
    return fits;
}

#define PROCESSES 4u
#define RACED     60u

static int claim_in_order(ledger *l, size_t index, int to_parent)
{
    uint32_t inserted_count = 0;
    for (uint64_t n = 1; n <= RACED; n++) {
        semel_write w = fresh(n);
        semel_record cur;
        bool inserted;
        w.next.fence = index + 1;
        if (try_claim(l, &w, &cur, &inserted) != SEMEL_OK)
            return 1;
        if (inserted != (cur.fence == index + 1))
            return 2; /* it was told of a record that is not the one */
        inserted_count += inserted;
        sm_arena_reset(&l->desk.arena);
    }
    return tell(to_parent, &inserted_count, sizeof inserted_count) ? 0 : 3;
}

static void of_many_processes_one_inserts(void **state)
{
    ledger *l = *state;
    if (!shared_by_processes(l, SEMEL_STORE_SHARED))
        skip();
    pid_t pids[PROCESSES];
    int fds[PROCESSES];
    uint32_t total = 0;
    for (size_t i = 0; i < PROCESSES; i++)
        pids[i] = process_start(l, i, claim_in_order, &fds[i]);
    for (size_t i = 0; i < PROCESSES; i++) {
        uint32_t n = 0;
        assert_int_equal(process_join(pids[i]), 0);
        hear(fds[i], &n, sizeof n);
        close(fds[i]);
        total += n;
    }
    assert_int_equal(total, RACED);
    must_open(l);
    assert_int_equal(events_of(l, 0, 0), RACED);
}

/* Waits for one key after another, and tells when it woke. */
#define WAKES 9u
static int wait_for_each(ledger *l, size_t index, int to_parent)
{
    (void)index;
    for (uint64_t n = 1; n <= WAKES; n++) {
        semel_write w = fresh(n);
        semel_record cur;
        bool inserted;
        if (try_claim(l, &w, &cur, &inserted) != SEMEL_OK || !tell(to_parent, &n, sizeof n))
            return 1;
        int64_t deadline = monotonic_ns() + 20000000000;
        while (cur.version == 1) {
            if (l->ops->wait(l->st, &(semel_ref){.key = &cur.key, .generation = 1}, 1, deadline,
                             NULL) != SEMEL_OK)
                return 2;
            semel_hash key = cur.key;
            if (try_get(l, &(semel_ref){.key = &key}, &cur) != SEMEL_OK)
                return 3;
        }
        int64_t woke = monotonic_ns();
        if (!tell(to_parent, &woke, sizeof woke))
            return 4;
    }
    return 0;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void a_write_wakes_a_waiter_in_another_process(void **state)
{
    ledger *l = *state;
    if (!shared_by_processes(l, SEMEL_STORE_SHARED))
        skip();
    int fd;
    pid_t pid = process_start(l, 0, wait_for_each, &fd);
    must_open(l);
    int64_t took[WAKES];
    for (uint64_t n = 1; n <= WAKES; n++) {
        uint64_t ready = 0;
        int64_t woke = 0;
        hear(fd, &ready, sizeof ready);
        assert_int_equal(ready, n);
        pause_ms(20);
        semel_record cur = get_key(l, n);
        semel_write w = change(&cur, SEMEL_S_SUCCEEDED);
        apply_to(l, &w);
        int64_t wrote = monotonic_ns();
        hear(fd, &woke, sizeof woke);
        took[n - 1] = woke - wrote;
    }
    assert_int_equal(process_join(pid), 0);
    close(fd);
    qsort(took, WAKES, sizeof *took, compare);
    if ((l->caps & SEMEL_STORE_NOTIFY) != 0)
        expect(took[WAKES / 2] < 50000000, "the median is %.1f ms", (double)took[WAKES / 2] / 1e6);
}

static int write_until_killed(ledger *l, size_t index, int to_parent)
{
    (void)index;
    for (uint64_t n = 1;; n++) {
        semel_write w = fresh(n);
        semel_record cur;
        bool inserted;
        if (try_claim(l, &w, &cur, &inserted) != SEMEL_OK || !inserted)
            return 1;
        w = change(&cur, SEMEL_S_SUCCEEDED);
        if (try_apply(l, &w, &cur) != SEMEL_OK || !tell(to_parent, &n, sizeof n))
            return 2;
        sm_arena_reset(&l->desk.arena);
    }
}

/* What was acknowledged is there, and of what was not, all or nothing (I3, I9). */
static void what_a_killed_process_was_told_is_so(void **state)
{
    ledger *l = *state;
    if (!shared_by_processes(l, SEMEL_STORE_DURABLE))
        skip();
    int fd;
    uint64_t told = 0, n;
    pid_t pid = process_start(l, 0, write_until_killed, &fd);
    while (told < 20)
        hear(fd, &told, sizeof told);
    kill(pid, SIGKILL);
    assert_int_equal(process_join(pid), 128 + SIGKILL);
    while (read(fd, &n, sizeof n) == sizeof n)
        told = n;
    close(fd);

    must_open(l);
    for (n = 1; n <= told; n++) {
        semel_record cur = get_key(l, n);
        assert_int_equal(cur.state, SEMEL_S_SUCCEEDED);
        assert_int_equal(events_of(l, cur.id, 0), 2);
    }
    semel_hash key = key_of(told + 1);
    semel_record cur;
    if (try_get(l, &(semel_ref){.key = &key}, &cur) == SEMEL_OK)
        assert_int_equal(events_of(l, cur.id, 0), cur.events);
    semel_write w = fresh(told + 100);
    claim_new(l, &w);
    semel_health health;
    expect_error(l->ops->health(l->st, true, &health, NULL), SEMEL_OK);
}

int opening_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_ledger(the_table_is_complete),
        on_name(a_ledger_that_must_exist_is_not_made),
        on_name(everything_is_there_after_closing_and_opening),
        on_name(two_handles_are_one_ledger),
        on_name(of_many_processes_one_inserts),
        on_name(a_write_wakes_a_waiter_in_another_process),
        on_name(what_a_killed_process_was_told_is_so),
    };
    return cmocka_run_group_tests_name("opening", tests, NULL, NULL);
}
