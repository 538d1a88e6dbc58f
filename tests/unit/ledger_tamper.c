/*
 * A ledger whose file somebody changes behind its back: verifying with the key tells. The suite
 * `tamper` changes everything that there is; here are the changes that once went unseen.
 */
#include "ledger.h"

#include <sqlite3.h>

#include "base/clock.h"
#include "core/record.h"
#include "ledger/trail/seal.h"

#define CONTRACT                                                                                   \
    "{version: 1, tools: {t: {class: write}, pay: {class: irreversible, key: {fields: [/n]}, "     \
    "approval: {expires: 1h, quorum: 2}}, login: {class: write, key: {fields: [/user]}, "          \
    "redact: [/password]}, once: {class: write, barrier: true}, "                                  \
    "set: {class: write, resource: [/id]}}}"

typedef struct place {
    char url[512], key[160];
} place;

static ledger reopen(const place *p)
{
    semel_fault fault = {0};
    ledger l = {.a = semel_answer_new()};
    semel_options o = {.size = sizeof o,
                       .url = p->url,
                       .contract = SM_STR(CONTRACT),
                       .actor = SM_STR("tester"),
                       .one_shot = true,
                       .seal_key_path = p->key};
    semel_err e = semel_open(&o, &l.s, &fault);
    expect(e == SEMEL_OK, "%s", fault.text);
    return l;
}

/* A ledger with two seals and a tail; all of it is sealed if `whole`. */
static ledger populate(place *p, bool whole)
{
    strcpy(p->url, fresh_url());
    snprintf(p->key, sizeof p->key, "%s/key", ledger_scratch());
    FILE *f = fopen(p->key, "w");
    fputs("0123456789abcdef0123456789abcdef", f);
    fclose(f);
    ledger l = reopen(p);
    for (int i = 0; i < 12; i++) {
        char args[32];
        snprintf(args, sizeof args, "{\"i\": %d}", i);
        begin(&l, "t", args);
        commit(&l, "\"value\"");
        if (i == 3 || i == 7)
            assert_int_equal(semel_seal(l.s, NULL), SEMEL_OK);
    }
    begin(&l, "login", "{\"user\": \"ann\", \"password\": \"secret\"}");
    commit(&l, "\"in\"");
    begin(&l, "pay", "{\"n\": 1}");
    semel_approve(l.s, sm_str_from(l.request), SM_STR("carol"), l.a);
    if (whole)
        assert_int_equal(semel_seal(l.s, NULL), SEMEL_OK);
    return l;
}

static void change(const place *p, const char *sql)
{
    sqlite3 *db = NULL;
    char *error = NULL;
    assert_int_equal(sqlite3_open(p->url + strlen("sqlite:"), &db), SQLITE_OK);
    int before = sqlite3_total_changes(db);
    expect(sqlite3_exec(db, sql, NULL, NULL, &error) == SQLITE_OK, "%s: %s", sql, error);
    expect(sqlite3_total_changes(db) > before || strstr(sql, "CREATE") != NULL,
           "%s changed nothing", sql);
    sqlite3_close(db);
}

static bool remember_flaw(void *context, semel_str text)
{
    keep_text(context, text);
    return true;
}

/* Whether verifying finds something; `text` is the last that it found. */
static bool finds(semel *s, char text[128])
{
    semel_verified v = {.size = sizeof v};
    semel_fault fault = {0};
    semel_err e = semel_verify(s, remember_flaw, NULL, text, &v, &fault);
    expect(e == SEMEL_OK || e == SEMEL_E_CORRUPT, "%s", fault.text);
    if (e != SEMEL_OK)
        snprintf(text, 128, "%.127s", fault.text);
    return e != SEMEL_OK || v.flaws > 0;
}

static void tamper(const char *sql, bool shows, const char *what)
{
    char text[128] = "";
    place p;
    ledger l = populate(&p, false);
    change(&p, sql);
    expect(finds(l.s, text) == shows, "%s (%s)", what, text);
    end_ledger(&l);
}

/* The same on a ledger that is sealed to its end. */
static void shows(const char *sql)
{
    char text[128] = "";
    place p;
    ledger l = populate(&p, true);
    expect(!finds(l.s, text), "%s", text);
    change(&p, sql);
    expect(finds(l.s, text), "%s", sql);
    end_ledger(&l);
}

static void tampering_with_the_trail_shows(void **state)
{
    (void)state;
    tamper("UPDATE event SET what = what WHERE seq = 1", false, "nothing changed, and it shows");
    tamper("UPDATE event SET actor = 'mallory' WHERE seq = 3", true, "an altered event");
    tamper("UPDATE event SET at = at + 1 WHERE seq = 24", true, "an altered unsealed event");
    tamper("DELETE FROM event WHERE seq = 3", true, "a removed event");
    tamper("DELETE FROM event WHERE seq IN (5, 6)", true, "a whole removed history");
    tamper("DELETE FROM event WHERE seq = (SELECT max(seq) FROM event)", true,
           "the last, unsealed event removed");
    tamper("UPDATE event SET seq = CASE seq WHEN 1 THEN -2 WHEN 2 THEN -1 END WHERE seq < 3; "
           "UPDATE event SET seq = -seq WHERE seq < 0",
           true, "two events swapped");
    tamper("DELETE FROM event WHERE what = 'sealed' AND seq = (SELECT min(seq) FROM event WHERE "
           "what = 'sealed')",
           true, "a removed seal");
    tamper("UPDATE event SET body = replace(body, '\"events\":8', '\"events\":9') WHERE what = "
           "'sealed'",
           true, "an altered seal");
    tamper("UPDATE outcome SET bytes = replace(bytes, 'value', 'VALUE') WHERE n = 2", true,
           "an altered outcome");
    tamper("UPDATE effect SET head = zeroblob(32) WHERE n = 2", true, "an altered record");
    tamper("UPDATE effect SET state = 6 WHERE n = 2", true, "an altered state");
    tamper("UPDATE effect SET window_end = 1 WHERE n = 2", true, "a window cut short");
    tamper("UPDATE effect SET life = x'00' WHERE n = 2", true, "a life that makes no sense");
    tamper("UPDATE effect SET scope = 'other' WHERE n = 2", true, "an altered scope");
    tamper("DELETE FROM effect WHERE n = 2; DELETE FROM name WHERE n = 2", true,
           "a record removed so that it runs again");
    tamper("UPDATE args SET bytes = '{\"i\":999}' WHERE n = 2", true, "altered arguments");
}

/* ---- what once went unseen -------------------------------------------------------------------*/

static void an_outcome_replaced_in_a_record_of_the_future_shows(void **state)
{
    (void)state;
    shows("UPDATE effect SET updated_at = 32503680000000 WHERE n = 2; UPDATE outcome SET bytes ="
          " replace(bytes, 'value', 'VALUE') WHERE n = 2");
    shows("UPDATE effect SET updated_at = 32503680000000 WHERE n = 2");
}

/* Lowers the quorum of an approval from two to one. */
static bool take_one_approval(void *context, const semel_answer *item, const semel_record *r)
{
    const place *p = context;
    (void)item;
    sm_memo m;
    sm_buf life;
    sqlite3 *db = NULL;
    sqlite3_stmt *set = NULL;
    semel_record copy = *r;
    assert_int_equal(sm_memo_unpack(r, &m), SM_OK);
    if (m.effect.approvals > 0) /* then it would make no sense any more */
        return true;
    assert_int_equal(m.effect.quorum, 2);
    m.effect.quorum = 1;
    sm_buf_init(&life, 4096);
    assert_int_equal(sm_memo_pack(&m, &copy, &life), SM_OK);
    assert_int_equal(sqlite3_open(p->url + strlen("sqlite:"), &db), SQLITE_OK);
    sqlite3_prepare_v2(db, "UPDATE effect SET life = ?1 WHERE state = 1 AND life = ?2", -1, &set,
                       NULL);
    sqlite3_bind_blob(set, 1, life.p, (int)life.len, SQLITE_STATIC);
    sqlite3_bind_blob(set, 2, r->life.p, (int)r->life.n, SQLITE_STATIC);
    assert_int_equal(sqlite3_step(set), SQLITE_DONE);
    assert_int_equal(sqlite3_changes(db), 1);
    sqlite3_finalize(set);
    sqlite3_close(db);
    sm_buf_fini(&life);
    return false;
}

static void a_smaller_quorum_shows(void **state)
{
    (void)state;
    place p;
    char text[128];
    ledger l = populate(&p, false);
    begin(&l, "pay", "{\"n\": 2}");
    assert_int_equal(semel_seal(l.s, NULL), SEMEL_OK);
    expect(!finds(l.s, text), "%s", text);
    semel_query q = {.size = sizeof q, .filter = {.states = 1u << SEMEL_S_PENDING}};
    assert_int_equal(semel_list(l.s, &q, take_one_approval, &p, NULL), SEMEL_OK);
    assert_true(finds(l.s, text));
    semel_approve(l.s, sm_str_from(l.request), SM_STR("carol"), l.a);
    assert_int_equal(l.a->state, SEMEL_S_READY); /* so it matters */
    end_ledger(&l);
}

static void another_status_of_an_outcome_shows(void **state)
{
    (void)state;
    /* Version, kind, applied, status. */
    shows(
        "UPDATE outcome SET bytes = CAST(substr(bytes, 1, 3) || x'07' || substr(bytes, 5) AS BLOB)"
        " WHERE n = 2");
}

static void a_name_that_is_gone_shows(void **state)
{
    (void)state;
    shows("DELETE FROM name WHERE n = 2");
    shows("UPDATE name SET generation = generation + 1 WHERE n = 2");
    shows("UPDATE name SET n = 3 WHERE n = 2");
    shows("INSERT INTO name SELECT id, generation + 1, n + 1 FROM name WHERE n = 2");
}

static void other_arguments_with_a_redacted_part_show(void **state)
{
    (void)state;
    shows("UPDATE args SET bytes = '{\"password\":\"[redacted]\",\"user\":\"eve\"}' WHERE n = 13");
    shows("UPDATE args SET bytes = '{\"i\":\"[redacted]\"}' WHERE n = 2");
}

static void look_at_a_record(semel_item_fn *look)
{
    place p;
    int looked = 0;
    ledger l = populate(&p, false);
    semel_query q = {.size = sizeof q};
    assert_int_equal(semel_list(l.s, &q, look, &looked, NULL), SEMEL_OK);
    assert_int_equal(looked, 1);
    end_ledger(&l);
}

/* A record is what it is only with names that a call can have. */
static bool refuse_other_names(void *context, const semel_answer *item, const semel_record *r)
{
    ++*(int *)context;
    (void)item;
    static char text[4096];
    memset(text, 'a', sizeof text);
    sm_memo m;
    semel_record copies[8];
    for (size_t i = 0; i < COUNT(copies); i++)
        copies[i] = *r;
    copies[0].scope.n = 0;
    copies[1].tool.n = 0;
    copies[2].version = 0;
    copies[3].scope = (sm_str){text, SM_SCOPE_MAX + 1};
    copies[4].tool = (sm_str){text, SM_TOOL_MAX + 1};
    copies[5].step = (sm_str){text, SM_STEP_MAX + 1};
    copies[6].caller = (sm_str){text, SM_KEY_MAX + 1};
    copies[7].scope = (sm_str){text, SM_SCOPE_MAX};
    copies[7].tool = (sm_str){text, SM_TOOL_MAX};
    copies[7].step = (sm_str){text, SM_STEP_MAX};
    copies[7].caller = (sm_str){text, SM_KEY_MAX};
    for (size_t i = 0; i < COUNT(copies); i++)
        expect((sm_memo_unpack(&copies[i], &m) == SM_OK) == (i == 7), "record %zu", i);
    return false;
}

static void a_record_with_names_that_no_call_has_is_no_record(void **state)
{
    (void)state;
    look_at_a_record(refuse_other_names);
}

static bool refuse_other_versions(void *context, const semel_answer *item, const semel_record *r)
{
    ++*(int *)context;
    (void)item;
    static char life[4096];
    sm_memo m;
    semel_record copy = *r;
    assert_in_range(r->life.n, 1, sizeof life);
    memcpy(life, r->life.p, r->life.n);
    copy.life.p = life;
    assert_int_equal(sm_memo_unpack(&copy, &m), SM_OK);
    life[0]++;
    assert_int_equal(sm_memo_unpack(&copy, &m), SEMEL_E_CORRUPT);
    copy.life.n = 0;
    assert_int_equal(sm_memo_unpack(&copy, &m), SEMEL_E_CORRUPT);
    return false;
}

static void a_record_of_an_unknown_version_is_no_record(void **state)
{
    (void)state;
    look_at_a_record(refuse_other_versions);
}

static bool refuse_other_terms(void *context, const semel_answer *item, const semel_record *r)
{
    ++*(int *)context;
    (void)item;
    static sm_memo copies[7];
    for (size_t i = 0; i < COUNT(copies); i++)
        assert_int_equal(sm_memo_unpack(r, &copies[i]), SM_OK);
    copies[1].terms.class = SM_CLASS_IRREVERSIBLE + 1;
    copies[2].terms.mode = SM_MODE_OBSERVE + 1;
    copies[3].terms.on_in_doubt.count = 0;
    copies[4].terms.on_in_doubt.steps[copies[4].terms.on_in_doubt.count - 1] = SM_DOUBT_RERUN;
    copies[5].effect.chain_at = copies[5].terms.on_in_doubt.count;
    copies[6].terms.result_window_ms = copies[6].terms.window_ms + 1;
    for (size_t i = 0; i < COUNT(copies); i++) {
        semel_record packed = *r;
        sm_memo m;
        sm_buf life;
        sm_buf_init(&life, 65536);
        assert_int_equal(sm_memo_pack(&copies[i], &packed, &life), SM_OK);
        expect((sm_memo_unpack(&packed, &m) == SM_OK) == (i == 0), "record %zu", i);
        sm_buf_fini(&life);
    }
    return false;
}

static void a_record_with_terms_that_no_contract_has_is_no_record(void **state)
{
    (void)state;
    look_at_a_record(refuse_other_terms);
}

static void another_key_of_the_caller_shows(void **state)
{
    (void)state;
    place p;
    char text[128];
    ledger l = populate(&p, false);
    semel_call c = call_of("t", "{\"i\": 1}");
    c.key = SM_STR("mine");
    take(&l, semel_begin(l.s, &c, l.a));
    commit(&l, "1");
    assert_int_equal(semel_seal(l.s, NULL), SEMEL_OK);
    expect(!finds(l.s, text), "%s", text);
    change(&p, "UPDATE effect SET caller = 'yours' WHERE caller = 'mine'");
    assert_true(finds(l.s, text));
    end_ledger(&l);
}

static void another_step_of_a_call_shows(void **state)
{
    (void)state;
    place p;
    char text[128];
    ledger l = populate(&p, false);
    semel_call c = call_of("t", "{\"i\": 1}");
    c.step = SM_STR("first");
    take(&l, semel_begin(l.s, &c, l.a));
    commit(&l, "1");
    assert_int_equal(semel_seal(l.s, NULL), SEMEL_OK);
    expect(!finds(l.s, text), "%s", text);
    change(&p, "UPDATE effect SET step = 'second' WHERE step = 'first'");
    assert_true(finds(l.s, text));
    end_ledger(&l);
}

/* ---- what leads to a record, and what would change it
 * --------------------------------------------*/

static void another_count_of_writes_shows(void **state)
{
    (void)state;
    static const char *const changes[] = {"UPDATE counter SET value = value + 1",
                                          "DELETE FROM counter"};
    for (size_t i = 0; i < COUNT(changes); i++) {
        place p;
        char text[128];
        ledger l = populate(&p, false);
        begin(&l, "set", "{\"id\": 1}");
        commit(&l, "1");
        expect(!finds(l.s, text), "%s", text);
        change(&p, changes[i]);
        expect(finds(l.s, text), "%s", changes[i]);
        end_ledger(&l);
    }
}

static void payloads_that_are_gone_before_their_time_show(void **state)
{
    (void)state;
    shows("DELETE FROM outcome WHERE n = 2");
    shows("DELETE FROM args WHERE n = 2");
    shows("INSERT INTO outcome SELECT 99, bytes FROM outcome WHERE n = 2");
    shows("INSERT INTO outcome SELECT 14, bytes FROM outcome WHERE n = 2");
}

static void triggers_and_other_tables_show_and_do_not_run(void **state)
{
    (void)state;
    place p;
    char text[128];
    ledger l = populate(&p, true);
    end_ledger(&l);
    change(&p, "CREATE TRIGGER evil AFTER INSERT ON event BEGIN DELETE FROM effect; END");
    l = reopen(&p);
    begin(&l, "t", "{\"i\": 100}");
    commit(&l, "1");
    assert_true(finds(l.s, text));
    change(&p, "DROP TRIGGER evil; UPDATE event SET what = what WHERE seq = 1");
    expect(!finds(l.s, text), "%s", text);
    change(&p, "CREATE VIEW mine AS SELECT 1");
    assert_true(finds(l.s, text));
    change(&p, "DROP VIEW mine; CREATE INDEX sqlitemine ON effect(tool)");
    assert_true(finds(l.s, text));
    /* As many as there should be. */
    change(&p, "DROP INDEX sqlitemine; DROP INDEX note_age; CREATE INDEX note_age ON note(id)");
    assert_true(finds(l.s, text));
    change(&p, "DROP INDEX note_age; CREATE INDEX note_age ON note(last_at)");
    expect(!finds(l.s, text), "%s", text);
    end_ledger(&l);
}

/* A record that is altered, acted upon and put back: the event that came of it tells. */
static void a_change_that_was_put_back_shows(void **state)
{
    (void)state;
    place p;
    char text[128];
    ledger l = populate(&p, true);
    change(&p, "CREATE TABLE aside AS SELECT * FROM effect WHERE n = 2");
    change(&p, "UPDATE effect SET window_end = settled_at, result_end = settled_at WHERE n = 2");
    end_ledger(&l);
    l = reopen(&p);
    begin(&l, "t", "{\"i\": 1}");
    expect_execute(&l); /* the window seems to be over */
    commit(&l, "\"again\"");
    change(&p, "UPDATE effect SET window_end = (SELECT window_end FROM aside),"
               " result_end = (SELECT result_end FROM aside) WHERE n = 2;"
               "DROP TABLE aside");
    assert_true(finds(l.s, text));
    assert_non_null(strstr(text, "was altered before event"));
    end_ledger(&l);
}

static void a_record_keeps_its_proof_when_its_history_leaves(void **state)
{
    (void)state;
    place p;
    char text[128];
    ledger l = populate(&p, true);
    end_ledger(&l);
    usleep(5000);
    semel_options o = {.size = sizeof o,
                       .url = p.url,
                       .one_shot = true,
                       .audit_retention_ms = 1,
                       .seal_key_path = p.key};
    assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
    l.a = semel_answer_new();
    uint64_t done;
    assert_int_equal(semel_purge(l.s, NULL, NULL, &done, NULL), SEMEL_OK);
    assert_true(done > 0);
    expect(!finds(l.s, text), "%s", text);
    assert_int_equal(semel_seal(l.s, NULL), SEMEL_OK);
    change(&p, "UPDATE effect SET fence = fence + 1 WHERE n = 2");
    assert_true(finds(l.s, text));
    change(&p, "UPDATE effect SET fence = fence - 1 WHERE n = 2");
    expect(!finds(l.s, text), "%s", text);
    change(&p, "DELETE FROM effect WHERE n = 3; DELETE FROM args WHERE n = 3; DELETE FROM outcome"
               " WHERE n = 3");
    assert_true(finds(l.s, text));
    end_ledger(&l);
}

/* Verifying counts events that are not sealed yet. Cutting off sealed events shows while their seal
 * or record is there. */
static void a_tail_that_is_cut_off_shows_while_a_seal_or_a_record_is_there(void **state)
{
    (void)state;
    place p;
    semel_verified v = {.size = sizeof v};
    ledger l = populate(&p, false);
    assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_true(v.flaws == 0 && v.unsealed > 0);
    uint64_t before = v.unsealed;
    change(&p, "DELETE FROM event WHERE seq = (SELECT max(seq) FROM event WHERE n = 0)");
    assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_true(v.unsealed > before);
    end_ledger(&l);
    shows("DELETE FROM event WHERE seq > (SELECT max(seq) FROM event) - 3");
    shows("DELETE FROM event WHERE seq > (SELECT max(seq) FROM event WHERE n = 0) - 4 AND n > 0");
    shows("DELETE FROM effect WHERE n > 10; DELETE FROM name WHERE n > 10; DELETE FROM args WHERE"
          " n > 10; DELETE FROM outcome WHERE n > 10; DELETE FROM event WHERE n > 10");
}

/* A populated ledger that has lost its history by right: everything old has only an event "kept".
 */
static ledger purged(place *p)
{
    char text[128];
    uint64_t done;
    ledger l = populate(p, true);
    end_ledger(&l);
    usleep(5000);
    semel_options o = {.size = sizeof o,
                       .url = p->url,
                       .contract = SM_STR(CONTRACT),
                       .one_shot = true,
                       .audit_retention_ms = 1,
                       .seal_key_path = p->key};
    assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
    l.a = semel_answer_new();
    assert_int_equal(semel_purge(l.s, NULL, NULL, &done, NULL), SEMEL_OK);
    assert_true(done > 0);
    expect(!finds(l.s, text), "%s", text);
    return l;
}

/* The newest effect never was, and its seals neither. */
#define CUT_OFF                                                                                    \
    "DELETE FROM event WHERE seq >= (SELECT min(seq) FROM event WHERE n = 14);"                    \
    "DELETE FROM args WHERE n = 14; DELETE FROM outcome WHERE n = 14; DELETE FROM name WHERE n ="  \
    " 14; DELETE FROM effect WHERE n = 14;"

/* How many events are purged is a number that no event holds: it counts only as far as seals say
 * so. */
static void a_number_that_calls_events_purged_hides_nothing(void **state)
{
    (void)state;
    static const char *const raised[] = {
        "UPDATE meta SET value = 1000 WHERE name = 'seq_floor'",
        "UPDATE meta SET value = (SELECT max(seq) FROM event) WHERE name = 'seq_floor'",
        CUT_OFF "UPDATE meta SET value = 1000 WHERE name = 'seq_floor'",
        CUT_OFF "UPDATE meta SET value = 1000 WHERE name = 'seq_floor';"
                "UPDATE event SET seq = 1001 WHERE seq = (SELECT max(seq) FROM event)",
    };
    for (size_t i = 0; i < COUNT(raised); i++)
        shows(raised[i]);
    place p;
    char text[128];
    ledger l = purged(&p);
    change(&p, "UPDATE meta SET value = value + 1 WHERE name = 'seq_floor'");
    assert_true(finds(l.s, text));
    assert_non_null(strstr(text, "no seal says so"));
    end_ledger(&l);
}

static void an_event_planted_among_purged_ones_shows(void **state)
{
    (void)state;
    place p;
    char text[128];
    ledger l = purged(&p);
    change(&p, "INSERT INTO event SELECT 1, n, id, generation, number, at, what, actor, body, prev,"
               " hash, shard FROM event WHERE n = 2");
    assert_true(finds(l.s, text));
    end_ledger(&l);
}

/* A record that is over, as a newer generation of the second effect. */
static void plant(const place *p, int generation)
{
    char sql[512];
    snprintf(sql, sizeof sql,
             "CREATE TEMP TABLE copy AS SELECT * FROM effect WHERE n = 2;"
             "UPDATE copy SET n = 1000, generation = %d, window_end = settled_at,"
             " result_end = settled_at, head = NULL, events = 0;"
             "INSERT INTO effect SELECT * FROM copy;"
             "INSERT INTO name SELECT id, generation, n FROM copy",
             generation);
    change(p, sql);
}

/* A record that is over needs no history in a ledger that was purged. One that is planted as the
 * newest of its key must not hide what the key still stands for. */
static void a_newer_generation_planted_after_a_purge_shows(void **state)
{
    (void)state;
    place p;
    char text[128];
    ledger l = purged(&p);
    plant(&p, 2);
    assert_true(finds(l.s, text));
    assert_non_null(strstr(text, "has no history"));
    end_ledger(&l);
    l = purged(&p);
    plant(&p, 7);
    assert_true(finds(l.s, text));
    end_ledger(&l);
}

/* The same, used and taken away again: what came of it follows a generation that nobody knows. */
static void a_newer_generation_planted_and_removed_after_its_use_shows(void **state)
{
    (void)state;
    place p;
    char text[128];
    ledger l = populate(&p, true);
    end_ledger(&l);
    plant(&p, 2);
    l = reopen(&p);
    begin(&l, "t", "{\"i\": 1}");
    expect_execute(&l);
    commit(&l, "\"again\"");
    change(&p, "DELETE FROM effect WHERE n = 1000; DELETE FROM name WHERE n = 1000");
    assert_true(finds(l.s, text));
    assert_non_null(strstr(text, "has no history"));
    end_ledger(&l);
}

/* A number that is not whole is read as a whole one, and compared as what it is. */
static void numbers_that_are_not_whole_show(void **state)
{
    (void)state;
    shows("UPDATE effect SET state = state + 0.5 WHERE n = 2");
    shows("UPDATE effect SET fence = fence + 0.5 WHERE n = 2");
    shows("UPDATE event SET number = number + 0.5 WHERE n = 2");
    shows("UPDATE meta SET value = value + 0.5");
    shows("UPDATE effect SET tool = CAST(tool AS BLOB) WHERE n = 2");
    shows("UPDATE event SET prev = CAST(prev AS TEXT) WHERE n = 2");
}

static void exchange(unsigned char a[4], unsigned char b[4])
{
    unsigned char aside[4];
    memcpy(aside, a, 4);
    memcpy(a, b, 4);
    memcpy(b, aside, 4);
}

/* Exchanges the first two pages below the root of a table with the last two, so that the row after
 * another one has a smaller number. */
static void exchange_pages(const place *p, const char *table)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    unsigned char page[4096], *cells = page + 12; /* where each is; a cell begins with a page */
    const char *path = p->url + strlen("sqlite:");
    forget_notes(p->url); /* of the newest event, which cannot be found any more */
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_exec(db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL);
    sqlite3_prepare_v2(db, "SELECT rootpage FROM sqlite_schema WHERE name = ?1", -1, &stmt, NULL);
    sqlite3_bind_text(stmt, 1, table, -1, SQLITE_STATIC);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    long at = (sqlite3_column_int(stmt, 0) - 1) * (long)sizeof page;
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    FILE *f = fopen(path, "r+b");
    fseek(f, at, SEEK_SET);
    assert_int_equal(fread(page, 1, sizeof page, f), sizeof page);
    int n = page[3] << 8 | page[4];
    assert_true(page[0] == 5 && n >= 3); /* not a leaf, and with enough below it */
#define CELL(i) (page + (cells[2 * (i)] << 8 | cells[2 * (i) + 1]))
    exchange(CELL(0), CELL(n - 1));
    exchange(CELL(1), page + 8);
#undef CELL
    fseek(f, at, SEEK_SET);
    assert_int_equal(fwrite(page, 1, sizeof page, f), sizeof page);
    fclose(f);
}

static bool take_event(void *context, const semel_event *e)
{
    (void)context;
    (void)e;
    return true;
}

static bool take_item(void *context, const semel_answer *item, const semel_record *r)
{
    (void)context;
    (void)item;
    (void)r;
    return true;
}

/* Reading page by page ends, with an error. */
static void rows_that_are_out_of_order_are_read_once_and_told(void **state)
{
    (void)state;
    static const char *const tables[] = {"event", "effect"};
    for (size_t i = 0; i < COUNT(tables); i++) {
        place p;
        char text[128], args[32];
        ledger l = populate(&p, true);
        for (int k = 100; k < 160; k++) {
            snprintf(args, sizeof args, "{\"i\": %d}", k);
            begin(&l, "t", args);
        }
        end_ledger(&l);
        exchange_pages(&p, tables[i]);
        l = reopen(&p);
        alarm(60); /* ends a reader that goes round in circles */
        semel_err e = SEMEL_OK;
        if (i == 0) {
            for (uint64_t after = 0, before = 1; after != before && e == SEMEL_OK;) {
                before = after;
                e = semel_events(l.s, (sm_str){0}, &after, 10, take_event, NULL, NULL);
            }
        } else {
            semel_query q = {.size = sizeof q, .limit = 1000};
            do
                e = semel_list(l.s, &q, take_item, NULL, NULL);
            while (e == SEMEL_OK && q.cursor != 0);
        }
        assert_int_equal(e, SEMEL_E_CORRUPT);
        assert_true(finds(l.s, text));
        end_ledger(&l);
        alarm(0);
    }
}

/* ---- what seals cover ------------------------------------------------------------------------*/

/* Makes another actor of the newest event of the second effect, with all hashes that follow. */
static bool replace_event(void *context, const semel_event *e)
{
    const place *p = context;
    sm_digest d;
    sm_buf scratch;
    sqlite3 *db = NULL;
    sqlite3_stmt *set = NULL;
    semel_event other = *e;
    if (e->index != 2)
        return true;
    other.actor = SM_STR("mallory");
    sm_buf_init(&scratch, 65536);
    assert_int_equal(sm_digest_init(&d), SM_OK);
    assert_int_equal(sm_chain_hash(&d, &scratch, &other), SM_OK);
    assert_int_equal(sqlite3_open(p->url + strlen("sqlite:"), &db), SQLITE_OK);
    static const char *const changes[] = {
        "UPDATE event SET actor = 'mallory', hash = ?1 WHERE hash = ?2",
        "UPDATE effect SET head = ?1 WHERE head = ?2"};
    for (size_t i = 0; i < COUNT(changes); i++) {
        sqlite3_prepare_v2(db, changes[i], -1, &set, NULL);
        sqlite3_bind_blob(set, 1, other.hash.b, sizeof other.hash.b, SQLITE_STATIC);
        sqlite3_bind_blob(set, 2, e->hash.b, sizeof e->hash.b, SQLITE_STATIC);
        assert_int_equal(sqlite3_step(set), SQLITE_DONE);
        assert_int_equal(sqlite3_changes(db), 1);
        sqlite3_finalize(set);
    }
    sqlite3_close(db);
    sm_digest_fini(&d);
    sm_buf_fini(&scratch);
    return false;
}

/* Whoever changes the file can make hashes, but no seal with the key. */
static void an_event_replaced_under_a_seal_shows_though_its_hashes_are_right(void **state)
{
    (void)state;
    place p;
    char text[128], effect[128];
    uint64_t after = 0;
    ledger l = populate(&p, true);
    begin(&l, "t", "{\"i\": 1}");
    expect_replay(&l, "\"value\"");
    strcpy(effect, l.effect);
    expect(!finds(l.s, text), "%s", text);
    assert_int_equal(semel_events(l.s, sm_str_from(effect), &after, 100, replace_event, &p, NULL),
                     SEMEL_OK);
    assert_true(finds(l.s, text));
    assert_non_null(strstr(text, "events under seal 1 (1 to 8) were altered"));
    end_ledger(&l);
}

/* It covers no events, so nothing else is missing. */
static void a_seal_about_a_purge_that_is_gone_shows(void **state)
{
    (void)state;
    place p;
    char text[128];
    uint64_t done;
    ledger l = purged(&p);
    assert_int_equal(semel_seal(l.s, NULL), SEMEL_OK);
    usleep(5000);
    assert_int_equal(semel_purge(l.s, NULL, NULL, &done, NULL), SEMEL_OK);
    assert_true(done > 0);
    expect(!finds(l.s, text), "%s", text);
    change(&p, "DELETE FROM event WHERE seq = (SELECT min(seq) FROM event WHERE what = 'purged')");
    assert_true(finds(l.s, text));
    assert_non_null(strstr(text, "seals are missing or out of order"));
    end_ledger(&l);
}

/* ---- seals that others make ------------------------------------------------------------------*/

typedef struct folding {
    sm_work *w;
    sm_seal seal;
    uint64_t most;
} folding;

static bool fold(void *context, const semel_event *e)
{
    folding *f = context;
    if (e->id == 0)
        return true;
    if (f->seal.events == f->most)
        return false;
    f->seal.to = e->seq;
    f->seal.events++;
    return sm_chain_fold(&f->w->keyer.digest, &f->seal.digest, e->seq, &e->hash) == SM_OK;
}

/* Seals events that are not sealed. The seal says that it begins so many events too late. */
static void seal_some(ledger *l, bool keyed, uint64_t late, uint64_t most)
{
    semel *s = l->s;
    sm_work *w = sm_work_start(l->a);
    semel_health h = {0};
    semel_fault fault = {0};
    uint64_t after;
    bool was_keyed;
    assert_int_equal(s->ops->health(s->store, false, &h, &fault), SM_OK);
    assert_int_equal(sm_seal_covered(s, w, &h, &after, &was_keyed, &fault), SM_OK);
    folding f = {.w = w, .seal = {.from = after + 1 + late, .keyed = keyed}, .most = most};
    assert_int_equal(s->ops->events(s->store, NULL, &after, 1000, fold, &f, &fault), SM_OK);
    assert_true(f.seal.events > 0);
    char *key = s->seal_key;
    if (!keyed)
        s->seal_key = NULL;
    assert_int_equal(sm_seal_write(s, w, &h, &f.seal, &fault), SM_OK);
    s->seal_key = key;
}

static void seal_by_hand(ledger *l, bool keyed, uint64_t late)
{
    seal_some(l, keyed, late, UINT64_MAX);
}

/* Others may write while a seal is made. */
static void a_seal_that_leaves_out_the_newest_events_is_no_flaw(void **state)
{
    (void)state;
    place p;
    char text[128];
    ledger l = populate(&p, false);
    seal_some(&l, true, 0, 3);
    expect(!finds(l.s, text), "%s", text);
    begin(&l, "t", "{\"i\": 100}");
    seal_by_hand(&l, true, 0);
    expect(!finds(l.s, text), "%s", text);
    end_ledger(&l);
}

/* Whoever changes the file can make seals, but none with the key. */
static void a_seal_without_a_key_after_others_with_one_shows(void **state)
{
    (void)state;
    place p;
    char text[128];
    ledger l = populate(&p, false);
    seal_by_hand(&l, true, 0);
    expect(!finds(l.s, text), "%s", text);
    begin(&l, "t", "{\"i\": 100}");
    seal_by_hand(&l, false, 0);
    assert_true(finds(l.s, text));
    assert_non_null(strstr(text, "was made without a key"));
    end_ledger(&l);
}

static void a_gap_between_two_seals_shows(void **state)
{
    (void)state;
    place p;
    char text[128];
    ledger l = populate(&p, false);
    seal_by_hand(&l, true, 1);
    assert_true(finds(l.s, text));
    assert_non_null(strstr(text, "does not begin where the one before it ended"));
    end_ledger(&l);
}

int main(void)
{
    const struct CMUnitTest filed[] = {
        cmocka_unit_test(tampering_with_the_trail_shows),
        cmocka_unit_test(an_outcome_replaced_in_a_record_of_the_future_shows),
        cmocka_unit_test(a_smaller_quorum_shows),
        cmocka_unit_test(another_status_of_an_outcome_shows),
        cmocka_unit_test(a_name_that_is_gone_shows),
        cmocka_unit_test(other_arguments_with_a_redacted_part_show),
        cmocka_unit_test(a_record_with_names_that_no_call_has_is_no_record),
        cmocka_unit_test(a_record_of_an_unknown_version_is_no_record),
        cmocka_unit_test(a_record_with_terms_that_no_contract_has_is_no_record),
        cmocka_unit_test(another_count_of_writes_shows),
        cmocka_unit_test(a_seal_that_leaves_out_the_newest_events_is_no_flaw),
        cmocka_unit_test(another_key_of_the_caller_shows),
        cmocka_unit_test(another_step_of_a_call_shows),
        cmocka_unit_test(payloads_that_are_gone_before_their_time_show),
        cmocka_unit_test(triggers_and_other_tables_show_and_do_not_run),
        cmocka_unit_test(a_change_that_was_put_back_shows),
        cmocka_unit_test(a_record_keeps_its_proof_when_its_history_leaves),
        cmocka_unit_test(a_tail_that_is_cut_off_shows_while_a_seal_or_a_record_is_there),
        cmocka_unit_test(a_number_that_calls_events_purged_hides_nothing),
        cmocka_unit_test(an_event_planted_among_purged_ones_shows),
        cmocka_unit_test(a_newer_generation_planted_after_a_purge_shows),
        cmocka_unit_test(a_newer_generation_planted_and_removed_after_its_use_shows),
        cmocka_unit_test(rows_that_are_out_of_order_are_read_once_and_told),
        cmocka_unit_test(numbers_that_are_not_whole_show),
        cmocka_unit_test(an_event_replaced_under_a_seal_shows_though_its_hashes_are_right),
        cmocka_unit_test(a_seal_about_a_purge_that_is_gone_shows),
        cmocka_unit_test(a_seal_without_a_key_after_others_with_one_shows),
        cmocka_unit_test(a_gap_between_two_seals_shows),
    };
    return run_on_stores(NULL, 0, NULL, 0, filed, COUNT(filed));
}
