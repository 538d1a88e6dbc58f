/* Optimal string alignment over short names. */
#include "base/suggest.h"

#define LONGEST 64u

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static char folded(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (char)(c + 32);
    return c == '-' ? '_' : c;
}

size_t sm_edit_distance(sm_str a, sm_str b)
{
    if (a.n > LONGEST || b.n > LONGEST)
        return LONGEST;
    size_t rows[3][LONGEST + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b.n; j++)
        above[j] = j;
    for (size_t i = 1; i <= a.n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b.n; j++) {
            size_t same = folded(a.p[i - 1]) == folded(b.p[j - 1]) ? 0 : 1;
            row[j] = least(least(above[j] + 1, row[j - 1] + 1), above[j - 1] + same);
            if (i > 1 && j > 1 && folded(a.p[i - 1]) == folded(b.p[j - 2]) &&
                folded(a.p[i - 2]) == folded(b.p[j - 1]))
                row[j] = least(row[j], before[j - 2] + 1);
        }
        size_t *spare = before;
        before = above;
        above = row;
        row = spare;
    }
    return above[b.n];
}

void sm_nearest_try(sm_nearest *n, sm_str wrong, sm_str candidate)
{
    size_t distance = sm_edit_distance(wrong, candidate);
    if (n->name.p == NULL || distance < n->distance)
        *n = (sm_nearest){candidate, distance};
}

sm_str sm_nearest_get(const sm_nearest *n, sm_str wrong)
{
    size_t near_enough = wrong.n <= 3 ? 1 : wrong.n <= 6 ? 2 : 3;
    return n->name.p != NULL && n->distance <= near_enough ? n->name : (sm_str){0};
}
