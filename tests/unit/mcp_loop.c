/* The loop: descriptors of all kinds, what callbacks may do to each other, timers, the mailbox. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "mcp/loop.h"

#define MS INT64_C(1000000)

/* The linker sends the program's calls of realloc here, so that memory can be refused. */
void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
static bool no_memory;

void *__wrap_realloc(void *p, size_t n)
{
    return no_memory ? NULL : __real_realloc(p, n);
}

static mcp_loop *loop;

static int loop_setup(void **state)
{
    (void)state;
    sm_fault fault = {0};
    return mcp_loop_new(&loop, &fault) == SM_OK ? 0 : -1;
}

static int loop_teardown(void **state)
{
    (void)state;
    mcp_loop_free(loop);
    return 0;
}

/* Ends a loop that would otherwise wait for ever. */
static bool late;

static void on_late(mcp_alarm *t)
{
    (void)t;
    late = true;
    mcp_loop_stop(loop);
}

static bool run_for(int64_t ms)
{
    mcp_alarm t = {.due = on_late};
    late = false;
    mcp_loop_time(loop, &t, sm_clock_deadline_ns(ms));
    mcp_loop_run(loop);
    mcp_loop_untime(loop, &t);
    return !late;
}

/* ---- descriptors -----------------------------------------------------------------------------*/

typedef struct end {
    mcp_descriptor watch;
    unsigned calls, ready; /* how often, and with what last */
    unsigned stop_after;   /* 0: never */
    void (*also)(struct end *e);
} end;

static void on_ready(mcp_descriptor *w, unsigned ready)
{
    end *e = (end *)(void *)w;
    e->calls++;
    e->ready = ready;
    if (e->also != NULL)
        e->also(e);
    if (e->stop_after > 0 && e->calls >= e->stop_after)
        mcp_loop_stop(loop);
}

static end end_of(int fd)
{
    return (end){.watch = {.fd = fd, .ready = on_ready}};
}

static void what_is_wanted_is_told(void **state)
{
    (void)state;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    end a = end_of(pair[0]);
    a.stop_after = 1;

    assert_true(mcp_loop_watch(loop, &a.watch, MCP_READABLE));
    assert_false(run_for(20)); /* there is nothing to read */
    assert_int_equal(a.calls, 0);
    assert_int_equal(write(pair[1], "x", 1), 1);
    assert_true(run_for(5000));
    assert_int_equal(a.ready, MCP_READABLE);

    assert_true(mcp_loop_watch(loop, &a.watch, MCP_WRITABLE));
    assert_true(run_for(5000));
    assert_int_equal(a.ready, MCP_WRITABLE);
    assert_true(mcp_loop_watch(loop, &a.watch, MCP_READABLE | MCP_WRITABLE));
    assert_true(run_for(5000));
    assert_int_equal(a.ready, MCP_READABLE | MCP_WRITABLE);

    a.calls = 0;
    assert_true(mcp_loop_watch(loop, &a.watch, 0));
    assert_false(run_for(20));
    assert_int_equal(a.calls, 0);
    mcp_loop_unwatch(loop, &a.watch);
    mcp_loop_unwatch(loop, &a.watch); /* once more does no harm */
    close(pair[0]);
    close(pair[1]);
}

static void an_end_counts_as_both_and_only_if_something_is_wanted(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    end r = end_of(fds[0]);
    r.stop_after = 1;
    assert_true(mcp_loop_watch(loop, &r.watch, MCP_READABLE));
    close(fds[1]);
    assert_true(run_for(5000));
    assert_int_equal(r.ready, MCP_READABLE | MCP_WRITABLE);
    /* An end cannot be taken away; whoever wants nothing is left in peace, and costs nothing. */
    assert_true(mcp_loop_watch(loop, &r.watch, 0));
    r.calls = 0;
    assert_false(run_for(20));
    assert_int_equal(r.calls, 0);
    mcp_loop_unwatch(loop, &r.watch);
    close(fds[0]);

    assert_int_equal(pipe(fds), 0);
    end w = end_of(fds[1]);
    w.stop_after = 1;
    while (fcntl(fds[1], F_SETFL, O_NONBLOCK) == 0 && write(fds[1], "full", 4) > 0)
        ;
    assert_true(mcp_loop_watch(loop, &w.watch, MCP_WRITABLE));
    assert_false(run_for(20));
    close(fds[0]);
    assert_true(run_for(5000));
    assert_int_equal(w.ready, MCP_READABLE | MCP_WRITABLE);
    mcp_loop_unwatch(loop, &w.watch);
    close(fds[1]);
}

static void what_cannot_be_watched_is_refused(void **state)
{
    (void)state;
    end bad = end_of(-1);
    assert_false(mcp_loop_watch(loop, &bad.watch, MCP_READABLE));
    assert_false(bad.watch.added);
    mcp_loop_unwatch(loop, &bad.watch);
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    end one = end_of(fds[0]), two = end_of(fds[0]);
    assert_true(mcp_loop_watch(loop, &one.watch, MCP_READABLE));
    assert_false(mcp_loop_watch(loop, &two.watch, MCP_READABLE));
    mcp_loop_unwatch(loop, &one.watch);
    assert_true(mcp_loop_watch(loop, &two.watch, MCP_READABLE));
    mcp_loop_unwatch(loop, &two.watch);
    close(fds[0]);
    close(fds[1]);
}

/* Many descriptors are ready in one batch. The first that is called unwatches, closes and frees all
 * others, and opens new ones that get the same numbers: nobody else may be called. */
enum { CROWD = 20 };
static end *crowd[CROWD];
static int crowd_other[CROWD];
static unsigned crowd_calls;

static void end_all_others(end *me)
{
    crowd_calls++;
    for (int i = 0; i < CROWD; i++) {
        if (crowd[i] == NULL || crowd[i] == me)
            continue;
        mcp_loop_unwatch(loop, &crowd[i]->watch);
        close(crowd[i]->watch.fd);
        memset(crowd[i], 0xEE, sizeof *crowd[i]);
        free(crowd[i]);
        crowd[i] = NULL;
    }
}

static void whoever_is_unwatched_is_not_called_even_if_ready(void **state)
{
    (void)state;
    crowd_calls = 0;
    for (int i = 0; i < CROWD; i++) {
        int fds[2];
        assert_int_equal(pipe(fds), 0);
        crowd[i] = malloc(sizeof *crowd[i]);
        *crowd[i] = end_of(fds[0]);
        crowd[i]->also = end_all_others;
        crowd[i]->stop_after = 1;
        crowd_other[i] = fds[1];
        assert_int_equal(write(fds[1], "x", 1), 1);
        assert_true(mcp_loop_watch(loop, &crowd[i]->watch, MCP_READABLE));
    }
    assert_true(run_for(5000));
    assert_int_equal(crowd_calls, 1);
    for (int i = 0; i < CROWD; i++) {
        close(crowd_other[i]);
        if (crowd[i] == NULL)
            continue;
        mcp_loop_unwatch(loop, &crowd[i]->watch);
        close(crowd[i]->watch.fd);
        free(crowd[i]);
        crowd[i] = NULL;
    }
}

/* The same object watches another descriptor, which is not ready, while the event of the old one is
 * still in the batch. */
static end *swapped[2];
static int swap_fd;

static void swap_other(end *me)
{
    end *other = me == swapped[0] ? swapped[1] : swapped[0];
    mcp_loop_unwatch(loop, &other->watch);
    close(other->watch.fd);
    other->watch.fd = swap_fd;
    assert_true(mcp_loop_watch(loop, &other->watch, MCP_READABLE));
    me->also = NULL;
    other->also = NULL;
    mcp_loop_watch(loop, &me->watch, 0);
}

static void an_event_of_an_old_descriptor_is_not_told_of_a_new_one(void **state)
{
    (void)state;
    int first[2], second[2], third[2];
    assert_true(pipe(first) == 0 && pipe(second) == 0 && pipe(third) == 0);
    end a = end_of(first[0]), b = end_of(second[0]);
    a.also = b.also = swap_other;
    swapped[0] = &a;
    swapped[1] = &b;
    swap_fd = third[0];
    assert_true(write(first[1], "x", 1) == 1 && write(second[1], "x", 1) == 1);
    assert_true(mcp_loop_watch(loop, &a.watch, MCP_READABLE));
    assert_true(mcp_loop_watch(loop, &b.watch, MCP_READABLE));
    assert_false(run_for(30));
    assert_int_equal(a.calls + b.calls, 1);
    mcp_loop_unwatch(loop, &a.watch);
    mcp_loop_unwatch(loop, &b.watch);
    close(a.watch.fd);
    close(b.watch.fd);
    close(first[1]);
    close(second[1]);
    close(third[1]);
}

static unsigned readable_calls;

/* The first that can be read makes the other want something else. */
static void want_otherwise(end *e)
{
    if (e->ready == MCP_WRITABLE) {
        mcp_loop_stop(loop);
        return;
    }
    readable_calls++;
    end *other = e == swapped[0] ? swapped[1] : swapped[0];
    assert_true(mcp_loop_watch(loop, &other->watch, MCP_WRITABLE));
    assert_true(mcp_loop_watch(loop, &e->watch, 0));
}

static void an_event_that_is_no_longer_wanted_is_not_told(void **state)
{
    (void)state;
    int one[2], two[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, one), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, two), 0);
    end a = end_of(one[0]), b = end_of(two[0]);
    a.also = b.also = want_otherwise;
    swapped[0] = &a;
    swapped[1] = &b;
    readable_calls = 0;
    assert_true(write(one[1], "x", 1) == 1 && write(two[1], "x", 1) == 1);
    assert_true(mcp_loop_watch(loop, &a.watch, MCP_READABLE));
    assert_true(mcp_loop_watch(loop, &b.watch, MCP_READABLE));
    assert_true(run_for(5000));
    assert_int_equal(readable_calls, 1);
    mcp_loop_unwatch(loop, &a.watch);
    mcp_loop_unwatch(loop, &b.watch);
    for (int i = 0; i < 2; i++) {
        close(one[i]);
        close(two[i]);
    }
}

/* ---- files -----------------------------------------------------------------------------------*/

static sm_buf from_file;

static void read_some(end *e)
{
    char piece[3];
    ssize_t n = read(e->watch.fd, piece, sizeof piece);
    assert_true(n >= 0);
    sm_buf_bytes(&from_file, piece, (size_t)n);
    if (n == 0) {
        mcp_loop_unwatch(loop, &e->watch);
        mcp_loop_stop(loop);
    }
}

static void a_regular_file_is_always_ready(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_true(fputs("regular files", file) >= 0 && fflush(file) == 0);
    rewind(file);
    end f = end_of(fileno(file));
    f.also = read_some;
    sm_buf_init(&from_file, 100);
    assert_true(mcp_loop_watch(loop, &f.watch, MCP_READABLE));
    assert_true(f.watch.always);
    assert_true(mcp_loop_watch(loop, &f.watch, 0));
    assert_false(run_for(20));
    assert_int_equal(f.calls, 0);
    assert_true(mcp_loop_watch(loop, &f.watch, MCP_READABLE));
    assert_true(run_for(5000));
    expect_text(sm_buf_view(&from_file), "regular files");
    assert_int_equal(f.calls, 6);
    assert_false(f.watch.always);
    sm_buf_fini(&from_file);
    fclose(file);

    int null = open("/dev/null", O_RDONLY);
    f = end_of(null);
    f.also = read_some;
    assert_true(mcp_loop_watch(loop, &f.watch, MCP_READABLE));
    assert_true(run_for(5000));
    assert_int_equal(f.calls, 1);
    close(null);
}

enum { FILES = 4 };
static end files[FILES];
static unsigned drop_mask;

static void drop_some(end *e)
{
    (void)e;
    for (unsigned i = 0; i < FILES; i++) {
        if (drop_mask & 1u << i)
            mcp_loop_unwatch(loop, &files[i].watch);
    }
}

/* Whichever file is called first, whichever it takes out: none of those is called any more, all
 * others are. */
static void files_may_be_taken_out_while_they_are_called(void **state)
{
    (void)state;
    for (drop_mask = 0; drop_mask < 1u << FILES; drop_mask++) {
        int fd[FILES];
        for (unsigned i = 0; i < FILES; i++) {
            fd[i] = open("/dev/null", O_RDONLY);
            files[i] = end_of(fd[i]);
            files[i].also = drop_some;
            assert_true(mcp_loop_watch(loop, &files[i].watch, MCP_READABLE));
        }
        assert_false(run_for(3));
        for (unsigned i = 0; i < FILES; i++) {
            bool dropped = drop_mask & 1u << i;
            bool first = i == FILES - 1; /* the latest is called first */
            expect(dropped ? files[i].calls == (first ? 1u : 0u) : files[i].calls >= 1,
                   "%u of %x was called %u times", i, drop_mask, files[i].calls);
            mcp_loop_unwatch(loop, &files[i].watch);
            close(fd[i]);
        }
    }
}

/* ---- timers ----------------------------------------------------------------------------------*/

typedef struct alarm_clock {
    mcp_alarm timer;
    int number;
    int64_t due_ns;
    bool again; /* sets itself anew, to a time that has passed */
    struct alarm_clock *ends;
} alarm_clock;

static int order[64], order_n;

static void on_due(mcp_alarm *t)
{
    alarm_clock *c = (alarm_clock *)(void *)t;
    assert_true(sm_clock_mono_ns() >= c->due_ns);
    assert_int_equal(t->timer.at, 0);
    if (order_n < 64)
        order[order_n++] = c->number;
    if (c->ends != NULL)
        mcp_loop_untime(loop, &c->ends->timer);
    if (c->again)
        mcp_loop_time(loop, t, c->due_ns);
}

static void set_clock(alarm_clock *c, int number, int64_t due_ns)
{
    c->number = number;
    c->due_ns = due_ns;
    c->timer.due = on_due;
    mcp_loop_time(loop, &c->timer, due_ns);
}

static void timers_are_due_in_order_and_never_early(void **state)
{
    (void)state;
    alarm_clock clocks[6] = {0};
    int64_t now = sm_clock_mono_ns();
    order_n = 0;
    set_clock(&clocks[3], 3, now + 12 * MS + 1);
    set_clock(&clocks[1], 1, now + 4 * MS);
    set_clock(&clocks[4], 4, now + 50000 * MS);
    set_clock(&clocks[2], 2, now + 8 * MS + 500);
    set_clock(&clocks[0], 0, now - 1);
    set_clock(&clocks[5], 5, now + 2 * MS);
    mcp_loop_untime(loop, &clocks[5].timer);
    mcp_loop_untime(loop, &clocks[5].timer);
    set_clock(&clocks[4], 4, now + 16 * MS); /* set anew */
    assert_false(run_for(40));
    assert_int_equal(order_n, 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(order[i], i);
}

static void a_timer_may_end_another_that_is_due(void **state)
{
    (void)state;
    alarm_clock a = {0}, b = {0};
    int64_t now = sm_clock_mono_ns();
    order_n = 0;
    a.ends = &b;
    set_clock(&a, 0, now - 2);
    set_clock(&b, 1, now - 1);
    assert_false(run_for(10));
    assert_int_equal(order_n, 1);
    assert_int_equal(order[0], 0);
}

static void a_timer_in_the_past_keeps_nobody_from_working(void **state)
{
    (void)state;
    alarm_clock busy = {.again = true};
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    end r = end_of(fds[0]);
    r.stop_after = 3;
    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_true(mcp_loop_watch(loop, &r.watch, MCP_READABLE));
    order_n = 0;
    set_clock(&busy, 7, 0);
    assert_true(run_for(5000));
    assert_int_equal(r.calls, 3);
    assert_true(order_n >= 2);
    mcp_loop_untime(loop, &busy.timer);
    mcp_loop_unwatch(loop, &r.watch);
    close(fds[0]);
    close(fds[1]);
}

static void give_memory(mcp_post *p)
{
    (void)p;
    no_memory = false;
}

static void a_timer_without_memory_is_late_and_not_lost(void **state)
{
    (void)state;
    alarm_clock clocks[70] = {0}; /* more than there is room for at first */
    int64_t now = sm_clock_mono_ns();
    order_n = 0;
    for (int i = 0; i < 60; i++)
        set_clock(&clocks[i], i, now + 100000000 * MS);
    no_memory = true;
    for (int i = 60; i < 70; i++)
        set_clock(&clocks[i], i, now + (i - 60) * MS);
    mcp_loop_untime(loop, &clocks[67].timer);
    set_clock(&clocks[68], 68, now + 9 * MS + 1); /* set anew, after the last */
    mcp_post post = {.take = give_memory};
    mcp_loop_post(loop, &post);
    assert_false(run_for(60));
    assert_false(no_memory);
    for (int i = 0; i < 60; i++)
        mcp_loop_untime(loop, &clocks[i].timer);
    assert_int_equal(order_n, 9);
    unsigned seen = 0;
    for (int i = 0; i < 9; i++)
        seen |= 1u << (order[i] - 60);
    assert_int_equal(seen, 0x37F); /* all but 67 */
}

/* ---- the mailbox -----------------------------------------------------------------------------*/

typedef struct letter {
    mcp_post post;
    unsigned number, again;
    bool last;
} letter;

static unsigned letters_taken;
static bool letters_in_order;

static void take_letter(mcp_post *p)
{
    letter *x = (letter *)(void *)p;
    letters_in_order = letters_in_order && x->number == letters_taken;
    letters_taken++;
    if (x->again > 0) {
        x->again--;
        x->number = letters_taken;
        mcp_loop_post(loop, p);
    } else if (x->last) {
        mcp_loop_stop(loop);
    }
}

static void posts_are_taken_in_their_order(void **state)
{
    (void)state;
    letter letters[100] = {0};
    letters_taken = 0;
    letters_in_order = true;
    for (unsigned i = 0; i < 100; i++) {
        letters[i] = (letter){.post = {.take = take_letter}, .number = i, .last = i == 99};
        mcp_loop_post(loop, &letters[i].post);
    }
    assert_true(run_for(5000));
    assert_int_equal(letters_taken, 100);
    assert_true(letters_in_order);
}

static void a_post_may_be_posted_again_when_it_is_taken(void **state)
{
    (void)state;
    letter x = {.post = {.take = take_letter}, .again = 3, .last = true};
    letters_taken = 0;
    letters_in_order = true;
    mcp_loop_post(loop, &x.post);
    assert_true(run_for(5000));
    assert_int_equal(letters_taken, 4);
    assert_true(letters_in_order);
}

static void a_post_that_is_taken_out_is_not_given_out(void **state)
{
    (void)state;
    letter letters[4] = {0};
    letters_taken = 0;
    letters_in_order = true;
    for (unsigned i = 0; i < 3; i++) {
        letters[i] = (letter){.post = {.take = take_letter}, .number = i == 2 ? 0 : 9};
        mcp_loop_post(loop, &letters[i].post);
    }
    mcp_loop_unpost(loop, &letters[0].post);
    mcp_loop_unpost(loop, &letters[1].post);
    mcp_loop_unpost(loop, &letters[1].post); /* it is not there any more */
    letters[3] = (letter){.post = {.take = take_letter}, .number = 9};
    mcp_loop_post(loop, &letters[3].post);
    mcp_loop_unpost(loop, &letters[3].post); /* the last one */
    letters[3] = (letter){.post = {.take = take_letter}, .number = 1, .last = true};
    mcp_loop_post(loop, &letters[3].post);
    assert_true(run_for(5000));
    assert_int_equal(letters_taken, 2);
    assert_true(letters_in_order);
}

static void what_is_in_the_mailbox_is_given_out_at_the_end(void **state)
{
    (void)state;
    letter x = {.post = {.take = take_letter}, .again = 2};
    letters_taken = 0;
    mcp_loop_post(loop, &x.post);
    mcp_loop_free(loop);
    assert_int_equal(letters_taken, 3);
    loop = NULL;
    mcp_loop_free(NULL);
}

/* Threads post while the loop works; each thread's posts come in its order, and none is lost. */
enum { POSTERS = 4, POSTS = 5000 };

typedef struct poster {
    pthread_t thread;
    unsigned next; /* that must come */
    struct parcel {
        mcp_post post;
        struct poster *of;
        unsigned number;
    } parcels[POSTS];
} poster;

static unsigned parcels_taken;

static void take_parcel(mcp_post *p)
{
    struct parcel *x = (struct parcel *)(void *)p;
    assert_int_equal(x->number, x->of->next);
    x->of->next++;
    if (++parcels_taken == POSTERS * POSTS)
        mcp_loop_stop(loop);
}

static void *post_all(void *context)
{
    poster *me = context;
    for (unsigned i = 0; i < POSTS; i++) {
        me->parcels[i] = (struct parcel){.post = {.take = take_parcel}, .of = me, .number = i};
        mcp_loop_post(loop, &me->parcels[i].post);
        if (i % 500 == 0)
            usleep(100);
    }
    return NULL;
}

static void posts_of_many_threads_all_arrive(void **state)
{
    (void)state;
    poster *posters = calloc(POSTERS, sizeof *posters);
    parcels_taken = 0;
    for (int i = 0; i < POSTERS; i++)
        assert_int_equal(pthread_create(&posters[i].thread, NULL, post_all, &posters[i]), 0);
    assert_true(run_for(60000));
    for (int i = 0; i < POSTERS; i++)
        pthread_join(posters[i].thread, NULL);
    assert_int_equal(parcels_taken, POSTERS * POSTS);
    free(posters);
}

static void *run_loop(void *context)
{
    mcp_loop_run(context);
    return NULL;
}

static void it_runs_on_any_thread_and_is_stopped_from_any(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, run_loop, loop), 0);
        if (i % 2 == 0)
            usleep(200);
        mcp_loop_stop(loop);
        pthread_join(thread, NULL);
    }
    mcp_loop_stop(loop); /* before it runs counts, too */
    assert_true(run_for(5000));
}

#define with_loop(test) cmocka_unit_test_setup_teardown(test, loop_setup, loop_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_loop(what_is_wanted_is_told),
        with_loop(an_end_counts_as_both_and_only_if_something_is_wanted),
        with_loop(what_cannot_be_watched_is_refused),
        with_loop(whoever_is_unwatched_is_not_called_even_if_ready),
        with_loop(an_event_of_an_old_descriptor_is_not_told_of_a_new_one),
        with_loop(an_event_that_is_no_longer_wanted_is_not_told),
        with_loop(a_regular_file_is_always_ready),
        with_loop(files_may_be_taken_out_while_they_are_called),
        with_loop(timers_are_due_in_order_and_never_early),
        with_loop(a_timer_may_end_another_that_is_due),
        with_loop(a_timer_in_the_past_keeps_nobody_from_working),
        with_loop(a_timer_without_memory_is_late_and_not_lost),
        with_loop(posts_are_taken_in_their_order),
        with_loop(a_post_may_be_posted_again_when_it_is_taken),
        with_loop(a_post_that_is_taken_out_is_not_given_out),
        with_loop(what_is_in_the_mailbox_is_given_out_at_the_end),
        with_loop(posts_of_many_threads_all_arrive),
        with_loop(it_runs_on_any_thread_and_is_stopped_from_any),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
