/*
 * semel audit tail, verify, export and seal: the trail of everything that happened.
 *
 * tail and export print as they read: a trail may be larger than memory.
 */
#include <errno.h>
#include <inttypes.h>
#include <semaphore.h>
#include <signal.h>

#include "base/limits.h"
#include "cli/ledger.h"
#include "cli/story.h"
#include "cli/verify.h"

#define PAGE         1000u
#define TAIL_DEFAULT 20u
#define TAIL_MAX     100000u

/* ---- events ----------------------------------------------------------------------------------*/

/* Appends an event's JSON. */
static void put_event(sm_buf *out, const semel_event *e)
{
    size_t need = 512;
    for (int tries = 0; tries < 2 && sm_buf_reserve(out, need); tries++) {
        size_t room = out->cap - out->len, n = 0;
        semel_err err = semel_event_json(e, out->p + out->len, room, &n);
        if (err == SEMEL_OK && n <= room) {
            out->len += n;
            return;
        }
        if (n <= room)
            out->err = err;
        need = n;
    }
}

/* How events are printed: to stdout, as they come. */
typedef struct printer {
    cli_table table;
    sm_buf out;
    sm_arena arena;
    bool json, titled, with_effect;
    const char *only; /* the handle of the one effect to print, or NULL */
    uint64_t skip;    /* this many before printing */
    uint64_t seen;
    uint64_t last; /* seq */
} printer;

static void printer_init(printer *p, bool json, const char *only)
{
    *p = (printer){.json = json, .only = only, .with_effect = only == NULL};
    if (!json)
        cli_event_columns(&p->table, p->with_effect);
    sm_buf_init(&p->out, SM_ARENA_MAX);
    sm_arena_init(&p->arena, SM_ARENA_MAX);
}

static void printer_fini(printer *p)
{
    cli_table_fini(&p->table);
    sm_buf_fini(&p->out);
    sm_arena_fini(&p->arena);
}

/* Writes what was collected. */
static int printer_flush(printer *p)
{
    if (!p->json && p->table.count > 0) {
        cli_table_put(&p->table, 0, !p->titled, &p->out);
        p->titled = true;
    }
    int code = cli_write(&p->out);
    sm_buf_clear(&p->out);
    return ferror(stdout) ? CLI_IO : code; /* cli_done explains the former */
}

/* Takes the event that stands in `out` from `at` on, if it is one to print. */
static void take_event(printer *p, size_t at)
{
    const sm_json *event = cli_story_read(&p->arena, (sm_str){p->out.p + at, p->out.len - at});
    bool wanted =
        event != NULL && (p->only == NULL || sm_str_is(cli_member(event, "effect"), p->only));
    if (wanted && !p->json)
        cli_event_row(&p->table, event, p->with_effect);
    if (!wanted || !p->json)
        p->out.len = at;
    sm_arena_reset(&p->arena);
}

static bool print_event(void *context, const semel_event *e)
{
    printer *p = context;
    p->seen++;
    p->last = e->seq;
    if (p->skip > 0) {
        p->skip--;
        return true;
    }
    size_t at = p->out.len;
    put_event(&p->out, e);
    sm_buf_byte(&p->out, '\n');
    if (p->out.err == SM_OK && (!p->json || p->only != NULL))
        take_event(p, at);
    return p->out.err == SM_OK;
}

static bool count_event(void *context, const semel_event *e)
{
    (void)e;
    ++*(uint64_t *)context;
    return true;
}

/* Gives the sink every event after a position, page by page; `flush`, if there is one, prints in
 * between. */
static int each_event(cli_ledger *l, sm_str effect, uint64_t after, semel_event_sink *sink,
                      void *context, printer *flush)
{
    int code = CLI_OK;
    for (bool more = true; more && code == CLI_OK;) {
        uint64_t before = after;
        semel_fault fault = {0};
        semel_err e = semel_events(l->s, effect, &after, PAGE, sink, context, &fault);
        if (e != SEMEL_OK)
            code = cli_ledger_fault(e, &fault);
        else if (flush != NULL)
            code = printer_flush(flush);
        more = after != before;
    }
    return code;
}

/* ---- tail ------------------------------------------------------------------------------------*/

typedef struct tail_options {
    uint64_t n;
    const char *effect;
    bool follow;
} tail_options;

/* Where to start so that at least n events follow, and how many of them to skip. The newest are
 * counted from, for numbers may have gaps. */
static int find_start(cli_ledger *l, const tail_options *o, uint64_t *after, uint64_t *skip)
{
    semel_stats stats = {.size = sizeof stats};
    semel_fault fault = {0};
    semel_err e = semel_stats_get(l->s, false, &stats, &fault);
    if (e != SEMEL_OK)
        return cli_ledger_fault(e, &fault);
    uint64_t last = stats.store.last_seq, count = 0;
    for (uint64_t window = o->effect != NULL ? last : o->n;; window *= 4) {
        *after = window < last ? last - window : 0;
        count = 0;
        int code = each_event(l, cli_opt(o->effect), *after, count_event, &count, NULL);
        if (code != CLI_OK)
            return code;
        if (count >= o->n || *after == 0)
            break;
    }
    *skip = count > o->n ? count - o->n : 0;
    return CLI_OK;
}

static sem_t stop;
static volatile sig_atomic_t stop_signal;

static void on_signal(int sig)
{
    stop_signal = sig;
    sem_post(&stop);
}

/* Called by the subscription's thread; nobody else prints meanwhile. */
static bool follow_event(void *context, const semel_event *e)
{
    printer *p = context;
    bool going = print_event(p, e) && printer_flush(p) == CLI_OK && fflush(stdout) == 0;
    if (!going)
        sem_post(&stop);
    return going;
}

static int follow(cli_ledger *l, printer *p, uint64_t after)
{
    struct sigaction action = {.sa_handler = on_signal};
    semel_subscription *sub = NULL;
    semel_fault fault = {0};
    fflush(stdout);
    sem_init(&stop, 0, 0);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    semel_err e = semel_subscribe(l->s, after, follow_event, p, &sub, &fault);
    if (e != SEMEL_OK)
        return cli_ledger_fault(e, &fault);
    while (sem_wait(&stop) != 0 && errno == EINTR)
        continue;
    semel_unsubscribe(sub);
    return stop_signal != 0 ? 128 + stop_signal : CLI_OK;
}

static int take_tail_option(const cli_command *self, int c, void *own)
{
    tail_options *o = own;
    if (c == 'f')
        o->follow = true;
    else if (!cli_number(optarg, TAIL_MAX, &o->n))
        return cli_usage(self, "-n: \"%s\" is no number from 1 to %u", optarg, TAIL_MAX);
    return CLI_OK;
}

static int check_tail(const cli_command *self, cli_ledger *l, const char *argument, void *own)
{
    (void)l, (void)argument;
    const tail_options *o = own;
    if (o->effect != NULL && !cli_is_handle(o->effect, "ef_"))
        return cli_usage(self, "--effect: \"%s\" is no handle, ef_...", o->effect);
    return CLI_OK;
}

static int print_tail(cli_ledger *l, void *own)
{
    const tail_options *o = own;
    printer p;
    printer_init(&p, l->o.json, o->effect);
    uint64_t after = 0;
    int code = find_start(l, o, &after, &p.skip);
    if (code == CLI_OK) {
        p.last = after;
        code = each_event(l, cli_opt(o->effect), after, print_event, &p, &p);
    }
    if (code == CLI_OK && p.seen == 0 && !o->follow)
        fprintf(stderr, "No events.\n");
    if (code == CLI_OK && o->follow)
        code = follow(l, &p, p.last);
    printer_fini(&p);
    return code;
}

/* ---- export, seal, verify --------------------------------------------------------------------*/

static int export_events(cli_ledger *l, void *own)
{
    (void)own;
    printer p;
    printer_init(&p, true, NULL);
    int code = each_event(l, (sm_str){0}, 0, print_event, &p, &p);
    printer_fini(&p);
    return code;
}

static int seal(cli_ledger *l, void *own)
{
    (void)own;
    semel_fault fault = {0};
    semel_stats stats = {.size = sizeof stats};
    const semel_health *h = &stats.store;
    semel_err e = semel_seal(l->s, &fault);
    if (e == SEMEL_OK)
        e = semel_stats_get(l->s, false, &stats, &fault);
    if (e != SEMEL_OK)
        return cli_ledger_fault(e, &fault);
    if (l->o.json)
        sm_buf_printf(&l->out, "{\"seals\":%" PRIu64 ",\"seal_seq\":%" PRIu64 "}\n", h->seal_index,
                      h->seal_seq);
    else if (h->seal_index == 0)
        sm_buf_text(&l->out, "There is nothing to seal.\n");
    else
        sm_buf_printf(&l->out, "Sealed: seal %" PRIu64 " is event %" PRIu64 ".\n", h->seal_index,
                      h->seal_seq);
    return CLI_OK;
}

static int verify(cli_ledger *l, void *own)
{
    (void)own;
    cli_verification v;
    int code = cli_verify(l, &v);
    if (code != CLI_OK)
        return code;
    cli_put_verified(&l->out, &v, l->o.json);
    sm_buf_byte(&l->out, '\n');
    cli_verified_fini(&v);
    return v.counts.flaws > 0 ? CLI_DIFFERENT : CLI_OK;
}

static const struct option tail_table[] = {
    {"lines", required_argument, NULL, 'n'},
    {"follow", no_argument, NULL, 'f'},
    CLI_TEXT("effect", tail_options, effect),
    CLI_LEDGER_OPTIONS,
    {0},
};

const cli_command cli_audit_tail = {
    .name = "audit tail",
    .summary = "the newest events, and those that come",
    .help = "  semel audit tail -n 50\n"
            "  semel audit tail --follow --json | jq .what\n\n"
            "Usage: semel audit tail [-n N] [--follow] [--effect ef_...]\n\n"
            "  -n N, --lines N          so many of the newest (default: 20)\n"
            "  -f, --follow             then print what comes, until interrupted\n"
            "  --effect ef_...          of this effect only\n" CLI_LEDGER_HELP
            "  --json                   one JSON object for each line\n",
    .run = cli_ledger_run,
    .ledger =
        &(const cli_ledger_use){
            .own = &(tail_options){.n = TAIL_DEFAULT},
            .table = tail_table,
            .letters = "n:f",
            .option = take_tail_option,
            .check = check_tail,
            .work = print_tail,
        },
};

const cli_command cli_audit_verify = {
    .name = "audit verify",
    .summary = "check that no event was altered, removed or reordered",
    .help =
        "  semel audit verify --seal-key /etc/semel/seal.key\n\n"
        "Usage: semel audit verify\n\n" CLI_LEDGER_HELP CLI_JSON_HELP
        "\nEvery event carries the hash of the one before it within its effect, and seals chain\n"
        "digests over all of them. Whoever can write the ledger can also make new seals, unless\n"
        "they are keyed: give the key that they were made with. What came after the last seal\n"
        "is checked by its chains only; semel audit seal seals it.\n\n"
        "Exit code 0 if nothing is wrong, 1 with a line for each flaw if something is.\n",
    .run = cli_ledger_run,
    .ledger = &(const cli_ledger_use){.work = verify},
};

const cli_command cli_audit_export = {
    .name = "audit export",
    .summary = "all events as JSON Lines",
    .help = "  semel audit export > events.jsonl\n\n"
            "Usage: semel audit export\n\n" CLI_LEDGER_HELP
            "\nOne JSON object for each line, oldest first; --json changes nothing.\n",
    .run = cli_ledger_run,
    .ledger = &(const cli_ledger_use){.work = export_events},
};

const cli_command cli_audit_seal = {
    .name = "audit seal",
    .summary = "seal the events that are not sealed yet",
    .help = "  semel audit seal --seal-key /etc/semel/seal.key\n\n"
            "Usage: semel audit seal\n\n" CLI_LEDGER_HELP CLI_JSON_HELP
            "\nA ledger seals itself now and then while it is used.\n",
    .run = cli_ledger_run,
    .ledger = &(const cli_ledger_use){.work = seal},
};
