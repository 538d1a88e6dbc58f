/* Matching with one step back, and the meeting of two patterns by dynamic programming. */
#include "core/glob.h"

#include <assert.h>

#include "base/limits.h"

bool sm_glob_is(sm_str name)
{
    return sm_glob_literals(name) != name.n;
}

uint32_t sm_glob_literals(sm_str pattern)
{
    uint32_t n = 0;
    for (size_t i = 0; i < pattern.n; i++)
        n += pattern.p[i] != '*' && pattern.p[i] != '?';
    return n;
}

bool sm_glob_matches(sm_str pattern, sm_str name)
{
    size_t p = 0, n = 0, star = SIZE_MAX, mark = 0;
    while (n < name.n) {
        if (p < pattern.n && pattern.p[p] == '*') {
            star = p++;
            mark = n;
        } else if (p < pattern.n && (pattern.p[p] == '?' || pattern.p[p] == name.p[n])) {
            p++;
            n++;
        } else if (star != SIZE_MAX) {
            p = star + 1; /* let the last * take one more */
            n = ++mark;
        } else {
            return false;
        }
    }
    while (p < pattern.n && pattern.p[p] == '*')
        p++;
    return p == pattern.n;
}

/* Matching a pattern's text as if it were a name is enough, but for a ? that takes a * for one
 * character. */
bool sm_glob_covers(sm_str outer, sm_str inner)
{
    bool star = memchr(inner.p, '*', inner.n) != NULL, mark = memchr(outer.p, '?', outer.n) != NULL;
    return sm_str_eq(outer, inner) || (!(star && mark) && sm_glob_matches(outer, inner));
}

/* Whether the literal characters before the first wildcard, or behind the last, rule out that the
 * two meet. That settles most pairs at once. */
static bool ends_differ(sm_str a, sm_str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    for (size_t i = 0; i < n && a.p[i] != '*' && b.p[i] != '*'; i++) {
        if (a.p[i] != b.p[i] && a.p[i] != '?' && b.p[i] != '?')
            return true;
    }
    for (size_t i = 1; i <= n && a.p[a.n - i] != '*' && b.p[b.n - i] != '*'; i++) {
        if (a.p[a.n - i] != b.p[b.n - i] && a.p[a.n - i] != '?' && b.p[b.n - i] != '?')
            return true;
    }
    return false;
}

/* row[j] says whether a[i..] and b[j..] have a name in common; rows are filled from the ends. */
bool sm_glob_meet(sm_str a, sm_str b)
{
    assert(a.n <= SM_TOOL_MAX && b.n <= SM_TOOL_MAX);
    if (ends_differ(a, b))
        return false;
    bool below[SM_TOOL_MAX + 1], row[SM_TOOL_MAX + 1];
    for (size_t i = a.n + 1; i-- > 0;) {
        for (size_t j = b.n + 1; j-- > 0;) {
            bool end_a = i == a.n, end_b = j == b.n;
            bool star_a = !end_a && a.p[i] == '*', star_b = !end_b && b.p[j] == '*';
            if (end_a && end_b)
                row[j] = true;
            else if (star_a)
                row[j] = below[j] || (!end_b && row[j + 1]);
            else if (star_b)
                row[j] = row[j + 1] || (!end_a && below[j]);
            else
                row[j] = !end_a && !end_b && below[j + 1] &&
                         (a.p[i] == b.p[j] || a.p[i] == '?' || b.p[j] == '?');
        }
        memcpy(below, row, sizeof below);
    }
    return below[0];
}
