/*
 * tamper URL KEYFILE [--full] [--part I/N]: runs the trials of that store, a sample by default.
 * With
 * --part only each Nth trial, from the Ith on, so that several runs share the work; each has a
 * ledger of its own. Prints one line for each trial that goes unnoticed and changes an answer, and
 * for each that ends the program. Exit code 0 if no trial does.
 */
#include "tamper.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAMPLE 120u /* changes by default, of each store, and half as many pairs */
#define NONE   SIZE_MAX

static const store_kind *const kinds[] = {&tamper_sqlite, &tamper_postgres, &tamper_redis};

/* One change, or two: the second is one of meta. */
typedef struct trial {
    size_t change, meta;
} trial;

typedef struct run {
    const store_kind *kind;
    subject s;
    memory m;
    surface surface;
    trial *trials;
    size_t n, room;
    sm_buf expected;
    size_t told, same, refused, bad;
} run;

/* The results so far, from the child that makes the trials. */
typedef struct tally {
    size_t at; /* the trial that it is at */
    size_t told, same, refused, bad;
} tally;

/* Whether verifying, or opening, tells; then the answers, if there are any. */
static bool look(const run *r, sm_buf *out)
{
    semel_fault fault = {0};
    semel_verified v = {.size = sizeof v};
    semel *s = subject_open(&r->s, 0, &fault);
    sm_buf_clear(out);
    if (s == NULL)
        return true;
    semel_err e = semel_verify(s, NULL, NULL, NULL, &v, &fault);
    battery(s, &r->m, out);
    rummage(s);
    semel_close(s);
    return e != SEMEL_OK || v.flaws > 0;
}

/* Where two texts differ, for people. */
static void explain(const sm_buf *expected, const sm_buf *got)
{
    size_t i = 0, line = 0;
    for (; i < expected->len && i < got->len && expected->p[i] == got->p[i]; i++)
        line = expected->p[i] == '\n' ? i + 1 : line;
    const char *ends[2];
    ends[0] = memchr(expected->p + line, '\n', expected->len - line);
    ends[1] = memchr(got->p + line, '\n', got->len - line);
    printf("#   was %.*s\n", ends[0] == NULL ? 0 : (int)(ends[0] - expected->p - line),
           expected->p + line);
    printf("#   is  %.*s\n", ends[1] == NULL ? 0 : (int)(ends[1] - got->p - line), got->p + line);
}

static void put_trial(const run *r, const trial *t, const char *what)
{
    printf("%s: %s", what, r->surface.all[t->change].what);
    if (t->meta != NONE)
        printf(" -- and -- %s", r->surface.all[t->meta].what);
    putchar('\n');
}

static void make(run *r, const trial *one, tally *t, sm_buf *got)
{
    r->kind->restore(one->meta != NONE);
    if (!r->kind->change(&r->surface, &r->surface.all[one->change]) ||
        (one->meta != NONE && !r->kind->change(&r->surface, &r->surface.all[one->meta]))) {
        t->refused++;
        return;
    }
    if (look(r, got)) {
        t->told++;
    } else if (got->len == r->expected.len && memcmp(got->p, r->expected.p, got->len) == 0) {
        t->same++;
    } else {
        t->bad++;
        put_trial(r, one, "not noticed");
        explain(&r->expected, got);
        fflush(stdout);
    }
}

/* Makes trials from `from` on in a child, which tells through the pipe how far it is. */
static void work(run *r, size_t from, int out)
{
    tally t = {.at = from};
    sm_buf got;
    sm_buf_init(&got, (size_t)64 << 20);
    for (; t.at < r->n; t.at++) {
        must(write(out, &t, sizeof t) == sizeof t, "the pipe is gone");
        make(r, &r->trials[t.at], &t, &got);
    }
    must(write(out, &t, sizeof t) == sizeof t, "the pipe is gone");
    _exit(0);
}

static void run_all(run *r)
{
    for (size_t from = 0; from < r->n;) {
        int fds[2], status = 0;
        tally t = {.at = from}, next;
        must(pipe(fds) == 0, "no pipe");
        fflush(stdout);
        pid_t pid = fork();
        must(pid >= 0, "no process");
        if (pid == 0) {
            close(fds[0]);
            work(r, from, fds[1]);
        }
        close(fds[1]);
        while (read(fds[0], &next, sizeof next) == (ssize_t)sizeof next)
            t = next;
        close(fds[0]);
        waitpid(pid, &status, 0);
        r->told += t.told;
        r->same += t.same;
        r->refused += t.refused;
        r->bad += t.bad;
        if (WIFSIGNALED(status)) {
            char what[64];
            snprintf(what, sizeof what, "died of signal %d", WTERMSIG(status));
            put_trial(r, &r->trials[t.at], what);
            r->bad++;
            from = t.at + 1;
            continue;
        }
        if (WEXITSTATUS(status) != 0)
            put_trial(r, &r->trials[t.at], "the test itself failed at");
        must(WEXITSTATUS(status) == 0, "it ended with %d", WEXITSTATUS(status));
        break;
    }
}

/* ---- which trials ----------------------------------------------------------------------------*/

static void add_trial(run *r, size_t change, size_t meta)
{
    if (r->n == r->room) {
        r->room = r->room == 0 ? 1024 : r->room * 2;
        r->trials = realloc(r->trials, r->room * sizeof *r->trials);
        must(r->trials != NULL, "out of memory");
    }
    r->trials[r->n++] = (trial){change, meta};
}

/* Keeps about `sample` of the trials from `from` on, evenly. */
static void thin_out(run *r, size_t from, size_t sample)
{
    size_t step = r->n - from <= sample ? 1 : (r->n - from) / sample, n = from;
    while (step > 1 && (step % 2 == 0 || step % 3 == 0 || step % 7 == 0))
        step++; /* so that no kind of change is always passed over */
    for (size_t i = from; i < r->n; i += step)
        r->trials[n++] = r->trials[i];
    r->n = n;
}

/* Every change alone, and every one that is not much like another with every one of meta. In full,
 * a server makes as many pairs as there are changes, taken evenly: all of them would take days.
 * Those of pairs only are few, and no sample leaves them out. Returns how many there are. */
static size_t list_trials(run *r, bool full)
{
    const surface *s = &r->surface;
    for (size_t i = 0; i < s->n; i++) {
        if ((s->all[i].of & OF_PAIRS) == 0)
            add_trial(r, i, NONE);
    }
    size_t total = r->n, singles = r->n;
    if (!full)
        thin_out(r, 0, SAMPLE);
    for (unsigned of = 0; of <= OF_PAIRS; of += OF_PAIRS) {
        size_t from = r->n;
        for (size_t i = 0; i < s->n; i++) {
            for (size_t k = 0; k < s->n && (s->all[i].of & OF_FINE) == 0; k++) {
                if ((s->all[i].of & OF_PAIRS) == of && (s->all[k].of & OF_META) != 0 && i != k)
                    add_trial(r, i, k);
            }
        }
        total += r->n - from;
        if (of == 0 && !(full && r->kind->quick))
            thin_out(r, from, full ? singles : SAMPLE / 2);
    }
    return total;
}

static void take_part(run *r, size_t part, size_t of)
{
    size_t n = 0;
    for (size_t i = part; i < r->n; i += of)
        r->trials[n++] = r->trials[i];
    r->n = n;
}

int main(int argc, char **argv)
{
    run r = {.s = {.with_key = true}};
    bool full = false;
    size_t part = 0, parts = 1, at = 3;
    for (; argc > 3 && at < (size_t)argc; at++) {
        if (strcmp(argv[at], "--full") == 0)
            full = true;
        else if (at + 1 >= (size_t)argc || strcmp(argv[at], "--part") != 0 ||
                 sscanf(argv[++at], "%zu/%zu", &part, &parts) != 2 || part < 1 || part > parts)
            argc = 0;
        else
            part--;
    }
    if (argc < 3) {
        fputs("usage: tamper URL KEYFILE [--full] [--part I/N]\n", stderr);
        return 64;
    }
    r.s.url = argv[1];
    r.s.key_path = argv[2];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i]->scheme);
        if (strncmp(argv[1], kinds[i]->scheme, n) == 0 && argv[1][n] == ':')
            r.kind = kinds[i];
    }
    must(r.kind != NULL, "there is no way to tamper with %s", argv[1]);
    populate(&r.s, &r.m);
    r.kind->start(&r.surface, argv[1]);
    sm_buf again;
    sm_buf_init(&r.expected, (size_t)64 << 20);
    sm_buf_init(&again, (size_t)64 << 20);
    for (int i = 0; i < 2; i++) {
        r.kind->restore(i == 1);
        if (look(&r, i == 0 ? &r.expected : &again)) {
            puts("an untouched ledger is told of");
            return 1;
        }
    }
    if (again.len != r.expected.len || memcmp(again.p, r.expected.p, again.len) != 0) {
        puts("the same ledger gives two answers");
        explain(&r.expected, &again);
        return 1;
    }
    size_t total = list_trials(&r, full);
    take_part(&r, part, parts);
    run_all(&r);
    printf(
        "%zu of %zu changes and pairs of changes: %zu noticed, %zu without effect on any answer, "
        "%zu refused by the store itself, %zu wrong\n",
        r.told + r.same + r.refused + r.bad, total, r.told, r.same, r.refused, r.bad);
    return r.bad != 0;
}
