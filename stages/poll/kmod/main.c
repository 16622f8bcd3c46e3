// SPDX-License-Identifier: GPL-2.0
/*
 * tarn_poll: sets how many packets one poll of a NAPI may take (its weight). A thread that is due waits for the poll that runs: with
 * a weight of 16 instead of 64, a quarter as long.
 *
 * weight.c has the devices that it was told to change, and writes weights; published.c has the rule that changes them after each
 * poll, for comparison; netlink.c takes commands.
 *
 * What is read by whom: the kernel reads a NAPI's weight once at the beginning of each poll, so a write is good from the next one
 * on, and both are single words. A device's list of NAPIs is an RCU list, and who frees a NAPI waits for a grace period after it was
 * taken off: we walk it under rcu_read_lock(), and keep the addresses of NAPIs to compare with, never to look at.
 *
 * Locks: RTNL for the table of devices and what is in it. The rule reads the table under RCU, in a tracepoint. Commands come one at
 * a time (genl_mutex), and the tracepoint is joined and left by commands and at the end only, outside RTNL.
 *
 * What can go away, and what happens then:
 *
 *   a NAPI        nothing: its address is not in the list any more, and is forgotten at the next SET. A new one has the kernel's
 *                 weight until then; at the address of an old one, too.
 *   a device      NETDEV_UNREGISTER, before it is freed and in whatever way it leaves its namespace: its NAPIs get their weight
 *                 back, its entry leaves the table, and is freed after a grace period. No reference to a device is held.
 *   a namespace   its devices leave it first.
 *   the module    netlink first, so that nobody begins anew; then the notifier, which is told of each device's end as it is taken
 *                 off (unregister_netdevice_notifier()), so that all weights are as before, also of devices that are down; then
 *                 the tracepoint, after which nobody runs our code. Entries are freed by the kernel's own function.
 */
#include <linux/module.h>

#include "netlink.h"
#include "published.h"
#include "weight.h"

static int __init tarn_poll_init(void)
{
	int error;

	error = weight_init();
	if (error)
		return error;
	error = netlink_register();
	if (error)
		weight_exit();
	return error;
}

static void __exit tarn_poll_exit(void)
{
	netlink_unregister();
	weight_exit();
	published_leave();
}

module_init(tarn_poll_init);
module_exit(tarn_poll_exit);

MODULE_DESCRIPTION("tarn: sets how many packets one poll of a NAPI may take");
MODULE_LICENSE("GPL");
