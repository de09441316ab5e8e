#!/bin/sh
# A process cannot pivot out of the first root file system, so init moves into a second one.
mount -t proc proc /proc
grep -q driver=systemd /proc/cmdline && next=/lib/systemd/systemd || next=/stage
umount /proc
mount -t tmpfs -o mode=755,size=80% none /mnt 2>/dev/null || { mkdir -p /mnt; mount -t tmpfs -o mode=755,size=80% none /mnt; }
for part in /bin /sbin /etc /lib /lib64 /usr /tests /root /var /stage /run-tests; do [ -e $part ] && mv $part /mnt/ 2>/dev/null || cp -a $part /mnt/; done
/mnt/bin/busybox mkdir -p /mnt/proc /mnt/sys /mnt/dev /mnt/run /mnt/tmp
exec /mnt/bin/busybox switch_root /mnt $next
