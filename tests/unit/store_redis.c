/*
 * What the Redis store does without a server: URLs, slots, records as bytes, and sentences that
 * tell no secrets. What it does with one is in tests/redis, and in the conformance suite.
 */
#include "unit.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "store/redis/redis.h"
#include "store/stores.h"

/* ---- URLs ------------------------------------------------------------------------------------*/

static void a_url_says_where_and_who(void **state)
{
    sm_arena *a = *state;
    const struct {
        const char *url, *host;
        int port, db;
        const char *user, *password, *prefix;
    } rows[] = {
        {"redis://", "localhost", 6379, 0, "", "", "semel:"},
        {"redis://h", "h", 6379, 0, "", "", "semel:"},
        {"redis://h:7000/3", "h", 7000, 3, "", "", "semel:"},
        {"redis://:pw@h/", "h", 6379, 0, "", "pw", "semel:"},
        {"redis://u:p%40%2F:w@h:1", "h", 1, 0, "u", "p@/:w", "semel:"},
        {"redis://u@[::1]:7000?prefix=a%3A", "::1", 7000, 0, "u", "", "a:"},
        {"redis://a@b@h", "h", 6379, 0, "a@b", "", "semel:"},
        {"redis://h?socket=/run/redis.sock", "/run/redis.sock", 0, 0, "", "", "semel:"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_rd_config c;
        sm_fault fault = {0};
        sm_err e = sm_rd_config_read(a, sm_str_from(rows[i].url), &c, &fault);
        expect(e == SM_OK, "%s: %s", rows[i].url, fault.text);
        assert_int_equal(c.n_places, 1);
        assert_string_equal(c.places[0].host, rows[i].host);
        assert_int_equal(c.places[0].port, rows[i].port);
        assert_int_equal(c.db, rows[i].db);
        expect_text(c.user, rows[i].user);
        expect_text(c.password, rows[i].password);
        expect_text(c.prefix, rows[i].prefix);
    }
}

static void a_url_may_name_several_hosts(void **state)
{
    sm_arena *a = *state;
    sm_rd_config c;
    char where[200];
    assert_int_equal(
        sm_rd_config_read(a, SM_STR("redis://u:p,w@h1:7000,[::1],[fe80::2]:1,h4/2"), &c, NULL),
        SM_OK);
    expect_text(c.password, "p,w");
    assert_int_equal(c.n_places, 4);
    sm_rd_config_where(&c, where, sizeof where);
    assert_string_equal(where, "redis://h1:7000,[::1]:6379,[fe80::2]:1,h4:6379/2");
    sm_rd_config_where(&c, where, 16);
    assert_string_equal(where, "redis://h1:7000");
}

static void options_have_defaults_and_bounds(void **state)
{
    sm_arena *a = *state;
    sm_rd_config c;
    assert_int_equal(sm_rd_config_read(a, SM_STR("redis://h"), &c, NULL), SM_OK);
    assert_int_equal(c.pool, 16);
    assert_int_equal(c.timeout_ms, 10000);
    assert_false(c.accept_loss);
    assert_int_equal(c.cluster, SM_RD_FIND_OUT);
    assert_int_equal(sm_rd_config_read(a,
                                       SM_STR("redis://h?pool=3&timeout=250&accept_data_loss=yes"
                                              "&cluster=no"),
                                       &c, NULL),
                     SM_OK);
    assert_int_equal(c.pool, 3);
    assert_int_equal(c.timeout_ms, 250);
    assert_true(c.accept_loss);
    assert_int_equal(c.cluster, SM_RD_PLAIN);
}

/* The URL holds a password, and no fault repeats it. */
static void a_bad_url_is_refused_without_its_secret(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *url, *says;
    } rows[] = {
        {"redis:h", "redis://user@host"},
        {"redis://u:hunter2@h:0", "port"},
        {"redis://u:hunter2@h:70000", "port"},
        {"redis://u:hunter2@h/x", "database"},
        {"redis://u:hunter2@h,", "comma"},
        {"redis://u:hunter2@,h", "comma"},
        {"redis://u:hunter2@h,h2:0", "port"},
        {"redis://u:hunter2@[::1", "host"},
        {"redis://u:hunter2@[::1]7000", "host"},
        {"redis://u:hunter2@a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "16"},
        {"redis://u:hunter2@h/99999999999999999999", "database"},
        {"redis://u:hunter2%4@h", "password"},
        {"redis://u:hunter2%00@h", "password"},
        {"redis://u:hunter2@h?pool=0", "pool"},
        {"redis://u:hunter2@h?pool=many", "pool"},
        {"redis://u:hunter2@h?timeout=1", "timeout"},
        {"redis://u:hunter2@h?cluster=maybe", "cluster=yes"},
        {"redis://u:hunter2@h?accept_data_loss=1", "accept_data_loss"},
        {"redis://u:hunter2@h?hunter2=1", "prefix, pool, timeout"},
        {"redis://u:hunter2@h?pool=1&pool=2", "twice"},
        {"redis://u:hunter2@h?prefix={x}", "braces"},
        {"redis://u:hunter2@h?password_file=/nowhere", "both"},
        {"redis://u@h?password_file=/nowhere/at/all", "/nowhere/at/all"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_rd_config c;
        sm_fault fault = {0};
        sm_err e = sm_rd_config_read(a, sm_str_from(rows[i].url), &c, &fault);
        expect(e != SM_OK, "%s was accepted", rows[i].url);
        expect(strstr(fault.text, rows[i].says) != NULL, "%s: %s", rows[i].url, fault.text);
        expect(strstr(fault.text, "hunter2") == NULL, "it tells: %s", fault.text);
    }
}

static void a_password_may_be_in_a_file(void **state)
{
    sm_arena *a = *state;
    char path[] = "/tmp/semel-redis-XXXXXX", url[128];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    fputs("hunter2\nmore\n", f);
    fclose(f);
    snprintf(url, sizeof url, "redis://u@h?password_file=%s", path);
    sm_rd_config c;
    assert_int_equal(sm_rd_config_read(a, sm_str_from(url), &c, NULL), SM_OK);
    expect_text(c.password, "hunter2");
    remove(path);
}

static void without_tls_a_tunnel_is_named(void **state)
{
    (void)state;
    semel_store_env env = {.size = sizeof env};
    semel_store *st;
    uint32_t caps;
    semel_fault fault = {0};
    assert_int_equal(sm_store_rediss.open(SM_STR("rediss://u:hunter2@h"), &env, &st, &caps, &fault),
                     SEMEL_E_UNAVAILABLE);
    assert_null(st);
    assert_int_equal(fault.code, SEMEL_E_BAD_ARGUMENTS); /* trying again does not help */
    assert_non_null(strstr(fault.text, "tunnel"));
    assert_null(strstr(fault.text, "hunter2"));
}

static void a_server_that_is_not_there_is_told_at_once(void **state)
{
    (void)state;
    semel_store_env env = {.size = sizeof env};
    semel_store *st;
    uint32_t caps;
    semel_fault fault = {0};
    int64_t began = sm_clock_mono_ns();
    assert_int_equal(
        sm_store_redis.open(SM_STR("redis://u:hunter2@127.0.0.1:1"), &env, &st, &caps, &fault),
        SEMEL_E_UNAVAILABLE);
    assert_null(st);
    assert_int_equal(fault.code, SEMEL_E_UNAVAILABLE); /* trying again may */
    assert_non_null(strstr(fault.text, "127.0.0.1:1"));
    assert_null(strstr(fault.text, "hunter2"));
    assert_true(sm_clock_mono_ns() - began < 5000000000);
}

static semel_err try_open(const char *url, semel_fault *fault)
{
    semel_store_env env = {.size = sizeof env};
    semel_store *st;
    uint32_t caps;
    return sm_store_redis.open(sm_str_from(url), &env, &st, &caps, fault);
}

/* Neither is anything said to our standard input, nor is it closed. */
static void without_a_socket_no_other_file_is_used(void **state)
{
    (void)state;
    char url[200] = "redis://?socket=/";
    struct rlimit before;
    semel_fault long_path = {0}, no_socket = {0};
    int input = dup(STDIN_FILENO), pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(dup2(pair[0], STDIN_FILENO), STDIN_FILENO);
    memset(url + strlen(url), 'x', 120);
    semel_err first = try_open(url, &long_path);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_max = before.rlim_max}), 0);
    semel_err second = try_open("redis://?socket=/x", &no_socket);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    close(pair[0]);
    char byte;
    bool untouched = recv(pair[1], &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN;
    close(pair[1]);
    close(STDIN_FILENO);
    if (input >= 0) {
        dup2(input, STDIN_FILENO);
        close(input);
    }
    assert_true(untouched);
    assert_int_equal(first, SEMEL_E_UNAVAILABLE);
    expect(strstr(long_path.text, strerror(ENAMETOOLONG)) != NULL, "%s", long_path.text);
    assert_int_equal(second, SEMEL_E_UNAVAILABLE);
    expect(strstr(no_socket.text, strerror(EMFILE)) != NULL, "%s", no_socket.text);
}

/* ---- waiting and asking ----------------------------------------------------------------------*/

/* errno is that of a call before: only of one that failed does it tell. */
static void a_wait_ends_although_a_call_was_interrupted_before(void **state)
{
    (void)state;
    int pair[2];
    redisReply *reply;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    sm_rd_conn c = {.fd = pair[0], .reader = redisReaderCreate()};
    assert_non_null(c.reader);
    alarm(60); /* ends one that waits on */
    errno = EINTR;
    sm_rd_talk done = sm_rd_hear(&c, -1, sm_clock_mono_ns() + 1000000, &reply);
    alarm(0);
    assert_int_equal(done, SM_RD_FINE);
    assert_null(reply);
    redisReaderFree(c.reader);
    close(pair[0]);
    close(pair[1]);
}

/* The room of a batch that was larger before is used again. */
static void only_what_is_asked_now_is_told_of(void **state)
{
    (void)state;
    semel_store *st = calloc(1, sizeof *st);
    sm_rd_batch b;
    semel_fault fault = {0};
    assert_non_null(st);
    sm_rd_batch_init(&b, st);
    sm_rd_command(&b, 0, "GET");
    sm_rd_call(&b, 0, SM_RD_WRITE, 0);
    b.asks[1].unsure = true;
    assert_int_equal(sm_rd_run(&b, 0, &fault), SEMEL_E_UNAVAILABLE); /* the deadline has passed */
    assert_non_null(strstr(fault.text, "may or may not"));
    sm_rd_batch_clear(&b);
    sm_rd_command(&b, 0, "GET");
    assert_int_equal(sm_rd_run(&b, 0, &fault), SEMEL_E_UNAVAILABLE);
    assert_null(strstr(fault.text, "may or may not"));
    sm_rd_batch_fini(&b);
    free(st);
}

static void a_server_that_is_named_again_is_the_same(void **state)
{
    (void)state;
    semel_store *st = calloc(1, sizeof *st);
    assert_non_null(st);
    assert_int_equal(sm_rd_map_init(st), SEMEL_OK);
    const sm_rd_node *first = sm_rd_node_of(st, "h", 1), *second = sm_rd_node_of(st, "h", 2),
                     *third = sm_rd_node_of(st, "g", 1);
    assert_true(first != second && first != third && second != third);
    for (unsigned i = 0; i < SM_RD_NODES_MAX; i++) {
        assert_ptr_equal(sm_rd_node_of(st, "h", 1), first);
        assert_ptr_equal(sm_rd_node_of(st, "h", 2), second);
        assert_ptr_equal(sm_rd_node_of(st, "g", 1), third);
    }
    sm_rd_map_fini(st);
    free(st);
}

/* ---- slots -----------------------------------------------------------------------------------*/

static void slots_are_those_of_a_cluster(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint16_t slot;
    } rows[] = {
        {"", 0},
        {"123456789", 0x31C3},
        {"foo", 12182},
        {"bar", 5061},
        {"hello", 866},
        {"{user1000}.following", 3443},
        {"{user1000}.followers", 3443},
        {"foo{}{bar}", 8363},
        {"foo{{bar}}zap", 4015},
        {"foo{bar}{zap}", 5061},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect(sm_rd_slot(sm_str_from(rows[i].key)) == rows[i].slot, "%s: %u", rows[i].key,
               sm_rd_slot(sm_str_from(rows[i].key)));
}

/* ---- bytes -----------------------------------------------------------------------------------*/

static semel_record a_record(void)
{
    semel_record r = {.id = 0xFFFFFFFFFFFFFFFF,
                      .generation = 0x123456789ABCDEF0,
                      .version = 7,
                      .shard = 255,
                      .state = SEMEL_S_CANCELED,
                      .tombstone = 1,
                      .fence = UINT64_MAX,
                      .events = 3,
                      .created_at = -1,
                      .updated_at = INT64_MAX,
                      .purge_at = INT64_MIN,
                      .scope = SM_STR("a/b"),
                      .step = SM_STR(""),
                      .tool = SM_STR("t"),
                      .life = {"\0\xFF", 2}};
    memset(&r.key, 0xAB, sizeof r.key);
    memset(&r.head, 0xCD, sizeof r.head);
    return r;
}

static void pack(const semel_record *r, sm_buf *out)
{
    char head[SM_RD_HEAD];
    sm_buf tail;
    sm_buf_init(&tail, 4096);
    sm_buf_init(out, 4096);
    sm_rd_record_pack(r, r->version, head, &tail);
    sm_buf_bytes(out, head, sizeof head);
    sm_buf_text(out, "0123456789abcdef");
    sm_buf_str(out, sm_buf_view(&tail));
    sm_buf_fini(&tail);
}

static void a_record_comes_back_from_its_bytes(void **state)
{
    (void)state;
    semel_record r = a_record(), back;
    char birth[SM_RD_BIRTH];
    sm_buf b;
    pack(&r, &b);
    assert_int_equal(sm_rd_record_unpack(sm_buf_view(&b), &back, birth, NULL), SEMEL_OK);
    assert_memory_equal(birth, "0123456789abcdef", sizeof birth);
    assert_true(back.id == r.id && back.generation == r.generation && back.version == 7);
    assert_true(back.shard == 255 && back.state == r.state && back.tombstone == 1);
    assert_true(back.fence == UINT64_MAX && back.events == 3 && back.created_at == -1);
    assert_true(back.updated_at == INT64_MAX && back.purge_at == INT64_MIN && back.due_at == 0);
    assert_memory_equal(&back.key, &r.key, sizeof r.key);
    assert_memory_equal(&back.group, &r.group, sizeof r.group);
    assert_memory_equal(&back.head, &r.head, sizeof r.head);
    expect_text(back.scope, "a/b");
    assert_true(back.step.p != NULL && back.step.n == 0 && back.caller.p == NULL);
    assert_true(sm_str_eq(back.life, r.life));
    sm_buf_fini(&b);
}

/* Whatever the bytes are: read within their bounds, and refused unless they are a whole record. */
static void hostile_bytes_are_refused(void **state)
{
    (void)state;
    semel_record r = a_record(), back;
    char birth[SM_RD_BIRTH];
    sm_buf b;
    pack(&r, &b);
    for (size_t n = 0; n < b.len; n++) { /* cut short, each in memory of its own size */
        char *copy = malloc(n + 1);
        assert_non_null(copy);
        memcpy(copy, b.p, n);
        sm_fault fault = {0};
        assert_int_equal(sm_rd_record_unpack((sm_str){copy, n}, &back, birth, &fault),
                         SEMEL_E_CORRUPT);
        assert_true(fault.text[0] != '\0');
        free(copy);
    }
    sm_buf_byte(&b, 'x'); /* and with something behind it */
    assert_int_equal(sm_rd_record_unpack(sm_buf_view(&b), &back, birth, NULL), SEMEL_E_CORRUPT);
    b.len--;
    uint64_t seed = 1;
    for (size_t i = 0; i < 20000; i++) {
        char *copy = malloc(b.len);
        semel_event event;
        semel_note note;
        assert_non_null(copy);
        memcpy(copy, b.p, b.len);
        for (uint32_t k = 0; k <= random_below(&seed, 4); k++)
            copy[random_below(&seed, (uint32_t)b.len)] = (char)next_random(&seed);
        if (sm_rd_record_unpack((sm_str){copy, b.len}, &back, birth, NULL) == SEMEL_OK)
            assert_true(back.state < SEMEL_S_COUNT);
        copy[0] = '1';
        sm_rd_event_unpack((sm_str){copy, b.len}, &event, NULL);
        sm_rd_note_unpack((sm_str){copy, b.len}, &note, NULL);
        free(copy);
    }
    sm_buf_fini(&b);
}

static void events_and_notes_come_back(void **state)
{
    (void)state;
    semel_event e = {.id = 5,
                     .generation = 2,
                     .shard = 9,
                     .index = 3,
                     .at = 77,
                     .what = SM_STR("started"),
                     .body = SM_STR("{}")},
                back;
    memset(&e.hash, 1, sizeof e.hash);
    semel_note n = {.id = 0,
                    .first_at = 1,
                    .last_at = 2,
                    .count = 3,
                    .what = SM_STR("replayed"),
                    .scope = SM_STR("s"),
                    .tool = SM_STR("t")},
               note;
    sm_buf b;
    sm_buf_init(&b, 4096);
    sm_rd_event_pack(&e, &b);
    assert_int_equal(sm_rd_event_unpack(sm_buf_view(&b), &back, NULL), SEMEL_OK);
    assert_true(back.id == 5 && back.generation == 2 && back.shard == 9 && back.index == 3);
    assert_true(back.at == 77 && back.actor.p == NULL);
    expect_text(back.what, "started");
    assert_memory_equal(&back.hash, &e.hash, sizeof e.hash);
    sm_buf_clear(&b);
    sm_rd_note_pack(&n, &b);
    assert_int_equal(sm_rd_note_unpack(sm_buf_view(&b), &note, NULL), SEMEL_OK);
    assert_true(note.count == 3 && note.first_at == 1 && note.last_at == 2);
    expect_text(note.tool, "t");
    sm_buf_fini(&b);
}

static void members_of_sets_are_read_with_care(void **state)
{
    (void)state;
    sm_rd_member m;
    assert_true(sm_rd_member_read(SM_STR("0123456789abcdef00000000000000ff1a"), &m));
    assert_true(m.id == 0xFF && m.generation == 0x1A);
    static const char *const bad[] = {"", "0123456789abcdef", "0123456789abcdef00000000000000ff",
                                      "0123456789abcdeg00000000000000ff1",
                                      "0123456789abcdef00000000000000ff11111111111111111"};
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_false(sm_rd_member_read(sm_str_from(bad[i]), &m));
}

/* ---- sentences -------------------------------------------------------------------------------*/

static void errors_of_the_server_become_sentences(void **state)
{
    (void)state;
    static const struct {
        const char *error, *says;
    } rows[] = {
        {"OOM command not allowed", "out of memory"},
        {"MISCONF Redis is configured", "disk"},
        {"NOAUTH Authentication required.", "password"},
        {"WRONGPASS invalid username-password pair", "does not accept"},
        {"NOPERM this user has no permissions to run the 'evalsha' command", "evalsha"},
        {"CLUSTERDOWN Hash slot not served", "slots"},
        {"ERR something else", "something else"},
        {"OOMPH", "OOMPH"},
        {"", "refused"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_fault fault = {0};
        assert_int_equal(sm_rd_explain(sm_str_from(rows[i].error), &fault), SEMEL_E_UNAVAILABLE);
        expect(strstr(fault.text, rows[i].says) != NULL, "%s: %s", rows[i].error, fault.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_arena(a_url_says_where_and_who),
        with_arena(a_url_may_name_several_hosts),
        with_arena(options_have_defaults_and_bounds),
        with_arena(a_bad_url_is_refused_without_its_secret),
        with_arena(a_password_may_be_in_a_file),
        cmocka_unit_test(without_tls_a_tunnel_is_named),
        cmocka_unit_test(a_server_that_is_not_there_is_told_at_once),
        cmocka_unit_test(without_a_socket_no_other_file_is_used),
        cmocka_unit_test(a_wait_ends_although_a_call_was_interrupted_before),
        cmocka_unit_test(only_what_is_asked_now_is_told_of),
        cmocka_unit_test(a_server_that_is_named_again_is_the_same),
        cmocka_unit_test(slots_are_those_of_a_cluster),
        cmocka_unit_test(a_record_comes_back_from_its_bytes),
        cmocka_unit_test(hostile_bytes_are_refused),
        cmocka_unit_test(events_and_notes_come_back),
        cmocka_unit_test(members_of_sets_are_read_with_care),
        cmocka_unit_test(errors_of_the_server_become_sentences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
