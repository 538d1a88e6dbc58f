/*
 * Reads JSON documents from stdin, one to a line, and writes the canonical form of each on a line
 * of its own. A document that is refused gives a line that starts with "error " instead, so that
 * output lines always correspond to input lines.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/buf.h"
#include "json/canon.h"
#include "json/json.h"

int main(void)
{
    sm_arena arena;
    sm_arena_init(&arena, SM_ARENA_MAX);
    sm_buf out;
    sm_buf_init(&out, SM_ARENA_MAX);
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    while ((n = getline(&line, &room, stdin)) > 0) {
        sm_str text = {line, (size_t)n - (line[n - 1] == '\n')};
        const sm_json *root;
        sm_fault fault = {0};
        sm_buf_clear(&out);
        sm_err e = sm_json_read(&arena, text, &sm_json_default_limits, &root, &fault);
        if (e == SM_OK)
            e = sm_json_canon(root, &out, text, &fault);
        if (e == SM_OK)
            fwrite(out.p, 1, out.len, stdout);
        else
            printf("error %s at %u: %s", semel_err_name(e), fault.column, fault.text);
        putchar('\n');
        sm_arena_reset(&arena);
    }
    free(line);
    sm_buf_fini(&out);
    sm_arena_fini(&arena);
    return fflush(stdout) == 0 && !ferror(stdin) ? 0 : 1;
}
