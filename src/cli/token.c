/* semel token create, list and revoke: who may use the gateway. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/duration.h"
#include "base/limits.h"
#include "base/suggest.h"
#include "cli/config.h"
#include "cli/ledger.h"
#include "cli/when.h"
#include "gateway/tokens.h"
#include "json/write.h"

typedef struct options {
    const char *tokens, *config, *role, *scope, *name, *expires;
    bool all_scopes, json;
} options;

#define FILE_OPTIONS                                                                               \
    CLI_TEXT("tokens", options, tokens), CLI_TEXT("config", options, config),                      \
        CLI_FLAG("json", options, json),                                                           \
    {                                                                                              \
        "help", no_argument, NULL, 'h'                                                             \
    }
#define FILE_HELP                                                                                  \
    "  --tokens FILE            the file of tokens; else the one that --config names, else the\n"  \
    "                           user's own, where `semel serve` looks too\n"                       \
    "  --config FILE            the gateway's configuration, for its file of tokens\n"

static int read_options(const cli_command *self, int argc, char **argv, const struct option *table,
                        options *o)
{
    int c = cli_option(self, argc, argv, table, o);
    if (c != -1)
        return c == 'h' ? 'h' : CLI_USAGE;
    if (o->tokens != NULL && o->config != NULL)
        return cli_usage(self, "--tokens and --config both name the file; give one of them");
    if (o->tokens != NULL && *o->tokens == '\0')
        return cli_usage(self, "--tokens is empty: name a file, or leave the option out");
    return CLI_OK;
}

/* The file that the options mean, to be freed. */
static int find_file(const options *o, char **out)
{
    *out = NULL;
    gw_config *config = NULL;
    int code = o->tokens != NULL ? CLI_OK : cli_config_read(o->config, &config);
    if (code == CLI_OK && config != NULL && config->tokens.p == NULL)
        code = cli_fail(CLI_DATA, "there is no home directory for the tokens; give --tokens FILE");
    if (code == CLI_OK) {
        *out = strdup(o->tokens != NULL ? o->tokens : config->tokens.p);
        if (*out == NULL)
            code = cli_fail(CLI_INTERNAL, "%s", semel_err_text(SEMEL_E_NOMEM));
    }
    gw_config_free(config);
    return code;
}

static int explain(sm_err e, const sm_fault *fault)
{
    return cli_fail(cli_code(e), "%s", fault->text[0] != '\0' ? fault->text : semel_err_text(e));
}

/* The members of a token's object. */
static void put_members(sm_buf *b, const gw_token *t)
{
    gw_token_put(b, t);
    sm_put_stamp(b, "made_at", t->made_at);
    sm_put_stamp(b, "ends_at", t->ends_at);
}

/* ---- create ----------------------------------------------------------------------------------*/

static int read_role(const cli_command *self, const char *text, gw_role *out)
{
    static const gw_role all[] = {GW_AGENT, GW_APPROVER, GW_OPERATOR, GW_ADMIN};
    sm_nearest nearest = {0};
    if (text == NULL)
        return cli_usage(self, "--role is missing: agent, approver, operator or admin");
    if (gw_role_parse(sm_str_from(text), out))
        return CLI_OK;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        sm_nearest_try(&nearest, sm_str_from(text), sm_str_from(gw_role_name(all[i])));
    sm_str near = sm_nearest_get(&nearest, sm_str_from(text));
    if (near.p != NULL)
        return cli_usage(self, "there is no role \"%s\"; did you mean \"%.*s\"?", text,
                         SM_FMT(near));
    return cli_usage(self, "there is no role \"%s\": agent, approver, operator or admin", text);
}

/* Nobody should get everything by forgetting an option. */
static int read_scope(const cli_command *self, const options *o, gw_token *what)
{
    if (o->scope != NULL && o->all_scopes)
        return cli_usage(self, "--scope and --all-scopes exclude each other");
    if (o->scope == NULL && !o->all_scopes && (what->role & (GW_AGENT | GW_APPROVER)) != 0)
        return cli_usage(self,
                         "--scope is missing: the scopes that this %s may use, such as acme/ci for "
                         "that and everything below it; --all-scopes if it may use all of them",
                         gw_role_name(what->role));
    if (o->scope != NULL && (*o->scope == '\0' || strlen(o->scope) > SM_SCOPE_MAX))
        return cli_usage(self, "--scope takes 1 to %u bytes; --all-scopes means all of them",
                         SM_SCOPE_MAX);
    if (o->scope != NULL)
        strcpy(what->scope, o->scope);
    return CLI_OK;
}

static int read_wish(const cli_command *self, const options *o, gw_token *what)
{
    int64_t ms = 0;
    int code = read_role(self, o->role, &what->role);
    if (code == CLI_OK)
        code = read_scope(self, o, what);
    if (code != CLI_OK)
        return code;
    const char *name = o->name != NULL ? o->name : gw_role_name(what->role);
    if (*name == '\0' || strlen(name) > GW_NAME_MAX)
        return cli_usage(self, "--name takes 1 to %u bytes", GW_NAME_MAX);
    strcpy(what->name, name);
    if (o->expires != NULL && (!sm_duration_parse(sm_str_from(o->expires), &ms) || ms == 0))
        return cli_usage(self, "--expires takes a duration such as 12h, 30d or forever, not \"%s\"",
                         o->expires);
    if (o->expires != NULL && ms != SM_FOREVER)
        what->ends_at = sm_clock_ms() + ms;
    return CLI_OK;
}

static void tell_made(const gw_token *t, const char *file)
{
    char ends[CLI_WHEN_TEXT] = "never";
    if (t->ends_at != 0)
        cli_when_text(t->ends_at, ends);
    fprintf(stderr, "id      %s\nname    ", t->id);
    cli_print(stderr, sm_str_from(t->name));
    fprintf(stderr, "\nrole    %s\nscope   ", gw_role_name(t->role));
    cli_print(stderr, t->scope[0] == '\0' ? SM_STR("(all)") : sm_str_from(t->scope));
    fprintf(stderr, "\nends    %s\nstored  ", ends);
    cli_print(stderr, sm_str_from(file));
    fprintf(stderr, ", hashed: the token above is shown this once\n");
}

static int run_create(const cli_command *self, int argc, char **argv)
{
    static const struct option table[] = {CLI_TEXT("role", options, role),
                                          CLI_TEXT("scope", options, scope),
                                          CLI_FLAG("all-scopes", options, all_scopes),
                                          CLI_TEXT("name", options, name),
                                          CLI_TEXT("expires", options, expires),
                                          FILE_OPTIONS,
                                          {0}};
    options o = {0};
    gw_token what = {0}, made;
    char *file = NULL, text[GW_TOKEN_TEXT];
    sm_fault fault = {0};
    int code = read_options(self, argc, argv, table, &o);
    if (code != CLI_OK)
        return code == 'h' ? CLI_OK : code;
    if (optind < argc)
        return cli_usage(self, "unexpected argument \"%s\"", argv[optind]);
    code = read_wish(self, &o, &what);
    if (code == CLI_OK)
        code = find_file(&o, &file);
    if (code == CLI_OK) {
        sm_buf b;
        sm_buf_init(&b, CLI_OUTPUT_MAX);
        sm_err e = gw_token_create(file, &what, text, &made, &fault);
        if (e == SM_OK && o.json) {
            sm_buf_byte(&b, '{');
            sm_put_text(&b, "token", sm_str_from(text));
            put_members(&b, &made);
            sm_put_text(&b, "file", sm_str_from(file));
            sm_buf_text(&b, "}\n");
        } else if (e == SM_OK) {
            sm_buf_printf(&b, "%s\n", text);
        }
        code = e == SM_OK ? cli_write(&b) : explain(e, &fault);
        if (code == CLI_OK && !o.json && (code = cli_done(code)) == CLI_OK)
            tell_made(&made, file);
        sm_buf_fini(&b);
    }
    free(file);
    return code;
}

/* ---- list ------------------------------------------------------------------------------------*/

typedef struct listing {
    cli_table table;
    sm_buf out;
    int64_t now;
    size_t n;
    bool json;
} listing;

static bool list_one(void *context, const gw_token *t)
{
    listing *l = context;
    char made[CLI_WHEN_TEXT], ends[CLI_WHEN_TEXT] = "never";
    l->n++;
    if (l->json) {
        sm_put_item(&l->out);
        sm_buf_byte(&l->out, '{');
        put_members(&l->out, t);
        sm_buf_byte(&l->out, '}');
        return true;
    }
    bool over = t->ends_at != 0 && t->ends_at <= l->now;
    cli_age_text(t->made_at, l->now, made);
    if (t->ends_at != 0)
        cli_age_text(t->ends_at, l->now, ends);
    cli_table_cell(&l->table, CLI_PLAIN, sm_str_from(t->id));
    cli_table_cell(&l->table, CLI_PLAIN, sm_str_from(t->name));
    cli_table_cell(&l->table, CLI_PLAIN, sm_str_from(gw_role_name(t->role)));
    cli_table_cell(&l->table, CLI_PLAIN, sm_str_from(t->scope[0] == '\0' ? "(all)" : t->scope));
    cli_table_cell(&l->table, CLI_PLAIN, sm_str_from(made));
    cli_table_cell(&l->table, over ? CLI_RED : CLI_PLAIN, sm_str_from(ends));
    return true;
}

static int run_list(const cli_command *self, int argc, char **argv)
{
    static const struct option table[] = {FILE_OPTIONS, {0}};
    static const cli_column columns[] = {{"ID", CLI_WHOLE, false},   {"NAME", CLI_SHRINKS, false},
                                         {"ROLE", CLI_WHOLE, false}, {"SCOPE", CLI_SHRINKS, false},
                                         {"MADE", CLI_WHOLE, false}, {"ENDS", CLI_WHOLE, false}};
    options o = {0};
    char *file = NULL;
    sm_fault fault = {0};
    int code = read_options(self, argc, argv, table, &o);
    if (code != CLI_OK)
        return code == 'h' ? CLI_OK : code;
    if (optind < argc)
        return cli_usage(self, "unexpected argument \"%s\"", argv[optind]);
    code = find_file(&o, &file);
    if (code == CLI_OK) {
        listing l = {.now = sm_clock_ms(), .json = o.json};
        cli_table_init(&l.table, columns, sizeof columns / sizeof columns[0]);
        sm_buf_init(&l.out, CLI_OUTPUT_MAX);
        if (o.json)
            sm_buf_text(&l.out, "{\"items\":[");
        sm_err e = gw_token_each(file, list_one, &l, &fault);
        if (o.json)
            sm_buf_text(&l.out, "]}\n");
        else if (l.n > 0)
            cli_table_put(&l.table, 0, true, &l.out);
        code = e == SM_OK ? cli_write(&l.out) : explain(e, &fault);
        if (e == SM_OK && l.n == 0 && !o.json) {
            fprintf(stderr, "There are no tokens in ");
            cli_print(stderr, sm_str_from(file));
            fprintf(stderr, ".\nMake one: semel token create --role agent --scope SCOPE\n");
        }
        sm_buf_fini(&l.out);
        cli_table_fini(&l.table);
    }
    free(file);
    return code;
}

/* ---- revoke ----------------------------------------------------------------------------------*/

static int run_revoke(const cli_command *self, int argc, char **argv)
{
    static const struct option table[] = {FILE_OPTIONS, {0}};
    options o = {0};
    char *file = NULL;
    sm_fault fault = {0};
    int code = read_options(self, argc, argv, table, &o);
    if (code != CLI_OK)
        return code == 'h' ? CLI_OK : code;
    if (argc - optind != 1)
        return cli_usage(self, "one id is needed; semel token list shows them");
    const char *id = argv[optind];
    if (strncmp(id, GW_TOKEN_PREFIX, sizeof GW_TOKEN_PREFIX - 1) == 0)
        return cli_usage(self, "this takes the token's id, the %u characters behind \"%s\"",
                         GW_ID_TEXT, GW_TOKEN_PREFIX);
    code = find_file(&o, &file);
    if (code == CLI_OK) {
        sm_err e = gw_token_revoke(file, sm_str_from(id), &fault);
        if (e != SM_OK)
            code = explain(e, &fault);
        else if (o.json)
            printf("{\"id\":\"%s\",\"revoked\":true}\n", id);
        else
            printf("%srevoked%s %s\n", cli_color(stdout, CLI_GREEN), cli_color(stdout, CLI_PLAIN),
                   id);
    }
    free(file);
    return code;
}

const cli_command cli_token_create = {
    .name = "token create",
    .summary = "make a token for the gateway",
    .help =
        "  semel token create --role agent --scope acme/ci --name ci --expires 90d\n"
        "  export SEMEL_TOKEN=$(semel token create --role agent --scope demo)\n\n"
        "Usage: semel token create --role ROLE [--scope PREFIX | --all-scopes] [--name NAME]\n"
        "                          [--expires DURATION]\n\n"
        "  --role ROLE              agent: calls tools, and reads what became of it\n"
        "                           approver: reads, approves and denies\n"
        "                           operator: that, and cancels, resolves and forgets\n"
        "                           admin: everything\n"
        "  --scope PREFIX           only this scope and those below it, such as acme/ci\n"
        "  --all-scopes             all of them; an operator or admin without --scope has that\n"
        "                           too\n"
        "  --name NAME              for people and for the audit trail; else the role\n"
        "  --expires DURATION       such as 12h or 90d; else it holds until it is "
        "revoked\n" FILE_HELP "  --json                   everything as one JSON object on stdout\n"
        "\nThe token is printed on stdout, once: the file keeps only its SHA-256. A gateway\n"
        "that runs knows it within a second.\n",
    .run = run_create,
};

const cli_command cli_token_list = {
    .name = "token list",
    .summary = "who may use the gateway",
    .help = "  semel token list --config /etc/semel/semel.yaml\n\n"
            "Usage: semel token list\n\n" FILE_HELP
            "  --json                   {\"items\": [...]}, times in RFC 3339\n"
            "\nNeither tokens nor their hashes are shown.\n",
    .run = run_list,
};

const cli_command cli_token_revoke = {
    .name = "token revoke",
    .summary = "end a token",
    .help = "  semel token revoke k3v9x2ma\n\n"
            "Usage: semel token revoke ID\n\n" FILE_HELP
            "  --json                   the answer as one JSON object\n"
            "\nA gateway that runs refuses it within a second. What it began goes on.\n",
    .run = run_revoke,
};
