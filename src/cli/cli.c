/* Messages, input and output for the commands. */
#include "cli/cli.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/limits.h"
#include "base/suggest.h"
#include "base/visible.h"
#include "json/canon.h"

const char *cli_color(FILE *to, cli_style style)
{
    static const char *const codes[] = {"\033[0m",  "\033[1m",  "\033[2m",
                                        "\033[31m", "\033[33m", "\033[32m"};
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    if ((no != NULL && *no != '\0') || term == NULL || strcmp(term, "dumb") == 0)
        return "";
    return isatty(fileno(to)) ? codes[style] : "";
}

void cli_put(sm_buf *out, sm_str text)
{
    sm_visible_put(out, text);
}

void cli_print(FILE *to, sm_str text)
{
    sm_buf b;
    sm_buf_init(&b, 4 * SM_ARENA_MAX);
    cli_put(&b, text);
    if (b.len > 0)
        fwrite(b.p, 1, b.len, to);
    sm_buf_fini(&b);
}

int cli_write(const sm_buf *out)
{
    if (out->err != SM_OK)
        return cli_fail(cli_code(out->err), "%s", semel_err_text(out->err));
    if (out->len > 0)
        fwrite(out->p, 1, out->len, stdout);
    return CLI_OK;
}

static void print_message(const char *format, va_list args) __attribute__((format(printf, 1, 0)));

static void print_message(const char *format, va_list args)
{
    char text[2048];
    vsnprintf(text, sizeof text, format, args);
    cli_print(stderr, sm_str_from(text));
    fputc('\n', stderr);
}

int cli_fail(int code, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "semel: ");
    va_start(args, format);
    print_message(format, args);
    va_end(args);
    return code;
}

int cli_usage(const cli_command *self, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "semel%s%s: ", self == NULL ? "" : " ", self == NULL ? "" : self->name);
    va_start(args, format);
    print_message(format, args);
    va_end(args);
    fprintf(stderr, "Try: semel help%s%s\n", self == NULL ? "" : " ",
            self == NULL ? "" : self->name);
    return CLI_USAGE;
}

void cli_print_help(const cli_command *command)
{
    printf("%ssemel %s%s: %s\n\n%s", cli_color(stdout, CLI_BOLD), command->name,
           cli_color(stdout, CLI_PLAIN), command->summary, command->help);
}

int cli_option(const cli_command *self, int argc, char **argv, const struct option *options,
               void *own)
{
    return cli_option_short(self, argc, argv, "", options, own);
}

/* A key as semel key prints it may begin with "-", one in 64 does. */
static bool is_key(const char *word)
{
    sm_hash hash;
    return word[0] == '-' && sm_hash_parse(sm_str_from(word), &hash);
}

/* The word that getopt is about to take as an option, or NULL. Keys are not options: they are moved
 * to the end, where names are, and *argc counts what is before them. */
static const char *next_option(int *argc, char **argv)
{
    int i = optind > 0 ? optind : 1;
    while (i < *argc) {
        char *word = argv[i];
        if (is_key(word)) {
            --*argc;
            memmove(argv + i, argv + i + 1, (size_t)(*argc - i) * sizeof *argv);
            argv[*argc] = word;
        } else if (word[0] == '-' && word[1] != '\0') {
            return word;
        } else {
            i++;
        }
    }
    return NULL;
}

static void explain_option(const cli_command *self, const char *given, const struct option *options)
{
    sm_nearest nearest = {0};
    sm_str wrong = {given + 2, strcspn(given + 2, "=")};
    bool known = false;
    for (const struct option *o = options; o->name != NULL; o++) {
        sm_nearest_try(&nearest, wrong, sm_str_from(o->name));
        known |= sm_str_is(wrong, o->name);
    }
    sm_str near = sm_nearest_get(&nearest, wrong);
    if (known)
        cli_usage(self, "--%.*s does not take a value", SM_FMT(wrong));
    else if (near.p != NULL)
        cli_usage(self, "unknown option %s; did you mean --%.*s?", given, SM_FMT(near));
    else
        cli_usage(self, "unknown option %s", given);
}

static int take_option(const cli_command *self, int argc, char **argv, const char *letters,
                       const struct option *options)
{
    static int keys; /* at the end of argv; a process reads one command line */
    char accepted[32];
    snprintf(accepted, sizeof accepted, ":h%s", letters);
    opterr = 0;
    int before = argc - keys;
    const char *given = next_option(&before, argv);
    keys = argc - before;
    int c = getopt_long(before, argv, accepted, options, NULL);
    if (c == 'h') {
        cli_print_help(self);
        return c;
    }
    if (c != '?' && c != ':')
        return c;
    if (given == NULL) {
        cli_usage(self, "the options cannot be read");
    } else if (c == ':') {
        cli_usage(self, "%s needs a value", given);
    } else if (given[1] != '-') {
        cli_usage(self, "unknown option -%c", optopt);
    } else {
        explain_option(self, given, options);
    }
    return '?';
}

int cli_option_short(const cli_command *self, int argc, char **argv, const char *letters,
                     const struct option *options, void *own)
{
    int c;
    while ((c = take_option(self, argc, argv, letters, options)) >= CLI_AT) {
        void *at = (char *)own + (c - CLI_AT);
        if (optarg != NULL)
            *(const char **)at = optarg;
        else
            *(bool *)at = true;
    }
    return c;
}

int cli_code(sm_err e)
{
    switch (e) {
    case SM_OK: return CLI_OK;
    case SEMEL_E_NOMEM:
    case SEMEL_E_CRYPTO: return CLI_INTERNAL;
    case SEMEL_E_IO: return CLI_IO;
    case SEMEL_E_UNAVAILABLE: return CLI_UNAVAILABLE;
    case SEMEL_E_NOT_FOUND: return CLI_NO_INPUT;
    case SEMEL_E_STALE:
    case SEMEL_E_TIMEOUT: return CLI_TRY_AGAIN;
    default: return CLI_DATA;
    }
}

const char *cli_input_name(const char *path)
{
    return path == NULL || strcmp(path, "-") == 0 ? "(stdin)" : path;
}

int cli_fault(const char *input, const sm_fault *fault)
{
    assert(fault->code != SM_OK);
    if (fault->line == 0)
        return cli_fail(cli_code(fault->code), "%s: %s: %s", input, semel_err_name(fault->code),
                        fault->text);
    return cli_fail(cli_code(fault->code), "%s:%u:%u: %s", input, fault->line, fault->column,
                    fault->text);
}

/* Reads up to `limit` bytes and one more, which says that there are more. */
static int read_some(const char *path, size_t limit, sm_buf *out)
{
    const char *name = cli_input_name(path);
    bool standard = path == NULL || strcmp(path, "-") == 0;
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cli_fail(CLI_IO, "%s: %s", name, strerror(errno));
    if (standard && isatty(fd))
        fprintf(stderr, "Reading from the terminal; end with Ctrl-D.\n");
    sm_buf_init(out, limit + 1);
    int code = CLI_OK;
    while (out->len <= limit) {
        size_t want = limit + 1 - out->len;
        if (!sm_buf_reserve(out, want < 65536 ? want : 65536)) {
            code = cli_fail(CLI_INTERNAL, "%s: %s", name, semel_err_text(out->err));
            break;
        }
        size_t room = out->cap - out->len;
        ssize_t n = read(fd, out->p + out->len, room < want ? room : want);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            code = cli_fail(CLI_IO, "%s: %s", name, strerror(errno));
        if (n <= 0)
            break;
        out->len += (size_t)n;
    }
    if (!standard)
        close(fd);
    return code;
}

int cli_read(const char *path, size_t limit, sm_buf *out)
{
    int code = read_some(path, limit, out);
    if (code == CLI_OK && out->len > limit)
        code = cli_fail(CLI_DATA, "%s: larger than the limit of %zu bytes", cli_input_name(path),
                        limit);
    return code;
}

int cli_read_start(const char *path, size_t limit, sm_buf *out, bool *more)
{
    int code = read_some(path, limit, out);
    *more = out->len > limit;
    if (*more)
        out->len = limit;
    return code;
}

int cli_read_json(const char *path, const char *text, sm_arena *a, sm_buf *bytes, sm_buf *canonical,
                  const sm_json **out)
{
    sm_buf_init(canonical, SM_ARENA_MAX);
    const char *name = text != NULL ? "--args" : cli_input_name(path);
    if (text != NULL) {
        sm_buf_init(bytes, SM_ARENA_MAX);
        sm_buf_text(bytes, text);
        if (bytes->err != SM_OK)
            return cli_fail(cli_code(bytes->err), "%s: %s", name, semel_err_text(bytes->err));
    } else {
        int code = cli_read(path, SM_JSON_BYTES_MAX, bytes);
        if (code != CLI_OK)
            return code;
    }
    sm_fault fault;
    sm_err e = sm_json_read(a, sm_buf_view(bytes), &sm_json_default_limits, out, &fault);
    if (e == SM_OK)
        e = sm_json_canon(*out, canonical, sm_buf_view(bytes), &fault);
    return e == SM_OK ? CLI_OK : cli_fault(name, &fault);
}

void cli_print_report(const char *path, const sm_report *report, bool warnings)
{
    for (uint32_t i = 0; i < report->count; i++) {
        const sm_finding *f = &report->items[i];
        bool error = f->severity == SM_ERROR;
        if (!error && !warnings)
            continue;
        fprintf(stderr, "%s", cli_color(stderr, CLI_BOLD));
        cli_print(stderr, sm_str_from(path));
        fprintf(stderr, ":%u:%u: %s%s:%s ", f->line, f->column,
                cli_color(stderr, error ? CLI_RED : CLI_YELLOW), error ? "error" : "warning",
                cli_color(stderr, CLI_PLAIN));
        cli_print(stderr, f->text);
        fputc('\n', stderr);
    }
    if (report->dropped > 0)
        fprintf(stderr, "... and %u more\n", report->dropped);
}

/* `text` keeps the file's bytes. */
static int load_contracts(const char *path, sm_buf *text, sm_contracts **out, sm_report *report)
{
    *out = NULL;
    *report = (sm_report){0};
    int code = cli_read(path, SM_CONTRACT_BYTES_MAX, text);
    if (code != CLI_OK)
        return code;
    sm_err e = sm_report_init(report, sm_buf_view(text));
    if (e == SM_OK)
        e = sm_contracts_read(sm_str_from(path), sm_buf_view(text), out, report);
    code = cli_code(e);
    if (e != SM_OK && report->errors == 0)
        cli_fail(code, "%s: %s", cli_input_name(path), semel_err_text(e));
    return code;
}

int cli_load_contracts(const char *path, sm_contracts **out, sm_report *report)
{
    sm_buf text = {0};
    int code = load_contracts(path, &text, out, report);
    sm_buf_fini(&text);
    return code;
}

int cli_read_contract_text(const char *path, sm_buf *text)
{
    sm_contracts *contracts;
    sm_report report;
    int code = load_contracts(path, text, &contracts, &report);
    cli_print_report(cli_input_name(path), &report, false);
    sm_report_fini(&report);
    sm_contracts_free(contracts);
    return code;
}

int cli_read_contracts(const char *path, sm_contracts **out)
{
    if (path == NULL) {
        sm_err e = sm_contracts_none(out);
        return e == SM_OK ? CLI_OK : cli_fail(cli_code(e), "%s", semel_err_text(e));
    }
    sm_report report;
    int code = cli_load_contracts(path, out, &report);
    cli_print_report(cli_input_name(path), &report, false);
    sm_report_fini(&report);
    return code;
}

int cli_done(int code)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        return cli_fail(CLI_IO, "cannot write the output: %s", strerror(errno));
    return code;
}
