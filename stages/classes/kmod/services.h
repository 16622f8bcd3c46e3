/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The services of a network namespace. Each has its own ports, limit, queues, shares and dispatcher, so that one that stands still or
 * is overloaded keeps no other's requests waiting; what they share is the memory of the host.
 *
 * A packet's port says which service it is for. Ports are looked up without a lock, as single bytes; the service behind is there for a
 * grace period after it has ended.
 */
#ifndef TARN_CLASSES_SERVICES_H
#define TARN_CLASSES_SERVICES_H

#include "classes.h"
#include "clients.h"

struct services {
	struct net *net;
	struct clients *clients;	/* of the namespace: there as long as this is */
	u32 count;
	struct classes __rcu *service[TARN_CLASSES_MOST_SERVICES];
	struct nf_hook_ops hooks[4];	/* see hooks.c */
	u8 port[2][65536];		/* TCP, UDP: the service's number, from 1; 0: none */
};

/* The service of a local port, or NULL. Wants RCU. */
static __always_inline struct classes *service_of_port(const struct services *services, u8 protocol, __be16 port)
{
	u8 number = READ_ONCE(services->port[protocol == IPPROTO_UDP][ntohs(port)]);

	return number ? rcu_dereference(services->service[number - 1]) : NULL;
}

/* What runs here under this number, or NULL. For netlink, whose commands come one at a time. */
struct classes *service_of(struct net *net, u32 number);

/* Whether any does. */
bool services_run(struct net *net);

/* Room for a service with so many classes. */
struct classes *service_alloc(struct net *net, u32 number, u32 classes);
void service_free(struct classes *classes);

/* From here on packets see it, once it has ports. Nothing runs there yet under its number. */
int service_start(struct classes *classes);

/*
 * The local ports that are the service's from now on, instead of those before; another's become its own. Takes over `ranges`. -ENOMEM:
 * nothing has changed.
 */
int service_set_ports(struct classes *classes, struct tarn_classes_ports *ranges, u32 count);

/* Ends and frees one, or all of them and what is known of clients. What waits goes on to the service. */
void service_stop(struct net *net, u32 number);
void services_stop(struct net *net);

/* What is known of clients here, made with the first one or with the first service; NULL: nothing, or no memory. For netlink. */
struct clients *services_clients(struct net *net, bool makes);

int services_init(void);
void services_exit(void);

#endif
