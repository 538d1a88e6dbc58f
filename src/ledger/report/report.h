/* What the reports share: reading their questions, and what is stopped. */
#ifndef SM_LEDGER_REPORT_REPORT_H
#define SM_LEDGER_REPORT_REPORT_H

#include "ledger/report/tally.h"

#define SM_SCAN_EFFECTS_MAX 100000u

/* Reads a question. The answer starts anew. */
sm_err sm_scope_query_read(sm_work *w, const semel_scope_query *given, semel_scope_query *out);

/* A scope to look in; absent: all. */
sm_err sm_report_scope(sm_work *w, sm_str scope);

/* Ends a report: the JSON is in w->json, unless something failed. */
sm_err sm_report_end(sm_work *w, semel_answer *a, sm_err e, sm_str *json);

/* The members of a run that lists and the page of one run have in common. */
void sm_run_put(sm_buf *out, const sm_tally *t, const sm_board *board);

/* What a run's loop state means: by the rule of the tool that it called last, if that is known. */
void sm_run_loops(semel *s, sm_work *w, sm_tally *t, const sm_loop *l);

/* Told each effect of a run: whether it is the one that the run called last, and its level then. */
void sm_run_effect(semel *s, sm_work *w, sm_tally *t);

/* Halts as a list. */
typedef bool sm_halt_filter(const sm_halt *h, sm_str scope);
void sm_halts_put(sm_buf *out, const char *name, const sm_board *board, sm_halt_filter *shown,
                  sm_str scope);

#endif
