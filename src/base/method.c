/* The table, and looking into it. */
#include "base/method.h"

#include <string.h>

#define ROW(name, does) {#name, does},
const sm_method_row sm_methods[] = {SM_METHODS(ROW, ROW) SM_METHODS_BEYOND(ROW){0}};

unsigned sm_method_does(const char *name)
{
    const sm_method_row *row = sm_methods;
    while (row->name != NULL && strcmp(row->name, name) != 0)
        row++;
    return row->does;
}
