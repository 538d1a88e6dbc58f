/* Contract files made from text, for the tests that need one. */
#ifndef SM_TESTS_CONTRACTS_H
#define SM_TESTS_CONTRACTS_H

#include "unit.h"

#include "core/contract.h"

/* Everything reported about a file, one "line:column: severity: text" each, in the arena. */
static inline const char *findings(sm_arena *a, const char *text, sm_severity severity)
{
    sm_contracts *set;
    sm_report report;
    assert_int_equal(sm_report_init(&report, sm_str_from(text)), SM_OK);
    sm_err e = sm_contracts_read(SM_STR("test.yaml"), sm_str_from(text), &set, &report);
    expect((e == SM_OK) == (report.errors == 0), "%s, with %u errors", semel_err_name(e),
           report.errors);
    expect((set != NULL) == (e == SM_OK), "a set comes exactly with success");
    sm_buf out;
    sm_buf_init(&out, SM_ARENA_MAX);
    for (uint32_t i = 0; i < report.count; i++) {
        const sm_finding *f = &report.items[i];
        if (f->severity == severity)
            sm_buf_printf(&out, "%u:%u: %.*s\n", f->line, f->column, SM_FMT(f->text));
    }
    sm_str copy = sm_arena_text(a, sm_buf_view(&out));
    sm_buf_fini(&out);
    sm_contracts_free(set);
    sm_report_fini(&report);
    return copy.p;
}

/* A file that must be right; free it. */
static inline sm_contracts *contracts(const char *text)
{
    sm_contracts *set;
    sm_report report;
    assert_int_equal(sm_report_init(&report, sm_str_from(text)), SM_OK);
    sm_err e = sm_contracts_read(SM_STR("test.yaml"), sm_str_from(text), &set, &report);
    expect(e == SM_OK, "%s was refused: %s", text,
           report.count > 0 ? report.items[0].text.p : semel_err_text(e));
    sm_report_fini(&report);
    return set;
}

/* A file with one tool, `t`, whose fields are given as a YAML flow mapping. */
#define ONE_TOOL(fields) "version: 1\ntools:\n  t: " fields "\n"

#endif
