// SPDX-License-Identifier: GPL-2.0
/*
 * tarn_reassembly: puts fragmented IP datagrams together before connection tracking and the stack do, at the same cost for any
 * order of arrival, in a memory that one sender cannot take from the others.
 *
 * The way of a fragment: hook (run.c), its headers (ipv4.c, ipv6.c), its shard and datagram (arrive.c, table.c), its place in it
 * (core.h); when it is the last one missing, the datagram leaves the table, the lock is dropped, and glue.c makes one packet of
 * it, which goes on through the hook in place of the fragment. When the memory is full, memory.c chooses whose datagram is given
 * up.
 *
 * Locks: one a shard, for the datagrams, sources, lists and counters in it. None is held while another is taken, while packets are
 * freed (but for a datagram whose identifier was used again) or while a message is sent. Hooks switch bottom halves off. What is
 * read across shards (sums, hints) is atomic or a single word; the spare datagram of a shard is exchanged. Routes and addresses are
 * asked for under RCU, in the shard's lock.
 *
 * What can go away while fragments are held, and what happens then:
 *
 *   the configuration (STOP)   the hooks go; each shard is marked dead under its lock as it is emptied, so that a hook that still
 *                              runs on another CPU takes nothing more; the timer ends; a grace period passes; it is freed.
 *   the namespace              pre_exit, before its devices go: the same. No socket of it is left, so no netlink command runs.
 *   a device                   nothing: a held fragment has no reference to its device, route, socket or connection, only the index
 *                              of the device, which is looked up when a message is to be sent.
 *   the module                 netlink first, so that nobody begins anew; then each namespace as with STOP, whose grace period is
 *                              the last thing that can run our code; then the caches. No RCU callback of ours is left.
 */
#include <linux/module.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include "main.h"
#include "netlink.h"
#include "run.h"
#include "table.h"

static unsigned int net_id;

struct reassembly_net {
	struct reassembly *here;
};

struct reassembly **place_in(const struct net *net)
{
	struct reassembly_net *of = net_generic(net, net_id);

	return &of->here;
}

static void __net_exit net_pre_exit(struct net *net)
{
	struct reassembly **place = place_in(net);

	if (*place)
		run_stop(*place);
	*place = NULL;
}

static struct pernet_operations net_operations = {
	.pre_exit = net_pre_exit,
	.id = &net_id,
	.size = sizeof(struct reassembly_net),
};

static int __init tarn_reassembly_init(void)
{
	int error;

	error = table_init();
	if (error)
		return error;
	error = register_pernet_subsys(&net_operations);
	if (error)
		goto err_net;
	error = netlink_register();
	if (error)
		goto err_netlink;
	return 0;

err_netlink:
	unregister_pernet_subsys(&net_operations);
err_net:
	table_exit();
	return error;
}

static void __exit tarn_reassembly_exit(void)
{
	netlink_unregister();
	unregister_pernet_subsys(&net_operations);
	table_exit();
}

module_init(tarn_reassembly_init);
module_exit(tarn_reassembly_exit);

MODULE_DESCRIPTION("tarn: reassembles IP datagrams at the same cost for any order of arrival, and under attack");
MODULE_LICENSE("GPL");
