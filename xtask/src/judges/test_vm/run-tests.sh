#!/bin/sh
# Runs the tests; their files lie on a disk, as they do elsewhere. MODULES and FILTER are replaced.
export PATH=/sbin:/usr/sbin:/bin:/usr/bin HOME=/root
for module in MODULES; do modprobe $module; done
mount -t ext4 /dev/vda /tmp
grep -q driver=systemd /proc/cmdline && export CGROUP_DRIVER=systemd
echo "TEST-VM kernel $(uname -r), init $(cat /proc/1/comm), controllers: $(cat /sys/fs/cgroup/cgroup.controllers), AppArmor: $(cat /sys/module/apparmor/parameters/enabled)"
cd /tests
CARGO_MANIFEST_DIR=/tests /tests/deps/node --test-threads=1 --skip images:: --skip pulls:: --skip a_server_that_dies_anywhere FILTER
echo "TEST-VM exit code $?"
sync
poweroff -f
