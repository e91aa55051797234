#!/usr/bin/busybox sh
# First process of a test guest. Runs the batches of scenarios, then writes /out as a tar to the first virtio disk.
# Lines that begin with "vm:" are read by xtask from the console.
B=/usr/bin/busybox
$B --install -s /busybox
export PATH=/usr/sbin:/usr/bin:/busybox HOME=/ LC_ALL=C
# There is no udev: device-mapper makes its nodes itself.
export DM_DISABLE_UDEV=1

mount -t proc proc /proc
hostname lab
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tracefs trace /sys/kernel/tracing
mount -t debugfs debug /sys/kernel/debug
mount -t securityfs security /sys/kernel/security
mkdir -p /dev/shm /sys/fs/cgroup /tmp /mnt
mount -t tmpfs tmp /tmp
mount -t tmpfs shm /dev/shm
mount -t cgroup2 cgroup /sys/fs/cgroup
echo "+io +memory" >/sys/fs/cgroup/cgroup.subtree_control
[ -d /sys/fs/bpf ] && mount -t bpf bpf /sys/fs/bpf

# A guest whose xtask was killed ends by itself.
(sleep "$(cat /vm/limit)" && poweroff -f) &

while read -r module; do
	insmod "/modules/$module" || echo "vm: error: insmod $module failed"
done </modules/order
# Disks are probed in the background.
i=0
while [ ! -b /dev/vda ] && [ $i -lt 100 ]; do
	usleep 100000
	i=$((i + 1))
done
echo "vm: booted $(uname -r) after $(cut -d' ' -f1 /proc/uptime) s"

n=0
# Its own descriptor: the programs of a batch must not read the list.
while read -r sysctls <&3; do
	n=$((n + 1))
	for s in $(echo "$sysctls" | tr ',' ' '); do
		[ "$s" = - ] || sysctl -q -w "$s" || echo "vm: error: sysctl $s failed"
	done
	/vm/batch.sh $n </dev/null
done 3</vm/batches

dmesg >/out/dmesg
tar -c -f /dev/vda -C /out . && sync && echo "vm: done after $(cut -d' ' -f1 /proc/uptime) s"
poweroff -f
