/* SPDX-License-Identifier: GPL-2.0 */
/* What differs between the kernels that the module is built for, 6.1 and newer. */
#ifndef TARN_CLASSES_COMPAT_H
#define TARN_CLASSES_COMPAT_H

#include <linux/hrtimer.h>
#include <linux/netdevice.h>
#include <linux/version.h>
#include <net/inet6_hashtables.h>
#include <net/inet_hashtables.h>
#include <net/tcp.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
#include <asm/unaligned.h>
#else
#include <linux/unaligned.h>
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
#include <net/gso.h>
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
static inline void hrtimer_setup(struct hrtimer *timer, enum hrtimer_restart (*function)(struct hrtimer *),
				 clockid_t clock, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clock, mode);
	timer->function = function;
}
#endif

/* Debian's kernels have every variable zeroed first (INIT_STACK_ALL_ZERO); where that shows, and nothing needs it: */
#if __has_attribute(__uninitialized__)
#define not_zeroed __attribute__((__uninitialized__))
#else
#define not_zeroed
#endif

/*
 * The socket of a connection, with a reference. Linux 6.18 no longer takes the table, of which there is one a namespace since
 * 6.1.
 */
static inline struct sock *lookup_established(struct net *net, __be32 client, __be16 client_port, __be32 local, u16 local_port,
					      int dif, int sdif)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 18, 0)
	return __inet_lookup_established(net, net->ipv4.tcp_death_row.hashinfo, client, client_port, local, local_port, dif,
					 sdif);
#else
	return __inet_lookup_established(net, client, client_port, local, local_port, dif, sdif);
#endif
}

static inline struct sock *lookup_established6(struct net *net, const struct in6_addr *client, __be16 client_port,
					       const struct in6_addr *local, u16 local_port, int dif, int sdif)
{
#if !IS_ENABLED(CONFIG_IPV6)
	return NULL;
#elif LINUX_VERSION_CODE < KERNEL_VERSION(6, 18, 0)
	return __inet6_lookup_established(net, net->ipv4.tcp_death_row.hashinfo, client, client_port, local, local_port, dif,
					  sdif);
#else
	return __inet6_lookup_established(net, client, client_port, local, local_port, dif, sdif);
#endif
}

/* The option's kind has a name since there is TCP-AO, Linux 6.7. */
#ifndef TCPOPT_AO
#define TCPOPT_AO 29
#endif

/* A device that is none, for a NAPI that belongs to no device. */
static inline struct net_device *new_dummy_device(void)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 10, 0)
	struct net_device *dev = kzalloc(sizeof(*dev), GFP_KERNEL);

	if (dev)
		init_dummy_netdev(dev);
	return dev;
#else
	return alloc_netdev_dummy(0);
#endif
}

static inline void free_dummy_device(struct net_device *dev)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 10, 0)
	kfree(dev);
#else
	free_netdev(dev);
#endif
}

#endif
