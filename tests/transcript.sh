# shellcheck shell=bash
# Documents that show commands and what they print, held against the program. Sourced after lib.sh.
#
# A document shows "    $ WORD ARGS" and below it what is printed. In that, "..." stands for some text
# within a line, and alone on the last line for the rest. Runs of spaces count as one: how wide a column is
# depends on what is in it, such as an age. In a command, ef_..., ap_... and cl_... stand for the newest
# such name that was printed.
shopt -s extglob

# transcript_like ACTUAL SHOWN: whether the one is what the other stands for.
transcript_like() {
    # shellcheck disable=SC2034 # `gap` is part of the pattern
    local actual left pattern='' gap=$'+([!\n])'
    actual=$(tr -s ' ' <<<"$1") left=$(tr -s ' ' <<<"$2")
    if [[ $left == *$'\n...' ]]; then
        left=${left%$'\n...'}
        actual=$(head -n "$(grep -c '' <<<"$left")" <<<"$actual")
    fi
    while [[ $left == *...* ]]; do
        pattern+=$(printf '%q' "${left%%...*}")'$gap'
        left=${left#*...}
    done
    pattern+=$(printf '%q' "$left")
    eval "[[ \$actual == $pattern ]]"
}

# transcript_compare FILE WORD COMMAND SHOWN
declare -A transcript_newest=()
transcript_compare() {
    local file=$1 word=$2 command=$3 shown=$4 actual told name prefix
    name="${file##*/} is right about: $command"
    for prefix in ef ap cl; do
        command=${command//${prefix}_.../${transcript_newest[$prefix]:-}}
    done
    actual=$(eval "\"$SEMEL_BIN\" ${command#"$word"}" 2>"$scratch/told" </dev/null)
    told=$(cat "$scratch/told")
    for prefix in ef ap cl; do
        [[ $actual$told =~ (${prefix}_[0-9a-z.]+) ]] && transcript_newest[$prefix]=${BASH_REMATCH[1]}
    done
    # On a terminal, which of the two streams comes first is up to the command.
    local either=$actual${told:+${actual:+$'\n'}$told} other=$told${told:+${actual:+$'\n'}}$actual
    if transcript_like "$either" "$shown" || transcript_like "$other" "$shown"; then
        ok "$name"
    else
        is "$either" "$shown" "$name"
    fi
}

# transcript FILE WORD LEAST: each "$ WORD ARGS" that the file shows, at least so many, in the ledger and
# the directory of the caller.
transcript() {
    local file=$1 word=$2 least=$3 command='' shown='' count=0 line
    while IFS= read -r line; do
        if [[ $line == '$ '* ]]; then
            [ -z "$command" ] || transcript_compare "$file" "$word" "$command" "$shown"
            command=${line#'$ '} shown='' count=$((count + 1))
        elif [[ $command == *'\' ]]; then
            command=${command%'\'}$line
        else
            shown+=${shown:+$'\n'}$line
        fi
    done < <(awk -v start="    \$ $word " 'index($0, start) == 1 { on = 1 } !/^    / { on = 0 }
        on { print substr($0, 5) }' "$file")
    [ -z "$command" ] || transcript_compare "$file" "$word" "$command" "$shown"
    check "the examples of ${file##*/} were found" [ "$count" -ge "$least" ]
}
