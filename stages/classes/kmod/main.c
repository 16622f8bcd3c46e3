// SPDX-License-Identifier: GPL-2.0
/*
 * tarn_classes: lets requests wait between IP and TCP or UDP, a queue a class of clients, and hands them on to the
 * service in the order that keeps what was promised to each class.
 *
 * What can go away while packets wait, and what happens then:
 *
 *   a service (STOP)           marked dead under the lock, so that nothing more is held; what waits is delivered; then its
 *                              ports go, with the last one the hooks, a grace period passes, the dispatcher ends, and it
 *                              is freed: see services.c.
 *   the namespace              pre_exit, before its devices and its connection tracking go: the same, but packets are
 *                              dropped, for nobody is there to receive them, and the kernel's log has their number. No
 *                              socket of the namespace is left, so no netlink command can run at the same time.
 *   a device                   NETDEV_DOWN: what came in by it is delivered at once, which releases our references.
 *   the module                 netlink first, so that nobody configures it anew; then each namespace as with STOP. Nothing
 *                              is called back later: freeing needs no RCU callback of ours.
 *   a socket                   held packets of early demultiplexing have references of their own; TCP and UDP look at the
 *                              socket's state anew, as they do after any queue.
 */
#include <linux/module.h>

#include "choice.h"
#include "flows.h"
#include "netlink.h"
#include "services.h"

static int __init tarn_classes_init(void)
{
	int error;

#ifdef DEBUG
	if (!choice_selftest())
		return -ENOTRECOVERABLE;
#endif
	error = flows_init();
	if (error)
		return error;
	error = services_init();
	if (error)
		goto err_services;
	error = netlink_register();
	if (error)
		goto err_netlink;
	return 0;

err_netlink:
	services_exit();
err_services:
	flows_exit();
	return error;
}

static void __exit tarn_classes_exit(void)
{
	netlink_unregister();
	services_exit();
	flows_exit();
}

module_init(tarn_classes_init);
module_exit(tarn_classes_exit);

MODULE_DESCRIPTION("tarn: serves classes of clients by percentile targets, between IP and TCP or UDP");
MODULE_LICENSE("GPL");
/* No alias: by the family's, any user could have the kernel load the module. tarn loads it by its name. */
