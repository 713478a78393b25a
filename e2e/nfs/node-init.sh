#!/bin/bash
# node-init.sh - process 1 of a user-mode-linux node: mounts the NFS export with a kernel client of its own, then runs
# the scripts that the rig drops into the control folder, one after another.
word() { sed -n "s/.*\b$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
mount -t proc proc /proc
mount -t sysfs sys /sys 2> /dev/null
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mount -t tmpfs mnt /mnt
mkdir -p /mnt/nfs /mnt/ctl
ctl=$(word ctl) role=$(word role) ip=$(word myip)
mount -t hostfs none /mnt/ctl -o "$ctl"
for m in sunrpc grace lockd dns_resolver netfs fscache nfs nfsv4; do
  f=$(find /usr/lib/uml/modules -name "$m.ko" | head -n 1)
  [ -z "$f" ] || insmod "$f" 2> /dev/null
done
ip link set lo up
ip addr add "$ip/24" dev eth0
ip link set eth0 up
hostname "node$role"
if ! /bin/busybox mount -t nfs4 -o "vers=4.1,port=22049,proto=tcp,addr=10.77.0.1,clientaddr=$ip,hard" 10.77.0.1:/kaas /mnt/nfs \
  > "/mnt/ctl/$role.mount" 2>&1; then
  echo "mount failed" >> "/mnt/ctl/$role.mount"
fi
touch "/mnt/ctl/$role.up"
n=1
while [ ! -e /mnt/ctl/stop ]; do
  if [ -e "/mnt/ctl/$role.$n.sh" ]; then
    (cd /mnt/nfs && bash "/mnt/ctl/$role.$n.sh") > "/mnt/ctl/$role.$n.out" 2>&1
    echo $? > "/mnt/ctl/$role.$n.rc"
    n=$((n + 1))
  else
    sleep 0.05
  fi
done
/bin/busybox poweroff -f
