/*
 * The memory store's log of events, its seals, and its notes.
 *
 * Events and seals share one sequence, which the commit lock orders, but not one array: events
 * leave from the front, seals stay. Reading merges the two. The events of one effect are also
 * chained by id, so that its history is read without a walk through everybody's.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "store/memory/memory.h"

/* ---- events ----------------------------------------------------------------------------------*/

/* Appends a copy of the text to what `end` points at; an absent text stays absent. */
static semel_str keep(char **end, semel_str s)
{
    if (s.p == NULL)
        return (semel_str){0};
    semel_str kept = {*end, s.n};
    memcpy(*end, s.p, s.n);
    *end += s.n;
    return kept;
}

sm_logged *sm_logged_new(sm_memory *m, const semel_event *e)
{
    size_t n = e->what.n + e->actor.n + e->body.n;
    sm_logged *l = malloc(sizeof *l + n);
    if (l == NULL)
        return NULL;
    atomic_init(&l->held, 1);
    l->n = n;
    l->next = NULL;
    l->e = *e;
    char *end = l->text;
    l->e.what = keep(&end, e->what);
    l->e.actor = keep(&end, e->actor);
    l->e.body = keep(&end, e->body);
    atomic_fetch_add_explicit(&m->bytes, sizeof *l + n, memory_order_relaxed);
    return l;
}

void sm_logged_drop(sm_memory *m, sm_logged *l)
{
    if (l == NULL || atomic_fetch_sub_explicit(&l->held, 1, memory_order_acq_rel) > 1)
        return;
    atomic_fetch_sub_explicit(&m->bytes, sizeof *l + l->n, memory_order_relaxed);
    free(l);
}

bool sm_log_reserve(sm_mem_log *log)
{
    if (log->n < log->cap)
        return true;
    /* What left the front makes room, if that is at least half: so each event moves rarely. */
    if (log->head > 0 && log->head >= log->n / 2) {
        log->n -= log->head;
        memmove(log->p, log->p + log->head, log->n * sizeof *log->p);
        log->head = 0;
        return true;
    }
    size_t cap = log->cap == 0 ? 64 : log->cap * 2;
    sm_logged **p = realloc(log->p, cap * sizeof *p);
    if (p == NULL)
        return false;
    log->p = p;
    log->cap = cap;
    return true;
}

void sm_log_append(sm_memory *m, sm_mem_log *log, sm_logged *l)
{
    assert(log->n < log->cap);
    l->e.seq = ++m->last_seq;
    log->p[log->n++] = l;
    if (m->log_waiters > 0)
        pthread_cond_broadcast(&m->logged);
}

/* The first place whose seq is over `after`. */
static size_t log_find(const sm_mem_log *log, uint64_t after)
{
    size_t low = log->head, high = log->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (log->p[middle]->e.seq <= after)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Gathers what comes after `after`, each held. The commit lock is held. */
static size_t gather_all(sm_memory *m, uint64_t after, size_t limit, sm_logged **out)
{
    size_t event = log_find(&m->log, after), seal = log_find(&m->seals, after), n = 0;
    while (n < limit && (event < m->log.n || seal < m->seals.n)) {
        bool is_seal = event == m->log.n ||
                       (seal < m->seals.n && m->seals.p[seal]->e.seq < m->log.p[event]->e.seq);
        out[n++] = is_seal ? m->seals.p[seal++] : m->log.p[event++];
    }
    return n;
}

static size_t gather_effect(sm_memory *m, const semel_ref *of, uint64_t after, size_t limit,
                            sm_logged **out)
{
    const sm_ident *ident = sm_ident_find(m, of->id);
    size_t n = 0;
    for (sm_logged *l = ident == NULL ? NULL : ident->first; l != NULL && n < limit; l = l->next) {
        if (l->e.seq > after && (of->generation == 0 || l->e.generation == of->generation))
            out[n++] = l;
    }
    return n;
}

semel_err sm_memory_events(semel_store *st, const semel_ref *of, uint64_t *after, size_t limit,
                           semel_event_sink *sink, void *context, semel_fault *fault)
{
    (void)fault;
    sm_memory *m = sm_memory_of(st);
    sm_logged *batch[SM_MEMORY_BATCH];
    bool more = true;
    while (more && limit > 0) {
        size_t want = limit < SM_MEMORY_BATCH ? limit : SM_MEMORY_BATCH;
        pthread_mutex_lock(&m->commit);
        size_t n = of == NULL ? gather_all(m, *after, want, batch)
                              : gather_effect(m, of, *after, want, batch);
        for (size_t i = 0; i < n; i++)
            atomic_fetch_add_explicit(&batch[i]->held, 1, memory_order_relaxed);
        pthread_mutex_unlock(&m->commit);
        more = n == want;
        limit -= n;
        bool on = true;
        for (size_t i = 0; i < n; i++) {
            if (on) {
                *after = batch[i]->e.seq;
                on = sink(context, &batch[i]->e);
            }
            sm_logged_drop(m, batch[i]);
        }
        more = more && on;
    }
    return SEMEL_OK;
}

semel_err sm_memory_seal(semel_store *st, const semel_event *seal, uint64_t expect,
                         semel_fault *fault)
{
    (void)fault;
    sm_memory *m = sm_memory_of(st);
    sm_logged *l = sm_logged_new(m, seal);
    if (l == NULL)
        return SEMEL_E_NOMEM;
    l->e.id = 0;
    l->e.generation = 0;
    semel_err err = SEMEL_OK;
    pthread_mutex_lock(&m->commit);
    const sm_mem_log *seals = &m->seals;
    if ((seals->n == 0 ? 0 : seals->p[seals->n - 1]->e.seq) != expect) {
        err = SEMEL_E_STALE;
    } else if (!sm_log_reserve(&m->seals)) {
        err = SEMEL_E_NOMEM;
    } else {
        sm_log_append(m, &m->seals, l);
        l = NULL;
    }
    pthread_mutex_unlock(&m->commit);
    sm_logged_drop(m, l);
    return err;
}

/* ---- notes -----------------------------------------------------------------------------------*/

static sm_notebook *book_find(sm_memory *m, uint64_t id)
{
    sm_mem_link *link = sm_table_first(&m->notes, sm_number_hash(id));
    while (link != NULL && SM_CONTAINER(link, sm_notebook, link)->id != id)
        link = sm_table_next(link);
    return link == NULL ? NULL : SM_CONTAINER(link, sm_notebook, link);
}

static sm_notebook *book_make(sm_memory *m, uint64_t id)
{
    sm_notebook *book = book_find(m, id);
    if (book != NULL)
        return book;
    book = calloc(1, sizeof *book);
    if (book == NULL)
        return NULL;
    book->id = id;
    sm_table_add(&m->notes, &book->link, sm_number_hash(id));
    return book;
}

static sm_jotted *jotted_new(sm_memory *m, const semel_note *note)
{
    size_t n = note->what.n + note->scope.n + note->tool.n;
    sm_jotted *j = malloc(sizeof *j + n);
    if (j == NULL)
        return NULL;
    *j = (sm_jotted){.note = *note, .n = n};
    char *end = j->text;
    j->note.what = keep(&end, note->what);
    j->note.scope = keep(&end, note->scope);
    j->note.tool = keep(&end, note->tool);
    atomic_fetch_add_explicit(&m->bytes, sizeof *j + n, memory_order_relaxed);
    return j;
}

static void jotted_drop(sm_memory *m, sm_jotted *j)
{
    if (j == NULL)
        return;
    atomic_fetch_sub_explicit(&m->bytes, sizeof *j + j->n, memory_order_relaxed);
    free(j);
}

void sm_jotted_free(sm_memory *m, sm_jotted *j)
{
    sm_notebook *book = j->book;
    *(j->prev == NULL ? &book->first : &j->prev->next) = j->next;
    *(j->next == NULL ? &book->last : &j->next->prev) = j->prev;
    if (book->first == NULL) {
        sm_table_remove(&m->notes, &book->link);
        free(book);
    }
    sm_heap_remove(&m->notes_old, &j->old);
    jotted_drop(m, j);
}

semel_err sm_memory_journal(semel_store *st, const semel_note *notes, size_t n, semel_fault *fault)
{
    (void)fault;
    sm_memory *m = sm_memory_of(st);
    semel_err err = SEMEL_OK;
    pthread_mutex_lock(&m->notes_lock);
    for (size_t i = 0; i < n && err == SEMEL_OK; i++) {
        /* The book comes last: one without a note would never be freed. */
        sm_jotted *j =
            sm_heap_reserve(&m->notes_old, m->notes_old.n + 1) ? jotted_new(m, &notes[i]) : NULL;
        sm_notebook *book = j == NULL ? NULL : book_make(m, notes[i].id);
        if (book == NULL) {
            jotted_drop(m, j);
            err = SEMEL_E_NOMEM;
            break;
        }
        j->book = book;
        j->prev = book->last;
        *(book->last == NULL ? &book->first : &book->last->next) = j;
        book->last = j;
        sm_heap_set(&m->notes_old, &j->old, notes[i].last_at);
    }
    pthread_mutex_unlock(&m->notes_lock);
    return err;
}

/* Copies the newest `limit` notes of one effect, oldest first. The notes' lock is held. */
static semel_err notes_gather(sm_memory *m, uint64_t id, uint64_t generation, size_t limit,
                              sm_jotted ***out, size_t *n)
{
    const sm_notebook *book = book_find(m, id);
    sm_jotted *first = NULL;
    size_t count = 0;
    for (sm_jotted *j = book == NULL ? NULL : book->last; j != NULL && count < limit; j = j->prev) {
        if (generation == 0 || j->note.generation == generation) {
            first = j;
            count++;
        }
    }
    if (count == 0)
        return SEMEL_OK;
    *out = calloc(count, sizeof **out);
    if (*out == NULL)
        return SEMEL_E_NOMEM;
    for (sm_jotted *j = first; j != NULL && *n < count; j = j->next) {
        if (generation != 0 && j->note.generation != generation)
            continue;
        (*out)[*n] = jotted_new(m, &j->note);
        if ((*out)[(*n)++] == NULL)
            return SEMEL_E_NOMEM;
    }
    return SEMEL_OK;
}

semel_err sm_memory_notes(semel_store *st, uint64_t id, uint64_t generation, size_t limit,
                          semel_note_sink *sink, void *context, semel_fault *fault)
{
    (void)fault;
    sm_memory *m = sm_memory_of(st);
    sm_jotted **copies = NULL;
    size_t n = 0;
    pthread_mutex_lock(&m->notes_lock);
    semel_err err = notes_gather(m, id, generation, limit, &copies, &n);
    pthread_mutex_unlock(&m->notes_lock);
    bool on = err == SEMEL_OK;
    for (size_t i = 0; i < n; i++) {
        on = on && sink(context, &copies[i]->note);
        jotted_drop(m, copies[i]);
    }
    free(copies);
    return err;
}
