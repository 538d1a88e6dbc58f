/* Reading the gateway's configuration and telling what is wrong with it. */
#include "cli/config.h"

#include "base/limits.h"

int cli_config_read(const char *path, bool warnings, gw_config **out)
{
    sm_buf text = {0};
    sm_report report = {0};
    *out = NULL;
    if (path == NULL) {
        sm_err e = gw_config_default(out);
        return e == SM_OK ? CLI_OK : cli_fail(cli_code(e), "%s", semel_err_text(e));
    }
    int code = cli_read(path, SM_CONTRACT_BYTES_MAX, &text);
    if (code == CLI_OK) {
        sm_err e = sm_report_init(&report, sm_buf_view(&text));
        if (e == SM_OK)
            e = gw_config_read(sm_str_from(path), sm_buf_view(&text), out, &report);
        code = cli_code(e);
        cli_print_report(cli_input_name(path), &report, warnings);
        if (e != SM_OK && report.errors == 0)
            cli_fail(code, "%s: %s", cli_input_name(path), semel_err_text(e));
    }
    sm_report_fini(&report);
    sm_buf_fini(&text);
    return code;
}
