/* The gateway's configuration: what is read, what is refused and how it is told; and the log. */
#include "unit.h"

#include <fcntl.h>
#include <unistd.h>

#include "gateway/config.h"
#include "gateway/log.h"

#define V "version: 1\n"

static gw_config *config(const char *text)
{
    gw_config *c;
    sm_report report;
    assert_int_equal(sm_report_init(&report, sm_str_from(text)), SM_OK);
    sm_err e = gw_config_read(SM_STR("/etc/semel/semel.yaml"), sm_str_from(text), &c, &report);
    expect(e == SM_OK, "%s was refused: %s", text,
           report.count > 0 ? report.items[0].text.p : semel_err_text(e));
    sm_report_fini(&report);
    return c;
}

/* Everything reported about a file, one "line:column: text" each, in the arena. */
static const char *findings(sm_arena *a, const char *text, sm_severity severity)
{
    gw_config *c;
    sm_report report;
    sm_buf out;
    assert_int_equal(sm_report_init(&report, sm_str_from(text)), SM_OK);
    sm_err e = gw_config_read(SM_STR("semel.yaml"), sm_str_from(text), &c, &report);
    expect((e == SM_OK) == (report.errors == 0), "%s, with %u errors", semel_err_name(e),
           report.errors);
    expect((c != NULL) == (e == SM_OK), "a configuration comes exactly with success");
    sm_buf_init(&out, SM_ARENA_MAX);
    for (uint32_t i = 0; i < report.count; i++) {
        const sm_finding *f = &report.items[i];
        if (f->severity == severity)
            sm_buf_printf(&out, "%u:%u: %.*s\n", f->line, f->column, SM_FMT(f->text));
    }
    sm_str copy = sm_arena_text(a, sm_buf_view(&out));
    sm_buf_fini(&out);
    gw_config_free(c);
    sm_report_fini(&report);
    return copy.p;
}

typedef struct mistake {
    const char *text, *place, *says;
} mistake;

static void expect_mistakes(sm_arena *a, const mistake *rows, size_t n, sm_severity severity)
{
    for (size_t i = 0; i < n; i++) {
        const char *found = findings(a, rows[i].text, severity);
        sm_str start = sm_arena_printf(a, "%s: ", rows[i].place);
        const char *line = strstr(found, start.p);
        expect(line != NULL && strstr(line, rows[i].says) != NULL,
               "%s\nexpected <%s> at %s in:\n%s", rows[i].text, rows[i].says, rows[i].place, found);
    }
}

/* ---- what is read ----------------------------------------------------------------------------*/

static void a_whole_file_is_read(void **state)
{
    (void)state;
    gw_config *c = config(
        V "listen: [127.0.0.1:8787, '[::1]:0', unix:run/semel.sock, 0.0.0.0:443]\n"
          "tls: { certificate: tls/cert.pem, key: /etc/tls/key.pem }\n"
          "hosts: [Semel.Example.com, '[2001:db8::1]']\n"
          "origins: https://ops.example.com:8443\n"
          "ledger: postgres://semel:${PG_PASSWORD}@db.example.com/semel\n"
          "contract: tools.yaml\n"
          "tokens: /var/lib/semel/tokens.json\n"
          "seal_key: seal.key\n"
          "ca_file: ca.pem\n"
          "proxies:\n"
          "  stripe:\n"
          "    url: https://api.example.com/v1/\n"
          "    headers: { Authorization: 'Bearer ${STRIPE_KEY}' }\n"
          "    timeout: 20s\n"
          "    idempotency: { header: Idempotency-Key, style: quoted, window: 24h }\n"
          "    retry: { attempts: 5, backoff: 100ms, max_backoff: 2s }\n"
          "    rejects_before_work: true\n"
          "  plain: { url: 'http://10.0.0.7:8080' }\n"
          "limits: { body: 2MiB, result: 1000000, connections: 100, connections_per_address: 10,\n"
          "  in_flight: 7, waiting: 8, streams: 0, request: 500ms, idle: 2m, wait: 1m }\n"
          "log: { format: json, level: debug, requests: all }\n"
          "drain: 0s\n"
          "threads: 3\n");
    assert_int_equal(c->listen.n, 4);
    expect_text(c->listen.v[0].host, "127.0.0.1");
    assert_int_equal(c->listen.v[0].port, 8787);
    assert_true(c->listen.v[0].loopback);
    expect_text(c->listen.v[1].host, "::1");
    assert_true(c->listen.v[1].loopback);
    expect_text(c->listen.v[2].path, "/etc/semel/run/semel.sock");
    assert_null(c->listen.v[2].host.p);
    assert_false(c->listen.v[3].loopback);
    assert_true(c->tls.on);
    expect_text(c->tls.certificate, "/etc/semel/tls/cert.pem");
    expect_text(c->tls.key, "/etc/tls/key.pem");
    expect_text(c->hosts.v[0], "semel.example.com");
    expect_text(c->hosts.v[1], "[2001:db8::1]");
    expect_text(c->origins.v[0], "https://ops.example.com:8443");
    expect_text(c->ledger, "postgres://semel:${PG_PASSWORD}@db.example.com/semel");
    expect_text(c->contract, "/etc/semel/tools.yaml");
    assert_string_equal(c->contract.p, "/etc/semel/tools.yaml"); /* ends with a NUL */
    expect_text(c->tokens, "/var/lib/semel/tokens.json");
    expect_text(c->seal_key, "/etc/semel/seal.key");
    expect_text(c->ca_file, "/etc/semel/ca.pem");
    const gw_upstream_api *api = &c->proxies.v[0];
    assert_int_equal(c->proxies.n, 2);
    expect_text(api->name, "stripe");
    expect_text(api->url, "https://api.example.com/v1");
    expect_text(api->headers.v[0].value, "Bearer ${STRIPE_KEY}");
    assert_int_equal(api->timeout_ms, 20000);
    expect_text(api->idempotency.header, "Idempotency-Key");
    assert_int_equal(api->idempotency.style, 1);
    assert_int_equal(api->retry.attempts, 5);
    assert_true(api->rejects_before_work);
    assert_int_equal(c->proxies.v[1].timeout_ms, 30000);
    assert_int_equal(c->proxies.v[1].retry.attempts, 3);
    assert_int_equal(c->proxies.v[1].retry.max_backoff_ms, 5000);
    assert_int_equal(c->limits.body_bytes, 2 << 20);
    assert_int_equal(c->limits.result_bytes, 1000000);
    assert_int_equal(c->limits.connections_per_address, 10);
    assert_int_equal(c->limits.request_ms, 500);
    assert_int_equal(c->limits.wait_ms, 60000);
    assert_int_equal(c->log.format, GW_LOG_JSON);
    assert_int_equal(c->log.level, 0);
    assert_int_equal(c->log.requests, GW_LOG_ALL);
    assert_int_equal(c->drain_ms, 0);
    assert_int_equal(c->threads, 3);
    gw_config_free(c);
}

static void what_is_left_out_has_a_default(void **state)
{
    (void)state;
    setenv("XDG_STATE_HOME", "/home/u/state", 1);
    gw_config *read = config(V), *built_in;
    assert_int_equal(gw_config_default(&built_in), SM_OK);
    const gw_config *both[] = {read, built_in};
    for (size_t i = 0; i < COUNT(both); i++) {
        const gw_config *c = both[i];
        assert_int_equal(c->listen.n, 1);
        expect_text(c->listen.v[0].host, "127.0.0.1");
        assert_int_equal(c->listen.v[0].port, 8787);
        expect_text(c->tokens, "/home/u/state/semel/tokens.json");
        assert_null(c->ledger.p);
        assert_null(c->contract.p);
        assert_int_equal(c->limits.body_bytes, 1 << 20);
        assert_int_equal(c->limits.result_bytes, 16 << 20);
        assert_int_equal(c->limits.connections, 12000);
        assert_int_equal(c->limits.idle_ms, 75000);
        assert_int_equal(c->log.level, 1);
        assert_int_equal(c->drain_ms, 30000);
    }
    assert_null(built_in->file.p);
    gw_config_free(read);
    gw_config_free(built_in);
    /* A group that is given in part keeps the defaults of the rest. */
    read = config(V "limits: { streams: 2 }\nlog: { format: json }\n");
    assert_int_equal(read->limits.streams, 2);
    assert_int_equal(read->limits.body_bytes, 1 << 20);
    assert_int_equal(read->log.level, 1);
    gw_config_free(read);
    setenv("XDG_STATE_HOME", "relative", 1);
    setenv("HOME", "/home/u", 1);
    read = config(V);
    expect_text(read->tokens, "/home/u/.local/state/semel/tokens.json");
    gw_config_free(read);
}

static void a_file_of_sqlite_is_seen_from_the_configuration(void **state)
{
    (void)state;
    static const struct {
        const char *given, *is;
    } rows[] = {{"sqlite:ledger.db", "sqlite:/etc/semel/ledger.db"},
                {"sqlite:/var/lib/semel/l.db", "sqlite:/var/lib/semel/l.db"},
                {"'sqlite:${HOME}/l.db'", "sqlite:${HOME}/l.db"},
                {"'${LEDGER}'", "${LEDGER}"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[100];
        snprintf(text, sizeof text, V "ledger: %s\n", rows[i].given);
        gw_config *c = config(text);
        expect_text(c->ledger, rows[i].is);
        gw_config_free(c);
    }
}

static void mcp_servers_are_commands_and_urls(void **state)
{
    (void)state;
    gw_config *c = config(
        V "mcp:\n"
          "  notes:\n"
          "    command: [npx, -y, '@modelcontextprotocol/server-filesystem', '', 8080, 1.50]\n"
          "    env: { LOG_LEVEL: warn, API_KEY: 'k-${NOTES_KEY}', RETRIES: 3, EMPTY: '',\n"
          "      'npm_config_//r.example/:_authToken': '${NPM}' }\n"
          "    directory: notes\n"
          "  plain-1: { command: notes-server }\n"
          "  search:\n"
          "    url: https://mcp.example.com/mcp/?team=7\n"
          "    headers: { Authorization: 'Bearer ${SEARCH_TOKEN}', X-Team: a }\n");
    assert_int_equal(c->mcp.n, 3);
    const gw_mcp_server *s = &c->mcp.v[0];
    expect_text(s->name, "notes");
    static const char *const words[] = {"npx", "-y",   "@modelcontextprotocol/server-filesystem",
                                        "",    "8080", "1.50"};
    assert_int_equal(s->command.n, COUNT(words));
    for (size_t i = 0; i < COUNT(words); i++)
        assert_string_equal(s->command.v[i].p, words[i]); /* each ends with a NUL */
    static const char *const variables[] = {
        "LOG_LEVEL",      "warn",    "API_KEY",
        "k-${NOTES_KEY}", "RETRIES", "3",
        "EMPTY",          "",        "npm_config_//r.example/:_authToken",
        "${NPM}"};
    assert_int_equal(s->env.n, COUNT(variables) / 2);
    for (size_t i = 0; i < s->env.n; i++) {
        expect_text(s->env.v[i].name, variables[2 * i]);
        expect_text(s->env.v[i].value, variables[2 * i + 1]);
    }
    assert_string_equal(s->directory.p, "/etc/semel/notes");
    assert_null(s->url.p);
    assert_int_equal(s->headers.n, 0);
    assert_string_equal(s->place.name, "mcp");
    expect(s->place.line == 3 && s->place.column == 3, "at %u:%u", s->place.line, s->place.column);
    s = &c->mcp.v[1];
    assert_int_equal(s->command.n, 1);
    assert_string_equal(s->command.v[0].p, "notes-server");
    assert_int_equal(s->env.n, 0);
    assert_null(s->directory.p);
    s = &c->mcp.v[2];
    assert_int_equal(s->command.n, 0);
    expect_text(s->url, "https://mcp.example.com/mcp/?team=7"); /* as it is */
    assert_int_equal(s->headers.n, 2);
    expect_text(s->headers.v[0].name, "Authorization");
    expect_text(s->headers.v[0].value, "Bearer ${SEARCH_TOKEN}");
    gw_config_free(c);
    c = config(V "mcp: {}\n");
    assert_int_equal(c->mcp.n, 0);
    gw_config_free(c);
}

/* ---- what is refused -------------------------------------------------------------------------*/

static void mistakes_are_placed_and_told_with_what_is_right(void **state)
{
    static const mistake rows[] = {
        {"", "1:1", "the file is empty"},
        {"[]\n", "1:1", "a configuration is a mapping"},
        {"listen: 127.0.0.1:1\n", "1:1", "needs the field \"version\""},
        {"version: 2\n", "1:10", "version: expected 1"},
        {V "listn: 127.0.0.1:1\n", "2:1", "did you mean \"listen\"?"},
        {V "toolbox: 1\n", "2:1", "it may have version, listen,"},
        {V "listen: 8787\n", "2:9", "write 127.0.0.1:8787"},
        {V "listen: ':8787'\n", "2:9", "expected an address and a port"},
        {V "listen: example.com:80\n", "2:9", "expected an address and a port"},
        {V "listen: 127.0.0.1\n", "2:9", "expected an address and a port"},
        {V "listen: 127.0.0.1:65536\n", "2:9", "expected an address and a port"},
        {V "listen: '::1:80'\n", "2:9", "expected an address and a port"},
        {V "listen: [127.0.0.1:1, 127.0.0.1:1]\n", "2:23", "is there already"},
        {V "listen: []\n", "2:9", "a list of 1 to 8"},
        {V "listen: 'unix:'\n", "2:9", "path of a Unix socket"},
        {V "tls: { certificate: a.pem }\n", "2:6", "needs the field \"key\""},
        {V "tls: yes\n", "2:6", "expected a mapping with certificate"},
        {V "behind_proxy: maybe\n", "2:15", "expected true or false"},
        {V "behind_proxy: yes\n", "2:15", "expected true or false"},
        {V "hosts: https://x.example\n", "2:8", "without scheme and port"},
        {V "hosts: [x.example:80]\n", "2:9", "without scheme and port"},
        {V "origins: ['*']\n", "2:11", "scheme and host of a page"},
        {V "origins: [https://x.example/path]\n", "2:11", "scheme and host of a page"},
        {V "origins: ['null']\n", "2:11", "scheme and host of a page"},
        {V "ledger: mysql://x\n", "2:9", "expected sqlite:PATH"},
        {V "ledger: ram\n", "2:9", "or \"memory:\" (in quotes"},
        {V "ledger: 5\n", "2:9", "expected a URL"},
        {V "ledger: 'postgres://u:${PW@h/d'\n", "2:9", "is written ${NAME}"},
        {V "contract: '${FILE}'\n", "2:11", "write the file's name out"},
        {V "tokens: 7\n", "2:9", "expected a text"},
        {V "proxies: [a]\n", "2:10", "expected a mapping"},
        {V "proxies: { Stripe: { url: 'http://x' } }\n", "2:12", "lowercase letters, digits"},
        {V "proxies: { a.b: { url: 'http://x' } }\n", "2:12", "lowercase letters, digits"},
        {V "proxies: { a: http://x }\n", "2:15", "a proxy is a mapping"},
        {V "proxies: { a: {} }\n", "2:15", "needs the field \"url\""},
        {V "proxies: { a: { url: ftp://x } }\n", "2:22", "expected http://"},
        {V "proxies: { a: { url: 'http:///' } }\n", "2:22", "comes a host"},
        {V "proxies: { a: { url: 'http://x/?q=1' } }\n", "2:22", "neither a query nor"},
        {V "proxies: { a: { url: 'http://x/{id}' } }\n", "2:22", "neither a query nor"},
        {V "proxies: { a: { url: 'http://u:p@x' } }\n", "2:22", "password"},
        {V "proxies: { a: { url: 'http://x', header: {} } }\n", "2:34",
         "did you mean \"headers\"?"},
        {V "proxies: { a: { url: 'http://x', ignore_headers: [X_HTTP_Method] } }\n", "2:50",
         "cannot be ignored"},
        {V "proxies: { a: { url: 'http://x', ignore_headers: [Content-Type] } }\n", "2:50",
         "cannot be ignored"},
        {V "proxies: { a: { url: 'http://x', idempotency: { meta: m } } }\n", "2:47",
         "is given its key in a header"},
        {V "proxies: { a: { url: 'http://x', retry: { backoff: 9s } } }\n", "2:41", "swap them"},
        {V "proxies: { a: { url: 'http://x', retry: { attempts: 0 } } }\n", "2:53",
         "whole number from 1"},
        {V "limits: { body: 1MB }\n", "2:17", "such as 64KiB, 1MiB or 1000000"},
        {V "limits: { body: 1 }\n", "2:17", "a size from 1KiB to 32MiB"},
        {V "limits: { body: 9999999999999999999GiB }\n", "2:17", "expected a size"},
        {V "limits: { request: 10 }\n", "2:20", "needs a unit"},
        {V "limits: { conections: 10 }\n", "2:11", "did you mean \"connections\"?"},
        {V "log: { format: xml }\n", "2:16", "expected text or json"},
        {V "log: { level: warning }\n", "2:15", "did you mean warn?"},
        {V "drain: forever\n", "2:8", "forever is not allowed"},
        {V "threads: 65\n", "2:10", "whole number from 0 to 64"},
    };
    expect_mistakes(*state, rows, COUNT(rows), SM_ERROR);
}

static void mistakes_about_mcp_servers_are_told_likewise(void **state)
{
    static const mistake rows[] = {
        {V "mpc: {}\n", "2:1", "did you mean \"mcp\"?"},
        {V "mcp: [a]\n", "2:6", "expected a mapping of at most 64 names"},
        {V "mcp: { Notes: { command: x } }\n", "2:8", "lowercase letters, digits"},
        {V "mcp: { a/b: { command: x } }\n", "2:8", "lowercase letters, digits"},
        {V "mcp: { '': { command: x } }\n", "2:8", "1 to 100 lowercase letters"},
        {V "mcp: { a: npx }\n", "2:11", "a mapping with command or url"},
        {V "mcp: { a: {} }\n", "2:11", "needs a command"},
        {V "mcp: { a: { env: { A: b } } }\n", "2:11", "needs a command"},
        {V "mcp: { a: { comand: x } }\n", "2:13", "did you mean \"command\"?"},
        {V "mcp: { a: { url: 'http://x', header: {} } }\n", "2:30", "did you mean \"headers\"?"},
        {V "mcp: { a: { command: x, url: 'http://x' } }\n", "2:30", "remove one of them"},
        {V "mcp: { a: { url: 'http://x', env: { A: b } } }\n", "2:35", "give a url its headers"},
        {V "mcp: { a: { url: 'http://x', directory: d } }\n", "2:41", "only a command starts in"},
        {V "mcp: { a: { command: x, headers: { A: b } } }\n", "2:34", "give a command its env"},
        {V "mcp: { a: { command: npx, args: [-y, m] } }\n", "2:33", "all words stand in one list"},
        {V "mcp: { a: { command: [] } }\n", "2:22", "a list of 1 to 256 words"},
        {V "mcp: { a: { command: '' } }\n", "2:22", "names a program, and is empty"},
        {V "mcp: { a: { command: ['', b] } }\n", "2:23", "names a program, and is empty"},
        {V "mcp: { a: { command: npx -y m } }\n", "2:22", "no shell takes it apart"},
        {V "mcp: { a: { command: 5 } }\n", "2:22", "a list of 1 to 256 words"},
        {V "mcp: { a: { command: { a: b } } }\n", "2:22", "a list of 1 to 256 words"},
        {V "mcp: { a: { command: [x, true] } }\n", "2:26", "must be a text; write it in quotes"},
        {V "mcp: { a: { command: [x, [y]] } }\n", "2:26", "must be a text; write it in quotes"},
        {V "mcp: { a: { command: [x, \"a\\0b\"] } }\n", "2:26", "a NUL byte"},
        {V "mcp: { a: { command: [x, '--key=${K}'] } }\n", "2:26", "its values in env"},
        {V "mcp: { a: { command: x, env: [A] } }\n", "2:30", "a mapping of at most 256 names"},
        {V "mcp: { a: { command: x, env: { A=B: c } } }\n", "2:32", "without blanks and ="},
        {V "mcp: { a: { command: x, env: { A B: c } } }\n", "2:32", "without blanks and ="},
        {V "mcp: { a: { command: x, env: { '': c } } }\n", "2:32", "without blanks and ="},
        {V "mcp: { a: { command: x, env: { A: true } } }\n", "2:35", "write it in quotes"},
        {V "mcp: { a: { command: x, env: { A: } } }\n", "2:35", "write it in quotes"},
        {V "mcp: { a: { command: x, env: { A: \"a\\0b\" } } }\n", "2:35", "a NUL byte"},
        {V "mcp: { a: { command: x, env: { A: '${B' } } }\n", "2:35", "is written ${NAME}"},
        {V "mcp: { a: { command: x, directory: '${D}' } }\n", "2:36", "write the file's name out"},
        {V "mcp: { a: { command: x, directory: 7 } }\n", "2:36", "expected a text"},
        {V "mcp: { a: { url: ftp://x.example } }\n", "2:18", "expected http://"},
        {V "mcp: { a: { url: 'http:///mcp' } }\n", "2:18", "comes a host"},
        {V "mcp: { a: { url: 'http://u:p@x' } }\n", "2:18", "password"},
        {V "mcp: { a: { url: 'http://x/{id}' } }\n", "2:18", "has no placeholders"},
        {V "mcp: { a: { url: 'http://x/#a' } }\n", "2:18", "behind a #"},
        {V "mcp: { a: { url: 'http://x/${A}' } }\n", "2:18", "only in the values of headers"},
        {V "mcp: { a: { url: 'http://x', headers: [A] } }\n", "2:39", "expected a mapping"},
        {V "mcp: { a: { url: 'http://x', headers: { 'A B': c } } }\n", "2:41",
         "is not a header name"},
        {V "mcp: { a: { url: 'http://x', headers: { A: '${B' } } }\n", "2:44",
         "is written ${NAME}"},
        {V "mcp: { a: { url: 'http://x', headers: { B: c, accept: d } } }\n", "2:47",
         "is set by the protocol"},
        {V "mcp: { a: { url: 'http://x', headers: { mcp-session-id: d } } }\n", "2:41",
         "is set by the protocol"},
    };
    expect_mistakes(*state, rows, COUNT(rows), SM_ERROR);
    /* What is beside a mistake is looked at all the same. */
    const char *found = findings(
        *state, V "mcp: { A: { command: [] }, b: { url: x, env: {}, hedders: {} } }\n", SM_ERROR);
    static const char *const places[] = {"2:8: ", "2:22: ", "2:38: ", "2:46: ", "2:50: "};
    for (size_t i = 0; i < COUNT(places); i++)
        expect(strstr(found, places[i]) != NULL, "nothing at %sin:\n%s", places[i], found);
}

/* A file with `n` servers, the last of which has a name of `bytes` bytes. */
static const char *many_servers(sm_arena *a, unsigned n, unsigned bytes)
{
    sm_buf b;
    sm_buf_init(&b, SM_ARENA_MAX);
    sm_buf_text(&b, V "mcp:\n");
    for (unsigned i = 1; i < n; i++)
        sm_buf_printf(&b, "  s%u: { command: x }\n", i);
    sm_buf_printf(&b, "  %0*u: { command: x }\n", (int)bytes, n);
    sm_str copy = sm_arena_text(a, sm_buf_view(&b));
    sm_buf_fini(&b);
    return copy.p;
}

static void mcp_servers_and_their_names_are_bounded(void **state)
{
    assert_string_equal(findings(*state, many_servers(*state, 64, 100), SM_ERROR), "");
    assert_non_null(strstr(findings(*state, many_servers(*state, 65, 9), SM_ERROR), "at most 64"));
    assert_non_null(strstr(findings(*state, many_servers(*state, 1, 101), SM_ERROR), "1 to 100"));
}

static void every_mistake_is_reported(void **state)
{
    const char *found = findings(*state, V "listn: 1\nthreads: x\nlog: { level: 5 }\n", SM_ERROR);
    assert_non_null(strstr(found, "2:1: "));
    assert_non_null(strstr(found, "3:10: "));
    assert_non_null(strstr(found, "4:15: "));
}

static void doubtful_values_are_warned_about(void **state)
{
    static const mistake rows[] = {
        {V "ledger: postgres://u:hunter2@h/d\n", "2:9", "a password is written out"},
        {V "ledger: 'postgres://h/d?password=hunter2'\n", "2:9", "a password is written out"},
        {V "ledger: 'redis://:hunter2@h'\n", "2:9", "a password is written out"},
        {V "ledger: 'memory:'\n", "2:9", "gone with the process"},
        {V "proxies: { a: { url: 'http://x', headers: { X-Api-Key: k } } }\n", "2:56",
         "looks like a secret"},
        {V "mcp: { a: { url: 'http://x', headers: { X-Api-Key: k } } }\n", "2:52",
         "X-Api-Key looks like a secret"},
        {V "mcp: { a: { command: x, env: { GH_TOKEN: hunter2 } } }\n", "2:42",
         "GH_TOKEN looks like a secret"},
        {V "behind_proxy: true\n", "2:15", "write hosts:"},
        {V "listen: 0.0.0.0:80\ntls: { certificate: a, key: b }\n", "2:9", "write hosts:"},
    };
    expect_mistakes(*state, rows, COUNT(rows), SM_WARNING);
    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *found = findings(*state, rows[i].text, SM_WARNING);
        expect(strstr(found, "hunter2") == NULL, "a warning repeats a secret: %s", found);
    }
    static const char *const fine[] = {
        V "ledger: 'postgres://u:${PW}@h/d'\n",
        V "ledger: 'postgres://h/d?password=${PW}'\n",
        V "ledger: postgres://u@h:5432/d\n",
        V "behind_proxy: true\nhosts: x.example\n",
        V "behind_proxy: true\nlisten: unix:/run/s.sock\n",
        V "proxies: { a: { url: 'http://x', headers: { X-Api-Key: '${K}' } } }\n",
        V "mcp: { a: { url: 'http://x', headers: { X-Api-Key: '${K}' } } }\n",
        V "mcp: { a: { command: x, env: { KEY: '${K}', MAX_TOKENS: 100, TOKEN: '' } } }\n",
    };
    for (size_t i = 0; i < COUNT(fine); i++)
        assert_string_equal(findings(*state, fine[i], SM_WARNING), "");
    /* An address that is none is an error, and nothing is known of whom it lets in. */
    static const char *const broken[] = {V "listen: 127.0.0.1\n", V "listen: 80\n",
                                         V "listen: nonsense\nbehind_proxy: true\n"};
    for (size_t i = 0; i < COUNT(broken); i++)
        assert_string_equal(findings(*state, broken[i], SM_WARNING), "");
}

static void a_wrong_ledger_is_not_repeated(void **state)
{
    const char *found = findings(*state, V "ledger: mysql://u:hunter2@h\n", SM_ERROR);
    assert_null(strstr(found, "hunter2"));
}

/* ---- what may be started ---------------------------------------------------------------------*/

static void an_address_that_others_reach_needs_tls_or_a_proxy(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool safe;
    } rows[] = {
        {V "listen: 127.0.0.1:1\n", true},
        {V "listen: 127.8.9.1:1\n", true},
        {V "listen: localhost:1\n", true},
        {V "listen: '[::1]:1'\n", true},
        {V "listen: '[::ffff:127.0.0.1]:1'\n", true},
        {V "listen: unix:/run/x.sock\n", true},
        {V "listen: 0.0.0.0:1\n", false},
        {V "listen: '[::]:1'\n", false},
        {V "listen: 10.0.0.1:1\n", false},
        {V "listen: 128.0.0.1:1\n", false},
        {V "listen: [127.0.0.1:1, 10.0.0.1:1]\n", false},
        {V "listen: '[::ffff:10.0.0.1]:1'\n", false},
        {V "listen: 10.0.0.1:1\nbehind_proxy: true\n", true},
        {V "listen: 10.0.0.1:1\nbehind_proxy: false\n", false},
        {V "listen: 10.0.0.1:1\ntls: { certificate: a, key: b }\n", true},
        {V "listen: 10.0.0.1:1\ntls: off\n", false},
    };
    setenv("HOME", "/home/u", 1);
    for (size_t i = 0; i < COUNT(rows); i++) {
        gw_config *c = config(rows[i].text);
        sm_fault fault = {0};
        sm_err e = gw_config_safe(c, &fault);
        expect((e == SM_OK) == rows[i].safe, "%s: %s", rows[i].text, fault.text);
        if (!rows[i].safe) {
            assert_non_null(strstr(fault.text, "tls:"));
            assert_non_null(strstr(fault.text, "behind_proxy: true"));
            assert_non_null(strstr(fault.text, "unix:PATH"));
        }
        gw_config_free(c);
    }
}

static void what_is_named_has_its_place(void **state)
{
    (void)state;
    gw_config *c = config(V "listen: [127.0.0.1:1, 10.0.0.1:1]\n"
                            "tls: { certificate: a, key: b }\n"
                            "contract: tools.yaml\n"
                            "proxies: { p: { url: 'http://x', headers: { A: '${SM_UNSET}' } } }\n");
    static const struct {
        gw_named which;
        const char *name;
        uint32_t line, column;
    } rows[] = {
        {GW_NAMED_CERTIFICATE, "tls.certificate", 3, 21},
        {GW_NAMED_KEY, "tls.key", 3, 29},
        {GW_NAMED_CONTRACT, "contract", 4, 11},
        {GW_NAMED_TOKENS, "tokens", 0, 0}, /* it is not in the file */
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const gw_place *at = &c->places[rows[i].which];
        assert_string_equal(at->name, rows[i].name);
        expect(at->line == rows[i].line && at->column == rows[i].column, "%s is at %u:%u", at->name,
               at->line, at->column);
    }
    c->tls.on = false;
    sm_fault fault = {0};
    assert_int_equal(gw_config_safe(c, &fault), SEMEL_E_INVALID);
    expect(fault.line == 2 && fault.column == 23, "at %u:%u", fault.line, fault.column);
    assert_int_equal(strncmp(fault.text, "listen: 10.0.0.1:1 ", 19), 0);
    gw_config_free(c);
}

static void note_fault(void *context, const sm_fault *fault)
{
    sm_buf_printf(context, "%u:%u: %s\n", fault->line, fault->column, fault->text);
}

static void variables_of_a_configuration_are_looked_for(void **state)
{
    (void)state;
    unsetenv("SM_UNSET");
    gw_config *c = config(V "ledger: 'postgres://u:${SM_UNSET}@h/d'\n"
                            "proxies: { p: { url: 'http://x', headers: { A: '${SM_UNSET}' } } }\n");
    sm_buf told, url;
    sm_fault fault = {0};
    sm_buf_init(&told, 2000);
    sm_buf_init(&url, 2000);
    assert_int_equal(gw_config_variables(c, note_fault, &told), 1);
    expect_text(sm_buf_view(&told), "3:12: proxies: the environment variable SM_UNSET is not set; "
                                    "the header A of p needs it\n");
    assert_int_equal(gw_config_ledger(c, &url, &fault), SEMEL_E_INVALID);
    expect(fault.line == 2 && fault.column == 9, "at %u:%u", fault.line, fault.column);
    sm_buf_clear(&url);
    setenv("SM_UNSET", "pw", 1);
    assert_int_equal(gw_config_variables(c, note_fault, &told), 0);
    assert_int_equal(gw_config_ledger(c, &url, &fault), SM_OK);
    assert_string_equal(url.p, "postgres://u:pw@h/d");
    unsetenv("SM_UNSET");
    sm_buf_fini(&told);
    sm_buf_fini(&url);
    gw_config_free(c);
}

static void variables_of_mcp_servers_are_looked_for(void **state)
{
    (void)state;
    unsetenv("SM_UNSET");
    gw_config *c = config(V "mcp:\n"
                            "  a: { url: 'http://x', headers: { A: 'Bearer ${SM_UNSET}' } }\n"
                            "  b: { command: x, env: { B: '${SM_UNSET}', C: plain } }\n");
    sm_buf told;
    sm_buf_init(&told, 2000);
    assert_int_equal(gw_config_variables(c, note_fault, &told), 2);
    expect_text(sm_buf_view(&told), "3:3: mcp: the environment variable SM_UNSET is not set; the "
                                    "header A of a needs it\n"
                                    "4:3: mcp: the environment variable SM_UNSET is not set; the "
                                    "variable B of b needs it\n");
    setenv("SM_UNSET", "", 1); /* set, to nothing */
    assert_int_equal(gw_config_variables(c, note_fault, &told), 0);
    unsetenv("SM_UNSET");
    sm_buf_fini(&told);
    gw_config_free(c);
}

/* Nothing is read from it: one message says what is wrong. */
static void a_directory_in_the_place_of_a_file_is_told_once(void **state)
{
    (void)state;
    gw_config *c = config(V "contract: /\nseal_key: /\nca_file: /\n"
                            "tls: { certificate: /, key: / }\n");
    sm_buf told;
    sm_buf_init(&told, 2000);
    assert_int_equal(gw_config_files(c, note_fault, &told),
                     1u << GW_NAMED_CONTRACT | 1u << GW_NAMED_SEAL_KEY | 1u << GW_NAMED_CA_FILE |
                         1u << GW_NAMED_CERTIFICATE | 1u << GW_NAMED_KEY);
    expect_text(sm_buf_view(&told), "2:11: contract: / is not a file\n"
                                    "3:11: seal_key: / is not a file\n"
                                    "5:21: tls.certificate: / is not a file\n"
                                    "5:29: tls.key: / is not a file\n"
                                    "4:10: ca_file: / is not a file\n");
    sm_buf_fini(&told);
    gw_config_free(c);
}

static void make_file(const char *directory, const char *name, int mode)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    close(fd);
}

static void remove_file(const char *directory, const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    assert_int_equal(unlink(path), 0);
}

static void commands_of_mcp_servers_are_looked_for(void **state)
{
    (void)state;
    char directory[] = "/tmp/semel-unit-XXXXXX", path[300], text[1500];
    const char *before = getenv("PATH");
    char *kept = before == NULL ? NULL : strdup(before);
    assert_non_null(mkdtemp(directory));
    make_file(directory, "sm-program", 0700);
    make_file(directory, "sm-text", 0600);
    snprintf(path, sizeof path, "/nowhere:%s", directory);
    setenv("PATH", path, 1);
    snprintf(text, sizeof text,
             V "mcp:\n"
               "  in-path: { command: [sm-program, sm-none] }\n"
               "  absolute: { command: %s/sm-program }\n"
               "  relative: { command: ./sm-program, directory: %s }\n"
               "  away: { url: 'http://127.0.0.1:1' }\n"
               "  none: { command: sm-none }\n"
               "  text: { command: sm-text }\n"
               "  gone: { command: ./sm-none, directory: %s }\n"
               "  folder: { command: %s }\n"
               "  lost: { command: sm-program, directory: %s/sm-none }\n"
               "  file: { command: sm-program, directory: %s/sm-text }\n",
             directory, directory, directory, directory, directory, directory);
    gw_config *c = config(text);
    sm_buf told;
    sm_buf_init(&told, 4000);
    assert_int_equal(gw_config_commands(c, note_fault, &told), 6);
    sm_buf_byte(&told, '\0');
    static const char *const says[] = {
        "7:3: mcp: none cannot be started: sm-none is in no directory of PATH;",
        "8:3: mcp: text cannot be started: sm-text may not be executed",
        "9:3: mcp: gone cannot be started: ./sm-none is not there",
        "10:3: mcp: folder cannot be started: ",
        "11:3: mcp: lost cannot be started: its directory ",
        "12:3: mcp: file cannot be started: its directory ",
    };
    for (size_t i = 0; i < COUNT(says); i++)
        expect(strstr(told.p, says[i]) != NULL, "expected <%s> in:\n%s", says[i], told.p);
    sm_buf_fini(&told);
    gw_config_free(c);
    if (kept != NULL)
        setenv("PATH", kept, 1);
    else
        unsetenv("PATH");
    free(kept);
    remove_file(directory, "sm-program");
    remove_file(directory, "sm-text");
    assert_int_equal(rmdir(directory), 0);
}

static void without_a_home_tokens_need_a_name(void **state)
{
    (void)state;
    unsetenv("HOME");
    unsetenv("XDG_STATE_HOME");
    gw_config *c = config(V);
    sm_fault fault;
    assert_int_equal(gw_config_safe(c, &fault), SEMEL_E_INVALID);
    assert_non_null(strstr(fault.text, "tokens:"));
    gw_config_free(c);
    setenv("HOME", "/home/u", 1);
}

static void variables_are_put_in_when_they_are_used(void **state)
{
    (void)state;
    static const struct {
        const char *text, *is;
    } rows[] = {{"", ""},
                {"plain $ and $x", "plain $ and $x"},
                {"a${SM_T}b${SM_T}", "asecretbsecret"},
                {"${SM_EMPTY}", ""},
                {"${SM_T", "${SM_T"}};
    setenv("SM_T", "secret", 1);
    setenv("SM_EMPTY", "", 1);
    sm_buf b;
    sm_fault fault;
    sm_buf_init(&b, 1000);
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_buf_clear(&b);
        assert_int_equal(gw_expand(sm_str_from(rows[i].text), &b, &fault), SM_OK);
        expect_text(sm_buf_view(&b), rows[i].is);
    }
    assert_int_equal(gw_expand(SM_STR("${SM_T}${SM_NOT_SET}"), &b, &fault), SEMEL_E_INVALID);
    assert_non_null(strstr(fault.text, "SM_NOT_SET"));
    assert_null(strstr(fault.text, "secret"));
    assert_int_equal(gw_expand(SM_STR("${}"), &b, &fault), SEMEL_E_INVALID);
    sm_buf_fini(&b);
}

/* ---- the log ---------------------------------------------------------------------------------*/

/* What a line looks like behind its time. */
static sm_str logged(sm_arena *a, int format, const gw_log_field *fields, size_t n)
{
    int ends[2];
    char text[40000];
    assert_int_equal(pipe(ends), 0);
    assert_true(fcntl(ends[1], F_SETPIPE_SZ, 65536) >= 65536);
    gw_log log = {.rule = {.format = format, .level = GW_INFO}, .fd = ends[1]};
    gw_say_fields(&log, GW_DEBUG, "not told", NULL, 0);
    gw_say_fields(&log, GW_WARN, "what\nhappened", fields, n);
    close(ends[1]);
    ssize_t got = read(ends[0], text, sizeof text);
    close(ends[0]);
    assert_true(got > 0 && text[got - 1] == '\n');
    assert_null(memchr(text, '\n', (size_t)got - 1)); /* one line */
    return sm_arena_text(a, (sm_str){text, (size_t)got - 1});
}

static void a_line_is_one_line_whatever_is_in_it(void **state)
{
    const gw_log_field fields[] = {
        {"plain", SM_STR("GET"), false},
        {"blank", SM_STR("a b"), false},
        {"evil", SM_STR("x\n\033[31m\xE2\x80\xAE\xFF\"\\"), false},
        {"absent", {0}, false},
        {"empty", SM_STR(""), false},
        {"ms", SM_STR("12"), true},
    };
    sm_str text = logged(*state, GW_LOG_TEXT, fields, COUNT(fields));
    expect_text(((sm_str){text.p + 24, text.n - 24}),
                " warn  what\\x0Ahappened  plain=GET blank=\"a b\" "
                "evil=\"x\\\\x0A\\\\x1B[31m\\\\u202E\\\\xFF\\\"\\\\\" empty=\"\" ms=12");
    text = logged(*state, GW_LOG_JSON, fields, COUNT(fields));
    const sm_json *root = document(*state, text.p);
    expect_text(sm_json_text(sm_json_find(root, SM_STR("level"))), "warn");
    expect_text(sm_json_text(sm_json_find(root, SM_STR("message"))), "what\\x0Ahappened");
    expect_text(sm_json_text(sm_json_find(root, SM_STR("blank"))), "a b");
    expect_text(sm_json_text(sm_json_find(root, SM_STR("evil"))),
                "x\\x0A\\x1B[31m\\u202E\\xFF\"\\");
    assert_int_equal(sm_json_find(root, SM_STR("ms"))->type, SM_JSON_NUMBER);
    assert_null(sm_json_find(root, SM_STR("absent")));
}

static void a_line_is_bounded_and_stays_whole(void **state)
{
    static char huge[100000];
    memset(huge, '\001', sizeof huge);
    gw_log_field fields[20];
    for (size_t i = 0; i < COUNT(fields); i++)
        fields[i] = (gw_log_field){.name = "f", .value = {huge, sizeof huge}};
    sm_str text = logged(*state, GW_LOG_TEXT, fields, COUNT(fields));
    expect(text.n < 16384, "%zu bytes", text.n);
    fields[0].name = "one";
    text = logged(*state, GW_LOG_JSON, fields, 2);
    expect(text.n < 16384 && text.p[text.n - 1] == '}', "%zu bytes", text.n);
    document(*state, text.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_file_is_read),
        cmocka_unit_test(what_is_left_out_has_a_default),
        cmocka_unit_test(mcp_servers_are_commands_and_urls),
        cmocka_unit_test(a_file_of_sqlite_is_seen_from_the_configuration),
        with_arena(mistakes_are_placed_and_told_with_what_is_right),
        with_arena(mistakes_about_mcp_servers_are_told_likewise),
        with_arena(mcp_servers_and_their_names_are_bounded),
        with_arena(every_mistake_is_reported),
        with_arena(doubtful_values_are_warned_about),
        with_arena(a_wrong_ledger_is_not_repeated),
        cmocka_unit_test(an_address_that_others_reach_needs_tls_or_a_proxy),
        cmocka_unit_test(what_is_named_has_its_place),
        cmocka_unit_test(variables_of_a_configuration_are_looked_for),
        cmocka_unit_test(variables_of_mcp_servers_are_looked_for),
        cmocka_unit_test(a_directory_in_the_place_of_a_file_is_told_once),
        cmocka_unit_test(commands_of_mcp_servers_are_looked_for),
        cmocka_unit_test(without_a_home_tokens_need_a_name),
        cmocka_unit_test(variables_are_put_in_when_they_are_used),
        with_arena(a_line_is_one_line_whatever_is_in_it),
        with_arena(a_line_is_bounded_and_stays_whole),
    };
    return cmocka_run_group_tests_name("gateway_config", tests, NULL, NULL);
}
