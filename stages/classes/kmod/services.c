// SPDX-License-Identifier: GPL-2.0
/*
 * See services.h.
 *
 * Lifetimes. `struct services` of a namespace is made with its first service and freed with its last one. Only netlink's commands change
 * it, which come one at a time, and the end of the namespace or of the module, which come when no command can any more. Packets see it
 * by the `priv` of hooks, and devices' events by the namespace's pointer, both under RCU. What is known of clients is made no later than
 * the first service, and goes no earlier than the last one. A service ends in this order:
 *
 *   is_dead, under its lock: nothing waits there any more; what did is delivered
 *   its ports are nobody's, and its number is free; for the last one, the hooks are taken out
 *   a grace period: no packet and no device's event has it
 *   its timer and its NAPI end: nobody arms or schedules them
 *   it is freed
 */
#include <linux/bitmap.h>
#include <linux/netdevice.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include "dispatch.h"
#include "flows.h"
#include "hooks.h"
#include "services.h"

#define PORTS 65536

static unsigned int net_id;

struct services_net {
	struct services __rcu *services;
	struct clients *clients;	/* until the last service has ended, at least */
};

static struct services *services_of(struct net *net)
{
	struct services_net *here = net_generic(net, net_id);

	return rcu_dereference_protected(here->services, true);
}

static struct classes *running(const struct services *services, u32 number)
{
	return services ? rcu_dereference_protected(services->service[number], true) : NULL;
}

struct classes *service_of(struct net *net, u32 number)
{
	return running(services_of(net), number);
}

bool services_run(struct net *net)
{
	return services_of(net);
}

struct classes *service_alloc(struct net *net, u32 number, u32 count)
{
	struct classes *classes = kvzalloc(struct_size(classes, class, count), GFP_KERNEL_ACCOUNT);
	enum queue queue;
	u32 i;

	if (!classes)
		return NULL;
	classes->net = net;
	classes->number = number;
	classes->count = count;
	get_random_bytes(classes->hash_key, sizeof(classes->hash_key));
	spin_lock_init(&classes->lock);
	INIT_LIST_HEAD(&classes->resting);
	INIT_LIST_HEAD(&classes->abandoned);
	for (i = 0; i < count; i++) {
		for (queue = 0; queue < QUEUES; queue++)
			INIT_LIST_HEAD(&classes->class[i].queue[queue]);
		INIT_LIST_HEAD(&classes->class[i].upgraded);
	}
	return classes;
}

void service_free(struct classes *classes)
{
	flows_free_spare(classes);
	kfree(classes->ranges);
	kvfree(classes);
}

struct clients *services_clients(struct net *net, bool makes)
{
	struct services_net *here = net_generic(net, net_id);

	if (!here->clients && makes)
		here->clients = clients_new();
	return here->clients;
}

/* Those of the namespace, made with the first service. */
static struct services *services_get(struct net *net)
{
	struct services_net *here = net_generic(net, net_id);
	struct services *services = services_of(net);
	int error;

	if (services)
		return services;
	services = kvzalloc(sizeof(*services), GFP_KERNEL_ACCOUNT);
	if (!services)
		return ERR_PTR(-ENOMEM);
	services->net = net;
	services->clients = services_clients(net, true);
	error = services->clients ? hooks_register(services) : -ENOMEM;
	if (error) {
		kvfree(services);
		return ERR_PTR(error);
	}
	rcu_assign_pointer(here->services, services);
	return services;
}

/* Waits until nobody sees what was taken out, and with the last service ends what they have in common. */
static void services_settle(struct services *services)
{
	struct services_net *here = net_generic(services->net, net_id);

	if (services->count) {
		synchronize_net();
		return;
	}
	hooks_unregister(services);
	RCU_INIT_POINTER(here->services, NULL);
	synchronize_net();	/* device_event() */
	kvfree(services);
}

int service_start(struct classes *classes)
{
	struct services *services = services_get(classes->net);
	int error;

	if (IS_ERR(services))
		return PTR_ERR(services);
	error = dispatch_init(classes);
	if (error) {
		services_settle(services);
		return error;
	}
	services->count++;
	rcu_assign_pointer(services->service[classes->number], classes);
	return 0;
}

static unsigned long *new_ports(const struct tarn_classes_ports *ranges, u32 count, u8 protocol)
{
	unsigned long *ports = bitmap_zalloc(PORTS, GFP_KERNEL);
	u32 i;

	for (i = 0; ports && i < count; i++)
		if (ranges[i].protocol == protocol)
			bitmap_set(ports, ranges[i].first, ranges[i].last - ranges[i].first + 1);
	return ports;
}

/* No port that is the service's before and after is nobody's in between. `ports` NULL: it has none. */
static void write_ports(u8 *port, u8 number, const unsigned long *ports)
{
	u32 i;

	for (i = 0; i < PORTS; i++) {
		if (ports && test_bit(i, ports))
			WRITE_ONCE(port[i], number);
		else if (port[i] == number)
			WRITE_ONCE(port[i], 0);
	}
}

int service_set_ports(struct classes *classes, struct tarn_classes_ports *ranges, u32 count)
{
	unsigned long *tcp = new_ports(ranges, count, IPPROTO_TCP), *udp = new_ports(ranges, count, IPPROTO_UDP);
	struct services *services = services_of(classes->net);
	int error = tcp && udp ? 0 : -ENOMEM;

	if (!error) {
		write_ports(services->port[0], classes->number + 1, tcp);
		write_ports(services->port[1], classes->number + 1, udp);
		spin_lock_bh(&classes->lock);
		bitmap_and(classes->speaks_tls, classes->speaks_tls, tcp, PORTS);
		bitmap_and(classes->speaks_h2, classes->speaks_h2, tcp, PORTS);
		spin_unlock_bh(&classes->lock);
		swap(classes->ranges, ranges);
		classes->range_count = count;
	}
	kfree(ranges);
	bitmap_free(tcp);
	bitmap_free(udp);
	return error;
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

static void service_end(struct services *services, u32 number, bool is_dying)
{
	struct classes *classes = running(services, number);
	LIST_HEAD(packets);

	if (!classes)
		return;
	spin_lock_bh(&classes->lock);
	classes->is_dead = true;
	requests_flush(classes, &packets);
	spin_unlock_bh(&classes->lock);
	if (is_dying)
		drop_with_namespace(classes->net, &packets);
	else
		deliver_from_process(classes->net, &packets);
	write_ports(services->port[0], number + 1, NULL);
	write_ports(services->port[1], number + 1, NULL);
	RCU_INIT_POINTER(services->service[number], NULL);
	services->count--;
	services_settle(services);
	dispatch_exit(classes);
	WARN_ON_ONCE(classes->waiting || classes->in_flight || classes->bytes_now);
	service_free(classes);
}

void service_stop(struct net *net, u32 number)
{
	service_end(services_of(net), number, false);
}

static void services_end(struct net *net, bool is_dying)
{
	struct services_net *here = net_generic(net, net_id);
	u32 number;

	/* With the last one, they are gone. */
	for (number = 0; number < TARN_CLASSES_MOST_SERVICES; number++)
		service_end(services_of(net), number, is_dying);
	if (here->clients)
		clients_put(here->clients);
	here->clients = NULL;
}

void services_stop(struct net *net)
{
	services_end(net, false);
}

/* A device goes: what came in by it goes on now, for it holds the device. */
static int device_event(struct notifier_block *block, unsigned long event, void *pointer)
{
	struct net_device *dev = netdev_notifier_info_to_dev(pointer);
	struct services_net *here = net_generic(dev_net(dev), net_id);
	struct services *services;
	LIST_HEAD(packets);
	u32 number;

	if (event != NETDEV_DOWN && event != NETDEV_UNREGISTER)
		return NOTIFY_DONE;
	rcu_read_lock();
	services = rcu_dereference(here->services);
	for (number = 0; services && number < TARN_CLASSES_MOST_SERVICES; number++) {
		struct classes *classes = rcu_dereference(services->service[number]);

		if (!classes)
			continue;
		spin_lock_bh(&classes->lock);
		requests_take_device(classes, dev, &packets);
		spin_unlock_bh(&classes->lock);
	}
	rcu_read_unlock();
	deliver_from_process(dev_net(dev), &packets);
	return NOTIFY_DONE;
}

static struct notifier_block device_notifier = { .notifier_call = device_event };

static void __net_exit services_pre_exit(struct net *net)
{
	services_end(net, !check_net(net));
}

static struct pernet_operations net_operations = {
	.pre_exit = services_pre_exit,
	.id = &net_id,
	.size = sizeof(struct services_net),
};

int services_init(void)
{
	int error = register_pernet_subsys(&net_operations);

	if (error)
		return error;
	error = register_netdevice_notifier(&device_notifier);
	if (error)
		unregister_pernet_subsys(&net_operations);
	return error;
}

void services_exit(void)
{
	unregister_netdevice_notifier(&device_notifier);
	unregister_pernet_subsys(&net_operations);
}
