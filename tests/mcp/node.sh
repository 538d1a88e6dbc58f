# shellcheck shell=bash
# Runs parts of tests/mcp with the Node.js that its packages brought. Sourced by suites, after lib.sh.
#
#   mcp_part PART [NAME]   one beside us, under this name; as `part` of lib.sh

TMPDIR=$scratch
export TMPDIR
case $(uname -m) in aarch64) mcp_machine=arm64 ;; *) mcp_machine=x64 ;; esac
mcp_node=$SEMEL_ROOT/tests/mcp/node_modules/node-linux-$mcp_machine/bin/node

mcp_part() { part "${2:-$1}" "$mcp_node" "$SEMEL_ROOT/tests/mcp/$1.mjs"; }
