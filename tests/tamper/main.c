/*
 * tamper URL KEYFILE [--full]: runs the cases of that store, a sample by default. Prints one line
 * for each case that goes unnoticed and changes an answer, and for each that ends the program. Exit
 * code 0 if no case does.
 */
#include "tamper.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAMPLE 120u /* cases by default, of each store */

static const store_kind *const kinds[] = {&tamper_sqlite, &tamper_postgres, &tamper_redis};

typedef struct run {
    const store_kind *kind;
    subject s;
    memory m;
    surface surface;
    sm_buf expected;
    size_t told, same, refused, bad;
} run;

/* The result of a case, from the child that ran it. */
typedef struct tally {
    size_t at; /* the case that it is at */
    size_t told, same, refused, bad;
} tally;

/* Whether verifying, or opening, tells; then the answers, if there are any. */
static bool look(const run *r, sm_buf *out)
{
    semel_fault fault = {0};
    semel_verified v = {0};
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

static void try_case(run *r, const tampering *one, tally *t, sm_buf *got)
{
    r->kind->restore();
    if (!r->kind->change(&r->surface, one)) {
        t->refused++;
        return;
    }
    if (look(r, got)) {
        t->told++;
    } else if (got->len == r->expected.len && memcmp(got->p, r->expected.p, got->len) == 0) {
        t->same++;
    } else {
        t->bad++;
        printf("not noticed: %s\n", one->what);
        explain(&r->expected, got);
        fflush(stdout);
    }
}

/* Runs cases from `from` on in a child, which tells through the pipe how far it is. */
static void work(run *r, size_t from, size_t step, int out)
{
    tally t = {.at = from};
    sm_buf got;
    sm_buf_init(&got, (size_t)64 << 20);
    for (; t.at < r->surface.n; t.at += step) {
        must(write(out, &t, sizeof t) == sizeof t, "the pipe is gone");
        try_case(r, &r->surface.all[t.at], &t, &got);
    }
    must(write(out, &t, sizeof t) == sizeof t, "the pipe is gone");
    _exit(0);
}

static void run_all(run *r, size_t step)
{
    for (size_t from = 0; from < r->surface.n;) {
        int fds[2], status = 0;
        tally t = {.at = from}, next;
        must(pipe(fds) == 0, "no pipe");
        fflush(stdout);
        pid_t pid = fork();
        must(pid >= 0, "no process");
        if (pid == 0) {
            close(fds[0]);
            work(r, from, step, fds[1]);
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
            printf("died of signal %d: %s\n", WTERMSIG(status), r->surface.all[t.at].what);
            r->bad++;
            from = t.at + step;
            continue;
        }
        must(WEXITSTATUS(status) == 0, "the test itself failed at: %s", r->surface.all[t.at].what);
        break;
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fputs("usage: tamper URL KEYFILE [--full | CASE]\n", stderr);
        return 64;
    }
    run r = {.s = {.url = argv[1], .key_path = argv[2], .with_key = true}};
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
        r.kind->restore();
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
    if (argc == 4 && strcmp(argv[3], "--full") != 0) {
        tampering one = {.what = argv[3]};
        tally t = {0};
        try_case(&r, &one, &t, &again);
        printf("told %zu, same %zu, refused %zu, bad %zu\n", t.told, t.same, t.refused, t.bad);
        return t.bad != 0;
    }
    size_t step = argc == 4 || r.surface.n <= SAMPLE ? 1 : r.surface.n / SAMPLE;
    while (step > 1 && (step % 2 == 0 || step % 3 == 0 || step % 7 == 0))
        step++; /* so that no kind of change is always passed over */
    run_all(&r, step);
    printf("%zu of %zu changes: %zu noticed, %zu without effect on any answer, %zu refused by the "
           "store itself, %zu wrong\n",
           r.told + r.same + r.refused + r.bad, r.surface.n, r.told, r.same, r.refused, r.bad);
    return r.bad != 0;
}
