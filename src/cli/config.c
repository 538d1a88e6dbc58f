/* Reading the gateway's configuration and telling what is wrong with it. */
#include "cli/config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/limits.h"
#include "gateway/service.h"

#define PORTS 100u /* that are tried */

int cli_config_load(const char *path, gw_config **out, sm_report *report)
{
    sm_buf text = {0};
    *out = NULL;
    *report = (sm_report){0};
    if (path == NULL) {
        sm_err e = gw_config_default(out);
        return e == SM_OK ? CLI_OK : cli_fail(cli_code(e), "%s", semel_err_text(e));
    }
    if (strcmp(path, "-") != 0 && access(path, F_OK) != 0 && errno == ENOENT)
        return cli_fail(CLI_NO_INPUT, "%s: %s", path, strerror(ENOENT));
    int code = cli_read(path, SM_CONTRACT_BYTES_MAX, &text);
    if (code == CLI_OK) {
        sm_err e = sm_report_init(report, sm_buf_view(&text));
        if (e == SM_OK)
            e = gw_config_read(sm_str_from(path), sm_buf_view(&text), out, report);
        code = cli_code(e);
        if (e != SM_OK && report->errors == 0)
            cli_fail(code, "%s: %s", cli_input_name(path), semel_err_text(e));
    }
    sm_buf_fini(&text);
    return code;
}

int cli_config_read(const char *path, gw_config **out)
{
    sm_report report;
    int code = cli_config_load(path, out, &report);
    cli_print_report(cli_input_name(path), &report, false);
    sm_report_fini(&report);
    return code;
}

/* Prints a fault about what a configuration says, with its place if it has one; returns the exit
 * code. */
static int config_fault(const gw_config *c, const sm_fault *fault)
{
    int code = cli_code(fault->code);
    if (fault->line == 0)
        return cli_fail(code, "%s", fault->text);
    return cli_fail(code, "%s:%u:%u: %s", c->file.p, fault->line, fault->column, fault->text);
}

int cli_config_start(const gw_config *c, sm_str contract_text, gateway **out)
{
    sm_fault fault = {0};
    sm_err e = gw_service_start(c, contract_text, out, &fault);
    if (e == SM_OK)
        return CLI_OK;
    if (fault.text[0] == '\0')
        sm_fault_set(&fault, e, "%s", semel_err_text(e));
    fault.code = e; /* the ledger's own says more than an exit code can */
    if (c->log.format != GW_LOG_JSON)
        return config_fault(c, &fault);
    const gw_log log = {.rule = c->log, .fd = STDERR_FILENO};
    gw_say_fault(&log, GW_ERROR, "not started", c->file, &fault);
    return cli_code(e);
}

/* Whether a port of this machine can be listened on. Somebody may take it before we do: then
 * starting fails, and says so. */
static bool is_free(uint16_t port)
{
    struct sockaddr_in here = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0)
        return true;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool free_ = bind(fd, (struct sockaddr *)&here, sizeof here) == 0 && listen(fd, 1) == 0;
    close(fd);
    return free_;
}

int cli_config_free_port(gw_config *c)
{
    gw_listen *one = sm_arena_alloc(&c->arena, sizeof *one);
    if (one == NULL)
        return cli_fail(CLI_INTERNAL, "%s", semel_err_text(SEMEL_E_NOMEM));
    *one = c->listen.v[0];
    for (unsigned i = 0; i < PORTS && !is_free(one->port); i++)
        one->port++;
    c->listen.v = one;
    return CLI_OK;
}
