/* Whose files may be that decide something. Takes root, to make files that are others'. */
#include "unit.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/trust.h"

enum { ROOT = 0, ANN = 12345, BOB = 12346, TEAM = 12347 };

static char top[64], file[128], other[128], ln[128];

static int setup(void **state)
{
    (void)state;
    strcpy(top, "/tmp/semel-trust-XXXXXX");
    assert_non_null(mkdtemp(top));
    snprintf(file, sizeof file, "%s/file", top);
    snprintf(other, sizeof other, "%s/file-wal", top);
    snprintf(ln, sizeof ln, "%s/link", top);
    for (int i = 0; i < 2; i++) {
        int fd = open(i == 0 ? file : other, O_RDWR | O_CREAT, 0600);
        assert_true(fd >= 0);
        close(fd);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(file);
    unlink(other);
    unlink(ln);
    return rmdir(top);
}

/* As somebody: what sm_trust says about a path; "" if it is right. */
static const char *verdict(uid_t who, const char *path, bool group)
{
    static sm_fault fault;
    struct stat st;
    fault = (sm_fault){0};
    assert_int_equal(stat(path, &st), 0);
    gid_t team = TEAM;
    assert_int_equal(setgroups(who == ANN ? 1 : 0, &team), 0);
    assert_int_equal(seteuid(who), 0);
    sm_err e = sm_trust(path, &st, group, SEMEL_E_INVALID, &fault);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(setgroups(0, NULL), 0);
    assert_int_equal(e, fault.text[0] == '\0' ? SM_OK : SEMEL_E_INVALID);
    return fault.text;
}

static void only_root_and_we_ourselves_can_change_it(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    static const struct {
        uid_t who, directory;
        mode_t directory_mode;
        uid_t owner;
        gid_t group;
        mode_t mode;
        bool shares;
        const char *says; /* "": it is right */
    } rows[] = {
        {ANN, ANN, 0700, ANN, ANN, 0600, false, ""},
        {ANN, ROOT, 0755, ANN, ANN, 0644, false, ""},
        {ANN, ROOT, 0755, ROOT, ROOT, 0644, false, ""},
        {ANN, ROOT, 01777, ANN, ANN, 0600, false, ""},  /* /tmp */
        {ANN, ROOT, 02775, ANN, TEAM, 0640, false, ""}, /* a project's directory */
        {ANN, ROOT, 01777, BOB, BOB, 0666, false,
         "is owned by the user \"12346\""}, /* he put it there */
        {ANN, ROOT, 0755, BOB, BOB, 0644, false, "chown 12345 /tmp/"},
        {ANN, ANN, 0700, ANN, ANN, 0602, false, "chmod 600 /tmp/"},
        {ANN, ANN, 0700, ANN, ANN, 0620, false, "chmod 600 /tmp/"},
        {ANN, ANN, 0700, ANN, TEAM, 0660, true, "chmod 600 /tmp/"},
        {ANN, ROOT, 0777, ANN, ANN, 0600, false, "chmod o-w /tmp/"},
        {ANN, BOB, 0755, ANN, ANN, 0600, false, "directory of your own"}, /* he can replace it */
        /* Root shares it with a group that this user is in; allowed for ledgers only. */
        {ANN, ROOT, 02770, ROOT, TEAM, 0660, true, ""},
        {ANN, ROOT, 02770, ROOT, TEAM, 0660, false, "chmod 600 /tmp/"},
        {ANN, ROOT, 02770, ROOT, TEAM, 0666, true, "chmod 600 /tmp/"},
        {ANN, ROOT, 0755, ROOT, BOB, 0660, true, "chmod 600 /tmp/"},
        /* Root administers what is a user's, in the user's directory. */
        {ROOT, ANN, 0700, ANN, ANN, 0600, false, ""},
        {ROOT, ANN, 0700, ROOT, ROOT, 0600, false, ""},
        {ROOT, ANN, 0755, BOB, BOB, 0644, false, "is owned by the user \"12346\""},
        {ROOT, ROOT, 01777, BOB, BOB, 0600, false, "chown root /tmp/"},
        {ROOT, ROOT, 0700, ROOT, ROOT, 0660, true, "chmod 600 /tmp/"},
        {ROOT, ROOT, 0777, ROOT, ROOT, 0600, false, "chmod o-w /tmp/"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(chown(top, rows[i].directory, TEAM), 0);
        assert_int_equal(chmod(top, rows[i].directory_mode), 0);
        assert_int_equal(chown(file, rows[i].owner, rows[i].group), 0);
        assert_int_equal(chmod(file, rows[i].mode), 0);
        const char *says = verdict(rows[i].who, file, rows[i].shares);
        expect(rows[i].says[0] == '\0' ? says[0] == '\0' : strstr(says, rows[i].says) != NULL,
               "row %zu: <%s>, expected <%s>", i, says, rows[i].says);
    }
}

static void a_link_counts_as_the_file_does(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(chmod(top, 01777), 0);
    assert_int_equal(chown(file, ANN, ANN), 0);
    assert_int_equal(symlink(file, ln), 0);
    assert_int_equal(lchown(ln, ANN, ANN), 0);
    assert_string_equal(verdict(ANN, ln, false), "");
    assert_int_equal(lchown(ln, BOB, BOB), 0); /* he leads us to another file of our own */
    const char *says = verdict(ANN, ln, false);
    expect(strstr(says, "is owned by the user \"12346\"") != NULL &&
               strstr(says, "chown -h 12345 /") != NULL,
           "%s", says);
    assert_non_null(strstr(verdict(ANN, "/dev/null", false), "not a file"));
}

static void every_link_on_the_way_counts(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    char bobs[96], inner[128], whole[128], through[160];
    snprintf(bobs, sizeof bobs, "%s/bobs", top);
    snprintf(inner, sizeof inner, "%s/inner", bobs);
    snprintf(whole, sizeof whole, "%s/top", bobs);
    snprintf(through, sizeof through, "%s/file", whole);
    assert_int_equal(chmod(top, 01777), 0);
    assert_int_equal(chown(file, ANN, ANN), 0);
    assert_int_equal(mkdir(bobs, 0755), 0);
    assert_int_equal(chown(bobs, BOB, BOB), 0);
    assert_int_equal(symlink("../file", inner), 0); /* to the file */
    assert_int_equal(symlink("..", whole), 0);      /* to its directory */
    assert_int_equal(symlink("bobs/inner", ln), 0); /* ours, which leads to his */
    assert_int_equal(lchown(ln, ANN, ANN), 0);
    const char *const paths[] = {ln, inner, through};
    for (int theirs = 0; theirs < 2; theirs++) {
        assert_int_equal(chown(bobs, theirs ? BOB : ANN, TEAM), 0);
        assert_int_equal(lchown(inner, theirs ? BOB : ANN, TEAM), 0);
        assert_int_equal(lchown(whole, theirs ? BOB : ANN, TEAM), 0);
        for (size_t i = 0; i < COUNT(paths); i++) {
            const char *says = verdict(ANN, paths[i], false);
            expect((says[0] != '\0') == (theirs == 1), "%s: %s", paths[i], says);
            expect(!theirs || strstr(says, "is owned by the user \"12346\"") != NULL, "%s: %s",
                   paths[i], says);
        }
    }
    unlink(inner);
    unlink(whole);
    assert_int_equal(rmdir(bobs), 0);
}

static void what_stands_beside_it_is_held_to_it(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    static const struct {
        uid_t owner;
        gid_t group;
        mode_t mode;
        uid_t beside;
        gid_t beside_group;
        mode_t beside_mode;
        const char *says;
    } rows[] = {
        {ROOT, ROOT, 0600, ROOT, ROOT, 0600, ""},
        {ANN, ANN, 0600, ANN, ANN, 0600, ""},
        {ROOT, ROOT, 0600, BOB, BOB, 0600,
         "is owned by the user \"12346\", who could put anything into it: look at it, or move it "
         "away. If you trust what is in it now: chown root"},
        {ROOT, ROOT, 0600, ROOT, ROOT, 0660, "chmod 600"},
        {ROOT, ROOT, 0600, ROOT, ROOT, 0602, "chmod 600"},
        {ROOT, TEAM, 0660, BOB, TEAM, 0660, ""}, /* made by somebody else of the group */
        {ROOT, TEAM, 0660, BOB, BOB, 0660, "is owned by the user \"12346\""},
        {ROOT, TEAM, 0660, BOB, TEAM, 0666, "chmod 600"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct stat st, beside;
        sm_fault fault = {0};
        assert_int_equal(chown(file, rows[i].owner, rows[i].group), 0);
        assert_int_equal(chmod(file, rows[i].mode), 0);
        assert_int_equal(chown(other, rows[i].beside, rows[i].beside_group), 0);
        assert_int_equal(chmod(other, rows[i].beside_mode), 0);
        assert_true(stat(file, &st) == 0 && lstat(other, &beside) == 0);
        sm_err e = sm_trust_beside(other, &beside, &st, SEMEL_E_INVALID, &fault);
        expect((e == SM_OK) == (rows[i].says[0] == '\0') &&
                   strstr(fault.text, rows[i].says) != NULL,
               "row %zu: <%s>, expected <%s>", i, fault.text, rows[i].says);
    }
}

static void a_directory_further_up_that_others_can_replace_is_found(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    static const struct {
        uid_t owner;
        mode_t mode;
        const char *says;
    } rows[] = {
        {ANN, 0700, ""},
        {ROOT, 0755, ""},
        {ROOT, 01777, ""},
        {ANN, 0775, ""}, /* a home directory under umask 002 */
        {ROOT, 0777, "chmod o-w /tmp/semel-trust"},
        {BOB, 0755, "is owned by the user \"12346\""},
    };
    char low[96], deep[160];
    snprintf(low, sizeof low, "%s/low", top);
    snprintf(deep, sizeof deep, "%s/lower/ledger.db", low);
    assert_true(mkdir(low, 0700) == 0 && chown(low, ANN, ANN) == 0);
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_fault fault = {0};
        assert_int_equal(chown(top, rows[i].owner, TEAM), 0);
        assert_int_equal(chmod(top, rows[i].mode), 0);
        assert_int_equal(seteuid(ANN), 0);
        sm_err e = sm_trust_parents(deep, SEMEL_E_INVALID, &fault);
        assert_int_equal(seteuid(0), 0);
        expect((e == SM_OK) == (rows[i].says[0] == '\0') &&
                   strstr(fault.text, rows[i].says) != NULL,
               "row %zu: <%s>, expected <%s>", i, fault.text, rows[i].says);
    }
    rmdir(low);
}

#define with_files(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_files(only_root_and_we_ourselves_can_change_it),
        with_files(a_link_counts_as_the_file_does),
        with_files(every_link_on_the_way_counts),
        with_files(what_stands_beside_it_is_held_to_it),
        with_files(a_directory_further_up_that_others_can_replace_is_found),
    };
    return cmocka_run_group_tests_name("trust", tests, NULL, NULL);
}
