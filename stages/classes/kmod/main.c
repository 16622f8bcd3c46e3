// SPDX-License-Identifier: GPL-2.0
/*
 * tarn_classes: lets requests wait between IP and TCP or UDP, a queue a class of clients, and hands them on to the
 * service in the order that keeps what was promised to each class.
 *
 * What can go away while packets wait, and what happens then:
 *
 *   the configuration (STOP)   marked dead under the lock, so that nothing more is held; what waits is delivered; then the
 *                              hooks go, a grace period passes, the dispatcher ends, and it is freed.
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
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include "dispatch.h"
#include "hooks.h"
#include "main.h"
#include "netlink.h"
#include "requests.h"

static unsigned int net_id;

struct classes_net {
	struct classes __rcu *classes;
};

struct classes *classes_of(struct net *net)
{
	struct classes_net *here = net_generic(net, net_id);

	/* Written only by netlink's commands, which come one at a time, and by the end of namespace or module, after them. */
	return rcu_dereference_protected(here->classes, true);
}

struct classes *classes_alloc(struct net *net, u32 count)
{
	struct classes *classes = kvzalloc(struct_size(classes, class, count), GFP_KERNEL_ACCOUNT);
	enum queue queue;
	u32 i;

	if (!classes)
		return NULL;
	classes->net = net;
	classes->count = count;
	get_random_bytes(classes->hash_key, sizeof(classes->hash_key));
	spin_lock_init(&classes->lock);
	for (i = 0; i < count; i++)
		for (queue = 0; queue < QUEUES; queue++)
			INIT_LIST_HEAD(&classes->class[i].queue[queue]);
	for (i = 0; i < ARRAY_SIZE(classes->ports); i++)
		classes->ports[i] = bitmap_zalloc(65536, GFP_KERNEL_ACCOUNT);
	if (classes->ports[0] && classes->ports[1])
		return classes;
	classes_free(classes);
	return NULL;
}

void classes_free(struct classes *classes)
{
	requests_free_spare(classes);
	bitmap_free(classes->ports[0]);
	bitmap_free(classes->ports[1]);
	kfree(classes->ranges);
	kvfree(classes);
}

int classes_start(struct classes *classes)
{
	struct classes_net *here = net_generic(classes->net, net_id);
	int error;

	error = dispatch_init(classes);
	if (error)
		return error;
	error = hooks_register(classes);
	if (error) {
		dispatch_exit(classes);
		return error;
	}
	rcu_assign_pointer(here->classes, classes);
	return 0;
}

/* As softirq would, one after the other, so that other work comes in between. */
static void deliver_from_process(struct net *net, struct list_head *packets)
{
	while (!list_empty(packets)) {
		LIST_HEAD(one);

		list_move(packets->next, &one);
		local_bh_disable();
		rcu_read_lock();
		packets_deliver(net, &one);
		rcu_read_unlock();
		local_bh_enable();
		cond_resched();
	}
}

/* Nobody can ask for the counters of a namespace that is no more. */
static void drop_with_namespace(struct net *net, struct list_head *packets)
{
	struct list_head *packet;
	size_t count = 0;

	list_for_each(packet, packets)
		count++;
	if (count)
		pr_notice("tarn_classes: %zu waiting packets dropped with their network namespace\n", count);
	packets_drop(net, packets);
}

static void classes_end(struct net *net, bool is_dying)
{
	struct classes_net *here = net_generic(net, net_id);
	struct classes *classes = classes_of(net);
	LIST_HEAD(packets);

	if (!classes)
		return;
	spin_lock_bh(&classes->lock);
	classes->is_dead = true;
	requests_flush(classes, &packets);
	spin_unlock_bh(&classes->lock);
	if (is_dying)
		drop_with_namespace(net, &packets);
	else
		deliver_from_process(net, &packets);
	hooks_unregister(classes);
	dispatch_exit(classes);
	rcu_assign_pointer(here->classes, NULL);
	synchronize_net();	/* device_event() */
	WARN_ON_ONCE(classes->waiting || classes->in_flight || classes->bytes_now);
	classes_free(classes);
}

void classes_stop(struct net *net)
{
	classes_end(net, false);
}

/* A device goes: what came in by it goes on now, for it holds the device. */
static int device_event(struct notifier_block *block, unsigned long event, void *pointer)
{
	struct net_device *dev = netdev_notifier_info_to_dev(pointer);
	struct classes_net *here = net_generic(dev_net(dev), net_id);
	struct classes *classes;
	LIST_HEAD(packets);

	if (event != NETDEV_DOWN && event != NETDEV_UNREGISTER)
		return NOTIFY_DONE;
	rcu_read_lock();
	classes = rcu_dereference(here->classes);
	if (classes) {
		spin_lock_bh(&classes->lock);
		requests_take_device(classes, dev, &packets);
		spin_unlock_bh(&classes->lock);
	}
	rcu_read_unlock();
	deliver_from_process(dev_net(dev), &packets);
	return NOTIFY_DONE;
}

static struct notifier_block device_notifier = { .notifier_call = device_event };

static void __net_exit classes_pre_exit(struct net *net)
{
	classes_end(net, !check_net(net));
}

static struct pernet_operations net_operations = {
	.pre_exit = classes_pre_exit,
	.id = &net_id,
	.size = sizeof(struct classes_net),
};

static int __init tarn_classes_init(void)
{
	int error;

#ifdef DEBUG
	if (!choice_selftest())
		return -ENOTRECOVERABLE;
#endif
	error = requests_init();
	if (error)
		return error;
	error = register_pernet_subsys(&net_operations);
	if (error)
		goto err_net;
	error = register_netdevice_notifier(&device_notifier);
	if (error)
		goto err_notifier;
	error = netlink_register();
	if (error)
		goto err_netlink;
	return 0;

err_netlink:
	unregister_netdevice_notifier(&device_notifier);
err_notifier:
	unregister_pernet_subsys(&net_operations);
err_net:
	requests_exit();
	return error;
}

static void __exit tarn_classes_exit(void)
{
	netlink_unregister();
	unregister_netdevice_notifier(&device_notifier);
	unregister_pernet_subsys(&net_operations);
	requests_exit();
}

module_init(tarn_classes_init);
module_exit(tarn_classes_exit);

MODULE_DESCRIPTION("tarn: serves classes of clients by percentile targets, between IP and TCP or UDP");
MODULE_LICENSE("GPL");
/* No alias: by the family's, any user could have the kernel load the module. tarn loads it by its name. */
