/* A real cluster: slots that move while they are written to, and scripts on every node. */
#include "server.h"

#include "store/redis/redis.h"

static int setup(void **state)
{
    return there_is_a_server ? ledger_setup(state) : 0;
}

static int teardown(void **state)
{
    return there_is_a_server ? ledger_teardown(state) : 0;
}

#define on_cluster(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* ---- the cluster -----------------------------------------------------------------------------*/

#define NODES_MAX 16u
typedef struct node {
    place at;
    char id[64];
    redisContext *c;
    bool owner; /* of the slot in question */
} node;

/* The masters, and which of them owns the slot. */
static size_t find_nodes(node nodes[NODES_MAX], uint16_t slot)
{
    redisContext *c = call_server(&the_server);
    redisReply *r = ask_server(c, "CLUSTER SLOTS");
    size_t n = 0;
    for (size_t i = 0; i < r->elements; i++) {
        const redisReply *range = r->element[i], *master = range->element[2];
        size_t k = 0;
        while (k < n && strcmp(nodes[k].id, master->element[2]->str) != 0)
            k++;
        if (k == n && n < NODES_MAX) {
            nodes[n] = (node){.at.port = (int)master->element[1]->integer};
            snprintf(nodes[n].at.host, sizeof nodes[n].at.host, "%s", master->element[0]->str);
            snprintf(nodes[n].id, sizeof nodes[n].id, "%s", master->element[2]->str);
            nodes[n].c = call_server(&nodes[n].at);
            n++;
        }
        if (range->element[0]->integer <= slot && range->element[1]->integer >= slot)
            nodes[k].owner = true;
    }
    freeReplyObject(r);
    redisFree(c);
    return n;
}

static void free_nodes(node *nodes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        redisFree(nodes[i].c);
}

/* Moves a slot as redis-cli does, a few keys at a time, slowly enough to be met on the way. */
static void move_slot(uint16_t slot)
{
    node nodes[NODES_MAX];
    size_t n = find_nodes(nodes, slot), from = 0;
    assert_true(n >= 2);
    while (!nodes[from].owner)
        from++;
    node *a = &nodes[from], *b = &nodes[(from + 1) % n];
    tell_server(b->c, "CLUSTER SETSLOT %u IMPORTING %s", slot, a->id);
    tell_server(a->c, "CLUSTER SETSLOT %u MIGRATING %s", slot, b->id);
    for (bool more = true; more;) {
        redisReply *keys = ask_server(a->c, "CLUSTER GETKEYSINSLOT %u 20", slot);
        more = keys->elements > 0;
        for (size_t i = 0; i < keys->elements; i++) {
            char port[16];
            snprintf(port, sizeof port, "%d", b->at.port);
            const char *argv[] = {"MIGRATE", b->at.host, port, keys->element[i]->str, "0", "5000"};
            size_t len[] = {7, strlen(b->at.host), strlen(port), keys->element[i]->len, 1, 4};
            redisReply *r = redisCommandArgv(a->c, 6, argv, len);
            expect(r != NULL && r->type != REDIS_REPLY_ERROR, "MIGRATE: %s",
                   r == NULL ? "gone" : r->str);
            freeReplyObject(r);
        }
        freeReplyObject(keys);
        pause_ms(2);
    }
    tell_server(b->c, "CLUSTER SETSLOT %u NODE %s", slot, b->id);
    tell_server(a->c, "CLUSTER SETSLOT %u NODE %s", slot, b->id);
    for (size_t i = 0; i < n; i++)
        tell_server(nodes[i].c, "CLUSTER SETSLOT %u NODE %s", slot, b->id);
    free_nodes(nodes, n);
}

/* ---- tests -----------------------------------------------------------------------------------*/

typedef struct moving {
    atomic_bool over;
    char scope[24];
    uint8_t shard;
    uint16_t slot;
    atomic_uint done;
} moving;

/* A scope whose slot holds nothing yet: how long a move takes must not depend on other tests. */
static void find_empty_slot(moving *m)
{
    for (unsigned i = 0;; i++) {
        char tag[8];
        node nodes[NODES_MAX];
        snprintf(m->scope, sizeof m->scope, "mover-%u", i);
        m->shard = shard_of(m->scope);
        int len = snprintf(tag, sizeof tag, "{%02x}", m->shard);
        m->slot = sm_rd_slot((sm_str){tag, (size_t)len});
        size_t n = find_nodes(nodes, m->slot), from = 0;
        while (!nodes[from].owner)
            from++;
        redisReply *r = ask_server(nodes[from].c, "CLUSTER COUNTKEYSINSLOT %u", m->slot);
        bool empty = r->integer == 0;
        freeReplyObject(r);
        free_nodes(nodes, n);
        if (empty)
            return;
    }
}

static void write_or_move(worker *w)
{
    moving *m = w->context;
    ledger *l = &w->ledger;
    if (w->index == 0) {
        for (int i = 0; i < 3; i++) {
            pause_ms(50);
            move_slot(m->slot);
        }
        atomic_store(&m->over, true);
        return;
    }
    for (uint64_t i = 0; !atomic_load(&m->over) || i < 5; i++) {
        semel_write mine = fresh(w->index * 100000 + i);
        mine.next.scope = sm_str_from(m->scope);
        mine.next.shard = mine.event.shard = m->shard;
        semel_record cur;
        bool inserted = false;
        sm_arena_reset(&l->desk.arena);
        if (try_claim(l, &mine, &cur, &inserted) != SEMEL_OK || !inserted) {
            w->wrong = "a claim failed while a slot moved";
            return;
        }
        mine = change(&cur, SEMEL_S_SUCCEEDED);
        if (try_apply(l, &mine, &cur) != SEMEL_OK) {
            w->wrong = "a write failed while a slot moved";
            return;
        }
        atomic_fetch_add(&m->done, 1);
    }
}

static void nothing_is_lost_while_a_slot_moves(void **state)
{
    if (!there_is_a_server)
        skip();
    ledger *l = *state;
    moving m = {0};
    find_empty_slot(&m);
    run_workers(l, 5, write_or_move, &m);
    unsigned done = atomic_load(&m.done);
    assert_int_equal(events_of(l, 0, 0), 2 * done);
    semel_health h;
    expect_error(l->ops->health(l->st, true, &h, NULL), SEMEL_OK);
    assert_int_equal(h.records, done);
    assert_non_null(strstr(h.server, "cluster of"));
}

/* What is not there any more is asked for where the slot goes, which answers only who says so. */
static void a_slot_that_moves_is_asked_for_on_both_sides(void **state)
{
    if (!there_is_a_server)
        skip();
    ledger *l = *state;
    moving m = {0};
    find_empty_slot(&m);
    node nodes[NODES_MAX];
    size_t n = find_nodes(nodes, m.slot), from = 0;
    while (!nodes[from].owner)
        from++;
    node *a = &nodes[from], *b = &nodes[(from + 1) % n];
    tell_server(b->c, "CLUSTER SETSLOT %u IMPORTING %s", m.slot, a->id);
    tell_server(a->c, "CLUSTER SETSLOT %u MIGRATING %s", m.slot, b->id);
    int64_t value = -1;
    semel_err e = l->ops->counter(l->st, m.shard, SM_STR("spent"), &value, NULL);
    tell_server(a->c, "CLUSTER SETSLOT %u STABLE", m.slot);
    tell_server(b->c, "CLUSTER SETSLOT %u STABLE", m.slot);
    free_nodes(nodes, n);
    expect_error(e, SEMEL_OK);
    assert_int_equal(value, 0);
}

static void the_order_of_all_events_may_move_too(void **state)
{
    if (!there_is_a_server)
        skip();
    ledger *l = *state;
    fill(l, 1, 20);
    uint64_t seq = last_seq(l);
    move_slot(sm_rd_slot(SM_STR("{semel}")));
    assert_int_equal(last_seq(l), seq);
    fill(l, 100, 20);
    assert_int_equal(events_of(l, 0, 0), 80);
}

static void every_node_gets_the_scripts(void **state)
{
    if (!there_is_a_server)
        skip();
    ledger *l = *state;
    node nodes[NODES_MAX];
    size_t n = find_nodes(nodes, 0);
    for (size_t i = 0; i < n; i++)
        tell_server(nodes[i].c, "SCRIPT FLUSH");
    free_nodes(nodes, n);
    for (unsigned i = 1; i <= 40; i++) {
        char scope[24];
        snprintf(scope, sizeof scope, "tenant-%u/x", i);
        semel_write w = fresh(i);
        w.next.scope = sm_str_from(scope);
        w.next.shard = w.event.shard = shard_of(scope);
        claim_new(l, &w);
        semel_record got, cur = get_key(l, i);
        expect_error(
            try_get(l, &(semel_ref){.id = cur.id, .sharded = true, .shard = cur.shard}, &got),
            SEMEL_OK);
    }
    assert_int_equal(events_of(l, 0, 0), 40);
}

int cluster_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_cluster(every_node_gets_the_scripts),
        on_cluster(nothing_is_lost_while_a_slot_moves),
        on_cluster(a_slot_that_moves_is_asked_for_on_both_sides),
        on_cluster(the_order_of_all_events_may_move_too),
    };
    return cmocka_run_group_tests_name("cluster", tests, NULL, NULL);
}
