/* Tokens: who they stand for, what a file of them may look like, and changing it. */
#include "unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/tokens.h"

#define NOW 1763280000000

/* A directory of the test's own, and the path of a file two directories further down. */
typedef struct place {
    char top[64], file[128];
} place;

static int place_setup(void **state)
{
    static place p;
    strcpy(p.top, "/tmp/semel-tokens-XXXXXX");
    assert_non_null(mkdtemp(p.top));
    snprintf(p.file, sizeof p.file, "%s/a/b/tokens.json", p.top);
    *state = &p;
    return 0;
}

static int place_teardown(void **state)
{
    const place *p = *state;
    const char *const inner[] = {"a/b/", "a/", ""};
    for (size_t i = 0; i < COUNT(inner); i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", p->top, inner[i]);
        DIR *d = opendir(path);
        for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
            char file[700];
            snprintf(file, sizeof file, "%s%s", path, e->d_name);
            unlink(file);
        }
        if (d != NULL)
            closedir(d);
        rmdir(path);
    }
    return 0;
}

#define with_place(test) cmocka_unit_test_setup_teardown(test, place_setup, place_teardown)

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    chmod(path, 0600);
}

/* Makes a token that must be made. */
static gw_token create(const char *path, gw_role role, const char *scope, int64_t ends_at,
                       char text[GW_TOKEN_TEXT])
{
    gw_token what = {.name = "ci", .role = role, .ends_at = ends_at}, made;
    sm_fault fault = {0};
    strcpy(what.scope, scope);
    sm_err e = gw_token_create(path, &what, text, &made, &fault);
    expect(e == SM_OK, "%s", fault.text);
    return made;
}

static gw_tokens *open_tokens(const char *path)
{
    gw_tokens *t;
    sm_fault fault = {0};
    sm_err e = gw_tokens_open(path, &t, &fault);
    expect(e == SM_OK, "%s", fault.text);
    return t;
}

static bool known(gw_tokens *t, const char *text)
{
    gw_who who;
    return gw_tokens_check(t, sm_str_from(text), NOW, &who);
}

static void a_token_stands_for_who_it_was_made_for(void **state)
{
    const place *p = *state;
    char text[GW_TOKEN_TEXT];
    gw_tokens *t = open_tokens(p->file); /* which is not there yet */
    assert_int_equal(gw_tokens_count(t), 0);
    gw_token made = create(p->file, GW_AGENT, "acme/ci", 0, text);
    assert_int_equal(strlen(text), 6 + 8 + 1 + 43);
    assert_int_equal(strncmp(text, "semel_", 6), 0);
    gw_who who; /* at once, for a token that is not known makes it look */
    assert_true(gw_tokens_check(t, sm_str_from(text), NOW, &who));
    assert_int_equal(who.role, GW_AGENT);
    assert_string_equal(who.id, made.id);
    assert_string_equal(who.scope, "acme/ci");
    char actor[100];
    snprintf(actor, sizeof actor, "ci (token %s)", made.id);
    assert_string_equal(who.actor, actor);
    gw_tokens_close(t);
}

static void nothing_else_stands_for_anybody(void **state)
{
    const place *p = *state;
    char text[GW_TOKEN_TEXT], other[GW_TOKEN_TEXT];
    create(p->file, GW_ADMIN, "", 0, text);
    create(p->file, GW_AGENT, "", 0, other);
    gw_tokens *t = open_tokens(p->file);
    assert_true(known(t, text));
    for (size_t i = 0; text[i] != '\0'; i++) { /* any one character changed */
        char wrong[GW_TOKEN_TEXT];
        strcpy(wrong, text);
        wrong[i] = wrong[i] == 'x' ? 'y' : 'x';
        expect(!known(t, wrong), "%s passes for %s", wrong, text);
    }
    memcpy(other, text, 14); /* the id of one with the secret of another */
    assert_false(known(t, other));
    assert_false(known(t, ""));
    assert_false(known(t, "semel_"));
    strcat(text, "A");
    assert_false(known(t, text));
    gw_who who;
    assert_false(gw_tokens_check(t, (sm_str){0}, NOW, &who));
    assert_int_equal(who.role, 0);
    assert_false(gw_who_owns(&who, SM_STR("any")));
    gw_tokens_close(t);
}

static void a_token_ends(void **state)
{
    const place *p = *state;
    char text[GW_TOKEN_TEXT];
    create(p->file, GW_AGENT, "", NOW, text);
    gw_tokens *t = open_tokens(p->file);
    gw_who who;
    assert_true(gw_tokens_check(t, sm_str_from(text), NOW - 1, &who));
    assert_false(gw_tokens_check(t, sm_str_from(text), NOW, &who));
    assert_int_equal(who.role, 0);
    gw_tokens_close(t);
}

static void a_revoked_token_is_nobodys(void **state)
{
    const place *p = *state;
    char one[GW_TOKEN_TEXT], two[GW_TOKEN_TEXT], three[GW_TOKEN_TEXT];
    create(p->file, GW_AGENT, "a", 0, one);
    gw_token made = create(p->file, GW_AGENT, "b", 0, two);
    create(p->file, GW_AGENT, "c", 0, three);
    gw_tokens *t = open_tokens(p->file);
    sm_fault fault;
    assert_int_equal(gw_token_revoke(p->file, sm_str_from(made.id), &fault), SM_OK);
    assert_true(gw_tokens_changed(t));
    assert_int_equal(gw_tokens_refresh(t, NULL), SM_OK);
    assert_false(gw_tokens_changed(t));
    assert_true(known(t, one));
    assert_false(known(t, two));
    assert_true(known(t, three));
    assert_int_equal(gw_token_revoke(p->file, sm_str_from(made.id), &fault), SEMEL_E_NOT_FOUND);
    assert_non_null(strstr(fault.text, "semel token list"));
    gw_tokens_close(t);
}

/* Tokens end by being revoked, not because a file system was not mounted or a script went wrong. */
static void a_file_that_vanishes_leaves_its_tokens_in_force(void **state)
{
    const place *p = *state;
    char text[GW_TOKEN_TEXT], aside[200], unknown[GW_TOKEN_TEXT];
    create(p->file, GW_AGENT, "a", 0, text);
    gw_tokens *t = open_tokens(p->file);
    snprintf(aside, sizeof aside, "%s.aside", p->file);
    assert_int_equal(rename(p->file, aside), 0);
    strcpy(unknown, text);
    memcpy(unknown + 6, "aaaaaaaa", 8);
    assert_false(known(t, unknown)); /* which makes it look, but takes no word from anybody */
    assert_true(gw_tokens_changed(t));
    for (int i = 0; i < 2; i++) {
        sm_fault fault = {0};
        assert_int_equal(gw_tokens_refresh(t, &fault), SEMEL_E_IO);
        expect(strstr(fault.text, "is gone") != NULL && strstr(fault.text, p->file) != NULL, "%s",
               fault.text);
        assert_false(gw_tokens_changed(t)); /* it is told once */
        assert_true(known(t, text));
    }
    assert_int_equal(rename(aside, p->file), 0);
    assert_true(gw_tokens_changed(t));
    assert_int_equal(gw_tokens_refresh(t, NULL), SM_OK);
    assert_false(gw_tokens_changed(t));
    assert_true(known(t, text));
    gw_tokens_close(t);
}

static void a_file_that_comes_and_vanishes_between_two_looks_is_told(void **state)
{
    const place *p = *state;
    char text[GW_TOKEN_TEXT];
    gw_tokens *t = open_tokens(p->file); /* which is not there yet */
    create(p->file, GW_AGENT, "a", 0, text);
    assert_true(known(t, text));
    assert_int_equal(unlink(p->file), 0);
    assert_true(gw_tokens_changed(t));
    assert_int_equal(gw_tokens_refresh(t, NULL), SEMEL_E_IO);
    assert_true(known(t, text));
    gw_tokens_close(t);
}

static void a_file_that_is_not_there_yet_has_no_tokens(void **state)
{
    const place *p = *state;
    gw_tokens *t = open_tokens(p->file);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(gw_tokens_count(t), 0);
        assert_false(gw_tokens_changed(t));
        assert_int_equal(gw_tokens_refresh(t, NULL), SM_OK);
    }
    gw_tokens_close(t);
}

/* Who a file belongs to. */
static uid_t owner(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_uid;
}

#define SOMEBODY 12345u

/* What root makes in somebody's directory is theirs: the file, the lock, and directories. */
static void root_takes_nothing_away(void **state)
{
    const place *p = *state;
    char text[GW_TOKEN_TEXT], lock[200], inner[200];
    if (geteuid() != 0)
        skip();
    assert_int_equal(chown(p->top, SOMEBODY, SOMEBODY), 0);
    snprintf(lock, sizeof lock, "%s.lock", p->file);
    snprintf(inner, sizeof inner, "%s/a/b", p->top);
    create(p->file, GW_AGENT, "a", 0, text);
    assert_int_equal(owner(p->file), SOMEBODY);
    assert_int_equal(owner(lock), SOMEBODY);
    assert_int_equal(owner(inner), SOMEBODY);
    assert_int_equal(chown(lock, 0, 0), 0); /* as it was once left behind */
    create(p->file, GW_AGENT, "b", 0, text);
    assert_int_equal(owner(lock), SOMEBODY);
    /* Something else under the lock's name stays its owner's. */
    unlink(lock);
    write_file(lock, "not empty");
    create(p->file, GW_AGENT, "c", 0, text);
    assert_int_equal(owner(lock), 0);
}

static void a_lock_that_cannot_be_had_is_named(void **state)
{
    const place *p = *state;
    char text[GW_TOKEN_TEXT], lock[200];
    create(p->file, GW_AGENT, "a", 0, text);
    snprintf(lock, sizeof lock, "%s.lock", p->file);
    unlink(lock);
    assert_int_equal(symlink("/dev/null", lock), 0); /* which is not followed */
    gw_token what = {.name = "x", .role = GW_AGENT}, made;
    sm_fault fault = {0};
    assert_int_equal(gw_token_create(p->file, &what, text, &made, &fault), SEMEL_E_IO);
    expect(strstr(fault.text, lock) != NULL, "%s", fault.text);
}

static void a_scope_is_owned_by_whole_segments(void **state)
{
    (void)state;
    static const struct {
        const char *prefix, *scope;
        bool owns;
    } rows[] = {
        {"", "anything/at/all", true}, {"acme", "acme", true},       {"acme", "acme/run", true},
        {"acme", "acme2", false},      {"acme", "acm", false},       {"acme/a", "acme", false},
        {"acme/a", "acme/a/b", true},  {"acme/a", "acme/ab", false}, {"acme", "", false},
        {"acme", "Acme", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        gw_who who = {.role = GW_AGENT};
        strcpy(who.scope, rows[i].prefix);
        expect(gw_who_owns(&who, sm_str_from(rows[i].scope)) == rows[i].owns, "%s of %s",
               rows[i].scope, rows[i].prefix);
    }
}

static void the_file_is_its_owners_and_holds_no_secret(void **state)
{
    const place *p = *state;
    char text[GW_TOKEN_TEXT], bytes[4096], path[200];
    struct stat st;
    create(p->file, GW_ADMIN, "", 0, text);
    assert_int_equal(stat(p->file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    snprintf(path, sizeof path, "%s/a", p->top);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    FILE *f = fopen(p->file, "r");
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_null(memmem(bytes, n, text + 15, 43));
    snprintf(path, sizeof path, "%s.new", p->file);
    assert_int_equal(access(path, F_OK), -1);
}

/* A right file with one token, whose parts can be replaced. */
#define ENTRY(id, name, role, rest)                                                                \
    "{\"id\":\"" id "\",\"name\":\"" name "\",\"role\":\"" role                                    \
    "\",\"sha256\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\",\"made_at_ms\":1" rest "}"
#define FILE_OF(entries) "{\"version\":1,\"tokens\":[" entries "]}"

#define NO_KEY "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

static sm_hash key_of(gw_tokens *t)
{
    sm_hash key;
    gw_tokens_session_key(t, &key);
    return key;
}

#define assert_key(t, key, same)                                                                   \
    do {                                                                                           \
        sm_hash now_ = key_of(t);                                                                  \
        assert_true((memcmp(&now_, &(key), sizeof now_) == 0) == (same));                          \
    } while (0)

static void the_key_for_sessions_is_the_files_and_stays(void **state)
{
    const place *p = *state;
    char text[GW_TOKEN_TEXT];
    gw_token made = create(p->file, GW_AGENT, "a", 0, text);
    gw_tokens *one = open_tokens(p->file), *two = open_tokens(p->file);
    sm_hash key = key_of(one);
    assert_key(two, key, true);
    create(p->file, GW_AGENT, "a", 0, text);
    assert_int_equal(gw_token_revoke(p->file, sm_str_from(made.id), NULL), SM_OK);
    assert_int_equal(gw_tokens_refresh(one, NULL), SM_OK);
    assert_key(one, key, true);
    /* A file of before there were keys: each process has one of its own until the next change. */
    write_file(p->file, FILE_OF(ENTRY("k3v9x2ma", "n", "agent", "")));
    assert_int_equal(gw_tokens_refresh(one, NULL), SM_OK);
    assert_int_equal(gw_tokens_refresh(two, NULL), SM_OK);
    assert_key(one, key, false);
    key = key_of(one);
    assert_key(one, key, true);
    assert_key(two, key, false);
    create(p->file, GW_AGENT, "a", 0, text);
    assert_int_equal(gw_tokens_refresh(one, NULL), SM_OK);
    assert_int_equal(gw_tokens_refresh(two, NULL), SM_OK);
    key = key_of(one);
    assert_key(two, key, true);
    gw_tokens_close(one);
    gw_tokens_close(two);
}

static void a_bad_file_leaves_the_old_tokens_in_force(void **state)
{
    const place *p = *state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "tokens.json:1:1"},
        {"{", "tokens.json:1:2"},
        {"[]", "expected an object"},
        {"{\"version\":1}", "needs the field \"tokens\""},
        {"{\"version\":2,\"tokens\":[]}", "version: expected 1"},
        {"{\"version\":1,\"session_key\":\"short\",\"tokens\":[]}", "session_key: expected"},
        {"{\"version\":1,\"session_key\":\"" NO_KEY "\",\"tokens\":[]}", "session_key: expected"},
        {FILE_OF("5"), "a token is an object"},
        {FILE_OF(ENTRY("K3v9x2ma", "n", "agent", "")), "lowercase letters and digits"},
        {FILE_OF(ENTRY("k3v9", "n", "agent", "")), "lowercase letters and digits"},
        {FILE_OF(ENTRY("k3v9x2ma", "a\\nb", "agent", "")), "visible text"},
        {FILE_OF(ENTRY("k3v9x2ma", "n", "root", "")),
         "expected agent, approver, operator or admin"},
        {FILE_OF(ENTRY("k3v9x2ma", "n", "agent", ",\"scope\":\"a//b\"")), "empty segment"},
        {FILE_OF(ENTRY("k3v9x2ma", "n", "agent", ",\"scop\":\"a\"")), "did you mean \"scope\"?"},
        {FILE_OF(ENTRY("k3v9x2ma", "n", "agent", ",\"ends_at_ms\":-1")), "whole number"},
        {FILE_OF(ENTRY("k3v9x2ma", "n", "agent", "") "," ENTRY("k3v9x2ma", "m", "admin", "")),
         "is there twice"},
    };
    char text[GW_TOKEN_TEXT];
    create(p->file, GW_AGENT, "a", 0, text);
    gw_tokens *t = open_tokens(p->file);
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_fault fault = {0};
        write_file(p->file, rows[i].text);
        expect(gw_tokens_refresh(t, &fault) != SM_OK, "%s is taken", rows[i].text);
        expect(strstr(fault.text, rows[i].says) != NULL, "%s: %s", rows[i].text, fault.text);
        assert_true(known(t, text));
        assert_false(gw_tokens_changed(t));
        expect(gw_tokens_refresh(t, &fault) != SM_OK, "%s is taken then", rows[i].text);
        gw_token what = {.name = "x", .role = GW_AGENT}, made;
        char other[GW_TOKEN_TEXT];
        expect(gw_token_create(p->file, &what, other, &made, &fault) != SM_OK, "%s is written over",
               rows[i].text);
        assert_string_equal(other, "");
        gw_tokens *fresh;
        expect(gw_tokens_open(p->file, &fresh, &fault) != SM_OK, "%s opens", rows[i].text);
    }
    write_file(p->file, FILE_OF(ENTRY("k3v9x2ma", "n", "agent", "")));
    assert_int_equal(gw_tokens_refresh(t, NULL), SM_OK);
    assert_false(known(t, text));
    gw_tokens_close(t);
}

static void a_file_that_others_may_write_to_is_refused(void **state)
{
    const place *p = *state;
    char text[GW_TOKEN_TEXT];
    create(p->file, GW_AGENT, "a", 0, text);
    gw_tokens *t;
    sm_fault fault;
    static const mode_t bad[] = {0620, 0602, 0666};
    for (size_t i = 0; i < COUNT(bad); i++) {
        chmod(p->file, bad[i]);
        assert_int_equal(gw_tokens_open(p->file, &t, &fault), SEMEL_E_INVALID);
        assert_non_null(strstr(fault.text, "chmod 600"));
    }
    if (geteuid() == 0) {
        chmod(p->file, 0600);
        assert_int_equal(chown(p->file, SOMEBODY, SOMEBODY), 0); /* in a directory of ours */
        assert_int_equal(gw_tokens_open(p->file, &t, &fault), SEMEL_E_INVALID);
        assert_non_null(strstr(fault.text, "is owned by the user \"12345\""));
        assert_int_equal(chown(p->file, 0, 0), 0);
    }
    chmod(p->file, 0640); /* reading does no harm: it holds hashes */
    gw_tokens_close(open_tokens(p->file));
    assert_int_equal(gw_tokens_open(p->top, &t, &fault), SEMEL_E_INVALID); /* a directory */
}

static void wishes_are_checked(void **state)
{
    const place *p = *state;
    char text[GW_TOKEN_TEXT];
    gw_token what = {.role = GW_AGENT, .name = ""}, made;
    sm_fault fault;
    assert_int_equal(gw_token_create(p->file, &what, text, &made, &fault), SEMEL_E_BAD_ARGUMENTS);
    strcpy(what.name, "n");
    strcpy(what.scope, "/a");
    assert_int_equal(gw_token_create(p->file, &what, text, &made, &fault), SEMEL_E_BAD_ARGUMENTS);
    assert_int_equal(access(p->file, F_OK), -1);
}

static bool count_and_stop(void *context, const gw_token *t)
{
    expect(strcmp(t->name, "ci") == 0, "%s", t->name);
    return ++*(int *)context < 2;
}

static void tokens_are_told_one_by_one(void **state)
{
    const place *p = *state;
    char text[GW_TOKEN_TEXT];
    int told = 0;
    for (int i = 0; i < 3; i++)
        create(p->file, GW_AGENT, "", 0, text);
    assert_int_equal(gw_token_each(p->file, count_and_stop, &told, NULL), SM_OK);
    assert_int_equal(told, 2);
}

static void a_link_stays_a_link(void **state)
{
    const place *p = *state;
    char text[GW_TOKEN_TEXT], link[100];
    struct stat st;
    create(p->file, GW_AGENT, "", 0, text);
    snprintf(link, sizeof link, "%s/link.json", p->top);
    assert_int_equal(symlink(p->file, link), 0);
    create(link, GW_AGENT, "", 0, text);
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    gw_tokens *t = open_tokens(p->file);
    assert_int_equal(gw_tokens_count(t), 2);
    gw_tokens_close(t);
}

/* ---- at the same time ------------------------------------------------------------------------*/

static void processes_that_make_tokens_lose_none(void **state)
{
    const place *p = *state;
    enum { PROCESSES = 4, EACH = 10 };
    for (int i = 0; i < PROCESSES; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid > 0)
            continue;
        for (int j = 0; j < EACH; j++) {
            gw_token what = {.name = "n", .role = GW_AGENT}, made;
            char text[GW_TOKEN_TEXT];
            if (gw_token_create(p->file, &what, text, &made, NULL) != SM_OK)
                _exit(1);
        }
        _exit(0);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    gw_tokens *t = open_tokens(p->file);
    assert_int_equal(gw_tokens_count(t), PROCESSES * EACH);
    gw_tokens_close(t);
}

typedef struct checking {
    gw_tokens *t;
    const char *text;
    atomic_bool stop;
    atomic_int wrong, checks;
} checking;

static void *check_on(void *context)
{
    checking *c = context;
    while (!atomic_load(&c->stop)) {
        if (!known(c->t, c->text))
            atomic_fetch_add(&c->wrong, 1);
        atomic_fetch_add(&c->checks, 1);
    }
    return NULL;
}

static void checks_go_on_while_the_file_changes(void **state)
{
    const place *p = *state;
    char text[GW_TOKEN_TEXT], other[GW_TOKEN_TEXT];
    create(p->file, GW_AGENT, "", 0, text);
    checking c = {.t = open_tokens(p->file), .text = text};
    pthread_t threads[3];
    for (size_t i = 0; i < COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, check_on, &c), 0);
    for (int i = 0; i < 50 || atomic_load(&c.checks) == 0; i++) {
        create(p->file, GW_AGENT, "", 0, other);
        assert_int_equal(gw_tokens_refresh(c.t, NULL), SM_OK);
        assert_true(known(c.t, other));
    }
    atomic_store(&c.stop, true);
    for (size_t i = 0; i < COUNT(threads); i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&c.wrong), 0);
    gw_tokens_close(c.t);
}

static void roles_have_names(void **state)
{
    (void)state;
    static const gw_role roles[] = {GW_AGENT, GW_APPROVER, GW_OPERATOR, GW_ADMIN};
    for (size_t i = 0; i < COUNT(roles); i++) {
        gw_role role;
        assert_true(gw_role_parse(sm_str_from(gw_role_name(roles[i])), &role));
        assert_int_equal(role, roles[i]);
    }
    gw_role role;
    assert_false(gw_role_parse(SM_STR("Agent"), &role));
    assert_false(gw_role_parse(SM_STR("nobody"), &role));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_place(a_token_stands_for_who_it_was_made_for),
        with_place(nothing_else_stands_for_anybody),
        with_place(a_token_ends),
        with_place(a_revoked_token_is_nobodys),
        with_place(a_file_that_vanishes_leaves_its_tokens_in_force),
        with_place(a_file_that_comes_and_vanishes_between_two_looks_is_told),
        with_place(a_file_that_is_not_there_yet_has_no_tokens),
        with_place(root_takes_nothing_away),
        with_place(a_lock_that_cannot_be_had_is_named),
        cmocka_unit_test(a_scope_is_owned_by_whole_segments),
        with_place(the_file_is_its_owners_and_holds_no_secret),
        with_place(the_key_for_sessions_is_the_files_and_stays),
        with_place(a_bad_file_leaves_the_old_tokens_in_force),
        with_place(a_file_that_others_may_write_to_is_refused),
        with_place(wishes_are_checked),
        with_place(tokens_are_told_one_by_one),
        with_place(a_link_stays_a_link),
        with_place(processes_that_make_tokens_lose_none),
        with_place(checks_go_on_while_the_file_changes),
        cmocka_unit_test(roles_have_names),
    };
    return cmocka_run_group_tests_name("gateway_tokens", tests, NULL, NULL);
}
