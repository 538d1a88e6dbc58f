/* A file that went back in time under a ledger: what ran never runs again, and the ledger says that
 * it has lost something. */
#include "ledger.h"

#include <sqlite3.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "store/sqlite/sqlite.h"

#define CONTRACT                                                                                   \
    "{version: 1, tools: {t: {class: irreversible}, often: {class: write_idempotent}, held: "      \
    "{class: write}}}"

static char url[512];

/* The file's name with something behind it; one at a time. */
static const char *path_of(const char *suffix)
{
    static char path[600];
    snprintf(path, sizeof path, "%s%s", url + strlen("sqlite:"), suffix);
    return path;
}

static void copy(const char *from, const char *to)
{
    sqlite3 *a = NULL, *b = NULL;
    assert_int_equal(sqlite3_open(from, &a), SQLITE_OK);
    assert_int_equal(sqlite3_open(to, &b), SQLITE_OK);
    sqlite3_busy_timeout(b, 5000);
    sqlite3_backup *all = sqlite3_backup_init(b, "main", a, "main");
    assert_non_null(all);
    assert_int_equal(sqlite3_backup_step(all, -1), SQLITE_DONE);
    assert_int_equal(sqlite3_backup_finish(all), SQLITE_OK);
    sqlite3_close(a);
    sqlite3_close(b);
}

/* As with sqlite3's .backup and .restore: the file stays the same one. */
static void back_up(const char *name)
{
    char to[600];
    snprintf(to, sizeof to, "%s", path_of(name));
    copy(path_of(""), to);
}

static void restore(const char *name)
{
    char from[600];
    snprintf(from, sizeof from, "%s", path_of(name));
    copy(from, path_of(""));
}

/* How many events have these words in their name or body. */
static int events_with(const char *words)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    assert_int_equal(sqlite3_open(path_of(""), &db), SQLITE_OK);
    sqlite3_prepare_v2(db, "SELECT count(*) FROM event WHERE instr(what || body, ?1) > 0", -1,
                       &stmt, NULL);
    sqlite3_bind_text(stmt, 1, words, -1, SQLITE_STATIC);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    int n = sqlite3_column_int(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return n;
}

static ledger open_again(void)
{
    return (ledger){.s = open_ledger(url, CONTRACT, true), .a = semel_answer_new()};
}

static ledger start(void)
{
    snprintf(url, sizeof url, "%s", fresh_url());
    return open_again();
}

static void run_one(ledger *l, const char *args)
{
    assert_int_equal(begin(l, "t", args), SEMEL_OK);
    expect_execute(l);
    assert_int_equal(commit(l, "\"done\""), SEMEL_OK);
}

static bool says(const ledger *l, const char *words)
{
    return memmem(l->a->message.p, l->a->message.n, words, strlen(words)) != NULL;
}

static void expect_lost(ledger *l, const char *args)
{
    assert_int_equal(begin(l, "t", args), SEMEL_E_UNAVAILABLE);
    expect(l->a->verdict == SEMEL_REFUSED && l->a->claim.p == NULL, "it would run again");
    expect(says(l, "has lost effects that it had acknowledged") && says(l, "-semel"), "%.*s",
           SM_FMT(l->a->message));
}

static void expect_not_opened(void)
{
    semel *s = NULL;
    semel_fault fault = {0};
    semel_options o = {.size = sizeof o, .url = url, .contract = SM_STR(CONTRACT)};
    assert_int_equal(semel_open(&o, &s, &fault), SEMEL_E_UNAVAILABLE);
    assert_null(s);
    expect(strstr(fault.text, "has lost effects") != NULL, "%s", fault.text);
}

static void a_file_that_went_back_is_noticed_by_a_running_handle_and_by_the_next(void **state)
{
    (void)state;
    ledger l = start();
    run_one(&l, "{\"i\": 1}");
    back_up(".old");
    run_one(&l, "{\"i\": 2}");
    restore(".old");
    begin(&l, "t", "{\"i\": 2}");
    expect_replay(&l, "\"done\""); /* from memory, and still true */
    expect_lost(&l, "{\"i\": 3}");
    expect_lost(&l, "{\"i\": 2}"); /* nothing is answered any more */
    expect_not_opened();
    end_ledger(&l);
    expect_not_opened();
    forget_notes(url);
    l = open_again();
    begin(&l, "t", "{\"i\": 1}");
    expect_replay(&l, "\"done\"");
    run_one(&l, "{\"i\": 2}");
    end_ledger(&l);
}

static void a_file_that_went_back_and_on_is_noticed(void **state)
{
    (void)state;
    ledger l = start();
    back_up(".old");
    run_one(&l, "{\"i\": 1}");
    restore(".old");
    forget_notes(url);
    ledger other = open_again();
    run_one(&other, "{\"i\": 2}"); /* has the same numbers as what is gone */
    run_one(&other, "{\"i\": 3}");
    expect_lost(&l, "{\"i\": 5}");
    expect_lost(&l, "{\"i\": 1}");
    run_one(&other, "{\"i\": 4}"); /* it knows nothing of what was before */
    end_ledger(&l);
    end_ledger(&other);
}

static void what_another_handle_recorded_is_missed_too(void **state)
{
    (void)state;
    ledger idle = start(), l = open_again();
    back_up(".old");
    run_one(&l, "{\"i\": 1}");
    restore(".old");
    expect_lost(&idle, "{\"i\": 1}");
    end_ledger(&l);
    end_ledger(&idle);
}

/* Another handle that keeps events for a millisecond, and purges until all of these are gone. */
static void purge_all_events(void)
{
    semel *s = NULL;
    semel_fault fault = {0};
    semel_options o = {.size = sizeof o, .url = url, .one_shot = true, .audit_retention_ms = 1};
    uint64_t done = 0;
    expect(semel_open(&o, &s, &fault) == SEMEL_OK, "%s", fault.text);
    assert_int_equal(semel_seal(s, NULL), SEMEL_OK);
    int64_t deadline = sm_clock_deadline_ns(60000);
    while (done == 0) {
        assert_int_equal(semel_purge(s, NULL, NULL, &done, NULL), SEMEL_OK);
        expect(sm_clock_mono_ns() < deadline, "nothing is purged");
    }
    semel_close(s);
}

static void run_sql(const char *sql)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path_of(""), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void run_many(ledger *l, int from, int to)
{
    for (int i = from; i < to; i++) {
        char args[32];
        snprintf(args, sizeof args, "{\"i\": %d}", i);
        run_one(l, args);
    }
}

static void what_was_purged_is_not_missed(void **state)
{
    (void)state;
    ledger l = start();
    run_many(&l, 0, 3);
    purge_all_events();
    run_one(&l, "{\"i\": 3}");
    end_ledger(&l);
    l = open_again();
    run_one(&l, "{\"i\": 4}");
    end_ledger(&l);
}

/* The same for the user's note, which may be older than all of it. */
static void what_was_purged_since_the_users_note_is_not_missed(void **state)
{
    (void)state;
    char other[128];
    ledger l = start();
    run_many(&l, 0, 3);
    end_ledger(&l); /* which notes it */
    snprintf(other, sizeof other, "%s/another user", ledger_scratch());
    setenv("XDG_STATE_HOME", other, 1);
    purge_all_events();
    setenv("XDG_STATE_HOME", ledger_scratch(), 1);
    l = open_again();
    run_one(&l, "{\"i\": 4}");
    end_ledger(&l);
}

/* The newest events are cut off, and the number that calls events purged is raised to hide it. */
static void events_that_no_seal_calls_purged_are_missed(void **state)
{
    (void)state;
    ledger l = start();
    run_many(&l, 0, 2);
    run_sql("DELETE FROM event WHERE seq > 2; DELETE FROM effect WHERE n = 2; DELETE FROM name"
            " WHERE n = 2; UPDATE meta SET value = 1000 WHERE name = 'seq_floor'");
    expect_lost(&l, "{\"i\": 3}");
    end_ledger(&l);
    expect_not_opened();
}

/* ---- a whole directory -----------------------------------------------------------------------*/

/* Copies of the ledger's files while it is closed, and new files from these copies. */
static void copy_files(const char *from, const char *to)
{
    char command[1000];
    snprintf(command, sizeof command,
             "f='%s'; from=$f%s to=$f%s; rm -f \"$to\" \"$to-semel\" && cp -a \"$from\" \"$to\" &&"
             " cp -a \"$from-semel\" \"$to-semel\"",
             url + strlen("sqlite:"), from, to);
    assert_int_equal(system(command), 0);
}

static void a_directory_that_was_restored_is_noticed_by_the_next_process(void **state)
{
    (void)state;
    semel *s = NULL;
    semel_fault fault = {0};
    ledger l = start();
    run_one(&l, "{\"i\": 1}");
    end_ledger(&l);
    copy_files("", ".copy");
    l = open_again();
    run_one(&l, "{\"i\": 2}");
    end_ledger(&l);
    copy_files(".copy", "");
    expect_not_opened();
    semel_options o = {.size = sizeof o, .url = url};
    semel_open(&o, &s, &fault);
    expect(strstr(fault.text, notes_path()) != NULL, "%s", fault.text);
    forget_notes(url);
    l = open_again();
    begin(&l, "t", "{\"i\": 1}");
    expect_replay(&l, "\"done\"");
    run_one(&l, "{\"i\": 2}");
    end_ledger(&l);
    l = open_again();
    end_ledger(&l);
}

/* Neither a copy at another path nor another user is kept from it: there is no note. */
static void a_copy_at_another_path_is_not_refused(void **state)
{
    (void)state;
    char other[640], mine[512];
    ledger l = start();
    run_one(&l, "{\"i\": 1}");
    back_up(".old");
    run_one(&l, "{\"i\": 2}");
    end_ledger(&l);
    snprintf(mine, sizeof mine, "%s", url);
    snprintf(other, sizeof other, "%.500s.old", mine);
    snprintf(url, sizeof url, "%.511s", other);
    l = open_again();
    run_one(&l, "{\"i\": 2}");
    end_ledger(&l);
}

static void a_users_note_that_was_not_written_whole_counts_as_none(void **state)
{
    (void)state;
    char command[256];
    ledger l = start();
    run_one(&l, "{\"i\": 1}");
    end_ledger(&l);
    copy_files("", ".copy");
    l = open_again();
    run_one(&l, "{\"i\": 2}");
    end_ledger(&l);
    copy_files(".copy", "");
    expect_not_opened();
    snprintf(command, sizeof command, "truncate -s 3 '%s'/*", notes_path());
    assert_int_equal(system(command), 0);
    l = open_again();
    run_one(&l, "{\"i\": 2}");
    end_ledger(&l);
}

/* ---- logs ------------------------------------------------------------------------------------*/

/* In a process of its own that ends without closing the ledger. */
static void run_and_die(void)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        ledger l = open_again();
        run_one(&l, "{\"i\": 1}");
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void a_log_that_is_gone_is_noticed(void **state)
{
    (void)state;
    ledger l = start();
    end_ledger(&l);
    run_and_die();
    assert_int_equal(unlink(path_of("-wal")), 0);
    expect_not_opened();
}

static void a_log_or_its_index_that_is_gone_under_a_handle_stops_it(void **state)
{
    (void)state;
    static const char *const beside[] = {"-wal", "-shm"};
    for (size_t i = 0; i < COUNT(beside); i++) {
        char aside[640];
        ledger l = start();
        run_one(&l, "{\"i\": 1}");
        snprintf(aside, sizeof aside, "%s.aside", path_of(beside[i]));
        assert_int_equal(rename(path_of(beside[i]), aside), 0);
        assert_int_equal(begin(&l, "t", "{\"i\": 2}"), SEMEL_E_UNAVAILABLE);
        expect(says(&l, beside[i]), "%.*s", SM_FMT(l.a->message));
        assert_int_equal(rename(aside, path_of(beside[i])), 0);
        run_one(&l, "{\"i\": 2}");
        end_ledger(&l);
        l = open_again();
        begin(&l, "t", "{\"i\": 2}");
        expect_replay(&l, "\"done\"");
        end_ledger(&l);
    }
}

static void a_ledger_made_anew_is_another_one(void **state)
{
    (void)state;
    ledger l = start();
    run_one(&l, "{\"i\": 1}");
    end_ledger(&l);
    assert_int_equal(unlink(path_of("")), 0);
    l = open_again();
    run_one(&l, "{\"i\": 1}");
    end_ledger(&l);
}

static void a_note_that_was_not_written_whole_counts_as_none(void **state)
{
    (void)state;
    ledger l = start();
    back_up(".old");
    run_one(&l, "{\"i\": 1}");
    end_ledger(&l);
    FILE *f = fopen(path_of("-semel"), "r+");
    fseek(f, (long)offsetof(sm_sq_page, newest.hash), SEEK_SET);
    fputs("torn", f);
    fclose(f);
    l = open_again();
    run_one(&l, "{\"i\": 2}");
    end_ledger(&l);
}

/* Writes the bytes of one file into the other, as cp does. */
static void overwrite(const char *from, const char *to)
{
    char command[1400];
    snprintf(command, sizeof command, "cat '%s' >'%s'", from, to);
    assert_int_equal(system(command), 0);
}

static void a_file_that_is_overwritten_under_a_handle_is_noticed(void **state)
{
    (void)state;
    for (int warm = 0; warm < 2; warm++) {
        char old[600];
        ledger l = start();
        run_many(&l, 0, 100);
        end_ledger(&l);
        snprintf(old, sizeof old, "%s", path_of(".old"));
        overwrite(path_of(""), old);
        l = open_again();
        run_many(&l, 100, 150);
        end_ledger(&l);
        l = open_again();
        if (warm == 1)
            run_one(&l, "{\"i\": 150}");
        overwrite(old, path_of(""));
        expect_lost(&l, "{\"i\": 120}");
        end_ledger(&l);
        expect_not_opened();
    }
}

static void what_another_program_moves_or_packs_is_not_missed(void **state)
{
    (void)state;
    static const char *const ways[] = {"PRAGMA wal_checkpoint(TRUNCATE)",
                                       "VACUUM; PRAGMA wal_checkpoint(TRUNCATE)"};
    ledger l = start();
    run_many(&l, 0, 50);
    for (size_t i = 0; i < COUNT(ways); i++) {
        sqlite3 *db = NULL;
        assert_int_equal(sqlite3_open(path_of(""), &db), SQLITE_OK);
        sqlite3_busy_timeout(db, 5000);
        assert_int_equal(sqlite3_exec(db, ways[i], NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(db);
        run_many(&l, 100 + 10 * (int)i, 110 + 10 * (int)i);
    }
    end_ledger(&l);
    l = open_again();
    run_one(&l, "{\"i\": 200}");
    end_ledger(&l);
}

/* Attempts whose end says whether they did anything, one after the other. */
static void fail_times(ledger *l, const char *tool, int times, semel_applied applied)
{
    for (int i = 0; i < times; i++) {
        begin(l, tool, "{}");
        expect_execute(l);
        assert_int_equal(commit_as(l, l->claim, SEMEL_FAILURE, applied, ""), SEMEL_OK);
    }
}

static void fail_some(ledger *l, int times, semel_applied applied)
{
    fail_times(l, "often", times, applied);
}

static void forget(ledger *l)
{
    char effect[sizeof l->effect];
    strcpy(effect, l->effect);
    semel_forget(l->s, sm_str_from(effect), SM_STR("me"), SM_STR("again"), l->a);
    expect_verdict(l, SEMEL_DONE, SEMEL_C_NONE);
}

static void doubts_that_no_list_holds_are_counted_and_left_to_a_person(void **state)
{
    (void)state;
    ledger l = start();
    fail_some(&l, 9, SEMEL_APPLIED_UNKNOWN);
    back_up(".old");
    fail_some(&l, 7, SEMEL_APPLIED_UNKNOWN); /* 1 to 16 */
    back_up(".other");
    end_ledger(&l);
    restore(".old");
    forget_notes(url);
    l = open_again();
    fail_some(&l, 8, SEMEL_APPLIED_NO);
    fail_some(&l, 1, SEMEL_APPLIED_UNKNOWN); /* 1 to 9, and 18 */
    begin(&l, "often", "{}");
    expect_execute(&l);
    restore(".other");
    assert_int_equal(commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, ""), SEMEL_OK);
    expect(sm_str_is(l.a->result, "put_back"), "%.*s", SM_FMT(l.a->result));
    end_ledger(&l);
    forget_notes(url);
    l = open_again();
    begin(&l, "often", "{}");
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    end_ledger(&l);
    assert_int_equal(events_with("\"doubts_left_out\":1"), 1);
}

/* Others have begun and forgotten it since: it becomes the generation after theirs. */
static void doubts_are_kept_when_their_attempts_get_other_numbers(void **state)
{
    (void)state;
    ledger l = start();
    back_up(".old");
    fail_some(&l, 1, SEMEL_APPLIED_UNKNOWN);
    begin(&l, "often", "{}");
    expect_execute(&l);
    restore(".old");
    forget_notes(url);
    ledger other = open_again();
    fail_some(&other, 3, SEMEL_APPLIED_NO);
    forget(&other);
    assert_int_equal(commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, ""), SEMEL_OK);
    expect(sm_str_is(l.a->result, "put_back"), "%.*s", SM_FMT(l.a->result));
    end_ledger(&l);
    begin(&other, "often", "{}");
    expect_execute(&other);
    assert_int_equal(other.a->generation, 2);
    assert_int_equal(other.a->fence, 6); /* after three attempts of others and two of ours */
    commit_as(&other, other.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "");
    assert_int_equal(other.a->state, SEMEL_S_IN_DOUBT); /* our first attempt still is (I16) */
    end_ledger(&other);
}

/* ---- what others did since -------------------------------------------------------------------*/

/* The file goes back, and another handle goes on from there. */
static ledger go_back(const char *name)
{
    restore(name);
    forget_notes(url);
    return open_again();
}

/* How the lost attempt ended is recorded now. */
static void expect_put_back(ledger *l, const char *claim, semel_kind kind, semel_applied applied,
                            const char *value)
{
    assert_int_equal(commit_as(l, claim, kind, applied, value), SEMEL_OK);
    expect_text(l->a->result, "put_back");
}

static void what_nobody_knows_of_a_lost_attempt_is_told_when_no_other_runs(void **state)
{
    (void)state;
    ledger l = start();
    back_up(".old");
    begin(&l, "held", "{}");
    expect_execute(&l);
    ledger other = go_back(".old");
    begin(&other, "held", "{}");
    expect_execute(&other);
    assert_int_equal(commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, ""),
                     SEMEL_E_UNAVAILABLE);
    commit_as(&other, other.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "");
    assert_int_equal(other.a->state, SEMEL_S_FAILED);
    expect_put_back(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "");
    begin(&other, "held", "{}");
    expect_refused(&other, SEMEL_C_IN_DOUBT);
    end_ledger(&l);
    end_ledger(&other);
}

static void an_older_generation_gives_way_to_the_lost_one(void **state)
{
    (void)state;
    ledger l = start();
    begin(&l, "held", "{}");
    commit(&l, "\"one\"");
    back_up(".old");
    forget(&l);
    begin(&l, "held", "{}");
    expect_execute(&l);
    ledger other = go_back(".old");
    expect_put_back(&l, l.claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"two\"");
    assert_int_equal(l.a->generation, 2);
    begin(&other, "held", "{}");
    expect_replay(&other, "\"two\"");
    end_ledger(&l);
    end_ledger(&other);
}

/* Others have made as many attempts as the lost one has before it, or more. */
static void a_doubt_of_others_does_not_give_way_to_an_attempt_that_is_not_newer(void **state)
{
    (void)state;
    for (int forgotten = 0; forgotten < 2; forgotten++) {
        ledger l = start();
        back_up(".old");
        fail_times(&l, "held", forgotten ? 2 : 0, SEMEL_APPLIED_NO);
        begin(&l, "held", "{}");
        expect_execute(&l);
        ledger other = go_back(".old");
        if (forgotten) { /* fewer attempts, but a newer generation */
            fail_times(&other, "held", 1, SEMEL_APPLIED_NO);
            forget(&other);
        }
        fail_times(&other, "held", 1, SEMEL_APPLIED_UNKNOWN);
        assert_int_equal(other.a->generation, forgotten ? 2 : 1);
        assert_int_equal(other.a->state, SEMEL_S_IN_DOUBT);
        expect_put_back(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "");
        begin(&other, "held", "{}"); /* they may have done it (I16) */
        expect_refused(&other, SEMEL_C_IN_DOUBT);
        end_ledger(&l);
        end_ledger(&other);
    }
}

/* The ledger knows the first attempt only, and the second one was lost. */
static void an_older_attempt_that_runs_or_is_done_does_not_give_way(void **state)
{
    (void)state;
    for (int runs = 0; runs < 2; runs++) {
        char first[128];
        ledger l = start();
        begin(&l, "often", "{}");
        expect_execute(&l);
        strcpy(first, l.claim);
        back_up(".old");
        commit_as(&l, first, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "");
        begin(&l, "often", "{}");
        expect_execute(&l);
        ledger other = go_back(".old");
        if (!runs)
            commit_as(&other, first, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"one\"");
        expect_put_back(&l, l.claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"two\"");
        if (runs) {
            begin(&other, "often", "{}");
            expect_refused(&other, SEMEL_C_RETRY_IN_FLIGHT);
            commit_as(&other, first, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"one\"");
            expect_text(other.a->result, "committed");
        }
        begin(&other, "often", "{}");
        expect_replay(&other, "\"one\"");
        assert_int_equal(events_with("double_effect"), 1); /* both did it */
        end_ledger(&l);
        end_ledger(&other);
    }
}

/* The next generation of both: others have made more attempts before it. */
static void attempts_of_two_generations_do_not_get_the_same_number(void **state)
{
    (void)state;
    ledger l = start();
    fail_times(&l, "held", 1, SEMEL_APPLIED_NO);
    back_up(".old");
    forget(&l);
    begin(&l, "held", "{}");
    expect_execute(&l);
    ledger other = go_back(".old");
    fail_times(&other, "held", 2, SEMEL_APPLIED_NO); /* the second and the third */
    forget(&other);
    expect_put_back(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, ""); /* the fourth */
    begin(&other, "held", "{}");
    expect_execute(&other);
    assert_int_equal(other.a->generation, 2);
    assert_int_equal(other.a->fence, 5);
    end_ledger(&l);
    end_ledger(&other);
}

int main(void)
{
    const struct CMUnitTest filed[] = {
        cmocka_unit_test(a_log_that_is_gone_is_noticed), /* forks, before there are threads */
        cmocka_unit_test(a_file_that_went_back_is_noticed_by_a_running_handle_and_by_the_next),
        cmocka_unit_test(a_file_that_went_back_and_on_is_noticed),
        cmocka_unit_test(what_another_handle_recorded_is_missed_too),
        cmocka_unit_test(what_was_purged_is_not_missed),
        cmocka_unit_test(what_was_purged_since_the_users_note_is_not_missed),
        cmocka_unit_test(events_that_no_seal_calls_purged_are_missed),
        cmocka_unit_test(a_directory_that_was_restored_is_noticed_by_the_next_process),
        cmocka_unit_test(a_copy_at_another_path_is_not_refused),
        cmocka_unit_test(a_users_note_that_was_not_written_whole_counts_as_none),
        cmocka_unit_test(a_log_or_its_index_that_is_gone_under_a_handle_stops_it),
        cmocka_unit_test(a_file_that_is_overwritten_under_a_handle_is_noticed),
        cmocka_unit_test(what_another_program_moves_or_packs_is_not_missed),
        cmocka_unit_test(a_ledger_made_anew_is_another_one),
        cmocka_unit_test(doubts_that_no_list_holds_are_counted_and_left_to_a_person),
        cmocka_unit_test(doubts_are_kept_when_their_attempts_get_other_numbers),
        cmocka_unit_test(what_nobody_knows_of_a_lost_attempt_is_told_when_no_other_runs),
        cmocka_unit_test(an_older_generation_gives_way_to_the_lost_one),
        cmocka_unit_test(a_doubt_of_others_does_not_give_way_to_an_attempt_that_is_not_newer),
        cmocka_unit_test(an_older_attempt_that_runs_or_is_done_does_not_give_way),
        cmocka_unit_test(attempts_of_two_generations_do_not_get_the_same_number),
        cmocka_unit_test(a_note_that_was_not_written_whole_counts_as_none),
    };
    return run_on_stores(NULL, 0, NULL, 0, filed, COUNT(filed));
}
