/* The conformance tests' ledgers, records, sinks and threads. */
#include "conformance.h"

#include <pthread.h>
#include <time.h>

#include "core/handle.h"

/* ---- ledgers ---------------------------------------------------------------------------------*/

static void *desk_alloc(semel_room *room, size_t n)
{
    desk *d = (desk *)(void *)room;
    return sm_arena_alloc(&d->arena, n);
}

void desk_init(desk *d)
{
    *d = (desk){.room = {desk_alloc}};
    sm_arena_init(&d->arena, SM_ARENA_MAX);
}

void desk_fini(desk *d)
{
    sm_arena_fini(&d->arena);
}

semel_err ledger_open(ledger *l, bool must_exist, semel_fault *fault)
{
    const char *partitions = getenv("SEMEL_STORE_PARTITIONS");
    semel_store_env env = {
        .size = sizeof env, .cache_bytes = (size_t)64 << 20, .must_exist = must_exist};
    if (partitions != NULL && !must_exist) {
        env.migrate = true;
        env.partitions = (uint32_t)atoi(partitions);
    }
    return l->ops->open(sm_str_from(l->url), &env, &l->st, &l->caps, fault);
}

void ledger_close(ledger *l)
{
    l->ops->close(l->st);
    l->st = NULL;
}

int ledger_setup(void **state)
{
    if (ledger_name(state) != 0)
        return -1;
    semel_fault fault = {0};
    if (ledger_open(*state, false, &fault) == SEMEL_OK)
        return 0;
    print_error("the ledger cannot be opened: %s\n", fault.text);
    return -1;
}

int ledger_unname(void **state)
{
    ledger *l = *state;
    l->ops->close(l->st); /* which accepts NULL */
    desk_fini(&l->desk);
    free(l);
    return 0;
}

int ledger_teardown(void **state)
{
    ledger *l = *state;
    semel_health health;
    semel_fault fault = {0};
    semel_err err = l->ops->health(l->st, true, &health, &fault);
    if (err != SEMEL_OK)
        print_error("after the test the ledger is not sound: %s\n", fault.text);
    ledger_unname(state);
    return err == SEMEL_OK ? 0 : -1;
}

void needs_caps(const ledger *l, uint32_t caps)
{
    if ((l->caps & caps) != caps)
        skip();
}

/* ---- time ------------------------------------------------------------------------------------*/

int64_t clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void pause_ms(int64_t ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* ---- records and writes ----------------------------------------------------------------------*/

static semel_hash hash_of(uint64_t seed)
{
    semel_hash h;
    for (size_t i = 0; i < sizeof h.b; i += 8) {
        uint64_t x = next_random(&seed);
        memcpy(h.b + i, &x, 8);
    }
    return h;
}

semel_hash key_of(uint64_t n)
{
    return hash_of(n);
}

uint64_t id_of(const semel_hash *key)
{
    sm_digest d;
    uint64_t id = 0;
    if (sm_digest_init(&d) == SM_OK)
        sm_effect_id(&d, key, &id);
    sm_digest_fini(&d);
    return id;
}

uint8_t shard_of(const char *scope)
{
    sm_digest d;
    uint8_t shard = 0;
    if (sm_digest_init(&d) == SM_OK)
        sm_scope_shard(&d, sm_str_from(scope), &shard);
    sm_digest_fini(&d);
    return shard;
}

/* Puts an event at the end of the record's chain. */
static void add_event(semel_write *w, const char *what)
{
    semel_record *r = &w->next;
    w->event = (semel_event){.id = r->id,
                             .generation = r->generation,
                             .shard = r->shard,
                             .index = r->events + 1,
                             .at = w->now,
                             .what = sm_str_from(what),
                             .actor = SM_STR("tester"),
                             .body = SM_STR("{\"by\":\"a test\"}"),
                             .prev = r->head,
                             .hash = hash_of(r->id + r->generation * 1000 + r->events)};
    r->events++;
    r->head = w->event.hash;
}

semel_write fresh(uint64_t n)
{
    semel_write w = {.now = clock_ms()};
    semel_hash key = key_of(n);
    w.next = (semel_record){.key = key,
                            .id = id_of(&key),
                            .generation = 1,
                            .shard = shard_of(SCOPE),
                            .state = SEMEL_S_RUNNING,
                            .fence = 1,
                            .fingerprint = hash_of(n + 1000000),
                            .created_at = w.now,
                            .updated_at = w.now,
                            .lease_end = w.now + 3600000,
                            .due_at = w.now + 3600000,
                            .scope = SM_STR(SCOPE),
                            .tool = SM_STR("shop.charge"),
                            .args = SM_STR("{\"amount\":1000}"),
                            .life = SM_STR("a life")};
    add_event(&w, "started");
    return w;
}

semel_write change(const semel_record *cur, semel_state state)
{
    semel_write w = {.next = *cur,
                     .expect_generation = cur->generation,
                     .expect_version = cur->version,
                     .now = clock_ms()};
    semel_record *r = &w.next;
    r->state = (uint8_t)state;
    r->updated_at = w.now;
    if (state != SEMEL_S_RUNNING)
        r->lease_end = 0;
    if (semel_state_settled(state)) {
        r->due_at = 0;
        r->settled_at = w.now;
        r->outcome = SM_STR("{\"id\":\"ch_1\"}");
        r->result_end = r->window_end = r->purge_at = INT64_MAX;
    }
    add_event(&w, semel_state_name(state));
    return w;
}

semel_write repeat(const semel_record *cur)
{
    semel_write w = {.next = *cur,
                     .expect_generation = cur->generation,
                     .expect_version = cur->version,
                     .now = clock_ms()};
    semel_record *r = &w.next;
    r->generation++;
    r->state = SEMEL_S_RUNNING;
    r->fence++;
    r->head = (semel_hash){{0}};
    r->events = 0;
    r->created_at = r->updated_at = w.now;
    r->lease_end = r->due_at = w.now + 3600000;
    r->settled_at = r->result_end = r->window_end = r->purge_at = 0;
    r->outcome = (semel_str){0};
    add_event(&w, "started");
    return w;
}

void set_windows(semel_record *r, int64_t result_ms, int64_t window_ms, int64_t purge_ms)
{
    int64_t now = clock_ms();
    r->result_end = result_ms == 0 ? INT64_MAX : now + result_ms;
    r->window_end = window_ms == 0 ? INT64_MAX : now + window_ms;
    r->purge_at = purge_ms == 0 ? INT64_MAX : now + purge_ms;
}

semel_err try_claim(ledger *l, const semel_write *w, semel_record *cur, bool *inserted)
{
    int64_t now;
    return l->ops->claim(l->st, w, &l->desk.room, cur, &now, inserted, NULL);
}

semel_err try_apply(ledger *l, const semel_write *w, semel_record *cur)
{
    int64_t now;
    return l->ops->apply(l->st, w, &l->desk.room, cur, &now, NULL);
}

semel_err try_get(ledger *l, const semel_ref *ref, semel_record *cur)
{
    int64_t now;
    return l->ops->get(l->st, ref, &l->desk.room, cur, &now, NULL);
}

semel_record claim_new(ledger *l, const semel_write *w)
{
    semel_record cur;
    bool inserted = false;
    expect_error(try_claim(l, w, &cur, &inserted), SEMEL_OK);
    expect(inserted, "the key was there already");
    return cur;
}

semel_record apply_to(ledger *l, const semel_write *w)
{
    semel_record cur;
    expect_error(try_apply(l, w, &cur), SEMEL_OK);
    return cur;
}

semel_record get_key(ledger *l, uint64_t n)
{
    semel_hash key = key_of(n);
    semel_record cur;
    expect_error(try_get(l, &(semel_ref){.key = &key}, &cur), SEMEL_OK);
    return cur;
}

semel_record settled(ledger *l, uint64_t n)
{
    semel_write w = fresh(n);
    semel_record cur = claim_new(l, &w);
    w = change(&cur, SEMEL_S_SUCCEEDED);
    return apply_to(l, &w);
}

/* ---- comparing -------------------------------------------------------------------------------*/

static bool same_text(semel_str a, semel_str b)
{
    return (a.p == NULL) == (b.p == NULL) && sm_str_eq(a, b);
}

static bool same_hash(const semel_hash *a, const semel_hash *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

#define NUMBERS(X)                                                                                 \
    X(id)                                                                                          \
    X(generation)                                                                                  \
    X(version)                                                                                     \
    X(shard)                                                                                       \
    X(state)                                                                                       \
    X(tombstone)                                                                                   \
    X(fence)                                                                                       \
    X(events)                                                                                      \
    X(created_at)                                                                                  \
    X(updated_at)                                                                                  \
    X(lease_end)                                                                                   \
    X(due_at)                                                                                      \
    X(settled_at)                                                                                  \
    X(result_end)                                                                                  \
    X(window_end)                                                                                  \
    X(purge_at)
#define HASHES(X)                                                                                  \
    X(key)                                                                                         \
    X(group)                                                                                       \
    X(fingerprint)                                                                                 \
    X(head)
#define TEXTS(X)                                                                                   \
    X(scope)                                                                                       \
    X(step)                                                                                        \
    X(tool)                                                                                        \
    X(caller)                                                                                      \
    X(args)                                                                                        \
    X(life)                                                                                        \
    X(outcome)

/* The name of the first field in which two records differ, or NULL. */
static const char *difference(const semel_record *a, const semel_record *b)
{
#define X(field)                                                                                   \
    if (a->field != b->field)                                                                      \
        return #field;
    NUMBERS(X)
#undef X
#define X(field)                                                                                   \
    if (!same_hash(&a->field, &b->field))                                                          \
        return #field;
    HASHES(X)
#undef X
#define X(field)                                                                                   \
    if (!same_text(a->field, b->field))                                                            \
        return #field;
    TEXTS(X)
#undef X
    return NULL;
}

void expect_record_at(const semel_record *actual, const semel_record *expected, const char *file,
                      int line)
{
    const char *field = difference(actual, expected);
    if (field != NULL) {
        print_error("%s:%d: the records differ in %s\n", file, line, field);
        fail();
    }
}

void expect_written(const semel_record *actual, const semel_write *w, uint64_t version)
{
    semel_record expected = w->next;
    expected.version = version;
    expect_record(actual, &expected);
}

semel_err peek_truly(ledger *l, uint64_t n)
{
    semel_hash key = key_of(n);
    semel_record peeked, got;
    int64_t now = 0, before = clock_ms();
    if (l->ops->peek == NULL)
        return SEMEL_E_NOT_FOUND;
    semel_err err = l->ops->peek(l->st, &key, &l->desk.room, &peeked, &now);
    if (err == SEMEL_E_NOT_FOUND)
        return err;
    expect_error(err, SEMEL_OK);
    if ((l->caps & SEMEL_STORE_CLOCK) == 0)
        assert_true(now >= before && now <= clock_ms());
    expect_error(try_get(l, &(semel_ref){.key = &key}, &got), SEMEL_OK);
    expect_record(&peeked, &got);
    return err;
}

uint64_t last_seq(ledger *l)
{
    semel_health health;
    expect_error(l->ops->health(l->st, false, &health, NULL), SEMEL_OK);
    return health.last_seq;
}

uint64_t seal_before_purge(ledger *l)
{
    semel_health h;
    semel_err err;
    do { /* others may seal too */
        expect_error(l->ops->health(l->st, false, &h, NULL), SEMEL_OK);
        semel_event seal = {.index = h.seal_index + 1,
                            .at = clock_ms(),
                            .what = SM_STR("purged"),
                            .body = SM_STR("{}")};
        err = l->ops->seal(l->st, &seal, h.seal_seq, NULL);
    } while (err == SEMEL_E_STALE);
    expect_error(err, SEMEL_OK);
    return h.last_seq;
}

static bool count_event(void *context, const semel_event *e)
{
    (void)e;
    ++*(size_t *)context;
    return true;
}

size_t events_of(ledger *l, uint64_t id, uint64_t generation)
{
    size_t n = 0;
    uint64_t after = 0;
    expect_error(l->ops->events(l->st, of_effect(&(semel_ref){.id = id, .generation = generation}),
                                &after, SIZE_MAX / 2, count_event, &n, NULL),
                 SEMEL_OK);
    return n;
}

int64_t counter_of(ledger *l, const char *name)
{
    int64_t value = -1;
    expect_error(l->ops->counter(l->st, shard_of(SCOPE), sm_str_from(name), &value, NULL),
                 SEMEL_OK);
    return value;
}

/* ---- sinks -----------------------------------------------------------------------------------*/

seen *seen_new(void)
{
    seen *s = calloc(1, sizeof *s);
    assert_non_null(s);
    sm_arena_init(&s->arena, SM_ARENA_MAX);
    return s;
}

void seen_free(seen *s)
{
    sm_arena_fini(&s->arena);
    free(s);
}

void seen_clear(seen *s)
{
    sm_arena_reset(&s->arena);
    s->n = 0;
    s->stop_after = 0;
}

static void own(seen *s, semel_str *text)
{
    if (text->p != NULL)
        *text = sm_arena_text(&s->arena, *text);
}

static bool go_on(seen *s)
{
    return ++s->n < SEEN_MAX && s->n != s->stop_after;
}

bool see_record(void *context, const semel_record *r, int64_t now)
{
    seen *s = context;
    semel_record *copy = &s->records[s->n];
    (void)now;
    *copy = *r;
#define X(field) own(s, &copy->field);
    TEXTS(X)
#undef X
    return go_on(s);
}

bool see_event(void *context, const semel_event *e)
{
    seen *s = context;
    semel_event *copy = &s->events[s->n];
    *copy = *e;
    own(s, &copy->what);
    own(s, &copy->actor);
    own(s, &copy->body);
    return go_on(s);
}

bool see_note(void *context, const semel_note *n)
{
    seen *s = context;
    semel_note *copy = &s->notes[s->n];
    *copy = *n;
    own(s, &copy->what);
    own(s, &copy->scope);
    own(s, &copy->tool);
    return go_on(s);
}

/* ---- threads ---------------------------------------------------------------------------------*/

typedef struct start {
    worker worker;
    worker_fn *work;
    pthread_barrier_t *gate;
} start;

static void *worker_main(void *p)
{
    start *s = p;
    pthread_barrier_wait(s->gate);
    s->work(&s->worker);
    return NULL;
}

void run_workers(ledger *l, size_t n, worker_fn *work, void *context)
{
    start *starts = calloc(n, sizeof *starts);
    pthread_t *threads = calloc(n, sizeof *threads);
    pthread_barrier_t gate;
    assert_non_null(starts);
    assert_non_null(threads);
    pthread_barrier_init(&gate, NULL, (unsigned)n);
    for (size_t i = 0; i < n; i++) {
        starts[i] = (start){.worker = {.ledger = *l, .index = i, .of = n, .context = context},
                            .work = work,
                            .gate = &gate};
        desk_init(&starts[i].worker.ledger.desk);
        assert_int_equal(pthread_create(&threads[i], NULL, worker_main, &starts[i]), 0);
    }
    const char *wrong = NULL;
    for (size_t i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        if (starts[i].worker.wrong != NULL)
            wrong = starts[i].worker.wrong;
        desk_fini(&starts[i].worker.ledger.desk);
    }
    pthread_barrier_destroy(&gate);
    free(starts);
    free(threads);
    expect(wrong == NULL, "%s", wrong);
}

typedef struct filling {
    uint64_t first;
    size_t n;
} filling;

static void fill_some(worker *w)
{
    const filling *f = w->context;
    for (size_t i = w->index; i < f->n; i += w->of) {
        semel_write claim = fresh(f->first + i);
        semel_record cur;
        bool inserted;
        if (try_claim(&w->ledger, &claim, &cur, &inserted) != SEMEL_OK || !inserted) {
            w->wrong = "a new key cannot be claimed";
            return;
        }
        semel_write done = change(&cur, SEMEL_S_SUCCEEDED);
        if (try_apply(&w->ledger, &done, &cur) != SEMEL_OK)
            w->wrong = "a record cannot be settled";
        sm_arena_reset(&w->ledger.desk.arena);
    }
}

void fill(ledger *l, uint64_t first, size_t n)
{
    run_workers(l, 16, fill_some, &(filling){first, n});
}
