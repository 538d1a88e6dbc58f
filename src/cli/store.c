/* semel store check, semel store migrate: what keeps a ledger, and making it ready. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cli/ledger.h"
#include "json/write.h"

#define ASKS           9 /* round trips that are timed */
#define PARTITIONS_MAX 1024u

/* ---- check -----------------------------------------------------------------------------------*/

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Asks for an effect that nobody has, a few times; the median in nanoseconds. */
static semel_err round_trip(cli_ledger *l, int64_t *ns)
{
    int64_t took[ASKS];
    semel_name name = {.size = sizeof name, .scope = SM_STR("semel"), .key = SM_STR("store check")};
    for (int i = 0; i < ASKS; i++) {
        int64_t began = sm_clock_mono_ns();
        semel_err e = semel_get(l->s, &name, l->a);
        took[i] = sm_clock_mono_ns() - began;
        if (e != SEMEL_OK && e != SEMEL_E_NOT_FOUND)
            return e;
    }
    qsort(took, ASKS, sizeof took[0], by_size);
    *ns = took[ASKS / 2];
    return SEMEL_OK;
}

static void put_json(sm_buf *b, const semel_stats *t, int64_t ns)
{
    const semel_health *h = &t->store;
    sm_buf_byte(b, '{');
    sm_put_text(b, "ledger", sm_str_from(h->where));
    sm_put_text(b, "server", sm_str_from(h->server));
    sm_put_bool(b, "durable", (t->caps & SEMEL_STORE_DURABLE) != 0);
    if (h->durability[0] != '\0')
        sm_put_text(b, "durability", sm_str_from(h->durability));
    sm_put_bool(b, "irreversible", (t->caps & SEMEL_STORE_LOSSY) == 0);
    sm_put_bool(b, "shared", (t->caps & SEMEL_STORE_SHARED) != 0);
    sm_put_bool(b, "notify", (t->caps & SEMEL_STORE_NOTIFY) != 0);
    if ((t->caps & SEMEL_STORE_CLOCK) != 0)
        sm_put_signed(b, "clock_ahead_ms", t->ahead_ms);
    sm_put_signed(b, "round_trip_us", ns / 1000);
    sm_put_number(b, "schema", h->schema);
    sm_put_number(b, "effects", h->records);
    sm_put_number(b, "bytes", h->bytes);
    sm_buf_text(b, "}\n");
}

static void put_clock(sm_buf *b, const semel_stats *t)
{
    int64_t off = t->ahead_ms < 0 ? -t->ahead_ms : t->ahead_ms;
    if ((t->caps & SEMEL_STORE_CLOCK) == 0)
        cli_row(b, "clock", SM_STR("this machine's"));
    else if (off < 1000)
        cli_row(b, "clock", SM_STR("the server's, and this machine's agrees"));
    else
        cli_rowf(b, "clock", "the server's; this machine's is %" PRId64 ".%" PRId64 " s %s",
                 off / 1000, off % 1000 / 100, t->ahead_ms > 0 ? "behind" : "ahead");
}

static void put_text(sm_buf *b, const semel_stats *t, int64_t ns)
{
    const semel_health *h = &t->store;
    char size[CLI_SIZE_TEXT];
    cli_size_text(h->bytes, size);
    cli_row(b, "ledger", sm_str_from(h->where));
    cli_row(b, "server", h->server[0] == '\0' ? (sm_str){0} : sm_str_from(h->server));
    if ((t->caps & SEMEL_STORE_DURABLE) != 0)
        cli_row(b, "durable", SM_STR("yes"));
    else
        cli_rowf(b, "durable", "NO: %s", h->durability);
    if ((t->caps & SEMEL_STORE_LOSSY) != 0)
        cli_row(b, "", SM_STR("irreversible tools are refused"));
    cli_row(b, "waiters",
            (t->caps & SEMEL_STORE_NOTIFY) != 0 ? SM_STR("woken at once")
                                                : SM_STR("look again and again"));
    put_clock(b, t);
    cli_rowf(b, "round trip", "%.2f ms", (double)ns / 1e6);
    cli_rowf(b, "effects", "about %" PRIu64 " in %s", h->records, size);
    cli_rowf(b, "schema", "%" PRIu64, h->schema);
}

static int check(cli_ledger *l, void *own)
{
    (void)own;
    semel_stats stats = {.size = sizeof stats};
    semel_fault fault = {0};
    int64_t ns = 0;
    semel_err e = semel_stats_get(l->s, false, &stats, &fault);
    if (e == SEMEL_OK)
        e = round_trip(l, &ns);
    if (e != SEMEL_OK)
        return cli_ledger_unavailable(l, e, &fault);
    (l->o.json ? put_json : put_text)(&l->out, &stats, ns);
    return (stats.caps & SEMEL_STORE_DURABLE) == 0 ? CLI_DIFFERENT : CLI_OK;
}

/* ---- migrate ---------------------------------------------------------------------------------*/

static int take_partitions(const cli_command *self, int c, void *own)
{
    (void)c;
    if (strcmp(optarg, "0") == 0 || cli_number(optarg, PARTITIONS_MAX, own))
        return CLI_OK;
    return cli_usage(self, "--partitions takes a number from 0 to %u, not \"%s\"", PARTITIONS_MAX,
                     optarg);
}

static int migrate(const cli_command *self, cli_ledger *l, const char *argument, void *own)
{
    (void)self, (void)argument;
    const uint64_t *partitions = own;
    if (l->o.url != NULL && *l->o.url == '\0')
        return cli_ledger_nameless();
    semel_fault fault = {0};
    semel_err e = semel_migrate(l->o.url, (uint32_t)*partitions, &fault);
    return e == SEMEL_OK ? CLI_OK : cli_ledger_unavailable(l, e, &fault);
}

static int tell_migrated(cli_ledger *l, void *own)
{
    (void)own;
    semel_stats stats = {.size = sizeof stats};
    semel_fault fault = {0};
    sm_buf *b = &l->out;
    semel_err e = semel_stats_get(l->s, false, &stats, &fault);
    if (e != SEMEL_OK)
        return cli_ledger_unavailable(l, e, &fault);
    if (l->o.json) {
        sm_buf_byte(b, '{');
        sm_put_text(b, "ledger", sm_str_from(stats.store.where));
        sm_put_number(b, "schema", stats.store.schema);
        sm_buf_text(b, "}\n");
    } else {
        cli_styled(b, CLI_GREEN, SM_STR("ready"));
        sm_buf_byte(b, '\n');
        cli_row(b, "ledger", sm_str_from(stats.store.where));
        cli_rowf(b, "schema", "%" PRIu64, stats.store.schema);
    }
    return CLI_OK;
}

static const struct option migrate_table[] = {
    {"partitions", required_argument, NULL, 'p'}, CLI_LEDGER_OPTIONS, {0}};

const cli_command cli_store_check = {
    .name = "store check",
    .summary = "what keeps the ledger, and what a crash could lose",
    .help = "  semel store check --ledger postgres://agents@db.example/prod\n\n"
            "Usage: semel store check\n\n" CLI_LEDGER_HELP CLI_JSON_HELP
            "\nConnects as every other command does and tells what it found: the server and its\n"
            "version, whether it keeps what it has acknowledged, whose clock decides, and how\n"
            "long one question takes. Nothing is changed.\n\n"
            "Exit code: 0 it is durable, 1 a crash could lose acknowledged effects, 69 it cannot\n"
            "be used.\n",
    .run = cli_ledger_run,
    .ledger = &(const cli_ledger_use){.work = check},
};

const cli_command cli_store_migrate = {
    .name = "store migrate",
    .summary = "make a ledger, or bring it up to this version",
    .help =
        "  semel store migrate --ledger postgres://owner@db.example/prod --partitions 16\n\n"
        "Usage: semel store migrate [--partitions N]\n\n"
        "  --partitions N           Postgres: split the tables of a new ledger into N parts;\n"
        "                           0, the default: do not\n" CLI_LEDGER_HELP CLI_JSON_HELP
        "\n`run`, `begin` and `import` make a ledger that is not there yet. This is for making it\n"
        "without using it, if those who use it may not create tables, for partitions, after an\n"
        "upgrade that says so, and after a database was restored from a dump. It may be run again\n"
        "at any time, while others use the ledger.\n",
    .run = cli_ledger_run,
    .ledger =
        &(const cli_ledger_use){
            .own = &(uint64_t){0},
            .table = migrate_table,
            .option = take_partitions,
            .check = migrate,
            .work = tell_migrated,
        },
};
