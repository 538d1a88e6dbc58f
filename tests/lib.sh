# shellcheck shell=bash
# TAP for the suites, and a directory to work in. Sourced by bash at the top of a suite; the last
# line of a suite is `finish`.
#
#   ok NAME                      a test that passed
#   not_ok NAME                  one that failed; say why with note
#   skip NAME WHY                one that does not apply here
#   missing NAME WHAT            one that cannot run without WHAT: failed, unless --skip-missing
#   is ACTUAL EXPECTED NAME      passes when the two texts are equal
#   check NAME COMMAND...        passes when the command does; its output is the diagnostic
#   note TEXT                    diagnostic lines ("# ..."), also from stdin when TEXT is absent
#   unit_programs BUILD          every unit test program of a build, each test a test of ours
#   part NAME COMMAND...         a program that prints TAP and its plan, beside us; $parts_at_once of them
#   parts_end                    waits for all parts; finish does so, too
#   await COMMAND...             asks until it succeeds, for a minute at most; says so if it does not
#   at_exit COMMAND              runs it when the suite ends, however it does; the latest first
#   finish                       exits: 0 only when nothing failed and something ran
#
# $scratch is an empty directory that is gone afterwards.

tap_count=0
tap_failed=0
scratch=$(mktemp -d) || exit 70
export XDG_STATE_HOME=$scratch/state # what handles note stays out of the home of who tests
tap_exits=()
declare -A parts=()
trap 'tap_exit' EXIT

# An interrupt ends the shell, and its end comes here too.
tap_exit() {
    local i
    for i in "${!parts[@]}"; do # it was stopped
        kill "$i" 2>/dev/null
        note "${parts[$i]}, as far as it came"
        cat "$scratch/${parts[$i]}.tap"
    done
    for ((i = ${#tap_exits[@]} - 1; i >= 0; i--)); do eval "${tap_exits[i]}"; done
    rm -rf "$scratch"
}

at_exit() { tap_exits+=("$1"); }

ok() { echo "ok $((tap_count += 1)) - $1"; }

not_ok() {
    echo "not ok $((tap_count += 1)) - $1"
    tap_failed=$((tap_failed + 1))
}

skip() { echo "ok $((tap_count += 1)) - $1 # SKIP $2"; }

missing() {
    if [ -n "${SEMEL_SKIP_MISSING:-}" ]; then
        skip "$1" "$2 is missing"
    else
        not_ok "$1"
        note "$2 is missing"
    fi
}

note() {
    if [ $# -gt 0 ]; then printf '%s\n' "$*"; else cat; fi | sed 's/^/# /'
}

is() {
    if [ "$1" = "$2" ]; then
        ok "$3"
    else
        not_ok "$3"
        note "got:      $1"
        note "expected: $2"
    fi
}

check() {
    local name=$1
    shift
    if "$@" >"$scratch/check" 2>&1; then
        ok "$name"
    else
        not_ok "$name"
        note <"$scratch/check"
    fi
}

await() {
    local left
    for ((left = 1200; left > 0; left--)); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.05
    done
    note "not within a minute: $*" >&2
    return 1
}

# A program's first failure is followed by what it wrote on stderr: cmocka's reasons, or the report
# of a sanitizer.
unit_failed() {
    not_ok "$1"
    note <"$unit_said.err"
    : >"$unit_said.err"
}

# unit_program PATH: runs one cmocka program.
unit_program() {
    unit_start "$1"
    unit_finish "$1"
}

# unit_start PATH: starts it beside us; unit_finish PATH waits for it and tells what it told. Paths
# that are under way at the same time have different names.
declare -A unit_pids
unit_start() {
    CMOCKA_MESSAGE_OUTPUT=TAP timeout -k 10 900 "$1" \
        </dev/null >"$scratch/unit.${1##*/}.out" 2>"$scratch/unit.${1##*/}.err" &
    unit_pids[$1]=$!
}

# A program prints TAP of a kind: a plan for each group, and "not ok N # SKIP name" for a skipped
# test. One that ends early, or that exits non-zero with every test passed (a leak), has failed once
# more.
unit_finish() {
    local program=${1##*/} status=0 planned=0 before=$tap_count failed=$tap_failed line
    local unit_said=$scratch/unit.$program
    wait "${unit_pids[$1]}" || status=$?
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in
        1..*) planned=$((planned + ${line#1..})) ;;
        'not ok '*'# SKIP '*) skip "$program: ${line#*# SKIP }" "by the test itself" ;;
        'not ok '*) unit_failed "$program: ${line#not ok * - }" ;;
        'ok '*) ok "$program: ${line#ok * - }" ;;
        *) note "${line#\# }" ;;
        esac
    done <"$unit_said.out"
    if [ $((tap_count - before)) -lt "$planned" ]; then
        unit_failed "$program: ended with status $status after $((tap_count - before)) of $planned tests"
    elif [ "$planned" -eq 0 ] || { [ "$status" -ne 0 ] && [ "$tap_failed" -eq "$failed" ]; }; then
        unit_failed "$program: exits with status $status"
    fi
}

# The sources are the list, so that a test that nobody builds is a failure, and a program whose
# source is gone is not run.
unit_programs() {
    local source program pid
    local -A alive=()
    # A locale with a decimal comma, for the test that it changes nothing. Only for that: the C library
    # loses some memory if there is such a path and somebody makes a locale of his own, as libraries
    # that libpq is linked with do.
    mkdir "$scratch/locale" &&
        localedef -i de_DE -f UTF-8 --no-archive "$scratch/locale/de_DE.UTF-8" >/dev/null 2>&1
    local -a started=()
    for source in "$SEMEL_ROOT"/tests/unit/*.c; do
        program=$1/tests/unit_$(basename "$source" .c)
        if [ ! -x "$program" ]; then
            not_ok "${program##*/}: is not built; name it in tests/meson.build"
            continue
        fi
        if [ "${program##*/}" = unit_json_number ]; then
            LOCPATH=$scratch/locale unit_start "$program"
        else
            unit_start "$program"
        fi
        # Many of them mostly wait: eight at a time.
        started+=("$program")
        alive[${unit_pids[$program]}]=1
        if [ ${#alive[@]} -ge 8 ]; then
            wait -n -p pid "${!alive[@]}"
            unset "alive[$pid]"
        fi
    done
    for program in "${started[@]}"; do unit_finish "$program"; done
}

# What a part said is printed when it ends.
parts_at_once=3
parts_failed=0 parts_run=0
part() {
    local name=$1
    shift
    [ ${#parts[@]} -lt "$parts_at_once" ] || part_end
    "$@" </dev/null >"$scratch/$name.tap" 2>&1 &
    parts[$!]=$name
    parts_run=$((parts_run + 1))
}

# One that fails without saying in what, or prints no plan, has failed in one test of ours.
part_end() {
    local pid status=0 name
    wait -n -p pid "${!parts[@]}" || status=$?
    name=${parts[$pid]}
    unset "parts[$pid]"
    note "$name"
    cat "$scratch/$name.tap"
    [ $status -eq 0 ] || parts_failed=$((parts_failed + 1))
    if ! grep -q '^1\.\.' "$scratch/$name.tap" ||
        { [ $status -ne 0 ] && ! grep -q '^not ok' "$scratch/$name.tap"; }; then
        not_ok "$name: ended with status $status"
    fi
}

parts_end() { while [ ${#parts[@]} -gt 0 ]; do part_end; done; }

finish() {
    parts_end
    [ "$tap_count" -eq 0 ] && [ "$parts_run" -gt 0 ] || echo "1..$tap_count"
    [ $((tap_failed + parts_failed)) -eq 0 ] && [ $((tap_count + parts_run)) -gt 0 ]
    exit
}
