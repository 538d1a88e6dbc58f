/* Every mistake in a contract file is found, placed, and told with what to write instead. */
#include "contracts.h"

#include "base/utf8.h"

typedef struct mistake {
    const char *text;  /* the file */
    const char *place; /* line:column of the finding */
    const char *says;  /* part of the sentence */
} mistake;

static void expect_mistakes(sm_arena *a, const mistake *rows, size_t n, sm_severity severity)
{
    for (size_t i = 0; i < n; i++) {
        const char *found = findings(a, rows[i].text, severity);
        char start[32];
        snprintf(start, sizeof start, "%s: ", rows[i].place);
        const char *line = strstr(found, start);
        while (line != NULL && line != found && line[-1] != '\n')
            line = strstr(line + 1, start);
        expect(line != NULL, "%s\nfound nothing at %s, but:\n%s", rows[i].text, rows[i].place,
               found);
        expect(strstr(line, rows[i].says) != NULL, "%s\nexpected <%s> at %s in:\n%s", rows[i].text,
               rows[i].says, rows[i].place, found);
    }
}

static void a_file_that_is_no_contract_is_refused(void **state)
{
    static const mistake rows[] = {
        {"", "1:1", "the file is empty"},
        {"# only a comment\n", "1:1", "the file is empty"},
        {"[]\n", "1:1", "a contract file is a mapping"},
        {"tools: {}\n", "1:1", "needs the field \"version\""},
        {"version: 1\n", "1:1", "needs the field \"tools\""},
        {"version: 2\ntools: {}\n", "1:10", "version: expected 1, found"},
        {"version: one\ntools: {}\n", "1:10", "version: expected 1, found"},
        {"version: 1\ntools: []\n", "2:8", "expected a mapping here"},
        {"version: 1\ntool: {}\n", "2:1", "did you mean \"tools\"?"},
        {"version: 1\ntools: {}\nunlisted: maybe\n", "3:11", "expected write, hold or hide"},
        {"version: 1\ntools: {}\nversion: 1\n", "3:1", "this key is given twice"},
        {"version: 1\ntools: {a: &x {class: read}, b: *x}\n", "2:12", "anchors and aliases"},
        {"version: 1\ntools: {a: !!map {}}\n", "2:12", "tags"},
        {"version: 1\n  tools: {}\n", "2:8", "not valid YAML"},
        {"version: 1\ntools: {}\n---\nversion: 1\n", "3:1", "more than one document"},
        {"version: 1\ntools: {t: {class: write}}\n\xFF\n", "3:1", "not valid YAML text"},
    };
    expect_mistakes(*state, rows, COUNT(rows), SM_ERROR);
}

static void an_unknown_field_comes_with_what_was_meant(void **state)
{
    static const mistake rows[] = {
        {ONE_TOOL("{ clas: write }"), "3:8",
         "unknown field \"clas\" in a tool; did you mean \"class\"?"},
        {ONE_TOOL("{ widnow: 5m }"), "3:8", "did you mean \"window\"?"},
        {ONE_TOOL("{ Class: write }"), "3:8", "did you mean \"class\"?"},
        {ONE_TOOL("{ on-hit: replay }"), "3:8", "did you mean \"on_hit\"?"},
        {ONE_TOOL("{ xyzzy: 1 }"), "3:8", "it may have class, description,"},
        {ONE_TOOL("{ key: { field: [/a] } }"), "3:15", "did you mean \"fields\"?"},
        {ONE_TOOL("{ approval: { qourum: 2 } }"), "3:20", "did you mean \"quorum\"?"},
        {ONE_TOOL("{ upstream: { url: 'http://x', retry: { attempt: 2 } } }"), "3:46",
         "did you mean \"attempts\"?"},
        {"version: 1\ndefaults: { leas: 5m }\ntools: {}\n", "2:13", "did you mean \"lease\"?"},
        {ONE_TOOL("{ variants: [{ when: [{field: /a, exists: true}], clas: read }] }"), "3:56",
         "in a variant; did you mean \"class\"?"},
        {ONE_TOOL("{ varients: [] }"), "3:8", "did you mean \"variants\"?"},
        {ONE_TOOL("{ variants: [{ whn: [], when: [{field: /a, exists: true}] }] }"), "3:21",
         "did you mean \"when\"?"},
        {ONE_TOOL("{ input: { typ: object } }"), "3:17", "did you mean \"type\"?"},
        {ONE_TOOL("{ input: { default: 1 } }"), "3:17", "use fill for defaults"},
        {ONE_TOOL("{ approval: { when: [{ field: /a, ovr: 1 }] } }"), "3:40",
         "did you mean \"over\"?"},
    };
    expect_mistakes(*state, rows, COUNT(rows), SM_ERROR);
}

static void a_wrong_type_or_value_is_told_with_a_right_one(void **state)
{
    static const mistake rows[] = {
        {ONE_TOOL("5"), "3:6", "a tool is a mapping of fields"},
        {ONE_TOOL("{ class: wirte }"), "3:15",
         "expected read, write_idempotent, write or irreversible, found a string (wirte); did you "
         "mean write?"},
        {ONE_TOOL("{ class: [write] }"), "3:15", "found an array"},
        {ONE_TOOL("{ window: 10 }"), "3:16", "a duration needs a unit; write 10s"},
        {ONE_TOOL("{ window: 1h30m }"), "3:16", "expected a duration such as 200ms"},
        {ONE_TOOL("{ window: -5m }"), "3:16", "expected a duration"},
        {ONE_TOOL("{ window: 1.5h }"), "3:16", "expected a duration"},
        {ONE_TOOL("{ window: 99999999999999999999d }"), "3:16", "expected a duration"},
        {ONE_TOOL("{ window: 0s }"), "3:16", "longer than nothing"},
        {ONE_TOOL("{ lease: forever }"), "3:15", "forever is not allowed here"},
        {ONE_TOOL("{ cost: cheap }"), "3:14", "expected an amount such as 0.05"},
        {ONE_TOOL("{ cost: -1 }"), "3:14", "expected an amount"},
        {ONE_TOOL("{ cost: 1e }"), "3:14", "expected an amount"},
        {ONE_TOOL("{ barrier: maybe }"), "3:17", "expected true or false"},
        {ONE_TOOL("{ description: 5 }"), "3:21", "expected a text"},
        {ONE_TOOL("{ description: '' }"), "3:21", "an empty one"},
        {ONE_TOOL("{ key: { fields: /a } }"), "3:23", "expected a list of JSON Pointers"},
        {ONE_TOOL("{ key: { fields: [order_id] } }"), "3:24", "write \"/order_id\""},
        {ONE_TOOL("{ key: { fields: [5] } }"), "3:24", "expected a JSON Pointer"},
        {ONE_TOOL("{ key: { fields: [/a~2] } }"), "3:24", "write ~0 for '~'"},
        {ONE_TOOL("{ key: { fields: [''] } }"), "3:24", "an empty pointer names all"},
        {ONE_TOOL("{ key: { fields: [/a, /a/b] } }"), "3:28", "/a/b is covered by /a already"},
        {ONE_TOOL("{ key: [/a] }"), "3:13", "key: expected a mapping"},
        {ONE_TOOL("{ key: hahs }"), "3:13", "did you mean hash?"},
        {ONE_TOOL("{ approval: { quorum: 0 } }"), "3:28", "a whole number from 1 to 16"},
        {ONE_TOOL("{ approval: { quorum: 1.5 } }"), "3:28", "a whole number from 1 to 16"},
        {ONE_TOOL("{ approval: yes }"), "3:18", "approval: expected a mapping"},
        {ONE_TOOL("{ approval: { when: [] } }"), "3:26", "found an empty one"},
        {ONE_TOOL("{ approval: { when: [{ field: /a }] } }"), "3:27", "needs an operator"},
        {ONE_TOOL("{ approval: { when: [{ over: 5 }] } }"), "3:27", "needs the field \"field\""},
        {ONE_TOOL("{ approval: { when: [{ field: /a, over: x }] } }"), "3:46", "take a number"},
        {ONE_TOOL("{ approval: { when: [{ field: /a, in: [] }] } }"), "3:44", "an empty one"},
        {ONE_TOOL("{ approval: { when: [{ field: /a, matches: '(' }] } }"), "3:49",
         "not a POSIX extended regular expression"},
        {ONE_TOOL("{ approval: { when: [{ field: /a, matches: '(a)\\1' }] } }"), "3:49",
         "back-references"},
        {ONE_TOOL("{ approval: { when: [{ field: /a, matches: 'a{20}b{20}' }] } }"), "3:49",
         "may multiply to at most 256"},
        {ONE_TOOL("{ approval: { when: [{ field: /a, matches: '((a*)*b*){20}' }] } }"), "3:49",
         "nested at most 2 deep"},
        {ONE_TOOL("{ approval: { when: [{ field: /a, over: 1e400 }] } }"), "3:46", "take a number"},
        {ONE_TOOL("{ input: { minimum: 1e400 } }"), "3:26", "no finite value"},
        {ONE_TOOL("{ cost: 1e400 }"), "3:14", "at most 9 decimal places and is below 9e9"},
        {ONE_TOOL("{ cost: 0.0000000001 }"), "3:14", "at most 9 decimal places"},
        {ONE_TOOL("{ cost: -1 }"), "3:14", "expected an amount"},
        {ONE_TOOL("{ budget: [{ per: run, calls: 1 }, { per: run, cost: 1 }] }"), "3:41",
         "there is one per run already"},
        {ONE_TOOL("{ upstream: { url: 'http://x', headers: { a: b, A: c } } }"), "3:54",
         "is there already"},
        {ONE_TOOL("{ approval: { when: [{ field: /a, exists: false, over: 1 }] } }"), "3:27",
         "leaves nothing for the other operators"},
        {ONE_TOOL("{ on_in_doubt: [hold, rerun] }"), "3:28", "nothing comes after hold"},
        {ONE_TOOL("{ on_in_doubt: [rerun, rerun] }"), "3:29", "is there already"},
        {ONE_TOOL("{ on_in_doubt: [] }"), "3:21", "found an empty one"},
        {ONE_TOOL("{ on_in_doubt: wait }"), "3:21", "expected resend, probe, rerun or hold"},
        {ONE_TOOL("{ fill: [/a] }"), "3:14", "expected a mapping such as { /currency: usd }"},
        {ONE_TOOL("{ fill: { a: 1 } }"), "3:16", "write \"/a\""},
        {ONE_TOOL("{ fill: { /a: {}, /a/b: 1 } }"), "3:24", "inside one another"},
        {ONE_TOOL("{ fill: { /a: 1e999 } }"), "3:20", "no finite value"},
        {ONE_TOOL("{ upstream: { url: 'ftp://x' } }"), "3:25", "expected http://"},
        {ONE_TOOL("{ upstream: { url: 'https://u:p@x/' } }"), "3:25", "a password does not belong"},
        {ONE_TOOL("{ upstream: { method: POST } }"), "3:18", "needs the field \"url\""},
        {ONE_TOOL("{ upstream: { url: 'http://x', method: post } }"), "3:45", "did you mean POST?"},
        {ONE_TOOL("{ upstream: { url: 'http://x', headers: { 'a b': x } } }"), "3:48",
         "is not a header name"},
        {ONE_TOOL("{ upstream: { url: 'http://x', headers: { a: 5 } } }"), "3:51",
         "write it in quotes"},
        {ONE_TOOL("{ upstream: { url: 'http://x', headers: { a: \"b\\nc\" } } }"), "3:51",
         "control characters"},
        {ONE_TOOL("{ budget: { per: week, calls: 1 } }"), "3:23", "expected run, agent"},
        {ONE_TOOL("{ budget: { per: run } }"), "3:16", "a budget needs a cap"},
        {ONE_TOOL("{ budget: 5 }"), "3:16", "budget: expected"},
        {ONE_TOOL("{ budget: { per: run, calls: 1, soft: 80 } }"), "3:44", "such as 80%, or off"},
        {ONE_TOOL("{ budget: { per: run, calls: 1, soft: 100% } }"), "3:44", "from 1% to 99%"},
        {ONE_TOOL("{ budget: { per: run, calls: 1, soft: 0% } }"), "3:44", "from 1% to 99%"},
        {ONE_TOOL("{ budget: { per: run, calls: 1, soft: '8 %' } }"), "3:44", "from 1% to 99%"},
        {ONE_TOOL("{ limit: 5 }"), "3:15", "limit: expected { per: /to, calls: 3, window: 1h }"},
        {ONE_TOOL("{ limit: { per: /to, calls: 3 } }"), "3:15", "needs the field \"window\""},
        {ONE_TOOL("{ limit: { per: to, calls: 3, window: 1h } }"), "3:22", "a JSON Pointer starts"},
        {ONE_TOOL("{ limit: { per: /to, calls: 0, window: 1h } }"), "3:34", "from 1 to 100"},
        {ONE_TOOL("{ limit: { per: /to, calls: 101, window: 1h } }"), "3:34", "from 1 to 100"},
        {ONE_TOOL("{ limit: { per: /to, calls: 1, window: 400d } }"), "3:15", "at most 366d"},
        {ONE_TOOL("{ limit: { per: /to, calls: 1, window: forever } }"), "3:45", "forever"},
        {ONE_TOOL("{ limit: [{ per: /a, calls: 1, window: 1h }, { per: /a, calls: 2, window: 60m "
                  "}] }"),
         "3:51", "there is one for /a with this window already"},
        {ONE_TOOL("{ limit: { per: /to, calls: 1, window: 1h }, key: { ignore: [/to] } }"), "3:15",
         "share one key"},
        {ONE_TOOL("{ limit: { per: /to, calls: 1, window: 1h }, key: none }"), "3:15",
         "not recorded"},
        {"version: 1\ndefaults: { limit: { per: /to, calls: 1, window: 1h } }\ntools: {}\n", "2:20",
         "belongs to the tools"},
        {ONE_TOOL("{ loop: { warn: 1 } }"), "3:22", "a whole number from 2"},
        {ONE_TOOL("{ loop: { warn: off } }"), "3:22", "a whole number from 2"},
        {ONE_TOOL("{ loop: { block: on } }"), "3:23",
         "a whole number from 2 to 1000000000, or off"},
        {ONE_TOOL("{ loop: { trip: 0 } }"), "3:22", ", or off"},
        {ONE_TOOL("{ breaker: on }"), "3:17", "expected a mapping"},
        {ONE_TOOL("{ breaker: { failures: 0 } }"), "3:29", "failures"},
        {ONE_TOOL("{ breaker: { failures: 1001 } }"), "3:29", "1000"},
        {ONE_TOOL("{ breaker: { window: 0s } }"), "3:27", "longer than nothing"},
        {ONE_TOOL("{ breaker: { probes: 101 } }"), "3:27", "100"},
        {ONE_TOOL("{ variants: {} }"), "3:18", "expected a list"},
        {ONE_TOOL("{ variants: [5] }"), "3:19", "a variant is a mapping"},
        {ONE_TOOL("{ variants: [{ class: read }] }"), "3:19", "needs the field \"when\""},
        {ONE_TOOL("{ input: 5 }"), "3:15", "a schema is a mapping"},
        {ONE_TOOL("{ input: { type: text } }"), "3:23", "expected null, boolean"},
        {ONE_TOOL("{ input: { required: a } }"), "3:27", "a list of names"},
        {ONE_TOOL("{ input: { properties: [a] } }"), "3:29", "a mapping of names"},
        {ONE_TOOL("{ input: { properties: { a: { minLength: -1 } } } }"), "3:47",
         "a whole number from 0"},
        {ONE_TOOL("{ input: { minimum: x } }"), "3:26", "take a number"},
        {ONE_TOOL("{ input: { pattern: '[' } }"), "3:26", "not a POSIX extended"},
        {ONE_TOOL("{ input: { enum: [] } }"), "3:23", "an empty one"},
        {ONE_TOOL("{ input: { additionalProperties: 5 } }"), "3:39", "true, false or a schema"},
        {"version: 1\ntools:\n  'a[bc]': {}\n", "3:3", "patterns know * and ? only"},
        {"version: 1\ntools:\n  '': {}\n", "3:3", "the tool is empty"},
    };
    expect_mistakes(*state, rows, COUNT(rows), SM_ERROR);
}

static void what_people_read_in_two_ways_must_be_quoted(void **state)
{
    static const mistake rows[] = {
        {ONE_TOOL("{ fill: { /a: yes } }"), "3:20", "yes can be read in two ways; write \"yes\""},
        {ONE_TOOL("{ fill: { /a: [1, { b: 0x1F }] } }"), "3:29", "0x1F can be read in two ways"},
        {ONE_TOOL("{ approval: { when: [{ field: /a, equals: no }] } }"), "3:48", "two ways"},
        {ONE_TOOL("{ approval: { when: [{ field: /a, in: [on] }] } }"), "3:45", "two ways"},
        {ONE_TOOL("{ input: { enum: [1_000] } }"), "3:24", "two ways"},
    };
    expect_mistakes(*state, rows, COUNT(rows), SM_ERROR);
    sm_contracts_free(contracts(ONE_TOOL("{ fill: { /a: \"yes\", /b: '0x1F', /c: 2024-01-02 } }")));
}

static void impossible_combinations_are_refused(void **state)
{
    static const mistake rows[] = {
        {ONE_TOOL("{ window: 1h, result_window: 2h }"), "3:35",
         "result_window (2h) is longer than window (1h)"},
        {ONE_TOOL("{ result_window: 30d }"), "3:23", "longer than window (24h)"},
        {ONE_TOOL("{ result_window: forever }"), "3:23", "longer than window"},
        {ONE_TOOL("{ on_in_doubt: [resend, hold] }"), "3:21",
         "resend is safe only where the downstream recognises a key"},
        {ONE_TOOL("{ on_in_doubt: [resend, hold] }"), "3:21",
         "declare it with idempotency: { argument: NAME, window: 24h }"},
        {ONE_TOOL("{ on_in_doubt: [resend], upstream: { url: 'http://x' } }"), "3:21",
         "declare it with upstream: { idempotency: { header: Idempotency-Key"},
        {ONE_TOOL("{ on_in_doubt: [resend], idempotency: { meta: k, window: 1m } }"), "3:21",
         "the downstream forgets a key after 1m"},
        {ONE_TOOL("{ lease: 10m, on_in_doubt: [resend], upstream: { url: 'http://x', idempotency: "
                  "{ header: K, window: 5m } } }"),
         "3:33", "the downstream forgets a key after 5m, before the lease (10m) is over"},
        {ONE_TOOL("{ on_in_doubt: [probe] }"), "3:21", "probe names no tool"},
        {ONE_TOOL("{ on_in_doubt: [probe], probe: { applied: { when: [{field: /a, exists: true}] } "
                  "} }"),
         "3:37", "needs the field \"tool\""},
        {ONE_TOOL("{ on_in_doubt: [probe], probe: { tool: t, applied: { when: [{field: /a, exists: "
                  "true}] } } }"),
         "3:45", "cannot be its own probe"},
        {"version: 1\ntools:\n  w: {class: write}\n  t: {on_in_doubt: [probe], probe: {tool: w, "
         "applied: {when: [{field: /a, exists: true}]}}}\n",
         "4:43", "must have class: read, it has write"},
        {ONE_TOOL("{ key: { strategy: fields } }"), "3:13", "needs the pointers"},
        {ONE_TOOL("{ key: { strategy: step, fields: [/a] } }"), "3:39",
         "fields belongs to the strategy fields, not step"},
        {ONE_TOOL("{ key: { fields: [/a], ignore: [/b] } }"), "3:37", "nothing to ignore"},
        {ONE_TOOL("{ key: { strategy: explicit, ignore: [/b] } }"), "3:43", "not explicit"},
        {ONE_TOOL("{ key: { strategy: unique, match: [/b] } }"), "3:40", "remove match"},
        {ONE_TOOL("{ key: { fields: [/a], match: [/a/b] } }"), "3:36", "part of the identity"},
        {ONE_TOOL("{ resource: [/a], key: { ignore: [/a/b] } }"), "3:18", "under key.ignore"},
        {ONE_TOOL("{ resource: [] }"), "3:18", "name the arguments"},
        {ONE_TOOL("{ resource: [path] }"), "3:19", "JSON Pointer starts"},
        {ONE_TOOL("{ resource: { kind: file } }"), "3:18", "needs the field \"fields\""},
        {ONE_TOOL("{ resource: /path }"), "3:18", "expected"},
        {ONE_TOOL("{ key: step, step: optional }"), "3:25", "write step: required"},
        {ONE_TOOL("{ class: read, approval: { quorum: 1 } }"), "3:31", "nobody can approve it"},
        {ONE_TOOL("{ redact: [/card], on_in_doubt: [resend], upstream: { url: 'http://x', "
                  "idempotency: { header: K } } }"),
         "3:16", "redacted ones are not stored"},
        {ONE_TOOL("{ redact: [/card], on_in_doubt: [rerun], upstream: { url: 'http://x' } }"),
         "3:16", "redacted ones are not stored"},
        {ONE_TOOL("{ redact: [/card], key: { match: [/card] } }"), "3:16", "under key.match"},
        {ONE_TOOL("{ redact: [/id], compensate: { tool: u, args: { /id: /id } } }"), "3:16",
         "needed for the arguments of probe or compensate"},
        {ONE_TOOL("{ compensate: { tool: u, args: { /id: { result: /id } } } }"), "3:44",
         "such as { outcome: /id }"},
        {ONE_TOOL("{ compensate: { tool: u, args: { /id: { outcome: id } } } }"), "3:55", "/"},
        {ONE_TOOL("{ compensate: { tool: u, args: { /a: /a, /a/b: /b } } }"), "3:37",
         "one is inside the other"},
        {ONE_TOOL("{ compensate: { tool: u, args: { /a/0: /a } } }"), "3:37",
         "names an element of an array"},
        {ONE_TOOL("{ upstream: { url: 'http://x', idempotency: { header: a, argument: b } } }"),
         "3:50", "one of header, meta or argument"},
        {ONE_TOOL("{ upstream: { url: 'http://x', idempotency: { window: 1h } } }"), "3:50",
         "one of header, meta or argument"},
        {ONE_TOOL("{ idempotency: { header: a } }"), "3:21", "a header needs an upstream"},
        {ONE_TOOL("{ upstream: { url: 'http://x', idempotency: { meta: a } } }"), "3:50",
         "meta is for MCP tools"},
        {ONE_TOOL("{ upstream: { url: 'http://x', retry: { backoff: 9s, max_backoff: 1s } } }"),
         "3:44", "backoff (9s) is longer than max_backoff (1s)"},
        {ONE_TOOL("{ loop: { warn: 9, block: 5 } }"), "3:14", "must not decrease"},
        {ONE_TOOL("{ variants: [{ when: [{field: /a, exists: true}], result_window: 9d }] }"),
         "3:71", "longer than window"},
        {"version: 1\ntools:\n  'a*': {}\n  '*b': {}\n", "4:3", "can match the same tool"},
        {"version: 1\ntools:\n  'get_?': {}\n  'get?x': {}\n", "4:3", "can match the same tool"},
    };
    expect_mistakes(*state, rows, COUNT(rows), SM_ERROR);
}

static void variables_are_for_header_values_only(void **state)
{
    static const mistake rows[] = {
        {ONE_TOOL("{ upstream: { url: 'https://${HOST}/x' } }"), "3:25",
         "filled in only in the values of headers"},
        {ONE_TOOL("{ upstream: { url: 'http://x', idempotency: { header: '${H}' } } }"), "3:60",
         "filled in only"},
        {ONE_TOOL("{ compensate: { tool: '${T}' } }"), "3:28", "filled in only"},
        {ONE_TOOL("{ upstream: { url: 'http://x', headers: { '${A}': b } } }"), "3:48",
         "is not a header name"},
        {ONE_TOOL("{ upstream: { url: 'http://x', headers: { A: 'x ${' } } }"), "3:51",
         "is written ${NAME}"},
        {ONE_TOOL("{ upstream: { url: 'http://x', headers: { A: '${1A}' } } }"), "3:51",
         "is written ${NAME}"},
        {ONE_TOOL("{ upstream: { url: 'http://x', headers: { A: '${A-B}' } } }"), "3:51",
         "is written ${NAME}"},
    };
    expect_mistakes(*state, rows, COUNT(rows), SM_ERROR);
    sm_contracts *set = contracts(ONE_TOOL(
        "{ upstream: { url: 'http://x', headers: { A: 'Bearer ${MY_KEY2}', B: '$5' } } }"));
    expect_text(set->tools[0].contract.upstream.headers.v[0].value, "Bearer ${MY_KEY2}");
    sm_contracts_free(set);
}

static void every_mistake_is_reported_in_the_order_of_the_file(void **state)
{
    const char *text = "version: 1\n"
                       "unlisted: maybe\n"
                       "tools:\n"
                       "  a: { clas: write, window: 5 }\n"
                       "  b: { key: { fields: [x, /y~9] }, lease: forever }\n"
                       "  c: { result_window: 30d }\n";
    const char *found = findings(*state, text, SM_ERROR);
    static const char *const places[] = {
        "2:11: ", "\n4:8: ", "\n4:29: ", "\n5:24: ", "\n5:27: ", "\n5:43: ", "\n6:23: "};
    const char *p = found;
    for (size_t i = 0; i < COUNT(places); i++) {
        p = strstr(p, places[i]);
        expect(p != NULL, "nothing at %s in\n%s", places[i], found);
    }
    size_t lines = 0;
    for (p = found; *p != '\0'; p++)
        lines += *p == '\n';
    assert_int_equal(lines, COUNT(places));
}

static void a_mistake_in_a_shared_field_is_reported_once(void **state)
{
    const char *found = findings(*state,
                                 "version: 1\ndefaults: { lease: 5 }\ntools: { a: {}, b: {}, c: "
                                 "{variants: [{when: [{field: /x, exists: true}]}]} }\n",
                                 SM_ERROR);
    expect(strchr(found, '\n') == found + strlen(found) - 1, "more than one line:\n%s", found);
    found = findings(*state,
                     "version: 1\ndefaults: { window: 1h, result_window: 2h }\ntools: { a: {}, b: "
                     "{} }\n",
                     SM_ERROR);
    expect(strchr(found, '\n') == found + strlen(found) - 1, "more than one line:\n%s", found);
}

static void a_flood_of_mistakes_is_bounded(void **state)
{
    (void)state;
    sm_buf text;
    sm_buf_init(&text, SM_ARENA_MAX);
    sm_buf_text(&text, "version: 1\ntools:\n");
    for (int i = 0; i < 1000; i++)
        sm_buf_printf(&text, "  t%d: { nonsense: 1 }\n", i);
    sm_report report;
    sm_contracts *set;
    assert_int_equal(sm_report_init(&report, sm_buf_view(&text)), SM_OK);
    assert_int_equal(sm_contracts_read(SM_STR("x"), sm_buf_view(&text), &set, &report),
                     SEMEL_E_INVALID);
    assert_int_equal(report.errors, 1000);
    assert_int_equal(report.count, SM_REPORT_MAX);
    assert_int_equal(report.dropped, 1000 - SM_REPORT_MAX);
    sm_report_fini(&report);
    sm_buf_fini(&text);
}

static void a_mapping_too_large_is_refused_at_once(void **state)
{
    sm_arena *a = *state;
    sm_buf text;
    sm_buf_init(&text, SM_ARENA_MAX);
    sm_buf_text(&text, "version: 1\ntools:\n  t:\n    fill:\n");
    for (unsigned i = 0; i <= SM_POINTERS_MAX; i++)
        sm_buf_printf(&text, "      /a%u: 1\n", i);
    sm_buf_byte(&text, '\0');
    assert_non_null(strstr(findings(a, text.p, SM_ERROR), "at most 256 entries are allowed here"));
    sm_buf_clear(&text);
    sm_buf_text(&text, "version: 1\ntools:\n");
    for (unsigned i = 0; i <= SM_GLOBS_MAX; i++)
        sm_buf_printf(&text, "  \"t%u_*\": {}\n", i);
    sm_buf_byte(&text, '\0');
    assert_non_null(strstr(findings(a, text.p, SM_ERROR), "at most 200 patterns"));
    sm_buf_fini(&text);
}

static void an_error_is_told_however_many_warnings_there_are(void **state)
{
    (void)state;
    sm_buf text;
    sm_buf_init(&text, SM_ARENA_MAX);
    sm_buf_text(&text, "version: 1\ntools:\n");
    for (int i = 0; i < 300; i++)
        sm_buf_printf(&text, "  t%d: { class: irreversible }\n", i);
    sm_buf_text(&text, "  last: { clas: read, window: 5 }\n");
    sm_report report;
    sm_contracts *set;
    assert_int_equal(sm_report_init(&report, sm_buf_view(&text)), SM_OK);
    assert_int_equal(sm_contracts_read(SM_STR("x"), sm_buf_view(&text), &set, &report),
                     SEMEL_E_INVALID);
    assert_true(report.errors == 2 && report.warnings == 300);
    uint32_t told = 0;
    for (uint32_t i = 0; i < report.count; i++)
        told += report.items[i].severity == SM_ERROR;
    assert_int_equal(told, 2);
    sm_report_fini(&report);
    sm_buf_fini(&text);
}

static void a_message_is_cut_between_characters(void **state)
{
    const char *found =
        findings(*state,
                 ONE_TOOL("{ class: a\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9"
                          "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9"
                          "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9"
                          "\xC3\xA9 }"),
                 SM_ERROR);
    assert_true(sm_utf8_valid(sm_str_from(found)));
    assert_non_null(strstr(found, "..."));
}

#define PROBED(more)                                                                               \
    "version: 1\ntools:\n  p: { class: read }\n  t:\n    { class: irreversible, key: { fields: "   \
    "[/id] }, on_in_doubt: [probe, hold],\n    probe: { tool: p, applied: { when: [{ field: /a, "  \
    "exists: true }] },\n    " more " } }\n"

static void lints_say_what_probably_goes_wrong(void **state)
{
    static const mistake rows[] = {
        {ONE_TOOL("{ key: { fields: [/timestamp] } }"), "3:23", "changes with every try"},
        {"version: 1\ntools:\n  proxy.shop: { key: { ignore: [/path] } }\n", "3:32",
         "key: /path of a request counts whatever the contract says"},
        {"version: 1\ntools:\n  proxy.shop: { on_in_doubt: [resend, hold] }\n", "3:30",
         "only if the proxy declares idempotency"},
        {ONE_TOOL("{ key: { fields: [/meta/requestId] } }"), "3:23", "changes with every try"},
        {ONE_TOOL("{ key: { fields: [/uuid] } }"), "3:23", "changes with every try"},
        {ONE_TOOL("{ key: { fields: [/id] }, limit: { per: /to, calls: 1, window: 1h } }"), "3:39",
         "add it to key.fields or key.match"},
        {ONE_TOOL("{ limit: [{ per: /to, calls: 3, window: 1h }, { per: /to, calls: 3, window: 1d "
                  "}] }"),
         "3:15", "the one of 3 calls within 1h never matters"},
        {ONE_TOOL("{ limit: [{ per: /to, calls: 3, window: 1h }, { per: /to, calls: 72, window: 1d "
                  "}] }"),
         "3:15", "the one of 72 calls within 24h never matters"},
        {ONE_TOOL("{ class: read, limit: { per: /to, calls: 1, window: 1h } }"), "3:28",
         "limit has no effect on a read"},
        {ONE_TOOL("{ key: { fields: [/event_timestamp] } }"), "3:23", "changes with every try"},
        {ONE_TOOL("{ key: { fields: [/x-request-id] } }"), "3:23", "changes with every try"},
        {ONE_TOOL("{ fill: { /a: ['${HOME}'] } }"), "3:21", "filled in as it stands"},
        {ONE_TOOL("{ key: { fields: [/tool_call_id] } }"), "3:23", "changes with every try"},
        {ONE_TOOL("{ input: { properties: { to: {}, request_id: {} } } }"), "3:15",
         "write key: { ignore: [/request_id] }"},
        {ONE_TOOL("{ class: irreversible }"), "3:3", "identified by all its arguments"},
        {ONE_TOOL("{ class: irreversible, key: { fields: [/id] }, upstream: { url: 'http://x', "
                  "idempotency: { header: K, window: 24h } } }"),
         "3:95", "the downstream remembers a key for 24h, the contract for 7d"},
        {"version: 1\ndefaults: {window: 1h}\ntools:\n  t: {class: irreversible, key: {fields: "
         "[/id]}}\n",
         "4:3", "shorten the window of this irreversible tool to 1h"},
        {"version: 1\ndefaults: {on_repeat: run}\ntools:\n  t: {class: irreversible, key: {fields: "
         "[/id]}}\n",
         "4:3", "let repeats of this irreversible tool run"},
        {ONE_TOOL("{ on_repeat: run, delivered_within: 10s }"), "3:42", "their retry runs again"},
        {"version: 1\ndefaults: {delivered_within: 1m}\ntools: {}\n", "2:30",
         "that took 1m counts"},
        {ONE_TOOL("{ on_in_doubt: rerun }"), "3:21", "rerun repeats the effect"},
        {PROBED("absent: { when: [{ field: /a, exists: false }] }"), "7:13",
         "write authoritative: true"},
        {ONE_TOOL("{ class: read, window: 1h }"), "3:29", "has no effect on a read"},
        {ONE_TOOL("{ class: read, resource: [/a] }"), "3:31", "has no effect on a read"},
        {ONE_TOOL("{ class: read, breaker: { failures: 3 } }"), "3:30", "has no effect on a read"},
        {ONE_TOOL("{ key: none, breaker: { failures: 3 } }"), "3:28", "are not recorded"},
        {ONE_TOOL("{ resource: [/a], key: { fields: [/b] } }"), "3:18", "not part of the identity"},
        {ONE_TOOL("{ resource: [/a], key: none }"), "3:18", "are not recorded"},
        {ONE_TOOL("{ compensate: { tool: undo } }"), "3:28", "not listed in this file"},
        {ONE_TOOL("{ probe: { tool: p, applied: { when: [{field: /a, exists: true}] } } }"), "3:15",
         "never used"},
        {ONE_TOOL("{ upstream: { url: 'http://x', headers: { Authorization: Bearer abc } } }"),
         "3:63", "looks like a secret"},
        {ONE_TOOL("{ input: { properties: { user: {}, newPassword: {} } } }"), "3:41",
         "write redact: [/newPassword]"},
        {ONE_TOOL("{ input: { properties: { api_key: {} } } }"), "3:31", "looks like a secret"},
    };
    expect_mistakes(*state, rows, COUNT(rows), SM_WARNING);
}

#define ONE_PROXY(fields) "version: 1\ntools:\n  proxy.shop: " fields "\n"

static void a_secret_that_would_be_stored_is_linted_wherever_it_is_named(void **state)
{
    static const mistake rows[] = {
        {ONE_TOOL("{ input: { properties: { user: { properties: { otp: {} } } } } }"), "3:53",
         "/user/otp looks like a secret, and arguments are stored in the ledger; write redact: "
         "[/user/otp]"},
        {ONE_TOOL("{ input: { properties: { card: { properties: { number: {} } } } } }"), "3:53",
         "write redact: [/card/number]"},
        {ONE_TOOL("{ input: { properties: { pay: { items: { properties: { cvc: {} } } } } } }"),
         "3:61",
         "/pay/*/cvc looks like a secret, and arguments are stored in the ledger; write "
         "redact: [/pay]"},
        {ONE_TOOL("{ fill: { /login/pin: 1 } }"), "3:14", "write redact: [/login/pin]"},
        {ONE_TOOL("{ key: { fields: [/id, /credentials/user] } }"), "3:23",
         "write redact: [/credentials]"},
        {ONE_TOOL("{ key: { ignore: [/a~1b/token] } }"), "3:23", "write redact: [/a~1b/token]"},
        {ONE_TOOL("{ resource: [/session/jwt] }"), "3:18", "write redact: [/session/jwt]"},
        {ONE_TOOL("{ approval: { when: [{ field: /secret, exists: true }] } }"), "3:36",
         "write redact: [/secret]"},
        {ONE_TOOL("{ variants: [{ when: [{ field: /passwd, exists: true }], window: 1h }] }"),
         "3:37", "write redact: [/passwd]"},
        {ONE_TOOL("{ redact: [/user/password/hash], key: { fields: [/user/password] } }"), "3:54",
         "write redact: [/user/password]"},
        {ONE_TOOL("{ key: { fields: [/id], match: [/token] } }"), "3:37",
         "move it to key.fields, and redact it"},
        {ONE_PROXY("{ key: { fields: [/body/id], match: [/body/token] } }"), "3:51",
         "key.match cannot compare them; move it to key.fields"},
    };
    expect_mistakes(*state, rows, COUNT(rows), SM_WARNING);
}

static void a_secret_is_linted_where_it_is_named_first(void **state)
{
    assert_string_equal(
        findings(*state,
                 ONE_TOOL("{ input: { properties: { token: {}, a: { properties: { token: {} } } } "
                          "}, key: { fields: [/token] }, variants: [{ when: [{ field: /token, "
                          "exists: true }], window: 1h }] }"),
                 SM_WARNING),
        "3:31: /token looks like a secret, and arguments are stored in the ledger; write redact: "
        "[/token]\n"
        "3:61: /a/token looks like a secret, and arguments are stored in the ledger; write redact: "
        "[/a/token]\n");
}

static void a_login_whose_answer_would_be_stored_is_linted(void **state)
{
    static const mistake rows[] = {
        {ONE_PROXY("{ variants: [{ when: [{ field: /path, matches: '/api/(login|token)' }], "
                   "window: 1h }] }"),
         "3:62", "this looks like a login"},
        {ONE_PROXY("{ variants: [{ when: [{ field: /a, exists: true }, { field: /path, in: [/x, "
                   "/users/sign-in] }], class: write }] }"),
         "3:86", "give it class: read"},
        {ONE_PROXY("{ approval: { when: [{ field: /path, equals: /oauth2/token }] } }"), "3:60",
         "this looks like a login"},
        {ONE_PROXY("{ approval: { when: [{ field: /path, equals: /api/sessions }] } }"), "3:60",
         "this looks like a login"},
        {ONE_TOOL("{ upstream: { url: 'https://x/v1/authenticate?a=b' } }"), "3:25",
         "this looks like a login"},
        {"version: 1\ntools:\n  shop.logIn: { upstream: { url: 'https://x/v1/people' } }\n", "3:3",
         "this looks like a login"},
    };
    expect_mistakes(*state, rows, COUNT(rows), SM_WARNING);
}

static void what_holds_no_secret_is_not_linted_as_one(void **state)
{
    static const char *const rows[] = {
        ONE_TOOL("{ redact: [/user], key: { fields: [/user/password] } }"),
        ONE_TOOL("{ redact: [/pay], input: { properties: { pay: { items: { properties: { cvc: {} "
                 "} } } } } }"),
        ONE_TOOL("{ class: read, input: { properties: { token: {} } } }"),
        ONE_TOOL("{ key: { fields: [/max_tokens, /account_number, /author, /key, /iban] } }"),
        /* Secrets of a request are not stored. */
        ONE_PROXY("{ key: { fields: [/body/token, /form/password] }, approval: { when: [{ field: "
                  "/body/card/number, exists: true }] } }"),
        /* The answer of a read is not stored, and other paths are no logins. */
        ONE_PROXY("{ variants: [{ when: [{ field: /path, equals: /login }], class: read }] }"),
        ONE_PROXY("{ variants: [{ when: [{ field: /path, in: [/v1/checkout/sessions, /v1/sessions, "
                  "/v1/tokens, /authors, /blog/in, /auth/logout, /oauth/revoke, /users/sign_out, "
                  "/authz/roles] "
                  "}], window: 1h }] }"),
        ONE_PROXY("{ variants: [{ when: [{ field: /body/to, equals: /login }], window: 1h }] }"),
        ONE_TOOL("{ upstream: { url: 'https://login.example.com/v1/people?next=login' } }"),
        ONE_TOOL("{ key: none, upstream: { url: 'https://x/login' } }"),
        "version: 1\ntools: { login: {}, burn_token: { upstream: { url: 'https://x/burn' } } }\n",
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_string_equal(findings(*state, rows[i], SM_ERROR), "");
        assert_string_equal(findings(*state, rows[i], SM_WARNING), "");
    }
}

/* A file that is called .json is not tried as YAML. */
static void a_file_named_json_must_be_json(void **state)
{
    static const struct {
        const char *name, *text;
        bool good;
    } rows[] = {
        {"c.json", "{\"version\":1}", true}, {"c.json", "version: 1\n", false},
        {"c.json", "{version: 1}", false},   {"c.yaml", "version: 1\n", true},
        {"c.yaml", "{version: 1}", true},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const sm_json *root = NULL;
        sm_err e =
            sm_tree_read(*state, sm_str_from(rows[i].name), sm_str_from(rows[i].text), &root, NULL);
        expect((e == SM_OK) == rows[i].good, "%s: %s", rows[i].name, rows[i].text);
    }
}

static void what_is_fine_is_not_linted(void **state)
{
    static const char *const rows[] = {
        ONE_TOOL("{ class: write, key: { ignore: [/request_id] }, input: { properties: { "
                 "request_id: {} } } }"),
        ONE_TOOL("{ class: irreversible, key: { fields: [/order_uuid] } }"),
        ONE_TOOL("{ class: read }"),
        /* A downstream window of exactly the lease is enough to resend. */
        ONE_TOOL("{ window: 5m, lease: 5m, on_in_doubt: [resend], upstream: { url: 'http://x', "
                 "idempotency: { header: K, window: 5m } } }"),
        /* An MCP tool is given its key without an upstream. */
        ONE_TOOL("{ on_in_doubt: [resend], idempotency: { meta: k, window: 24h } }"),
        ONE_TOOL("{ class: write_idempotent, on_in_doubt: rerun }"),
        /* A probe that says "absent" and is the last word, and one that never says it. */
        PROBED("authoritative: true, absent: { when: [{ field: /a, exists: false }] }"),
        PROBED("authoritative: false"),
        ONE_TOOL("{ on_repeat: run, delivered_within: 4s }"),
        ONE_TOOL("{ delivered_within: 10s }"),
        ONE_TOOL("{ input: { properties: { password: {}, tokens: {} } }, redact: [/password] }"),
        ONE_TOOL(
            "{ window: 1h, variants: [{ when: [{ field: /a, exists: true }], class: read }] }"),
        /* The proxy's configuration says how its API takes a key. */
        "version: 1\ntools: { proxy.shop: { on_in_doubt: [hold], redact: [/body/card] } }\n",
        "version: 1\ntools: { proxy.shop: { resource: [/path], key: { fields: [/body/id] } } }\n",
        ONE_TOOL("{ class: irreversible, key: { fields: [/id] }, on_repeat: run }"),
        "version: 1\ndefaults: { on_repeat: run }\ntools: { w: {}, i: { class: irreversible, "
        "key: { fields: [/id] }, on_repeat: replay } }\n",
        ONE_TOOL("{ upstream: { url: 'http://x', headers: { Authorization: 'Bearer ${K}' } } }"),
        "version: 1\ndefaults: { window: 1h }\ntools: { 'get_*': { class: read }, w: {} }\n",
        /* Defaults that leave the window as the class has it shorten nothing. */
        "version: 1\ndefaults: { window: 7d }\ntools: { i: { class: irreversible, key: { fields: "
        "[/id] } } }\n",
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_string_equal(findings(*state, rows[i], SM_ERROR), "");
        assert_string_equal(findings(*state, rows[i], SM_WARNING), "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_arena(a_file_that_is_no_contract_is_refused),
        with_arena(an_unknown_field_comes_with_what_was_meant),
        with_arena(a_wrong_type_or_value_is_told_with_a_right_one),
        with_arena(what_people_read_in_two_ways_must_be_quoted),
        with_arena(impossible_combinations_are_refused),
        with_arena(variables_are_for_header_values_only),
        with_arena(every_mistake_is_reported_in_the_order_of_the_file),
        with_arena(a_mistake_in_a_shared_field_is_reported_once),
        with_arena(a_flood_of_mistakes_is_bounded),
        with_arena(a_mapping_too_large_is_refused_at_once),
        with_arena(an_error_is_told_however_many_warnings_there_are),
        with_arena(a_message_is_cut_between_characters),
        with_arena(lints_say_what_probably_goes_wrong),
        with_arena(a_secret_that_would_be_stored_is_linted_wherever_it_is_named),
        with_arena(a_secret_is_linted_where_it_is_named_first),
        with_arena(a_login_whose_answer_would_be_stored_is_linted),
        with_arena(what_holds_no_secret_is_not_linted_as_one),
        with_arena(a_file_named_json_must_be_json),
        with_arena(what_is_fine_is_not_linted),
    };
    return cmocka_run_group_tests_name("contract_errors", tests, NULL, NULL);
}
