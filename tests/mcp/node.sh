# shellcheck shell=bash
# Runs parts of tests/mcp with the Node.js that its packages brought. Sourced by suites, after lib.sh.
#
#   mcp_parts PART...      one after the other, then exits: each prints its own plan
#   mcp_start NAME PART    one beside us
#   mcp_wait               until all that were started are over, and prints what they said
#   $mcp_status            1 if any of them failed

TMPDIR=$scratch
export TMPDIR
case $(uname -m) in aarch64) mcp_machine=arm64 ;; *) mcp_machine=x64 ;; esac
mcp_node=$SEMEL_ROOT/tests/mcp/node_modules/node-linux-$mcp_machine/bin/node
mcp_status=0
declare -A mcp_runs=()

mcp_parts() {
    local part
    for part; do
        note "$part"
        "$mcp_node" "$SEMEL_ROOT/tests/mcp/$part.mjs" || mcp_status=1
    done
    exit "$mcp_status"
}

mcp_start() {
    "$mcp_node" "$SEMEL_ROOT/tests/mcp/$2.mjs" >"$scratch/$1.tap" 2>&1 &
    mcp_runs[$1]=$!
}

mcp_wait() {
    local name
    for name in "${!mcp_runs[@]}"; do
        wait "${mcp_runs[$name]}" || mcp_status=1
        cat "$scratch/$name.tap"
    done
    mcp_runs=()
}
