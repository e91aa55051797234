#!/bin/sh
# Runs one scenario in the guest: disks, setup, trace, observer, load, teardown. Everything that waits has a limit.
# usage: scenario.sh NAME. The file /scenarios/NAME/env sets SLOTS ATTACH_AFTER LOAD_LIMIT CLOSES EXTRA.
NAME=$1
S=/scenarios/$NAME
OUT=/out/$NAME
DIR=/mnt/$NAME
CG=/sys/fs/cgroup/$NAME
T=/sys/kernel/tracing/instances/$NAME
. "$S/env"
mkdir -p "$OUT" "$DIR" "$CG"
echo "+io +memory" >"$CG/cgroup.subtree_control"

say() { echo "vm: $NAME: $*" >/dev/console; }
# Monotonic seconds: uptime counts suspend too, and a guest never suspends.
now() { read -r up _ </proc/uptime && echo "$up"; }
mark() { echo "$1 $(now)" >>"$OUT/marks"; }
fail() {
	say "error: $*"
	echo "$*" >>"$OUT/errors"
}
# until_true SECONDS COMMAND...: waits for a condition, with a limit.
until_true() {
	read -r up _ </proc/uptime
	limit=$((${up%.*} + $1 + 1))
	shift
	until "$@"; do
		read -r up _ </proc/uptime
		[ "${up%.*}" -lt "$limit" ] || return 1
		usleep 100000
	done
}
step() {
	[ -s "$S/$1" ] || return 0
	timeout "$2" sh -e -c '. /vm/functions; . "$0"' "$S/$1" >"$OUT/$1.log" 2>&1 || fail "$1 failed or took more than $2 s: $(tail -n 3 "$OUT/$1.log" | tr '\n' ' ')"
}

# Disks, found by the PCI slot that xtask gave them.
n=1
for slot in $SLOTS; do
	find_disk() { DISK_FOUND=$(ls -d /sys/bus/pci/devices/0000:00:"$slot".0/virtio*/host*/target*/*/block/* 2>/dev/null | sed 's,.*/,,') && [ -b "/dev/$DISK_FOUND" ]; }
	until_true 20 find_disk || fail "disk $n in slot $slot did not appear"
	if [ $n = 1 ]; then DISK=$DISK_FOUND; else eval "DISK$n=$DISK_FOUND; export DISK$n"; fi
	[ -f "$S/disk$n" ] && while read -r file value; do
		# Written as one string: the shell must not split a value.
		echo "$value" >"/sys/block/$DISK_FOUND/$file" || fail "cannot write $value to $file of $DISK_FOUND"
	done <"$S/disk$n"
	n=$((n + 1))
done
export NAME OUT DIR CG DISK
step setup 120

WATCH=$DISK
[ -s "$OUT/device" ] && WATCH=$(cat "$OUT/device")
DEV=$(cat "/sys/block/$WATCH/dev")
echo "$WATCH $DEV" >"$OUT/watched"
for f in scheduler nr_requests wbt_lat_usec; do
	echo "$f $(cat "/sys/block/$WATCH/queue/$f" 2>/dev/null)" >>"$OUT/queue"
done
mkdir -p "$T"
echo 0 >"$T/tracing_on"
echo mono >"$T/trace_clock"
echo 24576 >"$T/buffer_size_kb"
for e in block_rq_insert block_rq_issue block_rq_requeue block_rq_merge block_rq_complete block_bio_queue block_getrq block_bio_backmerge block_bio_frontmerge block_split; do
	[ -d "$T/events/block/$e" ] || continue
	echo "dev == $((${DEV%:*} << 20 | ${DEV#*:}))" >"$T/events/block/$e/filter" || fail "no filter on $e"
	echo 1 >"$T/events/block/$e/enable"
done
idle() { # nothing in flight, and nothing ended for a second
	a=$(cat "/sys/block/$WATCH/stat")
	usleep 1000000
	[ "$a" = "$(cat "/sys/block/$WATCH/stat")" ] && [ "$(echo "$a" | awk '{print $9}')" = 0 ]
}
# What setup left in memory is written before the trace begins, not into it.
sync -f "$DIR"
until_true 60 idle || fail "the device was not idle before the load"

echo 1 >"$T/tracing_on"
mark trace

# What waits to be written behind the device, for rules that need it. Before 6.10 the figures of a disk are only those of the
# root cgroup, so the scenario's cgroup is asked too. Without other programs, as they would take the guest's CPU from the load.
sample() {
	read -r line _ </proc/uptime
	while read -r key value _; do
		line="$line $key $value"
	done <"/sys/kernel/debug/bdi/$DEV/stats"
	while read -r key value; do
		case $key in file_dirty | file_writeback) line="$line $key $value" ;; esac
	done <"$CG/memory.stat"
	echo "$line"
}
(while sleep 0.5; do sample; done >>"$OUT/backlog" 2>/dev/null) &
sampler=$!

attached() { grep -q attached "$OUT/watch.err" || ! kill -0 "$watcher" 2>/dev/null; }
attach() {
	[ -x /usr/bin/io-starve ] || return 0
	# shellcheck disable=SC2086 # EXTRA is a list of words
	io-starve watch --device "$WATCH" --output "$OUT/events.ndjson" --record "$OUT/run.rec" $EXTRA >"$OUT/watch.out" 2>"$OUT/watch.err" &
	watcher=$!
	until_true 60 attached || fail "io-starve did not say that it is attached within 60 s"
	kill -0 "$watcher" 2>/dev/null || fail "io-starve ended before the load: $(tail -n 3 "$OUT/watch.err" | tr '\n' ' ')"
	mark attached
}

[ -n "$ATTACH_AFTER" ] || attach
mark load
step load "$LOAD_LIMIT" &
load=$!
if [ -n "$ATTACH_AFTER" ]; then
	sleep "$ATTACH_AFTER"
	attach
fi
wait "$load"
mark loaded
until_true 60 idle || fail "the device was not idle after the load"
events() { grep -c "\"event\":\"$1\"" "$OUT/events.ndjson"; }
closed() { [ "$(events close)" -ge "$(events open)" ]; }
if [ -n "$watcher" ]; then
	[ -z "$CLOSES" ] || until_true 30 closed || fail "a finding was still open 30 s after the load"
	mark stop
	kill -TERM "$watcher"
	gone() { ! kill -0 "$watcher" 2>/dev/null; }
	until_true 30 gone || {
		fail "io-starve did not end within 30 s of SIGTERM"
		kill -KILL "$watcher"
	}
	wait "$watcher"
	echo $? >"$OUT/watch.code"
	timeout 120 io-starve replay "$OUT/run.rec" --format json >"$OUT/replay.ndjson" 2>"$OUT/replay.err"
	echo $? >"$OUT/replay.code"
fi
kill "$sampler"
echo 0 >"$T/tracing_on"
cat "$T/trace" >"$OUT/trace"
cat "$T"/per_cpu/cpu*/stats | grep -E '^(overrun|dropped events|commit overrun)' >"$OUT/trace.stats"
mark end
step teardown 60
rmdir "$T"
say "ended after $(now) s"
