/* What the Postgres store sends for one effect, for pgbench. */
#ifndef SM_BENCH_STORE_STATEMENTS_H
#define SM_BENCH_STORE_STATEMENTS_H

#include <stdio.h>

/* Writes a pgbench script: begin and commit of an effect with a random id. */
void bench_statements(FILE *to, const char *schema);

#endif
