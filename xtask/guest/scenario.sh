#!/bin/sh
# One phase of one scenario in the guest. Everything that waits has a limit.
# usage: scenario.sh NAME prepare|trace|load|commands|idle|finish. /scenarios/NAME/env sets SLOTS and LOAD_LIMIT.
NAME=$1
S=/scenarios/$NAME
OUT=/out/$NAME
DIR=/mnt/$NAME
CG=/sys/fs/cgroup/$NAME
T=/sys/kernel/tracing/instances/$NAME
P=$T-pauses
EVENTS="block_rq_insert block_rq_issue block_rq_requeue block_rq_merge block_rq_complete
	block_bio_queue block_getrq block_bio_backmerge block_bio_frontmerge block_split"
# What io-starve reads of filesystems in a trace; those of modules that are not loaded are not there.
FS_EVENTS="ext4/ext4_sync_file_enter ext4/ext4_sync_file_exit jbd2/jbd2_start_commit jbd2/jbd2_commit_locking
	jbd2/jbd2_commit_flushing jbd2/jbd2_commit_logging jbd2/jbd2_end_commit jbd2/jbd2_run_stats jbd2/jbd2_handle_stats
	jbd2/jbd2_checkpoint jbd2/jbd2_checkpoint_stats writeback/balance_dirty_pages"
. /vm/common
. "$S/env"
mkdir -p "$OUT" "$DIR" "$CG"
echo "+io +memory" >"$CG/cgroup.subtree_control"

step() { # FILE SECONDS: runs a script of the scenario
	[ -s "$S/$1" ] || return 0
	timeout "$2" sh -e -c '. /vm/common; . /vm/functions; . "$0"' "$S/$1" >"$OUT/$1.log" 2>&1 || fail "$1 failed or took more than $2 s: $(tail -n 3 "$OUT/$1.log" | tr '\n' ' ')"
}
# Disks, found by the PCI slot that xtask gave them.
n=1
for slot in $SLOTS; do
	find_disk() { found=$(ls -d /sys/bus/pci/devices/0000:00:"$slot".0/virtio*/host*/target*/*/block/* 2>/dev/null | sed 's,.*/,,') && [ -b "/dev/$found" ]; }
	until_true 20 find_disk || fail "disk $n in slot $slot did not appear"
	if [ $n = 1 ]; then DISK=$found; else eval "DISK$n=$found; export DISK$n"; fi
	n=$((n + 1))
done
export NAME OUT DIR CG DISK
[ -s "$OUT/watched" ] && read -r WATCH DEV <"$OUT/watched"

idle() { # nothing in flight, and nothing ended for a second
	a=$(cat "/sys/block/$WATCH/stat")
	sleep 1
	[ "$a" = "$(cat "/sys/block/$WATCH/stat")" ] && [ "$(echo "$a" | awk '{print $9}')" = 0 ]
}

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

# BPF programs in the kernel, each by its name.
programs() { grep -F '[bpf]' /proc/kallsyms | awk '{print $3}' | sort; }

case $2 in
prepare)
	n=1
	for slot in $SLOTS; do
		if [ $n = 1 ]; then disk=$DISK; else eval "disk=\$DISK$n"; fi
		while read -r file value; do
			echo "$value" >"/sys/block/$disk/$file" || fail "cannot write $value to $file of $disk"
		done <"$S/disk$n"
		n=$((n + 1))
	done
	step setup 120
	# Commands need no disk.
	[ -n "$DISK" ] || exit
	WATCH=$DISK
	[ -s "$OUT/device" ] && WATCH=$(cat "$OUT/device")
	echo "$WATCH $(cat "/sys/block/$WATCH/dev")" >"$OUT/watched"
	# What setup left in memory is written before the trace begins, not into it.
	sync -f "$DIR"
	;;
trace)
	for f in scheduler nr_requests wbt_lat_usec; do
		echo "$f $(cat "/sys/block/$WATCH/queue/$f" 2>/dev/null)" >>"$OUT/queue"
	done
	mkdir -p "$T"
	echo 0 >"$T/tracing_on"
	echo mono >"$T/trace_clock"
	echo 24576 >"$T/buffer_size_kb"
	for e in $EVENTS; do
		[ -d "$T/events/block/$e" ] || continue
		echo "dev == $((${DEV%:*} << 20 | ${DEV#*:}))" >"$T/events/block/$e/filter" || fail "no filter on $e"
		echo 1 >"$T/events/block/$e/enable"
	done
	for e in $FS_EVENTS; do
		[ -d "$T/events/$e" ] || continue
		# Other scenarios run beside this one. Pauses name their device otherwise.
		echo "dev == $((${DEV%:*} << 20 | ${DEV#*:}))" 2>/dev/null >"$T/events/$e/filter" || :
		echo 1 >"$T/events/$e/enable"
	done
	until_true 60 idle || fail "the device was not idle before the load"
	echo 1 >"$T/tracing_on"
	if [ -n "$PAUSES" ]; then
		mkdir -p "$P"
		echo mono >"$P/trace_clock"
		echo 4096 >"$P/buffer_size_kb"
		echo 1 >"$P/events/writeback/balance_dirty_pages/enable"
	fi
	mark trace
	;;
load)
	(while sleep 0.5; do sample; done >>"$OUT/backlog" 2>/dev/null) &
	sampler=$!
	mark load
	step load "$LOAD_LIMIT"
	mark loaded
	until_true 60 idle || fail "the device was not idle after the load"
	kill "$sampler"
	;;
commands)
	mkdir -p "$OUT/commands"
	programs >"$OUT/programs"
	n=1
	while [ -e "$S/commands/$n" ]; do
		# By its path: else busybox runs its own shell, which prefers its own setpriv.
		timeout "$LOAD_LIMIT" /bin/sh -c '. /vm/functions; . "$0"' "$S/commands/$n" >"$OUT/commands/$n.out" 2>"$OUT/commands/$n.err"
		code=$?
		echo $code >"$OUT/commands/$n.code"
		# The time was over: that ended the shell, not what it had started.
		[ $code != 143 ] || killall -q -KILL io-starve
		# The kernel frees them in the background.
		detached() { programs | cmp -s - "$OUT/programs"; }
		until_true 10 detached || fail "after $(cat "$S/commands/$n") BPF programs are left: $(programs | tr '\n' ' ')"
		n=$((n + 1))
	done
	;;
idle)
	until_true 60 idle || fail "the device was not idle at the end"
	;;
finish)
	if [ -d "$T" ]; then
		echo 0 >"$T/tracing_on"
		cat "$T/trace" >"$OUT/trace"
		cat "$T"/per_cpu/cpu*/stats | grep -E '^(overrun|dropped events|commit overrun)' >"$OUT/trace.stats"
	fi
	if [ -d "$P" ]; then
		echo 0 >"$P/tracing_on"
		cat "$P/trace" >"$OUT/pauses"
		cat "$P"/per_cpu/cpu*/stats | grep -E '^(overrun|dropped events|commit overrun)' >"$OUT/pauses.stats"
		rmdir "$P"
	fi
	step teardown 60
	[ ! -d "$T" ] || rmdir "$T"
	;;
esac
