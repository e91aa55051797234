#!/bin/sh
# Runs scenarios at the same time under one observer: attaching costs an emulated CPU several seconds.
# usage: batch.sh N. /batches/N sets SCENARIOS COMMANDS ATTACH_AFTER CLOSES EXTRA.
NAME=batch$1
OUT=/out/$NAME
mkdir -p "$OUT"
. /vm/common
. "/batches/$1"

each() { # PHASE: of all scenarios at once
	pids=
	for s in $SCENARIOS; do
		/vm/scenario.sh "$s" "$1" >>"/tmp/$s.log" 2>&1 &
		pids="$pids $!"
	done
	# shellcheck disable=SC2086 # a list of words
	wait $pids
}
attached() { grep -q attached "$OUT/watch.err" || gone; }
gone() { ! kill -0 "$watcher" 2>/dev/null; }
attach() {
	[ -x /usr/bin/io-starve ] || return 0
	devices=
	for s in $SCENARIOS; do
		read -r disk _ <"/out/$s/watched" && devices="$devices --device $disk"
		[ ! -s "/out/$s/also" ] || for disk in $(cat "/out/$s/also"); do devices="$devices --device $disk"; done
	done
	# shellcheck disable=SC2086 # lists of words
	io-starve watch $devices --output "$OUT/events.ndjson" --record "$OUT/run.rec" $EXTRA >"$OUT/watch.out" 2>"$OUT/watch.err" &
	watcher=$!
	until_true 120 attached || {
		fail "io-starve did not say that it is attached within 120 s"
		# What it does instead.
		for task in /proc/"$watcher"/task/*; do
			cat "$task/comm" "$task/stat" "$task/stack"
		done >"$OUT/watch.stacks" 2>&1
	}
	gone && fail "io-starve ended before the load: $(tail -n 3 "$OUT/watch.err" | tr '\n' ' ')"
	mark attached
}
events() { grep -c "\"event\":\"$1\"" "$OUT/events.ndjson"; }
closed() { [ "$(events close)" -ge "$(events open)" ]; }

say "begins: $SCENARIOS"
each prepare
[ -n "$COMMANDS" ] || each trace
if [ -n "$COMMANDS" ]; then
	each commands
elif [ -n "$ATTACH_AFTER" ]; then
	each load &
	loads=$!
	sleep "$ATTACH_AFTER"
	attach
	wait "$loads"
else
	attach
	each load
fi
if [ -n "$watcher" ]; then
	[ -z "$CLOSES" ] || until_true 30 closed || fail "a finding was still open 30 s after the load"
	each idle
	mark stop
	kill -TERM "$watcher"
	until_true 60 gone || {
		fail "io-starve did not end within 60 s of SIGTERM"
		kill -KILL "$watcher"
	}
	wait "$watcher"
	echo $? >"$OUT/watch.code"
	timeout 120 io-starve replay "$OUT/run.rec" --format json >"$OUT/replay.ndjson" 2>"$OUT/replay.err"
	echo $? >"$OUT/replay.code"
fi
each finish
for s in $SCENARIOS; do
	mv "/tmp/$s.log" "/out/$s/guest.log"
done
say "ended"
