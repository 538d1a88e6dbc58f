#!/bin/sh
# An agent that does not understand an answer, and is stopped.
#
#     examples/loop.sh          with semel from the PATH; SEMEL=build/semel names another one
#
# The agent sends the same email again and again. Semel lets it run once and answers from the record;
# then it warns, blocks, and stops the run until a person reopens it. The script works in a directory
# of its own, and removes it.
set -eu
semel=${SEMEL:-semel}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export SEMEL_LEDGER="sqlite:$scratch/ledger.db" SEMEL_CONTRACT="$scratch/contract.yaml"
cat >"$SEMEL_CONTRACT" <<'YAML'
version: 1
tools:
  send_email: { class: write }
YAML

# field NAME: a text member of the JSON object on standard input.
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }

# turn N TO: the agent asks, and sends the email if it is told to.
turn() {
    answer=$("$semel" begin --json --scope acme/support/run-7 --tool send_email \
        --args "{\"to\":\"$2\",\"subject\":\"Your refund\"}" 2>/dev/null) || true
    verdict=$(echo "$answer" | field verdict)
    if [ "$verdict" = execute ]; then
        echo "$2" >>"$scratch/outbox"
        "$semel" commit "$(echo "$answer" | field claim)" --value '"queued"' >/dev/null
    fi
    code=$(echo "$answer" | field code)
    echo "turn $1, to $2: $verdict${code:+ $code}"
    for told in "$(echo "$answer" | field warning)" "$(echo "$answer" | field message)"; do
        [ -z "$told" ] || echo "    the model is told: $told"
    done
}

for n in 1 2 3 4 5 6 7 8 9; do turn "$n" ann; done
turn 10 bob
echo "emails sent: $(wc -l <"$scratch/outbox")"

"$semel" scope reset acme/support/run-7 --reason "its prompt is corrected"
turn 11 bob
echo "emails sent: $(wc -l <"$scratch/outbox")"
