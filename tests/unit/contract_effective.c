/* What applies to a tool: defaults by class, layers, variants, patterns, and what it looks like. */
#include "contracts.h"

#include "base/duration.h"
#include "core/glob.h"

#define HOURS(n) ((int64_t)(n)*3600000)

static const sm_contract *tool(const sm_contracts *set, const char *name)
{
    return sm_contracts_find(set, sm_str_from(name));
}

static void each_class_brings_its_defaults(void **state)
{
    (void)state;
    sm_contracts *set = contracts("version: 1\ntools:\n"
                                  "  r: {class: read}\n"
                                  "  i: {class: write_idempotent}\n"
                                  "  w: {class: write}\n"
                                  "  x: {class: irreversible, key: {fields: [/id]}}\n"
                                  "  d: {}\n");
    static const struct {
        const char *name;
        int class;
        int64_t window_ms;
        int failures;
        uint8_t lost; /* the first step of on_in_doubt */
        sm_exception exception;
        bool barrier;
    } rows[] = {
        {"r", SM_CLASS_READ, 0, SM_FAILURES_RETRY, 0, SM_EXCEPTION_PASSES, false},
        {"i", SM_CLASS_WRITE_IDEMPOTENT, HOURS(24), SM_FAILURES_RETRY, SM_DOUBT_RERUN,
         SM_EXCEPTION_FAILED, false},
        {"w", SM_CLASS_WRITE, HOURS(24), SM_FAILURES_RETRY, SM_DOUBT_HOLD,
         SM_EXCEPTION_DOUBT_IF_VAGUE, false},
        {"x", SM_CLASS_IRREVERSIBLE, HOURS(168), SM_FAILURES_REPLAY, SM_DOUBT_HOLD,
         SM_EXCEPTION_DOUBT, true},
        {"d", SM_CLASS_WRITE, HOURS(24), SM_FAILURES_RETRY, SM_DOUBT_HOLD,
         SM_EXCEPTION_DOUBT_IF_VAGUE, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const sm_contract *c = tool(set, rows[i].name);
        expect(c->class == rows[i].class, "%s", rows[i].name);
        expect(c->window_ms == rows[i].window_ms, "%s", rows[i].name);
        expect(c->result_window_ms == rows[i].window_ms, "%s", rows[i].name);
        expect(c->failures == rows[i].failures, "%s", rows[i].name);
        expect(c->on_in_doubt.steps[0] == rows[i].lost, "%s", rows[i].name);
        expect(sm_contract_exception(c) == rows[i].exception, "%s", rows[i].name);
        expect(c->barrier == rows[i].barrier, "%s", rows[i].name);
        expect(c->lease_ms == 300000 && c->repeat_after_ms == 2000 &&
                   c->delivered_within_ms == 1000,
               "%s", rows[i].name);
        expect(c->mode == SM_MODE_ENFORCE && c->on_hit == SM_HIT_REPLAY, "%s", rows[i].name);
        expect(c->on_repeat == SM_REPEAT_REPLAY && !c->approval.on, "%s", rows[i].name);
    }
    assert_int_equal(sm_contract_strategy(tool(set, "r")), SM_KEY_NONE);
    sm_contracts_free(set);
}

static void every_field_is_read(void **state)
{
    (void)state;
    sm_contracts *set = contracts(
        "version: 1\nunlisted: hold\ntrust_annotations: false\ntools:\n"
        "  p: {class: read}\n  u: {class: write}\n"
        "  t:\n"
        "    class: write\n"
        "    description: Does it.\n"
        "    version: 2.1\n"
        "    mode: observe\n"
        "    key: {strategy: hash, ignore: [/a], match: [/b]}\n"
        "    resource: {kind: file, fields: [/path]}\n"
        "    on_drift: conflict\n"
        "    step: required\n"
        "    window: forever\n"
        "    result_window: 200ms\n"
        "    lease: 30s\n"
        "    on_hit: fail\n"
        "    failures: replay\n"
        "    on_repeat: run\n"
        "    repeat_after: 0s\n"
        "    delivered_within: 500ms\n"
        "    approval: {quorum: 3, expires: 5m, via: gateway, self_approval: true}\n"
        "    on_in_doubt: [probe]\n"
        "    probe: {tool: p, args: {/x: /y}, applied: {when: [{field: /a, exists: true}], "
        "outcome: /a}, absent: {when: [{field: /a, exists: false}]}, settle: 1m, authoritative: "
        "true}\n"
        "    compensate: {tool: u, args: {/id: /id}}\n"
        "    barrier: on\n"
        "    upstream: {url: 'https://x/y', method: PUT, headers: {X-A: b}, body: form, timeout: "
        "5s, idempotency: {argument: key, style: quoted, window: forever}, retry: {attempts: 1, "
        "backoff: 1s, max_backoff: 2s}, rejects_before_work: true, cost: /usage/cost, tokens: "
        "/usage/total}\n"
        "    redact: [/card]\n"
        "    cost: \"0.10\"\n"
        "    tokens: 400\n"
        "    budget: [{per: run, calls: 3}, {per: day, cost: 12.50, tokens: 9, soft: 50%}]\n"
        "    limit: [{per: /c, calls: 3, window: 1h}, {per: /b/0, calls: 9, window: 7d}]\n"
        "    loop: {warn: 4, block: 6, trip: 9, max_cycle: 2, volatile: [/at], mode: observe}\n"
        "    breaker: {failures: 2, window: 10s, cooldown: 20s, probes: 3}\n"
        "    input: {type: object}\n"
        "    fill: {/c: {d: [1, null]}}\n");
    const sm_contract *c = tool(set, "t");
    assert_int_equal(set->unlisted, SM_UNLISTED_HOLD);
    assert_false(set->trust_annotations);
    expect_text(c->description, "Does it.");
    expect_text(c->version, "2.1");
    assert_int_equal(c->mode, SM_MODE_OBSERVE);
    assert_int_equal(c->key.ignore.n, 1);
    assert_int_equal(c->key.match.n, 1);
    expect_text(c->resource.kind, "file");
    assert_int_equal(c->resource.fields.n, 1);
    assert_int_equal(c->on_drift, SM_DRIFT_CONFLICT);
    assert_int_equal(c->step, SM_NEED_REQUIRED);
    assert_int_equal(c->window_ms, SM_FOREVER);
    assert_int_equal(c->result_window_ms, 200);
    assert_int_equal(c->lease_ms, 30000);
    assert_int_equal(c->on_hit, SM_HIT_FAIL);
    assert_int_equal(c->failures, SM_FAILURES_REPLAY);
    assert_int_equal(c->on_repeat, SM_REPEAT_RUN);
    assert_int_equal(c->repeat_after_ms, 0);
    assert_int_equal(c->delivered_within_ms, 500);
    assert_true(c->approval.on && c->approval.quorum == 3 && c->approval.expires_ms == 300000);
    assert_true(c->approval.via == 1 && c->approval.self_approval && c->approval.when.n == 0);
    assert_int_equal(c->on_in_doubt.count, 2); /* hold is always last */
    assert_int_equal(c->on_in_doubt.steps[1], SM_DOUBT_HOLD);
    expect_text(c->probe.tool, "p");
    expect_text(c->probe.args.to[0].text, "/x");
    expect_text(c->probe.args.from[0].text, "/y");
    assert_true(c->probe.applied.when.n == 1 && c->probe.absent.when.n == 1);
    assert_true(c->probe.settle_ms == 60000 && c->probe.authoritative);
    expect_text(c->compensate.tool, "u");
    assert_true(c->barrier);
    expect_text(c->upstream.url, "https://x/y");
    assert_true(c->upstream.method == SM_METHOD_PUT && c->upstream.body == SM_BODY_FORM);
    assert_int_equal(c->upstream.timeout_ms, 5000);
    expect_text(c->upstream.idempotency.argument, "key");
    assert_true(c->upstream.idempotency.style == 1);
    assert_int_equal(c->upstream.idempotency.window_ms, SM_FOREVER);
    assert_int_equal(c->upstream.retry.attempts, 1);
    assert_true(c->upstream.rejects_before_work);
    expect_text(c->upstream.cost.text, "/usage/cost");
    expect_text(c->upstream.tokens.text, "/usage/total");
    assert_int_equal(c->redact.n, 1);
    expect_text(c->cost.text, "0.10");
    assert_int_equal(c->budget.n, 2);
    assert_int_equal(c->budget.v[0].calls, 3);
    expect_text(c->budget.v[1].cost.text, "12.50");
    assert_true(c->budget.v[0].soft == 80 && c->budget.v[1].soft == 50);
    assert_int_equal(c->limit.n, 2);
    expect_text(c->limit.v[1].per.text, "/b/0");
    assert_true(c->limit.v[0].calls == 3 && c->limit.v[0].window_ms == 3600000);
    assert_true(c->loop.warn == 4 && c->loop.trip == 9 && c->loop.mode == SM_MODE_OBSERVE);
    assert_true(c->breaker.on && c->breaker.failures == 2 && c->breaker.probes == 3);
    assert_non_null(c->input);
    assert_int_equal(c->fill.count, 1);
    for (int id = 0; id < SM_F_COUNT; id++)
        expect(c->origin[id].layer == SM_FROM_TOOL || id == SM_F_IDEMPOTENCY, "%s was not read",
               sm_contract_group.fields[id].name);
    sm_contracts_free(set);
}

/* A step that nobody gave follows from the one before, and from what is known of results. */
static void only_recorded_writes_that_are_listed_have_the_whole_ladder(void **state)
{
    (void)state;
    static const struct {
        const char *tool; /* NULL: one that is not listed, and these are the defaults */
        bool on;
        int64_t warn, block, trip;
    } rows[] = {
        {"class: write", true, 3, 5, 8},
        {"class: irreversible, key: {fields: [/id]}", true, 3, 5, 8},
        {"class: read", true, 3, 0, 0},
        {"class: write, key: none", true, 3, 0, 0},
        {"class: read, loop: {block: 4}", true, 3, 4, 0},
        {"class: write, loop: {warn: 6}", true, 6, 8, 11},
        {"class: write, loop: {block: 20}", true, 3, 20, 23},
        {"class: write, loop: {block: off}", true, 3, 0, 0},
        {"class: write, loop: {trip: off}", true, 3, 5, 0},
        {"class: write, loop: off", false, 3, 5, 8},
        {"class: write, loop: {poll: off, mode: observe}", true, 3, 5, 8},
        {NULL, true, 3, 0, 0},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[200];
        snprintf(text, sizeof text, "version: 1\ntools: {t: {%s}}\n",
                 rows[i].tool == NULL ? "class: write" : rows[i].tool);
        sm_contracts *set = contracts(text);
        const sm_loop_rule *r = &tool(set, rows[i].tool == NULL ? "other" : "t")->loop;
        expect(r->on == rows[i].on &&
                   (!r->on || (r->warn == rows[i].warn && r->block == rows[i].block &&
                               r->trip == rows[i].trip)),
               "row %zu: %d, %lld, %lld, %lld", i, r->on, (long long)r->warn, (long long)r->block,
               (long long)r->trip);
        sm_contracts_free(set);
    }
    sm_contracts *set = contracts("version: 1\ndefaults: {loop: {block: 9}}\ntools: {}\n");
    const sm_loop_rule *r = &tool(set, "other")->loop;
    assert_true(r->warn == 3 && r->block == 9 && r->trip == 0);
    sm_contracts_free(set);
}

static void every_chain_of_doubt_ends_in_one_hold(void **state)
{
    (void)state;
    static const char *const chains[] = {"hold", "[rerun]", "[rerun, hold]"};
    for (size_t i = 0; i < COUNT(chains); i++) {
        char text[200];
        snprintf(text, sizeof text,
                 "version: 1\ntools: {t: {class: write_idempotent, on_in_doubt: %s}}\n", chains[i]);
        sm_contracts *set = contracts(text);
        const sm_doubt_chain *chain = &tool(set, "t")->on_in_doubt;
        expect(chain->count == (i == 0 ? 1 : 2), "%s: %u steps", chains[i], chain->count);
        assert_int_equal(chain->steps[chain->count - 1], SM_DOUBT_HOLD);
        sm_contracts_free(set);
    }
}

static void money_is_kept_to_the_last_digit(void **state)
{
    (void)state;
    sm_contracts *set = contracts("version: 1\ntools:\n"
                                  "  a: {cost: 0.1}\n  b: {cost: \"0.10\"}\n"
                                  "  c: {cost: 0.100000001}\n");
    expect_text(tool(set, "a")->cost.text, "0.1");
    expect_text(tool(set, "b")->cost.text, "0.10");
    assert_int_equal(tool(set, "a")->cost.billionths, 100000000);
    assert_int_equal(tool(set, "b")->cost.billionths, 100000000);
    assert_int_equal(tool(set, "c")->cost.billionths, 100000001);
    sm_contracts_free(set);
}

static void the_later_layer_wins_field_by_field(void **state)
{
    (void)state;
    sm_contracts *set = contracts(
        "version: 1\n"
        "defaults: {window: 2h, lease: 1m, approval: {quorum: 2, expires: 9m}}\n"
        "tools:\n"
        "  a: {class: write}\n"
        "  b: {class: write, window: 3h, approval: {quorum: 5}}\n"
        "  c: {class: write, approval: off, variants: [{when: [{field: /x, equals: 1}], lease: "
        "7s, class: write_idempotent}]}\n");
    const sm_contract *a = tool(set, "a"), *b = tool(set, "b"), *c = tool(set, "c");
    const sm_contract *v = &c->variants[0].contract;
    assert_true(a->window_ms == HOURS(2) && a->lease_ms == 60000 && a->approval.quorum == 2);
    assert_int_equal(a->origin[SM_F_WINDOW].layer, SM_FROM_DEFAULTS);
    assert_int_equal(a->origin[SM_F_FAILURES].layer, SM_FROM_CLASS);
    assert_int_equal(a->origin[SM_F_ON_HIT].layer, SM_FROM_BUILT_IN);
    assert_int_equal(a->origin[SM_F_RESULT_WINDOW].layer, SM_FROM_DERIVED);
    assert_true(b->window_ms == HOURS(3) && b->result_window_ms == HOURS(3));
    assert_int_equal(b->origin[SM_F_WINDOW].layer, SM_FROM_TOOL);
    /* A mapping is replaced whole: the defaults' nine minutes are gone. */
    assert_true(b->approval.quorum == 5 && b->approval.expires_ms == HOURS(1));
    assert_false(c->approval.on);
    /* The variant's class brings its class's defaults, below what the file's defaults say. */
    assert_true(v->lease_ms == 7000 && v->window_ms == HOURS(2) && !v->approval.on);
    assert_int_equal(v->on_in_doubt.steps[0], SM_DOUBT_RERUN);
    assert_int_equal(v->variant, 1);
    sm_contracts_free(set);
}

static void drift_and_step_follow_from_the_strategy(void **state)
{
    (void)state;
    sm_contracts *set =
        contracts("version: 1\ntools:\n"
                  "  h: {}\n  f: {key: {fields: [/a]}}\n  i: {key: {ignore: [/a]}}\n"
                  "  s: {key: step}\n  e: {key: explicit}\n"
                  "  r: {key: explicit, on_drift: replay}\n");
    assert_int_equal(tool(set, "h")->on_drift, SM_DRIFT_REPLAY);
    assert_int_equal(tool(set, "f")->on_drift, SM_DRIFT_REPLAY);
    assert_int_equal(tool(set, "i")->on_drift, SM_DRIFT_REPLAY);
    assert_int_equal(tool(set, "s")->on_drift, SM_DRIFT_CONFLICT);
    assert_int_equal(tool(set, "s")->step, SM_NEED_REQUIRED);
    assert_int_equal(tool(set, "e")->on_drift, SM_DRIFT_CONFLICT);
    assert_int_equal(tool(set, "r")->on_drift, SM_DRIFT_REPLAY);
    sm_contracts_free(set);
}

static void the_first_matching_variant_applies(void **state)
{
    sm_arena *a = *state;
    sm_contracts *set =
        contracts("version: 1\ntools:\n  crm:\n    variants:\n"
                  "      - {when: [{field: /action, in: [get, list]}], class: read}\n"
                  "      - {when: [{field: /action, matches: 'g.*'}], class: write_idempotent}\n");
    const sm_contract *c = tool(set, "crm");
    static const struct {
        const char *args;
        uint32_t variant;
    } rows[] = {
        {"{\"action\":\"get\"}", 1},
        {"{\"action\":\"grow\"}", 2},
        {"{\"action\":\"ggg\"}", 2},
        {"{\"action\":\"xg\"}", 0},
        {"{\"action\":5}", 0},
        {"{}", 0},
        {"[\"get\"]", 0},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const sm_contract *v = sm_contract_variant(c, document(a, rows[i].args));
        expect(v->variant == rows[i].variant, "%s gave %u", rows[i].args, v->variant);
    }
    sm_contracts_free(set);
}

static void nothing_becomes_a_read_by_being_hard_to_judge(void **state)
{
    sm_arena *a = *state;
    sm_contracts *set =
        contracts("version: 1\ntools:\n"
                  "  sql:\n    class: read\n    variants:\n"
                  "      - {when: [{field: /text, matches: 'select.*'}], class: read}\n"
                  "      - {when: [{field: /text, matches: '(insert|drop).*'}], class: write}\n"
                  "  api:\n    class: write\n    variants:\n"
                  "      - {when: [{field: /path, matches: '/admin.*'}], class: irreversible}\n"
                  "      - {when: [{field: /kind, equals: look}], class: read}\n"
                  "      - {when: [{field: /kind, equals: set}], class: write_idempotent}\n");
    char *big = sm_arena_alloc(a, 6000);
    snprintf(big, 6000, "%05000d", 1); /* too long for a pattern */
    const struct {
        const char *tool;
        sm_str args;
        uint32_t variant;
    } rows[] = {
        {"sql", SM_STR("{\"text\":\"select 1\"}"), 1},
        {"sql", SM_STR("{\"text\":\"explain\"}"), 0},
        {"sql", SM_STR("{\"text\":\"drop x\"}"), 2},
        {"sql", SM_STR("{\"text\":[\"drop x\"]}"), 2},
        {"sql", sm_arena_printf(a, "{\"text\":\"%s\"}", big), 2},
        {"sql", SM_STR("{}"), 0},
        {"api", SM_STR("{\"path\":\"/x\",\"kind\":\"look\"}"), 2},
        {"api", SM_STR("{\"kind\":\"look\"}"), 2},
        {"api", sm_arena_printf(a, "{\"path\":\"%s\",\"kind\":\"look\"}", big), 1},
        {"api", sm_arena_printf(a, "{\"path\":\"%s\",\"kind\":\"set\"}", big), 3},
        {"api", sm_arena_printf(a, "{\"path\":\"%s\"}", big), 0},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const sm_contract *v =
            sm_contract_variant(tool(set, rows[i].tool), document(a, rows[i].args.p));
        expect(v->variant == rows[i].variant, "row %zu gave %u", i, v->variant);
    }
    sm_contracts_free(set);
}

static void the_most_specific_pattern_wins(void **state)
{
    (void)state;
    sm_contracts *set = contracts("version: 1\ntools:\n"
                                  "  '*': {description: any}\n"
                                  "  'search_*': {description: search}\n"
                                  "  'search_web*': {description: web}\n"
                                  "  search_web: {description: exact}\n"
                                  "  'get_?': {description: one}\n");
    static const char *const rows[][2] = {
        {"search_web", "exact"},
        {"search_web2", "web"},
        {"search_x", "search"},
        {"search_", "search"},
        {"get_a", "one"},
        {"get_ab", "any"},
        {"x", "any"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_text(tool(set, rows[i][0])->description, rows[i][1]);
    sm_contracts_free(set);
}

static void patterns_match_and_meet_as_defined(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool matches;
    } rows[] = {
        {"*", "", true},
        {"*", "abc", true},
        {"a*c", "abbc", true},
        {"a*c", "ac", true},
        {"a*c", "ab", false},
        {"a?c", "abc", true},
        {"a?c", "ac", false},
        {"", "", true},
        {"", "a", false},
        {"a**b", "ab", true},
        {"*a*a*", "aa", true},
        {"*a*a*", "a", false},
        {"a*b*c", "aXbYbZc", true},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect(sm_glob_matches(sm_str_from(rows[i].pattern), sm_str_from(rows[i].name)) ==
                   rows[i].matches,
               "%s on <%s>", rows[i].pattern, rows[i].name);
    static const struct {
        const char *a, *b;
        bool meet;
    } pairs[] = {
        {"a*", "*b", true},   {"a*", "b*", false},  {"get_*", "*_all", true},
        {"a?", "?b", true},   {"a?", "a", false},   {"?", "*", true},
        {"*x*", "*y*", true}, {"ab*", "a?c", true}, {"abd*", "a?c", false},
    };
    for (size_t i = 0; i < COUNT(pairs); i++) {
        sm_str a = sm_str_from(pairs[i].a), b = sm_str_from(pairs[i].b);
        expect(sm_glob_meet(a, b) == pairs[i].meet && sm_glob_meet(b, a) == pairs[i].meet,
               "%s and %s", pairs[i].a, pairs[i].b);
    }
}

static void a_pattern_covers_another_only_if_it_surely_does(void **state)
{
    (void)state;
    static const struct {
        const char *outer, *inner;
        bool covers;
    } rows[] = {
        {"a*", "ab*", true},  {"*", "a?b*", true}, {"a*", "a*", true},
        {"ab*", "a*", false}, {"a?", "a*", false}, {"a?", "a?", true},
        {"a*", "b*", false},  {"a*", "a?", true},  {"a?*", "a*", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect(sm_glob_covers(sm_str_from(rows[i].outer), sm_str_from(rows[i].inner)) ==
                   rows[i].covers,
               "%s over %s", rows[i].outer, rows[i].inner);
}

static void two_patterns_that_meet_are_right_by_brute_force(void **state)
{
    (void)state;
    /* All names over {a, b} up to five letters decide for all patterns up to three. */
    static const char letters[] = "ab?*";
    char patterns[4 + 16 + 64][4];
    size_t n = 0;
    for (int length = 1; length <= 3; length++) {
        for (int code = 0; code < 1 << (2 * length); code++, n++) {
            for (int i = 0; i < length; i++)
                patterns[n][i] = letters[code >> (2 * i) & 3];
            patterns[n][length] = '\0';
        }
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            sm_str a = sm_str_from(patterns[i]), b = sm_str_from(patterns[j]);
            bool met = false;
            for (int length = 0; length <= 5 && !met; length++) {
                for (int code = 0; code < 1 << length && !met; code++) {
                    char name[6];
                    for (int k = 0; k < length; k++)
                        name[k] = (char)('a' + (code >> k & 1));
                    sm_str s = {name, (size_t)length};
                    met = sm_glob_matches(a, s) && sm_glob_matches(b, s);
                }
            }
            expect(sm_glob_meet(a, b) == met, "%s and %s", patterns[i], patterns[j]);
        }
    }
}

static void an_unlisted_tool_is_treated_as_the_file_says(void **state)
{
    (void)state;
    sm_contracts *set = contracts("version: 1\ntools: {}\n");
    const sm_contract *c = tool(set, "x");
    assert_int_equal(c->class, SM_CLASS_WRITE);
    assert_int_equal(c->window_ms, 600000);
    assert_int_equal(c->on_repeat, SM_REPEAT_RUN);
    assert_false(c->approval.on);
    sm_contracts_free(set);
    set = contracts(
        "version: 1\n"
        "defaults: {repeat_after: 9s, delivered_within: 0s, window: 1d, failures: replay}\n"
        "tools: {}\n");
    c = tool(set, "x");
    assert_int_equal(c->repeat_after_ms, 9000);
    assert_int_equal(c->delivered_within_ms, 0);
    assert_int_equal(c->origin[SM_F_DELIVERED_WITHIN].layer, SM_FROM_DEFAULTS);
    assert_int_equal(c->window_ms, 600000); /* no other of the defaults is theirs */
    assert_int_equal(c->failures, SM_FAILURES_RETRY);
    sm_contracts_free(set);
    set = contracts("version: 1\nunlisted: hold\ntools: {}\n");
    assert_true(tool(set, "x")->approval.on);
    sm_contracts_free(set);
    set = contracts("version: 1\nunlisted: hide\ntools: {a: {}}\n");
    assert_null(tool(set, "x"));
    assert_non_null(tool(set, "a"));
    sm_contracts_free(set);
    assert_int_equal(sm_contracts_none(&set), SM_OK);
    assert_int_equal(tool(set, "x")->window_ms, 600000);
    sm_contracts_free(set);
}

static void a_contract_may_be_written_in_json(void **state)
{
    (void)state;
    sm_contracts *set =
        contracts("\n\t{\"version\": 1, \"tools\": {\n\t\t\"caf\\u00e9\\ud83d\\ude00\": "
                  "{\"class\": \"read\"}}}\n");
    expect_text(set->tools[0].name, "caf\xC3\xA9\xF0\x9F\x98\x80");
    assert_int_equal(set->tools[0].contract.class, SM_CLASS_READ);
    sm_contracts_free(set);
    /* The text //{$ ends with a dollar, which begins no variable. */
    set = contracts("{\"version\": 1, \"tools\": {\"t\": {\"upstream\": {\"url\": \"http://x\", "
                    "\"headers\": {\"X\": \"\\/\\/{$\"}}}}}\n");
    sm_contracts_free(set);
    set = contracts("{version: 1, tools: {a: {class: read}}}\n"); /* YAML's own flow style */
    assert_int_equal(set->tool_count, 1);
    sm_contracts_free(set);
    set = contracts("\xEF\xBB\xBFversion: 1\ntools: {}\n"); /* an editor's mark before YAML */
    sm_contracts_free(set);
}

static const char *identity(sm_arena *a, const char *fields)
{
    sm_str text = sm_arena_printf(a, "version: 1\ntools:\n  t: %s\n", fields);
    sm_contracts *set = contracts(text.p);
    sm_buf out;
    sm_buf_init(&out, SM_ARENA_MAX);
    sm_contract_identity(&set->tools[0].contract, &out);
    sm_str copy = sm_arena_text(a, sm_buf_view(&out));
    sm_buf_fini(&out);
    sm_contracts_free(set);
    return copy.p;
}

static void identity_is_what_decides_which_calls_share_a_key(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *a, *b;
        bool same;
    } rows[] = {
        {"{}", "{class: write_idempotent, window: 1h}", true},
        {"{}", "{class: read}", false},
        {"{key: {fields: [/a, /b]}}", "{key: {fields: [/b, /a]}}", true},
        {"{key: {fields: [/a]}}", "{key: {fields: [/a], match: [/b]}}", true},
        {"{key: {fields: [/a]}}", "{key: {fields: [/a, /b]}}", false},
        {"{key: {fields: [/a]}}", "{key: {fields: [/a]}, fill: {/b: 1}}", true},
        {"{key: {fields: [/a]}}", "{key: {fields: [/a]}, fill: {/a: 1}}", false},
        {"{key: {fields: [/a]}}", "{key: {fields: [/a]}, fill: {/a/b: 1}}", false},
        {"{}", "{fill: {/a: 1}}", false},
        {"{fill: {/a: 1.0}}", "{fill: {/a: 1}}", true},
        {"{key: {ignore: [/a]}}", "{key: {ignore: [/a]}, fill: {/a: 1}}", true},
        {"{key: {ignore: [/a/b]}}", "{key: {ignore: [/a/b]}, fill: {/a: 1}}", false},
        {"{}", "{key: {ignore: [/a]}}", false},
        {"{key: step}", "{key: explicit}", false},
        {"{key: step}", "{key: step, fill: {/a: 1}}", true},
        {"{}", "{variants: [{when: [{field: /a, exists: true}], key: {fields: [/a]}}]}", false},
        /* A fill that is ignored in the key still decides which variant applies. */
        {"{key: {ignore: [/m]}, fill: {/m: a}, variants: [{when: [{field: /m, equals: a}], key: "
         "step}]}",
         "{key: {ignore: [/m]}, fill: {/m: b}, variants: [{when: [{field: /m, equals: a}], key: "
         "step}]}",
         false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        bool same = strcmp(identity(a, rows[i].a), identity(a, rows[i].b)) == 0;
        expect(same == rows[i].same, "%s and %s:\n%s\n%s", rows[i].a, rows[i].b,
               identity(a, rows[i].a), identity(a, rows[i].b));
    }
}

typedef struct shown {
    sm_buf text;
} shown;

static void on_leaf(void *context, const char *name, sm_str json, sm_layer layer,
                    const sm_json *given)
{
    shown *s = context;
    sm_buf_printf(&s->text, "%s=%.*s %d %d\n", name, SM_FMT(json), (int)layer, given != NULL);
}

static void showing_lists_every_leaf_with_its_origin(void **state)
{
    (void)state;
    sm_contracts *set =
        contracts("version: 1\ndefaults: {lease: 1m}\ntools:\n"
                  "  t: {class: irreversible, key: {fields: [/id]}, cost: 0.50, upstream: {url: "
                  "'http://x', headers: {Authorization: secret1, A: b}, retry: {attempts: 9}}}\n");
    shown s;
    sm_buf_init(&s.text, SM_ARENA_MAX);
    sm_contract_show(tool(set, "t"), on_leaf, &s);
    sm_buf_byte(&s.text, '\0');
    static const char *const lines[] = {
        "class=\"irreversible\" 5 1\n",
        "key.strategy=\"fields\" 3 0\n",
        "key.fields=[\"/id\"] 5 1\n",
        "window=\"7d\" 1 0\n",
        "result_window=\"7d\" 3 0\n",
        "lease=\"1m\" 4 1\n",
        "on_hit=\"replay\" 0 0\n",
        "approval=\"off\" 0 0\n",
        "on_in_doubt=[\"hold\"] 1 0\n",
        "barrier=\"on\" 1 0\n",
        "cost=\"0.50\" 5 1\n",
        "upstream.headers={\"Authorization\":\"(hidden)\",\"A\":\"b\"} 5 1\n",
        "upstream.retry.attempts=9 5 1\n",
        "upstream.retry.backoff=\"200ms\" 0 0\n",
        "upstream.timeout=\"30s\" 0 0\n",
    };
    for (size_t i = 0; i < COUNT(lines); i++)
        expect(strstr(s.text.p, lines[i]) != NULL, "<%s> is missing in\n%s", lines[i], s.text.p);
    expect(strstr(s.text.p, "secret1") == NULL, "a secret was shown");
    sm_buf_fini(&s.text);
    sm_contracts_free(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_class_brings_its_defaults),
        cmocka_unit_test(every_field_is_read),
        cmocka_unit_test(only_recorded_writes_that_are_listed_have_the_whole_ladder),
        cmocka_unit_test(every_chain_of_doubt_ends_in_one_hold),
        cmocka_unit_test(money_is_kept_to_the_last_digit),
        cmocka_unit_test(the_later_layer_wins_field_by_field),
        cmocka_unit_test(drift_and_step_follow_from_the_strategy),
        with_arena(the_first_matching_variant_applies),
        with_arena(nothing_becomes_a_read_by_being_hard_to_judge),
        cmocka_unit_test(the_most_specific_pattern_wins),
        cmocka_unit_test(patterns_match_and_meet_as_defined),
        cmocka_unit_test(a_pattern_covers_another_only_if_it_surely_does),
        cmocka_unit_test(two_patterns_that_meet_are_right_by_brute_force),
        cmocka_unit_test(an_unlisted_tool_is_treated_as_the_file_says),
        cmocka_unit_test(a_contract_may_be_written_in_json),
        with_arena(identity_is_what_decides_which_calls_share_a_key),
        cmocka_unit_test(showing_lists_every_leaf_with_its_origin),
    };
    return cmocka_run_group_tests_name("contract_effective", tests, NULL, NULL);
}
