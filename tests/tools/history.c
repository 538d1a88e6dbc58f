/*
 * Judges a history that tool_chaos left: whether what everybody was told can be the truth.
 *
 *     tool_history [--url URL] DIR
 *
 * For each effect (one generation of one key):
 *
 *   - it was done at most once, and once more for each time somebody resolved it as not applied,
 *     unless its tool may be run again;                                              (I1, I2)
 *   - an attempt after the first has a reason: an attempt that failed without effect, or such a
 *     resolution. Doubt and a lease that ended are none;                             (I2, I16)
 *   - whoever got a success got the bytes of a doing that had happened by then, or of a resolution,
 *     and all got the same;                                                          (I4)
 *   - once a success is acknowledged as the outcome, nobody gets another one, whatever stale
 *     attempts say, and the ledger still has it at the end;                          (I3, I5)
 *   - a stale attempt's word is never acknowledged as more than evidence.            (I5)
 *
 * Exit code: 0 if all holds and the audit trail is sound.
 */
#include "history.h"
#include "tool.h"

#include <dirent.h>

typedef struct entry {
    int64_t at;
    history_word word;
    char effect[48];
    char tool[16];
    uint64_t fence, number, hash;
} entry;

typedef struct history {
    entry *p;
    size_t n, room;
} history;

static unsigned flaws;

__attribute__((format(printf, 2, 3))) static void flaw(const entry *e, const char *format, ...)
{
    if (flaws++ >= 20)
        return;
    printf("%s (%s): ", e->effect, e->tool);
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

/* ---- reading ---------------------------------------------------------------------------------*/

static void read_line(history *h, const char *line)
{
    if (h->n == h->room) {
        h->room = h->room == 0 ? 4096 : 2 * h->room;
        h->p = realloc(h->p, h->room * sizeof *h->p);
        if (h->p == NULL)
            die("out of memory");
    }
    entry *e = &h->p[h->n++];
    char word[16];
    *e = (entry){.word = H_COUNT};
    if (sscanf(line, "%" SCNd64 " %15s %47s %" SCNu64 " %" SCNu64 " %" SCNx64 " %15s", &e->at, word,
               e->effect, &e->fence, &e->number, &e->hash, e->tool) != 7)
        die("not a line of a history: %s", line);
    for (history_word w = 0; w < H_COUNT; w++)
        if (strcmp(history_words[w], word) == 0)
            e->word = w;
    if (e->word == H_COUNT)
        die("not a word of a history: %s", word);
}

static void read_files(history *h, const char *dir)
{
    DIR *d = opendir(dir);
    if (d == NULL)
        die("%s cannot be read", dir);
    for (struct dirent *file; (file = readdir(d)) != NULL;) {
        if (strncmp(file->d_name, "log.", 4) != 0 && strcmp(file->d_name, "world") != 0)
            continue;
        char path[512], *line = NULL;
        size_t room = 0;
        snprintf(path, sizeof path, "%s/%s", dir, file->d_name);
        FILE *f = fopen(path, "r");
        if (f == NULL)
            die("%s cannot be read", path);
        while (getline(&line, &room, f) > 0)
            read_line(h, line);
        free(line);
        fclose(f);
    }
    closedir(d);
}

static int by_effect_and_time(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    int order = strcmp(a->effect, b->effect);
    return order != 0 ? order : (a->at > b->at) - (a->at < b->at);
}

/* ---- one effect ------------------------------------------------------------------------------*/

/* The entries of one effect, in the order of time. */
typedef struct effect {
    const entry *p;
    size_t n;
} effect;

/* Whether a resolution was accepted, or may have been: its process did not live to tell. */
static bool took_effect(const effect *f, const entry *resolving)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->p[i].number == resolving->number && f->p[i].word == H_unresolved)
            return false;
    return true;
}

/* Likewise for a failure: whether its attempt was not told that it came too late to count. */
static bool failure_counts(const effect *f, const entry *failing)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->p[i].word == H_failed && f->p[i].fence == failing->fence &&
            f->p[i].number == R_LATE_EVIDENCE)
            return false;
    return true;
}

/* How many times somebody had a reason, before a moment, to let it run again. */
static unsigned resolutions(const effect *f, int64_t before)
{
    unsigned n = 0;
    for (size_t i = 0; i < f->n; i++)
        n += f->p[i].word == H_resolving && f->p[i].fence == SEMEL_RESOLVE_NOT_APPLIED &&
             f->p[i].at < before && took_effect(f, &f->p[i]);
    return n;
}

static unsigned failures(const effect *f, int64_t before)
{
    unsigned n = 0;
    for (size_t i = 0; i < f->n; i++)
        n += f->p[i].word == H_failing && f->p[i].at < before && failure_counts(f, &f->p[i]);
    return n;
}

/* The success that was acknowledged as the outcome. NULL: there is none. */
static const entry *outcome_of(const effect *f)
{
    const entry *found = NULL;
    for (size_t i = 0; i < f->n; i++) {
        const entry *e = &f->p[i];
        if (e->word != H_acked || e->number == R_LATE_EVIDENCE)
            continue;
        if (found != NULL && found->hash != e->hash)
            flaw(e, "two different successes were acknowledged as its outcome");
        found = e;
    }
    return found;
}

static void check_attempts(const effect *f)
{
    bool again = strcmp(f->p[0].tool, "again") == 0;
    unsigned done = 0;
    for (size_t i = 0; i < f->n; i++) {
        const entry *e = &f->p[i];
        for (size_t j = 0; j < i && e->word == H_execute; j++)
            if (f->p[j].word == H_execute && f->p[j].fence == e->fence)
                flaw(e, "two were told to execute under fence %" PRIu64, e->fence);
        if (again)
            continue;
        if (e->word == H_did && ++done > 1 + resolutions(f, e->at))
            flaw(e, "it was done %u times, under fence %" PRIu64 " last", done, e->fence);
        if (e->word == H_execute && e->number > 1 + resolutions(f, e->at) + failures(f, e->at))
            flaw(e, "attempt %" PRIu64 " had no reason", e->number);
    }
}

/* Whether somebody had said this by then: the attempt itself, or a person. An effect that was
 * abandoned answers with a failure that has no value. */
static bool was_said(const effect *f, const entry *answer, history_word word)
{
    for (size_t i = 0; i < f->n && f->p[i].at <= answer->at; i++) {
        const entry *e = &f->p[i];
        if (e->word == word && e->hash == answer->hash)
            return true;
        if (e->word == H_resolving && word == H_did && e->fence == SEMEL_RESOLVE_APPLIED &&
            e->hash == answer->hash)
            return true;
        if (e->word == H_resolving && word == H_failing && e->fence == SEMEL_RESOLVE_ABANDON)
            return true;
    }
    return false;
}

static void check_answers(const effect *f)
{
    const entry *outcome = outcome_of(f), *first = NULL;
    for (size_t i = 0; i < f->n; i++) {
        const entry *e = &f->p[i];
        switch (e->word) {
        case H_execute:
            if (outcome != NULL && outcome->at < (int64_t)e->hash)
                flaw(e, "somebody was told to execute after a success was acknowledged");
            break;
        case H_ok:
            if (!was_said(f, e, H_did))
                flaw(e, "somebody got a success that nobody had returned by then");
            if (outcome != NULL && outcome->hash != e->hash)
                flaw(e, "somebody got another success than the one that was acknowledged");
            if (first != NULL && first->hash != e->hash)
                flaw(e, "two got different successes");
            first = e;
            break;
        case H_nok:
            if (!was_said(f, e, H_failing))
                flaw(e, "somebody got a failure that nobody had reported by then");
            if (outcome != NULL && outcome->at < (int64_t)e->number)
                flaw(e, "it failed after a success was acknowledged");
            break;
        case H_doubt:
            if (outcome != NULL && outcome->at < (int64_t)e->number)
                flaw(e, "it was in doubt after a success was acknowledged");
            break;
        case H_forged:
            if (e->number != R_LATE_EVIDENCE)
                flaw(e, "what a finished attempt said was taken as the outcome");
            break;
        case H_broken: flaw(e, "an answer that should not be"); break;
        default: break;
        }
    }
}

/* What was acknowledged is still there, unless somebody forgot it. An effect whose window is over
 * says so, but keeps its record. */
static void check_ledger(const effect *f, semel *s, semel_answer *a)
{
    const entry *outcome = outcome_of(f);
    if (outcome == NULL)
        return;
    for (size_t i = 0; i < f->n; i++)
        if (f->p[i].word == H_forgetting)
            return;
    semel_name name = {.size = sizeof name, .text = text_of(outcome->effect)};
    semel_err e = semel_get(s, &name, a);
    if (e != SEMEL_OK || a->verdict == SEMEL_REFUSED)
        flaw(outcome, "it is no longer in the ledger: %s", semel_code_name(a->code));
    else if (a->state == SEMEL_S_SUCCEEDED && a->outcome.kept &&
             hash_bytes(a->outcome.value) != outcome->hash)
        flaw(outcome, "the ledger has another value than was acknowledged");
    else if (a->state != SEMEL_S_SUCCEEDED && strcmp(outcome->tool, "short") != 0)
        flaw(outcome, "it was acknowledged and is %s", semel_state_name(a->state));
}

int main(int argc, char **argv)
{
    bool named = argc == 4 && strcmp(argv[1], "--url") == 0;
    if (!named && argc != 2)
        die("usage: tool_history [--url URL] DIR");
    const char *dir = argv[argc - 1];
    history h = {0};
    read_files(&h, dir);
    if (h.n == 0)
        die("there is no history in %s", dir);
    qsort(h.p, h.n, sizeof *h.p, by_effect_and_time);
    semel *s = open_ledger(named ? argv[2] : NULL, NULL);
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        die("out of memory");
    unsigned effects = 0, count[H_COUNT] = {0};
    for (size_t i = 0, end; i < h.n; i = end) {
        for (end = i; end < h.n && strcmp(h.p[end].effect, h.p[i].effect) == 0; end++)
            count[h.p[end].word]++;
        effect f = {&h.p[i], end - i};
        check_attempts(&f);
        check_answers(&f);
        check_ledger(&f, s, a);
        effects++;
    }
    printf("%u effects", effects);
    for (history_word w = 0; w < H_COUNT; w++)
        printf(", %u %s", count[w], history_words[w]);
    printf("; %u flaws\n", flaws);
    bool sound = verify_ledger(s);
    semel_answer_free(a);
    semel_close(s);
    free(h.p);
    /* A history in which the hard things did not happen proves nothing. */
    bool telling = count[H_did] > 0 && count[H_ok] > 0 && count[H_acked] > 0 &&
                   count[H_doubt] > 0 && count[H_resolved] > 0 && count[H_forged] > 0;
    if (!telling)
        printf("too little happened\n");
    return flaws == 0 && sound && telling ? 0 : 1;
}
